//! The crowd at a listener: how many connections are inside, and which one goes when there is no place.
//!
//! Takes connections; gives each a place or none. Promise: at the main listener a connection too many is told to come
//! again. The one for stopping lets it in, and the connection that has been silent longest goes: whoever only holds
//! connections open, an agent with nothing but a loop included, keeps nobody from stopping things.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_core::Span;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::route::Lane;

/// How long the place of one that was sent away may take to become free.
const SOON: Span = Span::from_secs(1);

/// Everyone at a listener.
#[derive(Debug)]
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    lane: Lane,
    most: usize,
    /// Who is at the listener for stopping, the longest there first.
    inside: VecDeque<(AbortHandle, Busy)>,
}

/// Whether a connection is being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicUsize>);

/// A request on its way to its answer.
#[derive(Debug)]
pub(super) struct AtWork(Busy);

impl Busy {
    /// A request has come in whole; its answer is on its way until this is dropped.
    pub fn begin(&self) -> AtWork {
        self.0.fetch_add(1, Ordering::Relaxed);
        AtWork(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crowd {
    pub fn new(lane: Lane, most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), lane, most, inside: VecDeque::new() }
    }

    /// A place, if there is one or one can be made.
    pub async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        if self.lane == Lane::Main {
            return None;
        }
        self.forget_gone();
        let silent = self.inside.iter().position(|(_, busy)| busy.is_idle())?;
        self.inside.remove(silent)?.0.abort();
        timeout(SOON.as_duration(), Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()
    }

    /// A connection has taken its place.
    pub fn entered(&mut self, task: AbortHandle, busy: Busy) {
        if self.lane == Lane::Main {
            return;
        }
        if self.inside.len() > self.most {
            self.forget_gone();
        }
        self.inside.push_back((task, busy));
    }

    fn forget_gone(&mut self) {
        self.inside.retain(|(task, _)| !task.is_finished());
    }
}
