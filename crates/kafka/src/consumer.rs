//! A consumer of partitions that it is told to read, without a group's assignment.

use crate::client::{c_name, locked, Client, ANSWER_MS};
use crate::error::Fault;
use crate::producer::HEADER;
use rdkafka::bindings as c;
use rdkafka::ClientConfig;
use std::ffi::{c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::Result;

pub(crate) struct Consumer {
    queue: Arc<Queue>,
    client: Client,
    room: Vec<*mut c::rd_kafka_message_t>,
}

// SAFETY: `room` holds no messages between two calls.
unsafe impl Send for Consumer {}

/// Closed in order: librdkafka would spin until it has let go of the partitions by itself.
impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: the last calls but for the client's own end.
        unsafe {
            c::rd_kafka_assign(self.client.rk(), null());
            c::rd_kafka_consumer_close(self.client.rk());
        }
    }
}

/// The queue that all partitions feed.
pub(crate) struct Queue(*mut c::rd_kafka_queue_t);

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// Ends a wait in `Consumer::poll` of another thread.
    pub fn wake(&self) {
        // SAFETY: the queue lives as long as this value.
        unsafe { c::rd_kafka_queue_yield(self.0) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: our own reference.
        unsafe { c::rd_kafka_queue_destroy(self.0) };
    }
}

/// Ends the thread's wait for messages.
#[derive(Clone, Default)]
pub(crate) struct Wake(Arc<Mutex<Option<Arc<Queue>>>>);

impl Wake {
    pub fn set(&self, queue: Option<Arc<Queue>>) {
        *locked(&self.0) = queue;
    }

    pub fn wake(&self) {
        if let Some(queue) = &*locked(&self.0) {
            queue.wake();
        }
    }
}

/// What came from one partition. It lives during the call that gives it.
pub(crate) enum Event<'a> {
    Message {
        topic: &'a str,
        partition: u32,
        offset: u64,
        key: Option<&'a [u8]>,
        value: &'a [u8],
        header: Option<&'a [u8]>,
        others: Headers<'a>,
        timestamp_ms: i64,
    },
    /// All visible messages below the offset have come.
    End {
        topic: &'a str,
        partition: u32,
        offset: u64,
    },
    Failed {
        topic: Option<&'a str>,
        partition: u32,
        fault: Fault,
    },
}

/// A message's headers beside ours, looked at when somebody asks.
#[derive(Clone, Copy)]
pub(crate) struct Headers<'a>(&'a c::rd_kafka_message_t);

impl Headers<'_> {
    pub fn has(&self, name: &CStr) -> bool {
        self.get(name).is_some()
    }

    pub fn get(&self, name: &CStr) -> Option<&[u8]> {
        // SAFETY: the message lives as long as this.
        unsafe { header(self.0, name) }
    }

    /// Each header's name and value, in their order; one without a value has none.
    pub fn each(&self, mut take: impl FnMut(&[u8], &[u8])) {
        let mut headers = null_mut();
        // SAFETY: the message lives as long as this, and its headers with it.
        unsafe {
            if Fault::of(c::rd_kafka_message_headers(self.0, &mut headers)).is_some() {
                return;
            }
            let (mut name, mut value, mut len) = (null(), null(), 0);
            for at in 0.. {
                if Fault::of(c::rd_kafka_header_get_all(headers, at, &mut name, &mut value, &mut len)).is_some() {
                    return;
                }
                take(CStr::from_ptr(name).to_bytes(), slice(value as *mut c_void, len).unwrap_or(&[]));
            }
        }
    }
}

/// Messages that one poll brings at most.
const BATCH: usize = 1024;

impl Consumer {
    pub fn new(settings: &ClientConfig) -> Result<Consumer> {
        let client = Client::new(c::rd_kafka_type_t::RD_KAFKA_CONSUMER, settings)?;
        // SAFETY: the client's errors and logs come by the same queue as its messages.
        let queue = unsafe {
            c::rd_kafka_poll_set_consumer(client.rk());
            Arc::new(Queue(c::rd_kafka_queue_get_consumer(client.rk())))
        };
        Ok(Consumer { queue, client, room: vec![null_mut(); BATCH] })
    }

    pub fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads these partitions, too, each from its offset; none: from its first message.
    pub fn add(&self, places: &[(&str, u32, Option<u64>)]) -> Result<()> {
        let list = List::of(places.iter().map(|(topic, partition, offset)| {
            (*topic, *partition, offset.map_or(c::RD_KAFKA_OFFSET_BEGINNING as i64, |offset| offset as i64))
        }))?;
        // SAFETY: the list lives during the call.
        let error = unsafe { c::rd_kafka_incremental_assign(self.client.rk(), list.0) };
        match crate::producer::failure_of(error) {
            None => Ok(()),
            Some(fault) => Err(self.client.because(fault).error("reading more partitions")),
        }
    }

    /// Reads nothing any more.
    pub fn clear(&self) -> Result<()> {
        // SAFETY: an empty list is what takes all away.
        match Fault::of(unsafe { c::rd_kafka_assign(self.client.rk(), null()) }) {
            None => Ok(()),
            Some(fault) => Err(self.client.because(fault).error("reading other partitions")),
        }
    }

    /// Reads these no more; `add` with the offset behind the last message that was given out goes on. (Pausing isn't used: where
    /// librdkafka goes on after a pause is its own idea of what was given out.)
    pub fn remove(&self, places: &[(&str, u32)]) -> Result<()> {
        let list = List::of(places.iter().map(|(topic, partition)| (*topic, *partition, 0)))?;
        // SAFETY: the list lives during the call.
        let error = unsafe { c::rd_kafka_incremental_unassign(self.client.rk(), list.0) };
        match crate::producer::failure_of(error) {
            None => Ok(()),
            Some(fault) => Err(self.client.because(fault).error("reading fewer partitions")),
        }
    }

    /// Notes offsets for the tools that watch consumer groups; doesn't wait.
    pub fn note_offsets(&self, places: &[(String, u32, u64)]) -> Result<()> {
        let list =
            List::of(places.iter().map(|(topic, partition, offset)| (topic.as_str(), *partition, *offset as i64)))?;
        // SAFETY: the list lives during the call, which copies it.
        match Fault::of(unsafe { c::rd_kafka_commit(self.client.rk(), list.0, 1) }) {
            None => Ok(()),
            Some(fault) => Err(fault.error("noting offsets")),
        }
    }

    /// What its group's offsets are, and the words beside them; none where none was noted.
    pub fn noted_offsets(&self, places: &[(&str, u32)]) -> Result<Vec<Option<(u64, String)>>> {
        let list =
            List::of(places.iter().map(|(topic, partition)| (*topic, *partition, c::RD_KAFKA_OFFSET_INVALID as i64)))?;
        // SAFETY: the list lives during the call and keeps its order; so many entries were added to it.
        unsafe {
            if let Some(fault) = Fault::of(c::rd_kafka_committed(self.client.rk(), list.0, ANSWER_MS)) {
                return Err(self.client.because(fault).error("asking for a group's offsets"));
            }
            let (offsets, words) =
                (list.offsets(places.len(), "asking for a group's offsets")?, list.words(places.len()));
            Ok(offsets.into_iter().zip(words).map(|(offset, words)| Some((offset?, words))).collect())
        }
    }

    /// Of each partition the first message of this time (milliseconds since 1970 UTC) or later; none: there is none.
    pub fn offsets_of_time(&self, places: &[(&str, u32)], at_ms: i64) -> Result<Vec<Option<u64>>> {
        let list = List::of(places.iter().map(|(topic, partition)| (*topic, *partition, at_ms)))?;
        // SAFETY: as above.
        unsafe {
            if let Some(fault) = Fault::of(c::rd_kafka_offsets_for_times(self.client.rk(), list.0, ANSWER_MS)) {
                return Err(self.client.because(fault).error("asking for the offsets of a time"));
            }
            list.offsets(places.len(), "asking for the offsets of a time")
        }
    }

    /// Waits up to `wait` for something and gives out what is there by then. Returns how much that was.
    pub fn poll(&mut self, wait: Duration, mut each: impl FnMut(Event<'_>) -> Result<()>) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the first call waits for one message, the second takes what else is there; every message is destroyed
        // exactly once, and nothing of it outlives that.
        unsafe {
            let first = c::rd_kafka_consume_queue(self.queue.0, wait.as_millis() as c_int);
            if !first.is_null() {
                self.room[0] = first;
                let more = c::rd_kafka_consume_batch_queue(self.queue.0, 0, self.room.as_mut_ptr().add(1), BATCH - 1);
                count = 1 + more.max(0) as usize;
            }
        }
        let mut outcome = Ok(());
        for message in &self.room[..count] {
            // SAFETY: see above.
            unsafe {
                if outcome.is_ok() {
                    outcome = each(event(&**message));
                }
                c::rd_kafka_message_destroy(*message);
            }
        }
        outcome.map(|()| count)
    }
}

/// SAFETY: a message as librdkafka gives it; what is returned lives as long as it.
unsafe fn event(m: &c::rd_kafka_message_t) -> Event<'_> {
    let topic = (!m.rkt.is_null()).then(|| CStr::from_ptr(c::rd_kafka_topic_name(m.rkt)).to_str().unwrap_or(""));
    let partition = m.partition.max(0) as u32;
    if let Some(fault) = Fault::of(m.err) {
        if fault.is_end_of_partition() {
            return Event::End { topic: topic.unwrap_or(""), partition, offset: m.offset.max(0) as u64 };
        }
        let told = (!m.payload.is_null() && m.len > 0)
            .then(|| String::from_utf8_lossy(std::slice::from_raw_parts(m.payload as *const u8, m.len)).into_owned());
        let fault = match told {
            Some(text) => Fault::known(m.err as c_int, text),
            None => fault,
        };
        return Event::Failed { topic, partition, fault };
    }
    Event::Message {
        topic: topic.unwrap_or(""),
        partition,
        offset: m.offset.max(0) as u64,
        key: slice(m.key, m.key_len),
        value: slice(m.payload, m.len).unwrap_or(&[]),
        header: header(m, HEADER),
        others: Headers(m),
        timestamp_ms: c::rd_kafka_message_timestamp(
            m,
            &mut c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE,
        ),
    }
}

unsafe fn slice<'a>(start: *mut c_void, len: usize) -> Option<&'a [u8]> {
    (!start.is_null()).then(|| std::slice::from_raw_parts(start as *const u8, len))
}

unsafe fn header<'a>(m: &'a c::rd_kafka_message_t, name: &CStr) -> Option<&'a [u8]> {
    let mut headers = null_mut();
    Fault::of(c::rd_kafka_message_headers(m, &mut headers)).is_none().then_some(())?;
    let (mut value, mut len) = (null(), 0);
    Fault::of(c::rd_kafka_header_get_last(headers, name.as_ptr(), &mut value, &mut len)).is_none().then_some(())?;
    // A header without a value is there all the same.
    Some(slice(value as *mut c_void, len).unwrap_or(&[]))
}

/// A list of partitions in librdkafka's form.
pub(crate) struct List(*mut c::rd_kafka_topic_partition_list_t);

impl List {
    pub fn raw(&self) -> *mut c::rd_kafka_topic_partition_list_t {
        self.0
    }

    /// With words of ours beside offsets that are noted.
    pub fn with_words<'a>(places: impl ExactSizeIterator<Item = (&'a str, u32, u64, Option<String>)>) -> Result<List> {
        let places: Vec<_> = places.collect();
        let list = List::of(places.iter().map(|(topic, partition, offset, _)| (*topic, *partition, *offset as i64)))?;
        // SAFETY: so many entries were added, in this order. librdkafka frees the words with the list, as it would its own.
        unsafe {
            for (i, words) in places.iter().enumerate().filter_map(|(i, place)| Some((i, place.3.as_ref()?))) {
                let room = c::rd_kafka_mem_malloc(null_mut(), words.len());
                if !room.is_null() {
                    std::ptr::copy_nonoverlapping(words.as_ptr(), room as *mut u8, words.len());
                    let entry = &mut *(*list.0).elems.add(i);
                    (entry.metadata, entry.metadata_size) = (room, words.len());
                }
            }
        }
        Ok(list)
    }

    pub fn of<'a>(places: impl ExactSizeIterator<Item = (&'a str, u32, i64)>) -> Result<List> {
        // SAFETY: the list is ours; names are copied.
        let list = List(unsafe { c::rd_kafka_topic_partition_list_new(places.len() as c_int) });
        for (topic, partition, offset) in places {
            let name = c_name(topic)?;
            unsafe { (*c::rd_kafka_topic_partition_list_add(list.0, name.as_ptr(), partition as i32)).offset = offset };
        }
        Ok(list)
    }

    /// The words beside offsets. SAFETY: so many entries were added, and nothing else changes the list.
    unsafe fn words(&self, count: usize) -> Vec<String> {
        if count == 0 {
            return Vec::new();
        }
        let entries = std::slice::from_raw_parts((*self.0).elems, count);
        let words = |entry: &c::rd_kafka_topic_partition_t| match slice(entry.metadata, entry.metadata_size) {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => String::new(),
        };
        entries.iter().map(words).collect()
    }

    /// What librdkafka has put there. SAFETY: so many entries were added, and nothing else changes the list.
    unsafe fn offsets(&self, count: usize, doing: &str) -> Result<Vec<Option<u64>>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let entries = std::slice::from_raw_parts((*self.0).elems, count);
        match entries.iter().find_map(|entry| Fault::of(entry.err)) {
            Some(fault) => Err(fault.error(doing)),
            // Negative: none.
            None => Ok(entries.iter().map(|entry| u64::try_from(entry.offset).ok()).collect()),
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { c::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}
