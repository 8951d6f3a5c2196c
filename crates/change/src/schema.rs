use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies one version of one table's schema: a hash of its content, so the same schema has the same id at every
/// replay and in every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SchemaId(pub u64);

/// A table's name at the source, as it is stored there: unquoted, case kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    pub schema: String,
    pub name: String,
}

impl TableName {
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        TableName { schema: schema.into(), name: name.into() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// What the log says of the old row of an update or delete (PostgreSQL's REPLICA IDENTITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    Default,
    Index,
    Full,
    Nothing,
}

/// What makes a row of the table one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Indices into `Schema::columns`, in key order.
    Columns(Vec<u16>),
    /// No key and no usable old rows: append-only. A row is known by its position alone.
    Position,
    /// No key but full old rows: a multiset of whole rows.
    WholeRow,
}

/// The kinds of values, neutral over sources. A kind says how the canonical text is to be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Bool,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// `None`: digits without bound. A scale may be negative or above the precision.
    Numeric {
        precision_scale: Option<(u16, i16)>,
    },
    Text,
    /// Case-insensitive text: equal keys may differ in case.
    CaseInsensitiveText,
    /// Blank-padded text; trailing blanks don't count when keys are compared.
    Char,
    /// Text `\x` and hex digits.
    Bytes,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Uuid,
    Json,
    Jsonb,
    Enum,
    Array(Box<Kind>),
    Range,
    /// Its attributes, in order.
    Composite(Vec<Column>),
    Map,
    Bits,
    /// Anything else: known by its exact text only.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Type {
    pub kind: Kind,
    /// The source's own name with its modifiers, e.g. `numeric(12,2)`, `character varying(20)`, `shop.order_state`.
    pub name: String,
    /// True when the type comes with the database system itself, so that another server of it knows `name`, too.
    pub builtin: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: Type,
    /// What stays when the column is renamed (PostgreSQL's attnum); 0 when unknown.
    pub attribute: i32,
}

/// One version of a table's shape. Tables that take over a name (drop and recreate, swap by rename) differ in
/// `source_id`: their rows have nothing to do with one another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schema {
    pub table: TableName,
    pub columns: Vec<Column>,
    pub key: Key,
    pub identity: Identity,
    /// The source's own id of the table (PostgreSQL's oid).
    pub source_id: u64,
}

impl Schema {
    /// Indices of the key columns; empty when the table has no key.
    pub fn key_columns(&self) -> &[u16] {
        match &self.key {
            Key::Columns(columns) => columns,
            Key::Position | Key::WholeRow => &[],
        }
    }

    pub fn column(&self, name: &str) -> Option<(usize, &Column)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }

    pub fn is_key(&self, index: usize) -> bool {
        self.key_columns().contains(&(index as u16))
    }

    /// Does the last message of a key tell all that the row is? PostgreSQL's log leaves out large values that didn't change, unless
    /// the table has full identity or no column that can hold one (DESIGN §3).
    pub fn is_told_whole(&self) -> bool {
        use Kind::*;
        let is_small = |kind: &Kind| {
            matches!(kind, Bool | Int16 | Int32 | Int64 | Float32 | Float64 | Date)
                || matches!(kind, Time | TimeTz | Timestamp | TimestampTz | Interval | Uuid | Enum)
        };
        let is_whole = self.identity == Identity::Full || self.columns.iter().all(|column| is_small(&column.ty.kind));
        matches!(self.key, Key::Columns(_)) && is_whole
    }

    /// The id of this version: FNV-1a (64 bits) of the JSON form, the same everywhere.
    pub fn id(&self) -> SchemaId {
        let json = serde_json::to_vec(self).expect("a schema has a JSON form");
        let hash = json.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
        SchemaId(hash)
    }
}
