//! `sluice holds`: held writes, which wait before they leave.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, Millis, ServiceName};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, ListedIdKind, display_field, entries, text_field};
use crate::commands::approvals::display;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::{TextTable, short_ids};
use crate::time_args::span;
use crate::watch::{self, ListArgs};
use crate::write_failure;

/// List, cancel, extend, send and settle held writes.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice holds list --state held,awaiting_approval --watch\n  sluice holds cancel buf_0193f2\n  sluice holds extend buf_0193f2 +10m\n  sluice holds settle buf_0193f2 --happened 'seen in the sent folder'"
)]
pub(crate) struct HoldsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: HoldsSubcommand,
}

#[derive(Debug, Subcommand)]
enum HoldsSubcommand {
    /// List held writes, the newest first
    #[command(
        before_help = "Examples:\n  sluice holds list --state held --watch\n  sluice holds list --json | jq -r '.data[].buffer_id'"
    )]
    List {
        #[command(flatten)]
        filter: HoldsFilterArgs,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one held write with its arguments
    #[command(before_help = "Examples:\n  sluice holds show buf_0193f2")]
    Show {
        #[command(flatten)]
        one: HoldsIdArgs,
    },
    /// Cancel held writes before anything is sent
    #[command(before_help = "Examples:\n  sluice holds cancel buf_0193f2 buf_0193f3")]
    Cancel {
        #[command(flatten)]
        some: HoldsIdListArgs,
    },
    /// Hold a write longer
    #[command(before_help = "Examples:\n  sluice holds extend buf_0193f2 +10m")]
    Extend {
        #[command(flatten)]
        one: HoldsIdArgs,
        /// How much longer
        #[arg(value_parser = span, allow_hyphen_values = true)]
        by: Millis,
    },
    /// Send held writes now, without waiting for the rest of the undo window
    #[command(before_help = "Examples:\n  sluice holds send-now buf_0193f2")]
    SendNow {
        #[command(flatten)]
        some: HoldsIdListArgs,
    },
    /// Retry writes that failed, or whose next attempt is still to come
    #[command(before_help = "Examples:\n  sluice holds retry buf_0193f2")]
    Retry {
        #[command(flatten)]
        some: HoldsIdListArgs,
    },
    /// Discard writes that failed or are being retried
    #[command(before_help = "Examples:\n  sluice holds discard buf_0193f2")]
    Discard {
        #[command(flatten)]
        some: HoldsIdListArgs,
    },
    /// Settle writes with an uncertain outcome: one that was carried out, or all of a service
    #[command(
        before_help = "Examples:\n  sluice holds settle buf_0193f2 --happened 'seen in the sent folder'\n  sluice holds settle --service gmail --as done --dry-run\n  sluice holds settle --service gmail --agent clerk --as retry --yes"
    )]
    Settle {
        /// Hold ID, or its first characters
        #[arg(required_unless_present = "service", conflicts_with = "service")]
        id: Option<String>,
        /// The write was carried out; the text says how you know
        #[arg(long, value_name = "EVIDENCE", required_unless_present = "service")]
        happened: Option<String>,
        #[command(flatten)]
        many: HoldsSettleManyArgs,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Options to settle all uncertain writes of a service.
#[derive(Debug, Args)]
struct HoldsSettleManyArgs {
    /// All writes of this service with an uncertain outcome
    #[arg(long, value_name = "NAME", requires = "outcome")]
    service: Option<ServiceName>,
    /// Their outcome: done; not-done, and discard them; or retry, which means not done, and try them again
    #[arg(long = "as", id = "outcome", value_name = "HOW", requires = "service")]
    outcome: Option<UnclearWriteOutcome>,
    /// Only writes of this agent
    #[arg(long, value_name = "NAME", requires = "service")]
    agent: Option<AgentName>,
    /// Only list them, with what is known about each
    #[arg(long, requires = "service")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "service")]
    yes: bool,
}

/// Outcomes of uncertain writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum UnclearWriteOutcome {
    /// They were carried out
    Done,
    /// They were not carried out and are discarded
    NotDone,
    /// They were not carried out and are tried again
    Retry,
}

impl UnclearWriteOutcome {
    /// The word of the API, and the words for people.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "as done"),
            Self::NotDone => ("not_done", "as not done, and discard them"),
            Self::Retry => ("retry", "as not done, and try them again"),
        }
    }
}

/// Filters of held writes.
#[derive(Debug, Clone, Args)]
pub(crate) struct HoldsFilterArgs {
    /// Only writes of this agent
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<AgentName>,
    /// Only writes of this service
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<ServiceName>,
    /// Only in these states, separated by commas
    #[arg(long, value_name = "STATES")]
    pub(super) state: Option<String>,
    /// Only writes of this session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<SessionId>,
}

#[derive(Debug, Args)]
struct HoldsIdArgs {
    /// Hold ID, or its first characters
    id: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HoldsIdListArgs {
    /// Hold IDs, or their first characters
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Print the API responses as JSON, one after the other
    #[arg(long)]
    json: bool,
}

impl HoldsFilterArgs {
    pub(crate) fn ask(self, path: &str) -> ApiRequest {
        ApiRequest::get(path)
            .with("agent", self.agent)
            .with("service", self.service)
            .with("state", self.state)
            .with("session_id", self.session)
    }
}

impl HoldsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("buffer_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            HoldsSubcommand::List { filter, listing } => {
                let ask = filter.ask("/v1/holds").via_stop_lane();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            HoldsSubcommand::Show { one } => {
                let hold = client.send(&ApiRequest::get(path(&client, &one.id, "")?).via_stop_lane())?;
                if one.json {
                    screen.json(&hold)?
                } else {
                    display::print_hold(&hold, screen)?
                }
                Ok(CommandExit::Ok)
            }
            HoldsSubcommand::Cancel { some } => {
                some.each(&client, screen, |id| Ok(ApiRequest::post(path(&client, id, "/cancel")?).via_stop_lane()))
            }
            HoldsSubcommand::Extend { one, by } => {
                let ask = ApiRequest::post(path(&client, &one.id, "/extend")?)
                    .body(json!({"seconds": by.as_secs()}))
                    .via_stop_lane();
                say(&client.send(&ask)?, one.json, screen)?;
                Ok(CommandExit::Ok)
            }
            HoldsSubcommand::SendNow { some } => {
                some.each(&client, screen, |id| Ok(ApiRequest::post(path(&client, id, "/send-now")?)))
            }
            HoldsSubcommand::Retry { some } => some.each(&client, screen, |id| settle(&client, id, "again", None)),
            HoldsSubcommand::Discard { some } => some.each(&client, screen, |id| settle(&client, id, "give_up", None)),
            HoldsSubcommand::Settle { id: Some(id), happened, json, .. } => {
                say(&client.send(&settle(&client, &id, "happened", happened)?)?, json, screen)?;
                Ok(CommandExit::Ok)
            }
            HoldsSubcommand::Settle { id: None, happened, many, json } => {
                many.settle(&client, (happened, json), screen)
            }
        }
    }
}

impl HoldsSettleManyArgs {
    /// Lists the writes, asks, and settles exactly the writes that were listed.
    fn settle(
        self,
        client: &GatewayClient,
        (evidence, json): (Option<String>, bool),
        screen: &CommandConsole,
    ) -> Result<CommandExit, CliError> {
        let (Some(service), Some(outcome)) = (self.service, self.outcome) else {
            return Err(CliError::new(CommandExit::Usage, "say which writes: give an id, or --service NAME --as HOW"));
        };
        let (word, shown_word) = outcome.words();
        let body = |more: Value| {
            let mut body = json!({"service": service, "agent": self.agent, "as": word, "evidence": evidence});
            if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            ApiRequest::post("/v1/holds/settle").body(body)
        };
        let list = client.send(&body(json!({"dry_run": true})))?;
        let count = entries(&list).len();
        if self.dry_run && json {
            screen.json(&list)?;
            return Ok(CommandExit::Ok);
        }
        if !json {
            unclear(&list, screen)?;
        }
        if self.dry_run || count == 0 {
            return Ok(CommandExit::Ok);
        }
        if !self.yes {
            screen.confirm(&format!("Settle these {count} writes of {service} {shown_word}?"), "--yes")?;
        }
        let seen = |hold: &Value| json!({"buffer_id": hold.get("buffer_id"), "version": hold.get("version")});
        let writes: Vec<Value> = entries(&list).iter().map(seen).collect();
        let settled = client.send(&body(json!({"writes": writes})))?;
        if json {
            screen.json(&settled)?;
        } else {
            screen.line(format_args!("{} settled {shown_word}", entries(&settled).len()))?;
        }
        let left = settled.get("left").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for one in left {
            screen.note(format_args!(
                "{} was not changed: {}",
                display_field(one, "buffer_id"),
                display_field(one, "code")
            ));
        }
        if list.get("has_more") == Some(&Value::Bool(true)) {
            screen.note("there are more: run the command again");
        }
        Ok(if left.is_empty() { CommandExit::Ok } else { CommandExit::Failed })
    }
}

/// Prints writes with an uncertain outcome.
fn unclear(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|hold| text_field(hold, "buffer_id").to_owned()).collect();
    let mut table =
        TextTable::new(&["hold", "state", "agent", "capability", "admitted", "attempts", "why", "last error"])
            .spare(&["attempts", "agent"]);
    for (hold, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(hold, name);
        let (state, agent, capability) = (cell("state"), cell("agent"), cell("capability"));
        let error = write_failure::describe_last_error(hold).unwrap_or_default();
        table.row(&[id, state, agent, capability, cell("admitted_at"), cell("attempts"), cell("code"), error]);
    }
    table.print(screen, "no writes with an uncertain outcome")
}

impl HoldsIdListArgs {
    fn each(
        &self,
        client: &GatewayClient,
        screen: &CommandConsole,
        ask: impl Fn(&str) -> Result<ApiRequest, CliError>,
    ) -> Result<CommandExit, CliError> {
        watch::each(screen, &self.ids, |id| say(&client.send(&ask(id)?)?, self.json, screen))
    }
}

fn path(client: &GatewayClient, typed: &str, verb: &str) -> Result<String, CliError> {
    Ok(format!("/v1/holds/{}{verb}", client.resolve_id(ListedIdKind::Holds, typed)?))
}

/// The request to settle a write, bound to the version that the person just saw.
fn settle(client: &GatewayClient, typed: &str, word: &str, evidence: Option<String>) -> Result<ApiRequest, CliError> {
    let path = path(client, typed, "")?;
    let version = client.send(&ApiRequest::get(path.as_str()))?.get("version").cloned();
    Ok(ApiRequest::post(format!("{path}/settle")).body(json!({"word": word, "evidence": evidence, "version": version})))
}

/// Prints the state of a write in one line.
fn say(hold: &Value, json: bool, screen: &CommandConsole) -> Result<(), CliError> {
    if json {
        return Ok(screen.json(hold)?);
    }
    let until = match text_field(hold, "cancel_deadline") {
        "" => String::new(),
        at => format!(" until {}", crate::escape::escape_line(at)),
    };
    let failing = write_failure::describe_retry_and_error(hold).map(|line| format!(": {line}")).unwrap_or_default();
    screen.line(format_args!(
        "{} is {}{until}{failing}",
        display_field(hold, "buffer_id"),
        display_field(hold, "state")
    ))?;
    Ok(())
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|hold| text_field(hold, "buffer_id").to_owned()).collect();
    let mut table =
        TextTable::new(&["hold", "state", "agent", "capability", "target", "tier", "since", "until", "last error"])
            .spare(&["tier", "agent", "since"]);
    for (hold, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(hold, name);
        let (state, agent, capability) = (cell("state"), cell("agent"), cell("capability"));
        let until = match hold.get("retry") {
            Some(retry) => display_field(retry, "next_at"),
            None => cell("cancel_deadline"),
        };
        let error = write_failure::describe_last_error(hold).unwrap_or_default();
        let target = first_target(hold);
        table.row(&[id, state, agent, capability, target, cell("tier"), cell("admitted_at"), until, error]);
    }
    table.print(screen, "no held writes")
}

/// The first target of a write, and how many more it has.
fn first_target(hold: &Value) -> String {
    match hold.get("targets").and_then(Value::as_array).map(Vec::as_slice) {
        None | Some([]) => "-".to_owned(),
        Some([only]) => display_field(only, "value"),
        Some([first, more @ ..]) => format!("{} +{}", display_field(first, "value"), more.len()),
    }
}
