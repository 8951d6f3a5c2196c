//! Which topic it is: one that was deleted and made anew has its name and another id (KIP-516).

use crate::client::{c_name, Client};
use crate::error::Fault;
use rdkafka::bindings as c;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, CStr};
use std::time::Duration;
use tidewire_change::Result;

/// The topics of these that are there, each with its id; none: the brokers don't tell ids (before Kafka 2.8). Blocks, but not
/// for longer than `wait`.
pub(crate) fn topic_ids(client: &Client, topics: &[&str], wait: Duration) -> Result<HashMap<String, Option<u64>>> {
    if topics.is_empty() {
        return Ok(HashMap::new());
    }
    client.find_controller();
    let wait_ms = wait.as_millis() as c_int;
    let names = topics.iter().map(|name| c_name(name)).collect::<Result<Vec<_>>>()?;
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: the names live during the call that copies them; everything that is made here is destroyed here, the answer after it
    // was read.
    let found = unsafe {
        let rk = client.rk();
        let wanted = c::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options = c::rd_kafka_AdminOptions_new(rk, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        let mut text = [0 as c_char; 256];
        c::rd_kafka_AdminOptions_set_request_timeout(options, wait_ms, text.as_mut_ptr(), text.len());
        let queue = c::rd_kafka_queue_new(rk);
        c::rd_kafka_DescribeTopics(rk, wanted, options, queue);
        let event = c::rd_kafka_queue_poll(queue, 2 * wait_ms);
        let found = match event.is_null() {
            true => Err(Fault::of(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT)),
            false => answer(event),
        };
        if !event.is_null() {
            c::rd_kafka_event_destroy(event);
        }
        c::rd_kafka_queue_destroy(queue);
        c::rd_kafka_AdminOptions_destroy(options);
        c::rd_kafka_TopicCollection_destroy(wanted);
        found
    };
    match found {
        Ok(found) => Ok(found),
        Err(fault) => {
            let fault = fault.unwrap_or_else(|| Fault::known(-1, "no answer".to_string()));
            Err(client.because(fault).error("asking Kafka which topics there are"))
        }
    }
}

/// SAFETY: an event that came of `rd_kafka_DescribeTopics`.
unsafe fn answer(event: *mut c::rd_kafka_event_t) -> Result<HashMap<String, Option<u64>>, Option<Fault>> {
    if let Some(fault) = Fault::of(c::rd_kafka_event_error(event)) {
        return Err(Some(fault));
    }
    let result = c::rd_kafka_event_DescribeTopics_result(event);
    if result.is_null() {
        return Err(None);
    }
    let mut count = 0;
    let topics = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
    let mut found = HashMap::new();
    for at in 0..count {
        let topic = *topics.add(at);
        let fault = Fault::of(c::rd_kafka_error_code(c::rd_kafka_TopicDescription_error(topic)));
        match fault {
            Some(fault) if fault.is_unknown_topic() => continue,
            Some(fault) => return Err(Some(fault)),
            None => {}
        }
        let name = CStr::from_ptr(c::rd_kafka_TopicDescription_name(topic)).to_string_lossy().into_owned();
        let id = c::rd_kafka_TopicDescription_topic_id(topic);
        let bits = (!id.is_null()).then(|| {
            let (high, low) = (c::rd_kafka_Uuid_most_significant_bits(id), c::rd_kafka_Uuid_least_significant_bits(id));
            (high ^ low.rotate_left(1)) as u64
        });
        found.insert(name, bits.filter(|bits| *bits != 0));
    }
    Ok(found)
}
