//! Why the store said no: a refusal a caller can act on, or a fault of the engine.

use sluice_core::approval::ApprovalError;
use sluice_core::hold::{ArmError, IllegalMove};
use sluice_core::{HoldId, Timestamp};

use crate::freezes::Brake;

/// Any no of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nothing by that id (for this caller).
    #[error("no such {what}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
    },
    /// There is, or was, one of that name.
    #[error("there is or was a {what} of that name")]
    Exists {
        /// What was to be made.
        what: &'static str,
    },
    /// Someone else moved it first.
    #[error("it has moved on since it was read")]
    Conflict,
    /// The write is not in a state for that.
    #[error(transparent)]
    Move(#[from] IllegalMove),
    /// The attempt cannot be armed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The question cannot be answered like that.
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    /// The rollback point cannot be moved like that.
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
        /// Since when.
        since: Timestamp,
        /// The operator's reason; may be empty.
        reason: String,
    },
    /// The connection behind the service stands still, by nobody's freeze.
    #[error("{} (`{}`) since {since}", .brake.reason(), .brake.connection)]
    Braked {
        /// Which, and how it stands.
        brake: Brake,
        /// Since when.
        since: Timestamp,
    },
    /// Everything is frozen because this database is not trusted; an ordinary unfreeze does not lift that.
    #[error("the database was restored or changed by somebody; an admin has to decide with `sluice recover`")]
    NeedsRecovery,
    /// The same key was used for another call.
    #[error("this idempotency key was used for another call")]
    KeyReuse,
    /// The same call was made moments ago.
    #[error("the same call was made moments ago")]
    PossibleDuplicate {
        /// The first one.
        first: HoldId,
    },
    /// What is remembered is no longer the version the caller saw.
    #[error("it is at version {current} now")]
    VersionConflict {
        /// The version it has; 0 where there is nothing.
        current: u64,
    },
    /// Other calls used up the limit of a rule since this one was judged.
    #[error("other calls used up the limit of a rule meanwhile")]
    RateLimit,
    /// Too many questions about checks of one agent.
    #[error("too many calls were checked in a short time that need a person")]
    CheckFlood {
        /// How long until the next one is taken.
        after: sluice_core::Span,
    },
    /// There is no room for it.
    #[error("there is no room for this value")]
    Quota,
    /// Only a person can do that.
    #[error("only a person can decide this")]
    NotAPerson,
    /// More writes joined the question since it was shown.
    #[error("the question now covers {now} writes")]
    Grown {
        /// How many there are now.
        now: u32,
    },
    /// An answer this question does not offer.
    #[error("this question does not offer that answer")]
    NotOffered,
    /// A row that cannot be. Nothing is guessed from it.
    #[error("the {table} table holds a row that cannot be: {detail}")]
    Impossible {
        /// Where.
        table: &'static str,
        /// What is wrong with it, without its content.
        detail: &'static str,
    },
    /// The database file is not sound.
    #[error("the database is damaged: {detail}")]
    Damaged {
        /// What was found, without content.
        detail: String,
    },
    /// The file was removed or replaced while it was open.
    #[error("the database file was removed or replaced while it was open")]
    Removed,
    /// Written by a newer release.
    #[error("the database has schema {found}, this release knows up to {known}")]
    NewerSchema {
        /// In the database.
        found: i64,
        /// In this release.
        known: i64,
    },
    /// The copy is sealed, and the key for it is another one or gone.
    #[error("the copy is sealed with a key that is not there any more")]
    WrongKey,
    /// A file that is not ours.
    #[error("this file is not a Sluicegate database")]
    Foreign,
    /// A setting that would let acknowledged work be lost.
    #[error("durability is off: {setting} is `{found}`")]
    DurabilityOff {
        /// Which.
        setting: &'static str,
        /// Its value.
        found: String,
    },
    /// The linked library has a known flaw.
    #[error("SQLite {found} is too old, at least 3.51.3 is needed")]
    OldSqlite {
        /// Which one is linked.
        found: String,
    },
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// The database cannot be written to.
    #[error("the database is read-only")]
    ReadOnly,
    /// Another process has it.
    #[error("the database is in use by another process")]
    InUse,
    /// The engine cannot be reached or has stopped.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was lost around COMMIT and did not come back: it may or may not have happened.
    #[error("the connection was lost while committing; read the state again before doing anything")]
    UnknownOutcome,
    /// The server lacks what it had acknowledged, and that is not on record yet.
    #[error("the database lacks what it had acknowledged; nothing is done until that is on record")]
    WentBack,
    /// Another process runs under this node's name.
    #[error("another gateway runs under this node's name")]
    NodeTaken,
    /// The engine refused a statement.
    #[error("the database refused a statement")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Stable code.
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

    /// The same fault for everyone in a group that failed together.
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

/// The reason of a freeze, as it follows the other words.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use sluice_core::refusal::Code;

    /// Whatever the store says no with can be shown, with a hint and retry advice.
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
