//! Words: an answer or a refusal as a tool result.
//!
//! Takes the answer of the corridor; gives `structuredContent` and one plain sentence, or for a mounted tool the result
//! of its server ([`super::server_result`]). Promise: a decision of the rules or of people is a result that the model
//! can read, never a protocol error; a refusal says what to do instead, in the names that tools have at this door; a
//! person's no is not an error that a framework would retry.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};
use sluice_core::CapabilityName;
use sluice_core::refusal::{Code, RetryAdvice};
use sluice_services::CallError;
use sluice_services::value::{at, put};

use super::names::{ToolNames, WHOAMI};
use super::server_result;
use super::tools::AGAIN;
use crate::http::views::CallView;

/// Ends of a call that people decided. Most frameworks call again what is marked as an error.
const DECIDED: [&str; 4] = ["denied", "expired", "cancelled", "discarded"];

/// The state of a call, as a result.
pub(super) fn call_result(mut view: CallView, names: &ToolNames) -> CallToolResult {
    let capability = view.capability.as_deref().and_then(|name| CapabilityName::new(name).ok());
    let tool = capability.as_ref().and_then(|capability| names.tool(capability));
    let shown = tool.or(view.capability.as_deref()).unwrap_or("the call").to_owned();
    if let Some(result) = server_result::of(&view, &shown) {
        return result;
    }
    let spoken = SpokenNames { tool: Some(&shown), capability: capability.as_ref(), names };
    for text in [&mut view.reason, &mut view.hint].into_iter().flatten() {
        *text = spoken.of(text);
    }
    let id = view.call_id.clone();
    let over = ["blocked", "dead", "refused", "stale"];
    let is_decided = DECIDED.contains(&view.status.as_str());
    // A mounted tool that reports a failure has failed, whatever the state of the call.
    let failed = !is_decided && (over.contains(&view.status.as_str()) || view.code.is_some() || says_it_failed(&view));
    let mut blocks = vec![sentence(&view, &shown)];
    if let Some(result) = view.result.as_ref().filter(|result| !result.is_null()) {
        blocks.push(result.to_string());
    }
    let status = view.status.clone();
    let mut value = serde_json::to_value(&view).unwrap_or_default();
    if ["held", "awaiting_approval", "retrying"].contains(&status.as_str()) {
        put(&mut value, "cancel", json!({"tool": "sluice_cancel", "arguments": {"call_id": id}}));
        put(&mut value, "wait", json!({"tool": "sluice_wait", "arguments": {"call_id": id}}));
        put(&mut value, "next", "Continue with other work. Do not make the same call again.");
    }
    result(value, blocks, failed)
}

/// The names of capabilities in the gateway's own texts, as tools of this door.
struct SpokenNames<'a> {
    tool: Option<&'a str>,
    capability: Option<&'a CapabilityName>,
    names: &'a ToolNames,
}

impl SpokenNames<'_> {
    /// A text with the name of the call's own capability replaced, and those that our hints mention.
    fn of(&self, text: &str) -> String {
        let mut spoken = text.to_owned();
        for hinted in HINTED {
            let tool = CapabilityName::new(hinted).ok().and_then(|name| self.names.tool(&name).map(str::to_owned));
            if let Some(tool) = tool {
                // The companion is in every list, whatever the toolset.
                spoken = spoken.replace(hinted, &format!("{tool} (or {WHOAMI})"));
            }
        }
        if let (Some(tool), Some(capability)) = (self.tool, self.capability) {
            spoken = spoken.replace(&format!("`{capability}`"), &format!("`{tool}`"));
        }
        spoken
    }
}

/// Capabilities that the general hints of refusals mention.
const HINTED: [&str; 1] = ["agent.whoami"];

/// Whether the server of a mounted tool reports that it failed.
fn says_it_failed(view: &CallView) -> bool {
    view.result.as_ref().is_some_and(|result| *at(result, "/data/is_error") == true)
}

/// The state of a call, in one sentence.
fn sentence(view: &CallView, capability: &str) -> String {
    let id = &view.call_id;
    match view.status.as_str() {
        "done" if says_it_failed(view) => {
            format!("`{capability}` was called, and its server says that it failed.")
        }
        "done" => format!("`{capability}` is done."),
        "allowed" => format!("`{capability}` is allowed: carry it out yourself."),
        "held" => {
            let until = view.cancel_deadline.as_deref().unwrap_or("the end of its wait");
            format!(
                "`{capability}` is accepted and held: it happens at {until} unless sluice_cancel stops it ({id}). \
                 Continue with other work and do not call it again."
            )
        }
        "awaiting_approval" => {
            let until = view.expires_at.as_deref().map(|at| format!(" until {at}")).unwrap_or_default();
            format!(
                "`{capability}` has not happened: a person was asked and can answer{until}. Wait with sluice_wait ({id}) or \
                 continue with other work; do not call it again."
            )
        }
        "in_doubt" | "needs_human" => {
            let why = view.reason.as_deref().unwrap_or("its outcome could not be found out");
            unknown(capability, why, view.hint.as_deref().unwrap_or(NEVER_AGAIN))
        }
        "retrying" => {
            let how = view.failing.line().unwrap_or_else(|| "it is retried automatically".into());
            format!(
                "`{capability}` has not happened yet: {how}. It is retried automatically; do not call it again. Ask \
                 sluice_status ({id}) how it went."
            )
        }
        "executing" => format!("`{capability}` is being carried out; sluice_status ({id}) returns the outcome."),
        other => {
            let why = view.reason.as_deref().unwrap_or("it is over");
            let hint = view.hint.as_deref().map(|hint| format!(" What to do: {hint}.")).unwrap_or_default();
            format!("`{capability}` did not happen ({other}): {why}.{hint}")
        }
    }
}

/// What to do about a write with an unknown outcome.
const NEVER_AGAIN: &str = "it may have happened: never send it again";

/// A write with an unknown outcome. The text must not read as if it did not happen: the agent would send it again.
fn unknown(capability: &str, why: &str, hint: &str) -> String {
    format!("It is not known whether `{capability}` happened: {why}. What to do: {hint}.")
}

/// A refusal, as a result that the model can act on. `called` is the tool, with its capability if it has one.
pub(super) fn refusal_result(
    no: &CallError,
    (tool, capability): (&str, Option<(&CapabilityName, &ToolNames)>),
    alternatives: Vec<String>,
) -> CallToolResult {
    let refusal = &no.refusal;
    let code = refusal.code();
    let status = match code {
        Code::PolicyBlocked => "blocked",
        Code::ExecuteInDoubt => "in_doubt",
        Code::ExecuteNeedsHuman => "needs_human",
        Code::ApprovalDenied => "denied",
        Code::ApprovalExpired => "expired",
        Code::HoldCancelled => "cancelled",
        Code::HoldDiscarded => "discarded",
        _ => "refused",
    };
    let spoken = |text: &str| match capability {
        Some((capability, names)) => SpokenNames { tool: Some(tool), capability: Some(capability), names }.of(text),
        None => text.to_owned(),
    };
    let hint = match code {
        // This door uses another name for the argument.
        Code::CallPossibleDuplicate => refusal.hint().replace("allow_duplicate", AGAIN),
        _ => spoken(refusal.hint()),
    };
    let reason = spoken(refusal.text());
    let mut value = json!({
        "status": status, "code": code.as_str(), "reason": reason, "hint": hint,
        "retry": refusal.retry().as_str(),
    });
    if let RetryAdvice::After(span) = refusal.retry() {
        put(&mut value, "retry_after_ms", span.as_millis());
    }
    for (name, text) in
        [("call_id", no.call.map(|call| call.to_string())), ("rule", no.rule.clone()), ("other", no.other.clone())]
    {
        if let Some(text) = text {
            put(&mut value, name, text);
        }
    }
    let instead = if alternatives.is_empty() {
        String::new()
    } else {
        format!(" Possible instead: {}.", alternatives.join(", "))
    };
    if !alternatives.is_empty() {
        put(&mut value, "alternatives", json!(alternatives));
    }
    let words = match code {
        Code::ExecuteInDoubt | Code::ExecuteNeedsHuman => unknown(tool, &reason, &hint),
        _ if DECIDED.contains(&status) => format!("`{tool}` did not happen ({status}): {reason}. What to do: {hint}."),
        _ => format!("`{tool}` was refused: {reason}. What to do: {hint}.{instead}"),
    };
    result(value, vec![words], !DECIDED.contains(&status))
}

/// A result as structured content and as text.
pub(super) fn result(value: Value, blocks: Vec<String>, failed: bool) -> CallToolResult {
    let mut result = CallToolResult::success(blocks.into_iter().map(ContentBlock::text).collect());
    result.structured_content = Some(value);
    result.is_error = Some(failed);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ToolNames {
        let list = ["agent.whoami", "email.send", "filesystem.read"].map(|name| CapabilityName::new(name).unwrap());
        ToolNames::of(list.iter())
    }

    fn text(result: &CallToolResult) -> String {
        serde_json::to_value(result).unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_write_with_an_unknown_outcome_is_never_said_not_to_have_happened() {
        for (status, code) in [("in_doubt", Code::ExecuteInDoubt), ("needs_human", Code::ExecuteNeedsHuman)] {
            let no = CallError::new(code);
            let view = CallView {
                status: status.into(),
                code: Some(code.as_str().into()),
                reason: Some(no.refusal.text().to_owned()),
                hint: Some(no.refusal.hint().to_owned()),
                ..CallView::default()
            };
            for said in [call_result(view, &names()), refusal_result(&no, ("email_send", None), Vec::new())] {
                let text = text(&said);
                assert!(text.starts_with("It is not known whether"), "{text}");
                assert!(text.contains("never send it again") && !text.contains("did not happen"), "{text}");
                assert_eq!(said.structured_content.unwrap()["status"], status);
            }
        }
    }

    #[test]
    fn a_possible_duplicate_names_the_argument_of_this_door() {
        let said = refusal_result(&CallError::new(Code::CallPossibleDuplicate), ("email_send", None), Vec::new());
        assert!(text(&said).contains("set sluice_allow_duplicate"), "{}", text(&said));
        let hint = said.structured_content.unwrap()["hint"].to_string();
        assert!(hint.contains("set sluice_allow_duplicate"), "{hint}");
    }
    #[test]
    fn a_refusal_speaks_of_tools_as_this_door_names_them() {
        let read = CapabilityName::new("filesystem.read").unwrap();
        let no = CallError::from(
            sluice_core::refusal::Refusal::new(Code::FilesOutOfScope)
                .with_text("`filesystem.read` cannot open `/srv/filesystem.read.txt`"),
        );
        let names = names();
        let said = refusal_result(&no, ("filesystem_read", Some((&read, &names))), Vec::new());
        let text = text(&said);
        assert!(text.contains("agent_whoami") && !text.contains("agent.whoami"), "{text}");
        assert!(text.contains("`filesystem_read` cannot open `/srv/filesystem.read.txt`"), "a path stays: {text}");
        assert_eq!(said.is_error, Some(true));
    }

    #[test]
    fn a_persons_no_is_an_answer_and_not_an_error_that_a_framework_repeats() {
        let names = names();
        for (code, status) in [
            (Code::ApprovalDenied, "denied"),
            (Code::ApprovalExpired, "expired"),
            (Code::HoldCancelled, "cancelled"),
            (Code::HoldDiscarded, "discarded"),
        ] {
            let no = CallError::new(code);
            let view = CallView {
                status: status.into(),
                code: Some(code.as_str().into()),
                reason: Some(no.refusal.text().to_owned()),
                hint: Some(no.refusal.hint().to_owned()),
                ..CallView::default()
            };
            for said in [call_result(view, &names), refusal_result(&no, ("email_send", None), Vec::new())] {
                assert_eq!(said.is_error, Some(false), "{status}");
                assert!(text(&said).contains("did not happen"), "{}", text(&said));
                assert_eq!(said.structured_content.unwrap()["status"], status);
            }
        }
        let blocked = refusal_result(&CallError::new(Code::PolicyBlocked), ("email_send", None), Vec::new());
        assert_eq!(blocked.is_error, Some(true), "a rule is not a person");
    }
}
