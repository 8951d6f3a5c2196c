use crate::Position;
use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind decides what the supervisor does (DESIGN §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A system isn't there or can't go on just now: back off and restart from committed progress.
    Unavailable,
    /// Configuration or rights are wrong: stop, with what to change.
    Invalid,
    /// One table can't be followed: park it, the others go on.
    Schema,
    /// One message or value can't be understood: dead letter, go on.
    Malformed,
    /// Somebody else committed first: reload progress.
    Conflict,
    /// The source's log is gone: new slot, then reconcile and repair.
    Lost,
    /// A fault of Tidewire: stop loudly.
    Bug,
}

/// What happened, where, and what to do about it. Never holds a secret or a row's value.
/// One pointer wide: it travels in the result of every call on the path of a row.
#[derive(Debug)]
pub struct Error(Box<Facts>);

#[derive(Debug)]
struct Facts {
    kind: ErrorKind,
    message: String,
    context: Vec<String>,
    hint: Option<String>,
    table: Option<String>,
    position: Option<Position>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (message, context) = (message.into(), Vec::new());
        Error(Box::new(Facts { kind, message, context, hint: None, table: None, position: None, source: None }))
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
    pub fn schema(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Schema, message)
    }
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, message)
    }
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Lost, message)
    }
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Bug, message)
    }

    /// An I/O error at `place` (a path, an address). Everything but a missing right can mend itself: `Unavailable`.
    pub fn io(error: std::io::Error, place: impl fmt::Display) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        };
        let is_full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let told = Self::new(kind, format!("{place}: {error}")).caused_by(error);
        match is_full {
            true => told.hint("the disk is full: make room; nothing was lost and it goes on by itself"),
            false => told,
        }
    }

    /// What to do about it, one sentence.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// What was being done, outermost last: `while reading …`.
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context.push(context.into());
        self
    }

    /// The table that this error parks or that it happened on.
    pub fn on_table(mut self, table: impl fmt::Display) -> Self {
        self.0.table = Some(table.to_string());
        self
    }

    /// The same in other words: `say` gets each text of it.
    pub fn retold(mut self, say: impl Fn(&str) -> String) -> Self {
        let facts = &mut *self.0;
        facts.message = say(&facts.message);
        facts.context.iter_mut().for_each(|context| *context = say(context));
        facts.hint = facts.hint.take().map(|hint| say(&hint));
        self
    }

    /// The one change that this error is about.
    pub fn at(mut self, position: Position) -> Self {
        self.0.position = Some(position);
        self
    }

    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// The same error once more, for several that wait for it; the cause stays with the first.
    pub fn again(&self) -> Error {
        let Facts { kind, message, context, hint, table, position, .. } = &*self.0;
        Error(Box::new(Facts {
            kind: *kind,
            message: message.clone(),
            context: context.clone(),
            hint: hint.clone(),
            table: table.clone(),
            position: *position,
            source: None,
        }))
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    pub fn message(&self) -> &str {
        &self.0.message
    }
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }
    pub fn contexts(&self) -> &[String] {
        &self.0.context
    }
}

/// One line: contexts from the outside in, then what happened, then what to do.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for context in self.0.context.iter().rev() {
            write!(f, "{context}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(hint) = &self.0.hint {
            write!(f, " — {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_error_told_again_says_all_that_it_said() {
        let error = Error::schema("it broke").context("writing").context("sink lake").hint("mend it").on_table("s.t");
        let error = error.at(Position::new(7, 1)).caused_by(io::Error::other("deep"));
        let again = error.again();
        assert_eq!(again.to_string(), error.to_string());
        assert_eq!((again.kind(), again.table()), (ErrorKind::Schema, Some("s.t")));
        assert_eq!(again.position(), Some(Position::new(7, 1)));
    }

    #[test]
    fn an_error_retold_is_so_in_all_its_words() {
        let error = Error::invalid("a.b is wrong").context("reading a.b").hint("set a.b").on_table("a.b");
        let retold = error.retold(|text| text.replace("a.b", "c"));
        assert_eq!(retold.to_string(), "reading c: c is wrong — set c");
        assert_eq!(retold.table(), Some("a.b"));
    }

    #[test]
    fn a_full_disk_tells_what_to_do_wherever_it_is_met() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = Error::io(kind.into(), "/lake/t");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.hint_text().is_some_and(|hint| hint.contains("make room")), "{error}");
        }
        assert_eq!(Error::io(io::ErrorKind::NotFound.into(), "/lake/t").hint_text(), None);
    }
}
