use tidewire_change::{Error, ErrorKind};

/// What Connect answers in place of what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub status: u16,
    pub message: String,
    /// Methods that the path takes; empty: it isn't about that.
    pub allowed: String,
}

impl Refusal {
    pub fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), allowed: String::new() }
    }

    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(400, message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Malformed => 400,
            ErrorKind::Unavailable => 503,
            ErrorKind::Conflict => 409,
            ErrorKind::Schema | ErrorKind::Lost | ErrorKind::Bug => 500,
        };
        Refusal::new(status, told(&error))
    }
}

/// What happened and where, then what to do.
pub(super) fn told(error: &Error) -> String {
    let line = error.contexts().iter().rev().fold(String::new(), |line, context| line + context + ": ");
    let line = line + error.message();
    match error.hint_text() {
        Some(hint) => format!("{line}\n  fix: {hint}"),
        None => line,
    }
}
