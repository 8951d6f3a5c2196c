mod bench;
mod faults;
mod guard;
mod inspect;
mod random;
mod shapes;
mod values;
