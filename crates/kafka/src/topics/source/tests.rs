use super::*;
use crate::config::Config;
use crate::topics::reading::Record;
use bytes::Bytes;
use tidewire_change::{Column, Kind, Op, Type};
use tidewire_connector::Budget;
use tidewire_envelope::debezium::Modes;

mod ours;
mod rows;
mod wider;

fn source() -> TopicsSource {
    TopicsSource::new(config())
}

fn config() -> TopicsConfig {
    TopicsConfig {
        kafka: Config::new("nowhere:1", "", "test"),
        topics: vec!["mix.*".to_string()],
        modes: Modes::default(),
        unwrapped: false,
        keys: BTreeMap::new(),
        tables: Vec::new(),
        definitions: None,
        ignores_extra: false,
        absent_is_null: false,
        replaces: false,
        registry: None,
        budget: Budget::new(1 << 20),
    }
}

/// A message of a table of which nobody tells the columns, and the word that it was the topic's last.
fn stranger() -> Raw {
    let topic: Arc<str> = "mix.public.stranger".into();
    let value =
        r#"{"op":"c","before":null,"after":{"id":1},"source":{"lsn":1,"commit_lsn":1,"seq":0,"table":"stranger"}}"#;
    let record = Record {
        topic: topic.clone(),
        partition: 0,
        offset: 0,
        key: Some(Bytes::from_static(br#"{"id":1}"#)),
        value: value.into(),
        time: 0,
        is_moved: false,
        headers: Default::default(),
        added: Bytes::new(),
    };
    Raw {
        records: vec![record],
        ends: vec![(topic.clone(), 0, 1)],
        found: vec![(topic.clone(), None)],
        anew: vec![(topic, 0)],
        ..Raw::default()
    }
}

#[test]
fn the_messages_of_a_topic_that_cannot_be_read_yet_are_not_passed_over() {
    let mut source = source();
    let mut checkpoint = None;
    for start in 0..2 {
        source.resume = Resume::of(checkpoint.as_ref()).unwrap();
        source.parked.clear();
        let mut work = Work { raw: stranger(), at: 0, out: ChangeBatch::default(), has_credit: false };
        assert!(matches!(source.step(&mut work), Step::Done));
        checkpoint = source.finish(work).unwrap().checkpoint;
        assert!(source.parked.contains_key("mix.public.stranger"), "start {start}");
        let kept = Resume::of(checkpoint.as_ref()).unwrap();
        assert_eq!(kept.topics["mix.public.stranger"].partitions[&0].next, 0, "start {start}");
    }
}

#[test]
fn messages_by_a_registry_that_nobody_named_are_not_passed_over() {
    let (mut source, mut raw) = (source(), stranger());
    raw.records[0].value = Bytes::from_static(&[0, 0, 0, 0, 7, 2, 2]);
    source.resume = Resume::of(None).unwrap();
    let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
    assert!(matches!(source.step(&mut work), Step::Done));
    let batch = source.finish(work).unwrap();
    let (_, why) = &source.parked["mix.public.stranger"];
    assert!(batch.rejected.is_empty() && why.contains("source.debezium.registry"), "{why}");
    assert_eq!(Resume::of(batch.checkpoint.as_ref()).unwrap().topics["mix.public.stranger"].partitions[&0].next, 0);
}

/// A source of `s.public.t (id bigint, name text)`.
fn of_t(config: TopicsConfig) -> TopicsSource {
    let column = |name: &str, kind, ty: &str| Column {
        name: name.into(),
        ty: Type { kind, name: ty.into(), builtin: true },
        attribute: 1,
    };
    let schema = Schema {
        table: TableName::new("public", "t"),
        columns: vec![column("id", Kind::Int64, "bigint"), column("name", Kind::Text, "text")],
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    };
    let mut source = TopicsSource::new(TopicsConfig { tables: vec![Arc::new(schema)], ..config });
    source.tables.learn(&source.config.tables.clone(), &source.config).unwrap();
    source.resume = Resume::of(None).unwrap();
    source
}

fn record(partition: u32, offset: u64, key: &str, value: &str) -> Record {
    let (key, value) = (Some(Bytes::copy_from_slice(key.as_bytes())), Bytes::copy_from_slice(value.as_bytes()));
    Record {
        topic: "s.public.t".into(),
        partition,
        offset,
        key,
        value,
        time: 0,
        is_moved: false,
        headers: Default::default(),
        added: Bytes::new(),
    }
}

fn row(partition: u32, offset: u64, id: u32, lsn: u64, snapshot: &str) -> Record {
    let op = if snapshot == "false" { "u" } else { "r" };
    let value = format!(
        r#"{{"op":"{op}","before":null,"after":{{"id":{id},"name":"v{lsn}"}},"source":{{"schema":"public","table":"t","lsn":{lsn},"snapshot":"{snapshot}"}}}}"#
    );
    record(partition, offset, &format!(r#"{{"id":{id}}}"#), &value)
}

fn told(source: &mut TopicsSource, records: Vec<Record>) -> ChangeBatch {
    let found = vec![("s.public.t".into(), None)];
    let raw = Raw { records, found, ..Raw::default() };
    let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
    assert!(matches!(source.step(&mut work), Step::Done));
    source.finish(work).unwrap()
}

fn truncates(batch: &ChangeBatch) -> Vec<Position> {
    batch.changes.iter().filter(|change| change.op == Op::Truncate).map(|change| change.position).collect()
}

fn notes(source: &TopicsSource) -> Vec<String> {
    locked(&source.handle.status).tables[0].notes.clone()
}

#[test]
fn rows_that_a_later_snapshot_lacks_go_with_its_end_and_one_that_broke_off_is_told() {
    let mut source = of_t(TopicsConfig { replaces: true, ..config() });
    let first = told(&mut source, vec![row(0, 0, 1, 100, "first"), row(1, 0, 2, 100, "last")]);
    assert!(truncates(&first).is_empty() && notes(&source).is_empty());

    let newer =
        told(&mut source, vec![row(0, 1, 3, 310, "false"), row(1, 1, 1, 300, "first"), row(1, 2, 4, 300, "true")]);
    assert!(truncates(&newer).is_empty() && notes(&source)[0].contains("its end hasn't come"), "{:?}", notes(&source));
    // Also behind a restart.
    let kept = Resume::of(newer.checkpoint.as_ref()).unwrap();
    (source.resume, source.notes) = (kept, BTreeMap::new());

    let ended = told(&mut source, vec![row(1, 3, 5, 300, "last")]);
    let at = truncates(&ended)[0];
    let above = |batch: &ChangeBatch| {
        batch.changes.iter().filter(|change| change.op != Op::Truncate).all(|change| change.position > at)
    };
    assert!(above(&newer) && above(&ended) && first.changes.iter().all(|change| change.position < at));
    assert!(notes(&source).is_empty(), "{:?}", notes(&source));

    let mut keeps = of_t(config());
    told(&mut keeps, vec![row(0, 0, 1, 100, "last")]);
    let later = told(&mut keeps, vec![row(0, 1, 2, 300, "first"), row(0, 2, 3, 300, "last")]);
    assert!(truncates(&later).is_empty() && notes(&keeps)[0].contains("rows that it lacks are kept"));
}

#[test]
fn dead_letters_of_a_topic_that_was_made_anew_are_others() {
    let mut source = of_t(config());
    let mut lives = Vec::new();
    for id in [5, 5, 6] {
        let raw = Raw {
            records: vec![record(0, 7, "", "no JSON")],
            found: vec![("s.public.t".into(), Some(id))],
            ..Raw::default()
        };
        let mut work = Work { raw, at: 0, out: ChangeBatch::default(), has_credit: false };
        assert!(matches!(source.step(&mut work), Step::Done));
        lives.extend(work.out.rejected.iter().map(|letter| (letter.life, letter.offset)));
    }
    assert_eq!(lives, [(0, 7), (1, 7)], "what was read is read once");
}

#[test]
fn an_unwrapped_row_without_a_key_that_does_not_tell_its_operation_is_refused_for_that() {
    let mut source = of_t(TopicsConfig { unwrapped: true, ..config() });
    let table = source.tables.get_mut(&TableName::new("public", "t")).unwrap();
    let keyless = Schema { key: Key::WholeRow, identity: Identity::Full, ..(*table.schema).clone() };
    table.schema = Arc::new(keyless);
    let out = told(
        &mut source,
        vec![
            record(0, 0, "", r#"{"id":1,"name":"x","__schema":"public","__table":"t"}"#),
            record(0, 1, "", r#"{"id":1,"name":"x","__op":"c"}"#),
        ],
    );
    assert_eq!((out.changes.len(), out.rejected.len()), (1, 1));
    assert!(out.rejected[0].reason.contains("`__op`"), "{}", out.rejected[0].reason);
}

#[test]
fn a_message_of_another_table_that_nobody_knows_is_a_dead_letter_and_its_topic_goes_on() {
    let mut source = of_t(config());
    let foreign = r#"{"op":"c","before":null,"after":{"n":1},"source":{"schema":"public","table":"stray","lsn":150}}"#;
    for (at, first) in [(0, record(0, 0, r#"{"n":1}"#, foreign)), (2, record(0, 2, r#"{"n":2}"#, foreign))] {
        let batch = told(&mut source, vec![first, row(0, at + 1, 1, 200 + at, "false")]);
        assert_eq!((batch.changes.len(), batch.rejected.len()), (1, 1));
        let letter = &batch.rejected[0];
        assert_eq!((letter.offset, letter.table.as_deref()), (at, Some("public.stray")));
        let says = |what: &str| assert!(letter.reason.contains(what), "{}", letter.reason);
        ["the topic is of public.t", "the message of public.stray", "source.debezium.tables"]
            .iter()
            .for_each(|w| says(w));
        assert!(source.parked.is_empty());
        assert_eq!(source.resume.topics["s.public.t"].partitions[&0].next, at + 2);
    }
    // An own message that can't be read stops its topic, as before.
    let mut source = source_without_tables();
    told(&mut source, vec![row(0, 0, 1, 100, "false")]);
    assert!(source.parked.contains_key("s.public.t"));
}

fn source_without_tables() -> TopicsSource {
    let mut source = source();
    source.resume = Resume::of(None).unwrap();
    source
}

#[tokio::test]
async fn definitions_that_are_not_told_are_asked_for_before_anything_is_read_again() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    let asked = Arc::new(AtomicU32::new(0));
    let counts = asked.clone();
    let definitions: crate::topics::Definitions = Arc::new(move || {
        counts.fetch_add(1, SeqCst);
        Box::pin(async {
            tokio::task::yield_now().await;
            Err(Error::unavailable("nobody answers").hint("check bus.kafka.brokers"))
        })
    });
    let mut source = TopicsSource::new(TopicsConfig { definitions: Some(definitions), ..config() });
    source.resume = Resume::of(None).unwrap();
    source.inbox = Some(channel::channel(1).1);
    source.work = Some(Work { raw: stranger(), at: 0, out: ChangeBatch::default(), has_credit: false });
    // Whoever waits may wait again: it is one question.
    let mut next = source.next();
    let waits = std::future::poll_fn(|context| std::task::Poll::Ready(next.as_mut().poll(context).is_pending()));
    assert!(waits.await);
    drop(next);
    let error = source.next().await.unwrap_err();
    assert!(error.to_string().contains("source.debezium.tables_from"), "{error}");
    assert!(error.to_string().contains("source.debezium.brokers"), "the section's own keys: {error}");
    assert_eq!(asked.load(SeqCst), 1);
    for times in 2..4 {
        source.open(None).await.unwrap_err();
        assert_eq!(asked.load(SeqCst), times);
        assert!(locked(&source.handle.reading).is_none(), "nothing is read");
    }
}
