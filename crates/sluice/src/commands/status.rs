//! `sluice status`: how the gateway is, on one screen.

use clap::Args;
use serde_json::Value;

use crate::client::{Ask, Client, Reach, shown, text};
use crate::commands::policy::counted;
use crate::commands::services;
use crate::failing;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::watch::{self, Listing};

/// Show how the gateway is.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice status\n  sluice status --watch\n  sluice status --json | jq .open_approvals"
)]
pub(crate) struct Status {
    #[command(flatten)]
    reach: Reach,
    /// Stay, and show it again when something changes
    #[arg(long, short)]
    watch: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        let listing = Listing { limit: 0, watch: self.watch, json: self.json };
        let fetch = || -> Result<Value, Failure> {
            let mut status = client.ask(&Ask::get("/v1/status").stops())?;
            // That time passes is no change.
            if let Some(status) = status.as_object_mut().filter(|_| self.watch) {
                status.remove("now");
            }
            Ok(status)
        };
        watch::show(&client, screen, listing, fetch, |status| draw(&client, status, screen))
    }
}

fn draw(client: &Client, status: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<11} {value}"));
    line("gateway", format!("{}, {}", client.address(), shown(status, "phase")))?;
    line("node", format!("{}, release {}", shown(status, "node"), shown(status, "release")))?;
    line("rules", format!("{} rules, version {}", shown(status, "rules"), shown(status, "policy_version")))?;
    for one in list(status, "nodes_differ") {
        line(
            "NODES",
            format!("differ: {}; sluice nodes list", crate::visible::line(one.as_str().unwrap_or_default())),
        )?;
    }
    let freezes = list(status, "freezes");
    if freezes.is_empty() {
        line("frozen", "nothing".into())?;
    }
    for freeze in freezes {
        let why = shown(freeze, "reason");
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let (scope, by, since) = (shown(freeze, "scope"), shown(freeze, "by"), shown(freeze, "since"));
        line("frozen", format!("{scope}, by {by} since {since}{why}"))?;
    }
    for mode in list(status, "observing") {
        let (agent, until) = (shown(mode, "agent"), shown(mode, "until"));
        let leaving: Vec<&str> = list(mode, "leaving").iter().filter_map(Value::as_str).collect();
        let also = if leaving.is_empty() { String::new() } else { format!(", also {}", leaving.join(", ")) };
        line("OBSERVING", format!("{agent} until {until}{also}: its calls are recorded and NOT stopped"))?;
    }
    let holds = status.get("holds").and_then(Value::as_object);
    let held: Vec<String> = holds.into_iter().flatten().map(|(state, n)| format!("{n} {state}")).collect();
    line("holds", if held.is_empty() { "none".into() } else { held.join(", ") })?;
    for write in list(status, "retrying") {
        let (id, capability) = (shown(write, "buffer_id"), shown(write, "capability"));
        line("retrying", format!("{id} {capability}: {}", failing::line(write).unwrap_or_default()))?;
    }
    line("approvals", format!("{} open", shown(status, "open_approvals")))?;
    line("alerts", format!("{} open", shown(status, "open_alerts")))?;
    for budget in list(status, "budgets") {
        let whose = match (text(budget, "budget"), text(budget, "agent"), text(budget, "service")) {
            ("gateway", _, _) => "all agents".to_owned(),
            ("new_targets", agent, _) => format!("{agent}, new targets"),
            (_, agent, service) => format!("{agent} at {service}"),
        };
        line("budget", format!("{} of {} in 24 h: {whose}", shown(budget, "used"), shown(budget, "limit")))?;
    }
    line("disk", shown(status, "disk"))?;
    if let Some(doubt) = status.get("clock_doubt").and_then(Value::as_str) {
        line("clock", format!("{}; sluice clock", crate::visible::line(doubt)))?;
    }
    if status.get("clock_suspect") == Some(&Value::Bool(true)) {
        line("clock", "has jumped a moment ago; nothing is sent until it is settled".into())?;
    }
    if let Some(speed) = status.get("slow_start").and_then(Value::as_u64) {
        let text = format!("what piled up leaves slowly: {speed} writes a second at each service, doubled every 30 s");
        line("release", text)?;
    }
    let sandbox = status.get("sandbox").cloned().unwrap_or_default();
    let missing: Vec<&str> = list(&sandbox, "missing").iter().filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        line("sandbox", format!("{}: workers run without {}", shown(&sandbox, "mode"), missing.join(", ")))?;
    }
    if status.get("nobody_is_told") == Some(&Value::Bool(true)) {
        line(
            "CHANNELS",
            "none: nobody is told of questions and alerts; set up `telegram` or `email` in sluice.yaml".into(),
        )?;
    }
    for channel in list(status, "channels") {
        let (name, since) = (shown(channel, "name"), shown(channel, "since"));
        let how = match text(channel, "state") {
            "heard" => format!("is heard since {since}"),
            "not_heard" => format!("is not heard since {since}: {}", shown(channel, "reason")),
            _ => "has not been tried yet".to_owned(),
        };
        line("channel", format!("{name} {how}"))?;
        if text(channel, "delivery") == "not_sending" {
            let (since, why) = (shown(channel, "delivery_since"), shown(channel, "delivery_reason"));
            line("channel", format!("{name} delivers nothing since {since}: {why}"))?;
        }
    }
    for mount in list(status, "mounts") {
        let waiting = mount.get("waiting_tools").and_then(Value::as_u64).unwrap_or(0);
        let why = mount.get("reason").map(|_| format!(": {}", shown(mount, "reason"))).unwrap_or_default();
        let waiting = if waiting > 0 { format!(", {waiting} of its tools wait for a person") } else { String::new() };
        line("mount", format!("{} is {}{why}{waiting}", shown(mount, "name"), shown(mount, "state")))?;
    }
    for service in list(status, "services") {
        line("service", services::brief(service))?;
    }
    for log in list(status, "audit") {
        let entries = log.get("entries").and_then(Value::as_u64).unwrap_or(0);
        let entries = counted(usize::try_from(entries).unwrap_or(usize::MAX), "entry").replace("entrys", "entries");
        let hash: String = text(log, "hash").chars().take(16).collect();
        line("record", format!("{}: {entries}, {} signed, head {hash}", shown(log, "log"), shown(log, "signed")))?;
    }
    Ok(())
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
