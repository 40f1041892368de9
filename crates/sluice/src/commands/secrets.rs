//! `sluice secrets`: credentials that the gateway uses for agents.
//!
//! Promise: a value comes from stdin or a file, never from the command line, and is never printed.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::ids::SecretName;

use crate::client::{ApiRequest, GatewayArgs, display_field, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::table::TextTable;
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// Longest value that is read.
const LONGEST: u64 = 64 * 1024;

/// List, set, rotate and revoke the secrets that the gateway uses for agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice secrets list\n  sluice secrets set crm --capability network.credentialed_request --host api.crm.example < crm.key\n  sluice secrets rotate crm --file new.key\n  sluice secrets revoke crm"
)]
pub(crate) struct SecretsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: SecretsSubcommand,
}

#[derive(Debug, Subcommand)]
enum SecretsSubcommand {
    /// List secrets by name and scope; values are never shown
    #[command(before_help = "Examples:\n  sluice secrets list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show what a secret may be used for; its value is never shown
    #[command(before_help = "Examples:\n  sluice secrets show crm")]
    Show {
        /// Name of the secret
        name: SecretName,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Set a secret and what it may be used for
    #[command(
        before_help = "Examples:\n  sluice secrets set crm --capability network.credentialed_request --host api.crm.example < crm.key"
    )]
    Set {
        /// Name of the secret
        name: SecretName,
        /// Capability that may use it: `email.send`, `email.*`; can be repeated
        #[arg(long, required = true, value_name = "NAME")]
        capability: Vec<String>,
        /// Host that it may be sent to: `api.example.com`, `*.example.com`; can be repeated
        #[arg(long, required = true, value_name = "HOST")]
        host: Vec<String>,
        /// Type of secret: `api_key`, `oauth_token`, `password`, `other`
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        from: SecretValueArgs,
    },
    /// Set a new value; what the secret may be used for does not change
    #[command(before_help = "Examples:\n  sluice secrets rotate crm --file new.key --overlap 1h")]
    Rotate {
        /// Name of the secret
        name: SecretName,
        /// How long the old value is still removed from responses
        #[arg(long, value_parser = span, default_value = "1h")]
        overlap: Millis,
        #[command(flatten)]
        from: SecretValueArgs,
    },
    /// Destroy all values of a secret
    #[command(before_help = "Examples:\n  sluice secrets revoke crm")]
    Revoke {
        /// Names of the secrets
        #[arg(required = true)]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The source of the value.
#[derive(Debug, Args)]
struct SecretValueArgs {
    /// Read the value from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl SecretValueArgs {
    fn value(&self) -> Result<String, CliError> {
        value(self.file.as_deref())
    }
}

/// Reads a value from a file, or from standard input.
pub(crate) fn value(file: Option<&Path>) -> Result<String, CliError> {
    let failed = |error: io::Error| {
        CliError::new(CommandExit::Failed, "the value could not be read").why(describe_io_error(&error))
    };
    let mut value = String::new();
    match file {
        Some(path) => fs::File::open(path).map_err(failed)?.take(LONGEST + 1).read_to_string(&mut value),
        None if io::stdin().is_terminal() => {
            return Err(CliError::new(CommandExit::Usage, "a value typed here would be visible on the screen")
                .hint("pipe it to the command, or give a file: --file FILE"));
        }
        None => io::stdin().lock().take(LONGEST + 1).read_to_string(&mut value),
    }
    .map_err(failed)?;
    // A file ends with a line break; a credential does not.
    let end = value.trim_end_matches(['\r', '\n']).len();
    value.truncate(end);
    Ok(value)
}

impl SecretsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let place = |name: &SecretName| format!("/v1/secrets/{}", encode(name.as_str()));
        match self.verb {
            SecretsSubcommand::List { listing } => {
                let client = self.reach.open_operator_client()?;
                let fetch = || client.get_all("/v1/secrets");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            SecretsSubcommand::Show { name, json } => {
                let secret = self.reach.open_operator_client()?.send(&ApiRequest::get(place(&name)))?;
                show(&secret, json, screen)
            }
            SecretsSubcommand::Set { name, capability, host, kind, from } => {
                let value = from.value()?;
                let body = json!({"value": value, "kind": kind, "capabilities": capability, "hosts": host});
                let secret = self.reach.open_operator_client()?.send(&ApiRequest::put(place(&name)).body(body))?;
                screen.note(format_args!("set {name}, version {}", display_field(&secret, "version")));
                if from.json { show(&secret, true, screen) } else { Ok(CommandExit::Ok) }
            }
            SecretsSubcommand::Rotate { name, overlap, from } => {
                let value = from.value()?;
                let body = json!({"value": value, "overlap_s": overlap.as_secs()});
                let secret = self
                    .reach
                    .open_operator_client()?
                    .send(&ApiRequest::post(format!("{}/rotate", place(&name))).body(body))?;
                screen.note(format_args!("{name} has a new value, version {}", display_field(&secret, "version")));
                if from.json { show(&secret, true, screen) } else { Ok(CommandExit::Ok) }
            }
            SecretsSubcommand::Revoke { names, json } => {
                let client = self.reach.open_operator_client()?;
                watch::each(screen, &names, |name| {
                    client.send(&ApiRequest::delete(format!("/v1/secrets/{}", encode(name))).via_stop_lane())?;
                    if json {
                        screen.json(&json!({"name": name, "revoked": true}))?;
                    }
                    screen.note(format_args!("revoked {name}"));
                    Ok(())
                })
            }
        }
    }
}

fn joined(secret: &Value, name: &str) -> String {
    let list = secret.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

fn show(secret: &Value, json: bool, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    if json {
        screen.json(secret)?;
        return Ok(CommandExit::Ok);
    }
    let state = if secret.get("revoked") == Some(&Value::Bool(true)) { "revoked" } else { "set" };
    for (name, value) in [
        ("secret", text_field(secret, "name").to_owned()),
        ("kind", display_field(secret, "type")),
        ("state", state.to_owned()),
        ("version", display_field(secret, "version")),
        ("capabilities", joined(secret, "allowed_capabilities")),
        ("hosts", joined(secret, "allowed_hosts")),
        ("since", display_field(secret, "created_at")),
        ("changed", display_field(secret, "updated_at")),
    ] {
        screen.line(format_args!("{name:<13} {value}"))?;
    }
    Ok(CommandExit::Ok)
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["secret", "kind", "version", "capabilities", "hosts", "changed", "state"]);
    for secret in entries(list) {
        let cell = |name| display_field(secret, name);
        let state = if secret.get("revoked") == Some(&Value::Bool(true)) { "revoked" } else { "set" };
        let (capabilities, hosts) = (joined(secret, "allowed_capabilities"), joined(secret, "allowed_hosts"));
        table.row(&[
            cell("name"),
            cell("type"),
            cell("version"),
            capabilities,
            hosts,
            cell("updated_at"),
            state.into(),
        ]);
    }
    table.print(screen, "no secrets")
}
