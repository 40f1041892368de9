//! `sluice call`: making a call as an agent, for scripts.

use std::io::Read as _;

use clap::Args;
use serde_json::{Value, json};
use sluice_core::ids::SessionId;
use sluice_core::{CapabilityName, Span};

use super::calls::{outcome, show, wait};
use crate::client::{Ask, Reach, Whose, text};
use crate::failure::{Exit, Failure, heard_or_not, io_words};
use crate::screen::Screen;
use crate::span::span;

/// Largest input that is read.
const LARGEST: u64 = 64 << 20;
/// The longest the gateway waits in one request.
const LONGEST: Span = Span::from_secs(55);

/// Make a call as an agent.
///
/// The key comes from SLUICE_AGENT_KEY or the file SLUICE_AGENT_KEY_FILE names. Ends with 0 when it is done,
/// 5 when a rule blocks it, 6 when a person said no or nobody answered, 8 when it is not over yet.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  export SLUICE_AGENT_KEY_FILE=data/agents/assistant.key\n  sluice call filesystem.list --input '{\"path\": \"/srv/workspace\"}'\n  sluice call email.send --input - --wait 2m < mail.json\n  sluice call email.send --input - --check < mail.json"
)]
pub(crate) struct Call {
    #[command(flatten)]
    reach: Reach,
    /// What to do
    capability: CapabilityName,
    /// Arguments as a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// At this account of the service
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// In this session
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Makes a repetition of this call the same call
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Why, for the people who are asked
    #[arg(long)]
    reason: Option<String>,
    /// Wait so long for the outcome
    #[arg(long, value_parser = span)]
    wait: Option<Span>,
    /// Only ask whether it is allowed; carry nothing out
    #[arg(long)]
    check: bool,
    /// A second identical call is meant
    #[arg(long)]
    allow_duplicate: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Call {
    /// A call without anything special about it.
    pub(crate) fn plain(reach: Reach, capability: CapabilityName, input: String) -> Self {
        Self {
            reach,
            capability,
            input,
            account: None,
            session: None,
            key: None,
            reason: None,
            wait: None,
            check: false,
            allow_duplicate: false,
            json: false,
        }
    }

    /// The same, waiting so long for its outcome.
    pub(crate) fn waiting(self, wait: Option<Span>) -> Self {
        Self { wait, ..self }
    }

    /// The same, answered for machines.
    pub(crate) fn for_machines(self, json: bool) -> Self {
        Self { json, ..self }
    }

    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("call_id");
        let arguments = arguments(&self.input)?;
        let client = self.reach.client(Whose::Agent)?;
        let first = self.wait.map(|wait| wait.min(LONGEST));
        let body = json!({
            "capability": self.capability, "arguments": arguments, "account": self.account, "session_id": self.session,
            "idempotency_key": self.key, "reason": self.reason, "wait_ms": first.map(Span::as_millis),
            "mode": if self.check { "check" } else { "execute" }, "allow_duplicate": self.allow_duplicate,
        });
        let ask = Ask::post("/v1/calls").body(body).waits(first.unwrap_or(Span::ZERO));
        let mut call = client.ask(&ask)?;
        let rest = self.wait.map_or(0, |wait| wait.as_millis().saturating_sub(LONGEST.as_millis()));
        if rest > 0 && outcome(text(&call, "status")) == Exit::Pending {
            let id = text(&call, "call_id").to_owned();
            call = wait(&client, &id, Some(Span::from_millis(rest)))?;
        }
        heard_or_not(show(&call, self.json, screen))?;
        Ok(outcome(text(&call, "status")))
    }
}

/// Arguments as a person or a script gives them: JSON, or `-` for standard input.
pub(crate) fn arguments(input: &str) -> Result<Value, Failure> {
    let mut read = String::new();
    let given = if input == "-" {
        std::io::stdin()
            .lock()
            .take(LARGEST)
            .read_to_string(&mut read)
            .map_err(|error| Failure::new(Exit::Failed, "standard input cannot be read").why(io_words(&error)))?;
        &read
    } else {
        input
    };
    let wrong = |why: String| {
        Failure::new(Exit::Usage, "the input is not a JSON object").why(why).hint("--input '{\"name\": \"value\"}'")
    };
    match serde_json::from_str(given) {
        Ok(Value::Object(arguments)) => Ok(Value::Object(arguments)),
        Ok(_) => Err(wrong("it is some other JSON".into())),
        Err(error) => Err(wrong(error.to_string())),
    }
}
