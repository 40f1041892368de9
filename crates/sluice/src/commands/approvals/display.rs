//! The card of an approval: who asks, what exactly, why, how many writes, until when, and the digest.
//!
//! Promise: every argument is shown in full, and nothing in it can hide, move or imitate a line of the card.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_core::Clock as _;

use crate::client::{display_field, text_field};
use crate::commands::policy::counted;
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::CliError;
use crate::system::SystemClock;
use crate::time_args::moment;
use crate::write_failure;

/// Characters of a digest that are shown where it only has to be recognised.
const SHORT: usize = 16;

/// The writes an approval covers, as far as they are shown.
pub(super) fn writes(approval: &Value) -> &[Value] {
    approval.get("writes").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Prints an approval.
pub(super) fn print_approval(approval: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    let (agent, service) = (display_field(approval, "agent"), display_field(approval, "service"));
    line("who", format!("{agent}, at {service}"))?;
    if text_field(approval, "subject") == "batch" {
        summary(approval, screen)?;
    }
    for write in writes(approval) {
        line("what", display_field(write, "capability"))?;
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
        line("risk", display_field(approval, "risk"))?;
    }
    let items = approval.get("items").and_then(Value::as_u64).unwrap_or(0);
    let items = usize::try_from(items).unwrap_or(usize::MAX);
    let unseen = items.saturating_sub(writes(approval).len());
    let rest = if unseen > 0 { format!(", {unseen} of them not shown here") } else { String::new() };
    line("how many", format!("{}{rest}", counted(items, "write")))?;
    if approval.get("expires_at").is_some() {
        line("until", until(text_field(approval, "expires_at"), screen))?;
    }
    for write in writes(approval) {
        line("digest", short(text_field(write, "digest")))?;
    }
    standing(approval, screen)?;
    deliveries(approval, screen)?;
    print_decision(approval, screen)
}

/// The state of each message that was sent about it.
fn deliveries(approval: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    for one in approval.get("deliveries").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| display_field(one, name);
        let how = match text_field(one, "state") {
            "sent" => format!("sent {}", cell("sent_at")),
            "refused" => format!("refused permanently: {}", cell("reason")),
            "retrying" => format!("not accepted yet: {}; next attempt {}", cell("reason"), cell("next_try_at")),
            other => crate::escape::escape_line(other),
        };
        let confirm =
            if one.get("asks_to_confirm") == Some(&Value::Bool(true)) { ", asks for confirmation" } else { "" };
        screen.line(format_args!("{:<9} {} {}: {how}{confirm}", "message", cell("channel"), cell("place")))?;
    }
    Ok(())
}

/// What `session` and `always` would cover; each bound has its number for `--bound`.
fn standing(approval: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    for offer in approval.get("standing").and_then(Value::as_array).into_iter().flatten() {
        let n = display_field(offer, "bound");
        for name in ["session", "always"] {
            if offer.get(name).is_some() {
                screen.line(format_args!("{name:<9} {n}: {}", display_field(offer, name)))?;
            }
        }
    }
    Ok(())
}

/// What a client wants to do itself, in its own words.
fn wish(approval: &Value, request: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("what", format!("{} ({})", display_field(request, "title"), display_field(request, "action_type")))?;
    line(
        "client",
        format!("{}, session {}", display_field(request, "client_id"), display_field(request, "session_id")),
    )?;
    screen.line("in its own words")?;
    for words in escape::lines(text_field(request, "preview")) {
        screen.line(format_args!("    | {words}"))?;
    }
    let options = request.get("options").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (option, letter) in options.iter().zip('A'..='Z') {
        line(&letter.to_string(), escape::value(option))?;
    }
    if approval.get("expires_at").is_some() {
        line("until", until(text_field(approval, "expires_at"), screen))?;
    }
    line("digest", short(text_field(request, "digest")))?;
    standing(approval, screen)?;
    deliveries(approval, screen)?;
    print_decision(approval, screen)
}

/// A held write.
pub(crate) fn print_hold(hold: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("hold", display_field(hold, "buffer_id"))?;
    line("who", format!("{}, at {}", display_field(hold, "agent"), display_field(hold, "service")))?;
    line("what", display_field(hold, "capability"))?;
    arguments(hold, screen)?;
    origins(hold, screen)?;
    line("state", display_field(hold, "state"))?;
    line("tier", display_field(hold, "tier"))?;
    line("since", display_field(hold, "admitted_at"))?;
    if hold.get("cancel_deadline").is_some() {
        line("until", until(text_field(hold, "cancel_deadline"), screen))?;
    }
    if let Some(retry) = hold.get("retry") {
        let at = until(text_field(retry, "next_at"), screen);
        line("retry", format!("{} of {}, next at {at}", display_field(retry, "attempt"), display_field(retry, "of")))?;
    }
    if let Some(error) = write_failure::describe_last_error(hold) {
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
            line(name, display_field(hold, field))?;
        }
    }
    line("attempts", display_field(hold, "attempts"))?;
    line("digest", display_field(hold, "digest"))?;
    Ok(())
}

/// The decision on an approval, if there is one.
pub(super) fn print_decision(approval: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("approval", display_field(approval, "approval_id"))?;
    let by = match (text_field(approval, "decided_by"), text_field(approval, "decided_at")) {
        ("", "") => String::new(),
        ("", at) => format!(", at {}", escape::escape_line(at)),
        (by, at) => format!(", by {} at {}", escape::escape_line(by), escape::escape_line(at)),
    };
    line("status", format!("{}{by}", display_field(approval, "status")))?;
    if approval.get("note").is_some() {
        line("note", display_field(approval, "note"))?;
    }
    Ok(())
}

/// All arguments, each on its own lines, and the options a spawn adds to them.
fn arguments(write: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let fields = |name: &str| write.get(name).and_then(Value::as_object).into_iter().flatten();
    if write.get("spawn").is_some() {
        screen.line(format_args!("  asked for as proxy.spawn"))?;
    }
    let options = fields("spawn").map(|(name, value)| (format!("spawn.{}", escape::escape_line(name)), value));
    let own = fields("arguments").map(|(name, value)| (escape::escape_line(name), value));
    for (name, value) in options.chain(own) {
        match value {
            // SECURITY: lines of an argument are printed behind a bar: they cannot be taken for lines of the card.
            Value::String(text) if text.contains('\n') => {
                screen.line(format_args!("  {name}"))?;
                for line in escape::lines(text) {
                    screen.line(format_args!("    | {line}"))?;
                }
            }
            value => screen.line(format_args!("  {name:<12} {}", escape::value(value)))?,
        }
    }
    Ok(())
}

/// The origin of each target, and a description of the objects that are named only by their ids.
fn origins(write: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    // SECURITY: outside text is printed behind a bar, as the agent's own text is.
    let about = write.get("about").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !about.is_empty() {
        screen.line(format_args!("what it is about, in the words of others:"))?;
    }
    for line in about {
        screen.line(format_args!("    | {}", escape::value(line)))?;
    }
    for target in write.get("targets").and_then(Value::as_array).into_iter().flatten() {
        let words = match text_field(target, "origin") {
            "asked" => "asked for in the task".to_owned(),
            "known" => "known".to_owned(),
            "seen" => format!("SEEN in outside text ({})", display_field(target, "source")),
            _ => "NEW, met nowhere before".to_owned(),
        };
        screen.line(format_args!(
            "origin    {} {}: {words}",
            display_field(target, "argument"),
            display_field(target, "value")
        ))?;
    }
    // SECURITY: the agent's own text is printed behind a bar, so that it cannot be taken for lines of the card.
    if let Some(words) = write.get("reason").and_then(Value::as_str) {
        screen.line(format_args!("the agent says, and nobody has checked it:"))?;
        for line in escape::lines(words) {
            screen.line(format_args!("    | {line}"))?;
        }
    }
    Ok(())
}

/// Every target of a batch that is neither asked for nor known: it must not be lost among the others.
fn summary(approval: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut doubtful = BTreeSet::new();
    for target in writes(approval).iter().flat_map(|write| write.get("targets").and_then(Value::as_array)).flatten() {
        if !["asked", "known"].contains(&text_field(target, "origin")) {
            doubtful.insert(format!(
                "{}: {}",
                display_field(target, "value"),
                text_field(target, "origin").to_uppercase()
            ));
        }
    }
    for target in doubtful {
        screen.line(format_args!("{:<9} {target}", "doubtful"))?;
    }
    Ok(())
}

/// Why an approval is needed, as recorded when it was created.
fn reasons(approval: &Value) -> Vec<String> {
    let kept = approval.get("asked_because").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<String> = kept.map(|reason| display_field(reason, "words")).collect();
    // An approval of an earlier release has no reasons.
    if words.is_empty() { vec!["a rule requires approval".into()] } else { words }
}

/// The beginning of a digest, enough to recognise it and to name it to `--digest`.
fn short(digest: &str) -> String {
    let (kind, hex) = digest.split_once(':').unwrap_or(("", digest));
    let hex: String = hex.chars().take(SHORT).collect();
    escape::escape_line(&if kind.is_empty() { hex } else { format!("{kind}:{hex}") })
}

/// A moment; on a terminal also how far away it is.
fn until(at: &str, screen: &CommandConsole) -> String {
    let shown = escape::escape_line(at);
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
        assert_eq!(reasons(&json!({})), ["a rule requires approval"]);
        let long = "x".repeat(900);
        let kept = json!({"asked_because": [{"words": format!("rule org.yaml:14: {long}\u{202e}")}, {"words": "two"}]});
        assert_eq!(reasons(&kept), [format!("rule org.yaml:14: {long}\\u{{202e}}"), "two".to_owned()]);
    }
}
