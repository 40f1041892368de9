//! Programs of the machine that the gateway runs for agents: git, and those an operator lists.

use std::path::PathBuf;

use sluice_core::Span;

use super::channels::Word;
use super::section::section;
use super::size::Size;

section! {
    /// Repositories below `filesystem.roots`: `git.*`. See git.md.
    Git at "git" {
        /// Whether `git.*` is carried out. The rules decide what an agent may do with it.
        enabled: bool = false,
        /// The program, by its whole path; unless given, `git` in /usr/local/bin, /usr/bin or /bin.
        program: Option<PathBuf> = None,
        /// Names of `egress.connections` that clone, pull and push may use, with their hosts, limits and credential. The
        /// connection must allow GET and POST. Without one, git reaches no network.
        connections: Vec<Word> = Vec::new(),
        /// How long one step of git may take.
        time: Span = Span::from_secs(40); within Span::from_secs(1)..=Span::from_secs(50),
        /// Memory of one step.
        memory: Size = Size::from_mb(512); within Size::from_mb(64)..=Size::from_mb(65_536),
        /// Most that a call gives of what git says.
        output: Size = Size::from_mb(1); within Size::from_bytes(4096)..=Size::from_mb(8),
    }
}

section! {
    /// Programs that agents may run below `filesystem.roots`: `process.*`. See process.md.
    Process at "process" {
        /// Programs that may be run, by name (found in /usr/local/bin, /usr/bin and /bin) or whole path. Without one,
        /// `process.*` is off. An interpreter in this list runs whatever the agent gives it.
        programs: Vec<Word> = Vec::new(),
        /// Folders beside those of the system that programs may read and execute.
        read: Vec<PathBuf> = Vec::new(),
        /// Programs at once. Further ones are refused.
        at_once: u32 = 4; within 1..=64,
        /// The longest time that a call can ask for.
        time: Span = Span::from_mins(10); within Span::from_secs(1)..=Span::from_hours(1),
        /// Memory of one program, and the most that a call can ask for.
        memory: Size = Size::from_mb(1024); within Size::from_mb(16)..=Size::from_mb(65_536),
        /// How much is kept of the output of one program: the newest of each stream.
        output: Size = Size::from_mb(1); within Size::from_bytes(4096)..=Size::from_mb(16),
    }
}
