//! `sluice holds`: writes that wait before they leave.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, ServiceName, Span};

use crate::client::{Ask, Client, Kind, Reach, entries, shown, text};
use crate::commands::approvals::card;
use crate::failing;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List, stop, extend, send and settle held writes.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice holds list --state held,awaiting_approval --watch\n  sluice holds cancel buf_0193f2\n  sluice holds extend buf_0193f2 +10m\n  sluice holds settle buf_0193f2 --happened 'seen in the sent folder'"
)]
pub(crate) struct Holds {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List held writes, the newest first
    #[command(
        before_help = "Examples:\n  sluice holds list --state held --watch\n  sluice holds list --json | jq -r '.data[].buffer_id'"
    )]
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one with exactly what it does
    #[command(before_help = "Examples:\n  sluice holds show buf_0193f2")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Stop writes before anything leaves
    #[command(before_help = "Examples:\n  sluice holds cancel buf_0193f2 buf_0193f3")]
    Cancel {
        #[command(flatten)]
        some: Some_,
    },
    /// Hold a write longer
    #[command(before_help = "Examples:\n  sluice holds extend buf_0193f2 +10m")]
    Extend {
        #[command(flatten)]
        one: One,
        /// How much longer
        #[arg(value_parser = span, allow_hyphen_values = true)]
        by: Span,
    },
    /// Close the undo window of writes now
    #[command(before_help = "Examples:\n  sluice holds send-now buf_0193f2")]
    SendNow {
        #[command(flatten)]
        some: Some_,
    },
    /// Try writes again that could not go on, or whose next attempt is still to come
    #[command(before_help = "Examples:\n  sluice holds retry buf_0193f2")]
    Retry {
        #[command(flatten)]
        some: Some_,
    },
    /// Give writes up that could not go on or are tried again and again
    #[command(before_help = "Examples:\n  sluice holds discard buf_0193f2")]
    Discard {
        #[command(flatten)]
        some: Some_,
    },
    /// Say how unclear writes ended: one that happened, or all of a service
    #[command(
        before_help = "Examples:\n  sluice holds settle buf_0193f2 --happened 'seen in the sent folder'\n  sluice holds settle --service gmail --as done --dry-run\n  sluice holds settle --service gmail --agent clerk --as retry --yes"
    )]
    Settle {
        /// Its id, or the beginning of it
        #[arg(required_unless_present = "service", conflicts_with = "service")]
        id: Option<String>,
        /// It happened, and how you know
        #[arg(long, value_name = "EVIDENCE", required_unless_present = "service")]
        happened: Option<String>,
        #[command(flatten)]
        many: Many,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

/// All unclear writes of a service.
#[derive(Debug, Args)]
struct Many {
    /// All unclear writes of this service
    #[arg(long, value_name = "NAME", requires = "outcome")]
    service: Option<ServiceName>,
    /// How they ended: they happened; they did not and are given up; they did not and are tried again
    #[arg(long = "as", id = "outcome", value_name = "HOW", requires = "service")]
    outcome: Option<Outcome>,
    /// Only those of this agent
    #[arg(long, value_name = "NAME", requires = "service")]
    agent: Option<AgentName>,
    /// Only list them, with what is known of each
    #[arg(long, requires = "service")]
    dry_run: bool,
    /// Do not ask
    #[arg(long, requires = "service")]
    yes: bool,
}

/// How unclear writes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Outcome {
    /// They happened
    Done,
    /// They did not happen and are given up
    NotDone,
    /// They did not happen and are tried again
    Retry,
}

impl Outcome {
    /// The word of the API, and the one for people.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "as done"),
            Self::NotDone => ("not_done", "as not done, and give them up"),
            Self::Retry => ("retry", "as not done, and try them again"),
        }
    }
}

/// Which held writes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Filter {
    /// Only of this agent
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<AgentName>,
    /// Only of this service
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<ServiceName>,
    /// Only in these states, separated by commas
    #[arg(long, value_name = "STATES")]
    pub(super) state: Option<String>,
    /// Only of this session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<SessionId>,
}

#[derive(Debug, Args)]
struct One {
    /// Its id, or the beginning of it
    id: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Some_ {
    /// Their ids, or the beginnings of them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// For machines: the answers of the API, one after the other
    #[arg(long)]
    json: bool,
}

impl Filter {
    pub(crate) fn ask(self, path: &str) -> Ask {
        Ask::get(path)
            .with("agent", self.agent)
            .with("service", self.service)
            .with("state", self.state)
            .with("session_id", self.session)
    }
}

impl Holds {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("buffer_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { filter, listing } => {
                let ask = filter.ask("/v1/holds").stops();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { one } => {
                let hold = client.ask(&Ask::get(path(&client, &one.id, "")?).stops())?;
                if one.json {
                    screen.json(&hold)?
                } else {
                    card::write(&hold, screen)?
                }
                Ok(Exit::Ok)
            }
            Verb::Cancel { some } => {
                some.each(&client, screen, |id| Ok(Ask::post(path(&client, id, "/cancel")?).stops()))
            }
            Verb::Extend { one, by } => {
                let ask = Ask::post(path(&client, &one.id, "/extend")?).body(json!({"seconds": by.as_secs()})).stops();
                say(&client.ask(&ask)?, one.json, screen)?;
                Ok(Exit::Ok)
            }
            Verb::SendNow { some } => some.each(&client, screen, |id| Ok(Ask::post(path(&client, id, "/send-now")?))),
            Verb::Retry { some } => some.each(&client, screen, |id| settle(&client, id, "again", None)),
            Verb::Discard { some } => some.each(&client, screen, |id| settle(&client, id, "give_up", None)),
            Verb::Settle { id: Some(id), happened, json, .. } => {
                say(&client.ask(&settle(&client, &id, "happened", happened)?)?, json, screen)?;
                Ok(Exit::Ok)
            }
            Verb::Settle { id: None, happened, many, json } => many.settle(&client, (happened, json), screen),
        }
    }
}

impl Many {
    /// Lists the writes, asks, and settles exactly those that were listed.
    fn settle(
        self,
        client: &Client,
        (evidence, json): (Option<String>, bool),
        screen: &Screen,
    ) -> Result<Exit, Failure> {
        let (Some(service), Some(outcome)) = (self.service, self.outcome) else {
            return Err(Failure::new(Exit::Usage, "say which writes: an id, or --service NAME --as HOW"));
        };
        let (word, shown_word) = outcome.words();
        let body = |more: Value| {
            let mut body = json!({"service": service, "agent": self.agent, "as": word, "evidence": evidence});
            if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            Ask::post("/v1/holds/settle").body(body)
        };
        let list = client.ask(&body(json!({"dry_run": true})))?;
        let count = entries(&list).len();
        if self.dry_run && json {
            screen.json(&list)?;
            return Ok(Exit::Ok);
        }
        if !json {
            unclear(&list, screen)?;
        }
        if self.dry_run || count == 0 {
            return Ok(Exit::Ok);
        }
        if !self.yes {
            screen.ask(&format!("Settle these {count} writes of {service} {shown_word}?"), "--yes")?;
        }
        let seen = |hold: &Value| json!({"buffer_id": hold.get("buffer_id"), "version": hold.get("version")});
        let writes: Vec<Value> = entries(&list).iter().map(seen).collect();
        let settled = client.ask(&body(json!({"writes": writes})))?;
        if json {
            screen.json(&settled)?;
        } else {
            screen.line(format_args!("{} settled {shown_word}", entries(&settled).len()))?;
        }
        let left = settled.get("left").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for one in left {
            screen.note(format_args!("{} was left as it is: {}", shown(one, "buffer_id"), shown(one, "code")));
        }
        if list.get("has_more") == Some(&Value::Bool(true)) {
            screen.note("there are more: run it again");
        }
        Ok(if left.is_empty() { Exit::Ok } else { Exit::Failed })
    }
}

/// What is known of unclear writes.
fn unclear(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|hold| text(hold, "buffer_id").to_owned()).collect();
    let mut table = Table::new(&["hold", "state", "agent", "capability", "admitted", "attempts", "why", "last error"]);
    for (hold, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(hold, name);
        let (state, agent, capability) = (cell("state"), cell("agent"), cell("capability"));
        let error = failing::error(hold).unwrap_or_default();
        table.row(&[id, state, agent, capability, cell("admitted_at"), cell("attempts"), cell("code"), error]);
    }
    table.print(screen, "nothing is unclear")
}

impl Some_ {
    fn each(
        &self,
        client: &Client,
        screen: &Screen,
        ask: impl Fn(&str) -> Result<Ask, Failure>,
    ) -> Result<Exit, Failure> {
        watch::each(screen, &self.ids, |id| say(&client.ask(&ask(id)?)?, self.json, screen))
    }
}

fn path(client: &Client, typed: &str, verb: &str) -> Result<String, Failure> {
    Ok(format!("/v1/holds/{}{verb}", client.id(Kind::Holds, typed)?))
}

/// A person's word, about what they could see a moment ago.
fn settle(client: &Client, typed: &str, word: &str, evidence: Option<String>) -> Result<Ask, Failure> {
    let path = path(client, typed, "")?;
    let version = client.ask(&Ask::get(path.as_str()))?.get("version").cloned();
    Ok(Ask::post(format!("{path}/settle")).body(json!({"word": word, "evidence": evidence, "version": version})))
}

/// What became of a write, in a line.
fn say(hold: &Value, json: bool, screen: &Screen) -> Result<(), Failure> {
    if json {
        return Ok(screen.json(hold)?);
    }
    let until = match text(hold, "cancel_deadline") {
        "" => String::new(),
        at => format!(" until {}", crate::visible::line(at)),
    };
    let failing = failing::line(hold).map(|line| format!(": {line}")).unwrap_or_default();
    screen.line(format_args!("{} is {}{until}{failing}", shown(hold, "buffer_id"), shown(hold, "state")))?;
    Ok(())
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|hold| text(hold, "buffer_id").to_owned()).collect();
    let mut table = Table::new(&["hold", "state", "agent", "capability", "tier", "since", "until", "last error"]);
    for (hold, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(hold, name);
        let (state, agent, capability) = (cell("state"), cell("agent"), cell("capability"));
        let until = match hold.get("retry") {
            Some(retry) => shown(retry, "next_at"),
            None => cell("cancel_deadline"),
        };
        let error = failing::error(hold).unwrap_or_default();
        table.row(&[id, state, agent, capability, cell("tier"), cell("admitted_at"), until, error]);
    }
    table.print(screen, "nothing is held")
}
