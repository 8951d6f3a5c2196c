//! A broker that is killed while appends are under way: whoever captures next goes on behind all that was acknowledged.

use bytes::Bytes;
use std::time::{Duration, Instant};
use tidewire_change::{Checkpoint, ErrorKind, Message, Position, Progress, Result};
use tidewire_connector::{Budget, BusReader, BusWriter};
use tidewire_kafka::{Config, KafkaBus};
use tidewire_testbed::Kafka;
use tokio::sync::watch;

fn message(commit: u64) -> Message {
    let value = Bytes::from(commit.to_string());
    Message { topic: "a.b".into(), partition: (commit % 2) as u32, key: value.clone(), value, timestamp: 1 }
}

fn checkpoint(commit: u64) -> Checkpoint {
    Checkpoint { position: Position::new(commit, 0), complete_through: commit as i64, resume: Bytes::new() }
}

/// The brokers answer again within a while.
async fn capture(config: &Config) -> Result<KafkaBus> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match KafkaBus::capture(config.clone(), &Budget::new(32 << 20)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < until => {}
            opened => return opened,
        }
    }
}

async fn last(bus: &KafkaBus) -> Result<u64> {
    Ok(bus.last().await?.map_or(0, |last| last.position.commit))
}

/// Appends one after the other until one fails; tells of each that was acknowledged.
async fn append_until_it_fails(bus: KafkaBus, acknowledged: watch::Sender<u64>) {
    loop {
        let next = *acknowledged.borrow() + 1;
        if bus.append(vec![message(next)], Some(checkpoint(next))).await.is_err() {
            return;
        }
        acknowledged.send_replace(next);
    }
}

async fn takes_over_from_one_whose_broker_was_killed(exactly_once: bool, rounds: u64) -> Result<()> {
    let mut kafka = Kafka::start();
    let mut config = Config { exactly_once, partitions: 2, ..Config::new(kafka.address(), "p", "main") };
    let mut known = 0;
    for round in 0..rounds {
        config.instance += 1;
        let bus = capture(&config).await?;
        let found = last(&bus).await?;
        assert!(found >= known, "round {round}: {known} was acknowledged, and who takes over begins at {found}");
        let (acknowledged, mut told) = watch::channel(found);
        let appending = tokio::spawn(append_until_it_fails(bus, acknowledged));
        let enough = found + 3 + 7 * round;
        told.wait_for(|acknowledged| *acknowledged >= enough).await.expect("it appends");
        kafka.kill();
        // Its process goes with the broker.
        appending.abort();
        known = *told.borrow();
        kafka.start_again();
    }
    config.instance += 1;
    let bus = capture(&config).await?;
    let found = last(&bus).await?;
    assert!(found >= known, "{known} was acknowledged, and who takes over begins at {found}");
    bus.append(vec![message(found + 1)], Some(checkpoint(found + 1))).await?;
    let mut reader = bus.reader("s", Budget::new(8 << 20), None)?;
    reader.seek(&Progress::default()).await?;
    let (mut values, mut reached) = (Vec::new(), 0);
    while reached <= found {
        let fetched = tokio::time::timeout(Duration::from_secs(30), reader.next()).await.expect("something comes")?;
        values.extend(fetched.messages.iter().map(|m| String::from_utf8_lossy(&m.value).parse::<u64>().unwrap()));
        reached = fetched.boundary.map_or(reached, |boundary| boundary.position.commit);
    }
    match exactly_once {
        true => assert_eq!(values, (1..=found + 1).collect::<Vec<_>>(), "each once"),
        false => {
            values.sort();
            values.dedup();
            assert_eq!(values, (1..=found + 1).collect::<Vec<_>>(), "each");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_a_broker_was_killed_is_where_the_next_process_goes_on() -> Result<()> {
    takes_over_from_one_whose_broker_was_killed(true, 4).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_transactions_too_the_next_process_goes_on_behind_what_was_acknowledged_before_a_kill() -> Result<()> {
    takes_over_from_one_whose_broker_was_killed(false, 2).await
}
