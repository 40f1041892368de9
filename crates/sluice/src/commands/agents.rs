//! `sluice agents`: which agents may use the gateway.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, CapabilityName, Millis};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, entries, text_field};
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
            AgentsSubcommand::Show { one } => {
                let agent = client.send(&ApiRequest::get(path(&one.name)))?;
                print_agent(screen, &one, &agent)?;
                if !one.json {
                    print_tools(screen, &agent)?;
                }
                Ok(CommandExit::Ok)
            }
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
    print_agent(screen, one, &client.send(ask)?)?;
    Ok(CommandExit::Ok)
}

fn print_agent(screen: &CommandConsole, one: &AgentsNameArgs, agent: &Value) -> Result<(), CliError> {
    if one.json {
        return Ok(screen.json(agent)?);
    }
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("agent", display_field(agent, "name"))?;
    line("state", state(agent).into())?;
    line("keys", display_field(agent, "keys"))?;
    line("since", display_field(agent, "created_at"))?;
    line("note", display_field(agent, "note"))?;
    if let Some(mode) = agent.get("observing") {
        line("observed", format!("until {}: calls are recorded and not stopped", display_field(mode, "until")))?;
    }
    Ok(())
}

/// What the agent is shown over MCP, by client program.
fn print_tools(screen: &CommandConsole, agent: &Value) -> Result<(), CliError> {
    for (n, list) in agent.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        screen.line(format_args!("{:<9} {}", if n == 0 { "tools" } else { "" }, tool_list(list)))?;
    }
    Ok(())
}

/// One list of tools: `12 tools, ~2,900 tokens (minimal) in claude-code, codex`.
fn tool_list(list: &Value) -> String {
    let number = |name: &str| list.get(name).and_then(Value::as_u64).unwrap_or(0);
    let names = list.get("clients").and_then(Value::as_array);
    let names: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    let clients = match names.as_slice() {
        [] => String::new(),
        [first, second, third, more @ ..] if more.len() > 1 => {
            format!(" in {first}, {second}, {third} and {} more clients", more.len())
        }
        names => format!(" in {}", names.join(", ")),
    };
    let (tools, tokens) = (number("tools"), grouped(rounded(number("tokens"))));
    format!("{}, ~{tokens} tokens ({}){clients}", counted(tools, "tool"), text_field(list, "toolset"))
}

/// `1 tool`, `2 tools`.
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// An estimate in hundreds, or in tens where it is small.
const fn rounded(estimate: u64) -> u64 {
    let step = if estimate < 1_000 { 10 } else { 100 };
    (estimate + step / 2) / step * step
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tools_is_shown_with_its_budget() {
        let list = json!({"toolset": "minimal", "clients": ["claude-code", "codex"], "tools": 12, "tokens": 2_874});
        assert_eq!(tool_list(&list), "12 tools, ~2,900 tokens (minimal) in claude-code, codex");
        let list = json!({"toolset": "all", "clients": [], "tools": 1, "tokens": 644});
        assert_eq!(tool_list(&list), "1 tool, ~640 tokens (all)");
        assert_eq!((grouped(1_234_567), grouped(999), grouped(0)), ("1,234,567".into(), "999".into(), "0".into()));
    }
}
