//! Requests: what a client of the approval API wants to do by itself, as rows.
//!
//! Takes its words; gives an open question, the one it asked before, or a person's standing yes. Promise: the
//! question, its message to people and its audit entry are one transaction; the same request twice, while it is
//! open or under one key, is one question; a client sees its own requests and no other's.

use sluice_core::approval::allowance::{self, Asked as About, Asker, Question, Session};
use sluice_core::approval::{self, Answer, Approval, ApprovalMove, ApprovalState, Subject};
use sluice_core::ids::{MessageId, RuleId};
use sluice_core::{Actor, AgentName, ApprovalId, Digest, ServiceName, Span, Timestamp};

use crate::Store;
use crate::allowances;
use crate::approvals;
use crate::counters;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::freezes;
use crate::holds::Why;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

const COLUMNS: &str =
    "client, session, action_type, title, preview, options, channel, place, expires_at, rule, reworded";
const ONE: &str = "SELECT client, session, action_type, title, preview, options, channel, place, expires_at, rule, reworded \
     FROM requests WHERE approval = ?1";
const BY_NAME: &str = "SELECT approval, digest FROM requests WHERE client = ?1 AND name = ?2 /*lock*/";
const ALIKE: &str = "SELECT a.id FROM requests r JOIN approvals a ON a.id = r.approval WHERE r.digest = ?1 \
     AND r.name IS NULL AND a.state = 'pending' AND a.expires_at > ?2 ORDER BY a.id LIMIT 1";
const DIGEST: &str = "SELECT digest FROM requests WHERE approval = ?1";
const FILE: &str = "INSERT INTO requests (approval, client, session, action_type, title, preview, options, channel, place, \
     digest, name, rule, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const REWORD: &str = "UPDATE requests SET reworded = ?2 WHERE approval = ?1";
const PAGE: &str = "SELECT a.id FROM approvals a JOIN requests r ON r.approval = a.id WHERE a.id < ?1 AND r.client = ?2 \
     AND a.state = COALESCE(?3, a.state) ORDER BY a.id DESC LIMIT ?4";

/// What a client wants to do, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which client: the label of its key.
    pub client: String,
    /// Its name for the session.
    pub session: String,
    /// Its name for the kind of action.
    pub action_type: String,
    /// A short title.
    pub title: String,
    /// What exactly.
    pub preview: String,
    /// What can be answered, if it is a question with a choice.
    pub options: Vec<String>,
    /// Over which channel it wants to ask, if it says so.
    pub channel: Option<String>,
    /// Whom: a chat or an address.
    pub place: Option<String>,
}

/// A request that is to be put to people.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// The question's id, if it becomes one.
    pub approval: ApprovalId,
    /// The id of the message that carries it.
    pub message: MessageId,
    /// Whose key it came with.
    pub agent: AgentName,
    /// What freezes know it under.
    pub service: ServiceName,
    /// What is wanted.
    pub request: Request,
    /// The client's own key for this request. The same key is the same request.
    pub name: Option<String>,
    /// How long people have to answer.
    pub expiry: Span,
}

/// A request and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Filed {
    /// The question.
    pub approval: Approval,
    /// What is wanted.
    pub request: Request,
    /// When silence becomes, or became, a no.
    pub expires_at: Timestamp,
    /// The allow rule that answered it, if one did.
    pub rule: Option<RuleId>,
    /// What a person wants instead.
    pub reworded: Option<String>,
}

/// How a request was taken.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    /// People are asked.
    Asked(Filed),
    /// They are asked already, or have answered this very request.
    Again(Filed),
    /// A standing yes answered it.
    Answered(Filed),
}

impl Request {
    /// Names exactly this request of this agent.
    #[must_use]
    pub fn digest(&self, agent: &AgentName) -> Digest {
        let whole = serde_json::json!([
            agent,
            self.client,
            self.session,
            self.action_type,
            self.title,
            self.preview,
            self.options,
            self.channel,
            self.place
        ]);
        Digest::of(whole.to_string().as_bytes())
    }
}

impl Filed {
    /// Whether its client may go on, in its own words or in those of a person.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        approvals::is_approved(&self.approval.state)
    }
}

impl UseCase for NewRequest {
    type Out = Received;

    fn turn(&self) -> Option<&AgentName> {
        Some(&self.agent)
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Received, StoreError> {
        let is_first = counters::take_turn(desk, &self.agent).await?;
        let digest = self.request.digest(&self.agent);
        if let Some(before) = self.asked_before(desk, digest).await? {
            let filed = before_it(desk.tx(), before).await?;
            // What was approved before a freeze is not repeated as approved while it lasts.
            if filed.is_approved() {
                freezes::refuse_if_frozen(desk, &self.agent, &self.service).await?;
            }
            return Ok(Received::Again(filed));
        }
        freezes::refuse_if_frozen(desk, &self.agent, &self.service).await?;
        let taken = match self.standing_yes(desk).await? {
            Some((answer, rule)) => self.answer(desk, digest, answer, rule)?,
            None => self.ask(desk, digest),
        };
        if is_first {
            counters::make_latch(desk, &self.agent);
        }
        Ok(taken)
    }
}

async fn before_it<T: Tx>(tx: &mut T, id: ApprovalId) -> Result<Filed, StoreError> {
    ById(id).run(tx).await?.ok_or(StoreError::NotFound { what: "request" })
}

impl NewRequest {
    /// The question this repeats, by its key or, while that is open, by its words.
    async fn asked_before<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        digest: Digest,
    ) -> Result<Option<ApprovalId>, StoreError> {
        let Some(name) = &self.name else {
            let now = desk.now;
            let alike = desk.row(ALIKE, params![digest, now]).await?;
            return alike.map(|row| row.of("requests").bits().map(ApprovalId::from_bits)).transpose();
        };
        let Some(row) = desk.row(BY_NAME, params![self.request.client.as_str(), name.as_str()]).await? else {
            return Ok(None);
        };
        let mut row = row.of("requests");
        let (id, known) = (row.bits()?, row.blob()?);
        if Digest::from_bytes(&known) == Some(digest) {
            Ok(Some(ApprovalId::from_bits(id)))
        } else {
            Err(StoreError::KeyReuse)
        }
    }

    /// A person's answer given in advance. A choice has none: nobody knows what it would be.
    async fn standing_yes<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
    ) -> Result<Option<(Answer, Option<RuleId>)>, StoreError> {
        if !self.request.options.is_empty() {
            return Ok(None);
        }
        let asker = Asker::Client(self.request.client.clone());
        let session = Session::Claimed(self.request.session.clone());
        let question = Question {
            asker: &asker,
            session: Some(&session),
            asked: About::ActionType(&self.request.action_type),
            call: None,
            why: &[allowance::Why::Policy],
            at: desk.now,
        };
        allowances::spend_on(desk, &question, (self.approval, &Actor::Agent(self.agent.clone()))).await
    }

    fn ask<T: Tx>(&self, desk: &mut Desk<'_, T>, digest: Digest) -> Received {
        let state = ApprovalState::Pending { expires_at: desk.now + self.expiry };
        let approval = self.question(desk.now, state);
        approvals::insert(desk, &approval, "approval.requested", &[]);
        self.file(desk, digest, None);
        let body = serde_json::json!({"approval": approval.id, "agent": &self.agent});
        let message = Message { id: self.message, topic: "approval.asked".into(), severity: Severity::Action, body };
        outbox::put(desk, &message);
        Received::Asked(self.filed(approval, None))
    }

    /// As if people were asked and one of them answered at once: a person did, earlier.
    fn answer<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        digest: Digest,
        answer: Answer,
        rule: Option<RuleId>,
    ) -> Result<Received, StoreError> {
        let (now, by) = (desk.now, desk.actor());
        let approval = self.question(now, ApprovalState::Pending { expires_at: now + self.expiry });
        approvals::insert(desk, &approval, "approval.requested", &[]);
        self.file(desk, digest, rule);
        let valid_until = now + approval::validity(Span::ZERO);
        let step = ApprovalMove::Approve { by: by.clone(), at: now, answer, valid_until };
        let approval = approvals::shift(desk, approval, step, &Why::because(by, "allowance.used"))?;
        Ok(Received::Answered(self.filed(approval, rule)))
    }

    fn question(&self, now: Timestamp, state: ApprovalState) -> Approval {
        Approval {
            id: self.approval,
            subject: Subject::Request,
            agent: self.agent.clone(),
            service: self.service.clone(),
            asked_at: now,
            state,
            version: 1,
            note: None,
            items: 0,
        }
    }

    fn file<T: Tx>(&self, desk: &mut Desk<'_, T>, digest: Digest, rule: Option<RuleId>) {
        let Request { client, session, action_type, title, preview, options, channel, place } = &self.request;
        let expires_at = desk.now + self.expiry;
        desk.write(
            FILE,
            params![
                self.approval,
                client.as_str(),
                session.as_str(),
                action_type.as_str(),
                title.as_str(),
                preview.as_str(),
                serde_json::json!(options).to_string(),
                channel.as_deref(),
                place.as_deref(),
                digest,
                self.name.as_deref(),
                rule.map(RuleId::bits),
                expires_at,
            ],
        );
    }

    fn filed(&self, approval: Approval, rule: Option<RuleId>) -> Filed {
        let expires_at = approval.asked_at + self.expiry;
        Filed { approval, request: self.request.clone(), expires_at, rule, reworded: None }
    }
}

/// Refuses a yes to other words than those that were asked.
pub(crate) async fn same_words<T: Tx>(
    desk: &mut Desk<'_, T>,
    id: ApprovalId,
    shown: Option<Digest>,
) -> Result<(), StoreError> {
    let Some(shown) = shown else { return Ok(()) };
    let row = desk.row(DIGEST, params![id]).await?.ok_or(StoreError::NotFound { what: "request" })?;
    let known = row.of("requests").blob()?;
    if Digest::from_bytes(&known) == Some(shown) { Ok(()) } else { Err(StoreError::Conflict) }
}

/// Keeps what a person wants instead.
pub(crate) fn reword<T: Tx>(desk: &mut Desk<'_, T>, id: ApprovalId, text: &str) {
    desk.write_one(REWORD, params![id, text]);
}

pub(crate) struct ById(pub ApprovalId);

impl Query for ById {
    type Out = Option<Filed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Filed>, StoreError> {
        let Some(row) = tx.rows(ONE, &params![self.0]).await?.into_iter().next() else { return Ok(None) };
        let missing = StoreError::Impossible { table: "requests", detail: "a request without its question" };
        let card = approvals::ById(self.0).run(tx).await?.ok_or(missing)?;
        decode(row, card.approval).map(Some)
    }
}

struct Page {
    client: String,
    state: Option<&'static str>,
    after: Option<ApprovalId>,
    limit: u32,
}

impl Query for Page {
    type Out = Vec<Filed>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Filed>, StoreError> {
        let before = self.after.map_or(u128::MAX, ApprovalId::bits);
        let mut found = Vec::new();
        for row in tx.rows(PAGE, &params![before, self.client.as_str(), self.state, self.limit]).await? {
            let id = ApprovalId::from_bits(row.of("approvals").bits()?);
            found.extend(ById(id).run(tx).await?);
        }
        Ok(found)
    }
}

fn decode(row: Row, approval: Approval) -> Result<Filed, StoreError> {
    debug_assert_eq!(row.0.len(), COLUMNS.split(", ").count());
    let mut row = row.of("requests");
    let (client, session, action_type) = (row.text()?, row.text()?, row.text()?);
    let (title, preview, options) = (row.text()?, row.text()?, row.text()?);
    let options = serde_json::from_str(&options).map_err(|_| row.impossible("options that are no list"))?;
    let (channel, place, expires_at) = (row.maybe_text()?, row.maybe_text()?, row.time()?);
    let (rule, reworded) = (row.maybe_bits()?.map(RuleId::from_bits), row.maybe_text()?);
    let request = Request { client, session, action_type, title, preview, options, channel, place };
    Ok(Filed { approval, request, expires_at, rule, reworded })
}

impl Store {
    /// Takes what a client wants to do by itself.
    ///
    /// # Errors
    /// When it is frozen, its key was used for another request, or it cannot be recorded.
    pub async fn request(&self, new: NewRequest) -> Result<Received, StoreError> {
        self.submit(new).await
    }

    /// One request; nothing if the question is about something else.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn requested(&self, id: ApprovalId) -> Result<Option<Filed>, StoreError> {
        self.ask(ById(id)).await
    }

    /// A client's requests, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn requests_page(
        &self,
        client: String,
        state: Option<&'static str>,
        after: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Vec<Filed>, StoreError> {
        self.ask(Page { client, state, after, limit }).await
    }
}
