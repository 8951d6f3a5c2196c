//! Delta's column mapping by name (PROTOCOL.md, "Column Mapping"): files keep the name that a column had first, and the table's
//! metadata says what readers call it. So renaming or dropping a column changes metadata alone.

use super::layout::{LakeColumn, RESERVED};
use super::{Layout, Part, Physical, DELETED, LSN, OP, SEQ, SPECIAL, TS};
use arrow_schema::Field;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::collections::HashMap;

/// Our own columns are the first ones.
const OURS: [(&str, &str); 5] = [(LSN, "long"), (SEQ, "long"), (OP, "string"), (TS, "timestamp"), (DELETED, "boolean")];
/// The number of a table's first column of the source.
pub const FIRST: u32 = 7;
/// As arrow's Parquet writer looks for it.
const FIELD_ID: &str = "PARQUET:field_id";

/// A column of a table with column mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    pub id: u32,
    pub shown: String,
}

impl Layout {
    /// What the table's properties say of column mapping.
    pub fn mapping_properties(&self) -> Vec<(String, Option<String>)> {
        let Some(next) = self.next_id else { return Vec::new() };
        vec![
            ("delta.columnMapping.mode".into(), Some("name".into())),
            ("delta.columnMapping.maxColumnId".into(), Some((next - 1).to_string())),
        ]
    }
}

/// Ours, or one that readers of the change data feed add.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| name.to_lowercase().starts_with(reserved))
}

/// How many numbers a column takes: one of its own, and one for each part of composites in it.
pub fn ids_of(physical: &Physical) -> u32 {
    1 + match physical {
        Physical::List(element) => ids_of(element) - 1,
        Physical::Struct(parts) => parts.iter().map(|part| ids_of(&part.physical)).sum(),
        _ => 0,
    }
}

/// Gives parts of composites names in files that the table has nowhere else: some readers refuse two columns of one such name, wherever
/// in the table they are. `next`: the number of the first part.
pub fn name_parts(physical: &mut Physical, mut next: u32, taken: &impl Fn(&str) -> bool) {
    match physical {
        Physical::List(element) => name_parts(element, next, taken),
        Physical::Struct(parts) => {
            for part in parts {
                let mut name = format!("{}-{next}", part.name);
                while taken(&name) {
                    name.push('_');
                }
                name_parts(&mut part.physical, next + 1, taken);
                next += ids_of(&part.physical);
                part.shown = Some(std::mem::replace(&mut part.name, name));
            }
        }
        _ => {}
    }
}

/// A type as readers see it.
pub fn shown(physical: &Physical) -> Physical {
    match physical {
        Physical::List(element) => Physical::List(Box::new(shown(element))),
        Physical::Struct(parts) => {
            let part = |part: &Part| Part {
                name: part.shown.as_ref().unwrap_or(&part.name).clone(),
                shown: None,
                physical: shown(&part.physical),
            };
            Physical::Struct(parts.iter().map(part).collect())
        }
        other => other.clone(),
    }
}

/// Does a column, or a part of it, have this name in files? (Delta tells names apart without regard to case.)
pub fn has_name(column: &LakeColumn, name: &str) -> bool {
    fn part_has(physical: &Physical, name: &str) -> bool {
        match physical {
            Physical::List(element) => part_has(element, name),
            Physical::Struct(parts) => {
                parts.iter().any(|part| is_same(&part.name, name) || part_has(&part.physical, name))
            }
            _ => false,
        }
    }
    is_same(&column.name, name) || (column.mapped.is_some() && part_has(&column.physical, name))
}

fn is_same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// Delta's `schemaString`: the columns that the source has.
pub fn delta(layout: &Layout) -> String {
    let mut fields = Vec::new();
    let mut places = layout.places();
    places.sort_unstable();
    for column in places.into_iter().map(|place| &layout.columns[place]) {
        if let Some(mapped) = &column.mapped {
            fields.push(field(&mapped.shown, &column.name, &column.physical, mapped.id));
        }
    }
    for ((name, ty), id) in OURS.iter().zip(1..) {
        fields.push(one(name, name, (*ty).into(), id));
    }
    fields.push(field(SPECIAL, SPECIAL, &Physical::Map, FIRST - 1));
    json!({"type": "struct", "fields": fields}).to_string()
}

fn field(shown: &str, name: &str, physical: &Physical, id: u32) -> Value {
    one(shown, name, delta_type(physical, id + 1), id)
}

fn one(shown: &str, name: &str, ty: Value, id: u32) -> Value {
    let metadata = json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": name});
    json!({"name": shown, "type": ty, "nullable": true, "metadata": metadata})
}

/// `next`: the number of the first part of composites in it.
fn delta_type(physical: &Physical, mut next: u32) -> Value {
    match physical {
        Physical::List(element) => {
            json!({"type": "array", "elementType": delta_type(element, next), "containsNull": true})
        }
        Physical::Struct(parts) => {
            let part = |part: &Part| {
                let id = next;
                next += ids_of(&part.physical);
                field(part.shown.as_ref().unwrap_or(&part.name), &part.name, &part.physical, id)
            };
            let fields: Vec<Value> = parts.iter().map(part).collect();
            json!({"type": "struct", "fields": fields})
        }
        other => other.delta(),
    }
}

/// The fields of a file, with the columns' numbers. (Parts of composites go by their names.)
pub fn with_ids(layout: &Layout, fields: Vec<Field>) -> Vec<Field> {
    let ours = layout.columns.len();
    let id = |place: usize| match layout.columns.get(place) {
        Some(column) => column.mapped.as_ref().map(|mapped| mapped.id),
        None => Some((place - ours) as u32 + 1),
    };
    let with_id = |(place, field): (usize, Field)| match id(place) {
        Some(id) => field.with_metadata(HashMap::from([(FIELD_ID.to_string(), id.to_string())])),
        None => field,
    };
    fields.into_iter().enumerate().map(with_id).collect()
}
