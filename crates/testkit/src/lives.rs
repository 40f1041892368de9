//! What a crash test keeps across the lives of a killed process: its clock, and what it was told.
//!
//! Takes a folder; gives back, in the next life, what the last one wrote. Promise: time never runs
//! backwards between two lives, and an acknowledgement is on file before anything else is done.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::json;
use sluice_core::batch::Window;
use sluice_core::capability::EffectClass;
use sluice_core::{Action, AgentName, Clock as _, HoldId, Ids, Span, Tier, Timestamp};
use sluice_store::Admission;

use crate::clock::ManualClock;
use crate::oracle::{append_to, write_line};
use crate::world;

/// A hand-moved clock that remembers where it stood.
#[derive(Debug)]
pub struct LastingClock {
    /// What the store reads.
    pub clock: ManualClock,
    file: File,
}

/// What was acknowledged, and to whom.
#[derive(Debug)]
pub struct Acks {
    file: File,
    /// The hold of each write that was acknowledged as admitted.
    pub admitted: BTreeMap<u32, HoldId>,
}

impl LastingClock {
    /// As the last life left it.
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
            Ok(ms) => ManualClock::at(Timestamp::from_millis(ms)),
            Err(_) => ManualClock::default(),
        };
        Self { clock, file }
    }

    /// Time passes. It is on file before anyone can see it.
    ///
    /// # Panics
    /// When it cannot be kept.
    pub fn advance(&self, span: Span) {
        let text = format!("{:020}", (self.clock.now() + span).as_millis());
        let written = self.file.write_at(text.as_bytes(), 0);
        assert!(written.is_ok_and(|count| count == text.len()), "the time was not kept");
        self.clock.advance(span);
    }
}

impl Acks {
    /// Everything acknowledged so far.
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

    /// The lines: a word, the write's number, its hold.
    ///
    /// # Panics
    /// When a line is not whole.
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

    /// Takes an acknowledgement to file.
    pub fn note(&mut self, word: &str, number: u32, hold: HoldId) {
        write_line(&self.file, &format!("{word} {number} {hold}\n"));
        if word == "admitted" {
            self.admitted.insert(number, hold);
        }
    }
}

/// The workload: what each write is follows from its number alone, so that every life asks the same.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// How many writes.
    pub writes: u32,
    /// Only this class, or all in turn.
    pub class: Option<EffectClass>,
}

impl Workload {
    /// The class of a write.
    #[must_use]
    pub fn class_of(&self, number: u32) -> EffectClass {
        let turn = EffectClass::ALL.get(number as usize % EffectClass::ALL.len());
        self.class.or(turn.copied()).unwrap_or(EffectClass::Opaque)
    }

    /// Whether its agent tries to stop it.
    #[must_use]
    pub fn is_regretted(&self, number: u32) -> bool {
        number % 7 == 3
    }

    /// Whether a person is asked first.
    #[must_use]
    pub fn needs_yes(&self, number: u32) -> bool {
        number % 7 == 5
    }

    /// What is to be done.
    ///
    /// # Panics
    /// Never: the arguments are plain.
    #[must_use]
    pub fn action(&self, number: u32) -> Action {
        let agent = AgentName::new("clerk").unwrap_or_else(|error| panic!("{error}"));
        let capability = "custom:mail".parse().unwrap_or_else(|error| panic!("{error}"));
        let arguments = json!({"to": "li@northpeak.example", "text": format!("write {number}")});
        Action::custom(capability, agent, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Asks for it, with the agent's own key.
    #[must_use]
    pub fn admission(&self, number: u32, ids: &dyn Ids) -> Admission {
        Admission {
            action: self.action(number),
            class: self.class_of(number),
            delay: Span::from_secs(10 * u64::from(number % 4)),
            tier: if self.needs_yes(number) { Tier::ApprovalRequired } else { Tier::Notify },
            // Batch protection has its own tests; here it would turn every run into one card.
            window: Window { limit: u32::MAX, ..Window::default() },
            idempotency_key: Some(format!("write-{number}")),
            ..world::mail(ids, "clerk", "")
        }
    }
}
