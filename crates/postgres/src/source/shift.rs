//! Keys that shift or swap in one transaction (DESIGN §3).
//!
//! `UPDATE t SET id = id + 1` under a deferrable key arrives as d1 c2 d2 c3 d3 c4: the delete of 2 names the row that moved
//! away, not the one that moved in before. Such tables have full identity, so the old image tells which row is meant. All
//! changes of such a table in one transaction are gathered here, per key, and come out with each key's fate last.

use std::collections::HashMap;
use tidewire_change::Row;

/// One change of one key. `ordinal` is its place in the transaction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step<T> {
    pub ordinal: u32,
    /// The image that the change removes: whole old row.
    pub removes: Option<Row>,
    /// The image that the change leaves.
    pub adds: Option<Row>,
    pub change: T,
}

/// Steps of one table in one transaction since its begin or its last truncate.
pub(super) struct Shifts<T> {
    by_key: HashMap<u128, Vec<Step<T>>>,
}

/// What came of a key.
pub(super) struct Resolved<T> {
    /// In order of their new ordinals.
    pub changes: Vec<(u32, T)>,
    /// Keys that ended with more than one row: to be read again. One change each tells the key.
    pub unclear: Vec<u128>,
}

impl<T> Default for Shifts<T> {
    fn default() -> Self {
        Shifts { by_key: HashMap::new() }
    }
}

impl<T> Shifts<T> {
    pub fn push(&mut self, key: u128, step: Step<T>) {
        self.by_key.entry(key).or_default().push(step);
    }

    /// Takes all steps as they came.
    pub fn unresolved(&mut self) -> Vec<T> {
        let mut steps: Vec<Step<T>> = self.by_key.drain().flat_map(|(_, steps)| steps).collect();
        steps.sort_by_key(|step| step.ordinal);
        steps.into_iter().map(|step| step.change).collect()
    }

    /// Takes all steps. Within a key the changes keep their set of ordinals; the one that is the key's fate gets the last.
    pub fn resolve(&mut self) -> Resolved<T> {
        let mut resolved = Resolved { changes: Vec::new(), unclear: Vec::new() };
        for (key, steps) in self.by_key.drain() {
            match fate(&steps) {
                Fate::Step(last) => resolved.changes.extend(with_last(steps, last)),
                Fate::Untouched => {}
                Fate::Unclear => {
                    resolved.unclear.push(key);
                    resolved.changes.extend(steps.into_iter().map(|s| (s.ordinal, s.change)));
                }
            }
        }
        resolved.changes.sort_by_key(|(ordinal, _)| *ordinal);
        resolved
    }
}

enum Fate {
    /// This step decides.
    Step(usize),
    /// What came in during the transaction left again; the row from before, if there was one, is as it was.
    Untouched,
    Unclear,
}

fn fate<T>(steps: &[Step<T>]) -> Fate {
    // Images that came in during this transaction and are still there, with the step that brought each.
    let mut present: Vec<(usize, &Row)> = Vec::new();
    let mut original_went: Option<usize> = None;
    for (at, step) in steps.iter().enumerate() {
        if let Some(old) = &step.removes {
            match present.iter().position(|(_, image)| *image == old) {
                Some(found) => drop(present.remove(found)),
                None => original_went = Some(at),
            }
        }
        if let Some(new) = &step.adds {
            present.push((at, new));
        }
    }
    match (present.as_slice(), original_went) {
        ([(at, _)], _) => Fate::Step(*at),
        ([], Some(at)) => Fate::Step(at),
        ([], None) => Fate::Untouched,
        _ => Fate::Unclear,
    }
}

fn with_last<T>(mut steps: Vec<Step<T>>, last: usize) -> Vec<(u32, T)> {
    let ordinals: Vec<u32> = steps.iter().map(|s| s.ordinal).collect();
    let fate = steps.remove(last);
    steps.push(fate);
    ordinals.into_iter().zip(steps.into_iter().map(|s| s.change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tidewire_change::Datum;

    fn image(key: u32, value: u32) -> Row {
        Row::from_datums([Datum::Text(key.to_string().as_bytes()), Datum::Text(value.to_string().as_bytes())])
    }

    /// The change that a step stands for: the key's new value, or none.
    type Fate = (u32, Option<u32>);

    fn moves(shifts: &mut Shifts<Fate>, moves: &[(u32, u32, u32)]) {
        for (i, (from, to, value)) in moves.iter().enumerate() {
            let (old, new) = (image(*from, *value), image(*to, *value));
            let ordinal = 2 * i as u32;
            let away = Step { ordinal, removes: Some(old), adds: None, change: (*from, None) };
            let into = Step { ordinal: ordinal + 1, removes: None, adds: Some(new), change: (*to, Some(*value)) };
            shifts.push(u128::from(*from), away);
            shifts.push(u128::from(*to), into);
        }
    }

    fn apply(state: &mut BTreeMap<u32, u32>, shifts: &mut Shifts<Fate>) {
        for (_, (key, value)) in shifts.resolve().changes {
            match value {
                Some(value) => state.insert(key, value),
                None => state.remove(&key),
            };
        }
    }

    #[test]
    fn a_shift_by_one_leaves_every_row_under_its_new_key() {
        let mut state: BTreeMap<u32, u32> = [(1, 10), (2, 20), (3, 30)].into();
        let mut shifts = Shifts::default();
        moves(&mut shifts, &[(1, 2, 10), (2, 3, 20), (3, 4, 30)]);
        apply(&mut state, &mut shifts);
        assert_eq!(state, [(2, 10), (3, 20), (4, 30)].into());
    }

    #[test]
    fn a_swap_of_equal_rows_keeps_both() {
        let mut state: BTreeMap<u32, u32> = [(1, 7), (2, 7)].into();
        let mut shifts = Shifts::default();
        moves(&mut shifts, &[(1, 2, 7), (2, 1, 7)]);
        apply(&mut state, &mut shifts);
        assert_eq!(state, [(1, 7), (2, 7)].into());
    }

    #[test]
    fn a_row_that_only_passes_through_a_key_leaves_it_as_it_was() {
        let mut state: BTreeMap<u32, u32> = [(1, 10), (2, 20)].into();
        let mut shifts = Shifts::default();
        moves(&mut shifts, &[(1, 2, 10), (2, 3, 10)]);
        apply(&mut state, &mut shifts);
        assert_eq!(state, [(2, 20), (3, 10)].into());
    }

    proptest! {
        /// Any sequence of moves that ends with unique keys, whatever meets on the way.
        #[test]
        fn any_transaction_of_moves_gives_the_state_of_the_source(
            values in prop::collection::vec(0u32..3, 1..5),
            picks in prop::collection::vec((0usize..5, 0u32..6), 0..12),
        ) {
            let mut rows: Vec<(u32, u32)> = values.iter().enumerate().map(|(k, v)| (k as u32, *v)).collect();
            let mut state: BTreeMap<u32, u32> = rows.iter().copied().collect();
            let mut list = Vec::new();
            for (row, to) in picks {
                let at = row % rows.len();
                list.push((rows[at].0, to, rows[at].1));
                rows[at].0 = to;
            }
            let source: BTreeMap<u32, u32> = rows.iter().copied().collect();
            prop_assume!(source.len() == rows.len());
            let mut shifts = Shifts::default();
            moves(&mut shifts, &list);
            apply(&mut state, &mut shifts);
            prop_assert_eq!(state, source);
        }
    }
}
