//! Dead letters have the headers that Kafka Connect gives its own, for tools that look for them. What they say stands in the letter, too.

use crate::names::kafka_topic;
use crate::records;
use serde::Deserialize;
use std::ffi::CStr;
use tidewire_change::Message;

/// Our topic of dead letters.
pub(crate) const DEAD_LETTERS: &str = "__dead_letters";

pub(crate) type Headers = Vec<(&'static CStr, String)>;

/// What the headers tell of a letter.
#[derive(Deserialize)]
struct Letter {
    topic: String,
    partition: u32,
    offset: u64,
    sink: String,
    reason: String,
}

/// Of a message that is a dead letter; none has others. A tombstone has none.
pub(crate) fn headers(prefix: &str, message: &Message) -> Headers {
    if &*message.topic != DEAD_LETTERS {
        return Headers::new();
    }
    let Ok(letter) = serde_json::from_slice::<Letter>(&message.value) else { return Headers::new() };
    vec![
        (c"__connect.errors.topic", kafka_topic(prefix, &letter.topic)),
        (c"__connect.errors.partition", letter.partition.to_string()),
        (c"__connect.errors.offset", records::of_life(letter.offset).1.to_string()),
        (c"__connect.errors.connector.name", letter.sink),
        (c"__connect.errors.task.id", "0".to_string()),
        (c"__connect.errors.stage", "TASK_PUT".to_string()),
        (c"__connect.errors.class.name", "tidewire.Sink".to_string()),
        (c"__connect.errors.exception.class.name", "tidewire.Malformed".to_string()),
        (c"__connect.errors.exception.message", letter.reason),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_tells_its_origin_in_connects_headers_and_other_messages_have_none() {
        let value = br#"{"topic":"public.a b","partition":3,"offset":17592186044423,"sink":"lake","table":null,"reason":"why","attempts":3}"#;
        let message = |topic: &str, value: &[u8]| Message {
            topic: topic.into(),
            partition: 0,
            key: "k".into(),
            value: value.to_vec().into(),
            timestamp: 0,
        };
        let told = headers("shop", &message("__dead_letters", value));
        let of = |name: &CStr| told.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(of(c"__connect.errors.topic"), Some("shop.public.a_b"));
        assert_eq!(of(c"__connect.errors.offset"), Some("7"), "Kafka's, without the topic's life");
        assert_eq!(of(c"__connect.errors.exception.message"), Some("why"));
        assert_eq!(told.len(), 9);
        assert!(headers("shop", &message("__dead_letters", b"")).is_empty());
        assert!(headers("shop", &message("__repairs", value)).is_empty());
    }
}
