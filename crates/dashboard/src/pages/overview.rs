//! The overview: is anything waiting for me, is anything wrong, what happened today.

use std::collections::BTreeMap;

use askama::Template;
use sluice_core::audit::AuditEntry;
use sluice_core::{Millis, NodeName};
use sluice_services::CallError;
use sluice_store::{AlertFilter, ApprovalFilter, HoldFilter, HourlyWriteCount, MessageSeverity};

use super::PageContent;
use super::alerts::AlertLine;
use super::approvals::{self, ApprovalRow};
use super::layout::{StampView, region};
use super::write_row::WriteRow;
use crate::context::PageContext;
use crate::sentences::{self, FeedLine};

/// How many approvals, writes and alerts the page shows.
const SHOWN: u32 = 5;
/// Lines of the activity.
const LINES: usize = 15;
/// Entries of each log that are read for it.
const READ: u32 = 60;
/// Hours of the flow.
const HOURS: i64 = 24;
const HOUR: i64 = 3_600_000;
/// The height of the flow's drawing.
const HEIGHT: u64 = 72;

#[derive(Template)]
#[template(path = "needs.html")]
struct NeedsTemplate {
    approvals: Vec<ApprovalRow>,
    more: usize,
    writes: Vec<WriteRow>,
    alerts: Vec<AlertLine>,
    is_new: bool,
    has_agents: bool,
    has_calls: bool,
}

/// One hour as a column of the drawing.
struct FlowColumn {
    x: u64,
    done_y: u64,
    done: u64,
    open_y: u64,
    open: u64,
    lost_y: u64,
    lost: u64,
    title: String,
}

#[derive(Template)]
#[template(path = "flow.html")]
struct FlowTemplate {
    columns: Vec<FlowColumn>,
    made: u64,
    numbers: Vec<(&'static str, u64, &'static str)>,
    height: u64,
}

/// A service as a chip.
struct ServiceChip {
    name: String,
    state: &'static str,
    class: &'static str,
    note: String,
}

/// An agent as a chip.
struct AgentChip {
    name: String,
    state: &'static str,
    class: &'static str,
}

#[derive(Template)]
#[template(path = "state.html")]
struct StateTemplate {
    services: Vec<ServiceChip>,
    agents: Vec<AgentChip>,
    entries: u64,
    signed: u64,
    rules: usize,
}

#[derive(Template)]
#[template(path = "activity.html")]
struct ActivityTemplate {
    lines: Vec<(FeedLine, StampView, usize)>,
}

pub(super) async fn content(context: &PageContext<'_>) -> Result<PageContent, CallError> {
    let flow = flow(context).await?;
    let regions = vec![
        region("needs", &needs(context, flow.made).await?)?,
        region("flow", &flow)?,
        region("state", &state(context).await?)?,
        region("activity", &activity(context).await?)?,
    ];
    Ok(PageContent {
        title: "Overview".into(),
        regions,
        command: "sluice status".into(),
        api: "GET /v1/status".into(),
        reloads: true,
    })
}

async fn needs(context: &PageContext<'_>, made: u64) -> Result<NeedsTemplate, CallError> {
    let gw = context.gw;
    let pending = ApprovalFilter { state: Some("pending"), agent: None };
    let mut open = gw.store.approvals_page(pending, None, 200).await?;
    let more = open.len().saturating_sub(SHOWN as usize);
    open.truncate(SHOWN as usize);
    let held = HoldFilter { states: vec!["held", "ready"], ..HoldFilter::default() };
    let writes = gw.store.holds_page(held, None, SHOWN).await?;
    let severe = AlertFilter { open_only: true, severity_at_least: MessageSeverity::Warning, agent: None };
    let alerts = gw.store.alerts(severe, None, SHOWN).await?;
    let approvals = approvals::rows(gw, open).await?;
    let has_agents = !gw.keyring.agents().is_empty();
    Ok(NeedsTemplate {
        is_new: made == 0 && approvals.is_empty() && writes.is_empty(),
        approvals,
        more,
        writes: writes.iter().map(WriteRow::of).collect(),
        alerts: alerts.iter().map(AlertLine::of).collect(),
        has_agents,
        has_calls: made > 0,
    })
}

async fn flow(context: &PageContext<'_>) -> Result<FlowTemplate, CallError> {
    let now = context.now();
    let this_hour = now.as_millis().div_euclid(HOUR);
    let counts = context.gw.store.write_flow(now - Millis::from_hours(HOURS.unsigned_abs())).await?;
    let sum = |states: &[&str], of: &dyn Fn(&HourlyWriteCount) -> bool| -> u64 {
        counts.iter().filter(|one| of(one) && states.contains(&one.state.as_str())).map(|one| one.count).sum()
    };
    let any = |_: &HourlyWriteCount| true;
    const DONE: [&str; 1] = ["done"];
    const LOST: [&str; 6] = ["cancelled", "denied", "expired", "dead", "discarded", "blocked"];
    let mut by_hour: BTreeMap<i64, [u64; 3]> = (0..HOURS).map(|back| (this_hour - back, [0; 3])).collect();
    for one in &counts {
        let Some([done, lost, open]) = by_hour.get_mut(&one.hour) else { continue };
        match one.state.as_str() {
            state if DONE.contains(&state) => *done += one.count,
            state if LOST.contains(&state) => *lost += one.count,
            _ => *open += one.count,
        }
    }
    let most = by_hour.values().map(|[done, lost, open]| done + lost + open).max().unwrap_or(0).max(1);
    let scale = |count: u64| if count == 0 { 0 } else { (count * HEIGHT / most).max(2) };
    let columns = by_hour
        .iter()
        .zip(0u64..)
        .map(|((hour, [done, lost, open]), place)| {
            let (tall, kept, out) = (scale(*done), scale(*open), scale(*lost));
            FlowColumn {
                x: place * 20 + 2,
                done_y: HEIGHT.saturating_sub(tall),
                done: tall,
                open_y: HEIGHT.saturating_sub(tall + kept),
                open: kept,
                lost_y: HEIGHT.saturating_sub(tall + kept + out),
                lost: out,
                title: format!("{:02}:00 UTC: {done} done, {open} open, {lost} stopped", hour.rem_euclid(24)),
            }
        })
        .collect();
    let numbers = vec![
        ("waiting for a person", sum(&["awaiting_approval"], &any), "wait"),
        ("held", sum(&["held", "ready", "preparing", "armed", "in_doubt"], &any), "wait"),
        ("done", sum(&DONE, &any), "good"),
        ("cancelled", sum(&["cancelled", "discarded"], &any), "over"),
        ("denied or expired", sum(&["denied", "expired"], &any), "over"),
        ("blocked", sum(&["blocked"], &any), "over"),
        ("failed", sum(&["dead", "needs_human", "stale"], &any), "bad"),
    ];
    let made = counts.iter().map(|one| one.count).sum();
    Ok(FlowTemplate { columns, made, numbers, height: HEIGHT })
}

async fn state(context: &PageContext<'_>) -> Result<StateTemplate, CallError> {
    let gw = context.gw;
    let connections = gw.connections.list(&gw.store).await?;
    let services = connections.into_iter().filter(|one| one.state != "disconnected").map(|one| ServiceChip {
        name: one.name.to_string(),
        state: match one.state {
            "needs_reauth" => "needs a new sign-in",
            "syncing" => "copying",
            state => state,
        },
        class: match one.state {
            "live" => "good",
            "needs_reauth" => "bad",
            _ => "wait",
        },
        note: match (one.reason, one.age_s) {
            (Some(reason), _) => reason,
            (None, Some(age)) => format!("copy is {} old", Millis::from_secs(age)),
            (None, None) => String::new(),
        },
    });
    let mut services: Vec<ServiceChip> = services.collect();
    services.extend(gw.mounts.all().into_iter().map(|mount| {
        let condition = mount.condition();
        let state = condition.phase.as_str();
        let class = if state == "open" { "good" } else { "bad" };
        ServiceChip { name: mount.mount().name.to_string(), state, class, note: condition.reason.unwrap_or_default() }
    }));
    let mut agents: Vec<AgentChip> = gw
        .keyring
        .agents()
        .iter()
        .map(|name| {
            let (state, class) = match (gw.keyring.is_paused(name), gw.keyring.observing(name, context.now())) {
                (true, _) => ("paused", "bad"),
                (false, Some(_)) => ("observed, not stopped", "wait"),
                (false, None) => ("active", "good"),
            };
            AgentChip { name: name.to_string(), state, class }
        })
        .collect();
    agents.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut entries, mut signed) = (0, 0);
    for (log, head) in gw.store.logs().await? {
        entries += head.size;
        signed += gw.store.last_checkpoint(log).await?.map_or(0, |signed| signed.size);
    }
    Ok(StateTemplate { services, agents, entries, signed, rules: gw.policy.get().rule_count() })
}

/// The latest entries of all logs, newest first; equal neighbours are one line with a count.
async fn activity(context: &PageContext<'_>) -> Result<ActivityTemplate, CallError> {
    let store = &context.gw.store;
    let mut found: Vec<AuditEntry> = Vec::new();
    for (log, head) in store.logs().await? {
        found.extend(newest(context, log, head.size).await?);
    }
    found.sort_by_key(|entry| std::cmp::Reverse((entry.at, entry.seq)));
    let mut lines: Vec<(FeedLine, StampView, usize)> = Vec::new();
    for entry in found.iter().filter(|entry| is_news(&entry.fact.kind)) {
        let line = sentences::line(entry);
        let count = lines.len();
        match lines.last_mut() {
            Some((last, _, times)) if last.text == line.text && last.link.is_some() == line.link.is_some() => {
                *times += 1
            }
            _ if count == LINES => break,
            _ => lines.push((line, entry.at.into(), 1)),
        }
    }
    Ok(ActivityTemplate { lines })
}

async fn newest(context: &PageContext<'_>, log: NodeName, size: u64) -> Result<Vec<AuditEntry>, CallError> {
    let from = size.saturating_sub(u64::from(READ));
    let sealed = context.gw.store.entries(log, from, READ).await?;
    Ok(sealed.iter().filter_map(|one| serde_json::from_slice(&one.body).ok()).collect())
}

/// Steps that people do not look for in a feed; the timeline of a call shows them.
fn is_news(kind: &str) -> bool {
    !matches!(
        kind,
        "hold.ready"
            | "hold.preparing"
            | "approval.consumed"
            | "approval.shown"
            | "message.sent"
            | "message.taken"
            | "store.pruned"
            | "session.observed"
            | "secret.used"
            | "hold.awaiting_approval"
    )
}
