//! A private PostgreSQL: started for one run, removed after it.
//!
//! Needs a machine with the server installed, or one where we may install it; gives the address of
//! a new server, or the reason why there is none. Promise: it syncs like a real one, nothing that
//! was not started here is stopped, and server and files are removed however the run ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::command::CommandLine;
use crate::packages::{self, command_output};

/// The variable with the server's address, for the tests.
pub const URL: &str = "SLUICE_TEST_POSTGRES";

/// Another process may take the free port before the server does.
const ATTEMPTS: usize = 3;
const PATIENCE_SECONDS: &str = "60";

/// Waits until this process is gone, then stops the server and removes its files. A separate process,
/// because Ctrl-C ends this one without notice; it ignores the same Ctrl-C.
const GUARD: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
folder=$1; pg_ctl=$2; shift 2
cd /
if [ -f "$folder/data/postmaster.pid" ]; then "$@" "$pg_ctl" -D "$folder/data" -m immediate -s -w stop; fi
rm -rf "$folder"
"#;

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    guard: PostgresGuard,
}

/// The process that cleans up when its standard input closes.
#[derive(Debug)]
struct PostgresGuard(Child);

impl PostgresServer {
    /// The server's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until Ctrl-C ends this process; the guard does the rest.
    pub fn keep(mut self) -> ExitCode {
        // Our end of the pipe must stay open: `wait` would close it, so this only checks whether the guard lives.
        while let Ok(None) = self.guard.0.try_wait() {
            std::thread::park_timeout(std::time::Duration::from_secs(1));
        }
        ExitCode::FAILURE
    }
}

impl Drop for PostgresGuard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if let Err(error) = self.0.wait() {
            eprintln!("the private PostgreSQL may still be running: {error}");
        }
    }
}

/// Finds or installs the programs, creates a cluster and starts it.
pub fn start() -> Result<PostgresServer, String> {
    let programs = find_programs().or_else(|| packages::install("postgresql").and_then(|()| find_programs()));
    let programs = programs.ok_or("the server programs are not installed (Debian: apt-get install postgresql)")?;
    let other = if packages::is_root() { become_other()? } else { Vec::new() };
    let folder = command_output(&as_other(&other, &["mktemp", "-d", "/tmp/sluice-pg.XXXXXX"]))?;
    let guard = PostgresGuard::watch(&folder, &programs, &other)?;

    let data = format!("{folder}/data");
    let initdb = programs.join("initdb").display().to_string();
    // Trusting every local connection is for tests only: the server contains only test data.
    ran(&as_other(
        &other,
        &[&initdb, "-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
    ))?;
    let pg_ctl = programs.join("pg_ctl").display().to_string();
    let log = format!("{folder}/log");
    let mut reason = String::new();
    for _ in 0..ATTEMPTS {
        let port = free_port()?;
        let options = format!(
            "-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections=200 -c shared_buffers=64MB \
             -c fsync=on -c synchronous_commit=on -c full_page_writes=on"
        );
        let start = [&pg_ctl, "-D", &data, "-l", &log, "-w", "-t", PATIENCE_SECONDS, "-s", "-o", &options, "start"];
        match ran(&as_other(&other, &start)) {
            Ok(()) => {
                return Ok(PostgresServer { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), guard });
            }
            Err(failed) => reason = failed,
        }
    }
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    Err(format!("{reason}; its log ends: {}", log.lines().next_back().unwrap_or("(empty)")))
}

/// The folder with `initdb`, `pg_ctl` and `postgres`: the newest Debian one, otherwise one in PATH.
fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort_by_key(|folder| version(folder));
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(|folder| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).is_file()))
}

/// The 15 in `…/postgresql/15/bin`.
fn version(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.parse().ok()
}

/// PostgreSQL refuses to run as root: the words that run a command as another user.
fn become_other() -> Result<Vec<&'static str>, String> {
    let ways: [(&str, &[&str]); 4] = [
        ("postgres", &["runuser", "-u", "postgres", "--"]),
        ("nobody", &["runuser", "-u", "nobody", "--"]),
        ("postgres", &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]),
        ("nobody", &["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]),
    ];
    let works = |words: &[&str]| command_output(&as_other(words, &["id", "-u"])).is_ok_and(|id| id != "0");
    let way = ways
        .into_iter()
        .find(|(user, words)| command_output(&CommandLine::new(&["id", "-u", user])).is_ok() && works(words));
    way.map(|(_, words)| words.to_vec())
        .ok_or_else(|| "PostgreSQL refuses root and there is no other user to run it".into())
}

fn as_other(other: &[&str], words: &[&str]) -> CommandLine {
    CommandLine::new(other).args(words).at_root()
}

/// Asks the system for a free port.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

impl PostgresGuard {
    fn watch(folder: &str, programs: &Path, other: &[&str]) -> Result<Self, String> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard", folder]).arg(programs.join("pg_ctl")).args(other);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        child.map(Self).map_err(|error| format!("the guard of the server could not be started: {error}"))
    }
}

/// Runs a command and prints it; its output is shown only on failure.
fn ran(line: &CommandLine) -> Result<(), String> {
    println!("\n$ {line}");
    command_output(line).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_server_is_preferred_by_number_not_by_spelling() {
        assert!(version(Path::new("/usr/lib/postgresql/15/bin")) > version(Path::new("/usr/lib/postgresql/9/bin")));
    }

    #[test]
    fn the_guard_removes_the_folder_when_its_input_closes() {
        let folder = command_output(&CommandLine::new(&["mktemp", "-d", "/tmp/sluice-guard.XXXXXX"])).unwrap();
        let guard = PostgresGuard::watch(&folder, Path::new("/nowhere"), &[]).unwrap();
        assert!(Path::new(&folder).is_dir());
        drop(guard);
        assert!(!Path::new(&folder).exists());
    }
}
