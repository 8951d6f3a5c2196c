//! A table without a key is a multiset of whole rows; its copy comes to the same one.

use crate::replica::{change, row, schema};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Change, Key, Kind, Op, Position, Row, Schema};
use tidewire_flow::{key_of, reduce, resolve, Copied, Event};

/// A row as it is encoded.
type Encoded = Vec<u8>;

#[derive(Clone, Debug)]
enum Act {
    Add(u8),
    Remove(u8),
    Change(u8, u8),
    Truncate,
}

fn act() -> impl Strategy<Value = Act> {
    let value = 0u8..3;
    prop_oneof![
        5 => value.clone().prop_map(Act::Add),
        4 => value.clone().prop_map(Act::Remove),
        4 => (value.clone(), value).prop_map(|(from, to)| Act::Change(from, to)),
        1 => Just(Act::Truncate),
    ]
}

fn whole(value: u8) -> Row {
    row(&[Some(&value.to_string())])
}

/// The log of what was done, and how often each row is there at the end.
fn run(acts: &[Act], schema: &Arc<Schema>) -> (Vec<Change>, BTreeMap<Encoded, u64>) {
    let (mut log, mut counts) = (Vec::new(), BTreeMap::<u8, u64>::new());
    for (index, act) in acts.iter().enumerate() {
        let position = Position::new(index as u64 / 3 + 1, index as u32 % 3);
        let there = |counts: &BTreeMap<u8, u64>, value: u8| counts.get(&value).is_some_and(|count| *count > 0);
        match *act {
            Act::Add(value) => {
                *counts.entry(value).or_default() += 1;
                log.push(change(schema, Op::Create, position, Some(whole(value))));
            }
            Act::Remove(value) if there(&counts, value) => {
                *counts.entry(value).or_default() -= 1;
                log.push(change(schema, Op::Delete, position, Some(whole(value))));
            }
            Act::Change(from, to) if there(&counts, from) => {
                *counts.entry(from).or_default() -= 1;
                *counts.entry(to).or_default() += 1;
                let mut update = change(schema, Op::Update, position, Some(whole(to)));
                update.before = Some(whole(from));
                log.push(update);
            }
            Act::Truncate => {
                counts.clear();
                log.push(change(schema, Op::Truncate, position, None));
            }
            _ => {}
        }
    }
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    (log, counts.map(|(value, count)| (whole(value).encoded().to_vec(), count)).collect())
}

#[derive(Clone, Default, Debug, PartialEq)]
struct Replica {
    copies: BTreeMap<Encoded, BTreeMap<u32, Copied>>,
    truncated: Option<Position>,
    missing: u64,
}

impl Replica {
    fn write(&mut self, batch: &[Change]) {
        let reduced = reduce(batch.to_vec()).expect("the batch can be reduced");
        self.truncated = self.truncated.max(reduced.truncate);
        let mut events: BTreeMap<Encoded, Vec<Event>> = BTreeMap::new();
        for change in &reduced.changes {
            let mut push = |row: &Option<Row>, event: Event| {
                if let Some(row) = row {
                    let mut key = Vec::new();
                    key_of(&change.schema, row, &mut key).expect("the row is whole");
                    events.entry(key).or_default().push(event);
                }
            };
            push(&change.before, Event::Remove(change.position));
            push(&change.after, Event::Add(change.position));
        }
        for (key, events) in events {
            let held = self.copies.entry(key).or_default();
            let resolved = resolve(&held.values().copied().collect::<Vec<_>>(), &events, self.truncated);
            self.missing += resolved.missing.len() as u64;
            held.extend(resolved.copies.into_iter().map(|copy| (copy.number, copy)));
        }
    }

    fn live(&self) -> BTreeMap<Encoded, u64> {
        let above = |copy: &&Copied| !copy.deleted && self.truncated.is_none_or(|mark| copy.position > mark);
        let counts = self.copies.iter().map(|(key, held)| (key.clone(), held.values().filter(above).count() as u64));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_repetition_from_an_earlier_point_and_any_cut_give_the_sources_multiset(
        acts in prop::collection::vec(act(), 0..60),
        jumps in prop::collection::vec((0usize..30, 0usize..30), 0..8),
        cuts in prop::collection::vec(1usize..9, 1..6),
    ) {
        let schema = schema(Key::WholeRow, &[("value", Kind::Text)]);
        let (log, expected) = run(&acts, &schema);
        let mut replica = Replica::default();
        let mut cuts = cuts.iter().cycle();
        let mut at = 0;
        let mut read = Vec::new();
        for (forward, back) in jumps.iter().chain([&(log.len(), 0)]) {
            let to = (at + forward).min(log.len());
            read.extend_from_slice(&log[at..to]);
            at = to.saturating_sub(*back);
        }
        let mut rest = read.as_slice();
        while !rest.is_empty() {
            let size = (*cuts.next().expect("there are cuts")).min(rest.len());
            replica.write(&rest[..size]);
            rest = &rest[size..];
        }
        prop_assert_eq!(replica.live(), expected);
        prop_assert_eq!(replica.missing, 0);
        let before = replica.clone();
        replica.write(&log);
        prop_assert_eq!(replica, before);
    }
}

#[test]
fn adding_revives_the_lowest_deleted_copy_and_removing_deletes_the_highest_live_one() {
    let at = |commit| Position::new(commit, 0);
    let copy = |number, commit, deleted| Copied { number, position: at(commit), deleted };
    let held = [copy(2, 7, false), copy(0, 5, true), copy(1, 6, false)];
    let resolved = resolve(&held, &[Event::Add(at(8)), Event::Add(at(9))], None);
    assert_eq!(resolved.copies, [copy(0, 8, false), copy(3, 9, false)]);
    let resolved = resolve(&held, &[Event::Remove(at(7)), Event::Remove(at(8))], None);
    assert_eq!((resolved.copies, resolved.stale), (vec![copy(2, 8, true)], 1));
    let resolved = resolve(&[], &[Event::Remove(at(1))], None);
    assert_eq!((resolved.copies, resolved.missing.len()), (vec![], 1));
    // An update that writes the same row again.
    let resolved = resolve(&held[..1], &[Event::Remove(at(8)), Event::Add(at(8))], None);
    assert_eq!(resolved.copies, [copy(2, 8, false)]);
}
