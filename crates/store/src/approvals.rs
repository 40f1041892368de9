//! Questions as rows, and the one answer each can get.
//!
//! Promise: deciding is a compare-and-set on the question's row, in the same transaction as the moves
//! of every write it covers and the standing yes it may leave behind. The second answer changes nothing. A yes covers
//! only writes whose digests were shown.

mod places;

use sluice_core::approval::allowance::Allowance;
use sluice_core::approval::reason::AskReason;
use sluice_core::approval::{self, Answer, Approval, ApprovalMove, ApprovalState, Subject};
use sluice_core::audit::Fact;
use sluice_core::hold::{Hold, HoldState, Move};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Digest, HoldId, ServiceName, Span, Timestamp};

use crate::allowances;
use crate::counters;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, Why};
use crate::outbox::{self, Message, Severity};
use crate::requests;
use crate::sql::{Row, Tx, params};
use crate::targets;

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
pub struct Decision {
    /// About which question.
    pub approval: ApprovalId,
    /// Who.
    pub by: Actor,
    /// Over which channel, for the record.
    pub channel: String,
    /// What.
    pub ruling: Ruling,
    /// The digests of what the person was shown. A yes covers nothing else; empty where the caller shows nobody anything.
    pub shown: Vec<Digest>,
    /// The standing yes that answers 2 and 6 leave behind.
    pub allowance: Option<Allowance>,
}

/// The answer itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Yes: once, for the session, with a note, or always.
    Allow {
        /// Which of them.
        answer: Answer,
        /// What the person wrote along.
        note: Option<String>,
    },
    /// No.
    Deny {
        /// What the person wrote along.
        note: Option<String>,
    },
    /// Yes, but to these words, for a client that acts by itself.
    Reword(String),
    /// For a batch: which of its writes.
    Choose(Choice),
}

/// Which writes of a batch may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All of them, if there are still as many as the person saw.
    All {
        /// How many they saw.
        seen: u32,
    },
    /// The first so many; the rest are denied.
    First(u32),
    /// Exactly these; the rest are denied.
    These(Vec<HoldId>),
}

/// How a decision went.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// It counts.
    Now {
        /// The question as it is now.
        approval: Approval,
        /// Writes that may go.
        allowed: Vec<HoldId>,
        /// Writes that may not.
        denied: Vec<HoldId>,
    },
    /// Someone else was faster, or it is too late. Nothing changed by this answer.
    Already(Approval),
}

/// A question and the writes it covers, in the order of the card.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The question.
    pub approval: Approval,
    /// The writes.
    pub items: Vec<approval::Item>,
}

pub(crate) struct ById(pub ApprovalId);

impl Query for ById {
    type Out = Option<Card>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Card>, StoreError> {
        let Some(row) = tx.rows(ONE, &params![self.0]).await?.into_iter().next() else { return Ok(None) };
        let approval = decode(row)?;
        let items = items(tx, self.0).await?;
        Ok(Some(Card { approval, items }))
    }
}

/// Questions nobody has answered yet, the most urgent first.
pub(crate) struct Open {
    pub limit: u32,
}

impl Query for Open {
    type Out = Vec<Approval>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Approval>, StoreError> {
        tx.rows(OPEN, &params![self.limit]).await?.into_iter().map(decode).collect()
    }
}

pub(crate) async fn open_batch<T: Tx>(
    desk: &mut Desk<'_, T>,
    agent: &AgentName,
    service: &ServiceName,
) -> Result<Option<Approval>, StoreError> {
    desk.row(OPEN_BATCH, params![agent, service]).await?.map(decode).transpose()
}

pub(crate) async fn locked<T: Tx>(desk: &mut Desk<'_, T>, id: ApprovalId) -> Result<Approval, StoreError> {
    let row = desk.row(ONE_LOCKED, params![id]).await?;
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

pub(crate) async fn items<T: Tx>(tx: &mut T, id: ApprovalId) -> Result<Vec<approval::Item>, StoreError> {
    let rows = tx.rows(ITEMS, &params![id]).await?;
    rows.into_iter()
        .map(|row| {
            let mut row = row.of("approval_items");
            let hold = HoldId::from_bits(row.bits()?);
            let digest =
                Digest::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a digest of an unknown form"))?;
            Ok(approval::Item { hold, digest, place: row.count()? })
        })
        .collect()
}

/// Adds a write to a question.
pub(crate) fn add_item<T: Tx>(desk: &mut Desk<'_, T>, approval: &mut Approval, hold: HoldId, digest: Digest) {
    desk.write(ADD_ITEM, params![approval.id, approval.items, hold, digest]);
    approval.items += 1;
}

/// Puts a new question, with why it is put; the code says it where there is nothing more to say.
pub(crate) fn insert<T: Tx>(desk: &mut Desk<'_, T>, approval: &Approval, code: &str, why: &[AskReason]) {
    let general = [AskReason::new(code)];
    let reasons = serde_json::to_string(if why.is_empty() { general.as_slice() } else { why }).ok();
    let ApprovalState::Pending { expires_at } = approval.state else { return };
    desk.write(
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
    let mut fact = Fact::new("approval.pending", desk.actor()).with("move", "ask").with("items", approval.items);
    fact.approval = Some(approval.id);
    fact.code = Some(code.to_owned());
    fact.to = Some(approval.state.word().to_owned());
    desk.record(fact);
}

/// Saves a question that more writes have joined.
pub(crate) fn grow<T: Tx>(desk: &mut Desk<'_, T>, approval: &mut Approval, before: u64) {
    approval.version = before + 1;
    save(desk, approval, before);
}

/// Moves a question and records it.
pub(crate) fn shift<T: Tx>(
    desk: &mut Desk<'_, T>,
    approval: Approval,
    step: ApprovalMove,
    why: &Why,
) -> Result<Approval, StoreError> {
    shift_covering(desk, approval, step, why, &[])
}

/// As [`shift`]; the record names the actions it covers.
fn shift_covering<T: Tx>(
    desk: &mut Desk<'_, T>,
    approval: Approval,
    step: ApprovalMove,
    why: &Why,
    covered: &[Digest],
) -> Result<Approval, StoreError> {
    let (from, by, before) = (approval.state.word(), step.word(), approval.version);
    let state = approval.state.apply(step)?;
    let approval = Approval { state, version: before + 1, ..approval };
    let to = approval.state.word();
    let mut fact = Fact::new(format!("approval.{to}"), why.actor.clone()).with("move", by);
    if !covered.is_empty() {
        fact = fact.with("covers", covered.len()).with("card", approval::card_digest(covered));
    }
    fact.approval = Some(approval.id);
    fact.from = Some(from.to_owned());
    fact.to = Some(to.to_owned());
    fact.code.clone_from(&why.code);
    desk.record(fact);
    save(desk, &approval, before);
    Ok(approval)
}

fn save<T: Tx>(desk: &mut Desk<'_, T>, approval: &Approval, before: u64) {
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
    desk.write_one(
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

impl UseCase for Decision {
    type Out = Decided;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Decided, StoreError> {
        // SECURITY: no credential an agent holds decides anything.
        match &self.by {
            Actor::Person(_) | Actor::Operator(_) => {}
            Actor::Agent(_) | Actor::Node(_) => return Err(StoreError::NotAPerson),
        }
        let approval = locked(desk, self.approval).await?;
        let ApprovalState::Pending { expires_at } = approval.state else { return Ok(Decided::Already(approval)) };
        if desk.now >= expires_at {
            return Ok(Decided::Already(expire(desk, approval).await?));
        }
        if approval.subject == Subject::Request && !matches!(self.ruling, Ruling::Deny { .. }) {
            requests::same_words(desk, approval.id, self.shown.first().copied()).await?;
            // A client that acts by itself is not held at the release of a write: a freeze stops the yes.
            freezes::refuse_if_frozen(desk, &approval.agent, &approval.service).await?;
        }
        let items = items(desk.tx(), approval.id).await?;
        let allowed = self.allowed(&approval, &items)?;
        let mut waiting = Vec::with_capacity(items.len());
        for item in &items {
            waiting.push((item, holds::locked(desk, item.hold).await?));
        }
        // What one person says yes to in one write is known from then on. A yes to many at once makes nothing known.
        let known = match (&self.ruling, approval.subject, items.as_slice()) {
            (Ruling::Allow { .. }, Subject::Write, [one]) => targets::to_learn(desk, one.hold).await?,
            _ => Vec::new(),
        };
        let agent = approval.agent.clone();
        let decided = self.settle(desk, approval, waiting, &allowed)?;
        if matches!(&decided, Decided::Now { allowed, .. } if !allowed.is_empty()) {
            targets::learn(desk, &agent, self.approval, &known);
        }
        Ok(decided)
    }
}

impl Decision {
    fn settle<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        mut approval: Approval,
        items: Vec<(&approval::Item, Hold)>,
        places: &[u32],
    ) -> Result<Decided, StoreError> {
        let now = desk.now;
        let why = Why::because(self.by.clone(), &format!("channel.{}", self.channel));
        // The window of the longest-held write decides how long the yes lasts.
        let delay = items.iter().map(|(_, hold)| hold.delay).max().unwrap_or(Span::ZERO);
        let (mut allowed, mut denied, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for (item, hold) in items {
            let goes = places.contains(&item.place);
            covered.extend(goes.then_some(item.digest));
            desk.write(CHOSEN, params![approval.id, item.place, i64::from(goes)]);
            // A write that was cancelled or is asked about elsewhere is no longer part of this question.
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
                holds::shift(desk, hold, [Move::Approve { not_before }], &why)?;
                allowed.push(id);
            } else {
                // Whoever reads the write later finds the question, and what the person wrote along.
                let hold = Hold { consent: Some(approval.id), ..hold };
                let hold = holds::shift(desk, hold, [Move::Deny { at: now }], &why)?;
                // A batch that was denied still counts: the agent that made it does not begin anew.
                if approval.subject == Subject::Write {
                    counters::give_back(desk, &hold);
                }
                denied.push(id);
            }
        }
        let answer = match &self.ruling {
            Ruling::Allow { answer, note } => {
                approval.note.clone_from(note);
                Some(*answer)
            }
            Ruling::Deny { note } => {
                approval.note.clone_from(note);
                None
            }
            Ruling::Reword(_) => Some(Answer::Amend),
            Ruling::Choose(_) => (!places.is_empty()).then_some(Answer::Once),
        };
        let step = match answer {
            Some(answer) => {
                // Many writes at once leave at a pace; the last of them must not find its yes lapsed.
                let pace = Span::from_secs(2 * u64::from(approval.items.saturating_sub(1)));
                let valid_until = now + approval::validity(delay) + pace;
                match &self.ruling {
                    Ruling::Reword(_) => ApprovalMove::Reword { by: self.by.clone(), at: now, valid_until },
                    _ => ApprovalMove::Approve { by: self.by.clone(), at: now, answer, valid_until },
                }
            }
            None => ApprovalMove::Deny { by: self.by.clone(), at: now },
        };
        let approval = shift_covering(desk, approval, step, &why, &covered)?;
        if let Ruling::Reword(text) = &self.ruling {
            requests::reword(desk, approval.id, text);
        }
        if let (Some(Answer::Session | Answer::Always), Some(allowance)) = (answer, &self.allowance) {
            allowances::give(desk, allowance, &self.by);
        }
        Ok(Decided::Now { approval, allowed, denied })
    }
}

/// Whether a write waits for this very question.
fn awaits(hold: &Hold, question: ApprovalId) -> bool {
    matches!(&hold.state, HoldState::AwaitingApproval { approval } if *approval == question)
}

/// Silence was the answer: the question and every write still waiting under it end.
pub(crate) async fn expire<T: Tx>(desk: &mut Desk<'_, T>, approval: Approval) -> Result<Approval, StoreError> {
    let waiting = waiting(desk, approval.id).await?;
    end(desk, approval, waiting)
}

/// The writes that still wait for this question, locked.
async fn waiting<T: Tx>(desk: &mut Desk<'_, T>, question: ApprovalId) -> Result<Vec<Hold>, StoreError> {
    let mut waiting = Vec::new();
    for item in items(desk.tx(), question).await? {
        waiting.push(holds::locked(desk, item.hold).await?);
    }
    waiting.retain(|hold| awaits(hold, question));
    Ok(waiting)
}

fn end<T: Tx>(desk: &mut Desk<'_, T>, approval: Approval, waiting: Vec<Hold>) -> Result<Approval, StoreError> {
    let at = desk.now;
    let why = Why::because(desk.actor(), "approval.expired");
    for hold in waiting {
        holds::shift(desk, hold, [Move::Expire { at }], &why)?;
    }
    shift(desk, approval, ApprovalMove::Expire { at }, &why)
}

/// Ends questions whose time is up.
pub(crate) struct ExpireDue {
    pub limit: u32,
}

impl UseCase for ExpireDue {
    type Out = Vec<ApprovalId>;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<ApprovalId>, StoreError> {
        let now = desk.now;
        let rows = desk.rows(OVERDUE, params![now, self.limit]).await?;
        let mut over = Vec::with_capacity(rows.len());
        for approval in rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()? {
            let waiting = waiting(desk, approval.id).await?;
            over.push((approval, waiting));
        }
        over.into_iter().map(|(approval, waiting)| end(desk, approval, waiting).map(|ended| ended.id)).collect()
    }
}

/// Puts a write that was on its way back in front of a person, with a question of its own.
pub(crate) struct AskAgain<'a> {
    pub approval: ApprovalId,
    pub message: MessageId,
    pub code: &'a str,
    pub expiry: Span,
    /// Why, in more than the code; may be empty.
    pub reasons: &'a [AskReason],
}

impl AskAgain<'_> {
    pub fn ask<T: Tx>(&self, desk: &mut Desk<'_, T>, hold: Hold, by: Actor) -> Result<Hold, StoreError> {
        let mut approval = Approval {
            id: self.approval,
            subject: Subject::Write,
            agent: hold.agent().clone(),
            service: hold.service.clone(),
            asked_at: desk.now,
            state: ApprovalState::Pending { expires_at: desk.now + self.expiry },
            version: 1,
            note: None,
            items: 0,
        };
        add_item(desk, &mut approval, hold.id, hold.action.digest());
        insert(desk, &approval, self.code, self.reasons);
        let body = serde_json::json!({"approval": approval.id, "hold": hold.id});
        let message = Message { id: self.message, topic: "approval.asked".into(), severity: Severity::Action, body };
        outbox::put(desk, &message);
        let hold = Hold { consent: None, ..hold };
        holds::shift(desk, hold, [Move::PullBack { approval: approval.id }], &Why::because(by, self.code))
    }
}

/// Takes back a question, or a yes nobody has used, because its write is gone.
pub(crate) async fn withdraw<T: Tx>(desk: &mut Desk<'_, T>, id: ApprovalId, why: &Why) -> Result<(), StoreError> {
    let approval = locked(desk, id).await?;
    if approval.subject == Subject::Batch && approval.state.is_open() {
        // The write that goes away still waits here; with it gone, nobody needs to be asked any more.
        let row = desk.row(WAITING, params![id]).await?.ok_or(StoreError::NotFound { what: "count" })?;
        if row.of("holds").count::<u32>()? <= 1 {
            let at = desk.now;
            return shift(desk, approval, ApprovalMove::Withdraw { at }, why).map(drop);
        }
    }
    take_back(desk, approval, why)
}

/// As [`withdraw`], for a question that has been read already.
pub(crate) fn take_back<T: Tx>(desk: &mut Desk<'_, T>, approval: Approval, why: &Why) -> Result<(), StoreError> {
    let at = desk.now;
    let step = match (approval.subject, &approval.state) {
        // A batch card goes on asking about the others.
        (Subject::Batch, _) => return Ok(()),
        (Subject::Write | Subject::Request, ApprovalState::Pending { .. }) => ApprovalMove::Withdraw { at },
        (Subject::Write | Subject::Request, ApprovalState::Approved { .. } | ApprovalState::Consumed { .. }) => {
            ApprovalMove::Revoke { at }
        }
        (Subject::Write | Subject::Request, _) => return Ok(()),
    };
    shift(desk, approval, step, why).map(drop)
}

fn subject_word(subject: Subject) -> &'static str {
    match subject {
        Subject::Write => "write",
        Subject::Batch => "batch",
        Subject::Request => "request",
    }
}

pub(crate) fn decode(row: Row) -> Result<Approval, StoreError> {
    let mut row = row.of("approvals");
    let id = ApprovalId::from_bits(row.bits()?);
    let subject = match row.text()?.as_str() {
        "write" => Subject::Write,
        "batch" => Subject::Batch,
        "request" => Subject::Request,
        _ => return Err(row.impossible("an unknown subject")),
    };
    let (agent, service, asked_at) = (row.parsed()?, row.parsed()?, row.time()?);
    let (items, note, version, word) = (row.count()?, row.maybe_text()?, row.count()?, row.text()?);
    let (expires_at, answer) = (row.maybe_time()?, row.maybe_text()?);
    let by: Option<Actor> = row.maybe_parsed()?;
    let (at, valid_until, replacement): (_, Option<Timestamp>, _) =
        (row.maybe_time()?, row.maybe_time()?, row.maybe_bits()?.map(ApprovalId::from_bits));
    let answer = answer.map(|code| Answer::from_code(&code).ok_or_else(|| row.impossible("an unknown answer")));
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
