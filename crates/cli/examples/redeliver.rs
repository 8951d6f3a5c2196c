//! Delivers a journal once more to a sink, in batches that are cut and put in order at random: nothing may change.
//! With `--fresh` the sink is empty, and only those tables are delivered whose changes are all whole rows under one schema;
//! their names are printed. For the bank of faults (testbed/cases.py).
//!
//!     redeliver SEED DATA_DIR (delta PATH | postgres URL) SINK [--fresh]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{topic, Change, Error, Op, Result, Schema, SchemaId};
use tidewire_connector::{Sink, TableBatch};
use tidewire_delta::{Config as LakeConfig, DeltaSink};
use tidewire_envelope::native;
use tidewire_journal::{Journal, Read, Start, View};
use tidewire_postgres::sink::{Config as ReplicaConfig, PostgresSink};

const PIPELINE: &str = "main";
/// Most changes of a batch; more where there would be very many batches.
const LONGEST: u64 = 40;
const BATCHES: u64 = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, dir, kind, place, sink, rest @ ..] = words.as_slice() else {
        return Err(Error::invalid("redeliver SEED DATA_DIR (delta PATH | postgres URL) SINK [--fresh]"));
    };
    let mut random = Random(seed.parse::<u64>().map_err(|e| Error::invalid("SEED is a number").caused_by(e))? | 1);
    let is_fresh = rest.iter().any(|word| word == "--fresh");
    let mut sink: Box<dyn Sink> = match kind.as_str() {
        "delta" => Box::new(DeltaSink::new(LakeConfig::new(place, PIPELINE, sink))),
        "postgres" => Box::new(PostgresSink::new(ReplicaConfig {
            connection: tidewire_pgwire::Config::parse(place)?,
            pipeline: PIPELINE.into(),
            sink: sink.clone(),
            instance: None,
            schema: None,
            patience: std::time::Duration::from_secs(60),
        })),
        other => return Err(Error::invalid(format!("no sink is of the kind {other}"))),
    };
    let mut tables = changes(&Journal::read_only(dir)?)?;
    for changes in tables.values_mut() {
        // A pipeline passes over what came under an older schema, once a newer one is in the sink.
        let newest = changes.iter().max_by_key(|change| change.position).map(|change| change.schema.clone());
        if !is_fresh {
            changes.retain(|change| Some(&change.schema) == newest.as_ref());
        }
    }
    if is_fresh {
        tables.retain(|_, changes| is_free_of_order(changes));
        tables.keys().for_each(|table| println!("{table}"));
    }
    let mut batches = Vec::new();
    for changes in tables.into_values() {
        batches.extend(cut(changes, &mut random));
    }
    random.shuffle(&mut batches);
    deliver(&mut *sink, batches, &mut random).await
}

/// By table, in the order of the log.
fn changes(view: &View) -> Result<BTreeMap<String, Vec<Change>>> {
    let messages = |name: &str| view.read(Read { topic: name.into(), partition: None, start: Start::Earliest });
    let mut schemas: HashMap<SchemaId, Arc<Schema>> = HashMap::new();
    for message in messages(topic::SCHEMAS) {
        let message = message?;
        let (id, schema) = native::decode_schema(&message.key, &message.value)?;
        schemas.insert(id, Arc::new(schema));
    }
    let mut tables: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for facts in view.topics() {
        let Some(table) = topic::table_of(&facts.topic) else { continue };
        for message in messages(&facts.topic) {
            let message = message?;
            if !message.value.is_empty() {
                let change = native::decode(message.value, &|id| schemas.get(&id).cloned())?;
                tables.entry(table.to_string()).or_default().push(change);
            }
        }
    }
    Ok(tables)
}

/// Whole rows with a key, all under one schema.
fn is_free_of_order(changes: &[Change]) -> bool {
    let is_whole =
        |change: &Change| change.op == Op::Delete || !change.after.as_ref().is_some_and(|row| row.has_unchanged());
    let has_key = |change: &Change| !change.schema.key_columns().is_empty();
    changes.iter().all(|change| is_whole(change) && has_key(change) && change.schema == changes[0].schema)
}

/// A batch holds changes under one schema.
fn cut(changes: Vec<Change>, random: &mut Random) -> Vec<Vec<Change>> {
    let mut batches: Vec<Vec<Change>> = Vec::new();
    let longest = LONGEST.max(changes.len() as u64 / BATCHES);
    let mut left = 0;
    for change in changes {
        let is_same = batches.last().and_then(|batch| batch.first()).is_some_and(|first| first.schema == change.schema);
        if left == 0 || !is_same {
            left = 1 + random.next() % longest;
            batches.push(Vec::new());
        }
        left -= 1;
        batches.last_mut().expect("one was put there").push(change);
    }
    batches
}

async fn deliver(sink: &mut dyn Sink, batches: Vec<Vec<Change>>, random: &mut Random) -> Result<()> {
    sink.open().await?;
    let progress = sink.committed().await?;
    for changes in batches {
        let schema = changes[0].schema.clone();
        sink.prepare(schema.clone()).await?;
        let reduced = tidewire_flow::reduce(changes)?;
        sink.write(TableBatch { schema, truncate: reduced.truncate, changes: reduced.changes }).await?;
        if random.next().is_multiple_of(4) {
            sink.commit(&progress).await?;
        }
    }
    sink.commit(&progress).await?;
    // Nothing is read from the source any more: what was written anew is whole.
    for rewritten in sink.rewritten() {
        sink.show(&rewritten).await?;
    }
    sink.commit(&progress).await
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }
}
