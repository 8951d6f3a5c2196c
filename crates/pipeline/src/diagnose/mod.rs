//! The one judge: from facts to findings, pure. `status`, `check`, the HTTP API and health print findings; none of them
//! has an opinion of its own.

mod health;
mod runtime;
mod server;
mod signals;

pub use health::{current, live, ready, Health};
pub use runtime::diagnose;
pub use server::{check, check_folder};

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Note,
    /// It works, but not for ever or not for all.
    Warning,
    /// Changes don't flow, or a copy isn't equal to its source.
    Critical,
}

/// One thing that somebody should know, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    /// What it is about: `source`, `slot X`, `table s.t`, `sink X`, `journal`, …
    pub subject: String,
    /// Microseconds since 1970 UTC, when it is known.
    pub since: Option<i64>,
    pub what: String,
    pub why: String,
    /// The next command or SQL; empty: nothing to do.
    pub next: String,
}

impl Finding {
    fn new(severity: Severity, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Finding {
            severity,
            subject: subject.into(),
            since: None,
            what: what.into(),
            why: String::new(),
            next: String::new(),
        }
    }

    fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    fn since(mut self, since: i64) -> Self {
        self.since = Some(since);
        self
    }
}

/// Three lines at most: what, why, what to do.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "CRITICAL",
        };
        write!(f, "{severity}: {}: {}", self.subject, self.what)?;
        if !self.why.is_empty() {
            write!(f, "\n  why: {}", self.why)?;
        }
        if !self.next.is_empty() {
            write!(f, "\n  do:  {}", self.next)?;
        }
        Ok(())
    }
}

/// The worst first, else in the order they were found.
fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    findings
}

/// `1.5 GB`, in powers of 1000.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// `45 s`, `12 min`, `3.5 h`, `2.1 days`.
fn span_text(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86400.0),
    }
}
