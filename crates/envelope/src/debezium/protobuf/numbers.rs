//! Numbers of fields: they stay what they were while a table's columns come and go.

use super::message::{Field, Message, Of};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The largest number, and a range that Protobuf keeps for itself.
const LARGEST: u32 = 536_870_911;
const OWN: std::ops::RangeInclusive<u32> = 19_000..=19_999;

/// Gives fields the numbers that they have in `old` by their names. A new field keeps its own where no other ever had it, else it gets one behind
/// all that there were; those of fields that are gone stay reserved. None: no number is left.
pub fn follow(new: &mut Message, old: &Message) -> Option<()> {
    let known: HashMap<&str, &Field> = old.fields.iter().map(|field| (field.name.as_str(), field)).collect();
    let mut taken: BTreeSet<u32> = old.fields.iter().map(|field| field.number).collect();
    let is_reserved = |number: u32| old.reserved.iter().any(|(from, to)| (*from..=*to).contains(&number));
    let mut last = old.reserved.iter().map(|(_, to)| *to).filter(|to| *to < LARGEST).max().unwrap_or(0);
    last = last.max(taken.last().copied().unwrap_or(0));
    for field in &mut new.fields {
        if let Some(old) = known.get(field.name.as_str()) {
            field.number = old.number;
            continue;
        }
        if taken.contains(&field.number) || is_reserved(field.number) {
            let next = last.max(taken.last().copied().unwrap_or(0)) + 1;
            let next = if OWN.contains(&next) { OWN.end() + 1 } else { next };
            field.number = Some(next).filter(|next| *next <= LARGEST && !is_reserved(*next))?;
        }
        taken.insert(field.number);
    }
    let names: BTreeSet<&str> = new.fields.iter().map(|field| field.name.as_str()).collect();
    let gone = old.fields.iter().filter(|field| !names.contains(field.name.as_str())).map(|field| field.number);
    let mut reserved: Vec<(u32, u32)> =
        gone.map(|number| (number, number)).chain(old.reserved.iter().copied()).collect();
    reserved.sort_unstable();
    new.reserved = joined(reserved);
    nested(new, old)
}

/// Types are known by their names, whatever fields are of them.
fn nested(new: &mut Message, old: &Message) -> Option<()> {
    let of = |field: &Field| match &field.of {
        Of::Message(message) => Some(message.clone()),
        _ => None,
    };
    let known: Vec<Arc<Message>> = old.fields.iter().filter_map(of).collect();
    for field in &mut new.fields {
        if let Of::Message(message) = &mut field.of {
            if let Some(old) = known.iter().find(|old| old.name == message.name) {
                follow(Arc::make_mut(message), old)?;
            }
        }
    }
    Some(())
}

fn joined(sorted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (from, to) in sorted {
        match out.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = (*end).max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::message::Label;
    use super::*;

    fn fresh(names: &[&str]) -> Message {
        let field = |(at, name): (usize, &&str)| Field {
            name: name.to_string(),
            number: at as u32 + 1,
            label: Label::Optional,
            of: Of::Int32,
            params: Vec::new(),
        };
        Message { name: "Value".into(), fields: names.iter().enumerate().map(field).collect(), reserved: Vec::new() }
    }

    fn numbers(message: &Message) -> Vec<(&str, u32)> {
        message.fields.iter().map(|field| (field.name.as_str(), field.number)).collect()
    }

    #[test]
    fn columns_keep_their_numbers_and_those_of_dropped_ones_are_given_to_none() {
        let mut versions = vec![fresh(&["a", "b", "c"])];
        let mut then = |names: &[&str]| {
            let mut next = fresh(names);
            follow(&mut next, versions.last().unwrap()).unwrap();
            versions.push(next);
            versions.last().unwrap().clone()
        };
        let dropped = then(&["a", "c"]);
        assert_eq!((numbers(&dropped), &dropped.reserved[..]), (vec![("a", 1), ("c", 3)], &[(2, 2)][..]));
        let added = then(&["a", "c", "d"]);
        assert_eq!(numbers(&added), [("a", 1), ("c", 3), ("d", 4)]);
        let moved = then(&["d", "x", "a"]);
        assert_eq!((numbers(&moved), &moved.reserved[..]), (vec![("d", 4), ("x", 5), ("a", 1)], &[(2, 3)][..]));
        let back = then(&["b", "a"]);
        assert_eq!((numbers(&back), &back.reserved[..]), (vec![("b", 6), ("a", 1)], &[(2, 5)][..]));
        // Whoever asks anew finds the same.
        let mut again = fresh(&["b", "a"]);
        follow(&mut again, &back).unwrap();
        assert_eq!(again, back);
    }

    #[test]
    fn no_number_is_given_twice() {
        let mut old = fresh(&["a"]);
        old.reserved = vec![(2, 18_999)];
        let mut new = fresh(&["a", "b", "c"]);
        follow(&mut new, &old).unwrap();
        assert_eq!(numbers(&new), [("a", 1), ("b", 20_000), ("c", 20_001)]);
        old.fields[0].number = LARGEST;
        old.reserved = vec![(1, 3)];
        assert!(
            follow(&mut new, &old).is_none()
                || numbers(&new).iter().map(|(_, n)| n).collect::<BTreeSet<_>>().len() == 3
        );
    }
}
