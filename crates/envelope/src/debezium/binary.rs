//! What messages in Avro and in Protobuf have in common: their schemas, what is told of keys, and how rows are found in them.

use super::avro::{read_avro, Walker};
use super::decoder::{Decoder, Envelope, Notes, Slots};
use super::json::read_base64;
use super::protobuf::ProtobufWalker;
use super::read::Unread;
use super::shape::Shape;
use super::write::Written;
use std::borrow::Cow;
use tidewire_change::text::bytes_text;
use tidewire_change::{Error, Result, Schema};

/// The schemas of a table's messages, as a registry takes them.
#[derive(Clone, Debug)]
pub struct Contracts {
    /// None: its messages have no keys.
    pub key: Option<Contract>,
    pub value: Contract,
}

#[derive(Clone, Debug)]
pub struct Contract {
    /// The record's name in full.
    pub name: String,
    pub schema: String,
}

/// What a key tells beside its fields of a column that they don't hold: its text, or its bytes in hex. None: they hold it.
pub(super) fn told_beside(written: Option<Written>, text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if written == Some(Written::Exactly) {
        return None;
    }
    if written != Some(Written::Replaced) && std::str::from_utf8(text).is_ok() {
        return Some(text.into());
    }
    let mut hex = String::new();
    bytes_text(text, &mut hex);
    Some(hex.into_bytes().into())
}

#[cold]
pub(super) fn lacks_its_key(schema: &Schema, index: usize) -> Error {
    let (table, name) = (&schema.table, &schema.columns[index].name);
    Error::schema(format!("a row of {table} has no value in `{name}`, a column of its key")).on_table(table)
}

/// What a field of an envelope tells beside a row.
#[derive(Clone, Copy)]
pub(super) struct Note {
    pub(super) of_before: bool,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Unavailable,
    Exact,
    InvalidUtf8,
}

impl Note {
    pub(super) fn of(field: &str) -> Option<Note> {
        let (of_before, plain) = match field.strip_prefix("before_") {
            Some(plain) => (true, plain),
            None => (false, field),
        };
        let what = match plain {
            "unavailable" => What::Unavailable,
            "exact" => What::Exact,
            "invalid_utf8" => What::InvalidUtf8,
            _ => return None,
        };
        Some(Note { of_before, what })
    }

    pub(super) fn notes<'e>(&self, envelope: &'e mut Envelope<'_>) -> &'e mut Notes {
        match self.of_before {
            true => &mut envelope.notes_before,
            false => &mut envelope.notes,
        }
    }
}

/// Messages that aren't JSON: where their fields lie.
pub(super) enum Binary {
    Avro(Walker),
    Protobuf(ProtobufWalker),
}

impl Binary {
    /// What lies behind the number of the schema.
    pub(super) fn body<'a>(&self, decoder: &Decoder, value: &'a [u8]) -> Result<&'a [u8]> {
        match self {
            Binary::Avro(_) => decoder.avro_body(value),
            Binary::Protobuf(_) => decoder.protobuf_body(value),
        }
    }

    pub(super) fn envelope<'a>(
        &self,
        decoder: &Decoder,
        payload: &'a [u8],
        before: &mut Slots,
        after: &mut Slots,
    ) -> Result<Envelope<'a>> {
        match self {
            Binary::Avro(walker) => decoder.walked(walker, payload, before, after),
            Binary::Protobuf(walker) => decoder.walked_protobuf(walker, payload, before, after),
        }
    }

    #[inline]
    pub(super) fn read<'t>(
        &self,
        index: usize,
        shape: &Shape,
        raw: &'t [u8],
        strict: bool,
        scratch: &'t mut Vec<u8>,
        json: &mut Vec<u8>,
    ) -> std::result::Result<&'t [u8], Unread> {
        match self {
            Binary::Avro(walker) => read_avro(shape, walker.wire(index), raw, strict, scratch, json),
            Binary::Protobuf(walker) => walker.read(index, shape, raw, strict, scratch, json),
        }
    }

    /// What stands for a value that isn't written.
    pub(super) fn default_of(&self, index: usize) -> &'static [u8] {
        match self {
            Binary::Avro(_) => b"",
            Binary::Protobuf(walker) => walker.default_of(index),
        }
    }

    fn placeholder(&self, index: usize, json: &[u8]) -> Option<Vec<u8>> {
        match self {
            Binary::Avro(walker) => walker.placeholder(index, json),
            Binary::Protobuf(walker) => walker.placeholder(index, json),
        }
    }
}

impl Decoder {
    /// Takes a text beside a row, by its column's name. None: it can't be read.
    pub(super) fn take_note(&self, what: What, column: &[u8], text: &[u8], notes: &mut Notes) -> Option<()> {
        let mut out = Vec::new();
        match what {
            What::InvalidUtf8 => read_base64(text, &mut out)?,
            _ => out.extend_from_slice(text),
        }
        notes.texts.push((self.noted(column)?, out));
        Some(())
    }

    pub(super) fn in_binary(mut self, binary: Binary) -> Decoder {
        for (index, column) in self.columns.iter_mut().enumerate() {
            let json = std::mem::take(&mut column.placeholder);
            // Where it has none, nothing looks like it: a value takes a byte at least.
            if json != b"null" {
                column.placeholder = binary.placeholder(index, &json).unwrap_or_default();
            }
        }
        self.binary = Some(binary);
        self
    }
}
