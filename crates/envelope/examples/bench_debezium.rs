//! Events a second of Debezium's format, one core: `bench_debezium [EVENTS]`. A table of 8 columns; inserts, updates and deletes by turns.

use std::hint::black_box;
use std::sync::Arc;
use tidewire_change::{Change, Column, Datum, Identity, Key, Kind, Op, Position, Row, Schema, TableName, Type};
use tidewire_envelope::debezium::{
    protobuf::{Layout, ProtobufEncoder},
    AvroEncoder, AvroWriter, Decoder, Described, Describes, Encoder, Looks, Modes, Origin, Place,
};

/// Seconds that this thread has been at work: others may be, too.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells it");
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

fn schema() -> Arc<Schema> {
    let columns = [
        (Kind::Int64, "bigint"),
        (Kind::Int32, "integer"),
        (Kind::Text, "character varying(20)"),
        (Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
        (Kind::Timestamp, "timestamp without time zone"),
        (Kind::TimestampTz, "timestamp with time zone"),
        (Kind::Bool, "boolean"),
        (Kind::Text, "text"),
    ];
    let column = |(index, (kind, name)): (usize, (Kind, &str))| Column {
        name: ["id", "customer", "status", "amount", "placed", "changed", "paid", "note"][index].into(),
        ty: Type { kind, name: name.into(), builtin: true },
        attribute: index as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("shop", "orders"),
        columns: columns.into_iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

fn changes(schema: &Arc<Schema>) -> Vec<Change> {
    let change = |n: u64| {
        let (id, customer, amount) =
            (n.to_string(), (n * 7919 % 100_000).to_string(), format!("{}.{:02}", n % 10_000, n % 100));
        let (placed, changed) =
            (format!("2026-11-{:02} 12:34:56.{:06}", n % 28 + 1, (n % 1_000_000) | 1), "2026-11-30 01:02:03.456789+00");
        let texts =
            [&id, &customer, "shipped", &amount, &placed, changed, "t", "left with the neighbour, \"no\" answer"];
        let row = |is_key: bool| {
            Row::from_datums(texts.iter().enumerate().map(|(at, text)| match at {
                1.. if is_key => Datum::Unchanged,
                _ => Datum::Text(text.as_bytes()),
            }))
        };
        let (op, before, after) = match n % 10 {
            0..6 => (Op::Create, None, Some(row(false))),
            6..9 => (Op::Update, None, Some(row(false))),
            _ => (Op::Delete, Some(row(true)), None),
        };
        let position = Position::new(0x15D8_4EE8 + n / 10 * 800, (n % 10 * 2) as u32);
        Change {
            schema: schema.clone(),
            op,
            position,
            committed_at: 1_796_003_405_761_012 + n as i64,
            xid: Some(741),
            before,
            after,
        }
    };
    (0..1000).map(change).collect()
}

fn rate(name: &str, events: usize, mut each: impl FnMut(usize)) {
    let began = cpu_seconds();
    (0..events).for_each(&mut each);
    println!("{name}: {:.0} events/s", events as f64 / (cpu_seconds() - began));
}

/// Where a reader of somebody else's topic puts a change.
fn place() -> Place {
    Place { position: Position::new(1, 1), time: 1 }
}

fn main() {
    let events: usize = std::env::args().nth(1).map_or(2_000_000, |text| text.parse().expect("a number"));
    let schema = schema();
    let changes = changes(&schema);
    json(events, &schema, &changes);
    avro(events, &schema, &changes);
    protobuf(events, &schema, &changes);
}

const ORIGIN: Origin<'static> = Origin { name: "shop", database: "shop", version: "0.1.0" };

/// `encode` appends a key and a value; the values come back.
fn encodes(
    name: &str,
    events: usize,
    changes: &[Change],
    mut encode: impl FnMut(&Change, i64, &mut Vec<u8>, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let (mut key, mut value, mut bytes) = (Vec::new(), Vec::new(), 0);
    rate(&format!("encode {name}"), events, |n| {
        let change = &changes[n % changes.len()];
        key.clear();
        value.clear();
        encode(change, change.committed_at + 1000, &mut key, &mut value);
        bytes += key.len() + value.len();
    });
    println!("  {} bytes an event", bytes / events);
    let written = |change: &Change| {
        let mut value = Vec::new();
        encode(change, 0, &mut Vec::new(), &mut value);
        value
    };
    changes.iter().map(written).collect()
}

fn decodes(name: &str, events: usize, values: &[Vec<u8>], mut decoder: Decoder) {
    rate(&format!("decode {name}"), events, |n| {
        black_box(decoder.decode(Some(&values[n % values.len()])).expect("what was written can be read"));
    });
}

fn json(events: usize, schema: &Arc<Schema>, changes: &[Change]) {
    for (name, with_schemas) in [("schemas.enable=false", false), ("schemas.enable=true", true)] {
        let modes = Modes { key_schemas: with_schemas, value_schemas: with_schemas, ..Modes::default() };
        let encoder = Encoder::new(schema, &modes, &ORIGIN);
        let values = encodes(name, events, changes, |change, now, key, value| {
            encoder.key(change, key);
            encoder.value(change, now, value);
        });
        decodes(name, events, &values, Decoder::new(schema, &modes));
        let (mut looks, mut decoder) = (Looks::default(), Decoder::new(schema, &modes));
        rate(&format!("decode {name}, as somebody else's"), events, |n| {
            let glance = looks.at(&values[n % values.len()], false).expect("it is a message");
            black_box(decoder.decode_placed(glance.payload, place(), false).expect("what was written can be read"));
        });
    }
}

fn avro(events: usize, schema: &Arc<Schema>, changes: &[Change]) {
    let modes = Modes::default();
    let mut encoder = AvroEncoder::new(schema, &modes, &ORIGIN).expect("its names are Avro's, too");
    let values = encodes("Avro", events, changes, |change, now, key, value| {
        encoder.key(change, key).expect("it has a key");
        encoder.value(change, now, value).expect("it can be held");
    });
    let decoder = Decoder::of_avro(schema, &modes, ORIGIN.name).expect("its names are Avro's, too");
    decodes("Avro", events, &values, decoder);
    let writer = AvroWriter::of(&encoder.contracts().value.schema).expect("it is a schema");
    let described = Describes::of(writer.connect(), Described::Envelope).expect("it is an envelope's");
    let own = Arc::new(Schema { columns: described.columns().cloned().collect(), ..(**schema).clone() });
    let mut decoder = described.avro_decoder(&writer, &own, &modes).expect("it describes its rows");
    rate("decode Avro, as somebody else's", events, |n| {
        let glance = writer.glance(&values[n % values.len()][5..]).expect("it is a message");
        black_box(decoder.decode_placed(glance.payload, place(), false).expect("what was written can be read"));
    });
}

fn protobuf(events: usize, schema: &Arc<Schema>, changes: &[Change]) {
    let modes = Modes::default();
    let layout = Layout::of(schema, &modes, ORIGIN.name).expect("its names are Protobuf's, too");
    let mut encoder = ProtobufEncoder::new(schema, &modes, &ORIGIN, &layout).expect("the layout is its own");
    let values = encodes("Protobuf", events, changes, |change, now, key, value| {
        encoder.key(change, key).expect("it has a key");
        encoder.value(change, now, value).expect("it can be held");
    });
    let decoder = Decoder::of_protobuf(schema, &modes, &layout).expect("the layout is its own");
    decodes("Protobuf", events, &values, decoder);
}
