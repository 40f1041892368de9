//! Batch protection: how much a write weighs, and whether it still fits its window.
//!
//! Takes a call and what the agent did recently at this service; gives the weight and a verdict.
//! Promise: within any period as long as the window, the writes that fit add up to no more than the
//! limit, whatever the clock does. Counters live in the store as rows, one per slot of the window; a
//! slot counts until all of it is older than the window, so the window may forget late, never early.

use serde_json::{Map, Value};

use crate::capability::{Capability, ParamKind};
use crate::clock::{Millis, UtcMillis};
use crate::recipients;

/// This many recipients, or any part of them, weigh as much as one object.
pub const RECIPIENTS_PER_UNIT: u32 = 5;
/// How finely a window is remembered.
const SLOTS: u64 = 60;

/// How much an agent may do at one service within a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The most that fits.
    pub limit: u32,
    /// How long a write is remembered.
    pub span: Millis,
}

/// One write that is weighed against its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCheck {
    /// What the window holds already.
    pub used: u32,
    /// What the write adds.
    pub weight: u32,
    /// The most that fits.
    pub limit: u32,
}

/// Whether a write fits its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowOutcome {
    /// It fits.
    Fits,
    /// A person decides, about this write and those that still wait.
    Trips,
}

/// How much a call weighs: what it touches, not one per call. At least 1.
#[must_use]
pub fn weigh(capability: &Capability, arguments: &Map<String, Value>) -> u32 {
    let count = |kind: ParamKind, size: fn(&Value) -> u32| {
        let given = capability.params_of(kind).filter_map(|param| arguments.get(&param.name));
        given.fold(0_u32, |sum, value| sum.saturating_add(size(value)))
    };
    let objects = count(ParamKind::Objects, elements);
    // Recipients are added up before they are divided: five arguments with one each are five people.
    let people = count(ParamKind::Recipients, recipients::count_people);
    objects.saturating_add(people.div_ceil(RECIPIENTS_PER_UNIT)).max(1)
}

fn elements(value: &Value) -> u32 {
    value.as_array().map_or(0, |list| u32::try_from(list.len()).unwrap_or(u32::MAX))
}

impl Default for SlidingWindow {
    /// Five within ten minutes.
    fn default() -> Self {
        Self { limit: 5, span: Millis::from_mins(10) }
    }
}

impl SlidingWindow {
    /// The slot a write at this moment is counted in.
    #[must_use]
    pub fn slot_of(&self, at: UtcMillis) -> i64 {
        at.as_millis().div_euclid(self.slot_millis())
    }

    /// The first slot that still counts. The store adds up every slot from here on, later ones
    /// included: a clock that was set back must not hide what was written before.
    #[must_use]
    pub fn oldest_slot(&self, now: UtcMillis) -> i64 {
        self.slot_of(now - self.span)
    }

    /// The earliest moment that still counts, in milliseconds: where its first slot begins.
    #[must_use]
    pub fn oldest_moment(&self, now: UtcMillis) -> i64 {
        self.oldest_slot(now).saturating_mul(self.slot_millis())
    }

    /// What is in use of what was counted, if this much of it was denied or cancelled and never left. At most one whole
    /// window is given back: an agent that is denied or cancelled again and again still meets the window.
    #[must_use]
    pub fn in_use(&self, counted: u32, never_left: u32) -> u32 {
        counted.saturating_sub(never_left.min(self.limit))
    }

    /// Weighs a write against the window.
    #[must_use]
    pub const fn check_write(&self, used: u32, weight: u32) -> WindowCheck {
        WindowCheck { used, weight, limit: self.limit }
    }

    /// When the count of a slot expires.
    #[must_use]
    pub fn forgotten_at(&self, slot: i64) -> UtcMillis {
        UtcMillis::from_millis(slot.saturating_add(1).saturating_mul(self.slot_millis())) + self.span
    }

    fn slot_millis(&self) -> i64 {
        i64::try_from(self.span.as_millis().div_ceil(SLOTS)).unwrap_or(i64::MAX).max(1)
    }
}

impl WindowCheck {
    /// Whether it fits.
    #[must_use]
    pub const fn outcome(self) -> WindowOutcome {
        if self.used.saturating_add(self.weight) <= self.limit { WindowOutcome::Fits } else { WindowOutcome::Trips }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Catalogue;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn weight(arguments: Value) -> u32 {
        let text = "- {name: email.send, effect: write, class: consume_once, summary: s, params: [{name: to, kind: recipients}, {name: bcc, kind: recipients}, {name: ids, kind: objects}, {name: tags, kind: texts}]}";
        let catalogue = Catalogue::from_yaml(text).unwrap();
        let Value::Object(arguments) = arguments else { unreachable!() };
        weigh(catalogue.iter().next().unwrap(), &arguments)
    }

    fn people(n: usize) -> String {
        (0..n).map(|i| format!("p{i}@b.c")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn every_write_weighs_at_least_one() {
        assert_eq!(weight(json!({})), 1);
        assert_eq!(weight(json!({"to": "a@b.c"})), 1);
        assert_eq!(weight(json!({"ids": []})), 1);
        assert_eq!(weight(json!({"tags": ["a", "b", "c"]})), 1);
    }

    #[test]
    fn every_object_and_every_started_five_recipients_count() {
        assert_eq!(weight(json!({"ids": ["a", "b", "c"]})), 3);
        assert_eq!(weight(json!({"to": people(5)})), 1);
        assert_eq!(weight(json!({"to": people(6)})), 2);
        assert_eq!(weight(json!({"to": people(3), "bcc": people(3)})), 2);
        assert_eq!(weight(json!({"to": people(1), "bcc": people(500)})), 101);
        assert_eq!(weight(json!({"ids": ["a", "b"], "to": people(11)})), 5);
    }

    #[test]
    fn the_sixth_write_in_ten_minutes_trips_and_the_first_after_them_fits() {
        let mut counters = Counters::new(SlidingWindow::default());
        assert_eq!((0..5).map(|s| counters.admit(s * 1000, 1)).collect::<Vec<_>>(), [WindowOutcome::Fits; 5]);
        assert_eq!(counters.admit(5_000, 1), WindowOutcome::Trips);
        assert_eq!(counters.admit(600_000, 1), WindowOutcome::Trips, "the first is exactly ten minutes old");
        assert_eq!(counters.admit(610_000, 1), WindowOutcome::Fits, "its slot of ten seconds has left the window");
    }

    #[test]
    fn one_write_heavier_than_the_window_trips_it() {
        assert_eq!(SlidingWindow::default().check_write(0, 6).outcome(), WindowOutcome::Trips);
        assert_eq!(SlidingWindow::default().check_write(0, 5).outcome(), WindowOutcome::Fits);
        assert_eq!(SlidingWindow::default().check_write(u32::MAX, u32::MAX).outcome(), WindowOutcome::Trips);
        assert_eq!(
            SlidingWindow { limit: 0, ..SlidingWindow::default() }.check_write(0, 1).outcome(),
            WindowOutcome::Trips
        );
    }

    /// The store as it will be: one counter per slot. Beside it, what truly happened.
    struct Counters {
        window: SlidingWindow,
        rows: BTreeMap<i64, u32>,
        exact: Vec<(i64, u32)>,
    }

    impl Counters {
        fn new(window: SlidingWindow) -> Self {
            Self { window, rows: BTreeMap::new(), exact: Vec::new() }
        }
        fn used(&self, now: i64) -> u32 {
            self.rows.range(self.window.oldest_slot(UtcMillis::from_millis(now))..).map(|(_, weight)| weight).sum()
        }
        fn admit(&mut self, now: i64, weight: u32) -> WindowOutcome {
            let balance = self.window.check_write(self.used(now), weight).outcome();
            if balance == WindowOutcome::Fits {
                *self.rows.entry(self.window.slot_of(UtcMillis::from_millis(now))).or_default() += weight;
                self.exact.push((now, weight));
            }
            balance
        }
        /// The most that fitted into any stretch as long as the window, both ends included.
        fn fullest(&self) -> u32 {
            let span = i64::try_from(self.window.span.as_millis()).unwrap();
            let within = |from: i64| {
                let inside = self.exact.iter().filter(|(at, _)| (from..=from + span).contains(at));
                inside.map(|(_, weight)| weight).sum::<u32>()
            };
            self.exact.iter().map(|(at, _)| within(*at)).max().unwrap_or(0)
        }
    }

    proptest! {
        #[test]
        fn no_stretch_as_long_as_the_window_holds_more_than_the_limit(
            limit in 0_u32..12, span in 0_u64..5_000,
            writes in prop::collection::vec((-3_000_i64..12_000, 1_u32..4), 0..120), steady in any::<bool>(),
        ) {
            // Unsorted moments are a clock that jumps back and forth.
            let mut writes = writes;
            if steady { writes.sort_unstable(); }
            let mut counters = Counters::new(SlidingWindow { limit, span: Millis::from_millis(span) });
            for (at, weight) in writes {
                counters.admit(at, weight);
            }
            prop_assert!(counters.fullest() <= limit);
        }

        #[test]
        fn a_write_is_remembered_for_its_span_and_at_most_one_slot_longer(
            span in 1_u64..100_000, at in -100_000_i64..100_000, later in 0_i64..250_000,
        ) {
            let window = SlidingWindow { limit: 5, span: Millis::from_millis(span) };
            let counted = window.slot_of(UtcMillis::from_millis(at))
                >= window.oldest_slot(UtcMillis::from_millis(at + later));
            let (span, slot) = (i64::try_from(span).unwrap(), window.slot_millis());
            if later <= span { prop_assert!(counted); }
            if later >= span + slot { prop_assert!(!counted); }
        }
    }
}
