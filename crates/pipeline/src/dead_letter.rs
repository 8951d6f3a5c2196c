use crate::collect::Attempts;
use serde::{Deserialize, Serialize};
use tidewire_change::{Error, Message, Result};
use tidewire_connector::FetchedMessage;

/// The topic of messages that could not be delivered.
pub const DEAD_LETTERS: &str = "__dead_letters";

/// What is kept of a message that a sink could not take: enough to find it, to see why, and to deliver it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
    pub sink: String,
    pub table: Option<String>,
    pub reason: String,
    pub attempts: u32,
    /// Wall times of the first and the last attempt, microseconds since 1970 UTC.
    pub first: i64,
    pub last: i64,
    /// The message as it lay on the bus, base64 (RFC 4648, padded).
    pub key: String,
    pub value: String,
}

impl DeadLetter {
    pub(crate) fn of(message: &FetchedMessage, sink: &str, error: &Error, attempts: Attempts) -> Self {
        DeadLetter {
            topic: message.topic.to_string(),
            partition: message.partition,
            offset: message.offset,
            sink: sink.to_string(),
            table: error.table().map(str::to_string),
            reason: error.to_string(),
            attempts: attempts.count,
            first: attempts.first,
            last: attempts.last,
            key: base64(&message.key),
            value: base64(&message.value),
        }
    }

    /// One per sink and place on the bus, however often it is written.
    pub(crate) fn message(&self, now: i64) -> Result<Message> {
        let json = serde_json::to_vec(self).map_err(|e| Error::bug("a dead letter has no JSON form").caused_by(e))?;
        Ok(Message {
            topic: DEAD_LETTERS.into(),
            partition: 0,
            key: format!("{}/{}/{}/{}", self.sink, self.topic, self.partition, self.offset).into(),
            value: json.into(),
            timestamp: now,
        })
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            match digit <= three.len() {
                true => text.push(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] as char),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_gives_the_vectors_of_rfc_4648() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in vectors {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }
}
