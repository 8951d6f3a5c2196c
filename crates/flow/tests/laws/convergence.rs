//! However the changes of a table are delivered, the copy comes to the state of the source (DESIGN §3).

use crate::replica::{change, row, schema, Replica};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidewire_change::{Change, Key, Kind, Op, Position, Row, Schema};

/// What a client does to a table of few keys. `value` is small, `big` is a large value that an update may leave alone.
#[derive(Clone, Debug)]
enum Act {
    Insert(u8, u8),
    Update(u8, u8),
    UpdateBig(u8, u8),
    Delete(u8),
    Rekey(u8, u8),
    Truncate,
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0u8..4;
    prop_oneof![
        6 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Act::Insert(k, v)),
        6 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Act::Update(k, v)),
        3 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Act::UpdateBig(k, v)),
        4 => key.clone().prop_map(Act::Delete),
        3 => (key.clone(), key).prop_map(|(from, to)| Act::Rekey(from, to)),
        1 => Just(Act::Truncate),
    ]
}

fn transactions() -> impl Strategy<Value = Vec<Vec<Act>>> {
    prop::collection::vec(prop::collection::vec(act(), 1..6), 1..20)
}

#[derive(Clone, Copy, PartialEq)]
enum Log {
    /// Every new row is whole.
    Whole,
    /// Updates that leave `big` alone lack it.
    PartialUpdates,
    /// So do rows that got a new key; such keys are read again at the end.
    PartialRekeys,
}

/// A table at its source, and the log of its changes.
struct Source {
    schema: Arc<Schema>,
    kind: Log,
    rows: BTreeMap<u8, (u8, u8)>,
    log: Vec<Change>,
    at: Position,
    reread: BTreeSet<u8>,
}

impl Source {
    fn run(kind: Log, transactions: &[Vec<Act>]) -> Source {
        let columns = [("id", Kind::Int16), ("value", Kind::Text), ("big", Kind::Text)];
        let schema = schema(Key::Columns(vec![0]), &columns);
        let (rows, log, reread) = Default::default();
        let mut source = Source { schema, kind, rows, log, at: Position::ZERO, reread };
        for transaction in transactions {
            source.at = Position::new(source.at.commit + 1, 0);
            transaction.iter().for_each(|act| source.act(act));
        }
        let end = Position::end_of(source.at.commit);
        for key in std::mem::take(&mut source.reread) {
            let (op, row) = match source.rows.get(&key) {
                Some(_) => (Op::Read, source.row(key, true)),
                None => (Op::Delete, key_only(key)),
            };
            source.log.push(change(&source.schema, op, end, Some(row)));
        }
        source
    }

    fn row(&self, key: u8, with_big: bool) -> Row {
        let (value, big) = self.rows[&key];
        let (key, value, big) = (key.to_string(), value.to_string(), big.to_string());
        row(&[Some(&key), Some(&value), with_big.then_some(&big)])
    }

    fn emit(&mut self, op: Op, row: Option<Row>) {
        self.log.push(change(&self.schema, op, self.at, row));
        self.at.ordinal += 1;
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Insert(key, value) if !self.rows.contains_key(&key) => {
                self.rows.insert(key, (value, value.wrapping_add(1)));
                self.emit(Op::Create, Some(self.row(key, true)));
            }
            Act::Update(key, value) if self.rows.contains_key(&key) => {
                self.rows.entry(key).and_modify(|row| row.0 = value);
                self.emit(Op::Update, Some(self.row(key, self.kind == Log::Whole)));
            }
            Act::UpdateBig(key, big) if self.rows.contains_key(&key) => {
                self.rows.entry(key).and_modify(|row| row.1 = big);
                self.emit(Op::Update, Some(self.row(key, true)));
            }
            Act::Delete(key) if self.rows.remove(&key).is_some() => self.emit(Op::Delete, Some(key_only(key))),
            Act::Rekey(from, to) if self.rows.contains_key(&from) && !self.rows.contains_key(&to) => {
                let moved = self.rows.remove(&from).expect("it is there");
                self.rows.insert(to, moved);
                self.emit(Op::Delete, Some(key_only(from)));
                let whole = self.kind != Log::PartialRekeys;
                self.emit(Op::Create, Some(self.row(to, whole)));
                if !whole {
                    self.reread.insert(to);
                }
            }
            Act::Truncate => {
                self.rows.clear();
                self.emit(Op::Truncate, None);
            }
            _ => {}
        }
    }

    fn live(&self) -> Vec<Row> {
        self.rows.keys().map(|key| self.row(*key, true)).collect()
    }
}

fn key_only(key: u8) -> Row {
    row(&[Some(&key.to_string()), None, None])
}

/// Cuts `log[indices]` into batches and writes them; `cuts` are the sizes, used again and again.
fn deliver(log: &[Change], indices: &[usize], cuts: &[usize]) -> Replica {
    let mut replica = Replica::default();
    let (mut rest, mut sizes) = (indices, cuts.iter().cycle());
    while !rest.is_empty() {
        let size = (*sizes.next().expect("there are cuts")).min(rest.len());
        let batch: Vec<Change> = rest[..size].iter().map(|index| log[*index].clone()).collect();
        replica.write(&batch);
        rest = &rest[size..];
    }
    replica
}

/// A reader that now and then goes back to an earlier point and reads on from there. `jumps`: after how many messages,
/// and how far back.
fn walk(len: usize, jumps: &[(usize, usize)]) -> Vec<usize> {
    let (mut at, mut read) = (0, Vec::new());
    for (forward, back) in jumps {
        let to = (at + forward).min(len);
        read.extend(at..to);
        at = to.saturating_sub(*back);
    }
    read.extend(at..len);
    read
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..9, 1..6)
}

fn jumps() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..30, 0usize..30), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whole_rows_converge_in_any_order_with_any_duplicates_and_any_cut(
        transactions in transactions(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        cuts in cuts(),
        shuffle in any::<u64>(),
    ) {
        let source = Source::run(Log::Whole, &transactions);
        let len = source.log.len();
        let mut indices: Vec<usize> = (0..len).collect();
        if len > 0 {
            indices.extend(order.iter().map(|index| index.index(len)));
        }
        let mut random = shuffle;
        for last in (1..indices.len()).rev() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            indices.swap(last, (random >> 33) as usize % (last + 1));
        }
        prop_assert_eq!(deliver(&source.log, &indices, &cuts).live(), source.live());
    }

    #[test]
    fn partial_rows_converge_with_any_repetition_from_an_earlier_point_and_any_cut(
        transactions in transactions(),
        jumps in jumps(),
        cuts in cuts(),
    ) {
        let source = Source::run(Log::PartialUpdates, &transactions);
        let replica = deliver(&source.log, &walk(source.log.len(), &jumps), &cuts);
        prop_assert_eq!(replica.live(), source.live());
    }

    #[test]
    fn rows_that_lack_columns_under_a_new_key_converge_once_they_are_read_again(
        transactions in transactions(),
        jumps in jumps(),
        cuts in cuts(),
    ) {
        let source = Source::run(Log::PartialRekeys, &transactions);
        let replica = deliver(&source.log, &walk(source.log.len(), &jumps), &cuts);
        prop_assert_eq!(replica.live(), source.live());
    }

    #[test]
    fn a_row_is_never_put_together_from_two_rows(
        transactions in transactions(),
        cuts in cuts(),
    ) {
        // Every state of the table between two changes.
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut acts: Vec<Vec<Act>> = Vec::new();
        for act in transactions.iter().flatten() {
            acts.push(vec![act.clone()]);
            seen.extend(Source::run(Log::PartialRekeys, &acts).live().iter().map(|row| row.encoded().to_vec()));
        }
        // Before the placed reads come, a row may be old or missing, but it is one that was there.
        let source = Source::run(Log::PartialRekeys, &acts);
        let streamed = source.log.iter().filter(|change| change.position.ordinal != u32::MAX).count();
        let indices: Vec<usize> = (0..streamed).collect();
        for row in deliver(&source.log, &indices, &cuts).live() {
            prop_assert!(seen.contains(row.encoded().as_ref()), "{row:?}");
        }
    }
}
