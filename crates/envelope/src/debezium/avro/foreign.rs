//! Messages in Avro that somebody else wrote: what they are is known by their writer's schema alone.

use super::json::push_json;
use super::to_connect::to_connect;
use super::walk::{is_null, some, Walker};
use super::wire::Wire;
use crate::debezium::binary::Binary;
use crate::debezium::decoder::Decoder;
use crate::debezium::from_connect::Describes;
use crate::debezium::glance::{field, file_number, fits, pair, Facts, Field, Glance, What};
use crate::debezium::plain::Lies;
use crate::debezium::varint::Cursor;
use crate::debezium::Modes;
use std::sync::Arc;
use tidewire_change::{Error, Op, Result, Schema};

/// A schema under which messages are written, read once.
pub struct AvroWriter {
    wire: Wire,
    connect: Vec<u8>,
    /// None: it is no envelope's.
    steps: Option<Vec<Step>>,
    is_position: bool,
    tells_types: bool,
}

/// What is looked at of an envelope before its rows are read.
enum Step {
    Row { is_before: bool, wire: Wire },
    Source(Vec<(Wire, Option<usize>, Field)>),
    Op,
    Millis(Wire),
    Skip(Wire),
}

impl AvroWriter {
    /// `Schema`: it is no schema of Avro, or one that needs itself.
    pub fn of(schema: &str) -> Result<AvroWriter> {
        AvroWriter::among(&[], schema)
    }

    /// The same of a schema that names types of others, each of these behind those that it needs itself.
    pub fn among(others: &[&str], schema: &str) -> Result<AvroWriter> {
        let broken =
            || Error::schema("it is no schema of Avro that can be read: one that needs itself, or too large a one");
        // What only Connect's converter says of its types, and names of types that it never takes.
        let says = |text: &str| ["\"connect.", "-micros\"", "\"local-", "\"uuid\""].iter().any(|of| text.contains(of));
        let tells_types = says(schema) || others.iter().any(|text| says(text));
        let parsed = |text: &str| serde_json::from_str(text).map_err(|_| broken());
        let (others, schema) = (others.iter().map(|text| parsed(text)).collect::<Result<Vec<_>>>()?, parsed(schema)?);
        let wire = Wire::among(&others, &schema).ok_or_else(broken)?;
        let connect = to_connect(&others, &schema).ok_or_else(broken)?;
        let is_position = connect["name"] == "tidewire.Position";
        let steps = steps(&wire);
        Ok(AvroWriter { wire, connect: connect.to_string().into_bytes(), steps, is_position, tells_types })
    }

    /// Connect's schema, as it would stand in JSON.
    pub fn connect(&self) -> &[u8] {
        &self.connect
    }

    /// It is the key that Tidewire gives a message without one: no column's.
    pub fn is_position(&self) -> bool {
        self.is_position
    }

    /// False: it tells no time from a number, since Connect's converter was to leave that out (`connect.meta.data=false`).
    pub fn tells_types(&self) -> bool {
        self.tells_types
    }

    pub fn is_envelope(&self) -> bool {
        self.steps.is_some()
    }

    /// Appends the message in JSON. `body`: behind the number of the schema.
    pub fn json(&self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut cursor = Cursor::new(body);
        let done = push_json(&self.wire, &mut cursor, out);
        done.filter(|()| cursor.is_at_end()).ok_or_else(malformed)
    }

    /// The message as far as it speaks for itself; it has to be an envelope.
    pub fn glance<'a>(&'a self, body: &'a [u8]) -> Result<Glance<'a>> {
        let facts = Facts { is_plain: true, ..Facts::default() };
        let mut glance =
            Glance { what: What::Aside, schema: Some(&self.connect), payload: body, facts, has_before: false };
        let mut cursor = Cursor::new(body);
        let seen = self.look(&mut cursor, &mut glance).filter(|_| cursor.is_at_end()).ok_or_else(malformed)?;
        glance.facts.complete(false)?;
        glance.what = match seen {
            (b"m", _) => What::Aside,
            ([letter], has_after) => match Op::from_letter(*letter) {
                Some(op) => fits(op, glance.has_before, has_after)?,
                None => return Err(Error::malformed("the value has an operation that no change of a row has")),
            },
            _ => return Err(Error::malformed("the value has an operation that no change of a row has")),
        };
        Ok(glance)
    }

    /// The operation, and whether there is a new row.
    fn look<'a>(&self, cursor: &mut Cursor<'a>, glance: &mut Glance<'a>) -> Option<(&'a [u8], bool)> {
        let (mut op, mut has_after, mut millis) = (None, false, None);
        for step in self.steps.as_ref()? {
            match step {
                Step::Row { is_before, wire } => {
                    let is_there = some(cursor, wire)?.is_some();
                    if is_there {
                        cursor.skip_value(wire.inner().0)?;
                    }
                    match is_before {
                        true => glance.has_before = is_there,
                        false => has_after = is_there,
                    }
                }
                Step::Source(members) => facts(cursor, members, &mut glance.facts)?,
                Step::Op => op = Some(cursor.text()?),
                Step::Millis(wire) => {
                    if some(cursor, wire)?.is_some() {
                        millis = Some(cursor.long()?);
                    }
                }
                Step::Skip(wire) => cursor.skip_value(wire)?,
            }
        }
        glance.facts.at = glance.facts.at.or(millis.map(|ms| ms.saturating_mul(1000)));
        Some((op?, has_after))
    }
}

fn malformed() -> Error {
    Error::malformed("the message isn't what its Avro schema says")
}

fn steps(wire: &Wire) -> Option<Vec<Step>> {
    let Wire::Record(fields) = wire else { return None };
    let has = |wanted: &str| fields.iter().any(|(name, _)| name == wanted);
    if !(has("op") && has("after") && has("before")) {
        return None;
    }
    let step = |(name, wire): &(String, Wire)| match (name.as_str(), wire.inner().0) {
        ("before" | "after", Wire::Record(_)) => Some(Step::Row { is_before: name == "before", wire: wire.clone() }),
        ("source", Wire::Record(fields)) if !matches!(wire, Wire::Union(_)) => {
            let members = fields.iter().map(|(name, wire)| (wire.clone(), wire.inner().1, member(name, wire)));
            Some(Step::Source(members.collect()))
        }
        ("op", Wire::String) if *wire == Wire::String => Some(Step::Op),
        // Documents of MongoDB are texts: they go by their JSON.
        ("before" | "after" | "op", _) => None,
        ("ts_ms", Wire::Int) => Some(Step::Millis(wire.clone())),
        _ => Some(Step::Skip(wire.clone())),
    };
    fields.iter().map(step).collect()
}

/// One of another type than it has says nothing.
fn member(name: &str, wire: &Wire) -> Field {
    let (field, lies) = (field(name.as_bytes()), wire.inner().0.lies());
    match (field.is_text(), lies) {
        (true, Lies::Text) | (false, Lies::Number) => field,
        _ => Field::None,
    }
}

fn facts<'a>(cursor: &mut Cursor<'a>, members: &[(Wire, Option<usize>, Field)], facts: &mut Facts<'a>) -> Option<()> {
    let mut millis = None;
    for (wire, null, member) in members {
        if *member == Field::None {
            cursor.skip_value(wire)?;
            continue;
        }
        if is_null(cursor, *null)? {
            continue;
        }
        match member {
            Field::Snapshot => facts.set_snapshot(cursor.text()?),
            Field::Sequence => {
                let text = cursor.text()?;
                facts.sequence = pair(text);
                facts.unread = facts.unread.or(facts.sequence.is_none().then_some((b"sequence", text)));
            }
            Field::Schema => facts.schema = Some(cursor.text()?),
            Field::Table => facts.table = Some(cursor.text()?),
            Field::Database => facts.database = Some(cursor.text()?),
            Field::File => facts.file = file_number(cursor.text()?),
            Field::CommitLsn => facts.commit_lsn = Some(cursor.long()? as u64),
            Field::Ordinal => facts.ordinal = Some(u32::try_from(cursor.long()?).ok()?),
            Field::Lsn => facts.lsn = Some(cursor.long()? as u64),
            Field::Micros => facts.at = Some(cursor.long()?),
            Field::Millis => millis = Some(cursor.long()?),
            Field::Offset => facts.offset = u64::try_from(cursor.long()?).ok(),
            Field::Row => facts.row = u32::try_from(cursor.long()?).ok(),
            Field::None => {}
        }
    }
    facts.at = facts.at.or(millis.map(|ms: i64| ms.saturating_mul(1000)));
    Some(())
}

impl Describes {
    /// Reads messages in Avro under the schema that described it. `schema`: a table of these columns.
    pub fn avro_decoder(&self, writer: &AvroWriter, schema: &Arc<Schema>, modes: &Modes) -> Result<Decoder> {
        let column = |name: &str| schema.column(name).map(|(index, _)| index);
        let walker = Walker::new(&writer.wire, schema.columns.len(), column).ok_or_else(malformed)?;
        Ok(self.decoder(schema, modes).in_binary(Binary::Avro(walker)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::samples::{change, told_types};
    use crate::debezium::{AvroEncoder, Described, Origin, Place};
    use tidewire_change::{Datum, Position, Row};

    #[test]
    fn a_row_is_read_back_by_its_writers_schema_alone() {
        let (table, row) = told_types();
        let change = |op, before, after| change(&table, op, before, after);
        let origin = Origin { name: "p", database: "d", version: "1" };
        let mut encoder = AvroEncoder::new(&table, &Modes::default(), &origin).unwrap();
        let writer = AvroWriter::of(&encoder.contracts().value.schema).unwrap();
        let described = Describes::of(writer.connect(), Described::Envelope).unwrap();
        let own = Arc::new(Schema { columns: described.columns().cloned().collect(), ..(*table).clone() });
        let types = |schema: &Schema| schema.columns.iter().map(|column| column.ty.clone()).collect::<Vec<_>>();
        assert_eq!(types(&own), types(&table));
        let mut decoder = described.avro_decoder(&writer, &own, &Modes::default()).unwrap();
        let place = Place { position: Position::new(8, 2), time: 4 };
        let note = table.column("note").expect("it has one").0;
        let datums = row.columns().enumerate();
        let unchanged = Row::from_datums(datums.map(|(at, datum)| if at == note { Datum::Unchanged } else { datum }));
        for (change, has_before) in [
            (change(Op::Create, None, Some(row.clone())), false),
            (change(Op::Update, None, Some(unchanged)), false),
            (change(Op::Delete, Some(row.clone()), None), true),
        ] {
            let mut value = Vec::new();
            encoder.value(&change, 9, &mut value).unwrap();
            let glance = writer.glance(&value[5..]).unwrap();
            assert_eq!((glance.what, glance.has_before), (What::Change(change.op), has_before));
            let facts = glance.facts;
            assert_eq!((facts.commit_lsn, facts.ordinal, facts.table), (Some(5), Some(1), Some(&b"t"[..])));
            assert_eq!((facts.sequence, facts.at), (Some((Some(5), Some(1))), Some(3)));
            let read = decoder.decode_placed(glance.payload, place, false).unwrap();
            assert_eq!((read.op, &read.before, &read.after), (change.op, &change.before, &change.after));
            for cut in 5..value.len() {
                assert!(writer.glance(&value[5..cut]).is_err(), "{cut}");
            }
            let mut json = Vec::new();
            writer.json(&value[5..], &mut json).unwrap();
            assert_eq!(Glance::of(&json, false).unwrap().what, glance.what);
        }
        let key = br#"{"id":7}"#;
        let gone = decoder.delete_of(key, place).unwrap();
        assert_eq!(gone.before.unwrap().get(0), Some(Datum::Text(b"7")));
    }

    #[test]
    fn what_is_no_envelope_goes_by_its_json() {
        let heartbeat = AvroWriter::of(r#"{"type":"record","name":"Heartbeat","namespace":"io.debezium.connector.common","fields":[{"name":"ts_ms","type":"long"}]}"#).unwrap();
        assert!(!heartbeat.is_envelope());
        let mut json = Vec::new();
        heartbeat.json(&[2], &mut json).unwrap();
        assert_eq!(json, br#"{"ts_ms":1}"#);
        assert!(AvroWriter::of("{").is_err() && AvroWriter::of("\"strange\"").is_err());
    }
}
