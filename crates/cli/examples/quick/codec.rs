//! Debezium's forms, of a table of 8 columns.

use std::hint::black_box;
use std::sync::Arc;
use tidewire_change::{Change, Op, Position, Result, Schema};
use tidewire_envelope::debezium::{
    protobuf::{Layout, ProtobufEncoder},
    AvroEncoder, AvroWriter, Decoder, Described, Describes, Encoder, Looks, Modes, Origin, Place,
};

const ORIGIN: Origin<'static> = Origin { name: "shop", database: "shopdb", version: "1" };
const NOW: i64 = 1_700_000_001_000_001;

/// Does one part so often.
pub fn part(changes: &[Change], wanted: &str, times: usize) -> Result<()> {
    let mut found = false;
    parts(changes, &mut |what, all| {
        if what == wanted {
            (0..times).for_each(|_| all());
            found = true;
        }
    })?;
    assert!(found, "there is no part {wanted}");
    Ok(())
}

fn parts(changes: &[Change], each: &mut dyn FnMut(&str, &mut dyn FnMut())) -> Result<()> {
    let changes: Vec<Change> = changes.iter().map(|change| Change { op: Op::Create, ..change.clone() }).collect();
    let schema = changes[0].schema.clone();
    json(&schema, &changes, each)?;
    avro(&schema, &changes, each)?;
    protobuf(&schema, &changes, each)
}

fn place() -> Place {
    Place { position: Position::new(1, 1), time: 1 }
}

fn json(schema: &Arc<Schema>, changes: &[Change], each: &mut dyn FnMut(&str, &mut dyn FnMut())) -> Result<()> {
    let modes = Modes::default();
    let encoder = Encoder::new(schema, &modes, &ORIGIN);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    each("json_write", &mut || {
        for change in changes {
            key.clear();
            value.clear();
            encoder.key(black_box(change), &mut key);
            encoder.value(change, NOW, &mut value);
            black_box((&key, &value));
        }
    });
    let messages = changes.iter().map(|change| {
        let mut value = Vec::new();
        encoder.value(change, NOW, &mut value);
        value
    });
    let messages: Vec<Vec<u8>> = messages.collect();
    let mut decoder = Decoder::new(schema, &modes);
    each("json_read", &mut || {
        messages.iter().for_each(|message| drop(black_box(decoder.decode(Some(message)).expect("it is one of ours"))));
    });
    let mut looks = Looks::default();
    each("json_read_of_others", &mut || {
        for message in &messages {
            let glance = looks.at(message, false).expect("it is a message");
            black_box(decoder.decode_placed(glance.payload, place(), false).expect("it is a change"));
        }
    });
    Ok(())
}

fn avro(schema: &Arc<Schema>, changes: &[Change], each: &mut dyn FnMut(&str, &mut dyn FnMut())) -> Result<()> {
    let modes = Modes::default();
    let mut encoder = AvroEncoder::new(schema, &modes, &ORIGIN)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    each("avro_write", &mut || {
        for change in changes {
            key.clear();
            value.clear();
            encoder.key(black_box(change), &mut key).expect("it has a key");
            encoder.value(change, NOW, &mut value).expect("it can be held");
            black_box((&key, &value));
        }
    });
    let mut messages = Vec::new();
    for change in changes {
        let mut value = Vec::new();
        encoder.value(change, NOW, &mut value)?;
        messages.push(value);
    }
    let mut decoder = Decoder::of_avro(schema, &modes, ORIGIN.name)?;
    each("avro_read", &mut || {
        messages.iter().for_each(|message| drop(black_box(decoder.decode(Some(message)).expect("it is one of ours"))));
    });
    let writer = AvroWriter::of(&encoder.contracts().value.schema)?;
    let described = Describes::of(writer.connect(), Described::Envelope)?;
    let own = Arc::new(Schema { columns: described.columns().cloned().collect(), ..(**schema).clone() });
    let mut decoder = described.avro_decoder(&writer, &own, &modes)?;
    each("avro_read_of_others", &mut || {
        for message in &messages {
            let glance = writer.glance(&message[5..]).expect("it is a message");
            black_box(decoder.decode_placed(glance.payload, place(), false).expect("it is a change"));
        }
    });
    Ok(())
}

fn protobuf(schema: &Arc<Schema>, changes: &[Change], each: &mut dyn FnMut(&str, &mut dyn FnMut())) -> Result<()> {
    let modes = Modes::default();
    let layout = Layout::of(schema, &modes, ORIGIN.name)?;
    let mut encoder = ProtobufEncoder::new(schema, &modes, &ORIGIN, &layout)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    each("protobuf_write", &mut || {
        for change in changes {
            key.clear();
            value.clear();
            encoder.key(black_box(change), &mut key).expect("it has a key");
            encoder.value(change, NOW, &mut value).expect("it can be held");
            black_box((&key, &value));
        }
    });
    let mut messages = Vec::new();
    for change in changes {
        let mut value = Vec::new();
        encoder.value(change, NOW, &mut value)?;
        messages.push(value);
    }
    let mut decoder = Decoder::of_protobuf(schema, &modes, &layout)?;
    each("protobuf_read", &mut || {
        messages.iter().for_each(|message| drop(black_box(decoder.decode(Some(message)).expect("it is one of ours"))));
    });
    Ok(())
}
