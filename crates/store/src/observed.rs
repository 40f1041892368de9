//! Observed calls: what the rules would have done to calls that observe mode allowed.
//!
//! Takes one such call and records it; gives those of a past period. Promise: the entry is written before the call is
//! answered, and says what would have happened. The action is stored only where it could be stored for a refused call.

use sluice_core::audit::{AuditEntry, AuditFact};
use sluice_core::{Action, Actor, AgentName, CallId, CapabilityName, Digest, Tier, UtcMillis};

use crate::Store;
use crate::audit;
use crate::counters;
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::refusals;
use crate::sql::StoreTx;
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Entries read at once.
const PAGE: u32 = 1_000;
/// The kind of these entries.
const WORD: &str = "call.observed";

/// A call that was allowed and would not have been.
#[derive(Debug, Clone)]
pub struct ObservedCall {
    /// The call that was allowed.
    pub call: CallId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The capability that was called.
    pub capability: CapabilityName,
    /// The tier that the rules gave.
    pub would: Tier,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// The rules it was judged by.
    pub policy: String,
    /// The exact action, if it may be kept.
    pub kept: Option<Action>,
}

impl UseCase for ObservedCall {
    type Out = ();

    fn turn(&self) -> Option<&AgentName> {
        self.kept.is_some().then_some(&self.agent)
    }

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        if self.kept.is_some() { vec![counters::turn_ahead(&self.agent)] } else { Vec::new() }
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // Two nodes that keep actions of one agent take turns, as for refused calls.
        if self.kept.is_some() && counters::take_turn(unit, &self.agent).await? {
            counters::make_latch(unit, &self.agent);
        }
        let mut fact = AuditFact::new(WORD, Actor::Agent(self.agent.clone()))
            .with("capability", &self.capability)
            .with("would", self.would);
        if let Some(rule) = &self.rule {
            fact = fact.with("rule", rule);
        }
        if let Some(action) = &self.kept {
            refusals::keep(unit, action);
            fact.digest = Some(action.digest());
        }
        fact.call = Some(self.call);
        fact.policy = Some(self.policy.clone());
        unit.record(fact);
        Ok(())
    }
}

/// An observed call as the audit log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCallEntry {
    /// The agent that made the call.
    pub agent: AgentName,
    /// The capability that was called.
    pub capability: String,
    /// The tier that the rules gave.
    pub would: String,
    /// The digest of the action, if that was kept.
    pub digest: Option<Digest>,
    /// When the call was allowed.
    pub at: UtcMillis,
}

/// Which observed calls to list.
#[derive(Debug, Clone)]
pub struct ListObservedCalls {
    /// Not older than this.
    pub since: UtcMillis,
    /// Only calls of this agent.
    pub agent: Option<AgentName>,
    /// Most calls to list.
    pub limit: usize,
}

impl StoreQuery for ListObservedCalls {
    type Out = Vec<ObservedCallEntry>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ObservedCallEntry>, StoreError> {
        let mut found = Vec::new();
        for (log, head) in audit::ListAuditLogs.run(tx).await? {
            let mut end = head.size;
            while end > 0 && found.len() < self.limit {
                let from = end.saturating_sub(u64::from(PAGE));
                let page = audit::ListAuditEntries { log: log.clone(), from, limit: PAGE }.run(tx).await?;
                let mut is_old = false;
                for sealed in page.iter().rev().skip_while(|sealed| sealed.seq >= end) {
                    let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
                    // The first entry of a page is always parsed, for its time.
                    if sealed.seq != from && !text.contains(WORD) {
                        continue;
                    }
                    let Ok(AuditEntry { at, fact, .. }) = serde_json::from_str(text) else { continue };
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

impl ListObservedCalls {
    fn wants(&self, call: &ObservedCallEntry) -> bool {
        call.at >= self.since && self.agent.as_ref().is_none_or(|agent| *agent == call.agent)
    }
}

fn observed(at: UtcMillis, fact: AuditFact) -> Option<ObservedCallEntry> {
    let (Actor::Agent(agent), WORD) = (fact.actor, fact.kind.as_str()) else { return None };
    let detail = |name: &str| fact.detail.get(name).cloned().unwrap_or_default();
    Some(ObservedCallEntry { agent, capability: detail("capability"), would: detail("would"), digest: fact.digest, at })
}

impl Store {
    /// Records a call that observe mode allows.
    ///
    /// # Errors
    /// When it cannot be written: then the call must not be allowed.
    pub async fn record_observed_call(&self, call: ObservedCall) -> Result<(), StoreError> {
        self.submit(call).await
    }

    /// Calls that observe mode allowed, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn observed_calls(&self, which: ListObservedCalls) -> Result<Vec<ObservedCallEntry>, StoreError> {
        self.ask(which).await
    }
}
