//! What a crash test keeps between the processes it kills: its clock, and the acknowledgements it got.
//!
//! Takes a folder; gives the next process what the last one wrote. Promise: time never runs backwards between two
//! processes, and an acknowledgement is in its file before anything else is done.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::json;
use sluice_core::batch::SlidingWindow;
use sluice_core::capability::EffectClass;
use sluice_core::{Action, AgentName, Clock as _, HoldId, Ids, Millis, Tier, UtcMillis};
use sluice_store::Admission;

use crate::clock::ManualClock;
use crate::oracle::{append_to, write_line};
use crate::test_store;

/// A hand-moved clock that stores its time in a file.
#[derive(Debug)]
pub struct LastingClock {
    /// The clock that the store reads.
    pub clock: ManualClock,
    file: File,
}

/// The acknowledgements that callers received.
#[derive(Debug)]
pub struct AcknowledgedWrites {
    file: File,
    /// The hold of each write that was acknowledged as admitted.
    pub admitted: BTreeMap<u32, HoldId>,
}

impl LastingClock {
    /// Continues at the time that the last process stored.
    ///
    /// # Panics
    /// When the file cannot be used.
    #[must_use]
    pub fn resume(folder: &Path) -> Self {
        let path = folder.join("clock");
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("no clock: {error}"));
        let read = std::fs::read_to_string(&path).unwrap_or_default();
        let clock = match read.trim().parse() {
            Ok(ms) => ManualClock::at(UtcMillis::from_millis(ms)),
            Err(_) => ManualClock::default(),
        };
        Self { clock, file }
    }

    /// Moves the time. It is in the file before anyone can see it.
    ///
    /// # Panics
    /// When it cannot be stored.
    pub fn advance(&self, span: Millis) {
        let text = format!("{:020}", (self.clock.now() + span).as_millis());
        let written = self.file.write_at(text.as_bytes(), 0);
        assert!(written.is_ok_and(|count| count == text.len()), "the time was not kept");
        self.clock.advance(span);
    }
}

impl AcknowledgedWrites {
    /// Loads everything acknowledged so far.
    #[must_use]
    pub fn resume(folder: &Path) -> Self {
        let path = folder.join("acks");
        let mut admitted = BTreeMap::new();
        for (word, number, hold) in Self::read(folder) {
            if word == "admitted" {
                admitted.insert(number, hold);
            }
        }
        Self { file: append_to(&path), admitted }
    }

    /// The lines: a word, the number of the write, its hold.
    ///
    /// # Panics
    /// When a line is incomplete.
    #[must_use]
    pub fn read(folder: &Path) -> Vec<(String, u32, HoldId)> {
        let text = std::fs::read_to_string(folder.join("acks")).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "the last acknowledgement is torn");
        let parts = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        parts
            .map(|parts| match parts.as_slice() {
                [word, number, hold] => match (number.parse(), hold.parse()) {
                    (Ok(number), Ok(hold)) => ((*word).to_owned(), number, hold),
                    _ => panic!("an acknowledgement of nothing: {parts:?}"),
                },
                _ => panic!("an acknowledgement nobody understands: {parts:?}"),
            })
            .collect()
    }

    /// Writes an acknowledgement to the file.
    pub fn note(&mut self, word: &str, number: u32, hold: HoldId) {
        write_line(&self.file, &format!("{word} {number} {hold}\n"));
        if word == "admitted" {
            self.admitted.insert(number, hold);
        }
    }
}

/// The workload: each write is derived from its number alone, so that every process makes the same calls.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// The number of writes.
    pub writes: u32,
    /// Only this class, or all classes in turn.
    pub class: Option<EffectClass>,
}

impl Workload {
    /// The class of a write.
    #[must_use]
    pub fn class_of(&self, number: u32) -> EffectClass {
        let turn = EffectClass::ALL.get(number as usize % EffectClass::ALL.len());
        self.class.or(turn.copied()).unwrap_or(EffectClass::Opaque)
    }

    /// Whether its agent tries to cancel it.
    #[must_use]
    pub fn is_regretted(&self, number: u32) -> bool {
        number % 7 == 3
    }

    /// Whether a person must approve it first.
    #[must_use]
    pub fn needs_yes(&self, number: u32) -> bool {
        number % 7 == 5
    }

    /// The action of a write.
    ///
    /// # Panics
    /// Never: the arguments are valid.
    #[must_use]
    pub fn action(&self, number: u32) -> Action {
        let agent = AgentName::new("clerk").unwrap_or_else(|error| panic!("{error}"));
        let capability = "custom:mail".parse().unwrap_or_else(|error| panic!("{error}"));
        let arguments = json!({"to": "li@northpeak.example", "text": format!("write {number}")});
        Action::custom(capability, agent, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The admission of a write, with the agent's own key.
    #[must_use]
    pub fn admission(&self, number: u32, ids: &dyn Ids) -> Admission {
        Admission {
            action: self.action(number),
            class: self.class_of(number),
            delay: Millis::from_secs(10 * u64::from(number % 4)),
            tier: if self.needs_yes(number) { Tier::ApprovalRequired } else { Tier::Notify },
            // Batch protection has its own tests; here it would turn every run into one card.
            window: SlidingWindow { limit: u32::MAX, ..SlidingWindow::default() },
            idempotency_key: Some(format!("write-{number}")),
            ..test_store::mail(ids, "clerk", "")
        }
    }
}
