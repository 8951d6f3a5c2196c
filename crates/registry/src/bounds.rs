//! What a schema from outside may cost.

use tidewire_change::{Error, Result};

/// The longest text of a schema, in bytes: as long as the largest message that Kafka takes by default.
pub const LARGEST: usize = 1 << 20;
/// How deep a schema may be nested, and how deep two may be walked down side by side.
pub const DEEPEST: usize = 200;
/// Steps of one comparison, all versions together: some seconds at the very worst.
const STEPS: u64 = 5_000_000;

/// Counts the steps of the comparisons that one request asks for.
pub struct Budget {
    left: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { left: STEPS }
    }
}

impl Budget {
    pub fn of(steps: u64) -> Budget {
        Budget { left: steps }
    }

    pub fn spend(&mut self, steps: u64) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::invalid("the schemas are too large to be compared: it takes too many steps")
                .hint("make the schema smaller, or compare with fewer versions (a level that isn't transitive)")),
        }
    }
}

pub fn is_not_too_large(text: &str) -> Result<()> {
    match text.len() > LARGEST {
        true => Err(Error::invalid(format!("the schema has {} bytes, {LARGEST} is the limit", text.len()))),
        false => Ok(()),
    }
}

pub fn too_deep() -> Error {
    Error::invalid(format!("the schema is nested more than {DEEPEST} deep"))
}
