//! `sluice keys`: credentials of agents, people, inboxes and stated tasks.
//!
//! Promise: a new credential is shown once, to whoever asked; with `--out` it goes into a file nobody else
//! can read, and that file is made before the credential is.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sluice_core::{AgentName, PersonName, Span};

use crate::client::{Ask, Client, Kind, Reach, entries, private_file, shown, text};
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::span::span;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List, make, replace and revoke credentials.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice keys list\n  sluice keys create --agent bookkeeper --ttl 90d --out bookkeeper.key\n  sluice keys create --operator ann --role approver --out ann.token\n  sluice keys revoke key_0193f2"
)]
pub(crate) struct Keys {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List credentials; never what opens anything
    #[command(before_help = "Examples:\n  sluice keys list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Make a credential; it is shown once
    Create(Create),
    /// Replace a credential; the old one works on for a while
    #[command(before_help = "Examples:\n  sluice keys rotate key_0193f2 --overlap 1h --out bookkeeper.key")]
    Rotate {
        /// Its id, or the beginning of it
        id: String,
        /// How long the old one works on
        #[arg(long, value_parser = span, default_value = "1h")]
        overlap: Span,
        #[command(flatten)]
        made: Made,
    },
    /// Revoke a credential at once
    #[command(before_help = "Examples:\n  sluice keys revoke key_0193f2")]
    Revoke {
        /// Its id, or the beginning of it
        #[arg(required = true)]
        ids: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

/// Make a credential; it is shown once.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("whose").required(true)),
    before_help = "Examples:\n  sluice keys create --agent bookkeeper --ttl 90d --out bookkeeper.key\n  sluice keys create --operator ann --role approver --out ann.token\n  sluice keys create --inbox phone --label 'replies by text message' --out phone.key\n  sluice keys create --task-for bookkeeper --out bookkeeper.task"
)]
struct Create {
    /// For this agent
    #[arg(long, group = "whose", value_name = "NAME")]
    agent: Option<AgentName>,
    /// For this person
    #[arg(long, group = "whose", value_name = "NAME", requires = "role")]
    operator: Option<PersonName>,
    /// What that person may do
    #[arg(long, requires = "operator")]
    role: Option<Role>,
    /// For something that passes on people's replies
    #[arg(long, group = "whose", value_name = "NAME")]
    inbox: Option<String>,
    /// For a program that states what the user of this agent asked for
    #[arg(long, group = "whose", value_name = "AGENT")]
    task_for: Option<AgentName>,
    /// What people call it
    #[arg(long)]
    label: Option<String>,
    #[command(flatten)]
    made: Made,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Looks
    Viewer,
    /// Decides and stops
    Approver,
    /// Does everything
    Admin,
}

/// How a new credential is made and handed over.
#[derive(Debug, Args)]
struct Made {
    /// How long it works; for ever if not given
    #[arg(long, value_parser = span)]
    ttl: Option<Span>,
    /// Write it to this new file, for its owner only, instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Keys {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("key_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { listing } => {
                let fetch = || client.whole("/v1/keys");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Create(create) => {
                let role = create.role.map(|role| match role {
                    Role::Viewer => "viewer",
                    Role::Approver => "approver",
                    Role::Admin => "admin",
                });
                let body = json!({
                    "agent": create.agent, "operator": create.operator, "role": role, "inbox": create.inbox,
                    "task_for": create.task_for,
                    "label": create.label, "ttl_s": create.made.ttl.map(Span::as_secs),
                });
                create.made.hand_over(&client, screen, &Ask::post("/v1/keys").body(body))
            }
            Verb::Rotate { id, overlap, made } => {
                let id = client.id(Kind::Keys, &id)?;
                let body = json!({"overlap_s": overlap.as_secs(), "ttl_s": made.ttl.map(Span::as_secs)});
                let exit = made.hand_over(&client, screen, &Ask::post(format!("/v1/keys/{id}/rotate")).body(body))?;
                screen.note(format_args!("the old key works for another {overlap} at most"));
                Ok(exit)
            }
            Verb::Revoke { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Keys, typed)?;
                client.ask(&Ask::delete(format!("/v1/keys/{id}")).stops())?;
                if json {
                    screen.json(&json!({"key_id": id, "revoked": true}))?;
                }
                screen.note(format_args!("revoked {id}"));
                Ok(())
            }),
        }
    }
}

impl Made {
    fn hand_over(&self, client: &Client, screen: &Screen, ask: &Ask) -> Result<Exit, Failure> {
        // A place for it first: a credential that could not be kept would have to be revoked.
        let place = self.out.as_deref().map(private_file).transpose()?;
        let made = client.ask(ask);
        let (mut key, place) = match (made, place) {
            (Ok(key), place) => (key, place),
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some((_, path))) => {
                let _empty = fs::remove_file(path);
                return Err(failure);
            }
        };
        let token = text(&key, "token").to_owned();
        let id = shown(&key, "key_id");
        if let Some((mut file, path)) = place {
            let kept = file.write_all(format!("{token}\n").as_bytes()).and_then(|()| file.sync_all());
            kept.map_err(|error| {
                Failure::new(Exit::Failed, format!("`{}` could not be written", path.display()))
                    .why(io_words(&error))
                    .hint(format!("nobody has the key; revoke it: sluice keys revoke {id}"))
            })?;
            screen.note(format_args!("wrote {id} to {}", path.display()));
            // It is in one place now, and that is enough.
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
        Ok(Exit::Ok)
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|key| text(key, "key_id").to_owned()).collect();
    let mut table = Table::new(&["key", "kind", "name", "role", "label", "since", "until"]);
    for (key, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(key, name);
        let until = match text(key, "revoked_at") {
            "" => cell("expires_at"),
            at => format!("revoked {at}"),
        };
        table.row(&[id, cell("kind"), cell("name"), cell("role"), cell("label"), cell("created_at"), until]);
    }
    table.print(screen, "there are no keys")
}
