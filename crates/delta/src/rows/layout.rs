use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidewire_change::{Column, Key, Kind, Schema};

/// The commit of the row's position.
pub const LSN: &str = "_lsn";
/// The ordinal of the row's position.
pub const SEQ: &str = "_seq";
/// Debezium's letter of the change that made the row what it is.
pub const OP: &str = "_op";
/// Wall time of that commit.
pub const TS: &str = "_ts";
pub const DELETED: &str = "_deleted";
/// Values that their column's type can't hold: column name → exact text.
pub const SPECIAL: &str = "_special";
const RESERVED: [&str; 6] = [LSN, SEQ, OP, TS, DELETED, SPECIAL];

/// How a column lies in the lake: a Delta primitive type (PROTOCOL.md, "Schema Serialization Format").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Physical {
    Boolean,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Decimal { precision: u8, scale: i8 },
    Binary,
    Date,
    Timestamp,
    TimestampNtz,
    String,
}

impl Physical {
    pub fn of(kind: &Kind) -> Physical {
        match kind {
            Kind::Bool => Physical::Boolean,
            Kind::Int16 => Physical::Short,
            Kind::Int32 => Physical::Integer,
            Kind::Int64 => Physical::Long,
            Kind::Float32 => Physical::Float,
            Kind::Float64 => Physical::Double,
            Kind::Numeric { precision_scale: Some((precision @ 1..=38, scale)) }
                if *scale >= 0 && *scale <= *precision as i16 =>
            {
                Physical::Decimal { precision: *precision as u8, scale: *scale as i8 }
            }
            Kind::Bytes => Physical::Binary,
            Kind::Date => Physical::Date,
            Kind::Timestamp => Physical::TimestampNtz,
            Kind::TimestampTz => Physical::Timestamp,
            _ => Physical::String,
        }
    }

    pub fn arrow(self) -> DataType {
        match self {
            Physical::Boolean => DataType::Boolean,
            Physical::Short => DataType::Int16,
            Physical::Integer => DataType::Int32,
            Physical::Long => DataType::Int64,
            Physical::Float => DataType::Float32,
            Physical::Double => DataType::Float64,
            Physical::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            Physical::Binary => DataType::Binary,
            Physical::Date => DataType::Date32,
            Physical::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Physical::TimestampNtz => DataType::Timestamp(TimeUnit::Microsecond, None),
            Physical::String => DataType::Utf8,
        }
    }

    fn delta(self) -> String {
        match self {
            Physical::Boolean => "boolean".into(),
            Physical::Short => "short".into(),
            Physical::Integer => "integer".into(),
            Physical::Long => "long".into(),
            Physical::Float => "float".into(),
            Physical::Double => "double".into(),
            Physical::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            Physical::Binary => "binary".into(),
            Physical::Date => "date".into(),
            Physical::Timestamp => "timestamp".into(),
            Physical::TimestampNtz => "timestamp_ntz".into(),
            Physical::String => "string".into(),
        }
    }
}

/// A column of the lake table that holds (or held) a column of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeColumn {
    /// Its name in the lake.
    pub name: String,
    pub source: String,
    /// `Column::attribute` of the source.
    pub attribute: i32,
    #[serde(rename = "type")]
    pub physical: Physical,
}

/// How one table of the source lies in the lake. Stored with the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub schema: Arc<Schema>,
    /// All that the lake table has but for our own columns; those that the source dropped, too.
    pub columns: Vec<LakeColumn>,
}

/// What a new version of the source's schema means for the table.
pub enum Evolution {
    /// The table's columns stay as they are.
    Same(Layout),
    /// Columns were added.
    Grown(Layout),
    /// The rows mean something else now: another table took the name, another column a column's name, or the key or a
    /// type changed.
    Replaced(Layout),
}

impl Layout {
    pub fn new(schema: Arc<Schema>) -> Layout {
        let mut layout = Layout { schema: schema.clone(), columns: Vec::with_capacity(schema.columns.len()) };
        schema.columns.iter().for_each(|column| layout.add(column));
        layout
    }

    /// The place of each of the schema's columns in `columns`.
    pub fn places(&self) -> Vec<usize> {
        self.schema.columns.iter().map(|c| self.place_of(c).expect("a layout has every column of its schema")).collect()
    }

    /// The place of each of the schema's columns, then those of the columns that the source dropped: the order in which a
    /// row's values stand while it waits to be written.
    pub fn write_order(&self) -> Vec<usize> {
        let mut order = self.places();
        let live = order.len();
        order.extend((0..self.columns.len()).filter(|i| !order[..live].contains(i)).collect::<Vec<_>>());
        order
    }

    /// Where the lake holds a column of the source; none when it doesn't.
    pub fn place_of(&self, column: &Column) -> Option<usize> {
        let same = |c: &LakeColumn| {
            let known = c.attribute != 0 && column.attribute != 0;
            c.source == column.name && (!known || c.attribute == column.attribute)
        };
        self.columns.iter().position(same)
    }

    pub fn evolve(&self, schema: &Arc<Schema>) -> Evolution {
        if schema.source_id != self.schema.source_id {
            return Evolution::Replaced(Layout::new(schema.clone()));
        }
        let mut next = Layout { schema: schema.clone(), columns: self.columns.clone() };
        for column in &schema.columns {
            match self.place_of(column) {
                Some(place) if self.columns[place].physical != Physical::of(&column.ty.kind) => {
                    return Evolution::Replaced(Layout::new(schema.clone()));
                }
                Some(_) => {}
                // The name is another column's now: what old files hold under it isn't this column's.
                None if self.columns.iter().any(|c| c.source == column.name) => {
                    return Evolution::Replaced(Layout::new(schema.clone()));
                }
                None => next.add(column),
            }
        }
        if next.key() != self.key() {
            return Evolution::Replaced(Layout::new(schema.clone()));
        }
        match next.columns.len() == self.columns.len() {
            true => Evolution::Same(next),
            false => Evolution::Grown(next),
        }
    }

    /// The key as places in `columns`, with the kinds that decide which spellings are equal.
    fn key(&self) -> (u8, Vec<(usize, &Kind)>) {
        let places = self.places();
        match &self.schema.key {
            Key::Columns(columns) => {
                let part = |i: &u16| (places[usize::from(*i)], &self.schema.columns[usize::from(*i)].ty.kind);
                (0, columns.iter().map(part).collect())
            }
            Key::Position => (1, Vec::new()),
            // What the whole row is changes with its columns.
            Key::WholeRow => (2, places.iter().zip(&self.schema.columns).map(|(p, c)| (*p, &c.ty.kind)).collect()),
        }
    }

    fn add(&mut self, column: &Column) {
        let mut name = escape(&column.name);
        let reserved = |name: &str| RESERVED.iter().any(|r| name.to_lowercase().starts_with(r));
        // Delta tells names apart without regard to case.
        let taken = |name: &str| self.columns.iter().any(|c| c.name.to_lowercase() == name.to_lowercase());
        while reserved(&name) || taken(&name) {
            name = format!("_src{name}");
        }
        let physical = Physical::of(&column.ty.kind);
        self.columns.push(LakeColumn { name, source: column.name.clone(), attribute: column.attribute, physical });
    }

    pub fn has_ntz(&self) -> bool {
        self.columns.iter().any(|c| c.physical == Physical::TimestampNtz)
    }

    /// The table's columns in Arrow, ours last.
    pub fn arrow(&self) -> Arc<arrow_schema::Schema> {
        let mut fields: Vec<Field> =
            self.columns.iter().map(|c| Field::new(&c.name, c.physical.arrow(), true)).collect();
        fields.push(Field::new(LSN, DataType::Int64, true));
        fields.push(Field::new(SEQ, DataType::Int64, true));
        fields.push(Field::new(OP, DataType::Utf8, true));
        fields.push(Field::new(TS, Physical::Timestamp.arrow(), true));
        fields.push(Field::new(DELETED, DataType::Boolean, true));
        let entry =
            Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)]);
        let entry = Arc::new(Field::new("key_value", DataType::Struct(entry), false));
        fields.push(Field::new(SPECIAL, DataType::Map(entry, false), true));
        Arc::new(arrow_schema::Schema::new(fields))
    }

    /// Delta's `schemaString`.
    pub fn delta(&self) -> String {
        let field = |name: &str, ty: serde_json::Value| serde_json::json!({"name": name, "type": ty, "nullable": true, "metadata": {}});
        let mut fields: Vec<serde_json::Value> =
            self.columns.iter().map(|c| field(&c.name, c.physical.delta().into())).collect();
        for (name, ty) in [(LSN, "long"), (SEQ, "long"), (OP, "string"), (TS, "timestamp"), (DELETED, "boolean")] {
            fields.push(field(name, ty.into()));
        }
        let map =
            serde_json::json!({"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": true});
        fields.push(field(SPECIAL, map));
        serde_json::json!({"type": "struct", "fields": fields}).to_string()
    }
}

/// Without column mapping Delta forbids some characters in names. They, and `%`, become `%XX`.
fn escape(name: &str) -> String {
    if !name.contains([' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '=', '%']) {
        return name.to_string();
    }
    let mut escaped = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            ' ' | ',' | ';' | '{' | '}' | '(' | ')' | '\n' | '\t' | '=' | '%' => {
                escaped.push_str(&format!("%{:02X}", c as u32));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Identity, TableName, Type};

    fn schema(columns: &[(&str, Kind, i32)], source_id: u64) -> Arc<Schema> {
        let column = |(name, kind, attribute): &(&str, Kind, i32)| Column {
            name: name.to_string(),
            ty: Type { kind: kind.clone(), name: String::new(), builtin: true },
            attribute: *attribute,
        };
        Arc::new(Schema {
            table: TableName::new("public", "t"),
            columns: columns.iter().map(column).collect(),
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id,
        })
    }

    fn names(layout: &Layout) -> Vec<&str> {
        layout.columns.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn names_that_are_ours_or_that_delta_forbids_are_mapped_and_never_meet() {
        let columns = ["id", "_lsn", "_LSN_x", "ID", "a b", "a%20b", "_src_lsn"].map(|n| (n, Kind::Text, 0));
        let layout = Layout::new(schema(&columns, 1));
        assert_eq!(names(&layout), ["id", "_src_lsn", "_src_LSN_x", "_srcID", "a%20b", "a%2520b", "_src_src_lsn"]);
    }

    #[test]
    fn a_dropped_column_stays_an_added_one_grows_and_a_retyped_or_taken_over_one_replaces() {
        let one = Layout::new(schema(&[("id", Kind::Int32, 1), ("a", Kind::Text, 2)], 1));
        let Evolution::Grown(two) = one.evolve(&schema(&[("id", Kind::Int32, 1), ("b", Kind::Text, 3)], 1)) else {
            panic!()
        };
        assert_eq!((names(&two), two.write_order()), (vec!["id", "a", "b"], vec![0, 2, 1]));
        assert!(matches!(two.evolve(&one.schema), Evolution::Same(_)));
        let again = schema(&[("id", Kind::Int32, 1), ("a", Kind::Text, 4)], 1);
        let Evolution::Replaced(three) = two.evolve(&again) else { panic!() };
        assert_eq!(names(&three), ["id", "a"]);
        let swapped = schema(&[("id", Kind::Int32, 1), ("b", Kind::Text, 2), ("a", Kind::Text, 3)], 1);
        assert!(matches!(two.evolve(&swapped), Evolution::Replaced(_)), "two columns swapped their names");
        for (columns, source_id) in
            [(vec![("id", Kind::Int64, 1)], 1), (vec![("id", Kind::Int32, 1)], 2), (vec![("k", Kind::Int32, 1)], 1)]
        {
            assert!(matches!(one.evolve(&schema(&columns, source_id)), Evolution::Replaced(_)));
        }
    }
}
