//! Putting a backup back.
//!
//! Takes a backup that verifies and a place; gives a data folder whose gateway starts frozen. The database is marked before
//! it is put in place: every open write waits for a person and the record says from which backup it was restored. Promise:
//! nothing is replaced under a running gateway, nothing that was there is deleted, and a restore that was cut short leaves
//! a folder that no gateway starts on as if it were new.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::backup::{BackupEngine, Manifest};
use sluice_core::ids::MessageId;
use sluice_core::recovery::{Finding, FindingKind};
use sluice_store::backup::{DatabaseLock, restore_server};
use sluice_store::{Store, StoreError};

use super::BackupError;
use super::create::{BEFORE, LOCK, STAGING, Staging, make_folder, names, take_lock};
use super::lock::BackupKey;
use super::unpack::{DATABASE, DUMP, open_up, write_keys};
use super::verify::{Verified, VerifyParams, verify_into};
use crate::config::Database;
use crate::open::World;
use crate::recovery::mark_restored;

/// Where a backup is put.
#[derive(Debug, Clone)]
pub struct RestoreTarget {
    /// The data folder.
    pub data: PathBuf,
    /// Where the gateway remembers.
    pub database: Database,
    /// The folder for the configuration of the backup; without it, that is not put back.
    pub config: Option<PathBuf>,
}

/// What is put back, and where.
#[allow(missing_debug_implementations, reason = "the key may be a passphrase")]
pub struct RestoreParams<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// What opens it.
    pub key: &'a BackupKey,
    /// The envelope with its keys.
    pub keys: Option<&'a Path>,
    /// Where it goes.
    pub target: RestoreTarget,
    /// Whether what is there may be moved aside.
    pub replace: bool,
    /// Clock, ids and randomness.
    pub world: &'a World,
}

/// A backup that was put back.
#[derive(Debug)]
pub struct Restored {
    /// What was found to hold before anything was put in place.
    pub verified: Verified,
    /// Writes that were open and wait for a person now.
    pub set_aside: usize,
    /// Where what was there before lies now.
    pub before: Option<PathBuf>,
}

/// Puts a backup back.
///
/// # Errors
/// When a gateway runs there, something is in the way, the backup does not verify, or a file cannot be written.
pub async fn restore(params: RestoreParams<'_>) -> Result<Restored, BackupError> {
    let RestoreParams { backup, key, keys, target, replace, world } = params;
    make_folder(&target.data)?;
    let database_lock = match &target.database {
        Database::File(path) => {
            make_folder(path.parent().unwrap_or(&target.data))?;
            Some(DatabaseLock::take(path).map_err(|error| match error {
                StoreError::InUse => BackupError::Running,
                other => other.into(),
            })?)
        }
        Database::Server(_) => None,
    };
    let _alone = take_lock(&target.data)?;
    if !replace {
        refuse_what_is_there(&target)?;
    }
    let stamp = world.clock.now().as_millis().to_string();
    let staging = Staging::begin(&target.data, &format!("restore-{stamp}"))?;
    let verifying = VerifyParams { backup, key, keys, trusted: None, scratch: staging.path() };
    let (verified, enveloped) = verify_into(&verifying).await?;
    write_keys(&enveloped, staging.path())?;
    open_up(&verified.manifest, staging.path())?;

    let set_aside = match (&target.database, verified.manifest.engine) {
        (Database::File(_), BackupEngine::Sqlite) => {
            mark_file(&staging.path().join(DATABASE), &verified, world).await?
        }
        (Database::Server(url), BackupEngine::Postgres) => {
            restore_server(url.expose(), &staging.path().join(DUMP)).await.map_err(|error| match error {
                StoreError::Exists { .. } => BackupError::NotEmpty("the PostgreSQL database".into()),
                other => other.into(),
            })?;
            let store = Store::open_server(url.expose(), verified.manifest.node.clone())?;
            mark(&store, &verified.manifest, world).await?
        }
        (Database::File(_), BackupEngine::Postgres) => {
            return Err(BackupError::Key("the backup is of a PostgreSQL database, and the gateway has a file".into()));
        }
        (Database::Server(_), BackupEngine::Sqlite) => {
            return Err(BackupError::Key("the backup is of a database file, and the gateway has a server".into()));
        }
    };
    // From here on an empty place is one that lost its database: no gateway begins anew in it.
    database_lock.as_ref().map_or(Ok(()), DatabaseLock::expect_database)?;
    let before = move_aside(&target, &stamp)?;
    put_in_place(&target, staging.path())?;
    Ok(Restored { verified, set_aside, before })
}

/// Marks a database that nobody else has: frozen, everything open left to a person, on record.
async fn mark_file(path: &Path, verified: &Verified, world: &World) -> Result<usize, BackupError> {
    let store = Store::open_file(path, verified.manifest.node.clone(), Arc::clone(&world.clock))?;
    let set_aside = mark(&store, &verified.manifest, world).await?;
    drop(store);
    for end in [".lock", ".ballast", "-wal", "-shm"] {
        let mut beside = path.to_path_buf();
        beside.as_mut_os_string().push(end);
        drop(fs::remove_file(beside));
    }
    Ok(set_aside)
}

async fn mark(store: &Store, manifest: &Manifest, world: &World) -> Result<usize, BackupError> {
    let entries: u64 = manifest.logs.iter().map(|log| log.size).sum();
    let what = format!("{} of {}", manifest.backup, manifest.created_at);
    let finding = Finding::new(FindingKind::RestoredFromBackup, entries, what);
    let message = MessageId::mint(world.ids.as_ref());
    Ok(mark_restored(store, finding, message).await?.len())
}

/// Whether an entry of a data folder is something a restore would cover up.
fn is_in_the_way(name: &str, database: &str) -> bool {
    let own = name.starts_with(STAGING) || name.starts_with(BEFORE) || name == LOCK;
    !own && name != format!("{database}.lock")
}

fn database_name(target: &RestoreTarget) -> String {
    match &target.database {
        Database::File(path) => path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        Database::Server(_) => "sluice.db".to_owned(),
    }
}

fn refuse_what_is_there(target: &RestoreTarget) -> Result<(), BackupError> {
    let database = database_name(target);
    if names(&target.data)?.iter().any(|name| is_in_the_way(name, &database)) {
        return Err(BackupError::NotEmpty(format!("`{}`", target.data.display())));
    }
    if let Database::File(path) = &target.database
        && path.exists()
    {
        return Err(BackupError::Exists(path.display().to_string()));
    }
    let Some(config) = &target.config else { return Ok(()) };
    let other = names(config)?.into_iter().find(|name| !target.data.ends_with(name));
    match other {
        Some(_) => Err(BackupError::NotEmpty(format!("`{}`", config.display()))),
        None => Ok(()),
    }
}

/// Moves what is there into a folder beside it, on the same file system: nothing is deleted.
fn move_aside(target: &RestoreTarget, stamp: &str) -> Result<Option<PathBuf>, BackupError> {
    let database = database_name(target);
    let there: Vec<String> = names(&target.data)?.into_iter().filter(|name| is_in_the_way(name, &database)).collect();
    let folder = target.data.join(format!("{BEFORE}{stamp}"));
    let mut moved = false;
    for name in &there {
        make_folder(&folder)?;
        fs::rename(target.data.join(name), folder.join(name)).map_err(BackupError::Write)?;
        moved = true;
    }
    if let Database::File(path) = &target.database
        && !path.starts_with(&target.data)
    {
        for end in ["", "-wal", "-shm"] {
            let (mut old, mut new) = (path.clone(), path.clone());
            old.as_mut_os_string().push(end);
            new.as_mut_os_string().push(format!("{end}.{BEFORE}{stamp}"));
            if old.exists() {
                fs::rename(old, new).map_err(BackupError::Write)?;
                moved = true;
            }
        }
    }
    Ok(moved.then_some(folder))
}

/// Moves everything into place, the database last: without it no gateway starts.
fn put_in_place(target: &RestoreTarget, staged: &Path) -> Result<(), BackupError> {
    merge(&staged.join("data"), &target.data)?;
    if let Some(config) = &target.config {
        make_folder(config)?;
        merge(&staged.join("config"), config)?;
    }
    if let Database::File(path) = &target.database {
        let (from, to) = (staged.join(DATABASE), path);
        if fs::rename(&from, to).is_err() {
            // Another file system: copied under another name first, so that half of it is never taken for the database.
            let mut fresh = to.clone();
            fresh.as_mut_os_string().push(".restoring");
            fs::copy(&from, &fresh).map_err(BackupError::Write)?;
            File::open(&fresh).and_then(|file| file.sync_all()).map_err(BackupError::Write)?;
            fs::rename(&fresh, to).map_err(BackupError::Write)?;
        }
        sync_folder(path.parent().unwrap_or(&target.data))?;
    }
    sync_folder(&target.data)
}

/// Moves the content of a folder into another; folders that are there already are filled.
fn merge(from: &Path, to: &Path) -> Result<(), BackupError> {
    for name in names(from)? {
        let (old, new) = (from.join(&name), to.join(&name));
        if old.is_dir() {
            make_folder(&new)?;
            merge(&old, &new)?;
        } else if fs::rename(&old, &new).is_err() {
            fs::copy(&old, &new).map_err(BackupError::Write)?;
        }
    }
    if from.exists() { sync_folder(to) } else { Ok(()) }
}

fn sync_folder(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(BackupError::Write)
}
