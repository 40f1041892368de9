//! `sluice proxies`: isolated interfaces to services nobody trusts.

mod reports;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::proxy::RoutingScore;
use sluice_core::{CapabilityName, Span};
use sluice_gateway::proxies;

use super::call::Call;
use crate::client::{Ask, Client, Reach, encode, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;
use crate::table::Table;
use crate::watch::{self, Listing};

/// Check, list and look after security proxies.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice proxies check proxies/\n  sluice proxies list\n  sluice proxies show moltbook\n  sluice proxies clear moltbook"
)]
pub(crate) struct Proxies {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Look for flaws in declarations; needs no gateway
    #[command(before_help = "Examples:\n  sluice proxies check\n  sluice proxies check proxies/moltbook.yaml --json")]
    Check {
        /// Files or folders
        #[arg(default_value = "proxies")]
        paths: Vec<PathBuf>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// List proxies and how they stand
    #[command(before_help = "Examples:\n  sluice proxies list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one proxy with its newest tasks
    #[command(before_help = "Examples:\n  sluice proxies show moltbook")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Run one operation, as an agent does
    ///
    /// The key comes from SLUICE_AGENT_KEY or the file SLUICE_AGENT_KEY_FILE names; it ends as `sluice call` does.
    #[command(
        before_help = "Examples:\n  export SLUICE_AGENT_KEY_FILE=data/agents/assistant.key\n  sluice proxies run moltbook feed '{\"limit\": 5}'\n  sluice proxies run moltbook reply '{\"post\": \"7\", \"text\": \"Thanks!\"}' --wait 2m"
    )]
    Run {
        /// Its name
        name: String,
        /// The operation
        operation: String,
        /// Its arguments, as JSON; `-` reads them from standard input
        #[arg(default_value = "{}")]
        arguments: String,
        /// Wait so long for the outcome
        #[arg(long, value_parser = span)]
        wait: Option<Span>,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Show what the budget of each day still holds
    #[command(before_help = "Examples:\n  sluice proxies budget\n  sluice proxies budget moltbook --days 30")]
    Budget {
        /// Its name; all proxies if none is given
        name: Option<String>,
        /// How many days before today are shown
        #[arg(long, default_value_t = 7)]
        days: u32,
        /// For machines: the answers of the API
        #[arg(long)]
        json: bool,
    },
    /// Compare what a proxy did lately with its own history
    ///
    /// Each deviation has its numbers and a sentence. With --strict the exit code is 1 if there is any.
    #[command(
        before_help = "Examples:\n  sluice proxies review\n  sluice proxies review moltbook --since 7d\n  sluice proxies review --strict"
    )]
    Review {
        /// Its name; all proxies if none is given
        name: Option<String>,
        /// How long the period is that is looked at; the four before it are the history
        #[arg(long, value_parser = span, default_value = "7d")]
        since: Span,
        /// Exit code 1 if anything deviates
        #[arg(long)]
        strict: bool,
        /// For machines: the answers of the API
        #[arg(long)]
        json: bool,
    },
    /// List tasks that crashed
    #[command(before_help = "Examples:\n  sluice proxies crashes moltbook")]
    Crashes {
        #[command(flatten)]
        one: One,
    },
    /// Show one crash report
    #[command(before_help = "Examples:\n  sluice proxies crash moltbook crash-2026-11-16T04:12:00.000Z")]
    Crash {
        /// Its name
        name: String,
        /// The crash, or the beginning of its id
        id: String,
    },
    /// Let a proxy run again that waits for a person
    #[command(before_help = "Examples:\n  sluice proxies clear moltbook")]
    Clear {
        #[command(flatten)]
        one: One,
    },
    /// Set a proxy aside until a person has looked
    #[command(before_help = "Examples:\n  sluice proxies quarantine moltbook --reason 'odd answers'")]
    Quarantine {
        #[command(flatten)]
        one: One,
        /// Why
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Keep the workspace as evidence and start from the last good copy
    #[command(before_help = "Examples:\n  sluice proxies archive moltbook")]
    Archive {
        #[command(flatten)]
        one: One,
    },
    /// Bring a workspace back
    #[command(
        before_help = "Examples:\n  sluice proxies restore moltbook\n  sluice proxies restore moltbook --archive 2026-11-16T04-12-00.000Z"
    )]
    Restore {
        #[command(flatten)]
        one: One,
        /// Which; the last good copy if none is named
        #[arg(long)]
        archive: Option<String>,
    },
}

/// Most crashes that are looked through for one.
const CRASHES: usize = 10_000;

#[derive(Debug, Args)]
struct One {
    /// Its name
    name: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Proxies {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let verb = match self.verb {
            Verb::Check { paths, json } => return check(screen, &paths, json),
            Verb::Run { name, operation, arguments, wait, json } => {
                let capability = CapabilityName::new(format!("proxy.{name}.{operation}"))
                    .map_err(|why| Failure::new(Exit::Usage, "there can be no such operation").why(why.to_string()))?;
                return Call::plain(self.reach, capability, arguments).waiting(wait).for_machines(json).run(screen);
            }
            verb => verb,
        };
        let client = self.reach.operator()?;
        match verb {
            Verb::Check { .. } | Verb::Run { .. } => Ok(Exit::Ok),
            Verb::List { listing } => {
                let fetch = || client.whole("/v1/proxies");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { one } => say(&client, screen, &one, &Ask::get(path(&one.name, ""))),
            Verb::Crashes { one } => {
                let found = client.ask(&Ask::get(path(&one.name, "/crashes")))?;
                if one.json {
                    screen.json(&found)?;
                    return Ok(Exit::Ok);
                }
                tasks(&found, "data", screen)
            }
            Verb::Budget { name, days, json } => reports::budget(&client, screen, name.as_deref(), (days, json)),
            Verb::Review { name, since, strict, json } => {
                reports::review(&client, screen, name.as_deref(), &reports::Wanted { since, strict, json })
            }
            Verb::Crash { name, id } => crash(&client, screen, &name, &id),
            Verb::Clear { one } => say(&client, screen, &one, &Ask::post(path(&one.name, "/clear"))),
            Verb::Quarantine { one, reason } => {
                let ask = Ask::post(path(&one.name, "/quarantine")).body(json!({"reason": reason}));
                say(&client, screen, &one, &ask)
            }
            Verb::Archive { one } => say(&client, screen, &one, &Ask::post(path(&one.name, "/archive"))),
            Verb::Restore { one, archive } => {
                let ask = Ask::post(path(&one.name, "/restore")).body(json!({"archive": archive}));
                say(&client, screen, &one, &ask)
            }
        }
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/proxies/{}{rest}", encode(name))
}

/// Reads declarations and says what is wrong with them.
fn check(screen: &Screen, paths: &[PathBuf], as_json: bool) -> Result<Exit, Failure> {
    let scan = sluice_gateway::rooms::leak::of_formats()
        .map_err(|error| Failure::new(Exit::Failed, "the leak scan cannot be prepared").why(error.to_string()))?;
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
            screen.line(format_args!("{}: fine", one.path.display()))?;
        }
        for (name, found) in &scores {
            screen.line(format_args!("{}: routing score of `{name}`: {found}", one.path.display()))?;
        }
        for flaw in &warnings {
            let (code, place, what) = (text(flaw, "code"), text(flaw, "place"), text(flaw, "text"));
            screen.line(format_args!("{}: warning {code} at `{place}`: {what}", one.path.display()))?;
        }
        for flaw in &flaws {
            let (code, place, what) = (text(flaw, "code"), text(flaw, "place"), text(flaw, "text"));
            screen.line(format_args!("{}: {code} at `{place}`: {what}", one.path.display()))?;
        }
    }
    if as_json {
        screen.json(&json!({"data": list}))?;
    } else if found.is_empty() {
        screen.note(format_args!("there are no declarations"));
    }
    Ok(if fine { Exit::Ok } else { Exit::Failed })
}

fn crash(client: &Client, screen: &Screen, name: &str, id: &str) -> Result<Exit, Failure> {
    let found = client.list(&Ask::get(path(name, "/crashes")), CRASHES)?;
    let reports: Vec<&Value> = entries(&found).iter().filter_map(|task| task.get("crash")).collect();
    let whole = reports.iter().find(|report| text(report, "crash_id") == id).copied();
    let mut fitting = reports.into_iter().filter(|report| text(report, "crash_id").starts_with(id));
    match (whole.or_else(|| fitting.next()), fitting.next().filter(|_| whole.is_none())) {
        (Some(report), None) => {
            screen.json(report)?;
            Ok(Exit::Ok)
        }
        (Some(_), Some(_)) => Err(Failure::new(Exit::Usage, format!("`{id}` is the beginning of several crashes"))),
        (None, _) => Err(Failure::new(Exit::NotFound, format!("`{name}` has no crash `{id}`"))),
    }
}

fn say(client: &Client, screen: &Screen, one: &One, ask: &Ask) -> Result<Exit, Failure> {
    let proxy = client.ask(ask)?;
    if one.json {
        screen.json(&proxy)?;
        return Ok(Exit::Ok);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
    line("proxy", shown(&proxy, "name"))?;
    line("service", shown(&proxy, "service"))?;
    line("state", shown(&proxy, "state"))?;
    if proxy.get("reason").is_some() {
        line("because", shown(&proxy, "reason"))?;
    }
    line("trust", shown(&proxy, "trust"))?;
    if proxy.get("rotate_by").is_some() {
        line("rotate by", shown(&proxy, "rotate_by"))?;
    }
    for score in list(&proxy, "routing") {
        let reasons: Vec<&str> = list(score, "reasons").filter_map(Value::as_str).collect();
        let (capability, points) = (shown(score, "capability"), shown(score, "score"));
        line("routing", format!("{capability} {points}/100: {}", reasons.join(", ")))?;
    }
    let fields =
        [("capabilities", "capabilities"), ("warnings", "warnings"), ("flaws", "flaws"), ("set aside", "archives")];
    for (name, field) in fields {
        for value in proxy.get(field).and_then(Value::as_array).into_iter().flatten() {
            line(name, value.as_str().unwrap_or_default().to_owned())?;
        }
    }
    for side in list(&proxy, "relations") {
        let (name, last, recent) = (shown(side, "name"), shown(side, "last"), shown(side, "recent"));
        line("relation", format!("{name}, last {last}, {recent} recent{}", kept(side, "facts")))?;
    }
    for draft in list(&proxy, "named_drafts") {
        let (name, state, at) = (shown(draft, "name"), shown(draft, "state"), shown(draft, "at"));
        line("draft", format!("{name} {state} since {at}{}", kept(draft, "fields")))?;
    }
    for refused in list(&proxy, "refused_proposals") {
        let (code, about, at) = (shown(refused, "code"), shown(refused, "about"), shown(refused, "at"));
        line("not kept", format!("{code} about a {about} at {at}, {}", shown(refused, "task_id")))?;
    }
    tasks(&proxy, "tasks", screen)
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// What is kept, in a line. It came from a service nobody trusts.
fn kept(value: &Value, name: &str) -> String {
    let fields = value.get(name).and_then(Value::as_object).into_iter().flatten();
    fields.map(|(name, value)| format!(", {name}={}", crate::visible::value(value))).collect()
}

fn tasks(found: &Value, field: &str, screen: &Screen) -> Result<Exit, Failure> {
    let mut table =
        Table::new(&["task", "operation", "agent", "state", "started", "requests", "crash", "what happened"]);
    for task in found.get(field).and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| shown(task, name);
        let crash = task.get("crash").map(|report| {
            let attack = report.get("adversarial") == Some(&Value::Bool(true));
            let (trigger, detail) = (shown(report, "trigger"), shown(report, "trigger_detail"));
            (shown(report, "crash_id"), format!("{trigger}{}: {detail}", if attack { " (attack)" } else { "" }))
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
    Ok(Exit::Ok)
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["proxy", "service", "state", "trust", "operations", "score", "because"]);
    for proxy in entries(list) {
        let cell = |name| shown(proxy, name);
        let operations = proxy.get("capabilities").and_then(Value::as_array).map_or(0, Vec::len);
        let because = if proxy.get("reason").is_some() { cell("reason") } else { String::new() };
        let scores = self::list(proxy, "routing").filter_map(|score| score.get("score").and_then(Value::as_u64));
        let score = scores.max().map(|score| score.to_string()).unwrap_or_default();
        let operations = operations.to_string();
        table.row(&[cell("name"), cell("service"), cell("state"), cell("trust"), operations, score, because]);
    }
    table.print(screen, "there are no proxies: put a declaration into proxies/")
}
