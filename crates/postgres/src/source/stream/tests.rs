use super::super::admin::Look;
use super::super::decode::RelationColumn;
use super::*;
use crate::catalog;
use tidewire_change::Datum;

fn config() -> Config {
    let connection = tidewire_pgwire::Config::parse("postgres://u@h/d").unwrap();
    Config { messages: vec!["app.*".into()], ..Config::new(connection, "test", tidewire_connector::Budget::new(0)) }
}

fn tables(oids: &[u32]) -> Tables {
    let one = |oid: &u32| {
        format!(
            r#"{{"oid":{oid},"root":{oid},"schema":"s","name":"t{oid}","kind":"r","persistence":"p","identity":"d","filenode":1,
            "rows":0,"bytes":0,"columns":[{{"attnum":1,"name":"id","type":23,"typmod":-1,"generated":false,"stored":false,
            "not_null":true,"missing":null,"xmin":7}}],"indexes":[{{"primary":true,"identity":false,"immediate":true,"columns":[1]}}]}}"#
        )
    };
    let json: Vec<String> = oids.iter().map(one).collect();
    let defs = catalog::parse_relations(&format!("[{}]", json.join(",")), false).unwrap();
    let mut tables = Tables::default();
    tables.look(Look { defs, ..Look::default() });
    for oid in oids {
        let columns = vec![RelationColumn { is_key: true, name: "id".into(), type_oid: 23, typmod: -1 }];
        let relation =
            RelationMessage { oid: *oid, schema: "s".into(), name: format!("t{oid}"), identity: 'd', columns };
        tables.bind(&relation, true);
    }
    tables
}

/// What came of messages.
struct Told {
    tables: Tables,
    changes: Vec<Change>,
    messages: Vec<(usize, LogMessage)>,
}

fn told(oids: &[u32], log: impl IntoIterator<Item = Message>) -> Told {
    let mut reads = Reads::new("1:1:".parse().unwrap(), 10, 1);
    let (mut told, config) = (Told { tables: tables(oids), changes: Vec::new(), messages: Vec::new() }, config());
    let Told { tables, changes, messages } = &mut told;
    let mut to = Context { tables, reads: &mut reads, changes, messages, config: &config };
    let mut stream = Stream::new(0, 0);
    for message in log {
        stream.apply(message, &mut to).unwrap();
    }
    told
}

fn insert(relation: u32) -> Message {
    Message::Insert { relation, new: Row::from_datums([Datum::Text(b"1")]) }
}

#[test]
fn a_servers_clock_that_jumps_back_moves_no_position() {
    let transaction = |(lsn, committed_at)| {
        let begin = Message::Begin { final_lsn: lsn, committed_at, xid: 5 };
        [begin, insert(1), Message::Commit { end_lsn: lsn + 1 }]
    };
    let Told { changes, .. } = told(&[1], [(10, 5_000_000), (20, -5_000_000)].into_iter().flat_map(transaction));
    let seen: Vec<_> = changes.iter().map(|c| (c.position, c.committed_at)).collect();
    assert_eq!(seen, [(Position::new(10, 0), 5_000_000), (Position::new(20, 0), -5_000_000)]);
}

#[test]
fn a_change_that_cannot_be_decoded_parks_its_table_and_moves_no_other_change() {
    let unreadable = || Message::Unreadable { relation: 1, why: "a row is cut short".into() };
    let log = [
        Message::Begin { final_lsn: 9, committed_at: 0, xid: 5 },
        insert(2),
        unreadable(),
        insert(1),
        insert(2),
        Message::Commit { end_lsn: 10 },
    ];
    let Told { tables, changes, .. } = told(&[1, 2], log);
    let seen: Vec<_> = changes.iter().map(|c| (c.schema.table.name.as_str(), c.position)).collect();
    assert_eq!(seen, [("t2", Position::new(9, 0)), ("t2", Position::new(9, 6))]);
    assert!(tables.by_oid[&1].is_skipped() && tables.by_oid[&2].parked.is_none());
}

#[test]
fn messages_in_a_transaction_stand_between_its_changes_and_move_none_of_them() {
    let logical = |prefix: &'static str| Message::Logical {
        transactional: true,
        lsn: 8,
        prefix: prefix.as_bytes().into(),
        content: Bytes::from_static(b"x"),
    };
    let log = [
        Message::Begin { final_lsn: 9, committed_at: 3, xid: 5 },
        logical("app.a"),
        insert(1),
        logical("app.b"),
        logical("app.c"),
        logical("tidewire"),
        logical("other"),
        insert(1),
        Message::Commit { end_lsn: 10 },
    ];
    let Told { changes, messages, .. } = told(&[1], log);
    let places: Vec<_> = changes.iter().map(|change| change.position).collect();
    assert_eq!(places, [Position::new(9, 0), Position::new(9, 2)]);
    let told: Vec<_> = messages.iter().map(|(at, m)| (*at, &m.prefix[..], m.position.ordinal, m.number)).collect();
    assert_eq!(told, [(0, &b"app.a"[..], 0, 1), (1, &b"app.b"[..], 2, 2), (1, &b"app.c"[..], 2, 3)]);
    assert!(messages.iter().all(|(_, message)| message.xid == Some(5) && message.committed_at == 3));
}
