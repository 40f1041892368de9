//! Late writes: what happens to a write that came due while no gateway was running.
//!
//! Takes when the write was due, when we noticed, how long such a write waits, and how late it may
//! be; gives one of three answers. Promise: a write that is more than half a minute late never leaves
//! before people had at least a minute to stop it, and beyond its grace period only a person can send it.

use crate::capability::EffectClass;
use crate::clock::{Millis, UtcMillis};

/// The delay that an ordinary restart causes.
pub const ON_TIME: Millis = Millis::from_secs(30);
/// The shortest wait of a write that is announced again.
pub const SHORTEST_REHOLD: Millis = Millis::from_mins(1);

/// What to do with a write that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverdueDecision {
    /// Due now or just before: treat it as any other.
    OnTime,
    /// Late but within its grace: announce it again and hold it until then.
    Rehold {
        /// When it leaves unless someone stops it.
        until: UtcMillis,
    },
    /// Too late to assume that anyone still wants it: a person decides.
    Stale,
}

/// How late a write of this class may be. Setting a state is still right an hour later; sending a message is not.
#[must_use]
pub const fn grace(class: EffectClass) -> Millis {
    match class {
        EffectClass::Absolute => Millis::from_mins(60),
        EffectClass::ConsumeOnce | EffectClass::Findable | EffectClass::Opaque => Millis::from_mins(10),
    }
}

/// Judges one write that should have left at `not_before`.
#[must_use]
pub fn judge_overdue(not_before: UtcMillis, now: UtcMillis, delay: Millis, grace: Millis) -> OverdueDecision {
    let late = now.since(not_before);
    if late <= ON_TIME {
        OverdueDecision::OnTime
    } else if late <= grace {
        OverdueDecision::Rehold { until: now + delay.max(SHORTEST_REHOLD) }
    } else {
        OverdueDecision::Stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DUE: UtcMillis = UtcMillis::from_millis(1_730_000_000_000);
    const DELAY: Millis = Millis::from_secs(30);

    fn late_by(ms: u64, class: EffectClass) -> OverdueDecision {
        judge_overdue(DUE, DUE + Millis::from_millis(ms), DELAY, grace(class))
    }

    #[test]
    fn the_borders_are_exact_to_the_millisecond() {
        let send = EffectClass::ConsumeOnce;
        assert_eq!(late_by(0, send), OverdueDecision::OnTime);
        assert_eq!(late_by(30_000, send), OverdueDecision::OnTime);
        assert_eq!(late_by(30_001, send), OverdueDecision::Rehold { until: DUE + Millis::from_millis(90_001) });
        assert_eq!(late_by(600_000, send), OverdueDecision::Rehold { until: DUE + Millis::from_secs(660) });
        assert_eq!(late_by(600_001, send), OverdueDecision::Stale);
    }

    #[test]
    fn only_writes_that_set_a_state_have_an_hour() {
        let label = EffectClass::Absolute;
        assert_eq!(late_by(3_600_000, label), OverdueDecision::Rehold { until: DUE + Millis::from_secs(3_660) });
        assert_eq!(late_by(3_600_001, label), OverdueDecision::Stale);
        for other in [EffectClass::ConsumeOnce, EffectClass::Findable, EffectClass::Opaque] {
            assert_eq!(late_by(3_600_000, other), OverdueDecision::Stale, "{other:?}");
        }
    }

    #[test]
    fn a_longer_delay_is_kept_when_a_write_is_held_again() {
        let now = DUE + Millis::from_mins(5);
        let answer = judge_overdue(DUE, now, Millis::from_mins(3), Millis::from_mins(10));
        assert_eq!(answer, OverdueDecision::Rehold { until: now + Millis::from_mins(3) });
    }

    proptest! {
        #[test]
        fn a_late_write_never_leaves_within_the_next_minute(
            late in 30_001_u64..10_000_000, delay in 0_u64..1_000_000, grace in 0_u64..10_000_000,
        ) {
            let now = DUE + Millis::from_millis(late);
            match judge_overdue(DUE, now, Millis::from_millis(delay), Millis::from_millis(grace)) {
                OverdueDecision::OnTime => prop_assert!(false, "{late} ms late is not on time"),
                OverdueDecision::Rehold { until } => {
                    prop_assert!(late <= grace);
                    prop_assert!(until.since(now) >= SHORTEST_REHOLD.max(Millis::from_millis(delay)));
                }
                OverdueDecision::Stale => prop_assert!(late > grace),
            }
        }
    }
}
