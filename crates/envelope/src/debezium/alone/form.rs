//! Rows alone under a registry's schemas: their JSON as Avro or Protobuf.

use super::{Described, Naming};
use crate::debezium::avro::{from_connect, push_from_json as push_avro, Wire};
use crate::debezium::protobuf::message::Field;
use crate::debezium::protobuf::{push_from_json as push_proto, Layout};
use crate::debezium::scan::Cursor;
use crate::debezium::{Contract, Modes, Unwrap};
use std::sync::Arc;
use tidewire_change::{Error, Result, Schema};

/// How the JSON that a `RowEncoder` makes becomes a message, under a schema of a registry.
pub struct RowForm {
    schema: Arc<Schema>,
    contract: Contract,
    fields: Fields,
    /// What a message begins with.
    head: Vec<u8>,
}

enum Fields {
    Avro(Vec<(String, Wire)>),
    Protobuf(Vec<Field>),
}

impl RowForm {
    /// `Schema`: two fields would be called alike. For a `RowEncoder` with `Naming::Avro`.
    pub fn avro(schema: &Arc<Schema>, modes: &Modes, prefix: &str, unwrap: &Unwrap) -> Result<RowForm> {
        let broken = || Error::bug("a row has no schema in Avro");
        let described = Described::of(schema, modes, prefix, unwrap, Naming::Avro)?;
        let mut text = Vec::new();
        described.push(&mut text);
        let connect = serde_json::from_slice(&text).map_err(|_| broken())?;
        let avro = from_connect(&connect).ok_or_else(broken)?;
        let Some(Wire::Record(fields)) = Wire::of(&avro) else { return Err(broken()) };
        let contract = Contract { name: format!("{}.Value", described.topic), schema: avro.to_string() };
        Ok(RowForm { schema: schema.clone(), contract, fields: Fields::Avro(fields), head: vec![0; 5] })
    }

    /// `layout`: of rows alone (`Layout::alone`). For a `RowEncoder` with `Naming::Protobuf`.
    pub fn protobuf(schema: &Arc<Schema>, layout: &Layout) -> RowForm {
        let (contract, fields) = (layout.contracts().value, Fields::Protobuf(layout.value.fields.clone()));
        // Behind the number: the file's first message.
        RowForm { schema: schema.clone(), contract, fields, head: vec![0; 6] }
    }

    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The number that the registry has for the schema.
    pub fn set_id(&mut self, id: u32) {
        self.head[1..5].copy_from_slice(&id.to_be_bytes());
    }

    /// Appends the message of a row. `Schema`: no field holds a value of it.
    pub fn push(&self, row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.head);
        let (mut cursor, mut first, mut at) = (Cursor::new(row), true, 0);
        let broken = || Error::bug("a row that was just written can't be read");
        cursor.take(b'{').then_some(()).ok_or_else(broken)?;
        while let Some(name) = cursor.member(&mut first).ok_or_else(broken)? {
            let value = cursor.value().ok_or_else(broken)?;
            let is_held = match &self.fields {
                Fields::Avro(fields) => {
                    let (_, wire) = fields.get(at).filter(|(of, _)| of.as_bytes() == name).ok_or_else(broken)?;
                    push_avro(wire, value, out).is_some()
                }
                // What isn't there is NULL; a list or a map without anything isn't there, either.
                Fields::Protobuf(_) if matches!(value, b"null" | b"[]" | b"{}") => true,
                Fields::Protobuf(fields) => {
                    let field = fields.iter().find(|of| of.name.as_bytes() == name);
                    field.and_then(|field| push_proto(field, value, out)) == Some(true)
                }
            };
            if !is_held {
                return Err(self.cannot_hold(&String::from_utf8_lossy(name)));
            }
            at += 1;
        }
        Ok(())
    }

    #[cold]
    fn cannot_hold(&self, name: &str) -> Error {
        let table = &self.schema.table;
        let form = if matches!(self.fields, Fields::Avro(_)) { "Avro" } else { "Protobuf" };
        Error::schema(format!(
            "a value of `{name}` in {table} has no place in a row alone in {form} (a list with NULLs in it, for one)"
        ))
        .hint("mend the value, leave the table out, or begin another topic_prefix with format: debezium-json or without bus.kafka.unwrap")
        .on_table(table)
    }
}

impl Layout {
    /// The same for rows alone: `value` is the row, with what is added to it. `Schema`: two fields would be called alike.
    pub fn alone(schema: &Arc<Schema>, modes: &Modes, prefix: &str, unwrap: &Unwrap) -> Result<Layout> {
        let described = Described::of(schema, modes, prefix, unwrap, Naming::Protobuf)?;
        let mut text = Vec::new();
        described.push(&mut text);
        Layout::of(schema, modes, prefix)?.with_value(&text)
    }
}
