//! Calls that were refused at once, read back from the audit log, with their actions where those are kept.
//!
//! Takes a start time and a limit; gives the latest first, and whether that is all of them. Promise: the search has a
//! bound, and an answer that stops at it says so. An action is stored once, however often it was requested, and
//! returned only if it matches the audit log.

use sluice_core::audit::{AuditEntry, AuditFact};
use sluice_core::capability::service_of;
use sluice_core::ids::SessionId;
use sluice_core::{Action, Actor, AgentName, CallId, CapabilityName, Digest, ServiceName, UtcMillis};

use crate::Store;
use crate::audit;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

/// Entries read at once.
const PAGE: u32 = 1_000;
/// The kind of these entries: an entry whose text lacks it need not be parsed.
const WORD: &str = "call.refused";

const KEEP: &str = "INSERT INTO refused_actions (digest, action, kept_at) VALUES (?1, ?2, ?3) \
     ON CONFLICT (digest) DO UPDATE SET kept_at = excluded.kept_at";
const KEPT: &str = "SELECT action FROM refused_actions WHERE digest = ?1";

/// Stores the action of a refused call.
pub(crate) fn keep<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, action: &Action) {
    let now = unit.now;
    unit.write(KEEP, params![action.digest(), action.bytes(), now]);
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    /// The call's id.
    pub call: CallId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The capability that was called.
    pub capability: String,
    /// The reason, as a stable code.
    pub code: String,
    /// The tier that policy decided, if policy was reached.
    pub tier: Option<String>,
    /// The rule that decided, as file and line.
    pub rule: Option<String>,
    /// The session it was made in.
    pub session: Option<SessionId>,
    /// When it was refused.
    pub at: UtcMillis,
    /// The digest of the action, if that was kept.
    pub digest: Option<Digest>,
    /// The origins of its targets, if it has any: `asked, seen`.
    pub origins: Option<String>,
}

/// Which refused calls to list.
#[derive(Debug, Clone)]
pub struct ListRefusedCalls {
    /// Not older than this.
    pub since: UtcMillis,
    /// Only calls of this agent.
    pub agent: Option<AgentName>,
    /// Only calls at this service.
    pub service: Option<ServiceName>,
    /// Only calls of this session.
    pub session: Option<SessionId>,
    /// Only calls before this one, the last one of the previous page.
    pub before: Option<CallId>,
    /// Most calls to return.
    pub limit: usize,
    /// Most entries to read in each log.
    pub bound: u64,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCallsPage {
    /// The latest first.
    pub calls: Vec<RefusedCall>,
    /// Whether the bound was not reached.
    pub is_all: bool,
}

impl StoreQuery for ListRefusedCalls {
    type Out = RefusedCallsPage;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<RefusedCallsPage, StoreError> {
        let mut found = RefusedCallsPage { calls: Vec::new(), is_all: true };
        for (log, head) in audit::ListAuditLogs.run(tx).await? {
            let (mut end, mut of_log) = (head.size, 0);
            while end > 0 && of_log < self.limit {
                if head.size - end >= self.bound {
                    found.is_all = false;
                    break;
                }
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

impl ListRefusedCalls {
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

fn refused(at: UtcMillis, fact: AuditFact) -> Option<RefusedCall> {
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

/// A stored action, by its digest.
struct GetRefusedAction(Digest);

impl StoreQuery for GetRefusedAction {
    type Out = Option<Action>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<Action>, StoreError> {
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
    pub async fn refusals(&self, which: ListRefusedCalls) -> Result<RefusedCallsPage, StoreError> {
        self.ask(which).await
    }

    /// The action of a refused call, if it is kept.
    ///
    /// # Errors
    /// When the database cannot be read, or the stored action does not match its digest.
    pub async fn refused_action(&self, digest: Digest) -> Result<Option<Action>, StoreError> {
        self.ask(GetRefusedAction(digest)).await
    }
}
