//! `sluice backup drill`: a test restore that is measured and removed afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use sluice_config::DatabaseLocation;
use sluice_core::backup::BackupEngine;
use sluice_core::{Clock as _, Millis};
use sluice_gateway::backup::{self as backups, RestoreBackupParams, RestoreTarget, VerifyBackupParams};
use sluice_store::Store;

use super::unlock::{self, BackupUnlockArgs};
use super::{failed, world};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::system::SystemClock;

/// Test a backup: restore it into a temporary folder, open it, verify it, and remove everything.
#[derive(Debug, Args)]
pub(crate) struct BackupDrillArgs {
    /// File of the backup
    backup: PathBuf,
    #[command(flatten)]
    opening: BackupUnlockArgs,
    /// File with its keys
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// For a backup of PostgreSQL: file with the URL of an empty database, which is empty again afterwards
    #[arg(long, value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// Folder with space for the restored gateway; default: the system's temporary folder
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BackupDrillArgs {
    pub(super) async fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let key = self.opening.key()?;
        let scratch = unlock::scratch(self.scratch.as_deref())?;
        let mut times = DrillTimings::start();
        let looked = scratch.path().join("verify");
        let params = VerifyBackupParams {
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
            (BackupEngine::Sqlite, _) => DatabaseLocation::File(data.join("sluice.db")),
            (BackupEngine::Postgres, Some(file)) => {
                let url = crate::commands::secrets::value(Some(file))?;
                DatabaseLocation::server(&url)
                    .map_err(|why| CliError::new(CommandExit::Usage, "not a database URL").why(why))?
            }
            (BackupEngine::Postgres, None) => {
                return Err(CliError::new(
                    CommandExit::Usage,
                    "a backup of PostgreSQL needs an empty database for the test",
                )
                .hint("createdb drill; then give a file with its URL: --database-url-file FILE"));
            }
        };
        let world = world();
        let target = RestoreTarget {
            data: data.clone(),
            database: database.clone(),
            config: Some(scratch.path().join("gateway")),
        };
        let params = RestoreBackupParams {
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
        if let DatabaseLocation::Server(url) = &database {
            sluice_store::backup::empty_server(url.expose()).await.map_err(|error| failed(error.into()))?;
        }
        let (is_frozen, waiting) = (opened?, restored.set_aside);
        times.lap("open");
        if !is_frozen {
            return Err(CliError::new(
                CommandExit::NotVerified,
                "the restored gateway would not start frozen (backup.record)",
            ));
        }
        let vault = restored.verified.vault_opens;
        if self.json {
            screen.json(&json!({"drilled": true, "backup": verified.manifest.backup, "open_writes": waiting,
                "vault_opens": vault, "milliseconds": times.as_json()}))?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("backup       {} of {}", verified.manifest.backup, verified.manifest.created_at))?;
        for (what, took) in &times.laps {
            screen.line(format_args!("{what:<12} {took}"))?;
        }
        let entries: u64 = verified.logs.iter().map(|log| log.entries).sum();
        screen.line(format_args!("audit log    {entries} entries verified"))?;
        screen.line(format_args!("open writes  {waiting} would wait for a person; none would be sent"))?;
        match vault {
            Some(true) => screen.line("vault        opens with the root key of the key file")?,
            Some(false) | None => {
                screen.note("the vault was not tested: no key file with a root key was given (--keys)")
            }
        }
        screen.line("the test restore succeeded; its files are removed")?;
        Ok(CommandExit::Ok)
    }
}

/// Opens the restored database as a gateway would. Returns whether it is frozen.
async fn look(database: &DatabaseLocation, node: &sluice_core::NodeName) -> Result<bool, CliError> {
    let store = match database {
        DatabaseLocation::File(path) => Store::open_file(path, node.clone(), Arc::new(SystemClock)),
        DatabaseLocation::Server(url) => Store::open_server(url.expose(), node.clone()),
    };
    let of_store = |error: sluice_store::StoreError| failed(error.into());
    Ok(!store.map_err(of_store)?.suspecting_nodes().await.map_err(of_store)?.is_empty())
}

/// How long each step took.
struct DrillTimings {
    since: Millis,
    laps: Vec<(&'static str, Millis)>,
}

impl DrillTimings {
    fn start() -> Self {
        Self { since: SystemClock.since_boot(), laps: Vec::new() }
    }

    fn lap(&mut self, what: &'static str) {
        let now = SystemClock.since_boot();
        let took = Millis::from_millis(now.as_millis().saturating_sub(self.since.as_millis()));
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
