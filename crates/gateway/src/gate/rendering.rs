//! What people are shown of an approval: a title, the action as we render it, and the agent's reason as its own words.
//!
//! Takes an approval and the available space; gives text that has passed the leak scan. Promise: text that holds
//! something that must not leave the gateway goes to no chat, mailbox or page; a person who was not shown every target,
//! every argument that is not prose and every reason cannot approve.

use sluice_content::leak::OutboundPart;
use sluice_core::approval::card::{self, CardSpace, CardWrite};
use sluice_core::hold::Hold;
use sluice_core::target::TracedTarget;
use sluice_store::OutboxMessage;

use super::deciding::ApprovalRequest;
use super::standing;
use crate::Gateway;
use crate::rooms::leak;

/// The name of the channel that sends e-mail.
pub const EMAIL: &str = "email";
/// The name of the channel that sends to Telegram.
pub const TELEGRAM: &str = "telegram";
/// Characters that fit into a message of Telegram, with a reserve for its formatting.
pub const TELEGRAM_MESSAGE: usize = 4000;
/// Characters that the frame around the preview takes: title, menu, id, expiry and link.
pub const FRAME: usize = 900;
/// Characters of the frame for the menu; a longer menu takes its space from the preview.
const MENU: usize = 250;
/// Characters available in an e-mail.
const LETTER: usize = 59_100;
/// The approval page shows everything, up to what a browser can handle.
pub const PAGE: CardSpace = CardSpace::whole(2_000_000);
/// The channel name that answers from a page are recorded under, if the link came over Telegram.
pub const TELEGRAM_PAGE: &str = "telegram.page";
/// The channel name that answers from a page are recorded under, if the link came by e-mail.
pub const EMAIL_PAGE: &str = "email.page";
/// The channel name that decisions of the dashboard are recorded under.
pub const DASHBOARD: &str = "dashboard";
/// The channel name of replies that are handed in at the inbox endpoint.
pub const INBOX: &str = "inbox";

/// The rendered text of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedApproval {
    /// The title, one line.
    pub title: String,
    /// The action and the agent's words.
    pub text: String,
    /// Whether it holds everything that a person must see before an approval.
    pub whole: bool,
    /// Why it is not shown at all: pattern ids, lengths and hashes of what was found in it.
    pub withheld: Option<String>,
}

impl RenderedApproval {
    /// Whether a person who saw this can approve.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.whole && self.withheld.is_none()
    }
}

/// How much of an approval a channel can show.
#[must_use]
pub fn space(channel: &str) -> CardSpace {
    match channel {
        TELEGRAM_PAGE | EMAIL_PAGE | DASHBOARD => PAGE,
        EMAIL | INBOX => CardSpace::short(LETTER),
        // An unknown channel gets the smallest space.
        _ => CardSpace::short(TELEGRAM_MESSAGE.saturating_sub(FRAME)),
    }
}

/// Space for the preview in a message of a channel.
#[must_use]
pub fn in_letter(room: usize) -> CardSpace {
    CardSpace::short(room.saturating_sub(FRAME))
}

/// Renders an approval within a space.
#[must_use]
pub fn of(gw: &Gateway, question: &ApprovalRequest, space: CardSpace) -> RenderedApproval {
    let menu = card::length(&standing::menu(question)).saturating_sub(MENU);
    let space = CardSpace { characters: space.characters.saturating_sub(menu), ..space };
    let mut inside = preview(gw, question, space);
    let said = card::render_agent_reasons(&question.reasons);
    let left = space.characters.saturating_sub(card::length(&inside.text));
    if card::length(&said) <= left {
        let left = left.saturating_sub(card::length(&said));
        let about = card::render_descriptions(&described(gw, question), left);
        inside.whole &= about.whole;
        inside.text.push_str(&about.text);
        inside.text.push_str(&said);
    } else {
        // A reason is never cut: if one does not fit, nothing can be approved.
        inside.whole = false;
        inside.text = card::cut(&(inside.text + &said), space.characters);
    }
    let text = inside.text;
    let title = title(question);
    match scan(gw, question, &title, &text) {
        None => RenderedApproval { title, text, whole: inside.whole, withheld: None },
        Some((ids, findings)) => RenderedApproval {
            title: "something that is not shown here".into(),
            text: format!(
                "The action holds something that must not leave the gateway ({ids}), so it is not shown here.\n"
            ),
            whole: inside.whole,
            withheld: Some(findings),
        },
    }
}

/// The text of a message that is not an approval request: severity, topic, and its text if that may leave.
#[must_use]
pub fn render_notice(gw: &Gateway, message: &OutboxMessage) -> String {
    let said = |key: &str| message.body.get(key).and_then(serde_json::Value::as_str);
    let about = ["proxy", "service", "mount", "agent", "secret"].into_iter().find_map(|key| Some((key, said(key)?)));
    let words = ["text", "why", "reason"].into_iter().find_map(said);
    let mut text = format!("{}: {}", message.severity.as_str(), message.topic);
    if let Some((key, name)) = about {
        text.push_str(&format!(" ({key} {})", card::escape_invisible(name)));
    }
    if let Some(words) = words {
        let words: String = card::escape_invisible(words).chars().take(400).collect();
        let parts = [OutboundPart::new("text", words.as_str())];
        text.push('\n');
        text.push_str(if leak::preview(gw, &parts).is_ok() {
            &words
        } else {
            "the text is not shown: it holds something that must not leave the gateway"
        });
    }
    text + "\nSee: sluice alerts list"
}

/// What must not leave, if there is any: pattern ids, and what the audit log gets.
fn scan(gw: &Gateway, question: &ApprovalRequest, title: &str, text: &str) -> Option<(String, String)> {
    let mut parts = vec![OutboundPart::new("title", title), OutboundPart::new("preview", text)];
    // Rendering breaks lines and cuts, so the original text is scanned as well.
    parts.extend(question.reasons.iter().map(|words| OutboundPart::new("reason", words.as_str())));
    if let Some(filed) = &question.filed {
        parts.push(OutboundPart::new("preview", filed.request.preview.as_str()));
        parts.extend(filed.request.options.iter().map(|option| OutboundPart::new("options", option.as_str())));
    }
    let no = leak::preview(gw, &parts).err()?;
    let findings = no.findings.map(|findings| *findings).unwrap_or_default();
    let named = findings.as_array().into_iter().flatten().filter_map(|one| one.get("pattern")?.as_str());
    let ids: std::collections::BTreeSet<&str> = named.collect();
    Some((ids.into_iter().collect::<Vec<_>>().join(", "), findings.to_string()))
}

fn title(question: &ApprovalRequest) -> String {
    let words = match (&question.filed, question.holds.as_slice()) {
        (Some(filed), _) => filed.request.title.clone(),
        (None, [hold]) => hold.action.capability().to_string(),
        (None, holds) => format!("{} writes at once", holds.len()),
    };
    card::escape_invisible(&words).chars().take(120).collect()
}

/// What is known here about the objects that the writes name by id.
fn described(gw: &Gateway, question: &ApprovalRequest) -> Vec<String> {
    let about = |hold: &Hold| {
        let service = gw.services.for_service(&hold.service).ok()?;
        Some(service.describe_targets(&hold.action))
    };
    question.holds.iter().filter_map(about).flatten().collect()
}

fn preview(gw: &Gateway, question: &ApprovalRequest, space: CardSpace) -> card::RenderedCard {
    if let Some(filed) = &question.filed {
        let request = &filed.request;
        return card::render_client_request(&request.action_type, &request.title, &request.preview, space);
    }
    let known = gw.catalogue.known();
    // Only a manifest of ours says what is prose. A tool without one, or with a third-party description, has none.
    let prose =
        |hold: &Hold| known.get(hold.action.capability()).map(|spec| spec.prose_params().map(str::to_owned).collect());
    let prose: Vec<Vec<String>> = question.holds.iter().map(|hold| prose(hold).unwrap_or_default()).collect();
    let targets = |hold: &Hold| -> &[TracedTarget] {
        question.contents.iter().find(|one| one.hold == hold.id).map_or(&[], |one| one.targets.as_slice())
    };
    let writes: Vec<CardWrite<'_>> = question
        .holds
        .iter()
        .zip(&prose)
        .map(|(hold, prose)| CardWrite { action: &hold.action, targets: targets(hold), prose })
        .collect();
    let mut shown = card::render_writes(&writes, &question.why, space);
    // A write whose contents are gone cannot be shown, so it cannot be approved.
    shown.whole &= writes.len() == question.card.items.len();
    shown
}
