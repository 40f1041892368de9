//! The list of approvals: what waits for a decision, and what was decided.

use askama::Template;
use sluice_core::approval::{Approval, ApprovalState, ApprovalSubject};
use sluice_core::{AgentName, ApprovalId};
use sluice_gateway::Gateway;
use sluice_gateway::gate::deciding::{self, ApprovalRequest};
use sluice_gateway::gate::rendering;
use sluice_services::CallError;
use sluice_store::ApprovalFilter;

use super::PageContent;
use super::layout::{StampView, region};
use crate::context::PageContext;

/// Approvals on one page.
const PAGE: u32 = 25;
/// A card of more writes is not read for a list.
const LARGE: u32 = 20;

/// An approval as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalRow {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) service: String,
    pub(crate) title: String,
    pub(crate) items: u32,
    pub(crate) is_batch: bool,
    /// `low`, `medium`, `high`; empty once it is decided.
    pub(crate) risk: &'static str,
    pub(crate) why: String,
    pub(crate) asked: StampView,
    pub(crate) expires: Option<StampView>,
    /// The outcome, once there is one.
    pub(crate) outcome: Option<String>,
    /// `good`, `bad` or `over`.
    pub(crate) class: &'static str,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsTemplate {
    rows: Vec<ApprovalRow>,
    tab: &'static str,
    agent: String,
    next: Option<String>,
    is_filtered: bool,
}

/// What became of an approval, as a colour.
pub(crate) const fn colour(state: &ApprovalState) -> &'static str {
    match state {
        ApprovalState::Approved { .. } | ApprovalState::Consumed { .. } | ApprovalState::Superseded { .. } => "good",
        ApprovalState::Denied { .. } => "bad",
        ApprovalState::Pending { .. }
        | ApprovalState::Expired { .. }
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Lapsed { .. }
        | ApprovalState::Revoked { .. } => "over",
    }
}

/// The approvals as rows.
pub(crate) async fn rows(gw: &Gateway, found: Vec<Approval>) -> Result<Vec<ApprovalRow>, CallError> {
    let mut rows = Vec::with_capacity(found.len());
    for approval in found {
        rows.push(row(gw, approval).await?);
    }
    Ok(rows)
}

async fn row(gw: &Gateway, approval: Approval) -> Result<ApprovalRow, CallError> {
    let (mut title, mut risk, mut why) = (format!("{} writes at once", approval.items), "", String::new());
    let is_over = approval.is_over(gw.now());
    let expires = match approval.state {
        ApprovalState::Pending { expires_at } if !is_over => Some(expires_at.into()),
        _ => None,
    };
    if approval.items <= LARGE {
        let request = ApprovalRequest::read(gw, approval.id).await?;
        title = rendering::of(gw, &request, rendering::PAGE).title;
        why = request.why.first().map(|reason| reason.describe()).unwrap_or_default();
        if expires.is_some() {
            risk = request.risk().as_str();
        }
    }
    let outcome = match (expires.is_some(), is_over) {
        (true, _) => None,
        (false, true) => Some("nobody answered in time, so it was denied".to_owned()),
        (false, false) => Some(deciding::describe_approval(&approval)),
    };
    Ok(ApprovalRow {
        id: approval.id.to_string(),
        agent: approval.agent.to_string(),
        service: approval.service.to_string(),
        title,
        items: approval.items,
        is_batch: approval.subject == ApprovalSubject::Batch,
        risk,
        why,
        asked: approval.asked_at.into(),
        expires,
        outcome,
        class: colour(&approval.state),
    })
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let (gw, query) = (context.gw, context.query);
    let tab = match query.get("state") {
        "decided" => "decided",
        "all" => "all",
        _ => "pending",
    };
    let agent: Option<AgentName> = query.parsed("agent")?;
    let after: Option<ApprovalId> = query.parsed("after")?;
    let state = (tab == "pending").then_some("pending");
    let filter = ApprovalFilter { state, agent: agent.clone() };
    let mut found = gw.store.approvals_page(filter, after, PAGE + 1).await?;
    let next = (found.len() > PAGE as usize).then(|| found.get(PAGE as usize - 1).map(|last| last.id.to_string()));
    found.truncate(PAGE as usize);
    if tab == "decided" {
        found.retain(|approval| !approval.state.is_open());
    }
    let is_filtered = agent.is_some() || after.is_some();
    let agent = agent.map(|agent| agent.to_string()).unwrap_or_default();
    let of_agent = if agent.is_empty() { String::new() } else { format!(" --agent {agent}") };
    let rows = rows(gw, found).await?;
    let list = ApprovalsTemplate { rows, tab, agent, next: next.flatten(), is_filtered };
    Ok(PageContent {
        title: "Approvals".into(),
        regions: vec![region("approvals", &list)?],
        command: format!("sluice approvals list{of_agent}"),
        api: "GET /v1/approvals".into(),
        reloads: true,
    })
}
