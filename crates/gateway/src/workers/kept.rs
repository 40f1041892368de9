//! Readers that are kept: one worker that reads what one server answers one conversation, for a while.
//!
//! Takes something to read and whose it is; gives what a worker made of it. Promise: a reader meets nothing of another
//! server, agent or session than its first item's; it ends after so many items, so much text, so much time, or a pause;
//! what it does not come back with is read by a fresh one, and what takes too long ends it.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use sluice_core::Span;
use sluice_core::crash::Cause;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Cancel, Exchange, Host, Item, Job, Leaving, Limits, Reply, SLOWEST, Yard};

/// The kind of job that reads more than once.
const KIND: &str = "content.clean.many";
/// Items one reader reads.
const ITEMS: u64 = 1_000;
/// Bytes one reader reads.
const BYTES: u64 = 16 << 20;
/// How long one lives.
const LIFE: Span = Span::from_mins(10);
/// A reader with less time than this is given nothing more.
const LEFT: Span = Span::from_secs(10);
/// How long one waits for its next item.
const PAUSE: Duration = Duration::from_secs(30);
/// Most that wait.
const WAITING: usize = 16;

/// What a worker made of an item.
pub(crate) type Read = (Value, Vec<Vec<u8>>);

/// Readers that wait for the next item of their conversation.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<HashMap<String, Vec<Reader>>>);

/// The way to a reader.
#[derive(Debug)]
struct Reader {
    way: SyncSender<Next>,
    cancel: Cancel,
}

/// Something to read, and where to say what came of it.
#[derive(Debug)]
struct Next {
    task: Value,
    bytes: Vec<u8>,
    answer: oneshot::Sender<Read>,
}

/// What a kept reader did with an item.
#[derive(Debug)]
pub(super) enum Ended {
    /// It read it.
    Read(Read),
    /// It did not come back with it.
    Broke,
    /// It took too long.
    TookTooLong,
}

impl Kept {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Reader>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, whose: &str) -> Option<Reader> {
        let mut waiting = self.waiting();
        let readers = waiting.get_mut(whose)?;
        let reader = readers.pop();
        if readers.is_empty() {
            waiting.remove(whose);
        }
        reader
    }

    /// Puts a reader back. One too many is let go, and ends.
    fn put(&self, whose: String, reader: Reader) {
        let mut waiting = self.waiting();
        if waiting.values().map(Vec::len).sum::<usize>() < WAITING {
            waiting.entry(whose).or_default().push(reader);
        }
    }

    /// Has an item read by a reader of this conversation, or by a new one.
    pub(super) async fn read(&self, yard: &Yard, whose: &str, job: (Value, Vec<u8>)) -> std::io::Result<Ended> {
        let (task, bytes) = job;
        let (answer, answered) = oneshot::channel();
        let mut next = Next { task, bytes, answer };
        let reader = loop {
            let reader = match self.take(whose) {
                Some(reader) => reader,
                None => start(yard)?,
            };
            match reader.way.send(next) {
                Ok(()) => break reader,
                // It had paused long enough and ended.
                Err(mpsc::SendError(back)) => next = back,
            }
        };
        let leaving = Leaving::with(&reader.cancel);
        match timeout(SLOWEST.as_duration(), answered).await {
            Err(_) => Ok(Ended::TookTooLong),
            Ok(Err(_)) => Ok(Ended::Broke),
            Ok(Ok(read)) => {
                leaving.stay();
                self.put(whose.to_owned(), reader);
                Ok(Ended::Read(read))
            }
        }
    }
}

/// A thread with a reader, which it watches and answers.
fn start(yard: &Yard) -> std::io::Result<Reader> {
    let (way, nexts) = mpsc::sync_channel(1);
    let cancel = Cancel::new()?;
    let (readers, watched) = (std::sync::Arc::clone(&yard.readers), cancel.clone());
    let live = move || {
        let limits = Limits {
            wall: LIFE,
            cpu: Span::from_secs(60),
            frames: 3 * ITEMS,
            exchanges: ITEMS + 1,
            ..Limits::default()
        };
        let job = Job { kind: KIND.into(), payload: Value::Null, attachments: Vec::new() };
        // For the next conversation, if this is the first.
        readers.make_ready();
        let mut host = Desk { nexts, now: None, items: 0, bytes: 0 };
        // Whoever waits for an answer of it finds out by its silence, and has the item read by another.
        let _ended = readers.perform_within(limits, job, &mut host, &watched);
    };
    std::thread::Builder::new().name("worker-kept".into()).spawn(live)?;
    Ok(Reader { way, cancel })
}

/// Answers for the gateway while a reader reads.
struct Desk {
    nexts: Receiver<Next>,
    /// Who waits for the item it has.
    now: Option<oneshot::Sender<Read>>,
    items: u64,
    bytes: u64,
}

impl Host for Desk {
    fn exchange(&mut self, _: Exchange, left: Span) -> Result<Reply, Cause> {
        let over = || Reply::Refused { code: "content.enough".into(), text: "there is no more".into(), not_sent: true };
        // Whoever has an item asks for no other.
        if self.now.is_some() {
            return Err(Cause::MalformedFrame);
        }
        if self.items >= ITEMS || self.bytes >= BYTES || left < LEFT {
            return Ok(over());
        }
        let Ok(Next { task, bytes, answer }) = self.nexts.recv_timeout(PAUSE) else { return Ok(over()) };
        self.items += 1;
        self.bytes += bytes.len() as u64;
        self.now = Some(answer);
        Ok(Reply::Answer { status: 200, headers: vec![("task".into(), task.to_string())], body: bytes })
    }

    fn item(&mut self, item: Item) -> Result<(), Cause> {
        let Some(answer) = self.now.take() else { return Err(Cause::MalformedFrame) };
        // Whoever asked may have gone.
        let _told = answer.send((item.payload, item.attachments));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> (SyncSender<Next>, Desk) {
        let (way, nexts) = mpsc::sync_channel(1);
        (way, Desk { nexts, now: None, items: 0, bytes: 0 })
    }

    fn ask() -> Exchange {
        Exchange {
            ticket: String::new(),
            method: "NEXT".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn item() -> Item {
        Item { payload: Value::Null, attachments: Vec::new() }
    }

    fn give(way: &SyncSender<Next>) -> oneshot::Receiver<Read> {
        let (answer, answered) = oneshot::channel();
        way.send(Next { task: Value::Null, bytes: vec![1; 10], answer }).unwrap();
        answered
    }

    #[test]
    fn each_item_has_one_answer_and_none_comes_unasked() {
        let (way, mut desk) = desk();
        assert_eq!(desk.item(item()), Err(Cause::MalformedFrame), "nothing was given");
        let mut answered = give(&way);
        assert!(matches!(desk.exchange(ask(), LIFE), Ok(Reply::Answer { .. })));
        assert_eq!(desk.exchange(ask(), LIFE), Err(Cause::MalformedFrame), "the first was not answered");
        assert_eq!(desk.item(item()), Ok(()));
        assert!(answered.try_recv().is_ok());
        assert_eq!(desk.item(item()), Err(Cause::MalformedFrame), "an item has one answer");
    }

    #[test]
    fn a_reader_that_has_read_enough_or_is_old_gets_nothing_more() {
        let ends = |change: fn(&mut Desk), left: Span| {
            let (way, mut desk) = desk();
            let _answered = give(&way);
            change(&mut desk);
            matches!(desk.exchange(ask(), left), Ok(Reply::Refused { .. }))
        };
        assert!(!ends(|_| {}, LIFE));
        assert!(ends(|desk| desk.items = ITEMS, LIFE));
        assert!(ends(|desk| desk.bytes = BYTES, LIFE));
        assert!(ends(|_| {}, Span::from_secs(1)));
    }
}
