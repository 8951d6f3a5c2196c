//! The type map: kinds of the source to types of Delta (PROTOCOL.md, "Schema Serialization Format").

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use tidewire_change::{Kind, Type};

/// How a column, or a part of one, lies in the lake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Physical {
    Boolean,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: i8,
    },
    Binary,
    Date,
    Timestamp,
    TimestampNtz,
    String,
    List(Box<Physical>),
    /// Text to text, with NULL among the values: PostgreSQL's hstore.
    Map,
    Struct(Vec<Part>),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in files, and for readers if there is no other.
    pub name: String,
    /// Its name for readers, in a table with column mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    #[serde(rename = "type")]
    pub physical: Physical,
}

impl Physical {
    pub fn of(ty: &Type) -> Physical {
        match &ty.kind {
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
            Kind::Map => Physical::Map,
            Kind::Array(element) => Physical::list(element, ty),
            Kind::Composite(fields) if !fields.is_empty() => {
                let mut parts: Vec<Part> = Vec::with_capacity(fields.len());
                for field in fields {
                    let mut name = escape(&field.name);
                    while parts.iter().any(|part| part.name.to_lowercase() == name.to_lowercase()) {
                        name = format!("_src{name}");
                    }
                    parts.push(Part { name, shown: None, physical: Physical::of(&field.ty) });
                }
                Physical::Struct(parts)
            }
            _ => Physical::String,
        }
    }

    fn list(element: &Kind, array: &Type) -> Physical {
        // What stands between elements is the comma for all types of the server but `box`; a type of somebody else's may
        // have any character, and the text doesn't tell which.
        let unknown = *element == Kind::Other && (!array.builtin || array.name.starts_with("box["));
        if unknown || matches!(element, Kind::Array(_)) {
            return Physical::String;
        }
        let name = array.name.strip_suffix("[]").unwrap_or(&array.name).to_string();
        let element = Type { kind: element.clone(), name, builtin: array.builtin };
        Physical::List(Box::new(Physical::of(&element)))
    }

    /// A type as it is named in a configuration. None for anything else than a primitive type of Delta, or `text`.
    pub fn named(name: &str) -> Option<Physical> {
        let primitives = [
            Physical::Boolean,
            Physical::Short,
            Physical::Integer,
            Physical::Long,
            Physical::Float,
            Physical::Double,
            Physical::Binary,
            Physical::Date,
            Physical::Timestamp,
            Physical::TimestampNtz,
            Physical::String,
        ];
        if name == "text" {
            return Some(Physical::String);
        }
        if let Some(primitive) = primitives.into_iter().find(|primitive| primitive.delta() == name) {
            return Some(primitive);
        }
        let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
        let (precision, scale) = (precision.trim().parse::<u8>().ok()?, scale.trim().parse::<i8>().ok()?);
        let legal = (1..=38).contains(&precision) && (0..=precision as i8).contains(&scale);
        legal.then_some(Physical::Decimal { precision, scale })
    }

    pub fn is_nested(&self) -> bool {
        matches!(self, Physical::List(_) | Physical::Map | Physical::Struct(_))
    }

    /// Is `other` it, or a part of it at any depth?
    pub fn contains(&self, other: &Physical) -> bool {
        self == other
            || match self {
                Physical::List(element) => element.contains(other),
                Physical::Struct(parts) => parts.iter().any(|part| part.physical.contains(other)),
                _ => false,
            }
    }

    pub fn arrow(&self) -> DataType {
        match self {
            Physical::Boolean => DataType::Boolean,
            Physical::Short => DataType::Int16,
            Physical::Integer => DataType::Int32,
            Physical::Long => DataType::Int64,
            Physical::Float => DataType::Float32,
            Physical::Double => DataType::Float64,
            Physical::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            Physical::Binary => DataType::Binary,
            Physical::Date => DataType::Date32,
            Physical::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Physical::TimestampNtz => DataType::Timestamp(TimeUnit::Microsecond, None),
            Physical::String => DataType::Utf8,
            Physical::List(element) => DataType::List(Arc::new(Field::new("element", element.arrow(), true))),
            Physical::Map => {
                let entry = [Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
                let entry = DataType::Struct(Fields::from(entry.to_vec()));
                DataType::Map(Arc::new(Field::new("key_value", entry, false)), false)
            }
            Physical::Struct(parts) => {
                let field = |part: &Part| Field::new(&part.name, part.physical.arrow(), true);
                DataType::Struct(parts.iter().map(field).collect())
            }
        }
    }

    /// The type as it stands in Delta's `schemaString`.
    pub fn delta(&self) -> serde_json::Value {
        match self {
            Physical::Boolean => "boolean".into(),
            Physical::Short => "short".into(),
            Physical::Integer => "integer".into(),
            Physical::Long => "long".into(),
            Physical::Float => "float".into(),
            Physical::Double => "double".into(),
            Physical::Decimal { precision, scale } => format!("decimal({precision},{scale})").into(),
            Physical::Binary => "binary".into(),
            Physical::Date => "date".into(),
            Physical::Timestamp => "timestamp".into(),
            Physical::TimestampNtz => "timestamp_ntz".into(),
            Physical::String => "string".into(),
            Physical::List(element) => json!({"type": "array", "elementType": element.delta(), "containsNull": true}),
            Physical::Map => {
                json!({"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": true})
            }
            Physical::Struct(parts) => {
                let fields: Vec<_> = parts.iter().map(|part| delta_field(&part.name, part.physical.delta())).collect();
                json!({"type": "struct", "fields": fields})
            }
        }
    }
}

pub(super) fn delta_field(name: &str, ty: serde_json::Value) -> serde_json::Value {
    json!({"name": name, "type": ty, "nullable": true, "metadata": {}})
}

/// Without column mapping Delta forbids some characters in names. They, and `%`, become `%XX`.
pub(super) fn escape(name: &str) -> String {
    let forbidden = |c: char| matches!(c, ' ' | ',' | ';' | '{' | '}' | '(' | ')' | '\n' | '\t' | '=' | '%');
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        match forbidden(c) {
            true => escaped.push_str(&format!("%{:02X}", c as u32)),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::Column;

    fn ty(kind: Kind, name: &str, builtin: bool) -> Type {
        Type { kind, name: name.into(), builtin }
    }

    #[test]
    fn arrays_whose_separator_is_not_known_stay_text() {
        let array = |kind, name, builtin| Physical::of(&ty(Kind::Array(Box::new(kind)), name, builtin));
        assert_eq!(array(Kind::Int32, "integer[]", true), Physical::List(Box::new(Physical::Integer)));
        assert_eq!(array(Kind::Other, "inet[]", true), Physical::List(Box::new(Physical::String)));
        assert_eq!(array(Kind::Other, "box[]", true), Physical::String);
        assert_eq!(array(Kind::Other, "public.geometry[]", false), Physical::String);
    }

    #[test]
    fn a_structs_fields_have_legal_names_that_never_meet() {
        let field = |name: &str| Column { name: name.into(), ty: ty(Kind::Text, "text", true), attribute: 1 };
        let composite = Kind::Composite(["a b", "A B", "x"].map(field).to_vec());
        let Physical::Struct(parts) = Physical::of(&ty(composite, "public.c", false)) else { panic!() };
        assert_eq!(parts.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a%20b", "_srcA%20B", "x"]);
        assert_eq!(Physical::of(&ty(Kind::Composite(Vec::new()), "public.none", false)), Physical::String);
    }

    #[test]
    fn a_configured_type_is_a_primitive_of_delta_or_text() {
        assert_eq!(Physical::named("decimal(10, 2)"), Some(Physical::Decimal { precision: 10, scale: 2 }));
        assert_eq!(
            (Physical::named("text"), Physical::named("string")),
            (Some(Physical::String), Some(Physical::String))
        );
        assert_eq!(Physical::named("timestamp_ntz"), Some(Physical::TimestampNtz));
        for bad in ["decimal(39,0)", "decimal(5,6)", "decimal(5,-1)", "decimal", "int", "array", "map", "Text", ""] {
            assert_eq!(Physical::named(bad), None, "{bad}");
        }
    }
}
