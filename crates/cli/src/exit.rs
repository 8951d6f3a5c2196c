//! Exit codes: 0 yes, 1 the answer is no, 2 wrong usage or configuration, 3 a system isn't available, 4 a fault of ours.

use crate::terminal;
use std::process::ExitCode;
use tidewire_change::{Error, ErrorKind};

/// How a command ended when nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// What was asked about isn't there.
    Unavailable,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> ExitCode {
        ExitCode::from(match answer {
            Answer::Yes => 0,
            Answer::No => 1,
            Answer::Unavailable => 3,
        })
    }
}

pub fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid | ErrorKind::Schema => 2,
        ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Lost => 3,
        ErrorKind::Malformed | ErrorKind::Bug => 4,
    }
}

/// Prints the error: what happened and where, then what to do.
pub fn report(error: &Error) -> ExitCode {
    let contexts = error.contexts().iter().rev();
    let line = contexts.fold(String::new(), |line, context| line + context + ": ") + error.message();
    let code = code(error.kind());
    if terminal::is_json() {
        tracing::error!(fix = error.hint_text(), exit_code = code, "{line}");
        return ExitCode::from(code);
    }
    eprintln!("error: {line}");
    if let Some(hint) = error.hint_text() {
        eprintln!("  fix: {hint}");
    }
    ExitCode::from(code)
}
