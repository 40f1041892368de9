//! Freezes: what is stopped, by whom and why, and the form that stops and starts.

use askama::Template;
use sluice_core::approval::card::escape_invisible;
use sluice_core::refusal::Code;
use sluice_gateway::{Gateway, operating};
use sluice_services::CallError;
use sluice_store::{FreezeTarget, OperatorRole};

use super::PageContent;
use super::layout::{FreezeLine, region};
use crate::context::PageContext;
use crate::fields::FormFields;

#[derive(Template)]
#[template(path = "freeze.html")]
struct FreezeTemplate<'a> {
    freezes: &'a [FreezeLine],
    csrf: &'a str,
    can_act: bool,
}

#[derive(Template)]
#[template(path = "freeze_form.html")]
struct FreezeFormTemplate<'a> {
    csrf: &'a str,
    can_act: bool,
    agents: Vec<String>,
    services: Vec<String>,
    reason: String,
}

/// The freezes in force.
pub(super) async fn lines(gw: &Gateway) -> Result<Vec<FreezeLine>, CallError> {
    let freezes = gw.stop_lane().freezes().await?;
    let line = |freeze: &sluice_store::Freeze| {
        let (scope, agent, service) = match &freeze.scope {
            FreezeTarget::All => ("Everything".to_owned(), String::new(), String::new()),
            FreezeTarget::Agent(name) => (format!("Agent {name}"), name.to_string(), String::new()),
            FreezeTarget::Service(name) => (format!("Service {name}"), String::new(), name.to_string()),
        };
        FreezeLine {
            scope,
            by: freeze.by.to_string(),
            reason: escape_invisible(&freeze.reason),
            since: freeze.at.into(),
            can_lift: freeze.brake.is_none(),
            agent,
            service,
        }
    };
    Ok(freezes.iter().map(line).collect())
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let gw = context.gw;
    let freezes = lines(gw).await?;
    let (csrf, can_act) = (context.visitor.csrf.as_str(), context.visitor.can_act());
    let mut agents: Vec<String> = gw.keyring.agents().iter().map(ToString::to_string).collect();
    let known = gw.catalogue.known();
    let mut services: Vec<String> = known.iter().map(|capability| capability.service().to_string()).collect();
    services.extend(gw.services.names().iter().map(ToString::to_string));
    agents.sort_unstable();
    services.sort_unstable();
    services.dedup();
    let form = FreezeFormTemplate { csrf, can_act, agents, services, reason: context.typed("reason") };
    Ok(PageContent {
        title: "Freeze".into(),
        regions: vec![
            region("freezes", &FreezeTemplate { freezes: &freezes, csrf, can_act })?,
            region("freeze-form", &form)?,
        ],
        command: "sluice freeze".into(),
        api: "POST /v1/freezes".into(),
        reloads: false,
    })
}

/// The scope that a form names: `all`, `agent:NAME` or `service:NAME`.
fn scope(form: &FormFields) -> Result<FreezeTarget, CallError> {
    let bad = || CallError::with_text(Code::DoorParameter, "choose what to freeze: everything, an agent or a service");
    match form.get("scope").split_once(':') {
        None if form.get("scope") == "all" => Ok(FreezeTarget::All),
        Some(("agent", name)) => name.parse().map(FreezeTarget::Agent).map_err(|_| bad()),
        Some(("service", name)) => name.parse().map(FreezeTarget::Service).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

/// Freezes what a form names.
pub(super) async fn place(context: &PageContext<'_>, form: &FormFields) -> Result<(), CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let reason = form.get("reason").trim().to_owned();
    operating::freeze(context.gw, scope(form)?, context.visitor.by.clone(), reason).await?;
    Ok(())
}

/// Lifts what a form names.
pub(super) async fn lift(context: &PageContext<'_>, form: &FormFields) -> Result<(), CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    operating::unfreeze(context.gw, scope(form)?, context.visitor.by.clone()).await
}
