//! The options of Debezium's ExtractNewRecordState, under its names, validated.

use tidewire_change::{Error, Result};

/// `delete.tombstone.handling.mode`: what becomes of a delete and the tombstone behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletes {
    /// Neither is told.
    Drop,
    /// The delete is a value `null`, as a converter writes it under the row's schema; the tombstone isn't told.
    #[default]
    Tombstone,
    /// The delete is a message without a value; the tombstone isn't told.
    DeleteToTombstone,
    /// The delete is the row that it deletes, marked in `__deleted`; the tombstone isn't told.
    Rewrite,
    RewriteWithTombstone,
}

impl Deletes {
    /// Rows say in `__deleted` whether they are gone.
    pub fn are_rows(self) -> bool {
        matches!(self, Deletes::Rewrite | Deletes::RewriteWithTombstone)
    }
}

/// How rows are told alone, without their envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwrap {
    pub deletes: Deletes,
    /// Of the envelope, beside the row.
    pub fields: Vec<Addition>,
    pub headers: Vec<Addition>,
}

/// Something of the envelope that is told with the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// What it is called there.
    pub name: String,
    pub part: Part,
    pub field: String,
}

/// The part of the envelope in which a field stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Envelope,
    Source,
    Transaction,
    Before,
    After,
}

const ENVELOPE: [&str; 10] = [
    "op",
    "ts_ms",
    "ts_us",
    "ts_ns",
    "unavailable",
    "exact",
    "invalid_utf8",
    "before_unavailable",
    "before_exact",
    "before_invalid_utf8",
];
const SOURCE: [&str; 18] = [
    "version",
    "connector",
    "name",
    "ts_ms",
    "snapshot",
    "db",
    "sequence",
    "ts_us",
    "ts_ns",
    "schema",
    "table",
    "txId",
    "lsn",
    "xmin",
    "origin",
    "origin_lsn",
    "commit_lsn",
    "ordinal",
];
const TRANSACTION: [&str; 3] = ["id", "total_order", "data_collection_order"];

impl Unwrap {
    /// The options that `of` knows.
    pub const OPTIONS: [&'static str; 5] =
        ["delete.tombstone.handling.mode", "add.fields", "add.fields.prefix", "add.headers", "add.headers.prefix"];

    /// Why `route.by.field` is refused, and what does it.
    pub const NO_ROUTES: &'static str =
        "a row goes to its table's topic, by which topics are made, counted and taken over, and schemas registered";
    pub const ROUTE: &'static str =
        "leave bus.kafka.unwrap out and put the transform with route.by.field into the connectors that read (docs/debezium.md)";
    /// Why the options that drop fields have no effect.
    pub const NOTHING_TO_DROP: &'static str =
        "no message bears a header that names fields: only another transform makes one";

    /// `Invalid`: an option that isn't one of `OPTIONS`, or a value that it can't have.
    pub fn of<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Unwrap> {
        let mut unwrap = Unwrap::default();
        let (mut fields, mut headers) = (("", "__"), ("", "__"));
        for (option, value) in given {
            match option {
                "delete.tombstone.handling.mode" => unwrap.deletes = deletes(value)?,
                "add.fields" => fields.0 = value,
                "add.fields.prefix" => fields.1 = value,
                "add.headers" => headers.0 = value,
                "add.headers.prefix" => headers.1 = value,
                "delete.handling.mode" | "drop.tombstones" => {
                    return Err(Error::invalid(format!("`{option}` is called otherwise since Debezium 2.5"))
                        .hint("set delete.tombstone.handling.mode (docs/debezium.md, Old names)"))
                }
                "route.by.field" => {
                    return Err(
                        Error::invalid(format!("`{option}` isn't followed: {}", Self::NO_ROUTES)).hint(Self::ROUTE)
                    )
                }
                "drop.fields.header.name" | "drop.fields.from.key" | "drop.fields.keep.schema.compatible" => {
                    return Err(Error::invalid(format!("`{option}` would do nothing: {}", Self::NOTHING_TO_DROP))
                        .hint("leave it out"))
                }
                _ => {
                    return Err(Error::invalid(format!("`{option}` is no option of rows that are told alone"))
                        .hint(format!("they are: {}", Self::OPTIONS.join(", "))))
                }
            }
        }
        unwrap.fields = additions("add.fields", fields)?;
        unwrap.headers = additions("add.headers", headers)?;
        let deleted = unwrap.fields.iter().any(|of| of.name == "__deleted");
        if deleted && unwrap.deletes.are_rows() {
            return Err(Error::invalid(
                "add.fields adds a field `__deleted`, and delete.tombstone.handling.mode another",
            )
            .hint("call it otherwise, as in `op:operation`"));
        }
        let is_of_a_row = |of: &&Addition| matches!(of.part, Part::Before | Part::After);
        if let Some(of) = unwrap.headers.iter().find(is_of_a_row) {
            return Err(Error::invalid(format!(
                "add.headers names the column {}: headers of columns aren't written",
                of.field
            ))
            .hint("take add.fields for it"));
        }
        Ok(unwrap)
    }

    /// Those of `add.fields` or `add.headers` that no message has: the transform passes over them.
    pub fn unknown(list: &str) -> Vec<&str> {
        list.split(',').map(str::trim).filter(|word| !word.is_empty() && place(word).is_none()).collect()
    }
}

fn deletes(value: &str) -> Result<Deletes> {
    let all = [
        ("drop", Deletes::Drop),
        ("tombstone", Deletes::Tombstone),
        ("delete-to-tombstone", Deletes::DeleteToTombstone),
        ("rewrite", Deletes::Rewrite),
        ("rewrite-with-tombstone", Deletes::RewriteWithTombstone),
    ];
    let found = all.iter().find(|(word, _)| word.eq_ignore_ascii_case(value.trim()));
    found.map(|(_, deletes)| *deletes).ok_or_else(|| {
        Error::invalid(format!("`{value}` is no value of delete.tombstone.handling.mode"))
            .hint(format!("say one of: {}", all.map(|(word, _)| word).join(", ")))
    })
}

fn additions(option: &str, (list, prefix): (&str, &str)) -> Result<Vec<Addition>> {
    let mut found: Vec<Addition> = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let Some((part, field, name)) = place(word) else {
            return Err(Error::invalid(format!("{option} names `{word}`, which no message has")).hint(format!(
                "there are: {}; of `source.` {}; of `transaction.` {}; `before.` and `after.` with a column",
                ENVELOPE.join(", "),
                SOURCE.join(", "),
                TRANSACTION.join(", ")
            )));
        };
        let addition = Addition { name: format!("{prefix}{name}"), part, field };
        if found.iter().any(|of| of.name == addition.name) {
            return Err(Error::invalid(format!("{option} names `{}` twice", addition.name))
                .hint("call one of them otherwise, as in `source.ts_ms:committed`"));
        }
        found.push(addition);
    }
    Ok(found)
}

/// What a word of a list names, and how it is called: `FIELD` or `PART.FIELD`, with `:NAME` behind it.
fn place(word: &str) -> Option<(Part, String, String)> {
    let (path, own) = match word.split_once(':') {
        Some((path, own)) => (path, Some(own).filter(|own| !own.is_empty())),
        None => (word, None),
    };
    let (part, field) = match path.split_once('.') {
        None if TRANSACTION.contains(&path) => (Part::Transaction, path),
        None if ENVELOPE.contains(&path) => (Part::Envelope, path),
        None if SOURCE.contains(&path) => (Part::Source, path),
        Some(("source", field)) if SOURCE.contains(&field) => (Part::Source, field),
        Some(("transaction", field)) if TRANSACTION.contains(&field) => (Part::Transaction, field),
        // What a part hasn't is looked for in the envelope itself.
        Some(("source" | "transaction", field)) if ENVELOPE.contains(&field) => (Part::Envelope, field),
        Some(("before", column)) if !column.is_empty() && !column.contains('.') => (Part::Before, column),
        Some(("after", column)) if !column.is_empty() && !column.contains('.') => (Part::After, column),
        _ => return None,
    };
    if own.is_some_and(|own| own.contains(':')) {
        return None;
    }
    Some((part, field.to_string(), own.map_or_else(|| path.replace('.', "_"), str::to_string)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[(&str, &str)]) -> Vec<String> {
        Unwrap::of(given.iter().copied()).unwrap().fields.into_iter().map(|of| of.name).collect()
    }

    #[test]
    fn additions_are_called_as_debezium_calls_them() {
        let list = "op, lsn,source.ts_ms,transaction.id:tx,before.status,table:t";
        assert_eq!(
            names(&[("add.fields", list)]),
            ["__op", "__lsn", "__source_ts_ms", "__tx", "__before_status", "__t"]
        );
        assert_eq!(names(&[("add.fields.prefix", ""), ("add.fields", "op,ts_ms")]), ["op", "ts_ms"]);
        assert_eq!(Unwrap::unknown("op,source.file, pos"), ["source.file", "pos"]);
    }

    #[test]
    fn what_no_message_has_and_what_stands_twice_is_refused() {
        let refused = |given: &[(&str, &str)]| Unwrap::of(given.iter().copied()).unwrap_err().to_string();
        assert!(refused(&[("add.fields", "source.file")]).contains("`source.file`, which no message has"));
        assert!(refused(&[("add.fields", "op,op")]).contains("twice"));
        assert!(refused(&[("add.fields", "op:a:b")]).contains("no message has"));
        assert!(refused(&[("add.headers", "after.id")]).contains("headers of columns"));
        assert!(refused(&[("add.fields", "op:deleted"), ("delete.tombstone.handling.mode", "rewrite")])
            .contains("__deleted"));
        assert!(refused(&[("delete.tombstone.handling.mode", "none")]).contains("rewrite-with-tombstone"));
        assert!(refused(&[("add.field", "op")]).contains("add.fields.prefix"));
        let routed = refused(&[("route.by.field", "region")]);
        assert!(routed.contains("a row goes to its table's topic") && routed.contains("connectors that read"));
        assert!(refused(&[("drop.fields.from.key", "true")]).contains("no message bears a header"));
    }
}
