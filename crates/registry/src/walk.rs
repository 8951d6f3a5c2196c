//! A walk down two schemas side by side: where it is, what it found, what it may still cost.

use crate::bounds::{too_deep, Budget, DEEPEST};
use crate::difference::{Difference, MOST_DIFFERENCES};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use tidewire_change::Result;

pub struct Walk<'b> {
    budget: &'b mut Budget,
    path: Vec<Cow<'static, str>>,
    depth: usize,
    found: Vec<Difference>,
    /// Above 0: alternatives are tried, and what they lack isn't told.
    silent: usize,
}

impl<'b> Walk<'b> {
    pub fn new(budget: &'b mut Budget) -> Walk<'b> {
        Walk { budget, path: Vec::new(), depth: 0, found: Vec::new(), silent: 0 }
    }

    pub fn found(self) -> Vec<Difference> {
        self.found
    }

    pub fn step(&mut self) -> Result<()> {
        self.budget.spend(1)
    }

    pub fn spend(&mut self, steps: usize) -> Result<()> {
        self.budget.spend(steps as u64)
    }

    /// One level down; `up` comes back.
    pub fn down(&mut self) -> Result<()> {
        self.step()?;
        if self.depth >= DEEPEST {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    pub fn up(&mut self) {
        self.depth -= 1;
    }

    /// An empty step isn't seen.
    pub fn push(&mut self, step: impl Into<Cow<'static, str>>) {
        self.path.push(step.into());
    }

    /// A name from outside as a step of a path, as RFC 6901 writes it.
    pub fn push_name(&mut self, name: &str) {
        self.path.push(Cow::Owned(name.replace('~', "~0").replace('/', "~1")));
    }

    pub fn pop(&mut self) {
        self.path.pop();
    }

    pub fn hush(&mut self) {
        self.silent += 1;
    }

    pub fn speak(&mut self) {
        self.silent -= 1;
    }

    pub fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// Notes a difference; always false, the answer to whether the schemas go together.
    pub fn differ(&mut self, rule: &'static str, message: impl FnOnce() -> String) -> bool {
        if self.silent == 0 && self.found.len() <= MOST_DIFFERENCES {
            let more = self.found.len() == MOST_DIFFERENCES;
            let steps = self.path.iter().filter(|step| !step.is_empty());
            let path = steps.fold(String::new(), |path, step| path + "/" + step);
            let message = if more { "there are more differences than are listed".to_string() } else { message() };
            self.found.push(Difference { rule, path, message });
        }
        false
    }
}

/// Pairs of types that were compared already, or are being: those go together until the contrary is found, so that types
/// which hold themselves come to an end.
#[derive(Default)]
pub struct Judged {
    verdicts: HashMap<Pair, bool>,
    /// The pairs that go together, in order: what rests on a pair that turns out not to is forgotten with it.
    trail: Vec<Pair>,
    /// Pairs whose differences are told already, at the first place where they were met.
    told: HashSet<Pair>,
}

pub type Pair = (usize, usize);

pub enum Verdict {
    Known(bool),
    /// To be found now; the number goes to `end`.
    Open(usize),
}

impl Judged {
    pub fn begin(&mut self, pair: Pair, walk: &Walk<'_>) -> Verdict {
        match self.verdicts.get(&pair) {
            Some(true) => return Verdict::Known(true),
            // A pair that doesn't go together is walked again to tell why, once.
            Some(false) if walk.is_silent() || self.told.contains(&pair) => return Verdict::Known(false),
            _ => {}
        }
        if !walk.is_silent() {
            self.told.insert(pair);
        }
        self.verdicts.insert(pair, true);
        self.trail.push(pair);
        Verdict::Open(self.trail.len() - 1)
    }

    pub fn end(&mut self, start: usize, pair: Pair, same: bool) {
        if !same {
            for held in self.trail.drain(start..) {
                self.verdicts.remove(&held);
            }
            self.verdicts.insert(pair, false);
        }
    }
}
