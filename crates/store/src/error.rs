//! Errors of the store: a refusal that a caller can act on, or a fault of the engine.

use sluice_core::approval::ApprovalError;
use sluice_core::hold::{ArmError, IllegalMove};
use sluice_core::{HoldId, UtcMillis};

use crate::freezes::StoppedConnection;

/// Any error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nothing with that id (for this caller).
    #[error("no such {what}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
    },
    /// The name is in use, or was.
    #[error("a {what} with that name exists or existed")]
    Exists {
        /// What was to be created.
        what: &'static str,
    },
    /// The row was changed by someone else first.
    #[error("it has changed since it was read")]
    Conflict,
    /// The state of the write does not allow this.
    #[error(transparent)]
    Move(#[from] IllegalMove),
    /// The attempt cannot be armed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The approval request does not allow this decision.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// The rollback point does not allow this move.
    #[error(transparent)]
    Rollback(#[from] sluice_core::rollback::RollbackError),
    /// The claim belongs to another node or an earlier attempt.
    #[error("this claim is no longer valid")]
    Fenced,
    /// Everything of this scope is frozen.
    #[error("frozen ({scope}) since {since}{}", because(.reason))]
    Frozen {
        /// `all`, or the agent or service.
        scope: String,
        /// Since when it is frozen.
        since: UtcMillis,
        /// The operator's reason; may be empty.
        reason: String,
    },
    /// The connection behind the service has stopped; nobody froze it.
    #[error("{} (`{}`) since {since}", .brake.reason(), .brake.connection)]
    Braked {
        /// The connection and its state.
        brake: StoppedConnection,
        /// Since when it has stopped.
        since: UtcMillis,
    },
    /// Everything is frozen because this database is not trusted; an ordinary unfreeze does not lift that.
    #[error("the database was restored or changed from outside; an admin must decide with `sluice recover`")]
    NeedsRecovery,
    /// The same key was used for another call.
    #[error("this idempotency key was used for another call")]
    KeyReuse,
    /// The same call was made moments ago.
    #[error("the same call was made moments ago")]
    PossibleDuplicate {
        /// The write of the first call.
        first: HoldId,
    },
    /// The stored state is no longer at the version that the caller saw.
    #[error("it is now at version {current}")]
    VersionConflict {
        /// Its current version; 0 where there is nothing.
        current: u64,
    },
    /// Other calls used up the limit of a rule since this one was judged.
    #[error("other calls have used up the limit of a rule meanwhile")]
    RateLimit,
    /// Too many approval requests about checks of one agent.
    #[error("too many calls that need a person were checked in a short time")]
    CheckFlood {
        /// How long until the next one is accepted.
        after: sluice_core::Millis,
    },
    /// The quota is used up.
    #[error("there is no room for this value")]
    Quota,
    /// Only a person can do that.
    #[error("only a person can decide this")]
    NotAPerson,
    /// More writes joined the approval request since it was shown.
    #[error("the approval request now covers {now} writes")]
    Grown {
        /// How many writes it covers now.
        now: u32,
    },
    /// A decision that this approval request does not offer.
    #[error("this approval request does not offer that answer")]
    NotOffered,
    /// A row that is not valid. Nothing is guessed from it.
    #[error("the {table} table holds an invalid row: {detail}")]
    Impossible {
        /// The table.
        table: &'static str,
        /// What is wrong with it, without its content.
        detail: &'static str,
    },
    /// The database file is damaged.
    #[error("the database is damaged: {detail}")]
    Damaged {
        /// What was found, without content.
        detail: String,
    },
    /// The file was removed or replaced while it was open.
    #[error("the database file was removed or replaced while it was open")]
    Removed,
    /// The database was written by a newer release.
    #[error("the database has schema {found}, this release knows up to {known}")]
    NewerSchema {
        /// The schema of the database.
        found: i64,
        /// The newest schema that this release knows.
        known: i64,
    },
    /// The replica is encrypted with a key that is lost or was replaced.
    #[error("the replica is encrypted with a key that no longer exists")]
    WrongKey,
    /// A file that is not a database of ours.
    #[error("this file is not a Sluicegate database")]
    Foreign,
    /// A setting that would let acknowledged work be lost.
    #[error("durability is off: {setting} is `{found}`")]
    DurabilityOff {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
    },
    /// The linked library has a known flaw.
    #[error("SQLite {found} is too old, at least 3.51.3 is needed")]
    OldSqlite {
        /// The linked version.
        found: String,
    },
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// The database cannot be written to.
    #[error("the database is read-only")]
    ReadOnly,
    /// Another process has opened it.
    #[error("the database is in use by another process")]
    InUse,
    /// The engine cannot be reached or has stopped.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was lost around COMMIT and did not come back: the commit may or may not have happened.
    #[error("the connection was lost while committing; read the state again before doing anything")]
    UnknownOutcome,
    /// The server lost acknowledged work, and that is not recorded yet.
    #[error("the database has lost acknowledged work; nothing is done until that is recorded")]
    WentBack,
    /// Another process runs under this node's name.
    #[error("another gateway runs under this node's name")]
    NodeTaken,
    /// The engine refused a statement.
    #[error("the database refused a statement")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "store.not_found",
            Self::Exists { .. } | Self::Conflict => "store.conflict",
            Self::Move(IllegalMove::NoEdge { .. }) => "hold.too_late",
            Self::Move(IllegalMove::NotYet { .. }) => "hold.not_yet",
            Self::Arm(ArmError::Mismatch) => "execute.refused_mismatch",
            Self::Arm(ArmError::SecondHandle) => "execute.second_handle",
            Self::Arm(ArmError::Move(_)) => "hold.too_late",
            Self::Approval(ApprovalError::AlreadyDecided { .. }) => "approval.already_decided",
            Self::Approval(ApprovalError::Expired { .. }) => "approval.expired",
            Self::Approval(ApprovalError::NotYet { .. } | ApprovalError::NoEdge { .. }) => "approval.not_possible",
            Self::Rollback(error) => error.code(),
            Self::Fenced => "execute.fenced",
            Self::Frozen { .. } => "freeze.active",
            Self::Braked { .. } => "service.stopped",
            Self::NeedsRecovery => "recovery.required",
            Self::KeyReuse => "call.key_reuse",
            Self::PossibleDuplicate { .. } => "call.possible_duplicate",
            Self::VersionConflict { .. } => "state.conflict",
            Self::RateLimit => "policy.rate_limit",
            Self::CheckFlood { .. } => "check.flood",
            Self::Quota => "state.quota",
            Self::NotAPerson => "approval.not_an_approver",
            Self::Grown { .. } => "approval.grown",
            Self::NotOffered => "approval.not_offered",
            Self::Impossible { .. } | Self::Damaged { .. } | Self::Removed => "store.damaged",
            Self::NewerSchema { .. } => "store.newer_schema",
            Self::WrongKey => "store.wrong_key",
            Self::Foreign => "store.foreign_file",
            Self::DurabilityOff { .. } => "store.durability_off",
            Self::OldSqlite { .. } => "store.old_sqlite",
            Self::DiskFull => "store.disk_full",
            Self::ReadOnly => "store.read_only",
            Self::InUse => "store.in_use",
            Self::Unavailable(_) | Self::WentBack => "store.unavailable",
            Self::UnknownOutcome => "store.unknown_outcome",
            Self::NodeTaken => "store.node_taken",
            Self::Engine(_) => "store.engine",
        }
    }

    /// Whether the engine failed, rather than the request.
    pub(crate) const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::Removed
                | Self::DiskFull
                | Self::ReadOnly
                | Self::InUse
                | Self::Unavailable(_)
                | Self::UnknownOutcome
                | Self::WentBack
                | Self::NodeTaken
                | Self::Engine(_)
                | Self::Conflict
        )
    }

    /// The same fault for every use case in a group that failed together.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::DiskFull => Self::DiskFull,
            Self::Removed => Self::Removed,
            Self::ReadOnly => Self::ReadOnly,
            Self::InUse => Self::InUse,
            Self::Conflict => Self::Conflict,
            Self::UnknownOutcome => Self::UnknownOutcome,
            Self::WentBack => Self::WentBack,
            Self::NodeTaken => Self::NodeTaken,
            Self::Damaged { detail } => Self::Damaged { detail: detail.clone() },
            Self::DurabilityOff { setting, found } => Self::DurabilityOff { setting, found: found.clone() },
            other => Self::Unavailable(other.to_string().into()),
        }
    }
}

/// The reason of a freeze, appended to the text.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use sluice_core::refusal::Code;

    /// Every error of the store can be shown, with a hint and retry advice.
    #[test]
    fn every_code_of_the_store_is_a_published_refusal() {
        let source = include_str!("error.rs");
        let table = source.split("pub fn code").nth(1).and_then(|rest| rest.split("is_fault").next()).unwrap();
        let codes: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
        assert!(codes.len() > 20, "{codes:?}");
        for code in codes {
            assert!(Code::from_code(code).is_some(), "{code}");
        }
    }
}
