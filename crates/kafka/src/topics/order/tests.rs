use super::*;

#[derive(Default)]
struct Told {
    topic: TopicOrder,
    part: PartOrder,
}

impl Told {
    fn of(&mut self, op: Op, facts: Facts<'_>) -> Placed {
        place(&mut self.topic, &mut self.part, &facts, op).unwrap()
    }
    fn pair(&mut self, commit: Option<u64>, record: u64) -> Position {
        self.of(Op::Update, Facts { sequence: Some((commit, Some(record))), ..Facts::default() }).position
    }
    fn row(&mut self, lsn: u64) -> Placed {
        self.of(Op::Read, Facts { snapshot: Snapshot::Yes, lsn: Some(lsn), ..Facts::default() })
    }
    fn last(&mut self, lsn: u64) -> Placed {
        self.of(Op::Read, last(lsn))
    }
}

fn last(lsn: u64) -> Facts<'static> {
    Facts { snapshot: Snapshot::Yes, is_last: true, lsn: Some(lsn), ..Facts::default() }
}

#[test]
fn records_stand_behind_the_commit_before_them_however_near_or_far() {
    let far = 200u64 << 30;
    let places = [
        (100u64, 50u64),
        (100, 101),
        (100, 102),
        (100, 100_000_000),
        (100, 100_000_048),
        (100, far),
        (100, far + 48),
        (far + 90, far + 91),
    ];
    let positions: Vec<Position> = places.iter().map(|(commit, record)| pair(*commit, *record).unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    assert!(pair(far, 5).is_err());
    assert!(pair(far, far - (60 << 30)).unwrap() < pair(far, far - (60 << 30) + 48).unwrap());
}

#[test]
fn a_first_snapshot_loses_to_all_that_is_streamed_even_of_a_transaction_that_was_open() {
    let mut told = Told::default();
    let row = told.row(200).position;
    let open = told.pair(None, 120);
    let after = told.pair(Some(210), 150);
    assert!(row < open && open < after, "{row} {open} {after}");
}

#[test]
fn a_second_snapshot_beats_what_was_told_and_loses_to_what_is_new() {
    let mut told = Told::default();
    told.row(100);
    let first = told.pair(Some(110), 120);
    let again = told.row(200);
    assert_eq!((again.begins, again.renewed), (true, None), "it may break off");
    assert!(again.position > first && told.topic.later().unfinished);
    assert_eq!(told.last(200).renewed, Some(Position::end_of(199)));
    assert!(told.topic.later().any && !told.topic.later().unfinished);
    assert_eq!(told.last(200).renewed, None, "once");
    // A transaction that was open, one that was told before, and one that came later.
    let open = told.pair(Some(130), 125);
    let old = told.pair(Some(110), 120);
    let new = told.pair(Some(210), 220);
    assert!(old < again.position && again.position < open && open < new, "{old} {again:?} {open} {new}");
}

#[test]
fn a_snapshot_that_was_begun_once_more_beats_its_first_try() {
    let mut told = Told::default();
    let (first, again) = (told.row(100).position, told.row(150).position);
    assert!(again > first && again < told.pair(None, 90));
}

#[test]
fn positions_never_go_back_when_the_log_begins_anew() {
    let mut told = Told::default();
    told.row(5000);
    let old = told.pair(Some(6000), 6100);
    let row = told.row(100);
    assert_eq!(told.last(100).renewed, None, "of another log nothing says what is gone");
    assert!(told.topic.later().unplaced);
    let new = told.pair(None, 110);
    let newer = told.pair(Some(130), 140);
    assert!(old < row.position && row.position < new && new < newer, "{old} {row:?} {new} {newer}");
}

#[test]
fn all_partitions_put_one_snapshot_at_one_place() {
    let (mut told, mut other) = (Told::default(), PartOrder::default());
    told.row(100);
    told.pair(Some(110), 120);
    place(
        &mut told.topic,
        &mut other,
        &Facts { sequence: Some((Some(105), Some(108))), ..Facts::default() },
        Op::Create,
    )
    .unwrap();
    let row = told.row(200);
    told.pair(Some(900), 910);
    let facts = Facts { snapshot: Snapshot::Yes, lsn: Some(200), ..Facts::default() };
    let elsewhere = place(&mut told.topic, &mut other, &facts, Op::Read).unwrap();
    assert_eq!((elsewhere.position, elsewhere.begins), (row.position, false));
}

#[test]
fn a_later_snapshot_is_one_also_where_nothing_was_streamed_between_the_two() {
    let mut told = Told::default();
    let first = [told.row(100), told.last(100)];
    assert!(first.iter().all(|row| !row.begins && row.renewed.is_none()) && !told.topic.later().any);
    let again = told.row(300);
    let renewed = told.last(300).renewed.unwrap();
    assert!(again.begins && first[1].position < renewed && renewed < again.position);
}

#[test]
fn a_partition_that_was_read_further_does_not_hide_a_snapshot_in_another() {
    let (mut told, mut other) = (Told::default(), PartOrder::default());
    let first = [told.row(100).position, place(&mut told.topic, &mut other, &last(100), Op::Read).unwrap().position];
    let new = told.pair(Some(305), 310);
    let last = place(&mut told.topic, &mut other, &last(300), Op::Read).unwrap();
    let renewed = last.renewed.unwrap();
    assert!(last.begins && first.iter().all(|at| *at < renewed) && renewed < last.position && renewed < new);
    assert!(last.position < new);
    // Its other rows, read later, in a partition that had none before.
    let late = Facts { snapshot: Snapshot::Yes, lsn: Some(300), ..Facts::default() };
    let late = place(&mut told.topic, &mut PartOrder::default(), &late, Op::Read).unwrap();
    assert!(late.position > renewed);
}

#[test]
fn a_log_that_began_anew_goes_on_above_the_old_one_in_every_partition() {
    let (mut told, mut other) = (Told::default(), PartOrder::default());
    let before = told.pair(Some(6000), 6100);
    let facts = Facts { snapshot: Snapshot::Yes, lsn: Some(100), ..Facts::default() };
    let mut elsewhere =
        |told: &mut Told, facts| place(&mut told.topic, &mut other, &facts, Op::Update).unwrap().position;
    let behind = elsewhere(&mut told, Facts { sequence: Some((Some(40), Some(50))), ..Facts::default() });
    let row = elsewhere(&mut told, facts);
    assert!(behind < row && before < told.row(100).position);
    assert!(before < told.pair(Some(130), 140));
    assert!(row < elsewhere(&mut told, Facts { sequence: Some((Some(130), Some(150))), ..Facts::default() }));
}

#[test]
fn rows_of_the_present_snapshot_that_come_again_behind_the_stream_change_nothing() {
    let mut told = Told::default();
    told.row(100);
    let streamed = told.pair(Some(110), 120);
    let again = told.row(100);
    assert!(again.is_again && again.position < streamed);
}

#[test]
fn explicit_positions_are_taken_as_they_are() {
    let mut told = Told::default();
    let at = |commit, ordinal| Facts { commit_lsn: Some(commit), ordinal: Some(ordinal), ..Facts::default() };
    assert_eq!(told.of(Op::Read, at(100, 0)).renewed, None);
    assert_eq!(told.of(Op::Read, at(101, 0)).renewed, None);
    assert_eq!(told.of(Op::Update, at(120, 0)).position, Position::new(120, 0));
    let again = told.of(Op::Read, Facts { snapshot: Snapshot::Yes, ..at(200, 0) });
    assert_eq!((again.position, again.begins, again.renewed), (Position::new(200, 0), true, None));
    let last = Facts { is_last: true, snapshot: Snapshot::Yes, ..at(200, 1) };
    assert_eq!(told.of(Op::Read, last).renewed, Some(Position::end_of(199)));
    assert!(told.of(Op::Delete, at(190, 0)).is_again);
    assert_eq!(told.of(Op::Update, at(210, 0)).renewed, None);
    assert_eq!(told.of(Op::Read, at(201, 0)).renewed, None, "it is older than what was streamed");
}

#[test]
fn a_later_snapshot_whose_rows_do_not_say_so_ends_with_its_first_one_since_none_is_its_last() {
    let mut told = Told::default();
    let explicit = |commit| Facts { commit_lsn: Some(commit), ordinal: Some(0), ..Facts::default() };
    told.of(Op::Read, explicit(100));
    told.of(Op::Update, explicit(120));
    let again = [0, 1].map(|_| told.of(Op::Read, explicit(200)).renewed);
    assert_eq!(again, [Some(Position::end_of(199)), None]);
    assert!(told.topic.later().any && !told.topic.later().unfinished);

    let mut told = Told::default();
    let by_record = |lsn| Facts { lsn: Some(lsn), ..Facts::default() };
    told.of(Op::Read, by_record(100));
    let again = [200, 200].map(|lsn| told.of(Op::Read, by_record(lsn)).renewed);
    assert_eq!(again, [Some(Position::end_of(199)), None]);
}

#[test]
fn without_a_place_changes_come_as_they_came_and_a_place_told_later_goes_on_above() {
    let mut told = Told { topic: TopicOrder::begin(1_000_000), ..Told::default() };
    let arrivals: Vec<Placed> = (0..3).map(|_| told.of(Op::Update, Facts::default())).collect();
    assert!(arrivals.is_sorted_by(|a, b| a.position < b.position) && arrivals.iter().all(|placed| placed.by_arrival));
    let placed = told.of(Op::Update, Facts { commit_lsn: Some(100), ordinal: Some(1), ..Facts::default() });
    assert!(placed.position > arrivals[2].position && !placed.by_arrival);
    let without = told.of(Op::Update, Facts::default());
    let later = told.of(Op::Update, Facts { commit_lsn: Some(101), ordinal: Some(1), ..Facts::default() });
    assert!(placed.position < without.position && without.position < later.position);
}

#[test]
fn changes_of_one_record_come_as_they_came_and_one_told_again_is_behind() {
    let mut told = Told::default();
    let mut at = |lsn| told.of(Op::Update, Facts { lsn: Some(lsn), ..Facts::default() });
    let (first, second, third) = (at(100).position, at(100).position, at(160).position);
    assert!(first < second && second < third);
    let again = at(100);
    assert!(again.is_again && again.position < second);
}
