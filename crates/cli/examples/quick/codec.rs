//! Debezium's forms, of a table of 8 columns.

use std::hint::black_box;
use std::sync::Arc;
use tidewire_change::{Change, Op, Position, Result, Schema};
use tidewire_envelope::debezium::{
    protobuf::{Layout, ProtobufEncoder},
    AvroEncoder, AvroWriter, Decoder, Described, Describes, Encoder, Looks, Modes, Naming, Origin, Place, RowEncoder,
    RowForm, Unwrap,
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

type Each<'a> = &'a mut dyn FnMut(&str, &mut dyn FnMut());

fn parts(changes: &[Change], each: Each<'_>) -> Result<()> {
    let changes: Vec<Change> = changes.iter().map(|change| Change { op: Op::Create, ..change.clone() }).collect();
    let schema = changes[0].schema.clone();
    rows_alone(&schema, &changes, each)?;
    json(&schema, &changes, each);
    avro(&schema, &changes, each)?;
    protobuf(&schema, &changes, each)
}

/// `encode` appends a key and a value; the values come back.
fn writes(
    part: &str,
    changes: &[Change],
    each: Each<'_>,
    mut encode: impl FnMut(&Change, &mut Vec<u8>, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    each(part, &mut || {
        for change in changes {
            key.clear();
            value.clear();
            encode(black_box(change), &mut key, &mut value);
            black_box((&key, &value));
        }
    });
    let written = |change: &Change| {
        let mut value = Vec::new();
        encode(change, &mut Vec::new(), &mut value);
        value
    };
    changes.iter().map(written).collect()
}

/// Behind the transform, by its defaults. Keys are those of envelopes.
fn rows_alone(schema: &Arc<Schema>, changes: &[Change], each: Each<'_>) -> Result<()> {
    let (modes, unwrap) = (Modes::default(), Unwrap::default());
    let form = RowForm::avro(schema, &modes, ORIGIN.name, &unwrap)?;
    alone("avro_row_write", Naming::Avro, Some(form), changes, each)?;
    let layout = Layout::alone(schema, &modes, ORIGIN.name, &unwrap)?;
    alone("protobuf_row_write", Naming::Protobuf, Some(RowForm::protobuf(schema, &layout)), changes, each)?;
    alone("json_row_write", Naming::AsTheyAre, None, changes, each)
}

/// Writes a change's key; false: it has none.
type Keys = Box<dyn FnMut(&Change, &mut Vec<u8>) -> bool>;

fn alone(part: &str, naming: Naming, form: Option<RowForm>, changes: &[Change], each: Each<'_>) -> Result<()> {
    let (schema, modes) = (&changes[0].schema, Modes::default());
    let mut rows = RowEncoder::new(schema, &modes, &ORIGIN, &Unwrap::default(), naming)?;
    let mut keys: Keys = match naming {
        Naming::AsTheyAre => {
            let encoder = Encoder::new(schema, &modes, &ORIGIN);
            Box::new(move |change, key| encoder.key(change, key))
        }
        Naming::Avro => {
            let mut encoder = AvroEncoder::new(schema, &modes, &ORIGIN)?;
            Box::new(move |change, key| encoder.key(change, key).expect("it has a key"))
        }
        Naming::Protobuf => {
            let layout = Layout::of(schema, &modes, ORIGIN.name)?;
            let mut encoder = ProtobufEncoder::new(schema, &modes, &ORIGIN, &layout)?;
            Box::new(move |change, key| encoder.key(change, key).expect("it has a key"))
        }
    };
    let (mut json, mut headers) = (Vec::new(), Vec::new());
    writes(part, changes, each, |change, key, value| {
        keys(change, key);
        let Some(form) = &form else {
            rows.value_in(change, None, NOW, value, &mut headers).expect("it is a row");
            return;
        };
        json.clear();
        rows.value_in(change, None, NOW, &mut json, &mut headers).expect("it is a row");
        form.push(&json, value).expect("it can be held");
    });
    Ok(())
}

fn reads(part: &str, messages: &[Vec<u8>], mut decoder: Decoder, each: Each<'_>) {
    each(part, &mut || {
        messages.iter().for_each(|message| drop(black_box(decoder.decode(Some(message)).expect("it is one of ours"))));
    });
}

fn place() -> Place {
    Place { position: Position::new(1, 1), time: 1 }
}

fn json(schema: &Arc<Schema>, changes: &[Change], each: Each<'_>) {
    let modes = Modes::default();
    let encoder = Encoder::new(schema, &modes, &ORIGIN);
    let messages = writes("json_write", changes, each, |change, key, value| {
        encoder.key(change, key);
        encoder.value(change, NOW, value);
    });
    reads("json_read", &messages, Decoder::new(schema, &modes), each);
    let (mut looks, mut decoder) = (Looks::default(), Decoder::new(schema, &modes));
    each("json_read_of_others", &mut || {
        for message in &messages {
            let glance = looks.at(message, false).expect("it is a message");
            black_box(decoder.decode_placed(glance.payload, place(), false).expect("it is a change"));
        }
    });
}

fn avro(schema: &Arc<Schema>, changes: &[Change], each: Each<'_>) -> Result<()> {
    let modes = Modes::default();
    let mut encoder = AvroEncoder::new(schema, &modes, &ORIGIN)?;
    let messages = writes("avro_write", changes, each, |change, key, value| {
        encoder.key(change, key).expect("it has a key");
        encoder.value(change, NOW, value).expect("it can be held");
    });
    reads("avro_read", &messages, Decoder::of_avro(schema, &modes, ORIGIN.name)?, each);
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

fn protobuf(schema: &Arc<Schema>, changes: &[Change], each: Each<'_>) -> Result<()> {
    let modes = Modes::default();
    let layout = Layout::of(schema, &modes, ORIGIN.name)?;
    let mut encoder = ProtobufEncoder::new(schema, &modes, &ORIGIN, &layout)?;
    let messages = writes("protobuf_write", changes, each, |change, key, value| {
        encoder.key(change, key).expect("it has a key");
        encoder.value(change, NOW, value).expect("it can be held");
    });
    reads("protobuf_read", &messages, Decoder::of_protobuf(schema, &modes, &layout)?, each);
    Ok(())
}
