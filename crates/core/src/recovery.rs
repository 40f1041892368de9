//! Recovery: is this database the one that this gateway wrote to last?
//!
//! Takes what the state file outside the database remembers and what the database says; gives a [`Judgement`].
//! Promise: a database that lacks anything the file remembers, that has another history, or that belongs to another
//! gateway is suspected, and each difference is named with its position. What a crash leaves behind is never suspected:
//! the database may be ahead of the file by as much as the file reserved, and by one start that the file announced.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::audit::Hash;
use crate::clock::Timestamp;
use crate::ids::NodeName;

/// Names the form of the state file.
pub const FORM: &str = "sluicegate-state-v1";
/// How many audit entries a node may write before its state file has to be written again.
pub const RESERVED: u64 = 100_000;

/// What the state file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayState {
    /// [`FORM`].
    pub form: String,
    /// The gateway, as the database names it too.
    pub instance: String,
    /// The node that wrote the file.
    pub node: NodeName,
    /// The last start that both the file and the database know of. Zero before the first.
    pub epoch: u64,
    /// A start that was announced here and may or may not be in the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<u64>,
    /// Every audit log of the database, as far as it was durable when the file was written.
    pub logs: BTreeMap<NodeName, LogMark>,
    /// Checkpoints before this byte of the checkpoints file were given up by a person.
    #[serde(default)]
    pub checkpoints_from: u64,
    /// How long the checkpoints file was.
    #[serde(default)]
    pub checkpoints_length: u64,
    /// Why the database is not trusted, until a person has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Suspicion>,
}

/// One audit log in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// Number of entries.
    pub size: u64,
    /// Hash of the last of them, or the genesis value.
    pub hash: Hash,
    /// How many entries there may be before the file is written again; only for logs of this node.
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
pub struct Suspicion {
    /// When it was noticed.
    pub at: Timestamp,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Whether a person said that it is being investigated.
    #[serde(default)]
    pub investigating: bool,
}

/// One difference between what is remembered and what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What kind of difference.
    pub kind: FindingKind,
    /// Which audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<NodeName>,
    /// Position, start or instance in the database.
    pub database: String,
    /// Position, start or instance that is remembered outside.
    pub remembered: String,
}

/// What can be different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// There is no state file, and the database says that there was one.
    StateFileMissing,
    /// The state file cannot be read.
    StateFileUnreadable,
    /// The database belongs to another gateway.
    OtherInstance,
    /// The database does not know the last start.
    StartsBehind,
    /// The database knows starts that the file does not.
    StartsAhead,
    /// A log has fewer entries than are remembered.
    LogBehind,
    /// A log has other entries than are remembered.
    LogForked,
    /// A log has more entries than were reserved.
    LogAhead,
    /// A checkpoint that was signed is not in the database.
    CheckpointMissing,
    /// Entries of a log are missing or do not fit together.
    RecordDamaged,
    /// The record does not grow out of what was signed last.
    SigningRefused,
    /// It was put back from a backup by `sluice backup restore`.
    RestoredFromBackup,
}

impl FindingKind {
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

    /// Whether the record itself does not hold together, so that no database of this content can be accepted.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::RecordDamaged)
    }
}

impl Finding {
    /// A difference of this kind.
    #[must_use]
    pub fn new(kind: FindingKind, database: impl fmt::Display, remembered: impl fmt::Display) -> Self {
        Self { kind, log: None, database: database.to_string(), remembered: remembered.to_string() }
    }

    /// In this log.
    #[must_use]
    pub fn of(mut self, log: &NodeName) -> Self {
        self.log = Some(log.clone());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, log, database, remembered } = self;
        if let Some(log) = log {
            write!(f, "log {log}: ")?;
        }
        match kind {
            FindingKind::StateFileMissing => {
                write!(
                    f,
                    "the state file is missing, and the database counts {database} starts with one. It was looked for at \
                     {remembered}; if it lies elsewhere, name it with `recovery.state_file`, or start the gateway with the HOME \
                     or XDG_STATE_HOME that it had"
                )
            }
            FindingKind::StateFileUnreadable => write!(f, "the state file cannot be read: {remembered}"),
            FindingKind::OtherInstance => {
                write!(f, "the database belongs to gateway {database}, the state file to {remembered}")
            }
            FindingKind::StartsBehind => {
                write!(f, "the database knows start {database}, the state file remembers start {remembered}")
            }
            FindingKind::StartsAhead => {
                write!(f, "the database knows start {database}, the state file only start {remembered}")
            }
            FindingKind::LogBehind => {
                write!(
                    f,
                    "the database has {database} entries, {remembered} are remembered: entries are missing from {database} on"
                )
            }
            FindingKind::LogForked => {
                write!(
                    f,
                    "entry {database} is not the one that is remembered (hash {remembered}): history before it was changed or cut"
                )
            }
            FindingKind::LogAhead => {
                write!(f, "the database has {database} entries, at most {remembered} were expected")
            }
            FindingKind::CheckpointMissing => {
                write!(f, "the checkpoint over {remembered} entries was signed and is not in the database ({database})")
            }
            FindingKind::RecordDamaged => write!(f, "the record is damaged: {database}"),
            FindingKind::SigningRefused => write!(f, "the record cannot be signed: {database}"),
            FindingKind::RestoredFromBackup => {
                write!(f, "it was restored from backup {remembered}, whose record has {database} entries")
            }
        }
    }
}

/// What was read of the state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remembered {
    /// There is none.
    Nothing,
    /// There is one, and it cannot be read.
    Unreadable(String),
    /// The file could be read, and this is what it says.
    State(Box<GatewayState>),
}

/// What the database says, about the positions that the file remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The gateway it belongs to.
    pub instance: Option<String>,
    /// The last start of the remembered node.
    pub epoch: Option<u64>,
    /// What this node found before.
    pub suspicion: Option<Suspicion>,
    /// Every log.
    pub logs: BTreeMap<NodeName, LogFacts>,
}

/// One log of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFacts {
    /// Number of entries.
    pub size: u64,
    /// Hash of the last of them, or the genesis value.
    pub hash: Hash,
    /// Hash of the last remembered entry, if the database has it.
    pub at_mark: Option<Hash>,
    /// The signed note of the remembered checkpoint's size, if the database has one.
    pub at_checkpoint: Option<String>,
    /// What does not fit together between its last checkpoint and its end.
    pub damage: Option<String>,
}

/// What else a node knows when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// The logs this node writes.
    pub own_logs: Vec<NodeName>,
    /// Whether the key that signs the record was made just now: the data folder is new.
    pub key_is_new: bool,
    /// Checkpoints of the checkpoints file that the database does not have: log and size.
    pub missing_checkpoints: Vec<(NodeName, u64)>,
}

/// What to do with a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// A new database: a new gateway begins.
    Found,
    /// A database that has no instance yet: made by `sluice init`, or by a release that kept no state file.
    Adopt,
    /// A database that other nodes use, and this node has never written to.
    Join,
    /// It goes on where it stopped.
    Continue,
    /// The whole data folder is new, and the file is of the gateway that was here before.
    Replace,
    /// It was restored from a copy, or somebody changed it.
    Suspect(Vec<Finding>),
}

/// Judges a database at start.
#[must_use]
pub fn judge(remembered: &Remembered, database: &DatabaseFacts, around: &Circumstances) -> Judgement {
    let mut findings = damage(database, around);
    let is_empty = database.logs.values().all(|log| log.size == 0);
    let verdict = match remembered {
        Remembered::Unreadable(why) => {
            findings.push(Finding::new(FindingKind::StateFileUnreadable, "-", why));
            Judgement::Continue
        }
        Remembered::Nothing => match &database.instance {
            None if is_empty => Judgement::Found,
            None => Judgement::Adopt,
            Some(_) if database.epoch.is_none() && has_no_entries(database, around) => Judgement::Join,
            Some(_) => {
                let starts = database.epoch.unwrap_or(0);
                findings.push(Finding::new(FindingKind::StateFileMissing, starts, "nothing"));
                Judgement::Continue
            }
        },
        Remembered::State(state) => compare(state, database, (is_empty, around), &mut findings),
    };
    if verdict == Judgement::Replace {
        return verdict;
    }
    for (log, size) in &around.missing_checkpoints {
        let known = findings
            .iter()
            .any(|finding| finding.kind == FindingKind::CheckpointMissing && finding.remembered == size.to_string());
        if !known {
            findings.push(Finding::new(FindingKind::CheckpointMissing, "the checkpoints file has it", size).of(log));
        }
    }
    // What was found before stays until a person has decided, whatever the database looks like by now.
    let before = match remembered {
        Remembered::State(state) => state.suspicion.as_ref().or(database.suspicion.as_ref()),
        Remembered::Nothing | Remembered::Unreadable(_) => database.suspicion.as_ref(),
    };
    if let Some(before) = before {
        let new = findings.into_iter().filter(|finding| !before.findings.contains(finding));
        return Judgement::Suspect(before.findings.iter().cloned().chain(new).collect());
    }
    if findings.is_empty() { verdict } else { Judgement::Suspect(findings) }
}

/// Whether a log that this node goes on writing still has what is remembered of it. For every later look than the first.
///
/// # Errors
/// What is different.
pub fn still_has(log: &NodeName, mark: &LogMark, facts: Option<&LogFacts>) -> Result<(), Finding> {
    let (size, at_mark) = facts.map_or((0, None), |facts| (facts.size, facts.at_mark));
    if size < mark.size {
        return Err(Finding::new(FindingKind::LogBehind, size, mark.size).of(log));
    }
    if mark.size > 0 && at_mark != Some(mark.hash) {
        return Err(Finding::new(FindingKind::LogForked, mark.size - 1, mark.hash).of(log));
    }
    Ok(())
}

fn has_no_entries(database: &DatabaseFacts, around: &Circumstances) -> bool {
    around.own_logs.iter().all(|log| database.logs.get(log).is_none_or(|facts| facts.size == 0))
}

fn damage(database: &DatabaseFacts, around: &Circumstances) -> Vec<Finding> {
    let own = around.own_logs.iter().filter_map(|log| Some((log, database.logs.get(log)?.damage.as_ref()?)));
    own.map(|(log, what)| Finding::new(FindingKind::RecordDamaged, what, "-").of(log)).collect()
}

fn compare(
    state: &GatewayState,
    database: &DatabaseFacts,
    (is_empty, around): (bool, &Circumstances),
    findings: &mut Vec<Finding>,
) -> Judgement {
    if state.suspicion.is_some() {
        return Judgement::Continue;
    }
    match &database.instance {
        Some(instance) if *instance == state.instance => {}
        // The file was written first, and the database never heard of it.
        None if state.epoch == 0 => return if is_empty { Judgement::Found } else { Judgement::Adopt },
        None if is_empty && around.key_is_new => return Judgement::Replace,
        other => {
            let there = other.as_deref().unwrap_or("none");
            findings.push(Finding::new(FindingKind::OtherInstance, there, &state.instance));
            return Judgement::Continue;
        }
    }
    let there = database.epoch.unwrap_or(0);
    if there != state.epoch && state.starting != Some(there) {
        let kind = if there < state.epoch { FindingKind::StartsBehind } else { FindingKind::StartsAhead };
        findings.push(Finding::new(kind, there, state.epoch));
    }
    for (log, mark) in &state.logs {
        let facts = database.logs.get(log);
        findings.extend(still_has(log, mark, facts).err());
        if let (Some(facts), Some(reserved)) = (facts, mark.reserved)
            && facts.size > reserved
        {
            findings.push(Finding::new(FindingKind::LogAhead, facts.size, reserved).of(log));
        }
        if let Some(signed) = &mark.checkpoint
            && facts.and_then(|facts| facts.at_checkpoint.as_ref()) != Some(&signed.note)
        {
            let there = match facts.and_then(|facts| facts.at_checkpoint.as_ref()) {
                Some(_) => "it has another one",
                None => "it has none",
            };
            findings.push(Finding::new(FindingKind::CheckpointMissing, there, signed.size).of(log));
        }
    }
    Judgement::Continue
}
