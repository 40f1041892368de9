//! Kept readers: one worker reads what one server answers in one conversation, for a while.
//!
//! Takes something to read and the conversation it belongs to; gives the worker's result. Promise: a reader never meets
//! content of a server, agent or session other than that of its first item; it ends after a number of items, an amount
//! of text, a time or a pause; an item that it fails on is read by a fresh reader, and an item that takes too long ends
//! it.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use sluice_core::Millis;
use sluice_core::crash::CrashCause;
use sluice_protocol::{ContentCleanManyTask, ContentCleanTask, NextItemReply};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{
    CancelWorkerOnDrop, ExchangeReply, SLOWEST, WorkerCancel, WorkerExchange, WorkerHost, WorkerItem, WorkerJob,
    WorkerLimits, WorkerPool,
};

/// Most items that one reader reads.
const ITEMS: u64 = 1_000;
/// Most bytes that one reader reads.
const BYTES: u64 = 16 << 20;
/// The longest lifetime of a reader.
const LIFE: Millis = Millis::from_mins(10);
/// A reader with less time left than this gets no more items.
const LEFT: Millis = Millis::from_secs(10);
/// How long a reader waits for its next item.
const PAUSE: Duration = Duration::from_secs(30);
/// Most readers that wait.
const WAITING: usize = 16;

/// A worker's result for an item.
pub type ReaderOutput = (Value, Vec<Vec<u8>>);

/// Readers that wait for the next item of their conversation.
#[derive(Debug, Default)]
pub(super) struct KeptReaders(Mutex<HashMap<String, Vec<KeptReader>>>);

/// The channel to a reader.
#[derive(Debug)]
struct KeptReader {
    way: SyncSender<KeptReaderAssignment>,
    cancel: WorkerCancel,
}

/// An item to read, and where to send its result.
#[derive(Debug)]
struct KeptReaderAssignment {
    task: ContentCleanTask,
    bytes: Vec<u8>,
    answer: oneshot::Sender<ReaderOutput>,
}

/// What a kept reader did with an item.
#[derive(Debug)]
pub(super) enum KeptReadResult {
    /// It read the item.
    Read(ReaderOutput),
    /// It failed on the item.
    Broke,
    /// It took too long.
    TookTooLong,
}

impl KeptReaders {
    fn waiting(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Vec<KeptReader>>> {
        self.0.lock()
    }

    fn take(&self, whose: &str) -> Option<KeptReader> {
        let mut waiting = self.waiting();
        let readers = waiting.get_mut(whose)?;
        let reader = readers.pop();
        if readers.is_empty() {
            waiting.remove(whose);
        }
        reader
    }

    /// Puts a reader back. If there are too many, one is dropped, and ends.
    fn put(&self, whose: String, reader: KeptReader) {
        let mut waiting = self.waiting();
        if waiting.values().map(Vec::len).sum::<usize>() < WAITING {
            waiting.entry(whose).or_default().push(reader);
        }
    }

    /// Has an item read by a reader of this conversation, or by a new one.
    pub(super) async fn read(
        &self,
        pool: &WorkerPool,
        whose: &str,
        job: (ContentCleanTask, Vec<u8>),
    ) -> std::io::Result<KeptReadResult> {
        let (task, bytes) = job;
        let (answer, answered) = oneshot::channel();
        let mut next = KeptReaderAssignment { task, bytes, answer };
        let reader = loop {
            let reader = match self.take(whose) {
                Some(reader) => reader,
                None => start(pool)?,
            };
            match reader.way.send(next) {
                Ok(()) => break reader,
                // The reader's pause was too long, and it ended.
                Err(mpsc::SendError(back)) => next = back,
            }
        };
        let leaving = CancelWorkerOnDrop::with(&reader.cancel);
        match timeout(SLOWEST.as_duration(), answered).await {
            Err(_) => Ok(KeptReadResult::TookTooLong),
            Ok(Err(_)) => Ok(KeptReadResult::Broke),
            Ok(Ok(read)) => {
                leaving.stay();
                self.put(whose.to_owned(), reader);
                Ok(KeptReadResult::Read(read))
            }
        }
    }
}

/// A thread with a reader, which it watches and serves.
fn start(pool: &WorkerPool) -> std::io::Result<KeptReader> {
    let (way, nexts) = mpsc::sync_channel(1);
    let cancel = WorkerCancel::new()?;
    let (readers, watched) = (std::sync::Arc::clone(&pool.readers), cancel.clone());
    let live = move || {
        let limits = WorkerLimits {
            wall: LIFE,
            cpu: Millis::from_secs(60),
            frames: 3 * ITEMS,
            exchanges: ITEMS + 1,
            ..WorkerLimits::default()
        };
        let job = WorkerJob::of(&ContentCleanManyTask, Vec::new());
        // For the next conversation, if this is the first.
        readers.make_ready();
        let mut host = ReaderConversation { nexts, now: None, items: 0, bytes: 0 };
        // A caller that waits for an answer sees the channel close, and has the item read by another reader.
        let _ended = readers.perform_within(limits, job, &mut host, &watched);
    };
    std::thread::Builder::new().name("worker-kept".into()).spawn(live)?;
    Ok(KeptReader { way, cancel })
}

/// Answers for the gateway while a reader reads.
struct ReaderConversation {
    nexts: Receiver<KeptReaderAssignment>,
    /// The channel of the caller that waits for the current item.
    now: Option<oneshot::Sender<ReaderOutput>>,
    items: u64,
    bytes: u64,
}

impl WorkerHost for ReaderConversation {
    /// A reader sends no requests.
    fn exchange(&mut self, _: WorkerExchange, _: Millis) -> Result<ExchangeReply, CrashCause> {
        Err(CrashCause::MalformedFrame)
    }

    fn next_item(&mut self, left: Millis) -> Result<NextItemReply, CrashCause> {
        // A worker that has an item requests no other.
        if self.now.is_some() {
            return Err(CrashCause::MalformedFrame);
        }
        if self.items >= ITEMS || self.bytes >= BYTES || left < LEFT {
            return Ok(NextItemReply::Over);
        }
        let Ok(KeptReaderAssignment { task, bytes, answer }) = self.nexts.recv_timeout(PAUSE) else {
            return Ok(NextItemReply::Over);
        };
        self.items += 1;
        self.bytes += bytes.len() as u64;
        self.now = Some(answer);
        Ok(NextItemReply::Item { task, bytes })
    }

    fn item(&mut self, item: WorkerItem) -> Result<(), CrashCause> {
        let Some(answer) = self.now.take() else { return Err(CrashCause::MalformedFrame) };
        // The caller may have gone.
        let _told = answer.send((item.payload, item.attachments));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (SyncSender<KeptReaderAssignment>, ReaderConversation) {
        let (way, nexts) = mpsc::sync_channel(1);
        (way, ReaderConversation { nexts, now: None, items: 0, bytes: 0 })
    }

    fn item() -> WorkerItem {
        WorkerItem { payload: Value::Null, attachments: Vec::new() }
    }

    fn give(way: &SyncSender<KeptReaderAssignment>) -> oneshot::Receiver<ReaderOutput> {
        let (answer, answered) = oneshot::channel();
        way.send(KeptReaderAssignment { task: ContentCleanTask::default(), bytes: vec![1; 10], answer }).unwrap();
        answered
    }

    #[test]
    fn each_item_has_one_answer_and_none_comes_unasked() {
        let (way, mut host) = host();
        assert_eq!(host.item(item()), Err(CrashCause::MalformedFrame), "nothing was given");
        let mut answered = give(&way);
        assert!(matches!(host.next_item(LIFE), Ok(NextItemReply::Item { .. })));
        assert_eq!(host.next_item(LIFE), Err(CrashCause::MalformedFrame), "the first was not answered");
        assert_eq!(host.item(item()), Ok(()));
        assert!(answered.try_recv().is_ok());
        assert_eq!(host.item(item()), Err(CrashCause::MalformedFrame), "an item has one answer");
    }

    #[test]
    fn a_reader_that_sends_a_request_is_ended() {
        let (_way, mut host) = host();
        let request = WorkerExchange {
            ticket: String::new(),
            method: "GET".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        assert_eq!(host.exchange(request, LIFE), Err(CrashCause::MalformedFrame));
    }

    #[test]
    fn a_reader_that_has_read_enough_or_is_old_gets_nothing_more() {
        let ends = |change: fn(&mut ReaderConversation), left: Millis| {
            let (way, mut host) = host();
            let _answered = give(&way);
            change(&mut host);
            matches!(host.next_item(left), Ok(NextItemReply::Over))
        };
        assert!(!ends(|_| {}, LIFE));
        assert!(ends(|host| host.items = ITEMS, LIFE));
        assert!(ends(|host| host.bytes = BYTES, LIFE));
        assert!(ends(|_| {}, Millis::from_secs(1)));
    }
}
