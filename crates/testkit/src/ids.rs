//! Reproducible ids and randomness.
//!
//! [`CountingIds`] for tests that name ids in their assertions; the seeded types for simulations, where a seed that
//! failed must fail again.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_core::{Entropy, Ids};

/// Gives 1, 2, 3, …
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

/// Ids like real ones: a growing part first, then bits derived from the seed.
#[derive(Debug)]
pub struct SeededIds(Mutex<(u64, SplitMix)>);

/// Bytes derived from the seed.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<SplitMix>);

/// SplitMix64: a counter and a mixer. Good enough to vary a test, unsafe as a secret.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl CountingIds {
    /// Continues counting after `last`.
    #[must_use]
    pub fn after(last: u64) -> Self {
        Self(AtomicU64::new(last))
    }
}

impl SeededIds {
    /// The sequence of this seed, from its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new((0, SplitMix::new(seed))))
    }
}

impl SeededEntropy {
    /// The sequence of this seed, from its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SplitMix::new(seed)))
    }
}

impl SplitMix {
    /// The sequence of this seed, from its beginning.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or 0 if there is none. Slightly uneven; no test may depend on that.
    pub const fn below(&mut self, end: u64) -> u64 {
        match self.draw().checked_rem(end) {
            Some(number) => number,
            None => 0,
        }
    }
}

impl Ids for CountingIds {
    fn mint(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)) + 1
    }
}

impl Ids for SeededIds {
    fn mint(&self) -> u128 {
        let mut guarded = self.0.lock();
        let (count, random) = &mut *guarded;
        *count += 1;
        // 48 growing bits, where real ids have milliseconds; 80 random bits.
        let tail = (u128::from(random.draw()) << 64 | u128::from(random.draw())) >> 48;
        u128::from(*count) << 80 | tail
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        let mut random = self.0.lock();
        for piece in buffer.chunks_mut(8) {
            piece.iter_mut().zip(random.draw().to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_sequence() {
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(
            [random.draw(), random.draw(), random.draw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn counting_ids_count() {
        let ids = CountingIds::default();
        assert_eq!([ids.mint(), ids.mint()], [1, 2]);
        assert_eq!(CountingIds::after(41).mint(), 42);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let ids = |seed| {
            let ids = SeededIds::new(seed);
            (0..100).map(|_| ids.mint()).collect::<Vec<_>>()
        };
        assert_eq!(ids(7), ids(7));
        assert_ne!(ids(7), ids(8));
        assert!(ids(7).is_sorted(), "later ids sort after earlier ones");
    }

    #[test]
    fn every_byte_of_the_buffer_is_filled() {
        let entropy = SeededEntropy::new(1);
        let mut ever = [0_u8; 13];
        for _ in 0..50 {
            let mut buffer = [0; 13];
            entropy.fill(&mut buffer);
            ever.iter_mut().zip(buffer).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(ever.iter().all(|&seen| seen != 0), "{ever:?}");
    }
}
