use super::*;
use crate::config::Config;
use crate::topics::reading::Record;
use bytes::Bytes;
use tidewire_connector::Budget;
use tidewire_envelope::debezium::Modes;

fn source() -> TopicsSource {
    TopicsSource::new(TopicsConfig {
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
    })
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
        references: [None; 2],
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
