//! What people are shown of a question: a title, the action as we render it, and the agent's reason as its own words.
//!
//! Takes a question and how much room there is; gives text that has passed the leak scan. Promise: what holds
//! something that must not leave goes to no chat, mailbox or page, and where a person was not shown every target, every
//! argument that is not prose and every reason, no yes of theirs counts.

use sluice_content::leak::Part;
use sluice_core::approval::card::{self, CardWrite, Space};
use sluice_core::hold::Hold;
use sluice_core::target::Traced;
use sluice_store::Message;

use super::{email, telegram};
use crate::Gateway;
use crate::gate::deciding::Question;
use crate::gate::standing;
use crate::rooms::leak;

/// Room the frame around the preview takes: title, menu, id, expiry and link.
pub const FRAME: usize = 900;
/// Room of that for the menu; a longer one takes its room from the preview.
const MENU: usize = 250;
/// Room in a mail.
const LETTER: usize = 59_100;
/// A page of ours shows everything, up to what a browser can take.
pub const PAGE: Space = Space::whole(2_000_000);
/// What answers from a page are recorded under, by the channel the link came over.
pub const TELEGRAM_PAGE: &str = "telegram.page";
/// The same for mail.
pub const EMAIL_PAGE: &str = "email.page";
/// Replies that are handed in at the inbox endpoint.
pub const INBOX: &str = "inbox";

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// One line.
    pub title: String,
    /// The action and the agent's words.
    pub text: String,
    /// Whether everything is in it that has to be there for a yes.
    pub whole: bool,
    /// Why it is not shown at all: pattern ids, lengths and hashes of what was found in it.
    pub withheld: Option<String>,
}

impl Sight {
    /// Whether somebody who saw this can say yes.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.whole && self.withheld.is_none()
    }
}

/// How much of a question a channel can show.
#[must_use]
pub fn space(channel: &str) -> Space {
    match channel {
        TELEGRAM_PAGE | EMAIL_PAGE => PAGE,
        email::NAME | INBOX => Space::short(LETTER),
        // The smallest room for what is not known.
        _ => Space::short(telegram::ROOM.saturating_sub(FRAME)),
    }
}

/// Room for the preview in a letter of a channel.
#[must_use]
pub fn in_letter(room: usize) -> Space {
    Space::short(room.saturating_sub(FRAME))
}

/// Renders a question within so much room.
#[must_use]
pub fn of(gw: &Gateway, question: &Question, space: Space) -> Sight {
    let menu = card::length(&standing::menu(question)).saturating_sub(MENU);
    let space = Space { characters: space.characters.saturating_sub(menu), ..space };
    let mut inside = preview(gw, question, space);
    let said = card::reasons(&question.reasons);
    let left = space.characters.saturating_sub(card::length(&inside.text));
    if card::length(&said) <= left {
        let left = left.saturating_sub(card::length(&said));
        let about = card::described(&described(gw, question), left);
        inside.whole &= about.whole;
        inside.text.push_str(&about.text);
        inside.text.push_str(&said);
    } else {
        // No reason is cut: where one does not fit, nothing can be approved.
        inside.whole = false;
        inside.text = card::cut(&(inside.text + &said), space.characters);
    }
    let text = inside.text;
    let title = title(question);
    match scan(gw, question, &title, &text) {
        None => Sight { title, text, whole: inside.whole, withheld: None },
        Some((ids, findings)) => Sight {
            title: "something that is not shown here".into(),
            text: format!(
                "What is asked about holds something that must not leave ({ids}), so it is not shown here.\n"
            ),
            whole: inside.whole,
            withheld: Some(findings),
        },
    }
}

/// What a message that is no question says, on a few lines: how bad, about what, and in words if those may leave.
#[must_use]
pub fn news(gw: &Gateway, message: &Message) -> String {
    let said = |key: &str| message.body.get(key).and_then(serde_json::Value::as_str);
    let about = ["proxy", "service", "mount", "agent", "secret"].into_iter().find_map(|key| Some((key, said(key)?)));
    let words = ["text", "why", "reason"].into_iter().find_map(said);
    let mut text = format!("{}: {}", message.severity.as_str(), message.topic);
    if let Some((key, name)) = about {
        text.push_str(&format!(" ({key} {})", card::visible(name)));
    }
    if let Some(words) = words {
        let words: String = card::visible(words).chars().take(400).collect();
        let parts = [Part::new("text", words.as_str())];
        text.push('\n');
        text.push_str(if leak::preview(gw, &parts).is_ok() { &words } else { "what it says must not leave" });
    }
    text + "\nSee: sluice alerts list"
}

/// What must not leave, if there is any: pattern ids, and what the record gets.
fn scan(gw: &Gateway, question: &Question, title: &str, text: &str) -> Option<(String, String)> {
    let mut parts = vec![Part::new("title", title), Part::new("preview", text)];
    // Rendering breaks lines and cuts: what was written is looked at as it was written, too.
    parts.extend(question.reasons.iter().map(|words| Part::new("reason", words.as_str())));
    if let Some(filed) = &question.filed {
        parts.push(Part::new("preview", filed.request.preview.as_str()));
        parts.extend(filed.request.options.iter().map(|option| Part::new("options", option.as_str())));
    }
    let no = leak::preview(gw, &parts).err()?;
    let findings = no.findings.map(|findings| *findings).unwrap_or_default();
    let named = findings.as_array().into_iter().flatten().filter_map(|one| one.get("pattern")?.as_str());
    let ids: std::collections::BTreeSet<&str> = named.collect();
    Some((ids.into_iter().collect::<Vec<_>>().join(", "), findings.to_string()))
}

fn title(question: &Question) -> String {
    let words = match (&question.filed, question.holds.as_slice()) {
        (Some(filed), _) => filed.request.title.clone(),
        (None, [hold]) => hold.action.capability().to_string(),
        (None, holds) => format!("{} writes at once", holds.len()),
    };
    card::visible(&words).chars().take(120).collect()
}

/// What is known here of the things the writes name by their ids.
fn described(gw: &Gateway, question: &Question) -> Vec<String> {
    let about = |hold: &Hold| {
        let service = gw.services.for_service(&hold.service).ok()?;
        Some(service.described(&hold.action))
    };
    question.holds.iter().filter_map(about).flatten().collect()
}

fn preview(gw: &Gateway, question: &Question, space: Space) -> card::Shown {
    if let Some(filed) = &question.filed {
        let request = &filed.request;
        return card::request(&request.action_type, &request.title, &request.preview, space);
    }
    let known = gw.catalogue.known();
    // Only a manifest of ours says what is prose. A tool without one, or one that a server of others describes, has none.
    let prose = |hold: &Hold| known.get(hold.action.capability()).map(|spec| spec.prose().map(str::to_owned).collect());
    let prose: Vec<Vec<String>> = question.holds.iter().map(|hold| prose(hold).unwrap_or_default()).collect();
    let targets = |hold: &Hold| -> &[Traced] {
        question.contents.iter().find(|one| one.hold == hold.id).map_or(&[], |one| one.targets.as_slice())
    };
    let writes: Vec<CardWrite<'_>> = question
        .holds
        .iter()
        .zip(&prose)
        .map(|(hold, prose)| CardWrite { action: &hold.action, targets: targets(hold), prose })
        .collect();
    let mut shown = card::writes(&writes, &question.why, space);
    // A write whose contents are gone cannot be shown, so it cannot be approved either.
    shown.whole &= writes.len() == question.card.items.len();
    shown
}
