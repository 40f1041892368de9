//! A clock that moves only when a test moves it.
//!
//! Both readings are set apart, because what must survive is their disagreement: wall time that
//! jumps, a machine that slept, a machine that was restarted.

use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::{Clock, Span, Timestamp};

/// A hand-moved clock. Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Reading>>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: Timestamp,
    boot: Span,
}

impl ManualClock {
    /// Stopped at this wall time, one hour after boot.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Reading { wall, boot: Span::from_hours(1) })))
    }

    /// Time passes: both readings move.
    pub fn advance(&self, span: Span) {
        self.change(|reading| {
            reading.wall = reading.wall + span;
            reading.boot = reading.boot + span;
        });
    }

    /// Somebody sets the wall clock, in either direction. The machine has not aged.
    pub fn jump(&self, wall: Timestamp) {
        self.change(|reading| reading.wall = wall);
    }

    /// The machine sleeps and wakes. Both readings include the sleep, and whatever fell due meanwhile
    /// falls due at once: the difference to [`Self::advance`] is that nobody stepped a loop in between.
    pub fn suspend(&self, asleep: Span) {
        self.advance(asleep);
    }

    /// The machine is switched off and on: wall time went on, time since boot begins again.
    pub fn restart(&self, off: Span) {
        self.change(|reading| {
            reading.wall = reading.wall + off;
            reading.boot = Span::ZERO;
        });
    }

    fn change(&self, how: impl FnOnce(&mut Reading)) {
        how(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    /// Some day in October 2024.
    fn default() -> Self {
        Self::at(Timestamp::from_millis(1_730_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.read().wall
    }

    fn since_boot(&self) -> Span {
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
        clock.advance(Span::from_secs(30));
        assert_eq!((seen.now(), seen.since_boot()), (then + Span::from_secs(30), boot + Span::from_secs(30)));
    }

    #[test]
    fn a_wall_clock_set_back_does_not_make_the_machine_younger() {
        let clock = ManualClock::default();
        let (then, boot) = (clock.now(), clock.since_boot());
        clock.jump(then - Span::from_hours(5));
        assert_eq!((clock.now(), clock.since_boot()), (then - Span::from_hours(5), boot));
    }

    #[test]
    fn sleep_ages_the_machine_and_a_restart_makes_it_new() {
        let clock = ManualClock::default();
        let (then, boot) = (clock.now(), clock.since_boot());
        clock.suspend(Span::from_hours(8));
        assert_eq!(clock.since_boot(), boot + Span::from_hours(8));
        clock.restart(Span::from_mins(2));
        assert_eq!((clock.now(), clock.since_boot()), (then + Span::from_hours(8) + Span::from_mins(2), Span::ZERO));
    }
}
