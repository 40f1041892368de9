//! `sluice status`: the state of the gateway, on one screen.

use clap::Args;
use serde_json::Value;

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, text_field};
use crate::commands::policy::counted;
use crate::commands::services;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::watch::{self, ListArgs};
use crate::write_failure;

/// Show the state of the gateway.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice status\n  sluice status --watch\n  sluice status --json | jq .open_approvals"
)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Keep running and print the status again when something changes
    #[arg(long, short)]
    watch: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        let listing = ListArgs { limit: 0, watch: self.watch, json: self.json };
        let fetch = || -> Result<Value, CliError> {
            let mut status = client.send(&ApiRequest::get("/v1/status").via_stop_lane())?;
            // A new time is not a change.
            if let Some(status) = status.as_object_mut().filter(|_| self.watch) {
                status.remove("now");
            }
            Ok(status)
        };
        watch::show(&client, screen, listing, fetch, |status| draw(&client, status, screen))
    }
}

fn draw(client: &GatewayClient, status: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<11} {value}"));
    line("gateway", format!("{}, {}", client.address(), display_field(status, "phase")))?;
    line("node", format!("{}, release {}", display_field(status, "node"), display_field(status, "release")))?;
    line(
        "rules",
        format!("{} rules, version {}", display_field(status, "rules"), display_field(status, "policy_version")),
    )?;
    for one in list(status, "nodes_differ") {
        line(
            "NODES",
            format!(
                "the nodes differ: {}; details: sluice nodes list",
                crate::escape::escape_line(one.as_str().unwrap_or_default())
            ),
        )?;
    }
    let freezes = list(status, "freezes");
    if freezes.is_empty() {
        line("frozen", "nothing".into())?;
    }
    for freeze in freezes {
        let why = display_field(freeze, "reason");
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let (scope, by, since) =
            (display_field(freeze, "scope"), display_field(freeze, "by"), display_field(freeze, "since"));
        line("frozen", format!("{scope}, by {by} since {since}{why}"))?;
    }
    for mode in list(status, "observing") {
        let (agent, until) = (display_field(mode, "agent"), display_field(mode, "until"));
        let leaving: Vec<&str> = list(mode, "leaving").iter().filter_map(Value::as_str).collect();
        let also = if leaving.is_empty() { String::new() } else { format!(", also {}", leaving.join(", ")) };
        line("OBSERVING", format!("{agent} until {until}{also}: its calls are recorded and NOT stopped"))?;
    }
    let holds = status.get("holds").and_then(Value::as_object);
    let held: Vec<String> = holds.into_iter().flatten().map(|(state, n)| format!("{n} {state}")).collect();
    line("holds", if held.is_empty() { "none".into() } else { held.join(", ") })?;
    for write in list(status, "retrying") {
        let (id, capability) = (display_field(write, "buffer_id"), display_field(write, "capability"));
        line(
            "retrying",
            format!("{id} {capability}: {}", write_failure::describe_retry_and_error(write).unwrap_or_default()),
        )?;
    }
    line("approvals", format!("{} open", display_field(status, "open_approvals")))?;
    line("alerts", format!("{} open", display_field(status, "open_alerts")))?;
    for budget in list(status, "budgets") {
        let whose = match (text_field(budget, "budget"), text_field(budget, "agent"), text_field(budget, "service")) {
            ("gateway", _, _) => "all agents".to_owned(),
            ("new_targets", agent, _) => format!("{agent}, new targets"),
            (_, agent, service) => format!("{agent} at {service}"),
        };
        line(
            "budget",
            format!("{} of {} in 24 h: {whose}", display_field(budget, "used"), display_field(budget, "limit")),
        )?;
    }
    line("disk", disk(status))?;
    if let Some(doubt) = status.get("clock_doubt").and_then(Value::as_str) {
        line("clock", format!("{}; details: sluice clock", crate::escape::escape_line(doubt)))?;
    }
    if status.get("clock_suspect") == Some(&Value::Bool(true)) {
        line("clock", "the clock has just jumped; nothing is sent until it is checked".into())?;
    }
    if let Some(speed) = status.get("slow_start").and_then(Value::as_u64) {
        let text = format!("the backlog is sent slowly: {speed} writes per second at each service, doubled every 30 s");
        line("release", text)?;
    }
    let sandbox = status.get("sandbox").cloned().unwrap_or_default();
    let missing: Vec<&str> = list(&sandbox, "missing").iter().filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        line("sandbox", format!("{}: workers run without {}", display_field(&sandbox, "mode"), missing.join(", ")))?;
    }
    if status.get("nobody_is_told") == Some(&Value::Bool(true)) {
        line(
            "CHANNELS",
            "none: nobody is notified of approvals and alerts; set up `telegram` or `email` in sluice.yaml".into(),
        )?;
    }
    for channel in list(status, "channels") {
        let (name, since) = (display_field(channel, "name"), display_field(channel, "since"));
        let how = match text_field(channel, "state") {
            "heard" => format!("receiving since {since}"),
            "not_heard" => format!("not receiving since {since}: {}", display_field(channel, "reason")),
            _ => "not tested yet".to_owned(),
        };
        line("channel", format!("{name}: {how}"))?;
        if text_field(channel, "delivery") == "not_sending" {
            let (since, why) = (display_field(channel, "delivery_since"), display_field(channel, "delivery_reason"));
            line("channel", format!("{name}: not sending since {since}: {why}"))?;
        }
    }
    for mount in list(status, "mounts") {
        let waiting = mount.get("waiting_tools").and_then(Value::as_u64).unwrap_or(0);
        let why = mount.get("reason").map(|_| format!(": {}", display_field(mount, "reason"))).unwrap_or_default();
        let waiting = if waiting > 0 { format!(", {waiting} of its tools wait to be accepted") } else { String::new() };
        line("mount", format!("{} is {}{why}{waiting}", display_field(mount, "name"), display_field(mount, "state")))?;
    }
    for service in list(status, "services") {
        line("service", services::summarize(service))?;
    }
    for log in list(status, "audit") {
        let entries = log.get("entries").and_then(Value::as_u64).unwrap_or(0);
        let entries = counted(usize::try_from(entries).unwrap_or(usize::MAX), "entry").replace("entrys", "entries");
        let hash: String = text_field(log, "hash").chars().take(16).collect();
        line(
            "audit log",
            format!("{}: {entries}, {} signed, head {hash}", display_field(log, "log"), display_field(log, "signed")),
        )?;
    }
    Ok(())
}

/// The disk state in words.
fn disk(status: &Value) -> String {
    match text_field(status, "disk") {
        "none" => "full: new writes are refused and nothing is sent".to_owned(),
        "low" => "low: new writes are refused".to_owned(),
        _ => display_field(status, "disk"),
    }
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
