//! Two clocks, and when to believe them.
//!
//! Takes readings of the wall clock and of the time since boot; says whether the wall clock can be
//! trusted, and whether a write's undo window has really passed. Promise: no jump of the wall clock
//! shortens an undo window, and while the clock is suspect nothing is sent. [`SteadyClock`] does not even follow a jump of
//! more than some minutes: time goes on as it really passes, until the wall clock is back or a person has looked at it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::{Clock, ClockDoubt, Span, Timestamp};
use crate::ids::HoldId;

/// A difference between the two clocks that is no longer drift.
pub const STEP: Span = Span::from_secs(5);
/// How long nothing is sent after a step.
pub const CALM: Span = Span::from_secs(60);

/// The furthest that the wall clock may step and still be followed without a person.
pub const FOLLOWED: Span = Span::from_mins(5);

/// A wall clock that does not jump.
///
/// Follows the clock it is given while that agrees with the time since boot. A jump of more than [`FOLLOWED`] is not
/// followed: what is told then is the last believed time and what has really passed since. So a clock that jumps ahead and
/// comes back leaves nothing behind: no deadline in the far future, and nothing that was forgotten as if its time were up.
pub struct SteadyClock {
    inner: Arc<dyn Clock>,
    believed: Mutex<Believed>,
}

#[derive(Clone, Copy)]
struct Believed {
    wall: Timestamp,
    boot: Span,
    doubt: Option<ClockDoubt>,
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SteadyClock")
    }
}

impl SteadyClock {
    /// Believes a clock as it is now.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>) -> Self {
        let believed = Mutex::new(Believed { wall: inner.now(), boot: inner.since_boot(), doubt: None });
        Self { inner, believed }
    }

    /// Looks at both clocks. Gives the time to go by.
    fn look(&self) -> (Timestamp, MutexGuard<'_, Believed>) {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boot) = (self.inner.now(), self.inner.since_boot());
        let passed = Span::from_millis(boot.as_millis().saturating_sub(believed.boot.as_millis()));
        let expected = believed.wall + passed;
        let (by, forward) = if wall >= expected { (wall.since(expected), true) } else { (expected.since(wall), false) };
        if by <= FOLLOWED {
            *believed = Believed { wall, boot, doubt: None };
            return (wall, believed);
        }
        believed.doubt = Some(ClockDoubt { by, forward, wall });
        (expected, believed)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        self.look().0
    }

    fn since_boot(&self) -> Span {
        self.inner.since_boot()
    }

    fn doubt(&self) -> Option<ClockDoubt> {
        self.look().1.doubt
    }

    fn trust_again(&self) -> Timestamp {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        *believed = Believed { wall: self.inner.now(), boot: self.inner.since_boot(), doubt: None };
        believed.wall
    }
}

/// What a reading shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Both clocks agree.
    Steady,
    /// The wall clock has just jumped.
    Stepped {
        /// By how much.
        by: Span,
        /// In which direction.
        forward: bool,
    },
    /// It jumped a little while ago.
    Suspect {
        /// How long to wait still.
        left: Span,
    },
}

/// Compares the clocks from one tick to the next.
#[derive(Debug, Clone)]
pub struct Watch {
    wall: Timestamp,
    boot: Span,
    calm_from: Option<Span>,
}

impl Watch {
    /// Starts watching.
    #[must_use]
    pub const fn start(wall: Timestamp, boot: Span) -> Self {
        Self { wall, boot, calm_from: None }
    }

    /// Looks at both clocks again.
    pub fn look(&mut self, wall: Timestamp, boot: Span) -> Reading {
        let passed = boot.as_millis().saturating_sub(self.boot.as_millis());
        let expected = self.wall + Span::from_millis(passed);
        let (by, forward) = if wall >= expected { (wall.since(expected), true) } else { (expected.since(wall), false) };
        (self.wall, self.boot) = (wall, boot);
        if by > STEP {
            self.calm_from = Some(boot + CALM);
            return Reading::Stepped { by, forward };
        }
        match self.calm_from {
            Some(from) if boot < from => {
                Reading::Suspect { left: Span::from_millis(from.as_millis() - boot.as_millis()) }
            }
            Some(_) | None => {
                self.calm_from = None;
                Reading::Steady
            }
        }
    }
}

/// The undo windows this process has seen opened, in time since boot.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    closes: BTreeMap<HoldId, Span>,
}

impl Windows {
    /// A window opens now.
    pub fn open(&mut self, hold: HoldId, boot: Span, delay: Span) {
        self.closes.insert(hold, boot + delay);
    }

    /// Whether the window has closed by both clocks. A window opened in an earlier life of the process
    /// is judged by the wall clock alone; the grace rule covers what happened in between.
    #[must_use]
    pub fn closed(&self, hold: HoldId, not_before: Timestamp, wall: Timestamp, boot: Span) -> bool {
        wall >= not_before && self.closes.get(&hold).is_none_or(|closes| boot >= *closes)
    }

    /// The write is on its way, or gone.
    pub fn forget(&mut self, hold: HoldId) {
        self.closes.remove(&hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL: Timestamp = Timestamp::from_millis(1_730_000_000_000);
    const BOOT: Span = Span::from_hours(1);

    #[test]
    fn a_jump_in_either_direction_is_noticed_and_calms_down_after_a_minute() {
        for (wall, forward) in [(WALL + Span::from_hours(1), true), (WALL - Span::from_hours(24), false)] {
            let mut watch = Watch::start(WALL, BOOT);
            let Reading::Stepped { forward: seen, .. } = watch.look(wall, BOOT + Span::from_secs(1)) else { panic!() };
            assert_eq!(seen, forward);
            let later = Span::from_secs(30);
            assert!(matches!(watch.look(wall + later, BOOT + Span::from_secs(31)), Reading::Suspect { .. }));
            assert_eq!(watch.look(wall + Span::from_secs(61), BOOT + Span::from_secs(62)), Reading::Steady);
        }
    }

    #[test]
    fn drift_and_sleep_are_no_jumps() {
        let mut watch = Watch::start(WALL, BOOT);
        assert_eq!(watch.look(WALL + Span::from_millis(1_400), BOOT + Span::from_secs(1)), Reading::Steady);
        // Time since boot counts while the machine sleeps, so both clocks move by the same hour.
        let slept = Span::from_hours(1);
        assert_eq!(watch.look(WALL + slept + slept, BOOT + slept + slept), Reading::Steady);
    }

    #[test]
    fn a_clock_set_ahead_does_not_shorten_the_undo_window() {
        let mut windows = Windows::default();
        let hold = HoldId::from_bits(1);
        windows.open(hold, BOOT, Span::from_secs(30));
        let not_before = WALL + Span::from_secs(30);
        let ahead = WALL + Span::from_hours(24);
        assert!(!windows.closed(hold, not_before, ahead, BOOT + Span::from_secs(29)));
        assert!(windows.closed(hold, not_before, ahead, BOOT + Span::from_secs(30)));
        assert!(!windows.closed(hold, not_before, WALL, BOOT + Span::from_hours(2)), "nor does one set back open it");
    }

    /// Two clocks that a test sets by hand.
    struct ByHand(Mutex<(Timestamp, Span)>);

    impl Clock for ByHand {
        fn now(&self) -> Timestamp {
            self.0.lock().unwrap().0
        }
        fn since_boot(&self) -> Span {
            self.0.lock().unwrap().1
        }
    }

    fn steady() -> (Arc<ByHand>, SteadyClock) {
        let hand = Arc::new(ByHand(Mutex::new((WALL, BOOT))));
        (Arc::clone(&hand), SteadyClock::new(hand))
    }

    /// Time passes, and the wall clock says something.
    fn pass(hand: &ByHand, passed: Span, wall: Timestamp) {
        let mut now = hand.0.lock().unwrap();
        *now = (wall, now.1 + passed);
    }

    #[test]
    fn a_clock_that_jumps_ahead_and_comes_back_is_not_followed_and_leaves_nothing_behind() {
        let (hand, clock) = steady();
        let ahead = Span::from_hours(400 * 24);
        let mut wall = WALL + ahead;
        for second in 1..=200 {
            pass(&hand, Span::from_secs(1), wall);
            assert_eq!(clock.now(), WALL + Span::from_secs(second), "time goes on as it really passes");
            let doubt = clock.doubt().unwrap();
            assert!(doubt.forward && doubt.by + Span::from_secs(200) >= ahead, "{doubt:?}");
            wall = wall + Span::from_secs(1);
        }
        pass(&hand, Span::from_secs(1), WALL + Span::from_secs(201));
        assert_eq!((clock.now(), clock.doubt()), (WALL + Span::from_secs(201), None));
    }

    #[test]
    fn a_small_step_and_a_long_sleep_are_followed_and_a_person_can_say_that_a_jump_is_right() {
        let (hand, clock) = steady();
        pass(&hand, Span::from_secs(1), WALL + Span::from_mins(4));
        assert_eq!((clock.now(), clock.doubt()), (WALL + Span::from_mins(4), None));
        pass(&hand, Span::from_hours(50), WALL + Span::from_hours(50));
        assert_eq!((clock.now(), clock.doubt()), (WALL + Span::from_hours(50), None), "slept and four minutes back");
        pass(&hand, Span::from_secs(1), WALL - Span::from_hours(24));
        assert!(clock.doubt().is_some_and(|doubt| !doubt.forward));
        assert_eq!(clock.now(), WALL + Span::from_hours(50) + Span::from_secs(1));
        assert_eq!(clock.trust_again(), WALL - Span::from_hours(24));
        assert_eq!((clock.now(), clock.doubt()), (WALL - Span::from_hours(24), None));
    }

    proptest! {
        #[test]
        fn no_sequence_of_jumps_closes_a_window_early(jumps in prop::collection::vec((-90_000_i64..90_000, 0_u64..5_000), 1..40)) {
            let mut windows = Windows::default();
            let hold = HoldId::from_bits(1);
            let delay = Span::from_secs(30);
            windows.open(hold, BOOT, delay);
            let (mut wall, mut boot) = (WALL, BOOT);
            for (jump, passed) in jumps {
                boot = boot + Span::from_millis(passed);
                wall = Timestamp::from_millis(wall.as_millis() + jump + i64::try_from(passed).unwrap());
                if windows.closed(hold, WALL + delay, wall, boot) {
                    prop_assert!(boot >= BOOT + delay);
                }
            }
        }
    }
}
