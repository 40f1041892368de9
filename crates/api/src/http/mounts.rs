//! Mounted servers, for operators: their state, their logs, their tools that wait for acceptance, accepting tools, and
//! reloading the configuration of mounts.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_config::MountTransport;
use sluice_core::refusal::Code;
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_services::mounts::{self, MountService, MountsReloadSummary};
use sluice_store::{PinnedTool, StoreError, ToolEffectClaim, definition_digest};

use super::mount_sign_in::{self, MountSignInView};
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// One mounted server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountView {
    /// The name of the mount.
    pub name: String,
    /// `program` or `address`.
    pub way: String,
    /// `starting`, `open` or `down`.
    pub state: String,
    /// Since when it is in this state.
    pub since: String,
    /// Why it is not open, or why it last ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The name that the server gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The protocol revision in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// How often it was restarted.
    pub restarts: u32,
    /// How often the server sent requests to the gateway; each was refused.
    pub refused_requests: u32,
    /// Sandbox layers that are off.
    pub missing_layers: Vec<String>,
    /// Tools that can be called.
    pub open_tools: usize,
    /// Tools that wait for a person's acceptance.
    pub waiting_tools: usize,
    /// The access to the server, if a person granted it or has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<MountSignInView>,
    /// The tools of the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<MountToolView>,
    /// Tools that cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedToolView>,
    /// Tools that facts are stated about and that the server does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts_without_tool: Vec<String>,
    /// The program's latest error output, in its own words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// One tool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountToolView {
    /// The server's name for it.
    pub tool: String,
    /// Its name behind the gate, once it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// `open`, `changed`, `new`, `suspicious`, `gone`, or `hidden` by the operator.
    pub state: String,
    /// `read` or `write`, once it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Who accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    /// Who accepted that it only reads. Without that, it counts as a write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_by: Option<String>,
    /// Whether its server says that it only reads, so that this can be accepted.
    pub claims_to_read: bool,
    /// What people must know about it, such as a schema that cannot be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the operator states about it: `read`, `hide`, `delay`, `tier`, `targets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
    /// What may be stated about it, from the annotations of its server and from names. Nothing follows from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed: Option<ProposedFactsView>,
    /// The digest of the definition that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_digest: Option<String>,
    /// The definition that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Value>,
    /// The definition that waits, exactly as the server gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Value>,
    /// The digest of the definition that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// What may be stated about a tool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProposedFactsView {
    /// The facts.
    pub facts: Value,
    /// The reasons.
    pub because: Vec<String>,
}

/// The log of a mount.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountLogView {
    /// The lines, oldest first.
    pub data: Vec<MountLogLineView>,
    /// How many older lines are no longer kept.
    pub dropped: u64,
}

/// One line of the log of a mount.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountLogLineView {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it was written.
    pub at: String,
    /// `server` for the error output of the program, `gateway` for lines about it.
    pub from: String,
    /// Its text.
    pub text: String,
}

/// A tool that cannot be used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusedToolView {
    /// The name of the tool, as far as it can be printed.
    pub tool: String,
    /// Why it cannot be used.
    pub reason: String,
}

/// Which tools are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountToolDetail {
    Counted,
    Named,
    Whole,
}

/// `GET /v1/mounts`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let mut data = Vec::new();
    for service in visit.gw.mounts.all() {
        data.push(MountView {
            sign_in: mount_sign_in::view(&visit.gw, &service).await?,
            ..view(&service, MountToolDetail::Counted)
        });
    }
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/mounts/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    Ok(HttpReply::json(200, &shown(&visit.gw, &service).await?))
}

/// `GET /v1/mounts/{name}/waiting`.
pub(super) async fn waiting(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    let mut view = view(&service, MountToolDetail::Whole);
    if !visit.query_param::<bool>("all")?.unwrap_or(false) {
        view.tools.retain(|tool| tool.waiting.is_some());
    }
    Ok(HttpReply::json(200, &view))
}

/// `POST /v1/mounts/{name}/test`.
pub(super) async fn test(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    mounts::look_again(&service).await;
    Ok(HttpReply::json(200, &shown(&visit.gw, &service).await?))
}

/// `GET /v1/mounts/{name}/logs`.
pub(super) async fn logs(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    let after = visit.query_param::<u64>("after")?.unwrap_or(0);
    let limit = visit.query_param::<usize>("limit")?.unwrap_or(500).clamp(1, 5_000);
    let (lines, dropped) = service.log_lines(after, limit);
    let data = lines.into_iter().map(|line| MountLogLineView {
        number: line.number,
        at: line.at.to_string(),
        from: line.from.as_str().into(),
        text: line.text,
    });
    Ok(HttpReply::json(200, &MountLogView { data: data.collect(), dropped }))
}

/// The result of reloading the mounts of the configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountsReloadView {
    /// Servers that were added.
    pub added: Vec<String>,
    /// Servers whose settings changed, and that were restarted.
    pub changed: Vec<String>,
    /// Servers of which only the facts about tools changed; they were not restarted.
    pub restated: Vec<String>,
    /// Servers that were removed.
    pub removed: Vec<String>,
    /// Held writes to them that were cancelled.
    pub cancelled: Vec<String>,
    /// Other keys of the file that differ from the running gateway; they take effect when it is restarted.
    pub after_restart: Vec<String>,
}

/// `POST /v1/mounts/reload`.
pub(super) async fn reload(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let MountsReloadSummary { added, changed, restated, removed, cancelled, after_restart } =
        mounts::reload(&visit.gw, visit.actor()?).await?;
    let cancelled = cancelled.iter().map(ToString::to_string).collect();
    Ok(HttpReply::json(200, &MountsReloadView { added, changed, restated, removed, cancelled, after_restart }))
}

/// What is accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptToolsBody {
    /// Tools, each with the digest of the definition that was shown.
    pub tools: Vec<AcceptedToolBody>,
    /// `true`: the tools only read, as their server says. `false`: they write, whatever was accepted before. With
    /// either, tools that were accepted before can be named, by the digest of their accepted definition. Left out: what
    /// is accepted counts as a write.
    #[serde(default)]
    pub read_only: Option<bool>,
}

/// One tool that is accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptedToolBody {
    /// The server's name for it.
    pub tool: String,
    /// The digest of the definition that was shown.
    pub digest: String,
}

/// `POST /v1/mounts/{name}/accept`.
pub(super) async fn accept(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let AcceptToolsBody { tools, read_only } = visit.parse_body()?;
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    let effects = match read_only {
        None => ToolEffectClaim::Unsaid,
        Some(false) => ToolEffectClaim::Write,
        Some(true) => {
            may_be_read_only(&visit.gw, &service, &tools).await?;
            ToolEffectClaim::ReadOnly
        }
    };
    let tools = tools.into_iter().map(|one| (one.tool, one.digest)).collect();
    let accepted = visit.gw.store.accept_mount(&service.mount().name, tools, effects, visit.actor()?).await;
    accepted.map_err(|error| match error {
        StoreError::NotFound { .. } => {
            CallError::with_text(Code::StoreNotFound, "one of these tools does not wait for a person")
        }
        StoreError::Conflict => {
            CallError::with_text(Code::StoreConflict, "a definition is no longer the one that was shown; read it again")
        }
        other => other.into(),
    })?;
    mounts::look_again(&service).await;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &view(&service, MountToolDetail::Named)))
}

/// Refuses to accept a tool as a read if its server does not say so.
async fn may_be_read_only(gw: &Gateway, service: &MountService, tools: &[AcceptedToolBody]) -> Result<(), CallError> {
    let pins = gw.store.mount_tools(&service.mount().name).await?;
    let claims = |tool: &&AcceptedToolBody| {
        let pin = pins.iter().find(|pin| pin.tool == tool.tool);
        pin.and_then(said).is_some_and(|definition| service.claims_to_read(definition))
    };
    match tools.iter().find(|tool| !claims(tool)) {
        None => Ok(()),
        Some(tool) => {
            let name: String = tool.tool.chars().filter(|c| !c.is_control()).take(80).collect();
            let text = format!(
                "`{name}` stays a write: its server does not set `readOnlyHint: true` for it, or `trust_hints` is off"
            );
            Err(CallError::with_text(Code::DoorParameter, &text))
        }
    }
}

/// A mount with its tools by name, and the access to it.
pub(super) async fn shown(gw: &Gateway, service: &MountService) -> Result<MountView, CallError> {
    Ok(MountView { sign_in: mount_sign_in::view(gw, service).await?, ..view(service, MountToolDetail::Named) })
}

pub(super) fn known(gw: &Gateway, name: &str) -> Result<Arc<MountService>, CallError> {
    let missing =
        || CallError::with_text(Code::StoreNotFound, "there is no mount with this name; GET /v1/mounts lists them");
    gw.mounts.get(name).ok_or_else(missing)
}

/// The definition that a decision about a tool refers to: the waiting one, or else the accepted one.
fn said(pin: &PinnedTool) -> Option<&str> {
    let waiting = pin.waiting.as_ref().map(|(definition, ..)| definition.as_str());
    waiting.or_else(|| pin.accepted.as_ref().map(|(definition, ..)| definition.as_str()))
}

fn view(service: &MountService, depth: MountToolDetail) -> MountView {
    let (condition, tools, pins) = (service.condition(), service.tools(), service.pins());
    let state_of = |pin: &PinnedTool| match &pin.waiting {
        Some((_, why, _)) => why.as_str(),
        None if service.facts_of(&pin.tool).hide => "hidden",
        None if tools.iter().any(|tool| tool.tool == pin.tool && tool.open) => "open",
        None => "gone",
    };
    let text = |text: &str| serde_json::from_str::<Value>(text).ok().filter(|_| depth == MountToolDetail::Whole);
    let shown = pins.iter().map(|pin| {
        let tool = tools.iter().find(|tool| tool.tool == pin.tool);
        MountToolView {
            tool: pin.tool.clone(),
            capability: tool.map(|tool| tool.capability.to_string()),
            state: state_of(pin).into(),
            effect: tool.map(|tool| if tool.writes { "write".into() } else { "read".into() }),
            accepted_by: pin.accepted.as_ref().map(|(_, by, _)| by.clone()),
            read_only_by: pin.read_only.as_ref().map(|(by, _)| by.clone()),
            note: tool.and_then(|tool| tool.note.clone()),
            facts: Some(service.facts_of(&pin.tool)).filter(|facts| !facts.is_empty()).map(|facts| facts.shown()),
            proposed: service
                .proposed_facts(pin)
                .map(|proposed| ProposedFactsView { facts: proposed.facts.shown(), because: proposed.because }),
            claims_to_read: said(pin).is_some_and(|definition| service.claims_to_read(definition)),
            accepted_digest: pin.accepted.as_ref().map(|(definition, ..)| definition_digest(definition)),
            accepted: pin.accepted.as_ref().and_then(|(definition, ..)| text(definition)),
            waiting: pin.waiting.as_ref().and_then(|(definition, ..)| text(definition)),
            digest: pin.waiting.as_ref().map(|(definition, ..)| definition_digest(definition)),
        }
    });
    let shown: Vec<MountToolView> = if depth == MountToolDetail::Counted { Vec::new() } else { shown.collect() };
    let refused = condition.refused.iter().filter(|_| depth != MountToolDetail::Counted).take(500);
    let (server, protocol) = condition.server.unzip();
    MountView {
        name: service.mount().name.clone(),
        way: match service.mount().way {
            MountTransport::Program(_) => "program".into(),
            MountTransport::Address(_) => "address".into(),
        },
        state: condition.phase.as_str().into(),
        since: condition.since.to_string(),
        reason: condition.reason,
        server,
        protocol,
        restarts: condition.restarts,
        refused_requests: condition.refused_requests,
        missing_layers: condition.missing_layers,
        open_tools: tools.iter().filter(|tool| tool.open).count(),
        waiting_tools: pins.iter().filter(|pin| pin.waiting.is_some()).count(),
        sign_in: None,
        tools: shown,
        refused: refused.map(|(tool, reason)| RefusedToolView { tool: tool.clone(), reason: reason.clone() }).collect(),
        facts_without_tool: if depth == MountToolDetail::Counted { Vec::new() } else { service.facts_without_tool() },
        last_words: if depth == MountToolDetail::Counted { String::new() } else { service.last_words() },
    }
}
