//! Topics in Avro, Protobuf and JSON Schema: which schema a message was written under, and what the registry says of it.

use super::reading::Record;
use super::references::{whole, Whole, UNKNOWN};
use super::source::TopicsSource;
use crate::protobuf;
use crate::registry::{is_absent, Ask};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tidewire_envelope::debezium::protobuf::ProtobufWriter;
use tidewire_envelope::debezium::AvroWriter;

/// Names a schema in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reference {
    Id(u32),
    Guid([u8; 16]),
}

impl Reference {
    /// As it stands before a message, or in a header; and what follows.
    pub fn take(bytes: &[u8]) -> Option<(Reference, &[u8])> {
        match bytes {
            [0, a, b, c, d, rest @ ..] => Some((Reference::Id(u32::from_be_bytes([*a, *b, *c, *d])), rest)),
            [1, rest @ ..] => rest.split_first_chunk().map(|(guid, rest)| (Reference::Guid(*guid), rest)),
            _ => None,
        }
    }

    fn path(&self) -> String {
        match self {
            Reference::Id(id) => format!("/schemas/ids/{id}"),
            Reference::Guid(guid) => {
                let hex: String = guid.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("/schemas/guids/{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path().rsplit('/').next().unwrap_or_default())
    }
}

/// What a header says: the schema, and what follows it.
pub(super) type Header = (Reference, Bytes);

/// A registered schema, read once.
enum Registered {
    Avro(Arc<AvroWriter>),
    /// The types of a union, by their places in it: messages of several schemas in one topic.
    OneOf(Vec<Arc<AvroWriter>>),
    /// The messages of a file by their places in it.
    Protobuf(BTreeMap<Vec<u32>, Result<Arc<ProtobufWriter>, String>>),
    /// It says what is allowed in a message, which is JSON.
    Json,
}

/// The schemas that messages named; a text: why one can't be used.
#[derive(Default)]
pub(super) struct Writers(HashMap<Reference, Result<Registered, String>>);

/// What a part of a message was written under.
pub(super) enum Writer {
    Avro(Arc<AvroWriter>),
    Protobuf(Arc<ProtobufWriter>),
    Json,
}

pub(super) struct Part<'a> {
    pub writer: Writer,
    pub body: &'a [u8],
}

impl Part<'_> {
    /// It is the key that Tidewire gives a message without one: no column's.
    pub fn is_position(&self) -> bool {
        match &self.writer {
            Writer::Avro(writer) => writer.is_position(),
            Writer::Protobuf(writer) => writer.is_position(),
            Writer::Json => false,
        }
    }

    /// Appends it as JSON. `passes_over`: fields that its schema hasn't are.
    pub fn json(&self, passes_over: bool, out: &mut Vec<u8>) -> Result<()> {
        match &self.writer {
            Writer::Avro(writer) => writer.json(self.body, out),
            Writer::Protobuf(writer) => writer.json(self.body, passes_over, out),
            Writer::Json => {
                out.extend_from_slice(self.body);
                Ok(())
            }
        }
    }
}

impl Writers {
    /// The reference in a part of a message, and its body. `header`: who has one there has none before the message.
    fn split<'a>(header: &Option<Header>, bytes: &'a [u8]) -> Option<(Reference, &'a [u8])> {
        match header {
            Some((reference, _)) => Some((*reference, bytes)),
            None => Reference::take(bytes),
        }
    }

    /// One that has to be asked for first.
    pub fn lacks(&self, record: &Record) -> Option<Reference> {
        let key = record.key.as_deref().filter(|key| !key.is_empty()).map(|key| (&record.headers[0], key));
        let value = (!record.value.is_empty()).then(|| (&record.headers[1], &record.value[..]));
        let named = [key, value].into_iter().flatten().filter_map(|(header, bytes)| Self::split(header, bytes));
        named.map(|(reference, _)| reference).find(|reference| !self.0.contains_key(reference))
    }

    /// `Malformed`: no schema is named, or it can't be used.
    pub fn part<'a>(&self, header: &Option<Header>, bytes: &'a [u8], what: &str) -> Result<Part<'a>> {
        let (reference, body) = Self::split(header, bytes).ok_or_else(|| {
            Error::malformed(format!("the {what} names no schema: it doesn't begin with a zero and an id"))
                .hint("topics in JSON are read without source.debezium.registry")
        })?;
        let unread = |why: &str| Error::malformed(format!("the schema {reference} of the {what}: {why}"));
        let messages = match self.0.get(&reference) {
            Some(Ok(Registered::Avro(writer))) => return Ok(Part { writer: Writer::Avro(writer.clone()), body }),
            Some(Ok(Registered::OneOf(writers))) => {
                let chosen = zigzag(body).and_then(|(at, body)| Some((writers.get(at as usize)?, body)));
                let (writer, body) =
                    chosen.ok_or_else(|| unread("what follows it doesn't say which of its types it is"))?;
                return Ok(Part { writer: Writer::Avro(writer.clone()), body });
            }
            Some(Ok(Registered::Json)) => return Ok(Part { writer: Writer::Json, body }),
            Some(Ok(Registered::Protobuf(messages))) => messages,
            Some(Err(why)) => return Err(unread(why)),
            None => return Err(Error::bug(format!("nobody asked for the schema {reference}"))),
        };
        let broken = || unread("what follows it doesn't say which of its messages it is");
        let (path, body) = match header {
            // Nothing there: the first message.
            Some((_, rest)) if rest.is_empty() => (vec![0], body),
            Some((_, rest)) => (place(rest).ok_or_else(broken)?.0, body),
            None => place(body).ok_or_else(broken)?,
        };
        match messages.get(&path) {
            Some(Ok(writer)) => Ok(Part { writer: Writer::Protobuf(writer.clone()), body }),
            Some(Err(why)) => Err(unread(why)),
            None => Err(unread(&format!("it has no message at {path:?}, or maps stand around it"))),
        }
    }
}

/// The place of a message in its file, and what follows: how many numbers, and these; nothing for the first.
fn place(bytes: &[u8]) -> Option<(Vec<u32>, &[u8])> {
    const DEEPEST: u32 = 32;
    let (count, mut rest) = zigzag(bytes)?;
    if count == 0 {
        return Some((vec![0], rest));
    }
    let mut path = Vec::new();
    for _ in 0..(count <= DEEPEST).then_some(count)? {
        let (at, behind) = zigzag(rest)?;
        path.push(at);
        rest = behind;
    }
    Some((path, rest))
}

/// A number from 0.
fn zigzag(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let is_negative = number & 1 == 1;
            return Some((u32::try_from(number >> 1).ok().filter(|_| !is_negative)?, &bytes[at + 1..]));
        }
    }
    None
}

fn registered(of: &Whole) -> Result<Registered, String> {
    let writer = |message: Result<_, String>| {
        let writer = message.and_then(|message| ProtobufWriter::of(message).map_err(|error| error.to_string()));
        writer.map(Arc::new)
    };
    match of.schema_type.as_str() {
        "AVRO" => avro(of),
        "PROTOBUF" => {
            let messages = protobuf::messages(&of.text, &of.others()).map_err(|error| error.to_string())?;
            Ok(Registered::Protobuf(messages.into_iter().map(|(path, of)| (path, writer(of))).collect()))
        }
        "JSON" => Ok(Registered::Json),
        other => Err(format!("it is {other}, which is neither Avro nor Protobuf nor JSON Schema")),
    }
}

fn avro(of: &Whole) -> Result<Registered, String> {
    let mut others: Vec<&str> = of.others.iter().map(|(_, text)| text.as_str()).collect();
    let writer = |others: &[&str], text: &str| AvroWriter::among(others, text).map(Arc::new).map_err(|e| e.to_string());
    let Ok(serde_json::Value::Array(branches)) = serde_json::from_str(&of.text) else {
        return writer(&others, &of.text).map(Registered::Avro);
    };
    let branches: Vec<String> = branches.iter().map(serde_json::Value::to_string).collect();
    let mut writers = Vec::new();
    for branch in &branches {
        writers.push(writer(&others, branch)?);
        others.push(branch);
    }
    Ok(Registered::OneOf(writers))
}

impl TopicsSource {
    pub(super) async fn fetch(&mut self, reference: Reference) -> Result<()> {
        let Some(ask) = self.config.registry.clone() else { return Ok(()) };
        let found = whole(&ask, reference.path()).await;
        let found = found.map_err(|error| error.context(format!("asking for the schema {reference}")))?;
        if found.as_ref().is_err_and(|why| why == UNKNOWN) {
            let had = self.writers.0.iter().find(|(_, found)| found.is_ok()).map(|(known, _)| *known);
            is_emptied(&ask, reference, had).await?;
        }
        self.writers.0.insert(reference, found.and_then(|whole| registered(&whole)));
        Ok(())
    }
}

/// One schema may be unknown, and its messages are dead letters. A registry that has none at all, or no longer has those that it had, is
/// waited for: nothing of the topics is passed over for that. `had`: one that it had.
async fn is_emptied(ask: &Ask, reference: Reference, had: Option<Reference>) -> Result<()> {
    let is_emptied = match had {
        Some(known) => {
            let (status, answer) = ask("GET", known.path(), None).await?;
            is_absent(status, &answer)
        }
        None => {
            let (status, answer) = ask("GET", "/subjects?deleted=true".to_string(), None).await?;
            (200..=299).contains(&status) && answer.as_array().is_some_and(Vec::is_empty)
        }
    };
    match is_emptied {
        false => Ok(()),
        true => {
            let what = format!("the schema registry doesn't know the schema {reference} of a message, nor any other that it had: it was emptied, or is another one");
            Err(Error::unavailable(what).hint(
                "import what was exported of the registry (tidewire registry import), or name the right one: source.debezium.registry; it goes on by itself then",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_guids_are_taken_from_before_a_message() {
        assert_eq!(Reference::take(&[0, 0, 0, 1, 2, 9]), Some((Reference::Id(258), &[9u8][..])));
        let guid = [&[1][..], &[0xab; 16], &[7]].concat();
        let (reference, rest) = Reference::take(&guid).unwrap();
        assert_eq!((reference.to_string().as_str(), rest), ("abababab-abab-abab-abab-abababababab", &[7u8][..]));
        assert!(
            Reference::take(b"{\"id\":1}").is_none()
                && Reference::take(&[0, 1]).is_none()
                && Reference::take(&[1; 9]).is_none()
        );
    }

    #[test]
    fn the_place_of_a_message_in_its_file_is_taken_from_behind_the_id() {
        assert_eq!(place(&[0, 9]), Some((vec![0], &[9u8][..])));
        assert_eq!(place(&[2, 0, 9]), Some((vec![0], &[9u8][..])));
        assert_eq!(place(&[4, 2, 0x80, 2, 9]), Some((vec![1, 128], &[9u8][..])));
        for broken in [&[][..], &[2], &[1], &[2, 1], &[0x80], &[0xff; 9], &[66, 0]] {
            assert!(place(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn a_message_is_read_under_the_one_of_the_files_messages_that_it_names() {
        let file = "syntax = \"proto3\"; message A { int32 a = 1; } message B { message C { int32 c = 1; } }";
        let writers = Writers(HashMap::from([(Reference::Id(1), registered(&alone("PROTOBUF", file)))]));
        let json = |header: Option<Header>, bytes: &[u8]| {
            let mut out = Vec::new();
            writers
                .part(&header, bytes, "value")
                .and_then(|part| part.json(false, &mut out))
                .map_err(|e| e.to_string())?;
            Ok::<_, String>(String::from_utf8(out).unwrap())
        };
        let header = |rest: &'static [u8]| Some((Reference::Id(1), Bytes::from_static(rest)));
        assert_eq!(json(None, &[0, 0, 0, 0, 1, 0, 8, 7]).unwrap(), r#"{"a":7}"#);
        assert_eq!(json(None, &[0, 0, 0, 0, 1, 4, 2, 0, 8, 7]).unwrap(), r#"{"c":7}"#);
        assert_eq!(json(header(&[]), &[8, 7]).unwrap(), r#"{"a":7}"#);
        assert_eq!(json(header(&[4, 2, 0]), &[8, 7]).unwrap(), r#"{"c":7}"#);
        assert!(json(None, &[0, 0, 0, 0, 1, 2, 8, 7]).unwrap_err().contains("no message at [4]"));
        assert!(json(None, &[0, 0, 0, 0, 1]).unwrap_err().contains("which of its messages"));
        assert!(registered(&alone("XML", "<a/>")).err().unwrap().contains("neither Avro nor Protobuf"));
    }

    fn alone(schema_type: &str, text: &str) -> Whole {
        Whole { schema_type: schema_type.to_string(), text: text.to_string(), others: Vec::new() }
    }

    #[test]
    fn types_of_other_schemas_are_read_and_a_union_says_which_of_them_a_message_is() {
        let record = |name: &str, field: &str, of: &str| {
            format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"{field}","type":"{of}"}}]}}"#)
        };
        let others = [("x.A", record("x.A", "a", "int")), ("x.B", record("x.B", "of", "A"))];
        let others: Vec<(String, String)> = others.into_iter().map(|(name, text)| (name.to_string(), text)).collect();
        let whole = |text: &str| Whole { others: others.clone(), ..alone("AVRO", text) };
        let all =
            [whole(r#""x.B""#), whole(&format!(r#"["x.A", "x.B", {}]"#, record("C", "b", "x.B"))), alone("JSON", "{}")];
        let all = all.iter().zip(1..).map(|(whole, id)| (Reference::Id(id), registered(whole)));
        let writers = Writers(all.collect());
        let json = |id: u8, body: &[u8]| {
            let (bytes, mut out) = ([&[0, 0, 0, 0, id], body].concat(), Vec::new());
            let part = writers.part(&None, &bytes, "value").map_err(|e| e.to_string())?;
            part.json(false, &mut out).map_err(|e| e.to_string())?;
            Ok::<_, String>(String::from_utf8(out).unwrap())
        };
        assert_eq!(json(1, &[14]).unwrap(), r#"{"of":{"a":7}}"#);
        assert_eq!(json(2, &[0, 14]).unwrap(), r#"{"a":7}"#);
        assert_eq!(json(2, &[4, 14]).unwrap(), r#"{"b":{"of":{"a":7}}}"#);
        assert!(json(2, &[6, 14]).unwrap_err().contains("which of its types"));
        assert_eq!(json(3, b"{\"n\":1}").unwrap(), r#"{"n":1}"#);
        assert!(registered(&alone("AVRO", r#""x.B""#)).is_err());
    }
}
