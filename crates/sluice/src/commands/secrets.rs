//! `sluice secrets`: credentials the gateway uses on behalf of agents.
//!
//! Promise: a value comes from stdin or a file, never from the command line, and is never printed.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::Span;
use sluice_core::ids::SecretName;

use crate::client::{Ask, Reach, encode, entries, shown, text};
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::span::span;
use crate::table::Table;
use crate::watch::{self, Listing};

/// Longest value that is read.
const LONGEST: u64 = 64 * 1024;

/// List, set, replace and revoke secrets the gateway uses for agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice secrets list\n  sluice secrets set crm --capability network.credentialed_request --host api.crm.example < crm.key\n  sluice secrets rotate crm --file new.key\n  sluice secrets revoke crm"
)]
pub(crate) struct Secrets {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List secrets by name and scope; never values
    #[command(before_help = "Examples:\n  sluice secrets list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what a secret is bound to; never its value
    #[command(before_help = "Examples:\n  sluice secrets show crm")]
    Show {
        /// Its name
        name: SecretName,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Set a secret and what it is bound to
    #[command(
        before_help = "Examples:\n  sluice secrets set crm --capability network.credentialed_request --host api.crm.example < crm.key"
    )]
    Set {
        /// Its name
        name: SecretName,
        /// A capability it may be used by: `email.send`, `email.*`
        #[arg(long, required = true, value_name = "NAME")]
        capability: Vec<String>,
        /// A host it may be sent to: `api.example.com`, `*.example.com`
        #[arg(long, required = true, value_name = "HOST")]
        host: Vec<String>,
        /// What kind of thing it is: `api_key`, `oauth_token`, `password`, `other`
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        from: From,
    },
    /// Give a secret a new value within its scope
    #[command(before_help = "Examples:\n  sluice secrets rotate crm --file new.key --overlap 1h")]
    Rotate {
        /// Its name
        name: SecretName,
        /// How long the old value is still kept out of answers
        #[arg(long, value_parser = span, default_value = "1h")]
        overlap: Span,
        #[command(flatten)]
        from: From,
    },
    /// Destroy every value of a secret
    #[command(before_help = "Examples:\n  sluice secrets revoke crm")]
    Revoke {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

/// Where the value comes from.
#[derive(Debug, Args)]
struct From {
    /// Read the value from this file instead of stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl From {
    fn value(&self) -> Result<String, Failure> {
        value(self.file.as_deref())
    }
}

/// A value from a file, or from standard input.
pub(crate) fn value(file: Option<&Path>) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(Exit::Failed, "the value could not be read").why(io_words(&error));
    let mut value = String::new();
    match file {
        Some(path) => fs::File::open(path).map_err(failed)?.take(LONGEST + 1).read_to_string(&mut value),
        None if io::stdin().is_terminal() => {
            return Err(Failure::new(Exit::Usage, "a value typed here would be shown")
                .hint("pipe it in, or name a file: --file FILE"));
        }
        None => io::stdin().lock().take(LONGEST + 1).read_to_string(&mut value),
    }
    .map_err(failed)?;
    // A file ends with a line break; a credential does not.
    let end = value.trim_end_matches(['\r', '\n']).len();
    value.truncate(end);
    Ok(value)
}

impl Secrets {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let place = |name: &SecretName| format!("/v1/secrets/{}", encode(name.as_str()));
        match self.verb {
            Verb::List { listing } => {
                let client = self.reach.operator()?;
                let fetch = || client.whole("/v1/secrets");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { name, json } => {
                let secret = self.reach.operator()?.ask(&Ask::get(place(&name)))?;
                show(&secret, json, screen)
            }
            Verb::Set { name, capability, host, kind, from } => {
                let value = from.value()?;
                let body = json!({"value": value, "kind": kind, "capabilities": capability, "hosts": host});
                let secret = self.reach.operator()?.ask(&Ask::put(place(&name)).body(body))?;
                screen.note(format_args!("set {name}, version {}", shown(&secret, "version")));
                if from.json { show(&secret, true, screen) } else { Ok(Exit::Ok) }
            }
            Verb::Rotate { name, overlap, from } => {
                let value = from.value()?;
                let body = json!({"value": value, "overlap_s": overlap.as_secs()});
                let secret = self.reach.operator()?.ask(&Ask::post(format!("{}/rotate", place(&name))).body(body))?;
                screen.note(format_args!("{name} has a new value, version {}", shown(&secret, "version")));
                if from.json { show(&secret, true, screen) } else { Ok(Exit::Ok) }
            }
            Verb::Revoke { names, json } => {
                let client = self.reach.operator()?;
                watch::each(screen, &names, |name| {
                    client.ask(&Ask::delete(format!("/v1/secrets/{}", encode(name))).stops())?;
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

fn show(secret: &Value, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    if json {
        screen.json(secret)?;
        return Ok(Exit::Ok);
    }
    let state = if secret.get("revoked") == Some(&Value::Bool(true)) { "revoked" } else { "set" };
    for (name, value) in [
        ("secret", text(secret, "name").to_owned()),
        ("kind", shown(secret, "type")),
        ("state", state.to_owned()),
        ("version", shown(secret, "version")),
        ("capabilities", joined(secret, "allowed_capabilities")),
        ("hosts", joined(secret, "allowed_hosts")),
        ("since", shown(secret, "created_at")),
        ("changed", shown(secret, "updated_at")),
    ] {
        screen.line(format_args!("{name:<13} {value}"))?;
    }
    Ok(Exit::Ok)
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["secret", "kind", "version", "capabilities", "hosts", "changed", "state"]);
    for secret in entries(list) {
        let cell = |name| shown(secret, name);
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
    table.print(screen, "there are no secrets")
}
