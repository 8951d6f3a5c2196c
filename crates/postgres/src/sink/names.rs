//! Names at the target: which are ours, and how one is cut to what PostgreSQL keeps.

use tidewire_change::Key;

/// Bytes that PostgreSQL keeps of a name (NAMEDATALEN - 1).
const MAX_BYTES: usize = 63;

/// The columns that every replica table has beside the source's.
pub(super) const LSN: &str = "_lsn";
pub(super) const SEQ: &str = "_seq";
pub(super) const OP: &str = "_op";
pub(super) const TS: &str = "_ts";
pub(super) const DELETED: &str = "_deleted";
/// Only in staging tables: which columns the change didn't carry.
pub(super) const UNCHANGED: &str = "_unchanged";
/// Only while a batch is applied: of several staged rows with one key, the how-manieth.
pub(super) const TURN: &str = "_turn";
/// Only in tables that are keyed by the whole row: its hash, and which of its equal copies this is.
pub(super) const ROW: &str = "_row";
pub(super) const COPY: &str = "_copy";

const PREFIX: &str = "_src";

/// The target's name of a source column: the same, but for names that are ours. Those, and names that already look like
/// the outcome of this rule, get the prefix `_src`, so two columns never meet in one name.
pub(super) fn column(source: &str, key: &Key) -> String {
    let mut bare = source;
    while let Some(rest) = bare.strip_prefix(PREFIX) {
        bare = rest;
    }
    let ours = match bare {
        LSN | SEQ | OP | TS | DELETED | UNCHANGED | TURN => true,
        ROW | COPY => *key == Key::WholeRow,
        _ => false,
    };
    if ours {
        fit(&format!("{PREFIX}{source}"))
    } else {
        source.to_owned()
    }
}

/// The view of a table's live rows.
pub(super) fn view(table: &str) -> String {
    with_suffix(table, "_current")
}

/// The same where another table has that name.
pub(super) fn other_view(table: &str) -> String {
    with_suffix(table, "_current_rows")
}

/// `{table}{suffix}`; a name that is too long is cut and gets eight hex digits of its hash, so that two long names that
/// begin alike stay two.
fn with_suffix(table: &str, suffix: &str) -> String {
    if table.len() + suffix.len() <= MAX_BYTES {
        return format!("{table}{suffix}");
    }
    let tail = format!("_{:08x}{suffix}", hash(table));
    format!("{}{tail}", cut(table, MAX_BYTES - tail.len()))
}

fn fit(name: &str) -> String {
    if name.len() <= MAX_BYTES {
        return name.to_owned();
    }
    format!("{}_{:08x}", cut(name, MAX_BYTES - 9), hash(name))
}

fn cut(name: &str, bytes: usize) -> &str {
    let mut end = bytes.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// FNV-1a, 32 bits: the same in every version, for names that stay.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn source_columns_never_meet_ours_nor_one_another() {
        let names = ["_lsn", "_src_lsn", "_src_src_lsn", "_srcx", "lsn", "_LSN", "_row", "_copy", "_unchanged", "id"];
        for key in [Key::WholeRow, Key::Position, Key::Columns(vec![0])] {
            let mapped: BTreeSet<String> = names.iter().map(|n| column(n, &key)).collect();
            assert_eq!(mapped.len(), names.len());
            for ours in [LSN, SEQ, OP, TS, DELETED, UNCHANGED] {
                assert!(!mapped.contains(ours));
            }
        }
        assert_eq!(column("_row", &Key::Position), "_row");
        assert_eq!(column("_row", &Key::WholeRow), "_src_row");
    }

    #[test]
    fn long_names_that_begin_alike_stay_apart_and_are_cut_between_characters() {
        let (a, b) = ("n".repeat(63), format!("{}m", "n".repeat(62)));
        let (first, second) = (with_suffix(&a, "_current"), with_suffix(&b, "_current"));
        assert_ne!(first, second);
        assert!(first.len() == 63 && first.ends_with("_current"));
        assert!(with_suffix(&"é".repeat(31), "_current").len() <= 63);
        assert_eq!(with_suffix("orders", "_current"), "orders_current");
    }
}
