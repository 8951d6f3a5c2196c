use super::*;
use bytes::Bytes;
use tidewire_change::Position;

fn at(topic: &str, partition: u32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition }
}

fn boundary(commit: u64) -> Boundary {
    Boundary { position: Position::new(commit, 0), complete_through: commit as i64 }
}

fn ends(of: &[(&str, u32, u64)], commit: Option<u64>) -> Ends {
    let mut told = Ends { boundary: commit.map(boundary), ..Ends::default() };
    for (topic, partition, end) in of {
        told.ends.entry(topic.to_string()).or_default().insert(*partition, *end);
    }
    told
}

/// A message whose value is its number.
fn put(merge: &mut Merge, topic: &str, partition: u32, offset: u64, index: u32) {
    put_by(merge, topic, partition, offset, index, true);
}

fn put_by(merge: &mut Merge, topic: &str, partition: u32, offset: u64, index: u32, is_ours: bool) {
    let part = merge.part(&at(topic, partition)).expect("an append named it");
    let topic = merge.place(part).topic.clone();
    let value = Bytes::copy_from_slice(&index.to_be_bytes());
    let message = FetchedMessage { topic, partition, offset, key: Bytes::new(), value, timestamp: 0 };
    merge.message(part, Waiting { index, form: None, is_ours, message });
}

fn all(_: &str) -> bool {
    true
}

/// Places and offsets of messages, and the boundary's commit.
type Taken = (Vec<(String, u64)>, Option<u64>);

fn taken(merge: &mut Merge) -> Option<Taken> {
    let given = merge.take(1 << 20)?;
    let messages =
        given.messages.iter().map(|m| &m.message).map(|m| (format!("{}/{}", m.topic, m.partition), m.offset)).collect();
    Some((messages, given.boundary.map(|b| b.position.commit)))
}

fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(place, offset)| (place.to_string(), *offset)).collect()
}

#[test]
fn an_append_is_given_out_when_all_of_it_has_come_and_in_its_order() {
    let mut merge = Merge::default();
    let fresh = merge.append(0, ends(&[("a", 0, 2), ("b", 1, 2)], Some(5)), all);
    assert_eq!(fresh, [(at("a", 0), None), (at("b", 1), None)]);
    put(&mut merge, "a", 0, 0, 1);
    put(&mut merge, "a", 0, 1, 2);
    put(&mut merge, "b", 1, 0, 0);
    assert!(taken(&mut merge).is_none(), "b/1 lacks its second message");
    put(&mut merge, "b", 1, 1, 3);
    // What comes behind is of the next append.
    put(&mut merge, "b", 1, 3, 0);
    let order = named(&[("b/1", 0), ("a/0", 0), ("a/0", 1), ("b/1", 1)]);
    assert_eq!(taken(&mut merge), Some((order, Some(5))));
    assert!(taken(&mut merge).is_none());
    assert!(merge.append(1, ends(&[("b", 1, 4)], None), all).is_empty(), "it is read already");
    assert_eq!(taken(&mut merge), Some((named(&[("b/1", 3)]), None)), "inside a source transaction");
    assert_eq!(merge.bytes(), 0);
}

#[test]
fn a_message_that_compaction_took_is_not_waited_for() {
    let mut merge = Merge::default();
    merge.append(0, ends(&[("a", 0, 3)], Some(1)), all);
    put(&mut merge, "a", 0, 1, 1);
    assert!(taken(&mut merge).is_none());
    put(&mut merge, "a", 0, 9, 0);
    assert_eq!(taken(&mut merge), Some((named(&[("a/0", 1)]), Some(1))));
    merge.append(1, ends(&[("a", 0, 10)], Some(2)), all);
    assert_eq!(taken(&mut merge), Some((named(&[("a/0", 9)]), Some(2))));
    // The last is gone, too: the partition's end tells.
    merge.append(2, ends(&[("a", 0, 12)], Some(3)), all);
    assert!(taken(&mut merge).is_none());
    merge.end(0, 11);
    assert!(taken(&mut merge).is_none(), "the transaction isn't visible there yet");
    merge.end(0, 13);
    assert_eq!(taken(&mut merge), Some((vec![], Some(3))));
}

#[test]
fn what_the_sink_has_already_is_neither_waited_for_nor_given_out() {
    let wanted = BTreeMap::from([(at("a", 0), 5)]);
    let mut merge = Merge::default();
    merge.start(wanted, boundary(2), 0);
    assert_eq!(merge.append(0, ends(&[("a", 0, 3)], Some(1)), all), [(at("a", 0), Some(5))]);
    merge.append(1, ends(&[("a", 0, 5)], Some(2)), all);
    assert!(taken(&mut merge).is_none(), "old boundaries without messages say nothing");
    merge.append(2, ends(&[("a", 0, 6)], Some(3)), all);
    put(&mut merge, "a", 0, 4, 0);
    put(&mut merge, "a", 0, 5, 0);
    assert_eq!(taken(&mut merge), Some((named(&[("a/0", 5)]), Some(3))));
    merge.append(3, ends(&[], Some(4)), all);
    assert_eq!(taken(&mut merge), Some((vec![], Some(4))), "a heartbeat passes");
}

#[test]
fn a_topic_that_is_not_wanted_is_not_waited_for() {
    let mut merge = Merge::default();
    let fresh = merge.append(0, ends(&[("a", 0, 1), ("b", 0, 1)], Some(1)), |topic| topic == "b");
    assert_eq!(fresh, [(at("b", 0), None)]);
    put(&mut merge, "b", 0, 0, 7);
    assert_eq!(taken(&mut merge), Some((named(&[("b/0", 0)]), Some(1))));
}

#[test]
fn an_append_larger_than_memory_is_given_out_in_parts_and_its_boundary_last() {
    let mut merge = Merge::default();
    merge.append(0, ends(&[("a", 0, 100), ("a", 1, 100)], Some(1)), all);
    let most = 10 * 68;
    let (mut got, mut told) = (Vec::new(), None);
    for offset in 0..100u64 {
        for partition in 0..2u32 {
            put(&mut merge, "a", partition, offset, offset as u32 * 2 + partition);
        }
        while let Some(given) = merge.take(most) {
            assert!(told.is_none(), "nothing comes behind the boundary");
            assert!(given.bytes <= most);
            got.extend(given.messages.iter().map(|m| u32::from_be_bytes(m.message.value[..].try_into().unwrap())));
            told = given.boundary;
        }
    }
    assert_eq!(got, (0..200).collect::<Vec<_>>());
    assert_eq!(told.map(|b| b.position.commit), Some(1));
}

#[test]
fn while_memory_is_short_only_partitions_without_a_message_are_read() {
    let mut merge = Merge::default();
    merge.append(0, ends(&[("a", 0, 1), ("b", 0, 1)], Some(1)), all);
    put(&mut merge, "a", 0, 0, 0);
    put(&mut merge, "a", 0, 2, 0);
    let ahead: Vec<_> = merge.ahead().into_iter().map(|part| merge.place(part).clone()).collect();
    assert_eq!(ahead, [at("a", 0)]);
    put(&mut merge, "b", 0, 0, 1);
    assert!(taken(&mut merge).is_some());
}

#[test]
fn nothing_of_a_topic_that_was_made_anew_is_waited_for_and_it_is_told_first() {
    let mut merge = Merge::default();
    merge.append(0, ends(&[("a", 0, 5), ("b", 0, 1)], Some(1)), all);
    put(&mut merge, "a", 0, 3, 0);
    put(&mut merge, "b", 0, 0, 1);
    assert!(taken(&mut merge).is_none());
    assert_eq!(merge.forget("a"), [at("a", 0)]);
    merge.is_anew("a", 1);
    assert_eq!(merge.append(1, ends(&[("a", 0, 1)], Some(2)), all), [(at("a", 0), None)]);
    let told = merge.take(1 << 20).expect("the topic");
    assert_eq!((told.anew, told.messages.len(), told.boundary), (vec![("a".into(), 1)], 0, None));
    assert_eq!(taken(&mut merge), Some((named(&[("b/0", 0)]), Some(1))));
    assert!(taken(&mut merge).is_none(), "the new topic's first message hasn't come");
    assert_eq!((merge.first().map(|(append, _)| append), merge.lacks()), (Some(1), vec![(&at("a", 0), 0)]));
    put(&mut merge, "a", 0, 0, 0);
    assert_eq!(taken(&mut merge), Some((named(&[("a/0", 0)]), Some(2))));
    assert_eq!(merge.bytes(), 0);
}

#[test]
fn an_append_of_which_more_comes_is_told_from_one_of_which_nothing_does() {
    let mut merge = Merge::default();
    assert_eq!(merge.first(), None);
    merge.append(4, ends(&[("a", 0, 9)], Some(1)), all);
    let began = merge.first();
    assert!(began.is_some() && began == merge.first());
    put(&mut merge, "a", 0, 0, 0);
    assert_ne!(began, merge.first());
}

#[test]
fn messages_of_an_append_that_was_never_finished_are_passed_over_and_those_of_others_are_not() {
    let mut merge = Merge::default();
    let mut told = ends(&[("a", 0, 5), ("b", 0, 1)], Some(1));
    told.starts.entry("a".into()).or_default().insert(0, 3);
    merge.append(0, told, all);
    // A process was killed behind two of these; another program's message lies between.
    put(&mut merge, "a", 0, 0, 0);
    put_by(&mut merge, "a", 0, 1, 0, false);
    put(&mut merge, "a", 0, 2, 1);
    put(&mut merge, "a", 0, 3, 0);
    put(&mut merge, "a", 0, 4, 2);
    assert!(taken(&mut merge).is_none());
    put(&mut merge, "b", 0, 0, 1);
    let order = named(&[("a/0", 1), ("a/0", 3), ("b/0", 0), ("a/0", 4)]);
    assert_eq!(taken(&mut merge), Some((order, Some(1))));
    assert_eq!(merge.bytes(), 0);
}

#[test]
fn what_is_left_of_appends_that_were_never_finished_holds_up_nothing_when_memory_is_short() {
    let mut merge = Merge::default();
    merge.append(0, ends(&[("a", 0, 1)], Some(1)), all);
    put(&mut merge, "a", 0, 0, 0);
    assert!(taken(&mut merge).is_some());
    for offset in 1..50 {
        put(&mut merge, "a", 0, offset, offset as u32);
    }
    let mut told = ends(&[("a", 0, 51)], Some(2));
    told.starts.entry("a".into()).or_default().insert(0, 50);
    merge.append(1, told, all);
    let most = 10 * 68;
    assert!(merge.bytes() > most && merge.take(most).is_none() && merge.bytes() == 0, "more is read now");
    put(&mut merge, "a", 0, 50, 0);
    assert_eq!(taken(&mut merge), Some((named(&[("a/0", 50)]), Some(2))));
}

#[test]
fn messages_that_are_gone_from_the_middle_are_told_and_what_was_given_out_before_is_not() {
    let counted = |end: u64, count: u64| {
        let mut told = ends(&[("a", 0, end)], Some(end));
        told.counts.entry("a".into()).or_default().insert(0, count);
        told
    };
    let mut merge = Merge::default();
    // Two of the first append's three were given out before the start.
    merge.start([(at("a", 0), 2)].into(), Boundary::default(), 0);
    merge.append(0, counted(3, 3), all);
    merge.append(1, counted(6, 2), all);
    merge.append(2, counted(9, 2), all);
    for offset in [2, 4, 5, 8] {
        put(&mut merge, "a", 0, offset, 0);
    }
    let mut gaps = Vec::new();
    while let Some(given) = merge.take(1) {
        gaps.extend(given.gaps.iter().map(|topic| (topic.to_string(), given.boundary.map(|b| b.position.commit))));
    }
    assert_eq!(gaps, [("a".to_string(), Some(9))]);

    let mut merge = Merge::default();
    merge.start([(at("a", 0), 2)].into(), Boundary::default(), 0);
    merge.append(0, counted(6, 3), all);
    put(&mut merge, "a", 0, 5, 0);
    assert_eq!(merge.take(1).expect("it is whole").gaps, ["a".into()], "all three stood behind the start");
}
