//! `sluice backup`: copies of a running gateway, checked, put back and practised.
//!
//! Works on the files of this machine and asks no gateway: who may read the data folder may make a backup of it.

mod drill;
mod opening;

use std::fs::File;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_core::Timestamp;
use sluice_core::audit::key::VerifierKey;
use sluice_core::backup::Manifest;
use sluice_gateway::backup::{
    self as backups, BackupError, ContainerKind, CreateParams, RestoreParams, RestoreTarget, Verified, VerifyParams,
};
use sluice_gateway::config::{Around, Config, Database};
use sluice_gateway::open::World;

use self::opening::{For, Opening};
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::settings::{Which, host_name};
use crate::system::{SystemClock, SystemEntropy, SystemIds};
use crate::table::Table;

/// How the names of backups end.
const END: &str = "backup";
/// How long it is tried whether a gateway listens.
const KNOCK: Duration = Duration::from_millis(500);

/// Make, check, restore and practise backups.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice backup create --out /backups --keys-to /media/usb/gate.keys --passphrase-file phrase\n  \
    sluice backup verify /backups/gate.backup --passphrase-file phrase\n  \
    sluice backup drill /backups/gate.backup --keys /media/usb/gate.keys --passphrase-file phrase"
)]
pub(crate) struct Backup {
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a backup, while the gateway runs
    #[command(
        before_help = "Examples:\n  sluice backup create --out /backups --keys-to /media/usb/gate.keys --passphrase-file phrase\n  \
        sluice backup create --out /backups --no-keys --recipient backup_1f…"
    )]
    Create(Create),
    /// List the backups of a folder, as they say in the clear
    #[command(before_help = "Examples:\n  sluice backup list /backups")]
    List {
        /// The folder; this one if none is named
        #[arg(default_value = ".")]
        folder: PathBuf,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Prove a backup whole without restoring it
    #[command(before_help = "Examples:\n  sluice backup verify gate.backup --passphrase-file phrase --key audit.pub")]
    Verify(Verify),
    /// Put a backup back; the gateway starts frozen until an admin decides
    #[command(
        before_help = "Examples:\n  sluice backup restore gate.backup --keys gate.keys --passphrase-file phrase\n  \
        sluice backup restore gate.backup --keys gate.keys --passphrase-file phrase --to ./gate"
    )]
    Restore(Restore),
    /// Restore a backup into a temporary folder, open it, verify it, and leave nothing
    #[command(before_help = "Examples:\n  sluice backup drill gate.backup --keys gate.keys --passphrase-file phrase")]
    Drill(drill::Drill),
    /// Make a key for a recipient: backups made for it need no passphrase
    #[command(before_help = "Examples:\n  sluice backup key --out recipient.key")]
    Key {
        /// The file for the secret half; the public half is printed
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// For machines: the public half and the file of the secret one
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// The file of the backup, or a folder for it
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// A file for the keys, kept elsewhere than the backup
    #[arg(long, value_name = "FILE", required_unless_present = "no_keys")]
    keys_to: Option<PathBuf>,
    /// Leave the keys out: they are kept by somebody else
    #[arg(long, conflicts_with = "keys_to")]
    no_keys: bool,
    #[command(flatten)]
    lock: For,
    /// For machines: the manifest
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Verify {
    /// The backup
    backup: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// The envelope with its keys, to check that too
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The gateway's public key, known from elsewhere: sluice audit key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// A folder with room for the decrypted backup; the system's temporary folder if none is named
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// For machines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Restore {
    /// The backup
    backup: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// The envelope with its keys
    #[arg(long, value_name = "FILE", required_unless_present = "without_keys")]
    keys: Option<PathBuf>,
    /// The keys are put back by hand: without them the vault stays closed and the record cannot be signed
    #[arg(long, conflicts_with = "keys")]
    without_keys: bool,
    /// Restore everything, configuration included, into this folder instead of the configured data folder
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Move aside what is in the data folder
    #[arg(long)]
    replace: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        match self.verb {
            Verb::Create(create) => runtime.block_on(create.run(&self.which, screen)),
            Verb::List { folder, json } => list(&folder, json, screen),
            Verb::Verify(verify) => runtime.block_on(verify.run(&self.which, screen)),
            Verb::Restore(restore) => runtime.block_on(restore.run(&self.which, screen)),
            Verb::Drill(drill) => runtime.block_on(drill.run(screen)),
            Verb::Key { out, json } => {
                let recipient = opening::new_key(&out)?;
                if json {
                    screen.json(&json!({"recipient": recipient, "identity_file": out}))?;
                } else {
                    screen.line(&recipient)?;
                    let out = out.display();
                    screen.note(format_args!("the secret half is in {out}: keep it where no backup and no gateway is"));
                }
                Ok(Exit::Ok)
            }
        }
    }
}

/// Clock, ids and randomness of this machine.
fn world() -> World {
    World {
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        entropy: Arc::new(SystemEntropy),
        release: env!("CARGO_PKG_VERSION"),
    }
}

impl Create {
    async fn run(self, which: &Which, screen: &Screen) -> Result<Exit, Failure> {
        let (config, _) = which.load(Vec::new())?.or_fail(screen)?;
        let lock = self.lock.lock()?;
        let world = world();
        let out = match self.out.is_dir() {
            true => self.out.join(default_name(config.node.as_str(), world.clock.now())),
            false => self.out.clone(),
        };
        let params =
            CreateParams { config: &config, out: &out, keys_to: self.keys_to.as_deref(), lock: &lock, world: &world };
        let made = backups::create(params).await.map_err(failed)?;
        if let Some(keys) = &self.keys_to {
            warn_of_keys_beside(keys, &out, screen);
        }
        if self.json {
            screen
                .json(&json!({"backup": out, "keys": self.keys_to, "bytes": made.size, "manifest": made.manifest}))?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("backup       {}", out.display()))?;
        if let Some(keys) = &self.keys_to {
            screen.line(format_args!("keys         {} ({} files)", keys.display(), made.keys))?;
        }
        show_manifest(&made.manifest, screen)?;
        screen.line(format_args!("bytes        {}", made.size))?;
        if self.no_keys {
            screen.note("the keys are not backed up: without `keys/` the vault of this backup opens for nobody");
        }
        screen.note(format_args!("try it: sluice backup drill {}", out.display()));
        Ok(Exit::Ok)
    }
}

/// A name that sorts by time.
fn default_name(node: &str, now: Timestamp) -> String {
    let time: String = now.to_string().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    format!("sluice-{}-{time}.{END}", node.replace('/', "-"))
}

fn warn_of_keys_beside(keys: &Path, backup: &Path, screen: &Screen) {
    let folder = |path: &Path| path.parent().and_then(|folder| Path::new(".").join(folder).canonicalize().ok());
    let (Some(keys), Some(backup)) = (folder(keys), folder(backup)) else { return };
    if keys == backup || keys.starts_with(&backup) || backup.starts_with(&keys) {
        screen.note(
            "WARNING: the keys lie beside the backup. Who takes both and learns the passphrase has every secret of the vault and \
             can sign a record in your name: move the keys to another place",
        );
    }
}

fn show_manifest(manifest: &Manifest, screen: &Screen) -> Result<(), Failure> {
    screen.line(format_args!("made         {} by sluice {}", manifest.created_at, manifest.release))?;
    let instance = manifest.instance.as_deref().unwrap_or("-");
    screen.line(format_args!(
        "gateway      {instance}, node {}, start {}",
        manifest.node,
        manifest.epoch.unwrap_or(0)
    ))?;
    screen.line(format_args!("schema       {}", manifest.schema))?;
    for log in &manifest.logs {
        let signed = if log.checkpoint.is_some() { "with a signed checkpoint" } else { "not signed yet" };
        screen.line(format_args!("record       {}: {} entries, {signed}", log.log, log.size))?;
    }
    let bytes: u64 = manifest.files.iter().map(|file| file.size).sum();
    screen.line(format_args!("files        {}, {bytes} bytes", manifest.files.len()))?;
    for left in &manifest.left_out {
        screen.note(format_args!("left out: {}: {}", left.path, left.why));
    }
    Ok(())
}

fn list(folder: &Path, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(Exit::NotFound, format!("`{}` cannot be read", folder.display())).why(io_words(&error))
    };
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map_err(unreadable)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == END) && path.is_file());
    paths.sort();
    let mut table = Table::new(&["file", "made", "gateway", "bytes", "opens with", "state"]);
    let mut all = Vec::new();
    for path in paths {
        let size = path.metadata().map_or(0, |about| about.len());
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let read = File::open(&path).map(BufReader::new).map_err(|error| error.to_string());
        let read = read.and_then(|mut from| backups::header(&mut from).map_err(|error| error.to_string()));
        match read {
            Ok(header) if header.kind == ContainerKind::Backup => {
                let with = match &header.lock {
                    backups::LockParams::Passphrase { .. } => "passphrase".to_owned(),
                    backups::LockParams::Recipient { recipient, .. } => recipient.clone(),
                };
                let instance = header.instance.clone().unwrap_or_default();
                table.row(&[
                    name.clone(),
                    header.created_at.to_string(),
                    instance.clone(),
                    size.to_string(),
                    with.clone(),
                    "not checked".into(),
                ]);
                all.push(json!({"file": path, "created_at": header.created_at.to_string(), "instance": instance,
                    "bytes": size, "opens_with": with}));
            }
            Ok(_) => {}
            Err(why) => {
                table.row(&[name, String::new(), String::new(), size.to_string(), String::new(), why.clone()]);
                all.push(json!({"file": path, "bytes": size, "error": why}));
            }
        }
    }
    if json {
        screen.json(&json!({"data": all}))?;
    } else {
        table.print(screen, "there are no backups here")?;
        screen.note("a list says what files claim; sluice backup verify FILE proves it");
    }
    Ok(Exit::Ok)
}

impl Verify {
    async fn run(self, which: &Which, screen: &Screen) -> Result<Exit, Failure> {
        let trusted = match &self.key {
            Some(path) => Some(opening::public_key(path)?),
            None => own_key(which),
        };
        let scratch = opening::scratch(self.scratch.as_deref())?;
        let key = self.opening.key()?;
        let params = VerifyParams {
            backup: &self.backup,
            key: &key,
            keys: self.keys.as_deref(),
            trusted: trusted.as_ref(),
            scratch: scratch.path(),
        };
        let verified = backups::verify(params).await.map_err(failed)?;
        show_verified(&verified, self.json, screen)?;
        Ok(Exit::Ok)
    }
}

/// The public key of the gateway that is configured here, if there is one.
fn own_key(which: &Which) -> Option<VerifierKey> {
    let (config, _) = which.load(Vec::new()).ok()?.loaded.ok()?;
    opening::public_key(&config.data.join("keys").join("audit.pub")).ok()
}

fn show_verified(verified: &Verified, json: bool, screen: &Screen) -> Result<(), Failure> {
    if json {
        let logs: Vec<_> = verified
            .logs
            .iter()
            .map(|log| json!({"log": log.log, "entries": log.entries, "covered": log.covered}))
            .collect();
        return Ok(screen.json(&json!({"verified": true, "manifest": verified.manifest, "logs": logs,
            "signer": verified.signer.to_string(), "signer_known": verified.signer_known, "keys": verified.keys,
            "vault_opens": verified.vault_opens}))?);
    }
    show_manifest(&verified.manifest, screen)?;
    for log in &verified.logs {
        match log.covered {
            Some(covered) => screen.line(format_args!(
                "verified     {}: {} entries, {covered} of them under signed checkpoints",
                log.log, log.entries
            ))?,
            None => {
                screen.line(format_args!("chained      {}: {} entries; its key is not here", log.log, log.entries))?
            }
        }
    }
    match (verified.keys, verified.vault_opens) {
        (Some(keys), Some(true)) => {
            screen.line(format_args!("keys         {keys} files; the root key opens the vault"))?
        }
        (Some(keys), _) => screen.line(format_args!("keys         {keys} files"))?,
        (None, _) => {}
    }
    screen.line(format_args!("signed by    {}", verified.signer))?;
    if !verified.signer_known {
        screen.note("no key was named, so whoever made this backup may have made the key too; use --key with what `sluice audit key` printed");
    }
    Ok(())
}

impl Restore {
    async fn run(self, which: &Which, screen: &Screen) -> Result<Exit, Failure> {
        let target = match &self.to {
            Some(folder) => RestoreTarget {
                data: folder.join("data"),
                database: Database::File(folder.join("data").join("sluice.db")),
                config: Some(folder.clone()),
            },
            None => {
                let (config, _) = which.load(Vec::new())?.or_fail(screen)?;
                refuse_running(&config)?;
                RestoreTarget { data: config.data.clone(), database: config.database.clone(), config: None }
            }
        };
        let key = self.opening.key()?;
        let world = world();
        let data = target.data.clone();
        let params = RestoreParams {
            backup: &self.backup,
            key: &key,
            keys: self.keys.as_deref(),
            target,
            replace: self.replace,
            world: &world,
        };
        let restored = backups::restore(params).await.map_err(failed)?;
        let manifest = &restored.verified.manifest;
        if self.json {
            screen.json(&json!({"restored": true, "data": data, "set_aside": restored.set_aside,
                "before": restored.before, "backup": manifest.backup}))?;
        } else {
            screen.line(format_args!("restored     {} as of {}", data.display(), manifest.created_at))?;
            screen.line(format_args!(
                "open writes  {} wait for a person now; none is sent by itself",
                restored.set_aside
            ))?;
        }
        if let Some(before) = &restored.before {
            screen.note(format_args!("what was there lies in {}", before.display()));
        }
        if self.keys.is_none() {
            screen.note("no keys were restored: put `keys/` back by hand before you start the gateway");
        }
        match &self.to {
            Some(folder) => advise_moved(folder, manifest, screen),
            None => {
                let node = which.load(Vec::new())?.or_fail(screen)?.0.node;
                advise_node(&node, manifest, screen);
                screen.note("configuration and policies stay as they are; --to DIR writes those of the backup");
            }
        }
        screen.note(
            "the gateway starts frozen: sluice serve, then sluice recover, then sluice recover --restored-from-backup",
        );
        Ok(Exit::Ok)
    }
}

/// SECURITY: a gateway on a server has no lock on this folder; that it answers is reason enough.
fn refuse_running(config: &Config) -> Result<(), Failure> {
    if TcpStream::connect_timeout(&config.listen, KNOCK).is_err() {
        return Ok(());
    }
    Err(Failure::new(Exit::Conflict, format!("something answers at {} (backup.running)", config.listen))
        .why("a backup is not put back under a running gateway")
        .hint("stop it first"))
}

/// Says what the restored configuration means on this machine.
fn advise_moved(folder: &Path, manifest: &Manifest, screen: &Screen) {
    let file = folder.join("sluice.yaml");
    let around = Around { here: folder.to_path_buf(), host: host_name(), flags: Vec::new() };
    let Ok((config, _)) = Config::load(file.exists().then_some(file.as_path()), &[], &around) else {
        return screen.note(format_args!(
            "the restored configuration does not load here: sluice config check --config {}",
            file.display()
        ));
    };
    advise_node(&config.node, manifest, screen);
    let same = |one: &Path, other: &Path| one.canonicalize().ok() == other.canonicalize().ok();
    if !same(&config.data, &folder.join("data")) {
        let (wanted, there) = (config.data.display(), folder.join("data"));
        screen
            .note(format_args!("the configuration names {wanted}; start with --data {} or change it", there.display()));
    }
}

fn advise_node(node: &sluice_core::NodeName, manifest: &Manifest, screen: &Screen) {
    if *node != manifest.node {
        screen.note(format_args!(
            "this machine calls the gateway `{node}` and the backup is of `{}`: set `node: {}` before you start it",
            manifest.node, manifest.node
        ));
    }
}

/// What went wrong, and the next step.
fn failed(error: BackupError) -> Failure {
    let (exit, hint) = match &error {
        BackupError::Damaged { .. } | BackupError::Record(_) | BackupError::Signature(_) => {
            (Exit::NotVerified, "do not restore it; keep it and take another one")
        }
        BackupError::WrongKey => {
            (Exit::Denied, "is it the passphrase of this backup? sluice backup list shows how it opens")
        }
        BackupError::Key(_) => (Exit::Usage, "see sluice help backups"),
        BackupError::NeverStarted => {
            (Exit::NotFound, "start it once: sluice serve; or name its configuration: --config FILE")
        }
        BackupError::Busy => (Exit::Conflict, "wait for it, or end it"),
        BackupError::Running => (Exit::Conflict, "stop it first"),
        BackupError::NotEmpty(_) => (
            Exit::Conflict,
            "--replace moves a data folder aside; a PostgreSQL database has to be empty: name a new one",
        ),
        BackupError::Exists(_) => (Exit::Conflict, "choose another name"),
        BackupError::NoFolder(_) => {
            (Exit::NotFound, "mount its disk, or make it with mkdir -p; or name another folder: --out, --keys-to")
        }
        BackupError::Read { .. } | BackupError::Write(_) => (Exit::Failed, "look at the path and at the disk"),
        BackupError::Store(_) => (Exit::Failed, "sluice doctor looks at the database"),
    };
    Failure::new(exit, format!("{error} ({})", error.code())).hint(hint)
}
