//! What ExtractNewRecordState added to a message's headers (`add.headers`), as one JSON object.

use bytes::Bytes;
use serde_json::Value;

/// What headers are called that say something else.
const OTHERS: [&[u8]; 4] = [b"__debezium.", b"__key_schema_id", b"__value_schema_id", b"__connect."];

/// Takes headers, one after the other.
#[derive(Default)]
pub(super) struct Added(serde_json::Map<String, Value>);

impl Added {
    /// The values are texts (Connect's SimpleHeaderConverter), or JSON with or without a schema (JsonConverter). What is neither isn't one that it added.
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        if !name.starts_with(b"__") || OTHERS.iter().any(|other| name.starts_with(other)) || value.is_empty() {
            return;
        }
        let (Ok(name), Ok(text)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else { return };
        let value = match serde_json::from_str(text) {
            Ok(Value::Object(mut whole)) => match whole.remove("payload") {
                Some(payload) => payload,
                None => return,
            },
            Ok(Value::String(text)) => Value::String(text),
            Ok(Value::Null) => Value::Null,
            // A number may be larger than others take it, and a list is the text of `sequence`.
            _ => Value::String(text.to_string()),
        };
        self.0.insert(name.to_string(), value);
    }

    /// Empty: nothing was added.
    pub fn json(self) -> Bytes {
        if self.0.is_empty() {
            return Bytes::new();
        }
        Value::Object(self.0).to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_whichever_converter_they_were_written() {
        let mut added = Added::default();
        for (name, value) in [
            ("__op", "u"),
            ("__source_lsn", "26367272"),
            ("__sequence", r#"["1","2"]"#),
            ("__table", r#"{"schema":{"type":"string","optional":true},"payload":"t"}"#),
            ("__db", r#""shop""#),
            ("__xmin", "null"),
            ("__debezium.oldkey", r#"{"id":1}"#),
            ("__key_schema_id", "x"),
            ("__other", r#"{"a":1}"#),
            ("plain", "1"),
            ("__none", ""),
        ] {
            added.take(name.as_bytes(), value.as_bytes());
        }
        let expected = serde_json::json!({"__op": "u", "__source_lsn": "26367272", "__sequence": r#"["1","2"]"#, "__table": "t", "__db": "shop", "__xmin": null});
        assert_eq!(serde_json::from_slice::<Value>(&added.json()).unwrap(), expected);
        assert!(Added::default().json().is_empty());
    }
}
