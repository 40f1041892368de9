//! Creates a backup of a running gateway.
//!
//! Takes a configuration and a lock; gives a backup and an envelope with the keys. Each database is copied as of one
//! moment into a private folder; everything else is read as it is. Promise: the file gets its name only when it is
//! complete on disk; the keys that open the vault, sign the audit log or authenticate anyone are in no backup.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::{Config, DatabaseLocation};
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::backup::{BackedUpFile, BackedUpLog, BackupEngine, BackupManifest, BackupOmission, FORM, sign};
use sluice_core::ids::SecretName;
use sluice_core::{GatewayDeps, NodeName, hex};
use sluice_egress::vault::{RootKeySource, Vault};
use sluice_store::backup::{copy_file, dump_server, read_dump, sqlite_version};
use sluice_store::replica::{self, SealKey};
use sluice_store::{SCHEMA, Store, StoreError};

use super::container::{ContainerEntryHeader, ContainerKind, ContainerLabel, ContainerWriter};
use super::lock::BackupLock;
use super::{BackupError, record};

/// The name prefix of temporary folders.
pub(super) const STAGING: &str = ".backup-";
/// The name prefix of folders in which a restore keeps the previous files.
pub(super) const BEFORE: &str = "before-restore-";
/// The lock file for making or restoring a backup.
pub(super) const LOCK: &str = ".backup.lock";
/// Credentials and keys: they go into the envelope, and never into a backup.
const SECRETS: [&str; 4] = ["keys", "agents", "operator.token", "database.url"];
/// Folders that are recreated, or must not be copied: temporary files of running programs, and the state outside the
/// database.
const PASSING: [&str; 4] = ["git", "process", "recovery", "replicas"];
/// A larger file is copied to a temporary file first, so that a file that shrinks meanwhile does not damage the backup.
const IN_MEMORY: u64 = 32 << 20;

/// The parameters of a backup.
#[allow(missing_debug_implementations, reason = "the lock may hold a passphrase")]
pub struct CreateBackupParams<'a> {
    /// The gateway.
    pub config: &'a Config,
    /// The file that becomes the backup; it must not exist.
    pub out: &'a Path,
    /// The file that becomes the envelope with the keys; without it the keys are saved nowhere.
    pub keys_to: Option<&'a Path>,
    /// The lock of both files.
    pub lock: &'a BackupLock,
    /// Clock and randomness.
    pub world: &'a GatewayDeps,
}

/// The result of a backup.
#[derive(Debug)]
pub struct CreatedBackup {
    /// The manifest.
    pub manifest: BackupManifest,
    /// The size of the file, in bytes.
    pub size: u64,
    /// The number of keys in the envelope.
    pub keys: usize,
}

/// Makes a backup.
///
/// # Errors
/// When the gateway was never started, a database cannot be copied, or the files cannot be written.
pub async fn create(params: CreateBackupParams<'_>) -> Result<CreatedBackup, BackupError> {
    let CreateBackupParams { config, out, keys_to, lock, world } = params;
    if let Some(path) = [Some(out), keys_to].into_iter().flatten().find(|path| path.exists()) {
        return Err(BackupError::Exists(path.display().to_string()));
    }
    // Before the database is copied, which takes a while.
    if let Some(folder) = [Some(out), keys_to].into_iter().flatten().find_map(missing_folder) {
        return Err(BackupError::NoFolder(folder));
    }
    let signer = read_signer(&config.data)?;
    let _alone = take_lock(&config.data)?;
    let mut id = [0; 16];
    world.entropy.fill(&mut id);
    let staging = StagingFolder::begin(&config.data, &hex::encode(&id))?;
    let copied = copy_database(config, staging.path())?;
    let (facts, logs) = record::positions(&copied.record, &config.node, &public_keys(&config.data)).await?;
    let mut manifest = BackupManifest {
        form: FORM.to_owned(),
        backup: hex::encode(&id),
        created_at: world.clock.now(),
        release: world.release.to_owned(),
        instance: facts.instance,
        node: config.node.clone(),
        epoch: facts.epoch,
        engine: copied.engine,
        schema: copied.schema,
        logs,
        files: Vec::new(),
        left_out: Vec::new(),
        tools: copied.tools,
    };
    // A copy that cannot be restored is found now, not on the day it is needed.
    record::check(&copied.record, &manifest.logs, staging.path()).await?;
    let keys = copy_keys(&copied.record, config, world).await;
    let replicas = copy_replicas(&config.data.join("replicas"), staging.path(), &keys, &mut manifest.left_out)?;

    let label = ContainerLabel {
        kind: ContainerKind::Backup,
        backup: &manifest.backup.clone(),
        created_at: manifest.created_at,
        instance: manifest.instance.clone(),
    };
    let mut target = PartialBackupFile::begin(out)?;
    let mut writer = ContainerWriter::begin(BufWriter::new(&mut target.file), &label, lock, world.entropy.as_ref())?;
    let mut adding = BackupBuilder { writer: &mut writer, manifest: &mut manifest, staging: staging.path() };
    adding.put(copied.path, &copied.file)?;
    adding.folder(&replicas, "data/replicas", &|_| true)?;
    adding.folder(&config.data, "data", &|name| belongs(name, config))?;
    adding.configuration(config)?;
    let bytes = serde_json::to_vec(&manifest).map_err(|error| BackupError::Write(error.into()))?;
    let note = sign(&bytes, &signer).map_err(|error| BackupError::Signature(error.to_string()))?.to_string();
    for (path, content) in [("manifest.json", bytes.as_slice()), ("manifest.note", note.as_bytes())] {
        writer
            .file(&ContainerEntryHeader { path: path.to_owned(), size: content.len() as u64, mode: 0o600 }, content)?;
    }
    writer.finish()?;
    // The keys first: otherwise a backup whose keys could not be written would look complete.
    let count = match keys_to {
        Some(path) => envelope(path, &ContainerLabel { kind: ContainerKind::Keys, ..label }, (config, lock, world))?,
        None => 0,
    };
    let size = target.keep()?;
    Ok(CreatedBackup { manifest, size, keys: count })
}

/// The folder of a new file, if it does not exist. A path that ends with `/` names a folder itself.
fn missing_folder(file: &Path) -> Option<String> {
    let names_folder = file.as_os_str().as_encoded_bytes().ends_with(b"/");
    let folder = if names_folder { file } else { file.parent()? };
    let is_there = folder.as_os_str().is_empty() || folder.is_dir();
    (!is_there).then(|| folder.display().to_string())
}

/// The copy of a database.
struct CopiedDatabase {
    engine: BackupEngine,
    schema: i64,
    /// The copied file, and its place in the backup.
    file: PathBuf,
    path: &'static str,
    /// A database file with the audit log.
    record: PathBuf,
    tools: BTreeMap<String, String>,
}

fn copy_database(config: &Config, staging: &Path) -> Result<CopiedDatabase, BackupError> {
    let mut tools = BTreeMap::new();
    match &config.database {
        DatabaseLocation::File(path) => {
            let copy = staging.join("sluice.db");
            copy_file(path, &copy)?;
            let examined = sluice_store::examine_file(&copy)?;
            tools.insert("sqlite".into(), sqlite_version().into());
            let (engine, schema, path) = (BackupEngine::Sqlite, examined.schema, super::unpack::DATABASE);
            Ok(CopiedDatabase { engine, schema, file: copy.clone(), path, record: copy, tools })
        }
        DatabaseLocation::Server(url) => {
            let (dump, record) = (staging.join("database.dump"), staging.join("record.db"));
            tools.insert("pg_dump".into(), dump_server(url.expose(), &dump)?);
            let schema = read_dump(&dump, &record)?;
            if schema > SCHEMA {
                return Err(StoreError::NewerSchema { found: schema, known: SCHEMA }.into());
            }
            Ok(CopiedDatabase {
                engine: BackupEngine::Postgres,
                schema,
                file: dump,
                path: super::unpack::DUMP,
                record,
                tools,
            })
        }
    }
}

/// The keys of sealed replicas, by service; none if the vault cannot be opened from here.
async fn copy_keys(record: &Path, config: &Config, world: &GatewayDeps) -> BTreeMap<String, SealKey> {
    let read = async {
        let store = Arc::new(Store::open_to_read(record).ok()?);
        let vault = Vault::open(store, world, RootKeySource::of(config), RootKeySource::before(config)).await.ok()?;
        vault.live().await.ok()
    };
    let of = |name: &SecretName| Some(name.as_str().strip_prefix("service/")?.strip_suffix("/copy")?.to_owned());
    let live = read.await.unwrap_or_default();
    live.iter().filter_map(|(name, value)| Some((of(name)?, SealKey::from_hex(value.expose())?))).collect()
}

/// Copies the replicas of connected services. A sealed replica whose key is not available is left out and reported.
fn copy_replicas(
    folder: &Path,
    staging: &Path,
    keys: &BTreeMap<String, SealKey>,
    left_out: &mut Vec<BackupOmission>,
) -> Result<PathBuf, BackupError> {
    let to = staging.join("replicas");
    make_folder(&to)?;
    for name in names(folder)? {
        let path = folder.join(&name);
        if !path.is_dir() {
            continue;
        }
        match replica::back_up(&path, keys.get(&name), &to.join(&name)) {
            Ok(_) => {}
            Err(StoreError::WrongKey) => left_out.push(BackupOmission {
                path: format!("data/replicas/{name}"),
                why: "it is encrypted and its key is not available here; sync it from the service again".into(),
            }),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(to)
}

/// Whether an entry of the data folder is copied into a backup unchanged.
fn belongs(name: &str, config: &Config) -> bool {
    let database = match &config.database {
        DatabaseLocation::File(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or("sluice.db"),
        DatabaseLocation::Server(_) => "sluice.db",
    };
    let ours = [STAGING, BEFORE, LOCK].iter().any(|start| name.starts_with(start));
    !ours && !SECRETS.contains(&name) && !PASSING.contains(&name) && !name.starts_with(database)
}

/// Adds files to a backup and its manifest.
struct BackupBuilder<'a, W: Write> {
    writer: &'a mut ContainerWriter<W>,
    manifest: &'a mut BackupManifest,
    staging: &'a Path,
}

impl<W: Write> BackupBuilder<'_, W> {
    /// Adds the files of a folder and its subfolders, sorted by name.
    fn folder(&mut self, folder: &Path, to: &str, wanted: &dyn Fn(&str) -> bool) -> Result<(), BackupError> {
        for name in names(folder)?.into_iter().filter(|name| wanted(name)) {
            let (path, target) = (folder.join(&name), format!("{to}/{name}"));
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                self.folder(&path, &target, &|_| true)?;
            } else if about.is_file() {
                self.put(&target, &path)?;
            } else {
                // SECURITY: a link could lead to any place outside the folder.
                self.leave_out(target, "it is a link or not a regular file");
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: String, why: &str) {
        self.manifest.left_out.push(BackupOmission { path, why: why.to_owned() });
    }

    /// Adds one file, as it is now. A file that is gone meanwhile is skipped.
    fn put(&mut self, target: &str, path: &Path) -> Result<(), BackupError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(BackupError::read(path)(error)),
        };
        let about = file.metadata().map_err(BackupError::read(path))?;
        let mode = about.mode() & 0o777;
        if path.starts_with(self.staging) {
            return self.write(target, (about.len(), mode), file);
        }
        if about.len() > IN_MEMORY {
            let aside = self.staging.join("large");
            fs::copy(path, &aside).map_err(BackupError::read(path))?;
            let copy = File::open(&aside).map_err(BackupError::read(&aside))?;
            let size = copy.metadata().map_err(BackupError::read(&aside))?.len();
            self.write(target, (size, mode), copy)?;
            return fs::remove_file(&aside).map_err(BackupError::Write);
        }
        let mut content = Vec::new();
        file.take(about.len()).read_to_end(&mut content).map_err(BackupError::read(path))?;
        self.write(target, (content.len() as u64, mode), content.as_slice())
    }

    fn write(&mut self, path: &str, (size, mode): (u64, u32), content: impl io::Read) -> Result<(), BackupError> {
        if !sluice_core::backup::is_inside(path) {
            self.leave_out(path.to_owned(), "its name cannot be restored");
            return Ok(());
        }
        let sha256 = self.writer.file(&ContainerEntryHeader { path: path.to_owned(), size, mode }, content)?;
        self.manifest.files.push(BackedUpFile { path: path.to_owned(), size, sha256, mode });
        Ok(())
    }

    /// Adds the configuration and the folders it names, if they belong to the gateway.
    fn configuration(&mut self, config: &Config) -> Result<(), BackupError> {
        let home = config.file.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        if let Some(file) = &config.file {
            self.put("config/sluice.yaml", file)?;
        }
        let folders =
            [("policies", &config.policies), ("proxies", &config.proxies), ("capabilities", &config.capabilities)];
        for (name, folder) in folders {
            // A folder inside the data folder is in the backup already.
            if folder.starts_with(&config.data) || !folder.is_dir() {
                continue;
            }
            let inside = home.as_deref().and_then(|home| folder.strip_prefix(home).ok()).and_then(Path::to_str);
            let to = inside.filter(|inside| !inside.is_empty()).unwrap_or(name);
            self.folder(folder, &format!("config/{to}"), &|_| true)?;
        }
        Ok(())
    }
}

/// Writes the keys into their own container. Returns the number of keys.
fn envelope(
    path: &Path,
    label: &ContainerLabel<'_>,
    (config, lock, world): (&Config, &BackupLock, &GatewayDeps),
) -> Result<usize, BackupError> {
    let mut found = Vec::new();
    for name in SECRETS {
        files_below(&config.data.join(name), &format!("data/{name}"), &mut found)?;
    }
    let mut target = PartialBackupFile::begin(path)?;
    let mut writer = ContainerWriter::begin(BufWriter::new(&mut target.file), label, lock, world.entropy.as_ref())?;
    for (to, from) in &found {
        let content = zeroize::Zeroizing::new(fs::read(from).map_err(BackupError::read(from))?);
        let mode = fs::metadata(from).map_err(BackupError::read(from))?.mode() & 0o777;
        writer
            .file(&ContainerEntryHeader { path: to.clone(), size: content.len() as u64, mode }, content.as_slice())?;
    }
    writer.finish()?;
    target.keep()?;
    Ok(found.len())
}

fn files_below(path: &Path, to: &str, found: &mut Vec<(String, PathBuf)>) -> Result<(), BackupError> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => found.push((to.to_owned(), path.to_path_buf())),
        Ok(about) if about.is_dir() => {
            for name in names(path)? {
                files_below(&path.join(&name), &format!("{to}/{name}"), found)?;
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(BackupError::read(path)(error)),
    }
    Ok(())
}

/// The names in a folder, sorted; none if the folder does not exist. A name that is not UTF-8 is skipped.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, BackupError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BackupError::read(folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(BackupError::read(folder))?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The public keys next to the private signing keys.
fn public_keys(data: &Path) -> Vec<VerifierKey> {
    let files = names(&data.join("keys")).unwrap_or_default();
    let public = files.iter().filter(|name| name.ends_with(".pub"));
    public.filter_map(|name| fs::read_to_string(data.join("keys").join(name)).ok()?.trim().parse().ok()).collect()
}

fn read_signer(data: &Path) -> Result<SecretKey, BackupError> {
    let path = data.join("keys").join("audit.key");
    let text = match fs::read_to_string(&path) {
        Ok(text) => zeroize::Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(BackupError::NeverStarted),
        Err(error) => return Err(BackupError::read(&path)(error)),
    };
    SecretKey::parse(text.trim()).map_err(|error| BackupError::Signature(error.to_string()))
}

/// Locks a data folder: one backup or restore at a time.
pub(super) fn take_lock(data: &Path) -> Result<File, BackupError> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(data.join(LOCK));
    let file = file.map_err(BackupError::Write)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(BackupError::Busy),
        Err(std::fs::TryLockError::Error(error)) => Err(BackupError::Write(error)),
    }
}

/// A temporary folder inside the data folder, deleted when dropped, together with the remains of interrupted runs.
pub(super) struct StagingFolder(PathBuf);

impl StagingFolder {
    pub fn begin(data: &Path, name: &str) -> Result<Self, BackupError> {
        for left in names(data)?.iter().filter(|left| left.starts_with(STAGING) && *left != LOCK) {
            fs::remove_dir_all(data.join(left)).map_err(BackupError::Write)?;
        }
        let path = data.join(format!("{STAGING}{name}"));
        make_folder(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        // A folder that cannot be deleted now is deleted by the next backup.
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(BackupError::Write)
}

/// A file that gets its name when it is complete.
struct PartialBackupFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    is_kept: bool,
}

impl PartialBackupFile {
    fn begin(path: &Path) -> Result<Self, BackupError> {
        let mut partial = path.to_path_buf();
        partial.as_mut_os_string().push(".partial");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&partial);
        Ok(Self { file: file.map_err(BackupError::Write)?, partial, path: path.to_path_buf(), is_kept: false })
    }

    fn keep(mut self) -> Result<u64, BackupError> {
        self.file.sync_all().map_err(BackupError::Write)?;
        let size = self.file.metadata().map_err(BackupError::Write)?.len();
        // Never replaces a file that appeared meanwhile.
        fs::hard_link(&self.partial, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(self.path.display().to_string()),
            _ => BackupError::Write(error),
        })?;
        self.is_kept = true;
        fs::remove_file(&self.partial).map_err(BackupError::Write)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::Write)?;
        Ok(size)
    }
}

impl Drop for PartialBackupFile {
    fn drop(&mut self) {
        if !self.is_kept {
            drop(fs::remove_file(&self.partial));
        }
    }
}

/// The name of the key of a node's own log.
pub(super) fn own_key<'a>(logs: &'a [BackedUpLog], node: &NodeName) -> Option<&'a str> {
    logs.iter()
        .find(|log| log.log == *node)
        .and_then(|log| log.key.as_deref())
        .filter(|key| key.starts_with(&origin(node)))
}
