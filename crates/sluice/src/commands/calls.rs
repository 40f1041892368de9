//! `sluice calls`: calls of agents and their state.

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::{Clock as _, Millis};

use super::holds::HoldsFilterArgs;
use super::policy::counted;
use crate::client::{ApiRequest, GatewayArgs, GatewayClient, ListedIdKind, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit, ignore_closed_output};
use crate::system::SystemClock;
use crate::table::{TextTable, short_ids};
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// Longest wait of one request.
const LONGEST: Millis = Millis::from_secs(55);

/// List calls, show one, wait for one.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice calls list --agent bookkeeper\n  sluice calls show call_0193f2\n  sluice calls wait call_0193f2 --timeout 10m"
)]
pub(crate) struct CallsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: CallsSubcommand,
}

#[derive(Debug, Subcommand)]
enum CallsSubcommand {
    /// List calls that became held writes or were refused, the newest first
    #[command(
        before_help = "Examples:\n  sluice calls list --agent bookkeeper --watch\n  sluice calls list --state blocked"
    )]
    List {
        #[command(flatten)]
        filter: HoldsFilterArgs,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show the state of a call
    #[command(before_help = "Examples:\n  sluice calls show call_0193f2 --json | jq .result")]
    Show {
        /// Call ID, or its first characters
        id: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Wait until a call is finished; exit code 8 if it is not finished in time
    #[command(before_help = "Examples:\n  sluice calls wait call_0193f2 --timeout 10m")]
    Wait {
        /// Call ID, or its first characters
        id: String,
        /// How long to wait; no limit if not given
        #[arg(long, value_parser = span)]
        timeout: Option<Millis>,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

impl CallsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("call_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            CallsSubcommand::List { filter, listing } => {
                let (held, refused) = build_list_requests(filter);
                let fetch = || fetch_merged(&client, (held.as_ref(), refused.as_ref()), listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            CallsSubcommand::Show { id, json } => {
                let call = client.send(
                    &ApiRequest::get(format!("/v1/calls/{}", client.resolve_id(ListedIdKind::Calls, &id)?))
                        .via_stop_lane(),
                )?;
                show(&call, json, screen)?;
                Ok(CommandExit::Ok)
            }
            CallsSubcommand::Wait { id, timeout, json } => {
                let id = client.resolve_id(ListedIdKind::Calls, &id)?;
                let call = wait(&client, &id, timeout)?;
                ignore_closed_output(show(&call, json, screen))?;
                Ok(outcome(text_field(&call, "status")))
            }
        }
    }
}

/// States of a call that ended at once, as `--state` names them.
const ENDED: [&str; 2] = ["blocked", "refused"];

/// The requests for held writes and for refused calls, as far as the filter includes them.
fn build_list_requests(mut filter: HoldsFilterArgs) -> (Option<ApiRequest>, Option<(ApiRequest, Vec<String>)>) {
    let states: Vec<String> = filter.state.iter().flat_map(|states| states.split(',')).map(str::to_owned).collect();
    let (ended, held): (Vec<String>, Vec<String>) =
        states.into_iter().filter(|state| !state.is_empty()).partition(|state| ENDED.contains(&state.as_str()));
    let any = ended.is_empty() && held.is_empty();
    let refused = ApiRequest::get("/v1/refusals")
        .with("agent", filter.agent.as_ref())
        .with("service", filter.service.as_ref())
        .with("session_id", filter.session);
    let ended = if any { ENDED.map(str::to_owned).to_vec() } else { ended };
    let refused = (!ended.is_empty()).then_some((refused, ended));
    filter.state = (!held.is_empty()).then(|| held.join(","));
    let held = (any || !held.is_empty()).then(|| filter.ask("/v1/calls").via_stop_lane());
    (held, refused)
}

/// Both kinds of calls as one list, the newest first.
fn fetch_merged(
    client: &GatewayClient,
    (held, refused): (Option<&ApiRequest>, Option<&(ApiRequest, Vec<String>)>),
    limit: usize,
) -> Result<Value, CliError> {
    let mut calls = Vec::new();
    if let Some(held) = held {
        calls.extend_from_slice(entries(&client.list(held, limit)?));
    }
    if let Some((refused, states)) = refused {
        let found = client.list(refused, limit)?;
        calls.extend(
            entries(&found)
                .iter()
                .filter(|call| states.iter().any(|state| state == text_field(call, "status")))
                .cloned(),
        );
    }
    // Ids begin with their time.
    calls.sort_by(|one, other| text_field(other, "call_id").cmp(text_field(one, "call_id")));
    let has_more = calls.len() > limit;
    calls.truncate(limit);
    Ok(serde_json::json!({"data": calls, "has_more": has_more}))
}

/// Waits until a call is finished, or this long.
pub(super) fn wait(client: &GatewayClient, id: &str, timeout: Option<Millis>) -> Result<Value, CliError> {
    let start = SystemClock.since_boot();
    loop {
        let spent = Millis::from_millis(SystemClock.since_boot().as_millis().saturating_sub(start.as_millis()));
        let left = timeout.map(|timeout| Millis::from_millis(timeout.as_millis().saturating_sub(spent.as_millis())));
        let wait = left.unwrap_or(LONGEST).min(LONGEST);
        let ask = ApiRequest::get(format!("/v1/calls/{id}")).with("wait_ms", Some(wait.as_millis())).with_wait(wait);
        let call = client.send(&ask)?;
        if outcome(text_field(&call, "status")) != CommandExit::Pending || left.is_some_and(|left| left == Millis::ZERO)
        {
            return Ok(call);
        }
    }
}

/// The exit code of a command that waited for a call.
pub(super) fn outcome(status: &str) -> CommandExit {
    match status {
        "done" | "allowed" => CommandExit::Ok,
        "blocked" => CommandExit::Forbidden,
        "denied" | "expired" => CommandExit::Denied,
        "held" | "awaiting_approval" | "ready" | "executing" | "retrying" | "preparing" | "armed" => {
            CommandExit::Pending
        }
        _ => CommandExit::Failed,
    }
}

/// Prints a call for people, or as JSON.
pub(super) fn show(call: &Value, json: bool, screen: &CommandConsole) -> Result<(), CliError> {
    if json {
        return Ok(screen.json(call)?);
    }
    let fields = [
        ("call", "call_id"),
        ("capability", "capability"),
        ("status", "status"),
        ("hold", "buffer_id"),
        ("until", "cancel_deadline"),
        ("approval", "approval_id"),
        ("expires", "expires_at"),
        ("code", "code"),
        ("why", "reason"),
        ("rule", "rule"),
        ("hint", "hint"),
    ];
    for (name, field) in fields {
        if let Some(value) = call.get(field) {
            screen.line(format_args!("{name:<11} {}", escape::value(value)))?;
        }
    }
    if let Some(read) = call.get("read") {
        screen.line(format_args!("{:<11} {}", "read", read_words(read)))?;
        let hashes = [("query hash", "query_hash"), ("answer hash", "result_hash")];
        for (name, field) in hashes {
            if let Some(value) = read.get(field) {
                screen.line(format_args!("{name:<11} {}", escape::value(value)))?;
            }
        }
    }
    if let Some(retry) = call.get("retry") {
        let [attempt, of, at] = ["attempt", "of", "next_at"].map(|name| display_field(retry, name));
        screen.line(format_args!("{:<11} {attempt} of {of}, next at {at}", "retry"))?;
    }
    if let Some(error) = crate::write_failure::describe_last_error(call) {
        screen.line(format_args!("{:<11} {error}", "last error"))?;
    }
    if let Some(result) = call.get("result") {
        screen.line("result")?;
        let text = serde_json::to_string_pretty(result).unwrap_or_default();
        for line in escape::lines(&text) {
            screen.line(format_args!("  {line}"))?;
        }
    }
    Ok(())
}

/// The result of a read in one line: how many objects, which, and how old the replica was.
pub(super) fn read_words(read: &Value) -> String {
    let number = |name: &str| read.get(name).and_then(Value::as_u64);
    let ids: Vec<String> = read.get("ids").and_then(Value::as_array).into_iter().flatten().map(escape::value).collect();
    let mut words = counted(usize::try_from(number("count").unwrap_or(0)).unwrap_or(usize::MAX), "object");
    if !ids.is_empty() {
        words.push_str(&format!(": {}", ids.join(", ")));
    }
    if let Some(more) = number("more").filter(|more| *more > 0) {
        words.push_str(&format!(" and {more} more"));
    }
    if let Some(age) = number("age_s") {
        words.push_str(&format!(" (replica {age} s old)"));
    }
    words
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|call| text_field(call, "call_id").to_owned()).collect();
    let mut table =
        TextTable::new(&["call", "status", "agent", "capability", "since", "approval or reason"]).spare(&["agent"]);
    for (call, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(call, name);
        let (status, agent, capability) = (cell("status"), cell("agent"), cell("capability"));
        let first = |names: [&'static str; 2]| names.into_iter().find(|name| call.get(*name).is_some());
        let since = first(["admitted_at", "at"]).map_or_else(|| "-".into(), cell);
        let why = first(["approval_id", "code"]).map_or_else(|| "-".into(), cell);
        table.row(&[id, status, agent, capability, since, why]);
    }
    table.print(screen, "no calls were held or refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_can_tell_the_ends_of_a_call_apart() {
        for (status, exit) in [
            ("done", CommandExit::Ok),
            ("blocked", CommandExit::Forbidden),
            ("denied", CommandExit::Denied),
            ("expired", CommandExit::Denied),
            ("held", CommandExit::Pending),
            ("executing", CommandExit::Pending),
            ("retrying", CommandExit::Pending),
            ("cancelled", CommandExit::Failed),
            ("in_doubt", CommandExit::Failed),
            ("something new", CommandExit::Failed),
        ] {
            assert_eq!(outcome(status), exit, "{status}");
        }
    }
}
