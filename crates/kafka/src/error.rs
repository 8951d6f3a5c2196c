//! librdkafka's codes as our errors.

use rdkafka::bindings as c;
use std::ffi::{c_int, CStr};
use tidewire_change::{Error, ErrorKind};

/// One error of librdkafka or of a broker.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    code: c_int,
    text: String,
}

const ALL_BROKERS_DOWN: c_int = -187;
const AUTHENTICATION: c_int = -169;
const SSL: c_int = -181;
const RESOLVE: c_int = -193;
const TIMED_OUT: c_int = -185;
const TRANSPORT: c_int = -195;
const FATAL: c_int = -150;
const FENCED: c_int = -144;
const UNKNOWN_PARTITION: c_int = -190;
const UNKNOWN_TOPIC: c_int = -188;
const QUEUE_FULL: c_int = -184;
const MESSAGE_TIMED_OUT: c_int = -192;
const AUTO_OFFSET_RESET: c_int = -140;
const PARTITION_EOF: c_int = -191;

/// What a message needs beside key and value, at most.
pub(crate) const MORE_BYTES: usize = 65_536;

impl Fault {
    /// None: no error.
    pub fn of(code: c::rd_kafka_resp_err_t) -> Option<Fault> {
        let number = code as c_int;
        // SAFETY: gives a static string for any code.
        let text = unsafe { CStr::from_ptr(c::rd_kafka_err2str(code)) };
        (number != 0).then(|| Fault { code: number, text: text.to_string_lossy().into_owned() })
    }

    pub fn known(code: c_int, text: String) -> Fault {
        Fault { code, text }
    }

    /// With the topic, and what about the message is refused.
    pub fn of_message(self, topic: &str, bytes: usize) -> Fault {
        let text = match self.is_too_large() {
            true => format!(
                "{}: a message of {bytes} bytes for the topic {topic}, whose max.message.bytes is less (kafka-configs --alter \
                 --entity-type topics --entity-name {topic} --add-config max.message.bytes={})",
                self.text,
                bytes + MORE_BYTES
            ),
            false => return self.of_topic(topic),
        };
        Fault { text, ..self }
    }

    pub fn of_topic(self, topic: &str) -> Fault {
        Fault { text: format!("{} (topic {topic})", self.text), ..self }
    }

    /// As a group's coordinator means it.
    pub fn of_group(&self) -> Fault {
        let text = match self.code {
            26 => format!("{}: the brokers take no session_timeout as bus.kafka.group has it", self.text),
            82 => format!("{}: another process has bus.kafka.group.instance, too", self.text),
            _ => self.text.clone(),
        };
        Fault { text, code: self.code }
    }

    pub fn is_too_large(&self) -> bool {
        // 10: MSG_SIZE_TOO_LARGE, 18: RECORD_LIST_TOO_LARGE
        matches!(self.code, 10 | 18)
    }

    pub fn is_unknown_topic(&self) -> bool {
        // 3: UNKNOWN_TOPIC_OR_PARTITION
        matches!(self.code, 3 | UNKNOWN_PARTITION | UNKNOWN_TOPIC)
    }

    pub fn is_end_of_partition(&self) -> bool {
        self.code == PARTITION_EOF
    }

    /// The offset wanted isn't there (any more).
    pub fn is_out_of_range(&self) -> bool {
        // 1: OFFSET_OUT_OF_RANGE
        matches!(self.code, 1 | AUTO_OFFSET_RESET)
    }

    /// A broker was asked that leads the partition no more, or not yet.
    pub fn is_of_leader(&self) -> bool {
        // 5: LEADER_NOT_AVAILABLE, 6: NOT_LEADER_OR_FOLLOWER, 74 and 75: its epoch, 78: OFFSET_NOT_AVAILABLE
        matches!(self.code, 5 | 6 | 74 | 75 | 78)
    }

    pub fn is_queue_full(&self) -> bool {
        self.code == QUEUE_FULL
    }

    /// Another producer with our transactional id has begun, or the coordinator takes us for dead.
    pub fn is_fenced(&self) -> bool {
        // 47: INVALID_PRODUCER_EPOCH, 90: PRODUCER_FENCED, 49: INVALID_PRODUCER_ID_MAPPING
        matches!(self.code, FENCED | 47 | 49 | 90)
    }

    pub fn is_vague(&self) -> bool {
        matches!(self.code, TIMED_OUT | TRANSPORT | ALL_BROKERS_DOWN)
    }

    /// The broker was reached, and broke off since one speaks TLS there and the other doesn't: librdkafka asks about a `listener?`.
    pub fn is_of_encryption(&self) -> bool {
        self.code == TRANSPORT && self.text.contains(" listener?")
    }

    /// One connection's TLS: a network or a broker that goes away breaks it off as well as a wrong certificate.
    pub fn is_of_handshake(&self) -> bool {
        self.code == SSL || self.is_of_encryption()
    }

    /// No broker is reached.
    pub fn is_without_brokers(&self) -> bool {
        self.code == ALL_BROKERS_DOWN
    }

    /// It is told to everybody who waits for the client; a single connection that is lost isn't.
    pub fn concerns_the_client(&self) -> bool {
        self.is_of_handshake()
            || matches!(self.code, ALL_BROKERS_DOWN | AUTHENTICATION | FATAL)
            || self.kind() == ErrorKind::Invalid
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            AUTHENTICATION | SSL => ErrorKind::Invalid,
            // Rights, names, sizes and settings that the broker refuses: it says the same the next time.
            10 | 17 | 18 | 29 | 30 | 31 | 33 | 34 | 35 | 38 | 40 | 42 | 44 | 53 | 54 | 58 | 65 => ErrorKind::Invalid,
            // INVALID_TIMESTAMP, INVALID_RECORD
            32 | 87 => ErrorKind::Invalid,
            // INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, FENCED_INSTANCE_ID
            23 | 26 | 82 => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        }
    }

    fn hint(&self) -> &'static str {
        match self.code {
            AUTHENTICATION | 58 | 33 | 34 => "check sasl.mechanism, sasl.user and sasl.password in bus.kafka",
            SSL => {
                "check bus.kafka.tls: the authority's certificate, and that the name in `brokers` is in the broker's"
            }
            29 | 30 | 31 | 53 => {
                "give the user rights on the topics, the transactional id and the groups of the pipeline"
            }
            10 | 18 => {
                "raise the topic's max.message.bytes (and the brokers' message.max.bytes), or leave the table out"
            }
            38 => "set bus.kafka.replication to at most the number of brokers",
            TRANSPORT if self.is_of_encryption() => {
                "does Kafka speak TLS at bus.kafka.brokers? With TLS bus.kafka.tls has to be there, without it not"
            }
            ALL_BROKERS_DOWN | TRANSPORT | TIMED_OUT | RESOLVE => "is Kafka up, and bus.kafka.brokers its address?",
            // 5: LEADER_NOT_AVAILABLE, 19 and 20: NOT_ENOUGH_REPLICAS, 56: KAFKA_STORAGE_ERROR
            5 | 19 | 20 | 56 | MESSAGE_TIMED_OUT => {
                "look at the brokers: is one down, a disk full, are fewer replicas in sync than min.insync.replicas? What they \
                 don't acknowledge is sent again"
            }
            3 | UNKNOWN_TOPIC | UNKNOWN_PARTITION => {
                "was the topic deleted? the process that captures makes it anew, and its table is compared and mended, if the source is a database"
            }
            23 => "the group has members that aren't tidewire's: give the sink or the pipeline another name",
            26 => "raise bus.kafka.group.session_timeout, or lower the brokers' group.min.session.timeout.ms (6000 without a word)",
            82 => "give each process of the sink an `instance` of its own, such as ${HOSTNAME}",
            32 => "the topic's settings refuse the messages: compare them with those of topics that tidewire made",
            _ => "",
        }
    }

    pub fn error(&self, place: impl Into<String>) -> Error {
        let what = match self.code {
            // 58: SASL_AUTHENTICATION_FAILED
            AUTHENTICATION | 58 => format!("Kafka refused the login: {}", self.text),
            _ => format!("Kafka: {}", self.text),
        };
        let error = Error::new(self.kind(), what).context(place);
        match self.hint() {
            "" => error,
            hint => error.hint(hint),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// An error of the administrative calls.
pub(crate) fn of_wrapper(error: &rdkafka::error::KafkaError, place: impl Into<String>) -> Error {
    let code = match error {
        rdkafka::error::KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    match code {
        Some(code) => Fault { code: code as c_int, text: code.to_string() }.error(place),
        None => Error::unavailable(format!("Kafka: {error}")).context(place),
    }
}

/// A sink's reader lacks what comes next.
pub(crate) fn lost(what: impl Into<String>, group: &str) -> Error {
    Error::lost(what)
        .context(format!("reader {group}"))
        .hint("the sink is compared with the source and mended, if that is a database")
}
