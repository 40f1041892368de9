//! Findings, for operators and for the agents from which items were withheld; and observations that self-executing
//! clients report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::capability::service_of;
use sluice_core::ids::{FindingId, SessionId};
use sluice_core::refusal::Code;
use sluice_core::{CallId, CapabilityName};
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_services::intake::{ContentRecipient, IncomingItem, IntakeOutcome};
use sluice_store::{OperatorRole, WithheldFinding};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// A withheld item.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ContentFindingView {
    /// The id of the finding.
    pub finding_id: String,
    /// `withheld` or `released`.
    pub state: String,
    /// When it arrived.
    pub found_at: String,
    /// The service it came through.
    pub service: String,
    /// Where it comes from.
    pub source: String,
    /// Who wrote it, as far as that is known.
    pub author: String,
    /// The agent from which it was withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session in which it was withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The call in which it was withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// How much it looks like an attack, from 0 to 1.
    pub score: f64,
    /// The score from which its service withholds items.
    pub threshold: f64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 hash that identifies it.
    pub sha256: String,
    /// What the stages noticed: stage, rule, carrier, span and score.
    pub notes: Vec<Value>,
    /// Who released it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
    /// When it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// When it is deleted.
    pub kept_until: String,
    /// The item, for approvers who request it and, once it is released, for the agent from which it was withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl ContentFindingView {
    fn of(one: &WithheldFinding) -> Self {
        Self {
            finding_id: one.id.to_string(),
            state: if one.released.is_some() { "released" } else { "withheld" }.into(),
            found_at: one.found_at.to_string(),
            service: one.service.to_string(),
            source: one.source.clone(),
            author: one.author.clone(),
            agent: one.agent.as_ref().map(ToString::to_string),
            session_id: one.session.map(|id| id.to_string()),
            call_id: one.call.map(|id| id.to_string()),
            score: f64::from(one.score) / 1000.0,
            threshold: f64::from(one.threshold) / 1000.0,
            bytes: one.bytes,
            sha256: sluice_core::hex::encode(&one.hash),
            notes: serde_json::from_str(&one.notes).unwrap_or_default(),
            released_by: one.released.as_ref().map(|(by, _)| by.to_string()),
            released_at: one.released.as_ref().map(|(_, at)| at.to_string()),
            kept_until: one.until.to_string(),
            content: None,
        }
    }
}

/// `GET /v1/findings`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (limit, before) = (visit.limit()?, visit.query_param("cursor")?);
    let open = visit.query_param::<bool>("open")?.unwrap_or(false);
    let found = visit.gw.store.findings(open, before, limit.saturating_add(1)).await?;
    let has_more = found.len() > limit as usize;
    let data: Vec<ContentFindingView> = found.iter().take(limit as usize).map(ContentFindingView::of).collect();
    let next_cursor = has_more.then(|| data.last().map(|one| one.finding_id.clone())).flatten();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor, has_more }))
}

/// `GET /v1/findings/{finding_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let one = find(gw, visit.path_param("finding_id")?).await?;
    let mut view = ContentFindingView::of(&one);
    let principal = visit.principal()?;
    let reads = match (principal.agent(), principal.operator()) {
        // SECURITY: to another agent the finding does not exist.
        (Some(agent), _) if one.agent.as_ref() != Some(agent) => return Err(missing()),
        (Some(_), _) => {
            // The notes of the stages would teach an agent how to phrase things.
            view.notes = Vec::new();
            one.released.is_some()
        }
        (None, Some((_, role))) => {
            visit.query_param::<bool>("content")?.unwrap_or(false) && role >= OperatorRole::Approver
        }
        (None, None) => false,
    };
    if reads && one.content.sealed.is_empty() {
        let text = "its content was removed when the connection was ended";
        return Err(CallError::with_text(Code::StoreNotFound, text));
    }
    if reads {
        let bytes = gw.vault.open_withheld(one.id, &one.content).map_err(|error| CallError::from(error.refusal()))?;
        view.content = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(HttpReply::json(200, &view))
}

/// A release.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseFindingBody {
    /// Why it is released, in the person's words.
    #[serde(default)]
    pub note: String,
}

/// `POST /v1/findings/{finding_id}/release`.
pub(super) async fn release(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ReleaseFindingBody { note } = visit.parse_body()?;
    let id: FindingId = visit.path_param("finding_id")?;
    let note = note.chars().take(500).collect();
    let released = visit.gw.store.release_finding(id, visit.actor()?, note).await;
    let one = released.map_err(|error| match error {
        sluice_store::StoreError::NotFound { .. } => missing(),
        other => other.into(),
    })?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &ContentFindingView::of(&one)))
}

/// Content that a self-executing client is about to show its agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObservationBody {
    /// The tool that the content came from: `custom:<tool>`.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// The text of the content.
    pub text: String,
}

impl std::fmt::Debug for ObservationBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observation").field("capability", &self.capability).finish_non_exhaustive()
    }
}

/// What the client may show.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ObservationView {
    /// `pass`, `withheld` or `refused`.
    pub verdict: String,
    /// The text to show instead of the reported one.
    pub text: String,
    /// The finding, if it is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding_id: Option<String>,
}

/// `POST /v1/sessions/{session_id}/observations`.
pub(super) async fn observe(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ObservationBody { capability, text } = visit.parse_body()?;
    let id: SessionId = visit.path_param("session_id")?;
    let gw = &visit.gw;
    let agent = visit.principal()?.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?.clone();
    let session = gw.store.session(id).await?;
    let own = session.filter(|session| session.agent == agent && session.ended_at.is_none());
    own.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    let item = IncomingItem {
        bytes: text.into_bytes(),
        declared: None,
        service: service_of(&capability),
        source: capability.to_string(),
        author: "unknown".into(),
        at: gw.now(),
        beside: None,
        reader: Some(ContentRecipient { agent, session: Some(id), call: CallId::mint(gw.ids.as_ref()), notes: None }),
        enveloped: false,
    };
    let view = match gw.intake.take_in(&item).await? {
        IntakeOutcome::Refused { code } => {
            let text = format!("[this content is not shown: {code}]");
            ObservationView { verdict: "refused".into(), text, finding_id: None }
        }
        IntakeOutcome::Clean(cleaned) => ObservationView {
            verdict: if cleaned.withheld.is_some() { "withheld" } else { "pass" }.into(),
            text: cleaned.text,
            finding_id: cleaned.withheld.map(|id| id.to_string()),
        },
    };
    gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &view))
}

async fn find(gw: &Gateway, id: FindingId) -> Result<WithheldFinding, CallError> {
    gw.store.finding(id).await?.ok_or_else(missing)
}

fn missing() -> CallError {
    CallError::with_text(Code::StoreNotFound, "there is no finding with this id, or it is no longer kept")
}
