//! A rest between two Kafka transactions.
//!
//! A broker answers a commit before the transaction's marks are written, and sends whoever begins the next one before that away
//! (`CONCURRENT_TRANSACTIONS`). librdkafka then waits 20 ms, without a setting, before it asks again. A rest of about as long as the marks
//! take costs less, and what comes meanwhile goes along with the next transaction.

use std::time::Duration;

/// First answers that take so long were refused once, or the broker is slow: a longer rest costs little then.
const REFUSED: Duration = Duration::from_millis(20);
/// Larger groups take their time for other reasons.
const SMALL: usize = 256 << 10;
const LONGER: Duration = Duration::from_millis(2);
const SHORTER: Duration = Duration::from_micros(50);
const SHORTEST: Duration = Duration::from_millis(1);
/// Beyond it the rest would cost as much as what it spares.
const LONGEST: Duration = Duration::from_millis(16);

/// Finds the shortest rest after which hardly any transaction is refused: longer by much when one was, shorter by little when not.
pub(crate) struct Pace(Duration);

impl Pace {
    pub fn new() -> Pace {
        Pace(SHORTEST)
    }

    /// How long to rest after a transaction whose messages, of so many bytes, were acknowledged after `answered`.
    pub fn rest(&mut self, bytes: usize, answered: Duration) -> Duration {
        self.0 = match answered >= REFUSED {
            _ if bytes > SMALL => self.0,
            true => (self.0 + LONGER).min(LONGEST),
            false => self.0.saturating_sub(SHORTER).max(SHORTEST),
        };
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of a simulated broker take so long; how long rests are after a while, and how many of the last hundred were refused.
    fn settled(marks: Duration) -> (Duration, u32) {
        let (mut pace, mut rest, mut refused) = (Pace::new(), Duration::ZERO, 0);
        for round in 0..1000 {
            let is_refused = rest < marks;
            refused += u32::from(is_refused && round >= 900);
            rest = pace.rest(1000, if is_refused { REFUSED } else { Duration::from_millis(3) });
        }
        (rest, refused)
    }

    #[test]
    fn rests_are_about_as_long_as_the_marks_take_and_never_longer_than_what_they_spare() {
        for marks in [3, 7, 12].map(Duration::from_millis) {
            let (rest, refused) = settled(marks);
            assert!(rest <= marks + LONGER && refused <= 5, "{marks:?}: {rest:?}, {refused}");
        }
        assert_eq!(settled(Duration::ZERO).0, SHORTEST);
        assert_eq!(settled(Duration::from_secs(1)).0, LONGEST);
        assert_eq!(Pace::new().rest(SMALL + 1, REFUSED), SHORTEST, "large groups tell nothing");
    }
}
