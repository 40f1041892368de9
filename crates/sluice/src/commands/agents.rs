//! `sluice agents`: which agents may use the gateway.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, CapabilityName, Millis};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, entries};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// List, add, pause, observe and remove agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice agents list\n  sluice agents add bookkeeper --note 'monthly invoices'\n  sluice agents pause bookkeeper --reason 'looks odd'"
)]
pub(crate) struct AgentsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: AgentsSubcommand,
}

#[derive(Debug, Subcommand)]
enum AgentsSubcommand {
    /// List agents
    #[command(before_help = "Examples:\n  sluice agents list\n  sluice agents list --json | jq -r '.data[].name'")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one agent
    #[command(before_help = "Examples:\n  sluice agents show bookkeeper")]
    Show {
        #[command(flatten)]
        one: AgentsNameArgs,
    },
    /// Add an agent; create a key for it next
    #[command(before_help = "Examples:\n  sluice agents add bookkeeper --note 'monthly invoices'")]
    Add {
        #[command(flatten)]
        one: AgentsNameArgs,
        /// What the agent is for
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Stop an agent: it can make no more calls
    #[command(before_help = "Examples:\n  sluice agents pause bookkeeper --reason 'looks odd'")]
    Pause {
        #[command(flatten)]
        one: AgentsNameArgs,
        /// Reason, shown to people
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let a paused agent make calls again
    #[command(before_help = "Examples:\n  sluice agents resume bookkeeper")]
    Resume {
        #[command(flatten)]
        one: AgentsNameArgs,
    },
    /// Judge and record an agent's calls for some time without stopping them
    ///
    /// What a system rule blocks stays blocked and the leak scan stays on. Capabilities that send something outside are
    /// still stopped, unless they are named with --also.
    #[command(
        before_help = "Examples:\n  sluice agents observe coder\n  sluice agents observe coder --for 8h --also email.send\n  sluice agents observe coder --end"
    )]
    Observe {
        #[command(flatten)]
        one: AgentsNameArgs,
        /// How long, at most a week
        #[arg(long = "for", value_parser = span, default_value = "24h", conflicts_with = "end")]
        lasts: Millis,
        /// A capability that sends something outside and is included, by its full name; can be repeated
        #[arg(long, value_name = "CAPABILITY", conflicts_with = "end")]
        also: Vec<CapabilityName>,
        /// End observe mode now
        #[arg(long)]
        end: bool,
    },
    /// Remove an agent and revoke its keys
    #[command(before_help = "Examples:\n  sluice agents remove bookkeeper --yes")]
    Remove {
        /// Name of the agent
        name: AgentName,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct AgentsNameArgs {
    /// Name of the agent
    name: AgentName,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl AgentsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        match self.verb {
            AgentsSubcommand::List { listing } => {
                let fetch = || client.get_all("/v1/agents");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            AgentsSubcommand::Show { one } => say(&client, screen, &one, &ApiRequest::get(path(&one.name))),
            AgentsSubcommand::Add { one, note } => {
                let exit = say(
                    &client,
                    screen,
                    &one,
                    &ApiRequest::post("/v1/agents").body(json!({"name": one.name, "note": note})),
                )?;
                screen.note(format_args!(
                    "next: write its rules in policies/agents/{0}.yaml and create a key: sluice keys create --agent {0} --out FILE",
                    one.name
                ));
                Ok(exit)
            }
            AgentsSubcommand::Pause { one, reason } => {
                let ask = ApiRequest::post(format!("{}/pause", path(&one.name)))
                    .body(json!({"reason": reason}))
                    .via_stop_lane();
                say(&client, screen, &one, &ask)
            }
            AgentsSubcommand::Resume { one } => {
                say(&client, screen, &one, &ApiRequest::post(format!("{}/resume", path(&one.name))))
            }
            AgentsSubcommand::Observe { one, end: true, .. } => {
                say(&client, screen, &one, &ApiRequest::delete(format!("{}/observe", path(&one.name))))
            }
            AgentsSubcommand::Observe { one, lasts, also, end: false } => {
                let body = json!({"seconds": lasts.as_millis() / 1000, "leaving": also});
                let exit =
                    say(&client, screen, &one, &ApiRequest::post(format!("{}/observe", path(&one.name))).body(body))?;
                screen.note(format_args!(
                    "calls of {0} are recorded and not stopped until then; afterwards: sluice policy suggest --agent {0}",
                    one.name
                ));
                Ok(exit)
            }
            AgentsSubcommand::Remove { name, yes, json } => {
                if !yes {
                    screen.confirm(&format!("Remove the agent `{name}` and revoke its keys?"), "--yes")?;
                }
                client.send(&ApiRequest::delete(path(&name)))?;
                if json {
                    screen.json(&json!({"name": name, "removed": true}))?;
                }
                screen.note(format_args!("removed {name}; its keys no longer work"));
                Ok(CommandExit::Ok)
            }
        }
    }
}

fn path(name: &AgentName) -> String {
    format!("/v1/agents/{}", crate::client::encode(name.as_str()))
}

fn say(
    client: &GatewayClient,
    screen: &CommandConsole,
    one: &AgentsNameArgs,
    ask: &ApiRequest,
) -> Result<CommandExit, CliError> {
    let agent = client.send(ask)?;
    if one.json {
        screen.json(&agent)?;
    } else {
        let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
        line("agent", display_field(&agent, "name"))?;
        line("state", state(&agent).into())?;
        line("keys", display_field(&agent, "keys"))?;
        line("since", display_field(&agent, "created_at"))?;
        line("note", display_field(&agent, "note"))?;
        if let Some(mode) = agent.get("observing") {
            line("observed", format!("until {}: calls are recorded and not stopped", display_field(mode, "until")))?;
        }
    }
    Ok(CommandExit::Ok)
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["name", "state", "keys", "since", "note"]);
    for agent in entries(list) {
        let cell = |name| display_field(agent, name);
        table.row(&[cell("name"), state(agent).into(), cell("keys"), cell("created_at"), cell("note")]);
    }
    table.print(screen, "no agents; add one: sluice agents add NAME")
}

fn state(agent: &Value) -> &'static str {
    let is = |name: &str| agent.get(name) == Some(&Value::Bool(true));
    match (is("removed"), is("paused")) {
        (true, _) => "removed",
        (false, true) => "paused",
        (false, false) => "active",
    }
}
