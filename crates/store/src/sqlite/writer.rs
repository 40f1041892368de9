//! The writer thread of a file: takes the queued commands, commits them together, answers.
//!
//! Two queues: commands that stop something (cancel, deny, freeze) are always taken first and never share a commit with
//! anything else. Promise: stopping waits for at most the one commit that is running, and works on a full disk too,
//! with space that was reserved for it. While that space is in use, nothing else is written.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use sluice_core::{Clock, NodeName};
use tokio::sync::mpsc;

use super::ballast::BallastFile;
use super::opened_files::OpenedFiles;
use super::{LOG_PAGES, SqliteTx};
use crate::error::StoreError;
use crate::reply_dispatcher::ReplyDispatcher;
use crate::unit_of_work::StoreCommand;

/// How often a writer that has just served a single caller checks for the next command before it sleeps. A caller that
/// sends one command after the other is back sooner than a sleeping thread wakes up.
const LOOKS: u32 = 100;
/// Most commands that share one commit.
pub(super) const GROUP: usize = 256;

type SqliteCommandReceiver = mpsc::Receiver<Box<dyn StoreCommand<SqliteTx>>>;

/// The queue that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterLane {
    Stop,
    Ordinary,
}

/// The thread that owns the one connection that writes.
pub(super) struct SqliteWriter {
    pub tx: SqliteTx,
    pub ordinary: SqliteCommandReceiver,
    pub stops: SqliteCommandReceiver,
    pub node: NodeName,
    pub clock: Arc<dyn Clock>,
    pub ballast: BallastFile,
    pub footing: OpenedFiles,
    pub porter: ReplyDispatcher<SqliteTx>,
    /// Set once this process can no longer trust the file.
    pub broken: Option<StoreError>,
}

/// Wakes a thread that waits for commands.
struct ThreadWaker(std::thread::Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl SqliteWriter {
    /// Serves until both queues are closed and empty.
    pub fn run(mut self) {
        let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let mut looks = 0;
        while let Some((lane, first)) = self.next(&waker, looks) {
            looks = match self.serve(lane, first) {
                1 => LOOKS,
                _ => 0,
            };
        }
    }

    /// The next command; those that stop something first. Checks this often before it sleeps.
    fn next(&mut self, waker: &Waker, mut looks: u32) -> Option<(WriterLane, Box<dyn StoreCommand<SqliteTx>>)> {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(Some(errand)) = self.stops.poll_recv(&mut context) {
                return Some((WriterLane::Stop, errand));
            }
            match self.ordinary.poll_recv(&mut context) {
                Poll::Ready(Some(errand)) => return Some((WriterLane::Ordinary, errand)),
                // The stop queue was closed before this one, and it was empty just now.
                Poll::Ready(None) => return None,
                // Other threads with work go first.
                Poll::Pending if looks > 0 => {
                    looks -= 1;
                    std::thread::yield_now();
                }
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Commits a command with all that wait behind it in its lane. Returns how many there were.
    fn serve(&mut self, lane: WriterLane, first: Box<dyn StoreCommand<SqliteTx>>) -> usize {
        let mut group = vec![first];
        let queue = match lane {
            WriterLane::Stop => &mut self.stops,
            WriterLane::Ordinary => &mut self.ordinary,
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

    fn serve_group(&mut self, lane: WriterLane, mut group: Vec<Box<dyn StoreCommand<SqliteTx>>>) {
        if let Some(fault) = &self.broken {
            return answer(group, Some(fault));
        }
        // The released space is reserved for stops until there is enough space again.
        if lane == WriterLane::Ordinary && !self.restore_ballast() {
            return answer(group, Some(&StoreError::DiskFull));
        }
        let alone = group.len() == 1;
        match self.commit(lane, &mut group) {
            Ok(()) => self.porter.dispatch(group, self.tx.take_spent()),
            Err(fault) if alone || is_final(&fault) => answer(group, Some(&fault)),
            // One of them fails; the others must not fail with it.
            Err(_) => group.into_iter().for_each(|errand| self.serve_alone(lane, errand)),
        }
    }

    /// Whether ordinary work may continue; if so, the log may be moved into the file again as well.
    fn restore_ballast(&mut self) -> bool {
        let was_away = self.ballast.is_away();
        self.ballast.restore() && (!was_away || self.tx.move_log_at(LOG_PAGES).is_ok())
    }

    fn serve_alone(&mut self, lane: WriterLane, errand: Box<dyn StoreCommand<SqliteTx>>) {
        while lane == WriterLane::Ordinary
            && let Ok(stop) = self.stops.try_recv()
        {
            self.serve(WriterLane::Stop, stop);
        }
        let mut group = [errand];
        let fault = self.commit(lane, &mut group).err();
        answer(group, fault.as_ref());
    }

    /// Commits a group. A stop that finds the disk full is retried once with the reserved space.
    fn commit(&mut self, lane: WriterLane, group: &mut [Box<dyn StoreCommand<SqliteTx>>]) -> Result<(), StoreError> {
        let Self { tx, node, clock, .. } = self;
        let mut done = tx.commit_group(node, clock.as_ref(), group);
        if lane == WriterLane::Stop && matches!(done, Err(StoreError::DiskFull)) && self.ballast.release() {
            // Moving the log into the file would take the space that the next stop needs.
            tx.move_log_at(0)?;
            done = tx.commit_group(node, clock.as_ref(), group);
        }
        // A commit into a file whose name is gone is not durable, even if SQLite reports success.
        let done = done.and_then(|()| self.footing.check());
        if let Err(fault) = &done
            && is_final(fault)
        {
            self.broken = Some(fault.share());
        }
        done
    }
}

fn answer(group: impl IntoIterator<Item = Box<dyn StoreCommand<SqliteTx>>>, fault: Option<&StoreError>) {
    group.into_iter().for_each(|errand| errand.deliver(fault));
}

/// Whether this process can no longer trust the file.
fn is_final(fault: &StoreError) -> bool {
    matches!(fault, StoreError::Damaged { .. } | StoreError::Removed)
}
