//! Companion tools: let an agent ask about its own calls.
//!
//! Takes the id of a call, or nothing; gives its state, waits for it or cancels it. Promise: an agent reaches only its
//! own calls; the id of another agent's call is as unknown as one that never existed.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use sluice_core::hold::HoldState;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, HoldId, Millis, Tier};
use sluice_gateway::rooms::hold;
use sluice_services::CallError;
use sluice_services::failing::FailureAudience;
use sluice_store::{ApprovalFilter, HoldFilter};

use super::handler::McpHandler;
use super::names::{APPROVALS, CANCEL, FIND_TOOLS, STATUS, WAIT, WHOAMI};
use super::{McpCaller, find_tools, permission, results, tools};
use crate::http::calls;
use crate::http::views::{HoldView, listed};

/// The longest that one call of `sluice_wait` waits, in seconds.
const LONGEST: u64 = 50;
/// Most entries of a list.
const PAGE: u32 = 20;

/// The definitions of the companion tools.
pub(super) fn list(client: Option<&str>) -> Vec<Tool> {
    let id = json!({"type": "string"});
    let seconds = json!({"type": "integer", "minimum": 1, "maximum": LONGEST});
    let own = |name: &'static str, about: &'static str, properties: Value, required: Value, hints: ToolAnnotations| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        Tool::new(name, about, Arc::new(tools::object(schema))).with_annotations(hints.open_world(false))
    };
    let reads = || ToolAnnotations::default().read_only(true);
    let stops = ToolAnnotations::default().read_only(false).destructive(false).idempotent(true);
    let mut list = vec![
        own(
            STATUS,
            "Returns the state of one of your calls, or lists your latest writes if no call is named.",
            json!({"call_id": id}),
            json!([]),
            reads(),
        ),
        own(
            WAIT,
            "Waits up to 50 seconds for one of your calls to end and returns its state. Call again if it still waits.",
            json!({"call_id": id, "timeout_s": seconds}),
            json!(["call_id"]),
            reads(),
        ),
        own(
            CANCEL,
            "Cancels one of your writes that is held or waits for a person. If it is too late, the answer says so.",
            json!({"call_id": id}),
            json!(["call_id"]),
            stops,
        ),
        own(
            WHOAMI,
            "Returns who you are to the gate, the tier of each tool under your rules, and whether anything is frozen.",
            json!({}),
            json!([]),
            reads(),
        ),
        own(APPROVALS, "Lists your writes that wait for a person's approval.", json!({}), json!([]), reads()),
    ];
    list.extend(permission::tool(client));
    list
}

/// The answer of a companion tool, if it is one.
pub(super) async fn answer(
    handler: &McpHandler,
    guest: &McpCaller,
    (client, tool): (Option<&str>, &str),
    arguments: &JsonObject,
) -> Option<CallToolResult> {
    let answered = match tool {
        STATUS if !arguments.contains_key("call_id") => latest(handler, guest).await,
        STATUS => show_call(handler, guest, arguments, Millis::ZERO).await,
        WAIT => {
            let asked = arguments.get("timeout_s").and_then(Value::as_u64).unwrap_or(LONGEST);
            show_call(handler, guest, arguments, Millis::from_secs(asked.clamp(1, LONGEST))).await
        }
        CANCEL => cancel(handler, guest, arguments).await,
        WHOAMI => whoami(handler, guest).await,
        APPROVALS => approvals(handler, guest).await,
        FIND_TOOLS => find_tools::answer(handler, guest, client, arguments).await,
        _ => return None,
    };
    Some(answered.unwrap_or_else(|no| results::refusal_result(&no, (tool, None), Vec::new())))
}

/// The call that an agent names, by its own id or that of its write.
fn named(arguments: &JsonObject) -> Result<CallId, CallError> {
    let text = arguments.get("call_id").and_then(Value::as_str).unwrap_or_default();
    let write = text.parse::<HoldId>().map(|hold| CallId::from_bits(hold.bits()));
    text.parse().or(write).map_err(|_| CallError::new(Code::CallNotFound))
}

async fn show_call(
    handler: &McpHandler,
    guest: &McpCaller,
    arguments: &JsonObject,
    wait: Millis,
) -> Result<CallToolResult, CallError> {
    let view = calls::call_status(&handler.gw, named(arguments)?, Some(&guest.agent), wait).await?;
    let mut result = results::call_result(view, &handler.names.now());
    // Asking about a refused call is not itself a refusal.
    result.is_error = Some(false);
    Ok(result)
}

async fn latest(handler: &McpHandler, guest: &McpCaller) -> Result<CallToolResult, CallError> {
    let filter = HoldFilter { agent: Some(guest.agent.clone()), newest_first: true, ..HoldFilter::default() };
    let store = &handler.gw.store;
    let found = store.holds_page(filter, None, PAGE).await?;
    let views = listed::holds(store, &found, FailureAudience::Agent).await?;
    let words = match views.first() {
        None => "You have made no writes.".to_owned(),
        Some(last) => format!("{} writes; the latest is `{}`: {}.", views.len(), last.capability, last.status),
    };
    Ok(listed(&json!({"status": "done", "writes": views}), words))
}

async fn cancel(handler: &McpHandler, guest: &McpCaller, arguments: &JsonObject) -> Result<CallToolResult, CallError> {
    let call = named(arguments)?;
    let gw = &handler.gw;
    let found =
        calls::own(&gw.store, call, Some(&guest.agent)).await?.ok_or_else(|| CallError::new(Code::CallNotFound))?;
    let hold = match found.state {
        // Cancelled before: it is not too late for anything.
        HoldState::Cancelled { .. } => found,
        _ => hold::stop(gw, HoldId::from_bits(call.bits()), Actor::Agent(guest.agent.clone())).await?,
    };
    let (names, capability) = (handler.names.now(), hold.action.capability());
    let words = format!("`{}` is cancelled: nothing was sent.", names.tool(capability).unwrap_or(capability.as_str()));
    let value = json!({"status": "cancelled", "call_id": call, "buffer_id": hold.id});
    Ok(results::result(value, vec![words], false))
}

async fn whoami(handler: &McpHandler, guest: &McpCaller) -> Result<CallToolResult, CallError> {
    let gw = &handler.gw;
    let policy = gw.policy.get();
    let mut tiers = Map::new();
    for (tool, capability) in handler.names.now().iter() {
        let reach = policy.reach(&guest.agent, capability);
        let works = guest.session.is_some() || !tools::needs_session(capability);
        if works && reach.loosest < Tier::Blocked {
            tiers.insert(tool.to_owned(), said(reach.loosest, reach.strictest));
        }
    }
    let frozen: Vec<String> = gw.store.freezes().await?.iter().map(|freeze| freeze.scope.to_string()).collect();
    let words = format!("You are the agent `{}` with {} tools.", guest.agent, tiers.len());
    let value = json!({
        "status": "done", "agent": guest.agent, "key_id": guest.principal.key(),
        "session_id": guest.session.as_ref().map(|session| session.id), "paused": gw.keyring.is_paused(&guest.agent),
        "observing_until": gw.keyring.observing(&guest.agent, gw.now()).map(|mode| mode.until.to_string()),
        "frozen": frozen, "folders": gw.about.folders_of(&guest.agent), "policy_version": policy.version(),
        "tiers": tiers,
    });
    Ok(listed(&value, words))
}

/// The tier of a tool. Judged without arguments, a rule about arguments would give the strictest one.
fn said(loosest: Tier, strictest: Tier) -> Value {
    if loosest == strictest {
        return loosest.as_str().into();
    }
    format!("{} to {}, depending on the arguments", loosest.as_str(), strictest.as_str()).into()
}

async fn approvals(handler: &McpHandler, guest: &McpCaller) -> Result<CallToolResult, CallError> {
    let store = &handler.gw.store;
    let states = vec!["awaiting_approval"];
    let filter = HoldFilter { agent: Some(guest.agent.clone()), states, newest_first: true, ..HoldFilter::default() };
    let found = store.holds_page(filter, None, PAGE).await?;
    let views: Vec<HoldView> = found.iter().map(HoldView::of).collect();
    let filter = ApprovalFilter { state: Some("pending"), agent: Some(guest.agent.clone()) };
    let open = store.approvals_page(filter, None, PAGE).await?.len();
    let words = format!("{} of your writes wait for a person, in {open} approvals.", views.len());
    Ok(listed(&json!({"status": "done", "waiting": views}), words))
}

/// A list as structured content and as text.
fn listed(value: &Value, words: String) -> CallToolResult {
    let text = value.to_string();
    results::result(value.clone(), vec![words, text], false)
}
