//! Avro's schemas: one arena of types, so that a type which names itself is no circle of pointers.

mod compare;
mod default;
mod parse;
mod print;

pub use compare::compare;
pub use default::check_defaults;
pub use parse::parse;
pub use print::{print, print_whole};

use crate::json::Json;

pub type TypeId = usize;

#[derive(Debug)]
pub struct Schema {
    pub types: Vec<Type>,
    pub root: TypeId,
    /// Types before this one came from referenced schemas.
    pub own: TypeId,
}

#[derive(Debug)]
pub struct Type {
    pub kind: Kind,
    /// Attributes that Avro itself gives no meaning here, as `logicalType`.
    pub props: Vec<(String, Json)>,
}

#[derive(Debug)]
pub enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Record),
    Enum(Enum),
    Fixed(Fixed),
}

#[derive(Debug)]
pub struct Name {
    /// With the namespace.
    pub full: String,
    /// With their namespaces.
    pub aliases: Vec<String>,
    pub doc: Option<String>,
}

#[derive(Debug)]
pub struct Record {
    pub name: Name,
    /// `error` in place of `record`.
    pub is_error: bool,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub of: TypeId,
    pub doc: Option<String>,
    pub default: Option<Json>,
    pub order: Option<String>,
    pub aliases: Vec<String>,
    pub props: Vec<(String, Json)>,
}

#[derive(Debug)]
pub struct Enum {
    pub name: Name,
    pub symbols: Vec<String>,
    pub default: Option<String>,
}

#[derive(Debug)]
pub struct Fixed {
    pub name: Name,
    pub size: u64,
}

impl Name {
    pub fn namespace(&self) -> &str {
        self.full.rsplit_once('.').map_or("", |(namespace, _)| namespace)
    }

    /// Without the namespace.
    pub fn simple(&self) -> &str {
        self.full.rsplit_once('.').map_or(&self.full, |(_, name)| name)
    }
}

impl Kind {
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Bytes => "bytes",
            Kind::String => "string",
            Kind::Array(_) => "array",
            Kind::Map(_) => "map",
            Kind::Union(_) => "union",
            Kind::Record(record) if record.is_error => "error",
            Kind::Record(_) => "record",
            Kind::Enum(_) => "enum",
            Kind::Fixed(_) => "fixed",
        }
    }

    pub fn name(&self) -> Option<&Name> {
        match self {
            Kind::Record(record) => Some(&record.name),
            Kind::Enum(of) => Some(&of.name),
            Kind::Fixed(fixed) => Some(&fixed.name),
            _ => None,
        }
    }

    /// For messages: `record shop.Order`.
    pub fn shown(&self) -> String {
        match self.name() {
            Some(name) => format!("{} {}", self.word(), name.full),
            None => self.word().to_string(),
        }
    }
}

impl Schema {
    pub fn kind(&self, id: TypeId) -> &Kind {
        &self.types[id].kind
    }
}
