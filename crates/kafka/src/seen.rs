//! When a transaction counts: when whoever reads what is committed can read it. Kafka answers a commit before its marks are written into
//! the partitions. A broker that starts may give up marks whose partition has no leader just then ("likely deleted already and hence can
//! be skipped", says Kafka 4.4's log); by Kafka's source the transaction stays open there, and ends as the next one does.

use crate::client::Client;
use crate::error::Fault;
use crate::missing::Missing;
use crate::producer::{Producer, Topic};
use crate::transaction::Broken;
use rdkafka::bindings as c;
use std::ffi::c_int;
use std::time::{Duration, Instant};
use tidewire_change::Error;

/// Brokers that are started anew need their time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks: about a fraction of what was waited for until then.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
const ANSWER_MS: c_int = 5_000;

/// A partition that a transaction wrote to, and where its messages there end.
pub(crate) type Place = (Topic, u32, u64);

/// Waits until what ends in the places can be read; the transaction's commit is answered already.
pub(crate) fn is_seen(producer: &Producer, mut places: Vec<Place>) -> Result<(), Broken> {
    if !producer.is_transactional() {
        return Ok(());
    }
    let (began, mut missing) = (Instant::now(), Missing::new());
    places.retain(|(_, _, end)| *end > 0);
    while !places.is_empty() {
        let looked = visible(producer.client(), &places);
        if let Ok(found) = &looked {
            let mut found = found.iter();
            places.retain(|(_, _, end)| found.next().is_none_or(|visible| visible < end));
        }
        let Some((topic, ..)) = places.first() else { break };
        if let Some(fault) = missing.look(producer.client()) {
            return Err(Broken { error: fault.error("behind a transaction"), is_fenced: false });
        }
        let waited = began.elapsed();
        if waited >= PATIENCE {
            let hidden = "it has taken a transaction, and doesn't show it to its readers";
            let error =
                looked.err().map_or_else(|| Error::unavailable(format!("Kafka: {hidden}")), |f| f.error(hidden));
            return Err(Broken { error: error.context(format!("topic {}", topic.name())), is_fenced: false });
        }
        std::thread::sleep((waited / 8).clamp(SHORTEST, LONGEST));
    }
    Ok(())
}

/// Up to where what is committed can be read in each of the places: one question to each broker that leads some of them.
fn visible(client: &Client, places: &[Place]) -> Result<Vec<u64>, Fault> {
    // SAFETY: the list is ours until it is destroyed, and has as many elements as were added, in their order; the names live as long as
    // the producer's topics.
    unsafe {
        let list = c::rd_kafka_topic_partition_list_new(places.len() as c_int);
        for (topic, partition, _) in places {
            let element = c::rd_kafka_topic_partition_list_add(list, topic.c_name().as_ptr(), *partition as i32);
            // A time that means the end.
            (*element).offset = i64::from(c::RD_KAFKA_OFFSET_END);
        }
        let code = c::rd_kafka_offsets_for_times(client.rk(), list, ANSWER_MS);
        let elements = std::slice::from_raw_parts((*list).elems, (*list).cnt as usize);
        let failed = Fault::of(code).or_else(|| elements.iter().find_map(|element| Fault::of(element.err)));
        let found = elements.iter().map(|element| element.offset.max(0) as u64).collect();
        c::rd_kafka_topic_partition_list_destroy(list);
        failed.map_or(Ok(found), |fault| Err(client.because(fault)))
    }
}
