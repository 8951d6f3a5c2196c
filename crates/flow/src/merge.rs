use tidewire_change::{Change, Op, Row};

/// `over` with its `Unchanged` columns taken from `base`, an earlier row of the same key and schema.
pub fn merge_row(base: &Row, over: &Row) -> Row {
    over.completed_from(base)
}

/// What a change makes of the row that a sink holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The whole row, live.
    Live(Row),
    /// The row is deleted: its last values as far as they are known, the others `Unchanged`.
    Deleted(Row),
    /// Columns are missing that the sink doesn't have either: not to be applied, a placed read of the key follows
    /// (DESIGN §4.5).
    Incomplete,
}

/// Applies a change that passed the guard to what a sink holds of its key: `held` is the row and whether it is live.
/// The one rule of which row may lend its columns: an update takes them from a live row; a create or read starts a new
/// row, which has nothing of an earlier one; a delete keeps what the row last was.
/// A truncate is not a change of one row: `Incomplete`.
pub fn applied(change: &Change, held: Option<(&Row, bool)>) -> Applied {
    match (change.op, &change.before, &change.after) {
        (Op::Delete, Some(before), _) => {
            Applied::Deleted(held.map_or_else(|| before.clone(), |(row, _)| before.completed_from(row)))
        }
        (Op::Read | Op::Create | Op::Update, before, Some(after)) => {
            let mut row = match before {
                Some(before) => after.completed_from(before),
                None => after.clone(),
            };
            if let (Op::Update, Some((held, true))) = (change.op, held) {
                row = row.completed_from(held);
            }
            if row.has_unchanged() {
                Applied::Incomplete
            } else {
                Applied::Live(row)
            }
        }
        _ => Applied::Incomplete,
    }
}
