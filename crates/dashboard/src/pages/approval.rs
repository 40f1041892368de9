//! The card of one approval: what, to whom, why, exactly what is approved, and the answers a person can give.
//!
//! Promise: the card is the text that every channel renders, laid out; a person who was not shown all of it is offered
//! only the denial.

use askama::Template;
use sluice_core::approval::card::escape_invisible;
use sluice_core::approval::{ApprovalState, ApprovalSubject, card_digest};
use sluice_core::policy::TargetOrigin;
use sluice_core::policy::reading::is_unsafe;
use sluice_core::{ApprovalId, HoldId};
use sluice_gateway::Gateway;
use sluice_gateway::gate::deciding::{self, ApprovalRequest};
use sluice_gateway::gate::rendering::{self, RenderedApproval};
use sluice_gateway::gate::standing::StandingOfferView;
use sluice_services::CallError;
use sluice_store::ApprovalFilter;

use super::PageContent;
use super::approval_form::RiskChallenge;
use super::approvals::colour;
use super::batch::BatchTable;
use super::layout::{StampView, region};
use super::write_row::WriteRow;
use crate::card_lines::CardText;
use crate::context::PageContext;

/// Approvals of the agent that its history counts.
const HISTORY: u32 = 100;
/// Writes of a decided card whose state is shown.
const SHOWN: usize = 20;

/// A target with its origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TargetLine {
    /// Unknown targets come first.
    rank: u8,
    pub(super) argument: String,
    pub(super) value: String,
    pub(super) word: &'static str,
    pub(super) class: &'static str,
    pub(super) source: String,
}

#[derive(Template)]
#[template(path = "approval_head.html")]
struct HeadTemplate<'a> {
    agent: &'a str,
    service: &'a str,
    title: &'a str,
    risk: &'static str,
    items: u32,
    is_request: bool,
    asked: StampView,
    expires: Option<StampView>,
    outcome: Option<String>,
    class: &'static str,
    note: Option<String>,
    /// Writes that can still be stopped after an approval.
    writes: Vec<WriteRow>,
    csrf: &'a str,
    can_act: bool,
    back: String,
    two_people: bool,
}

#[derive(Template)]
#[template(path = "approval_body.html")]
struct BodyTemplate<'a> {
    card: &'a CardText,
    kind: &'static str,
    targets: &'a [TargetLine],
    batch: Option<&'a BatchTable>,
    withheld: bool,
    whole: bool,
    afterwards: String,
    history: &'a str,
    raw: &'a str,
    id: String,
    digest: String,
    session: String,
}

#[derive(Template)]
#[template(path = "approval_answers.html")]
struct AnswersTemplate<'a> {
    id: String,
    csrf: &'a str,
    can_act: bool,
    role: &'static str,
    allowed: bool,
    items: u32,
    is_batch: bool,
    batch: Option<&'a BatchTable>,
    options: &'a [String],
    digest: String,
    standing: Vec<StandingOfferView>,
    challenge: Option<RiskChallenge>,
    arguments: String,
    typed_note: String,
    typed_reason: String,
    can_change: bool,
}

/// The digest of everything a card shows: the writes, their order, and nothing else.
pub(super) fn digest_of(request: &ApprovalRequest, sight: &RenderedApproval) -> String {
    let card = card_digest(request.card.items.iter().map(|item| &item.digest));
    let text =
        sluice_core::hex::encode(&<sha2::Sha256 as sha2::Digest>::digest(format!("{}\n{}", sight.title, sight.text)));
    format!("{card}.{}", text.get(..32).unwrap_or(&text))
}

pub(super) async fn content(context: &PageContext<'_>, id: ApprovalId) -> Result<PageContent, CallError> {
    let gw = context.gw;
    let request = ApprovalRequest::read(gw, id).await?;
    let sight = rendering::of(gw, &request, rendering::PAGE);
    let card = CardText::read(&sight.text);
    let approval = &request.card.approval;
    let is_open = approval.state.is_open() && !approval.is_over(context.now());
    let batch = (approval.subject == ApprovalSubject::Batch).then(|| BatchTable::of(&request, &card));
    let mut regions = vec![region("head", &head(context, &request, &sight, is_open).await?)?];
    let targets = targets(&request);
    let history = history(gw, &request).await?;
    let (shown_targets, shown_batch) =
        if sight.withheld.is_some() { (&[][..], None) } else { (&targets[..], batch.as_ref()) };
    let body = BodyTemplate {
        card: &card,
        kind: kind(&card),
        targets: shown_targets,
        batch: shown_batch,
        withheld: sight.withheld.is_some(),
        whole: sight.whole,
        afterwards: afterwards(&request),
        history: &history,
        raw: &sight.text,
        id: id.to_string(),
        digest: request.card.items.first().map(|item| item.digest.to_string()).unwrap_or_default(),
        session: request.holds.first().and_then(|hold| hold.session).map(|id| id.to_string()).unwrap_or_default(),
    };
    regions.push(region("card", &body)?);
    if is_open {
        regions.push(region("answers", &answers(context, &request, &sight, shown_batch))?);
    }
    Ok(PageContent {
        title: format!("{} wants {}", approval.agent, sight.title),
        regions,
        command: format!("sluice approvals show {id}"),
        api: format!("GET /v1/approvals/{id}"),
        reloads: false,
    })
}

async fn head<'a>(
    context: &PageContext<'a>,
    request: &'a ApprovalRequest,
    sight: &'a RenderedApproval,
    is_open: bool,
) -> Result<HeadTemplate<'a>, CallError> {
    let approval = &request.card.approval;
    let expires = match approval.state {
        ApprovalState::Pending { expires_at } if is_open => Some(expires_at.into()),
        _ => None,
    };
    let outcome = match (is_open, approval.is_over(context.now())) {
        (true, _) => None,
        (false, true) => Some("nobody answered in time, so it was denied".to_owned()),
        (false, false) => Some(deciding::describe_approval(approval)),
    };
    let writes = if is_open { Vec::new() } else { request.holds.iter().take(SHOWN).map(WriteRow::of).collect() };
    Ok(HeadTemplate {
        agent: approval.agent.as_str(),
        service: approval.service.as_str(),
        title: &sight.title,
        risk: request.risk().as_str(),
        items: approval.items,
        is_request: request.filed.is_some(),
        asked: approval.asked_at.into(),
        expires,
        outcome,
        class: colour(&approval.state),
        note: approval.note.as_deref().map(escape_invisible),
        writes,
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
        back: format!("/ui/approvals/{}", approval.id),
        two_people: context.gw.config.approvals.two_people.at(request.risk()),
    })
}

fn answers<'a>(
    context: &PageContext<'a>,
    request: &'a ApprovalRequest,
    sight: &RenderedApproval,
    batch: Option<&'a BatchTable>,
) -> AnswersTemplate<'a> {
    let approval = &request.card.approval;
    let standing = request.offers.iter().zip(1..).map(|(offer, n)| offer.view(n)).collect();
    let own = match request.holds.as_slice() {
        [hold] if request.filed.is_none() && !sluice_services::is_elsewhere(&hold.action) => Some(hold),
        _ => None,
    };
    let typed = context.typed("arguments");
    let written = own.filter(|_| sight.allows()).map(|hold| {
        let arguments = serde_json::Value::Object(hold.action.arguments().clone());
        visible_json(&arguments)
    });
    AnswersTemplate {
        standing,
        id: approval.id.to_string(),
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
        role: context.visitor.role.as_str(),
        allowed: sight.allows(),
        items: approval.items,
        is_batch: approval.subject == ApprovalSubject::Batch,
        batch,
        options: request.filed.as_ref().map_or(&[], |filed| filed.request.options.as_slice()),
        digest: digest_of(request, sight),
        challenge: RiskChallenge::of(context.gw, request),
        can_change: written.is_some(),
        arguments: if typed.is_empty() { written.unwrap_or_default() } else { typed },
        typed_note: context.typed("note"),
        typed_reason: context.typed("reason"),
    }
}

/// JSON in which nothing is invisible: characters that hide or move text are written as escapes, which mean the same.
fn visible_json(value: &serde_json::Value) -> String {
    let mut shown = String::new();
    for c in serde_json::to_string_pretty(value).unwrap_or_default().chars() {
        if c != '\n' && is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Every target of every write, unknown ones first, each once.
fn targets(request: &ApprovalRequest) -> Vec<TargetLine> {
    let all = request.contents.iter().flat_map(|one| &one.targets);
    let lines: std::collections::BTreeSet<TargetLine> = all
        .map(|target| {
            let (rank, word, class) = match target.origin {
                TargetOrigin::New => (0, "new, met nowhere before", "bad"),
                TargetOrigin::Seen => (1, "seen in outside text", "bad"),
                TargetOrigin::Known => (2, "known", "over"),
                TargetOrigin::Asked => (3, "asked for in the task", "good"),
            };
            TargetLine {
                rank,
                argument: escape_invisible(&target.argument),
                value: if target.value.is_empty() {
                    "(cannot be read)".into()
                } else {
                    escape_invisible(&target.value)
                },
                word,
                class,
                source: target.source.as_deref().map(escape_invisible).unwrap_or_default(),
            }
        })
        .collect();
    lines.into_iter().collect()
}

/// How the content is laid out: mail looks like mail, a command like a terminal.
fn kind(card: &CardText) -> &'static str {
    let is = |start: &str| card.headline.starts_with(start);
    if card.value("command").is_some() || card.value("argv").is_some() || is("process.") {
        "terminal"
    } else if is("email.")
        || is("mail.")
        || is("gmail.")
        || (card.value("subject").is_some() && card.value("to").is_some())
    {
        "mail"
    } else if card.value("url").is_some() {
        "request"
    } else if is("filesystem.") || is("git.") || card.value("path").is_some() {
        "file"
    } else {
        "plain"
    }
}

/// What can still be done after an approval.
fn afterwards(request: &ApprovalRequest) -> String {
    if request.filed.is_some() {
        return "The agent carries this out itself: the gateway can neither hold nor undo it.".into();
    }
    match request.holds.iter().map(|hold| hold.delay).min() {
        Some(delay) if delay > sluice_core::Millis::ZERO => {
            format!("After an approval it is held for {delay}: until then it can still be cancelled.")
        }
        Some(_) | None => "It leaves as soon as it is approved.".into(),
    }
}

/// What people decided about this agent lately.
async fn history(gw: &Gateway, request: &ApprovalRequest) -> Result<String, CallError> {
    let agent = request.card.approval.agent.clone();
    let filter = ApprovalFilter { state: None, agent: Some(agent) };
    let found = gw.store.approvals_page(filter, None, HISTORY).await?;
    let is = |colour_of: &str| found.iter().filter(|one| colour(&one.state) == colour_of).count();
    let (approved, denied) = (is("good"), is("bad"));
    if approved + denied == 0 {
        return Ok("This is the first decision about this agent.".into());
    }
    let last = found.iter().find(|one| colour(&one.state) == "bad");
    let last = last.map(|one| match one.note.as_deref().map(escape_invisible) {
        Some(note) => format!(" Last denial: “{note}”."),
        None => String::new(),
    });
    Ok(format!(
        "The latest decisions about this agent: {approved} approved, {denied} denied.{}",
        last.unwrap_or_default()
    ))
}

/// The ids that a form ticked.
pub(super) fn picked(form: &crate::fields::FormFields, name: &str) -> Result<Vec<HoldId>, CallError> {
    let bad = || CallError::with_text(sluice_core::refusal::Code::DoorParameter, "a ticked write has no valid id");
    form.all(name).map(|text| text.parse().map_err(|_| bad())).collect()
}
