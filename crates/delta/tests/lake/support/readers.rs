//! The table read by other engines, in Python (testbed/readers.py).

use super::*;
use std::path::PathBuf;
use std::process::Command;

pub const READERS: [&str; 3] = ["duckdb", "polars", "deltalake"];

pub fn python() -> PathBuf {
    let default = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/tidewire/venv");
    let venv = std::env::var_os("TIDEWIRE_VENV").map_or_else(default, PathBuf::from);
    let python = venv.join("bin/python");
    assert!(python.exists(), "{} isn't there: run testbed/python.sh first", python.display());
    python
}

/// The live rows that a reader sees, sorted as text.
pub fn read(reader: &str, config: &Config, schema: &Schema) -> Vec<Values> {
    let columns = validator::columns_of(&folder_of(config, schema), schema);
    read_with(reader, config, schema, &columns)
}

/// The same, the lake's columns and their types given.
pub fn read_with(
    reader: &str,
    config: &Config,
    schema: &Schema,
    columns: &[(String, serde_json::Value)],
) -> Vec<Values> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed/readers.py");
    let table = folder_of(config, schema);
    let columns = serde_json::to_string(columns).unwrap();
    let output = Command::new(python()).arg(script).arg(reader).arg(&table).arg(columns).output().unwrap();
    assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
    for reader in READERS {
        let seen = comparable(read(reader, config, schema), schema);
        assert_eq!(seen, comparable(expected.to_vec(), schema), "{reader}");
    }
}
