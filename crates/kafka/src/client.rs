//! The little of librdkafka's C interface that producer and consumer share. Rust's usual wrapper waits for whole time-outs
//! where an answer is there already, and doesn't say of which partition the end was reached.

use crate::error::Fault;
use rdkafka::bindings as c;
use rdkafka::ClientConfig;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};

/// An instance of librdkafka. It is used by one thread; only `Waker` may be used beside it.
pub(crate) struct Client {
    rk: *mut c::rd_kafka_t,
    /// librdkafka holds its address.
    notes: Box<Notes>,
}

// SAFETY: librdkafka's handles may be used from any thread.
unsafe impl Send for Client {}

/// That no broker is left is told again and again, what the last one failed by every half a minute.
const WITHIN: Duration = Duration::from_secs(40);

/// librdkafka's callback about a group's assignment.
pub(crate) type Moved = unsafe extern "C" fn(
    *mut c::rd_kafka_t,
    c::rd_kafka_resp_err_t,
    *mut c::rd_kafka_topic_partition_list_t,
    *mut c_void,
);

/// What librdkafka's callbacks tell.
#[derive(Default)]
pub(crate) struct Notes {
    /// The last error that concerns the client as a whole.
    trouble: Mutex<Option<Fault>>,
    /// The last handshake that failed. It concerns the client when no broker is left behind it.
    handshake: Mutex<Option<(Instant, Fault)>>,
    /// Where they are sought.
    brokers: String,
    pub reports: Mutex<Reports>,
    pub moves: Mutex<Moves>,
}

/// What the coordinator of a group has told a member since it was looked at last (`group`).
#[derive(Default)]
pub(crate) struct Moves {
    pub told: Vec<Told>,
    /// Nothing is asked any more: the member goes.
    pub leaves: bool,
}

/// Partitions of topics that a member gets, gives up or has lost.
pub(crate) enum Told {
    Assigned(Vec<(String, u32)>),
    Revoked(Vec<(String, u32)>),
    Lost(Vec<(String, u32)>),
    Failed(Fault),
}

/// Outcomes of messages that were produced.
#[derive(Default)]
pub(crate) struct Reports {
    pub outstanding: usize,
    /// Bytes of messages without an outcome yet.
    pub queued_bytes: usize,
    /// By the slot that was given with the message.
    pub spans: Vec<Span>,
    pub failed: Option<Fault>,
}

/// The offsets that messages got in one partition.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub first: u64,
    /// One more than the highest.
    pub end: u64,
}

impl Span {
    /// Of no message yet.
    pub const NONE: Span = Span { first: u64::MAX, end: 0 };
}

impl Client {
    pub fn new(kind: c::rd_kafka_type_t, settings: &ClientConfig) -> Result<Client> {
        Self::make(kind, settings, None)
    }

    /// A member of a group: `moved` is called inside of its polls, with the address of its notes.
    pub fn member(settings: &ClientConfig, moved: Moved) -> Result<Client> {
        Self::make(c::rd_kafka_type_t::RD_KAFKA_CONSUMER, settings, Some(moved))
    }

    fn make(kind: c::rd_kafka_type_t, settings: &ClientConfig, moved: Option<Moved>) -> Result<Client> {
        let native = settings.create_native_config().map_err(|error| {
            // It names the key; a value may be a secret.
            let what = match &error {
                rdkafka::error::KafkaError::ClientConfig(_, what, key, _) => format!("{key}: {what}"),
                other => other.to_string(),
            };
            Error::invalid(format!("a setting isn't taken: {what}")).context("bus.kafka")
        })?;
        let native = ManuallyDrop::new(native);
        let brokers = settings.get("bootstrap.servers").unwrap_or_default().to_string();
        let notes = Box::new(Notes { brokers, ..Notes::default() });
        let mut text = [0 as c_char; 512];
        // SAFETY: the configuration is ours until `rd_kafka_new` takes it; the callbacks get the address of `notes`, which
        // lives as long as the client.
        unsafe {
            let conf = native.ptr();
            c::rd_kafka_conf_set_opaque(conf, &*notes as *const Notes as *mut c_void);
            c::rd_kafka_conf_set_log_cb(conf, Some(on_log));
            c::rd_kafka_conf_set_error_cb(conf, Some(on_error));
            if kind == c::rd_kafka_type_t::RD_KAFKA_PRODUCER {
                c::rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
            }
            if moved.is_some() {
                c::rd_kafka_conf_set_rebalance_cb(conf, moved);
            }
            let rk = c::rd_kafka_new(kind, conf, text.as_mut_ptr(), text.len());
            if rk.is_null() {
                drop(ManuallyDrop::into_inner(native));
                let text = CStr::from_ptr(text.as_ptr()).to_string_lossy();
                return Err(Error::invalid(format!("the Kafka client can't be set up: {text}")).context("bus.kafka"));
            }
            Ok(Client { rk, notes })
        }
    }

    pub fn rk(&self) -> *mut c::rd_kafka_t {
        self.rk
    }

    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// An error of the whole client since the last call: no broker is reached, or none lets us in.
    pub fn trouble(&self) -> Option<Fault> {
        locked(&self.notes.trouble).take()
    }

    /// An error behind which the client does nothing any more.
    pub fn fatal(&self) -> Option<Fault> {
        let mut text = [0 as c_char; 512];
        // SAFETY: at most so many bytes are written, the last of them zero.
        unsafe {
            let code = c::rd_kafka_fatal_error(self.rk, text.as_mut_ptr(), text.len());
            let text = || CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
            Fault::of(code).map(|_| Fault::known(code as c_int, text()))
        }
    }

    /// Hears anew who the controller is, which administrative calls go to: of one that is gone the client would wait for its return, and
    /// knock at its door as often as it can meanwhile.
    pub fn find_controller(&self) {
        find_controller(self.rk);
    }

    /// Partitions of a topic; none: no such topic. A producer's question may make the topic: it asks for those that are there.
    pub fn partitions(&self, topic: &str) -> Result<Option<u32>> {
        let name = c_name(topic)?;
        let found = self.metadata(Some(&name), |topics| {
            topics.first().map(|topic| (Fault::of(topic.err), topic.partition_cnt.max(0) as u32))
        });
        match found.map_err(|fault| fault.error(format!("topic {topic}")))? {
            Some((None, partitions)) => Ok(Some(partitions)),
            Some((Some(fault), _)) if !fault.is_unknown_topic() => Err(fault.error(format!("topic {topic}"))),
            _ => Ok(None),
        }
    }

    /// The topics that begin with the prefix and a dot, and their partitions.
    pub fn topics(&self, prefix: &str) -> Result<BTreeMap<String, u32>> {
        let own = |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        self.topics_like(own)
    }

    /// The topics that are meant, and their partitions.
    pub fn topics_like(&self, is_meant: impl Fn(&str) -> bool) -> Result<BTreeMap<String, u32>> {
        let found = self.metadata(None, |topics| {
            // SAFETY: names of topics are C strings.
            let name = |topic: &c::rd_kafka_metadata_topic| {
                unsafe { CStr::from_ptr(topic.topic) }.to_string_lossy().into_owned()
            };
            let topics = topics.iter().map(|topic| (name(topic), topic.partition_cnt.max(0) as u32));
            topics.filter(|(name, _)| is_meant(name)).collect()
        });
        found.map_err(|fault| fault.error("asking Kafka for its topics"))
    }

    /// Asks in short turns: who isn't let in needn't wait until the last of them.
    fn metadata<T>(&self, topic: Option<&CStr>, read: impl Fn(&[c::rd_kafka_metadata_topic]) -> T) -> Result<T, Fault> {
        let mut turn = 1;
        loop {
            let mut metadata: *const c::rd_kafka_metadata = std::ptr::null();
            // SAFETY: the topic's handle lives during the call; the answer is read before it is destroyed.
            let fault = unsafe {
                let handle = topic.map_or(std::ptr::null_mut(), |name| {
                    c::rd_kafka_topic_new(self.rk, name.as_ptr(), std::ptr::null_mut())
                });
                let all = c_int::from(topic.is_none());
                let code = c::rd_kafka_metadata(self.rk, all, handle, &mut metadata, ANSWER_MS / TURNS);
                if !handle.is_null() {
                    c::rd_kafka_topic_destroy(handle);
                }
                match Fault::of(code) {
                    None => {
                        let count = (*metadata).topic_cnt.max(0) as usize;
                        let topics =
                            if count == 0 { &[] } else { std::slice::from_raw_parts((*metadata).topics, count) };
                        let found = read(topics);
                        c::rd_kafka_metadata_destroy(metadata);
                        return Ok(found);
                    }
                    Some(fault) => self.because(fault),
                }
            };
            if turn == TURNS || !fault.is_vague() {
                return Err(fault);
            }
            turn += 1;
        }
    }

    /// The first offset that is there and the one behind the last that is visible; none: no such partition. Its leader may be about to
    /// change.
    pub fn watermarks(&self, topic: &str, partition: u32) -> Result<Option<(u64, u64)>> {
        self.watermarks_within(topic, partition, ANSWER_MS)
    }

    pub fn watermarks_within(&self, topic: &str, partition: u32, wait_ms: c_int) -> Result<Option<(u64, u64)>> {
        let (name, partition) = (c_name(topic)?, partition as i32);
        let until = Instant::now() + Duration::from_millis(wait_ms as u64);
        loop {
            let (mut low, mut high) = (0i64, 0i64);
            // SAFETY: plain call with pointers to our own stack.
            let code = unsafe {
                let name = name.as_ptr();
                c::rd_kafka_query_watermark_offsets(self.rk, name, partition, &mut low, &mut high, wait_ms)
            };
            match Fault::of(code) {
                None => return Ok(Some((low.max(0) as u64, high.max(0) as u64))),
                Some(fault) if fault.is_unknown_topic() => return Ok(None),
                Some(fault) if fault.is_of_leader() && Instant::now() < until => std::thread::sleep(AGAIN),
                Some(fault) => return Err(self.because(fault).error(format!("topic {topic}"))),
            }
        }
    }

    /// A time-out says little; what the client met meanwhile says more.
    pub fn because(&self, fault: Fault) -> Fault {
        // SAFETY: serves callbacks that wait, without waiting.
        unsafe { c::rd_kafka_poll(self.rk, 0) };
        match self.trouble() {
            Some(trouble) if fault.is_vague() => trouble,
            _ => fault,
        }
    }
}

/// How long one answer of a broker may take.
pub(crate) const ANSWER_MS: c_int = 15_000;
const TURNS: c_int = 15;
/// Who leads a partition is known anew soon after it has changed.
const AGAIN: Duration = Duration::from_millis(50);

/// See `Client::find_controller`. Nobody answers: the call that comes next says so.
pub(crate) fn find_controller(rk: *mut c::rd_kafka_t) {
    let mut metadata: *const c::rd_kafka_metadata = std::ptr::null();
    // SAFETY: plain calls; the answer is destroyed once. Without topics it tells of the brokers alone.
    unsafe {
        let code = c::rd_kafka_metadata(rk, 0, std::ptr::null_mut(), &mut metadata, ANSWER_MS / TURNS);
        if Fault::of(code).is_none() {
            c::rd_kafka_metadata_destroy(metadata);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle. A consumer that isn't in a group has nothing to say goodbye for.
        unsafe { c::rd_kafka_destroy_flags(self.rk, c::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE) };
    }
}

pub(crate) fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::invalid(format!("the topic {name:?} has a zero byte in its name")))
}

/// What lies behind is whole between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn on_log(_: *const c::rd_kafka_t, level: c_int, facility: *const c_char, text: *const c_char) {
    // SAFETY: librdkafka gives C strings that live during the call.
    let (facility, text) =
        unsafe { (CStr::from_ptr(facility).to_string_lossy(), CStr::from_ptr(text).to_string_lossy()) };
    match level {
        // Lost connections and the like come back as errors of what was asked for.
        0..=4 => tracing::info!("librdkafka {facility}: {text}"),
        _ => tracing::debug!("librdkafka {facility}: {text}"),
    }
}

extern "C" fn on_error(_: *mut c::rd_kafka_t, code: c_int, reason: *const c_char, notes: *mut c_void) {
    // SAFETY: `notes` is what `Client::new` gave; the reason lives during the call.
    let (notes, reason) = unsafe { (&*(notes as *const Notes), CStr::from_ptr(reason).to_string_lossy()) };
    let fault = Fault::known(code, reason.clone().into_owned());
    let fault = match fault.is_vague() {
        true => Fault::known(code, format!("{reason} (bus.kafka.brokers: {})", notes.brokers)),
        false => fault,
    };
    if fault.is_of_handshake() {
        *locked(&notes.handshake) = Some((Instant::now(), fault));
        return;
    }
    let handshake = if fault.is_without_brokers() { locked(&notes.handshake).clone() } else { None };
    let fault = match handshake {
        Some((at, why)) if at.elapsed() < WITHIN => why,
        _ => fault,
    };
    if fault.concerns_the_client() {
        let mut trouble = locked(&notes.trouble);
        // That no broker is left is told behind the reason.
        if !fault.is_without_brokers() || trouble.is_none() {
            *trouble = Some(fault);
        }
    }
}

extern "C" fn on_report(_: *mut c::rd_kafka_t, message: *const c::rd_kafka_message_t, notes: *mut c_void) {
    // SAFETY: as above; the message lives during the call.
    let (message, notes) = unsafe { (&*message, &*(notes as *const Notes)) };
    let mut reports = locked(&notes.reports);
    reports.outstanding = reports.outstanding.saturating_sub(1);
    reports.queued_bytes = reports.queued_bytes.saturating_sub(message.len + message.key_len);
    match Fault::of(message.err) {
        None => {
            let slot = message._private as usize;
            if let Some(span) = reports.spans.get_mut(slot) {
                let offset = message.offset as u64;
                *span = Span { first: span.first.min(offset), end: span.end.max(offset + 1) };
            }
        }
        Some(fault) => {
            // SAFETY: the handle of the message's topic is there as long as the message.
            let topic = unsafe { CStr::from_ptr(c::rd_kafka_topic_name(message.rkt)) }.to_string_lossy();
            let bytes = message.len + message.key_len;
            reports.failed.get_or_insert_with(|| fault.of_message(&topic, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What concerns the client behind the last of these; whoever waits for it has asked behind each.
    fn after(told: &[(c_int, &str)]) -> Option<Fault> {
        let notes = Notes::default();
        let asked = told.iter().map(|(code, reason)| {
            let reason = CString::new(*reason).unwrap();
            on_error(std::ptr::null_mut(), *code, reason.as_ptr(), &notes as *const Notes as *mut c_void);
            locked(&notes.trouble).take()
        });
        asked.last().flatten()
    }

    #[test]
    fn a_handshake_that_fails_concerns_the_client_only_where_no_broker_is_left_and_is_the_reason_then() {
        let (handshake, none_left) = ((-181, "ssl: handshake failed"), (-187, "1/1 brokers are down"));
        let plain = (-195, "disconnected: connecting to a SSL listener?");
        assert!(after(&[handshake]).is_none() && after(&[plain]).is_none());
        for reason in [handshake, plain] {
            for told in [&[reason, none_left][..], &[reason, none_left, none_left]] {
                let told = after(told).expect("no broker is left").to_string();
                assert!(told.contains(reason.1), "{told}");
            }
        }
        assert!(after(&[none_left]).expect("no broker is left").to_string().contains("brokers are down"));
    }
}
