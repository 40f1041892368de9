//! The card of a question: who asks, what exactly, why, how many, until when, and the digest of it all.
//!
//! Promise: every argument is shown whole, and nothing in it can hide, move or imitate a line of the card.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_core::Clock as _;

use crate::client::{shown, text};
use crate::commands::policy::counted;
use crate::failing;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::span::moment;
use crate::system::SystemClock;
use crate::visible;

/// Characters of a digest that are shown where it is only to be recognised.
const SHORT: usize = 16;

/// The writes a question covers, as far as they are shown.
pub(super) fn writes(approval: &Value) -> &[Value] {
    approval.get("writes").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A question.
pub(super) fn question(approval: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    let (agent, service) = (shown(approval, "agent"), shown(approval, "service"));
    line("who", format!("{agent}, at {service}"))?;
    if text(approval, "subject") == "batch" {
        summary(approval, screen)?;
    }
    for write in writes(approval) {
        line("what", shown(write, "capability"))?;
        arguments(write, screen)?;
        origins(write, screen)?;
    }
    if let Some(request) = approval.get("request") {
        return wish(approval, request, screen);
    }
    for reason in reasons(approval) {
        line("why", reason)?;
    }
    if approval.get("risk").is_some() {
        line("risk", shown(approval, "risk"))?;
    }
    let items = approval.get("items").and_then(Value::as_u64).unwrap_or(0);
    let items = usize::try_from(items).unwrap_or(usize::MAX);
    let unseen = items.saturating_sub(writes(approval).len());
    let rest = if unseen > 0 { format!(", {unseen} of them not shown here") } else { String::new() };
    line("how many", format!("{}{rest}", counted(items, "write")))?;
    if approval.get("expires_at").is_some() {
        line("until", until(text(approval, "expires_at"), screen))?;
    }
    for write in writes(approval) {
        line("digest", short(text(write, "digest")))?;
    }
    standing(approval, screen)?;
    deliveries(approval, screen)?;
    answer(approval, screen)
}

/// What became of each letter about it.
fn deliveries(approval: &Value, screen: &Screen) -> Result<(), Failure> {
    for one in approval.get("deliveries").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| shown(one, name);
        let how = match text(one, "state") {
            "sent" => format!("sent {}", cell("sent_at")),
            "refused" => format!("refused for good: {}", cell("reason")),
            "retrying" => format!("not taken yet: {}; next try {}", cell("reason"), cell("next_try_at")),
            other => crate::visible::line(other),
        };
        let confirm = if one.get("asks_to_confirm") == Some(&Value::Bool(true)) { ", asks to confirm" } else { "" };
        screen.line(format_args!("{:<9} {} {}: {how}{confirm}", "letter", cell("channel"), cell("place")))?;
    }
    Ok(())
}

/// What `session` and `always` open, each bound by its number for `--bound`.
fn standing(approval: &Value, screen: &Screen) -> Result<(), Failure> {
    for offer in approval.get("standing").and_then(Value::as_array).into_iter().flatten() {
        let n = shown(offer, "bound");
        for name in ["session", "always"] {
            if offer.get(name).is_some() {
                screen.line(format_args!("{name:<9} {n}: {}", shown(offer, name)))?;
            }
        }
    }
    Ok(())
}

/// What a client wants to do by itself, in its own words.
fn wish(approval: &Value, request: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("what", format!("{} ({})", shown(request, "title"), shown(request, "action_type")))?;
    line("client", format!("{}, session {}", shown(request, "client_id"), shown(request, "session_id")))?;
    screen.line("in its own words")?;
    for words in visible::lines(text(request, "preview")) {
        screen.line(format_args!("    | {words}"))?;
    }
    let options = request.get("options").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (option, letter) in options.iter().zip('A'..='Z') {
        line(&letter.to_string(), visible::value(option))?;
    }
    if approval.get("expires_at").is_some() {
        line("until", until(text(approval, "expires_at"), screen))?;
    }
    line("digest", short(text(request, "digest")))?;
    standing(approval, screen)?;
    deliveries(approval, screen)?;
    answer(approval, screen)
}

/// A held write.
pub(crate) fn write(hold: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("hold", shown(hold, "buffer_id"))?;
    line("who", format!("{}, at {}", shown(hold, "agent"), shown(hold, "service")))?;
    line("what", shown(hold, "capability"))?;
    arguments(hold, screen)?;
    origins(hold, screen)?;
    line("state", shown(hold, "state"))?;
    line("tier", shown(hold, "tier"))?;
    line("since", shown(hold, "admitted_at"))?;
    if hold.get("cancel_deadline").is_some() {
        line("until", until(text(hold, "cancel_deadline"), screen))?;
    }
    if let Some(retry) = hold.get("retry") {
        let at = until(text(retry, "next_at"), screen);
        line("retry", format!("{} of {}, next at {at}", shown(retry, "attempt"), shown(retry, "of")))?;
    }
    if let Some(error) = failing::error(hold) {
        line("error", error)?;
    }
    for (name, field) in [
        ("approval", "approval_id"),
        ("code", "code"),
        ("receipt", "receipt"),
        ("reverses", "reverses"),
        ("session", "session_id"),
    ] {
        if hold.get(field).is_some() {
            line(name, shown(hold, field))?;
        }
    }
    line("attempts", shown(hold, "attempts"))?;
    line("digest", shown(hold, "digest"))?;
    Ok(())
}

/// How a question stands.
pub(super) fn answer(approval: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("approval", shown(approval, "approval_id"))?;
    let by = match (text(approval, "decided_by"), text(approval, "decided_at")) {
        ("", "") => String::new(),
        ("", at) => format!(", at {}", visible::line(at)),
        (by, at) => format!(", by {} at {}", visible::line(by), visible::line(at)),
    };
    line("status", format!("{}{by}", shown(approval, "status")))?;
    if approval.get("note").is_some() {
        line("note", shown(approval, "note"))?;
    }
    Ok(())
}

/// All arguments, each on its own lines, and what a spawn adds to them.
fn arguments(write: &Value, screen: &Screen) -> Result<(), Failure> {
    let fields = |name: &str| write.get(name).and_then(Value::as_object).into_iter().flatten();
    if write.get("spawn").is_some() {
        screen.line(format_args!("  asked for as proxy.spawn"))?;
    }
    let options = fields("spawn").map(|(name, value)| (format!("spawn.{}", visible::line(name)), value));
    let own = fields("arguments").map(|(name, value)| (visible::line(name), value));
    for (name, value) in options.chain(own) {
        match value {
            // SECURITY: lines of an argument stand behind a bar, so that they cannot be taken for lines of the card.
            Value::String(text) if text.contains('\n') => {
                screen.line(format_args!("  {name}"))?;
                for line in visible::lines(text) {
                    screen.line(format_args!("    | {line}"))?;
                }
            }
            value => screen.line(format_args!("  {name:<12} {}", visible::value(value)))?,
        }
    }
    Ok(())
}

/// Where each target comes from, and what the things are that it names by their ids.
fn origins(write: &Value, screen: &Screen) -> Result<(), Failure> {
    // SECURITY: the words of others stand behind a bar, as those of the agent do.
    let about = write.get("about").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !about.is_empty() {
        screen.line(format_args!("what it is about, in the words of others:"))?;
    }
    for line in about {
        screen.line(format_args!("    | {}", visible::value(line)))?;
    }
    for target in write.get("targets").and_then(Value::as_array).into_iter().flatten() {
        let words = match text(target, "origin") {
            "asked" => "asked for in the task".to_owned(),
            "known" => "known".to_owned(),
            "seen" => format!("SEEN in outside text ({})", shown(target, "source")),
            _ => "NEW, met nowhere before".to_owned(),
        };
        screen.line(format_args!("origin    {} {}: {words}", shown(target, "argument"), shown(target, "value")))?;
    }
    // SECURITY: the agent's own words stand behind a bar, so that they cannot be taken for lines of the card.
    if let Some(words) = write.get("reason").and_then(Value::as_str) {
        screen.line(format_args!("the agent says, and nobody has checked it:"))?;
        for line in visible::lines(words) {
            screen.line(format_args!("    | {line}"))?;
        }
    }
    Ok(())
}

/// Every target of a batch that nobody asked for and nobody knows: it must not hide among the others.
fn summary(approval: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut doubtful = BTreeSet::new();
    for target in writes(approval).iter().flat_map(|write| write.get("targets").and_then(Value::as_array)).flatten() {
        if !["asked", "known"].contains(&text(target, "origin")) {
            doubtful.insert(format!("{}: {}", shown(target, "value"), text(target, "origin").to_uppercase()));
        }
    }
    for target in doubtful {
        screen.line(format_args!("{:<9} {target}", "doubtful"))?;
    }
    Ok(())
}

/// Why a person is asked, as it was when the question was put.
fn reasons(approval: &Value) -> Vec<String> {
    let kept = approval.get("asked_because").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<String> = kept.map(|reason| shown(reason, "words")).collect();
    // A question of an earlier release has none.
    if words.is_empty() { vec!["a rule asks for a person".into()] } else { words }
}

/// The beginning of a digest, enough to recognise it and to name it to `--digest`.
fn short(digest: &str) -> String {
    let (kind, hex) = digest.split_once(':').unwrap_or(("", digest));
    let hex: String = hex.chars().take(SHORT).collect();
    visible::line(&if kind.is_empty() { hex } else { format!("{kind}:{hex}") })
}

/// A moment; on a terminal also how far away it is.
fn until(at: &str, screen: &Screen) -> String {
    let shown = visible::line(at);
    match moment(at).filter(|_| screen.is_terminal()) {
        Some(end) => format!("{shown} (in {})", end.since(SystemClock.now())),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_reasons_are_those_kept_with_the_question_whole() {
        assert_eq!(short("sha256-v1:67235a9b751510a722c386a3"), "sha256-v1:67235a9b751510a7");
        assert_eq!(reasons(&json!({})), ["a rule asks for a person"]);
        let long = "x".repeat(900);
        let kept = json!({"asked_because": [{"words": format!("rule org.yaml:14: {long}\u{202e}")}, {"words": "two"}]});
        assert_eq!(reasons(&kept), [format!("rule org.yaml:14: {long}\\u{{202e}}"), "two".to_owned()]);
    }
}
