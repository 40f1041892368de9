//! `explain`: the verdict for one call, and why.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Map, Value};
use sluice_core::policy::{ConstantRateCounter, PolicyInput, TargetOrigin};
use sluice_core::{Action, AgentName, CapabilityName, UtcMillis, json};

use super::{folder_of, load_or_fail};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::settings::ConfigFileArgs;

/// Show the verdict for one call, and why.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy explain --agent bookkeeper --capability email.send --input '{\"to\":\"ana@example.com\"}'\n  sluice policy explain --agent bookkeeper --capability filesystem.read --input '{\"path\":\"/etc/hosts\"}' --json"
)]
pub(crate) struct PolicyExplainArgs {
    /// Policy directory; default: that of the configuration
    #[arg(long, value_name = "PATH")]
    policies: Option<PathBuf>,
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Agent that makes the call
    #[arg(long)]
    agent: AgentName,
    /// Capability to call
    #[arg(long)]
    capability: CapabilityName,
    /// Arguments as a JSON object; `-` reads them from standard input
    #[arg(long, default_value = "{}", value_name = "JSON")]
    input: String,
    /// Account of the service
    #[arg(long)]
    account: Option<String>,
    /// Session of the call
    #[arg(long)]
    session: Option<String>,
    /// Assume the session was shown an injection finding
    #[arg(long)]
    tainted: bool,
    /// Assume the targets have these origins: asked, known, seen, new
    #[arg(long, value_delimiter = ',', value_parser = origin)]
    targets: Option<Vec<TargetOrigin>>,
    /// Assume this time (RFC 3339)
    #[arg(long, value_parser = moment)]
    now: Option<UtcMillis>,
    /// Assume every rate limit has counted this many calls
    #[arg(long, default_value_t = 0, value_name = "N")]
    rates: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyExplainArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let arguments = self.arguments()?;
        let policy = load_or_fail(&folder_of(self.policies.clone(), &self.which)?, screen)?;
        if let Some(capability) = policy.catalogue().get(&self.capability) {
            let whole = Value::Object(arguments.clone());
            if let Err(error) = Action::new(capability, self.agent.clone(), self.account.clone(), whole) {
                screen.note(format_args!(
                    "note: the gateway would refuse this call before it checks the policy: {error}"
                ));
            }
        }
        let rates = ConstantRateCounter(self.rates);
        let question = PolicyInput {
            account: self.account.as_deref(),
            session: self.session.as_deref(),
            tainted: self.tainted,
            targets: self.targets.as_ref().map(|origins| origins.iter().copied().collect()),
            rates: &rates,
            ..PolicyInput::new(&self.agent, &self.capability, &arguments, self.now.unwrap_or_else(now))
        };
        let explanation = policy.explain(&question);
        if self.json {
            screen.json(&explanation)?
        } else {
            screen.line(&explanation)?
        }
        Ok(CommandExit::Ok)
    }

    fn arguments(&self) -> Result<Map<String, Value>, CliError> {
        let mut text = self.input.clone().into_bytes();
        if self.input == "-" {
            text.clear();
            let limit = json::REQUEST.bytes as u64 + 1;
            std::io::stdin().lock().take(limit).read_to_end(&mut text)?;
        }
        let refuse = |why: String| {
            CliError::new(CommandExit::Usage, "`--input` is not a JSON object")
                .why(why)
                .hint("for example --input '{\"path\":\"/workspace/a.txt\"}'")
        };
        match json::parse(&text, &json::REQUEST).map_err(|error| refuse(error.to_string()))? {
            Value::Object(arguments) => Ok(arguments),
            _ => Err(refuse("arguments must have names".into())),
        }
    }
}

fn origin(word: &str) -> Result<TargetOrigin, String> {
    TargetOrigin::from_word(word).ok_or_else(|| "an origin is one of asked, known, seen, new".into())
}

fn moment(text: &str) -> Result<UtcMillis, String> {
    let moment: jiff::Timestamp = text.parse().map_err(|_| "expected a time such as 2026-01-05T09:30:00+01:00")?;
    Ok(UtcMillis::from_millis(moment.as_millisecond()))
}

#[expect(clippy::disallowed_methods, reason = "the edge: a person asks about a call made now")]
fn now() -> UtcMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UtcMillis::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
