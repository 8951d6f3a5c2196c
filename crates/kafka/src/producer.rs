//! A producer whose outcomes are awaited one transaction at a time.

use crate::client::{c_name, locked, Client, Span};
use crate::error::Fault;
use crate::missing::Missing;
use rdkafka::bindings as c;
use rdkafka::bindings::rd_kafka_vtype_t as v;
use rdkafka::ClientConfig;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;
use tidewire_change::Result;

pub(crate) struct Producer {
    /// More than this doesn't wait for its outcome, but for one message that is larger.
    queue_bytes: usize,
    /// Without transactions `init`, `begin`, `commit` and `abort` do nothing.
    is_transactional: bool,
    topics: HashMap<String, Topic>,
    client: Client,
}

/// librdkafka's handle of a topic, of this producer.
#[derive(Clone, Copy)]
pub(crate) struct Topic(*mut c::rd_kafka_topic_t);

// SAFETY: as the client's.
unsafe impl Send for Topic {}

impl Topic {
    pub fn c_name(&self) -> &CStr {
        // SAFETY: a C string that lives as long as the handle, which is destroyed with its producer.
        unsafe { CStr::from_ptr(c::rd_kafka_topic_name(self.0)) }
    }

    pub fn name(&self) -> String {
        self.c_name().to_string_lossy().into_owned()
    }
}

/// One message to be produced.
pub(crate) struct Produced<'a> {
    pub topic: Topic,
    pub partition: u32,
    pub key: Option<&'a [u8]>,
    /// Empty: a tombstone.
    pub value: &'a [u8],
    pub timestamp_ms: i64,
    pub header: &'a [u8],
    /// A further header: its name and its value.
    pub other_header: Option<(&'static CStr, &'a [u8])>,
    /// Any number of further ones, which may have no value; with them there is no `other_header`.
    pub headers: &'a [HeaderOf<'a>],
    /// The place in `Reports::spans` that its offset goes to.
    pub slot: usize,
}

/// A header's name and value.
pub(crate) type HeaderOf<'a> = (&'a CStr, Option<&'a [u8]>);

/// The header that all our messages have.
pub(crate) const HEADER: &CStr = c"tw";

/// How a call of a transaction failed.
pub(crate) struct Failure {
    pub fault: Fault,
    pub is_fatal: bool,
    pub is_retriable: bool,
}

const POLL_MS: c_int = 50;

/// `rd_kafka_producev` of a message with this value; what is added are tags and arguments of its headers.
macro_rules! producev {
    ($producer:expr, $message:expr, $value:expr, $($headers:expr),+) => {{
        let (key, key_len) = $message.key.map_or((null_mut(), 0), |key| (bytes(key), key.len()));
        c::rd_kafka_producev(
            $producer.client.rk(),
            v::RD_KAFKA_VTYPE_RKT as c_int,
            $message.topic.0,
            v::RD_KAFKA_VTYPE_PARTITION as c_int,
            $message.partition as i32 as c_int,
            v::RD_KAFKA_VTYPE_MSGFLAGS as c_int,
            c::RD_KAFKA_MSG_F_COPY as c_int,
            v::RD_KAFKA_VTYPE_VALUE as c_int,
            $value,
            $message.value.len(),
            v::RD_KAFKA_VTYPE_KEY as c_int,
            key,
            key_len,
            v::RD_KAFKA_VTYPE_OPAQUE as c_int,
            $message.slot as *mut c_void,
            v::RD_KAFKA_VTYPE_TIMESTAMP as c_int,
            $message.timestamp_ms,
            $($headers,)+
            v::RD_KAFKA_VTYPE_END as c_int,
        )
    }};
}

impl Producer {
    pub fn new(settings: &ClientConfig, queue_bytes: usize) -> Result<Producer> {
        let client = Client::new(c::rd_kafka_type_t::RD_KAFKA_PRODUCER, settings)?;
        let is_transactional = settings.get("transactional.id").is_some();
        Ok(Producer { queue_bytes, is_transactional, topics: HashMap::new(), client })
    }

    pub fn is_transactional(&self) -> bool {
        self.is_transactional
    }

    pub fn topic(&mut self, name: &str) -> Result<Topic> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(*topic);
        }
        let name_c = c_name(name)?;
        // SAFETY: the handle is destroyed with the producer.
        let topic = Topic(unsafe { c::rd_kafka_topic_new(self.client.rk(), name_c.as_ptr(), null_mut()) });
        self.topics.insert(name.to_string(), topic);
        Ok(topic)
    }

    /// Forgets the outcomes of messages before.
    pub fn start(&self) {
        let mut reports = locked(&self.client.notes().reports);
        reports.spans.clear();
        reports.failed = None;
    }

    /// Copies the message into the producer's queue; waits for room in it.
    pub fn produce(&self, message: &Produced<'_>) -> Result<(), Fault> {
        let bytes = message.value.len() + message.key.map_or(0, <[u8]>::len);
        let mut missing = None;
        loop {
            let (is_full, failed) = {
                let mut reports = locked(&self.client.notes().reports);
                if reports.spans.len() <= message.slot {
                    reports.spans.resize(message.slot + 1, Span::NONE);
                }
                let is_full = reports.outstanding > 0 && reports.queued_bytes + bytes > self.queue_bytes;
                (is_full, reports.failed.clone())
            };
            if let Some(fault) = failed {
                return Err(self.client.because(fault));
            }
            if !is_full {
                let produced = match message.headers.is_empty() {
                    true => self.try_produce(message),
                    false => self.try_produce_with_headers(message),
                };
                match produced {
                    None => break,
                    Some(fault) if fault.is_queue_full() => {}
                    Some(fault) => return Err(fault),
                }
            }
            self.poll();
            if let Some(fault) = missing.get_or_insert_with(Missing::new).look(&self.client) {
                return Err(fault);
            }
        }
        let mut reports = locked(&self.client.notes().reports);
        reports.outstanding += 1;
        reports.queued_bytes += bytes;
        Ok(())
    }

    fn try_produce(&self, m: &Produced<'_>) -> Option<Fault> {
        let value = if m.value.is_empty() { null_mut() } else { bytes(m.value) };
        // Behind the word END nothing is looked at.
        let tag = if m.other_header.is_some() { v::RD_KAFKA_VTYPE_HEADER } else { v::RD_KAFKA_VTYPE_END };
        let (other_name, other_value) = m.other_header.unwrap_or((c"", &[]));
        // SAFETY: tags and arguments as `producev` wants them behind the message; everything is copied by the call.
        let code = unsafe {
            producev!(
                self,
                m,
                value,
                v::RD_KAFKA_VTYPE_HEADER as c_int,
                HEADER.as_ptr() as *const c_char,
                bytes(m.header),
                m.header.len() as isize,
                tag as c_int,
                other_name.as_ptr() as *const c_char,
                bytes(other_value),
                other_value.len() as isize
            )
        };
        Fault::of(code)
    }

    fn try_produce_with_headers(&self, m: &Produced<'_>) -> Option<Fault> {
        let value = if m.value.is_empty() { null_mut() } else { bytes(m.value) };
        // SAFETY: as above. The headers are librdkafka's when the call went well, else still ours.
        unsafe {
            let headers = c::rd_kafka_headers_new(m.headers.len() + 1);
            let add = |(name, value): &HeaderOf<'_>| {
                let name_len = name.to_bytes().len() as isize;
                let (value, len) = value.map_or((null_mut(), 0), |value| (bytes(value), value.len() as isize));
                c::rd_kafka_header_add(headers, name.as_ptr(), name_len, value, len)
            };
            add(&(HEADER, Some(m.header)));
            m.headers.iter().for_each(|header| {
                add(header);
            });
            let fault = Fault::of(producev!(self, m, value, v::RD_KAFKA_VTYPE_HEADERS as c_int, headers));
            if fault.is_some() {
                c::rd_kafka_headers_destroy(headers);
            }
            fault
        }
    }

    fn poll(&self) {
        // SAFETY: serves this client's callbacks.
        unsafe { c::rd_kafka_poll(self.client.rk(), POLL_MS) };
    }

    /// Waits until every message has its outcome; each has one within `message.timeout.ms`.
    pub fn settle(&self) -> Result<Vec<Span>, Fault> {
        let mut missing = Missing::new();
        loop {
            {
                let reports = locked(&self.client.notes().reports);
                match (&reports.failed, reports.outstanding) {
                    (Some(fault), _) => return Err(self.client.because(fault.clone())),
                    (None, 0) => return Ok(reports.spans.clone()),
                    (None, _) => {}
                }
            }
            // SAFETY: serves callbacks as `poll`; while it runs nothing waits for company (`linger.ms`).
            unsafe { c::rd_kafka_flush(self.client.rk(), POLL_MS) };
            if let Some(fault) = missing.look(&self.client) {
                return Err(fault);
            }
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Fences older producers of our transactional id; what they left open is ended.
    pub fn init(&self, wait_ms: c_int) -> Result<(), Failure> {
        if !self.is_transactional {
            return Ok(());
        }
        // SAFETY: plain call.
        failure(unsafe { c::rd_kafka_init_transactions(self.client.rk(), wait_ms) })
    }

    pub fn begin(&self) -> Result<(), Failure> {
        if !self.is_transactional {
            return Ok(());
        }
        // SAFETY: plain call.
        failure(unsafe { c::rd_kafka_begin_transaction(self.client.rk()) })
    }

    pub fn commit(&self, wait_ms: c_int) -> Result<(), Failure> {
        if !self.is_transactional {
            return Ok(());
        }
        // SAFETY: plain call.
        failure(unsafe { c::rd_kafka_commit_transaction(self.client.rk(), wait_ms) })
    }

    /// Without transactions what was sent stays: the producer goes, and what it still holds with it.
    pub fn abort(&self, wait_ms: c_int) -> Result<(), Failure> {
        if !self.is_transactional {
            return Ok(());
        }
        // SAFETY: plain calls; messages that wait are dropped, since they would hold up the abort.
        let aborted = unsafe {
            c::rd_kafka_purge(self.client.rk(), c::RD_KAFKA_PURGE_F_QUEUE as c_int);
            failure(c::rd_kafka_abort_transaction(self.client.rk(), wait_ms))
        };
        // An outcome that comes late must not be taken for one of the next transaction.
        while aborted.is_ok() && locked(&self.client.notes().reports).outstanding > 0 {
            self.poll();
        }
        aborted
    }
}

fn bytes(slice: &[u8]) -> *mut c_void {
    slice.as_ptr() as *mut c_void
}

/// Takes the error of a call; none: it went well.
pub(crate) fn failure_of(error: *mut c::rd_kafka_error_t) -> Option<Fault> {
    failure(error).err().map(|failure| failure.fault)
}

fn failure(error: *mut c::rd_kafka_error_t) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is ours to look at and to destroy.
    unsafe {
        let text = CStr::from_ptr(c::rd_kafka_error_string(error)).to_string_lossy().into_owned();
        let failure = Failure {
            fault: Fault::known(c::rd_kafka_error_code(error) as c_int, text),
            is_fatal: c::rd_kafka_error_is_fatal(error) != 0,
            is_retriable: c::rd_kafka_error_is_retriable(error) != 0,
        };
        c::rd_kafka_error_destroy(error);
        Err(failure)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: the handles are ours; nobody waits for the messages that are still there.
        unsafe {
            for topic in self.topics.values() {
                c::rd_kafka_topic_destroy(topic.0);
            }
            let flags = c::RD_KAFKA_PURGE_F_QUEUE | c::RD_KAFKA_PURGE_F_INFLIGHT;
            c::rd_kafka_purge(self.client.rk(), flags as c_int);
        }
    }
}
