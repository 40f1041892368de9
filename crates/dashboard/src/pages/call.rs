//! One call: its state, its timeline from the audit log, and what it wants to do.

use askama::Template;
use sluice_core::approval::card::escape_invisible;
use sluice_core::audit::AuditEntry;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_core::{CallId, HoldId};
use sluice_services::failing::FailureAudience;
use sluice_services::{CallError, failing};

use super::PageContent;
use super::layout::{StampView, region};
use super::write_row::WriteRow;
use crate::context::PageContext;
use crate::sentences::{self, FeedLine};

/// Gaps below this are not shown, in milliseconds.
const SHORT: i64 = 1_000;

/// A step of the timeline, with the time since the step before it.
struct TimelineStep {
    line: FeedLine,
    stamp: StampView,
    gap: String,
}

#[derive(Template)]
#[template(path = "call_head.html")]
struct CallHeadTemplate<'a> {
    id: String,
    title: String,
    row: Option<WriteRow>,
    outcome: String,
    class: &'static str,
    problem: Option<String>,
    receipt: Option<String>,
    csrf: &'a str,
    can_act: bool,
}

#[derive(Template)]
#[template(path = "call_timeline.html")]
struct TimelineTemplate {
    steps: Vec<TimelineStep>,
}

#[derive(Template)]
#[template(path = "call_detail.html")]
struct DetailTemplate {
    facts: Vec<(String, String)>,
    targets: Vec<(String, String, &'static str)>,
    reason: String,
}

pub(super) async fn content(context: &PageContext<'_>, id: CallId) -> Result<PageContent, CallError> {
    let gw = context.gw;
    let entries = read(context, id).await?;
    let hold = gw.store.hold(HoldId::from_bits(id.bits())).await?;
    if entries.is_empty() && hold.is_none() {
        return Err(CallError::with_text(Code::CallNotFound, "there is no such call, or its entries were archived"));
    }
    let named = entries.iter().find_map(|entry| entry.fact.detail.get("capability").cloned());
    let title =
        hold.as_ref().map(|hold| hold.action.capability().to_string()).or(named).unwrap_or_else(|| "A call".into());
    let last = entries.last().map(sentences::line);
    let failing = match &hold {
        Some(hold) => failing::failing(&gw.store, hold, FailureAudience::Person).await?.line(),
        None => None,
    };
    let head = CallHeadTemplate {
        id: id.to_string(),
        title: escape_invisible(&title),
        row: hold.as_ref().map(WriteRow::of),
        outcome: last.as_ref().map(|line| line.text.clone()).unwrap_or_default(),
        class: last.as_ref().map_or("over", |line| line.class),
        problem: failing,
        receipt: hold.as_ref().and_then(|hold| match &hold.state {
            HoldState::Done { receipt, .. } => Some(escape_invisible(receipt)),
            _ => None,
        }),
        csrf: &context.visitor.csrf,
        can_act: context.visitor.can_act(),
    };
    let mut regions = vec![region("call", &head)?, region("timeline", &TimelineTemplate { steps: steps(&entries) })?];
    if let Some(hold) = &hold {
        regions.push(region("detail", &detail(context, hold).await?)?);
    }
    Ok(PageContent {
        title: format!("{title} · call"),
        regions,
        command: format!("sluice calls show {id}"),
        api: format!("GET /v1/calls/{id}"),
        reloads: true,
    })
}

async fn read(context: &PageContext<'_>, id: CallId) -> Result<Vec<AuditEntry>, CallError> {
    let found = context.gw.store.call_entries(id).await?;
    let mut entries: Vec<AuditEntry> =
        found.iter().filter_map(|(_, sealed)| serde_json::from_slice(&sealed.body).ok()).collect();
    entries.sort_by_key(|entry| (entry.at, entry.seq));
    Ok(entries)
}

fn steps(entries: &[AuditEntry]) -> Vec<TimelineStep> {
    let mut before = None;
    let mut steps = Vec::with_capacity(entries.len());
    for entry in entries {
        let line = sentences::line(entry);
        let gap = before.map_or(0, |before: i64| entry.at.as_millis().saturating_sub(before));
        let gap = if gap < SHORT { String::new() } else { spoken(gap) };
        before = Some(entry.at.as_millis());
        steps.push(TimelineStep { stamp: entry.at.into(), line: FeedLine { link: None, ..line }, gap });
    }
    steps
}

/// A span of time in whole seconds, as people say it.
fn spoken(millis: i64) -> String {
    sluice_core::Millis::from_secs(u64::try_from(millis / 1000).unwrap_or(0)).to_string()
}

async fn detail(context: &PageContext<'_>, hold: &Hold) -> Result<DetailTemplate, CallError> {
    let gw = context.gw;
    let facts = hold.action.arguments().iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // Line breaks are kept; nothing else may hide or move text.
        let lines: Vec<String> = text.split('\n').map(escape_invisible).collect();
        (escape_invisible(name), lines.join("\n"))
    });
    let targets =
        gw.store.hold_targets(hold.id).await?.into_iter().map(|target| {
            (escape_invisible(&target.argument), escape_invisible(&target.value), target.origin.as_str())
        });
    let reason = gw.store.hold_reason(hold.id).await?;
    let reason = reason.map(|reason| reason.split('\n').map(escape_invisible).collect::<Vec<_>>().join("\n"));
    Ok(DetailTemplate { facts: facts.collect(), targets: targets.collect(), reason: reason.unwrap_or_default() })
}
