//! The card: what a person is shown before they answer, rendered by us from the action itself.
//!
//! Takes actions or a client's own words, and the space there is; gives text. Promise: a card that can be approved
//! shows every target with its origin and every argument that is not prose for people, in full; nothing in it can hide,
//! move or imitate a line of the card; an agent's words are quoted as such; no reason is cut.

mod batch;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::reason::ApprovalReason;
use crate::action::Action;
use crate::policy::TargetOrigin;
use crate::policy::reading::is_unsafe;
use crate::target::TracedTarget;

/// Arguments that say who, where or how much. They come first.
const TARGETS: [&str; 22] = [
    "to",
    "cc",
    "bcc",
    "recipients",
    "recipient",
    "attendees",
    "url",
    "urls",
    "host",
    "path",
    "paths",
    "channel",
    "account",
    "amount",
    "currency",
    "from",
    "source",
    "destination",
    "target",
    "id",
    "ids",
    "command",
];
/// Longest prose that is shown in full where prose is cut, in characters.
const LONG: usize = 700;
/// How much of longer prose is shown from its beginning and from its end.
const FRONT: usize = 450;
const END: usize = 150;
/// A target is kept cut to this many characters; the argument beside it has the whole value.
const KEPT_TARGET: usize = 500;

/// How much text a channel can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardSpace {
    /// Most characters, as chats count them (UTF-16 units).
    pub characters: usize,
    /// Whether prose for people is shortened. Never where there is room for everything.
    pub cuts_prose: bool,
}

impl CardSpace {
    /// A channel that shows everything up to this many characters.
    #[must_use]
    pub const fn whole(characters: usize) -> Self {
        Self { characters, cuts_prose: false }
    }

    /// A channel that shortens prose for people.
    #[must_use]
    pub const fn short(characters: usize) -> Self {
        Self { characters, cuts_prose: true }
    }
}

/// One write, as a card shows it.
#[derive(Debug, Clone, Copy)]
pub struct CardWrite<'a> {
    /// What will be done.
    pub action: &'a Action,
    /// Its targets, and where each comes from.
    pub targets: &'a [TracedTarget],
    /// Arguments that the manifest of the capability marks as prose for people. All others are shown in full.
    pub prose: &'a [String],
}

/// The text of a card, and whether it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedCard {
    /// The text.
    pub text: String,
    /// Whether the card holds everything that it must show. Only then can it be approved.
    pub whole: bool,
}

/// How long a text is, as chats count it.
#[must_use]
pub fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

/// One line with nothing invisible in it.
#[must_use]
pub fn escape_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unsafe(c) => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

/// One write or many, with the gateway's own reasons why a person is asked.
#[must_use]
pub fn render_writes(list: &[CardWrite<'_>], why: &[ApprovalReason], space: CardSpace) -> RenderedCard {
    match list {
        [one] => single(*one, why, space),
        many => batch::many(many, why, space),
    }
}

/// One write, and where each of its targets was first met.
fn single(write: CardWrite<'_>, why: &[ApprovalReason], space: CardSpace) -> RenderedCard {
    let action = write.action;
    let mut text = format!("{}\n", escape_invisible(action.capability().as_str()));
    because(&mut text, why);
    if let Some(account) = action.account() {
        let _ = writeln!(text, "account: {}", escape_invisible(account));
    }
    // Targets come first: if something has to be cut, it is the end.
    let (targets, others): (Vec<_>, Vec<_>) = action.arguments().iter().partition(|(name, _)| is_target(name));
    for (name, value) in targets {
        argument(&mut text, name, value);
    }
    origins(&mut text, write.targets);
    spawned(&mut text, action);
    let (prose, whole): (Vec<_>, Vec<_>) = others.into_iter().partition(|(name, _)| is_prose(write.prose, name));
    for (name, value) in whole {
        argument(&mut text, name, value);
    }
    for (name, value) in prose {
        argument(&mut text, name, &if space.cuts_prose { shortened(value) } else { value.clone() });
    }
    fit(text, space)
}

/// What a spawn adds to the call, in full.
fn spawned(text: &mut String, action: &Action) {
    let Some(options) = action.spawn() else { return };
    let _ = writeln!(text, "asked for as: {}", crate::proxy::spawn::CAPABILITY);
    for (name, value) in options.fields() {
        argument(text, &format!("spawn.{name}"), &value);
    }
}

/// The gateway's own reasons, one line each.
fn because(text: &mut String, why: &[ApprovalReason]) {
    for reason in why {
        let _ = writeln!(text, "why you are asked: {}", reason.describe());
    }
}

/// Where each target comes from. Unknown targets that nobody asked for come first: they are why a person is asked.
fn origins<'a>(text: &mut String, targets: impl IntoIterator<Item = &'a TracedTarget>) {
    let distinct: BTreeSet<_> = targets
        .into_iter()
        .map(|target| (std::cmp::Reverse(target.origin), &target.argument, &target.value, &target.source))
        .collect();
    for (origin, argument, value, source) in distinct {
        let _ = writeln!(text, "{}", origin_line(argument, value, origin.0, source.as_deref()));
    }
}

fn origin_line(argument: &str, value: &str, origin: TargetOrigin, source: Option<&str>) -> String {
    let words = match origin {
        TargetOrigin::Asked => "asked for in the task".to_owned(),
        TargetOrigin::Known => "known".to_owned(),
        TargetOrigin::Seen => match source {
            Some(source) => format!("SEEN in outside text ({})", escape_invisible(source)),
            None => "SEEN in outside text".to_owned(),
        },
        TargetOrigin::New => "NEW, met nowhere before".to_owned(),
    };
    let is_cut = value.ends_with('…') && value.chars().count() > KEPT_TARGET;
    let value = match value {
        "" => "(cannot be read)".to_owned(),
        _ if is_cut => "(its whole value is on this card)".to_owned(),
        value => escape_invisible(value),
    };
    format!("origin of {} {value}: {words}", escape_invisible(argument))
}

/// The reason that an agent gives, in full, behind a bar and marked as its own words. Empty where it gives none.
#[must_use]
pub fn render_agent_reasons(words: &[String]) -> String {
    let said: BTreeSet<&str> = words.iter().map(|words| words.trim()).filter(|words| !words.is_empty()).collect();
    if said.is_empty() {
        return String::new();
    }
    let mut text = String::from("the agent says, and nobody has checked it:\n");
    for words in said {
        quote(&mut text, words);
    }
    text
}

/// What is known of the objects that a write names only by id, behind a bar: the words come from third parties. Lines
/// that do not fit are counted, and then the card is not whole: a person cannot judge an id alone.
#[must_use]
pub fn render_descriptions(lines: &[String], room: usize) -> RenderedCard {
    if lines.is_empty() {
        return RenderedCard { text: String::new(), whole: true };
    }
    let mut whole = true;
    let mut text = String::from("what it is about, in the words of others:\n");
    for (place, line) in lines.iter().enumerate() {
        let mut one = String::new();
        quote(&mut one, line);
        let more = format!("(and {} more)\n", lines.len() - place);
        let is_last = place + 1 == lines.len();
        let reserve = if is_last { 0 } else { length(&more) };
        if length(&text) + length(&one) + reserve > room {
            text.push_str(&more);
            whole = false;
            break;
        }
        text.push_str(&one);
    }
    if length(&text) <= room {
        RenderedCard { text, whole }
    } else {
        RenderedCard { text: String::new(), whole: false }
    }
}

/// An action that a client wants to carry out by itself, in the client's words.
#[must_use]
pub fn render_client_request(action_type: &str, title: &str, preview: &str, space: CardSpace) -> RenderedCard {
    let mut text = format!(
        "title: {}\nkind: {}\nin the client's own words:\n",
        escape_invisible(title),
        escape_invisible(action_type)
    );
    // All of it is shown: nobody can tell which part matters.
    quote(&mut text, preview);
    fit(text, space)
}

fn is_target(name: &str) -> bool {
    TARGETS.contains(&name.to_lowercase().as_str())
}

fn is_prose(prose: &[String], name: &str) -> bool {
    prose.iter().any(|known| known == name)
}

fn argument(text: &mut String, name: &str, value: &Value) {
    let name = label(name);
    match value {
        Value::String(words) if words.contains('\n') => {
            let _ = writeln!(text, "{name}:");
            quote(text, words);
        }
        value => {
            let _ = writeln!(text, "{name}: {}", plain(value));
        }
    }
}

/// SECURITY: an agent may choose the name of an argument. A name that is not a plain word stands in quotes, so that
/// it cannot be taken for a line of the card.
fn label(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if plain { name.to_owned() } else { format!("\"{}\"", escape_invisible(name)) }
}

/// SECURITY: third-party lines stand behind a bar, so that they cannot be taken for lines of the card.
fn quote(text: &mut String, words: &str) {
    for line in words.split('\n') {
        let _ = writeln!(text, "| {}", escape_invisible(line));
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => escape_invisible(text),
        Value::Array(list) if list.iter().all(|item| !item.is_object() && !item.is_array()) => {
            list.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        other => escape_invisible(&other.to_string()),
    }
}

/// Prose with its middle left out. Anything but a text is shown whole.
fn shortened(value: &Value) -> Value {
    let Value::String(text) = value else { return value.clone() };
    let count = text.chars().count();
    if count <= LONG {
        return value.clone();
    }
    let front: String = text.chars().take(FRONT).collect();
    let end: String = text.chars().skip(count - END).collect();
    Value::String(format!("{front}\n[… {} characters are not shown here …]\n{end}", count - FRONT - END))
}

/// As much as fits, with a note if something was cut.
fn fit(text: String, space: CardSpace) -> RenderedCard {
    if length(&text) <= space.characters {
        return RenderedCard { text, whole: true };
    }
    RenderedCard { text: cut(&text, space.characters), whole: false }
}

/// A text cut to this many characters, with a note if something was cut.
#[must_use]
pub fn cut(text: &str, characters: usize) -> String {
    let notice = "\n[… too long to be shown here: sluice approvals show …]\n";
    let room = characters.saturating_sub(length(notice));
    let mut used = 0;
    let kept: String = text
        .chars()
        .take_while(|c| {
            used += c.len_utf16();
            used <= room
        })
        .collect();
    kept + notice
}
