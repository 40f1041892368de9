//! The error output of a mounted server, and its own words about calls that failed.
//!
//! Takes bytes as they come from a program, and lines of the gateway; gives the last of them, numbered. Promise: every
//! line is kept until newer lines need its room; a line is scrubbed as a whole, so that a secret in two pieces is found;
//! what was pushed out is counted.

use std::collections::VecDeque;

use sluice_content::leak::LiveSecrets;
use sluice_core::{CallId, UtcMillis};

/// Room for the lines of one mount, in bytes.
const ROOM: usize = 512 << 10;
/// Most lines of one mount.
const LINES: usize = 5_000;
/// Longest line; a longer one is kept in pieces.
const LINE: usize = 8 << 10;
/// Calls whose error message is remembered.
const CALLS: usize = 200;

/// Who wrote a line of the log of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountLogSource {
    /// The program, on its error output.
    Server,
    /// The gateway, about the program.
    Gateway,
}

impl MountLogSource {
    /// The word for it in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Gateway => "gateway",
        }
    }
}

/// One line of the log of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLogLine {
    /// Its number, from 1 on. Numbers are not used again while the gateway runs.
    pub number: u64,
    /// When its end arrived.
    pub at: UtcMillis,
    /// Who wrote it.
    pub from: MountLogSource,
    /// Its text, without live secrets.
    pub text: String,
}

/// The last lines of a mount.
#[derive(Debug, Default)]
pub(super) struct MountLogRing {
    lines: VecDeque<MountLogLine>,
    bytes: usize,
    written: u64,
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    /// What servers said about calls that failed, screened.
    words: VecDeque<(CallId, String, UtcMillis)>,
}

impl MountLogRing {
    /// Adds what a program wrote.
    pub(super) fn feed(&mut self, bytes: &[u8], at: UtcMillis, secrets: &LiveSecrets) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            while self.begun.len() > LINE {
                let rest = self.begun.split_off(LINE);
                let line = std::mem::replace(&mut self.begun, rest);
                self.put_line(&line, at, secrets);
            }
            if self.begun.ends_with(b"\n") {
                self.finish(at, secrets);
            }
        }
    }

    /// Ends a line that has no end, because the program has ended.
    pub(super) fn finish(&mut self, at: UtcMillis, secrets: &LiveSecrets) {
        let line = std::mem::take(&mut self.begun);
        if !line.is_empty() {
            self.put_line(&line, at, secrets);
        }
    }

    fn put_line(&mut self, line: &[u8], at: UtcMillis, secrets: &LiveSecrets) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches(['\n', '\r']);
        let text = secrets.scrub_text(text).unwrap_or_else(|| text.to_owned());
        self.put(MountLogSource::Server, at, text);
    }

    /// Adds a line.
    pub(super) fn put(&mut self, from: MountLogSource, at: UtcMillis, text: String) {
        self.written += 1;
        self.bytes += text.len();
        self.lines.push_back(MountLogLine { number: self.written, at, from, text });
        while self.lines.len() > LINES || self.bytes > ROOM {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// The lines after this number, the last `most` of them.
    pub(super) fn after(&self, number: u64, most: usize) -> Vec<MountLogLine> {
        let newer: Vec<&MountLogLine> = self.lines.iter().filter(|line| line.number > number).collect();
        newer.iter().skip(newer.len().saturating_sub(most)).map(|line| (*line).clone()).collect()
    }

    /// How many lines were pushed out.
    pub(super) fn dropped(&self) -> u64 {
        self.written - self.lines.len() as u64
    }

    /// The last lines of the program itself, as one text.
    pub(super) fn last_words(&self, room: usize) -> String {
        let mut kept = Vec::new();
        let mut left = room;
        for line in self.lines.iter().rev().filter(|line| line.from == MountLogSource::Server) {
            let Some(rest) = left.checked_sub(line.text.len() + 1) else { break };
            left = rest;
            kept.push(line.text.as_str());
        }
        kept.reverse();
        kept.iter().skip_while(|line| line.is_empty()).flat_map(|line| [*line, "\n"]).collect()
    }

    /// Remembers what a server said about a call that failed.
    pub(super) fn remember(&mut self, call: CallId, words: String, at: UtcMillis) {
        if self.words.len() >= CALLS {
            self.words.pop_front();
        }
        self.words.push_back((call, words, at));
    }

    /// What the server said about a call that failed, and when.
    pub(super) fn words_about(&self, call: CallId) -> Option<(String, UtcMillis)> {
        let found = self.words.iter().rev().find(|(known, ..)| *known == call);
        found.map(|(_, words, at)| (words.clone(), *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ring: &MountLogRing) -> Vec<String> {
        ring.after(0, usize::MAX).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_put_together_from_pieces_and_the_last_one_needs_no_end() {
        let (mut ring, secrets, at) = (MountLogRing::default(), LiveSecrets::default(), UtcMillis::from_millis(0));
        ring.feed(b"one\ntw", at, &secrets);
        assert_eq!(texts(&ring), ["one"]);
        ring.feed(b"o\r\n\nthree", at, &secrets);
        assert_eq!(texts(&ring), ["one", "two", ""]);
        ring.finish(at, &secrets);
        assert_eq!(texts(&ring), ["one", "two", "", "three"]);
        assert_eq!(ring.after(2, 1)[0].number, 4, "the last of those that were asked for");
        assert_eq!(ring.last_words(10), "three\n");
    }

    #[test]
    fn old_lines_make_room_and_are_counted() {
        let (mut ring, secrets, at) = (MountLogRing::default(), LiveSecrets::default(), UtcMillis::from_millis(0));
        for n in 0..LINES + 10 {
            ring.feed(format!("{n}\n").as_bytes(), at, &secrets);
        }
        assert_eq!((ring.after(0, usize::MAX).len(), ring.dropped()), (LINES, 10));
        ring.feed(&vec![b'x'; 4 * ROOM], at, &secrets);
        assert!(ring.bytes <= ROOM && ring.begun.len() <= LINE && ring.dropped() > 5_000);
        assert!(ring.after(0, usize::MAX).iter().all(|line| line.text.len() <= LINE));
    }
}
