//! `sluice calls`: what agents asked for, and how it stands.

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::{Clock as _, Span};

use super::holds::Filter;
use super::policy::counted;
use crate::client::{Ask, Client, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure, heard_or_not};
use crate::screen::Screen;
use crate::span::span;
use crate::system::SystemClock;
use crate::table::{Table, short_ids};
use crate::visible;
use crate::watch::{self, Listing};

/// The longest the gateway waits in one request.
const LONGEST: Span = Span::from_secs(55);

/// List calls, show one, wait for one.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice calls list --agent bookkeeper\n  sluice calls show call_0193f2\n  sluice calls wait call_0193f2 --timeout 10m"
)]
pub(crate) struct Calls {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List calls that became held writes or were refused, the newest first
    #[command(
        before_help = "Examples:\n  sluice calls list --agent bookkeeper --watch\n  sluice calls list --state blocked"
    )]
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show how a call stands
    #[command(before_help = "Examples:\n  sluice calls show call_0193f2 --json | jq .result")]
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Wait until a call is over; ends with 8 if it is not in time
    #[command(before_help = "Examples:\n  sluice calls wait call_0193f2 --timeout 10m")]
    Wait {
        /// Its id, or the beginning of it
        id: String,
        /// How long; for ever if not given
        #[arg(long, value_parser = span)]
        timeout: Option<Span>,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

impl Calls {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("call_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { filter, listing } => {
                let (held, refused) = asks(filter);
                let fetch = || both(&client, (held.as_ref(), refused.as_ref()), listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { id, json } => {
                let call = client.ask(&Ask::get(format!("/v1/calls/{}", client.id(Kind::Calls, &id)?)).stops())?;
                show(&call, json, screen)?;
                Ok(Exit::Ok)
            }
            Verb::Wait { id, timeout, json } => {
                let id = client.id(Kind::Calls, &id)?;
                let call = wait(&client, &id, timeout)?;
                heard_or_not(show(&call, json, screen))?;
                Ok(outcome(text(&call, "status")))
            }
        }
    }
}

/// How a call can have ended at once, as `--state` names it.
const ENDED: [&str; 2] = ["blocked", "refused"];

/// What asks for held writes and what for refused calls, as far as the filter wants them.
fn asks(mut filter: Filter) -> (Option<Ask>, Option<(Ask, Vec<String>)>) {
    let states: Vec<String> = filter.state.iter().flat_map(|states| states.split(',')).map(str::to_owned).collect();
    let (ended, held): (Vec<String>, Vec<String>) =
        states.into_iter().filter(|state| !state.is_empty()).partition(|state| ENDED.contains(&state.as_str()));
    let any = ended.is_empty() && held.is_empty();
    let refused = Ask::get("/v1/refusals")
        .with("agent", filter.agent.as_ref())
        .with("service", filter.service.as_ref())
        .with("session_id", filter.session);
    let ended = if any { ENDED.map(str::to_owned).to_vec() } else { ended };
    let refused = (!ended.is_empty()).then_some((refused, ended));
    filter.state = (!held.is_empty()).then(|| held.join(","));
    let held = (any || !held.is_empty()).then(|| filter.ask("/v1/calls").stops());
    (held, refused)
}

/// Both kinds of calls as one list, the newest first.
fn both(
    client: &Client,
    (held, refused): (Option<&Ask>, Option<&(Ask, Vec<String>)>),
    limit: usize,
) -> Result<Value, Failure> {
    let mut calls = Vec::new();
    if let Some(held) = held {
        calls.extend_from_slice(entries(&client.list(held, limit)?));
    }
    if let Some((refused, states)) = refused {
        let found = client.list(refused, limit)?;
        calls.extend(
            entries(&found).iter().filter(|call| states.iter().any(|state| state == text(call, "status"))).cloned(),
        );
    }
    // Ids begin with their time.
    calls.sort_by(|one, other| text(other, "call_id").cmp(text(one, "call_id")));
    let has_more = calls.len() > limit;
    calls.truncate(limit);
    Ok(serde_json::json!({"data": calls, "has_more": has_more}))
}

/// Waits until a call is over, or this long.
pub(super) fn wait(client: &Client, id: &str, timeout: Option<Span>) -> Result<Value, Failure> {
    let start = SystemClock.since_boot();
    loop {
        let spent = Span::from_millis(SystemClock.since_boot().as_millis().saturating_sub(start.as_millis()));
        let left = timeout.map(|timeout| Span::from_millis(timeout.as_millis().saturating_sub(spent.as_millis())));
        let wait = left.unwrap_or(LONGEST).min(LONGEST);
        let ask = Ask::get(format!("/v1/calls/{id}")).with("wait_ms", Some(wait.as_millis())).waits(wait);
        let call = client.ask(&ask)?;
        if outcome(text(&call, "status")) != Exit::Pending || left.is_some_and(|left| left == Span::ZERO) {
            return Ok(call);
        }
    }
}

/// How a command ends that waited for a call.
pub(super) fn outcome(status: &str) -> Exit {
    match status {
        "done" | "allowed" => Exit::Ok,
        "blocked" => Exit::Forbidden,
        "denied" | "expired" => Exit::Denied,
        "held" | "awaiting_approval" | "ready" | "executing" | "retrying" | "preparing" | "armed" => Exit::Pending,
        _ => Exit::Failed,
    }
}

/// A call for people, or as it is.
pub(super) fn show(call: &Value, json: bool, screen: &Screen) -> Result<(), Failure> {
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
            screen.line(format_args!("{name:<11} {}", visible::value(value)))?;
        }
    }
    if let Some(read) = call.get("read") {
        screen.line(format_args!("{:<11} {}", "read", read_words(read)))?;
        let hashes = [("query hash", "query_hash"), ("answer hash", "result_hash")];
        for (name, field) in hashes {
            if let Some(value) = read.get(field) {
                screen.line(format_args!("{name:<11} {}", visible::value(value)))?;
            }
        }
    }
    if let Some(retry) = call.get("retry") {
        let [attempt, of, at] = ["attempt", "of", "next_at"].map(|name| shown(retry, name));
        screen.line(format_args!("{:<11} {attempt} of {of}, next at {at}", "retry"))?;
    }
    if let Some(error) = crate::failing::error(call) {
        screen.line(format_args!("{:<11} {error}", "last error"))?;
    }
    if let Some(result) = call.get("result") {
        screen.line("result")?;
        let text = serde_json::to_string_pretty(result).unwrap_or_default();
        for line in visible::lines(&text) {
            screen.line(format_args!("  {line}"))?;
        }
    }
    Ok(())
}

/// What a read gave, on one line: how many objects, which, and how old the copy was.
pub(super) fn read_words(read: &Value) -> String {
    let number = |name: &str| read.get(name).and_then(Value::as_u64);
    let ids: Vec<String> =
        read.get("ids").and_then(Value::as_array).into_iter().flatten().map(visible::value).collect();
    let mut words = counted(usize::try_from(number("count").unwrap_or(0)).unwrap_or(usize::MAX), "object");
    if !ids.is_empty() {
        words.push_str(&format!(": {}", ids.join(", ")));
    }
    if let Some(more) = number("more").filter(|more| *more > 0) {
        words.push_str(&format!(" and {more} more"));
    }
    if let Some(age) = number("age_s") {
        words.push_str(&format!(" (copy {age} s old)"));
    }
    words
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|call| text(call, "call_id").to_owned()).collect();
    let mut table = Table::new(&["call", "status", "agent", "capability", "since", "approval or reason"]);
    for (call, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(call, name);
        let (status, agent, capability) = (cell("status"), cell("agent"), cell("capability"));
        let first = |names: [&'static str; 2]| names.into_iter().find(|name| call.get(*name).is_some());
        let since = first(["admitted_at", "at"]).map_or_else(|| "-".into(), cell);
        let why = first(["approval_id", "code"]).map_or_else(|| "-".into(), cell);
        table.row(&[id, status, agent, capability, since, why]);
    }
    table.print(screen, "there are no calls that were held or refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_can_tell_the_ends_of_a_call_apart() {
        for (status, exit) in [
            ("done", Exit::Ok),
            ("blocked", Exit::Forbidden),
            ("denied", Exit::Denied),
            ("expired", Exit::Denied),
            ("held", Exit::Pending),
            ("executing", Exit::Pending),
            ("retrying", Exit::Pending),
            ("cancelled", Exit::Failed),
            ("in_doubt", Exit::Failed),
            ("something new", Exit::Failed),
        ] {
            assert_eq!(outcome(status), exit, "{status}");
        }
    }
}
