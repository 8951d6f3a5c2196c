//! Topics in Avro: which schema a message was written under, and what the registry says of it.

use super::reading::Record;
use super::source::TopicsSource;
use crate::registry::refused;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{Error, Result};
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

/// The schemas that messages named; a text: why one can't be used.
#[derive(Default)]
pub(super) struct Writers(HashMap<Reference, Result<Arc<AvroWriter>, String>>);

/// A part of a message, and what it was written under.
pub(super) struct Part<'a> {
    pub writer: Arc<AvroWriter>,
    pub body: &'a [u8],
}

impl Writers {
    /// The reference in a part of a message, and its body. `header`: who has one there has none before the message.
    fn split(header: Option<Reference>, bytes: &[u8]) -> Option<(Reference, &[u8])> {
        match header {
            Some(reference) => Some((reference, bytes)),
            None => Reference::take(bytes),
        }
    }

    /// One that has to be asked for first.
    pub fn lacks(&self, record: &Record) -> Option<Reference> {
        let key = record.key.as_deref().filter(|key| !key.is_empty()).map(|key| (record.references[0], key));
        let value = (!record.value.is_empty()).then(|| (record.references[1], &record.value[..]));
        let named = [key, value].into_iter().flatten().filter_map(|(header, bytes)| Self::split(header, bytes));
        named.map(|(reference, _)| reference).find(|reference| !self.0.contains_key(reference))
    }

    /// `Malformed`: no schema is named, or it can't be used.
    pub fn part<'a>(&self, header: Option<Reference>, bytes: &'a [u8], what: &str) -> Result<Part<'a>> {
        let (reference, body) = Self::split(header, bytes).ok_or_else(|| {
            Error::malformed(format!("the {what} names no schema: it doesn't begin with a zero and an id"))
                .hint("topics in JSON are read without source.debezium.registry")
        })?;
        match self.0.get(&reference) {
            Some(Ok(writer)) => Ok(Part { writer: writer.clone(), body }),
            Some(Err(why)) => Err(Error::malformed(format!("the schema {reference} of the {what}: {why}"))),
            None => Err(Error::bug(format!("nobody asked for the schema {reference}"))),
        }
    }
}

impl TopicsSource {
    pub(super) async fn fetch(&mut self, reference: Reference) -> Result<()> {
        let Some(ask) = self.config.registry.clone() else { return Ok(()) };
        let (status, answer) = ask("GET", reference.path(), None).await?;
        let found = match status {
            200..=299 => match (answer["schema"].as_str(), answer["schemaType"].as_str().unwrap_or("AVRO")) {
                (Some(_), "AVRO") if answer["references"].as_array().is_some_and(|all| !all.is_empty()) => {
                    Err("it refers to other schemas, which Debezium's never do".to_string())
                }
                (Some(text), "AVRO") => AvroWriter::of(text).map(Arc::new).map_err(|error| error.to_string()),
                (_, other) => Err(format!("it is {other}, not Avro")),
            },
            404 => Err("the schema registry doesn't know it".to_string()),
            status => return Err(refused(status, &answer).context(format!("asking for the schema {reference}"))),
        };
        self.writers.0.insert(reference, found);
        Ok(())
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
}
