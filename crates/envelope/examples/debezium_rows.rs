//! Rows out of Debezium's messages: `debezium_rows SCHEMAS [NAME=VALUE…]`. SCHEMAS: what `tidewire topic read __schemas` prints. Reads lines
//! `{"table":"schema.name","value":"…"}`, prints for each the operation and the rows as the source's text, or the error.

use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use tidewire_change::{Datum, Row, Schema};
use tidewire_envelope::debezium::{Decoder, Modes};

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("a file of schemas");
    let mut modes = Modes::default();
    for word in words {
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        modes.set(name, value).expect("a value that the property may have");
    }
    let mut decoders: HashMap<String, Decoder> = HashMap::new();
    for line in std::fs::read_to_string(path).expect("the schemas can be read").lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let schema: Schema = serde_json::from_value(line["value"].clone()).expect("a schema");
        // The last one of each table.
        decoders.insert(schema.table.to_string(), Decoder::new(&Arc::new(schema), &modes));
    }
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.expect("a line")).expect("a line of JSON");
        let decoder = decoders.get_mut(line["table"].as_str().expect("a table")).expect("a table with a schema");
        let answer = match decoder.decode(line["value"].as_str().map(str::as_bytes)) {
            Ok(None) => Value::Null,
            Ok(Some(change)) => {
                let names: Vec<&str> = change.schema.columns.iter().map(|column| column.name.as_str()).collect();
                let rows = |row: &Option<Row>| row.as_ref().map(|row| shown(&names, row));
                let place = [change.position.commit, u64::from(change.position.ordinal)];
                json!({"op": change.op.letter(), "at": place, "before": rows(&change.before), "after": rows(&change.after)})
            }
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(out, "{answer}").expect("somebody reads");
    }
}

fn shown(names: &[&str], row: &Row) -> Value {
    let value = |datum: Datum<'_>| match datum {
        Datum::Null => Value::Null,
        Datum::Unchanged => json!({"unchanged": true}),
        Datum::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
    };
    names
        .iter()
        .zip(row.columns())
        .map(|(name, datum)| (name.to_string(), value(datum)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
