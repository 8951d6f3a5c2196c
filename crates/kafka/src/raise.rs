//! Topics that take smaller messages than `max_message`: they were made when it was less.

use crate::client::{c_name, Client, ANSWER_MS};
use crate::error::Fault;
use rdkafka::bindings as c;
use std::ffi::{c_char, CStr};
use tidewire_change::Result;

/// Sets one setting of a topic and leaves its others. Blocks.
pub(crate) fn set(client: &Client, topic: &str, key: &CStr, value: &str) -> Result<()> {
    let (name, value) = (c_name(topic)?, c_name(value)?);
    // SAFETY: everything that is made here is destroyed here, the answer after it was read.
    let fault = unsafe {
        let rk = client.rk();
        let mut resource =
            c::rd_kafka_ConfigResource_new(c::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC, name.as_ptr());
        let set = c::rd_kafka_AlterConfigOpType_t::RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET;
        let told = c::rd_kafka_ConfigResource_add_incremental_config(resource, key.as_ptr(), set, value.as_ptr());
        let refused = crate::producer::failure_of(told);
        let options =
            c::rd_kafka_AdminOptions_new(rk, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS);
        let mut text = [0 as c_char; 256];
        c::rd_kafka_AdminOptions_set_request_timeout(options, ANSWER_MS, text.as_mut_ptr(), text.len());
        let queue = c::rd_kafka_queue_new(rk);
        let fault = match refused {
            Some(fault) => Some(fault),
            None => {
                c::rd_kafka_IncrementalAlterConfigs(rk, &mut resource, 1, options, queue);
                outcome(c::rd_kafka_queue_poll(queue, 2 * ANSWER_MS))
            }
        };
        c::rd_kafka_queue_destroy(queue);
        c::rd_kafka_AdminOptions_destroy(options);
        c::rd_kafka_ConfigResource_destroy(resource);
        fault
    };
    match fault {
        None => Ok(()),
        Some(fault) => Err(client.because(fault).error(format!("topic {topic}"))),
    }
}

/// SAFETY: an event that came of `rd_kafka_IncrementalAlterConfigs`, or none.
unsafe fn outcome(event: *mut c::rd_kafka_event_t) -> Option<Fault> {
    if event.is_null() {
        return Fault::of(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT);
    }
    let mut fault = Fault::of(c::rd_kafka_event_error(event));
    let result = c::rd_kafka_event_IncrementalAlterConfigs_result(event);
    if fault.is_none() && !result.is_null() {
        let mut count = 0;
        let resources = c::rd_kafka_IncrementalAlterConfigs_result_resources(result, &mut count);
        fault = (0..count).find_map(|at| Fault::of(c::rd_kafka_ConfigResource_error(*resources.add(at))));
    }
    c::rd_kafka_event_destroy(event);
    fault
}
