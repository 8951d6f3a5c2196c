//! Random work on few keys, against a model in memory of what the source's table holds.

use crate::bench::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Change, Key, Op, Schema};
use tidewire_postgres::sink::PostgresSink;

/// xorshift64*: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// Key by its value in hundredths -> spelling, large text, number.
type Model = BTreeMap<u64, (String, String, String)>;

struct Source {
    schema: Arc<Schema>,
    dice: Dice,
    model: Model,
    changes: Vec<Change>,
    partial: bool,
}

impl Source {
    fn spelling(&mut self, key: u64) -> String {
        let zeros = "0".repeat(self.dice.roll(3) as usize);
        if zeros.is_empty() {
            key.to_string()
        } else {
            format!("{key}.{zeros}")
        }
    }

    fn step(&mut self, commit: u64, ordinal: &mut u32) {
        let key = self.dice.roll(5);
        let mut push = |schema: &Arc<Schema>, letter, values: &[&str]| {
            let change = change(schema, letter, (commit, *ordinal), values);
            *ordinal += 1;
            change
        };
        let number = (commit * 100 + key).to_string();
        let large = format!("large {}", self.dice.roll(1000));
        let what = self.dice.roll(20);
        let held = self.model.get(&key).cloned();
        match (what, held) {
            (0, _) if self.dice.roll(4) == 0 => {
                let change = push(&self.schema, 'c', &["0", "", "0"]);
                self.changes.push(Change { op: Op::Truncate, after: None, ..change });
                self.model.clear();
            }
            (_, None) => {
                let spelling = self.spelling(key);
                self.changes.push(push(&self.schema, 'c', &[&spelling, &large, &number]));
                self.model.insert(key, (spelling, large, number));
            }
            (1..=5, Some((spelling, ..))) => {
                self.changes.push(push(&self.schema, 'd', &[&spelling, "~", "~"]));
                self.model.remove(&key);
            }
            // The same key, another spelling: the log says that the key changed.
            (6..=8, Some((spelling, old_large, _))) => {
                let other = self.spelling(key);
                if other != spelling {
                    self.changes.push(push(&self.schema, 'd', &[&spelling, "~", "~"]));
                    self.changes.push(push(&self.schema, 'c', &[&other, &old_large, &number]));
                    self.model.insert(key, (other, old_large, number));
                }
            }
            (9..=14, Some((spelling, old_large, _))) if self.partial => {
                self.changes.push(push(&self.schema, 'u', &[&spelling, "~", &number]));
                self.model.insert(key, (spelling, old_large, number));
            }
            (_, Some((spelling, ..))) => {
                self.changes.push(push(&self.schema, 'u', &[&spelling, &large, &number]));
                self.model.insert(key, (spelling, large, number));
            }
        }
    }
}

fn work(table: &str, seed: u64, partial: bool) -> Source {
    let columns = [("k", "numeric"), ("large", "text"), ("n", "bigint")];
    let schema = schema(table, &columns, Key::Columns(vec![0]));
    let (model, changes) = (Model::new(), Vec::new());
    let mut source = Source { schema, dice: Dice(seed * 7919 + 1), model, changes, partial };
    for commit in 1..30 {
        let mut ordinal = 0;
        for _ in 0..=source.dice.roll(4) {
            source.step(commit, &mut ordinal);
        }
    }
    source
}

fn expected(model: &Model) -> String {
    let rows: Vec<String> = model.values().map(|(k, large, n)| format!("{k}|{large}|{n}")).collect();
    rows.join("\n")
}

async fn current(db: &Db, sink: &mut PostgresSink, table: &str) -> String {
    tidewire_connector::Sink::commit(sink, &Default::default()).await.unwrap();
    db.sql(&format!("SELECT k, large, n FROM replica.\"{table}_current\" ORDER BY k"))
}

#[tokio::test]
async fn partial_rows_with_any_cut_and_any_repetition_from_an_earlier_point_give_the_sources_table() {
    let db = Db::new("random_partial");
    let mut sink = db.sink().await;
    for seed in 0..30 {
        let table = format!("t{seed}");
        let mut source = work(&table, seed, true);
        let total = source.changes.len();
        let mut at = 0;
        while at < total {
            let end = (at + 1 + source.dice.roll(12) as usize).min(total);
            let written = write(&mut sink, source.changes[at..end].to_vec()).await.unwrap();
            assert_eq!(written.incomplete, 0, "seed {seed}");
            at = if source.dice.roll(3) == 0 { source.dice.roll(end as u64 + 1) as usize } else { end };
        }
        assert_eq!(current(&db, &mut sink, &table).await, expected(&source.model), "seed {seed}");
    }
}

#[tokio::test]
async fn whole_rows_give_the_sources_table_in_any_order() {
    let db = Db::new("random_order");
    let mut sink = db.sink().await;
    for seed in 0..30 {
        let table = format!("t{seed}");
        let mut source = work(&table, seed, false);
        let mut changes = source.changes.clone();
        changes.extend_from_within(..changes.len() / 2);
        for i in (1..changes.len()).rev() {
            changes.swap(i, source.dice.roll(i as u64 + 1) as usize);
        }
        let mut rest = changes.as_slice();
        while !rest.is_empty() {
            let (part, others) = rest.split_at((1 + source.dice.roll(12) as usize).min(rest.len()));
            write(&mut sink, part.to_vec()).await.unwrap();
            rest = others;
        }
        assert_eq!(current(&db, &mut sink, &table).await, expected(&source.model), "seed {seed}");
    }
}
