//! What the simulation remembers outside the store, and the promises it checks.
//!
//! Some are checked when they could be broken (a claim, an effect), the rest at the end, against what really happened
//! at the service and what the audit log says.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{AgentName, Digest, HoldId, Millis, UtcMillis};
use sluice_store::FreezeTarget;

use crate::history::CheckedHistory;
use crate::provider::SimulatedProvider;
use crate::sim::SimResult;

/// An index no slower than this never misleads: the settle time, minus the difference that clocks may have.
pub(super) const PROMPT_INDEX_S: u64 = 110;
/// How far the times of two nodes' clocks may differ without an error.
const TOLERANCE: Millis = Millis::from_secs(2);
/// The delay that an ordinary restart causes.
const ON_TIME: Millis = sluice_core::grace::ON_TIME;

#[derive(Debug, Default)]
pub(super) struct SimOracle {
    /// Every write whose id an agent received.
    pub acknowledged: Vec<HoldId>,
    /// The digest and the write of each agent's keys.
    pub keys: BTreeMap<(AgentName, String), (Digest, HoldId)>,
    /// When, in real time, each undo window last opened.
    opened: BTreeMap<HoldId, Millis>,
    set_back: bool,
    /// Claims without a reported outcome.
    leased: BTreeMap<HoldId, UtcMillis>,
    /// Freezes in force, and the writes that were running when they returned.
    pub frozen: Vec<(FreezeTarget, BTreeSet<HoldId>)>,
    awake: Option<(Millis, UtcMillis)>,
    /// When no node was running, on the wall clock, without delays that count as on time.
    asleep: Vec<(UtcMillis, UtcMillis)>,
}

impl SimOracle {
    pub fn window_opened(&mut self, hold: HoldId, elapsed: Millis) {
        // The time of the store never goes back: after a clock was set back, the store's time stands still until the
        // clock has caught up, and a window that opens meanwhile is measured from there.
        if self.set_back {
            self.opened.remove(&hold);
        } else {
            self.opened.insert(hold, elapsed);
        }
    }

    /// An operator closed the window, or extended it by a time that does not matter here.
    pub fn window_retimed(&mut self, hold: HoldId) {
        self.opened.remove(&hold);
    }

    /// For a planted bug that tests something else.
    pub fn forget_windows(&mut self) {
        self.opened.clear();
    }

    pub fn note_report(&mut self, hold: HoldId) {
        self.leased.remove(&hold);
    }

    /// Periods of the old wall time say nothing about the new one.
    pub fn clocks_jumped(&mut self, back: bool) {
        self.set_back |= back;
        self.asleep.clear();
        self.awake = None;
        self.leased.clear();
    }

    pub fn note_awake(&mut self, elapsed: Millis, wall: UtcMillis) {
        if let Some((last, then)) = self.awake
            && elapsed.as_millis() - last.as_millis() > ON_TIME.as_millis()
        {
            self.asleep.push((then + TOLERANCE, wall - ON_TIME - TOLERANCE));
        }
        self.awake = Some((elapsed, wall));
    }

    fn slept_at(&self, at: UtcMillis) -> bool {
        self.asleep.iter().any(|(from, to)| *from < at && at < *to)
    }

    /// An abandoned claim was recovered: one that expired while no node was running is late.
    pub fn check_take_up(&mut self, hold: &Hold, elapsed: Millis) -> SimResult {
        let lease = self.leased.remove(&hold.id);
        match (&hold.state, lease) {
            (HoldState::Ready { .. }, Some(lease)) if self.slept_at(lease) => Err(format!(
                "G15: {} was under way until {lease}, when nobody was there, and goes on unannounced",
                hold.id
            )),
            (HoldState::Held { .. }, _) => {
                self.window_opened(hold.id, elapsed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A claim was granted: checks that it was this write's turn.
    pub fn check_claim(&mut self, before: &Hold, hold: &Hold, rows: &[Hold], elapsed: Millis) -> SimResult {
        let id = hold.id;
        if let (HoldState::Held { .. }, Some(opened)) = (&before.state, self.opened.get(&id))
            && elapsed + TOLERANCE < *opened + hold.delay
        {
            return Err(format!("G16: the undo window of {id} was cut short"));
        }
        if let HoldState::Held { not_before } | HoldState::Ready { not_before } = before.state
            && self.slept_at(not_before)
        {
            return Err(format!("G15: {id} came due at {not_before}, when nobody was there, and was sent unannounced"));
        }
        if let HoldState::Executing { claim, .. } = &hold.state {
            self.leased.insert(id, claim.lease_until);
        }
        let same = |other: &&Hold| other.id != id && other.object_key.is_some() && other.object_key == hold.object_key;
        for other in rows.iter().filter(same) {
            let first = (other.admitted_at, other.id) < (hold.admitted_at, id);
            let state = other.state.word();
            let under_way = matches!(state, "preparing" | "armed" | "in_doubt" | "needs_human");
            let waits = matches!(state, "held" | "ready");
            if under_way || (first && waits) {
                return Err(format!("O3: {id} overtakes {}, which is {state} and changes the same object", other.id));
            }
        }
        Ok(())
    }

    /// An effect happened at the service: checks that it was allowed.
    pub fn check_effect(&self, hold: &Hold) -> SimResult {
        let covers = |scope: &FreezeTarget| match scope {
            FreezeTarget::All => true,
            FreezeTarget::Agent(name) => name == hold.agent(),
            FreezeTarget::Service(name) => *name == hold.service,
        };
        if self.frozen.iter().any(|(scope, under_way)| covers(scope) && !under_way.contains(&hold.id)) {
            return Err(format!("G17: {} left while it was frozen", hold.id));
        }
        Ok(())
    }

    /// At the end: compares what happened with what the audit log says.
    pub fn judge(&self, provider: &SimulatedProvider, history: &CheckedHistory) -> SimResult {
        for id in &self.acknowledged {
            let row = history.holds.get(id).ok_or_else(|| format!("G1: {id} was acknowledged and is gone"))?;
            if !row.state.is_final() {
                return Err(format!("G1: {id} never came to an end: {:?}", row.state));
            }
        }
        for id in provider.touched() {
            let row = history.holds.get(&id).ok_or_else(|| format!("I2: {id} happened and was never held"))?;
            if provider.effects(id).iter().any(|effect| effect.digest != row.action.digest()) {
                return Err(format!("I4: what happened for {id} is not what was approved"));
            }
        }
        for row in history.holds.values() {
            let effects = provider.effects(row.id);
            let (count, word) = (effects.len(), row.state.word());
            // The documented limit of class C: an index slower than the settle time.
            let misled = row.class == EffectClass::Findable
                && effects
                    .iter()
                    .any(|effect| effect.findable_at.as_millis() - effect.at.as_millis() > PROMPT_INDEX_S * 1000);
            match &row.state {
                _ if misled => {}
                HoldState::Done { .. } if count == 0 => {
                    return Err(format!("I2: {} is done and never happened", row.id));
                }
                HoldState::Done { .. } if count > 1 && row.class != EffectClass::Absolute => {
                    return Err(format!("I1: {} ({}) happened {count} times", row.id, row.class.as_str()));
                }
                HoldState::Done { .. } => {}
                _ if count > 0 => return Err(format!("I3: {} is {word} and happened {count} times", row.id)),
                _ => {}
            }
        }
        for (name, setters) in provider.objects() {
            let mut over = BTreeSet::new();
            for (earlier, later) in setters.iter().zip(setters.iter().skip(1)) {
                if earlier != later {
                    over.insert(*earlier);
                }
                if over.contains(later) {
                    return Err(format!("I1: {later} was repeated over newer work at {name}"));
                }
            }
        }
        Ok(())
    }
}
