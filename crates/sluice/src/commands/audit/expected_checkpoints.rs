//! `sluice audit verify --against`: compares the audit log with checkpoints that were kept elsewhere.
//!
//! Takes a file of checkpoints, an e-mail, the state file or the text of a checkpoint; gives the checkpoints in it.
//! Promise: a log that was cut or rewritten after a checkpoint was signed is reported with the position; a checkpoint
//! that is not signed by the log's key is refused.

use std::path::Path;

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::{Checkpoint, origin};
use sluice_core::audit::kept::checkpoints_in;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::tree::{TreeFrontier, TreeHead};
use sluice_core::audit::{AuditHash, ChainHead};
use sluice_core::recovery::GatewayState;

use super::read_small;
use super::source::SourcedAuditLog;
use crate::failure::{CliError, CommandExit};

/// Every checkpoint in a file, or in the text itself.
pub(super) fn read_checkpoints(named: &str) -> Result<Vec<SignedNote>, CliError> {
    let path = Path::new(named);
    let text = match checkpoints_in(named).is_empty() {
        false => named.to_owned(),
        true => String::from_utf8_lossy(&read_small(path)?).into_owned(),
    };
    let notes = match serde_json::from_str::<GatewayState>(&text) {
        Ok(state) => {
            let signed = state.logs.into_values().filter_map(|mark| mark.checkpoint);
            signed.filter_map(|signed| SignedNote::parse(signed.note.as_bytes()).ok()).collect()
        }
        Err(_) => checkpoints_in(&text),
    };
    if notes.is_empty() {
        let what = if path.exists() { format!("`{named}`") } else { "the text".into() };
        return Err(CliError::new(CommandExit::Usage, format!("{what} contains no signed checkpoint"))
            .hint("give an e-mail, the checkpoints file, the state file, or the text of a checkpoint"));
    }
    Ok(notes)
}

/// The checkpoints of one log.
pub(super) fn of_log(notes: &[SignedNote], log: &NodeName) -> Vec<SignedNote> {
    let name = origin(log);
    notes.iter().filter(|note| note.text_unverified().lines().next() == Some(&name)).cloned().collect()
}

/// Checkpoints of one log, kept until the walk reaches the position they cover.
pub(super) struct ExpectedCheckpoints {
    log: NodeName,
    /// The smallest checkpoint is last.
    waiting: Vec<Checkpoint>,
    frontier: TreeFrontier,
    /// The number of entries covered by the last checkpoint that matched.
    agreed: u64,
    count: usize,
    /// The number of checkpoints that cover only archived entries.
    archived: usize,
    /// What the checkpoints are, for messages.
    what: &'static str,
}

impl ExpectedCheckpoints {
    /// Takes the checkpoints of a log and checks their signatures. Checkpoints over archived entries only are left out.
    pub(super) fn new(
        log: &SourcedAuditLog,
        notes: &[SignedNote],
        key: Option<&VerifierKey>,
        what: &'static str,
    ) -> Result<Self, CliError> {
        let (first, start, log) = (log.first(), log.start.as_ref(), &log.name);
        let own = of_log(notes, log);
        let mut waiting = Vec::with_capacity(own.len());
        if let (Some(_), None) = (own.first(), key) {
            return Err(super::no_key(log));
        }
        for note in &own {
            let keys: Vec<VerifierKey> = key.cloned().into_iter().collect();
            let text = note.open(&keys).map_err(|error| {
                CliError::new(
                    CommandExit::NotVerified,
                    format!("a checkpoint of {log} is not signed by its key (audit.signature)"),
                )
                .why(error.to_string())
                .hint("give the key that was saved when the log was created: --key FILE")
            })?;
            waiting.push(Checkpoint::parse(text).map_err(|error| {
                CliError::new(CommandExit::Usage, format!("not a checkpoint ({})", error.code())).why(error.to_string())
            })?);
        }
        let count = waiting.len();
        waiting.retain(|checkpoint| checkpoint.tree.size >= first);
        waiting.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.tree.size));
        let frontier = start.map_or_else(TreeFrontier::new, |start| start.frontier.clone());
        let archived = count - waiting.len();
        Ok(Self { log: log.clone(), count, archived, waiting, frontier, agreed: 0, what })
    }

    /// The number of checkpoints.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// The number of checkpoints that cover only archived entries, which are not walked here.
    pub(super) const fn archived(&self) -> usize {
        self.archived
    }

    /// The number of entries that match a checkpoint kept elsewhere.
    pub(super) const fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Adds one entry; `before` is the head of the log without it.
    pub(super) fn push(&mut self, before: ChainHead, hash: AuditHash) -> Result<(), CliError> {
        self.check(before)?;
        self.frontier.push(hash);
        Ok(())
    }

    /// Compares with every checkpoint that covers exactly this many entries.
    fn check(&mut self, reached: ChainHead) -> Result<(), CliError> {
        while let Some(next) = self.waiting.pop_if(|next| next.tree.size == reached.size) {
            let tree = TreeHead { size: reached.size, root: self.frontier.root() };
            if next.tree != tree || next.head != reached.hash {
                let (from, last) = (self.agreed, reached.size.saturating_sub(1));
                return Err(CliError::new(
                    CommandExit::NotVerified,
                    format!("{} was rewritten between entry #{from} and #{last} (audit.forked)", self.log),
                )
                .why(format!("{} covers {} different entries", self.what, reached.size))
                .hint("keep both: the checkpoint is signed proof of a different history"));
            }
            self.agreed = reached.size;
        }
        Ok(())
    }

    /// At the end of the log: checkpoints that are left cover entries that are missing.
    pub(super) fn finish(&mut self, reached: ChainHead) -> Result<(), CliError> {
        self.check(reached)?;
        let Some(largest) = self.waiting.first() else { return Ok(()) };
        let size = largest.tree.size;
        Err(CliError::new(
            CommandExit::NotVerified,
            format!("{} was cut: entries #{} to #{} are missing (audit.truncated)", self.log, reached.size, size - 1),
        )
        .why(format!("{} covers {size} entries, and the log has {}", self.what, reached.size))
        .hint("the database may have been restored from a copy: sluice recover"))
    }
}
