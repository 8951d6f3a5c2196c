//! Messages in Avro and in Protobuf: by our own schemas, and as somebody else's.

use super::{debezium_modes, every_type};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Change, Datum, Error, ErrorKind, Op, Position, Row, Schema};
use tidewire_envelope::debezium::protobuf::{Layout, ProtobufEncoder, ProtobufWriter};
use tidewire_envelope::debezium::{AvroEncoder, AvroWriter, Decoder, Modes, Origin};

const ORIGIN: Origin<'static> = Origin { name: "t", database: "d", version: "0" };

/// Whether the first byte means Protobuf, and the modes.
fn chosen(which: u8) -> (bool, Modes) {
    (which & 1 == 1, debezium_modes(which >> 1))
}

fn layout(schema: &Schema, modes: &Modes) -> Layout {
    Layout::of(schema, modes, ORIGIN.name).expect("its names are apart")
}

/// What reads messages of one form and modes: made once.
struct Readers {
    decoder: Decoder,
    writer: Writer,
}

enum Writer {
    Avro(AvroWriter),
    Protobuf(ProtobufWriter),
}

impl Readers {
    fn of(which: u8) -> Result<Readers, Error> {
        let ((is_protobuf, modes), schema) = (chosen(which), every_type());
        Ok(match is_protobuf {
            true => {
                let layout = layout(&schema, &modes);
                let decoder = Decoder::of_protobuf(&schema, &modes, &layout)?;
                Readers { decoder, writer: Writer::Protobuf(ProtobufWriter::of(Arc::new(layout.value))?) }
            }
            false => {
                let encoder = AvroEncoder::new(&schema, &modes, &ORIGIN)?;
                let writer = Writer::Avro(AvroWriter::of(&encoder.contracts().value.schema)?);
                Readers { decoder: Decoder::of_avro(&schema, &modes, ORIGIN.name)?, writer }
            }
        })
    }

    /// The message as the JSON that somebody else's would be.
    fn json(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        match &self.writer {
            Writer::Avro(writer) => writer.json(value.get(5..).unwrap_or_default(), out),
            Writer::Protobuf(writer) => writer.json(value.get(6..).unwrap_or_default(), false, out),
        }
    }
}

thread_local! {
    static READERS: RefCell<HashMap<u8, Readers>> = RefCell::default();
}

pub(crate) fn encoded(which: u8, change: &Change) -> Vec<u8> {
    let ((is_protobuf, modes), schema, mut out) = (chosen(which), &change.schema, Vec::new());
    match is_protobuf {
        true => ProtobufEncoder::new(schema, &modes, &ORIGIN, &layout(schema, &modes))
            .and_then(|mut encoder| encoder.value(change, 0, &mut out)),
        false => AvroEncoder::new(schema, &modes, &ORIGIN).and_then(|mut encoder| encoder.value(change, 0, &mut out)),
    }
    .expect("it has its key");
    out
}

/// A message of a topic under a registry's schema: the first byte chooses form and modes.
pub fn registered_message(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    READERS.with_borrow_mut(|readers| {
        let readers = readers.entry(*which).or_insert_with(|| Readers::of(*which).expect("the schema is our own"));
        read(readers, *which, rest)
    })
}

fn read(readers: &mut Readers, which: u8, rest: &[u8]) -> bool {
    let mut text = Vec::new();
    match readers.json(rest, &mut text) {
        Ok(()) => drop(serde_json::from_slice::<serde_json::Value>(&text).expect("it became JSON")),
        Err(error) => assert!(error.kind() == ErrorKind::Malformed && !error.message().is_empty(), "{error}"),
    }
    match readers.decoder.decode(Some(rest)) {
        Ok(Some(change)) if has_its_key(&change) => {
            let value = encoded(which, &change);
            let again = readers.decoder.decode(Some(&value)).expect("what we write can be read");
            let again = again.expect("it is no tombstone");
            let xid = change.xid.filter(|_| change.op != Op::Read);
            assert_eq!((again.op, again.position, again.xid), (change.op, change.position, xid));
            true
        }
        Ok(_) => false,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Schema), "{error}");
            assert!(error.message().contains("shop.types"), "{error}");
            false
        }
    }
}

fn has_its_key(change: &Change) -> bool {
    let has = |row: &Option<Row>| row.as_ref().is_none_or(|row| matches!(row.get(0), Some(Datum::Text(_))));
    has(&change.before) && has(&change.after)
}

/// Rows of every type in both forms, and in each of the modes.
pub(crate) fn messages(row: &Row, partial: &Row) -> Vec<Vec<u8>> {
    let schema = every_type();
    let message = |which: u8, op, before, after| {
        let position = Position::new(5, 3);
        let change = Change { schema: schema.clone(), op, position, committed_at: 9, xid: Some(4), before, after };
        [vec![which], encoded(which, &change)].concat()
    };
    let mut messages: Vec<_> =
        (0..90).step_by(7).map(|which| message(which, Op::Create, None, Some(row.clone()))).collect();
    for which in [2, 3] {
        messages.push(message(which, Op::Update, Some(row.clone()), Some(partial.clone())));
        messages.push(message(which, Op::Delete, Some(row.clone()), None));
    }
    messages
}
