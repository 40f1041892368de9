//! `sluice backup drill`: a restore that is practised, timed, and gone afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use sluice_core::backup::BackupEngine;
use sluice_core::{Clock as _, Span};
use sluice_gateway::backup::{self as backups, RestoreParams, RestoreTarget, VerifyParams};
use sluice_gateway::config::Database;
use sluice_store::Store;

use super::opening::{self, Opening};
use super::{failed, world};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::system::SystemClock;

/// Restore a backup into a temporary folder, open it, verify it, and leave nothing.
#[derive(Debug, Args)]
pub(crate) struct Drill {
    /// The backup
    backup: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// The envelope with its keys
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// For a backup of PostgreSQL: a file with the URL of an empty database, which is empty again afterwards
    #[arg(long, value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// A folder with room for the restored gateway; the system's temporary folder if none is named
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Drill {
    pub(super) async fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let key = self.opening.key()?;
        let scratch = opening::scratch(self.scratch.as_deref())?;
        let mut times = Times::start();
        let looked = scratch.path().join("verify");
        let params = VerifyParams {
            backup: &self.backup,
            key: &key,
            keys: self.keys.as_deref(),
            trusted: None,
            scratch: &looked,
        };
        let verified = backups::verify(params).await.map_err(failed)?;
        drop(std::fs::remove_dir_all(&looked));
        times.lap("verify");

        let data = scratch.path().join("gateway").join("data");
        let database = match (verified.manifest.engine, &self.database_url_file) {
            (BackupEngine::Sqlite, _) => Database::File(data.join("sluice.db")),
            (BackupEngine::Postgres, Some(file)) => {
                let url = crate::commands::secrets::value(Some(file))?;
                Database::server(&url).map_err(|why| Failure::new(Exit::Usage, "that is no database").why(why))?
            }
            (BackupEngine::Postgres, None) => {
                return Err(Failure::new(Exit::Usage, "a backup of PostgreSQL is practised on an empty database")
                    .hint("createdb drill; then name a file with its URL: --database-url-file FILE"));
            }
        };
        let world = world();
        let target = RestoreTarget {
            data: data.clone(),
            database: database.clone(),
            config: Some(scratch.path().join("gateway")),
        };
        let params = RestoreParams {
            backup: &self.backup,
            key: &key,
            keys: self.keys.as_deref(),
            target,
            replace: false,
            world: &world,
        };
        let restored = backups::restore(params).await.map_err(failed)?;
        times.lap("restore");

        let opened = look(&database, &restored.verified.manifest.node).await;
        if let Database::Server(url) = &database {
            sluice_store::backup::empty_server(url.expose()).await.map_err(|error| failed(error.into()))?;
        }
        let (is_frozen, waiting) = (opened?, restored.set_aside);
        times.lap("open");
        if !is_frozen {
            return Err(Failure::new(Exit::NotVerified, "the restored gateway would not start frozen (backup.record)"));
        }
        let vault = restored.verified.vault_opens;
        if self.json {
            screen.json(&json!({"drilled": true, "backup": verified.manifest.backup, "open_writes": waiting,
                "vault_opens": vault, "milliseconds": times.as_json()}))?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("backup       {} of {}", verified.manifest.backup, verified.manifest.created_at))?;
        for (what, took) in &times.laps {
            screen.line(format_args!("{what:<12} {took}"))?;
        }
        let entries: u64 = verified.logs.iter().map(|log| log.entries).sum();
        screen.line(format_args!("record       {entries} entries verify"))?;
        screen.line(format_args!("open writes  {waiting} would wait for a person; none would be sent"))?;
        match vault {
            Some(true) => screen.line("vault        opens with the root key of the envelope")?,
            Some(false) | None => {
                screen.note("whether the vault opens was not tried: no envelope with a root key was named (--keys)")
            }
        }
        screen.line("the drill succeeded; nothing is left of it")?;
        Ok(Exit::Ok)
    }
}

/// Opens the restored database as a gateway would. Says whether it is frozen.
async fn look(database: &Database, node: &sluice_core::NodeName) -> Result<bool, Failure> {
    let store = match database {
        Database::File(path) => Store::open_file(path, node.clone(), Arc::new(SystemClock)),
        Database::Server(url) => Store::open_server(url.expose(), node.clone()),
    };
    let of_store = |error: sluice_store::StoreError| failed(error.into());
    Ok(!store.map_err(of_store)?.suspecting().await.map_err(of_store)?.is_empty())
}

/// How long each part took.
struct Times {
    since: Span,
    laps: Vec<(&'static str, Span)>,
}

impl Times {
    fn start() -> Self {
        Self { since: SystemClock.since_boot(), laps: Vec::new() }
    }

    fn lap(&mut self, what: &'static str) {
        let now = SystemClock.since_boot();
        let took = Span::from_millis(now.as_millis().saturating_sub(self.since.as_millis()));
        self.laps.push((what, took));
        self.since = now;
    }

    fn as_json(&self) -> serde_json::Value {
        self.laps
            .iter()
            .map(|(what, took)| ((*what).to_owned(), json!(took.as_millis())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}
