//! Named moments at which a test lets the process die (`testbed/kill.py`): before and after each durable step; and upkeep that is
//! due at once, so that its moments come within the seconds that a process lives there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// `NAME:COUNT`; read once. Without it a moment costs one look at a variable, per durable step and never per row.
const VARIABLE: &str = "TIDEWIRE_DIE_AT";

/// Any value; read once.
const HURRY: &str = "TIDEWIRE_HURRY";

/// Whether upkeep that is usually due after minutes, many commits or many megabytes is due after seconds and little of them:
/// the environment variable TIDEWIRE_HURRY is set. For tests; nothing but the pace differs.
pub fn hurries() -> bool {
    static HURRIES: OnceLock<bool> = OnceLock::new();
    *HURRIES.get_or_init(|| std::env::var_os(HURRY).is_some())
}

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
