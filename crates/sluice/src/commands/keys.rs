//! `sluice keys`: credentials of agents, operators, inboxes and task programs.
//!
//! Promise: a new credential is shown once; with `--out` it goes into a file that only its owner can read, and that
//! file is created before the credential is.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sluice_core::{AgentName, Millis, PersonName};

use crate::client::{
    ApiRequest, GatewayArgs, GatewayClient, ListedIdKind, create_private_file, display_field, entries, text_field,
};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::table::{TextTable, short_ids};
use crate::time_args::span;
use crate::watch::{self, ListArgs};

/// List, create, rotate and revoke credentials.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice keys list\n  sluice keys create --agent bookkeeper --ttl 90d --out bookkeeper.key\n  sluice keys create --operator ann --role approver --out ann.token\n  sluice keys revoke key_0193f2"
)]
pub(crate) struct KeysCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: KeysSubcommand,
}

#[derive(Debug, Subcommand)]
enum KeysSubcommand {
    /// List credentials; the keys themselves are never shown
    #[command(before_help = "Examples:\n  sluice keys list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Create a credential; it is shown once
    Create(KeysCreateArgs),
    /// Replace a credential; the old one stays valid for a while
    #[command(before_help = "Examples:\n  sluice keys rotate key_0193f2 --overlap 1h --out bookkeeper.key")]
    Rotate {
        /// Key ID, or its first characters
        id: String,
        /// How long the old one stays valid
        #[arg(long, value_parser = span, default_value = "1h")]
        overlap: Millis,
        #[command(flatten)]
        made: KeysHandoverArgs,
    },
    /// Revoke a credential immediately
    #[command(before_help = "Examples:\n  sluice keys revoke key_0193f2")]
    Revoke {
        /// Key ID, or its first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Create a credential; it is shown once.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("whose").required(true)),
    before_help = "Examples:\n  sluice keys create --agent bookkeeper --ttl 90d --out bookkeeper.key\n  sluice keys create --operator ann --role approver --out ann.token\n  sluice keys create --inbox phone --label 'replies by text message' --out phone.key\n  sluice keys create --task-for bookkeeper --out bookkeeper.task"
)]
struct KeysCreateArgs {
    /// Key for this agent
    #[arg(long, group = "whose", value_name = "NAME")]
    agent: Option<AgentName>,
    /// Token for this operator
    #[arg(long, group = "whose", value_name = "NAME", requires = "role")]
    operator: Option<PersonName>,
    /// Role of the operator
    #[arg(long, requires = "operator")]
    role: Option<OperatorRoleArg>,
    /// Inbox key: for a program that forwards people's replies
    #[arg(long, group = "whose", value_name = "NAME")]
    inbox: Option<String>,
    /// Task key: for a program that states what this agent's user asked for
    #[arg(long, group = "whose", value_name = "AGENT")]
    task_for: Option<AgentName>,
    /// Label, shown in lists
    #[arg(long)]
    label: Option<String>,
    #[command(flatten)]
    made: KeysHandoverArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OperatorRoleArg {
    /// Can read
    Viewer,
    /// Can also decide approvals and freeze
    Approver,
    /// Can do everything
    Admin,
}

/// Options of a new credential.
#[derive(Debug, Args)]
struct KeysHandoverArgs {
    /// How long it is valid; no limit if not given
    #[arg(long, value_parser = span)]
    ttl: Option<Millis>,
    /// Write it to this new file, readable only by its owner, instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl KeysCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("key_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            KeysSubcommand::List { listing } => {
                let fetch = || client.get_all("/v1/keys");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            KeysSubcommand::Create(create) => {
                let role = create.role.map(|role| match role {
                    OperatorRoleArg::Viewer => "viewer",
                    OperatorRoleArg::Approver => "approver",
                    OperatorRoleArg::Admin => "admin",
                });
                let body = json!({
                    "agent": create.agent, "operator": create.operator, "role": role, "inbox": create.inbox,
                    "task_for": create.task_for,
                    "label": create.label, "ttl_s": create.made.ttl.map(Millis::as_secs),
                });
                create.made.hand_over(&client, screen, &ApiRequest::post("/v1/keys").body(body))
            }
            KeysSubcommand::Rotate { id, overlap, made } => {
                let id = client.resolve_id(ListedIdKind::Keys, &id)?;
                let body = json!({"overlap_s": overlap.as_secs(), "ttl_s": made.ttl.map(Millis::as_secs)});
                let exit =
                    made.hand_over(&client, screen, &ApiRequest::post(format!("/v1/keys/{id}/rotate")).body(body))?;
                screen.note(format_args!("the old key stays valid for {overlap} at most"));
                Ok(exit)
            }
            KeysSubcommand::Revoke { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Keys, typed)?;
                client.send(&ApiRequest::delete(format!("/v1/keys/{id}")).via_stop_lane())?;
                if json {
                    screen.json(&json!({"key_id": id, "revoked": true}))?;
                }
                screen.note(format_args!("revoked {id}"));
                Ok(())
            }),
        }
    }
}

impl KeysHandoverArgs {
    fn hand_over(
        &self,
        client: &GatewayClient,
        screen: &CommandConsole,
        ask: &ApiRequest,
    ) -> Result<CommandExit, CliError> {
        // The file first: a credential that could not be stored would have to be revoked.
        let place = self.out.as_deref().map(create_private_file).transpose()?;
        let made = client.send(ask);
        let (mut key, place) = match (made, place) {
            (Ok(key), place) => (key, place),
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some((_, path))) => {
                let _empty = fs::remove_file(path);
                return Err(failure);
            }
        };
        let token = text_field(&key, "token").to_owned();
        let id = display_field(&key, "key_id");
        if let Some((mut file, path)) = place {
            let kept = file.write_all(format!("{token}\n").as_bytes()).and_then(|()| file.sync_all());
            kept.map_err(|error| {
                CliError::new(CommandExit::Failed, format!("`{}` could not be written", path.display()))
                    .why(describe_io_error(&error))
                    .hint(format!("the new key is lost; revoke it: sluice keys revoke {id}"))
            })?;
            screen.note(format_args!("wrote {id} to {}", path.display()));
            // It is stored in one place now; that is enough.
            if let Some(fields) = key.as_object_mut() {
                fields.remove("token");
            }
        } else {
            screen.note(format_args!("{id}, shown once:"));
        }
        if self.json {
            screen.json(&key)?;
        } else if self.out.is_none() {
            screen.line(&token)?;
        }
        Ok(CommandExit::Ok)
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|key| text_field(key, "key_id").to_owned()).collect();
    let mut table = TextTable::new(&["key", "kind", "name", "role", "label", "since", "until"]);
    for (key, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(key, name);
        let until = match text_field(key, "revoked_at") {
            "" => cell("expires_at"),
            at => format!("revoked {at}"),
        };
        table.row(&[id, cell("kind"), cell("name"), cell("role"), cell("label"), cell("created_at"), until]);
    }
    table.print(screen, "no keys")
}
