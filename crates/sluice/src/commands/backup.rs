//! `sluice backup`: creates, verifies, restores and tests backups of a running gateway.
//!
//! Works on files of this machine and does not contact a gateway: anyone who may read the data folder may back it up.

mod drill;
mod unlock;

use std::fs::File;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_config::{Config, ConfigContext, DatabaseLocation};
use sluice_core::audit::key::VerifierKey;
use sluice_core::backup::BackupManifest;
use sluice_core::{GatewayDeps, UtcMillis};
use sluice_gateway::backup::{
    self as backups, BackupError, ContainerKind, CreateBackupParams, RestoreBackupParams, RestoreTarget,
    VerifiedBackup, VerifyBackupParams,
};

use self::unlock::{BackupRecipientArgs, BackupUnlockArgs};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::{ConfigFileArgs, host_name};
use crate::system::{SystemClock, SystemEntropy, SystemIds};
use crate::table::TextTable;

/// File name extension of backups.
const END: &str = "backup";
/// Timeout for testing whether a gateway listens.
const KNOCK: Duration = Duration::from_millis(500);

/// Create, verify, restore and test backups.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice backup create --out /backups --keys-to /media/usb/gate.keys --passphrase-file phrase\n  \
    sluice backup verify /backups/gate.backup --passphrase-file phrase\n  \
    sluice backup drill /backups/gate.backup --keys /media/usb/gate.keys --passphrase-file phrase"
)]
pub(crate) struct BackupCommand {
    #[command(flatten)]
    which: ConfigFileArgs,
    #[command(subcommand)]
    verb: BackupSubcommand,
}

#[derive(Debug, Subcommand)]
enum BackupSubcommand {
    /// Create a backup while the gateway runs
    #[command(
        before_help = "Examples:\n  sluice backup create --out /backups --keys-to /media/usb/gate.keys --passphrase-file phrase\n  \
        sluice backup create --out /backups --no-keys --recipient backup_1f…"
    )]
    Create(BackupCreateArgs),
    /// List the backups in a folder, from their unencrypted headers
    #[command(before_help = "Examples:\n  sluice backup list /backups")]
    List {
        /// Folder; default: the current one
        #[arg(default_value = ".")]
        folder: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Verify a backup without restoring it
    #[command(before_help = "Examples:\n  sluice backup verify gate.backup --passphrase-file phrase --key audit.pub")]
    Verify(BackupVerifyArgs),
    /// Restore a backup; the gateway starts frozen until an admin decides
    #[command(
        before_help = "Examples:\n  sluice backup restore gate.backup --keys gate.keys --passphrase-file phrase\n  \
        sluice backup restore gate.backup --keys gate.keys --passphrase-file phrase --to ./gate"
    )]
    Restore(BackupRestoreArgs),
    /// Test a backup: restore it into a temporary folder, open it, verify it, and remove everything
    #[command(before_help = "Examples:\n  sluice backup drill gate.backup --keys gate.keys --passphrase-file phrase")]
    Drill(drill::BackupDrillArgs),
    /// Create a recipient key: backups for it need no passphrase
    #[command(before_help = "Examples:\n  sluice backup key --out recipient.key")]
    Key {
        /// File for the secret key; the public key is printed
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Print JSON: the public key and the file of the secret key
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct BackupCreateArgs {
    /// File of the backup, or a folder for it
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// File for the keys; keep it elsewhere than the backup
    #[arg(long, value_name = "FILE", required_unless_present = "no_keys")]
    keys_to: Option<PathBuf>,
    /// Leave the keys out, because they are kept elsewhere
    #[arg(long, conflicts_with = "keys_to")]
    no_keys: bool,
    #[command(flatten)]
    lock: BackupRecipientArgs,
    /// Print the manifest as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BackupVerifyArgs {
    /// File of the backup
    backup: PathBuf,
    #[command(flatten)]
    opening: BackupUnlockArgs,
    /// File with its keys, to verify them too
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// File with the gateway's public key, known from elsewhere: sluice audit key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Folder with space for the decrypted backup; default: the system's temporary folder
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BackupRestoreArgs {
    /// File of the backup
    backup: PathBuf,
    #[command(flatten)]
    opening: BackupUnlockArgs,
    /// File with its keys
    #[arg(long, value_name = "FILE", required_unless_present = "without_keys")]
    keys: Option<PathBuf>,
    /// Restore without keys, because you restore them yourself: until then the vault stays closed and nothing is signed
    #[arg(long, conflicts_with = "keys")]
    without_keys: bool,
    /// Restore everything, including the configuration, into this folder instead of the configured data folder
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Move the current content of the data folder aside
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BackupCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        match self.verb {
            BackupSubcommand::Create(create) => runtime.block_on(create.run(&self.which, screen)),
            BackupSubcommand::List { folder, json } => list(&folder, json, screen),
            BackupSubcommand::Verify(verify) => runtime.block_on(verify.run(&self.which, screen)),
            BackupSubcommand::Restore(restore) => runtime.block_on(restore.run(&self.which, screen)),
            BackupSubcommand::Drill(drill) => runtime.block_on(drill.run(screen)),
            BackupSubcommand::Key { out, json } => {
                let recipient = unlock::new_key(&out)?;
                if json {
                    screen.json(&json!({"recipient": recipient, "identity_file": out}))?;
                } else {
                    screen.line(&recipient)?;
                    let out = out.display();
                    screen.note(format_args!("the secret key is in {out}: keep it apart from backups and gateways"));
                }
                Ok(CommandExit::Ok)
            }
        }
    }
}

/// The clock, ids and randomness of this machine.
fn world() -> GatewayDeps {
    GatewayDeps {
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        entropy: Arc::new(SystemEntropy),
        release: env!("CARGO_PKG_VERSION"),
    }
}

impl BackupCreateArgs {
    async fn run(self, which: &ConfigFileArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let (config, _) = which.load(Vec::new())?.or_fail(screen)?;
        let lock = self.lock.lock()?;
        let world = world();
        let out = match self.out.is_dir() {
            true => self.out.join(default_name(config.node.as_str(), world.clock.now())),
            false => self.out.clone(),
        };
        let params = CreateBackupParams {
            config: &config,
            out: &out,
            keys_to: self.keys_to.as_deref(),
            lock: &lock,
            world: &world,
        };
        let made = backups::create(params).await.map_err(failed)?;
        if let Some(keys) = &self.keys_to {
            warn_of_keys_beside(keys, &out, screen);
        }
        if self.json {
            screen
                .json(&json!({"backup": out, "keys": self.keys_to, "bytes": made.size, "manifest": made.manifest}))?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("backup       {}", out.display()))?;
        if let Some(keys) = &self.keys_to {
            screen.line(format_args!("keys         {} ({} files)", keys.display(), made.keys))?;
        }
        show_manifest(&made.manifest, screen)?;
        screen.line(format_args!("bytes        {}", made.size))?;
        if self.no_keys {
            screen.note("the keys are not in this backup: without `keys/` nobody can open its vault");
        }
        screen.note(format_args!("test it: sluice backup drill {}", out.display()));
        Ok(CommandExit::Ok)
    }
}

/// A file name that sorts by time.
fn default_name(node: &str, now: UtcMillis) -> String {
    let time: String = now.to_string().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    format!("sluice-{}-{time}.{END}", node.replace('/', "-"))
}

fn warn_of_keys_beside(keys: &Path, backup: &Path, screen: &CommandConsole) {
    let folder = |path: &Path| path.parent().and_then(|folder| Path::new(".").join(folder).canonicalize().ok());
    let (Some(keys), Some(backup)) = (folder(keys), folder(backup)) else { return };
    if keys == backup || keys.starts_with(&backup) || backup.starts_with(&keys) {
        screen.note(
            "WARNING: the keys are in the same folder as the backup. Anyone who has both and the passphrase has every secret of the vault and \
             can sign audit entries in your name: move the keys elsewhere",
        );
    }
}

fn show_manifest(manifest: &BackupManifest, screen: &CommandConsole) -> Result<(), CliError> {
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
        screen.line(format_args!("audit log    {}: {} entries, {signed}", log.log, log.size))?;
    }
    let bytes: u64 = manifest.files.iter().map(|file| file.size).sum();
    screen.line(format_args!("files        {}, {bytes} bytes", manifest.files.len()))?;
    for left in &manifest.left_out {
        screen.note(format_args!("not included: {}: {}", left.path, left.why));
    }
    Ok(())
}

fn list(folder: &Path, json: bool, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    let unreadable = |error: std::io::Error| {
        CliError::new(CommandExit::NotFound, format!("`{}` cannot be read", folder.display()))
            .why(describe_io_error(&error))
    };
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map_err(unreadable)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == END) && path.is_file());
    paths.sort();
    let mut table = TextTable::new(&["file", "made", "gateway", "bytes", "opens with", "state"]);
    let mut all = Vec::new();
    for path in paths {
        let size = path.metadata().map_or(0, |about| about.len());
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let read = File::open(&path).map(BufReader::new).map_err(|error| error.to_string());
        let read = read.and_then(|mut from| backups::header(&mut from).map_err(|error| error.to_string()));
        match read {
            Ok(header) if header.kind == ContainerKind::Backup => {
                let with = match &header.lock {
                    backups::BackupLockParams::Passphrase { .. } => "passphrase".to_owned(),
                    backups::BackupLockParams::Recipient { recipient, .. } => recipient.clone(),
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
        table.print(screen, "no backups here")?;
        screen.note("headers are not verified; verify a backup: sluice backup verify FILE");
    }
    Ok(CommandExit::Ok)
}

impl BackupVerifyArgs {
    async fn run(self, which: &ConfigFileArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let trusted = match &self.key {
            Some(path) => Some(unlock::public_key(path)?),
            None => own_key(which),
        };
        let scratch = unlock::scratch(self.scratch.as_deref())?;
        let key = self.opening.key()?;
        let params = VerifyBackupParams {
            backup: &self.backup,
            key: &key,
            keys: self.keys.as_deref(),
            trusted: trusted.as_ref(),
            scratch: scratch.path(),
        };
        let verified = backups::verify(params).await.map_err(failed)?;
        show_verified(&verified, self.json, screen)?;
        Ok(CommandExit::Ok)
    }
}

/// The public key of the gateway that is configured here, if there is one.
fn own_key(which: &ConfigFileArgs) -> Option<VerifierKey> {
    let (config, _) = which.load(Vec::new()).ok()?.loaded.ok()?;
    unlock::public_key(&config.data.join("keys").join("audit.pub")).ok()
}

fn show_verified(verified: &VerifiedBackup, json: bool, screen: &CommandConsole) -> Result<(), CliError> {
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
                "verified     {}: {} entries, {covered} of them covered by signed checkpoints",
                log.log, log.entries
            ))?,
            None => screen.line(format_args!(
                "chained      {}: {} entries; hash chain only, its key is not in the backup",
                log.log, log.entries
            ))?,
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
        screen.note("no key was given, so the author of this backup may have made the key too; use --key with what `sluice audit key` printed");
    }
    Ok(())
}

impl BackupRestoreArgs {
    async fn run(self, which: &ConfigFileArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let target = match &self.to {
            Some(folder) => RestoreTarget {
                data: folder.join("data"),
                database: DatabaseLocation::File(folder.join("data").join("sluice.db")),
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
        let params = RestoreBackupParams {
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
                "open writes  {} wait for a person; none is sent automatically",
                restored.set_aside
            ))?;
        }
        if let Some(before) = &restored.before {
            screen.note(format_args!("the previous content is in {}", before.display()));
        }
        if self.keys.is_none() {
            screen.note("no keys were restored: restore `keys/` yourself before you start the gateway");
        }
        match &self.to {
            Some(folder) => advise_moved(folder, manifest, screen),
            None => {
                let node = which.load(Vec::new())?.or_fail(screen)?.0.node;
                advise_node(&node, manifest, screen);
                screen.note("configuration and policies were not changed; use --to DIR to restore those of the backup");
            }
        }
        screen.note(
            "the gateway starts frozen: sluice serve, then sluice recover, then sluice recover --restored-from-backup",
        );
        Ok(CommandExit::Ok)
    }
}

/// SECURITY: a gateway with a database server has no lock on this folder; a listening port is reason enough to refuse.
fn refuse_running(config: &Config) -> Result<(), CliError> {
    if TcpStream::connect_timeout(&config.listen, KNOCK).is_err() {
        return Ok(());
    }
    Err(CliError::new(CommandExit::Conflict, format!("a process listens on {} (backup.running)", config.listen))
        .why("a backup cannot be restored while a gateway runs")
        .hint("stop the gateway first"))
}

/// Reports what in the restored configuration does not fit this machine.
fn advise_moved(folder: &Path, manifest: &BackupManifest, screen: &CommandConsole) {
    let file = folder.join("sluice.yaml");
    let around = ConfigContext { here: folder.to_path_buf(), host: host_name(), flags: Vec::new() };
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
        screen.note(format_args!(
            "the configuration uses the data folder {wanted}; start with --data {} or change it",
            there.display()
        ));
    }
}

fn advise_node(node: &sluice_core::NodeName, manifest: &BackupManifest, screen: &CommandConsole) {
    if *node != manifest.node {
        screen.note(format_args!(
            "the configured node is `{node}` and the backup is of node `{}`: set `node: {}` before you start it",
            manifest.node, manifest.node
        ));
    }
}

/// The failure for a backup error, with the next step.
fn failed(error: BackupError) -> CliError {
    let (exit, hint) = match &error {
        BackupError::Damaged { .. } | BackupError::Record(_) | BackupError::Signature(_) => {
            (CommandExit::NotVerified, "do not restore it; keep it and create a new backup")
        }
        BackupError::WrongKey => {
            (CommandExit::Denied, "check the passphrase or key; sluice backup list shows how it opens")
        }
        BackupError::Key(_) => (CommandExit::Usage, "see sluice help backups"),
        BackupError::NeverStarted => {
            (CommandExit::NotFound, "start the gateway once: sluice serve; or give its configuration: --config FILE")
        }
        BackupError::Busy => (CommandExit::Conflict, "wait until it ends, or stop it"),
        BackupError::Running => (CommandExit::Conflict, "stop the gateway first"),
        BackupError::NotEmpty(_) => (
            CommandExit::Conflict,
            "--replace moves a data folder aside; a PostgreSQL database must be empty: use a new one",
        ),
        BackupError::Exists(_) => (CommandExit::Conflict, "choose another name"),
        BackupError::NoFolder(_) => (
            CommandExit::NotFound,
            "mount its disk, or create it with mkdir -p; or choose another folder: --out, --keys-to",
        ),
        BackupError::Read { .. } | BackupError::Write(_) => (CommandExit::Failed, "check the path and the disk"),
        BackupError::Store(_) => (CommandExit::Failed, "check the database: sluice doctor"),
    };
    CliError::new(exit, format!("{error} ({})", error.code())).hint(hint)
}
