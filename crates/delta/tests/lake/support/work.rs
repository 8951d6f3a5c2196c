//! Random transactions over few keys, seeded.

use super::*;
use std::collections::BTreeMap;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The kinds of keys that are indexed in different ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyKind {
    Integer,
    Uuid,
    /// Text and integer.
    Mixed,
}

/// A table at the source: what it holds now, and the log that made it.
pub struct Source {
    pub schema: Arc<Schema>,
    kind: KeyKind,
    keys: u64,
    pub rows: BTreeMap<u64, Values>,
    pub log: Vec<Change>,
    commit: u64,
}

impl Source {
    pub fn new(kind: KeyKind, keys: u64) -> Source {
        let mut columns = match kind {
            KeyKind::Integer => vec![column("id", Kind::Int64, 1)],
            KeyKind::Uuid => vec![column("id", Kind::Uuid, 1)],
            KeyKind::Mixed => vec![column("code", Kind::Text, 1), column("n", Kind::Int32, 2)],
        };
        let key = Key::Columns((0..columns.len() as u16).collect());
        columns.extend([
            column("name", Kind::Text, 11),
            column("amount", Kind::Numeric { precision_scale: Some((12, 2)) }, 12),
            column("day", Kind::Date, 13),
            column("at", Kind::TimestampTz, 14),
            column("local at", Kind::Timestamp, 15),
            column("ratio", Kind::Float64, 16),
            column("flag", Kind::Bool, 17),
            column("bytes", Kind::Bytes, 18),
            column("big", Kind::Text, 19),
        ]);
        Source { schema: schema("t", columns, key), kind, keys, rows: BTreeMap::new(), log: Vec::new(), commit: 100 }
    }

    fn key(&self, key: u64) -> Values {
        match self.kind {
            KeyKind::Integer => vec![Some((key as i64 - 20).to_string())],
            KeyKind::Uuid => {
                vec![Some(format!("{:08x}-0000-4000-8000-{key:012x}", key.wrapping_mul(0x9E37_79B9) as u32))]
            }
            KeyKind::Mixed => vec![Some(format!("k{}", key % 7)), Some(key.to_string())],
        }
    }

    fn values(&self, random: &mut Random, key: u64) -> Values {
        let mut values = self.key(key);
        let n = random.below(1_000_000);
        let mut pick = |random: &mut Random, usual: String, special: &[&str]| {
            values.push(match random.below(20) {
                0 => None,
                1 => special
                    .get(random.below(special.len().max(1) as u64) as usize)
                    .map(|s| s.to_string())
                    .or(Some(usual)),
                _ => Some(usual),
            })
        };
        let day = format!("2{:03}-{:02}-{:02}", n % 1000, n % 12 + 1, n % 28 + 1);
        let time =
            format!("{:02}:{:02}:{:02}.{:06}", n % 24, n % 60, n % 59, n.max(1)).trim_end_matches('0').to_string();
        pick(random, format!("name {n} ü"), &["", "null", "__unchanged", "\u{10FFFF}"]);
        pick(random, format!("{}.{:02}", n as i64 - 500_000, n % 100), &["NaN", "Infinity", "-Infinity", "0.00"]);
        pick(
            random,
            day.clone(),
            &["infinity", "-infinity", "0044-03-15 BC", "12024-01-01", "0001-01-01", "9999-12-31"],
        );
        pick(
            random,
            format!("{day} {time}+00"),
            &["infinity", "0044-03-15 12:00:00+00 BC", "9999-12-31 23:59:59.999999+00"],
        );
        pick(random, format!("{day} {time}"), &["-infinity", "294276-12-31 23:59:59", "0001-01-01 00:00:00"]);
        pick(random, format!("{}.5", n as i64 - 500_000), &["NaN", "Infinity", "-Infinity", "-0", "1e+300"]);
        pick(random, if n.is_multiple_of(2) { "t" } else { "f" }.into(), &[]);
        pick(random, format!("\\x{:06x}", n), &["\\x"]);
        pick(random, format!("big {n} {}", "x".repeat((n % 50) as usize)), &[]);
        values
    }

    /// One transaction.
    pub fn transact(&mut self, random: &mut Random, changes: u64) {
        self.commit += 1 + random.below(5);
        let mut ordinal = 0;
        let first_of_last = self.schema.columns.len() - 1;
        for _ in 0..changes {
            let key = random.below(self.keys);
            let old = self.rows.get(&key).cloned();
            let borrow = |values: &Values| values.iter().map(|v| v.as_deref().map(String::from)).collect::<Values>();
            let (op, row) = match &old {
                Some(_) if random.chance(15) => {
                    self.rows.remove(&key);
                    let width = self.key(key).len();
                    let datums = (0..self.schema.columns.len()).map(|_| Datum::Unchanged).skip(width);
                    let key = self.key(key);
                    let key = key.iter().map(|v| Datum::Text(v.as_ref().unwrap().as_bytes()));
                    (Op::Delete, Row::from_datums(key.chain(datums)))
                }
                Some(old) => {
                    let mut new = self.values(random, key);
                    let keeps_big = random.chance(40);
                    if keeps_big {
                        new[first_of_last] = borrow(old)[first_of_last].clone();
                    }
                    let datum = |(i, v): (usize, &Option<String>)| (i, v.clone());
                    let datums: Vec<(usize, Option<String>)> = new.iter().enumerate().map(datum).collect();
                    let row = Row::from_datums(datums.iter().map(|(i, v)| match v {
                        _ if *i == first_of_last && keeps_big => Datum::Unchanged,
                        Some(v) => Datum::Text(v.as_bytes()),
                        None => Datum::Null,
                    }));
                    self.rows.insert(key, new);
                    (Op::Update, row)
                }
                None => {
                    let new = self.values(random, key);
                    let row = row(&new.iter().map(|v| v.as_deref()).collect::<Vec<_>>());
                    self.rows.insert(key, new);
                    (Op::Create, row)
                }
            };
            self.log.push(change(&self.schema, op, self.commit, ordinal, row));
            ordinal += 1;
        }
        if random.chance(2) {
            self.rows.clear();
            let position = Position::new(self.commit, ordinal);
            let schema = self.schema.clone();
            let (before, after) = (None, None);
            self.log.push(Change { schema, op: Op::Truncate, position, committed_at: 1, xid: None, before, after });
        }
    }

    pub fn sorted(&self) -> Vec<Values> {
        let mut rows: Vec<Values> = self.rows.values().cloned().collect();
        rows.sort();
        rows
    }
}

/// The rows after these changes of a table whose key is its first column, sorted.
pub fn state_after(log: &[Change]) -> Vec<Values> {
    let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    for change in log {
        let Some(row) = change.key_row() else {
            rows.clear();
            continue;
        };
        let Some(Datum::Text(key)) = row.get(0) else { panic!("a key is missing") };
        match change.op {
            Op::Delete => rows.remove(key),
            _ => {
                let whole = rows.get(key).map_or_else(|| row.clone(), |held| row.completed_from(held));
                rows.insert(key.to_vec(), whole)
            }
        };
    }
    let mut rows: Vec<Values> = rows.values().map(values_of).collect();
    rows.sort();
    rows
}
