//! The tables of topics: from the schemas that come with the messages, or from definitions that were given; and reading their rows.
//!
//! A table only grows: a column that messages have is added, one that they no longer have stays. So messages of two versions may lie in
//! any order, and no value that was copied is dropped for one that came late.

use super::fits::{holds, numbers_fit, retyped};
use super::keys::{delete_by_key, in_two, key_columns};
use super::TopicsConfig as Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::text::{is_respelled, respell};
use tidewire_change::{
    Change, Column, Datum, Error, ErrorKind, Identity, Key, Kind, Op, Result, Row, RowBuilder, Schema, TableName,
};
use tidewire_envelope::debezium::{
    has_key, parts, Absent, AvroWriter, Decoder, Described, Describes, Glance, Place, Terms,
};
use tidewire_flow::change_key;

#[derive(Default)]
pub(super) struct Tables {
    by_name: BTreeMap<TableName, Table>,
}

pub(super) struct Table {
    /// As its changes are given out.
    pub schema: Arc<Schema>,
    /// Its columns were given: messages add none.
    is_given: bool,
    readers: Vec<Reader>,
    /// Read for a snapshot, and told as changes.
    pub rows: [u64; 2],
    pub notes: BTreeSet<String>,
    /// Of a table without a key: where its first row lay, and whether others lay elsewhere.
    pub place: Option<(Arc<str>, u32)>,
    pub is_scattered: bool,
}

/// Reads messages under one schema, or without any.
struct Reader {
    /// The schema as it stands in the messages.
    head: Vec<u8>,
    /// Where the writer's schema lies, of messages in Avro: it stays there.
    writer: usize,
    decoder: Decoder,
    own: Arc<Schema>,
    /// The table's columns in `own`; none: they are the same.
    map: Option<Vec<Option<usize>>>,
    /// For each of the table's columns: the type in `own`, where its values are spelled otherwise.
    spelled: Vec<Option<Kind>>,
}

/// A message and what was seen of it.
pub(super) struct Seen<'a> {
    pub table: TableName,
    pub op: Op,
    pub glance: Glance<'a>,
    /// Its rows are Avro, written under this schema; none: they are JSON.
    pub writer: Option<&'a AvroWriter>,
    pub key: Option<&'a [u8]>,
    /// Others of its topic had a schema.
    pub lacks_its_schema: bool,
    /// Its row had another key before: values that didn't change may be left out.
    pub is_moved: bool,
}

/// Why a change can't be given out.
pub(super) enum Refusal {
    /// The table's columns aren't known: nothing of its topic is read.
    Unknown(TableName),
    /// Nothing of its topic can be read as it is asked for; why.
    Topic(String),
    /// Somebody who may know the table was not asked for it yet.
    Untold,
    /// This message alone.
    Bad(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Bad(error)
    }
}

impl Tables {
    pub fn iter(&self) -> impl Iterator<Item = (&TableName, &Table)> {
        self.by_name.iter()
    }

    /// Its columns were told, not taken from messages.
    pub fn is_given(&self, name: &TableName) -> bool {
        self.by_name.get(name).is_some_and(|table| table.is_given)
    }

    pub fn get_mut(&mut self, name: &TableName) -> Option<&mut Table> {
        self.by_name.get_mut(name)
    }

    /// The topic is another one: rows without a key may lie elsewhere in it.
    pub fn forget_places(&mut self, topic: &str) {
        for table in
            self.by_name.values_mut().filter(|table| table.place.as_ref().is_some_and(|(of, _)| **of == *topic))
        {
            (table.place, table.is_scattered) = (None, false);
        }
    }

    /// A table as its changes were given out last, before a restart.
    pub fn remember(&mut self, schema: Arc<Schema>) {
        match self.by_name.get_mut(&schema.table) {
            Some(table) if table.readers.is_empty() && !table.is_given => table.schema = schema,
            Some(_) => {}
            None => drop(self.by_name.insert(schema.table.clone(), Table::new(schema, false))),
        }
    }

    /// Tables as somebody told us. True: one of them is news, or has columns that it hadn't.
    pub fn learn(&mut self, definitions: &[Arc<Schema>], config: &Config) -> Result<bool> {
        let mut is_news = false;
        for definition in definitions {
            let mut schema = (**definition).clone();
            schema.source_id = 1;
            schema.columns.iter_mut().for_each(|column| column.attribute = 0);
            if let Some(keyed) = config.keys.get(&schema.table) {
                let told = of_columns(&schema.table, schema.columns.clone(), keyed);
                schema.key =
                    told.map_err(|error| Error::invalid(error.message()).hint(KEY).on_table(&schema.table))?.key;
            }
            match self.by_name.get_mut(&schema.table) {
                Some(table) => {
                    is_news |= !table.is_given;
                    table.is_given = true;
                    match table.grow(&schema.columns) {
                        Ok(has_grown) => is_news |= has_grown,
                        Err(error) => drop(table.notes.insert(error.to_string())),
                    }
                }
                None => {
                    is_news = true;
                    self.by_name.insert(schema.table.clone(), Table::new(Arc::new(schema), true));
                }
            }
        }
        Ok(is_news)
    }

    /// The changes in a message: one, none (it says nothing new), or two where a key changed. `place` isn't their place yet.
    pub fn read(&mut self, seen: &Seen<'_>, config: &Config, place: Place) -> Result<Vec<Change>, Refusal> {
        let table = self.table(seen, config)?;
        let at = table.reader(seen, config)?;
        let reader = &mut table.readers[at];
        let (glance, op) = (&seen.glance, seen.op);
        let change = match (op, config.unwrapped) {
            (Op::Delete, false) if !glance.has_before => delete_by_key(&mut reader.decoder, seen, place),
            (op, true) => reader.decoder.decode_unwrapped_placed(glance.payload, op, place, seen.is_moved),
            _ => reader.decoder.decode_placed(glance.payload, place, seen.is_moved).and_then(|change| {
                match (op, &change.before) {
                    // What a delete doesn't tell of its row, its key may.
                    (Op::Delete, Some(row)) if !has_key(&change, row) => {
                        delete_by_key(&mut reader.decoder, seen, place)
                    }
                    _ => Ok(change),
                }
            }),
        };
        let extra = reader.decoder.passed_over();
        let changes =
            in_two(change?).into_iter().map(|change| reader.widened(change, &table.schema)).collect::<Vec<_>>();
        table.notes.extend(extra.iter().map(|name| passed_over(name)));
        table.checked(changes, config)
    }

    /// The delete that a message without a value stands for.
    pub fn delete(&mut self, name: &TableName, key: &[u8], config: &Config, place: Place) -> Result<Change, Refusal> {
        let table = self.by_name.get_mut(name).ok_or_else(|| {
            Error::malformed("a key without a value came before a message that tells the table's columns")
                .on_table(name)
        })?;
        let broken = || Error::malformed("the key isn't a JSON object").on_table(name);
        let payload = parts(key).map(|(_, payload)| payload).ok_or_else(broken)?;
        if table.readers.is_empty() {
            table.plain_reader(config);
        }
        let reader = table.readers.last_mut().expect("there is one");
        let change = reader.decoder.delete_of(payload, place)?;
        let change = reader.widened(change, &table.schema);
        let mut whole = table.checked(vec![change], config)?;
        whole.pop().ok_or_else(|| Error::bug("a delete got lost").into())
    }

    fn table(&mut self, seen: &Seen<'_>, config: &Config) -> Result<&mut Table, Refusal> {
        if !self.by_name.contains_key(&seen.table) {
            let Some(schema) = seen.glance.schema else { return Err(Refusal::Unknown(seen.table.clone())) };
            let described = describe(schema, config)?;
            let columns: Vec<Column> = described.columns().cloned().collect();
            let keyed = key_columns(seen, config, &columns).unwrap_or_default();
            let schema = Arc::new(of_columns(&seen.table, columns, &keyed)?);
            self.by_name.insert(seen.table.clone(), Table::new(schema, false));
        }
        Ok(self.by_name.get_mut(&seen.table).expect("it was put there"))
    }
}

impl Table {
    fn new(schema: Arc<Schema>, is_given: bool) -> Table {
        let (readers, rows, notes) = (Vec::new(), [0; 2], BTreeSet::new());
        Table { schema, is_given, readers, rows, notes, place: None, is_scattered: false }
    }

    /// Which of the readers this message is for.
    fn reader(&mut self, seen: &Seen<'_>, config: &Config) -> Result<usize, Refusal> {
        let Some(schema) = seen.glance.schema else {
            // Given columns, or those that a message with a schema told: nothing says that this one is written alike.
            if !self.is_given && !seen.lacks_its_schema {
                return Err(Refusal::Unknown(seen.table.clone()));
            }
            if !self.is_given {
                return Err(Error::malformed("the message comes without a schema, others of its table with one").into());
            }
            let plain = self.readers.iter().position(|reader| reader.head.is_empty());
            return Ok(plain.unwrap_or_else(|| self.plain_reader(config)));
        };
        let writer = seen.writer.map_or(0, |writer| std::ptr::from_ref(writer) as usize);
        let is_its = |reader: &Reader| reader.writer == writer && (writer != 0 || reader.head == schema);
        if let Some(at) = self.readers.iter().position(is_its) {
            return Ok(at);
        }
        let described = describe(schema, config)?;
        let columns: Vec<Column> = described.columns().cloned().collect();
        if self.is_given {
            self.fits(&columns, config)?;
        } else {
            self.grow(&columns)?;
        }
        for name in &described.may_lack {
            let note =
                format!("`{name}` is written in milliseconds (time.precision.mode=connect): more is not in its topic");
            self.notes.insert(note);
        }
        let own = Arc::new(of_columns(&self.schema.table, columns, &self.key_names())?);
        let decoder = match seen.writer {
            Some(writer) => described.avro_decoder(writer, &own, &config.modes)?,
            None => described.decoder(&own, &config.modes),
        };
        let decoder = decoder.on_terms(terms(config));
        self.readers.push(Reader { head: schema.to_vec(), writer, decoder, map: None, spelled: Vec::new(), own });
        self.mapped();
        Ok(self.readers.len() - 1)
    }

    fn plain_reader(&mut self, config: &Config) -> usize {
        let own = self.schema.clone();
        let decoder = Decoder::new(&own, &config.modes).on_terms(terms(config));
        self.readers.push(Reader { head: Vec::new(), writer: 0, decoder, map: None, spelled: Vec::new(), own });
        self.readers.len() - 1
    }

    fn key_names(&self) -> Vec<String> {
        let name = |index: &u16| self.schema.columns[usize::from(*index)].name.clone();
        self.schema.key_columns().iter().map(name).collect()
    }

    /// Takes in columns that it hasn't. True: there were such, or one has a wider type now.
    fn grow(&mut self, columns: &[Column]) -> Result<bool> {
        let mut grown = (*self.schema).clone();
        for column in columns {
            match grown.columns.iter_mut().find(|known| known.name == column.name) {
                None => grown.columns.push(column.clone()),
                Some(known) if known.ty == column.ty || holds(&known.ty.kind, &column.ty.kind) => {}
                Some(known) if holds(&column.ty.kind, &known.ty.kind) => known.ty = column.ty.clone(),
                Some(known) => return Err(retyped(&self.schema.table, known, column)),
            }
        }
        if grown == *self.schema {
            return Ok(false);
        }
        self.schema = Arc::new(grown);
        if self.is_given {
            // They read by the table's own columns.
            self.readers.retain(|reader| !reader.head.is_empty());
        }
        self.mapped();
        Ok(true)
    }

    /// Of a table whose columns were given: they have to hold the message's.
    fn fits(&mut self, columns: &[Column], config: &Config) -> Result<()> {
        for column in columns {
            let Some((_, known)) = self.schema.column(&column.name) else {
                if !config.ignores_extra {
                    return Err(Error::schema(format!("a message has the column `{}`, its table hasn't", column.name)));
                }
                self.notes.insert(passed_over(&column.name));
                continue;
            };
            let (wide, narrow) = (&known.ty.kind, &column.ty.kind);
            let is_alike = std::mem::discriminant(wide) == std::mem::discriminant(narrow) || holds(wide, narrow);
            // Texts stand for many types.
            let by_text = *wide == Kind::Text || (matches!(narrow, Kind::Text | Kind::Json) && *wide != Kind::Bytes);
            if !is_alike && !by_text {
                return Err(retyped(&self.schema.table, known, column));
            }
        }
        Ok(())
    }

    fn mapped(&mut self) {
        for reader in &mut self.readers {
            let same = reader.own.columns.len() == self.schema.columns.len()
                && reader.own.columns.iter().zip(&self.schema.columns).all(|(a, b)| a.name == b.name);
            let place = |column: &Column| reader.own.column(&column.name).map(|(index, _)| index);
            reader.map = (!same).then(|| self.schema.columns.iter().map(place).collect());
            let narrow = |column: &Column| {
                let own = reader.own.column(&column.name).map(|(_, own)| &own.ty.kind);
                own.filter(|own| is_respelled(&column.ty.kind, own)).cloned()
            };
            reader.spelled = self.schema.columns.iter().map(narrow).collect();
        }
    }

    /// What no sink could take is refused here, where its origin is known.
    fn checked(&self, changes: Vec<Change>, config: &Config) -> Result<Vec<Change>, Refusal> {
        let mut key = Vec::new();
        for change in changes.iter().filter(|change| change.op != Op::Truncate) {
            change_key(change, &mut key)?;
            change.after.as_ref().map_or(Ok(()), |row| numbers_fit(&change.schema, row))?;
            if change.op == Op::Create && change.after.as_ref().is_some_and(Row::has_unchanged) {
                return Err(Error::malformed("a row got another key, and values of it that didn't change aren't told")
                    .hint(
                        "REPLICA IDENTITY FULL at the source tells them; have the connector take a snapshot of the row",
                    )
                    .into());
            }
            let is_partial = match change.op {
                Op::Update => change.before.is_none(),
                _ => change.before.as_ref().is_some_and(Row::has_unchanged),
            };
            if self.schema.key == Key::WholeRow && is_partial && config.unwrapped {
                return Err(Error::malformed("a row of a table without a key doesn't tell that it is new: `__op` isn't c or r, or is missing")
                    .hint("have the transform add it (add.fields=op), or name the columns that make a row one: source.debezium.tables")
                    .into());
            }
            if self.schema.key == Key::WholeRow && is_partial {
                return Err(Error::malformed("a row of a table without a key lacks columns, so it can't be told from others")
                    .hint("REPLICA IDENTITY FULL at the source, or name the columns that make a row one: source.debezium.tables")
                    .into());
            }
        }
        Ok(changes)
    }
}

impl Reader {
    /// Under the table's columns.
    fn widened(&self, change: Change, schema: &Arc<Schema>) -> Change {
        let is_new = matches!(change.op, Op::Create | Op::Read);
        let row = |row: Option<Row>| {
            let is_spelled_alike = self.spelled.iter().all(Option::is_none);
            let Some(row) = row.as_ref().filter(|_| self.map.is_some() || !is_spelled_alike) else { return row };
            let own: Vec<Datum<'_>> = row.columns().collect();
            let (mut wide, mut text) =
                (RowBuilder::with_capacity(row.encoded().len() + schema.columns.len()), String::new());
            for (at, column) in schema.columns.iter().enumerate() {
                let place = self.map.as_ref().map_or(Some(at), |map| map[at]);
                // The message's version of the table hasn't it.
                let datum = place.map_or(if is_new { Datum::Null } else { Datum::Unchanged }, |at| own[at]);
                match (self.spelled.get(at).and_then(Option::as_ref), datum) {
                    (Some(narrow), Datum::Text(bytes)) => {
                        text.clear();
                        respell(&column.ty.kind, narrow, &String::from_utf8_lossy(bytes), &mut text);
                        wide.push(Datum::Text(text.as_bytes()));
                    }
                    (_, datum) => wide.push(datum),
                }
            }
            Some(wide.finish())
        };
        Change { schema: schema.clone(), before: row(change.before), after: row(change.after), ..change }
    }
}

fn terms(config: &Config) -> Terms {
    let absent = if config.absent_is_null { Absent::Null } else { Absent::Refused };
    Terms { absent, passes_over: config.ignores_extra, adjusted: config.registry.is_some() }
}

fn describe(schema: &[u8], config: &Config) -> Result<Describes> {
    Describes::of(schema, if config.unwrapped { Described::Unwrapped } else { Described::Envelope })
}

fn of_columns(table: &TableName, columns: Vec<Column>, keyed: &[String]) -> Result<Schema> {
    let place = |name: &String| columns.iter().position(|column| column.name == *name).map(|at| at as u16);
    let key: Option<Vec<u16>> = keyed.iter().map(place).collect();
    let key = key.ok_or_else(|| {
        Error::schema(format!("the key of {table} has columns that its rows lack: {}", keyed.join(", ")))
            .hint("name the columns that make a row one under source.debezium.tables")
            .on_table(table)
    })?;
    let (key, identity) = match key.is_empty() {
        true => (Key::WholeRow, Identity::Full),
        false => (Key::Columns(key), Identity::Default),
    };
    Ok(Schema { table: table.clone(), columns, key, identity, source_id: 1 })
}

const KEY: &str = "name columns that it has: source.debezium.tables.NAME.key";

fn passed_over(name: &str) -> String {
    format!("messages have a field `{name}` that isn't kept: no column is called so")
}

/// Does looking at the definitions once more help?
pub(super) fn may_be_outdated(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Unknown(_) => true,
        Refusal::Topic(_) | Refusal::Untold => false,
        Refusal::Bad(error) => error.kind() == ErrorKind::Schema,
    }
}
