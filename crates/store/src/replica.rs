//! The local replica of a connected mailbox: reads never touch the service.
//!
//! Takes batches of cleaned mail with the cursor they lead to; gives answers to searches. One SQLite file per replica,
//! read on the calling thread through a pool of connections. Promise: rows and cursor move in one transaction. A
//! replica that must be rebuilt is built beside the old one, which answers until the new one is complete.

mod apply;
mod attachments;
mod folder;
mod packing;
mod rank;
mod replica_file;
mod search;
mod snippet;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use sluice_core::UtcMillis;
use sluice_core::mail::query::MailSearchQuery;
use sluice_core::mail::{Mail, MailAttachment, SenderAuthentication};

use crate::error::StoreError;
use folder::{ReplicaFolder, unavailable};
use replica_file::ReplicaFile;

pub use folder::{ReplicaEncryption, back_up};
pub use sluice_seal::SealKey;

/// Who reads. An agent gets a stub of a withheld message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaReader {
    /// An agent.
    Agent,
    /// A person.
    Person,
}

/// The order of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaSearchOrder {
    /// The newest first.
    Newest,
    /// The best match first.
    Ranked,
}

/// A search.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaSearch<'q> {
    /// The query.
    pub query: &'q MailSearchQuery,
    /// The order of the results.
    pub order: ReplicaSearchOrder,
    /// Most results, up to [`MOST_HITS`].
    pub limit: usize,
    /// How many results to skip.
    pub offset: usize,
    /// Who reads.
    pub reader: ReplicaReader,
}

/// Most messages of one answer.
pub const MOST_HITS: usize = 100;

/// A message as a search shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSearchHit {
    /// The service's id.
    pub id: String,
    /// The id of its thread.
    pub thread: String,
    /// When the service received it, in milliseconds.
    pub received: i64,
    /// Its sender, as shown to people.
    pub sender: String,
    /// Its subject.
    pub subject: String,
    /// The text around the words that were found, or its beginning.
    pub snippet: String,
    /// The ids of its labels at the service.
    pub labels: Vec<String>,
    /// Whether it is unread.
    pub unread: bool,
    /// Whether it has attachments.
    pub attachment: bool,
    /// Whether it is withheld from agents; then sender, subject and snippet are empty.
    pub withheld: bool,
    /// Whether parsers read it in two ways; then an agent gets neither sender nor subject.
    pub ambiguous: bool,
    /// What the receiving server recorded about its sender.
    pub authentication: Option<SenderAuthentication>,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSearchHits {
    /// The messages, in the requested order.
    pub hits: Vec<ReplicaSearchHit>,
    /// Whether there are more.
    pub more: bool,
    /// From how many messages the best were chosen: all that match, or the newest of them.
    pub ranked_over: Option<usize>,
    /// How many of the newest texts were read, if the query needed texts and there were too many.
    pub looked_at: Option<usize>,
    /// How fresh the results are.
    pub freshness: ReplicaFreshness,
}

/// How far the replica is behind the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaFreshness {
    /// When it was last known to match the service.
    pub synced_at: Option<UtcMillis>,
    /// Whether everything was replicated at least once.
    pub complete: bool,
    /// Messages replicated by the first sync.
    pub done: u64,
    /// Number of messages, by the service's own estimate.
    pub total: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaChange {
    /// A message as it is now.
    Put(Box<Mail>),
    /// The content of an attachment of a message that was put before.
    File {
        /// SHA-256 of the content, in hex. The caller has checked it.
        sha256: String,
        /// The content.
        bytes: Vec<u8>,
    },
    /// A message that crashes workers that parse it: only its id is kept, and that it was set aside.
    Aside(Box<Mail>),
    /// Only its labels have changed.
    Labels {
        /// The id of the message.
        id: String,
        /// All labels it has now.
        labels: Vec<String>,
    },
    /// It was deleted.
    Gone {
        /// The id of the message.
        id: String,
    },
    /// The names of the labels: id and name.
    LabelNames(Vec<(String, String)>),
}

/// An attachment in the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAttachment {
    /// The newest message that holds it.
    pub message: String,
    /// The sender of that message, as shown to people.
    pub sender: String,
    /// Its name, type, size and hash.
    pub about: MailAttachment,
}

/// Changes that belong together, and the state of the replica after them.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaBatch {
    /// The changes, in order.
    pub changes: Vec<ReplicaChange>,
    /// Where the adapter continues.
    pub cursor: String,
    /// When the replica matched the service, if it does after this batch.
    pub synced_at: Option<UtcMillis>,
    /// The progress of the first sync: messages done, and how many there are.
    pub progress: Option<(u64, Option<u64>)>,
}

/// The replica of one connection.
#[derive(Debug)]
pub struct Replica {
    place: ReplicaFolder,
    current: RwLock<Arc<ReplicaFile>>,
}

/// A replica that is being built beside the one that answers.
#[derive(Debug)]
pub struct ShadowReplica {
    generation: u64,
    copy: ReplicaFile,
}

impl Replica {
    /// Opens the replica in its folder, or creates one. If it is stored in another form than configured, it is
    /// converted first, which takes as long as copying the file.
    ///
    /// # Errors
    /// When the folder or the file cannot be used; [`StoreError::WrongKey`] when it is encrypted with another key; when
    /// the file is damaged, it can be deleted and rebuilt.
    pub fn open(folder: &Path, keeping: &ReplicaEncryption) -> Result<Self, StoreError> {
        let (place, generation) = ReplicaFolder::open(folder, keeping)?;
        let copy = place.copy(generation)?;
        place.sweep(generation);
        Ok(Self { place, current: RwLock::new(Arc::new(copy)) })
    }

    /// Whether the replica in a folder is encrypted: it cannot be opened without its key.
    #[must_use]
    pub fn is_sealed_on_disk(folder: &Path) -> bool {
        ReplicaFolder::is_sealed_on_disk(folder)
    }

    /// Whether this replica is encrypted.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.place.is_sealed()
    }

    fn copy(&self) -> Arc<ReplicaFile> {
        Arc::clone(&self.current.read())
    }

    /// Reads; if that fails and the replica was swapped meanwhile, reads again from the new one: without its files the
    /// old one may fail in any way.
    fn look<Out>(&self, look: impl Fn(&ReplicaFile) -> Result<Out, StoreError>) -> Result<Out, StoreError> {
        let mut copy = self.copy();
        loop {
            let answer = look(&copy);
            let now = self.copy();
            if answer.is_ok() || Arc::ptr_eq(&copy, &now) {
                return answer;
            }
            copy = now;
        }
    }

    /// Searches the replica.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn search(&self, search: &ReplicaSearch<'_>) -> Result<ReplicaSearchHits, StoreError> {
        self.look(|copy| search::run(copy, search))
    }

    /// One complete message. For an agent, a withheld message has neither names nor text.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, id: &str, reader: ReplicaReader) -> Result<Option<Mail>, StoreError> {
        self.look(|copy| copy.with_reader(|connection| replica_file::get(connection, id, reader)))
    }

    /// The messages of a thread, oldest first, at most [`MOST_HITS`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn thread(&self, thread: &str, reader: ReplicaReader) -> Result<Vec<Mail>, StoreError> {
        self.look(|copy| copy.with_reader(|connection| replica_file::thread(connection, thread, reader)))
    }

    /// The metadata of an attachment, by its hash: from the newest message that holds it and that the reader may see.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn attachment(&self, sha256: &str, reader: ReplicaReader) -> Result<Option<HeldAttachment>, StoreError> {
        self.look(|copy| copy.with_reader(|opened| attachments::held(opened, sha256, reader)))
    }

    /// The content of an attachment, by its hash; `None` where it was not kept. The caller decides who may see it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn content(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.look(|copy| copy.with_reader(|opened| attachments::content(opened, sha256)))
    }

    /// Messages that were set aside, by id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn set_aside_ids(&self) -> Result<Vec<String>, StoreError> {
        self.look(|copy| copy.with_reader(attachments::aside))
    }

    /// Labels: id and name.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, String)> {
        self.copy().labels().iter().map(|label| (label.id.clone(), label.name.clone())).collect()
    }

    /// How fresh it is.
    #[must_use]
    pub fn freshness(&self) -> ReplicaFreshness {
        self.copy().freshness()
    }

    /// Where the adapter continues; `None` before the first batch.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn cursor(&self) -> Result<Option<String>, StoreError> {
        self.copy().cursor()
    }

    /// How many messages it holds.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn count(&self) -> Result<u64, StoreError> {
        self.look(ReplicaFile::count)
    }

    /// How many messages are withheld from agents.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn withheld_count(&self) -> Result<u64, StoreError> {
        self.look(ReplicaFile::withheld_count)
    }

    /// Applies changes and their cursor completely or not at all. Applying them again changes nothing.
    ///
    /// # Errors
    /// When they cannot be written; then none of them is.
    pub fn apply(&self, batch: &ReplicaBatch) -> Result<(), StoreError> {
        apply::batch(&self.copy(), batch)
    }

    /// Lets agents see a message that was withheld.
    ///
    /// # Errors
    /// When there is no such message, or it cannot be written.
    pub fn release(&self, id: &str) -> Result<(), StoreError> {
        apply::release(&self.copy(), id)
    }

    /// Creates a new replica beside this one, or continues one that was begun.
    ///
    /// # Errors
    /// When its file cannot be created.
    pub fn shadow(&self) -> Result<ShadowReplica, StoreError> {
        let generation = self.copy().generation + 1;
        let copy = match self.place.copy(generation) {
            // An incomplete file is of no use: start again.
            Err(StoreError::Damaged { .. }) => {
                self.place.remove(generation);
                self.place.copy(generation)?
            }
            other => other?,
        };
        Ok(ShadowReplica { generation, copy })
    }

    /// Switches to the new replica; the old one is deleted.
    ///
    /// # Errors
    /// When the switch cannot be made durable; then the old one continues to answer.
    pub fn swap(&self, shadow: ShadowReplica) -> Result<(), StoreError> {
        let ShadowReplica { generation, copy } = shadow;
        copy.settle()?;
        self.place.set_current(generation)?;
        *self.current.write() = Arc::new(copy);
        self.place.sweep(generation);
        Ok(())
    }

    /// Discards a replica that was begun: its cursor has expired, and it must start again.
    pub fn abandon(&self, shadow: ShadowReplica) {
        let generation = shadow.generation;
        drop(shadow);
        self.place.remove(generation);
    }

    /// Deletes the replica permanently.
    ///
    /// # Errors
    /// When a part of it cannot be deleted.
    pub fn destroy(self) -> Result<(), StoreError> {
        let folder = self.place.folder().to_path_buf();
        drop(self);
        fs::remove_dir_all(folder).map_err(unavailable)
    }
}

impl ShadowReplica {
    /// Applies changes and their cursor to the replica that is being built.
    ///
    /// # Errors
    /// As [`Replica::apply`].
    pub fn apply(&self, batch: &ReplicaBatch) -> Result<(), StoreError> {
        apply::batch(&self.copy, batch)
    }

    /// Its position: an interrupted build continues here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn cursor(&self) -> Result<Option<String>, StoreError> {
        self.copy.cursor()
    }

    /// Its progress.
    #[must_use]
    pub fn freshness(&self) -> ReplicaFreshness {
        self.copy.freshness()
    }
}
