//! One command line: how it is printed and how it is run.
//!
//! Promise: the printed line is the line that runs, and it can be pasted into a shell.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Output, Stdio};

/// A program, its arguments and its additional environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    environment: Vec<(String, String)>,
    words: Vec<String>,
    at_root: bool,
}

impl CommandLine {
    /// A command from its words.
    pub fn new(words: &[&str]) -> Self {
        Self { environment: Vec::new(), words: words.iter().map(|&word| word.to_owned()).collect(), at_root: false }
    }

    /// A cargo command; cargo is found in PATH, as in a shell.
    pub fn cargo(words: &[&str]) -> Self {
        Self::new(&["cargo"]).args(words)
    }

    /// Adds arguments.
    pub fn args(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes an environment variable that was added.
    pub fn without(mut self, name: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self
    }

    /// Runs in `/`: another user may not be able to enter the repository.
    pub fn at_root(mut self) -> Self {
        self.at_root = true;
        self
    }

    fn command(&self) -> Command {
        let (program, arguments) = self.words.split_first().map_or(("", [].as_slice()), |(p, rest)| (p, rest));
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        if self.at_root {
            command.current_dir("/");
        }
        command
    }

    /// Runs it with its output shown.
    pub fn status(&self) -> io::Result<ExitStatus> {
        self.command().status()
    }

    /// Runs it and captures its output.
    pub fn output(&self) -> io::Result<Output> {
        self.command().output()
    }

    /// Runs it with its output shown, and counts the printed bytes.
    pub fn status_and_length(&self) -> io::Result<(ExitStatus, usize)> {
        let mut child = self.command().stdout(Stdio::piped()).spawn()?;
        let mut printed = 0;
        if let Some(mut stdout) = child.stdout.take() {
            let mut buffer = [0; 4096];
            loop {
                let length = stdout.read(&mut buffer)?;
                let Some(piece) = buffer.get(..length).filter(|piece| !piece.is_empty()) else { break };
                printed += length;
                io::stdout().write_all(piece)?;
                io::stdout().flush()?;
            }
        }
        Ok((child.wait()?, printed))
    }

    /// Runs it with its output shown, and passes each printed line to `read` too.
    pub fn status_and_lines(&self, mut read: impl FnMut(&str)) -> io::Result<ExitStatus> {
        let mut child = self.command().stdout(Stdio::piped()).spawn()?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line?;
                let line = String::from_utf8_lossy(&line);
                // The macro, so that the tests of this file do not print into the output of the run they are part of.
                println!("{line}");
                read(&line);
            }
        }
        child.wait()
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let environment = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words.iter().map(|word| quoted(word));
        f.write_str(&environment.chain(words).collect::<Vec<_>>().join(" "))
    }
}

/// Quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_prints_so_that_a_shell_reads_the_same_words() {
        let line = CommandLine::new(&["echo", "two words", "it's", ""]).env("A", "-D warnings");
        assert_eq!(line.to_string(), r"A='-D warnings' echo 'two words' 'it'\''s' ''");
        let shell = CommandLine::new(&["sh", "-c", &line.to_string()]).output().unwrap();
        assert_eq!(String::from_utf8(shell.stdout).unwrap(), "two words it's \n");
    }

    #[test]
    fn silence_is_told_from_speech() {
        assert_eq!(CommandLine::new(&["true"]).status_and_length().unwrap().1, 0);
        let (status, printed) = CommandLine::new(&["sh", "-c", "exit 3"]).status_and_length().unwrap();
        assert_eq!((status.code(), printed), (Some(3), 0));
    }

    #[test]
    fn every_line_is_read_also_one_that_is_not_text() {
        let mut lines = Vec::new();
        let line = CommandLine::new(&["printf", r"one\n\377two\n\nlast"]);
        assert!(line.status_and_lines(|line| lines.push(line.to_owned())).unwrap().success());
        assert_eq!(lines, ["one", "\u{fffd}two", "", "last"]);
    }
}
