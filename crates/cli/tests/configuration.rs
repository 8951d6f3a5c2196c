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

#[test]
fn a_local_file_that_can_not_be_read_ends_with_2_and_is_named_with_the_reason() {
    let place = Place::lake("postgres://nobody@127.0.0.1:1/none");
    let folder = place.folder.path().display().to_string();
    let gone = place.path("gone").display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let url = "http://127.0.0.1:1";
    for (words, path, why) in [
        (words(&["plan", &gone]), &gone, "No such file"),
        (words(&["plan", &folder]), &folder, "Is a directory"),
        (
            words(&["registry", "check", "--url", url, "--subject", "s", "--type", "AVRO", "--file", &gone]),
            &gone,
            "No such file",
        ),
        (
            words(&["registry", "check", "--url", url, "--subject", "s", "--type", "AVRO", "--file", &folder]),
            &folder,
            "Is a directory",
        ),
        (words(&["registry", "import", &gone]), &gone, "No such file"),
        (words(&["serve", "--brokers", "127.0.0.1:1", "--kafka", &gone]), &gone, "No such file"),
        (words(&["offsets", "import", &place.config().display().to_string(), "--from", &gone]), &gone, "No such file"),
        (words(&["run", &gone]), &gone, "No such file"),
        (words(&["run", &folder]), &folder, "Is a directory"),
    ] {
        Running::start(words).end().is(2).says(path).says(why);
    }
    let source = |rest: &str| format!("{{postgres: {{url: 'postgres://nobody@127.0.0.1:1/none{rest}}}}}");
    let lake = "sinks: {lake: {delta: {path: ./lake}}}";
    let kafka = |tls: &str| format!("bus: {{kafka: {{brokers: '127.0.0.1:1', topic_prefix: p, tls: {{{tls}}}}}}}");
    for (text, key, why) in [
        (
            format!("source: {}\n{lake}", source("?sslmode=verify-full&sslrootcert=./gone'")),
            "sslrootcert",
            "No such file",
        ),
        (
            format!("source: {}\n{lake}", source("', signals: {file: ./gone/signals.txt}")),
            "source.postgres.signals.file",
            "No such file",
        ),
        (format!("source: {}\n{lake}", source("', signals: {file: .}")), "source.postgres.signals.file", "directory"),
        (format!("source: {}\n{}\n{lake}", source("'"), kafka("ca: ./gone")), "bus.kafka.tls.ca", "No such file"),
        (
            format!("source: {}\n{}\n{lake}", source("'"), kafka("cert: ./gone, key: ./gone")),
            "bus.kafka.tls.cert",
            "No such file",
        ),
        (
            format!("source: {{debezium: {{brokers: '127.0.0.1:1', topics: [a], tls: {{ca: .}}}}}}\n{lake}"),
            "source.debezium.tls.ca",
            "directory",
        ),
        (
            format!("source: {}\nsinks: {{r: {{postgres: {{url: '${{file:./gone}}'}}}}}}", source("'")),
            "gone",
            "No such file",
        ),
    ] {
        let ended = refused(&format!("{text}\nhttp: 127.0.0.1:{}\n", place.http));
        ended.says(key).says(why);
    }
}

#[test]
fn an_offset_is_not_written_over_a_file_that_is_there() {
    let place = Place::lake("postgres://nobody@127.0.0.1:1/none");
    let file = place.path("offsets.dat");
    std::fs::write(&file, "kept").unwrap();
    let to = ["--server", "shop", "--form", "engine", "--to", file.to_str().unwrap()];
    place.tidewire(&["offsets", "export"], &to).is(2).says("offsets.dat is there already").says("--force");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    // With it the next question comes up.
    place.tidewire(&["offsets", "export"], &[&to[..], &["--force"]].concat()).is(2).says("journal");
}
