//! Companion tools: what an agent can ask about its own calls.
//!
//! Takes the id of a call, or nothing; gives how it stands, waits for it or stops it. Promise: an agent reaches its own
//! calls only; the id of another's is as unknown as one that never was.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use sluice_core::hold::HoldState;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, HoldId, Span, Tier};
use sluice_store::{ApprovalFilter, HoldFilter};

use super::handler::Handler;
use super::names::{APPROVALS, CANCEL, STATUS, WAIT, WHOAMI};
use super::{Guest, permission, tools, words};
use crate::No;
use crate::doors::http::calls;
use crate::doors::http::views::HoldView;
use crate::doors::http::views::failing::{self, Audience};
use crate::rooms::hold;

/// The longest one call of `sluice_wait` waits, in seconds.
const LONGEST: u64 = 50;
/// Most entries of a list.
const PAGE: u32 = 20;

/// Their definitions.
pub(super) fn list(client: Option<&str>) -> Vec<Tool> {
    let id = json!({"type": "string", "description": "The call_id (or buffer_id) of the call."});
    let seconds =
        json!({"type": "integer", "minimum": 1, "maximum": LONGEST, "description": "How long to wait, 50 at most."});
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
            "Says how one of your calls stands, or lists your latest writes if no call is named.",
            json!({"call_id": id}),
            json!([]),
            reads(),
        ),
        own(
            WAIT,
            "Waits up to 50 seconds for one of your calls to end and says how it stands. Ask again if it still waits.",
            json!({"call_id": id, "timeout_s": seconds}),
            json!(["call_id"]),
            reads(),
        ),
        own(
            CANCEL,
            "Stops one of your writes that is still held or waits for a person. If it is too late, the answer says so.",
            json!({"call_id": id}),
            json!(["call_id"]),
            stops,
        ),
        own(
            WHOAMI,
            "Says who you are to the gate, what your rules say to each tool, and whether anything is frozen.",
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
    handler: &Handler,
    guest: &Guest,
    tool: &str,
    arguments: &JsonObject,
) -> Option<CallToolResult> {
    let answered = match tool {
        STATUS if !arguments.contains_key("call_id") => latest(handler, guest).await,
        STATUS => standing(handler, guest, arguments, Span::ZERO).await,
        WAIT => {
            let asked = arguments.get("timeout_s").and_then(Value::as_u64).unwrap_or(LONGEST);
            standing(handler, guest, arguments, Span::from_secs(asked.clamp(1, LONGEST))).await
        }
        CANCEL => cancel(handler, guest, arguments).await,
        WHOAMI => whoami(handler, guest).await,
        APPROVALS => approvals(handler, guest).await,
        _ => return None,
    };
    Some(answered.unwrap_or_else(|no| words::refused(&no, tool, Vec::new())))
}

/// The call an agent names, by its own id or that of its write.
fn named(arguments: &JsonObject) -> Result<CallId, No> {
    let text = arguments.get("call_id").and_then(Value::as_str).unwrap_or_default();
    let write = text.parse::<HoldId>().map(|hold| CallId::from_bits(hold.bits()));
    text.parse().or(write).map_err(|_| No::new(Code::CallNotFound))
}

async fn standing(handler: &Handler, guest: &Guest, arguments: &JsonObject, wait: Span) -> Result<CallToolResult, No> {
    let view = calls::standing(&handler.gw, named(arguments)?, Some(&guest.agent), wait).await?;
    let mut result = words::told(view);
    // Looking at a call that was refused is not a refusal.
    result.is_error = Some(false);
    Ok(result)
}

async fn latest(handler: &Handler, guest: &Guest) -> Result<CallToolResult, No> {
    let filter = HoldFilter { agent: Some(guest.agent.clone()), newest_first: true, ..HoldFilter::default() };
    let store = &handler.gw.store;
    let found = store.holds_page(filter, None, PAGE).await?;
    let views = failing::listed(store, &found, Audience::Agent).await?;
    let words = match views.first() {
        None => "You have made no writes.".to_owned(),
        Some(last) => format!("{} writes; the latest is `{}`: {}.", views.len(), last.capability, last.status),
    };
    Ok(listed(&json!({"status": "done", "writes": views}), words))
}

async fn cancel(handler: &Handler, guest: &Guest, arguments: &JsonObject) -> Result<CallToolResult, No> {
    let call = named(arguments)?;
    let gw = &handler.gw;
    let found = calls::own(&gw.store, call, Some(&guest.agent)).await?.ok_or_else(|| No::new(Code::CallNotFound))?;
    let hold = match found.state {
        // Stopped before: there is nothing to be late for.
        HoldState::Cancelled { .. } => found,
        _ => hold::stop(gw, HoldId::from_bits(call.bits()), Actor::Agent(guest.agent.clone())).await?,
    };
    let words = format!("`{}` is cancelled: nothing was sent.", hold.action.capability());
    let value = json!({"status": "cancelled", "call_id": call, "buffer_id": hold.id});
    Ok(words::result(value, vec![words], false))
}

async fn whoami(handler: &Handler, guest: &Guest) -> Result<CallToolResult, No> {
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
        "status": "done", "agent": guest.agent, "key_id": guest.visitor.key(),
        "session_id": guest.session.as_ref().map(|session| session.id), "paused": gw.keyring.is_paused(&guest.agent),
        "observing_until": gw.keyring.observing(&guest.agent, gw.now()).map(|mode| mode.until.to_string()),
        "frozen": frozen, "folders": gw.about.folders_of(&guest.agent), "policy_version": policy.version(),
        "tiers": tiers,
    });
    Ok(listed(&value, words))
}

/// What the rules say to a tool. Judged without arguments, a rule about arguments would say the worst.
fn said(loosest: Tier, strictest: Tier) -> Value {
    if loosest == strictest {
        return loosest.as_str().into();
    }
    format!("{} to {}, depending on the arguments", loosest.as_str(), strictest.as_str()).into()
}

async fn approvals(handler: &Handler, guest: &Guest) -> Result<CallToolResult, No> {
    let store = &handler.gw.store;
    let states = vec!["awaiting_approval"];
    let filter = HoldFilter { agent: Some(guest.agent.clone()), states, newest_first: true, ..HoldFilter::default() };
    let found = store.holds_page(filter, None, PAGE).await?;
    let views: Vec<HoldView> = found.iter().map(HoldView::of).collect();
    let filter = ApprovalFilter { state: Some("pending"), agent: Some(guest.agent.clone()) };
    let open = store.approvals_page(filter, None, PAGE).await?.len();
    let words = format!("{} of your writes wait for a person, in {open} questions.", views.len());
    Ok(listed(&json!({"status": "done", "waiting": views}), words))
}

/// A list in both forms.
fn listed(value: &Value, words: String) -> CallToolResult {
    let text = value.to_string();
    words::result(value.clone(), vec![words, text], false)
}
