//! `sluice agents`: who may knock.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, CapabilityName, Span};

use crate::client::{Ask, Client, Reach, entries, shown};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;
use crate::table::Table;
use crate::watch::{self, Listing};

/// List, add, pause, observe and remove agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice agents list\n  sluice agents add bookkeeper --note 'monthly invoices'\n  sluice agents pause bookkeeper --reason 'looks odd'"
)]
pub(crate) struct Agents {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List agents
    #[command(before_help = "Examples:\n  sluice agents list\n  sluice agents list --json | jq -r '.data[].name'")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one agent
    #[command(before_help = "Examples:\n  sluice agents show bookkeeper")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Add an agent; it needs a key next
    #[command(before_help = "Examples:\n  sluice agents add bookkeeper --note 'monthly invoices'")]
    Add {
        #[command(flatten)]
        one: One,
        /// What it is for
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Let an agent make no more calls
    #[command(before_help = "Examples:\n  sluice agents pause bookkeeper --reason 'looks odd'")]
    Pause {
        #[command(flatten)]
        one: One,
        /// Why
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let an agent make calls again
    #[command(before_help = "Examples:\n  sluice agents resume bookkeeper")]
    Resume {
        #[command(flatten)]
        one: One,
    },
    /// Judge and record an agent's calls for some time without stopping them
    ///
    /// What a system rule blocks stays blocked, the leak scan stays, and what leaves the house is stopped as ever unless
    /// it is named with --also.
    #[command(
        before_help = "Examples:\n  sluice agents observe coder\n  sluice agents observe coder --for 8h --also email.send\n  sluice agents observe coder --end"
    )]
    Observe {
        #[command(flatten)]
        one: One,
        /// How long, at most a week
        #[arg(long = "for", value_parser = span, default_value = "24h", conflicts_with = "end")]
        lasts: Span,
        /// A capability that leaves the house and is included, by its whole name; may be given again
        #[arg(long, value_name = "CAPABILITY", conflicts_with = "end")]
        also: Vec<CapabilityName>,
        /// End it now
        #[arg(long)]
        end: bool,
    },
    /// Remove an agent and revoke its keys
    #[command(before_help = "Examples:\n  sluice agents remove bookkeeper --yes")]
    Remove {
        /// Its name
        name: AgentName,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct One {
    /// Its name
    name: AgentName,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Agents {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { listing } => {
                let fetch = || client.whole("/v1/agents");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { one } => say(&client, screen, &one, &Ask::get(path(&one.name))),
            Verb::Add { one, note } => {
                let exit =
                    say(&client, screen, &one, &Ask::post("/v1/agents").body(json!({"name": one.name, "note": note})))?;
                screen.note(format_args!(
                    "next: its rules in policies/agents/{0}.yaml, and a key: sluice keys create --agent {0} --out FILE",
                    one.name
                ));
                Ok(exit)
            }
            Verb::Pause { one, reason } => {
                let ask = Ask::post(format!("{}/pause", path(&one.name))).body(json!({"reason": reason})).stops();
                say(&client, screen, &one, &ask)
            }
            Verb::Resume { one } => say(&client, screen, &one, &Ask::post(format!("{}/resume", path(&one.name)))),
            Verb::Observe { one, end: true, .. } => {
                say(&client, screen, &one, &Ask::delete(format!("{}/observe", path(&one.name))))
            }
            Verb::Observe { one, lasts, also, end: false } => {
                let body = json!({"seconds": lasts.as_millis() / 1000, "leaving": also});
                let exit = say(&client, screen, &one, &Ask::post(format!("{}/observe", path(&one.name))).body(body))?;
                screen.note(format_args!(
                    "calls of {0} are not stopped until then; afterwards: sluice policy suggest --agent {0}",
                    one.name
                ));
                Ok(exit)
            }
            Verb::Remove { name, yes, json } => {
                if !yes {
                    screen.ask(&format!("Remove the agent `{name}` and revoke its keys?"), "--yes")?;
                }
                client.ask(&Ask::delete(path(&name)))?;
                if json {
                    screen.json(&json!({"name": name, "removed": true}))?;
                }
                screen.note(format_args!("removed {name}; its keys no longer work"));
                Ok(Exit::Ok)
            }
        }
    }
}

fn path(name: &AgentName) -> String {
    format!("/v1/agents/{}", crate::client::encode(name.as_str()))
}

fn say(client: &Client, screen: &Screen, one: &One, ask: &Ask) -> Result<Exit, Failure> {
    let agent = client.ask(ask)?;
    if one.json {
        screen.json(&agent)?;
    } else {
        let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
        line("agent", shown(&agent, "name"))?;
        line("state", state(&agent).into())?;
        line("keys", shown(&agent, "keys"))?;
        line("since", shown(&agent, "created_at"))?;
        line("note", shown(&agent, "note"))?;
        if let Some(mode) = agent.get("observing") {
            line("observed", format!("until {}: nothing is stopped, everything is recorded", shown(mode, "until")))?;
        }
    }
    Ok(Exit::Ok)
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["name", "state", "keys", "since", "note"]);
    for agent in entries(list) {
        let cell = |name| shown(agent, name);
        table.row(&[cell("name"), state(agent).into(), cell("keys"), cell("created_at"), cell("note")]);
    }
    table.print(screen, "there are no agents: sluice agents add NAME")
}

fn state(agent: &Value) -> &'static str {
    let is = |name: &str| agent.get(name) == Some(&Value::Bool(true));
    match (is("removed"), is("paused")) {
        (true, _) => "removed",
        (false, true) => "paused",
        (false, false) => "active",
    }
}
