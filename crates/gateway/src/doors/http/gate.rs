//! The approval API for clients that act by themselves: ask, look, and hand in replies of people.
//!
//! Takes and gives the bodies of the approval gate that existing clients speak: epoch seconds, absent members as
//! null. Promise: a client sees its own requests and no other's; only an inbox key hands in a reply; GET never
//! decides.

mod freezing;
mod places;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::approval::allowance::{Allowance, Asker, Bounds, Covers, Scope, Standing, Used};
use sluice_core::approval::{ApprovalState, Subject, voice};
use sluice_core::ids::{AllowanceId, MessageId, RuleId};
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, ServiceName, Span, Timestamp};
use sluice_store::{Filed, NewRequest, Received, Request, Store};

use super::approvals::{allowance_json, state};
use super::inbox;
use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::channels::{email, shown};
use crate::gate::deciding::{self, Heard, Question, Voice};
use crate::gate::replies::{self, Reading, Written};
use crate::gate::standing;
use crate::{Gateway, No};

/// What freezes know requests under.
const SERVICE: &str = "approvals";
/// Longest texts of a request, in characters.
const LONGEST: [(&str, usize); 4] = [("session_id", 256), ("action_type", 128), ("title", 500), ("preview", 65_536)];
/// Longest choice, in characters.
const LONGEST_OPTION: usize = 200;
/// Longest a question of a client may stay open.
const LONGEST_EXPIRY: u64 = 24 * 3600;
/// Longest reply that is read.
const LONGEST_REPLY: usize = 256 * 1024;

/// What a client wants to do by itself. Other members are ignored, as existing clients expect.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Ask {
    /// The client's name for its run or session.
    pub session_id: String,
    /// The kind of action: `exec_cmd`, `http_request`, `write_file`, `send_message`, `custom:<tool>`.
    pub action_type: String,
    /// A short title.
    pub title: String,
    /// What exactly.
    pub preview: String,
    /// `telegram` or `email`; whoever is configured if left out.
    #[serde(default)]
    pub channel: Option<String>,
    /// Whom: needs the operator's leave.
    #[serde(default, deserialize_with = "super::body::object")]
    #[schemars(with = "Option<Target>")]
    pub target: Option<Target>,
    /// Seconds until silence is a no.
    #[serde(default)]
    pub expires_in_sec: Option<u64>,
    /// What can be answered, for a question with a choice.
    #[serde(default)]
    pub options: Option<Vec<String>>,
}

/// A chat or an address.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Target {
    /// Number of a chat.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub tg_chat_id: Option<Value>,
    /// An address.
    #[serde(default)]
    pub email_to: Option<String>,
}

/// What a person decided.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ruled {
    /// The menu's number.
    pub code: String,
    /// What they wrote along; the letter of a choice.
    pub note: Option<String>,
    /// What they want instead, as they wrote it.
    pub r#override: Option<String>,
}

/// How a request was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AskedView {
    /// The question.
    pub approval_id: String,
    /// `pending`, `approved`, `denied` or `expired`.
    pub status: String,
    /// Whether a standing yes answered.
    pub auto: bool,
    /// When silence becomes a no, in seconds since 1970.
    pub expires_at: Option<i64>,
    /// The answer.
    pub decision: Option<Ruled>,
    /// The allow rule that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_id: Option<String>,
}

/// How a request stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Seen {
    /// `pending`, `approved`, `denied` or `expired`.
    pub status: String,
    /// When silence becomes a no, in seconds since 1970.
    pub expires_at: Option<i64>,
    /// The answer.
    pub decision: Option<Ruled>,
    /// The client's name for its session, once decided.
    pub session_id: Option<String>,
    /// The kind of action, once decided.
    pub action_type: Option<String>,
    /// The question.
    pub approval_id: String,
    /// The chosen option, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The freeze in force, where it keeps an approval from being given: it stays `pending` until that is lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// What it is about, in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A reply of a person, as a forwarding service hands it in. It decides with the token of the letter it answers, in subject
/// or text; without one only if `inbox.trust_sender` is set and `from` is a person who was asked.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct MailReply {
    /// Who wrote it, as the forwarding service has authenticated them.
    #[serde(default)]
    pub from: Option<String>,
    /// The subject.
    #[serde(default)]
    pub subject: Option<String>,
    /// The text.
    pub body: String,
}

/// A standing yes an operator gives by itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    /// Which client, by the label of its key.
    pub client_id: String,
    /// For which kind of action.
    pub action_type: String,
    /// For how long; until revoked if left out.
    #[serde(default)]
    pub expires_in_sec: Option<u64>,
}

/// `POST /v1/approvals`.
pub(super) async fn ask(mut visit: Visit) -> Result<Reply, No> {
    let body: Ask = visit.take()?;
    let gw = std::sync::Arc::clone(&visit.gw);
    gw.takes_calls()?;
    let visitor = visit.visitor()?;
    let agent = visitor.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?.clone();
    if gw.keyring.is_paused(&agent) {
        return Err(No::new(Code::IdentityPaused));
    }
    let client = visitor.client_id();
    let expiry = expiry(&gw, body.expires_in_sec)?;
    let request = checked(&gw, client, body)?;
    let name = visit.idempotency_key.take();
    if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 255) {
        return Err(No::saying(Code::SchemaBadName, "an idempotency key has 1 to 255 bytes"));
    }
    let new = NewRequest {
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
        agent,
        service: ServiceName::new(SERVICE).map_err(|_| No::new(Code::GatewayInternal))?,
        request,
        name,
        expiry,
    };
    let (filed, again) = match gw.store.request(new).await? {
        Received::Asked(filed) => {
            gw.asked(filed.approval.id);
            (filed, false)
        }
        Received::Answered(filed) => {
            gw.events.wrote();
            (filed, false)
        }
        Received::Again(filed) => (filed, true),
    };
    let reply = Reply::json(200, &taken(&filed, gw.now()));
    Ok(if again { reply.again() } else { reply })
}

fn expiry(gw: &Gateway, seconds: Option<u64>) -> Result<Span, No> {
    match seconds {
        None => Ok(gw.config.approvals.expiry),
        Some(seconds @ 1..=LONGEST_EXPIRY) => Ok(Span::from_secs(seconds)),
        Some(_) => Err(No::saying(Code::SchemaWrongType, "expires_in_sec is between 1 and 86400")),
    }
}

/// The request, if every part of it can be asked.
fn checked(gw: &Gateway, client: String, body: Ask) -> Result<Request, No> {
    let wrong = |text: &str| No::saying(Code::SchemaWrongType, text);
    let texts = [&body.session_id, &body.action_type, &body.title, &body.preview];
    for ((name, most), text) in LONGEST.into_iter().zip(texts) {
        let empty = text.trim().is_empty() && name != "preview";
        if empty || text.chars().count() > most {
            return Err(wrong(&format!("{name} has 1 to {most} characters")));
        }
    }
    let options = body.options.unwrap_or_default();
    if options.len() > voice::MOST_CHOICES
        || options.iter().any(|option| option.trim().is_empty() || option.chars().count() > LONGEST_OPTION)
    {
        return Err(wrong("options are at most 26 texts of 1 to 200 characters"));
    }
    let target = body.target.unwrap_or(Target { tg_chat_id: None, email_to: None });
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
        return Err(No::new(Code::ApprovalTarget));
    }
    let Ask { session_id: session, action_type, title, preview, channel, .. } = body;
    Ok(Request { client, session, action_type, title, preview, options, channel, place })
}

/// The answer of the approval API to a question's state.
fn status_of(
    state: &ApprovalState,
    over: bool,
    note: Option<&str>,
    reworded: Option<&str>,
) -> (&'static str, Option<Ruled>) {
    let ruled = |code: &str| {
        Some(Ruled { code: code.into(), note: note.map(str::to_owned), r#override: reworded.map(str::to_owned) })
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

fn taken(filed: &Filed, now: Timestamp) -> AskedView {
    let Filed { approval, rule, reworded, .. } = filed;
    let over = approval.is_over(now);
    let (status, decision) = status_of(&approval.state, over, approval.note.as_deref(), reworded.as_deref());
    AskedView {
        approval_id: approval.id.to_string(),
        status: status.into(),
        auto: is_auto(&approval.state),
        expires_at: (status == "pending").then(|| seconds(filed.expires_at)),
        decision,
        rule_id: rule.map(|rule| rule.to_string()),
    }
}

/// Whether a standing yes answered, rather than a person.
fn is_auto(state: &ApprovalState) -> bool {
    matches!(state, ApprovalState::Approved { by: Actor::Node(_), .. })
}

fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1000)
}

/// `GET /v1/approvals/{approval_id}`, for the client that asked.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let missing = || No::saying(Code::ApprovalNotFound, "approval not found");
    // To a client, an id in a strange form is an id of nothing.
    let id: ApprovalId = visit.part("approval_id").map_err(|_| missing())?;
    own_question(&visit, id).await?.ok_or_else(missing)?;
    wait(&visit, id).await?;
    let seen = own_question(&visit, id).await?.ok_or_else(missing)?;
    Ok(Reply::json(200, &seen))
}

async fn own_question(visit: &Visit, id: ApprovalId) -> Result<Option<Seen>, No> {
    let (gw, store, visitor) = (&visit.gw, &visit.store, visit.visitor()?);
    if let Some(filed) = store.requested(id).await? {
        let own = filed.request.client == visitor.client_id();
        let view = own.then(|| seen(&filed, gw.now()));
        return Ok(match view {
            Some(view) => Some(freezing::unless_frozen(store, &filed.approval, view).await?),
            None => None,
        });
    }
    // A question about the agent's own call is its own too.
    let card = store.approval(id).await?;
    let own = card.filter(|card| visitor.agent() == Some(&card.approval.agent));
    let Some(card) = own else { return Ok(None) };
    let view = {
        let over = card.approval.is_over(gw.now());
        let (status, decision) = status_of(&card.approval.state, over, card.approval.note.as_deref(), None);
        let expires_at = match card.approval.state {
            ApprovalState::Pending { expires_at } => Some(seconds(expires_at)),
            _ => None,
        };
        let approval_id = card.approval.id.to_string();
        Seen {
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

fn seen(filed: &Filed, now: Timestamp) -> Seen {
    let Filed { approval, request, reworded, .. } = filed;
    let over = approval.is_over(now);
    let (status, decision) = status_of(&approval.state, over, approval.note.as_deref(), reworded.as_deref());
    let decided = decision.is_some();
    let chosen = decision.as_ref().and_then(|ruled| ruled.note.as_deref()).map(|note| chosen(&request.options, note));
    Seen {
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

/// The same in a list, where one has to be told from the other before it is decided.
async fn in_a_list(store: &Store, filed: &Filed, now: Timestamp) -> Result<Seen, No> {
    let Request { session, action_type, title, .. } = &filed.request;
    Ok(Seen {
        session_id: Some(session.clone()),
        action_type: Some(action_type.clone()),
        title: Some(title.clone()),
        ..freezing::unless_frozen(store, &filed.approval, seen(filed, now)).await?
    })
}

/// The option behind a letter; words of one's own as they are.
fn chosen(options: &[String], note: &str) -> String {
    let letters = ('A'..='Z').map(|letter| letter.to_string());
    let mut pairs = letters.zip(options);
    pairs.find(|(letter, _)| letter == note).map_or_else(|| note.to_owned(), |(_, option)| option.clone())
}

/// What a client asked, for operators.
pub(super) fn wish(filed: &Filed) -> Value {
    let Request { client, session, action_type, title, preview, options, channel, place } = &filed.request;
    json!({
        "client_id": client, "session_id": session, "action_type": action_type, "title": title, "preview": preview,
        "options": options, "channel": channel, "target": place, "override": filed.reworded,
        "allow_rule_applied": filed.rule, "digest": filed.request.digest(&filed.approval.agent).to_string(),
    })
}

/// `GET /v1/approvals`, for the client that asked.
pub(super) async fn own(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let after: Option<ApprovalId> = visit.asked("cursor")?;
    let (client, now) = (visit.visitor()?.client_id(), visit.gw.now());
    let found = visit.store.requests_page(client, state(&visit)?, after, limit + 1).await?;
    let mut views = Vec::with_capacity(found.len());
    for filed in &found {
        views.push(in_a_list(&visit.store, filed, now).await?);
    }
    Ok(Reply::json(200, &Page::of(views, limit, |view: &Seen| view.approval_id.clone())))
}

/// Waits for an answer as long as asked.
pub(super) async fn wait(visit: &Visit, id: ApprovalId) -> Result<(), No> {
    let (gw, wait) = (&visit.gw, visit.wait()?);
    if wait == Span::ZERO {
        return Ok(());
    }
    let end = gw.clock.since_boot() + wait;
    let waiter = gw.questions.on(id);
    loop {
        let woken = waiter.woken();
        let card = visit.store.approval(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))?;
        let left = Span::from_millis(end.as_millis().saturating_sub(gw.clock.since_boot().as_millis()));
        let kept_back = freezing::keeps_back(&visit.store, &card.approval).await;
        let decided = !card.approval.state.is_open() && !kept_back;
        if decided || card.approval.is_over(gw.now()) || left == Span::ZERO {
            return Ok(());
        }
        // Another node may decide it without waking us.
        let nap = left.min(Span::from_millis(500));
        let _either = tokio::time::timeout(nap.as_duration(), woken).await;
    }
}

/// `POST /v1/inbox/email-reply`.
pub(super) async fn reply(mut visit: Visit) -> Result<Reply, No> {
    let body: MailReply = visit.take()?;
    let gw = std::sync::Arc::clone(&visit.gw);
    visit.visitor()?.inbox().ok_or_else(|| No::new(Code::IdentityWrongKind))?;
    if body.body.len() > LONGEST_REPLY {
        return Err(No::new(Code::DoorTooLarge));
    }
    let id = inbox::only_id(body.subject.as_deref().unwrap_or_default(), &body.body)?;
    let question = mailed(&gw, Question::read(&gw, id).await?).await?;
    let inbox::Speaker { by, letter, place } = inbox::speaker(&gw, &question, &body).await?;
    if question.card.approval.is_over(gw.now()) {
        return Err(No::saying(Code::ApprovalTooLate, "approval expired"));
    }
    if !question.card.approval.state.is_open() {
        return Err(late(&question.card.approval));
    }
    let reply = Written::handed_in(&body.body, place);
    let unclear = |text: &str| No::saying(Code::ApprovalUnclearReply, text);
    let meaning = match replies::understand(&gw, &question, letter.as_ref(), &reply).await? {
        Reading::Meant(meaning) => meaning,
        Reading::ToConfirm => {
            return Err(unclear(
                "nothing was decided: not all of the reply is certain to be the answer; what was understood goes to its \
                 sender, who can confirm it",
            ));
        }
        Reading::Tell(text) => return Err(unclear(&text)),
        Reading::Unclear(why) => return Err(unclear(&standing::repeat(&question, why))),
    };
    let voice = Voice { by, channel: shown::INBOX, ceiling: Some(gw.config.approvals.email_ceiling) };
    match deciding::decide(&gw, &voice, &question, meaning).await? {
        Heard::Decided { approval, .. } => {
            let (status, _) = status_of(&approval.state, false, None, None);
            Ok(Reply::json(200, &json!({"status": status, "approval_id": approval.id})))
        }
        Heard::Waiting { .. } => Ok(Reply::json(200, &json!({"status": "pending", "approval_id": id}))),
        Heard::Frozen(scope) => Ok(Reply::json(200, &json!({"status": "pending", "approval_id": id, "frozen": scope}))),
        Heard::Late(approval) => Err(late(&approval)),
    }
}

/// The question as its letters by mail showed it. A reply that is handed in names no letter: the fullest one counts.
async fn mailed(gw: &Gateway, mut question: Question) -> Result<Question, No> {
    let sent = gw.store.deliveries(question.card.approval.id).await?;
    let mut letters = sent.iter().filter(|letter| letter.channel == email::NAME).peekable();
    // A card of many writes that was never mailed was shown to nobody here.
    if letters.peek().is_some() || question.card.approval.subject == Subject::Batch {
        question.shown = Some(letters.map(|letter| letter.covers(&question.card.items)).max().unwrap_or(0));
    }
    Ok(question)
}

fn late(approval: &sluice_core::approval::Approval) -> No {
    match approval.state {
        ApprovalState::Expired { .. } => No::saying(Code::ApprovalTooLate, "approval expired"),
        _ => {
            let text = format!("approval not pending: {}", deciding::told(approval));
            No { other: Some(approval.id.to_string()), ..No::saying(Code::ApprovalNotPending, &text) }
        }
    }
}

/// `GET /v1/allow-rules`.
pub(super) async fn rules(visit: Visit) -> Result<Reply, No> {
    listed(&visit, |allowance| matches!(allowance.scope, Scope::Standing { .. })).await
}

/// `GET /v1/session-allows`.
pub(super) async fn session_allows(visit: Visit) -> Result<Reply, No> {
    listed(&visit, |allowance| matches!(allowance.scope, Scope::Session { .. })).await
}

async fn listed(visit: &Visit, wanted: impl Fn(&Allowance) -> bool) -> Result<Reply, No> {
    let store = &visit.gw.store;
    let visitor = visit.visitor()?;
    let found = match visitor.agent() {
        Some(_) => store.allowances_of(Asker::Client(visitor.client_id())).await?,
        None => store.allowances(visit.limit()?).await?,
    };
    let data: Vec<Value> = found.iter().filter(|allowance| wanted(allowance)).map(allowance_json).collect();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/allow-rules`.
pub(super) async fn make_rule(mut visit: Visit) -> Result<Reply, No> {
    let body: NewRule = visit.take()?;
    let hex =
        body.client_id.len() == 12 && body.client_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !hex || body.action_type.trim().is_empty() || body.action_type.chars().count() > 128 {
        return Err(No::saying(
            Code::SchemaWrongType,
            "client_id has 12 hex digits and action_type 1 to 128 characters",
        ));
    }
    let gw = &visit.gw;
    let now = gw.now();
    let allowance = Allowance {
        id: AllowanceId::mint(gw.ids.as_ref()),
        scope: Scope::Standing { rule: RuleId::mint(gw.ids.as_ref()) },
        asker: Asker::Client(body.client_id),
        covers: Covers::ActionType(body.action_type),
        bounds: Bounds { expires_at: body.expires_in_sec.map(|s| now + Span::from_secs(s)), ..Bounds::default() },
        given_at: now,
        used: Used::default(),
        standing: Standing::Active,
    };
    gw.store.grant(allowance.clone(), visit.actor()?).await?;
    gw.events.wrote();
    Ok(Reply::json(201, &allowance_json(&allowance)))
}

/// `DELETE /v1/allow-rules/{rule_id}`.
pub(super) async fn revoke_rule(visit: Visit) -> Result<Reply, No> {
    let missing = || No::saying(Code::StoreNotFound, "rule not found");
    let rule: RuleId = visit.part("rule_id").map_err(|_| missing())?;
    let visitor = visit.visitor()?;
    let asker = visitor.agent().map(|_| Asker::Client(visitor.client_id()));
    let revoked = visit.gw.store.revoke_rule(rule, asker, visit.actor()?).await.map_err(|error| match error {
        sluice_store::StoreError::NotFound { .. } => missing(),
        other => other.into(),
    })?;
    visit.gw.events.wrote();
    let (client, action_type) = match (&revoked.asker, &revoked.covers) {
        (Asker::Client(id), Covers::ActionType(kind)) => (id.clone(), kind.clone()),
        (Asker::Agent(name), Covers::Capability(covers) | Covers::Below(covers)) => {
            (name.to_string(), covers.to_string())
        }
        (Asker::Client(id), Covers::Capability(covers) | Covers::Below(covers)) => (id.clone(), covers.to_string()),
        (Asker::Agent(name), Covers::ActionType(kind)) => (name.to_string(), kind.clone()),
    };
    Ok(Reply::json(
        200,
        &json!({"rule_id": rule, "status": "revoked", "client_id": client, "action_type": action_type}),
    ))
}

/// `GET /v1/approvals/stats`.
pub(super) async fn stats(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let habits = gw.store.habits(gw.now() - Span::from_hours(7 * 24), 10_000).await?;
    let open = gw.store.open_approvals(500).await?.len();
    let people: Vec<Value> = habits
        .iter()
        .map(|habit| {
            let all = habit.approved + habit.denied;
            let rate = if all == 0 { 0.0 } else { f64::from(habit.approved) / f64::from(all) };
            // ux: twenty yeses in under two seconds each are not read.
            let hasty = habit.approved >= 20 && habit.median < Span::from_secs(2);
            json!({
                "by": habit.by, "approved": habit.approved, "denied": habit.denied,
                "approval_rate": (rate * 1000.0).round() / 1000.0, "median_ms": habit.median.as_millis(), "hasty": hasty,
            })
        })
        .collect();
    Ok(Reply::json(200, &json!({"window_hours": 168, "open": open, "people": people})))
}
