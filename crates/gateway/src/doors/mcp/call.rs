//! Calls: a tool call becomes a knock, and waits for its answer as the client can.
//!
//! Takes a tool's name and arguments; gives a result, or a task where the client knows those. Promise: the call walks
//! the corridor; a client that goes away cancels nothing that was accepted; a call that waits for a person always
//! comes back within the client's patience, with a handle if there is no outcome yet.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, JsonObject, ProgressNotificationParam,
    ProgressToken,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::refusal::Code;
use sluice_core::{CallId, CapabilityName, HoldId, Span, Tier};

use super::handler::{Handler, client_of, guest_of};
use super::shown::{self, Asked};
use super::tools::{AGAIN, REASON};
use super::{Guest, companions, permission, recent, tasks, tools, words};
use crate::doors::http::calls;
use crate::doors::http::views::CallView;
use crate::rooms::answer::{self, Answer};
use crate::rooms::identity::{Mode, Wish};
use crate::{Gateway, No, corridor};

/// How long a call without a progress token waits for a person.
const PATIENCE: Span = Span::from_secs(25);
/// How often a client that wants to know hears that its call still waits.
const BEAT: Span = Span::from_secs(10);
/// How long clients wait for one call, by the start of their names; less than they are known to.
const BUDGETS: [(&str, Span); 4] = [
    ("codex", Span::from_secs(280)),
    ("gemini-cli", Span::from_secs(570)),
    ("claude-code", Span::from_secs(280)),
    ("claude", Span::from_secs(50)),
];
const BUDGET: Span = Span::from_secs(50);
/// A key by which a client makes two calls one, for 30 days.
const KEY: &str = "sluice/idempotency_key";
/// The longest that is kept as it is, in bytes.
const LONGEST_KEY: usize = 200;
/// Names clients give a call of their own. A model that repeats itself gets a new one, so it is no key.
const IDENTITIES: [&str; 1] = ["claudecode/toolUseId"];

/// `tools/call`.
pub(super) async fn make(
    handler: &Handler,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let guest = guest_of(context)?;
    let arguments = request.arguments.unwrap_or_default();
    if let Some(result) = companions::answer(handler, &guest, &request.name, &arguments).await {
        return Ok(result.into());
    }
    if request.name == permission::NAME {
        return Ok(permission::answer(handler, &guest, &arguments, context).await?.into());
    }
    let Some(capability) = handler.names.now().capability(&request.name).cloned() else {
        let text = format!("there is no tool `{}`; ask for the list of tools", short(&request.name));
        return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, text, None));
    };
    let gw = &handler.gw;
    let given = shown::whole(&arguments);
    let asked = Asked { agent: &guest.agent, tool: &request.name, arguments: &given };
    let resumed = request.request_state.as_deref().map(|state| shown::resumed(state, asked)).transpose()?;
    let mut wish = wish(&capability, arguments, &|name| takes(gw, &capability, name));
    wish.session_id = guest.session.as_ref().map(|session| session.id);
    wish.idempotency_key = text(context, KEY).map(key_of);
    let named = identity(&guest, context);
    let named = named.map(|name| recent::print(&guest.agent, &name, &request.name, &wish.arguments));
    if let (Some(print), None) = (&named, &wish.idempotency_key) {
        // The store has the last word: while the first is still on its way, after its client has gone, after a restart.
        wish.idempotency_key = Some(format!("mcp-call:{}", sluice_core::hex::encode(print)));
        wish.named = true;
    }
    let before = match resumed.or_else(|| named.as_ref().and_then(|named| handler.recent.find(named))) {
        Some(call) => calls::own(&gw.store, call, Some(&guest.agent)).await.ok().flatten(),
        None => None,
    };
    if resumed.is_some() && before.is_none() {
        let text = "the requestState names no call of yours";
        return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, text, None));
    }
    let told = match before {
        Some(hold) => answer::tell(&gw.store, hold.call, &hold).await,
        None => {
            let knock = guest.knock(wish);
            corridor::walk(gw, knock).await
        }
    };
    let answer = match told {
        Ok(answer) => answer,
        Err(no) => return Ok(refuse(handler, &guest, &capability, &no).into()),
    };
    if let (Some(named), Some(call)) = (named, write(&answer)) {
        handler.recent.keep(named, call);
    }
    let Answer::Awaiting { call, hold, .. } = answer else {
        return Ok(words::told(view(answer, &capability)).into());
    };
    if context.client_capabilities().is_some_and(|client| client.supports_tasks()) {
        return Ok(CallToolResponse::Task(tasks::new(gw, call, &answer)));
    }
    // Shown once; whatever the client says to it, the gateway looks at its own record.
    if resumed.is_none()
        && let Some(offer) = shown::offer(gw, asked, (call, &capability), context)
    {
        return Ok(CallToolResponse::InputRequired(offer));
    }
    let token = context.meta.get_progress_token();
    let budget = budget(client_of(&guest, context).as_deref());
    let told = match token {
        Some(token) => Waiting { gw, call, hold, budget }.with_progress(&context.peer, token).await,
        None => answer::wait(gw, call, hold, PATIENCE.min(budget)).await,
    };
    Ok(match told {
        Ok(answer) => words::told(view(answer, &capability)),
        Err(no) => refuse(handler, &guest, &capability, &no),
    }
    .into())
}

/// Whether a tool has an argument of this name itself, so that it is not ours to take away.
fn takes(gw: &Gateway, capability: &CapabilityName, argument: &str) -> bool {
    let known = gw.catalogue.known();
    known.get(capability).is_some_and(|spec| tools::has_own(spec, argument))
}

/// What is asked, without what the door itself understands.
fn wish(capability: &CapabilityName, mut arguments: JsonObject, takes: &dyn Fn(&str) -> bool) -> Wish {
    let mut ours = |name: &str| if takes(name) { None } else { arguments.remove(name) };
    let reason = match ours(REASON) {
        Some(Value::String(reason)) => Some(reason),
        _ => None,
    };
    let allow_duplicate = ours(AGAIN) == Some(Value::Bool(true));
    Wish {
        capability: capability.clone(),
        arguments: Value::Object(arguments),
        account: None,
        session_id: None,
        idempotency_key: None,
        reason,
        mode: Mode::Execute,
        wait_ms: None,
        allow_duplicate,
        named: false,
    }
}

/// A client's key as it is kept. A long one goes by its print: cut off, two of them could become one.
pub(super) fn key_of(key: &str) -> String {
    if key.len() <= LONGEST_KEY {
        return format!("mcp:{key}");
    }
    format!("mcp-print:{}", sluice_core::hex::encode(&Sha256::digest(key.as_bytes())))
}

/// The client's own name for this call, if it has one.
fn identity(guest: &Guest, context: &RequestContext<RoleServer>) -> Option<String> {
    let given = IDENTITIES.into_iter().find_map(|name| text(context, name));
    // Within one session of the older revisions a request id is never used twice. Elsewhere it means nothing.
    given.map(str::to_owned).or_else(|| Some(format!("{}:{}", guest.session.as_ref()?.id, context.id)))
}

/// A text of the request's metadata.
fn text<'c>(context: &'c RequestContext<RoleServer>, name: &str) -> Option<&'c str> {
    context.meta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The call of a write that was accepted.
fn write(answer: &Answer) -> Option<CallId> {
    match answer {
        Answer::Held { call, .. }
        | Answer::Awaiting { call, .. }
        | Answer::Under { call, .. }
        | Answer::Done { call, .. } => Some(*call),
        Answer::Allowed { .. } | Answer::Observed { .. } => None,
    }
}

/// How long this client waits for one call.
pub(super) fn budget(client: Option<&str>) -> Span {
    let client = client.unwrap_or_default().to_ascii_lowercase();
    BUDGETS.into_iter().find(|(name, _)| client.starts_with(name)).map_or(BUDGET, |(_, budget)| budget)
}

/// A call that waits for a person.
struct Waiting<'a> {
    gw: &'a Gateway,
    call: CallId,
    hold: HoldId,
    budget: Span,
}

impl Waiting<'_> {
    /// Keeps the call open and says so from time to time.
    async fn with_progress(&self, peer: &Peer<RoleServer>, token: ProgressToken) -> Result<Answer, No> {
        let clock = &self.gw.clock;
        let start = clock.since_boot();
        let mut waited = Span::ZERO;
        loop {
            let mut note = ProgressNotificationParam::new(token.clone(), f64::from(seconds(waited)));
            note.message = Some(format!("waiting for a person, {waited} so far"));
            // A client that is gone is not told, and its call stays accepted.
            let gone = peer.notify_progress(note).await.is_err();
            let left = Span::from_millis(self.budget.as_millis().saturating_sub(waited.as_millis()));
            if gone || left == Span::ZERO {
                return answer::wait(self.gw, self.call, self.hold, Span::ZERO).await;
            }
            match answer::wait(self.gw, self.call, self.hold, BEAT.min(left)).await? {
                Answer::Awaiting { .. } => {}
                other => return Ok(other),
            }
            waited = Span::from_millis(clock.since_boot().as_millis().saturating_sub(start.as_millis()));
        }
    }
}

fn seconds(span: Span) -> u32 {
    u32::try_from(span.as_millis() / 1000).unwrap_or(u32::MAX)
}

/// An answer as it is shown.
pub(super) fn view(answer: Answer, capability: &CapabilityName) -> CallView {
    CallView { capability: Some(capability.to_string()), ..CallView::of(answer).1 }
}

/// A no with what the agent could do instead.
fn refuse(handler: &Handler, guest: &Guest, capability: &CapabilityName, no: &No) -> CallToolResult {
    let instead =
        if no.refusal.code() == Code::PolicyBlocked { alternatives(handler, guest, capability) } else { Vec::new() };
    words::refused(no, capability.as_str(), instead)
}

/// Tools of the same service that the rules leave open.
fn alternatives(handler: &Handler, guest: &Guest, capability: &CapabilityName) -> Vec<String> {
    let policy = handler.gw.policy.get();
    let service = sluice_core::capability::service_of(capability);
    let open = |name: &CapabilityName| policy.reach(&guest.agent, name).loosest < Tier::Blocked;
    let names = handler.names.now();
    let near = names.iter().filter(|(_, other)| {
        *other != capability && sluice_core::capability::service_of(other) == service && open(other)
    });
    near.take(5).map(|(tool, _)| tool.to_owned()).collect()
}

/// A client's word, cut to a length that can be shown.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_less_than_its_own_patience() {
        assert_eq!(budget(Some("codex-mcp-client")), Span::from_secs(280));
        assert_eq!(budget(Some("Claude-AI")), Span::from_secs(50));
        assert_eq!(budget(Some("claude-code")), Span::from_secs(280));
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
        let wish = wish(&name, tools::object(arguments), &|_| false);
        assert_eq!(wish.arguments, serde_json::json!({"to": "a@b.c"}));
        assert_eq!((wish.reason.as_deref(), wish.allow_duplicate), (Some("asked to"), true));
    }

    #[test]
    fn an_argument_of_the_tools_own_is_not_taken_away() {
        let name = CapabilityName::new("mail.note").unwrap();
        let arguments = serde_json::json!({REASON: "its own", AGAIN: true});
        let wish = wish(&name, tools::object(arguments), &|argument| argument == REASON);
        assert_eq!(wish.arguments, serde_json::json!({REASON: "its own"}));
        assert_eq!((wish.reason, wish.allow_duplicate), (None, true));
    }
}
