//! Held writes as rows: reading them into states that cannot contradict themselves, and moving them.

use sluice_core::action::Action;
use sluice_core::audit::AuditFact;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{AttemptPhase, Hold, HoldClaim, HoldMove, HoldState, StaleReason};
use sluice_core::ids::SessionId;
use sluice_core::target::TracedTarget;
use sluice_core::{Actor, ApprovalId, CallId, Digest, HoldId, Millis, UtcMillis};

use crate::action_cache;
use crate::counters;
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::sql::{RowReader, SqlRow, SqlValue, SqlWrite, StoreTx, params};
use crate::targets;
use crate::unit_of_work::{StoreQuery, UnitOfWork};

macro_rules! columns {
    ($($rest:expr),+ $(,)?) => {
        concat!(
            "SELECT h.id, h.call, h.session, h.agent, h.service, h.digest, h.class, h.tier, h.policy, h.object_key, ",
            "h.weight, h.delay, h.admitted_at, h.reverses, h.version, h.epoch, h.attempts, h.handle, c.action, ",
            "h.state, h.approval, h.not_before, h.claim_node, h.lease_until, h.since, h.rounds, h.code, h.receipt, ",
            "h.actor, h.ended_at, h.claim_life FROM holds h JOIN contents c ON c.hold = h.id ",
            $($rest),+
        )
    };
}
pub(crate) use columns;

const ONE: &str = columns!("WHERE h.id = ?1");
const ONE_LOCKED: &str = columns!("WHERE h.id = ?1 /*lock*/");

const MOVED: &str = "UPDATE holds SET state = ?3, version = ?4, epoch = ?5, attempts = ?6, approval = ?7, handle = ?8, \
     not_before = ?9, claim_node = ?10, lease_until = ?11, since = ?12, rounds = ?13, code = ?14, receipt = ?15, \
     actor = ?16, ended_at = ?17, claim_life = ?18 WHERE id = ?1 AND version = ?2";

const INSERT: &str = "INSERT INTO holds (id, call, session, agent, service, digest, class, tier, policy, object_key, \
     weight, delay, admitted_at, reverses, state, version, epoch, attempts, approval, handle, not_before) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";

/// Binds a write to a new state of its objects.
const REBOUND: &str = "UPDATE contents SET action = ?2 WHERE hold = ?1";

const CONTENT: &str = "INSERT INTO contents (hold, action, record_key, targets, reason) VALUES (?1, ?2, ?3, ?4, ?5)";

/// One held write, for any caller who may see it.
pub(crate) struct GetHold(pub HoldId);

impl StoreQuery for GetHold {
    type Out = Option<Hold>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<Hold>, StoreError> {
        tx.rows(ONE, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

/// One held write, locked for a move.
pub(crate) async fn locked<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, id: HoldId) -> Result<Hold, StoreError> {
    let row = unit.row(ONE_LOCKED, params![id]).await?;
    row.map(decode).transpose()?.ok_or(StoreError::NotFound { what: "held write" })
}

/// The query of [`locked`], made early.
pub(crate) fn locked_ahead(id: HoldId) -> PrefetchQuery {
    let rests_on = vec![("holds", vec![("id", SqlValue::from(id))]), ("contents", vec![("hold", SqlValue::from(id))])];
    PrefetchQuery { sql: ONE_LOCKED, params: params![id], rests_on, follows: None }
}

/// Moves a hold step by step, records each step, and returns the hold as it is now.
pub(crate) fn shift<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: Hold,
    steps: impl IntoIterator<Item = HoldMove>,
    why: &HoldMoveReason,
) -> Result<Hold, StoreError> {
    let before = hold.version;
    let mut hold = hold;
    for step in steps {
        let (from, by) = (hold.state.word(), step.word());
        if let HoldMove::Claim { claim, .. } = &step {
            hold.epoch = claim.epoch;
            hold.attempts += 1;
        }
        hold.state = hold.state.apply(step)?;
        hold.version += 1;
        record(unit, &hold, from, by, why);
    }
    save(unit, &hold, before);
    // A cancelled write never leaves. The weight of a denied write is given back where the denial is handled.
    if matches!(hold.state, HoldState::Cancelled { .. }) {
        counters::give_back(unit, &hold);
    }
    Ok(hold)
}

/// Who moved a hold and why.
#[derive(Debug, Clone)]
pub(crate) struct HoldMoveReason {
    pub actor: Actor,
    pub code: Option<String>,
}

impl HoldMoveReason {
    pub fn by(actor: Actor) -> Self {
        Self { actor, code: None }
    }

    pub fn because(actor: Actor, code: &str) -> Self {
        Self { actor, code: Some(code.to_owned()) }
    }
}

/// Records one step as one entry.
pub(crate) fn record<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: &Hold,
    from: &str,
    by: &str,
    why: &HoldMoveReason,
) {
    let to = hold.state.word();
    let mut fact =
        AuditFact::new(format!("hold.{to}"), why.actor.clone()).with("move", by).with("version", hold.version);
    fact.call = Some(hold.call);
    fact.hold = Some(hold.id);
    fact.digest = Some(hold.action.digest());
    fact.from = Some(from.to_owned());
    fact.to = Some(to.to_owned());
    fact.code.clone_from(&why.code);
    fact.approval = match &hold.state {
        HoldState::AwaitingApproval { approval } => Some(*approval),
        _ => hold.consent,
    };
    unit.record(fact);
}

/// Binds a write to the current state of its objects. Only together with a new approval request about it.
pub(crate) fn rebind<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: Hold, action: Action) -> Result<Hold, StoreError> {
    // SECURITY: the call itself never changes; only the objects it acts on do.
    if action.asked_digest() != hold.action.asked_digest() {
        return Err(StoreError::Impossible { table: "contents", detail: "a write bound to another call" });
    }
    action_cache::keep(&action);
    unit.write_one(REBOUND, params![hold.id, action.bytes()]);
    Ok(Hold { action, ..hold })
}

/// Saves a moved hold over the version at which it was read.
pub(crate) fn save<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: &Hold, before: u64) {
    let mut params = params![hold.id, before];
    params.extend(state_columns(hold));
    unit.write_one(MOVED, params);
}

/// The two rows of a new hold.
#[derive(Debug)]
pub(crate) struct NewHold {
    hold: Vec<SqlValue>,
    content: Vec<SqlValue>,
    action: Action,
}

/// The position in [`INSERT`] of the times that are known only when it runs.
const ADMITTED_AT: usize = 12;
const NOT_BEFORE: usize = 20;

impl NewHold {
    pub fn of(hold: &Hold, record_key: &[u8; 32], targets: &[TracedTarget], reason: Option<&str>) -> Self {
        let (approval, not_before) = match &hold.state {
            HoldState::AwaitingApproval { approval } => (Some(*approval), None),
            HoldState::Held { not_before } => (hold.consent, Some(*not_before)),
            _ => (hold.consent, None),
        };
        let row = params![
            hold.id,
            hold.call,
            hold.session,
            hold.agent(),
            &hold.service,
            hold.action.call_digest(),
            hold.class.as_str(),
            hold.tier.as_str(),
            hold.policy.as_str(),
            hold.object_key.as_deref(),
            hold.weight,
            hold.delay,
            hold.admitted_at,
            hold.reverses,
            hold.state.word(),
            hold.version,
            hold.epoch,
            hold.attempts,
            approval,
            hold.handle.as_deref(),
            not_before,
        ];
        let content = params![hold.id, hold.action.bytes(), record_key.as_slice(), targets::column(targets), reason];
        Self { hold: row, content, action: hold.action.clone() }
    }

    /// The same, admitted at the first time and held until the second.
    pub fn held(mut self, admitted_at: UtcMillis, not_before: UtcMillis) -> Self {
        for (place, time) in [(ADMITTED_AT, admitted_at), (NOT_BEFORE, not_before)] {
            if let Some(column) = self.hold.get_mut(place) {
                *column = time.into();
            }
        }
        self
    }

    /// Adds both rows to the unit of work.
    pub fn put<T: StoreTx>(self, unit: &mut UnitOfWork<'_, T>) {
        action_cache::keep(&self.action);
        unit.write(INSERT, self.hold);
        unit.write(CONTENT, self.content);
    }
}

/// Digest, time and id, if this change is a new hold.
pub(crate) fn new_hold_of(write: &SqlWrite) -> Option<(&[u8], UtcMillis, u128)> {
    if write.sql != INSERT {
        return None;
    }
    match (write.params.first(), write.params.get(5), write.params.get(ADMITTED_AT)) {
        (Some(SqlValue::Blob(id)), Some(SqlValue::Blob(digest)), Some(SqlValue::Int(at))) => {
            let id = u128::from_be_bytes(id.as_slice().try_into().ok()?);
            Some((digest, UtcMillis::from_millis(*at), id))
        }
        _ => None,
    }
}

/// The columns of [`MOVED`], from `state` on.
fn state_columns(hold: &Hold) -> Vec<SqlValue> {
    let mut approval = hold.consent;
    let (mut not_before, mut claim, mut since, mut rounds) = (None, None, None, None);
    let (mut code, mut receipt, mut actor, mut ended_at) = (None, None, None, None);
    match &hold.state {
        HoldState::AwaitingApproval { approval: asked } => approval = Some(*asked),
        HoldState::Held { not_before: at } | HoldState::Ready { not_before: at } => not_before = Some(*at),
        HoldState::Executing { claim: held, phase: AttemptPhase::Prepare | AttemptPhase::Armed } => claim = Some(held),
        HoldState::InDoubt { since: at, rounds: count } => (since, rounds) = (Some(*at), Some(*count)),
        HoldState::NeedsHuman { code: why } => code = Some(why.as_str()),
        HoldState::Stale { why } => code = Some(staleness_word(*why)),
        HoldState::Done { receipt: proof, at } => (receipt, ended_at) = (Some(proof.as_str()), Some(*at)),
        HoldState::Cancelled { by, at } | HoldState::Discarded { by, at } => (actor, ended_at) = (Some(by), Some(*at)),
        HoldState::Denied { at } | HoldState::Expired { at } | HoldState::Blocked { at } => ended_at = Some(*at),
        HoldState::Dead { code: why, at } => (code, ended_at) = (Some(why.as_str()), Some(*at)),
    }
    params![
        hold.state.word(),
        hold.version,
        hold.epoch,
        hold.attempts,
        approval,
        hold.handle.as_deref(),
        not_before,
        claim.map(|claim| &claim.node),
        claim.map(|claim| claim.lease_until),
        since,
        rounds,
        code,
        receipt,
        actor,
        ended_at,
        claim.map(|claim| claim.life),
    ]
}

/// A row as a hold, or the reason why it is invalid.
pub(crate) fn decode(row: SqlRow) -> Result<Hold, StoreError> {
    let mut row = row.of("holds");
    let id = HoldId::from_bits(row.bits()?);
    let call = CallId::from_bits(row.bits()?);
    let session = row.maybe_bits()?.map(SessionId::from_bits);
    let (agent, service): (sluice_core::AgentName, _) = (row.parsed()?, row.parsed()?);
    let digest = Digest::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a digest of unknown format"))?;
    let class = EffectClass::from_word(&row.text()?).ok_or_else(|| row.impossible("an unknown effect class"))?;
    let (tier, policy, object_key) = (row.parsed()?, row.text()?, row.maybe_text()?);
    let (weight, delay, admitted_at) = (row.count()?, Millis::from_millis(row.count()?), row.time()?);
    let reverses = row.maybe_bits()?.map(HoldId::from_bits);
    let (version, epoch, attempts, handle) = (row.count()?, row.count()?, row.count()?, row.maybe_text()?);
    let action =
        action_cache::action(&row.blob()?, digest).map_err(|_| row.impossible("an action that is not canonical"))?;
    if action.call_digest() != digest || *action.agent() != agent {
        return Err(row.impossible("an action that does not match its digest or agent"));
    }
    let (state, consent) = decode_state(&mut row, epoch)?;
    Ok(Hold {
        id,
        call,
        session,
        action,
        service,
        class,
        tier,
        policy,
        object_key,
        weight,
        delay,
        admitted_at,
        state,
        version,
        epoch,
        attempts,
        consent,
        handle,
        reverses,
    })
}

/// Reads the state columns; a column the state does not have must be empty.
fn decode_state(row: &mut RowReader, epoch: u64) -> Result<(HoldState, Option<ApprovalId>), StoreError> {
    let word = row.text()?;
    let approval = row.maybe_bits()?.map(ApprovalId::from_bits);
    let not_before = row.maybe_time()?;
    let (claim_node, lease_until) = (row.maybe_parsed()?, row.maybe_time()?);
    let (since, rounds) = (row.maybe_time()?, row.maybe_int()?);
    let (code, receipt) = (row.maybe_text()?, row.maybe_text()?);
    let (actor, ended_at): (Option<Actor>, _) = (row.maybe_parsed()?, row.maybe_time()?);
    let life = row.maybe_int()?.map(u64::try_from).transpose();
    let claim = match (claim_node, lease_until, life.map_err(|_| row.impossible("a count is out of range"))?) {
        (Some(node), Some(lease_until), Some(life)) => Some(HoldClaim { node, life, epoch, lease_until }),
        (None, None, None) => None,
        _ => return Err(row.impossible("half a claim")),
    };
    let given = (not_before, claim, since, rounds, code, receipt, actor, ended_at);
    let state = match (word.as_str(), given) {
        ("awaiting_approval", (None, None, None, None, None, None, None, None)) => {
            let approval = approval.ok_or_else(|| row.impossible("an approval request without an id"))?;
            return Ok((HoldState::AwaitingApproval { approval }, None));
        }
        ("held", (Some(not_before), None, None, None, None, None, None, None)) => HoldState::Held { not_before },
        ("ready", (Some(not_before), None, None, None, None, None, None, None)) => HoldState::Ready { not_before },
        ("preparing", (None, Some(claim), None, None, None, None, None, None)) => {
            HoldState::Executing { claim, phase: AttemptPhase::Prepare }
        }
        ("armed", (None, Some(claim), None, None, None, None, None, None)) => {
            HoldState::Executing { claim, phase: AttemptPhase::Armed }
        }
        ("in_doubt", (None, None, Some(since), Some(rounds), None, None, None, None)) => {
            let rounds = u32::try_from(rounds).map_err(|_| row.impossible("a count is out of range"))?;
            HoldState::InDoubt { since, rounds }
        }
        ("needs_human", (None, None, None, None, Some(code), None, None, None)) => HoldState::NeedsHuman { code },
        ("stale", (None, None, None, None, Some(code), None, None, None)) => {
            let why = staleness(&code).ok_or_else(|| row.impossible("an unknown reason for staleness"))?;
            HoldState::Stale { why }
        }
        ("done", (None, None, None, None, None, Some(receipt), None, Some(at))) => HoldState::Done { receipt, at },
        ("cancelled", (None, None, None, None, None, None, Some(by), Some(at))) => HoldState::Cancelled { by, at },
        ("discarded", (None, None, None, None, None, None, Some(by), Some(at))) => HoldState::Discarded { by, at },
        ("denied", (None, None, None, None, None, None, None, Some(at))) => HoldState::Denied { at },
        ("expired", (None, None, None, None, None, None, None, Some(at))) => HoldState::Expired { at },
        ("blocked", (None, None, None, None, None, None, None, Some(at))) => HoldState::Blocked { at },
        ("dead", (None, None, None, None, Some(code), None, None, Some(at))) => HoldState::Dead { code, at },
        _ => return Err(row.impossible("a state with columns of another state")),
    };
    Ok((state, approval))
}

const fn staleness_word(why: StaleReason) -> &'static str {
    match why {
        StaleReason::Downtime => "downtime",
        StaleReason::Restored => "restored",
        StaleReason::TargetChanged => "target_changed",
    }
}

fn staleness(word: &str) -> Option<StaleReason> {
    [StaleReason::Downtime, StaleReason::Restored, StaleReason::TargetChanged]
        .into_iter()
        .find(|why| staleness_word(*why) == word)
}
