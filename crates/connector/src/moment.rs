//! Named moments at which a test lets the process die (`testbed/kill.py`): before and after each durable step.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// `NAME:COUNT`; read once. Without it a moment costs one look at a variable, per durable step and never per row.
const VARIABLE: &str = "TIDEWIRE_DIE_AT";

struct Death {
    moment: String,
    /// Passes that are left; at the last the process ends.
    left: AtomicU32,
}

/// The process stands right before or behind the durable step `name`. It ends here, at once and without any clean-up, when
/// the environment variable TIDEWIRE_DIE_AT says `NAME:COUNT` and this is the COUNT-th pass.
pub fn moment(name: &str) {
    static DEATH: OnceLock<Option<Death>> = OnceLock::new();
    let death = DEATH.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?));
    if death.as_ref().is_some_and(|death| death.comes(name)) {
        std::process::abort();
    }
}

fn parse(text: &str) -> Option<Death> {
    let (moment, count) = text.rsplit_once(':')?;
    Some(Death { moment: moment.to_string(), left: AtomicU32::new(count.parse().ok()?) })
}

impl Death {
    fn comes(&self, name: &str) -> bool {
        name == self.moment && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_dies_at_the_named_pass_and_at_no_other() {
        let death = parse("journal written:3").unwrap();
        let comes: Vec<bool> =
            ["journal append", "journal written", "journal written", "journal written", "journal written"]
                .map(|name| death.comes(name))
                .to_vec();
        assert_eq!(comes, [false, false, false, true, false]);
        assert!(parse("").is_none() && parse("journal written").is_none() && parse("a:x").is_none());
    }
}
