//! Calls that end at once (reads, refusals, checks), and all audit entries about any call.
//!
//! Takes a call that has ended; returns once it is durable. Promise: its one entry, its counters and its message are
//! one transaction. No index finds the entries of a call: ids begin with their time, and the search starts there.

use std::collections::BTreeSet;

use sluice_core::audit::{AuditEntry, AuditFact, SealedAuditEntry};
use sluice_core::ids::SessionId;
use sluice_core::read_trace::ReadTrace;
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, CapabilityName, Digest, HoldId, NodeName, ServiceName, Tier,
    UtcMillis,
};

use crate::Store;
use crate::admission::{self, RateLimitCounter};
use crate::archive;
use crate::audit;
use crate::counters;
use crate::error::StoreError;
use crate::freezes;
use crate::outbox::{self, OutboxMessage};
use crate::prefetch::PrefetchQuery;
use crate::refusals;
use crate::sql::{StoreTx, params};
use crate::targets::{self, SessionObservation};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// A call that has ended.
#[derive(Debug, Clone)]
pub struct CloseCall {
    /// The call's id.
    pub call: CallId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The session it was made in.
    pub session: Option<SessionId>,
    /// The capability that was called.
    pub capability: CapabilityName,
    /// The digest of the canonical action, if there is one.
    pub digest: Option<Digest>,
    /// The tier that policy decided, if policy was reached.
    pub tier: Option<Tier>,
    /// The rules it was judged by.
    pub policy: String,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// How it ended.
    pub outcome: CallEnding,
    /// Rate-limit counters that policy wants to be counted.
    pub rates: Vec<RateLimitCounter>,
    /// The message to people, if one is needed.
    pub notify: Option<OutboxMessage>,
    /// The door through which the call came.
    pub door: Option<&'static str>,
    /// Leaks that were found in it: ids, lengths and hashes, never content.
    pub findings: Option<serde_json::Value>,
    /// The origins of its targets, if it has any: `asked, seen`.
    pub origins: Option<String>,
    /// The exact action, if it is kept so that other rules can be tried on it.
    pub kept: Option<Action>,
    /// Outside texts that its answer shows.
    pub observed: Vec<SessionObservation>,
    /// If it is a read: ids and hashes of what its answer holds.
    pub read: Option<ReadTrace>,
}

/// How a call ended that ends at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnding {
    /// A read was answered.
    Answered,
    /// It was refused.
    Refused {
        /// The reason, as a stable code.
        code: String,
    },
    /// It was only checked, and would have been allowed.
    Allowed {
        /// The service whose freeze would refuse it, as would a freeze of the agent or of everything; `None` if the
        /// check was about a read that a freeze does not stop.
        unless_frozen: Option<ServiceName>,
    },
}

impl UseCase for CloseCall {
    type Out = ();

    fn turn(&self) -> Option<&AgentName> {
        self.takes_turn().then_some(&self.agent)
    }

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        let mut foreseen = if self.takes_turn() { vec![counters::turn_ahead(&self.agent)] } else { Vec::new() };
        foreseen.extend(self.unless_frozen().map(|_| freezes::in_force_ahead()));
        foreseen
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // Two nodes that count for one agent, or keep its action, take turns: neither waits for a row the other has
        // locked.
        if self.takes_turn() && counters::take_turn(unit, &self.agent).await? {
            counters::make_latch(unit, &self.agent);
        }
        // In the transaction that records the answer: once a freeze has returned, nothing more is allowed.
        if let Some(service) = self.unless_frozen() {
            freezes::refuse_if_frozen(unit, &self.agent, service).await?;
        }
        // An answer beyond the limit is not given; when the call is made again, the rules decide what it needs.
        if admission::tier_if_exceeded(unit, &self.agent, &self.rates).await?.is_some() {
            return Err(StoreError::RateLimit);
        }
        for rate in &self.rates {
            rate.counter(&self.agent).bump(unit, 1);
        }
        if let Some(message) = &self.notify {
            outbox::put(unit, message);
        }
        if let Some(action) = &self.kept {
            refusals::keep(unit, action);
        }
        for observation in &self.observed {
            targets::observe(unit, observation);
        }
        unit.record(self.fact());
        Ok(())
    }
}

impl CloseCall {
    /// The service whose freeze prevents this from being recorded.
    fn unless_frozen(&self) -> Option<&ServiceName> {
        match &self.outcome {
            CallEnding::Allowed { unless_frozen } => unless_frozen.as_ref(),
            CallEnding::Answered | CallEnding::Refused { .. } => None,
        }
    }

    /// Whether it touches rows that another call of the same agent may touch as well.
    fn takes_turn(&self) -> bool {
        !self.rates.is_empty() || self.kept.is_some()
    }

    fn fact(&self) -> AuditFact {
        let (kind, code) = match &self.outcome {
            CallEnding::Answered => ("call.answered", None),
            CallEnding::Refused { code } => ("call.refused", Some(code.clone())),
            CallEnding::Allowed { .. } => ("call.allowed", None),
        };
        let mut fact = AuditFact::new(kind, Actor::Agent(self.agent.clone())).with("capability", &self.capability);
        if let Some(tier) = self.tier {
            fact = fact.with("tier", tier);
        }
        if let Some(rule) = &self.rule {
            fact = fact.with("rule", rule);
        }
        if let Some(session) = self.session {
            fact = fact.with("session", session);
        }
        if let Some(door) = self.door {
            fact = fact.with("door", door);
        }
        if let Some(findings) = &self.findings {
            fact = fact.with("findings", findings);
        }
        if let Some(origins) = &self.origins {
            fact = fact.with("origins", origins);
        }
        if let Some(read) = &self.read {
            read.write(&mut fact.detail);
        }
        fact.call = Some(self.call);
        fact.code = code;
        fact.digest = self.digest;
        fact.policy = Some(self.policy.clone());
        fact
    }
}

/// Most entries of a log that are searched from where a call began.
const BOUND: u64 = 50_000;
/// Entries read at once.
const PAGE: u32 = 1_000;
/// How far the clock that made the id may have been ahead of the log's.
const SLACK: i64 = 120_000;

const ENTRY: &str = "SELECT seq, hash, body FROM audit_entries WHERE log = ?1 AND seq = ?2";
/// When a write and its approval request changed: their entries have the same times.
const TIMES: &str = "SELECT h.admitted_at, h.ended_at, a.asked_at, a.decided_at, h.approval \
     FROM holds h LEFT JOIN approvals a ON a.id = h.approval WHERE h.id = ?1";

/// All audit entries about one call.
struct ListCallEntries(CallId);

/// What is known to belong to the call.
struct CallEntrySearch {
    call: CallId,
    holds: BTreeSet<HoldId>,
    questions: BTreeSet<ApprovalId>,
    /// All of these ids as entries print them: an entry without any of them is not parsed.
    words: BTreeSet<String>,
    found: BTreeSet<(NodeName, u64)>,
    entries: Vec<(NodeName, SealedAuditEntry)>,
    is_over: bool,
}

impl StoreQuery for ListCallEntries {
    type Out = Vec<(NodeName, SealedAuditEntry)>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let began = i64::try_from(self.0.bits() >> 80).unwrap_or(i64::MAX);
        let began = UtcMillis::from_millis(began.saturating_sub(SLACK));
        let mut trace = CallEntrySearch {
            call: self.0,
            holds: BTreeSet::new(),
            questions: BTreeSet::new(),
            words: BTreeSet::from([self.0.to_string()]),
            found: BTreeSet::new(),
            entries: Vec::new(),
            is_over: false,
        };
        let logs = audit::ListAuditLogs.run(tx).await?;
        for (log, head) in &logs {
            let from = first_entry_at(tx, log, head.size, began).await?;
            trace.scan(tx, log, from, None).await?;
            if trace.is_over {
                return Ok(trace.entries);
            }
        }
        // A write outlives its call: its later entries may be beyond the bound, at times that its rows hold.
        for (at, question) in times_and_approvals(tx, &trace.holds).await? {
            trace.questions.extend(question);
            trace.words.extend(question.map(|id| id.to_string()));
            for (log, head) in &logs {
                let from = first_entry_at(tx, log, head.size, at).await?;
                trace.scan(tx, log, from, Some(at)).await?;
            }
        }
        trace.entries.sort_by_key(|(_, sealed)| read(sealed).map(|entry| entry.at));
        Ok(trace.entries)
    }
}

impl CallEntrySearch {
    /// Reads entries from a position: up to the bound, or as long as they have exactly this time.
    async fn scan<T: StoreTx>(
        &mut self,
        tx: &mut T,
        log: &NodeName,
        from: u64,
        only: Option<UtcMillis>,
    ) -> Result<(), StoreError> {
        let mut at = from;
        while at < from.saturating_add(BOUND) {
            let page = audit::ListAuditEntries { log: log.clone(), from: at, limit: PAGE }.run(tx).await?;
            let Some(last) = page.last() else { break };
            at = last.seq + 1;
            for sealed in page {
                if only.is_some_and(|only| read(&sealed).is_none_or(|entry| entry.at != only)) {
                    return Ok(());
                }
                self.consider(log, sealed);
            }
        }
        Ok(())
    }

    fn consider(&mut self, log: &NodeName, sealed: SealedAuditEntry) {
        let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
        if !self.words.iter().any(|word| text.contains(word.as_str())) {
            return;
        }
        let Some(AuditEntry { fact, .. }) = read(&sealed) else { return };
        let is_ours = fact.call == Some(self.call)
            || fact.hold.is_some_and(|hold| self.holds.contains(&hold))
            || fact.kind.starts_with("approval.") && fact.approval.is_some_and(|id| self.questions.contains(&id));
        if !is_ours || !self.found.insert((log.clone(), sealed.seq)) {
            return;
        }
        self.words.extend(fact.hold.map(|id| id.to_string()));
        self.words.extend(fact.approval.map(|id| id.to_string()));
        self.holds.extend(fact.hold);
        self.questions.extend(fact.approval);
        // A call that ended at once has this one entry.
        self.is_over |= fact.kind.starts_with("call.");
        self.entries.push((log.clone(), sealed));
    }
}

/// Times at which these writes changed, with their approval requests.
async fn times_and_approvals<T: StoreTx>(
    tx: &mut T,
    holds: &BTreeSet<HoldId>,
) -> Result<Vec<(UtcMillis, Option<ApprovalId>)>, StoreError> {
    let mut landmarks = Vec::new();
    for hold in holds {
        for row in tx.rows(TIMES, &params![*hold]).await? {
            let mut row = row.of("holds");
            let times = [row.maybe_time()?, row.maybe_time()?, row.maybe_time()?, row.maybe_time()?];
            let question = row.maybe_bits()?.map(ApprovalId::from_bits);
            landmarks.extend(times.into_iter().flatten().map(|at| (at, question)));
        }
    }
    Ok(landmarks)
}

/// The position of the first entry of a log at or after this time. Times in a log never go back.
pub(crate) async fn first_entry_at<T: StoreTx>(
    tx: &mut T,
    log: &NodeName,
    size: u64,
    at: UtcMillis,
) -> Result<u64, StoreError> {
    let (mut low, mut high) = (archive::first_kept(tx, log).await?.min(size), size);
    while low < high {
        let middle = low + (high - low) / 2;
        let row = tx.rows(ENTRY, &params![log, middle]).await?.into_iter().next();
        let sealed = audit::decode_entry(row.ok_or(StoreError::NotFound { what: "entry" })?)?;
        match read(&sealed) {
            Some(entry) if entry.at < at => low = middle + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

fn read(sealed: &SealedAuditEntry) -> Option<AuditEntry> {
    serde_json::from_slice(&sealed.body).ok()
}

impl Store {
    /// Records a call that ended at once.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn close_call(&self, closed: CloseCall) -> Result<(), StoreError> {
        self.submit(closed).await
    }

    /// Every audit entry of one call, in all logs, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn call_entries(&self, call: CallId) -> Result<Vec<(NodeName, SealedAuditEntry)>, StoreError> {
        self.ask(ListCallEntries(call)).await
    }
}
