//! Restores a backup.
//!
//! Takes a verified backup and a place; gives a data folder whose gateway starts frozen. The database is marked before
//! it is put in place: every open write waits for a person, and the audit log says from which backup it was restored.
//! Promise: nothing is replaced under a running gateway, no existing file is deleted, and an interrupted restore leaves
//! a folder on which no gateway starts as if it were new.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::DatabaseLocation;
use sluice_core::GatewayDeps;
use sluice_core::backup::{BackupEngine, BackupManifest};
use sluice_core::ids::MessageId;
use sluice_core::recovery::{RecoveryFinding, RecoveryFindingKind};
use sluice_store::backup::{DatabaseLock, restore_server};
use sluice_store::{Store, StoreError};

use super::BackupError;
use super::create::{BEFORE, LOCK, STAGING, StagingFolder, make_folder, names, take_lock};
use super::lock::BackupKey;
use super::unpack::{DATABASE, DUMP, open_up, write_keys};
use super::verify::{VerifiedBackup, VerifyBackupParams, verify_into};
use crate::recovery::mark_restored;

/// The target of a restore.
#[derive(Debug, Clone)]
pub struct RestoreTarget {
    /// The data folder.
    pub data: PathBuf,
    /// The database of the gateway.
    pub database: DatabaseLocation,
    /// The folder for the configuration in the backup; without it, the configuration is not restored.
    pub config: Option<PathBuf>,
}

/// The parameters of a restore.
#[allow(missing_debug_implementations, reason = "the key may be a passphrase")]
pub struct RestoreBackupParams<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// The key that opens it.
    pub key: &'a BackupKey,
    /// The envelope with its keys.
    pub keys: Option<&'a Path>,
    /// The target.
    pub target: RestoreTarget,
    /// Whether existing files may be moved aside.
    pub replace: bool,
    /// Clock, ids and randomness.
    pub world: &'a GatewayDeps,
}

/// The result of a restore.
#[derive(Debug)]
pub struct RestoredBackup {
    /// The result of the verification before anything was put in place.
    pub verified: VerifiedBackup,
    /// The number of open writes that now wait for a person.
    pub set_aside: usize,
    /// The folder that now holds the previous files.
    pub before: Option<PathBuf>,
}

/// Restores a backup.
///
/// # Errors
/// When a gateway runs there, the target is not empty, the backup does not verify, or a file cannot be written.
pub async fn restore(params: RestoreBackupParams<'_>) -> Result<RestoredBackup, BackupError> {
    let RestoreBackupParams { backup, key, keys, target, replace, world } = params;
    make_folder(&target.data)?;
    let database_lock = match &target.database {
        DatabaseLocation::File(path) => {
            make_folder(path.parent().unwrap_or(&target.data))?;
            Some(DatabaseLock::take(path).map_err(|error| match error {
                StoreError::InUse => BackupError::Running,
                other => other.into(),
            })?)
        }
        DatabaseLocation::Server(_) => None,
    };
    let _alone = take_lock(&target.data)?;
    if !replace {
        refuse_what_is_there(&target)?;
    }
    let stamp = world.clock.now().as_millis().to_string();
    let staging = StagingFolder::begin(&target.data, &format!("restore-{stamp}"))?;
    let verifying = VerifyBackupParams { backup, key, keys, trusted: None, scratch: staging.path() };
    let (verified, enveloped) = verify_into(&verifying).await?;
    write_keys(&enveloped, staging.path())?;
    open_up(&verified.manifest, staging.path())?;

    let set_aside = match (&target.database, verified.manifest.engine) {
        (DatabaseLocation::File(_), BackupEngine::Sqlite) => {
            mark_file(&staging.path().join(DATABASE), &verified, world).await?
        }
        (DatabaseLocation::Server(url), BackupEngine::Postgres) => {
            restore_server(url.expose(), &staging.path().join(DUMP)).await.map_err(|error| match error {
                StoreError::Exists { .. } => BackupError::NotEmpty("the PostgreSQL database".into()),
                other => other.into(),
            })?;
            let store = Store::open_server(url.expose(), verified.manifest.node.clone())?;
            mark(&store, &verified.manifest, world).await?
        }
        (DatabaseLocation::File(_), BackupEngine::Postgres) => {
            return Err(BackupError::Key("the backup is of a PostgreSQL database, and the gateway has a file".into()));
        }
        (DatabaseLocation::Server(_), BackupEngine::Sqlite) => {
            return Err(BackupError::Key("the backup is of a database file, and the gateway has a server".into()));
        }
    };
    // From here on an empty target is one that lost its database: no gateway starts as new in it.
    database_lock.as_ref().map_or(Ok(()), DatabaseLock::expect_database)?;
    let before = move_aside(&target, &stamp)?;
    put_in_place(&target, staging.path())?;
    Ok(RestoredBackup { verified, set_aside, before })
}

/// Marks a database that nothing else uses: frozen, every open write set aside for a person, recorded.
async fn mark_file(path: &Path, verified: &VerifiedBackup, world: &GatewayDeps) -> Result<usize, BackupError> {
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

async fn mark(store: &Store, manifest: &BackupManifest, world: &GatewayDeps) -> Result<usize, BackupError> {
    let entries: u64 = manifest.logs.iter().map(|log| log.size).sum();
    let what = format!("{} of {}", manifest.backup, manifest.created_at);
    let finding = RecoveryFinding::new(RecoveryFindingKind::RestoredFromBackup, entries, what);
    let message = MessageId::mint(world.ids.as_ref());
    Ok(mark_restored(store, finding, message).await?.len())
}

/// Whether a restore would overwrite an entry of a data folder.
fn is_in_the_way(name: &str, database: &str) -> bool {
    let own = name.starts_with(STAGING) || name.starts_with(BEFORE) || name == LOCK;
    !own && name != format!("{database}.lock")
}

fn database_name(target: &RestoreTarget) -> String {
    match &target.database {
        DatabaseLocation::File(path) => {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
        DatabaseLocation::Server(_) => "sluice.db".to_owned(),
    }
}

fn refuse_what_is_there(target: &RestoreTarget) -> Result<(), BackupError> {
    let database = database_name(target);
    if names(&target.data)?.iter().any(|name| is_in_the_way(name, &database)) {
        return Err(BackupError::NotEmpty(format!("`{}`", target.data.display())));
    }
    if let DatabaseLocation::File(path) = &target.database
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

/// Moves existing files into a folder next to them, on the same file system: nothing is deleted.
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
    if let DatabaseLocation::File(path) = &target.database
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
    if let DatabaseLocation::File(path) = &target.database {
        let (from, to) = (staged.join(DATABASE), path);
        if fs::rename(&from, to).is_err() {
            // Another file system: copied under a temporary name first, so that a partial copy is never taken for the
            // database.
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

/// Moves the content of a folder into another; existing folders are merged.
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
