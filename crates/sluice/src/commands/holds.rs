//! `sluice holds`: writes that wait before they leave.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, ServiceName, Span};

use crate::client::{Ask, Client, Kind, Reach, entries, shown, text};
use crate::commands::approvals::card;
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
    /// Try writes again that could not go on
    #[command(before_help = "Examples:\n  sluice holds retry buf_0193f2")]
    Retry {
        #[command(flatten)]
        some: Some_,
    },
    /// Give writes up that could not go on
    #[command(before_help = "Examples:\n  sluice holds discard buf_0193f2")]
    Discard {
        #[command(flatten)]
        some: Some_,
    },
    /// Say that an unclear write did happen, and how you know
    #[command(before_help = "Examples:\n  sluice holds settle buf_0193f2 --happened 'seen in the sent folder'")]
    Settle {
        #[command(flatten)]
        one: One,
        /// How you know
        #[arg(long, value_name = "EVIDENCE")]
        happened: String,
    },
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
            Verb::Settle { one, happened } => {
                say(&client.ask(&settle(&client, &one.id, "happened", Some(happened))?)?, one.json, screen)?;
                Ok(Exit::Ok)
            }
        }
    }
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
    screen.line(format_args!("{} is {}{until}", shown(hold, "buffer_id"), shown(hold, "state")))?;
    Ok(())
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|hold| text(hold, "buffer_id").to_owned()).collect();
    let mut table = Table::new(&["hold", "state", "agent", "capability", "tier", "since", "until"]);
    for (hold, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(hold, name);
        let (state, agent, capability) = (cell("state"), cell("agent"), cell("capability"));
        table.row(&[id, state, agent, capability, cell("tier"), cell("admitted_at"), cell("cancel_deadline")]);
    }
    table.print(screen, "nothing is held")
}
