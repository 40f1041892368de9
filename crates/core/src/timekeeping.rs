//! Wall clock and time since boot, and when to trust them.
//!
//! Takes readings of the wall clock and of the time since boot; says whether the wall clock can be
//! trusted, and whether a write's undo window has really passed. Promise: no jump of the wall clock
//! shortens an undo window, and while the clock is suspect nothing is sent. [`SteadyClock`] does not even follow a jump of
//! more than some minutes: time goes on as it really passes, until the wall clock is back or a person has looked at it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, ClockJump, Millis, UtcMillis};
use crate::ids::HoldId;

/// A difference between the two clocks that is no longer drift.
pub const STEP: Millis = Millis::from_secs(5);
/// How long nothing is sent after a step.
pub const CALM: Millis = Millis::from_secs(60);

/// The furthest that the wall clock may step and still be followed without a person.
pub const FOLLOWED: Millis = Millis::from_mins(5);

/// A wall clock that does not jump.
///
/// Follows the clock it is given while that agrees with the time since boot. A jump of more than [`FOLLOWED`] is not
/// followed: the time is then the last trusted time plus the time that has really passed. So a clock that jumps ahead
/// and comes back leaves nothing behind: no deadline in the far future, and nothing that expired too early.
pub struct SteadyClock {
    inner: Arc<dyn Clock>,
    believed: Mutex<BelievedTime>,
}

#[derive(Clone, Copy)]
struct BelievedTime {
    wall: UtcMillis,
    boot: Millis,
    doubt: Option<ClockJump>,
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SteadyClock")
    }
}

impl SteadyClock {
    /// Starts with the present time of a clock.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>) -> Self {
        let believed = Mutex::new(BelievedTime { wall: inner.now(), boot: inner.since_boot(), doubt: None });
        Self { inner, believed }
    }

    /// Reads both clocks. Gives the time to use.
    fn look(&self) -> (UtcMillis, MutexGuard<'_, BelievedTime>) {
        let mut believed = self.believed.lock();
        let (wall, boot) = (self.inner.now(), self.inner.since_boot());
        let passed = Millis::from_millis(boot.as_millis().saturating_sub(believed.boot.as_millis()));
        let expected = believed.wall + passed;
        let (by, forward) = if wall >= expected { (wall.since(expected), true) } else { (expected.since(wall), false) };
        if by <= FOLLOWED {
            *believed = BelievedTime { wall, boot, doubt: None };
            return (wall, believed);
        }
        believed.doubt = Some(ClockJump { by, forward, wall });
        (expected, believed)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> UtcMillis {
        self.look().0
    }

    fn since_boot(&self) -> Millis {
        self.inner.since_boot()
    }

    fn ignored_jump(&self) -> Option<ClockJump> {
        self.look().1.doubt
    }

    fn trust_again(&self) -> UtcMillis {
        let mut believed = self.believed.lock();
        *believed = BelievedTime { wall: self.inner.now(), boot: self.inner.since_boot(), doubt: None };
        believed.wall
    }
}

/// The result of comparing both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockAgreement {
    /// Both clocks agree.
    Steady,
    /// The wall clock has just jumped.
    Stepped {
        /// The size of the jump.
        by: Millis,
        /// Whether it jumped forward.
        forward: bool,
    },
    /// It jumped a short time ago.
    Suspect {
        /// The remaining wait.
        left: Millis,
    },
}

/// Compares the clocks from one tick to the next.
#[derive(Debug, Clone)]
pub struct ClockWatch {
    wall: UtcMillis,
    boot: Millis,
    calm_from: Option<Millis>,
}

impl ClockWatch {
    /// Starts watching.
    #[must_use]
    pub const fn start(wall: UtcMillis, boot: Millis) -> Self {
        Self { wall, boot, calm_from: None }
    }

    /// Compares both clocks again.
    pub fn observe(&mut self, wall: UtcMillis, boot: Millis) -> ClockAgreement {
        let passed = boot.as_millis().saturating_sub(self.boot.as_millis());
        let expected = self.wall + Millis::from_millis(passed);
        let (by, forward) = if wall >= expected { (wall.since(expected), true) } else { (expected.since(wall), false) };
        (self.wall, self.boot) = (wall, boot);
        if by > STEP {
            self.calm_from = Some(boot + CALM);
            return ClockAgreement::Stepped { by, forward };
        }
        match self.calm_from {
            Some(from) if boot < from => {
                ClockAgreement::Suspect { left: Millis::from_millis(from.as_millis() - boot.as_millis()) }
            }
            Some(_) | None => {
                self.calm_from = None;
                ClockAgreement::Steady
            }
        }
    }
}

/// The undo windows this process has seen opened, in time since boot.
#[derive(Debug, Clone, Default)]
pub struct UndoWindows {
    closes: BTreeMap<HoldId, Millis>,
}

impl UndoWindows {
    /// Opens a window now.
    pub fn open(&mut self, hold: HoldId, boot: Millis, delay: Millis) {
        self.closes.insert(hold, boot + delay);
    }

    /// Whether the window has closed by both clocks. A window opened in an earlier lifetime of the process
    /// is judged by the wall clock alone; the grace rule covers what happened in between.
    #[must_use]
    pub fn is_closed(&self, hold: HoldId, not_before: UtcMillis, wall: UtcMillis, boot: Millis) -> bool {
        wall >= not_before && self.closes.get(&hold).is_none_or(|closes| boot >= *closes)
    }

    /// Forgets a write that is on its way, or gone.
    pub fn forget(&mut self, hold: HoldId) {
        self.closes.remove(&hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL: UtcMillis = UtcMillis::from_millis(1_730_000_000_000);
    const BOOT: Millis = Millis::from_hours(1);

    #[test]
    fn a_jump_in_either_direction_is_noticed_and_calms_down_after_a_minute() {
        for (wall, forward) in [(WALL + Millis::from_hours(1), true), (WALL - Millis::from_hours(24), false)] {
            let mut watch = ClockWatch::start(WALL, BOOT);
            let ClockAgreement::Stepped { forward: seen, .. } = watch.observe(wall, BOOT + Millis::from_secs(1)) else {
                panic!()
            };
            assert_eq!(seen, forward);
            let later = Millis::from_secs(30);
            assert!(matches!(
                watch.observe(wall + later, BOOT + Millis::from_secs(31)),
                ClockAgreement::Suspect { .. }
            ));
            assert_eq!(
                watch.observe(wall + Millis::from_secs(61), BOOT + Millis::from_secs(62)),
                ClockAgreement::Steady
            );
        }
    }

    #[test]
    fn drift_and_sleep_are_no_jumps() {
        let mut watch = ClockWatch::start(WALL, BOOT);
        assert_eq!(
            watch.observe(WALL + Millis::from_millis(1_400), BOOT + Millis::from_secs(1)),
            ClockAgreement::Steady
        );
        // Time since boot counts while the machine sleeps, so both clocks move by the same hour.
        let slept = Millis::from_hours(1);
        assert_eq!(watch.observe(WALL + slept + slept, BOOT + slept + slept), ClockAgreement::Steady);
    }

    #[test]
    fn a_clock_set_ahead_does_not_shorten_the_undo_window() {
        let mut windows = UndoWindows::default();
        let hold = HoldId::from_bits(1);
        windows.open(hold, BOOT, Millis::from_secs(30));
        let not_before = WALL + Millis::from_secs(30);
        let ahead = WALL + Millis::from_hours(24);
        assert!(!windows.is_closed(hold, not_before, ahead, BOOT + Millis::from_secs(29)));
        assert!(windows.is_closed(hold, not_before, ahead, BOOT + Millis::from_secs(30)));
        assert!(
            !windows.is_closed(hold, not_before, WALL, BOOT + Millis::from_hours(2)),
            "nor does one set back open it"
        );
    }

    /// Two clocks that a test sets by hand.
    struct ByHand(Mutex<(UtcMillis, Millis)>);

    impl Clock for ByHand {
        fn now(&self) -> UtcMillis {
            self.0.lock().0
        }
        fn since_boot(&self) -> Millis {
            self.0.lock().1
        }
    }

    fn steady() -> (Arc<ByHand>, SteadyClock) {
        let hand = Arc::new(ByHand(Mutex::new((WALL, BOOT))));
        (Arc::clone(&hand), SteadyClock::new(hand))
    }

    /// Time passes, and the wall clock says something.
    fn pass(hand: &ByHand, passed: Millis, wall: UtcMillis) {
        let mut now = hand.0.lock();
        *now = (wall, now.1 + passed);
    }

    #[test]
    fn a_clock_that_jumps_ahead_and_comes_back_is_not_followed_and_leaves_nothing_behind() {
        let (hand, clock) = steady();
        let ahead = Millis::from_hours(400 * 24);
        let mut wall = WALL + ahead;
        for second in 1..=200 {
            pass(&hand, Millis::from_secs(1), wall);
            assert_eq!(clock.now(), WALL + Millis::from_secs(second), "time goes on as it really passes");
            let doubt = clock.ignored_jump().unwrap();
            assert!(doubt.forward && doubt.by + Millis::from_secs(200) >= ahead, "{doubt:?}");
            wall = wall + Millis::from_secs(1);
        }
        pass(&hand, Millis::from_secs(1), WALL + Millis::from_secs(201));
        assert_eq!((clock.now(), clock.ignored_jump()), (WALL + Millis::from_secs(201), None));
    }

    #[test]
    fn a_small_step_and_a_long_sleep_are_followed_and_a_person_can_say_that_a_jump_is_right() {
        let (hand, clock) = steady();
        pass(&hand, Millis::from_secs(1), WALL + Millis::from_mins(4));
        assert_eq!((clock.now(), clock.ignored_jump()), (WALL + Millis::from_mins(4), None));
        pass(&hand, Millis::from_hours(50), WALL + Millis::from_hours(50));
        assert_eq!(
            (clock.now(), clock.ignored_jump()),
            (WALL + Millis::from_hours(50), None),
            "slept and four minutes back"
        );
        pass(&hand, Millis::from_secs(1), WALL - Millis::from_hours(24));
        assert!(clock.ignored_jump().is_some_and(|doubt| !doubt.forward));
        assert_eq!(clock.now(), WALL + Millis::from_hours(50) + Millis::from_secs(1));
        assert_eq!(clock.trust_again(), WALL - Millis::from_hours(24));
        assert_eq!((clock.now(), clock.ignored_jump()), (WALL - Millis::from_hours(24), None));
    }

    proptest! {
        #[test]
        fn no_sequence_of_jumps_closes_a_window_early(jumps in prop::collection::vec((-90_000_i64..90_000, 0_u64..5_000), 1..40)) {
            let mut windows = UndoWindows::default();
            let hold = HoldId::from_bits(1);
            let delay = Millis::from_secs(30);
            windows.open(hold, BOOT, delay);
            let (mut wall, mut boot) = (WALL, BOOT);
            for (jump, passed) in jumps {
                boot = boot + Millis::from_millis(passed);
                wall = UtcMillis::from_millis(wall.as_millis() + jump + i64::try_from(passed).unwrap());
                if windows.is_closed(hold, WALL + delay, wall, boot) {
                    prop_assert!(boot >= BOOT + delay);
                }
            }
        }
    }
}
