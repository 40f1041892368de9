//! Mounted servers, for operators: how they are, what of their tools waits, accepting it, and taking up what the
//! configuration says of them now.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::refusal::Code;
use sluice_store::{Effects, PinnedTool, StoreError, definition_digest};

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::config::Way;
use crate::mounts::{self, MountService, Reloaded};
use crate::{Gateway, No};

/// One mounted server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountView {
    /// Its name.
    pub name: String,
    /// `program` or `address`.
    pub way: String,
    /// `starting`, `open` or `down`.
    pub state: String,
    /// Since when.
    pub since: String,
    /// Why it is not open, or why it ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the server calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The revision of the protocol that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// How often it was started again.
    pub restarts: u32,
    /// How often the server asked something of the gateway; each was refused.
    pub refused_requests: u32,
    /// Layers of its jail that are off.
    pub missing_layers: Vec<String>,
    /// Tools that can be called.
    pub open_tools: usize,
    /// Tools that wait for a person.
    pub waiting_tools: usize,
    /// Its tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<MountToolView>,
    /// Tools that cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedToolView>,
    /// The last of what the program complained about, in its own words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// One tool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountToolView {
    /// The server's name for it.
    pub tool: String,
    /// What it is called behind the gate, once it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// `open`, `changed`, `new`, `suspicious` or `gone`.
    pub state: String,
    /// `read` or `write`, once it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Who accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    /// Who accepted that it only reads. Until somebody does, it is a write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_by: Option<String>,
    /// Whether its server says of it that it only reads, so that this can be accepted.
    pub claims_to_read: bool,
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

/// A tool that cannot be used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusedToolView {
    /// Its name, as far as it can be printed.
    pub tool: String,
    /// Why.
    pub reason: String,
}

/// How much of the tools is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Counted,
    Named,
    Whole,
}

/// `GET /v1/mounts`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let mut data = Vec::new();
    for service in visit.gw.mounts.all() {
        data.push(view(&service, Depth::Counted));
    }
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/mounts/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &view(&*known(&visit.gw, &visit.part::<String>("name")?)?, Depth::Named)))
}

/// `GET /v1/mounts/{name}/waiting`.
pub(super) async fn waiting(visit: Visit) -> Result<Reply, No> {
    let service = known(&visit.gw, &visit.part::<String>("name")?)?;
    let mut view = view(&service, Depth::Whole);
    if !visit.asked::<bool>("all")?.unwrap_or(false) {
        view.tools.retain(|tool| tool.waiting.is_some());
    }
    Ok(Reply::json(200, &view))
}

/// `POST /v1/mounts/{name}/test`.
pub(super) async fn test(visit: Visit) -> Result<Reply, No> {
    let service = known(&visit.gw, &visit.part::<String>("name")?)?;
    mounts::look_again(&service).await;
    Ok(Reply::json(200, &view(&service, Depth::Named)))
}

/// What reading the mounts of the configuration again did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReloadedView {
    /// Servers that were not there before.
    pub added: Vec<String>,
    /// Servers that are set up otherwise now, and were started again.
    pub changed: Vec<String>,
    /// Servers that are gone.
    pub removed: Vec<String>,
    /// Held writes to them that were cancelled.
    pub cancelled: Vec<String>,
    /// Other keys of the file that are not as the gateway has them; they take effect when it starts again.
    pub after_restart: Vec<String>,
}

/// `POST /v1/mounts/reload`.
pub(super) async fn reload(visit: Visit) -> Result<Reply, No> {
    let Reloaded { added, changed, removed, cancelled, after_restart } =
        mounts::reload(&visit.gw, visit.actor()?).await?;
    let cancelled = cancelled.iter().map(ToString::to_string).collect();
    Ok(Reply::json(200, &ReloadedView { added, changed, removed, cancelled, after_restart }))
}

/// What is accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptBody {
    /// Tools, each with the digest of the definition that was shown.
    pub tools: Vec<AcceptTool>,
    /// `true`: they only read, as their server says. `false`: they write, whatever was accepted before. With either, tools
    /// may be named that were accepted before, by the digest of their accepted definition. Left out: what is accepted
    /// counts as a write.
    #[serde(default)]
    pub read_only: Option<bool>,
}

/// One tool that is accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptTool {
    /// The server's name for it.
    pub tool: String,
    /// The digest of what was shown.
    pub digest: String,
}

/// `POST /v1/mounts/{name}/accept`.
pub(super) async fn accept(mut visit: Visit) -> Result<Reply, No> {
    let AcceptBody { tools, read_only } = visit.take()?;
    let service = known(&visit.gw, &visit.part::<String>("name")?)?;
    let effects = match read_only {
        None => Effects::Unsaid,
        Some(false) => Effects::Write,
        Some(true) => {
            may_be_read_only(&visit.gw, &service, &tools).await?;
            Effects::ReadOnly
        }
    };
    let tools = tools.into_iter().map(|one| (one.tool, one.digest)).collect();
    let accepted = visit.gw.store.accept_mount(&service.mount().name, tools, effects, visit.actor()?).await;
    accepted.map_err(|error| match error {
        StoreError::NotFound { .. } => No::saying(Code::StoreNotFound, "one of these tools does not wait for a person"),
        StoreError::Conflict => {
            No::saying(Code::StoreConflict, "a definition is no longer the one that was shown; look at it again")
        }
        other => other.into(),
    })?;
    mounts::look_again(&service).await;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &view(&service, Depth::Named)))
}

/// Refuses to call a tool a read that its server does not call one.
async fn may_be_read_only(gw: &Gateway, service: &MountService, tools: &[AcceptTool]) -> Result<(), No> {
    let pins = gw.store.mount_tools(&service.mount().name).await?;
    let claims = |tool: &&AcceptTool| {
        let pin = pins.iter().find(|pin| pin.tool == tool.tool);
        pin.and_then(said).is_some_and(|definition| service.claims_to_read(definition))
    };
    match tools.iter().find(|tool| !claims(tool)) {
        None => Ok(()),
        Some(tool) => {
            let name: String = tool.tool.chars().filter(|c| !c.is_control()).take(80).collect();
            let text = format!(
                "`{name}` stays a write: its server does not say `readOnlyHint: true` of it, or `trust_hints` is off"
            );
            Err(No::saying(Code::DoorParameter, &text))
        }
    }
}

fn known(gw: &Gateway, name: &str) -> Result<Arc<MountService>, No> {
    let missing = || No::saying(Code::StoreNotFound, "there is no mount of this name; GET /v1/mounts lists them");
    gw.mounts.get(name).ok_or_else(missing)
}

/// The definition a word about a tool would be about: the one that waits, or else the accepted one.
fn said(pin: &PinnedTool) -> Option<&str> {
    let waiting = pin.waiting.as_ref().map(|(definition, ..)| definition.as_str());
    waiting.or_else(|| pin.accepted.as_ref().map(|(definition, ..)| definition.as_str()))
}

fn view(service: &MountService, depth: Depth) -> MountView {
    let (condition, tools, pins) = (service.condition(), service.tools(), service.pins());
    let state_of = |pin: &PinnedTool| match &pin.waiting {
        Some((_, why, _)) => why.as_str(),
        None if tools.iter().any(|tool| tool.tool == pin.tool && tool.open) => "open",
        None => "gone",
    };
    let text = |text: &str| serde_json::from_str::<Value>(text).ok().filter(|_| depth == Depth::Whole);
    let shown = pins.iter().map(|pin| {
        let tool = tools.iter().find(|tool| tool.tool == pin.tool);
        MountToolView {
            tool: pin.tool.clone(),
            capability: tool.map(|tool| tool.capability.to_string()),
            state: state_of(pin).into(),
            effect: tool.map(|tool| if tool.writes { "write".into() } else { "read".into() }),
            accepted_by: pin.accepted.as_ref().map(|(_, by, _)| by.clone()),
            read_only_by: pin.read_only.as_ref().map(|(by, _)| by.clone()),
            claims_to_read: said(pin).is_some_and(|definition| service.claims_to_read(definition)),
            accepted_digest: pin.accepted.as_ref().map(|(definition, ..)| definition_digest(definition)),
            accepted: pin.accepted.as_ref().and_then(|(definition, ..)| text(definition)),
            waiting: pin.waiting.as_ref().and_then(|(definition, ..)| text(definition)),
            digest: pin.waiting.as_ref().map(|(definition, ..)| definition_digest(definition)),
        }
    });
    let shown: Vec<MountToolView> = if depth == Depth::Counted { Vec::new() } else { shown.collect() };
    let refused = condition.refused.iter().filter(|_| depth != Depth::Counted).take(500);
    let (server, protocol) = condition.server.unzip();
    MountView {
        name: service.mount().name.clone(),
        way: match service.mount().way {
            Way::Program(_) => "program".into(),
            Way::Address(_) => "address".into(),
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
        tools: shown,
        refused: refused.map(|(tool, reason)| RefusedToolView { tool: tool.clone(), reason: reason.clone() }).collect(),
        last_words: if depth == Depth::Counted { String::new() } else { condition.last_words },
    }
}
