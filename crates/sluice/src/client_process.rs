//! The client that started this program, and the session of the gateway that stands for its conversation.
//!
//! A coding client starts its hooks and its MCP servers as processes of its own. A hook writes down, for the client's
//! process, in which session of the gateway the client works; the bridge reads that before each call, so that the calls
//! of both meet in one session with one task. Promise: what is written down names a session and gives no right. The
//! gateway takes it only from a key of the same agent, which may name that session anyway.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use sluice_core::ids::SessionId;

use crate::client::private_file;
use crate::failure::{Exit, Failure};
use crate::settings::variable;

/// Programs that only start others.
const STARTERS: [&str; 12] =
    ["sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox", "env", "timeout", "nice", "sudo"];
/// How many processes above this one are looked at.
const HIGHEST: usize = 16;
/// How many of them, shells left out, the bridge asks about.
const ASKED: usize = 2;

/// Where this program keeps what it has to remember.
pub(crate) fn state_folder() -> Result<PathBuf, Failure> {
    let base = match (variable("XDG_STATE_HOME")?, variable("HOME")?) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => PathBuf::from(home).join(".local/state"),
        (None, None) => return Err(Failure::new(Exit::Failed, "there is no home folder")),
    };
    Ok(base.join("sluice"))
}

/// Writes down that the client which started this program works in a session of the gateway at this address. Where that
/// fails, the calls of the bridge have no task, and people are asked about more.
pub(crate) fn works_in(address: &str, session: &str) {
    let Some(client) = above().into_iter().next() else { return };
    let Ok(place) = place(address, &client) else { return };
    if !fs::read_to_string(&place).is_ok_and(|known| known == session) {
        let _without_a_task = write_beside(&place, session);
    }
}

/// The session in which the client that started this program works at this address, if one is known.
pub(crate) fn session(address: &str) -> Option<String> {
    above().into_iter().take(ASKED).find_map(|client| {
        let written = fs::read_to_string(place(address, &client).ok()?).ok()?;
        written.trim().parse::<SessionId>().ok().map(|session| session.to_string())
    })
}

/// Writes a small private file as a whole: whoever reads it meanwhile reads the old one or the new one.
pub(crate) fn write_beside(place: &std::path::Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = place.with_extension(std::process::id().to_string());
    let _leftover = fs::remove_file(&beside);
    let (mut file, _) = private_file(&beside)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&beside, place)?;
    Ok(())
}

fn place(address: &str, client: &Process) -> Result<PathBuf, Failure> {
    let mut print = Sha256::new();
    for part in [address, &client.number.to_string(), &client.since] {
        print.update(part.as_bytes());
        print.update([0]);
    }
    let name: String = print.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(state_folder()?.join("clients").join(name))
}

/// A process above this one. Numbers are used again; with the time of its start they name one process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    number: u32,
    since: String,
}

/// The processes above this one, the nearest first, without those that only start others.
fn above() -> Vec<Process> {
    let mut found = Vec::new();
    let mut number = std::os::unix::process::parent_id();
    for _ in 0..HIGHEST {
        if number <= 1 {
            break;
        }
        let Some((name, parent, since)) =
            fs::read_to_string(format!("/proc/{number}/stat")).ok().and_then(|stat| read(&stat))
        else {
            break;
        };
        if !STARTERS.contains(&name.as_str()) {
            found.push(Process { number, since });
        }
        number = parent;
    }
    // Where the system has no such files, the parent alone has to do.
    if found.is_empty() && !std::path::Path::new("/proc/self/stat").exists() {
        found.push(Process { number: std::os::unix::process::parent_id(), since: String::new() });
    }
    found
}

/// Name, parent and start of a process, from its line of the kernel.
fn read(stat: &str) -> Option<(String, u32, String)> {
    // The name stands in brackets and may hold any character.
    let (start, rest) = stat.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    let mut fields = rest.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let since = fields.nth(17)?.to_owned();
    Some((name.to_owned(), parent, since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let rest = "S 41 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 200";
        for name in ["node", "a b", "x) S 7 (y", "MainThread"] {
            let read = read(&format!("42 ({name}) {rest}"));
            assert_eq!(read, Some((name.to_owned(), 41, "98765".to_owned())));
        }
        assert_eq!(read("42 node"), None);
    }

    #[test]
    fn this_process_has_one_above_it() {
        assert!(above().len() <= HIGHEST);
    }
}
