//! `sluice approvals`: questions put to people, and their answers.

pub(crate) mod card;
mod decide;
mod single_key;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::{AgentName, Clock as _, Span};

use crate::client::{Ask, Client, Heard, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure, heard_or_not};
use crate::screen::Screen;
use crate::span::span;
use crate::system::SystemClock;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// How often a question is looked at while nothing is heard.
const LOOK: Span = Span::from_secs(2);

/// See questions and answer them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice approvals list\n  sluice approvals show appr_0193f2\n  sluice approvals approve appr_0193f2\n  sluice approvals approve appr_0193f2 --first 10\n  sluice approvals deny appr_0193f2 --note 'wrong recipient'"
)]
pub(crate) struct Approvals {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List questions, the newest first; open ones unless --state says otherwise
    #[command(before_help = "Examples:\n  sluice approvals list --watch\n  sluice approvals list --state all")]
    List {
        /// Only of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// In this state, or `all`
        #[arg(long, default_value = "pending")]
        state: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a question with exactly what it is about
    #[command(before_help = "Examples:\n  sluice approvals show appr_0193f2")]
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Say yes, once
    Approve(decide::Approve),
    /// Say no
    Deny(decide::Deny),
    /// Say yes, and to the like for the rest of the session, within a bound that `show` lists
    #[command(
        before_help = "Examples:\n  sluice approvals session appr_0193f2\n  sluice approvals session appr_0193f2 --bound 2"
    )]
    Session(decide::Standing),
    /// Say yes, and to the like from now on, within a bound that `show` lists
    #[command(
        before_help = "Examples:\n  sluice approvals always appr_0193f2\n  sluice approvals always appr_0193f2 --bound 2"
    )]
    Always(decide::Standing),
    /// Say yes, with a note for the agent
    Note(decide::Note),
    /// Change it, then say yes: other arguments for a write, another text for a client's request
    Modify(decide::Modify),
    /// Answer a question with options by its letter, or in your own words
    Choose(decide::Choose),
    /// Show how people have decided in the last week: how often yes, and how fast
    #[command(before_help = "Examples:\n  sluice approvals stats")]
    Stats {
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Wait for the answer; ends with 6 for a no, with 8 if there is none in time
    #[command(before_help = "Examples:\n  sluice approvals wait appr_0193f2 --timeout 10m")]
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
    /// Show each question as it comes; on a terminal, answer it with one key
    #[command(before_help = "Examples:\n  sluice approvals watch\n  sluice approvals watch --print")]
    Watch {
        /// Only print them, also on a terminal
        #[arg(long)]
        print: bool,
        /// For machines: the answers of the API, one after the other
        #[arg(long)]
        json: bool,
    },
}

impl Approvals {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("approval_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { agent, state, listing } => {
                let state = Some(state).filter(|state| state != "all");
                let ask = Ask::get("/v1/approvals").with("agent", agent).with("state", state).stops();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { id, json } => {
                let id = client.id(Kind::Approvals, &id)?;
                show(screen, &fetch(&client, &id)?, json)?;
                Ok(Exit::Ok)
            }
            Verb::Approve(approve) => approve.run(&client, screen),
            Verb::Deny(deny) => deny.run(&client, screen),
            Verb::Session(standing) => standing.run("session", &client, screen),
            Verb::Always(standing) => standing.run("always", &client, screen),
            Verb::Note(note) => note.run(&client, screen),
            Verb::Modify(modify) => modify.run(&client, screen),
            Verb::Choose(choose) => choose.run(&client, screen),
            Verb::Stats { json } => stats(&client, screen, json),
            Verb::Wait { id, timeout, json } => {
                let approval = wait(&client, &client.id(Kind::Approvals, &id)?, timeout)?;
                heard_or_not(if json {
                    screen.json(&approval).map_err(Failure::from)
                } else {
                    card::answer(&approval, screen)
                })?;
                Ok(outcome(text(&approval, "status")))
            }
            Verb::Watch { print, json } if print || json || !is_attended(screen) => follow(&client, screen, json),
            Verb::Watch { .. } => single_key::watch(&client, screen),
        }
    }
}

/// Whether a person sits at both ends of the terminal.
fn is_attended(screen: &Screen) -> bool {
    screen.is_terminal() && std::io::stdin().is_terminal()
}

/// A question with every write it covers.
fn fetch(client: &Client, id: &str) -> Result<Value, Failure> {
    let ask = || Ask::get(format!("/v1/approvals/{id}")).stops();
    let mut whole = client.ask(&ask())?;
    loop {
        let have = card::writes(&whole).len();
        let items = whole.get("items").and_then(Value::as_u64).unwrap_or(0);
        if have as u64 >= items {
            return Ok(whole);
        }
        let mut next = client.ask(&ask().with("from", Some(have)))?;
        let more = next.get_mut("writes").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let all = whole.get_mut("writes").and_then(Value::as_array_mut);
        match all.filter(|_| !more.is_empty()) {
            Some(all) => all.extend(more),
            // What is not there any more is counted on the card as not shown.
            None => return Ok(whole),
        }
    }
}

fn show(screen: &Screen, approval: &Value, json: bool) -> Result<(), Failure> {
    if json {
        return Ok(screen.json(approval)?);
    }
    card::question(approval, screen)
}

/// How a command ends that waited for an answer.
fn outcome(status: &str) -> Exit {
    match status {
        "approved" | "consumed" => Exit::Ok,
        "denied" | "expired" => Exit::Denied,
        "pending" => Exit::Pending,
        "withdrawn" | "superseded" | "lapsed" | "revoked" => Exit::Conflict,
        _ => Exit::Failed,
    }
}

/// Waits for an answer, or this long.
fn wait(client: &Client, id: &str, timeout: Option<Span>) -> Result<Value, Failure> {
    let start = SystemClock.since_boot();
    // Listening comes before looking, so that no answer falls between the two.
    let mut stream = client.listen(Some("approval.*"), None).ok();
    loop {
        let approval = fetch(client, id)?;
        let spent = SystemClock.since_boot().as_millis().saturating_sub(start.as_millis());
        let left = timeout.map(|timeout| Span::from_millis(timeout.as_millis().saturating_sub(spent)));
        if outcome(text(&approval, "status")) != Exit::Pending || left.is_some_and(|left| left == Span::ZERO) {
            return Ok(approval);
        }
        let patience: Duration = left.unwrap_or(LOOK).min(LOOK).as_duration();
        match stream.as_mut().map(|stream| stream.next(Some(patience))) {
            Some(Ok(Heard::Event(_) | Heard::Nothing)) => {}
            Some(Ok(Heard::End) | Err(_)) => stream = None,
            None => client.pause(patience),
        }
    }
}

/// Prints each question once, as it comes.
fn follow(client: &Client, screen: &Screen, json: bool) -> Result<Exit, Failure> {
    let mut stream = client.listen(Some("approval.*,hold.*"), None).ok();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let ask = Ask::get("/v1/approvals").with("state", Some("pending")).stops();
    loop {
        let list = client.list(&ask, 500)?;
        // The oldest first: it has waited longest.
        for entry in entries(&list).iter().rev() {
            if seen.insert(text(entry, "approval_id").to_owned()) {
                show(screen, &fetch(client, text(entry, "approval_id"))?, json)?;
                if !json {
                    screen.line("")?;
                }
            }
        }
        match stream.as_mut().map(|stream| stream.next(Some(LOOK.as_duration()))) {
            Some(Ok(Heard::Event(_) | Heard::Nothing)) => {}
            Some(Ok(Heard::End) | Err(_)) => stream = None,
            None => client.pause(LOOK.as_duration()),
        }
    }
}

/// How people decide.
fn stats(client: &Client, screen: &Screen, json: bool) -> Result<Exit, Failure> {
    let stats = client.ask(&Ask::get("/v1/approvals/stats"))?;
    if json {
        screen.json(&stats)?;
        return Ok(Exit::Ok);
    }
    screen.line(format_args!("{} open; decisions of the last 7 days:", shown(&stats, "open")))?;
    let mut table = Table::new(&["who", "approved", "denied", "rate", "median", "note"]);
    for person in stats.get("people").and_then(Value::as_array).into_iter().flatten() {
        let rate = person.get("approval_rate").and_then(Value::as_f64).unwrap_or_default();
        let median = Span::from_millis(person.get("median_ms").and_then(Value::as_u64).unwrap_or_default());
        let hasty = person.get("hasty").and_then(Value::as_bool) == Some(true);
        let note = if hasty { "faster than one can read" } else { "" };
        let cell = |name| shown(person, name);
        let rate = format!("{:.0} %", rate * 100.0);
        table.row(&[cell("by"), cell("approved"), cell("denied"), rate, median.to_string(), note.into()]);
    }
    table.print(screen, "nobody has decided anything")?;
    Ok(Exit::Ok)
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|entry| text(entry, "approval_id").to_owned()).collect();
    let mut table = Table::new(&["approval", "status", "agent", "service", "writes", "asked", "until"]);
    for (entry, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(entry, name);
        let (status, agent, service) = (cell("status"), cell("agent"), cell("service"));
        table.row(&[id, status, agent, service, cell("items"), cell("asked_at"), cell("expires_at")]);
    }
    table.print(screen, "nobody is asked anything")
}
