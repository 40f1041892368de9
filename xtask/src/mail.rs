//! A post office somebody else wrote: Dovecot for mailboxes, aiosmtpd to send over, dkimpy to sign with.
//!
//! Takes a machine on which packages may be installed, and a network to install them from, once, with pinned versions;
//! gives the file in which the running servers say where they are. Promise: they listen on loopback only and end with
//! the run; what cannot be installed or started is skipped by name.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::command::Line;
use crate::mcp::{done, installed};
use crate::packages::{install, is_root, said};
use crate::report::{Outcome, Report};

/// Where the tests find the file.
const FILE: &str = "SLUICE_TEST_MAIL";
/// What is installed from PyPI.
const PYPI: [&str; 3] = ["aiosmtpd==1.4.6", "dkimpy==1.1.8", "authres==1.2.0"];
/// What is installed from Debian.
const DEBIAN: [&str; 2] = ["dovecot-imapd", "dovecot-lmtpd"];

/// A running post office. It ends when this does.
pub struct Post(Option<Running>);

struct Running {
    child: Child,
    /// It ends when nobody holds this any more, however we end.
    held: Option<ChildStdin>,
    file: String,
}

/// Installs and starts it.
pub fn start(report: &mut Report) -> Post {
    let folder = report.time("mail (PyPI)", || installed("mail", &PYPI, pypi));
    Post(report.time("somebody else's mail", || {
        let skipped =
            |reason: &str| (Outcome::Skipped(format!("its tests were not run: {reason}; they need {FILE}")), None);
        let Some(folder) = &folder else { return skipped("it is not installed") };
        match dovecot().and_then(|()| launched(folder)) {
            Ok(running) => (Outcome::Passed, Some(running)),
            Err(reason) => skipped(&reason),
        }
    }))
}

impl Post {
    /// The tests with everything they need; where it is missing, they must not insist.
    pub fn tell(&self, tests: Line) -> Line {
        match &self.0 {
            Some(running) => tests.env(FILE, &running.file),
            None => tests.without("SLUICE_TEST_STRICT"),
        }
    }

    /// For a person who runs single tests by hand: says where it is, and stays until it ends.
    pub fn keep(mut self) {
        if let Some(running) = &mut self.0 {
            println!("export {FILE}={}\n\nCtrl-C stops it.", running.file);
            let _ended = running.child.wait();
        }
    }
}

impl Drop for Running {
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
    done(&Line::new(&["python3", "-m", "venv", &venv]))?;
    done(&Line::new(&[&format!("{venv}/bin/pip"), "install", "--quiet", "--disable-pip-version-check"]).args(&PYPI))
}

/// Makes sure there is a Dovecot.
fn dovecot() -> Result<(), String> {
    if !is_root() {
        return Err("Dovecot keeps mailboxes of several users and is started as root".into());
    }
    let there = || said(&Line::new(&["dovecot", "--version"])).is_ok() && Path::new("/usr/lib/dovecot/lmtp").exists();
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

/// A post office that has said that it is ready, and where.
fn launched(folder: &Path) -> Result<Running, String> {
    let words = |error: std::io::Error| error.to_string();
    // Mailboxes of servers are under paths of a limited length, and readable by the user who owns them.
    let home: PathBuf = std::env::temp_dir().join(format!("sluice-mail-{}", std::process::id()));
    let _none = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(words)?;
    let mut command = Command::new(folder.join("venv/bin/python"));
    command.arg("crates/testkit/counterparts/mail/post.py").arg(&home);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(words)?;
    let held = child.stdin.take();
    let mut first = String::new();
    let mut heard = BufReader::new(child.stdout.take().ok_or("it has no voice")?);
    if heard.read_line(&mut first).map_err(words)? == 0 || !first.starts_with("ready ") {
        drop(held);
        let _ended = child.wait();
        return Err("the post office does not open".into());
    }
    std::thread::spawn(move || drop(heard.read_to_end(&mut Vec::new())));
    Ok(Running { child, held, file: first.trim_start_matches("ready ").trim().to_owned() })
}
