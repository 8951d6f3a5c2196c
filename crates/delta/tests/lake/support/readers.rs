//! The table read by other engines, in Python (testbed/readers.py).

use super::*;
use std::path::PathBuf;
use std::process::Command;

/// The usual three, or those that `make readers` names.
pub fn all() -> Vec<String> {
    let names = std::env::var("TIDEWIRE_READERS").unwrap_or_else(|_| "duckdb polars deltalake".into());
    names.split_whitespace().map(String::from).collect()
}

/// Where a table lies that isn't read from its folder, for the readers.
#[derive(Clone)]
pub struct Far {
    /// `s3://…` or `abfss://…`
    pub place: String,
    pub endpoint: String,
    /// A copy of its files, or of a table of the same columns.
    pub copy: PathBuf,
}

/// What of a table is looked at.
#[derive(Clone, Copy, Default)]
pub struct View<'a> {
    pub version: Option<u64>,
    /// Rows whose whole number in a column lies between two others, both included.
    pub between: Option<(&'a str, i64, i64)>,
}

pub fn python() -> PathBuf {
    let default = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/tidewire/venv");
    let venv = std::env::var_os("TIDEWIRE_VENV").map_or_else(default, PathBuf::from);
    let python = venv.join("bin/python");
    assert!(python.exists(), "{} isn't there: run testbed/python.sh first", python.display());
    python
}

/// The live rows that a reader sees, sorted as text; the lake's columns and their types are given.
pub fn read_with(
    reader: &str,
    config: &Config,
    schema: &Schema,
    columns: &[(String, serde_json::Value)],
    view: View<'_>,
) -> Vec<Values> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed/readers.py");
    let columns = serde_json::to_string(columns).unwrap();
    let mut command = Command::new(python());
    command.arg(script).arg(reader).arg(folder_of(config, schema)).arg(columns);
    read_by(command, reader, view)
}

fn read_by(mut command: Command, reader: &str, view: View<'_>) -> Vec<Values> {
    if let Some(version) = view.version {
        command.args(["--version", &version.to_string()]);
    }
    if let Some((column, low, high)) = view.between {
        // With the sign in front a number would be taken for an option.
        command.args(["--between", column, &format!("({low})"), &format!("({high})")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A change as the change data feed tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub version: u64,
    pub kind: String,
    pub lsn: u64,
    pub op: String,
    pub values: Values,
}

/// The change data feed by a reader, in order of versions.
pub fn changes_by(reader: &str, config: &Config, schema: &Schema) -> Vec<Told> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed/readers.py");
    let columns = validator::columns_of(&folder_of(config, schema), schema);
    let mut command = Command::new(python());
    command.arg(script).arg(reader).arg(folder_of(config, schema)).arg(serde_json::to_string(&columns).unwrap());
    let output = command.arg("--changes").output().unwrap();
    assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
    let told = |line: &str| {
        let mut values: Values = serde_json::from_str(line).unwrap();
        let mut front = values.drain(..4).map(Option::unwrap);
        let (version, kind) = (front.next().unwrap().parse().unwrap(), front.next().unwrap());
        let (lsn, op) = (front.next().unwrap().parse().unwrap(), front.next().unwrap());
        drop(front);
        Told { version, kind, lsn, op, values }
    };
    let mut all: Vec<Told> = String::from_utf8(output.stdout).unwrap().lines().map(told).collect();
    all.sort();
    all
}

/// Can the reader show every value of the type? ClickHouse's dates and times end early, and its lists and structs are never
/// NULL.
fn shows(reader: &str, ty: &serde_json::Value) -> bool {
    reader != "chdb" || ty.as_str().is_some_and(|ty| ty != "date" && !ty.starts_with("timestamp"))
}

/// Rows as another engine may print them: floating-point numbers as Python does.
pub fn comparable(rows: Vec<Values>, schema: &Schema) -> Vec<Values> {
    let float = |kind: &Kind| matches!(kind, Kind::Float32 | Kind::Float64);
    let fold = |(value, column): (Option<String>, &Column)| match value {
        Some(text) if float(&column.ty.kind) => {
            let number: f64 = text.parse().unwrap_or_else(|_| panic!("{text:?} isn't a number"));
            // The other engines widen a float to a double.
            let number = if column.ty.kind == Kind::Float32 { f64::from(number as f32) } else { number };
            Some(if number.is_nan() { "NaN".into() } else { format!("{number:?}") })
        }
        value => value,
    };
    let mut rows: Vec<Values> =
        rows.into_iter().map(|row| row.into_iter().zip(&schema.columns).map(fold).collect()).collect();
    rows.sort();
    rows
}

/// All readers see exactly these rows.
pub fn check(config: &Config, schema: &Schema, expected: &[Values]) {
    check_view(config, schema, expected, View::default());
}

/// Those that read from such a bucket, too, see exactly these rows.
pub fn check_far(far: &Far, schema: &Schema, expected: &[Values]) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed/readers.py");
    let columns = serde_json::to_string(&validator::columns_of(&far.copy, schema)).unwrap();
    let (readers, endpoint): (&[&str], _) = match far.place.starts_with("s3:") {
        true => (&["duckdb", "polars", "deltalake"], "S3_ENDPOINT"),
        false => (&["polars", "deltalake"], "AZURE_ENDPOINT"),
    };
    for reader in readers {
        let mut command = Command::new(python());
        command.arg(&script).arg(reader).arg(&far.place).arg(&columns).env(endpoint, &far.endpoint);
        let seen = comparable(read_by(command, reader, View::default()), schema);
        assert_eq!(seen, comparable(expected.to_vec(), schema), "{reader}");
    }
}

pub fn check_view(config: &Config, schema: &Schema, expected: &[Values], view: View<'_>) {
    check_by(&all(), config, schema, expected, view);
}

/// These readers see exactly these rows.
pub fn check_by(readers: &[String], config: &Config, schema: &Schema, expected: &[Values], view: View<'_>) {
    let columns = validator::columns_of(&folder_of(config, schema), schema);
    for reader in readers {
        let shown: Vec<usize> = (0..columns.len()).filter(|i| shows(reader, &columns[*i].1)).collect();
        let only = Schema { columns: shown.iter().map(|i| schema.columns[*i].clone()).collect(), ..schema.clone() };
        let cut = |row: &Values| -> Values { shown.iter().map(|i| row[*i].clone()).collect() };
        let columns: Vec<_> = shown.iter().map(|i| columns[*i].clone()).collect();
        let seen = comparable(read_with(reader, config, schema, &columns, view), &only);
        let expected: Vec<Values> = expected.iter().map(cut).collect();
        assert_eq!(seen, comparable(expected, &only), "{reader}");
    }
}
