//! `make sim` runs more seeds: `TIDEWIRE_SEEDS=10000`, from `TIDEWIRE_FIRST_SEED` on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tidewire_connector::{conformance, BoxFuture, Budget};
use tidewire_simulation::{run, run_with_rewrites, Bus, Outcome, Sabotage, Stage};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

fn tell(outcome: &Outcome) -> String {
    format!("seed {}: {:#?}\n{}", outcome.seed, outcome.wrong, outcome.end.join("\n"))
}

#[test]
fn under_any_faults_nothing_is_lost_goes_back_or_stays_behind() {
    let (first, seeds) = (number("TIDEWIRE_FIRST_SEED", 1), number("TIDEWIRE_SEEDS", 200));
    let (mut steps, mut crashes, mut errors) = (0, 0, 0);
    for seed in first..first + seeds {
        let outcome = run(seed, None);
        assert!(outcome.wrong.is_empty(), "{}", tell(&outcome));
        (steps, crashes, errors) = (steps + outcome.steps, crashes + outcome.crashes, errors + outcome.errors);
    }
    println!("{seeds} seeds from {first} on: {steps} steps, {crashes} crashes, {errors} errors, 0 wrong");
    assert!(crashes > seeds / 2 && errors > seeds, "the faults are there");
}

#[test]
fn a_table_that_is_read_anew_is_shown_when_all_of_it_is_there_and_not_before() {
    let (first, seeds) = (number("TIDEWIRE_FIRST_SEED", 1), number("TIDEWIRE_SEEDS", 200));
    let mut shown = 0;
    for seed in first..first + seeds {
        let outcome = run_with_rewrites(seed, None);
        assert!(outcome.wrong.is_empty(), "{}", tell(&outcome));
        shown += outcome.end.iter().filter(|line| line.contains(" is shown at ")).count();
    }
    println!("{seeds} seeds from {first} on: at the ends of their traces {shown} tables are shown");
    assert!(shown as u64 > seeds / 2, "tables are read anew: {shown}");
    let found = (1..=100).find(|seed| !run_with_rewrites(*seed, Some(Sabotage::NoEnd)).wrong.is_empty());
    assert!(found.is_some(), "a source that doesn't say that it reads is not found");
}

/// A seed that failed once.
fn failed_once(seed: u64) {
    let outcome = run(seed, None);
    assert!(outcome.wrong.is_empty(), "{}", tell(&outcome));
}

#[test]
fn a_boundary_that_is_told_again_inside_a_transaction_makes_no_sink_commit_a_part_of_it() {
    failed_once(1101);
}

#[test]
fn a_new_column_that_is_seen_empty_before_its_transaction_is_no_fault() {
    failed_once(6317);
}

#[test]
fn an_older_schema_that_is_told_once_more_on_one_partition_empties_no_column_that_another_brought() {
    failed_once(8582);
    failed_once(619);
}

fn open(name: &'static str, buses: &Buses) -> Bus {
    buses.lock().unwrap().entry(name).or_insert_with(|| Bus::new(&Stage::new(1, None), false)).clone()
}

type Buses = Mutex<HashMap<&'static str, Bus>>;

#[test]
fn the_simulated_bus_keeps_the_contract_of_its_port() {
    let buses = Arc::new(Buses::default());
    let bus_of = move |name| -> BoxFuture<'static, _> {
        let bus = open(name, &buses);
        Box::pin(async move {
            let writer = Arc::new(bus.clone());
            let reader = move |name: &str| -> BoxFuture<'static, _> {
                let reader = bus.reader(name, Budget::new(1 << 20));
                Box::pin(async { Ok(reader) })
            };
            Ok(conformance::bus::Bus { writer, reader: Box::new(reader), has_gaps: false })
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(conformance::bus::passes(&bus_of)).unwrap();
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_by_byte() {
    for seed in 1..=20 {
        let (first, second) = (run(seed, None), run(seed, None));
        let differs = first.end.iter().zip(&second.end).position(|(a, b)| a != b);
        let lines = |o: &Outcome| differs.map(|at| o.end[at.saturating_sub(3)..=at].join("\n"));
        assert_eq!(first.trace, second.trace, "seed {seed}\n{:#?}\n{:#?}", lines(&first), lines(&second));
    }
}

#[test]
fn a_fault_that_is_built_in_is_found_within_a_hundred_seeds() {
    for sabotage in [
        Sabotage::ConfirmBeforeAppend,
        Sabotage::AcknowledgeBeforeDurable,
        Sabotage::NoGuard,
        Sabotage::ProgressBeforeRows,
        Sabotage::NoRing,
        Sabotage::NoGate,
        Sabotage::NoReread,
    ] {
        let found = (1..=100).find(|seed| !run(*seed, Some(sabotage)).wrong.is_empty());
        println!("{sabotage:?} is found by seed {found:?}");
        assert!(found.is_some(), "{sabotage:?} is not found");
    }
}
