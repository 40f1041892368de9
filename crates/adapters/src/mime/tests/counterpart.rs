//! The other reader: Python's `email`, run as a program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// The reading of Python.
#[derive(Debug, Default, Deserialize)]
pub struct SecondReading {
    #[serde(default)]
    pub from: Option<String>,
    #[serde(default)]
    pub subject: String,
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub html: String,
    #[serde(default)]
    error: Option<String>,
}

/// In a strict run, a skipped check is a failure.
pub fn skipped(reason: &str) {
    assert!(std::env::var_os("SLUICE_TEST_STRICT").is_none(), "skipped: {reason}");
    drop(writeln!(std::io::stderr(), "skipped: {reason}"));
}

/// Python's reading of each of these mails. `None` where there is no Python.
pub fn read(mails: &[Vec<u8>]) -> Option<Vec<Result<SecondReading, String>>> {
    let mut command = Command::new("python3");
    command.arg("-c").arg(include_str!("counterpart.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skipped("there is no python3 to read mails as a second reader");
        return None;
    };
    let (mut input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let read = std::thread::scope(|scope| {
        scope.spawn(move || {
            for raw in mails {
                input.write_all(format!("{}\n", raw.len()).as_bytes()).unwrap();
                input.write_all(raw).unwrap();
            }
        });
        output.lines().map(|line| one(&line.unwrap())).collect::<Vec<_>>()
    });
    assert!(child.wait().unwrap().success() && read.len() == mails.len(), "Python stopped after {}", read.len());
    Some(read)
}

fn one(line: &str) -> Result<SecondReading, String> {
    let read: SecondReading = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    match read.error {
        Some(error) => Err(error),
        None => Ok(read),
    }
}

/// Folders with mails of other projects: the library's own, and those of Python's own tests.
pub fn foreign_mails() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    for registry in std::fs::read_dir(home.unwrap_or_default().join("registry/src")).into_iter().flatten().flatten() {
        for package in std::fs::read_dir(registry.path()).into_iter().flatten().flatten() {
            if package.file_name().to_string_lossy().starts_with("mail-parser-0.11") {
                folders.push(package.path().join("resources/eml"));
            }
        }
    }
    let script = "import test.test_email as t, os; print(os.path.join(os.path.dirname(t.__file__), 'data'))";
    if let Ok(said) = Command::new("python3").arg("-c").arg(script).output()
        && said.status.success()
    {
        folders.push(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    }
    folders
}
