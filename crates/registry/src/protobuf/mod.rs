//! Protobuf's schemas: `.proto` files of proto2, proto3 and editions.

mod compare;
mod from_descriptor;
mod lex;
mod meta;
mod names;
mod options;
mod parse;
mod print;
mod services;
mod to_descriptor;
mod wire;

pub use compare::compare;
pub use meta::params;
pub use names::{is_common, within, Named, Names};
pub use print::print;
pub use to_descriptor::descriptor;

use tidewire_change::Result;

/// A file with those that it imports.
pub struct Schema {
    pub file: File,
    /// By the path that they are imported by.
    pub imported: Vec<(String, File)>,
    /// The file's text, when it came as a descriptor.
    pub text: Option<String>,
}

impl Schema {
    /// The file, then those that it imports.
    fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.file).chain(self.imported.iter().map(|(_, file)| file))
    }
}

#[derive(Debug, Default)]
pub struct File {
    /// `proto2`, `proto3`, or the edition.
    pub syntax: String,
    pub is_edition: bool,
    pub package: String,
    pub imports: Vec<Import>,
    pub options: Vec<Setting>,
    pub messages: Vec<Message>,
    pub enums: Vec<Enum>,
    pub services: Vec<Service>,
    pub extends: Vec<Extend>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub path: String,
    /// `public`, `weak` or nothing.
    pub kind: String,
}

/// An option: its name as it is written, and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Default)]
pub struct Message {
    pub name: String,
    pub fields: Vec<Field>,
    pub oneofs: Vec<OneOf>,
    pub messages: Vec<Message>,
    pub enums: Vec<Enum>,
    pub extends: Vec<Extend>,
    pub reserved: Vec<String>,
    pub extensions: Vec<(String, Vec<Setting>)>,
    pub options: Vec<Setting>,
}

#[derive(Debug)]
pub struct OneOf {
    pub name: String,
    pub options: Vec<Setting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// None is written.
    Implicit,
    Optional,
    Required,
    Repeated,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub number: i32,
    pub label: Label,
    pub of: Of,
    pub options: Vec<Setting>,
    /// Its place in the message's `oneofs`.
    pub oneof: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Of {
    /// A scalar, or the name of a type as it is written.
    Named(String),
    Map(String, String),
    /// A group's message stands among those of the field's message.
    Group(String),
}

#[derive(Debug, Default)]
pub struct Enum {
    pub name: String,
    pub values: Vec<(String, i32, Vec<Setting>)>,
    pub reserved: Vec<String>,
    pub options: Vec<Setting>,
}

#[derive(Debug)]
pub struct Service {
    pub name: String,
    pub methods: Vec<Method>,
    pub options: Vec<Setting>,
}

#[derive(Debug)]
pub struct Method {
    pub name: String,
    pub input: String,
    pub input_streams: bool,
    pub output: String,
    pub output_streams: bool,
    pub options: Vec<Setting>,
}

#[derive(Debug)]
pub struct Extend {
    pub of: String,
    /// The fields, and the messages of groups.
    pub message: Message,
}

pub const SCALARS: [&str; 15] = [
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
];

/// A file's text, or its descriptor in base 64. `references`: paths that are imported, with their texts.
pub fn parse(text: &str, references: &[(&str, &str)]) -> Result<Schema> {
    let imported = references.iter().map(|(path, text)| {
        let file = parse::file(text).map_err(|e| e.context(format!("in the referenced schema `{path}`")))?;
        Ok((path.to_string(), file))
    });
    let imported = imported.collect::<Result<_>>()?;
    let schema = match is_descriptor(text) {
        Some(bytes) => {
            // Read once more from its text: names in a descriptor can be anything.
            let text = print::file(&from_descriptor::file(&bytes)?);
            Schema { imported, file: parse::file(&text)?, text: Some(text) }
        }
        None => Schema { imported, file: parse::file(text)?, text: None },
    };
    names::check(&schema)?;
    Ok(schema)
}

/// No .proto file is base 64 as a whole: it has signs and spaces.
fn is_descriptor(text: &str) -> Option<Vec<u8>> {
    crate::base64::decode(text.trim()).filter(|bytes| !bytes.is_empty())
}
