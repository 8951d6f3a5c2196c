use tidewire_change::Position;

/// May a change at `new` be applied (DESIGN §3)? `stored`: the position that the sink holds for the key, deleted rows
/// too. `truncated`: the last truncate of the table. Equal positions are the same change again: it never passes.
#[inline]
pub fn passes(new: Position, stored: Option<Position>, truncated: Option<Position>) -> bool {
    stored.is_none_or(|stored| new > stored) && truncated.is_none_or(|truncated| new > truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_strictly_newer_change_above_the_truncate_passes() {
        let at = |commit, ordinal| Position::new(commit, ordinal);
        assert!(passes(at(1, 0), None, None));
        assert!(passes(at(5, 2), Some(at(5, 1)), Some(at(4, 9))));
        assert!(!passes(at(5, 1), Some(at(5, 1)), None));
        assert!(!passes(at(4, 9), Some(at(5, 1)), None));
        assert!(!passes(at(5, 1), None, Some(at(5, 1))));
        assert!(!passes(at(5, 1), Some(at(1, 0)), Some(at(6, 0))));
    }
}
