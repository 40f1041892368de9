//! The record, searched: which agent did what, when, and to which object.
//!
//! Takes a filter; gives entries of all logs, the newest first. Promise: a search looks at a bounded number of entries,
//! and one that stops at its bound says so and names the place to go on from. Times are found by halving, not by walking.

mod reads;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use sluice_core::audit::{Entry, Fact, Sealed};
use sluice_core::ids::SessionId;
use sluice_core::policy::Pattern;
use sluice_core::read_trace::ReadTrace;
use sluice_core::{Action, Actor, AgentName, CallId, HoldId, NodeName, Span, Timestamp};

use crate::Store;
use crate::audit;
use crate::calls::first_at;
use crate::desk::Query;
use crate::error::StoreError;
use crate::sql::{Tx, params};
use crate::targets;

/// Entries read at once.
const PAGE: u32 = 1_000;
/// Longest argument of a write that is compared with a target.
const LONGEST_VALUE: usize = 512;

const ABOUT: &str =
    "SELECT h.agent, c.action, c.targets FROM holds h LEFT JOIN contents c ON c.hold = h.id WHERE h.id = ?1";

/// Which entries are wanted. An empty filter wants all.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// Of this agent: what it did, and what became of its writes.
    pub agent: Option<AgentName>,
    /// About this capability, or capabilities that begin alike.
    pub capability: Option<Pattern>,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Older than this.
    pub until: Option<Timestamp>,
    /// About this object, address or id, compared as a whole.
    pub target: Option<String>,
    /// The keyed hash of the target, with which searches for exactly this text are found.
    pub query_hash: Option<String>,
    /// Only entries before this place, the last one of the page before.
    pub before: Option<RecordPlace>,
    /// At most so many.
    pub limit: usize,
    /// At most so many entries of each log are looked at.
    pub bound: u64,
}

/// Where an entry stands among the entries of all logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    at: Timestamp,
    log: NodeName,
    seq: u64,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEntries {
    /// The newest first, each with its log.
    pub entries: Vec<(NodeName, Sealed)>,
    /// Where to go on, if there may be more.
    pub next: Option<RecordPlace>,
    /// Whether everything between `until` and the last entry given was looked at.
    pub is_all: bool,
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.as_millis(), self.seq, self.log)
    }
}

impl FromStr for RecordPlace {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "a cursor is taken from the page before";
        let (at, rest) = text.split_once('.').ok_or(bad)?;
        let (seq, log) = rest.split_once('.').ok_or(bad)?;
        let at = Timestamp::from_millis(at.parse().map_err(|_| bad)?);
        Ok(Self { at, log: log.parse().map_err(|_| bad)?, seq: seq.parse().map_err(|_| bad)? })
    }
}

/// What is known of a held write beside its entries.
struct AboutHold {
    agent: AgentName,
    capability: Option<String>,
    values: Vec<String>,
}

impl Query for RecordFilter {
    type Out = FoundEntries;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<FoundEntries, StoreError> {
        let mut found: Vec<(RecordPlace, Sealed)> = Vec::new();
        let mut horizon: Option<RecordPlace> = None;
        let mut holds: HashMap<HoldId, Option<AboutHold>> = HashMap::new();
        for (log, head) in audit::Logs.run(tx).await? {
            let mut end = head.size;
            if let Some(until) = self.until {
                end = first_at(tx, &log, end, until).await?;
            }
            if let Some(before) = &self.before {
                end = first_at(tx, &log, end, before.at + Span::from_millis(1)).await?;
            }
            let (start, mut of_log) = (end, 0);
            'log: while end > 0 && of_log <= self.limit {
                let from = end.saturating_sub(u64::from(PAGE));
                let page = audit::Page { log: log.clone(), from, limit: PAGE }.run(tx).await?;
                let mut reached = None;
                for sealed in page.into_iter().rev().skip_while(|sealed| sealed.seq >= end) {
                    if !self.may_want(&sealed) && sealed.seq != from {
                        continue;
                    }
                    let Ok(Entry { at, fact, seq, .. }) = serde_json::from_slice(&sealed.body) else { continue };
                    if self.since.is_some_and(|since| at < since) {
                        break 'log;
                    }
                    let place = RecordPlace { at, log: log.clone(), seq };
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
                if start - end >= self.bound && end > 0 {
                    // What lies beyond was not looked at, in this log.
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
        Ok(FoundEntries { entries, next, is_all: horizon.is_none() || has_more })
    }
}

impl RecordFilter {
    fn is_narrowed(&self) -> bool {
        self.agent.is_some() || self.capability.is_some() || self.target.is_some()
    }

    /// Whether an entry is worth reading: one that names no write must name the agent itself.
    fn may_want(&self, sealed: &Sealed) -> bool {
        let Some(agent) = &self.agent else { return true };
        let text = std::str::from_utf8(&sealed.body).unwrap_or_default();
        text.contains("\"hold\":") || text.contains(agent.as_str())
    }

    fn wants(&self, fact: &Fact, hold: Option<&AboutHold>) -> bool {
        let of_agent = |agent: &AgentName| {
            fact.actor == Actor::Agent(agent.clone())
                || fact.detail.get("agent").is_some_and(|name| name == agent.as_str())
                || hold.is_some_and(|hold| hold.agent == *agent)
        };
        let of_capability = |pattern: &Pattern| {
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

async fn about<T: Tx>(tx: &mut T, hold: HoldId) -> Result<Option<AboutHold>, StoreError> {
    let Some(row) = tx.rows(ABOUT, &params![hold]).await?.into_iter().next() else { return Ok(None) };
    let mut row = row.of("holds");
    let agent = row.parsed()?;
    let action = row.maybe_blob()?.and_then(|bytes| Action::from_stored(&bytes).ok());
    let mut values: Vec<String> = targets::read(&mut row)?.into_iter().map(|target| target.value).collect();
    if let Some(action) = &action {
        action.arguments().values().for_each(|value| leaves(value, &mut values));
    }
    Ok(Some(AboutHold { agent, capability: action.map(|action| action.capability().to_string()), values }))
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
    /// The call that asked.
    pub call: CallId,
    /// What was asked.
    pub capability: String,
    /// When it was answered.
    pub at: Timestamp,
    /// What the answer held; nothing for entries of earlier releases.
    pub read: Option<ReadTrace>,
}

/// Which reads of a session.
#[derive(Debug, Clone)]
pub struct SessionReads {
    /// The session.
    pub session: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// Whether it is the session of the agent's calls that name none: their entries name none either.
    pub is_nameless: bool,
    /// Not older than this.
    pub since: Timestamp,
    /// At most so many entries of each log are looked at.
    pub bound: u64,
}

impl Query for SessionReads {
    /// The oldest first, and whether the bound was not reached.
    type Out = (Vec<SessionRead>, bool);

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let (mut reads, mut is_all) = (Vec::new(), true);
        let id = self.session.to_string();
        for (log, head) in audit::Logs.run(tx).await? {
            let start = first_at(tx, &log, head.size, self.since).await?;
            let mut at = start;
            while at < head.size {
                if at - start >= self.bound {
                    is_all = false;
                    break;
                }
                let page = audit::Page { log: log.clone(), from: at, limit: PAGE }.run(tx).await?;
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

/// The kind of entry of a read that a person had to allow.
const READ_GIVEN: &str = "read.given";

impl SessionReads {
    fn read(&self, id: &str, Entry { at, fact, .. }: Entry) -> Option<SessionRead> {
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
    /// Entries of the record, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn search_record(&self, filter: RecordFilter) -> Result<FoundEntries, StoreError> {
        self.ask(filter).await
    }

    /// What was read in a session, the oldest first, and whether that is all of it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn session_reads(&self, which: SessionReads) -> Result<(Vec<SessionRead>, bool), StoreError> {
        self.ask(which).await
    }
}
