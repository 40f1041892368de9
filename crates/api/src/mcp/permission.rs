//! The permission prompt: a client asks on behalf of its own tools whether it may use one.
//!
//! Takes `{tool_name, input, tool_use_id}`; gives one text, `{"behavior": "allow", …}` or `{"behavior": "deny", …}`, as
//! `--permission-prompt-tool` requires it. Promise: anything but a clear approval within the client's patience is a
//! denial.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::corridor;
use sluice_gateway::rooms::answer::{self, CallOutcome};
use sluice_gateway::rooms::identity::{CallMode, CallOptions};
use sluice_services::CallError;

use super::handler::{McpHandler, client_of};
use super::{McpCaller, call, names, tools};
use crate::client_tools;

pub(super) const NAME: &str = names::PERMISSION;

/// The definition of the tool, for clients that are known to use it.
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

/// Answers a permission prompt.
pub(super) async fn answer(
    handler: &McpHandler,
    guest: &McpCaller,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let input = arguments.get("input").cloned().unwrap_or_else(|| json!({}));
    let verdict = match judge(handler, guest, arguments, context).await {
        // The input is always returned: without it, some versions run the tool with no input.
        Ok(()) => json!({"behavior": "allow", "updatedInput": input}),
        Err(why) => json!({"behavior": "deny", "message": why}),
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(verdict.to_string())]))
}

async fn judge(
    handler: &McpHandler,
    guest: &McpCaller,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<(), String> {
    let tool = arguments.get("tool_name").and_then(Value::as_str).unwrap_or_default();
    let named = client_tools::ClientTool::from_double_underscore(tool);
    // SECURITY: a prefix proves nothing. Only a tool that this gateway offers under that name is judged when it is
    // called.
    if named.gateway_tool().is_some_and(|own| handler.names.now().knows(own)) {
        return Ok(());
    }
    let input = arguments.get("input").cloned().unwrap_or(Value::Null);
    let asked =
        client_tools::translate(&named, &input, None).map_err(|why| format!("`{}`: {why}", call::short(tool)))?;
    let wish = CallOptions {
        capability: asked.capability,
        arguments: asked.arguments,
        account: None,
        session_id: guest.session.as_ref().map(|session| session.id),
        // A call without an id gets no idempotency key: an earlier answer must not count for the next call.
        idempotency_key: arguments
            .get("tool_use_id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(call::key_of),
        reason: None,
        mode: CallMode::Check,
        wait_ms: Some(0),
        allow_duplicate: true,
        named: false,
    };
    let call_request = guest.call_request(wish);
    let gw = &handler.gw;
    let words = |no: CallError| format!("{}. What to do: {}", no.refusal.text(), no.refusal.hint());
    let mut told = corridor::walk(gw, call_request).await.map_err(words)?;
    let mut left = call::budget(client_of(guest, context).as_deref());
    loop {
        let hold = match &told {
            CallOutcome::Allowed { .. } | CallOutcome::Observed { .. } => return Ok(()),
            CallOutcome::Awaiting { hold, .. } | CallOutcome::Held { hold, .. } | CallOutcome::Under { hold, .. } => {
                *hold
            }
            CallOutcome::Done { .. } => return Err("the gateway has carried it out itself".into()),
        };
        if left == Millis::ZERO {
            return Err("a person was asked and has not answered yet; try again later".into());
        }
        let round = left.min(Millis::from_secs(50));
        told = answer::wait(gw, sluice_core::CallId::from_bits(hold.bits()), hold, round).await.map_err(words)?;
        left = Millis::from_millis(left.as_millis().saturating_sub(round.as_millis()));
    }
}
