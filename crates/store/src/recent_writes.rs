//! The digests of the last minutes in memory, where one process has the database to itself.
//!
//! Takes every write as it is inserted; tells which writes may be identical to a new one. Promise: it names every write
//! of the last ten minutes with that digest, and the caller checks each of them in the database. On disk, such an index
//! would touch a random page for every write.

use std::collections::BTreeSet;

use sluice_core::{Digest, HoldId, Millis, UtcMillis};

/// How long an identical call without a key counts as a possible duplicate.
pub(crate) const DUPLICATE_SPAN: Millis = Millis::from_mins(10);

/// The first bytes of a digest, when the write was admitted, and its id.
type RecentWriteKey = (u64, i64, u128);

/// The writes of the current span and of the one before it.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites {
    since: UtcMillis,
    running: BTreeSet<RecentWriteKey>,
    before: BTreeSet<RecentWriteKey>,
}

impl RecentWrites {
    /// The state at the start, before anything is known.
    pub fn starting(now: UtcMillis) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Adds a write from before the start, in any order. If the clock went back, its time may still be in the future.
    pub fn read(&mut self, digest: &[u8], at: UtcMillis, hold: u128) {
        self.since = self.since.max(at);
        self.before.insert((beginning(digest), at.as_millis(), hold));
    }

    /// Adds an inserted write. If the insert is rolled back later, the database will not find it.
    pub fn note(&mut self, digest: &[u8], at: UtcMillis, hold: u128) {
        if at - DUPLICATE_SPAN >= self.since {
            // All writes in `before` were admitted at `since` or earlier: too old by now.
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

/// Eight bytes of a stored digest, after its first byte, which is the version.
fn beginning(digest: &[u8]) -> u64 {
    let bytes = digest.get(1..).and_then(|hash| hash.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(recent: &mut RecentWrites, text: &str, at: UtcMillis, hold: u128) {
        recent.note(&Digest::of(text.as_bytes()).to_bytes(), at, hold);
    }

    fn like(recent: &RecentWrites, text: &str) -> Vec<u128> {
        recent.like(Digest::of(text.as_bytes())).into_iter().map(HoldId::bits).collect()
    }

    #[test]
    fn identical_writes_are_named_oldest_first_and_others_are_not() {
        let (mut recent, start) = (RecentWrites::default(), UtcMillis::from_millis(1_730_000_000_000));
        noted(&mut recent, "a", start, 9);
        noted(&mut recent, "b", start + Millis::from_secs(1), 2);
        noted(&mut recent, "a", start + Millis::from_secs(2), 1);
        assert_eq!(like(&recent, "a"), [9, 1]);
        assert_eq!(like(&recent, "b"), [2]);
        assert!(like(&recent, "c").is_empty());
    }

    #[test]
    fn what_was_read_at_the_start_is_known_for_as_long_as_it_counts() {
        let start = UtcMillis::from_millis(1_730_000_000_000);
        let mut recent = RecentWrites::starting(start);
        // Times of a clock that was ahead, newest first.
        for (n, minute) in [15_u64, 1, 0].into_iter().enumerate() {
            recent.read(&Digest::of(b"a").to_bytes(), start + Millis::from_mins(minute), n as u128);
        }
        noted(&mut recent, "b", start + Millis::from_mins(24), 7);
        assert_eq!(like(&recent, "a"), [2, 1, 0]);
        noted(&mut recent, "b", start + Millis::from_mins(25), 8);
        assert_eq!(like(&recent, "a"), []);
    }

    #[test]
    fn nothing_is_forgotten_before_its_time_and_everything_soon_after() {
        let (mut recent, start) = (RecentWrites::default(), UtcMillis::from_millis(1_730_000_000_000));
        let minute = |n: u64| start + Millis::from_mins(n);
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
