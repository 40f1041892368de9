//! Approval requests as rows, and the one decision each can get.
//!
//! Promise: deciding is a compare-and-set on the request's row, in the same transaction as the moves of every write it
//! covers and the standing approval it may create. A second decision changes nothing. An approval covers only writes
//! whose digests were shown.

mod covered_writes;
mod expiry;

use sluice_core::approval::allowance::Allowance;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::approval::{self, Approval, ApprovalAnswer, ApprovalMove, ApprovalState, ApprovalSubject};
use sluice_core::audit::AuditFact;
use sluice_core::hold::{Hold, HoldMove, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Digest, HoldId, Millis, ServiceName, UtcMillis};

use crate::allowances;
use crate::client_requests;
use crate::counters;
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, HoldMoveReason};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::targets;
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};
pub(crate) use expiry::{ExpireDueApprovals, expire};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, subject, agent, service, asked_at, items, note, version, state, expires_at, answer, decided_by, ",
            "decided_at, valid_until, replacement FROM approvals ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE id = ?1");
const ONE_LOCKED: &str = select!("WHERE id = ?1 /*lock*/");
const OPEN_BATCH: &str =
    select!("WHERE agent = ?1 AND service = ?2 AND state = 'pending' AND subject = 'batch' /*lock*/");
const OPEN: &str = select!("WHERE state = 'pending' ORDER BY expires_at, id LIMIT ?1");
const OVERDUE: &str = select!("WHERE state = 'pending' AND expires_at <= ?1 ORDER BY expires_at, id LIMIT ?2 /*skip*/");
const INSERT: &str = "INSERT INTO approvals (id, subject, agent, service, asked_at, items, state, version, expires_at, \
     reasons) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const MOVED: &str = "UPDATE approvals SET items = ?3, note = ?4, version = ?5, state = ?6, expires_at = ?7, answer = ?8, \
     decided_by = ?9, decided_at = ?10, valid_until = ?11, replacement = ?12 WHERE id = ?1 AND version = ?2";
/// For lists, newest first.
pub(crate) const PAGE: &str =
    select!("WHERE id < ?1 AND state = COALESCE(?2, state) AND agent = COALESCE(?3, agent) ORDER BY id DESC LIMIT ?4");
const ADD_ITEM: &str = "INSERT INTO approval_items (approval, place, hold, digest) VALUES (?1, ?2, ?3, ?4)";
const ITEMS: &str = "SELECT hold, digest, place FROM approval_items WHERE approval = ?1 ORDER BY place";
const WAITING: &str = "SELECT COUNT(*) FROM holds WHERE approval = ?1 AND state = 'awaiting_approval'";
const CHOSEN: &str = "UPDATE approval_items SET chosen = ?3 WHERE approval = ?1 AND place = ?2";

/// What a person decided, over which channel.
#[derive(Debug, Clone)]
pub struct DecideApproval {
    /// The approval request.
    pub approval: ApprovalId,
    /// Who decided.
    pub by: Actor,
    /// The channel the person used, for the audit log.
    pub channel: String,
    /// The decision.
    pub ruling: ApprovalRuling,
    /// The digests of what the person was shown. An approval covers nothing else; empty where the caller shows nothing.
    pub shown: Vec<Digest>,
    /// The standing approval that answers 2 and 6 create.
    pub allowance: Option<Allowance>,
}

/// The answer itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalRuling {
    /// Approved: once, for the session, with a note, or always.
    Allow {
        /// Which kind of approval.
        answer: ApprovalAnswer,
        /// The note that the person wrote.
        note: Option<String>,
    },
    /// Denied.
    Deny {
        /// The note that the person wrote.
        note: Option<String>,
    },
    /// Approved with these words instead, for a client that acts by itself.
    Reword(String),
    /// For a batch: which of its writes are approved.
    Choose(BatchChoice),
}

/// Which writes of a batch may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchChoice {
    /// All of them, if there are still as many as the person saw.
    All {
        /// How many they saw.
        seen: u32,
    },
    /// The first writes, up to this number; the rest are denied.
    First(u32),
    /// Exactly these writes; the rest are denied.
    These(Vec<HoldId>),
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionOutcome {
    /// The decision counts.
    Now {
        /// The request as it is now.
        approval: Approval,
        /// Writes that were approved.
        allowed: Vec<HoldId>,
        /// Writes that were denied.
        denied: Vec<HoldId>,
    },
    /// Another decision came first, or it is too late. This one changed nothing.
    Already(Approval),
}

/// An approval request and the writes it covers, in the order of the card.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalCard {
    /// The approval request.
    pub approval: Approval,
    /// The writes.
    pub items: Vec<approval::ApprovalItem>,
}

pub(crate) struct GetApproval(pub ApprovalId);

impl StoreQuery for GetApproval {
    type Out = Option<ApprovalCard>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<ApprovalCard>, StoreError> {
        let Some(row) = tx.rows(ONE, &params![self.0]).await?.into_iter().next() else { return Ok(None) };
        let approval = decode(row)?;
        let items = items(tx, self.0).await?;
        Ok(Some(ApprovalCard { approval, items }))
    }
}

/// Open approval requests, the most urgent first.
pub(crate) struct ListOpenApprovals {
    pub limit: u32,
}

impl StoreQuery for ListOpenApprovals {
    type Out = Vec<Approval>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Approval>, StoreError> {
        tx.rows(OPEN, &params![self.limit]).await?.into_iter().map(decode).collect()
    }
}

pub(crate) async fn open_batch<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    agent: &AgentName,
    service: &ServiceName,
) -> Result<Option<Approval>, StoreError> {
    unit.row(OPEN_BATCH, params![agent, service]).await?.map(decode).transpose()
}

pub(crate) async fn locked<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, id: ApprovalId) -> Result<Approval, StoreError> {
    let row = unit.row(ONE_LOCKED, params![id]).await?;
    row.map(decode).transpose()?.ok_or(StoreError::NotFound { what: "approval" })
}

/// Whether a client that acts by itself may go on.
pub(crate) fn is_approved(state: &ApprovalState) -> bool {
    match state {
        ApprovalState::Approved { .. } | ApprovalState::Consumed { .. } | ApprovalState::Superseded { .. } => true,
        ApprovalState::Pending { .. }
        | ApprovalState::Denied { .. }
        | ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => false,
    }
}

pub(crate) async fn items<T: StoreTx>(tx: &mut T, id: ApprovalId) -> Result<Vec<approval::ApprovalItem>, StoreError> {
    let rows = tx.rows(ITEMS, &params![id]).await?;
    rows.into_iter()
        .map(|row| {
            let mut row = row.of("approval_items");
            let hold = HoldId::from_bits(row.bits()?);
            let digest =
                Digest::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a digest of unknown format"))?;
            Ok(approval::ApprovalItem { hold, digest, place: row.count()? })
        })
        .collect()
}

/// Adds a write to an approval request.
pub(crate) fn add_item<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: &mut Approval,
    hold: HoldId,
    digest: Digest,
) {
    unit.write(ADD_ITEM, params![approval.id, approval.items, hold, digest]);
    approval.items += 1;
}

/// Inserts a new approval request with its reasons. Without reasons, the code is the reason.
pub(crate) fn insert<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: &Approval,
    code: &str,
    why: &[ApprovalReason],
) {
    let general = [ApprovalReason::new(code)];
    let reasons = serde_json::to_string(if why.is_empty() { general.as_slice() } else { why }).ok();
    let ApprovalState::Pending { expires_at } = approval.state else { return };
    unit.write(
        INSERT,
        params![
            approval.id,
            subject_word(approval.subject),
            &approval.agent,
            &approval.service,
            approval.asked_at,
            approval.items,
            approval.state.word(),
            approval.version,
            expires_at,
            reasons,
        ],
    );
    let mut fact = AuditFact::new("approval.pending", unit.actor()).with("move", "ask").with("items", approval.items);
    fact.approval = Some(approval.id);
    fact.code = Some(code.to_owned());
    fact.to = Some(approval.state.word().to_owned());
    unit.record(fact);
}

/// Saves an approval request after more writes have joined it.
pub(crate) fn grow<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, approval: &mut Approval, before: u64) {
    approval.version = before + 1;
    save(unit, approval, before);
}

/// Moves an approval request to another state and records it.
pub(crate) fn shift<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
    step: ApprovalMove,
    why: &HoldMoveReason,
) -> Result<Approval, StoreError> {
    shift_covering(unit, approval, step, why, &[])
}

/// Like [`shift`], but the audit entry names the actions that the request covers.
fn shift_covering<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
    step: ApprovalMove,
    why: &HoldMoveReason,
    covered: &[Digest],
) -> Result<Approval, StoreError> {
    let (from, by, before) = (approval.state.word(), step.word(), approval.version);
    let state = approval.state.apply(step)?;
    let approval = Approval { state, version: before + 1, ..approval };
    let to = approval.state.word();
    let mut fact = AuditFact::new(format!("approval.{to}"), why.actor.clone()).with("move", by);
    if !covered.is_empty() {
        fact = fact.with("covers", covered.len()).with("card", approval::card_digest(covered));
    }
    fact.approval = Some(approval.id);
    fact.from = Some(from.to_owned());
    fact.to = Some(to.to_owned());
    fact.code.clone_from(&why.code);
    unit.record(fact);
    save(unit, &approval, before);
    Ok(approval)
}

fn save<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, approval: &Approval, before: u64) {
    let (mut expires_at, mut answer, mut by, mut at) = (None, None, None, None);
    let (mut valid_until, mut replacement) = (None, None);
    match &approval.state {
        ApprovalState::Pending { expires_at: end } => expires_at = Some(*end),
        ApprovalState::Approved { by: who, at: when, answer: how, valid_until: until }
        | ApprovalState::Consumed { by: who, at: when, answer: how, valid_until: until } => {
            (by, at, answer, valid_until) = (Some(who), Some(*when), Some(how.code()), Some(*until));
        }
        ApprovalState::Denied { by: who, at: when } => (by, at) = (Some(who), Some(*when)),
        ApprovalState::Superseded { by: who, at: when, replacement: next } => {
            (by, at, replacement) = (Some(who), Some(*when), Some(*next));
        }
        ApprovalState::Expired { at: when }
        | ApprovalState::Withdrawn { at: when }
        | ApprovalState::Lapsed { at: when }
        | ApprovalState::Revoked { at: when } => at = Some(*when),
    }
    unit.write_one(
        MOVED,
        params![
            approval.id,
            before,
            approval.items,
            approval.note.as_deref(),
            approval.version,
            approval.state.word(),
            expires_at,
            answer,
            by,
            at,
            valid_until,
            replacement,
        ],
    );
}

impl UseCase for DecideApproval {
    type Out = DecisionOutcome;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<DecisionOutcome, StoreError> {
        // SECURITY: no credential of an agent can decide anything.
        match &self.by {
            Actor::Person(_) | Actor::Operator(_) => {}
            Actor::Agent(_) | Actor::Node(_) => return Err(StoreError::NotAPerson),
        }
        let approval = locked(unit, self.approval).await?;
        let ApprovalState::Pending { expires_at } = approval.state else {
            return Ok(DecisionOutcome::Already(approval));
        };
        if unit.now >= expires_at {
            return Ok(DecisionOutcome::Already(expire(unit, approval).await?));
        }
        if approval.subject == ApprovalSubject::Request && !matches!(self.ruling, ApprovalRuling::Deny { .. }) {
            client_requests::refuse_other_words(unit, approval.id, self.shown.first().copied()).await?;
            // A client that acts by itself is not stopped when a write is released, so a freeze stops the approval.
            freezes::refuse_if_frozen(unit, &approval.agent, &approval.service).await?;
        }
        let items = items(unit.tx(), approval.id).await?;
        let allowed = self.allowed(&approval, &items)?;
        let mut waiting = Vec::with_capacity(items.len());
        for item in &items {
            waiting.push((item, holds::locked(unit, item.hold).await?));
        }
        // The targets of one approved write are known from then on. Approving many writes at once makes no target
        // known.
        let known = match (&self.ruling, approval.subject, items.as_slice()) {
            (ApprovalRuling::Allow { .. }, ApprovalSubject::Write, [one]) => {
                targets::targets_to_learn(unit, one.hold).await?
            }
            _ => Vec::new(),
        };
        let agent = approval.agent.clone();
        let decided = self.settle(unit, approval, waiting, &allowed)?;
        if matches!(&decided, DecisionOutcome::Now { allowed, .. } if !allowed.is_empty()) {
            targets::learn(unit, &agent, self.approval, &known);
        }
        Ok(decided)
    }
}

impl DecideApproval {
    fn settle<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        mut approval: Approval,
        items: Vec<(&approval::ApprovalItem, Hold)>,
        places: &[u32],
    ) -> Result<DecisionOutcome, StoreError> {
        let now = unit.now;
        let why = HoldMoveReason::because(self.by.clone(), &format!("channel.{}", self.channel));
        // The longest undo window of the writes decides how long the approval lasts.
        let delay = items.iter().map(|(_, hold)| hold.delay).max().unwrap_or(Millis::ZERO);
        let (mut allowed, mut denied, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for (item, hold) in items {
            let goes = places.contains(&item.place);
            covered.extend(goes.then_some(item.digest));
            unit.write(CHOSEN, params![approval.id, item.place, i64::from(goes)]);
            // A write that was cancelled, or that another request covers now, is no longer part of this request.
            if !awaits(&hold, approval.id) {
                continue;
            }
            if hold.action.digest() != item.digest {
                return Err(StoreError::Impossible { table: "approval_items", detail: "a digest of another action" });
            }
            let id = hold.id;
            if goes {
                let hold = Hold { consent: Some(approval.id), ..hold };
                let not_before = now + hold.delay;
                holds::shift(unit, hold, [HoldMove::Approve { not_before }], &why)?;
                allowed.push(id);
            } else {
                // A later reader of the write finds the request and the person's note through it.
                let hold = Hold { consent: Some(approval.id), ..hold };
                let hold = holds::shift(unit, hold, [HoldMove::Deny { at: now }], &why)?;
                // A denied batch still counts: its agent does not start again with an empty window.
                if approval.subject == ApprovalSubject::Write {
                    counters::give_back(unit, &hold);
                }
                denied.push(id);
            }
        }
        let answer = match &self.ruling {
            ApprovalRuling::Allow { answer, note } => {
                approval.note.clone_from(note);
                Some(*answer)
            }
            ApprovalRuling::Deny { note } => {
                approval.note.clone_from(note);
                None
            }
            ApprovalRuling::Reword(_) => Some(ApprovalAnswer::Amend),
            ApprovalRuling::Choose(_) => (!places.is_empty()).then_some(ApprovalAnswer::Once),
        };
        let step = match answer {
            Some(answer) => {
                // The writes of a batch leave one after the other; the approval of the last one must not lapse before.
                let pace = Millis::from_secs(2 * u64::from(approval.items.saturating_sub(1)));
                let valid_until = now + approval::validity(delay) + pace;
                match &self.ruling {
                    ApprovalRuling::Reword(_) => ApprovalMove::Reword { by: self.by.clone(), at: now, valid_until },
                    _ => ApprovalMove::Approve { by: self.by.clone(), at: now, answer, valid_until },
                }
            }
            None => ApprovalMove::Deny { by: self.by.clone(), at: now },
        };
        let approval = shift_covering(unit, approval, step, &why, &covered)?;
        if let ApprovalRuling::Reword(text) = &self.ruling {
            client_requests::reword(unit, approval.id, text);
        }
        if let (Some(ApprovalAnswer::Session | ApprovalAnswer::Always), Some(allowance)) = (answer, &self.allowance) {
            allowances::give(unit, allowance, &self.by);
        }
        Ok(DecisionOutcome::Now { approval, allowed, denied })
    }
}

/// Whether a write waits for exactly this request.
fn awaits(hold: &Hold, question: ApprovalId) -> bool {
    matches!(&hold.state, HoldState::AwaitingApproval { approval } if *approval == question)
}

/// Makes a write need approval again, with an approval request of its own.
pub(crate) struct AskApprovalAgain<'a> {
    pub approval: ApprovalId,
    pub message: MessageId,
    pub code: &'a str,
    pub expiry: Millis,
    /// Reasons beyond the code; may be empty.
    pub reasons: &'a [ApprovalReason],
}

impl AskApprovalAgain<'_> {
    pub fn ask<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, hold: Hold, by: Actor) -> Result<Hold, StoreError> {
        let mut approval = Approval {
            id: self.approval,
            subject: ApprovalSubject::Write,
            agent: hold.agent().clone(),
            service: hold.service.clone(),
            asked_at: unit.now,
            state: ApprovalState::Pending { expires_at: unit.now + self.expiry },
            version: 1,
            note: None,
            items: 0,
        };
        add_item(unit, &mut approval, hold.id, hold.action.digest());
        insert(unit, &approval, self.code, self.reasons);
        let body = serde_json::json!({"approval": approval.id, "hold": hold.id});
        let message =
            OutboxMessage { id: self.message, topic: "approval.asked".into(), severity: MessageSeverity::Action, body };
        outbox::put(unit, &message);
        let hold = Hold { consent: None, ..hold };
        holds::shift(
            unit,
            hold,
            [HoldMove::PullBack { approval: approval.id }],
            &HoldMoveReason::because(by, self.code),
        )
    }
}

/// Withdraws a request, or revokes an unused approval, because its write is gone.
pub(crate) async fn withdraw<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    id: ApprovalId,
    why: &HoldMoveReason,
) -> Result<(), StoreError> {
    let approval = locked(unit, id).await?;
    if approval.subject == ApprovalSubject::Batch && approval.state.is_open() {
        // The write that goes away is still counted as waiting here; without it, no approval is needed any more.
        let row = unit.row(WAITING, params![id]).await?.ok_or(StoreError::NotFound { what: "count" })?;
        if row.of("holds").count::<u32>()? <= 1 {
            let at = unit.now;
            return shift(unit, approval, ApprovalMove::Withdraw { at }, why).map(drop);
        }
    }
    withdraw_loaded(unit, approval, why)
}

/// Like [`withdraw`], for a request that was read already.
pub(crate) fn withdraw_loaded<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
    why: &HoldMoveReason,
) -> Result<(), StoreError> {
    let at = unit.now;
    let step = match (approval.subject, &approval.state) {
        // A batch card still covers the other writes.
        (ApprovalSubject::Batch, _) => return Ok(()),
        (ApprovalSubject::Write | ApprovalSubject::Request, ApprovalState::Pending { .. }) => {
            ApprovalMove::Withdraw { at }
        }
        (
            ApprovalSubject::Write | ApprovalSubject::Request,
            ApprovalState::Approved { .. } | ApprovalState::Consumed { .. },
        ) => ApprovalMove::Revoke { at },
        (ApprovalSubject::Write | ApprovalSubject::Request, _) => return Ok(()),
    };
    shift(unit, approval, step, why).map(drop)
}

fn subject_word(subject: ApprovalSubject) -> &'static str {
    match subject {
        ApprovalSubject::Write => "write",
        ApprovalSubject::Batch => "batch",
        ApprovalSubject::Request => "request",
    }
}

pub(crate) fn decode(row: SqlRow) -> Result<Approval, StoreError> {
    let mut row = row.of("approvals");
    let id = ApprovalId::from_bits(row.bits()?);
    let subject = match row.text()?.as_str() {
        "write" => ApprovalSubject::Write,
        "batch" => ApprovalSubject::Batch,
        "request" => ApprovalSubject::Request,
        _ => return Err(row.impossible("an unknown subject")),
    };
    let (agent, service, asked_at) = (row.parsed()?, row.parsed()?, row.time()?);
    let (items, note, version, word) = (row.count()?, row.maybe_text()?, row.count()?, row.text()?);
    let (expires_at, answer) = (row.maybe_time()?, row.maybe_text()?);
    let by: Option<Actor> = row.maybe_parsed()?;
    let (at, valid_until, replacement): (_, Option<UtcMillis>, _) =
        (row.maybe_time()?, row.maybe_time()?, row.maybe_bits()?.map(ApprovalId::from_bits));
    let answer = answer.map(|code| ApprovalAnswer::from_code(&code).ok_or_else(|| row.impossible("an unknown answer")));
    let given = (expires_at, answer.transpose()?, by, at, valid_until, replacement);
    let state = match (word.as_str(), given) {
        ("pending", (Some(expires_at), None, None, None, None, None)) => ApprovalState::Pending { expires_at },
        ("approved", (None, Some(answer), Some(by), Some(at), Some(valid_until), None)) => {
            ApprovalState::Approved { by, at, answer, valid_until }
        }
        ("consumed", (None, Some(answer), Some(by), Some(at), Some(valid_until), None)) => {
            ApprovalState::Consumed { by, at, answer, valid_until }
        }
        ("denied", (None, None, Some(by), Some(at), None, None)) => ApprovalState::Denied { by, at },
        ("superseded", (None, None, Some(by), Some(at), None, Some(replacement))) => {
            ApprovalState::Superseded { by, at, replacement }
        }
        ("expired", (None, None, None, Some(at), None, None)) => ApprovalState::Expired { at },
        ("withdrawn", (None, None, None, Some(at), None, None)) => ApprovalState::Withdrawn { at },
        ("lapsed", (None, None, None, Some(at), None, None)) => ApprovalState::Lapsed { at },
        ("revoked", (None, None, None, Some(at), None, None)) => ApprovalState::Revoked { at },
        _ => return Err(row.impossible("a state with columns it does not have")),
    };
    Ok(Approval { id, subject, agent, service, asked_at, state, version, note, items })
}
