//! The client that started this program, and the gateway session that belongs to its conversation.
//!
//! A coding client starts its hooks and its MCP servers as separate processes. A hook stores, for the client's
//! process, the gateway session in which the client works; the bridge reads that before each call, so that the calls
//! of both belong to one session with one task. Promise: what is stored names a session and gives no right. The
//! gateway accepts it only with a key of the same agent, which may use that session anyway.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use sluice_core::ids::SessionId;

use crate::client::create_private_file;
use crate::failure::{CliError, CommandExit};
use crate::settings::variable;

/// Programs that only start other programs.
const STARTERS: [&str; 12] =
    ["sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox", "env", "timeout", "nice", "sudo"];
/// How many parent processes are looked at.
const HIGHEST: usize = 16;
/// How many parent processes, without shells, the bridge considers.
const ASKED: usize = 2;

/// The folder where this program keeps its state.
pub(crate) fn state_folder() -> Result<PathBuf, CliError> {
    let base = match (variable("XDG_STATE_HOME")?, variable("HOME")?) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => PathBuf::from(home).join(".local/state"),
        (None, None) => return Err(CliError::new(CommandExit::Failed, "there is no home folder")),
    };
    Ok(base.join("sluice"))
}

/// Stores that the client which started this program works in this session of the gateway at this address. If that
/// fails, the calls of the bridge have no task, and more of them need an approval.
pub(crate) fn record_session(address: &str, session: &str) {
    let Some(client) = list_ancestor_processes().into_iter().next() else { return };
    let Ok(place) = place(address, &client) else { return };
    if !fs::read_to_string(&place).is_ok_and(|known| known == session) {
        let _without_a_task = write_atomically(&place, session);
    }
}

/// The session of the client that started this program at this address, if one is stored.
pub(crate) fn session(address: &str) -> Option<String> {
    list_ancestor_processes().into_iter().take(ASKED).find_map(|client| {
        let written = fs::read_to_string(place(address, &client).ok()?).ok()?;
        written.trim().parse::<SessionId>().ok().map(|session| session.to_string())
    })
}

/// Writes a small private file atomically: a reader sees the old content or the new one.
pub(crate) fn write_atomically(place: &std::path::Path, text: &str) -> Result<(), CliError> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = place.with_extension(std::process::id().to_string());
    let _leftover = fs::remove_file(&beside);
    let (mut file, _) = create_private_file(&beside)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&beside, place)?;
    Ok(())
}

fn place(address: &str, client: &AncestorProcess) -> Result<PathBuf, CliError> {
    let mut print = Sha256::new();
    for part in [address, &client.number.to_string(), &client.since] {
        print.update(part.as_bytes());
        print.update([0]);
    }
    let name: String = print.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(state_folder()?.join("clients").join(name))
}

/// A parent process. Process ids are reused; together with the start time they identify one process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AncestorProcess {
    number: u32,
    since: String,
}

/// The parent processes, the nearest first, without those that only start other programs.
fn list_ancestor_processes() -> Vec<AncestorProcess> {
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
            found.push(AncestorProcess { number, since });
        }
        number = parent;
    }
    // Where the system has no such files, only the parent is used.
    if found.is_empty() && !std::path::Path::new("/proc/self/stat").exists() {
        found.push(AncestorProcess { number: std::os::unix::process::parent_id(), since: String::new() });
    }
    found
}

/// Name, parent and start time of a process, from its line in /proc.
fn read(stat: &str) -> Option<(String, u32, String)> {
    // The name is in brackets and may contain any character.
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
        assert!(list_ancestor_processes().len() <= HIGHEST);
    }
}
