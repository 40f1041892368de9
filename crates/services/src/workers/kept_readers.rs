//! Kept readers: one worker reads what one server answers in one conversation, for a while.
//!
//! Takes something to read and the conversation it belongs to; gives the worker's result. Promise: a reader never meets
//! content of a server, agent or session other than that of its first item; it ends after a number of items, an amount
//! of text, a time or a pause; an item that it fails on is read by a fresh reader, and an item that takes too long ends
//! it. Readers that have ended take no place, and of too many that wait the one that has waited longest ends.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
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
const WAITING: usize = 64;

/// A worker's result for an item.
pub type ReaderOutput = (Value, Vec<Vec<u8>>);

/// Readers that wait for the next item of their conversation.
#[derive(Debug, Default)]
pub(super) struct KeptReaders(Mutex<WaitingReaders>);

#[derive(Debug, Default)]
struct WaitingReaders {
    by_conversation: HashMap<String, Vec<KeptReader>>,
    /// How often a reader was put back.
    turns: u64,
}

/// The channel to a reader.
#[derive(Debug)]
struct KeptReader {
    way: SyncSender<KeptReaderAssignment>,
    cancel: WorkerCancel,
    /// Held by the thread that watches it, until it has ended.
    alive: Weak<()>,
    /// When it was put back last, counted in turns.
    since: u64,
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

impl WaitingReaders {
    fn take(&mut self, whose: &str) -> Option<KeptReader> {
        let readers = self.by_conversation.get_mut(whose)?;
        let reader = readers.pop();
        if readers.is_empty() {
            self.by_conversation.remove(whose);
        }
        reader
    }

    /// Puts a reader back. Conversations end without a word, so places are taken from readers that have ended, and then
    /// from the one that has waited longest.
    fn put(&mut self, whose: String, reader: KeptReader) {
        self.turns += 1;
        self.retain(|reader| reader.alive.strong_count() > 0);
        while self.by_conversation.values().map(Vec::len).sum::<usize>() >= WAITING {
            let Some(oldest) = self.by_conversation.values().flatten().map(|reader| reader.since).min() else { break };
            self.retain(|reader| reader.since != oldest);
        }
        self.by_conversation.entry(whose).or_default().push(KeptReader { since: self.turns, ..reader });
    }

    fn retain(&mut self, stays: impl Fn(&KeptReader) -> bool) {
        self.by_conversation.retain(|_, readers| {
            readers.retain(&stays);
            !readers.is_empty()
        });
    }
}

impl KeptReaders {
    fn take(&self, whose: &str) -> Option<KeptReader> {
        self.0.lock().take(whose)
    }

    fn put(&self, whose: String, reader: KeptReader) {
        self.0.lock().put(whose, reader);
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
    let (readers, watched) = (Arc::clone(&pool.readers), cancel.clone());
    let living = Arc::new(());
    let alive = Arc::downgrade(&living);
    let live = move || {
        let _living = living;
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
    Ok(KeptReader { way, cancel, alive, since: 0 })
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

    /// A reader as it waits, and what keeps it alive.
    fn waiting_reader() -> (KeptReader, Arc<()>) {
        let living = Arc::new(());
        let (way, _) = mpsc::sync_channel(1);
        let cancel = WorkerCancel::new().unwrap();
        (KeptReader { way, cancel, alive: Arc::downgrade(&living), since: 0 }, living)
    }

    #[test]
    fn readers_that_have_ended_keep_no_place_from_those_of_later_conversations() {
        let readers = KeptReaders::default();
        for n in 0..2 * WAITING {
            let (reader, living) = waiting_reader();
            readers.put(format!("over {n}"), reader);
            drop(living);
        }
        let (reader, _living) = waiting_reader();
        readers.put("now".into(), reader);
        assert!(readers.take("now").is_some() && readers.take("over 0").is_none());
    }

    #[test]
    fn of_too_many_that_wait_the_one_that_waited_longest_ends() {
        let readers = KeptReaders::default();
        let mut alive = Vec::new();
        for n in 0..=WAITING {
            let (reader, living) = waiting_reader();
            readers.put(n.to_string(), reader);
            alive.push(living);
        }
        let left = (0..=WAITING).filter(|n| readers.take(&n.to_string()).is_some()).collect::<Vec<_>>();
        assert_eq!(left, (1..=WAITING).collect::<Vec<_>>());
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
