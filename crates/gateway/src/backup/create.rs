//! Making a backup of a gateway that runs.
//!
//! Takes a configuration and a lock; gives a backup and an envelope with the keys. Databases are copied at one moment each
//! into a folder only we can read, everything else is read as it is. Promise: the file gets its name when all of it is on
//! the disk, and not before; the keys that open the vault, sign the record or let somebody in are in no backup.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::backup::{BackedUpFile, BackedUpLog, BackupEngine, FORM, LeftOut, Manifest, sign};
use sluice_core::ids::SecretName;
use sluice_core::{NodeName, hex};
use sluice_store::backup::{copy_file, dump_server, read_dump, sqlite_version};
use sluice_store::replica::{self, Key};
use sluice_store::{SCHEMA, Store, StoreError};

use super::container::{ContainerKind, ContainerWriter, EntryHead, Label};
use super::lock::BackupLock;
use super::{BackupError, record};
use crate::config::{Config, Database};
use crate::open::World;
use crate::vault::{Source, Vault};

/// Begins the names of folders that are ours and of no use later.
pub(super) const STAGING: &str = ".backup-";
/// Begins the names of folders in which a restore keeps what was there before.
pub(super) const BEFORE: &str = "before-restore-";
/// The lock of whoever makes or restores a backup.
pub(super) const LOCK: &str = ".backup.lock";
/// What is a credential or a key: it goes into the envelope, and into no backup.
const SECRETS: [&str; 4] = ["keys", "agents", "operator.token", "database.url"];
/// What is made anew, or must not be copied: scratch of running programs, and what is remembered outside the database.
const PASSING: [&str; 4] = ["git", "process", "recovery", "replicas"];
/// A larger file is copied aside first, so that one that shrinks meanwhile does not spoil the backup.
const IN_MEMORY: u64 = 32 << 20;

/// What a backup is made of, and for whom.
#[allow(missing_debug_implementations, reason = "the lock may hold a passphrase")]
pub struct CreateParams<'a> {
    /// The gateway.
    pub config: &'a Config,
    /// The file that becomes the backup; it must not exist.
    pub out: &'a Path,
    /// The file that becomes the envelope with the keys; without it they are in neither.
    pub keys_to: Option<&'a Path>,
    /// What both open with.
    pub lock: &'a BackupLock,
    /// Clock and randomness.
    pub world: &'a World,
}

/// A backup that was made.
#[derive(Debug)]
pub struct Created {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Bytes of the file.
    pub size: u64,
    /// How many keys are in the envelope.
    pub keys: usize,
}

/// Makes a backup.
///
/// # Errors
/// When the gateway was never started, a database cannot be copied, or the files cannot be written.
pub async fn create(params: CreateParams<'_>) -> Result<Created, BackupError> {
    let CreateParams { config, out, keys_to, lock, world } = params;
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
    let staging = Staging::begin(&config.data, &hex::encode(&id))?;
    let copied = copy_database(config, staging.path())?;
    let (facts, logs) = record::positions(&copied.record, &config.node, &public_keys(&config.data)).await?;
    let mut manifest = Manifest {
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
    // A copy that cannot be restored is found now, and not on the day it is needed.
    record::check(&copied.record, &manifest.logs, staging.path()).await?;
    let keys = copy_keys(&copied.record, config, world).await;
    let replicas = copy_replicas(&config.data.join("replicas"), staging.path(), &keys, &mut manifest.left_out)?;

    let label = Label {
        kind: ContainerKind::Backup,
        backup: &manifest.backup.clone(),
        created_at: manifest.created_at,
        instance: manifest.instance.clone(),
    };
    let mut target = Target::begin(out)?;
    let mut writer = ContainerWriter::begin(BufWriter::new(&mut target.file), &label, lock, world.entropy.as_ref())?;
    let mut adding = Adding { writer: &mut writer, manifest: &mut manifest, staging: staging.path() };
    adding.put(copied.path, &copied.file)?;
    adding.folder(&replicas, "data/replicas", &|_| true)?;
    adding.folder(&config.data, "data", &|name| belongs(name, config))?;
    adding.configuration(config)?;
    let bytes = serde_json::to_vec(&manifest).map_err(|error| BackupError::Write(error.into()))?;
    let note = sign(&bytes, &signer).map_err(|error| BackupError::Signature(error.to_string()))?.to_string();
    for (path, content) in [("manifest.json", bytes.as_slice()), ("manifest.note", note.as_bytes())] {
        writer.file(&EntryHead { path: path.to_owned(), size: content.len() as u64, mode: 0o600 }, content)?;
    }
    writer.finish()?;
    // The keys first: a backup whose keys could not be written would look complete.
    let count = match keys_to {
        Some(path) => envelope(path, &Label { kind: ContainerKind::Keys, ..label }, (config, lock, world))?,
        None => 0,
    };
    let size = target.keep()?;
    Ok(Created { manifest, size, keys: count })
}

/// The folder that a new file would lie in, if it is not there. A path that ends with `/` means a folder itself.
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
    /// The copy itself, and where it belongs in the backup.
    file: PathBuf,
    path: &'static str,
    /// A database file with its record.
    record: PathBuf,
    tools: BTreeMap<String, String>,
}

fn copy_database(config: &Config, staging: &Path) -> Result<CopiedDatabase, BackupError> {
    let mut tools = BTreeMap::new();
    match &config.database {
        Database::File(path) => {
            let copy = staging.join("sluice.db");
            copy_file(path, &copy)?;
            let examined = sluice_store::examine_file(&copy)?;
            tools.insert("sqlite".into(), sqlite_version().into());
            let (engine, schema, path) = (BackupEngine::Sqlite, examined.schema, super::unpack::DATABASE);
            Ok(CopiedDatabase { engine, schema, file: copy.clone(), path, record: copy, tools })
        }
        Database::Server(url) => {
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

/// The keys of copies of services that are sealed, by service; none where the vault cannot be opened from here.
async fn copy_keys(record: &Path, config: &Config, world: &World) -> BTreeMap<String, Key> {
    let read = async {
        let store = Arc::new(Store::open_to_read(record).ok()?);
        let vault = Vault::open(store, world, Source::of(config), Source::before(config)).await.ok()?;
        vault.live().await.ok()
    };
    let of = |name: &SecretName| Some(name.as_str().strip_prefix("service/")?.strip_suffix("/copy")?.to_owned());
    let live = read.await.unwrap_or_default();
    live.iter().filter_map(|(name, value)| Some((of(name)?, Key::from_hex(value.expose())?))).collect()
}

/// Copies the copies of connected services. One that is sealed and whose key cannot be had is left out, and said.
fn copy_replicas(
    folder: &Path,
    staging: &Path,
    keys: &BTreeMap<String, Key>,
    left_out: &mut Vec<LeftOut>,
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
            Err(StoreError::WrongKey) => left_out.push(LeftOut {
                path: format!("data/replicas/{name}"),
                why: "it is encrypted and its key cannot be had from here; the service gives it again".into(),
            }),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(to)
}

/// Whether an entry of the data folder goes into a backup as it is.
fn belongs(name: &str, config: &Config) -> bool {
    let database = match &config.database {
        Database::File(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or("sluice.db"),
        Database::Server(_) => "sluice.db",
    };
    let ours = [STAGING, BEFORE, LOCK].iter().any(|start| name.starts_with(start));
    !ours && !SECRETS.contains(&name) && !PASSING.contains(&name) && !name.starts_with(database)
}

/// Adds files to a backup and its manifest.
struct Adding<'a, W: Write> {
    writer: &'a mut ContainerWriter<W>,
    manifest: &'a mut Manifest,
    staging: &'a Path,
}

impl<W: Write> Adding<'_, W> {
    /// The files of a folder and those below it, in order of their names.
    fn folder(&mut self, folder: &Path, to: &str, wanted: &dyn Fn(&str) -> bool) -> Result<(), BackupError> {
        for name in names(folder)?.into_iter().filter(|name| wanted(name)) {
            let (path, target) = (folder.join(&name), format!("{to}/{name}"));
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                self.folder(&path, &target, &|_| true)?;
            } else if about.is_file() {
                self.put(&target, &path)?;
            } else {
                // SECURITY: a link leads out of the folder, to whatever somebody put there.
                self.leave_out(target, "it is a link or no plain file");
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: String, why: &str) {
        self.manifest.left_out.push(LeftOut { path, why: why.to_owned() });
    }

    /// One file, as it is now. One that is gone meanwhile was not there.
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
            self.leave_out(path.to_owned(), "its name cannot be put back");
            return Ok(());
        }
        let sha256 = self.writer.file(&EntryHead { path: path.to_owned(), size, mode }, content)?;
        self.manifest.files.push(BackedUpFile { path: path.to_owned(), size, sha256, mode });
        Ok(())
    }

    /// The configuration and the folders it names, as far as they are the gateway's own.
    fn configuration(&mut self, config: &Config) -> Result<(), BackupError> {
        let home = config.file.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        if let Some(file) = &config.file {
            self.put("config/sluice.yaml", file)?;
        }
        let folders =
            [("policies", &config.policies), ("proxies", &config.proxies), ("capabilities", &config.capabilities)];
        for (name, folder) in folders {
            // A folder below the data folder is in the backup already.
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

/// Writes the keys into a container of their own. Gives how many there are.
fn envelope(
    path: &Path,
    label: &Label<'_>,
    (config, lock, world): (&Config, &BackupLock, &World),
) -> Result<usize, BackupError> {
    let mut found = Vec::new();
    for name in SECRETS {
        files_below(&config.data.join(name), &format!("data/{name}"), &mut found)?;
    }
    let mut target = Target::begin(path)?;
    let mut writer = ContainerWriter::begin(BufWriter::new(&mut target.file), label, lock, world.entropy.as_ref())?;
    for (to, from) in &found {
        let content = zeroize::Zeroizing::new(fs::read(from).map_err(BackupError::read(from))?);
        let mode = fs::metadata(from).map_err(BackupError::read(from))?.mode() & 0o777;
        writer.file(&EntryHead { path: to.clone(), size: content.len() as u64, mode }, content.as_slice())?;
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

/// The names in a folder, sorted; none where there is no folder. A name that is no text cannot be of ours.
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

/// The public keys that lie beside the record.
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

/// One backup or restore of a data folder at a time.
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

/// A folder of ours inside the data folder, gone when it is dropped. What one that was killed left behind goes with it.
pub(super) struct Staging(PathBuf);

impl Staging {
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

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted by the next backup.
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(BackupError::Write)
}

/// A file that gets its name when it is whole.
struct Target {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    is_kept: bool,
}

impl Target {
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
        // Never over a file that came meanwhile.
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

impl Drop for Target {
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
