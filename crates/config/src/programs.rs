//! Program settings: programs of the machine that the gateway runs for agents: git, and those that an operator lists.

use std::path::PathBuf;

use sluice_core::Millis;

use super::channels::SingleWord;
use super::section::section;
use super::size::ByteSize;

section! {
    /// Git repositories below `filesystem.roots`: `git.*`. See git.md.
    Git at "git" {
        /// Whether `git.*` is enabled. The rules decide what an agent may do with it.
        enabled: bool = false,
        /// The git program, by its absolute path; by default `git` in /usr/local/bin, /usr/bin or /bin.
        program: Option<PathBuf> = None,
        /// Names of `egress.connections` that clone, pull and push may use, with their hosts, limits and credential. The
        /// connection must allow GET and POST. Without one, git reaches no network.
        connections: Vec<SingleWord> = Vec::new(),
        /// How long one step of git may take.
        time: Millis = Millis::from_secs(40); within Millis::from_secs(1)..=Millis::from_secs(50),
        /// Most memory of one step.
        memory: ByteSize = ByteSize::from_mb(512); within ByteSize::from_mb(64)..=ByteSize::from_mb(65_536),
        /// Most output of git that a call returns.
        output: ByteSize = ByteSize::from_mb(1); within ByteSize::from_bytes(4096)..=ByteSize::from_mb(8),
    }
}

section! {
    /// Programs that agents may run below `filesystem.roots`: `process.*`. See process.md.
    Process at "process" {
        /// Programs that may be run, by name (found in /usr/local/bin, /usr/bin and /bin) or absolute path. Without
        /// one, `process.*` is off. An interpreter in this list runs any code that the agent gives it.
        programs: Vec<SingleWord> = Vec::new(),
        /// Folders that programs may read and execute, in addition to those of the system.
        read: Vec<PathBuf> = Vec::new(),
        /// Most programs at once. Further ones are refused.
        at_once: u32 = 4; within 1..=64,
        /// The longest time that a call can ask for.
        time: Millis = Millis::from_mins(10); within Millis::from_secs(1)..=Millis::from_hours(1),
        /// Most memory of one program, and the most that a call can ask for.
        memory: ByteSize = ByteSize::from_mb(1024); within ByteSize::from_mb(16)..=ByteSize::from_mb(65_536),
        /// How much output of one program is kept: the newest of each stream.
        output: ByteSize = ByteSize::from_mb(1); within ByteSize::from_bytes(4096)..=ByteSize::from_mb(16),
    }
}
