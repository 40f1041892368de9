//! The porter: hands out the answers of a committed group while the writer is at the next one.
//!
//! Takes groups whose commit is durable, with whatever was used up on the way; wakes everybody who waits for an
//! answer, and clears away the rest. Promise: nothing is handed over before its commit, and every answer is out
//! before the writer's thread has ended.

use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::desk::Errand;
use crate::sql::Write;

/// Fewer than this the writer hands out itself: waking the porter would take longer.
const MANY: usize = 8;

/// A committed group.
struct Parcel<T> {
    group: Vec<Box<dyn Errand<T>>>,
    /// Changes that have been made. Nobody needs them; to free them takes time.
    spent: Vec<Write>,
}

/// The thread that does it.
pub(crate) struct Porter<T> {
    parcels: Option<mpsc::Sender<Parcel<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: 'static> Porter<T> {
    /// Without a thread of its own it still hands out everything, on the writer's.
    pub fn new() -> Self {
        let (parcels, coming) = mpsc::channel::<Parcel<T>>();
        let work = move || coming.into_iter().for_each(Parcel::hand_out);
        let thread = std::thread::Builder::new().name("store-porter".into()).spawn(work).ok();
        Self { parcels: thread.is_some().then_some(parcels), thread }
    }

    /// Hands out the answers of a group that is durable.
    pub fn carry(&self, group: Vec<Box<dyn Errand<T>>>, spent: Vec<Write>) {
        let parcel = Parcel { group, spent };
        match &self.parcels {
            Some(parcels) if parcel.group.len() >= MANY => {
                if let Err(mpsc::SendError(parcel)) = parcels.send(parcel) {
                    parcel.hand_out();
                }
            }
            Some(_) | None => parcel.hand_out(),
        }
    }
}

impl<T> Parcel<T> {
    fn hand_out(self) {
        self.group.into_iter().for_each(|errand| errand.deliver(None));
        drop(self.spent);
    }
}

impl<T> Drop for Porter<T> {
    fn drop(&mut self) {
        self.parcels = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
