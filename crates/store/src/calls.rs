//! Calls that end at once (reads, refusals, checks), and everything on record about any call.
//!
//! Takes a call that is over; gives nothing back but its durability. Promise: its one entry, what it
//! counts and the message it leaves are one transaction. To find the entries of a call no index is kept:
//! ids begin with their time, and so does the search.

use std::collections::BTreeSet;

use sluice_core::audit::{Entry, Fact, Sealed};
use sluice_core::ids::SessionId;
use sluice_core::read_trace::ReadTrace;
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, CapabilityName, Digest, HoldId, NodeName, ServiceName, Tier,
    Timestamp,
};

use crate::Store;
use crate::admission::{self, Rate};
use crate::ahead::Ahead;
use crate::audit;
use crate::counters;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::freezes;
use crate::outbox::{self, Message};
use crate::refusals;
use crate::sql::{Tx, params};
use crate::targets::{self, Observation};

/// A call that is over.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Which.
    pub call: CallId,
    /// Whose.
    pub agent: AgentName,
    /// The session it was made in.
    pub session: Option<SessionId>,
    /// What was asked.
    pub capability: CapabilityName,
    /// The canonical action, where there is one.
    pub digest: Option<Digest>,
    /// What policy said, where it was asked.
    pub tier: Option<Tier>,
    /// The rules it was judged by.
    pub policy: String,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// How it ended.
    pub outcome: Ending,
    /// Rate-limit counters policy wants counted.
    pub rates: Vec<Rate>,
    /// What people are told.
    pub notify: Option<Message>,
    /// Over which door it came.
    pub door: Option<&'static str>,
    /// What must not leave and was found in it: ids, lengths and hashes, never content.
    pub findings: Option<serde_json::Value>,
    /// Where its targets come from, if it has any: `asked, seen`.
    pub origins: Option<String>,
    /// What was asked, to the byte, where it is kept so that other rules can be tried on it.
    pub kept: Option<Action>,
    /// Outside texts that its answer shows.
    pub observed: Vec<Observation>,
    /// What its answer holds, by ids and hashes, if it is a read.
    pub read: Option<ReadTrace>,
}

/// How a call ended at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A read was answered.
    Answered,
    /// It was refused.
    Refused {
        /// Why, as a stable code.
        code: String,
    },
    /// It was only checked, and would have been allowed.
    Allowed {
        /// The service whose freeze stands in the way, like one of the agent or of everything; nothing where the check
        /// was of a read that goes on under a freeze.
        unless_frozen: Option<ServiceName>,
    },
}

impl UseCase for Closed {
    type Out = ();

    fn turn(&self) -> Option<&AgentName> {
        self.takes_turn().then_some(&self.agent)
    }

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        let mut foreseen = if self.takes_turn() { vec![counters::turn_ahead(&self.agent)] } else { Vec::new() };
        foreseen.extend(self.unless_frozen().map(|_| freezes::in_force_ahead()));
        foreseen
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // Two nodes that count for one agent, or keep what it asked, take turns: neither waits for a row the other has.
        if self.takes_turn() && counters::take_turn(desk, &self.agent).await? {
            counters::make_latch(desk, &self.agent);
        }
        // In the transaction that records the answer: once a freeze has returned, nothing is allowed any more.
        if let Some(service) = self.unless_frozen() {
            freezes::refuse_if_frozen(desk, &self.agent, service).await?;
        }
        // An answer beyond the limit is not given: asked again, the rules say what it takes.
        if admission::exceeded(desk, &self.agent, &self.rates).await?.is_some() {
            return Err(StoreError::RateLimit);
        }
        for rate in &self.rates {
            rate.counter(&self.agent).bump(desk, 1);
        }
        if let Some(message) = &self.notify {
            outbox::put(desk, message);
        }
        if let Some(action) = &self.kept {
            refusals::keep(desk, action);
        }
        for observation in &self.observed {
            targets::observe(desk, observation);
        }
        desk.record(self.fact());
        Ok(())
    }
}

impl Closed {
    /// The service whose freeze keeps this from being recorded.
    fn unless_frozen(&self) -> Option<&ServiceName> {
        match &self.outcome {
            Ending::Allowed { unless_frozen } => unless_frozen.as_ref(),
            Ending::Answered | Ending::Refused { .. } => None,
        }
    }

    /// Whether it touches rows that another call of the same agent may touch too.
    fn takes_turn(&self) -> bool {
        !self.rates.is_empty() || self.kept.is_some()
    }

    fn fact(&self) -> Fact {
        let (kind, code) = match &self.outcome {
            Ending::Answered => ("call.answered", None),
            Ending::Refused { code } => ("call.refused", Some(code.clone())),
            Ending::Allowed { .. } => ("call.allowed", None),
        };
        let mut fact = Fact::new(kind, Actor::Agent(self.agent.clone())).with("capability", &self.capability);
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

/// Most entries of a log that are looked at from where a call began.
const BOUND: u64 = 50_000;
/// Entries read at once.
const PAGE: u32 = 1_000;
/// How far the clock that made the id may have been ahead of the log's.
const SLACK: i64 = 120_000;

const ENTRY: &str = "SELECT seq, hash, body FROM audit_entries WHERE log = ?1 AND seq = ?2";
/// When something happened to a write and to the question it hung on: its entries have the same times.
const TIMES: &str = "SELECT h.admitted_at, h.ended_at, a.asked_at, a.decided_at, h.approval \
     FROM holds h LEFT JOIN approvals a ON a.id = h.approval WHERE h.id = ?1";

/// Everything on record about one call.
struct OfCall(CallId);

/// What is known to belong to the call.
struct Trace {
    call: CallId,
    holds: BTreeSet<HoldId>,
    questions: BTreeSet<ApprovalId>,
    /// All of these as they are printed in entries: what has none of them need not be read.
    words: BTreeSet<String>,
    found: BTreeSet<(NodeName, u64)>,
    entries: Vec<(NodeName, Sealed)>,
    is_over: bool,
}

impl Query for OfCall {
    type Out = Vec<(NodeName, Sealed)>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let began = i64::try_from(self.0.bits() >> 80).unwrap_or(i64::MAX);
        let began = Timestamp::from_millis(began.saturating_sub(SLACK));
        let mut trace = Trace {
            call: self.0,
            holds: BTreeSet::new(),
            questions: BTreeSet::new(),
            words: BTreeSet::from([self.0.to_string()]),
            found: BTreeSet::new(),
            entries: Vec::new(),
            is_over: false,
        };
        let logs = audit::Logs.run(tx).await?;
        for (log, head) in &logs {
            let from = first_at(tx, log, head.size, began).await?;
            trace.scan(tx, log, from, None).await?;
            if trace.is_over {
                return Ok(trace.entries);
            }
        }
        // A write lives on after its call: entries of its own, later than any bound, at times its rows know.
        for (at, question) in landmarks(tx, &trace.holds).await? {
            trace.questions.extend(question);
            trace.words.extend(question.map(|id| id.to_string()));
            for (log, head) in &logs {
                let from = first_at(tx, log, head.size, at).await?;
                trace.scan(tx, log, from, Some(at)).await?;
            }
        }
        trace.entries.sort_by_key(|(_, sealed)| read(sealed).map(|entry| entry.at));
        Ok(trace.entries)
    }
}

impl Trace {
    /// Looks at entries from a place on: up to the bound, or as long as they have this one time.
    async fn scan<T: Tx>(
        &mut self,
        tx: &mut T,
        log: &NodeName,
        from: u64,
        only: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut at = from;
        while at < from.saturating_add(BOUND) {
            let page = audit::Page { log: log.clone(), from: at, limit: PAGE }.run(tx).await?;
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

    fn consider(&mut self, log: &NodeName, sealed: Sealed) {
        let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
        if !self.words.iter().any(|word| text.contains(word.as_str())) {
            return;
        }
        let Some(Entry { fact, .. }) = read(&sealed) else { return };
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

/// Times at which something happened to these writes, and the questions they hang on.
async fn landmarks<T: Tx>(
    tx: &mut T,
    holds: &BTreeSet<HoldId>,
) -> Result<Vec<(Timestamp, Option<ApprovalId>)>, StoreError> {
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

/// The first entry of a log that is not older than this. Times of a log never go back.
pub(crate) async fn first_at<T: Tx>(tx: &mut T, log: &NodeName, size: u64, at: Timestamp) -> Result<u64, StoreError> {
    let (mut low, mut high) = (0, size);
    while low < high {
        let middle = low + (high - low) / 2;
        let row = tx.rows(ENTRY, &params![log, middle]).await?.into_iter().next();
        let sealed = audit::entry(row.ok_or(StoreError::NotFound { what: "entry" })?)?;
        match read(&sealed) {
            Some(entry) if entry.at < at => low = middle + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

fn read(sealed: &Sealed) -> Option<Entry> {
    serde_json::from_slice(&sealed.body).ok()
}

impl Store {
    /// Records a call that ended at once.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn closed(&self, closed: Closed) -> Result<(), StoreError> {
        self.submit(closed).await
    }

    /// Every audit entry of one call, in all logs, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn call_entries(&self, call: CallId) -> Result<Vec<(NodeName, Sealed)>, StoreError> {
        self.ask(OfCall(call)).await
    }
}
