//! The local copy of a connected mailbox: reads never touch the service.
//!
//! Takes batches of cleaned mail with the cursor they lead to, gives answers to searches. One SQLite file per
//! copy, read on the calling thread through connections that are handed from reader to reader. Promise: rows
//! and cursor move in one transaction; a copy that has to be made anew is made beside the old one, which
//! answers until the new one is whole.

mod apply;
mod copy;
mod files;
mod packing;
mod place;
mod rank;
mod search;
mod snippet;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use sluice_core::Timestamp;
use sluice_core::mail::query::Query;
use sluice_core::mail::{Attachment, Authentication, Mail};

use crate::error::StoreError;
use copy::Copy;
use place::{Place, unavailable};

pub use place::{Keeping, back_up};
pub use sluice_seal::Key;

/// Who reads. An agent gets a stub of what is withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// An agent.
    Agent,
    /// A person.
    Person,
}

/// In which order messages are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    Newest,
    /// The best first.
    Ranked,
}

/// A search.
#[derive(Debug, Clone, Copy)]
pub struct Search<'q> {
    /// For what.
    pub query: &'q Query,
    /// In which order.
    pub order: Order,
    /// At most so many, up to [`MOST_HITS`].
    pub limit: usize,
    /// After so many.
    pub offset: usize,
    /// For whom.
    pub reader: Reader,
}

/// Most messages of one answer.
pub const MOST_HITS: usize = 100;

/// A message as a search shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The service's id.
    pub id: String,
    /// Its thread.
    pub thread: String,
    /// When the service got it, in milliseconds.
    pub received: i64,
    /// Its sender as people read it.
    pub sender: String,
    /// Its subject.
    pub subject: String,
    /// Where the words were found, or how it begins.
    pub snippet: String,
    /// The service's ids of its labels.
    pub labels: Vec<String>,
    /// Whether it is unread.
    pub unread: bool,
    /// Whether files came with it.
    pub attachment: bool,
    /// Whether it is withheld from agents; sender, subject and snippet are empty then.
    pub withheld: bool,
    /// Whether readers read it in two ways; an agent is given neither sender nor subject then.
    pub ambiguous: bool,
    /// What the receiving server recorded about its sender.
    pub authentication: Option<Authentication>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hits {
    /// In order.
    pub hits: Vec<Hit>,
    /// Whether there are more.
    pub more: bool,
    /// Among how many messages the best were chosen: all that match, or the newest of them.
    pub ranked_over: Option<usize>,
    /// Where only texts could tell and there were too many of them: how many of the newest were looked at.
    pub looked_at: Option<usize>,
    /// How fresh all of this is.
    pub freshness: Freshness,
}

/// How far the copy is behind the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freshness {
    /// When it was last known to be as the service is.
    pub synced_at: Option<Timestamp>,
    /// Whether everything was copied at least once.
    pub complete: bool,
    /// Messages copied by the first sync.
    pub done: u64,
    /// Messages there are, by the service's own estimate.
    pub total: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A message as it is now.
    Put(Box<Mail>),
    /// The content of an attachment of a message that was put before.
    File {
        /// SHA-256 of the content, in hex. Whoever makes the change has checked it.
        sha256: String,
        /// The content.
        bytes: Vec<u8>,
    },
    /// A message that breaks whoever opens it: its place is kept, and that it was set aside.
    Aside(Box<Mail>),
    /// Only its labels are other ones.
    Labels {
        /// Which message.
        id: String,
        /// All it has now.
        labels: Vec<String>,
    },
    /// It is gone.
    Gone {
        /// Which message.
        id: String,
    },
    /// The names of the labels: id and name.
    LabelNames(Vec<(String, String)>),
}

/// An attachment in the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The newest message that holds it.
    pub message: String,
    /// Who that is from, as people read it.
    pub sender: String,
    /// Its name, type, size and hash.
    pub about: Attachment,
}

/// Changes that belong together, and where the copy stands after them.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// In order.
    pub changes: Vec<Change>,
    /// Where the adapter goes on.
    pub cursor: String,
    /// When the copy was as the service is, if it is now.
    pub synced_at: Option<Timestamp>,
    /// How far the first sync is: messages done, and how many there are.
    pub progress: Option<(u64, Option<u64>)>,
}

/// The copy of one connection.
#[derive(Debug)]
pub struct Replica {
    place: Place,
    current: RwLock<Arc<Copy>>,
}

/// A copy that is being made beside the one that answers.
#[derive(Debug)]
pub struct Shadow {
    generation: u64,
    copy: Copy,
}

impl Replica {
    /// Opens the copy in a folder of its own, or begins one. If it lies there in another form than it is to be kept in,
    /// it is turned into that first: as long as copying the file takes.
    ///
    /// # Errors
    /// When the folder or the file cannot be used; [`StoreError::WrongKey`] when it is sealed with another key; when
    /// the file is damaged, it can be deleted and made anew.
    pub fn open(folder: &Path, keeping: &Keeping) -> Result<Self, StoreError> {
        let (place, generation) = Place::open(folder, keeping)?;
        let copy = place.copy(generation)?;
        place.sweep(generation);
        Ok(Self { place, current: RwLock::new(Arc::new(copy)) })
    }

    /// Whether the copy in a folder is sealed: it cannot be opened without its key.
    #[must_use]
    pub fn lies_sealed(folder: &Path) -> bool {
        Place::lies_sealed(folder)
    }

    /// Whether this copy is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.place.is_sealed()
    }

    fn copy(&self) -> Arc<Copy> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks; if that fails and the copy was swapped meanwhile, looks again in the new one: without its files the old one
    /// may fail in any way.
    fn look<Out>(&self, look: impl Fn(&Copy) -> Result<Out, StoreError>) -> Result<Out, StoreError> {
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

    /// Searches.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn search(&self, search: &Search<'_>) -> Result<Hits, StoreError> {
        self.look(|copy| search::run(copy, search))
    }

    /// One message, whole. For an agent, one that is withheld has neither names nor text.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, id: &str, reader: Reader) -> Result<Option<Mail>, StoreError> {
        self.look(|copy| copy.with_reader(|connection| copy::get(connection, id, reader)))
    }

    /// The messages of a thread, oldest first, at most [`MOST_HITS`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn thread(&self, thread: &str, reader: Reader) -> Result<Vec<Mail>, StoreError> {
        self.look(|copy| copy.with_reader(|connection| copy::thread(connection, thread, reader)))
    }

    /// What is known of an attachment, by its hash: from the newest message that holds it and that the reader may see.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn attachment(&self, sha256: &str, reader: Reader) -> Result<Option<Held>, StoreError> {
        self.look(|copy| copy.with_reader(|opened| files::held(opened, sha256, reader)))
    }

    /// The content of an attachment, by its hash; nothing where it was not kept. Who may see it is the caller's question.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn content(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.look(|copy| copy.with_reader(|opened| files::content(opened, sha256)))
    }

    /// Messages that were set aside, by id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn aside(&self) -> Result<Vec<String>, StoreError> {
        self.look(|copy| copy.with_reader(files::aside))
    }

    /// Labels: id and name.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, String)> {
        self.copy().labels().iter().map(|label| (label.id.clone(), label.name.clone())).collect()
    }

    /// How fresh it is.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.copy().freshness()
    }

    /// Where the adapter goes on; nothing before the first batch.
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
        self.look(Copy::count)
    }

    /// How many messages are withheld from agents.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn withheld_count(&self) -> Result<u64, StoreError> {
        self.look(Copy::withheld_count)
    }

    /// Applies changes and their cursor, all or nothing. Applying them again changes nothing.
    ///
    /// # Errors
    /// When they cannot be written; then none of them is.
    pub fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        apply::batch(&self.copy(), batch)
    }

    /// Lets agents see a message that was withheld.
    ///
    /// # Errors
    /// When there is no such message, or it cannot be written.
    pub fn release(&self, id: &str) -> Result<(), StoreError> {
        apply::release(&self.copy(), id)
    }

    /// Begins a fresh copy beside this one, or goes on with one that was begun.
    ///
    /// # Errors
    /// When its file cannot be made.
    pub fn shadow(&self) -> Result<Shadow, StoreError> {
        let generation = self.copy().generation + 1;
        let copy = match self.place.copy(generation) {
            // Half a file is of no use: begin again.
            Err(StoreError::Damaged { .. }) => {
                self.place.remove(generation);
                self.place.copy(generation)?
            }
            other => other?,
        };
        Ok(Shadow { generation, copy })
    }

    /// The fresh copy answers from now on; the old one is deleted.
    ///
    /// # Errors
    /// When the change cannot be made to last; then the old one goes on answering.
    pub fn swap(&self, shadow: Shadow) -> Result<(), StoreError> {
        let Shadow { generation, copy } = shadow;
        copy.settle()?;
        self.place.point(generation)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(copy);
        self.place.sweep(generation);
        Ok(())
    }

    /// Gives up a copy that was begun: its cursor has expired, and it has to begin again.
    pub fn abandon(&self, shadow: Shadow) {
        let generation = shadow.generation;
        drop(shadow);
        self.place.remove(generation);
    }

    /// Deletes the copy for good.
    ///
    /// # Errors
    /// When something of it cannot be deleted.
    pub fn destroy(self) -> Result<(), StoreError> {
        let folder = self.place.folder().to_path_buf();
        drop(self);
        fs::remove_dir_all(folder).map_err(unavailable)
    }
}

impl Shadow {
    /// Applies changes and their cursor to the copy that is being made.
    ///
    /// # Errors
    /// As [`Replica::apply`].
    pub fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        apply::batch(&self.copy, batch)
    }

    /// Where it stands: an interrupted one goes on here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn cursor(&self) -> Result<Option<String>, StoreError> {
        self.copy.cursor()
    }

    /// How far it is.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.copy.freshness()
    }
}
