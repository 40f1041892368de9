//! Delivers the answers of a committed group while the writer works on the next one.
//!
//! Takes groups whose commit is durable, with their used changes; wakes every caller that waits for an answer, and
//! frees the rest. Promise: no answer is delivered before its commit, and every answer is delivered before the writer's
//! thread has ended.

use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::sql::SqlWrite;
use crate::unit_of_work::StoreCommand;

/// With fewer answers than this, the writer delivers them itself: waking this thread would take longer.
const MANY: usize = 8;

/// A committed group.
struct CommittedGroup<T> {
    group: Vec<Box<dyn StoreCommand<T>>>,
    /// Changes that have been made. They are no longer needed; freeing them takes time.
    spent: Vec<SqlWrite>,
}

/// The thread that delivers answers.
pub(crate) struct ReplyDispatcher<T> {
    parcels: Option<mpsc::Sender<CommittedGroup<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: 'static> ReplyDispatcher<T> {
    /// If no thread can be started, all answers are delivered on the writer's thread.
    pub fn new() -> Self {
        let (parcels, coming) = mpsc::channel::<CommittedGroup<T>>();
        let work = move || coming.into_iter().for_each(CommittedGroup::deliver_replies);
        let thread = std::thread::Builder::new().name("store-porter".into()).spawn(work).ok();
        Self { parcels: thread.is_some().then_some(parcels), thread }
    }

    /// Delivers the answers of a group that is durable.
    pub fn dispatch(&self, group: Vec<Box<dyn StoreCommand<T>>>, spent: Vec<SqlWrite>) {
        let parcel = CommittedGroup { group, spent };
        match &self.parcels {
            Some(parcels) if parcel.group.len() >= MANY => {
                if let Err(mpsc::SendError(parcel)) = parcels.send(parcel) {
                    parcel.deliver_replies();
                }
            }
            Some(_) | None => parcel.deliver_replies(),
        }
    }
}

impl<T> CommittedGroup<T> {
    fn deliver_replies(self) {
        self.group.into_iter().for_each(|errand| errand.deliver(None));
        drop(self.spent);
    }
}

impl<T> Drop for ReplyDispatcher<T> {
    fn drop(&mut self) {
        self.parcels = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
