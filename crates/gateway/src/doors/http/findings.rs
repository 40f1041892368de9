//! Findings, for operators and for the agents they were kept from; and what self-executing clients showed theirs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::capability::service_of;
use sluice_core::ids::{FindingId, SessionId};
use sluice_core::refusal::Code;
use sluice_core::{CallId, CapabilityName};
use sluice_store::{Finding, Role};

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::intake::{Incoming, Reader, Taken};
use crate::{Gateway, No};

/// A withheld item.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FindingView {
    /// Its id.
    pub finding_id: String,
    /// `withheld` or `released`.
    pub state: String,
    /// When it came.
    pub found_at: String,
    /// Through which service.
    pub service: String,
    /// Where it is from.
    pub source: String,
    /// Who wrote it, as far as anyone can tell.
    pub author: String,
    /// The agent it was kept from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// In which call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// From 0 to 1: how much it looks like an attack.
    pub score: f64,
    /// The score from which its service withholds.
    pub threshold: f64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// The SHA-256 it is known again by.
    pub sha256: String,
    /// What the stages noticed: stage, rule, carrier, span and score.
    pub notes: Vec<Value>,
    /// Who released it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// When it is forgotten.
    pub kept_until: String,
    /// The item, for approvers who ask for it and, once it is released, for the agent it was kept from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl FindingView {
    fn of(one: &Finding) -> Self {
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
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let (limit, before) = (visit.limit()?, visit.asked("cursor")?);
    let open = visit.asked::<bool>("open")?.unwrap_or(false);
    let found = visit.gw.store.findings(open, before, limit.saturating_add(1)).await?;
    let has_more = found.len() > limit as usize;
    let data: Vec<FindingView> = found.iter().take(limit as usize).map(FindingView::of).collect();
    let next_cursor = has_more.then(|| data.last().map(|one| one.finding_id.clone())).flatten();
    Ok(Reply::json(200, &Page { data, next_cursor, has_more }))
}

/// `GET /v1/findings/{finding_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let one = find(gw, visit.part("finding_id")?).await?;
    let mut view = FindingView::of(&one);
    let visitor = visit.visitor()?;
    let reads = match (visitor.agent(), visitor.operator()) {
        // SECURITY: to another agent the finding does not exist.
        (Some(agent), _) if one.agent.as_ref() != Some(agent) => return Err(missing()),
        (Some(_), _) => {
            // What the stages noticed would teach an agent how to word things.
            view.notes = Vec::new();
            one.released.is_some()
        }
        (None, Some((_, role))) => visit.asked::<bool>("content")?.unwrap_or(false) && role >= Role::Approver,
        (None, None) => false,
    };
    if reads && one.content.sealed.is_empty() {
        let text = "its content was removed when the connection was ended";
        return Err(No::saying(Code::StoreNotFound, text));
    }
    if reads {
        let bytes = gw.vault.bring_out(one.id, &one.content).map_err(|error| No::from(error.refusal()))?;
        view.content = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(Reply::json(200, &view))
}

/// A release.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Let {
    /// Why, in the person's words.
    #[serde(default)]
    pub note: String,
}

/// `POST /v1/findings/{finding_id}/release`.
pub(super) async fn release(mut visit: Visit) -> Result<Reply, No> {
    let Let { note } = visit.take()?;
    let id: FindingId = visit.part("finding_id")?;
    let note = note.chars().take(500).collect();
    let released = visit.gw.store.release_finding(id, visit.actor()?, note).await;
    let one = released.map_err(|error| match error {
        sluice_store::StoreError::NotFound { .. } => missing(),
        other => other.into(),
    })?;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &FindingView::of(&one)))
}

/// What a client that acts by itself is about to show its agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The tool it came from: `custom:<tool>`.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// The text.
    pub text: String,
}

impl std::fmt::Debug for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observation").field("capability", &self.capability).finish_non_exhaustive()
    }
}

/// What the client may show.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Observed {
    /// `pass`, `withheld` or `refused`.
    pub verdict: String,
    /// The text to show instead of the one that was handed in.
    pub text: String,
    /// The finding, if it is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding_id: Option<String>,
}

/// `POST /v1/sessions/{session_id}/observations`.
pub(super) async fn observe(mut visit: Visit) -> Result<Reply, No> {
    let Observation { capability, text } = visit.take()?;
    let id: SessionId = visit.part("session_id")?;
    let gw = &visit.gw;
    let agent = visit.visitor()?.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?.clone();
    let session = gw.store.session(id).await?;
    let own = session.filter(|session| session.agent == agent && session.ended_at.is_none());
    own.ok_or_else(|| No::new(Code::IdentitySession))?;
    let item = Incoming {
        bytes: text.into_bytes(),
        declared: None,
        service: service_of(&capability),
        source: capability.to_string(),
        author: "unknown".into(),
        at: gw.now(),
        beside: None,
        reader: Some(Reader { agent, session: Some(id), call: CallId::mint(gw.ids.as_ref()), notes: None }),
        enveloped: false,
    };
    let view = match gw.intake.take_in(&item).await? {
        Taken::Refused { code } => {
            let text = format!("[this content is not shown: {code}]");
            Observed { verdict: "refused".into(), text, finding_id: None }
        }
        Taken::Clean(cleaned) => Observed {
            verdict: if cleaned.withheld.is_some() { "withheld" } else { "pass" }.into(),
            text: cleaned.text,
            finding_id: cleaned.withheld.map(|id| id.to_string()),
        },
    };
    gw.events.wrote();
    Ok(Reply::json(200, &view))
}

async fn find(gw: &Gateway, id: FindingId) -> Result<Finding, No> {
    gw.store.finding(id).await?.ok_or_else(missing)
}

fn missing() -> No {
    No::saying(Code::StoreNotFound, "there is no finding of this id, or it is no longer kept")
}
