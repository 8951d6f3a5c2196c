mod bench;
mod guard;
