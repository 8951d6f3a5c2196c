//! What messages' keys tell of their rows.

use super::tables::Seen;
use super::TopicsConfig as Config;
use tidewire_change::{Change, Column, Error, Identity, Key, Op, Result, TableName};
use tidewire_envelope::debezium::{has_key, key_names, parts, Decoder, Place};
use tidewire_flow::change_key;

pub(super) fn delete_by_key(decoder: &mut Decoder, seen: &Seen<'_>, place: Place) -> Result<Change> {
    let lacking = || Error::malformed("a delete tells neither its row nor its key");
    let key = seen.key.and_then(parts).map(|(_, payload)| payload).filter(|key| *key != b"null").ok_or_else(lacking)?;
    decoder.delete_of(key, place)
}

/// An update by which the key changes is a delete and a create; one of a row without a key, too.
pub(super) fn in_two(change: Change) -> Vec<Change> {
    let is_full = change.schema.identity == Identity::Full;
    let (Op::Update, Some(before), Some(_)) = (change.op, &change.before, &change.after) else { return vec![change] };
    let moved = match &change.schema.key {
        Key::Columns(_) => {
            has_key(&change, before) && {
                let (mut old, mut new) = (Vec::new(), Vec::new());
                let of_before = Change { op: Op::Delete, after: None, ..change.clone() };
                let both = change_key(&of_before, &mut old).and_then(|()| change_key(&change, &mut new));
                both.is_ok() && old != new
            }
        }
        Key::Position | Key::WholeRow => true,
    };
    if !moved {
        let before = change.before.clone().filter(|_| is_full);
        return vec![Change { before, ..change }];
    }
    let after = change.after.as_ref().map(|after| after.completed_from(before));
    let delete = Change { op: Op::Delete, after: None, ..change.clone() };
    let create = Change { op: Op::Create, before: None, after, ..change };
    vec![delete, create]
}

/// The key's columns: as configured, else as the message's key names them.
pub(super) fn key_columns(seen: &Seen<'_>, config: &Config, columns: &[Column]) -> Option<Vec<String>> {
    if let Some(keys) = config.keys.get(&seen.table) {
        return Some(keys.clone());
    }
    let payload = seen.key.and_then(parts).map(|(_, payload)| payload)?;
    key_names(payload, config.registry.is_some(), |name| columns.iter().any(|column| column.name == name))
}

pub(super) fn unknown(table: &TableName) -> String {
    format!(
        "its messages carry no schemas, and nothing says what columns {table} has: set source.debezium.tables or \
         source.debezium.tables_from, or have the connector write schemas (value.converter.schemas.enable=true)"
    )
}
