//! Calls that were refused at once, read back from the record, and what they asked for where that is kept.
//!
//! Takes since when and how many; gives the latest first, and whether that is all of them. Promise: the search has a
//! bound, and an answer that stops at it says so; what is kept is kept once, however often it was asked, and given back
//! only as the record knows it.

use sluice_core::audit::{Entry, Fact};
use sluice_core::capability::service_of;
use sluice_core::ids::SessionId;
use sluice_core::{Action, Actor, AgentName, CallId, CapabilityName, Digest, ServiceName, Timestamp};

use crate::Store;
use crate::audit;
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Tx, params};

/// Entries read at once.
const PAGE: u32 = 1_000;
/// What the text of such an entry holds: what does not need not be parsed.
const WORD: &str = "call.refused";

const KEEP: &str = "INSERT INTO refused_actions (digest, action, kept_at) VALUES (?1, ?2, ?3) \
     ON CONFLICT (digest) DO UPDATE SET kept_at = excluded.kept_at";
const KEPT: &str = "SELECT action FROM refused_actions WHERE digest = ?1";

/// Keeps what was asked for.
pub(crate) fn keep<T: Tx>(desk: &mut Desk<'_, T>, action: &Action) {
    let now = desk.now;
    desk.write(KEEP, params![action.digest(), action.bytes(), now]);
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    /// Which.
    pub call: CallId,
    /// Whose.
    pub agent: AgentName,
    /// What was asked.
    pub capability: String,
    /// Why not, as a stable code.
    pub code: String,
    /// What policy said, where it was asked.
    pub tier: Option<String>,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// The session it was made in.
    pub session: Option<SessionId>,
    /// When.
    pub at: Timestamp,
    /// The digest of what was asked, where that was kept.
    pub digest: Option<Digest>,
    /// Where its targets come from, if it has any: `asked, seen`.
    pub origins: Option<String>,
}

/// Which refused calls.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// Not older than this.
    pub since: Timestamp,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only of this service.
    pub service: Option<ServiceName>,
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only before this call, the last one of the page before.
    pub before: Option<CallId>,
    /// At most so many.
    pub limit: usize,
    /// At most so many entries of each log are looked at.
    pub bound: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRefusals {
    /// The latest first.
    pub calls: Vec<RefusedCall>,
    /// Whether the bound was not reached.
    pub is_all: bool,
}

impl Query for Refusals {
    type Out = FoundRefusals;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<FoundRefusals, StoreError> {
        let mut found = FoundRefusals { calls: Vec::new(), is_all: true };
        for (log, head) in audit::Logs.run(tx).await? {
            let (mut end, mut of_log) = (head.size, 0);
            while end > 0 && of_log < self.limit {
                if head.size - end >= self.bound {
                    found.is_all = false;
                    break;
                }
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
                    let call = refused(at, fact).filter(|call| self.wants(call));
                    of_log += call.iter().count();
                    found.calls.extend(call);
                }
                if is_old {
                    break;
                }
                end = from;
            }
        }
        found.calls.sort_by_key(|call| std::cmp::Reverse((call.at, call.call)));
        found.calls.truncate(self.limit);
        Ok(found)
    }
}

impl Refusals {
    fn wants(&self, call: &RefusedCall) -> bool {
        let of_service = |service: &ServiceName| {
            CapabilityName::new(call.capability.as_str()).is_ok_and(|name| service_of(&name) == *service)
        };
        call.at >= self.since
            && self.before.is_none_or(|before| call.call < before)
            && self.agent.as_ref().is_none_or(|agent| *agent == call.agent)
            && self.service.as_ref().is_none_or(of_service)
            && self.session.is_none_or(|session| call.session == Some(session))
    }
}

fn refused(at: Timestamp, fact: Fact) -> Option<RefusedCall> {
    let (Actor::Agent(agent), WORD) = (fact.actor, fact.kind.as_str()) else { return None };
    let detail = |name: &str| fact.detail.get(name).cloned();
    Some(RefusedCall {
        call: fact.call?,
        agent,
        capability: detail("capability").unwrap_or_default(),
        code: fact.code?,
        tier: detail("tier"),
        rule: detail("rule"),
        session: detail("session").and_then(|id| id.parse().ok()),
        at,
        digest: fact.digest,
        origins: detail("origins"),
    })
}

/// What was asked for, by its digest.
struct Kept(Digest);

impl Query for Kept {
    type Out = Option<Action>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Action>, StoreError> {
        let Some(row) = tx.rows(KEPT, &params![self.0]).await?.into_iter().next() else { return Ok(None) };
        let mut row = row.of("refused_actions");
        let action =
            Action::from_stored(&row.blob()?).map_err(|_| row.impossible("an action that is not canonical"))?;
        let own = action.digest() == self.0;
        own.then_some(Some(action)).ok_or_else(|| row.impossible("an action that does not match its digest"))
    }
}

impl Store {
    /// Calls that were refused at once, the latest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn refusals(&self, which: Refusals) -> Result<FoundRefusals, StoreError> {
        self.ask(which).await
    }

    /// What a refused call asked for, if it is kept.
    ///
    /// # Errors
    /// When the database cannot be read, or what it keeps is not what was asked.
    pub async fn refused_action(&self, digest: Digest) -> Result<Option<Action>, StoreError> {
        self.ask(Kept(digest)).await
    }
}
