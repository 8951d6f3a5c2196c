//! The house rules as a test: who may import whom (DESIGN §7), headers, sizes, leftovers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Floor of every crate. A crate may import lower floors only.
const FLOORS: &[(&str, u8)] = &[
    ("change", 0),
    ("envelope", 1),
    ("flow", 1),
    ("connector", 1),
    ("pgwire", 1),
    ("registry", 1),
    ("postgres", 2),
    ("journal", 2),
    ("kafka", 2),
    ("delta", 2),
    ("pipeline", 3),
    ("server", 4),
    ("cli", 5),
];

/// Only for tests: a dev-dependency of anyone, or of nobody.
const TEST_ONLY: &[&str] = &["testbed", "simulation"];
const ADAPTERS: u8 = 2;
/// About 400.
const LONGEST_FILE: usize = 420;
/// Files that may be longer, with the reason.
const LONGER: &[(&str, &str)] = &[];

/// Dependencies from outside that belong to some crates alone.
const OWNED: &[(&str, &[&str])] = &[
    ("arrow-", &["delta"]),
    ("parquet", &["delta"]),
    ("axum", &["server"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    // delta only says which cryptography the object stores' client takes: the same.
    ("rustls", &["pgwire", "delta", "server"]),
    ("object_store", &["delta"]),
    ("reqwest", &["delta"]),
    ("rdkafka", &["kafka"]),
    (
        "tokio",
        &["connector", "pgwire", "postgres", "journal", "kafka", "delta", "pipeline", "server", "cli", "simulation"],
    ),
];

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

fn crates() -> Vec<(String, PathBuf)> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut crates: Vec<_> = folders
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_string(), path))
        .collect();
    crates.sort();
    assert!(crates.len() >= FLOORS.len(), "the crates are found");
    crates
}

/// Section → names of its dependencies.
fn dependencies(manifest: &Path) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in fs::read_to_string(manifest).unwrap().lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_string();
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap().to_string();
            sections.entry(section.clone()).or_default().push(name);
        }
    }
    sections
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn all_sources() -> Vec<PathBuf> {
    let folders = crates().into_iter().map(|(_, path)| path).chain([root().join("fuzz")]);
    let found: Vec<_> = folders.flat_map(|path| sources(&path)).collect();
    assert!(found.len() > 50, "the sources are found");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn no_crate_imports_a_floor_beside_or_above_its_own() {
    let floor = |name: &str| FLOORS.iter().find(|(n, _)| *n == name).map(|(_, floor)| *floor);
    let mut faults = Vec::new();
    for (name, path) in crates().iter().filter(|(name, _)| !TEST_ONLY.contains(&name.as_str())) {
        let Some(own) = floor(name) else {
            faults.push(format!("crates/{name} stands on no floor: add it to FLOORS and to DESIGN §7"));
            continue;
        };
        for (section, names) in dependencies(&path.join("Cargo.toml")) {
            for other in names.iter().filter_map(|n| n.strip_prefix("tidewire-")) {
                let is_dev = section.contains("dev-dependencies");
                let fine = match floor(other) {
                    None => is_dev && TEST_ONLY.contains(&other),
                    // Pipeline and server see ports only.
                    Some(ADAPTERS) if own == 3 || own == 4 => false,
                    Some(below) => below < own,
                };
                if !fine {
                    faults.push(format!("crates/{name} [{section}] imports tidewire-{other}"));
                }
            }
        }
    }
    none(faults);
}

#[test]
fn heavy_dependencies_stay_in_their_own_crates() {
    let mut faults = Vec::new();
    for (name, path) in crates() {
        let sections = dependencies(&path.join("Cargo.toml"));
        for other in sections.iter().filter(|(s, _)| *s == "dependencies").flat_map(|(_, names)| names) {
            for (prefix, owners) in OWNED {
                if other.starts_with(prefix) && !owners.contains(&name.as_str()) {
                    faults.push(format!("crates/{name} imports {other}, which belongs to {}", owners.join(", ")));
                }
            }
        }
    }
    none(faults);
}

#[test]
fn only_the_catalog_names_adapters() {
    let mut faults = Vec::new();
    for path in sources(&root().join("crates/cli/src")) {
        let text = fs::read_to_string(&path).unwrap();
        for (name, _) in FLOORS.iter().filter(|(_, floor)| *floor == ADAPTERS) {
            let is_catalog =
                path.ends_with("catalog.rs") || path.parent().is_some_and(|folder| folder.ends_with("catalog"));
            if !is_catalog && text.contains(&format!("tidewire_{name}::")) {
                faults.push(format!("{} names the adapter tidewire_{name}", shown(&path)));
            }
        }
    }
    none(faults);
}

#[test]
fn every_crate_says_what_it_owns_and_imports() {
    let mut faults = Vec::new();
    for (name, path) in crates() {
        let file = ["src/lib.rs", "src/main.rs"].iter().map(|f| path.join(f)).find(|f| f.exists()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines();
        for start in ["//! Owns: ", "//! May import: ", "//! Never imports: "] {
            if !lines.next().is_some_and(|line| line.starts_with(start)) {
                faults.push(format!("crates/{name}: the header lacks its line `{start}…`"));
            }
        }
    }
    none(faults);
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut faults = Vec::new();
    for path in all_sources() {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        let name = shown(&path);
        if lines > LONGEST_FILE && !LONGER.iter().any(|(longer, _)| *longer == name) {
            faults.push(format!("{name} has {lines} lines, {LONGEST_FILE} is the limit"));
        }
    }
    none(faults);
}

#[test]
fn nothing_is_left_half_done() {
    // Put together here so that this file doesn't find itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["unimpl", "emented!"], ["to", "do!("], ["allow(dead", "_code)"]]
        .map(|w| w.concat());
    let mut faults = Vec::new();
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        for (i, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{}: {word}", shown(&path), i + 1));
            }
        }
    }
    none(faults);
}

/// What stands between backticks.
fn quoted(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    text.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_test_that_the_guarantees_name_is_there() {
    let code: String = all_sources().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let plain = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let names: Vec<_> =
        quoted("docs/guarantees.md").into_iter().filter(|w| plain(w) && w.matches('_').count() > 3).collect();
    assert!(names.len() > 10, "the tests are found");
    none(names.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect());
}

#[test]
fn every_function_on_the_way_of_a_change_is_where_the_architecture_says() {
    let words = quoted("ARCHITECTURE.md");
    let is_name = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b":_".contains(&b));
    let is_step = |pair: &&[String]| is_name(&pair[0]) && pair[1].ends_with(".rs") && pair[1].contains("/src/");
    let steps: Vec<_> = words.windows(2).filter(is_step).collect();
    assert!(steps.len() >= 8, "the steps are found");
    let is_there = |name: &str, file: &str| {
        let text = fs::read_to_string(root().join("crates").join(file)).unwrap_or_default();
        text.contains(&format!("fn {}(", name.rsplit("::").next().unwrap()))
    };
    none(steps.iter().filter(|pair| !is_there(&pair[0], &pair[1])).map(|pair| pair.join(" in ")).collect());
}
