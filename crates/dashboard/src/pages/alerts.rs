//! Alerts: what people were told, and who has acknowledged it.

use askama::Template;
use sluice_core::approval::card::escape_invisible;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_store::{AlertFilter, MessageSeverity, OperatorRole, StoredAlert};

use super::PageContent;
use super::layout::{StampView, region};
use crate::context::PageContext;
use crate::fields::FormFields;

/// Alerts on one page.
const PAGE: u32 = 50;

/// An alert as the page shows it.
pub(super) struct AlertLine {
    pub(super) id: String,
    pub(super) topic: String,
    pub(super) severity: &'static str,
    pub(super) text: String,
    pub(super) about: String,
    pub(super) at: StampView,
    pub(super) sent_by: String,
    /// Who acknowledged it.
    pub(super) acknowledged: Option<String>,
}

#[derive(Template)]
#[template(path = "alerts.html")]
struct AlertsTemplate<'a> {
    alerts: Vec<AlertLine>,
    csrf: &'a str,
    can_act: bool,
    open_only: bool,
    next: Option<String>,
}

impl AlertLine {
    pub(super) fn of(alert: &StoredAlert) -> Self {
        let said = |key: &str| alert.message.body.get(key).and_then(serde_json::Value::as_str).map(escape_invisible);
        let about = ["proxy", "service", "mount", "agent", "secret", "approval", "hold"]
            .into_iter()
            .find_map(|key| Some(format!("{key} {}", said(key)?)));
        Self {
            id: alert.message.id.to_string(),
            topic: escape_invisible(&alert.message.topic),
            severity: alert.message.severity.as_str(),
            text: ["text", "why", "reason"].into_iter().find_map(said).unwrap_or_default(),
            about: about.unwrap_or_default(),
            at: alert.created_at.into(),
            sent_by: alert.sent_by.as_ref().map(ToString::to_string).unwrap_or_default(),
            acknowledged: alert.acknowledged.as_ref().map(|(by, at)| format!("{by} at {at}")),
        }
    }
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let open_only = context.query.get("show") != "all";
    let after: Option<MessageId> = context.query.parsed("after")?;
    let least = if open_only { MessageSeverity::Warning } else { MessageSeverity::Info };
    let filter = AlertFilter { open_only, severity_at_least: least, agent: None };
    let mut found = context.gw.store.alerts(filter, after, PAGE + 1).await?;
    let next =
        (found.len() > PAGE as usize).then(|| found.get(PAGE as usize - 1).map(|last| last.message.id.to_string()));
    found.truncate(PAGE as usize);
    let table = AlertsTemplate {
        alerts: found.iter().map(AlertLine::of).collect(),
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
        open_only,
        next: next.flatten(),
    };
    Ok(PageContent {
        title: "Alerts".into(),
        regions: vec![region("alerts", &table)?],
        command: "sluice alerts list".into(),
        api: "GET /v1/alerts?open=true".into(),
        reloads: true,
    })
}

/// Acknowledges the alert that a form names.
pub(super) async fn acknowledge(context: &PageContext<'_>, form: &FormFields) -> Result<(), CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let id: MessageId = form.parsed("alert")?.ok_or_else(|| CallError::new(Code::StoreNotFound))?;
    context.gw.store.acknowledge(id, context.visitor.by.clone()).await?;
    context.gw.signals.events.notify_written();
    Ok(())
}
