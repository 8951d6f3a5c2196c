//! A topic that is deleted while messages are on their way to it. librdkafka tries until their time is over, and other topics' messages,
//! whose transaction waits for it, with them; a consumer of what is committed sees nothing of it either. The brokers' metadata tells.

use crate::client::Client;
use crate::error::Fault;
use rdkafka::bindings as c;
use std::ffi::{c_int, CStr};
use std::time::{Duration, Instant};

/// Most waits are shorter, and nobody looks.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(1);
/// A broker may hear of a topic later than another.
const LASTS: Duration = Duration::from_secs(2);
const ANSWER_MS: c_int = 2_000;

/// Of one wait for brokers.
pub(crate) struct Missing {
    next: Instant,
    since: Option<Instant>,
}

impl Missing {
    pub fn new() -> Missing {
        Missing { next: Instant::now() + FIRST, since: None }
    }

    /// One of the client's topics that brokers have called unknown for a while. Asks them now and then; else it costs nothing.
    pub fn look(&mut self, client: &Client) -> Option<Fault> {
        if Instant::now() < self.next {
            return None;
        }
        let unknown = unknown(client);
        self.next = Instant::now() + EVERY;
        self.judge(unknown, Instant::now())
    }

    fn judge(&mut self, unknown: Option<Fault>, now: Instant) -> Option<Fault> {
        match unknown {
            None => self.since = None,
            Some(fault) if now >= *self.since.get_or_insert(now) + LASTS => return Some(fault),
            Some(_) => {}
        }
        None
    }
}

/// Of the topics that the client has handles of, the first that brokers don't know. None, too, while nobody answers.
fn unknown(client: &Client) -> Option<Fault> {
    let mut metadata: *const c::rd_kafka_metadata = std::ptr::null();
    // SAFETY: plain calls; the answer, its topics and their names live until it is destroyed.
    unsafe {
        let code = c::rd_kafka_metadata(client.rk(), 0, std::ptr::null_mut(), &mut metadata, ANSWER_MS);
        if Fault::of(code).is_some() {
            return None;
        }
        let count = (*metadata).topic_cnt as usize;
        let topics = if count == 0 { &[][..] } else { std::slice::from_raw_parts((*metadata).topics, count) };
        let found = topics.iter().find_map(|topic| {
            let fault = Fault::of(topic.err).filter(Fault::is_unknown_topic)?;
            Some(fault.of_topic(&CStr::from_ptr(topic.topic).to_string_lossy()))
        });
        c::rd_kafka_metadata_destroy(metadata);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_brokers_do_not_know_for_a_moment_is_not_missing() {
        let (mut missing, began) = (Missing::new(), Instant::now());
        let fault = || Some(Fault::known(3, "unknown".into()));
        assert!(missing.judge(fault(), began).is_none());
        assert!(missing.judge(None, began + LASTS).is_none());
        assert!(missing.judge(fault(), began + LASTS).is_none());
        assert!(missing.judge(fault(), began + LASTS + LASTS).is_some());
    }
}
