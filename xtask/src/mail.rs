//! A third-party mail server for the tests: Dovecot for mailboxes, aiosmtpd for sending, dkimpy for signing.
//!
//! Needs a machine on which packages may be installed, and installs pinned versions from the network, once;
//! gives the file with the addresses of the running servers. Promise: they listen on loopback only and stop with
//! the run; a server that cannot be installed or started is skipped by name.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::command::CommandLine;
use crate::mcp::{installed, run_to_end};
use crate::packages::{command_output, install, is_root};
use crate::report::{SuiteOutcome, SuiteReport};

/// The variable with the path of that file.
const FILE: &str = "SLUICE_TEST_MAIL";
/// The packages from PyPI.
const PYPI: [&str; 3] = ["aiosmtpd==1.4.6", "dkimpy==1.1.8", "authres==1.2.0"];
/// The packages from Debian.
const DEBIAN: [&str; 2] = ["dovecot-imapd", "dovecot-lmtpd"];

/// A running mail server. It stops when this is dropped.
pub struct MailServers(Option<RunningMailServers>);

struct RunningMailServers {
    child: Child,
    /// The server stops when this pipe closes, however this process ends.
    held: Option<ChildStdin>,
    file: String,
}

/// Installs and starts the mail server.
pub fn start(report: &mut SuiteReport) -> MailServers {
    let folder = report.time("mail (PyPI)", || installed("mail", &PYPI, pypi));
    MailServers(report.time("third-party mail", || {
        let skipped =
            |reason: &str| (SuiteOutcome::Skipped(format!("its tests were not run: {reason}; they need {FILE}")), None);
        let Some(folder) = &folder else { return skipped("it is not installed") };
        match dovecot().and_then(|()| launched(folder)) {
            Ok(running) => (SuiteOutcome::Passed, Some(running)),
            Err(reason) => skipped(&reason),
        }
    }))
}

impl MailServers {
    /// Gives the test command the path of the file; if the server is missing, it removes the strict mode.
    pub fn add_environment(&self, tests: CommandLine) -> CommandLine {
        match &self.0 {
            Some(running) => tests.env(FILE, &running.file),
            None => tests.without("SLUICE_TEST_STRICT"),
        }
    }

    /// For a person who runs single tests: prints the path, and waits until the server stops.
    pub fn keep(mut self) {
        if let Some(running) = &mut self.0 {
            println!("export {FILE}={}\n\nCtrl-C stops it.", running.file);
            let _ended = running.child.wait();
        }
    }
}

impl Drop for RunningMailServers {
    fn drop(&mut self) {
        self.held = None;
        let _ended = self.child.wait();
        if let Some(home) = Path::new(&self.file).parent() {
            let _gone = fs::remove_dir_all(home);
        }
    }
}

fn pypi(folder: &Path) -> Result<(), String> {
    let venv = folder.join("venv").display().to_string();
    run_to_end(&CommandLine::new(&["python3", "-m", "venv", &venv]))?;
    run_to_end(
        &CommandLine::new(&[&format!("{venv}/bin/pip"), "install", "--quiet", "--disable-pip-version-check"])
            .args(&PYPI),
    )
}

/// Makes sure that Dovecot is installed.
fn dovecot() -> Result<(), String> {
    if !is_root() {
        return Err("Dovecot serves mailboxes of several users and must be started as root".into());
    }
    let there = || {
        command_output(&CommandLine::new(&["dovecot", "--version"])).is_ok()
            && Path::new("/usr/lib/dovecot/lmtp").exists()
    };
    if !there() {
        for package in DEBIAN {
            let _missing_is_said_below = install(package);
        }
    }
    if there() {
        Ok(())
    } else {
        Err(format!("Dovecot is not installed (Debian: apt-get install {})", DEBIAN.join(" ")))
    }
}

/// Starts the mail server and waits until it reports its file.
fn launched(folder: &Path) -> Result<RunningMailServers, String> {
    let words = |error: std::io::Error| error.to_string();
    // Mailbox paths have a limited length, and must be readable by the user who owns them.
    let home: PathBuf = std::env::temp_dir().join(format!("sluice-mail-{}", std::process::id()));
    let _none = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(words)?;
    let mut command = Command::new(folder.join("venv/bin/python"));
    command.arg("crates/testkit/counterparts/mail/post.py").arg(&home);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(words)?;
    let held = child.stdin.take();
    let mut first = String::new();
    let mut heard = BufReader::new(child.stdout.take().ok_or("its output cannot be read")?);
    if heard.read_line(&mut first).map_err(words)? == 0 || !first.starts_with("ready ") {
        drop(held);
        let _ended = child.wait();
        return Err("the mail server does not start".into());
    }
    std::thread::spawn(move || drop(heard.read_to_end(&mut Vec::new())));
    Ok(RunningMailServers { child, held, file: first.trim_start_matches("ready ").trim().to_owned() })
}
