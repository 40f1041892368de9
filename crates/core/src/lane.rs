//! The order in which writes leave for one service: one write of each agent in turn.
//!
//! Takes the due writes, by agent; gives the next write. Promise: no agent waits for more than one write of each
//! other agent before its turn, however many they have; one agent never holds every place; no write is given
//! twice while it is under way.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::clock::Millis;
use crate::ids::{AgentName, HoldId};
use crate::pace::{PaceRate, Pacer, SlowStart};

/// What a lane may do now.
#[derive(Debug, Clone, Copy)]
pub struct LaneTerms {
    /// How many writes may be under way at once.
    pub places: usize,
    /// How fast writes leave, if that is limited.
    pub rate: Option<PaceRate>,
    /// How slowly writes leave that piled up while no gateway was running.
    pub start: SlowStart,
}

/// One service's queue, and the writes that are under way.
#[derive(Debug)]
pub struct ServiceLane<T> {
    waiting: BTreeMap<AgentName, VecDeque<WaitingWrite<T>>>,
    under_way: HashMap<HoldId, AgentName>,
    /// When each agent had its last turn.
    turns: HashMap<AgentName, u64>,
    turn: u64,
    pacer: Pacer,
}

#[derive(Debug)]
struct WaitingWrite<T> {
    hold: HoldId,
    /// Whether the write came before or during a gap.
    is_backlog: bool,
    write: T,
}

impl<T> Default for ServiceLane<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            under_way: HashMap::new(),
            turns: HashMap::new(),
            turn: 0,
            pacer: Pacer::default(),
        }
    }
}

impl<T> ServiceLane<T> {
    /// Forgets the waiting writes: they are looked up again.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Adds a write that may leave, and whether it piled up during a gap. A write that is under way is skipped.
    pub fn offer(&mut self, agent: AgentName, (hold, is_backlog): (HoldId, bool), write: T) {
        if !self.under_way.contains_key(&hold) {
            self.waiting.entry(agent).or_default().push_back(WaitingWrite { hold, is_backlog, write });
        }
    }

    /// The next write, if there is a place and the pace allows it. It is under way from now on.
    pub fn take(&mut self, boot: Millis, terms: &LaneTerms) -> Option<(HoldId, T)> {
        if self.under_way.len() >= terms.places {
            return None;
        }
        let share = share_of(terms.places);
        let holds = |agent: &AgentName| self.under_way.values().filter(|other| *other == agent).count();
        // New writes do not wait for those that piled up.
        let start = |write: &WaitingWrite<T>| if write.is_backlog { terms.start } else { SlowStart::none() };
        let fits = |write: &WaitingWrite<T>| self.pacer.can_leave(boot, terms.rate, start(write));
        let fitting =
            self.waiting.iter().filter(|(agent, queue)| queue.front().is_some_and(fits) && holds(agent) < share);
        let last = |agent: &AgentName| self.turns.get(agent).copied().unwrap_or_default();
        let agent = fitting.min_by_key(|(agent, _)| last(agent)).map(|(agent, _)| agent.clone())?;
        let waiting = self.waiting.get_mut(&agent)?.pop_front()?;
        self.pacer.record_departure(boot, terms.rate, start(&waiting));
        let WaitingWrite { hold, write, .. } = waiting;
        self.turn += 1;
        self.turns.insert(agent.clone(), self.turn);
        self.under_way.insert(hold, agent);
        Some((hold, write))
    }

    /// Notes that a write is no longer under way.
    pub fn end(&mut self, hold: HoldId) {
        self.under_way.remove(&hold);
    }

    /// Whether there is a place for one more.
    #[must_use]
    pub fn has_place(&self, places: usize) -> bool {
        self.under_way.len() < places
    }

    /// Whether a write waits for its turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting.values().any(|queue| !queue.is_empty())
    }

    /// Whether it remembers the turns of agents.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// How many writes are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

/// The most places one agent may hold: a quarter is left for others.
const fn share_of(places: usize) -> usize {
    let share = places - places / 4;
    if share == 0 { 1 } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn terms(places: usize) -> LaneTerms {
        LaneTerms { places, rate: None, start: SlowStart::none() }
    }

    fn lane(writes: &[(&str, u128)]) -> ServiceLane<()> {
        let mut lane = ServiceLane::default();
        writes.iter().for_each(|(name, id)| lane.offer(agent(name), (HoldId::from_bits(*id), false), ()));
        lane
    }

    #[test]
    fn an_agent_that_floods_gets_every_second_turn_also_from_step_to_step() {
        let flood: Vec<_> = (0..100).map(|id| ("flood", id)).collect();
        let mut lane = lane(&flood);
        let mut order = Vec::new();
        for second in 0..20 {
            if second == 5 {
                (200..203).for_each(|id| lane.offer(agent("clerk"), (HoldId::from_bits(id), false), ()));
            }
            let slow = LaneTerms { rate: PaceRate::from_words("1/s"), ..terms(100) };
            let (hold, ()) = lane.take(Millis::from_secs(second), &slow).unwrap();
            assert!(lane.take(Millis::from_secs(second), &slow).is_none(), "one in a second");
            order.push(hold.bits() >= 200);
        }
        assert_eq!(order[5..11], [true, false, true, false, true, false], "{order:?}");
    }

    #[test]
    fn one_agent_never_holds_every_place() {
        let flood: Vec<_> = (0..100).map(|id| ("flood", id)).collect();
        let mut lane = lane(&flood);
        let taken = std::iter::from_fn(|| lane.take(Millis::ZERO, &terms(16))).count();
        assert_eq!(taken, 12);
        lane.offer(agent("clerk"), (HoldId::from_bits(200), false), ());
        assert_eq!(lane.take(Millis::ZERO, &terms(16)).map(|(hold, ())| hold), Some(HoldId::from_bits(200)));
    }

    #[test]
    fn what_piled_up_leaves_slowly_and_what_is_new_does_not_wait_for_it() {
        let mut lane = ServiceLane::default();
        (0..5).for_each(|id| lane.offer(agent("late"), (HoldId::from_bits(id), true), ()));
        (10..15).for_each(|id| lane.offer(agent("clerk"), (HoldId::from_bits(id), false), ()));
        let slow = LaneTerms { start: SlowStart::at(Millis::ZERO), ..terms(100) };
        let mut taken = |second| -> Vec<u128> {
            let at = Millis::from_secs(second);
            std::iter::from_fn(|| lane.take(at, &slow)).map(|(hold, ())| hold.bits()).collect()
        };
        let first = taken(1);
        assert_eq!(first.iter().filter(|id| **id < 10).count(), 1, "{first:?}");
        assert_eq!(first.iter().filter(|id| **id >= 10).count(), 5, "{first:?}");
        assert_eq!(taken(1), []);
        assert_eq!(taken(2).len(), 1);
    }

    #[test]
    fn what_is_under_way_is_given_once() {
        let mut lane = lane(&[("clerk", 1)]);
        assert!(lane.take(Millis::ZERO, &terms(9)).is_some());
        lane.offer(agent("clerk"), (HoldId::from_bits(1), false), ());
        assert!(lane.take(Millis::ZERO, &terms(9)).is_none());
        lane.end(HoldId::from_bits(1));
        lane.offer(agent("clerk"), (HoldId::from_bits(1), false), ());
        assert!(lane.take(Millis::ZERO, &terms(9)).is_some());
    }

    proptest! {
        #[test]
        fn whoever_waits_is_passed_by_each_other_agent_once_at_most(
            queues in proptest::collection::vec(0_usize..30, 2..8), places in 1_usize..40,
        ) {
            let mut lane = ServiceLane::default();
            let mut next = 0;
            for (n, count) in queues.iter().enumerate() {
                for _ in 0..*count {
                    next += 1;
                    lane.offer(agent(&format!("a{n}")), (HoldId::from_bits(next), false), n);
                }
            }
            let (mut order, mut left) = (Vec::new(), queues.clone());
            while let Some((hold, n)) = lane.take(Millis::ZERO, &terms(places)) {
                lane.end(hold);
                left[n] -= 1;
                order.push(n);
                for (waiting, count) in left.iter().enumerate().filter(|(other, count)| *other != n && **count > 0) {
                    let since = order.iter().rposition(|turn| *turn == waiting).map_or(0, |at| at + 1);
                    let passed = order[since..].iter().filter(|turn| **turn == n).count();
                    prop_assert!(passed <= 1, "a{waiting} with {count} writes was passed {passed} times by a{n}");
                }
            }
            prop_assert_eq!(order.len(), queues.iter().sum::<usize>());
        }
    }
}
