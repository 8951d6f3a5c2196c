//! Tables without a key.

use crate::support::work::Random;
use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

fn busy(path: &std::path::Path) -> Config {
    let mut config = Config::new(path, "p", "lake");
    config.buffer_bytes = 1000;
    config.index_entries = 40;
    config.upkeep.merge_files = 4;
    config
}

#[tokio::test]
async fn rows_known_by_position_are_appended_once_and_equal_ones_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let config = busy(folder.path());
    let schema = schema("log", vec![column("line", Kind::Text, 1)], Key::Position);
    let lines: Vec<Change> =
        (0..300u32).map(|n| change(&schema, Op::Create, 1 + u64::from(n / 10), n % 10, row(&[Some("same")]))).collect();
    let mut sink = open(&config).await;
    for (n, chunk) in lines.chunks(20).enumerate() {
        write(&mut sink, &schema, chunk.to_vec()).await;
        sink.commit(&progress(&schema, n as u64 + 1, 2 * n as u64 + 2)).await.unwrap();
        if n % 4 == 3 {
            sink = open(&config).await;
            assert_eq!(write(&mut sink, &schema, lines[..20 * (n + 1)].to_vec()).await.applied, 0);
        }
    }
    sink.settle().await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0.len(), 300);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &vec![vec![Some("same".into())]; 300]);
}

#[tokio::test]
async fn whole_rows_are_a_multiset_through_repetitions_reopening_and_merges() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let config = busy(folder.path());
        let columns = vec![column("a", Kind::Int32, 1), column("b", Kind::Text, 2)];
        let schema = schema("bag", columns, Key::WholeRow);
        let mut random = Random::new(seed);
        let (mut held, mut log): (Vec<[String; 2]>, Vec<Change>) = Default::default();
        let mut sink = open(&config).await;
        for commit in 1..80u64 {
            let from = log.len();
            for ordinal in 0..random.below(12) as u32 {
                let new = [random.below(4).to_string(), format!("v{}", random.below(3))];
                let as_row = |values: &[String; 2]| row(&[Some(&values[0]), Some(&values[1])]);
                let at = random.below(held.len().max(1) as u64) as usize;
                let mut made = change(&schema, Op::Create, commit, ordinal, as_row(&new));
                match random.below(3) {
                    1 if !held.is_empty() => {
                        made = change(&schema, Op::Delete, commit, ordinal, as_row(&held.swap_remove(at)));
                    }
                    2 if !held.is_empty() => {
                        made.op = Op::Update;
                        made.before = Some(as_row(&held[at]));
                        held[at] = new;
                    }
                    _ => held.push(new),
                }
                log.push(made);
            }
            let from = if random.chance(30) { random.below(from as u64 + 1) as usize } else { from };
            assert_eq!(write(&mut sink, &schema, log[from..].to_vec()).await.incomplete, 0);
            sink.commit(&progress(&schema, commit, commit)).await.unwrap();
            if random.chance(10) {
                drop(sink);
                sink = open(&config).await;
            }
        }
        sink.settle().await.unwrap();
        let mut expected: Vec<Values> = held.into_iter().map(|row| row.map(Some).to_vec()).collect();
        expected.sort();
        assert_eq!(inspect(&config, &schema, None).await.0, expected, "seed {seed}");
        validator::check(&folder_of(&config, &schema));
        readers::check(&config, &schema, &expected);
    }
}
