//! `explain`: what one call would get, and why.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Map, Value};
use sluice_core::policy::{Flat, Origin, Question};
use sluice_core::{Action, AgentName, CapabilityName, Timestamp, json};

use super::load_or_fail;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Say what one call would get, and why.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy explain --agent bookkeeper --capability email.send --input '{\"to\":\"ana@example.com\"}'\n  sluice policy explain --agent bookkeeper --capability filesystem.read --input '{\"path\":\"/etc/hosts\"}' --json"
)]
pub(crate) struct Explain {
    /// Policy directory
    #[arg(long, default_value = "policies", value_name = "PATH")]
    policies: PathBuf,
    /// Who asks
    #[arg(long)]
    agent: AgentName,
    /// What is asked
    #[arg(long)]
    capability: CapabilityName,
    /// Arguments as a JSON object; `-` reads stdin
    #[arg(long, default_value = "{}", value_name = "JSON")]
    input: String,
    /// At which account
    #[arg(long)]
    account: Option<String>,
    /// In which session
    #[arg(long)]
    session: Option<String>,
    /// As if the session was shown an injection finding
    #[arg(long)]
    tainted: bool,
    /// As if the targets came from there: asked, known, seen, new
    #[arg(long, value_delimiter = ',', value_parser = origin)]
    targets: Option<Vec<Origin>>,
    /// As if it were this moment (RFC 3339)
    #[arg(long, value_parser = moment)]
    now: Option<Timestamp>,
    /// As if every rate limit had counted so many calls
    #[arg(long, default_value_t = 0, value_name = "N")]
    rates: u64,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let arguments = self.arguments()?;
        let policy = load_or_fail(&self.policies, screen)?;
        if let Some(capability) = policy.catalogue().get(&self.capability) {
            let whole = Value::Object(arguments.clone());
            if let Err(error) = Action::new(capability, self.agent.clone(), self.account.clone(), whole) {
                screen.note(format_args!("note: the gateway would refuse this call before policy: {error}"));
            }
        }
        let rates = Flat(self.rates);
        let question = Question {
            account: self.account.as_deref(),
            session: self.session.as_deref(),
            tainted: self.tainted,
            targets: self.targets.as_ref().map(|origins| origins.iter().copied().collect()),
            rates: &rates,
            ..Question::new(&self.agent, &self.capability, &arguments, self.now.unwrap_or_else(now))
        };
        let explanation = policy.explain(&question);
        if self.json {
            screen.json(&explanation)?
        } else {
            screen.line(&explanation)?
        }
        Ok(Exit::Ok)
    }

    fn arguments(&self) -> Result<Map<String, Value>, Failure> {
        let mut text = self.input.clone().into_bytes();
        if self.input == "-" {
            text.clear();
            let limit = json::REQUEST.bytes as u64 + 1;
            std::io::stdin().lock().take(limit).read_to_end(&mut text)?;
        }
        let refuse = |why: String| {
            Failure::new(Exit::Usage, "`--input` is not a JSON object")
                .why(why)
                .hint("for example --input '{\"path\":\"/workspace/a.txt\"}'")
        };
        match json::parse(&text, &json::REQUEST).map_err(|error| refuse(error.to_string()))? {
            Value::Object(arguments) => Ok(arguments),
            _ => Err(refuse("arguments have names".into())),
        }
    }
}

fn origin(word: &str) -> Result<Origin, String> {
    Origin::from_word(word).ok_or_else(|| "origins are asked, known, seen, new".into())
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let moment: jiff::Timestamp = text.parse().map_err(|_| "not a moment such as 2026-01-05T09:30:00+01:00")?;
    Ok(Timestamp::from_millis(moment.as_millisecond()))
}

#[expect(clippy::disallowed_methods, reason = "the edge: a person asks about a call made now")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
