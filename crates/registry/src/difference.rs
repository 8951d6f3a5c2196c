//! What keeps a reader from reading.

/// So many are listed; one more then says that there are others.
pub const MOST_DIFFERENCES: usize = 1000;

/// One thing in which two schemas don't go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that is broken, as `READER_FIELD_MISSING_DEFAULT_VALUE`.
    pub rule: &'static str,
    /// Where in the reader's schema, or in the writer's for what the reader lacks: `/fields/1/type`.
    pub path: String,
    /// A sentence for people.
    pub message: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        write!(f, "{} at {path}: {}", self.rule, self.message)
    }
}
