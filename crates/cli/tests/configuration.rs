//! What the binary says of a wrong configuration or command line; no server needed.

mod support;

use support::{Place, Running};

fn refused(text: &str) -> support::Ended {
    let place = Place::lake("postgres://nobody@127.0.0.1:1/none");
    place.configure(text);
    place.tidewire(&["run"], &[]).is(2)
}

#[test]
fn an_unknown_key_ends_with_2_and_names_the_nearest_one() {
    refused("source: {postgres: {url: x, tabels: [a.b]}}\nsinks: {l: {delta: {path: l}}}\n")
        .says("pipeline.yaml:1:29: unknown key `tabels` in `source.postgres`, did you mean `tables`?");
}

#[test]
fn a_missing_variable_ends_with_2_and_is_named_with_its_line() {
    refused("source:\n  postgres:\n    url: ${NOT_SET_ANYWHERE}\nsinks: {l: {delta: {path: l}}}\n")
        .says("pipeline.yaml:3:10: the environment variable NOT_SET_ANYWHERE is not set")
        .says("export NOT_SET_ANYWHERE=");
}

#[test]
fn two_sinks_at_one_place_end_with_2() {
    refused("source: {postgres: {url: x}}\nsinks: {a: {delta: {path: l}}, b: {delta: {path: ./l}}}\n")
        .says("`sinks.b.delta.path` is the place of the sink `a`, too");
}

#[test]
fn a_url_that_is_none_ends_with_2_without_its_password() {
    let ended = refused("source: {postgres: {url: 'mysql://u:hunter2@h/d'}}\nsinks: {l: {delta: {path: l}}}\n");
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    ended.says("postgres://");
}

#[test]
fn a_file_that_is_not_there_ends_with_2_and_says_how_to_get_one() {
    let words = ["run", "/nowhere/pipeline.yaml"].map(String::from);
    Running::start(words).end().is(2).says("can't read /nowhere/pipeline.yaml").says("tidewire init");
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    Running::start(["rum".to_string()]).end().is(2).says("run");
}

#[test]
fn a_port_that_is_taken_ends_with_2_and_names_the_setting() {
    let place = Place::lake("postgres://nobody@127.0.0.1:1/none");
    let _taken = std::net::TcpListener::bind(("127.0.0.1", place.http)).unwrap();
    place.tidewire(&["run"], &[]).is(2).says(&format!("127.0.0.1:{}", place.http)).says("`http`");
}

#[test]
fn status_of_nothing_says_so_and_ends_with_3() {
    let place = Place::lake("postgres://nobody@127.0.0.1:1/none");
    place.tidewire(&["status"], &[]).is(3).says("not running");
    assert_eq!(place.tidewire(&["status"], &["--json"]).is(3).json()["running"], false);
    // Nobody can see what runs there.
    std::fs::write(place.path("tidewire-data"), "a file").unwrap();
    let told = place.tidewire(&["status"], &[]).is(3).says("tidewire-data");
    assert!(!told.out.contains("not running"), "{}", told.out);
}
