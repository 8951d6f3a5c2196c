//! Messages in Avro and in Protobuf: by our own schemas, and as somebody else's.

use super::{debezium_modes, every_type};
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

fn decoder(schema: &Arc<Schema>, is_protobuf: bool, modes: &Modes) -> Decoder {
    match is_protobuf {
        true => Decoder::of_protobuf(schema, modes, &layout(schema, modes)),
        false => Decoder::of_avro(schema, modes, ORIGIN.name),
    }
    .expect("the schema is our own")
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

/// The message as the JSON that somebody else's would be.
fn json(is_protobuf: bool, modes: &Modes, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let schema = every_type();
    match is_protobuf {
        true => ProtobufWriter::of(Arc::new(layout(&schema, modes).value))?.json(
            value.get(6..).unwrap_or_default(),
            false,
            out,
        ),
        false => {
            let encoder = AvroEncoder::new(&schema, modes, &ORIGIN)?;
            AvroWriter::of(&encoder.contracts().value.schema)?.json(value.get(5..).unwrap_or_default(), out)
        }
    }
}

/// A message of a topic under a registry's schema: the first byte chooses form and modes.
pub fn registered_message(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    let ((is_protobuf, modes), schema) = (chosen(*which), every_type());
    let mut text = Vec::new();
    match json(is_protobuf, &modes, rest, &mut text) {
        Ok(()) => drop(serde_json::from_slice::<serde_json::Value>(&text).expect("it became JSON")),
        Err(error) => assert!(error.kind() == ErrorKind::Malformed && !error.message().is_empty(), "{error}"),
    }
    match decoder(&schema, is_protobuf, &modes).decode(Some(rest)) {
        Ok(Some(change)) if has_its_key(&change) => {
            let value = encoded(*which, &change);
            let again = decoder(&schema, is_protobuf, &modes).decode(Some(&value)).expect("what we write can be read");
            let again = again.expect("it is no tombstone");
            assert_eq!(
                (again.op, again.position, again.xid),
                (change.op, change.position, change.xid.filter(|_| change.op != Op::Read))
            );
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
