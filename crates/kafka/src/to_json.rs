//! A message of a table in our own form → Debezium's JSON.

use crate::format::DebeziumJson;
use crate::records::Form;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;
use tidewire_change::{Change, Message, Op, Result, Schema, SchemaId};
use tidewire_envelope::debezium::{is_key_change, Encoder, Origin};
use tidewire_envelope::native;

pub(crate) struct ToJson {
    of: DebeziumJson,
    prefix: String,
    /// Of the modes, in `__formats`.
    number: u16,
    schemas: HashMap<SchemaId, Arc<Schema>>,
    encoders: HashMap<SchemaId, Encoder>,
    key: Vec<u8>,
    value: Vec<u8>,
    other_key: Vec<u8>,
}

/// One message.
pub(crate) struct Json<'a> {
    /// None: a truncate, or a table without a key.
    pub key: Option<&'a [u8]>,
    pub value: &'a [u8],
    pub form: Form,
    /// The key that the row has, or had, beside this one.
    pub header: Option<(&'static CStr, &'a [u8])>,
    /// The same key follows without a value.
    pub has_tombstone: bool,
    pub is_truncate: bool,
}

impl ToJson {
    /// `schemas`: those of the bus.
    pub fn new(of: DebeziumJson, prefix: &str, number: u16, schemas: HashMap<SchemaId, Arc<Schema>>) -> ToJson {
        let (key, value, other_key) = (Vec::new(), Vec::new(), Vec::new());
        ToJson { of, prefix: prefix.to_string(), number, schemas, encoders: HashMap::new(), key, value, other_key }
    }

    pub fn learn(&mut self, schema: &Schema) {
        self.schemas.entry(schema.id()).or_insert_with(|| Arc::new(schema.clone()));
    }

    /// The message at this place; those beside it may be the other half of a change of its key. `now`: what it says of when it
    /// was written. `needs_key`: where the topic is compacted, so that a message without a key stays.
    pub fn message(&mut self, messages: &[Message], at: usize, now: i64, needs_key: bool) -> Result<Json<'_>> {
        let id = native::header(&messages[at].value)?.schema;
        let change = self.change(&messages[at])?;
        let other = self.other_half(messages, at, &change)?;
        let (schema, DebeziumJson { modes, database, version }) = (&change.schema, &self.of);
        let encoder = self.encoders.entry(id).or_insert_with(|| {
            let origin = Origin { name: &self.prefix, database, version };
            Encoder::new(schema, modes, &origin)
        });
        self.key.clear();
        self.value.clear();
        self.other_key.clear();
        let mut has_key = encoder.key(&change, &mut self.key);
        if !has_key && needs_key {
            let (position, out) = (change.position, &mut self.key);
            out.extend_from_slice(
                format!("{{\"__position\":\"{}.{}\"}}", position.commit, position.ordinal).as_bytes(),
            );
            has_key = true;
        }
        encoder.value(&change, now, &mut self.value);
        let name = other.and_then(|other| encoder.header(&change, &other, &mut self.other_key));
        Ok(Json {
            key: has_key.then_some(&self.key[..]),
            value: &self.value,
            form: Form { schema: id, number: self.number },
            header: name.map(|name| (c_name(name), &self.other_key[..])),
            has_tombstone: encoder.has_tombstone(&change),
            is_truncate: change.op == Op::Truncate,
        })
    }

    fn change(&self, message: &Message) -> Result<Change> {
        native::decode(message.value.clone(), &|id| self.schemas.get(&id).cloned())
    }

    /// A row whose key changed is told as a delete and a create, side by side.
    fn other_half(&self, messages: &[Message], at: usize, change: &Change) -> Result<Option<Change>> {
        let beside = match change.op {
            Op::Delete => messages.get(at + 1),
            Op::Create if change.position.ordinal % 2 == 1 => at.checked_sub(1).and_then(|at| messages.get(at)),
            _ => None,
        };
        let Some(beside) = beside.filter(|beside| beside.topic == messages[at].topic && !beside.value.is_empty())
        else {
            return Ok(None);
        };
        if native::header(&beside.value)?.position.commit != change.position.commit {
            return Ok(None);
        }
        let beside = self.change(beside)?;
        let is_one = is_key_change(change, &beside) || is_key_change(&beside, change);
        Ok(is_one.then_some(beside))
    }
}

fn c_name(name: &str) -> &'static CStr {
    match name {
        "__debezium.newkey" => c"__debezium.newkey",
        _ => c"__debezium.oldkey",
    }
}
