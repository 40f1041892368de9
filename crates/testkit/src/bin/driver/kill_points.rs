//! The points at which the driver process can be made to end, before and after every step.
//!
//! Reaching a point is reported on standard output, so that a parent that kills from outside knows the progress of the
//! driver. At the chosen point the process kills itself, without any cleanup.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write as _;

use rustix::process::{Signal, getpid, kill_process};

#[derive(Debug, Default)]
pub struct KillPoints {
    /// The point at which to end, and at which visit.
    fatal: Option<(String, u32)>,
    visits: RefCell<HashMap<String, u32>>,
}

impl KillPoints {
    /// Parses `NAME:N`.
    pub fn dying_at(place: Option<&str>) -> Self {
        let fatal = place.map(|place| match place.split_once(':').map(|(name, n)| (name, n.parse())) {
            Some((name, Ok(n))) => (name.to_owned(), n),
            _ => panic!("`{place}` is not NAME:N"),
        });
        Self { fatal, visits: RefCell::default() }
    }

    /// The point just before a step.
    pub fn before(&self, step: &str) {
        self.reach(&format!("before_{step}"));
    }

    /// The point just after a step.
    pub fn after(&self, step: &str) {
        self.reach(&format!("after_{step}"));
    }

    fn reach(&self, name: &str) {
        say(&format!("at {name}"));
        let mut visits = self.visits.borrow_mut();
        let visit = visits.entry(name.to_owned()).or_default();
        *visit += 1;
        if self.fatal.as_ref().is_some_and(|(place, n)| place == name && n == visit) {
            die();
        }
    }
}

/// Writes one line for the parent, at once.
pub fn say(line: &str) {
    // A parent that no longer reads is about to kill us; nothing is lost.
    drop(std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()));
}

/// Ends the process as a kill from outside would: no destructor, no flush, no rollback.
fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort();
}
