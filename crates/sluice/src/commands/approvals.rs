//! `sluice approvals`: approvals that people decide.

mod decide;
pub(crate) mod display;
mod single_key;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::{AgentName, Clock as _, Millis};

use crate::client::{
    ApiRequest, EventStreamPoll, GatewayArgs, GatewayClient, ListedIdKind, display_field, entries, text_field,
};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, ignore_closed_output};
use crate::system::SystemClock;
use crate::table::{TextTable, short_ids};
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// How often an approval is read again while no event arrives.
const LOOK: Millis = Millis::from_secs(2);

/// List approvals and answer them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice approvals list\n  sluice approvals show appr_0193f2\n  sluice approvals approve appr_0193f2\n  sluice approvals approve appr_0193f2 --first 10\n  sluice approvals deny appr_0193f2 --note 'wrong recipient'"
)]
pub(crate) struct ApprovalsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: ApprovalsSubcommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsSubcommand {
    /// List approvals, the newest first; open ones unless --state says otherwise
    #[command(before_help = "Examples:\n  sluice approvals list --watch\n  sluice approvals list --state all")]
    List {
        /// Only approvals of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Only approvals in this state, or `all`
        #[arg(long, default_value = "pending")]
        state: String,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show an approval with everything it covers
    #[command(before_help = "Examples:\n  sluice approvals show appr_0193f2")]
    Show {
        /// Approval ID, or its first characters
        id: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve once
    Approve(decide::ApprovalsApproveArgs),
    /// Deny
    Deny(decide::ApprovalsDenyArgs),
    /// Approve, and also later calls of this kind for the rest of the session, within a bound that `show` lists
    #[command(
        before_help = "Examples:\n  sluice approvals session appr_0193f2\n  sluice approvals session appr_0193f2 --bound 2"
    )]
    Session(decide::ApprovalsStandingArgs),
    /// Approve, and also later calls of this kind from now on, within a bound that `show` lists
    #[command(
        before_help = "Examples:\n  sluice approvals always appr_0193f2\n  sluice approvals always appr_0193f2 --bound 2"
    )]
    Always(decide::ApprovalsStandingArgs),
    /// Approve once, with a note for the agent
    Note(decide::ApprovalsNoteArgs),
    /// Change it and approve the changed version: other arguments for a write, another text for a client's request
    Modify(decide::ApprovalsModifyArgs),
    /// Answer an approval that has options: by the letter of an option, or in your own words
    Choose(decide::ApprovalsChooseArgs),
    /// Show how people decided in the last week: how often they approved, and how fast
    #[command(before_help = "Examples:\n  sluice approvals stats")]
    Stats {
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Wait for the decision; exit code 6 if it is denied, 8 if there is none in time
    #[command(before_help = "Examples:\n  sluice approvals wait appr_0193f2 --timeout 10m")]
    Wait {
        /// Approval ID, or its first characters
        id: String,
        /// How long to wait; no limit if not given
        #[arg(long, value_parser = span)]
        timeout: Option<Millis>,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show each approval as it arrives; on a terminal, answer it with one key
    #[command(before_help = "Examples:\n  sluice approvals watch\n  sluice approvals watch --print")]
    Watch {
        /// Only print them, even on a terminal
        #[arg(long)]
        print: bool,
        /// Print the API responses as JSON, one after the other
        #[arg(long)]
        json: bool,
    },
}

impl ApprovalsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("approval_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            ApprovalsSubcommand::List { agent, state, listing } => {
                let state = Some(state).filter(|state| state != "all");
                let ask = ApiRequest::get("/v1/approvals").with("agent", agent).with("state", state).via_stop_lane();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            ApprovalsSubcommand::Show { id, json } => {
                let id = client.resolve_id(ListedIdKind::Approvals, &id)?;
                show(screen, &fetch(&client, &id)?, json)?;
                Ok(CommandExit::Ok)
            }
            ApprovalsSubcommand::Approve(approve) => approve.run(&client, screen),
            ApprovalsSubcommand::Deny(deny) => deny.run(&client, screen),
            ApprovalsSubcommand::Session(standing) => standing.run("session", &client, screen),
            ApprovalsSubcommand::Always(standing) => standing.run("always", &client, screen),
            ApprovalsSubcommand::Note(note) => note.run(&client, screen),
            ApprovalsSubcommand::Modify(modify) => modify.run(&client, screen),
            ApprovalsSubcommand::Choose(choose) => choose.run(&client, screen),
            ApprovalsSubcommand::Stats { json } => stats(&client, screen, json),
            ApprovalsSubcommand::Wait { id, timeout, json } => {
                let approval = wait(&client, &client.resolve_id(ListedIdKind::Approvals, &id)?, timeout)?;
                ignore_closed_output(if json {
                    screen.json(&approval).map_err(CliError::from)
                } else {
                    display::print_decision(&approval, screen)
                })?;
                Ok(outcome(text_field(&approval, "status")))
            }
            ApprovalsSubcommand::Watch { print, json } if print || json || !is_attended(screen) => {
                follow(&client, screen, json)
            }
            ApprovalsSubcommand::Watch { .. } => single_key::watch(&client, screen),
        }
    }
}

/// Whether a person uses both ends of the terminal.
fn is_attended(screen: &CommandConsole) -> bool {
    screen.is_terminal() && std::io::stdin().is_terminal()
}

/// An approval with every write it covers.
fn fetch(client: &GatewayClient, id: &str) -> Result<Value, CliError> {
    let ask = || ApiRequest::get(format!("/v1/approvals/{id}")).via_stop_lane();
    let mut whole = client.send(&ask())?;
    loop {
        let have = display::writes(&whole).len();
        let items = whole.get("items").and_then(Value::as_u64).unwrap_or(0);
        if have as u64 >= items {
            return Ok(whole);
        }
        let mut next = client.send(&ask().with("from", Some(have)))?;
        let more = next.get_mut("writes").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let all = whole.get_mut("writes").and_then(Value::as_array_mut);
        match all.filter(|_| !more.is_empty()) {
            Some(all) => all.extend(more),
            // Writes that are no longer there are counted on the card as not shown.
            None => return Ok(whole),
        }
    }
}

fn show(screen: &CommandConsole, approval: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return Ok(screen.json(approval)?);
    }
    display::print_approval(approval, screen)
}

/// The exit code of a command that waited for a decision.
fn outcome(status: &str) -> CommandExit {
    match status {
        "approved" | "consumed" => CommandExit::Ok,
        "denied" | "expired" => CommandExit::Denied,
        "pending" => CommandExit::Pending,
        "withdrawn" | "superseded" | "lapsed" | "revoked" => CommandExit::Conflict,
        _ => CommandExit::Failed,
    }
}

/// Waits for a decision, or this long.
fn wait(client: &GatewayClient, id: &str, timeout: Option<Millis>) -> Result<Value, CliError> {
    let start = SystemClock.since_boot();
    // The stream is opened before the approval is read, so that no decision is missed between the two.
    let mut stream = client.listen(Some("approval.*"), None).ok();
    loop {
        let approval = fetch(client, id)?;
        let spent = SystemClock.since_boot().as_millis().saturating_sub(start.as_millis());
        let left = timeout.map(|timeout| Millis::from_millis(timeout.as_millis().saturating_sub(spent)));
        if outcome(text_field(&approval, "status")) != CommandExit::Pending
            || left.is_some_and(|left| left == Millis::ZERO)
        {
            return Ok(approval);
        }
        let patience: Duration = left.unwrap_or(LOOK).min(LOOK).as_duration();
        match stream.as_mut().map(|stream| stream.next(Some(patience))) {
            Some(Ok(EventStreamPoll::Event(_) | EventStreamPoll::Nothing)) => {}
            Some(Ok(EventStreamPoll::End) | Err(_)) => stream = None,
            None => client.pause(patience),
        }
    }
}

/// Prints each approval once, as it arrives.
fn follow(client: &GatewayClient, screen: &CommandConsole, json: bool) -> Result<CommandExit, CliError> {
    let mut stream = client.listen(Some("approval.*,hold.*"), None).ok();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let ask = ApiRequest::get("/v1/approvals").with("state", Some("pending")).via_stop_lane();
    loop {
        let list = client.list(&ask, 500)?;
        // The oldest first: it has waited longest.
        for entry in entries(&list).iter().rev() {
            if seen.insert(text_field(entry, "approval_id").to_owned()) {
                show(screen, &fetch(client, text_field(entry, "approval_id"))?, json)?;
                if !json {
                    screen.line("")?;
                }
            }
        }
        match stream.as_mut().map(|stream| stream.next(Some(LOOK.as_duration()))) {
            Some(Ok(EventStreamPoll::Event(_) | EventStreamPoll::Nothing)) => {}
            Some(Ok(EventStreamPoll::End) | Err(_)) => stream = None,
            None => client.pause(LOOK.as_duration()),
        }
    }
}

/// Prints statistics about the decisions of people.
fn stats(client: &GatewayClient, screen: &CommandConsole, json: bool) -> Result<CommandExit, CliError> {
    let stats = client.send(&ApiRequest::get("/v1/approvals/stats"))?;
    if json {
        screen.json(&stats)?;
        return Ok(CommandExit::Ok);
    }
    screen.line(format_args!("{} open; decisions of the last 7 days:", display_field(&stats, "open")))?;
    let mut table = TextTable::new(&["who", "approved", "denied", "rate", "median", "note"]);
    for person in stats.get("people").and_then(Value::as_array).into_iter().flatten() {
        let rate = person.get("approval_rate").and_then(Value::as_f64).unwrap_or_default();
        let median = Millis::from_millis(person.get("median_ms").and_then(Value::as_u64).unwrap_or_default());
        let hasty = person.get("hasty").and_then(Value::as_bool) == Some(true);
        let note = if hasty { "faster than anybody can read" } else { "" };
        let cell = |name| display_field(person, name);
        let rate = format!("{:.0} %", rate * 100.0);
        table.row(&[cell("by"), cell("approved"), cell("denied"), rate, median.to_string(), note.into()]);
    }
    table.print(screen, "no decisions")?;
    Ok(CommandExit::Ok)
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|entry| text_field(entry, "approval_id").to_owned()).collect();
    let mut table = TextTable::new(&["approval", "status", "agent", "asks for", "asked", "until"])
        .spare(&["asked", "agent", "until"]);
    for (entry, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(entry, name);
        let about = if entry.get("summary").is_some() { cell("summary") } else { cell("service") };
        table.row(&[id, cell("status"), cell("agent"), about, cell("asked_at"), cell("expires_at")]);
    }
    table.print(screen, "no approvals")
}
