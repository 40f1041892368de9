//! The table of programs that agents started, with their output.
//!
//! Takes programs as they start, print and end; gives each agent its own. Promise: the kept output is limited, the
//! newest lines stay, and dropped lines are counted; a program that ended stays listed until newer ones replace it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{AgentName, UtcMillis};
use tokio::sync::watch;

use crate::workers::{ProgramExit, ProgramSignalSender, WorkerCancel};

/// The most programs that are remembered, including those that ended.
const REMEMBERED: usize = 256;
/// The longest line that is kept complete, in bytes.
const LINE: usize = 8 << 10;

/// The state of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramState {
    Running,
    /// It ended by itself.
    Completed(Option<i32>),
    /// It was ended by a signal, or by force.
    Killed,
    /// It reached its time limit.
    TimedOut,
}

impl ProgramState {
    /// The name in answers and in `state_filter`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed(_) => "completed",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The output stream of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramOutputStream {
    Output,
    Complaints,
}

/// The output of a program, the newest lines of it.
#[derive(Debug)]
pub(super) struct ProgramLog {
    lines: VecDeque<(u64, ProgramOutputStream, String)>,
    bytes: usize,
    most: usize,
    next: u64,
    /// The beginnings of lines that have not ended, by stream.
    open: [Vec<u8>; 2],
}

impl ProgramLog {
    fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, most, next: 0, open: [Vec::new(), Vec::new()] }
    }

    /// Adds a piece of output.
    pub fn take(&mut self, stream: ProgramOutputStream, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let [output, complaints] = &mut self.open;
            let open = if stream == ProgramOutputStream::Output { output } else { complaints };
            open.extend_from_slice(part);
            if part.ends_with(b"\n") || open.len() >= LINE {
                let whole = std::mem::take(open);
                self.put(stream, &whole);
            }
        }
    }

    /// Ends the output: an unfinished line counts as a line.
    pub fn finish(&mut self) {
        let [output, complaints] = std::mem::take(&mut self.open);
        for (stream, rest) in [(ProgramOutputStream::Output, output), (ProgramOutputStream::Complaints, complaints)] {
            if !rest.is_empty() {
                self.put(stream, &rest);
            }
        }
    }

    fn put(&mut self, stream: ProgramOutputStream, line: &[u8]) {
        let text = String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned();
        self.bytes += text.len();
        self.lines.push_back((self.next, stream, text));
        self.next += 1;
        while self.bytes > self.most
            && let Some((_, _, dropped)) = self.lines.pop_front()
        {
            self.bytes -= dropped.len();
        }
    }

    /// Lines of a stream from a number on, the number to continue with, and how many lines were dropped at the
    /// beginning.
    pub fn page(&self, stream: Option<ProgramOutputStream>, from: u64, most: usize) -> (Vec<String>, u64, u64) {
        let dropped = self.lines.front().map_or(self.next, |(number, ..)| *number);
        let wanted =
            |line: &&(u64, ProgramOutputStream, String)| line.0 >= from && stream.is_none_or(|stream| stream == line.1);
        let found: Vec<&(u64, ProgramOutputStream, String)> = self.lines.iter().filter(wanted).take(most).collect();
        let next = found.last().map_or_else(|| from.max(dropped), |(number, ..)| number + 1);
        (found.into_iter().map(|(_, _, text)| text.clone()).collect(), next, dropped)
    }

    /// The last lines of a stream.
    pub fn last(&self, stream: ProgramOutputStream, most: usize) -> Vec<String> {
        let mut found: Vec<String> =
            self.lines.iter().rev().filter(|line| line.1 == stream).take(most).map(|line| line.2.clone()).collect();
        found.reverse();
        found
    }

    /// The total number of lines.
    pub const fn count(&self) -> u64 {
        self.next
    }
}

/// One program.
#[derive(Debug)]
pub(super) struct ProgramEntry {
    pub agent: AgentName,
    pub command: String,
    pub started: UtcMillis,
    pub ended: Mutex<Option<UtcMillis>>,
    pub log: Mutex<ProgramLog>,
    pub cancel: WorkerCancel,
    pub signals: Mutex<Option<ProgramSignalSender>>,
    state: watch::Sender<ProgramState>,
}

impl ProgramEntry {
    pub fn new((agent, command): (AgentName, String), started: UtcMillis, cancel: WorkerCancel, most: usize) -> Self {
        let (state, _) = watch::channel(ProgramState::Running);
        Self {
            agent,
            command,
            started,
            ended: Mutex::default(),
            log: Mutex::new(ProgramLog::new(most)),
            cancel,
            signals: Mutex::default(),
            state,
        }
    }

    pub fn state(&self) -> ProgramState {
        *self.state.borrow()
    }

    pub fn log(&self) -> MutexGuard<'_, ProgramLog> {
        self.log.lock()
    }

    /// Records how it ended, unless a reason was recorded before.
    pub fn end(&self, exit: ProgramExit, at: UtcMillis) {
        self.log().finish();
        self.ended.lock().get_or_insert(at);
        self.state.send_if_modified(|state| {
            let ended = match exit {
                ProgramExit::Code(code) => ProgramState::Completed(Some(code)),
                ProgramExit::Unknown => ProgramState::Completed(None),
                ProgramExit::Signal(_) => ProgramState::Killed,
            };
            let was_running = *state == ProgramState::Running;
            if was_running {
                *state = ended;
            }
            was_running
        });
    }

    /// Ends it by force, for this reason.
    pub fn stop(&self, why: ProgramState) {
        self.state.send_if_modified(|state| {
            let was_running = *state == ProgramState::Running;
            if was_running {
                *state = why;
            }
            was_running
        });
        self.cancel.cancel();
    }

    /// Waits until it no longer runs.
    pub async fn wait_until_ended(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _over = state.wait_for(|state| *state != ProgramState::Running).await;
    }

    pub fn ended(&self) -> Option<UtcMillis> {
        *self.ended.lock()
    }
}

/// All programs, by id; newer ones have greater ids.
#[derive(Debug, Default)]
pub(super) struct ProgramTable(Mutex<BTreeMap<String, Arc<ProgramEntry>>>);

impl ProgramTable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ProgramEntry>>> {
        self.0.lock()
    }

    /// Adds a program, unless the limit of running programs is reached.
    pub fn add(&self, id: &str, entry: &Arc<ProgramEntry>, at_once: usize) -> bool {
        let mut all = self.all();
        if all.values().filter(|entry| entry.state() == ProgramState::Running).count() >= at_once {
            return false;
        }
        while all.len() >= REMEMBERED {
            let over = all.iter().find(|(_, entry)| entry.state() != ProgramState::Running).map(|(id, _)| id.clone());
            let Some(over) = over else { break };
            all.remove(&over);
        }
        all.insert(id.to_owned(), Arc::clone(entry));
        true
    }

    pub fn remove(&self, id: &str) {
        self.all().remove(id);
    }

    /// A program of this agent.
    pub fn of(&self, agent: &AgentName, id: &str) -> Option<Arc<ProgramEntry>> {
        self.all().get(id).filter(|entry| entry.agent == *agent).cloned()
    }

    /// All programs of this agent, the newest first.
    pub fn list(&self, agent: &AgentName) -> Vec<(String, Arc<ProgramEntry>)> {
        let all = self.all();
        let own = all.iter().rev().filter(|(_, entry)| entry.agent == *agent);
        own.map(|(id, entry)| (id.clone(), Arc::clone(entry))).collect()
    }

    /// Ends every program.
    pub fn end_all(&self) {
        self.all().values().for_each(|entry| entry.stop(ProgramState::Killed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_stay_and_the_others_are_counted() {
        let mut log = ProgramLog::new(20);
        log.take(ProgramOutputStream::Output, b"one\ntw");
        log.take(ProgramOutputStream::Complaints, b"oh\n");
        log.take(ProgramOutputStream::Output, b"o\n");
        assert_eq!(log.page(None, 0, 10), (vec!["one".into(), "oh".into(), "two".into()], 3, 0));
        assert_eq!(log.page(Some(ProgramOutputStream::Complaints), 0, 10).0, ["oh"]);
        log.take(ProgramOutputStream::Output, b"0123456789\nabcdefgh");
        log.finish();
        let (lines, next, dropped) = log.page(None, 0, 10);
        assert_eq!((lines, next, dropped), (vec!["0123456789".into(), "abcdefgh".into()], 5, 3));
        assert_eq!(log.last(ProgramOutputStream::Output, 1), ["abcdefgh"]);
        log.take(ProgramOutputStream::Output, &vec![b'x'; LINE * 3]);
        assert!(log.bytes <= 20 && log.open[0].len() < LINE, "an endless line does not grow without end");
    }
}
