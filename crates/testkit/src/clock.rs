//! A clock that moves only when a test moves it.
//!
//! The wall time and the time since boot can be set separately, because code must handle their disagreement: wall time
//! that jumps, a machine that slept, a machine that was restarted.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_core::{Clock, Millis, UtcMillis};

/// A hand-moved clock. Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<ManualClockReading>>);

#[derive(Debug, Clone, Copy)]
struct ManualClockReading {
    wall: UtcMillis,
    boot: Millis,
}

impl ManualClock {
    /// Creates a clock stopped at this wall time, one hour after boot.
    #[must_use]
    pub fn at(wall: UtcMillis) -> Self {
        Self(Arc::new(Mutex::new(ManualClockReading { wall, boot: Millis::from_hours(1) })))
    }

    /// Time passes: both readings move.
    pub fn advance(&self, span: Millis) {
        self.change(|reading| {
            reading.wall = reading.wall + span;
            reading.boot = reading.boot + span;
        });
    }

    /// Sets the wall clock, in either direction. The time since boot stays the same.
    pub fn jump(&self, wall: UtcMillis) {
        self.change(|reading| reading.wall = wall);
    }

    /// The machine sleeps and wakes. Both readings include the sleep, and everything that became due meanwhile is due
    /// at once: the difference to [`Self::advance`] is that no loop was stepped in between.
    pub fn suspend(&self, asleep: Millis) {
        self.advance(asleep);
    }

    /// The machine is switched off and on: wall time has continued, time since boot starts again.
    pub fn restart(&self, off: Millis) {
        self.change(|reading| {
            reading.wall = reading.wall + off;
            reading.boot = Millis::ZERO;
        });
    }

    fn change(&self, how: impl FnOnce(&mut ManualClockReading)) {
        how(&mut self.0.lock());
    }

    fn read(&self) -> ManualClockReading {
        *self.0.lock()
    }
}

impl Default for ManualClock {
    /// A day in October 2024.
    fn default() -> Self {
        Self::at(UtcMillis::from_millis(1_730_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UtcMillis {
        self.read().wall
    }

    fn since_boot(&self) -> Millis {
        self.read().boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_until_it_is_moved_and_clones_move_along() {
        let clock = ManualClock::default();
        let (seen, then, boot) = (clock.clone(), clock.now(), clock.since_boot());
        assert_eq!((seen.now(), seen.since_boot()), (then, boot));
        clock.advance(Millis::from_secs(30));
        assert_eq!((seen.now(), seen.since_boot()), (then + Millis::from_secs(30), boot + Millis::from_secs(30)));
    }

    #[test]
    fn a_wall_clock_set_back_does_not_make_the_machine_younger() {
        let clock = ManualClock::default();
        let (then, boot) = (clock.now(), clock.since_boot());
        clock.jump(then - Millis::from_hours(5));
        assert_eq!((clock.now(), clock.since_boot()), (then - Millis::from_hours(5), boot));
    }

    #[test]
    fn sleep_ages_the_machine_and_a_restart_makes_it_new() {
        let clock = ManualClock::default();
        let (then, boot) = (clock.now(), clock.since_boot());
        clock.suspend(Millis::from_hours(8));
        assert_eq!(clock.since_boot(), boot + Millis::from_hours(8));
        clock.restart(Millis::from_mins(2));
        assert_eq!(
            (clock.now(), clock.since_boot()),
            (then + Millis::from_hours(8) + Millis::from_mins(2), Millis::ZERO)
        );
    }
}
