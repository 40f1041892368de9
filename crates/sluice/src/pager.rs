//! A pager for output that is longer than the screen.
//!
//! Takes the stdout of commands that only show things. Promise: if no pager can be used, the output is printed
//! directly; no process is left running.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use anstream::AutoStream;
use clap::ArgMatches;
use parking_lot::Mutex;

use crate::console::CommandConsole;

/// Commands whose output people read from top to bottom.
const READ: [&str; 12] = [
    "list",
    "show",
    "explain",
    "history",
    "diff",
    "templates",
    "schema",
    "help",
    "crashes",
    "crash",
    "capabilities",
    "search",
];
/// The default pager: exits by itself if everything fits on the screen, keeps colours, leaves the text there.
const USUAL: [&str; 2] = ["less", "-FRX"];

/// Whether the command shows something and ends.
pub(crate) fn is_worth_it(typed: &ArgMatches) -> bool {
    let (mut at, mut name) = (typed, "");
    while let Some((next, below)) = at.subcommand() {
        (name, at) = (next, below);
    }
    let set = |flag: &str| at.try_get_one::<bool>(flag).ok().flatten() == Some(&true);
    READ.contains(&name) && !set("watch") && !set("follow")
}

/// The pipe to the pager while one is open.
static PIPE: Mutex<Option<AutoStream<File>>> = Mutex::new(None);

/// Prints to the pager. `None` if there is none.
pub(crate) fn print(text: std::fmt::Arguments<'_>) -> Option<io::Result<()>> {
    let mut pipe = PIPE.lock();
    pipe.as_mut().map(|pipe| pipe.write_fmt(text))
}

/// An open pager.
#[derive(Debug)]
pub(crate) struct Pager {
    child: Child,
}

impl Pager {
    /// Opens a pager, if a person reads and one is available.
    pub(crate) fn open(screen: &CommandConsole) -> Option<Self> {
        if !screen.is_terminal() {
            return None;
        }
        // The colour choice of stdout applies, not that of a pipe.
        let colour = AutoStream::choice(&io::stdout());
        let mut child = program()?.stdin(Stdio::piped()).spawn().ok()?;
        let pipe = AutoStream::new(File::from(OwnedFd::from(child.stdin.take()?)), colour);
        *PIPE.lock() = Some(pipe);
        Some(Self { child })
    }

    /// Closes its input, and waits until the person quits it.
    pub(crate) fn close(mut self) {
        *PIPE.lock() = None;
        let _ended = self.child.wait();
    }
}

/// The pager from the environment, or the default.
fn program() -> Option<Command> {
    let wanted = ["SLUICE_PAGER", "PAGER"].into_iter().find_map(std::env::var_os);
    match wanted {
        Some(line) if line.is_empty() || line == "cat" => None,
        Some(line) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(line);
            Some(shell)
        }
        None => {
            let [name, flags] = USUAL;
            let path = std::env::var_os("PATH")?;
            let there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
            there.then(|| {
                let mut less = Command::new(name);
                less.arg(flags);
                less
            })
        }
    }
}
