use crate::collect::Attempts;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewire_change::{Error, Message, Result};
use tidewire_connector::{BusWriter, FetchedMessage, Rejected};

/// The topic of messages that could not be delivered.
pub const DEAD_LETTERS: &str = "__dead_letters";

/// In a sink's place, of a message that the source couldn't read. No sink may be called so.
pub const OF_SOURCE: &str = "(source)";

/// What is kept of a message that a sink could not take, or the source not read: enough to find it, to see why, and to deliver it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub topic: String,
    /// How often a topic of the source was made anew before it: its offsets began anew, too.
    #[serde(default, skip_serializing_if = "is_first")]
    pub life: u32,
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

fn is_first(life: &u32) -> bool {
    *life == 0
}

impl DeadLetter {
    pub(crate) fn of(message: &FetchedMessage, sink: &str, error: &Error, attempts: Attempts) -> Self {
        DeadLetter {
            topic: message.topic.to_string(),
            life: 0,
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

    /// Of a message that lies where the source reads, not on the bus.
    pub(crate) fn of_source(rejected: &Rejected, now: i64) -> Self {
        DeadLetter {
            topic: rejected.topic.clone(),
            life: rejected.life,
            partition: rejected.partition,
            offset: rejected.offset,
            sink: OF_SOURCE.to_string(),
            table: rejected.table.clone(),
            reason: rejected.reason.clone(),
            attempts: 1,
            first: now,
            last: now,
            key: base64(&rejected.key),
            value: base64(&rejected.value),
        }
    }

    /// Names it: one per sink and place on the bus.
    pub fn id(&self) -> String {
        let DeadLetter { sink, topic, life, partition, offset, .. } = self;
        let anew = if is_first(life) { String::new() } else { format!("@{life}") };
        format!("{sink}/{topic}/{partition}/{offset}{anew}")
    }

    /// However often it is written, it is one.
    pub(crate) fn message(&self, now: i64) -> Result<Message> {
        let json = serde_json::to_vec(self).map_err(|e| Error::bug("a dead letter has no JSON form").caused_by(e))?;
        Ok(Message { value: json.into(), ..self.done(now) })
    }

    /// Says that it is none any more.
    pub fn done(&self, now: i64) -> Message {
        let (topic, key) = (DEAD_LETTERS.into(), self.id().into());
        Message { topic, partition: 0, key, value: Bytes::new(), timestamp: now }
    }

    /// Those that there are, of all messages of their topic, oldest first. What isn't one is passed over.
    pub fn of_topic(messages: &[FetchedMessage]) -> Vec<DeadLetter> {
        let mut last: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (at, message) in messages.iter().enumerate() {
            last.insert(&message.key, at);
        }
        let mut those: Vec<usize> = last.into_values().collect();
        those.sort_unstable();
        those.into_iter().filter_map(|at| serde_json::from_slice(&messages[at].value).ok()).collect()
    }

    pub(crate) async fn load(bus: &dyn BusWriter) -> Result<Vec<DeadLetter>> {
        Ok(Self::of_topic(&bus.read_topic(DEAD_LETTERS).await?))
    }

    /// The message as it came from the bus.
    pub fn fetched(&self) -> Result<FetchedMessage> {
        let bytes = |text: &str| -> Result<Bytes> {
            let broken = || Error::malformed(format!("the dead letter {} isn't whole", self.id()));
            Ok(Bytes::from(of_base64(text).ok_or_else(broken)?))
        };
        Ok(FetchedMessage {
            topic: self.topic.as_str().into(),
            partition: self.partition,
            offset: self.offset,
            key: bytes(&self.key)?,
            value: bytes(&self.value)?,
            timestamp: self.first,
        })
    }
}

fn of_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let four = |chunk: &[u8]| -> Option<(u32, usize)> {
        let padding = chunk.iter().rev().take_while(|byte| **byte == b'=').count();
        let digits = chunk.iter().take(4 - padding.min(2)).map(|byte| DIGITS.iter().position(|digit| digit == byte));
        let bits = digits.into_iter().try_fold(0u32, |bits, digit| Some(bits << 6 | digit? as u32))?;
        (chunk.len() == 4 && padding <= 2).then_some((bits << (6 * padding), 3 - padding))
    };
    for chunk in text.as_bytes().chunks(4) {
        let (bits, count) = four(chunk)?;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..1 + count]);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
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
            assert_eq!(of_base64(coded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
        for broken in ["Z", "Zg=", "Z===", "Zg==Zg=", "Z-==", "====", "Zm9v="] {
            assert_eq!(of_base64(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_letter_that_is_done_is_none_any_more_and_one_written_twice_is_one() {
        let letter = |offset| DeadLetter {
            life: 0,
            topic: "s.t".into(),
            partition: 1,
            offset,
            sink: "lake".into(),
            table: None,
            reason: "why".into(),
            attempts: 1,
            first: 2,
            last: 3,
            key: base64(b"k"),
            value: base64(b"v"),
        };
        let messages = [letter(1).message(9), letter(2).message(9), Ok(letter(1).done(9)), letter(2).message(9)];
        let fetched = |message: Result<Message>| {
            let Message { topic, partition, key, value, timestamp } = message.unwrap();
            FetchedMessage { topic, partition, offset: 0, key, value, timestamp }
        };
        let letters = DeadLetter::of_topic(&messages.map(fetched));
        assert_eq!(letters, [letter(2)]);
        let message = letters[0].fetched().unwrap();
        assert_eq!((&message.key[..], &message.value[..], message.offset), (&b"k"[..], &b"v"[..], 2));
    }

    #[test]
    fn letters_of_a_topic_that_was_made_anew_are_others_though_they_lie_at_the_same_place() {
        let of_life = |life| {
            let rejected = Rejected {
                topic: "s.public.t".into(),
                life,
                partition: 0,
                offset: 7,
                key: Bytes::new(),
                value: Bytes::copy_from_slice(life.to_string().as_bytes()),
                table: None,
                reason: "why".into(),
                timestamp: 1,
            };
            DeadLetter::of_source(&rejected, 1)
        };
        let (first, second) = (of_life(0), of_life(1));
        assert_eq!((first.id(), second.id()), ("(source)/s.public.t/0/7".into(), "(source)/s.public.t/0/7@1".into()));
        let read =
            |letter: &DeadLetter| -> DeadLetter { serde_json::from_slice(&letter.message(1).unwrap().value).unwrap() };
        assert_eq!([read(&first), read(&second)], [first, second]);
    }
}
