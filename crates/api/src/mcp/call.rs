//! Calls: turns a tool call into a call request, and waits for its answer as the client can.
//!
//! Takes a tool's name and arguments; gives a result, or a task if the client knows tasks. Promise: the call passes
//! the corridor; a client that disconnects cancels nothing that was accepted; a call that waits for a person always
//! answers within the client's patience, with a handle if there is no outcome yet.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, JsonObject, ProgressNotificationParam,
    ProgressToken,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::capability::Effect;
use sluice_core::refusal::Code;
use sluice_core::{CallId, CapabilityName, HoldId, Millis, Tier};
use sluice_gateway::rooms::answer::{self, CallOutcome};
use sluice_gateway::rooms::identity::{CallMode, CallOptions};
use sluice_gateway::{Gateway, GatewayPhase, corridor};
use sluice_services::CallError;

use super::call_link::{self, ToolCallIdentity};
use super::handler::{McpHandler, client_of, guest_of};
use super::tools::{AGAIN, REASON};
use super::{McpCaller, companions, permission, recent, results, tasks, tools};
use crate::http::calls;
use crate::http::views::CallView;

/// How long a call without a progress token waits for a person.
const PATIENCE: Millis = Millis::from_secs(25);
/// How often a client that asked for progress is told that its call still waits.
const BEAT: Millis = Millis::from_secs(10);
/// How long clients wait for one call, by the start of their names; shorter than their known limits.
const BUDGETS: [(&str, Millis); 4] = [
    ("codex", Millis::from_secs(280)),
    ("gemini-cli", Millis::from_secs(570)),
    ("claude-code", Millis::from_secs(280)),
    ("claude", Millis::from_secs(50)),
];
const BUDGET: Millis = Millis::from_secs(50);
/// The metadata key with which a client makes two calls count as one, for 30 days.
const KEY: &str = "sluice/idempotency_key";
/// Longest key that is stored unchanged, in bytes.
const LONGEST_KEY: usize = 200;
/// Metadata keys of call ids that clients assign. A repeated call gets a new id, so this is not an idempotency key.
const IDENTITIES: [&str; 1] = ["claudecode/toolUseId"];

/// `tools/call`.
pub(super) async fn make(
    handler: &McpHandler,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let guest = guest_of(context)?;
    let arguments = request.arguments.unwrap_or_default();
    let client = client_of(&guest, context);
    let asked_of_us = (client.as_deref(), &*request.name);
    if let Some(result) = companions::answer(handler, &guest, asked_of_us, &arguments).await {
        return Ok(result.into());
    }
    if request.name == permission::NAME {
        return Ok(permission::answer(handler, &guest, &arguments, context).await?.into());
    }
    let names = handler.names.now();
    let Some(capability) = names.capability(&request.name).cloned() else {
        let text = format!("there is no tool `{}`; ask for the list of tools", short(&request.name));
        return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, text, None));
    };
    let gw = &handler.gw;
    let given = call_link::whole(&arguments);
    let asked = ToolCallIdentity { agent: &guest.agent, tool: &request.name, arguments: &given };
    let resumed = request.request_state.as_deref().map(|state| call_link::resume_call(state, asked)).transpose()?;
    let mut wish = call_options(&capability, arguments, &|name| takes(gw, &capability, name));
    wish.session_id = guest.session.as_ref().map(|session| session.id);
    wish.idempotency_key = text(context, KEY).map(key_of);
    let named = identity(&guest, context);
    let named = named.map(|name| recent::fingerprint(&guest.agent, &name, &request.name, &wish.arguments));
    if let (Some(print), None) = (&named, &wish.idempotency_key) {
        // The store decides: while the first call is still under way, after its client has gone, after a restart.
        wish.idempotency_key = Some(format!("mcp-call:{}", sluice_core::hex::encode(print)));
        wish.named = true;
    }
    let before = match resumed.or_else(|| named.as_ref().and_then(|named| handler.recent.find(named))) {
        Some(call) => calls::own(&gw.store, call, Some(&guest.agent)).await.ok().flatten(),
        None => None,
    };
    if resumed.is_some() && before.is_none() {
        let text = "the requestState is not of one of your calls";
        return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, text, None));
    }
    let told = match before {
        Some(hold) => answer::call_outcome(&gw.store, hold.call, &hold).await,
        None => {
            let call_request = guest.call_request(wish);
            corridor::walk(gw, call_request).await
        }
    };
    let answer = match told {
        Ok(answer) => answer,
        Err(no) => return Ok(refuse(handler, &guest, &capability, &no).into()),
    };
    if let (Some(named), Some(call)) = (named, write(&answer)) {
        handler.recent.keep(named, call);
    }
    let CallOutcome::Awaiting { call, hold, .. } = answer else {
        let view = view(answer, &capability).noted(gw, Some(&guest.agent), &capability);
        return Ok(results::call_result(view, &names).into());
    };
    if context.client_capabilities().is_some_and(|client| client.supports_tasks()) {
        return Ok(CallToolResponse::Task(tasks::new(gw, call, &answer)));
    }
    // Shown once; whatever the client answers, the gateway checks its own records.
    if resumed.is_none()
        && let Some(offer) = call_link::offer(gw, asked, (call, &capability), context)
    {
        return Ok(CallToolResponse::InputRequired(offer));
    }
    let token = context.meta.get_progress_token();
    let budget = budget(client.as_deref());
    let told = match token {
        Some(token) => WaitingMcpCall { gw, call, hold, budget }.with_progress(&context.peer, token).await,
        None => answer::wait(gw, call, hold, PATIENCE.min(budget)).await,
    };
    Ok(match told {
        Ok(answer) => results::call_result(view(answer, &capability), &names),
        Err(no) => refuse(handler, &guest, &capability, &no),
    }
    .into())
}

/// Whether a tool itself has an argument of this name, so that the door must not take it.
fn takes(gw: &Gateway, capability: &CapabilityName, argument: &str) -> bool {
    let known = gw.catalogue.known();
    known.get(capability).is_some_and(|spec| tools::has_own(spec, argument))
}

/// The call options, without the arguments that the door itself handles.
fn call_options(capability: &CapabilityName, mut arguments: JsonObject, takes: &dyn Fn(&str) -> bool) -> CallOptions {
    let mut ours = |name: &str| if takes(name) { None } else { arguments.remove(name) };
    let reason = match ours(REASON) {
        Some(Value::String(reason)) => Some(reason),
        _ => None,
    };
    let allow_duplicate = ours(AGAIN) == Some(Value::Bool(true));
    CallOptions {
        capability: capability.clone(),
        arguments: Value::Object(arguments),
        account: None,
        session_id: None,
        idempotency_key: None,
        reason,
        mode: CallMode::Execute,
        wait_ms: None,
        allow_duplicate,
        named: false,
    }
}

/// A client's key in its stored form. A long key is stored as a hash: cut off, two keys could become one.
pub(super) fn key_of(key: &str) -> String {
    if key.len() <= LONGEST_KEY {
        return format!("mcp:{key}");
    }
    format!("mcp-print:{}", sluice_core::hex::encode(&Sha256::digest(key.as_bytes())))
}

/// The client's own name for this call, if it has one.
fn identity(guest: &McpCaller, context: &RequestContext<RoleServer>) -> Option<String> {
    let given = IDENTITIES.into_iter().find_map(|name| text(context, name));
    // Within one session of the older revisions a request id is never reused. Elsewhere it means nothing.
    given.map(str::to_owned).or_else(|| Some(format!("{}:{}", guest.session.as_ref()?.id, context.id)))
}

/// A text of the request's metadata.
fn text<'c>(context: &'c RequestContext<RoleServer>, name: &str) -> Option<&'c str> {
    context.meta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The id of the call, if a write was accepted.
fn write(answer: &CallOutcome) -> Option<CallId> {
    match answer {
        CallOutcome::Held { call, .. }
        | CallOutcome::Awaiting { call, .. }
        | CallOutcome::Under { call, .. }
        | CallOutcome::Done { call, .. } => Some(*call),
        CallOutcome::Allowed { .. } | CallOutcome::Observed { .. } => None,
    }
}

/// How long this client waits for one call.
pub(super) fn budget(client: Option<&str>) -> Millis {
    let client = client.unwrap_or_default().to_ascii_lowercase();
    BUDGETS.into_iter().find(|(name, _)| client.starts_with(name)).map_or(BUDGET, |(_, budget)| budget)
}

/// A call that waits for a person.
struct WaitingMcpCall<'a> {
    gw: &'a Gateway,
    call: CallId,
    hold: HoldId,
    budget: Millis,
}

impl WaitingMcpCall<'_> {
    /// Keeps the call open and sends progress from time to time.
    async fn with_progress(&self, peer: &Peer<RoleServer>, token: ProgressToken) -> Result<CallOutcome, CallError> {
        let clock = &self.gw.clock;
        let start = clock.since_boot();
        let mut waited = Millis::ZERO;
        loop {
            let mut note = ProgressNotificationParam::new(token.clone(), f64::from(seconds(waited)));
            note.message = Some(format!("waiting for a person, {waited} so far"));
            // A client that is gone gets no progress, and its call stays accepted. A gateway that stops keeps no call open.
            let gone = peer.notify_progress(note).await.is_err() || self.gw.phase() == GatewayPhase::Stopping;
            let left = Millis::from_millis(self.budget.as_millis().saturating_sub(waited.as_millis()));
            if gone || left == Millis::ZERO {
                return answer::wait(self.gw, self.call, self.hold, Millis::ZERO).await;
            }
            match answer::wait(self.gw, self.call, self.hold, BEAT.min(left)).await? {
                CallOutcome::Awaiting { .. } => {}
                other => return Ok(other),
            }
            waited = Millis::from_millis(clock.since_boot().as_millis().saturating_sub(start.as_millis()));
        }
    }
}

fn seconds(span: Millis) -> u32 {
    u32::try_from(span.as_millis() / 1000).unwrap_or(u32::MAX)
}

/// An answer in the form that is shown.
pub(super) fn view(answer: CallOutcome, capability: &CapabilityName) -> CallView {
    CallView { capability: Some(capability.to_string()), ..CallView::of(answer).1 }
}

/// A refusal with alternatives for the agent.
fn refuse(handler: &McpHandler, guest: &McpCaller, capability: &CapabilityName, no: &CallError) -> CallToolResult {
    let instead =
        if no.refusal.code() == Code::PolicyBlocked { alternatives(handler, guest, capability) } else { Vec::new() };
    let names = handler.names.now();
    let tool = names.tool(capability).unwrap_or(capability.as_str());
    results::refusal_result(no, (tool, Some((capability, &names))), instead)
}

/// Reads of the same service that the rules allow without a person. A write is never suggested: it could reach the effect
/// that was refused in another way.
fn alternatives(handler: &McpHandler, guest: &McpCaller, capability: &CapabilityName) -> Vec<String> {
    let (policy, known) = (handler.gw.policy.get(), handler.gw.catalogue.known());
    let service = sluice_core::capability::service_of(capability);
    let names = handler.names.now();
    let is_safe = |name: &CapabilityName| {
        known.get(name).is_some_and(|spec| spec.effect == Effect::Read)
            && policy.reach(&guest.agent, name).loosest < Tier::ApprovalRequired
    };
    let near = names.iter().filter(|(_, other)| {
        *other != capability && sluice_core::capability::service_of(other) == service && is_safe(other)
    });
    near.take(5).map(|(tool, _)| tool.to_owned()).collect()
}

/// A text of a client, cut to a length that can be shown.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_less_than_its_own_patience() {
        assert_eq!(budget(Some("codex-mcp-client")), Millis::from_secs(280));
        assert_eq!(budget(Some("Claude-AI")), Millis::from_secs(50));
        assert_eq!(budget(Some("claude-code")), Millis::from_secs(280));
        assert_eq!(budget(None), BUDGET);
    }

    #[test]
    fn long_keys_with_one_beginning_stay_two_and_fit() {
        let [one, other] = ["a", "b"].map(|end| key_of(&format!("{}{end}", "\u{e9}".repeat(300))));
        assert_ne!(one, other);
        assert!(one.len() <= 255 && key_of(&"k".repeat(LONGEST_KEY)).len() <= 255);
        assert_eq!(key_of("mine"), "mcp:mine");
    }

    #[test]
    fn words_for_the_gate_do_not_reach_the_capability() {
        let name = CapabilityName::new("email.send").unwrap();
        let arguments = serde_json::json!({"to": "a@b.c", REASON: "asked to", AGAIN: true});
        let wish = call_options(&name, tools::object(arguments), &|_| false);
        assert_eq!(wish.arguments, serde_json::json!({"to": "a@b.c"}));
        assert_eq!((wish.reason.as_deref(), wish.allow_duplicate), (Some("asked to"), true));
    }

    #[test]
    fn an_argument_of_the_tools_own_is_not_taken_away() {
        let name = CapabilityName::new("mail.note").unwrap();
        let arguments = serde_json::json!({REASON: "its own", AGAIN: true});
        let wish = call_options(&name, tools::object(arguments), &|argument| argument == REASON);
        assert_eq!(wish.arguments, serde_json::json!({REASON: "its own"}));
        assert_eq!((wish.reason, wish.allow_duplicate), (None, true));
    }
}
