//! `sluice audit verify --against`: the record compared with checkpoints that were kept elsewhere.
//!
//! Takes a file of notes, a letter, the state file or the text of a checkpoint itself; gives the checkpoints in it.
//! Promise: a log that was cut or rewritten since a checkpoint was signed is named with the position; a checkpoint that
//! the log's key has not signed is refused.

use std::path::Path;

use sluice_core::NodeName;
use sluice_core::audit::checkpoint::{Checkpoint, origin};
use sluice_core::audit::kept::checkpoints_in;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::Note;
use sluice_core::audit::tree::{Frontier, Tree};
use sluice_core::audit::{Hash, Head};
use sluice_core::recovery::GatewayState;

use super::read_small;
use crate::failure::{Exit, Failure};

/// Every checkpoint in what was named: a file, or the text itself.
pub(super) fn kept(named: &str) -> Result<Vec<Note>, Failure> {
    let path = Path::new(named);
    let text = match checkpoints_in(named).is_empty() {
        false => named.to_owned(),
        true => String::from_utf8_lossy(&read_small(path)?).into_owned(),
    };
    let notes = match serde_json::from_str::<GatewayState>(&text) {
        Ok(state) => {
            let signed = state.logs.into_values().filter_map(|mark| mark.checkpoint);
            signed.filter_map(|signed| Note::parse(signed.note.as_bytes()).ok()).collect()
        }
        Err(_) => checkpoints_in(&text),
    };
    if notes.is_empty() {
        let what = if path.exists() { format!("`{named}`") } else { "the text".into() };
        return Err(Failure::new(Exit::Usage, format!("there is no signed checkpoint in {what}"))
            .hint("name a letter, the checkpoints file, the state file, or the text of a checkpoint"));
    }
    Ok(notes)
}

/// Those of one log.
pub(super) fn of_log(notes: &[Note], log: &NodeName) -> Vec<Note> {
    let name = origin(log);
    notes.iter().filter(|note| note.text_unverified().lines().next() == Some(&name)).cloned().collect()
}

/// Checkpoints of one log, waiting for the position they speak of.
pub(super) struct Anchors {
    log: NodeName,
    /// Smallest last.
    waiting: Vec<Checkpoint>,
    frontier: Frontier,
    /// How many entries the last one covers that held.
    agreed: u64,
    count: usize,
    /// What they are, for people.
    what: &'static str,
}

impl Anchors {
    /// Takes those of a log, once its key is known to have signed them.
    pub(super) fn new(
        log: &NodeName,
        notes: &[Note],
        key: Option<&VerifierKey>,
        what: &'static str,
    ) -> Result<Self, Failure> {
        let own = of_log(notes, log);
        let mut waiting = Vec::with_capacity(own.len());
        if let (Some(_), None) = (own.first(), key) {
            return Err(super::no_key(log));
        }
        for note in &own {
            let keys: Vec<VerifierKey> = key.cloned().into_iter().collect();
            let text = note.open(&keys).map_err(|error| {
                Failure::new(
                    Exit::NotVerified,
                    format!("a checkpoint of {log} is not signed by its key (audit.signature)"),
                )
                .why(error.to_string())
                .hint("name the key that was noted when the log began: --key FILE")
            })?;
            waiting.push(Checkpoint::parse(text).map_err(|error| {
                Failure::new(Exit::Usage, format!("not a checkpoint ({})", error.code())).why(error.to_string())
            })?);
        }
        waiting.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.tree.size));
        Ok(Self { log: log.clone(), count: waiting.len(), waiting, frontier: Frontier::new(), agreed: 0, what })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// How many entries are those of a checkpoint kept elsewhere.
    pub(super) const fn agreed(&self) -> u64 {
        self.agreed
    }

    /// One more entry; `before` is how the log stood without it.
    pub(super) fn push(&mut self, before: Head, hash: Hash) -> Result<(), Failure> {
        self.check(before)?;
        self.frontier.push(hash);
        Ok(())
    }

    /// Compares with every checkpoint over exactly this many entries.
    fn check(&mut self, reached: Head) -> Result<(), Failure> {
        while let Some(next) = self.waiting.pop_if(|next| next.tree.size == reached.size) {
            let tree = Tree { size: reached.size, root: self.frontier.root() };
            if next.tree != tree || next.head != reached.hash {
                let (from, last) = (self.agreed, reached.size.saturating_sub(1));
                return Err(Failure::new(
                    Exit::NotVerified,
                    format!("{} was rewritten between entry #{from} and #{last} (audit.forked)", self.log),
                )
                .why(format!("{} was signed over {} other entries", self.what, reached.size))
                .hint("keep both: the checkpoint is signed proof of another history"));
            }
            self.agreed = reached.size;
        }
        Ok(())
    }

    /// At the end of the log: whatever still waits covers entries that are gone.
    pub(super) fn finish(&mut self, reached: Head) -> Result<(), Failure> {
        self.check(reached)?;
        let Some(largest) = self.waiting.first() else { return Ok(()) };
        let size = largest.tree.size;
        Err(Failure::new(
            Exit::NotVerified,
            format!("{} was cut: entries #{} to #{} are missing (audit.truncated)", self.log, reached.size, size - 1),
        )
        .why(format!("{} was signed over {size} entries, and there are {}", self.what, reached.size))
        .hint("the database may have been restored from a copy: sluice recover"))
    }
}
