//! Where the record is read: from the running gateway, or from a database file.
//!
//! Takes what was named on the command line; gives logs with their keys, entries to the byte, checkpoints and
//! proofs. Promise: without `--data` the gateway is asked, and a file is read in its place only when no gateway was
//! named and none answers, and then that is said.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_core::NodeName;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::Note;
use sluice_core::audit::{Head, Sealed};
use sluice_gateway::config::Database;
use sluice_store::{Store, StoreError};

use crate::client::{Ask, Client, Reach, encode, entries, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Most entries that are read at once from a file.
const FILE_PAGE: u32 = 4096;
/// Most of anything that is asked of the gateway at once.
const PAGE: u32 = 500;

/// Where the record is read.
pub(super) enum Source {
    /// A gateway that answered.
    Gateway(Box<Client>),
    /// A database file.
    File(Box<OpenFile>),
}

/// A database file that is being read.
pub(super) struct OpenFile {
    pub(super) store: Store,
    pub(super) runtime: tokio::runtime::Runtime,
    /// Where the public keys lie beside it.
    keys: PathBuf,
}

/// One log.
#[derive(Debug, Clone)]
pub(super) struct Log {
    pub(super) name: NodeName,
    pub(super) head: Head,
    /// What its checkpoints are checked with, as far as it is known here.
    pub(super) key: Option<VerifierKey>,
    /// Whether whoever is asked signs it, and so knows the key first-hand.
    pub(super) is_own: bool,
}

/// Opens the record.
pub(super) fn open(reach: &Reach, data: Option<&Path>, screen: &Screen) -> Result<Source, Failure> {
    if let Some(data) = data {
        return open_file(data);
    }
    let asked = reach.operator().and_then(|client| {
        client.whole("/v1/audit/logs")?;
        Ok(Source::Gateway(Box::new(client)))
    });
    let failure = match asked {
        Ok(source) => return Ok(source),
        Err(failure) => failure,
    };
    if !matches!(failure.exit, Exit::Unreachable | Exit::NotSignedIn) || reach.names_a_gateway()? {
        return Err(failure);
    }
    let Some(file) = configured(reach) else { return Err(failure) };
    screen.note(format_args!("{}; reading `{}` instead", failure.message, file.display()));
    open_file(&file)
}

/// The database file of the configuration, if it has one that is there.
fn configured(reach: &Reach) -> Option<PathBuf> {
    let (config, _) = reach.which().load(Vec::new()).ok()?.loaded.ok()?;
    match config.database {
        Database::File(path) => Some(path).filter(|path| path.exists()),
        Database::Server(_) => None,
    }
}

/// Opens a database to read it, whoever else has it open.
fn open_file(data: &Path) -> Result<Source, Failure> {
    let file = if data.is_dir() { data.join("sluice.db") } else { data.to_owned() };
    let store = Store::open_to_read(&file).map_err(|error| match error {
        StoreError::NotFound { .. } => {
            Failure::new(Exit::NotFound, format!("there is no database at `{}`", file.display()))
                .hint("name the data folder or the file: --data PATH")
        }
        other => of_store(other),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let keys = file.parent().unwrap_or(Path::new(".")).join("keys");
    Ok(Source::File(Box::new(OpenFile { store, runtime, keys })))
}

impl Source {
    /// Every log there is.
    pub(super) fn logs(&self) -> Result<Vec<Log>, Failure> {
        match self {
            Self::Gateway(client) => {
                let list = client.whole("/v1/audit/logs")?;
                entries(&list).iter().map(|log| read_log(log).ok_or_else(|| garbled(client))).collect()
            }
            Self::File(file) => {
                let found = file.runtime.block_on(file.store.logs()).map_err(of_store)?;
                let keys = file.keys();
                let of = |name: &NodeName| keys.iter().find(|key| key.name() == origin(name)).cloned();
                let log = |(name, head)| {
                    let key = of(&name);
                    Log { is_own: key.is_some(), key, name, head }
                };
                Ok(found.into_iter().map(log).collect())
            }
        }
    }

    /// The log that is meant: the one named, the only one, or this gateway's own.
    pub(super) fn pick(&self, wanted: Option<&NodeName>) -> Result<Log, Failure> {
        let logs = self.logs()?;
        let names = || logs.iter().map(|log| log.name.to_string()).collect::<Vec<_>>().join(", ");
        if let Some(wanted) = wanted {
            return logs.iter().find(|log| log.name == *wanted).cloned().ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("there is no log `{wanted}`"))
                    .why(format!("there are: {}", names()))
            });
        }
        // A node's stop lane may have a log beside the node's own.
        let is_beside = |log: &Log| {
            let node = log.name.as_str().strip_suffix("/stop");
            node.is_some_and(|node| logs.iter().any(|other| other.name.as_str() == node))
        };
        let mut own = logs.iter().filter(|log| log.is_own && !is_beside(log));
        match (logs.as_slice(), own.next(), own.next()) {
            ([only], _, _) => Ok(only.clone()),
            ([], _, _) => Err(Failure::new(Exit::NotFound, "the record has no log yet")),
            (_, Some(own), None) => Ok(own.clone()),
            (_, _, _) => {
                Err(Failure::new(Exit::Usage, "the record has several logs").why(names()).hint("name one: --log NAME"))
            }
        }
    }

    /// Entries of a log from a place on: some, or none at its end.
    pub(super) fn entries(&self, log: &NodeName, from: u64, most: u32) -> Result<Vec<Sealed>, Failure> {
        match self {
            Self::Gateway(client) => {
                let path = format!("/v1/audit/entries?raw=true&log={}", encode(log.as_str()));
                let page = client.ask(&paged(&path, from, most.min(PAGE)))?;
                entries(&page).iter().map(|entry| read_sealed(entry).ok_or_else(|| garbled(client))).collect()
            }
            Self::File(file) => {
                let read = file.store.entries(log.clone(), from, most.min(FILE_PAGE));
                file.runtime.block_on(read).map_err(of_store)
            }
        }
    }

    /// Signed checkpoints of a log that cover more than so many entries: some, or none. Each with its size.
    pub(super) fn checkpoints(&self, log: &NodeName, after: u64) -> Result<Vec<(u64, Note)>, Failure> {
        match self {
            Self::Gateway(client) => {
                let path = format!("/v1/audit/checkpoints?log={}", encode(log.as_str()));
                let page = client.ask(&paged(&path, after, PAGE))?;
                let read = |signed: &Value| {
                    let note = Note::parse(text(signed, "note").as_bytes()).ok()?;
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
    pub(super) fn prove(&self, log: &NodeName, seq: u64) -> Result<Option<String>, Failure> {
        match self {
            Self::Gateway(client) => {
                let ask = Ask::get("/v1/audit/proof").with("log", Some(log)).with("seq", Some(seq));
                match client.ask(&ask) {
                    Ok(found) => Ok(Some(text(&found, "proof").to_owned())),
                    Err(failure) if failure.exit == Exit::NotFound => Ok(None),
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

impl OpenFile {
    /// The public keys that lie beside the database.
    fn keys(&self) -> Vec<VerifierKey> {
        let files = std::fs::read_dir(&self.keys).into_iter().flatten().filter_map(Result::ok).map(|file| file.path());
        let public = files.filter(|path| path.extension().is_some_and(|end| end == "pub"));
        public.filter_map(|path| super::read_key(&path).ok()).collect()
    }
}

fn paged(path: &str, cursor: u64, limit: u32) -> Ask {
    Ask::get(format!("{path}&cursor={cursor}&limit={limit}"))
}

fn read_log(log: &Value) -> Option<Log> {
    let head = Head { size: log.get("entries")?.as_u64()?, hash: text(log, "hash").parse().ok()? };
    let key = match log.get("key").and_then(Value::as_str) {
        Some(key) => Some(key.parse().ok()?),
        None => None,
    };
    let is_own = key.is_some() && text(log, "key_from") != "its_node";
    Some(Log { name: text(log, "log").parse().ok()?, head, key, is_own })
}

fn read_sealed(entry: &Value) -> Option<Sealed> {
    let (seq, hash) = (entry.get("seq")?.as_u64()?, text(entry, "hash").parse().ok()?);
    Some(Sealed { seq, hash, body: entry.get("body")?.as_str()?.as_bytes().to_vec() })
}

fn garbled(client: &Client) -> Failure {
    Failure::new(Exit::Failed, format!("what {} says of the record makes no sense", client.address()))
        .hint("is it the release of this command? sluice status, sluice version")
}

pub(super) fn of_store(error: StoreError) -> Failure {
    let exit = match &error {
        StoreError::Damaged { .. } | StoreError::Impossible { .. } => Exit::NotVerified,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("the database cannot be used ({})", error.code())).why(error.to_string())
}
