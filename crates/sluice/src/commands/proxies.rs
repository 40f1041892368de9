//! `sluice proxies`: isolated interfaces to untrusted services.

mod reports;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::proxy::RoutingScore;
use sluice_core::{CapabilityName, Millis};
use sluice_services::proxies;

use super::call::CallCommand;
use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// Check, list and maintain security proxies.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice proxies check proxies/\n  sluice proxies list\n  sluice proxies show moltbook\n  sluice proxies clear moltbook"
)]
pub(crate) struct ProxiesCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: ProxiesSubcommand,
}

#[derive(Debug, Subcommand)]
enum ProxiesSubcommand {
    /// Check declarations for errors; needs no gateway
    #[command(before_help = "Examples:\n  sluice proxies check\n  sluice proxies check proxies/moltbook.yaml --json")]
    Check {
        /// Files or folders
        #[arg(default_value = "proxies")]
        paths: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List proxies and their state
    #[command(before_help = "Examples:\n  sluice proxies list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one proxy with its latest tasks
    #[command(before_help = "Examples:\n  sluice proxies show moltbook")]
    Show {
        #[command(flatten)]
        one: ProxiesNameArgs,
    },
    /// Run one operation as an agent
    ///
    /// The key comes from SLUICE_AGENT_KEY or the file in SLUICE_AGENT_KEY_FILE; exit codes as for `sluice call`.
    #[command(
        before_help = "Examples:\n  export SLUICE_AGENT_KEY_FILE=data/agents/assistant.key\n  sluice proxies run moltbook feed '{\"limit\": 5}'\n  sluice proxies run moltbook reply '{\"post\": \"7\", \"text\": \"Thanks!\"}' --wait 2m"
    )]
    Run {
        /// Name of the proxy
        name: String,
        /// Operation to run
        operation: String,
        /// Arguments as JSON; `-` reads them from standard input
        #[arg(default_value = "{}")]
        arguments: String,
        /// Wait up to this long for the outcome
        #[arg(long, value_parser = span)]
        wait: Option<Millis>,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the remaining budget of each day
    #[command(before_help = "Examples:\n  sluice proxies budget\n  sluice proxies budget moltbook --days 30")]
    Budget {
        /// Name of the proxy; default: all proxies
        name: Option<String>,
        /// Number of days before today to show
        #[arg(long, default_value_t = 7)]
        days: u32,
        /// Print the API responses as JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare the recent activity of a proxy with its own history
    ///
    /// Each deviation is printed with numbers and an explanation. With --strict the exit code is 1 if there is any.
    #[command(
        before_help = "Examples:\n  sluice proxies review\n  sluice proxies review moltbook --since 7d\n  sluice proxies review --strict"
    )]
    Review {
        /// Name of the proxy; default: all proxies
        name: Option<String>,
        /// Length of the period to review; the four periods before it are the history
        #[arg(long, value_parser = span, default_value = "7d")]
        since: Millis,
        /// Exit code 1 if there is any deviation
        #[arg(long)]
        strict: bool,
        /// Print the API responses as JSON
        #[arg(long)]
        json: bool,
    },
    /// List tasks that crashed
    #[command(before_help = "Examples:\n  sluice proxies crashes moltbook")]
    Crashes {
        #[command(flatten)]
        one: ProxiesNameArgs,
    },
    /// Show one crash report
    #[command(before_help = "Examples:\n  sluice proxies crash moltbook crash-2026-11-16T04:12:00.000Z")]
    Crash {
        /// Name of the proxy
        name: String,
        /// Crash ID, or its first characters
        id: String,
    },
    /// Let a proxy that waits for a person run again
    #[command(before_help = "Examples:\n  sluice proxies clear moltbook")]
    Clear {
        #[command(flatten)]
        one: ProxiesNameArgs,
    },
    /// Quarantine a proxy until a person has looked at it
    #[command(before_help = "Examples:\n  sluice proxies quarantine moltbook --reason 'odd answers'")]
    Quarantine {
        #[command(flatten)]
        one: ProxiesNameArgs,
        /// Reason, kept in the audit log
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Archive the workspace as evidence and start again from the last good copy
    #[command(before_help = "Examples:\n  sluice proxies archive moltbook")]
    Archive {
        #[command(flatten)]
        one: ProxiesNameArgs,
    },
    /// Restore a workspace
    #[command(
        before_help = "Examples:\n  sluice proxies restore moltbook\n  sluice proxies restore moltbook --archive 2026-11-16T04-12-00.000Z"
    )]
    Restore {
        #[command(flatten)]
        one: ProxiesNameArgs,
        /// Archive to restore; default: the last good copy
        #[arg(long)]
        archive: Option<String>,
    },
}

/// Most crashes that are searched for one.
const CRASHES: usize = 10_000;

#[derive(Debug, Args)]
struct ProxiesNameArgs {
    /// Name of the proxy
    name: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl ProxiesCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let verb = match self.verb {
            ProxiesSubcommand::Check { paths, json } => return check(screen, &paths, json),
            ProxiesSubcommand::Run { name, operation, arguments, wait, json } => {
                let capability = CapabilityName::new(format!("proxy.{name}.{operation}")).map_err(|why| {
                    CliError::new(CommandExit::Usage, "not a valid operation name").why(why.to_string())
                })?;
                return CallCommand::plain(self.reach, capability, arguments)
                    .waiting(wait)
                    .for_machines(json)
                    .run(screen);
            }
            verb => verb,
        };
        let client = self.reach.open_operator_client()?;
        match verb {
            ProxiesSubcommand::Check { .. } | ProxiesSubcommand::Run { .. } => Ok(CommandExit::Ok),
            ProxiesSubcommand::List { listing } => {
                let fetch = || client.get_all("/v1/proxies");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            ProxiesSubcommand::Show { one } => say(&client, screen, &one, &ApiRequest::get(path(&one.name, ""))),
            ProxiesSubcommand::Crashes { one } => {
                let found = client.send(&ApiRequest::get(path(&one.name, "/crashes")))?;
                if one.json {
                    screen.json(&found)?;
                    return Ok(CommandExit::Ok);
                }
                tasks(&found, "data", screen)
            }
            ProxiesSubcommand::Budget { name, days, json } => {
                reports::budget(&client, screen, name.as_deref(), (days, json))
            }
            ProxiesSubcommand::Review { name, since, strict, json } => {
                reports::review(&client, screen, name.as_deref(), &reports::ProxyReviewOptions { since, strict, json })
            }
            ProxiesSubcommand::Crash { name, id } => crash(&client, screen, &name, &id),
            ProxiesSubcommand::Clear { one } => {
                say(&client, screen, &one, &ApiRequest::post(path(&one.name, "/clear")))
            }
            ProxiesSubcommand::Quarantine { one, reason } => {
                let ask = ApiRequest::post(path(&one.name, "/quarantine")).body(json!({"reason": reason}));
                say(&client, screen, &one, &ask)
            }
            ProxiesSubcommand::Archive { one } => {
                say(&client, screen, &one, &ApiRequest::post(path(&one.name, "/archive")))
            }
            ProxiesSubcommand::Restore { one, archive } => {
                let ask = ApiRequest::post(path(&one.name, "/restore")).body(json!({"archive": archive}));
                say(&client, screen, &one, &ask)
            }
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/proxies/{}{rest}", encode(name))
}

/// Reads declarations and prints their errors.
fn check(screen: &CommandConsole, paths: &[PathBuf], as_json: bool) -> Result<CommandExit, CliError> {
    let scan = sluice_egress::leak::of_formats().map_err(|error| {
        CliError::new(CommandExit::Failed, "the leak scan cannot be prepared").why(error.to_string())
    })?;
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(proxies::find(path, &scan));
        } else {
            found.push(proxies::read(path.clone(), &scan));
        }
    }
    let mut fine = true;
    let mut list = Vec::new();
    for one in &found {
        fine &= one.is_whole();
        let mut flaws: Vec<Value> =
            one.flaws.iter().map(|flaw| json!({"code": flaw.code, "place": flaw.place, "text": flaw.text})).collect();
        flaws.extend(
            one.declared.as_ref().err().map(|why| json!({"code": "proxy.unreadable", "place": "", "text": why.0})),
        );
        let warnings = one.warnings.iter();
        let warnings: Vec<Value> =
            warnings.map(|flaw| json!({"code": flaw.code, "place": flaw.place, "text": flaw.text})).collect();
        let scores = one.declared.iter().flat_map(|proxy| {
            proxy.operations.iter().map(|(name, operation)| (name.clone(), proxy.routing_score(operation)))
        });
        let scores: Vec<(String, RoutingScore)> = scores.collect();
        if as_json {
            let routing: Vec<Value> = scores
                .iter()
                .map(|(name, found)| json!({"operation": name, "score": found.score, "text": found.to_string()}))
                .collect();
            list.push(json!({
                "proxy": one.name, "file": one.path, "flaws": flaws, "warnings": warnings, "routing": routing,
            }));
            continue;
        }
        if one.is_whole() {
            screen.line(format_args!("{}: ok", one.path.display()))?;
        }
        for (name, found) in &scores {
            screen.line(format_args!("{}: routing score of `{name}`: {found}", one.path.display()))?;
        }
        for flaw in &warnings {
            let (code, place, what) = (text_field(flaw, "code"), text_field(flaw, "place"), text_field(flaw, "text"));
            screen.line(format_args!("{}: warning {code} at `{place}`: {what}", one.path.display()))?;
        }
        for flaw in &flaws {
            let (code, place, what) = (text_field(flaw, "code"), text_field(flaw, "place"), text_field(flaw, "text"));
            screen.line(format_args!("{}: {code} at `{place}`: {what}", one.path.display()))?;
        }
    }
    if as_json {
        screen.json(&json!({"data": list}))?;
    } else if found.is_empty() {
        screen.note(format_args!("no declarations found"));
    }
    Ok(if fine { CommandExit::Ok } else { CommandExit::Failed })
}

fn crash(client: &GatewayClient, screen: &CommandConsole, name: &str, id: &str) -> Result<CommandExit, CliError> {
    let found = client.list(&ApiRequest::get(path(name, "/crashes")), CRASHES)?;
    let reports: Vec<&Value> = entries(&found).iter().filter_map(|task| task.get("crash")).collect();
    let whole = reports.iter().find(|report| text_field(report, "crash_id") == id).copied();
    let mut fitting = reports.into_iter().filter(|report| text_field(report, "crash_id").starts_with(id));
    match (whole.or_else(|| fitting.next()), fitting.next().filter(|_| whole.is_none())) {
        (Some(report), None) => {
            screen.json(report)?;
            Ok(CommandExit::Ok)
        }
        (Some(_), Some(_)) => Err(CliError::new(CommandExit::Usage, format!("several crashes start with `{id}`"))),
        (None, _) => Err(CliError::new(CommandExit::NotFound, format!("`{name}` has no crash `{id}`"))),
    }
}

fn say(
    client: &GatewayClient,
    screen: &CommandConsole,
    one: &ProxiesNameArgs,
    ask: &ApiRequest,
) -> Result<CommandExit, CliError> {
    let proxy = client.send(ask)?;
    if one.json {
        screen.json(&proxy)?;
        return Ok(CommandExit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
    line("proxy", display_field(&proxy, "name"))?;
    line("service", display_field(&proxy, "service"))?;
    line("state", display_field(&proxy, "state"))?;
    if proxy.get("reason").is_some() {
        line("reason", display_field(&proxy, "reason"))?;
    }
    line("trust", display_field(&proxy, "trust"))?;
    if proxy.get("rotate_by").is_some() {
        line("rotate by", display_field(&proxy, "rotate_by"))?;
    }
    for score in list(&proxy, "routing") {
        let reasons: Vec<&str> = list(score, "reasons").filter_map(Value::as_str).collect();
        let (capability, points) = (display_field(score, "capability"), display_field(score, "score"));
        line("routing", format!("{capability} {points}/100: {}", reasons.join(", ")))?;
    }
    let fields =
        [("capabilities", "capabilities"), ("warnings", "warnings"), ("flaws", "flaws"), ("archives", "archives")];
    for (name, field) in fields {
        for value in proxy.get(field).and_then(Value::as_array).into_iter().flatten() {
            line(name, value.as_str().unwrap_or_default().to_owned())?;
        }
    }
    for side in list(&proxy, "relations") {
        let (name, last, recent) =
            (display_field(side, "name"), display_field(side, "last"), display_field(side, "recent"));
        line("relation", format!("{name}, last {last}, {recent} recent{}", kept(side, "facts")))?;
    }
    for draft in list(&proxy, "named_drafts") {
        let (name, state, at) =
            (display_field(draft, "name"), display_field(draft, "state"), display_field(draft, "at"));
        line("draft", format!("{name} {state} since {at}{}", kept(draft, "fields")))?;
    }
    for refused in list(&proxy, "refused_proposals") {
        let (code, about, at) =
            (display_field(refused, "code"), display_field(refused, "about"), display_field(refused, "at"));
        line("refused", format!("{code} about a {about} at {at}, {}", display_field(refused, "task_id")))?;
    }
    tasks(&proxy, "tasks", screen)
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Stored fields in one line. They came from an untrusted service.
fn kept(value: &Value, name: &str) -> String {
    let fields = value.get(name).and_then(Value::as_object).into_iter().flatten();
    fields.map(|(name, value)| format!(", {name}={}", crate::escape::value(value))).collect()
}

fn tasks(found: &Value, field: &str, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    let mut table =
        TextTable::new(&["task", "operation", "agent", "state", "started", "requests", "crash", "what happened"]);
    for task in found.get(field).and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| display_field(task, name);
        let crash = task.get("crash").map(|report| {
            let attack = report.get("adversarial") == Some(&Value::Bool(true));
            let (trigger, detail) = (display_field(report, "trigger"), display_field(report, "trigger_detail"));
            (display_field(report, "crash_id"), format!("{trigger}{}: {detail}", if attack { " (attack)" } else { "" }))
        });
        let (crash, happened) = crash.unwrap_or_default();
        table.row(&[
            cell("task_id"),
            cell("operation"),
            cell("agent"),
            cell("state"),
            cell("started_at"),
            cell("requests"),
            crash,
            happened,
        ]);
    }
    table.print(screen, "no tasks yet")?;
    Ok(CommandExit::Ok)
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["proxy", "service", "state", "trust", "operations", "score", "reason"]);
    for proxy in entries(list) {
        let cell = |name| display_field(proxy, name);
        let operations = proxy.get("capabilities").and_then(Value::as_array).map_or(0, Vec::len);
        let because = if proxy.get("reason").is_some() { cell("reason") } else { String::new() };
        let scores = self::list(proxy, "routing").filter_map(|score| score.get("score").and_then(Value::as_u64));
        let score = scores.max().map(|score| score.to_string()).unwrap_or_default();
        let operations = operations.to_string();
        table.row(&[cell("name"), cell("service"), cell("state"), cell("trust"), operations, score, because]);
    }
    table.print(screen, "no proxies; add a declaration to proxies/")
}
