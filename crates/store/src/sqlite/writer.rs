//! The writer's life on a file: take what has queued up, commit it together, answer.
//!
//! Two queues: what stops things (cancel, deny, freeze) is always taken first and never shares a commit
//! with anything else. Promise: stopping waits for at most the one commit that is under way, and works on
//! a full disk too, from space that was kept for it; while that space is in use nothing else is written.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use sluice_core::{Clock, NodeName};
use tokio::sync::mpsc;

use super::ballast::Ballast;
use super::footing::OpenedFiles;
use super::{LOG_PAGES, SqliteTx};
use crate::desk::Errand;
use crate::error::StoreError;
use crate::porter::Porter;

/// How often a writer that has just served one lone caller looks for the next errand before it sleeps. A caller that
/// does one thing after the other is back sooner than a sleeping thread is awake.
const LOOKS: u32 = 100;
/// Most errands that share one commit.
pub(super) const GROUP: usize = 256;

type Errands = mpsc::Receiver<Box<dyn Errand<SqliteTx>>>;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Stop,
    Ordinary,
}

/// The thread that owns the one connection that writes.
pub(super) struct Writer {
    pub tx: SqliteTx,
    pub ordinary: Errands,
    pub stops: Errands,
    pub node: NodeName,
    pub clock: Arc<dyn Clock>,
    pub ballast: Ballast,
    pub footing: OpenedFiles,
    pub porter: Porter<SqliteTx>,
    /// Set once the file can no longer be believed by this process.
    pub broken: Option<StoreError>,
}

/// Wakes a thread that waits for errands.
struct Alarm(std::thread::Thread);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Writer {
    /// Serves until both queues are closed and empty.
    pub fn live(mut self) {
        let waker = Waker::from(Arc::new(Alarm(std::thread::current())));
        let mut looks = 0;
        while let Some((lane, first)) = self.next(&waker, looks) {
            looks = match self.serve(lane, first) {
                1 => LOOKS,
                _ => 0,
            };
        }
    }

    /// The next errand, of those that stop something first. Looks so often before it sleeps.
    fn next(&mut self, waker: &Waker, mut looks: u32) -> Option<(Lane, Box<dyn Errand<SqliteTx>>)> {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(Some(errand)) = self.stops.poll_recv(&mut context) {
                return Some((Lane::Stop, errand));
            }
            match self.ordinary.poll_recv(&mut context) {
                Poll::Ready(Some(errand)) => return Some((Lane::Ordinary, errand)),
                // The queue of stops was closed before this one, and it was empty just now.
                Poll::Ready(None) => return None,
                // Whoever else has work goes first.
                Poll::Pending if looks > 0 => {
                    looks -= 1;
                    std::thread::yield_now();
                }
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Commits an errand with whatever waits behind it in its lane. Says how many that were.
    fn serve(&mut self, lane: Lane, first: Box<dyn Errand<SqliteTx>>) -> usize {
        let mut group = vec![first];
        let queue = match lane {
            Lane::Stop => &mut self.stops,
            Lane::Ordinary => &mut self.ordinary,
        };
        while group.len() < GROUP
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let count = group.len();
        self.serve_group(lane, group);
        count
    }

    fn serve_group(&mut self, lane: Lane, mut group: Vec<Box<dyn Errand<SqliteTx>>>) {
        if let Some(fault) = &self.broken {
            return answer(group, Some(fault));
        }
        // What was given up so that stops work is theirs until there is space again.
        if lane == Lane::Ordinary && !self.is_ballast_back() {
            return answer(group, Some(&StoreError::DiskFull));
        }
        let alone = group.len() == 1;
        match self.commit(lane, &mut group) {
            Ok(()) => self.porter.carry(group, self.tx.take_spent()),
            Err(fault) if alone || is_final(&fault) => answer(group, Some(&fault)),
            // One of them does not fit; the others must not suffer for it.
            Err(_) => group.into_iter().for_each(|errand| self.serve_alone(lane, errand)),
        }
    }

    /// Whether ordinary work may go on; if it may again, so may moving the log into the file.
    fn is_ballast_back(&mut self) -> bool {
        let was_away = self.ballast.is_away();
        self.ballast.is_back() && (!was_away || self.tx.move_log_at(LOG_PAGES).is_ok())
    }

    fn serve_alone(&mut self, lane: Lane, errand: Box<dyn Errand<SqliteTx>>) {
        while lane == Lane::Ordinary
            && let Ok(stop) = self.stops.try_recv()
        {
            self.serve(Lane::Stop, stop);
        }
        let mut group = [errand];
        let fault = self.commit(lane, &mut group).err();
        answer(group, fault.as_ref());
    }

    /// Commits a group. A stop that finds the disk full is tried once more with the space kept for it.
    fn commit(&mut self, lane: Lane, group: &mut [Box<dyn Errand<SqliteTx>>]) -> Result<(), StoreError> {
        let Self { tx, node, clock, .. } = self;
        let mut done = tx.commit_group(node, clock.as_ref(), group);
        if lane == Lane::Stop && matches!(done, Err(StoreError::DiskFull)) && self.ballast.release() {
            // Moving the log into the file would take the space that the next stop needs.
            tx.move_log_at(0)?;
            done = tx.commit_group(node, clock.as_ref(), group);
        }
        // What is committed into a file that nobody finds again is not durable, whatever SQLite says.
        let done = done.and_then(|()| self.footing.check());
        if let Err(fault) = &done
            && is_final(fault)
        {
            self.broken = Some(fault.share());
        }
        done
    }
}

fn answer(group: impl IntoIterator<Item = Box<dyn Errand<SqliteTx>>>, fault: Option<&StoreError>) {
    group.into_iter().for_each(|errand| errand.deliver(fault));
}

/// Whether the file can no longer be believed by this process.
fn is_final(fault: &StoreError) -> bool {
    matches!(fault, StoreError::Damaged { .. } | StoreError::Removed)
}
