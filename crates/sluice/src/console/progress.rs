//! Progress of long work, for a person at a terminal.
//!
//! Takes a name and how far the work is; draws one line on stderr. Promise: nothing is drawn where nobody looks
//! (stderr is not a terminal, or `--quiet`), and the line is gone when the work is.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::CommandConsole;

/// How often a second the line is drawn.
const HERTZ: u8 = 8;
const KNOWN: &str = "{msg} {bar:24} {human_pos} of {human_len}, {per_sec}, {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {human_pos}, {per_sec}";

/// One line that says how far some work is. It disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct TaskProgress(ProgressBar);

impl CommandConsole {
    /// Begins to show how far some work is.
    pub(crate) fn progress(&self, what: &str, total: Option<u64>) -> TaskProgress {
        TaskProgress::new(what, total, self.draws_progress())
    }

    /// Whether a person can see progress.
    pub(crate) fn draws_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }
}

impl TaskProgress {
    /// A line on stderr, or none.
    pub(crate) fn new(what: &str, total: Option<u64>, drawn: bool) -> Self {
        let target = if drawn { ProgressDrawTarget::stderr_with_hz(HERTZ) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_message(what.to_owned());
        let progress = Self(bar);
        progress.set_style(total.is_some());
        progress
    }

    /// How much is done, of how much if that is known.
    pub(crate) fn reached(&self, done: u64, total: Option<u64>) {
        if let Some(total) = total
            && self.0.length() != Some(total)
        {
            self.0.set_length(total);
            self.set_style(true);
        }
        self.0.set_position(done);
    }

    fn set_style(&self, is_known: bool) {
        // Both templates are constants; with one that cannot be read the plain style stays.
        if let Ok(style) = ProgressStyle::with_template(if is_known { KNOWN } else { UNKNOWN }) {
            self.0.set_style(style.progress_chars("##-"));
        }
    }
}

impl Drop for TaskProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_can_be_read() {
        for template in [KNOWN, UNKNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn a_total_that_becomes_known_is_shown() {
        let progress = TaskProgress::new("copying", None, false);
        progress.reached(3, None);
        assert_eq!((progress.0.position(), progress.0.length()), (3, None));
        progress.reached(4, Some(9));
        assert_eq!((progress.0.position(), progress.0.length()), (4, Some(9)));
    }
}
