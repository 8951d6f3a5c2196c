//! Rows out of Debezium's messages: `debezium_rows SCHEMAS [--ours] [NAME=VALUE…]`. SCHEMAS: what `tidewire topic read __schemas` prints. Reads lines
//! `{"table":"schema.name","value":"…"}`, prints for each the operation and the rows as the source's text, or the error. Columns that a table's first message lacks are left out of its
//! schema: Debezium has no place for some types (`--ours`: none are).
//!
//! `--alone=avro` or `--alone=protobuf`, with options of the transform as `--unwrap=NAME=VALUE`: prints the row alone that our own message becomes, in hex,
//! and its schema; null where nothing is told.

use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use tidewire_change::{Change, Datum, Key, Row, Schema};
use tidewire_envelope::debezium::protobuf::Layout;
use tidewire_envelope::debezium::{Decoder, Modes, Naming, Origin, RowEncoder, RowForm, Told, Unwrap};

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("a file of schemas");
    let (mut modes, mut has_all_columns, mut alone, mut options) = (Modes::default(), false, None, Vec::new());
    for word in words {
        if let Some(form) = word.strip_prefix("--alone=") {
            (alone, has_all_columns) = (Some(form.to_string()), true);
            continue;
        }
        if let Some(option) = word.strip_prefix("--unwrap=") {
            options.push(option.to_string());
            continue;
        }
        if word == "--ours" {
            has_all_columns = true;
            continue;
        }
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        modes.set(name, value).expect("a value that the property may have");
    }
    let (mut schemas, mut decoders): (HashMap<String, Schema>, HashMap<String, Decoder>) = Default::default();
    for line in std::fs::read_to_string(path).expect("the schemas can be read").lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let schema: Schema = serde_json::from_value(line["value"].clone()).expect("a schema");
        // The last one of each table.
        schemas.insert(schema.table.to_string(), schema);
    }
    let options = options.iter().map(|option| option.split_once('=').expect("NAME=VALUE"));
    let unwrap = Unwrap::of(options).expect("options of the transform");
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.expect("a line")).expect("a line of JSON");
        let (table, value) = (line["table"].as_str().expect("a table"), line["value"].as_str());
        let decoder = decoders.entry(table.to_owned()).or_insert_with(|| {
            let schema = schemas[table].clone();
            let schema = if has_all_columns { schema } else { told(schema, value.expect("the first is no tombstone")) };
            Decoder::new(&Arc::new(schema), &modes)
        });
        let answer = match decoder.decode(value.map(str::as_bytes)) {
            Ok(None) => Value::Null,
            Ok(Some(change)) if alone.is_some() => {
                let payload: Value = serde_json::from_str(value.expect("a change")).expect("a value is JSON");
                row_alone(&change, &payload, alone.as_deref() == Some("avro"), &modes, &unwrap)
            }
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

fn row_alone(change: &Change, message: &Value, in_avro: bool, modes: &Modes, unwrap: &Unwrap) -> Value {
    let source = &message.get("payload").unwrap_or(message)["source"];
    let word = |name: &str| source[name].as_str().expect("a text");
    let (name, schema) = (word("name"), &change.schema);
    let origin = Origin { name, database: word("db"), version: word("version") };
    let form = match in_avro {
        true => RowForm::avro(schema, modes, name, unwrap),
        false => Layout::alone(schema, modes, name, unwrap).map(|layout| RowForm::protobuf(schema, &layout)),
    };
    let form = form.expect("the table has a schema");
    let naming = if in_avro { Naming::Avro } else { Naming::Protobuf };
    let mut rows = RowEncoder::new(schema, modes, &origin, unwrap, naming).expect("nothing is called alike");
    let (mut json, mut bytes) = (Vec::new(), Vec::new());
    let value = match rows.value_in(change, None, 0, &mut json, &mut Vec::new()).expect("it is written") {
        Told::Nothing => return Value::Null,
        Told::Null => Value::Null,
        Told::Value => match form.push(&json, &mut bytes) {
            Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            Err(error) => return json!({"error": error.to_string()}),
        },
    };
    json!({"value": value, "schema": form.contract().schema})
}

fn told(mut schema: Schema, value: &str) -> Schema {
    let value: Value = serde_json::from_str(value).expect("a value is JSON");
    let payload = value.get("payload").unwrap_or(&value);
    let row = if payload["after"].is_null() { &payload["before"] } else { &payload["after"] };
    if let (Some(row), Key::Columns(key)) = (row.as_object(), &mut schema.key) {
        let (columns, names) = (std::mem::take(&mut schema.columns), |name: &str| row.contains_key(name));
        let key_names: Vec<String> = key.iter().map(|index| columns[usize::from(*index)].name.clone()).collect();
        schema.columns = columns.into_iter().filter(|column| names(&column.name)).collect();
        let place = |name: &String| schema.columns.iter().position(|column| column.name == *name).map(|at| at as u16);
        *key = key_names.iter().filter_map(place).collect();
    }
    schema
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
