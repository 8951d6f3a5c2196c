//! Debezium's transactions: the block in a change's message, and the messages that say where a transaction begins and ends.

use super::json::{push_integer, push_string};
use super::modes::Modes;
use std::collections::BTreeMap;
use tidewire_change::{Change, LogMessage, Op, Position, TableName};

/// Counts the changes of one transaction after the other, as they are told.
#[derive(Debug, Default)]
pub struct Transactions {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    commit: u64,
    committed_at: i64,
    /// Of its first event, and of a truncate that may be told several times, once for each partition.
    first: Place,
    truncate: Option<Place>,
    block: Block,
    counts: Counts,
}

/// What tells an event of a transaction from the others: a message stands at the position of the change behind it, and has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    position: Position,
    table: Option<TableName>,
    number: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    tables: BTreeMap<TableName, u64>,
    messages: u64,
}

/// Where a change stands in its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of the transaction: `txid:commit`.
    pub id: String,
    /// From 1 on, over all tables.
    pub total_order: u64,
    /// From 1 on, in its table.
    pub collection_order: u64,
}

/// A message that says that a transaction begins, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Border {
    id: String,
    committed_at: i64,
    /// Of one that has ended.
    counts: Option<Counts>,
}

/// What comes with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// None: a row that was read belongs to no transaction.
    pub block: Option<Block>,
    /// Are told ahead of it, in this order.
    pub borders: Vec<Border>,
}

impl Transactions {
    /// The next change. A transaction that is told again begins anew; a truncate that is told several times in a row counts once.
    pub fn count(&mut self, change: &Change) -> Counted {
        let Some(xid) = change.xid.filter(|_| change.op != Op::Read) else { return Counted::default() };
        let (position, table) = (change.position, &change.schema.table);
        let is_it = |place: &Place| place.position == position && place.table.as_ref() == Some(table);
        let truncated = self.open.as_ref().filter(|open| open.truncate.as_ref().is_some_and(is_it));
        if let Some(open) = truncated.filter(|_| change.op == Op::Truncate) {
            return Counted { block: Some(open.block.clone()), borders: Vec::new() };
        }
        let goes_on = self.open.as_ref().is_some_and(|open| open.commit == position.commit && !is_it(&open.first));
        let place = || Place { position, table: Some(table.clone()), number: 0 };
        let borders = if goes_on { Vec::new() } else { self.begin(xid, change.committed_at, place()) };
        let Some(open) = &mut self.open else { return Counted::default() };
        let count = match open.counts.tables.get_mut(table) {
            Some(count) => count,
            None => open.counts.tables.entry(table.clone()).or_default(),
        };
        *count += 1;
        open.block.collection_order = *count;
        open.truncate = (change.op == Op::Truncate).then(place);
        open.next(borders)
    }

    /// The next message of the log. One that stands outside of transactions belongs to none.
    pub fn count_message(&mut self, message: &LogMessage) -> Counted {
        let Some(xid) = message.xid else { return Counted::default() };
        let place = Place { position: message.position, table: None, number: message.number };
        let goes_on =
            self.open.as_ref().is_some_and(|open| open.commit == message.position.commit && open.first != place);
        let borders = if goes_on { Vec::new() } else { self.begin(xid, message.committed_at, place) };
        let Some(open) = &mut self.open else { return Counted::default() };
        open.counts.messages += 1;
        open.block.collection_order = open.counts.messages;
        open.next(borders)
    }

    /// What was open has ended, or is told again from its start.
    fn begin(&mut self, xid: u32, committed_at: i64, first: Place) -> Vec<Border> {
        let commit = first.position.commit;
        let has_ended = self.open.as_ref().is_some_and(|open| open.commit != commit);
        let mut borders: Vec<Border> = self.end().filter(|_| has_ended).into_iter().collect();
        let id = format!("{xid}:{commit}");
        borders.push(Border { id: id.clone(), committed_at, counts: None });
        let block = Block { id, total_order: 0, collection_order: 0 };
        self.open = Some(Open { commit, committed_at, first, truncate: None, block, counts: Counts::default() });
        borders
    }

    /// Nothing more comes of the one that is open, if `is_there`.
    pub fn end_at(&mut self, is_there: bool) -> Option<Border> {
        if is_there {
            self.end()
        } else {
            None
        }
    }

    fn end(&mut self) -> Option<Border> {
        let open = self.open.take()?;
        Some(Border { id: open.block.id, committed_at: open.committed_at, counts: Some(open.counts) })
    }

    /// What was told of the one that is open isn't so: it comes again.
    pub fn forget(&mut self) {
        self.open = None;
    }
}

impl Open {
    fn next(&mut self, borders: Vec<Border>) -> Counted {
        self.block.total_order += 1;
        Counted { block: Some(self.block.clone()), borders }
    }
}

impl Counts {
    /// By their names, as Debezium calls them.
    fn named(&self) -> Vec<(String, u64)> {
        let mut named: Vec<_> =
            self.tables.iter().map(|(table, count)| (format!("{}.{}", table.schema, table.name), *count)).collect();
        named.extend((self.messages > 0).then(|| ("LOGICAL_DECODING_MESSAGE".to_string(), self.messages)));
        named
    }
}

/// The topic of these messages.
pub fn topic(prefix: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    format!("{prefix}.transaction").chars().map(plain).collect()
}

impl Block {
    pub(super) fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        push_string(self.id.as_bytes(), out);
        out.extend_from_slice(b",\"total_order\":");
        push_integer(self.total_order as i64, out);
        out.extend_from_slice(b",\"data_collection_order\":");
        push_integer(self.collection_order as i64, out);
        out.push(b'}');
    }
}

impl Border {
    /// When the transaction was committed.
    pub fn at_ms(&self) -> i64 {
        self.committed_at.div_euclid(1000)
    }

    pub fn key(&self, modes: &Modes, out: &mut Vec<u8>) {
        let close = open(modes.key_schemas, KEY, out);
        out.extend_from_slice(b"{\"id\":");
        push_string(self.id.as_bytes(), out);
        out.push(b'}');
        out.extend_from_slice(close);
    }

    pub fn value(&self, modes: &Modes, out: &mut Vec<u8>) {
        let close = open(modes.value_schemas, VALUE, out);
        let status = if self.counts.is_some() { "END" } else { "BEGIN" };
        out.extend_from_slice(format!("{{\"status\":\"{status}\",\"id\":").as_bytes());
        push_string(self.id.as_bytes(), out);
        match &self.counts {
            None => out.extend_from_slice(b",\"event_count\":null,\"data_collections\":null"),
            Some(counts) => {
                out.extend_from_slice(b",\"event_count\":");
                let counts = counts.named();
                push_integer(counts.iter().map(|(_, count)| count).sum::<u64>() as i64, out);
                out.extend_from_slice(b",\"data_collections\":[");
                for (at, (name, count)) in counts.iter().enumerate() {
                    out.extend_from_slice(if at > 0 { b",{\"data_collection\":" } else { b"{\"data_collection\":" });
                    push_string(name.as_bytes(), out);
                    out.extend_from_slice(b",\"event_count\":");
                    push_integer(*count as i64, out);
                    out.push(b'}');
                }
                out.push(b']');
            }
        }
        out.extend_from_slice(b",\"ts_ms\":");
        push_integer(self.at_ms(), out);
        out.push(b'}');
        out.extend_from_slice(close);
    }
}

/// Opens a message with its schema, if it has one; gives what closes it.
fn open(has_schema: bool, schema: &str, out: &mut Vec<u8>) -> &'static [u8] {
    if !has_schema {
        return b"";
    }
    out.extend_from_slice(b"{\"schema\":");
    out.extend_from_slice(schema.as_bytes());
    out.extend_from_slice(b",\"payload\":");
    b"}"
}

const KEY: &str = concat!(
    r#"{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"}],"optional":false,"#,
    r#""name":"io.debezium.connector.common.TransactionMetadataKey","version":1}"#
);

const VALUE: &str = concat!(
    r#"{"type":"struct","fields":[{"type":"string","optional":false,"field":"status"},{"type":"string","optional":false,"field":"id"},"#,
    r#"{"type":"int64","optional":true,"field":"event_count"},{"type":"array","items":{"type":"struct","fields":["#,
    r#"{"type":"string","optional":false,"field":"data_collection"},{"type":"int64","optional":false,"field":"event_count"}],"#,
    r#""optional":true,"name":"event.collection","version":1},"optional":true,"field":"data_collections"},"#,
    r#"{"type":"int64","optional":false,"field":"ts_ms"}],"optional":false,"#,
    r#""name":"io.debezium.connector.common.TransactionMetadataValue","version":1}"#
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidewire_change::{Identity, Key, Schema};

    fn change(table: &str, op: Op, commit: u64, ordinal: u32) -> Change {
        let schema = Arc::new(Schema {
            table: TableName::new("s", table),
            columns: Vec::new(),
            key: Key::Position,
            identity: Identity::Default,
            source_id: 1,
        });
        let position = Position::new(commit, ordinal);
        Change {
            schema,
            op,
            position,
            committed_at: 7_001_000,
            xid: Some(commit as u32 + 500),
            before: None,
            after: None,
        }
    }

    fn orders(counted: &Counted) -> (u64, u64) {
        counted.block.as_ref().map_or((0, 0), |block| (block.total_order, block.collection_order))
    }

    fn text(border: &Border) -> String {
        let mut out = Vec::new();
        border.value(&Modes::default(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changes_are_counted_over_all_tables_and_in_each() {
        let mut transactions = Transactions::default();
        let first = transactions.count(&change("a", Op::Create, 10, 0));
        assert_eq!(
            text(&first.borders[0]),
            r#"{"status":"BEGIN","id":"510:10","event_count":null,"data_collections":null,"ts_ms":7001}"#
        );
        assert_eq!(orders(&first), (1, 1));
        assert_eq!(orders(&transactions.count(&change("b", Op::Update, 10, 2))), (2, 1));
        assert_eq!(orders(&transactions.count(&change("a", Op::Delete, 10, 4))), (3, 2));
        // A truncate is told to each partition.
        for _ in 0..3 {
            assert_eq!(orders(&transactions.count(&change("b", Op::Truncate, 10, 6))), (4, 2));
        }
        assert_eq!(transactions.count(&change("a", Op::Read, 10, u32::MAX)), Counted::default());
        let next = transactions.count(&change("a", Op::Create, 20, 0));
        assert_eq!(next.borders.len(), 2);
        assert_eq!(
            text(&next.borders[0]),
            concat!(
                r#"{"status":"END","id":"510:10","event_count":4,"data_collections":[{"data_collection":"s.a","event_count":2},"#,
                r#"{"data_collection":"s.b","event_count":2}],"ts_ms":7001}"#
            )
        );
        assert_eq!(orders(&next), (1, 1));
        assert!(
            transactions.end_at(false).is_none()
                && transactions.end_at(true).is_some()
                && transactions.end_at(true).is_none()
        );
    }

    #[test]
    fn a_transaction_that_is_told_again_has_the_same_numbers() {
        let mut transactions = Transactions::default();
        let told: Vec<_> = [0, 2, 4, 0, 2, 4].map(|n| transactions.count(&change("a", Op::Create, 10, n))).into();
        assert_eq!(told[..3], told[3..]);
        let ended = transactions.end_at(true).unwrap();
        assert!(text(&ended).contains("\"event_count\":3,"), "{}", text(&ended));
    }
}
