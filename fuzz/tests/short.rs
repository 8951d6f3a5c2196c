//! The fuzz targets on a stable compiler, within seconds: the kept corpus, and a fixed number of seeded mutations of it.

use std::path::Path;
use tidewire_fuzz::TARGETS;
use tidewire_testbed::bombard;

/// What the process may take beside the bytes themselves, whatever they ask for.
const MEMORY: u64 = 256 << 20;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(name);
    let entries = std::fs::read_dir(&folder).expect("every target has a corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn short(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("it is a target");
    let corpus = corpus(name);
    // Else the format has changed and the corpus hasn't: `cargo run -p tidewire-fuzz --example valid` makes it anew.
    assert!(corpus.iter().any(|bytes| (target.run)(bytes)), "nothing in the corpus of {name} is right");
    let (seed, times) = (number("TIDEWIRE_FUZZ_SEED", 21), number("TIDEWIRE_FUZZ_TIMES", 1));
    bombard(&corpus, seed, target.mutations * times as u32, MEMORY, |bytes| {
        (target.run)(bytes);
    });
    println!("{name}: {} inputs and {} mutations", corpus.len(), u64::from(target.mutations) * times);
}

#[test]
fn bytes_that_are_no_message_of_pgoutput_are_malformed_and_nothing_else() {
    short("pgoutput");
}

#[test]
fn bytes_that_are_no_line_of_copy_are_malformed_and_leave_nothing_behind() {
    short("copied_row");
}

#[test]
fn a_checkpoint_that_is_not_ours_is_refused() {
    short("checkpoint");
}

#[test]
fn bytes_that_are_no_native_message_are_refused_and_nothing_else() {
    short("native_message");
}

#[test]
fn bytes_that_are_no_message_of_debezium_are_refused_and_what_is_read_can_be_written() {
    short("debezium_message");
}

#[test]
fn bytes_that_are_no_message_under_a_registrys_schema_are_refused_and_what_is_read_can_be_written() {
    short("registered_message");
}

#[test]
fn bytes_that_are_no_segment_are_refused_with_their_place() {
    short("journal_segment");
}

#[test]
fn bytes_that_are_no_index_run_are_refused_with_their_place() {
    short("index_run");
}

#[test]
fn bytes_that_are_no_vector_are_refused_within_their_own_size() {
    short("deletion_vector");
}

#[test]
fn a_commit_that_was_changed_is_an_error_that_names_it_and_leads_to_no_file_outside() {
    short("delta_log");
}

#[test]
fn a_file_of_any_bytes_is_read_or_refused_with_its_name_and_shows_no_secret() {
    short("configuration");
}

#[test]
fn a_body_of_any_bytes_is_read_or_refused_and_not_repeated() {
    short("http_body");
}

#[test]
fn an_answer_of_any_bytes_is_read_or_refused() {
    short("http_answer");
}

#[test]
fn a_schema_of_any_bytes_is_refused_or_reads_itself_and_prints_as_what_it_is() {
    short("contract");
}
