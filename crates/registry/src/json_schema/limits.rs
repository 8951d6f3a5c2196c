//! Assertions about single values: bounds, lengths, patterns.

use super::parts::{type_of, types, values};
use super::Node;
use crate::json::Json;
use crate::walk::Walk;
use std::cmp::Ordering;

/// What a regular expression may come to.
const PATTERN_BYTES: usize = 100_000;
/// The steps that one counts as.
pub const PATTERN_STEPS: usize = 100;

/// A keyword that bounds, and the rules that a new and a narrower bound break.
type Bound = (&'static str, &'static str, &'static str);

const LENGTHS: (Bound, Bound) = (
    ("maxLength", "MAX_LENGTH_ADDED", "MAX_LENGTH_DECREASED"),
    ("minLength", "MIN_LENGTH_ADDED", "MIN_LENGTH_INCREASED"),
);
pub const ITEMS: (Bound, Bound) =
    (("maxItems", "MAX_ITEMS_ADDED", "MAX_ITEMS_DECREASED"), ("minItems", "MIN_ITEMS_ADDED", "MIN_ITEMS_INCREASED"));
pub const PROPERTIES: (Bound, Bound) = (
    ("maxProperties", "MAX_PROPERTIES_ADDED", "MAX_PROPERTIES_DECREASED"),
    ("minProperties", "MIN_PROPERTIES_ADDED", "MIN_PROPERTIES_INCREASED"),
);

/// Compares a largest and a smallest count.
pub fn counts(r: Node<'_>, w: Node<'_>, (most, least): (Bound, Bound), walk: &mut Walk<'_>) -> bool {
    let zero = Json::Number("0".into());
    // A smallest count of 0 is none.
    let least_of =
        |node: Node<'_>| node.json.get(least.0).filter(|least| order(least, &zero) == Ordering::Greater).cloned();
    bound(most, r.json.get(most.0), w.json.get(most.0), Ordering::Less, walk)
        & bound(least, least_of(r).as_ref(), least_of(w).as_ref(), Ordering::Greater, walk)
}

/// `narrower`: how the reader's bound stands to the writer's when it takes less.
fn bound(of: Bound, r: Option<&Json>, w: Option<&Json>, narrower: Ordering, walk: &mut Walk<'_>) -> bool {
    let Some(r) = r else { return true };
    walk.push(of.0);
    let same = match w {
        None => walk.differ(of.1, || format!("there was no bound, the reader has {}", r.print())),
        Some(w) if order(r, w) == narrower => walk.differ(of.2, || format!("{} was {}", r.print(), w.print())),
        Some(_) => true,
    };
    walk.pop();
    same
}

pub fn strings(r: Node<'_>, w: Node<'_>, walk: &mut Walk<'_>) -> bool {
    if all_fit(r, w) {
        return true;
    }
    let same = counts(r, w, LENGTHS, walk);
    let (new, old) = (r.json.get("pattern"), w.json.get("pattern"));
    let Some(new) = new.filter(|new| Some(*new) != old) else { return same };
    walk.push("pattern");
    match old {
        None => walk.differ("PATTERN_ADDED", || format!("any text was written, the reader wants {}", new.print())),
        Some(old) => walk.differ("PATTERN_CHANGED", || format!("{} was {}", new.print(), old.print())),
    };
    walk.pop();
    false
}

pub fn numbers(r: Node<'_>, w: Node<'_>, walk: &mut Walk<'_>) -> bool {
    if all_fit(r, w) {
        return true;
    }
    let most = ("maximum", "MAXIMUM_ADDED", "MAXIMUM_DECREASED");
    let most_below = ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM_ADDED", "EXCLUSIVE_MAXIMUM_DECREASED");
    let least = ("minimum", "MINIMUM_ADDED", "MINIMUM_INCREASED");
    let least_above = ("exclusiveMinimum", "EXCLUSIVE_MINIMUM_ADDED", "EXCLUSIVE_MINIMUM_INCREASED");
    let same = edge((most, most_below), r, w, Ordering::Less, walk)
        & edge((least, least_above), r, w, Ordering::Greater, walk);
    same & multiples(r, w, walk)
}

/// One end of a range: the bound itself, and the one that excludes its number.
fn edge((open, shut): (Bound, Bound), r: Node<'_>, w: Node<'_>, narrower: Ordering, walk: &mut Walk<'_>) -> bool {
    // The tightest of the two: the number, and whether it is excluded. In draft 4 the second is a boolean of the first.
    let tightest = |node: Node<'_>| {
        let (open, shut) = (node.json.get(open.0), node.json.get(shut.0));
        match (open, shut) {
            (Some(open), Some(Json::Bool(is_shut))) => Some((open.clone(), *is_shut)),
            (Some(open), Some(shut)) if order(open, shut) == narrower => Some((open.clone(), false)),
            (_, Some(shut @ Json::Number(_))) => Some((shut.clone(), true)),
            (Some(open), _) => Some((open.clone(), false)),
            _ => None,
        }
    };
    let Some((r, r_shut)) = tightest(r) else { return true };
    let of = if r_shut { shut } else { open };
    walk.push(of.0);
    let same = match tightest(w) {
        None => walk.differ(of.1, || format!("there was no bound, the reader has {}", r.print())),
        Some((w, w_shut)) => match order(&r, &w) {
            Ordering::Equal if r_shut && !w_shut => {
                walk.differ(of.2, || format!("{} itself is no longer taken", r.print()))
            }
            found if found == narrower => walk.differ(of.2, || format!("{} was {}", r.print(), w.print())),
            _ => true,
        },
    };
    walk.pop();
    same
}

fn multiples(r: Node<'_>, w: Node<'_>, walk: &mut Walk<'_>) -> bool {
    let Some(new) = r.json.get("multipleOf") else { return true };
    walk.push("multipleOf");
    let same = match w.json.get("multipleOf") {
        None => walk.differ("MULTIPLE_OF_ADDED", || {
            format!("any number was written, the reader wants multiples of {}", new.print())
        }),
        Some(old) if divides(new, old) => true,
        Some(old) => {
            let rule =
                if order(new, old) == Ordering::Greater { "MULTIPLE_OF_EXPANDED" } else { "MULTIPLE_OF_CHANGED" };
            walk.differ(rule, || format!("{} was {}", new.print(), old.print()))
        }
    };
    walk.pop();
    same
}

fn divides(divisor: &Json, number: &Json) -> bool {
    let quotient = number.number().zip(divisor.number()).map(|(number, divisor)| number / divisor);
    quotient.is_some_and(|quotient| (quotient - quotient.round()).abs() < 1e-9)
}

/// By value: whole numbers exactly.
fn order(a: &Json, b: &Json) -> Ordering {
    let whole = |json: &Json| match json {
        Json::Number(digits) => digits.parse::<i128>().ok(),
        _ => None,
    };
    match whole(a).zip(whole(b)) {
        Some((a, b)) => a.cmp(&b),
        None => a.number().partial_cmp(&b.number()).unwrap_or(Ordering::Equal),
    }
}

/// The writer lists its values, and every one is a simple value within the reader's bounds.
pub fn all_fit(r: Node<'_>, w: Node<'_>) -> bool {
    values(w).is_some_and(|values| values.iter().all(|value| fits(r, value)))
}

fn fits(r: Node<'_>, value: &Json) -> bool {
    let number = |key: &str| r.json.get(key).filter(|bound| bound.number().is_some());
    let within = |value: &Json, most: &str, least: &str| {
        number(most).is_none_or(|most| order(value, most) != Ordering::Greater)
            && number(least).is_none_or(|least| order(value, least) != Ordering::Less)
    };
    types(r) & type_of(value) != 0
        && match value {
            Json::Null | Json::Bool(_) => true,
            Json::Number(_) => {
                let is_shut = |key: &str| r.json.get(key).is_some();
                within(value, "maximum", "minimum")
                    && !is_shut("exclusiveMaximum")
                    && !is_shut("exclusiveMinimum")
                    && r.json.get("multipleOf").is_none_or(|of| divides(of, value))
            }
            Json::Text(text) => {
                let length = Json::Number(text.chars().count().to_string().into());
                let matches = |of: &str| pattern(of).is_some_and(|pattern| pattern.is_match(text));
                within(&length, "maxLength", "minLength")
                    && r.json.get("pattern").and_then(Json::text).is_none_or(matches)
            }
            Json::List(_) | Json::Object(_) => false,
        }
}

/// None: it isn't understood, or would cost too much.
pub fn pattern(text: &str) -> Option<regex_lite::Regex> {
    regex_lite::RegexBuilder::new(text).size_limit(PATTERN_BYTES).build().ok()
}
