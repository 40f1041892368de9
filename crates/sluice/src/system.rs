//! The system's clock, ids and randomness, passed to everything that needs them.

use std::cell::RefCell;

use sluice_core::{Clock, Entropy, Ids, Millis, UtcMillis};

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where the injected clock comes from")]
    fn now(&self) -> UtcMillis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 reads as 1970: everything waits longer, nothing fires early.
        UtcMillis::from_millis(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }

    fn since_boot(&self) -> Millis {
        // BOOTTIME counts while the machine sleeps, MONOTONIC does not.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let millis = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
        Millis::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::panic, reason = "without randomness there are no keys; stopping is the only safe answer")]
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = getrandom::fill(buffer) {
            panic!("the operating system gives no randomness: {error}");
        }
    }
}

/// Ids that sort by age: 48 bits of milliseconds, 80 bits of randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

thread_local! {
    /// Random bytes for the next ids of this thread: one system call for many ids.
    static AHEAD: RefCell<IdEntropyBuffer> = const { RefCell::new(IdEntropyBuffer { bytes: [0; AHEAD_IDS * ID_BYTES], left: 0 }) };
}

/// Random bytes per id, and ids whose bytes are fetched together.
const ID_BYTES: usize = 10;
const AHEAD_IDS: usize = 64;

struct IdEntropyBuffer {
    bytes: [u8; AHEAD_IDS * ID_BYTES],
    left: usize,
}

impl IdEntropyBuffer {
    fn next(&mut self) -> u128 {
        if self.left == 0 {
            SystemEntropy.fill(&mut self.bytes);
            self.left = AHEAD_IDS;
        }
        self.left -= 1;
        let mut random = [0; 16];
        let taken = self.bytes.iter().skip(self.left * ID_BYTES).take(ID_BYTES);
        random.iter_mut().skip(16 - ID_BYTES).zip(taken).for_each(|(to, from)| *to = *from);
        u128::from_be_bytes(random)
    }
}

impl Ids for SystemIds {
    fn mint(&self) -> u128 {
        let random = AHEAD.with_borrow_mut(IdEntropyBuffer::next);
        let millis = u128::try_from(SystemClock.now().as_millis()).unwrap_or(0) & 0xffff_ffff_ffff;
        millis << 80 | random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_age_and_do_not_repeat() {
        let ids: Vec<u128> = (0..1000).map(|_| SystemIds.mint()).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
        let ages: Vec<u128> = ids.iter().map(|id| id >> 80).collect();
        assert!(ages.is_sorted());
    }

    #[test]
    fn the_clocks_run() {
        assert!(SystemClock.now() > UtcMillis::from_millis(1_700_000_000_000));
        assert!(SystemClock.since_boot() > Millis::ZERO);
    }
}
