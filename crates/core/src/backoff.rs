//! When a failed write is tried again: after 1, 2, 4, 8 and 16 minutes, then not at all.
//!
//! Takes the number of the attempt that failed; gives the wait before the next one, or `None`, which
//! makes the write a dead letter. Promise: [`delay`] is exact. A caller that must not start many retries
//! at the same moment also calls [`spread`], which only ever waits longer.

use crate::clock::Millis;
use crate::ids::Entropy;

/// How many attempts are followed by another one.
pub const RETRIES: u32 = 5;
/// The most that [`spread`] adds, in hundredths of the delay.
const SPREAD_PERCENT: u64 = 20;

/// How long to wait after this attempt failed (the first is 1). `None`: there is no further attempt.
#[must_use]
pub const fn delay(failed: u32) -> Option<Millis> {
    match failed {
        1..=RETRIES => Some(Millis::from_mins(1 << (failed - 1))),
        // Attempt 0 does not exist, so it has no retry.
        _ => None,
    }
}

/// The delay and up to a fifth more. Never less: a retry must not come before its time.
#[must_use]
pub fn spread(delay: Millis, entropy: &dyn Entropy) -> Millis {
    let most = delay.as_millis() / 100 * SPREAD_PERCENT + delay.as_millis() % 100 * SPREAD_PERCENT / 100;
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    // The upper half of a 128-bit product maps 64 random bits evenly onto 0..=most; it fits 64 bits.
    let product = u128::from(u64::from_le_bytes(bytes)) * (u128::from(most) + 1);
    delay + Millis::from_millis(u64::try_from(product >> 64).unwrap_or(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Fixed(u64);

    impl Entropy for Fixed {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.copy_from_slice(&self.0.to_le_bytes());
        }
    }

    #[test]
    fn five_retries_double_from_one_minute_and_then_the_letter_is_dead() {
        let minutes: Vec<Option<u64>> = (0..=7).map(|n| delay(n).map(|span| span.as_secs() / 60)).collect();
        assert_eq!(minutes, [None, Some(1), Some(2), Some(4), Some(8), Some(16), None, None]);
        assert_eq!(delay(u32::MAX), None);
    }

    #[test]
    fn the_spread_reaches_both_of_its_bounds() {
        let minute = Millis::from_mins(1);
        assert_eq!(spread(minute, &Fixed(0)), minute);
        assert_eq!(spread(minute, &Fixed(u64::MAX)), Millis::from_secs(72));
    }

    proptest! {
        #[test]
        fn the_spread_never_shortens_a_delay_and_adds_at_most_a_fifth(ms in any::<u64>(), bits in any::<u64>()) {
            let waited = spread(Millis::from_millis(ms), &Fixed(bits)).as_millis();
            prop_assert!(waited >= ms);
            prop_assert!(waited - ms <= ms / 5 + 1);
        }
    }
}
