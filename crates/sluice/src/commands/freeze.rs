//! `sluice freeze` and `sluice unfreeze`: stop everything, one agent or one service.

use clap::Args;
use serde_json::{Value, json};
use sluice_core::{AgentName, ServiceName};

use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// The error code for a connection that has stopped on its own.
const STOPPED: &str = "service.stopped";

/// The error code for a database that is not trusted.
const SUSPECTED: &str = "recovery.required";

/// Freeze everything, one agent or one service.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice freeze --reason 'something is wrong'\n  sluice freeze --agent bookkeeper --reason 'looks odd'\n  sluice unfreeze"
)]
pub(crate) struct FreezeCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    scope: FreezeScopeArgs,
    /// Reason, shown to people and kept in the audit log
    #[arg(long, default_value = "")]
    reason: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Lift a freeze.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice unfreeze\n  sluice unfreeze --agent bookkeeper")]
pub(crate) struct UnfreezeCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    scope: FreezeScopeArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What to freeze; everything if neither option is given.
#[derive(Debug, Args)]
struct FreezeScopeArgs {
    /// `all`: everything; same as giving no scope
    #[arg(value_name = "all", value_parser = ["all"], conflicts_with_all = ["agent", "service"])]
    everything: Option<String>,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only this service
    #[arg(long, value_name = "NAME", conflicts_with = "agent")]
    service: Option<ServiceName>,
}

impl FreezeScopeArgs {
    /// The scope as the gateway names it.
    fn word(&self) -> String {
        match (&self.agent, &self.service) {
            (Some(agent), _) => format!("agent {agent}"),
            (None, Some(service)) => format!("service {service}"),
            (None, None) => "all".into(),
        }
    }
}

impl FreezeCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("scope");
        let client = self.reach.open_operator_client()?;
        let body = json!({"agent": self.scope.agent, "service": self.scope.service, "reason": self.reason});
        let frozen = client.send(&ApiRequest::post("/v1/freezes").body(body).via_stop_lane())?;
        if frozen.get("known") == Some(&Value::Bool(false)) {
            let meant = match text_field(&frozen, "nearest") {
                "" => String::new(),
                nearest => format!("; did you mean `{}`?", crate::escape::escape_line(nearest)),
            };
            screen
                .print_required(format_args!("warning: no {} is known yet{meant}", display_field(&frozen, "scope")))?;
        }
        if self.json {
            screen.json(&frozen)?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("frozen      {}", display_field(&frozen, "scope")))?;
        for hold in frozen.get("in_flight").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!("in flight   {}", crate::escape::value(hold)))?;
        }
        screen.note("no new write starts; to lift the freeze: sluice unfreeze");
        Ok(CommandExit::Ok)
    }
}

impl UnfreezeCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("scope");
        let client = self.reach.open_operator_client()?;
        let scope = self.scope.word();
        let ask = ApiRequest::delete("/v1/freezes")
            .with("agent", self.scope.agent)
            .with("service", self.scope.service)
            .via_stop_lane();
        client.send(&ask).map_err(|failure| match failure.exit {
            CommandExit::NotFound => {
                CliError { message: "this is not frozen".into(), ..failure }.hint("see what is frozen: sluice status")
            }
            _ if failure.problem.as_ref().is_some_and(|problem| text_field(problem, "code") == STOPPED) => failure
                .hint("it stopped on its own; to start it again: sluice services resume NAME or sluice connect NAME"),
            _ if failure.problem.as_ref().is_some_and(|problem| text_field(problem, "code") == SUSPECTED) => {
                failure.hint("the gateway froze itself; to see what was found and decide: sluice recover")
            }
            _ => failure,
        })?;
        if self.json {
            screen.json(&json!({"scope": scope, "frozen": false}))?;
        }
        screen.note("the freeze is lifted");
        let left = client.send(&ApiRequest::get("/v1/freezes").via_stop_lane()).unwrap_or_default();
        let left = left.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for brake in
            left.iter().filter(|left| text_field(left, "scope") == scope && !text_field(left, "connection").is_empty())
        {
            let (why, name) = (display_field(brake, "reason"), display_field(brake, "connection"));
            screen.note(format_args!(
                "{scope} is still stopped: {why} (to start it: sluice services resume {name}, sluice connect {name})"
            ));
        }
        Ok(CommandExit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct FreezeCli {
        #[command(flatten)]
        freeze: FreezeCommand,
    }

    fn parse(arguments: &[&str]) -> Result<String, clap::Error> {
        let arguments = std::iter::once(&"freeze").chain(arguments);
        FreezeCli::try_parse_from(arguments).map(|command| command.freeze.scope.word())
    }

    /// A person in a hurry types what the documentation says.
    #[test]
    fn all_may_be_named_and_never_widens_a_narrower_scope() {
        assert_eq!(parse(&[]).unwrap(), "all");
        assert_eq!(parse(&["all"]).unwrap(), "all");
        assert_eq!(parse(&["--agent", "clerk"]).unwrap(), "agent clerk");
        assert!(parse(&["all", "--agent", "clerk"]).is_err());
        assert!(parse(&["clerk"]).is_err());
    }
}
