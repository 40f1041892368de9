//! Recovery: is this database the one that this gateway wrote to last?
//!
//! Takes what the state file outside the database remembers and what the database contains; gives a [`StartupDecision`].
//! Promise: a database that lacks anything the file remembers, that has another history, or that belongs to another
//! gateway is suspected, and each difference is named with its position. The state after a crash is never suspected:
//! the database may be ahead of the file by as much as the file reserved, and by one start that the file announced.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::audit::AuditHash;
use crate::clock::UtcMillis;
use crate::ids::NodeName;

/// The form of the state file.
pub const FORM: &str = "sluicegate-state-v1";
/// How many audit entries a node may write before its state file has to be written again.
pub const RESERVED: u64 = 100_000;

/// The contents of the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayState {
    /// [`FORM`].
    pub form: String,
    /// The id of the gateway, as in the database.
    pub instance: String,
    /// The node that wrote the file.
    pub node: NodeName,
    /// The last start that both the file and the database know of. Zero before the first.
    pub epoch: u64,
    /// A start that was announced in the file and may or may not be in the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<u64>,
    /// Every audit log of the database, up to the entries that were durable when the file was written.
    pub logs: BTreeMap<NodeName, LogMark>,
    /// A person gave up the checkpoints before this byte of the checkpoints file.
    #[serde(default)]
    pub checkpoints_from: u64,
    /// The length of the checkpoints file.
    #[serde(default)]
    pub checkpoints_length: u64,
    /// Why the database is not trusted, until a person has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<DatabaseSuspicion>,
}

/// One audit log in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// Number of entries.
    pub size: u64,
    /// Hash of the last of them, or the genesis value.
    pub hash: AuditHash,
    /// The greatest number of entries before the file is written again; only for logs of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    /// The last checkpoint this node signed over it, as a signed note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<SignedMark>,
}

/// A signed checkpoint in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedMark {
    /// How many entries it covers.
    pub size: u64,
    /// The signed note.
    pub note: String,
}

/// Why a database is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSuspicion {
    /// When it was noticed.
    pub at: UtcMillis,
    /// What was found.
    pub findings: Vec<RecoveryFinding>,
    /// Whether a person has marked it as under investigation.
    #[serde(default)]
    pub investigating: bool,
}

/// One difference between the state file and the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoveryFinding {
    /// The kind of the difference.
    pub kind: RecoveryFindingKind,
    /// The audit log it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<NodeName>,
    /// Position, start or instance in the database.
    pub database: String,
    /// Position, start or instance in the state file.
    pub remembered: String,
}

/// The kinds of differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryFindingKind {
    /// There is no state file, although the database says that there was one.
    StateFileMissing,
    /// The state file cannot be read.
    StateFileUnreadable,
    /// The database belongs to another gateway.
    OtherInstance,
    /// The database does not know the last start.
    StartsBehind,
    /// The database knows starts that the file does not.
    StartsAhead,
    /// A log has fewer entries than the state file remembers.
    LogBehind,
    /// A log has different entries than the state file remembers.
    LogForked,
    /// A log has more entries than were reserved.
    LogAhead,
    /// A checkpoint that was signed is not in the database.
    CheckpointMissing,
    /// Entries of a log are missing or do not fit together.
    RecordDamaged,
    /// The log does not continue the last signed checkpoint.
    SigningRefused,
    /// `sluice backup restore` restored it from a backup.
    RestoredFromBackup,
}

impl RecoveryFindingKind {
    /// Stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::StateFileMissing => "recovery.state_file_missing",
            Self::StateFileUnreadable => "recovery.state_file_unreadable",
            Self::OtherInstance => "recovery.other_instance",
            Self::StartsBehind => "recovery.starts_behind",
            Self::StartsAhead => "recovery.starts_ahead",
            Self::LogBehind => "recovery.log_behind",
            Self::LogForked => "recovery.log_forked",
            Self::LogAhead => "recovery.log_ahead",
            Self::CheckpointMissing => "recovery.checkpoint_missing",
            Self::RecordDamaged => "recovery.record_damaged",
            Self::SigningRefused => "recovery.signing_refused",
            Self::RestoredFromBackup => "recovery.restored_from_backup",
        }
    }

    /// Whether the audit log itself is damaged, so that no database with this content can be accepted.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::RecordDamaged)
    }
}

impl RecoveryFinding {
    /// A difference of this kind.
    #[must_use]
    pub fn new(kind: RecoveryFindingKind, database: impl fmt::Display, remembered: impl fmt::Display) -> Self {
        Self { kind, log: None, database: database.to_string(), remembered: remembered.to_string() }
    }

    /// Sets the log.
    #[must_use]
    pub fn of(mut self, log: &NodeName) -> Self {
        self.log = Some(log.clone());
        self
    }
}

impl fmt::Display for RecoveryFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, log, database, remembered } = self;
        if let Some(log) = log {
            write!(f, "log {log}: ")?;
        }
        match kind {
            RecoveryFindingKind::StateFileMissing => {
                write!(
                    f,
                    "the state file is missing, and the database counts {database} starts with one. It was looked for at \
                     {remembered}; if it is elsewhere, name it with `recovery.state_file`, or start the gateway with the HOME \
                     or XDG_STATE_HOME that it had"
                )
            }
            RecoveryFindingKind::StateFileUnreadable => write!(f, "the state file cannot be read: {remembered}"),
            RecoveryFindingKind::OtherInstance => {
                write!(f, "the database belongs to gateway {database}, the state file to {remembered}")
            }
            RecoveryFindingKind::StartsBehind => {
                write!(f, "the database knows start {database}, the state file remembers start {remembered}")
            }
            RecoveryFindingKind::StartsAhead => {
                write!(f, "the database knows start {database}, the state file only start {remembered}")
            }
            RecoveryFindingKind::LogBehind => {
                write!(
                    f,
                    "the database has {database} entries, {remembered} are remembered: entries are missing from {database} on"
                )
            }
            RecoveryFindingKind::LogForked => {
                write!(
                    f,
                    "entry {database} is not the one that is remembered (hash {remembered}): history before it was changed or cut"
                )
            }
            RecoveryFindingKind::LogAhead => {
                write!(f, "the database has {database} entries, at most {remembered} were expected")
            }
            RecoveryFindingKind::CheckpointMissing => {
                write!(f, "the checkpoint over {remembered} entries was signed and is not in the database ({database})")
            }
            RecoveryFindingKind::RecordDamaged => write!(f, "the audit log is damaged: {database}"),
            RecoveryFindingKind::SigningRefused => write!(f, "the audit log cannot be signed: {database}"),
            RecoveryFindingKind::RestoredFromBackup => {
                write!(f, "it was restored from backup {remembered}, whose audit log has {database} entries")
            }
        }
    }
}

/// The result of reading the state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadedStateFile {
    /// There is no file.
    Nothing,
    /// There is a file, but it cannot be read.
    Unreadable(String),
    /// The file could be read; this is its content.
    State(Box<GatewayState>),
}

/// What the database contains at the positions that the file remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The gateway it belongs to.
    pub instance: Option<String>,
    /// The last start of the remembered node.
    pub epoch: Option<u64>,
    /// What this node suspected before.
    pub suspicion: Option<DatabaseSuspicion>,
    /// Every log.
    pub logs: BTreeMap<NodeName, LogFacts>,
}

/// One log of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFacts {
    /// Number of entries.
    pub size: u64,
    /// Hash of the last of them, or the genesis value.
    pub hash: AuditHash,
    /// Hash of the last remembered entry, if the database has it.
    pub at_mark: Option<AuditHash>,
    /// The signed note of the remembered checkpoint's size, if the database has one.
    pub at_checkpoint: Option<String>,
    /// Damage between its last checkpoint and its end.
    pub damage: Option<String>,
    /// Entries before this one were archived and are no longer in the database.
    pub pruned_to: u64,
}

/// Other facts that a node knows when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartupFacts {
    /// The logs this node writes.
    pub own_logs: Vec<NodeName>,
    /// Whether the key that signs the audit log was just made: the data folder is new.
    pub key_is_new: bool,
    /// Checkpoints of the checkpoints file that the database does not have: log and size.
    pub missing_checkpoints: Vec<(NodeName, u64)>,
}

/// The decision about a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupDecision {
    /// A new database: a new gateway begins.
    Found,
    /// A database that has no instance yet: made by `sluice init`, or by a release that kept no state file.
    Adopt,
    /// A database that other nodes use, and this node has never written to.
    Join,
    /// The gateway continues where it stopped.
    Continue,
    /// The whole data folder is new, and the file belongs to the gateway that was here before.
    Replace,
    /// The database was restored from a backup, or a person changed it.
    Suspect(Vec<RecoveryFinding>),
}

/// Judges a database at start.
#[must_use]
pub fn judge(remembered: &LoadedStateFile, database: &DatabaseFacts, around: &StartupFacts) -> StartupDecision {
    let mut findings = damage(database, around);
    let is_empty = database.logs.values().all(|log| log.size == 0);
    let verdict = match remembered {
        LoadedStateFile::Unreadable(why) => {
            findings.push(RecoveryFinding::new(RecoveryFindingKind::StateFileUnreadable, "-", why));
            StartupDecision::Continue
        }
        LoadedStateFile::Nothing => match &database.instance {
            None if is_empty => StartupDecision::Found,
            None => StartupDecision::Adopt,
            Some(_) if database.epoch.is_none() && has_no_entries(database, around) => StartupDecision::Join,
            Some(_) => {
                let starts = database.epoch.unwrap_or(0);
                findings.push(RecoveryFinding::new(RecoveryFindingKind::StateFileMissing, starts, "nothing"));
                StartupDecision::Continue
            }
        },
        LoadedStateFile::State(state) => compare(state, database, (is_empty, around), &mut findings),
    };
    if verdict == StartupDecision::Replace {
        return verdict;
    }
    for (log, size) in &around.missing_checkpoints {
        let known = findings.iter().any(|finding| {
            finding.kind == RecoveryFindingKind::CheckpointMissing && finding.remembered == size.to_string()
        });
        if !known {
            findings.push(
                RecoveryFinding::new(RecoveryFindingKind::CheckpointMissing, "the checkpoints file has it", size)
                    .of(log),
            );
        }
    }
    // Earlier findings stay until a person has decided, whatever the database contains now.
    let before = match remembered {
        LoadedStateFile::State(state) => state.suspicion.as_ref().or(database.suspicion.as_ref()),
        LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => database.suspicion.as_ref(),
    };
    if let Some(before) = before {
        let new = findings.into_iter().filter(|finding| !before.findings.contains(finding));
        return StartupDecision::Suspect(before.findings.iter().cloned().chain(new).collect());
    }
    if findings.is_empty() { verdict } else { StartupDecision::Suspect(findings) }
}

/// Whether a log that this node writes still has what the state file remembers of it. For every check after the first.
///
/// # Errors
/// The difference.
pub fn check_log_unchanged(log: &NodeName, mark: &LogMark, facts: Option<&LogFacts>) -> Result<(), RecoveryFinding> {
    let (size, at_mark, pruned_to) = facts.map_or((0, None, 0), |facts| (facts.size, facts.at_mark, facts.pruned_to));
    if size < mark.size {
        return Err(RecoveryFinding::new(RecoveryFindingKind::LogBehind, size, mark.size).of(log));
    }
    // Another node may have archived what this one remembers of its log; a node never archives what it remembers.
    if mark.reserved.is_none() && (1..=pruned_to).contains(&mark.size) {
        return Ok(());
    }
    if mark.size > 0 && at_mark != Some(mark.hash) {
        return Err(RecoveryFinding::new(RecoveryFindingKind::LogForked, mark.size - 1, mark.hash).of(log));
    }
    Ok(())
}

fn has_no_entries(database: &DatabaseFacts, around: &StartupFacts) -> bool {
    around.own_logs.iter().all(|log| database.logs.get(log).is_none_or(|facts| facts.size == 0))
}

fn damage(database: &DatabaseFacts, around: &StartupFacts) -> Vec<RecoveryFinding> {
    let own = around.own_logs.iter().filter_map(|log| Some((log, database.logs.get(log)?.damage.as_ref()?)));
    own.map(|(log, what)| RecoveryFinding::new(RecoveryFindingKind::RecordDamaged, what, "-").of(log)).collect()
}

fn compare(
    state: &GatewayState,
    database: &DatabaseFacts,
    (is_empty, around): (bool, &StartupFacts),
    findings: &mut Vec<RecoveryFinding>,
) -> StartupDecision {
    if state.suspicion.is_some() {
        return StartupDecision::Continue;
    }
    match &database.instance {
        Some(instance) if *instance == state.instance => {}
        // The file was written first, and the start never reached the database.
        None if state.epoch == 0 => return if is_empty { StartupDecision::Found } else { StartupDecision::Adopt },
        None if is_empty && around.key_is_new => return StartupDecision::Replace,
        other => {
            let there = other.as_deref().unwrap_or("none");
            findings.push(RecoveryFinding::new(RecoveryFindingKind::OtherInstance, there, &state.instance));
            return StartupDecision::Continue;
        }
    }
    let there = database.epoch.unwrap_or(0);
    if there != state.epoch && state.starting != Some(there) {
        let kind =
            if there < state.epoch { RecoveryFindingKind::StartsBehind } else { RecoveryFindingKind::StartsAhead };
        findings.push(RecoveryFinding::new(kind, there, state.epoch));
    }
    for (log, mark) in &state.logs {
        let facts = database.logs.get(log);
        findings.extend(check_log_unchanged(log, mark, facts).err());
        if let (Some(facts), Some(reserved)) = (facts, mark.reserved)
            && facts.size > reserved
        {
            findings.push(RecoveryFinding::new(RecoveryFindingKind::LogAhead, facts.size, reserved).of(log));
        }
        if let Some(signed) = &mark.checkpoint
            && facts.and_then(|facts| facts.at_checkpoint.as_ref()) != Some(&signed.note)
        {
            let there = match facts.and_then(|facts| facts.at_checkpoint.as_ref()) {
                Some(_) => "it has another one",
                None => "it has none",
            };
            findings.push(RecoveryFinding::new(RecoveryFindingKind::CheckpointMissing, there, signed.size).of(log));
        }
    }
    StartupDecision::Continue
}
