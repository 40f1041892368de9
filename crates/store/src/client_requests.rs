//! Requests of clients of the approval API, which act by themselves, as rows.
//!
//! Takes a client's request; gives an open approval request, the earlier one that it repeats, or a person's standing
//! approval. Promise: the approval request, its message to people and its audit entry are one transaction. The same
//! request twice, while it is open or with one key, is one approval request. A client sees only its own requests.

use sluice_core::approval::allowance::{
    self, AllowanceSession, ApprovalRequestContext, ApprovalRequester, RequestedAction as About,
};
use sluice_core::approval::{self, Approval, ApprovalAnswer, ApprovalMove, ApprovalState, ApprovalSubject};
use sluice_core::ids::{MessageId, RuleId};
use sluice_core::{Actor, AgentName, ApprovalId, Digest, Millis, ServiceName, UtcMillis};

use crate::Store;
use crate::allowances;
use crate::approvals;
use crate::counters;
use crate::error::StoreError;
use crate::freezes;
use crate::holds::HoldMoveReason;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// The action that a client wants to do, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientApprovalRequest {
    /// The client: the label of its key.
    pub client: String,
    /// The client's name for the session.
    pub session: String,
    /// The client's name for the kind of action.
    pub action_type: String,
    /// A short title.
    pub title: String,
    /// The exact content of the action.
    pub preview: String,
    /// The possible answers, if the client asks for a choice.
    pub options: Vec<String>,
    /// The channel to ask over, if the client names one.
    pub channel: Option<String>,
    /// The chat or address to ask, if the client names one.
    pub place: Option<String>,
}

/// A request to be put to people.
#[derive(Debug, Clone)]
pub struct SubmitClientRequest {
    /// The approval request's id, if one is created.
    pub approval: ApprovalId,
    /// The id of the message that asks people.
    pub message: MessageId,
    /// The agent whose key it came with.
    pub agent: AgentName,
    /// The service under which freezes cover it.
    pub service: ServiceName,
    /// The request of the client.
    pub request: ClientApprovalRequest,
    /// The client's own key for this request. The same key means the same request.
    pub name: Option<String>,
    /// How long people have to answer.
    pub expiry: Millis,
}

/// A request and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FiledClientRequest {
    /// The approval request.
    pub approval: Approval,
    /// The request of the client.
    pub request: ClientApprovalRequest,
    /// When the approval request expires, or expired, and counts as denied.
    pub expires_at: UtcMillis,
    /// The allow rule that answered it, if one did.
    pub rule: Option<RuleId>,
    /// The words that a person wants instead.
    pub reworded: Option<String>,
}

/// The result of filing a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientRequestOutcome {
    /// People are asked.
    Asked(FiledClientRequest),
    /// People were asked before, or have answered exactly this request.
    Again(FiledClientRequest),
    /// A standing approval answered it.
    Answered(FiledClientRequest),
}

impl ClientApprovalRequest {
    /// The digest of exactly this request of this agent.
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

impl FiledClientRequest {
    /// Whether its client may continue, with its own words or those of a person.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        approvals::is_approved(&self.approval.state)
    }
}

impl UseCase for SubmitClientRequest {
    type Out = ClientRequestOutcome;

    fn turn(&self) -> Option<&AgentName> {
        Some(&self.agent)
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ClientRequestOutcome, StoreError> {
        let is_first = counters::take_turn(unit, &self.agent).await?;
        let digest = self.request.digest(&self.agent);
        if let Some(before) = self.asked_before(unit, digest).await? {
            let filed = before_it(unit.tx(), before).await?;
            // A request approved before a freeze is not reported as approved while the freeze lasts.
            if filed.is_approved() {
                freezes::refuse_if_frozen(unit, &self.agent, &self.service).await?;
            }
            return Ok(ClientRequestOutcome::Again(filed));
        }
        freezes::refuse_if_frozen(unit, &self.agent, &self.service).await?;
        let taken = match self.spend_standing_approval(unit).await? {
            Some((answer, rule)) => self.answer(unit, digest, answer, rule)?,
            None => self.ask(unit, digest),
        };
        if is_first {
            counters::make_latch(unit, &self.agent);
        }
        Ok(taken)
    }
}

async fn before_it<T: StoreTx>(tx: &mut T, id: ApprovalId) -> Result<FiledClientRequest, StoreError> {
    GetClientRequest(id).run(tx).await?.ok_or(StoreError::NotFound { what: "request" })
}

impl SubmitClientRequest {
    /// The approval request that this repeats, by its key or, while that is open, by its words.
    async fn asked_before<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        digest: Digest,
    ) -> Result<Option<ApprovalId>, StoreError> {
        let Some(name) = &self.name else {
            let now = unit.now;
            let alike = unit.row(ALIKE, params![digest, now]).await?;
            return alike.map(|row| row.of("requests").bits().map(ApprovalId::from_bits)).transpose();
        };
        let Some(row) = unit.row(BY_NAME, params![self.request.client.as_str(), name.as_str()]).await? else {
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

    /// A person's standing approval. A choice has none: it cannot be answered in advance.
    async fn spend_standing_approval<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
    ) -> Result<Option<(ApprovalAnswer, Option<RuleId>)>, StoreError> {
        if !self.request.options.is_empty() {
            return Ok(None);
        }
        let asker = ApprovalRequester::Client(self.request.client.clone());
        let session = AllowanceSession::Claimed(self.request.session.clone());
        let question = ApprovalRequestContext {
            asker: &asker,
            session: Some(&session),
            asked: About::ActionType(&self.request.action_type),
            call: None,
            why: &[allowance::ApprovalTrigger::Policy],
            at: unit.now,
        };
        allowances::spend_on(unit, &question, (self.approval, &Actor::Agent(self.agent.clone()))).await
    }

    fn ask<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, digest: Digest) -> ClientRequestOutcome {
        let state = ApprovalState::Pending { expires_at: unit.now + self.expiry };
        let approval = self.question(unit.now, state);
        approvals::insert(unit, &approval, "approval.requested", &[]);
        self.file(unit, digest, None);
        let body = serde_json::json!({"approval": approval.id, "agent": &self.agent});
        let message =
            OutboxMessage { id: self.message, topic: "approval.asked".into(), severity: MessageSeverity::Action, body };
        outbox::put(unit, &message);
        ClientRequestOutcome::Asked(self.filed(approval, None))
    }

    /// As if a person were asked and answered at once: a person did so earlier.
    fn answer<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        digest: Digest,
        answer: ApprovalAnswer,
        rule: Option<RuleId>,
    ) -> Result<ClientRequestOutcome, StoreError> {
        let (now, by) = (unit.now, unit.actor());
        let approval = self.question(now, ApprovalState::Pending { expires_at: now + self.expiry });
        approvals::insert(unit, &approval, "approval.requested", &[]);
        self.file(unit, digest, rule);
        let valid_until = now + approval::validity(Millis::ZERO);
        let step = ApprovalMove::Approve { by: by.clone(), at: now, answer, valid_until };
        let approval = approvals::shift(unit, approval, step, &HoldMoveReason::because(by, "allowance.used"))?;
        Ok(ClientRequestOutcome::Answered(self.filed(approval, rule)))
    }

    fn question(&self, now: UtcMillis, state: ApprovalState) -> Approval {
        Approval {
            id: self.approval,
            subject: ApprovalSubject::Request,
            agent: self.agent.clone(),
            service: self.service.clone(),
            asked_at: now,
            state,
            version: 1,
            note: None,
            items: 0,
        }
    }

    fn file<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, digest: Digest, rule: Option<RuleId>) {
        let ClientApprovalRequest { client, session, action_type, title, preview, options, channel, place } =
            &self.request;
        let expires_at = unit.now + self.expiry;
        unit.write(
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

    fn filed(&self, approval: Approval, rule: Option<RuleId>) -> FiledClientRequest {
        let expires_at = approval.asked_at + self.expiry;
        FiledClientRequest { approval, request: self.request.clone(), expires_at, rule, reworded: None }
    }
}

/// Refuses an approval of words other than the client's own.
pub(crate) async fn refuse_other_words<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    id: ApprovalId,
    shown: Option<Digest>,
) -> Result<(), StoreError> {
    let Some(shown) = shown else { return Ok(()) };
    let row = unit.row(DIGEST, params![id]).await?.ok_or(StoreError::NotFound { what: "request" })?;
    let known = row.of("requests").blob()?;
    if Digest::from_bytes(&known) == Some(shown) { Ok(()) } else { Err(StoreError::Conflict) }
}

/// Stores the words that a person wants instead.
pub(crate) fn reword<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, id: ApprovalId, text: &str) {
    unit.write_one(REWORD, params![id, text]);
}

pub(crate) struct GetClientRequest(pub ApprovalId);

impl StoreQuery for GetClientRequest {
    type Out = Option<FiledClientRequest>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<FiledClientRequest>, StoreError> {
        let Some(row) = tx.rows(ONE, &params![self.0]).await?.into_iter().next() else { return Ok(None) };
        let missing = StoreError::Impossible { table: "requests", detail: "a request without its approval request" };
        let card = approvals::GetApproval(self.0).run(tx).await?.ok_or(missing)?;
        decode(row, card.approval).map(Some)
    }
}

struct ListClientRequests {
    client: String,
    state: Option<&'static str>,
    after: Option<ApprovalId>,
    limit: u32,
}

impl StoreQuery for ListClientRequests {
    type Out = Vec<FiledClientRequest>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<FiledClientRequest>, StoreError> {
        let before = self.after.map_or(u128::MAX, ApprovalId::bits);
        let mut found = Vec::new();
        for row in tx.rows(PAGE, &params![before, self.client.as_str(), self.state, self.limit]).await? {
            let id = ApprovalId::from_bits(row.of("approvals").bits()?);
            found.extend(GetClientRequest(id).run(tx).await?);
        }
        Ok(found)
    }
}

fn decode(row: SqlRow, approval: Approval) -> Result<FiledClientRequest, StoreError> {
    debug_assert_eq!(row.0.len(), COLUMNS.split(", ").count());
    let mut row = row.of("requests");
    let (client, session, action_type) = (row.text()?, row.text()?, row.text()?);
    let (title, preview, options) = (row.text()?, row.text()?, row.text()?);
    let options = serde_json::from_str(&options).map_err(|_| row.impossible("options that are not a list"))?;
    let (channel, place, expires_at) = (row.maybe_text()?, row.maybe_text()?, row.time()?);
    let (rule, reworded) = (row.maybe_bits()?.map(RuleId::from_bits), row.maybe_text()?);
    let request = ClientApprovalRequest { client, session, action_type, title, preview, options, channel, place };
    Ok(FiledClientRequest { approval, request, expires_at, rule, reworded })
}

impl Store {
    /// Files a client's request for an action that it does by itself.
    ///
    /// # Errors
    /// When it is frozen, its key was used for another request, or it cannot be recorded.
    pub async fn submit_client_request(&self, new: SubmitClientRequest) -> Result<ClientRequestOutcome, StoreError> {
        self.submit(new).await
    }

    /// One request; `None` if the approval request is about something else.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn client_request(&self, id: ApprovalId) -> Result<Option<FiledClientRequest>, StoreError> {
        self.ask(GetClientRequest(id)).await
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
    ) -> Result<Vec<FiledClientRequest>, StoreError> {
        self.ask(ListClientRequests { client, state, after, limit }).await
    }
}
