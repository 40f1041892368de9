//! The approval API for self-executing clients: request approvals, read them, and hand in replies of people.
//!
//! Takes and gives the bodies of the approval API that existing clients use: epoch seconds, absent members as
//! null. Promise: a client sees its own requests and nobody else's; only an inbox key hands in a reply; GET never
//! decides.

mod freezing;
mod places;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::approval::allowance::{
    Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceState, AllowanceUsage, ApprovalRequester,
};
use sluice_core::approval::{ApprovalState, ApprovalSubject, reply_meaning};
use sluice_core::ids::{AllowanceId, MessageId, RuleId};
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, Millis, ServiceName, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::channels::email;
use sluice_gateway::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource};
use sluice_gateway::gate::rendering;
use sluice_gateway::gate::replies::{self, ReplyOutcome, WrittenReply};
use sluice_gateway::gate::standing;
use sluice_services::CallError;
use sluice_store::{ClientApprovalRequest, ClientRequestOutcome, FiledClientRequest, Store, SubmitClientRequest};

use super::approvals::{allowance_json, state};
use super::inbox;
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// The service name under which freezes know requests.
const SERVICE: &str = "approvals";
/// Longest texts of a request, in characters.
const LONGEST: [(&str, usize); 4] = [("session_id", 256), ("action_type", 128), ("title", 500), ("preview", 65_536)];
/// Longest choice, in characters.
const LONGEST_OPTION: usize = 200;
/// Longest time that a client's request may stay open, in seconds.
const LONGEST_EXPIRY: u64 = 24 * 3600;
/// Largest reply that is read, in bytes.
const LONGEST_REPLY: usize = 256 * 1024;

/// An action that a client wants to carry out itself. Other members are ignored, as existing clients expect.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GateRequestBody {
    /// The client's name for its run or session.
    pub session_id: String,
    /// The kind of action: `exec_cmd`, `http_request`, `write_file`, `send_message`, `custom:<tool>`.
    pub action_type: String,
    /// A short title.
    pub title: String,
    /// The details of the action.
    pub preview: String,
    /// `telegram` or `email`; by default all configured people are asked.
    #[serde(default)]
    pub channel: Option<String>,
    /// The chat or address to ask; the operator must allow it.
    #[serde(default, deserialize_with = "super::body::object")]
    #[schemars(with = "Option<GateTarget>")]
    pub target: Option<GateTarget>,
    /// Seconds after which no answer becomes a denial.
    #[serde(default)]
    pub expires_in_sec: Option<u64>,
    /// The possible answers, for a request with options.
    #[serde(default)]
    pub options: Option<Vec<String>>,
}

/// A chat or an address.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GateTarget {
    /// The number of a chat.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub tg_chat_id: Option<Value>,
    /// An e-mail address.
    #[serde(default)]
    pub email_to: Option<String>,
}

/// The decision of a person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GateDecisionView {
    /// The number of the menu line.
    pub code: String,
    /// The person's note; the letter of an option.
    pub note: Option<String>,
    /// The text that the person wants instead.
    pub r#override: Option<String>,
}

/// The state of a request right after it was made.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GateReceiptView {
    /// The id of the approval.
    pub approval_id: String,
    /// `pending`, `approved`, `denied` or `expired`.
    pub status: String,
    /// Whether a standing approval answered.
    pub auto: bool,
    /// When no answer becomes a denial, in seconds since 1970.
    pub expires_at: Option<i64>,
    /// The decision.
    pub decision: Option<GateDecisionView>,
    /// The allow rule that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_id: Option<String>,
}

/// The state of a request.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GateRequestView {
    /// `pending`, `approved`, `denied` or `expired`.
    pub status: String,
    /// When no answer becomes a denial, in seconds since 1970.
    pub expires_at: Option<i64>,
    /// The decision.
    pub decision: Option<GateDecisionView>,
    /// The client's name for its session, once decided.
    pub session_id: Option<String>,
    /// The kind of action, once decided.
    pub action_type: Option<String>,
    /// The id of the approval.
    pub approval_id: String,
    /// The chosen option, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The freeze that holds an approval back: the request stays `pending` until the freeze is lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// The title of the request, in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A reply of a person, as a forwarding service hands it in. It decides with the token of the message it answers, in
/// subject or text; without one only if `inbox.trust_sender` is set and `from` is a person who was asked.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct MailReplyBody {
    /// The sender, as the forwarding service has authenticated them.
    #[serde(default)]
    pub from: Option<String>,
    /// The subject.
    #[serde(default)]
    pub subject: Option<String>,
    /// The text.
    pub body: String,
}

/// A standing approval that an operator gives without a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAllowRuleBody {
    /// The client, by the label of its key.
    pub client_id: String,
    /// The kind of action.
    pub action_type: String,
    /// How long it lasts, in seconds; by default until it is revoked.
    #[serde(default)]
    pub expires_in_sec: Option<u64>,
}

/// `POST /v1/approvals`.
pub(super) async fn ask(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let body: GateRequestBody = visit.parse_body()?;
    let gw = std::sync::Arc::clone(&visit.gw);
    gw.require_accepting_calls()?;
    let principal = visit.principal()?;
    let agent = principal.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?.clone();
    if gw.keyring.is_paused(&agent) {
        return Err(CallError::new(Code::IdentityPaused));
    }
    let client = principal.client_id();
    let expiry = expiry(&gw, body.expires_in_sec)?;
    let request = checked(&gw, client, body)?;
    let name = visit.idempotency_key.take();
    if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 255) {
        return Err(CallError::with_text(Code::SchemaBadName, "an idempotency key has 1 to 255 bytes"));
    }
    let new = SubmitClientRequest {
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
        agent,
        service: ServiceName::new(SERVICE).map_err(|_| CallError::new(Code::GatewayInternal))?,
        request,
        name,
        expiry,
    };
    let (filed, again) = match gw.store.submit_client_request(new).await? {
        ClientRequestOutcome::Asked(filed) => {
            gw.notify_approval_changed(filed.approval.id);
            (filed, false)
        }
        ClientRequestOutcome::Answered(filed) => {
            gw.signals.events.notify_written();
            (filed, false)
        }
        ClientRequestOutcome::Again(filed) => (filed, true),
    };
    let reply = HttpReply::json(200, &receipt_view(&filed, gw.now()));
    Ok(if again { reply.as_replayed() } else { reply })
}

fn expiry(gw: &Gateway, seconds: Option<u64>) -> Result<Millis, CallError> {
    match seconds {
        None => Ok(gw.config.approvals.expiry),
        Some(seconds @ 1..=LONGEST_EXPIRY) => Ok(Millis::from_secs(seconds)),
        Some(_) => Err(CallError::with_text(Code::SchemaWrongType, "expires_in_sec is between 1 and 86400")),
    }
}

/// The request, if all its parts are valid.
fn checked(gw: &Gateway, client: String, body: GateRequestBody) -> Result<ClientApprovalRequest, CallError> {
    let wrong = |text: &str| CallError::with_text(Code::SchemaWrongType, text);
    let texts = [&body.session_id, &body.action_type, &body.title, &body.preview];
    for ((name, most), text) in LONGEST.into_iter().zip(texts) {
        let empty = text.trim().is_empty() && name != "preview";
        if empty || text.chars().count() > most {
            return Err(wrong(&format!("{name} has 1 to {most} characters")));
        }
    }
    let options = body.options.unwrap_or_default();
    if options.len() > reply_meaning::MOST_CHOICES
        || options.iter().any(|option| option.trim().is_empty() || option.chars().count() > LONGEST_OPTION)
    {
        return Err(wrong("options are at most 26 texts of 1 to 200 characters"));
    }
    let target = body.target.unwrap_or(GateTarget { tg_chat_id: None, email_to: None });
    let place = match body.channel.as_deref() {
        None => None,
        Some("telegram") => Some(match target.tg_chat_id {
            Some(Value::String(chat)) if !chat.is_empty() => places::chat(&chat)?,
            Some(Value::Number(chat)) => places::chat(&chat.to_string())?,
            None | Some(Value::Null | Value::String(_)) => return Err(wrong("target.tg_chat_id required")),
            Some(_) => return Err(wrong("`target.tg_chat_id` is the number of a chat")),
        }),
        Some("email") => {
            let to = target.email_to.filter(|to| !to.is_empty());
            Some(places::address(&to.ok_or_else(|| wrong("target.email_to required"))?)?)
        }
        Some(_) => return Err(wrong("channel is telegram or email")),
    };
    if let (Some(channel), Some(place)) = (&body.channel, &place)
        && !gw.config.approvals.allows(channel, place)
    {
        return Err(CallError::new(Code::ApprovalTarget));
    }
    let GateRequestBody { session_id: session, action_type, title, preview, channel, .. } = body;
    Ok(ClientApprovalRequest { client, session, action_type, title, preview, options, channel, place })
}

/// The answer of the approval API for the state of an approval.
fn status_of(
    state: &ApprovalState,
    over: bool,
    note: Option<&str>,
    reworded: Option<&str>,
) -> (&'static str, Option<GateDecisionView>) {
    let ruled = |code: &str| {
        Some(GateDecisionView {
            code: code.into(),
            note: note.map(str::to_owned),
            r#override: reworded.map(str::to_owned),
        })
    };
    match state {
        ApprovalState::Pending { .. } if over => ("expired", None),
        ApprovalState::Pending { .. } => ("pending", None),
        ApprovalState::Approved { answer, .. } | ApprovalState::Consumed { answer, .. } => {
            ("approved", ruled(answer.code()))
        }
        ApprovalState::Superseded { .. } => ("approved", ruled("5")),
        ApprovalState::Denied { .. } => ("denied", ruled("3")),
        ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => ("expired", None),
    }
}

fn receipt_view(filed: &FiledClientRequest, now: UtcMillis) -> GateReceiptView {
    let FiledClientRequest { approval, rule, reworded, .. } = filed;
    let over = approval.is_over(now);
    let (status, decision) = status_of(&approval.state, over, approval.note.as_deref(), reworded.as_deref());
    GateReceiptView {
        approval_id: approval.id.to_string(),
        status: status.into(),
        auto: is_auto(&approval.state),
        expires_at: (status == "pending").then(|| seconds(filed.expires_at)),
        decision,
        rule_id: rule.map(|rule| rule.to_string()),
    }
}

/// Whether a standing approval answered, rather than a person.
fn is_auto(state: &ApprovalState) -> bool {
    matches!(state, ApprovalState::Approved { by: Actor::Node(_), .. })
}

fn seconds(at: UtcMillis) -> i64 {
    at.as_millis().div_euclid(1000)
}

/// `GET /v1/approvals/{approval_id}`, for the client that asked.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let missing = || CallError::with_text(Code::ApprovalNotFound, "approval not found");
    // For a client, an id in a wrong form is an unknown id.
    let id: ApprovalId = visit.path_param("approval_id").map_err(|_| missing())?;
    own_question(&visit, id).await?.ok_or_else(missing)?;
    wait(&visit, id).await?;
    let seen = own_question(&visit, id).await?.ok_or_else(missing)?;
    Ok(HttpReply::json(200, &seen))
}

async fn own_question(visit: &RoutedRequest, id: ApprovalId) -> Result<Option<GateRequestView>, CallError> {
    let (gw, store, principal) = (&visit.gw, &visit.store, visit.principal()?);
    if let Some(filed) = store.client_request(id).await? {
        let own = filed.request.client == principal.client_id();
        let view = own.then(|| request_view(&filed, gw.now()));
        return Ok(match view {
            Some(view) => Some(freezing::unless_frozen(store, &filed.approval, view).await?),
            None => None,
        });
    }
    // An approval of the agent's own call also belongs to it.
    let card = store.approval(id).await?;
    let own = card.filter(|card| principal.agent() == Some(&card.approval.agent));
    let Some(card) = own else { return Ok(None) };
    let view = {
        let over = card.approval.is_over(gw.now());
        let (status, decision) = status_of(&card.approval.state, over, card.approval.note.as_deref(), None);
        let expires_at = match card.approval.state {
            ApprovalState::Pending { expires_at } => Some(seconds(expires_at)),
            _ => None,
        };
        let approval_id = card.approval.id.to_string();
        GateRequestView {
            status: status.into(),
            expires_at,
            decision,
            session_id: None,
            action_type: None,
            approval_id,
            answer: None,
            frozen: None,
            title: None,
        }
    };
    freezing::unless_frozen(store, &card.approval, view).await.map(Some)
}

fn request_view(filed: &FiledClientRequest, now: UtcMillis) -> GateRequestView {
    let FiledClientRequest { approval, request, reworded, .. } = filed;
    let over = approval.is_over(now);
    let (status, decision) = status_of(&approval.state, over, approval.note.as_deref(), reworded.as_deref());
    let decided = decision.is_some();
    let chosen = decision.as_ref().and_then(|ruled| ruled.note.as_deref()).map(|note| chosen(&request.options, note));
    GateRequestView {
        status: status.into(),
        expires_at: Some(seconds(filed.expires_at)),
        session_id: decided.then(|| request.session.clone()),
        action_type: decided.then(|| request.action_type.clone()),
        approval_id: approval.id.to_string(),
        answer: chosen.filter(|_| !request.options.is_empty()),
        decision,
        frozen: None,
        title: None,
    }
}

/// The view in a list, where requests must be told apart before they are decided.
async fn in_a_list(store: &Store, filed: &FiledClientRequest, now: UtcMillis) -> Result<GateRequestView, CallError> {
    let ClientApprovalRequest { session, action_type, title, .. } = &filed.request;
    Ok(GateRequestView {
        session_id: Some(session.clone()),
        action_type: Some(action_type.clone()),
        title: Some(title.clone()),
        ..freezing::unless_frozen(store, &filed.approval, request_view(filed, now)).await?
    })
}

/// The option of a letter; a free answer as it is.
fn chosen(options: &[String], note: &str) -> String {
    let letters = ('A'..='Z').map(|letter| letter.to_string());
    let mut pairs = letters.zip(options);
    pairs.find(|(letter, _)| letter == note).map_or_else(|| note.to_owned(), |(_, option)| option.clone())
}

/// The request of a client, for operators.
pub(super) fn request_json(filed: &FiledClientRequest) -> Value {
    let ClientApprovalRequest { client, session, action_type, title, preview, options, channel, place } =
        &filed.request;
    json!({
        "client_id": client, "session_id": session, "action_type": action_type, "title": title, "preview": preview,
        "options": options, "channel": channel, "target": place, "override": filed.reworded,
        "allow_rule_applied": filed.rule, "digest": filed.request.digest(&filed.approval.agent).to_string(),
    })
}

/// `GET /v1/approvals`, for the client that asked.
pub(super) async fn own(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let after: Option<ApprovalId> = visit.query_param("cursor")?;
    let (client, now) = (visit.principal()?.client_id(), visit.gw.now());
    let found = visit.store.requests_page(client, state(&visit)?, after, limit + 1).await?;
    let mut views = Vec::with_capacity(found.len());
    for filed in &found {
        views.push(in_a_list(&visit.store, filed, now).await?);
    }
    Ok(HttpReply::json(200, &ListPage::of(views, limit, |view: &GateRequestView| view.approval_id.clone())))
}

/// Waits for a decision as long as requested.
pub(super) async fn wait(visit: &RoutedRequest, id: ApprovalId) -> Result<(), CallError> {
    let (gw, wait) = (&visit.gw, visit.wait()?);
    if wait == Millis::ZERO {
        return Ok(());
    }
    let end = gw.clock.since_boot() + wait;
    let waiter = gw.questions.on(id);
    loop {
        let woken = waiter.woken();
        let card = visit.store.approval(id).await?.ok_or_else(|| CallError::new(Code::ApprovalNotFound))?;
        let left = Millis::from_millis(end.as_millis().saturating_sub(gw.clock.since_boot().as_millis()));
        let kept_back = freezing::keeps_back(&visit.store, &card.approval).await;
        let decided = !card.approval.state.is_open() && !kept_back;
        if decided || card.approval.is_over(gw.now()) || left == Millis::ZERO {
            return Ok(());
        }
        // Another node may decide it without waking us.
        let nap = left.min(Millis::from_millis(500));
        let _either = tokio::time::timeout(nap.as_duration(), woken).await;
    }
}

/// `POST /v1/inbox/email-reply`.
pub(super) async fn reply(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let body: MailReplyBody = visit.parse_body()?;
    let gw = std::sync::Arc::clone(&visit.gw);
    visit.principal()?.inbox().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?;
    if body.body.len() > LONGEST_REPLY {
        return Err(CallError::new(Code::DoorTooLarge));
    }
    let id = inbox::only_id(body.subject.as_deref().unwrap_or_default(), &body.body)?;
    let question = mailed(&gw, ApprovalRequest::read(&gw, id).await?).await?;
    let inbox::ReplyAuthor { by, letter, place } = inbox::speaker(&gw, &question, &body).await?;
    if question.card.approval.is_over(gw.now()) {
        return Err(CallError::with_text(Code::ApprovalTooLate, "approval expired"));
    }
    if !question.card.approval.state.is_open() {
        return Err(late(&question.card.approval));
    }
    let reply = WrittenReply::handed_in(&body.body, place);
    let unclear = |text: &str| CallError::with_text(Code::ApprovalUnclearReply, text);
    let meaning = match replies::understand(&gw, &question, letter.as_ref(), &reply).await? {
        ReplyOutcome::Meant(meaning) => meaning,
        ReplyOutcome::ToConfirm => {
            return Err(unclear(
                "nothing was decided: a part of the reply is not certain to be the answer; what was understood is \
                 sent to its sender, who can confirm it",
            ));
        }
        ReplyOutcome::Tell(text) => return Err(unclear(&text)),
        ReplyOutcome::Unclear(why) => return Err(unclear(&standing::repeat(&question, why))),
    };
    let voice = DecisionSource { by, channel: rendering::INBOX, ceiling: Some(gw.config.approvals.email_ceiling) };
    match deciding::decide(&gw, &voice, &question, meaning).await? {
        AnswerOutcome::Decided { approval, .. } => {
            let (status, _) = status_of(&approval.state, false, None, None);
            Ok(HttpReply::json(200, &json!({"status": status, "approval_id": approval.id})))
        }
        AnswerOutcome::Waiting { .. } => Ok(HttpReply::json(200, &json!({"status": "pending", "approval_id": id}))),
        AnswerOutcome::Frozen(scope) => {
            Ok(HttpReply::json(200, &json!({"status": "pending", "approval_id": id, "frozen": scope})))
        }
        AnswerOutcome::Late(approval) => Err(late(&approval)),
    }
}

/// The approval as its e-mails showed it. A reply that is handed in names no message: the most complete one counts.
async fn mailed(gw: &Gateway, mut question: ApprovalRequest) -> Result<ApprovalRequest, CallError> {
    let sent = gw.store.deliveries(question.card.approval.id).await?;
    let mut letters = sent.iter().filter(|letter| letter.channel == email::NAME).peekable();
    // A batch that was never sent by e-mail was shown to nobody here.
    if letters.peek().is_some() || question.card.approval.subject == ApprovalSubject::Batch {
        question.shown = Some(letters.map(|letter| letter.covers(&question.card.items)).max().unwrap_or(0));
    }
    Ok(question)
}

fn late(approval: &sluice_core::approval::Approval) -> CallError {
    match approval.state {
        ApprovalState::Expired { .. } => CallError::with_text(Code::ApprovalTooLate, "approval expired"),
        _ => {
            let text = format!("approval not pending: {}", deciding::describe_approval(approval));
            CallError { other: Some(approval.id.to_string()), ..CallError::with_text(Code::ApprovalNotPending, &text) }
        }
    }
}

/// `GET /v1/allow-rules`.
pub(super) async fn rules(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    listed(&visit, |allowance| matches!(allowance.scope, AllowanceScope::Standing { .. })).await
}

/// `GET /v1/session-allows`.
pub(super) async fn session_allows(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    listed(&visit, |allowance| matches!(allowance.scope, AllowanceScope::Session { .. })).await
}

async fn listed(visit: &RoutedRequest, wanted: impl Fn(&Allowance) -> bool) -> Result<HttpReply, CallError> {
    let store = &visit.gw.store;
    let principal = visit.principal()?;
    let found = match principal.agent() {
        Some(_) => store.allowances_of(ApprovalRequester::Client(principal.client_id())).await?,
        None => store.allowances(visit.limit()?).await?,
    };
    let data: Vec<Value> = found.iter().filter(|allowance| wanted(allowance)).map(allowance_json).collect();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/allow-rules`.
pub(super) async fn make_rule(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let body: NewAllowRuleBody = visit.parse_body()?;
    let hex =
        body.client_id.len() == 12 && body.client_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !hex || body.action_type.trim().is_empty() || body.action_type.chars().count() > 128 {
        return Err(CallError::with_text(
            Code::SchemaWrongType,
            "client_id has 12 hex digits and action_type 1 to 128 characters",
        ));
    }
    let gw = &visit.gw;
    let now = gw.now();
    let allowance = Allowance {
        id: AllowanceId::mint(gw.ids.as_ref()),
        scope: AllowanceScope::Standing { rule: RuleId::mint(gw.ids.as_ref()) },
        asker: ApprovalRequester::Client(body.client_id),
        covers: AllowanceCoverage::ActionType(body.action_type),
        bounds: AllowanceBounds {
            expires_at: body.expires_in_sec.map(|s| now + Millis::from_secs(s)),
            ..AllowanceBounds::default()
        },
        given_at: now,
        used: AllowanceUsage::default(),
        standing: AllowanceState::Active,
    };
    gw.store.grant(allowance.clone(), visit.actor()?).await?;
    gw.signals.events.notify_written();
    Ok(HttpReply::json(201, &allowance_json(&allowance)))
}

/// `DELETE /v1/allow-rules/{rule_id}`.
pub(super) async fn revoke_rule(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let missing = || CallError::with_text(Code::StoreNotFound, "rule not found");
    let rule: RuleId = visit.path_param("rule_id").map_err(|_| missing())?;
    let principal = visit.principal()?;
    let asker = principal.agent().map(|_| ApprovalRequester::Client(principal.client_id()));
    let revoked = visit.gw.store.revoke_rule(rule, asker, visit.actor()?).await.map_err(|error| match error {
        sluice_store::StoreError::NotFound { .. } => missing(),
        other => other.into(),
    })?;
    visit.gw.signals.events.notify_written();
    let (client, action_type) = match (&revoked.asker, &revoked.covers) {
        (ApprovalRequester::Client(id), AllowanceCoverage::ActionType(kind)) => (id.clone(), kind.clone()),
        (ApprovalRequester::Agent(name), AllowanceCoverage::Capability(covers) | AllowanceCoverage::Below(covers)) => {
            (name.to_string(), covers.to_string())
        }
        (ApprovalRequester::Client(id), AllowanceCoverage::Capability(covers) | AllowanceCoverage::Below(covers)) => {
            (id.clone(), covers.to_string())
        }
        (ApprovalRequester::Agent(name), AllowanceCoverage::ActionType(kind)) => (name.to_string(), kind.clone()),
    };
    let shown = json!({"rule_id": rule, "status": "revoked", "client_id": client, "action_type": action_type});
    Ok(HttpReply::json(200, &shown))
}

/// `GET /v1/approvals/stats`.
pub(super) async fn stats(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let habits = gw.store.decision_habits(gw.now() - Millis::from_hours(7 * 24), 10_000).await?;
    let open = gw.store.open_approvals(500).await?.len();
    let people: Vec<Value> = habits
        .iter()
        .map(|habit| {
            let all = habit.approved + habit.denied;
            let rate = if all == 0 { 0.0 } else { f64::from(habit.approved) / f64::from(all) };
            // Twenty approvals with a median below two seconds are not read before they are given.
            let hasty = habit.approved >= 20 && habit.median < Millis::from_secs(2);
            json!({
                "by": habit.by, "approved": habit.approved, "denied": habit.denied,
                "approval_rate": (rate * 1000.0).round() / 1000.0, "median_ms": habit.median.as_millis(), "hasty": hasty,
            })
        })
        .collect();
    Ok(HttpReply::json(200, &json!({"window_hours": 168, "open": open, "people": people})))
}
