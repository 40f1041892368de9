//! Observed calls: what the rules would have done to calls that observe mode let through.
//!
//! Takes one such call and records it; gives those of some time back. Promise: the entry is written before the call is
//! answered, and says what would have happened; what was asked is kept only as it may be kept of a refused call.

use sluice_core::audit::{Entry, Fact};
use sluice_core::{Action, Actor, AgentName, CallId, CapabilityName, Digest, Tier, Timestamp};

use crate::Store;
use crate::ahead::Ahead;
use crate::audit;
use crate::counters;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::refusals;
use crate::sql::Tx;

/// Entries read at once.
const PAGE: u32 = 1_000;
/// What such an entry is called.
const WORD: &str = "call.observed";

/// A call that was let through and would not have been.
#[derive(Debug, Clone)]
pub struct ObservedCall {
    /// The call that was let through.
    pub call: CallId,
    /// The agent that made it.
    pub agent: AgentName,
    /// What was asked.
    pub capability: CapabilityName,
    /// What the rules said.
    pub would: Tier,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// The rules it was judged by.
    pub policy: String,
    /// What was asked, to the byte, where it may be kept.
    pub kept: Option<Action>,
}

impl UseCase for ObservedCall {
    type Out = ();

    fn turn(&self) -> Option<&AgentName> {
        self.kept.is_some().then_some(&self.agent)
    }

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        if self.kept.is_some() { vec![counters::turn_ahead(&self.agent)] } else { Vec::new() }
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // Two nodes that keep what one agent asked take turns, as for refused calls.
        if self.kept.is_some() && counters::take_turn(desk, &self.agent).await? {
            counters::make_latch(desk, &self.agent);
        }
        let mut fact = Fact::new(WORD, Actor::Agent(self.agent.clone()))
            .with("capability", &self.capability)
            .with("would", self.would);
        if let Some(rule) = &self.rule {
            fact = fact.with("rule", rule);
        }
        if let Some(action) = &self.kept {
            refusals::keep(desk, action);
            fact.digest = Some(action.digest());
        }
        fact.call = Some(self.call);
        fact.policy = Some(self.policy.clone());
        desk.record(fact);
        Ok(())
    }
}

/// An observed call as the record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObserved {
    /// The agent that made the call.
    pub agent: AgentName,
    /// What was asked.
    pub capability: String,
    /// What the rules said.
    pub would: String,
    /// The digest of what was asked, where that was kept.
    pub digest: Option<Digest>,
    /// When the call was let through.
    pub at: Timestamp,
}

/// Which observed calls.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Not older than this.
    pub since: Timestamp,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// At most so many.
    pub limit: usize,
}

impl Query for Observed {
    type Out = Vec<FoundObserved>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<FoundObserved>, StoreError> {
        let mut found = Vec::new();
        for (log, head) in audit::Logs.run(tx).await? {
            let mut end = head.size;
            while end > 0 && found.len() < self.limit {
                let from = end.saturating_sub(u64::from(PAGE));
                let page = audit::Page { log: log.clone(), from, limit: PAGE }.run(tx).await?;
                let mut is_old = false;
                for sealed in page.iter().rev().skip_while(|sealed| sealed.seq >= end) {
                    let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
                    // The first entry of a page is read for its time, whatever it is.
                    if sealed.seq != from && !text.contains(WORD) {
                        continue;
                    }
                    let Ok(Entry { at, fact, .. }) = serde_json::from_str(text) else { continue };
                    is_old |= at < self.since;
                    found.extend(observed(at, fact).filter(|call| self.wants(call)));
                }
                if is_old {
                    break;
                }
                end = from;
            }
        }
        found.sort_by_key(|call| std::cmp::Reverse(call.at));
        found.truncate(self.limit);
        Ok(found)
    }
}

impl Observed {
    fn wants(&self, call: &FoundObserved) -> bool {
        call.at >= self.since && self.agent.as_ref().is_none_or(|agent| *agent == call.agent)
    }
}

fn observed(at: Timestamp, fact: Fact) -> Option<FoundObserved> {
    let (Actor::Agent(agent), WORD) = (fact.actor, fact.kind.as_str()) else { return None };
    let detail = |name: &str| fact.detail.get(name).cloned().unwrap_or_default();
    Some(FoundObserved { agent, capability: detail("capability"), would: detail("would"), digest: fact.digest, at })
}

impl Store {
    /// Records a call that observe mode lets through.
    ///
    /// # Errors
    /// When it cannot be written: then the call must not be let through.
    pub async fn observed_call(&self, call: ObservedCall) -> Result<(), StoreError> {
        self.submit(call).await
    }

    /// Calls that observe mode let through, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn observed_calls(&self, which: Observed) -> Result<Vec<FoundObserved>, StoreError> {
        self.ask(which).await
    }
}
