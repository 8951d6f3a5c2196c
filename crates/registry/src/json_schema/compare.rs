//! Whether one schema accepts all that another does, as far as their forms tell.

use super::parts::{parts, types, values, words, Of, Part, Types, ALL, ARRAY, INTEGER, NUMBER, OBJECT, STRING};
use super::{limits, Node, Schema};
use crate::contract::Profile;
use crate::walk::{Judged, Verdict, Walk};
use tidewire_change::Result;

/// Every difference goes to the walk.
pub fn compare(reader: &Schema, writer: &Schema, profile: Profile, walk: &mut Walk<'_>) -> Result<()> {
    Comparison { walk, profile, judged: Judged::default() }.accepts(reader.root(), writer.root()).map(|_| ())
}

pub struct Comparison<'w, 'b> {
    pub walk: &'w mut Walk<'b>,
    pub profile: Profile,
    judged: Judged,
}

/// What can't be judged by its form: it must stay as it is.
const OPAQUE: [&str; 9] = [
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
];

impl Comparison<'_, '_> {
    pub fn accepts(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        self.walk.down()?;
        // Taking a schema apart costs more than a step elsewhere.
        self.walk.spend(10)?;
        let pair = (r.address(), w.address());
        let same = match self.judged.begin(pair, self.walk) {
            Verdict::Known(same) => same,
            Verdict::Open(start) => {
                let (reader, writer) = (parts(r, self.walk)?, parts(w, self.walk)?);
                let same = self.parts(&reader, &writer)?;
                self.judged.end(start, pair, same);
                same
            }
        };
        self.walk.up();
        Ok(same)
    }

    /// The same without a word about differences.
    pub fn quietly(&mut self, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        self.walk.hush();
        let same = self.accepts(r, w)?;
        self.walk.speak();
        Ok(same)
    }

    pub fn at(&mut self, path: String, r: Node<'_>, w: Node<'_>) -> Result<bool> {
        self.walk.push(path);
        let same = self.accepts(r, w)?;
        self.walk.pop();
        Ok(same)
    }

    /// Each of the reader's parts must hold whenever all of the writer's do.
    fn parts(&mut self, reader: &[Part<'_>], writer: &[Part<'_>]) -> Result<bool> {
        if writer.iter().any(|part| matches!(part.of, Of::Never)) {
            return Ok(true);
        }
        let mut same = true;
        for (at, r) in reader.iter().enumerate() {
            same &= match writer {
                [] => self.differ(r, "TYPE_NARROWED", "any value was written, and the reader takes some only"),
                [one] => self.part(r, one)?,
                several => self.one_of_them(r, several, at, reader.len())?,
            };
        }
        Ok(same)
    }

    fn one_of_them(&mut self, r: &Part<'_>, writer: &[Part<'_>], at: usize, count: usize) -> Result<bool> {
        self.walk.hush();
        for w in writer {
            if self.part(r, w)? {
                self.walk.speak();
                return Ok(true);
            }
        }
        self.walk.speak();
        // The part in the same place tells best what is lacking.
        let same = match writer.get(at).filter(|_| count == writer.len()) {
            Some(w) => return self.part(r, w),
            None if count > writer.len() => {
                self.differ(r, "PRODUCT_TYPE_EXTENDED", "the reader demands more than was written")
            }
            None => self.differ(r, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "no part of what was written fits here"),
        };
        Ok(same)
    }

    fn differ(&mut self, part: &Part<'_>, rule: &'static str, message: &str) -> bool {
        self.enter(&part.path);
        self.walk.differ(rule, || message.to_string());
        self.walk.pop();
        false
    }

    fn enter(&mut self, path: &str) {
        self.walk.push(path.trim_start_matches('/').to_string());
    }

    fn part(&mut self, r: &Part<'_>, w: &Part<'_>) -> Result<bool> {
        self.walk.down()?;
        let same = match (&r.of, &w.of) {
            (_, Of::Never) => true,
            (Of::Never, _) => self.differ(r, "TYPE_NARROWED", "the reader takes no value at all here"),
            (Of::Plain(a, of_a), Of::Plain(b, of_b)) => {
                self.enter(&r.path);
                let same = self.plain((*a, *of_a), (*b, *of_b))?;
                self.walk.pop();
                same
            }
            (Of::Choice { branches: a, is_one }, Of::Choice { branches: b, is_one: was_one }) => {
                self.choices(r, (a, *is_one), (b, *was_one))?
            }
            (Of::Choice { branches, .. }, Of::Plain(plain, of)) => self.chosen(r, branches, *plain, *of)?,
            (_, Of::Choice { branches, .. }) => self.each(r, w, branches)?,
            (Of::Not(a), Of::Not(b)) => {
                self.quietly(*b, *a)?
                    || self.differ(r, "NOT_TYPE_EXTENDED", "the reader excludes more than the writer did")
            }
            (Of::Not(not), Of::Plain(_, of)) => {
                let excluded = parts(*not, self.walk)?.iter().fold(ALL, |all, part| match part.of {
                    Of::Plain(_, types) => all & types,
                    _ => all,
                });
                excluded & of == 0 || self.differ(r, "NOT_TYPE_ADDED", "the reader excludes what may have been written")
            }
            (_, Of::Not(_)) => {
                self.differ(r, "TYPE_NARROWED", "nearly any value was written, and the reader takes some only")
            }
        };
        self.walk.up();
        Ok(same)
    }

    /// Whatever the writer chose must hold for the reader.
    fn each(&mut self, r: &Part<'_>, w: &Part<'_>, branches: &[Node<'_>]) -> Result<bool> {
        let mut same = true;
        for (at, branch) in branches.iter().enumerate() {
            let writer = parts(*branch, self.walk)?;
            self.walk.push(format!("{}/{at}", w.path.trim_start_matches('/')));
            same &= self.parts(std::slice::from_ref(r), &writer)?;
            self.walk.pop();
        }
        Ok(same)
    }

    /// Some branch takes what was written; of a schema with several types, each type may go to another branch.
    fn chosen(&mut self, r: &Part<'_>, branches: &[Node<'_>], plain: Node<'_>, of: Types) -> Result<bool> {
        let mut lacking = 0;
        for bit in (0..7).map(|bit| 1 << bit).filter(|bit| of & bit != 0) {
            let of = if bit == NUMBER { NUMBER | INTEGER } else { bit };
            let writer = Part { path: String::new(), of: Of::Plain(plain, of) };
            self.walk.hush();
            let mut is_taken = false;
            for branch in branches {
                let reader = parts(*branch, self.walk)?;
                if self.parts(&reader, std::slice::from_ref(&writer))? {
                    is_taken = true;
                    break;
                }
            }
            self.walk.speak();
            if !is_taken {
                lacking |= of;
            }
        }
        Ok(lacking == 0
            || self.differ(r, "TYPE_CHANGED", &format!("no branch takes what was written: {}", words(lacking & of))))
    }

    /// Each branch of the writer needs one of the reader's, and no two the same.
    fn choices(&mut self, r: &Part<'_>, reader: (&[Node<'_>], bool), writer: (&[Node<'_>], bool)) -> Result<bool> {
        let ((readers, is_one), (writers, was_one)) = (reader, writer);
        if is_one && !was_one {
            let message = "several branches at once were allowed, and the reader takes exactly one";
            return Ok(self.differ(r, "COMBINED_TYPE_CHANGED", message));
        }
        let mut fits = Vec::with_capacity(writers.len());
        for w in writers {
            let mut of_this = Vec::new();
            for (at, candidate) in readers.iter().enumerate() {
                if self.quietly(*candidate, *w)? {
                    of_this.push(at);
                }
            }
            fits.push(of_this);
        }
        let lonely = unmatched(&fits, readers.len(), self.walk)?;
        if lonely.is_empty() {
            return Ok(true);
        }
        let (rule, why) = match writers.len() > readers.len() {
            true => ("SUM_TYPE_NARROWED", format!("{} branches were {}", readers.len(), writers.len())),
            false => (
                "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
                format!("no branch of its own for {} of the writer's", lonely.len()),
            ),
        };
        self.differ(r, rule, &why);
        for at in lonely.into_iter().filter(|at| fits[*at].is_empty()) {
            // Why not, where the branch in the same place is the one that was meant.
            if let Some(meant) = readers.get(at).filter(|_| readers.len() == writers.len()) {
                self.at(format!("{}/{at}", r.path.trim_start_matches('/')), *meant, writers[at])?;
            }
        }
        Ok(false)
    }

    fn plain(&mut self, (r, of_r): (Node<'_>, Types), (w, of_w): (Node<'_>, Types)) -> Result<bool> {
        let listed = values(r).map_or(0, |values| values.len()) + values(w).map_or(0, |values| values.len());
        self.walk.spend(listed)?;
        let of_r = of_r & types(r);
        let of_w = of_w & types(w);
        let mut same = true;
        if of_w & !of_r != 0 && !limits::all_fit(r, w) {
            let rule = if of_w & of_r == 0 { "TYPE_CHANGED" } else { "TYPE_NARROWED" };
            self.walk.push("type");
            let said = || format!("the reader takes {}, {} were written", or_nothing(of_r), or_nothing(of_w));
            same = self.walk.differ(rule, said);
            self.walk.pop();
        }
        same &= self.values(r, w);
        let both = of_w & of_r;
        if both & STRING != 0 {
            same &= limits::strings(r, w, self.walk);
        }
        if both & (NUMBER | INTEGER) != 0 {
            same &= limits::numbers(r, w, self.walk);
        }
        if both & OBJECT != 0 {
            same &= self.objects(r, w)?;
        }
        if both & ARRAY != 0 {
            same &= self.arrays(r, w)?;
        }
        for key in OPAQUE {
            let (new, old) = (r.json.get(key), w.json.get(key));
            if new.is_some() && new != old {
                self.walk.push(key);
                same = self
                    .walk
                    .differ("KEYWORD_CHANGED", || format!("whether another `{key}` takes the same can't be judged"));
                self.walk.pop();
            }
        }
        Ok(same)
    }

    fn values(&mut self, r: Node<'_>, w: Node<'_>) -> bool {
        let Some(taken) = values(r) else { return true };
        let key = if r.json.get("const").is_some() { "const" } else { "enum" };
        self.walk.push(key);
        let same = match values(w) {
            None => self
                .walk
                .differ("ENUM_ARRAY_ADDED", || "any value was written, and the reader lists the ones it takes".into()),
            Some(written) => {
                let known: std::collections::HashSet<String> = taken.iter().map(|value| value.print()).collect();
                let missing: Vec<String> =
                    written.iter().map(|value| value.print()).filter(|value| !known.contains(value)).collect();
                missing.is_empty()
                    || self.walk.differ("ENUM_ARRAY_NARROWED", || format!("no longer taken: {}", missing.join(", ")))
            }
        };
        self.walk.pop();
        same
    }
}

fn or_nothing(types: Types) -> String {
    match types {
        0 => "nothing".to_string(),
        types => words(types),
    }
}

/// The writers that are left when as many as possible have a reader of their own.
fn unmatched(fits: &[Vec<usize>], readers: usize, walk: &mut Walk<'_>) -> Result<Vec<usize>> {
    let mut owner: Vec<Option<usize>> = vec![None; readers];
    let mut left = Vec::new();
    for writer in 0..fits.len() {
        // A way of changes from this writer to a reader that is free, breadth first.
        let mut came_from: Vec<Option<usize>> = vec![None; readers];
        let mut queue = std::collections::VecDeque::from([writer]);
        let mut free = None;
        while let (Some(at), None) = (queue.pop_front(), free) {
            walk.spend(fits[at].len())?;
            for reader in fits[at].iter().copied() {
                if came_from[reader].is_some() {
                    continue;
                }
                came_from[reader] = Some(at);
                match owner[reader] {
                    Some(owned) => queue.push_back(owned),
                    None => {
                        free = Some(reader);
                        break;
                    }
                }
            }
        }
        let Some(mut reader) = free else {
            left.push(writer);
            continue;
        };
        while let Some(at) = came_from[reader] {
            let before = owner.iter().position(|owned| *owned == Some(at));
            owner[reader] = Some(at);
            match before {
                Some(before) => {
                    owner[before] = None;
                    reader = before;
                }
                None => break,
            }
        }
    }
    Ok(left)
}
