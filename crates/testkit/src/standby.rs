//! A separate PostgreSQL server with a standby that follows it by streaming replication.
//!
//! Takes a machine with the server programs; gives a primary, a standby and a connection that leads to the one in
//! charge. Promise: only servers started here are stopped, and both servers and their files are removed with this
//! value.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::relay::CuttableRelay;

/// Waits until the test process has ended, then stops both servers and removes their files.
const GUARD: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
folder=$1; pg_ctl=$2; shift 2
cd /
for server in standby primary; do
  if [ -f "$folder/$server/postmaster.pid" ]; then "$@" "$pg_ctl" -D "$folder/$server" -m immediate -s -w stop; fi
done
rm -rf "$folder"
"#;

const OPTIONS: &str = "-c listen_addresses=127.0.0.1 -c max_connections=60 -c shared_buffers=16MB -c wal_level=replica \
    -c max_wal_senders=4 -c hot_standby=on";

/// Whether a commit waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicationMode {
    /// Each commit waits for the standby.
    Synchronous,
    /// No commit waits, and the standby can be behind.
    Asynchronous,
}

/// Two servers, one following the other.
#[derive(Debug)]
pub struct ReplicatedPostgres {
    programs: PathBuf,
    other: Vec<String>,
    folder: String,
    ports: [u16; 2],
    /// The connection from the gateway to the server in charge.
    line: CuttableRelay,
    /// The connection from the standby to the primary.
    following: CuttableRelay,
    guard: Child,
}

impl ReplicatedPostgres {
    /// Starts both servers. `None` where the programs are missing; that is reported.
    ///
    /// # Panics
    /// When the programs exist but do not work.
    #[must_use]
    pub fn start(how: ReplicationMode) -> Option<Self> {
        let Some(programs) = programs() else {
            crate::skip("no PostgreSQL programs on this machine (Debian: apt-get install postgresql)");
            return None;
        };
        let other = other();
        let folder = command_output(&other, &["mktemp", "-d", "/tmp/sluice-standby.XXXXXX"]);
        let pg_ctl = programs.join("pg_ctl");
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard", &folder])
            .arg(&pg_ctl)
            .args(&other)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("no guard: {error}"));
        let ports = [free_port(), free_port()];
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let [primary, _] = ports;
        let servers = Self {
            programs,
            other,
            folder,
            ports,
            line: CuttableRelay::to(at(primary)),
            following: CuttableRelay::to(at(primary)),
            guard,
        };
        servers.found(how);
        Some(servers)
    }

    fn found(&self, how: ReplicationMode) {
        let [primary, standby] = ["primary", "standby"].map(|name| format!("{}/{name}", self.folder));
        let run = |program: &str, words: &[&str]| {
            let program = self.programs.join(program).display().to_string();
            command_output(&self.other, &[&[program.as_str()], words].concat())
        };
        run("initdb", &["-D", &primary, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        self.up("primary", self.ports[0], "");
        let follows = self.following.address().port().to_string();
        let connect = ["-h", "127.0.0.1", "-p", &follows, "-U", "postgres", "--checkpoint=fast", "--no-sync"];
        run("pg_basebackup", &[&["-D", &standby, "-R", "-X", "stream"], &connect[..]].concat());
        self.up("standby", self.ports[1], "");
        if how == ReplicationMode::Synchronous {
            // Restarted with the standby connected: from its first commit on, each one waits for it.
            self.down("primary", "fast");
            self.up("primary", self.ports[0], "-c synchronous_standby_names=*");
        }
    }

    fn up(&self, name: &str, port: u16, more: &str) {
        let folder = &self.folder;
        let options = format!("-p {port} -k {folder} {OPTIONS} {more}");
        let (data, log) = (format!("{folder}/{name}"), format!("{folder}/{name}.log"));
        self.control(&["-D", &data, "-l", &log, "-w", "-t", "120", "-s", "-o", &options, "start"]);
    }

    fn down(&self, name: &str, mode: &str) {
        let data = format!("{}/{name}", self.folder);
        self.control(&["-D", &data, "-m", mode, "-s", "-w", "stop"]);
    }

    fn control(&self, words: &[&str]) {
        let program = self.programs.join("pg_ctl").display().to_string();
        command_output(&self.other, &[&[program.as_str()], words].concat());
    }

    /// The connection URL of the server in charge. It stays the same after a failover.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.line.address())
    }

    /// Cuts the standby off from the primary.
    pub fn fall_behind(&self) {
        self.following.close();
    }

    /// Stops the primary and promotes the standby.
    pub fn fail_over(&self) {
        self.line.close();
        self.down("primary", "immediate");
        let data = format!("{}/standby", self.folder);
        self.control(&["-D", &data, "-w", "-t", "120", "-s", "promote"]);
        let [_, standby] = self.ports;
        self.line.lead_to(SocketAddr::from(([127, 0, 0, 1], standby)));
    }
}

impl Drop for ReplicatedPostgres {
    fn drop(&mut self) {
        self.line.close();
        drop(self.guard.stdin.take());
        drop(self.guard.wait());
    }
}

/// The folder of the server's programs: the newest Debian one, otherwise the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort_by_key(|folder| version(folder));
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let needed = ["initdb", "pg_ctl", "postgres", "pg_basebackup"];
    folders.into_iter().find(|folder| needed.iter().all(|name| folder.join(name).is_file()))
}

fn version(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.parse().ok()
}

/// PostgreSQL refuses to run as root: the words that run a command as another user.
fn other() -> Vec<String> {
    if command_output(&[], &["id", "-u"]) != "0" {
        return Vec::new();
    }
    let is_there = |user: &&str| Command::new("id").args(["-u", user]).output().is_ok_and(|ran| ran.status.success());
    let user = ["postgres", "nobody"].into_iter().find(is_there).unwrap_or_else(|| panic!("nobody to run it"));
    ["runuser", "-u", user, "--"].map(str::to_owned).to_vec()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map_or_else(|error| panic!("no free port: {error}"), |address| address.port())
}

/// The output of a command that runs as another user.
fn command_output(other: &[String], words: &[&str]) -> String {
    let words: Vec<&str> = other.iter().map(String::as_str).chain(words.iter().copied()).collect();
    let (program, arguments) = words.split_first().unwrap_or_else(|| panic!("no command"));
    let ran = Command::new(program).args(arguments).current_dir("/").stdin(Stdio::null()).output();
    let ran = ran.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}
