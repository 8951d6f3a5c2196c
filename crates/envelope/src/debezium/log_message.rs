//! Messages that somebody put into the log (op `m`), as Debezium writes them: all in one topic.

use super::connect_schema::{SOURCE, TRANSACTION};
use super::json::{push_binary, push_integer, push_string};
use super::modes::{BinaryMode, Modes};
use super::origin::{At, SourceParts};
use super::transactions::Block;
use super::Origin;
use tidewire_change::{LogMessage, TableName};

pub struct LogMessages {
    modes: Modes,
    source: SourceParts,
    key_head: String,
    value_head: String,
}

/// The topic of these messages.
pub fn topic(prefix: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    format!("{prefix}.message").chars().map(plain).collect()
}

impl LogMessages {
    pub fn new(modes: &Modes, origin: &Origin<'_>) -> LogMessages {
        let content = if modes.binary == BinaryMode::Bytes { "bytes" } else { "string" };
        let message = format!(
            r#"{{"type":"struct","fields":[{{"type":"string","optional":true,"field":"prefix"}},{{"type":"{content}","optional":true,"field":"content"}}],"optional":false,"name":"io.debezium.connector.postgresql.Message","version":1,"field":"message"}}"#
        );
        let key = r#"{"type":"struct","fields":[{"type":"string","optional":true,"field":"prefix"}],"optional":false,"name":"io.debezium.connector.postgresql.MessageKey","version":1}"#;
        let value = format!(
            r#"{{"type":"struct","fields":[{{"type":"string","optional":false,"field":"op"}},{{"type":"int64","optional":true,"field":"ts_ms"}},{SOURCE}{TRANSACTION}{message}],"optional":false,"name":"io.debezium.connector.postgresql.MessageValue","version":1}}"#
        );
        let head = |is_wanted: bool, schema: &str| match is_wanted {
            true => format!("{{\"schema\":{schema},\"payload\":"),
            false => String::new(),
        };
        LogMessages {
            source: SourceParts::new(origin, &TableName::new("", "")),
            key_head: head(modes.key_schemas, key),
            value_head: head(modes.value_schemas, &value),
            modes: modes.clone(),
        }
    }

    pub fn key(&self, message: &LogMessage, out: &mut Vec<u8>) {
        out.extend_from_slice(self.key_head.as_bytes());
        out.extend_from_slice(b"{\"prefix\":");
        push_string(&message.prefix, out);
        out.push(b'}');
        if self.modes.key_schemas {
            out.push(b'}');
        }
    }

    /// `processed_at`: microseconds since 1970 UTC, Debezium's `ts_ms`.
    pub fn value(&self, message: &LogMessage, block: Option<&Block>, processed_at: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value_head.as_bytes());
        out.extend_from_slice(b"{\"op\":\"m\",\"ts_ms\":");
        push_integer(processed_at.div_euclid(1000), out);
        let LogMessage { position, committed_at, xid, .. } = *message;
        self.source.push(&At { position, committed_at, is_read: false, xid }, out);
        out.extend_from_slice(b",\"transaction\":");
        match block {
            Some(block) => block.push(out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"message\":{\"prefix\":");
        push_string(&message.prefix, out);
        out.extend_from_slice(b",\"content\":");
        push_binary(&message.content, self.modes.binary, out);
        out.extend_from_slice(b"}}");
        if self.modes.value_schemas {
            out.push(b'}');
        }
    }
}
