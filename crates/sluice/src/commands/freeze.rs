//! `sluice freeze` and `sluice unfreeze`: the brake.

use clap::Args;
use serde_json::{Value, json};
use sluice_core::{AgentName, ServiceName};

use crate::client::{Ask, Reach, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// What the gateway says where a connection stands still by itself.
const STOPPED: &str = "service.stopped";

/// What the gateway says where the database is not trusted.
const SUSPECTED: &str = "recovery.required";

/// Stop everything, one agent or one service.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice freeze --reason 'something is wrong'\n  sluice freeze --agent bookkeeper --reason 'looks odd'\n  sluice unfreeze"
)]
pub(crate) struct Freeze {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    scope: Scope,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// Let go again what was frozen.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice unfreeze\n  sluice unfreeze --agent bookkeeper")]
pub(crate) struct Unfreeze {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    scope: Scope,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// What; everything if neither is named.
#[derive(Debug, Args)]
struct Scope {
    /// `all`: everything, which is also what no scope means
    #[arg(value_name = "all", value_parser = ["all"], conflicts_with_all = ["agent", "service"])]
    everything: Option<String>,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Only this service
    #[arg(long, value_name = "NAME", conflicts_with = "agent")]
    service: Option<ServiceName>,
}

impl Scope {
    /// As the gateway calls it.
    fn word(&self) -> String {
        match (&self.agent, &self.service) {
            (Some(agent), _) => format!("agent {agent}"),
            (None, Some(service)) => format!("service {service}"),
            (None, None) => "all".into(),
        }
    }
}

impl Freeze {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("scope");
        let client = self.reach.operator()?;
        let body = json!({"agent": self.scope.agent, "service": self.scope.service, "reason": self.reason});
        let frozen = client.ask(&Ask::post("/v1/freezes").body(body).stops())?;
        if frozen.get("known") == Some(&Value::Bool(false)) {
            let meant = match text(&frozen, "nearest") {
                "" => String::new(),
                nearest => format!("; did you mean `{}`?", crate::visible::line(nearest)),
            };
            screen.hand(format_args!("warning: nothing here is called {} yet{meant}", shown(&frozen, "scope")))?;
        }
        if self.json {
            screen.json(&frozen)?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("frozen      {}", shown(&frozen, "scope")))?;
        for hold in frozen.get("in_flight").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!("on its way  {}", crate::visible::value(hold)))?;
        }
        screen.note("nothing new starts; sluice unfreeze lifts it");
        Ok(Exit::Ok)
    }
}

impl Unfreeze {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("scope");
        let client = self.reach.operator()?;
        let scope = self.scope.word();
        let ask =
            Ask::delete("/v1/freezes").with("agent", self.scope.agent).with("service", self.scope.service).stops();
        client.ask(&ask).map_err(|failure| match failure.exit {
            Exit::NotFound => {
                Failure { message: "this is not frozen".into(), ..failure }.hint("sluice status shows what is")
            }
            _ if failure.problem.as_ref().is_some_and(|problem| text(problem, "code") == STOPPED) => {
                failure.hint("nobody froze it: sluice services resume NAME or sluice connect NAME lets it go on")
            }
            _ if failure.problem.as_ref().is_some_and(|problem| text(problem, "code") == SUSPECTED) => {
                failure.hint("nobody froze it: sluice recover shows what was found and how to decide")
            }
            _ => failure,
        })?;
        if self.json {
            screen.json(&json!({"scope": scope, "frozen": false}))?;
        }
        screen.note("the freeze is lifted");
        let left = client.ask(&Ask::get("/v1/freezes").stops()).unwrap_or_default();
        let left = left.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for brake in left.iter().filter(|left| text(left, "scope") == scope && !text(left, "connection").is_empty()) {
            let (why, name) = (shown(brake, "reason"), shown(brake, "connection"));
            screen.note(format_args!(
                "{scope} still stands: {why} (sluice services resume {name}, sluice connect {name})"
            ));
        }
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct FreezeCommand {
        #[command(flatten)]
        freeze: Freeze,
    }

    fn parse(arguments: &[&str]) -> Result<String, clap::Error> {
        let arguments = std::iter::once(&"freeze").chain(arguments);
        FreezeCommand::try_parse_from(arguments).map(|command| command.freeze.scope.word())
    }

    /// Somebody in a hurry types what the documentation calls it.
    #[test]
    fn all_may_be_named_and_never_widens_a_narrower_scope() {
        assert_eq!(parse(&[]).unwrap(), "all");
        assert_eq!(parse(&["all"]).unwrap(), "all");
        assert_eq!(parse(&["--agent", "clerk"]).unwrap(), "agent clerk");
        assert!(parse(&["all", "--agent", "clerk"]).is_err());
        assert!(parse(&["clerk"]).is_err());
    }
}
