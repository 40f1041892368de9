//! Standing approvals as rows.
//!
//! Promise: a use is counted in the same transaction as the call it allows, and the audit log names the allowance and
//! the call.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::approval::allowance::{
    self, Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceSession, AllowanceState,
    AllowanceUsage, ApprovalRequestContext, ApprovalRequester, ApprovalTrigger, RequestedAction,
};
use sluice_core::approval::bound::{BoundedCall, TargetBound};
use sluice_core::audit::AuditFact;
use sluice_core::ids::{AllowanceId, RuleId};
use sluice_core::{Actor, ApprovalId};

use crate::Store;
use crate::admission::Admission;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, rule, session, asker, covers, bound, given_at, expires_at, uses_left, uses, last_used_at, ",
            "revoked_by, revoked_at, version FROM allowances ",
            $rest
        )
    };
}

const ONE_LOCKED: &str = select!("WHERE id = ?1 /*lock*/");
const OF_ASKER: &str = select!("WHERE asker = ?1 AND revoked_at IS NULL ORDER BY given_at, id");
const OF_ASKER_LOCKED: &str = select!("WHERE asker = ?1 AND revoked_at IS NULL ORDER BY given_at, id /*lock*/");
const BY_RULE: &str = select!("WHERE rule = ?1 /*lock*/");
const ALL: &str = select!("ORDER BY given_at, id LIMIT ?1");
const GIVE: &str = "INSERT INTO allowances (id, rule, session, asker, covers, bound, given_at, given_by, expires_at, \
     uses_left, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1)";
const SPENT: &str = "UPDATE allowances SET uses_left = ?3, uses = ?4, last_used_at = ?5, version = version + 1 \
     WHERE id = ?1 AND version = ?2";
const REVOKE: &str =
    "UPDATE allowances SET revoked_by = ?3, revoked_at = ?4, version = version + 1 WHERE id = ?1 AND version = ?2";

/// Stores a standing approval.
pub(crate) fn give<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, allowance: &Allowance, by: &Actor) {
    let (rule, session) = match &allowance.scope {
        AllowanceScope::Standing { rule } => (Some(rule.bits()), None),
        AllowanceScope::Session { session } => (None, Some(session_text(session))),
    };
    let bound = allowance.bounds.target.as_ref().map(|bound| serde_json::json!(bound).to_string());
    unit.write(
        GIVE,
        params![
            allowance.id,
            rule,
            session,
            asker_text(&allowance.asker),
            covers_text(&allowance.covers),
            bound,
            allowance.given_at,
            by,
            allowance.bounds.expires_at,
            allowance.bounds.uses_left,
        ],
    );
    unit.record(
        AuditFact::new("allowance.given", by.clone())
            .with("allowance", allowance.id)
            .with("code", allowance.code())
            .with("covers", covers_text(&allowance.covers))
            .with("bounded", allowance.bounds.target.is_some()),
    );
}

/// A standing approval that may cover a call, and the call as the approval's bound sees it.
#[derive(Debug, Clone)]
pub struct AllowanceUse {
    /// The standing approval.
    pub id: AllowanceId,
    /// The call.
    pub call: BoundedCall,
}

/// Lets a standing approval satisfy policy's requirement for a write, if it still can. Counts the use.
pub(crate) async fn spend<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, admission: &Admission) -> Result<bool, StoreError> {
    let Some(AllowanceUse { id, call }) = &admission.allowance else { return Ok(false) };
    let Some(row) = unit.row(ONE_LOCKED, params![*id]).await? else { return Ok(false) };
    let (allowance, version) = decode(row)?;
    let agent = admission.action.agent();
    let (asker, session) = (ApprovalRequester::Agent(agent.clone()), admission.session.map(AllowanceSession::Issued));
    let question = ApprovalRequestContext {
        asker: &asker,
        session: session.as_ref(),
        asked: RequestedAction::Capability(call.capability()),
        call: Some(call),
        why: &[ApprovalTrigger::Policy],
        at: unit.now,
    };
    let Ok(spent) = allowance.spend(&question) else { return Ok(false) };
    let mut fact = AuditFact::new("allowance.used", Actor::Agent(agent.clone())).with("capability", call.capability());
    fact.call = Some(admission.call);
    fact.hold = Some(admission.hold);
    fact.digest = Some(admission.action.digest());
    count(unit, &spent, version, fact);
    Ok(true)
}

/// Stores one use.
fn count<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, spent: &Allowance, version: u64, fact: AuditFact) {
    unit.write_one(SPENT, params![spent.id, version, spent.bounds.uses_left, spent.used.times, spent.used.last]);
    let mut fact = fact.with("allowance", spent.id).with("uses", spent.used.times);
    if let Some(left) = spent.bounds.uses_left {
        fact = fact.with("uses_left", left);
    }
    unit.record(fact);
}

/// Lets a standing approval answer a request of the approval API, if there is one. Counts the use; gives the line of
/// the menu and, for a standing rule, its id.
pub(crate) async fn spend_on<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    question: &ApprovalRequestContext<'_>,
    (approval, by): (ApprovalId, &Actor),
) -> Result<Option<(ApprovalAnswer, Option<RuleId>)>, StoreError> {
    let rows = unit.rows(OF_ASKER_LOCKED, params![asker_text(question.asker)]).await?;
    let given = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    let Some(found) = allowance::find_answering(given.iter().map(|(allowance, _)| allowance), question) else {
        return Ok(None);
    };
    let answer = match &found.scope {
        AllowanceScope::Standing { rule } => (ApprovalAnswer::Always, Some(*rule)),
        AllowanceScope::Session { .. } => (ApprovalAnswer::Session, None),
    };
    let version = given.iter().find(|(allowance, _)| allowance.id == found.id).map_or(0, |(_, version)| *version);
    let Ok(spent) = found.clone().spend(question) else { return Ok(None) };
    let mut fact = AuditFact::new("allowance.used", by.clone());
    fact.approval = Some(approval);
    count(unit, &spent, version, fact);
    Ok(Some(answer))
}

/// Revokes a standing approval.
pub(crate) struct RevokeAllowance {
    pub id: AllowanceId,
    pub by: Actor,
}

impl UseCase for RevokeAllowance {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let row = unit.row(ONE_LOCKED, params![self.id]).await?;
        let (allowance, version) = decode(row.ok_or(StoreError::NotFound { what: "allowance" })?)?;
        let now = unit.now;
        allowance.revoke(self.by.clone(), now).map_err(|_| StoreError::NotFound { what: "live allowance" })?;
        unit.write_one(REVOKE, params![self.id, version, &self.by, now]);
        unit.record(AuditFact::new("allowance.revoked", self.by.clone()).with("allowance", self.id));
        Ok(())
    }
}

/// Revokes an allow rule, for its own client or for a person.
pub(crate) struct RevokeAllowRule {
    pub rule: RuleId,
    /// If set, the rule must belong to this asker.
    pub asker: Option<ApprovalRequester>,
    pub by: Actor,
}

impl UseCase for RevokeAllowRule {
    type Out = Allowance;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Allowance, StoreError> {
        let missing = || StoreError::NotFound { what: "allow rule" };
        let row = unit.row(BY_RULE, params![self.rule.bits()]).await?.ok_or_else(missing)?;
        let (allowance, version) = decode(row)?;
        // SECURITY: to a caller that is not a person, the rule of another asker does not exist.
        if self.asker.as_ref().is_some_and(|asker| *asker != allowance.asker) {
            return Err(missing());
        }
        let (id, now) = (allowance.id, unit.now);
        let revoked = allowance.revoke(self.by.clone(), now).map_err(|_| missing())?;
        unit.write_one(REVOKE, params![id, version, &self.by, now]);
        unit.record(AuditFact::new("allowance.revoked", self.by.clone()).with("allowance", id));
        Ok(revoked)
    }
}

/// A standing approval that a person gives without being asked.
pub(crate) struct GrantAllowance {
    pub allowance: Allowance,
    pub by: Actor,
}

impl UseCase for GrantAllowance {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // SECURITY: no credential of an agent can allow anything.
        match &self.by {
            Actor::Person(_) | Actor::Operator(_) => {}
            Actor::Agent(_) | Actor::Node(_) => return Err(StoreError::NotAPerson),
        }
        give(unit, &self.allowance, &self.by);
        Ok(())
    }
}

impl Store {
    /// Revokes an allow rule. A named asker can revoke only its own rules.
    ///
    /// # Errors
    /// When there is no active rule with this id.
    pub async fn revoke_rule(
        &self,
        rule: RuleId,
        asker: Option<ApprovalRequester>,
        by: Actor,
    ) -> Result<Allowance, StoreError> {
        self.submit(RevokeAllowRule { rule, asker, by }).await
    }

    /// Stores a standing approval that a person gives without being asked.
    ///
    /// # Errors
    /// When it is not given by a person, or cannot be recorded.
    pub async fn grant(&self, allowance: Allowance, by: Actor) -> Result<(), StoreError> {
        self.submit(GrantAllowance { allowance, by }).await
    }
}

/// Every standing approval of an asker.
pub(crate) struct ListAskerAllowances(pub ApprovalRequester);

impl StoreQuery for ListAskerAllowances {
    type Out = Vec<Allowance>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(OF_ASKER, &params![asker_text(&self.0)]).await?;
        rows.into_iter().map(|row| decode(row).map(|(allowance, _)| allowance)).collect()
    }
}

/// Every standing approval, including ended ones.
pub(crate) struct ListAllowances {
    pub limit: u32,
}

impl StoreQuery for ListAllowances {
    type Out = Vec<Allowance>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(ALL, &params![self.limit]).await?;
        rows.into_iter().map(|row| decode(row).map(|(allowance, _)| allowance)).collect()
    }
}

fn asker_text(asker: &ApprovalRequester) -> String {
    match asker {
        ApprovalRequester::Agent(name) => format!("agent:{name}"),
        ApprovalRequester::Client(id) => format!("client:{id}"),
    }
}

fn session_text(session: &AllowanceSession) -> String {
    match session {
        AllowanceSession::Issued(id) => format!("issued:{id}"),
        AllowanceSession::Claimed(text) => format!("claimed:{text}"),
    }
}

fn covers_text(covers: &AllowanceCoverage) -> String {
    match covers {
        AllowanceCoverage::ActionType(name) => format!("type:{name}"),
        AllowanceCoverage::Capability(name) => format!("capability:{name}"),
        AllowanceCoverage::Below(name) => format!("below:{name}"),
    }
}

fn decode(row: SqlRow) -> Result<(Allowance, u64), StoreError> {
    let mut row = row.of("allowances");
    let id = AllowanceId::from_bits(row.bits()?);
    let (rule, session) = (row.maybe_bits()?, row.maybe_text()?);
    let scope = match (rule, session.as_deref().and_then(|text| text.split_once(':'))) {
        (Some(rule), None) if session.is_none() => Some(AllowanceScope::Standing { rule: RuleId::from_bits(rule) }),
        (None, Some(("issued", id))) => {
            id.parse().ok().map(|id| AllowanceScope::Session { session: AllowanceSession::Issued(id) })
        }
        (None, Some(("claimed", text))) => {
            Some(AllowanceScope::Session { session: AllowanceSession::Claimed(text.to_owned()) })
        }
        _ => None,
    };
    let scope = scope.ok_or_else(|| row.impossible("an unknown scope"))?;
    let asker = match row.text()?.split_once(':') {
        Some(("agent", name)) => name.parse().ok().map(ApprovalRequester::Agent),
        Some(("client", id)) => Some(ApprovalRequester::Client(id.to_owned())),
        _ => None,
    };
    let asker = asker.ok_or_else(|| row.impossible("an unknown asker"))?;
    let covers = match row.text()?.split_once(':') {
        Some(("type", name)) => Some(AllowanceCoverage::ActionType(name.to_owned())),
        Some(("capability", name)) => name.parse().ok().map(AllowanceCoverage::Capability),
        Some(("below", name)) => name.parse().ok().map(AllowanceCoverage::Below),
        _ => None,
    };
    let covers = covers.ok_or_else(|| row.impossible("an unknown coverage"))?;
    let target: Option<TargetBound> = match row.maybe_text()? {
        None => None,
        Some(text) => Some(serde_json::from_str(&text).map_err(|_| row.impossible("a bound that cannot be read"))?),
    };
    let (given_at, expires_at, uses_left) = (row.time()?, row.maybe_time()?, row.maybe_int()?);
    let uses_left = uses_left.map(u32::try_from).transpose().map_err(|_| row.impossible("a count is out of range"))?;
    let used = AllowanceUsage { times: row.count()?, last: row.maybe_time()? };
    let (revoked_by, revoked_at): (Option<Actor>, _) = (row.maybe_parsed()?, row.maybe_time()?);
    let standing = match (revoked_by, revoked_at) {
        (None, None) => AllowanceState::Active,
        (Some(by), Some(at)) => AllowanceState::Revoked { by, at },
        _ => return Err(row.impossible("half revoked")),
    };
    let bounds = AllowanceBounds { expires_at, uses_left, target };
    Ok((Allowance { id, scope, asker, covers, bounds, given_at, used, standing }, row.count()?))
}

impl Store {
    /// Revokes a standing approval.
    ///
    /// # Errors
    /// When there is no active one with this id.
    pub async fn revoke_allowance(&self, id: AllowanceId, by: Actor) -> Result<(), StoreError> {
        self.submit(RevokeAllowance { id, by }).await
    }
}
