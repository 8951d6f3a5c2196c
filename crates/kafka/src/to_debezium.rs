//! A message of a table in our own form → one of Debezium's.

use crate::coder::{Coder, Files};
use crate::format::{Coding, Debezium, Note};
use crate::names::kafka_topic;
use crate::producer::HeaderOf;
use crate::records::Form;
use crate::registry::{hash, Named};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use tidewire_change::{topic, Change, Error, Message, Op, Position, Result, Schema, SchemaId};
use tidewire_envelope::debezium::log_message::LogMessages;
use tidewire_envelope::debezium::transactions::{Border, Transactions};
use tidewire_envelope::debezium::{is_key_change, Encoder, Modes, Naming, Origin, RowEncoder, Told};
use tidewire_envelope::native;

pub(crate) struct ToDebezium {
    of: Debezium,
    prefix: String,
    /// Of the modes, in `__formats`.
    number: u16,
    schemas: HashMap<SchemaId, Arc<Schema>>,
    encoders: HashMap<SchemaId, Table>,
    /// The numbers that the registry has for schemas, as far as the bus knows them.
    ids: HashMap<u128, u32>,
    files: Files,
    key: Vec<u8>,
    value: Vec<u8>,
    other_key: Vec<u8>,
    /// Of what is added to rows that are told alone.
    header_names: Vec<CString>,
    added: Vec<Option<Vec<u8>>>,
    row: Vec<u8>,
}

/// How the messages of a table are written.
struct Table {
    /// Also for headers, which are JSON always.
    json: Json,
    binary: Option<Binary>,
}

pub(crate) enum Json {
    Envelope(Box<Encoder>),
    /// Rows alone.
    Rows(Box<RowEncoder>),
}

impl Json {
    fn envelope(&self) -> &Encoder {
        match self {
            Json::Envelope(encoder) => encoder,
            Json::Rows(rows) => rows.envelope(),
        }
    }

    fn has_tombstone(&self, change: &Change) -> bool {
        match self {
            Json::Envelope(encoder) => encoder.has_tombstone(change),
            Json::Rows(rows) => rows.has_tombstone(change),
        }
    }
}

impl Table {
    /// A key for a message that has none.
    fn position_key(&self, position: Position, has_schema: bool, out: &mut Vec<u8>) {
        let Some(binary) = &self.binary else {
            let key = format!("{{\"__position\":\"{}.{}\"}}", position.commit, position.ordinal);
            let (head, tail) = if has_schema { (POSITION_HEAD, "}") } else { ("", "") };
            return out.extend_from_slice([head, &key, tail].concat().as_bytes());
        };
        binary.coder.position_key(position, binary.position, out);
    }
}

/// By a registry's schemas.
struct Binary {
    coder: Coder,
    /// Of the schema of keys for messages that have none.
    position: u32,
}

/// One message.
pub(crate) struct Written<'a> {
    /// None: a truncate, or a table without a key.
    pub key: Option<&'a [u8]>,
    /// Empty: a message without a value.
    pub value: &'a [u8],
    /// False: nothing is written.
    pub is_told: bool,
    pub form: Form,
    /// The key that the row has, or had, beside this one.
    pub header: Option<(&'static CStr, &'a [u8])>,
    /// What is added to it, and whether a tombstone has it, too.
    added: Vec<(HeaderOf<'a>, bool)>,
    /// The same key follows without a value.
    pub has_tombstone: bool,
    pub is_truncate: bool,
    /// Transactions that end and begin here.
    pub borders: Vec<Border>,
}

impl<'a> Written<'a> {
    /// All headers of the message and of its tombstone, where something is added; else none.
    pub fn headers(&self) -> (Vec<HeaderOf<'a>>, Vec<HeaderOf<'a>>) {
        let is_added = !self.added.is_empty();
        let own = || self.header.filter(|_| is_added).map(|(name, value)| (name, Some(value)));
        let of_tombstone = self.added.iter().filter(|(_, is_of_both)| *is_of_both).map(|(header, _)| *header);
        (
            own().into_iter().chain(self.added.iter().map(|(header, _)| *header)).collect(),
            own().into_iter().chain(of_tombstone).collect(),
        )
    }
}

impl ToDebezium {
    /// `schemas`: those of the bus. `Invalid`: a header can't be called as it is to be.
    pub fn new(of: Debezium, prefix: &str, number: u16, schemas: HashMap<SchemaId, Arc<Schema>>) -> Result<ToDebezium> {
        let names = of.unwrap.iter().flat_map(|unwrap| &unwrap.headers).map(|header| {
            CString::new(header.name.as_str())
                .map_err(|_| Error::invalid(format!("add.headers: a header can't be called {:?}", header.name)))
        });
        let header_names = names.collect::<Result<_>>()?;
        Ok(ToDebezium {
            of,
            prefix: prefix.to_string(),
            number,
            schemas,
            encoders: HashMap::new(),
            ids: HashMap::new(),
            files: Files::new(),
            key: Vec::new(),
            value: Vec::new(),
            other_key: Vec::new(),
            header_names,
            added: Vec::new(),
            row: Vec::new(),
        })
    }

    /// A message of the log: appends its key and its value.
    pub fn log_message(
        &self,
        message: &Message,
        now: i64,
        transactions: &mut Transactions,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<Vec<Border>> {
        let message = native::decode_log_message(message.value.clone())?;
        let Debezium { modes, database, version, .. } = &self.of;
        let counted = match modes.transactions {
            true => transactions.count_message(&message),
            false => Default::default(),
        };
        let writer = LogMessages::new(modes, &Origin { name: &self.prefix, database, version });
        writer.key(&message, key);
        writer.value(&message, counted.block.as_ref(), now, value);
        Ok(counted.borders)
    }

    pub fn has_transactions(&self) -> bool {
        self.of.modes.transactions
    }

    pub fn modes(&self) -> &Modes {
        &self.of.modes
    }

    pub fn learn(&mut self, schema: &Schema) {
        self.schemas.entry(schema.id()).or_insert_with(|| Arc::new(schema.clone()));
    }

    /// The registry has another number for a schema now, perhaps.
    pub fn learn_note(&mut self, note: Note) {
        let is_other = match note {
            Note::Lost(..) => false,
            Note::Id(hash, id) => self.ids.insert(hash, id).is_some_and(|before| before != id),
            Note::File(hash, text) => self.files.insert(hash, text.clone()).is_some_and(|before| before != text),
        };
        if is_other {
            self.encoders.clear();
        }
    }

    /// The message at this place; those beside it may be the other half of a change of its key. `now`: what it says of when it
    /// was written. `needs_key`: where the topic is compacted, so that a message without a key stays.
    pub fn message(
        &mut self,
        messages: &[Message],
        at: usize,
        now: i64,
        needs_key: bool,
        transactions: &mut Transactions,
    ) -> Result<Written<'_>> {
        let id = native::header(&messages[at].value)?.schema;
        let change = self.change(&messages[at])?;
        let other = self.other_half(messages, at, &change)?;
        if !self.encoders.contains_key(&id) {
            let table = self.table(&change.schema)?;
            self.encoders.insert(id, table);
        }
        let table = self.encoders.get_mut(&id).ok_or_else(|| Error::bug("a table's encoder is gone"))?;
        self.key.clear();
        self.value.clear();
        self.other_key.clear();
        let mut has_key = match &mut table.binary {
            None => table.json.envelope().key(&change, &mut self.key),
            Some(binary) => binary.coder.key(&change, &mut self.key)?,
        };
        if !has_key && needs_key {
            table.position_key(change.position, self.of.modes.key_schemas, &mut self.key);
            has_key = true;
        }
        let counted = match self.of.modes.transactions {
            true => transactions.count(&change),
            false => Default::default(),
        };
        self.added.clear();
        let block = counted.block.as_ref();
        let told = match (&mut table.binary, &mut table.json) {
            (None, Json::Envelope(json)) => {
                json.value_in(&change, block, now, &mut self.value);
                Told::Value
            }
            (None, Json::Rows(rows)) => rows.value_in(&change, block, now, &mut self.value, &mut self.added)?,
            (Some(binary), Json::Envelope(_)) => {
                binary.coder.value(&change, now, &mut self.value)?;
                Told::Value
            }
            (Some(binary), Json::Rows(rows)) => {
                self.row.clear();
                let told = rows.value_in(&change, block, now, &mut self.row, &mut self.added)?;
                if told == Told::Value {
                    binary.coder.row(&self.row, &mut self.value)?;
                }
                told
            }
        };
        let name = other.and_then(|other| table.json.envelope().header(&change, &other, &mut self.other_key));
        Ok(Written {
            key: has_key.then_some(&self.key[..]),
            value: &self.value,
            is_told: told != Told::Nothing,
            form: Form { schema: id, number: self.number },
            header: name.map(|name| (c_name(name), &self.other_key[..])),
            added: added(&table.json, &self.header_names, &self.added),
            has_tombstone: table.json.has_tombstone(&change),
            is_truncate: change.op == Op::Truncate,
            borders: counted.borders,
        })
    }

    fn table(&self, schema: &Arc<Schema>) -> Result<Table> {
        let json = json_of(&self.of, &self.prefix, schema)?;
        let Some(registry) = self.of.codec.registry() else { return Ok(Table { json, binary: None }) };
        let mut coder = Coder::new(&self.of, &self.prefix, schema, &self.files)?;
        let named = Named::of(registry, &kafka_topic(&self.prefix, &topic::topic_of(&schema.table)), &coder);
        let id = |(subject, text): &(String, String)| {
            self.ids.get(&hash(subject, text)).copied().ok_or_else(|| {
                let message = format!("the schema of {} isn't registered under {subject}", schema.table);
                Error::unavailable(message)
                    .hint("see that the schema registry (bus.kafka.registry) takes it")
                    .on_table(&schema.table)
            })
        };
        let key = named.key.as_ref().map(id).transpose()?.unwrap_or(0);
        coder.set_ids(key, id(&named.value)?);
        Ok(Table { json, binary: Some(Binary { coder, position: id(&named.position)? }) })
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

/// `Schema`: a column is called as something that is added.
pub(crate) fn json_of(of: &Debezium, prefix: &str, schema: &Arc<Schema>) -> Result<Json> {
    let Debezium { modes, database, version, codec, unwrap } = of;
    let origin = Origin { name: prefix, database, version };
    let Some(unwrap) = unwrap else { return Ok(Json::Envelope(Box::new(Encoder::new(schema, modes, &origin)))) };
    let naming = match codec.coding() {
        Coding::Json => Naming::AsTheyAre,
        Coding::Avro => Naming::Avro,
        Coding::Protobuf => Naming::Protobuf,
    };
    Ok(Json::Rows(Box::new(RowEncoder::new(schema, modes, &origin, unwrap, naming)?)))
}

/// In front of the key of a message that has none: whoever reads keys with schemas reads all of them so.
const POSITION_HEAD: &str = concat!(
    r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"__position"}],"optional":false,"#,
    r#""name":"tidewire.Position"},"payload":"#
);

/// The headers that are added, by their names.
fn added<'a>(json: &Json, names: &'a [CString], values: &'a [Option<Vec<u8>>]) -> Vec<(HeaderOf<'a>, bool)> {
    let Json::Rows(rows) = json else { return Vec::new() };
    let headers = names.iter().zip(values).enumerate();
    headers.map(|(at, (name, value))| ((name.as_c_str(), value.as_deref()), rows.is_of_tombstone(at))).collect()
}

fn c_name(name: &str) -> &'static CStr {
    match name {
        "__debezium.newkey" => c"__debezium.newkey",
        _ => c"__debezium.oldkey",
    }
}
