//! Searches the audit log: which agent did what, when, and to which object.
//!
//! Takes a filter; gives entries of all logs, the newest first. Promise: a search reads a bounded number of entries,
//! and one that stops at its bound says so and gives the position to continue from. Times are found by binary search.

mod reads;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use sluice_core::audit::{AuditEntry, AuditFact, SealedAuditEntry};
use sluice_core::ids::SessionId;
use sluice_core::policy::CapabilityPattern;
use sluice_core::read_trace::ReadTrace;
use sluice_core::{Action, Actor, AgentName, CallId, HoldId, Millis, NodeName, UtcMillis};

use crate::Store;
use crate::archive;
use crate::audit;
use crate::calls::first_entry_at;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::targets;
use crate::unit_of_work::StoreQuery;

/// Entries read at once.
const PAGE: u32 = 1_000;
/// Longest argument of a write that is compared with a target.
const LONGEST_VALUE: usize = 512;

const ABOUT: &str =
    "SELECT h.agent, c.action, c.targets FROM holds h LEFT JOIN contents c ON c.hold = h.id WHERE h.id = ?1";

/// Which entries to find. An empty filter finds all.
#[derive(Debug, Clone, Default)]
pub struct AuditEntryFilter {
    /// Only entries of this agent: its calls, and what happened to its writes.
    pub agent: Option<AgentName>,
    /// Only entries about this capability, or capabilities with this prefix.
    pub capability: Option<CapabilityPattern>,
    /// Not older than this.
    pub since: Option<UtcMillis>,
    /// Older than this.
    pub until: Option<UtcMillis>,
    /// Only entries about this object, address or id, compared as a whole.
    pub target: Option<String>,
    /// The keyed hash of the target, which finds searches for exactly this text.
    pub query_hash: Option<String>,
    /// Only entries before this position, the last one of the previous page.
    pub before: Option<AuditSearchCursor>,
    /// Most entries to return.
    pub limit: usize,
    /// Most entries to read in each log.
    pub bound: u64,
}

/// The position of an entry among the entries of all logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditSearchCursor {
    at: UtcMillis,
    log: NodeName,
    seq: u64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAuditEntries {
    /// The newest first, each with its log.
    pub entries: Vec<(NodeName, SealedAuditEntry)>,
    /// Where to continue, if there may be more.
    pub next: Option<AuditSearchCursor>,
    /// Whether everything between `until` and the last returned entry was read.
    pub is_all: bool,
}

impl fmt::Display for AuditSearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.as_millis(), self.seq, self.log)
    }
}

impl FromStr for AuditSearchCursor {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "use the cursor of the previous page";
        let (at, rest) = text.split_once('.').ok_or(bad)?;
        let (seq, log) = rest.split_once('.').ok_or(bad)?;
        let at = UtcMillis::from_millis(at.parse().map_err(|_| bad)?);
        Ok(Self { at, log: log.parse().map_err(|_| bad)?, seq: seq.parse().map_err(|_| bad)? })
    }
}

/// What the database holds about a held write besides its entries.
struct HoldSearchFields {
    agent: AgentName,
    capability: Option<String>,
    values: Vec<String>,
}

impl StoreQuery for AuditEntryFilter {
    type Out = FoundAuditEntries;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<FoundAuditEntries, StoreError> {
        let mut found: Vec<(AuditSearchCursor, SealedAuditEntry)> = Vec::new();
        let mut horizon: Option<AuditSearchCursor> = None;
        let mut holds: HashMap<HoldId, Option<HoldSearchFields>> = HashMap::new();
        for (log, head) in audit::ListAuditLogs.run(tx).await? {
            let mut end = head.size;
            if let Some(until) = self.until {
                end = first_entry_at(tx, &log, end, until).await?;
            }
            if let Some(before) = &self.before {
                end = first_entry_at(tx, &log, end, before.at + Millis::from_millis(1)).await?;
            }
            let (first, start, mut of_log) = (archive::first_kept(tx, &log).await?, end, 0);
            'log: while end > first && of_log <= self.limit {
                let from = end.saturating_sub(u64::from(PAGE)).max(first);
                let page = audit::ListAuditEntries { log: log.clone(), from, limit: PAGE }.run(tx).await?;
                let mut reached = None;
                for sealed in page.into_iter().rev().skip_while(|sealed| sealed.seq >= end) {
                    if !self.may_want(&sealed) && sealed.seq != from {
                        continue;
                    }
                    let Ok(AuditEntry { at, fact, seq, .. }) = serde_json::from_slice(&sealed.body) else { continue };
                    if self.since.is_some_and(|since| at < since) {
                        break 'log;
                    }
                    let place = AuditSearchCursor { at, log: log.clone(), seq };
                    reached = Some(place.clone());
                    if self.before.as_ref().is_some_and(|before| place >= *before) {
                        continue;
                    }
                    if let Some(hold) = fact.hold.filter(|hold| self.is_narrowed() && !holds.contains_key(hold)) {
                        holds.insert(hold, about(tx, hold).await?);
                    }
                    let hold = fact.hold.and_then(|hold| holds.get(&hold)).and_then(Option::as_ref);
                    if self.wants(&fact, hold) {
                        of_log += 1;
                        found.push((place, sealed));
                    }
                }
                end = from;
                if start - end >= self.bound && end > first {
                    // Older entries of this log were not read.
                    horizon = horizon.max(reached);
                    break;
                }
            }
        }
        found.sort_by(|(one, _), (other, _)| other.cmp(one));
        if let Some(horizon) = &horizon {
            found.retain(|(place, _)| place >= horizon);
        }
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let next = if has_more { found.last().map(|(place, _)| place.clone()) } else { horizon.clone() };
        let entries = found.into_iter().map(|(place, sealed)| (place.log, sealed)).collect();
        Ok(FoundAuditEntries { entries, next, is_all: horizon.is_none() || has_more })
    }
}

impl AuditEntryFilter {
    fn is_narrowed(&self) -> bool {
        self.agent.is_some() || self.capability.is_some() || self.target.is_some()
    }

    /// Whether an entry must be parsed: one that names no write must name the agent itself.
    fn may_want(&self, sealed: &SealedAuditEntry) -> bool {
        let Some(agent) = &self.agent else { return true };
        let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
        text.contains("\"hold\":") || text.contains(agent.as_str())
    }

    fn wants(&self, fact: &AuditFact, hold: Option<&HoldSearchFields>) -> bool {
        let of_agent = |agent: &AgentName| {
            fact.actor == Actor::Agent(agent.clone())
                || fact.detail.get("agent").is_some_and(|name| name == agent.as_str())
                || hold.is_some_and(|hold| hold.agent == *agent)
        };
        let of_capability = |pattern: &CapabilityPattern| {
            let own = fact.detail.get("capability").map(String::as_str);
            own.or_else(|| hold?.capability.as_deref()).is_some_and(|name| pattern.matches(name))
        };
        let of_target = |target: &String| {
            let same = |value: &str| value.eq_ignore_ascii_case(target);
            let ids = [
                fact.call.map(|id| id.to_string()),
                fact.hold.map(|id| id.to_string()),
                fact.approval.map(|id| id.to_string()),
            ];
            let read = ReadTrace::read(&fact.detail);
            read.is_some_and(|read| read.names(target, self.query_hash.as_deref()))
                || fact.detail.values().any(|value| same(value))
                || ids.iter().flatten().any(|id| same(id))
                || hold.is_some_and(|hold| hold.values.iter().any(|value| same(value)))
        };
        self.agent.as_ref().is_none_or(of_agent)
            && self.capability.as_ref().is_none_or(of_capability)
            && self.target.as_ref().is_none_or(of_target)
    }
}

async fn about<T: StoreTx>(tx: &mut T, hold: HoldId) -> Result<Option<HoldSearchFields>, StoreError> {
    let Some(row) = tx.rows(ABOUT, &params![hold]).await?.into_iter().next() else { return Ok(None) };
    let mut row = row.of("holds");
    let agent = row.parsed()?;
    let action = row.maybe_blob()?.and_then(|bytes| Action::from_stored(&bytes).ok());
    let mut values: Vec<String> = targets::read(&mut row)?.into_iter().map(|target| target.value).collect();
    if let Some(action) = &action {
        action.arguments().values().for_each(|value| leaves(value, &mut values));
    }
    Ok(Some(HoldSearchFields { agent, capability: action.map(|action| action.capability().to_string()), values }))
}

/// Every short text in a value.
fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.len() <= LONGEST_VALUE => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|item| leaves(item, found)),
        Value::Object(map) => map.values().for_each(|item| leaves(item, found)),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// One read of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRead {
    /// The call.
    pub call: CallId,
    /// The capability.
    pub capability: String,
    /// When it was answered.
    pub at: UtcMillis,
    /// What the answer held; `None` for entries of earlier releases.
    pub read: Option<ReadTrace>,
}

/// Which reads of a session to find.
#[derive(Debug, Clone)]
pub struct ListSessionReads {
    /// The session.
    pub session: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// Whether it is the session of the agent's calls that name no session: their entries name none either.
    pub is_nameless: bool,
    /// Not older than this.
    pub since: UtcMillis,
    /// Most entries to read in each log.
    pub bound: u64,
}

impl StoreQuery for ListSessionReads {
    /// The reads, oldest first, and whether they are complete: the bound was not reached.
    type Out = (Vec<SessionRead>, bool);

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let (mut reads, mut is_all) = (Vec::new(), true);
        let id = self.session.to_string();
        for (log, head) in audit::ListAuditLogs.run(tx).await? {
            let start = first_entry_at(tx, &log, head.size, self.since).await?;
            let mut at = start;
            while at < head.size {
                if at - start >= self.bound {
                    is_all = false;
                    break;
                }
                let page = audit::ListAuditEntries { log: log.clone(), from: at, limit: PAGE }.run(tx).await?;
                let Some(last) = page.last() else { break };
                at = last.seq + 1;
                for sealed in &page {
                    let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
                    if text.contains("call.answered") || text.contains(READ_GIVEN) {
                        reads.extend(serde_json::from_str(text).ok().and_then(|entry| self.read(&id, entry)));
                    }
                }
            }
        }
        reads.sort_by_key(|read: &SessionRead| (read.at, read.call));
        Ok((reads, is_all))
    }
}

/// The kind of entry of a read that a person had to approve.
const READ_GIVEN: &str = "read.given";

impl ListSessionReads {
    fn read(&self, id: &str, AuditEntry { at, fact, .. }: AuditEntry) -> Option<SessionRead> {
        let is_read = fact.kind == "call.answered" || fact.kind == READ_GIVEN;
        let is_ours = match fact.detail.get("session") {
            Some(session) => session == id,
            None => self.is_nameless && fact.actor == Actor::Agent(self.agent.clone()),
        };
        let capability = fact.detail.get("capability").cloned().unwrap_or_default();
        let call = fact.call.filter(|_| is_read && is_ours)?;
        Some(SessionRead { call, capability, at, read: ReadTrace::read(&fact.detail) })
    }
}

impl Store {
    /// Audit entries, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn search_record(&self, filter: AuditEntryFilter) -> Result<FoundAuditEntries, StoreError> {
        self.ask(filter).await
    }

    /// The reads of a session, the oldest first, and whether they are complete.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn session_reads(&self, which: ListSessionReads) -> Result<(Vec<SessionRead>, bool), StoreError> {
        self.ask(which).await
    }
}
