//! The permission prompt: a client asks on behalf of its own tools whether it may use one.
//!
//! Takes `{tool_name, input, tool_use_id}`; gives one text, `{"behavior": "allow", …}` or `{"behavior": "deny", …}`, as
//! `--permission-prompt-tool` wants it. Promise: whatever is not a clear yes within the client's patience is a no.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use sluice_core::Span;

use super::handler::{Handler, client_of};
use super::{Guest, call, names, tools};
use crate::doors::foreign;
use crate::rooms::answer::{self, Answer};
use crate::rooms::identity::{Mode, Wish};
use crate::{No, corridor};

pub(super) const NAME: &str = names::PERMISSION;

/// Its definition, for clients that are known to ask.
pub(super) fn tool(client: Option<&str>) -> Option<Tool> {
    if !client.is_some_and(|client| client.to_ascii_lowercase().starts_with("claude-code")) {
        return None;
    }
    let schema = json!({
        "type": "object",
        "properties": {"tool_name": {"type": "string"}, "input": {"type": "object"}, "tool_use_id": {"type": "string"}},
        "required": ["tool_name", "input"],
    });
    let about = "For the client program, not for you: asks whether one of its own tools may be used.";
    let hints = ToolAnnotations::default().read_only(true).open_world(false);
    Some(Tool::new(NAME, about, std::sync::Arc::new(tools::object(schema))).with_annotations(hints))
}

/// The answer.
pub(super) async fn answer(
    handler: &Handler,
    guest: &Guest,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let input = arguments.get("input").cloned().unwrap_or_else(|| json!({}));
    let verdict = match judge(handler, guest, arguments, context).await {
        // The input is always given back: without it, some versions run the tool with nothing.
        Ok(()) => json!({"behavior": "allow", "updatedInput": input}),
        Err(why) => json!({"behavior": "deny", "message": why}),
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(verdict.to_string())]))
}

async fn judge(
    handler: &Handler,
    guest: &Guest,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<(), String> {
    let tool = arguments.get("tool_name").and_then(Value::as_str).unwrap_or_default();
    let named = foreign::Tool::doubly(tool);
    // SECURITY: a prefix proves nothing. Only what this gateway offers under that name is judged when it is called.
    if named.of_gate().is_some_and(|own| handler.names.now().knows(own)) {
        return Ok(());
    }
    let input = arguments.get("input").cloned().unwrap_or(Value::Null);
    let asked = foreign::translate(&named, &input, None).map_err(|why| format!("`{}`: {why}", call::short(tool)))?;
    let wish = Wish {
        capability: asked.capability,
        arguments: asked.arguments,
        account: None,
        session_id: guest.session.as_ref().map(|session| session.id),
        // One without a name is nobody's again: what was said to it once is not said to the next.
        idempotency_key: arguments
            .get("tool_use_id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(call::key_of),
        reason: None,
        mode: Mode::Check,
        wait_ms: Some(0),
        allow_duplicate: true,
        named: false,
    };
    let knock = guest.knock(wish);
    let gw = &handler.gw;
    let words = |no: No| format!("{}. What to do: {}", no.refusal.text(), no.refusal.hint());
    let mut told = corridor::walk(gw, knock).await.map_err(words)?;
    let mut left = call::budget(client_of(guest, context).as_deref());
    loop {
        let hold = match &told {
            Answer::Allowed { .. } | Answer::Observed { .. } => return Ok(()),
            Answer::Awaiting { hold, .. } | Answer::Held { hold, .. } | Answer::Under { hold, .. } => *hold,
            Answer::Done { .. } => return Err("the gate carried it out itself".into()),
        };
        if left == Span::ZERO {
            return Err("a person was asked and has not answered yet; try again later".into());
        }
        let round = left.min(Span::from_secs(50));
        told = answer::wait(gw, sluice_core::CallId::from_bits(hold.bits()), hold, round).await.map_err(words)?;
        left = Span::from_millis(left.as_millis().saturating_sub(round.as_millis()));
    }
}
