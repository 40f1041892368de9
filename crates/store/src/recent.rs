//! The digests of the last minutes in memory, where one process has the database to itself.
//!
//! Takes every write as it is inserted; says which writes may be identical to a new one. Promise: it
//! names every write of the last ten minutes with that digest, and the database is asked about each of
//! them before anything is concluded. On disk such an index would be a random page for every write.

use std::collections::BTreeSet;

use sluice_core::{Digest, HoldId, Span, Timestamp};

/// How long an identical call without a key counts as a possible duplicate.
pub(crate) const DUPLICATE_SPAN: Span = Span::from_mins(10);

/// A digest's beginning, when the write was admitted, and which it is.
type Mark = (u64, i64, u128);

/// What was admitted lately: the span that runs, and the one before it.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    since: Timestamp,
    running: BTreeSet<Mark>,
    before: BTreeSet<Mark>,
}

impl Recent {
    /// At the start, before anything is known.
    pub fn starting(now: Timestamp) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// A write from before the start, in any order. Should a clock have gone back, its time may still come.
    pub fn read(&mut self, digest: &[u8], at: Timestamp, hold: u128) {
        self.since = self.since.max(at);
        self.before.insert((beginning(digest), at.as_millis(), hold));
    }

    /// A write was inserted. If that is undone later, the database will know nothing of it.
    pub fn note(&mut self, digest: &[u8], at: Timestamp, hold: u128) {
        if at - DUPLICATE_SPAN >= self.since {
            // Whatever is in `before` was admitted at `since` or earlier: too long ago by now.
            self.before = std::mem::take(&mut self.running);
            self.since = at;
        }
        self.running.insert((beginning(digest), at.as_millis(), hold));
    }

    /// Writes that may have this digest, oldest first.
    pub fn like(&self, digest: Digest) -> Vec<HoldId> {
        let key = beginning(&digest.to_bytes());
        let range = (key, i64::MIN, 0)..=(key, i64::MAX, u128::MAX);
        let found = self.before.range(range.clone()).chain(self.running.range(range));
        found.map(|(_, _, hold)| HoldId::from_bits(*hold)).collect()
    }
}

/// Eight bytes of a stored digest; the first of all is its version.
fn beginning(digest: &[u8]) -> u64 {
    let bytes = digest.get(1..).and_then(|hash| hash.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(recent: &mut Recent, text: &str, at: Timestamp, hold: u128) {
        recent.note(&Digest::of(text.as_bytes()).to_bytes(), at, hold);
    }

    fn like(recent: &Recent, text: &str) -> Vec<u128> {
        recent.like(Digest::of(text.as_bytes())).into_iter().map(HoldId::bits).collect()
    }

    #[test]
    fn identical_writes_are_named_oldest_first_and_others_are_not() {
        let (mut recent, start) = (Recent::default(), Timestamp::from_millis(1_730_000_000_000));
        noted(&mut recent, "a", start, 9);
        noted(&mut recent, "b", start + Span::from_secs(1), 2);
        noted(&mut recent, "a", start + Span::from_secs(2), 1);
        assert_eq!(like(&recent, "a"), [9, 1]);
        assert_eq!(like(&recent, "b"), [2]);
        assert!(like(&recent, "c").is_empty());
    }

    #[test]
    fn what_was_read_at_the_start_is_known_for_as_long_as_it_counts() {
        let start = Timestamp::from_millis(1_730_000_000_000);
        let mut recent = Recent::starting(start);
        // Times from a clock that went ahead, newest first.
        for (n, minute) in [15_u64, 1, 0].into_iter().enumerate() {
            recent.read(&Digest::of(b"a").to_bytes(), start + Span::from_mins(minute), n as u128);
        }
        noted(&mut recent, "b", start + Span::from_mins(24), 7);
        assert_eq!(like(&recent, "a"), [2, 1, 0]);
        noted(&mut recent, "b", start + Span::from_mins(25), 8);
        assert_eq!(like(&recent, "a"), []);
    }

    #[test]
    fn nothing_is_forgotten_before_its_time_and_everything_soon_after() {
        let (mut recent, start) = (Recent::default(), Timestamp::from_millis(1_730_000_000_000));
        let minute = |n: u64| start + Span::from_mins(n);
        for n in 0..100 {
            noted(&mut recent, &n.to_string(), minute(n), u128::from(n));
            for earlier in 0..=n {
                let is_named = like(&recent, &earlier.to_string()) == [u128::from(earlier)];
                assert!(is_named || earlier + 10 <= n, "{earlier} forgotten at {n}");
                assert!(!is_named || earlier + 20 >= n, "{earlier} still there at {n}");
            }
        }
    }
}
