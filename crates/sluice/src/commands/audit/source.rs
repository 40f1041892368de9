//! The source of the audit log: the running gateway, or a database file.
//!
//! Takes the options of the command line; gives logs with their keys, entries byte for byte, checkpoints and
//! proofs. Promise: without `--data` the gateway is asked; a database file is read instead only when no gateway was
//! named and none responds, and the command says so.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_config::DatabaseLocation;
use sluice_core::NodeName;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::export::AuditExportStart;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::tree::TreeFrontier;
use sluice_core::audit::{ChainHead, SealedAuditEntry};
use sluice_store::{Store, StoreError};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Most entries that are read from a file at once.
const FILE_PAGE: u32 = 4096;
/// Most items that are requested from the gateway at once.
const PAGE: u32 = 500;

/// The source of the audit log.
pub(super) enum AuditLogSource {
    /// A gateway that responded.
    Gateway(Box<GatewayClient>),
    /// A database file.
    File(Box<OpenDatabaseFile>),
}

/// An open database file.
pub(super) struct OpenDatabaseFile {
    pub(super) store: Store,
    pub(super) runtime: tokio::runtime::Runtime,
    /// The folder with the public keys beside it.
    keys: PathBuf,
}

/// One log.
#[derive(Debug, Clone)]
pub(super) struct SourcedAuditLog {
    pub(super) name: NodeName,
    pub(super) head: ChainHead,
    /// The key its checkpoints are verified with, if it is known here.
    pub(super) key: Option<VerifierKey>,
    /// Whether the gateway or file that is read signs this log itself, so that its key is first-hand.
    pub(super) is_own: bool,
    /// The state that replaces its archived entries.
    pub(super) start: Option<AuditExportStart>,
}

impl SourcedAuditLog {
    /// The first entry that is not archived.
    pub(super) fn first(&self) -> u64 {
        self.start.as_ref().map_or(0, |start| start.frontier.size())
    }
}

/// Opens the audit log.
pub(super) fn open(
    reach: &GatewayArgs,
    data: Option<&Path>,
    screen: &CommandConsole,
) -> Result<AuditLogSource, CliError> {
    if let Some(data) = data {
        return open_file(data);
    }
    let asked = reach.open_operator_client().and_then(|client| {
        client.get_all("/v1/audit/logs")?;
        Ok(AuditLogSource::Gateway(Box::new(client)))
    });
    let failure = match asked {
        Ok(source) => return Ok(source),
        Err(failure) => failure,
    };
    if !matches!(failure.exit, CommandExit::Unreachable | CommandExit::NotSignedIn) || reach.has_named_gateway()? {
        return Err(failure);
    }
    let Some(file) = configured(reach) else { return Err(failure) };
    screen.note(format_args!("{}; reading `{}` instead", failure.message, file.display()));
    open_file(&file)
}

/// The database file of the configuration, if it exists.
fn configured(reach: &GatewayArgs) -> Option<PathBuf> {
    let (config, _) = reach.which().load(Vec::new()).ok()?.loaded.ok()?;
    match config.database {
        DatabaseLocation::File(path) => Some(path).filter(|path| path.exists()),
        DatabaseLocation::Server(_) => None,
    }
}

/// Opens a database file for reading, even while a gateway uses it.
fn open_file(data: &Path) -> Result<AuditLogSource, CliError> {
    let file = if data.is_dir() { data.join("sluice.db") } else { data.to_owned() };
    let store = Store::open_to_read(&file).map_err(|error| match error {
        StoreError::NotFound { .. } => {
            CliError::new(CommandExit::NotFound, format!("no database found at `{}`", file.display()))
                .hint("give the data folder or the file: --data PATH")
        }
        other => of_store(other),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let keys = file.parent().unwrap_or(Path::new(".")).join("keys");
    Ok(AuditLogSource::File(Box::new(OpenDatabaseFile { store, runtime, keys })))
}

impl AuditLogSource {
    /// Lists all logs.
    pub(super) fn logs(&self) -> Result<Vec<SourcedAuditLog>, CliError> {
        match self {
            Self::Gateway(client) => {
                let list = client.get_all("/v1/audit/logs")?;
                entries(&list).iter().map(|log| read_log(log).ok_or_else(|| garbled(client))).collect()
            }
            Self::File(file) => {
                let found = file.runtime.block_on(file.store.logs()).map_err(of_store)?;
                let keys = file.keys();
                let of = |name: &NodeName| keys.iter().find(|key| key.name() == origin(name)).cloned();
                let log = |(name, head): (NodeName, ChainHead)| {
                    let key = of(&name);
                    let pruned = file.runtime.block_on(file.store.pruned_log(name.clone())).map_err(of_store)?;
                    let start = pruned.map(|pruned| pruned.start);
                    Ok(SourcedAuditLog { is_own: key.is_some(), key, name, head, start })
                };
                found.into_iter().map(log).collect()
            }
        }
    }

    /// The selected log: the named one, the only one, or this gateway's own.
    pub(super) fn pick(&self, wanted: Option<&NodeName>) -> Result<SourcedAuditLog, CliError> {
        let logs = self.logs()?;
        let names = || logs.iter().map(|log| log.name.to_string()).collect::<Vec<_>>().join(", ");
        if let Some(wanted) = wanted {
            return logs.iter().find(|log| log.name == *wanted).cloned().ok_or_else(|| {
                CliError::new(CommandExit::NotFound, format!("no log named `{wanted}`"))
                    .why(format!("the logs are: {}", names()))
            });
        }
        // The stop lane of a node may have a second log beside the node's own.
        let is_beside = |log: &SourcedAuditLog| {
            let node = log.name.as_str().strip_suffix("/stop");
            node.is_some_and(|node| logs.iter().any(|other| other.name.as_str() == node))
        };
        let mut own = logs.iter().filter(|log| log.is_own && !is_beside(log));
        match (logs.as_slice(), own.next(), own.next()) {
            ([only], _, _) => Ok(only.clone()),
            ([], _, _) => Err(CliError::new(CommandExit::NotFound, "the database has no log yet")),
            (_, Some(own), None) => Ok(own.clone()),
            (_, _, _) => Err(CliError::new(CommandExit::Usage, "there are several logs")
                .why(names())
                .hint("choose one: --log NAME")),
        }
    }

    /// Entries of a log from a position on; empty at its end.
    pub(super) fn entries(&self, log: &NodeName, from: u64, most: u32) -> Result<Vec<SealedAuditEntry>, CliError> {
        match self {
            Self::Gateway(client) => {
                let path = format!("/v1/audit/entries?raw=true&log={}", encode(log.as_str()));
                let page = client.send(&paged(&path, from, most.min(PAGE)))?;
                entries(&page).iter().map(|entry| read_sealed(entry).ok_or_else(|| garbled(client))).collect()
            }
            Self::File(file) => {
                let read = file.store.entries(log.clone(), from, most.min(FILE_PAGE));
                file.runtime.block_on(read).map_err(of_store)
            }
        }
    }

    /// Signed checkpoints of a log that cover more than this many entries, each with its size.
    pub(super) fn checkpoints(&self, log: &NodeName, after: u64) -> Result<Vec<(u64, SignedNote)>, CliError> {
        match self {
            Self::Gateway(client) => {
                let path = format!("/v1/audit/checkpoints?log={}", encode(log.as_str()));
                let page = client.send(&paged(&path, after, PAGE))?;
                let read = |signed: &Value| {
                    let note = SignedNote::parse(text_field(signed, "note").as_bytes()).ok()?;
                    Some((signed.get("size")?.as_u64()?, note))
                };
                entries(&page).iter().map(|signed| read(signed).ok_or_else(|| garbled(client))).collect()
            }
            Self::File(file) => {
                let read = file.store.checkpoints_after(log.clone(), after, FILE_PAGE);
                let found = file.runtime.block_on(read).map_err(of_store)?;
                Ok(found.into_iter().map(|signed| (signed.size, signed.note)).collect())
            }
        }
    }

    /// The proof of one entry, if a checkpoint covers it.
    pub(super) fn prove(&self, log: &NodeName, seq: u64) -> Result<Option<String>, CliError> {
        match self {
            Self::Gateway(client) => {
                let ask = ApiRequest::get("/v1/audit/proof").with("log", Some(log)).with("seq", Some(seq));
                match client.send(&ask) {
                    Ok(found) => Ok(Some(text_field(&found, "proof").to_owned())),
                    Err(failure) if failure.exit == CommandExit::NotFound => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
            Self::File(file) => {
                let proof = file.runtime.block_on(file.store.prove(log.clone(), seq)).map_err(of_store)?;
                Ok(proof.map(|proof| proof.to_string()))
            }
        }
    }
}

impl OpenDatabaseFile {
    /// The public keys beside the database.
    fn keys(&self) -> Vec<VerifierKey> {
        let files = std::fs::read_dir(&self.keys).into_iter().flatten().filter_map(Result::ok).map(|file| file.path());
        let public = files.filter(|path| path.extension().is_some_and(|end| end == "pub"));
        public.filter_map(|path| super::read_key(&path).ok()).collect()
    }
}

fn paged(path: &str, cursor: u64, limit: u32) -> ApiRequest {
    ApiRequest::get(format!("{path}&cursor={cursor}&limit={limit}"))
}

fn read_log(log: &Value) -> Option<SourcedAuditLog> {
    let head = ChainHead { size: log.get("entries")?.as_u64()?, hash: text_field(log, "hash").parse().ok()? };
    let key = match log.get("key").and_then(Value::as_str) {
        Some(key) => Some(key.parse().ok()?),
        None => None,
    };
    let is_own = key.is_some() && text_field(log, "key_from") != "its_node";
    let start = match log.get("start") {
        Some(start) => Some(read_start(start)?),
        None => None,
    };
    Some(SourcedAuditLog { name: text_field(log, "log").parse().ok()?, head, key, is_own, start })
}

fn read_start(start: &Value) -> Option<AuditExportStart> {
    let peaks = start.get("peaks")?.as_array()?.iter().map(|peak| peak.as_str()?.parse().ok());
    let frontier = TreeFrontier::from_parts(start.get("size")?.as_u64()?, peaks.collect::<Option<_>>()?).ok()?;
    Some(AuditExportStart { frontier, head: text_field(start, "head").parse().ok()? })
}

fn read_sealed(entry: &Value) -> Option<SealedAuditEntry> {
    let (seq, hash) = (entry.get("seq")?.as_u64()?, text_field(entry, "hash").parse().ok()?);
    Some(SealedAuditEntry { seq, hash, body: entry.get("body")?.as_str()?.as_bytes().to_vec() })
}

fn garbled(client: &GatewayClient) -> CliError {
    CliError::new(CommandExit::Failed, format!("the audit log from {} is not understood", client.address()))
        .hint("compare the releases: sluice status, sluice version")
}

pub(super) fn of_store(error: StoreError) -> CliError {
    let exit = match &error {
        StoreError::Damaged { .. } | StoreError::Impossible { .. } => CommandExit::NotVerified,
        _ => CommandExit::Failed,
    };
    CliError::new(exit, format!("the database cannot be used ({})", error.code())).why(error.to_string())
}
