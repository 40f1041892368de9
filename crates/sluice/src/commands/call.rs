//! `sluice call`: makes a call as an agent, for scripts.

use std::io::Read as _;

use clap::Args;
use serde_json::{Value, json};
use sluice_core::ids::SessionId;
use sluice_core::{CapabilityName, Millis};

use super::calls::{outcome, show, wait};
use crate::client::{ApiRequest, ClientCredentialKind, GatewayArgs, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error, ignore_closed_output};
use crate::time_args::span;

/// Largest input that is read.
const LARGEST: u64 = 64 << 20;
/// Longest wait of one request.
const LONGEST: Millis = Millis::from_secs(55);

/// Make a call as an agent.
///
/// The key comes from SLUICE_AGENT_KEY or the file in SLUICE_AGENT_KEY_FILE. Exit code 0 if the call is done, 5 if a
/// rule blocks it, 6 if a person denied it or nobody answered in time, 8 if it is not finished yet.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  export SLUICE_AGENT_KEY_FILE=data/agents/assistant.key\n  sluice call filesystem.list --input '{\"path\": \"/srv/workspace\"}'\n  sluice call email.send --input - --wait 2m < mail.json\n  sluice call email.send --input - --check < mail.json"
)]
pub(crate) struct CallCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Capability to call
    capability: CapabilityName,
    /// Arguments as a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Account of the service
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Session of the call
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Idempotency key: a repeated call with the same key is the same call
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Reason, shown to the people who approve
    #[arg(long)]
    reason: Option<String>,
    /// Wait up to this long for the outcome
    #[arg(long, value_parser = span)]
    wait: Option<Millis>,
    /// Only check whether the call is allowed; do not carry it out
    #[arg(long)]
    check: bool,
    /// Make the call even if it is identical to a recent one
    #[arg(long)]
    allow_duplicate: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl CallCommand {
    /// A call with default options.
    pub(crate) fn plain(reach: GatewayArgs, capability: CapabilityName, input: String) -> Self {
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

    /// Sets how long to wait for the outcome.
    pub(crate) fn waiting(self, wait: Option<Millis>) -> Self {
        Self { wait, ..self }
    }

    /// Sets whether the response is printed as JSON.
    pub(crate) fn for_machines(self, json: bool) -> Self {
        Self { json, ..self }
    }

    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("call_id");
        let arguments = arguments(&self.input)?;
        let client = self.reach.open_client(ClientCredentialKind::Agent)?;
        let first = self.wait.map(|wait| wait.min(LONGEST));
        let body = json!({
            "capability": self.capability, "arguments": arguments, "account": self.account, "session_id": self.session,
            "idempotency_key": self.key, "reason": self.reason, "wait_ms": first.map(Millis::as_millis),
            "mode": if self.check { "check" } else { "execute" }, "allow_duplicate": self.allow_duplicate,
        });
        let ask = ApiRequest::post("/v1/calls").body(body).with_wait(first.unwrap_or(Millis::ZERO));
        let mut call = client.send(&ask)?;
        let rest = self.wait.map_or(0, |wait| wait.as_millis().saturating_sub(LONGEST.as_millis()));
        if rest > 0 && outcome(text_field(&call, "status")) == CommandExit::Pending {
            let id = text_field(&call, "call_id").to_owned();
            call = wait(&client, &id, Some(Millis::from_millis(rest)))?;
        }
        ignore_closed_output(show(&call, self.json, screen))?;
        Ok(outcome(text_field(&call, "status")))
    }
}

/// Arguments as JSON text, or `-` for standard input.
pub(crate) fn arguments(input: &str) -> Result<Value, CliError> {
    let mut read = String::new();
    let given = if input == "-" {
        std::io::stdin().lock().take(LARGEST).read_to_string(&mut read).map_err(|error| {
            CliError::new(CommandExit::Failed, "standard input cannot be read").why(describe_io_error(&error))
        })?;
        &read
    } else {
        input
    };
    let wrong = |why: String| {
        CliError::new(CommandExit::Usage, "the input is not a JSON object")
            .why(why)
            .hint("--input '{\"name\": \"value\"}'")
    };
    match serde_json::from_str(given) {
        Ok(Value::Object(arguments)) => Ok(Value::Object(arguments)),
        Ok(_) => Err(wrong("it is JSON of another type".into())),
        Err(error) => Err(wrong(error.to_string())),
    }
}
