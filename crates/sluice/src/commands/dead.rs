//! `sluice dead`: writes that ended without their effect.

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, ServiceName};

use crate::client::{Ask, Client, Kind, Reach, entries, shown};
use crate::commands::approvals::card;
use crate::commands::call::arguments;
use crate::commands::policy::counted;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;
use crate::watch::{self, Listing};

/// List writes that ended without their effect; try, change or give them up.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice dead list\n  sluice dead show buf_0193f2\n  sluice dead retry --cause email.send:egress.dns --probe\n  sluice dead edit buf_0193f2 --input - < fixed.json\n  sluice dead discard buf_0193f2"
)]
pub(crate) struct Dead {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List them by what they died of, the most frequent cause first
    #[command(before_help = "Examples:\n  sluice dead list\n  sluice dead list --json | jq -r '.data[].cause'")]
    List {
        /// Only of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Only of this service
        #[arg(long, value_name = "NAME")]
        service: Option<ServiceName>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one with exactly what it was to do
    #[command(before_help = "Examples:\n  sluice dead show buf_0193f2")]
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Give them another window; the rules are asked again
    #[command(
        before_help = "Examples:\n  sluice dead retry buf_0193f2\n  sluice dead retry --cause email.send:egress.dns --probe\n  sluice dead retry --cause email.send:egress.dns"
    )]
    Retry {
        #[command(flatten)]
        which: Which,
        /// Only the oldest of the cause, to see whether it works now
        #[arg(long, requires = "cause")]
        probe: bool,
    },
    /// Give them up
    #[command(before_help = "Examples:\n  sluice dead discard buf_0193f2 buf_0193f3")]
    Discard {
        #[command(flatten)]
        which: Which,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Put a changed call in its place: a new call, checked like any other
    #[command(
        before_help = "Examples:\n  sluice dead show buf_0193f2 --json | jq .arguments > fixed.json\n  sluice dead edit buf_0193f2 --input - < fixed.json"
    )]
    Edit {
        /// Its id, or the beginning of it
        id: String,
        /// All arguments as a JSON object; `-` reads them from standard input
        #[arg(long, value_name = "JSON")]
        input: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

/// Which ones.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct Which {
    /// Their ids, or the beginnings of them
    #[arg(group = "which", value_name = "ID")]
    ids: Vec<String>,
    /// All that died of this, as `sluice dead list` calls it
    #[arg(long, group = "which", value_name = "CAUSE")]
    cause: Option<String>,
    /// For machines: the answers of the API
    #[arg(long)]
    json: bool,
}

impl Dead {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("buffer_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { agent, service, listing } => {
                let ask = Ask::get("/v1/dead-letters").with("agent", agent).with("service", service);
                watch::show(&client, screen, listing, || client.ask(&ask), |list| table(list, screen))
            }
            Verb::Show { id, json } => {
                let hold = client.ask(&Ask::get(path(&client, &id, "")?))?;
                if json {
                    screen.json(&hold)?
                } else {
                    card::write(&hold, screen)?
                }
                Ok(Exit::Ok)
            }
            Verb::Retry { which, probe } => which.settle(&client, screen, "retry", probe),
            Verb::Discard { which, yes } => {
                if !yes {
                    let what = match &which.cause {
                        Some(cause) => format!("everything that died of `{}`", crate::visible::line(cause)),
                        None => counted(which.ids.len(), "write"),
                    };
                    screen.ask(&format!("Give up {what}?"), "--yes")?;
                }
                which.settle(&client, screen, "discard", false)
            }
            Verb::Edit { id, input, json } => {
                let (arguments, place) = (arguments(&input)?, path(&client, &id, "")?);
                let version = client.ask(&Ask::get(place.as_str()))?.get("version").cloned();
                let body = json!({"arguments": arguments, "version": version});
                let edited = client.ask(&Ask::post(format!("{place}/edit")).body(body))?;
                if json {
                    screen.json(&edited)?;
                    return Ok(Exit::Ok);
                }
                let call = edited.get("call").cloned().unwrap_or_default();
                let (status, new) = (shown(&call, "status"), shown(&call, "buffer_id"));
                screen.line(format_args!("{new} is {status}"))?;
                screen.note("it takes the place of the dead letter, which was given up");
                Ok(Exit::Ok)
            }
        }
    }
}

impl Which {
    fn settle(&self, client: &Client, screen: &Screen, verb: &str, probe: bool) -> Result<Exit, Failure> {
        if let Some(cause) = &self.cause {
            let body = json!({"cause": cause, "probe": probe});
            let settled = client.ask(&Ask::post(format!("/v1/dead-letters/{verb}")).body(body))?;
            if self.json {
                screen.json(&settled)?;
                return Ok(Exit::Ok);
            }
            return entries(&settled).iter().try_for_each(|hold| say(hold, screen)).map(|()| Exit::Ok);
        }
        watch::each(screen, &self.ids, |id| {
            let hold = client.ask(&Ask::post(path(client, id, &format!("/{verb}"))?))?;
            if self.json { Ok(screen.json(&hold)?) } else { say(&hold, screen) }
        })
    }
}

fn path(client: &Client, typed: &str, verb: &str) -> Result<String, Failure> {
    Ok(format!("/v1/dead-letters/{}{verb}", client.id(Kind::Holds, typed)?))
}

fn say(hold: &Value, screen: &Screen) -> Result<(), Failure> {
    screen.line(format_args!("{} is {}", shown(hold, "buffer_id"), shown(hold, "state")))?;
    Ok(())
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["cause", "count", "service", "first", "last", "why", "the service says"]);
    for group in entries(list) {
        let cell = |name| shown(group, name);
        let said = if group.get("service_says").is_some() { cell("service_says") } else { String::new() };
        table.row(&[cell("cause"), cell("count"), cell("service"), cell("since"), cell("until"), cell("why"), said]);
    }
    table.print(screen, "there are no dead letters")
}
