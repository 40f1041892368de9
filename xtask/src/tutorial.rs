//! The tutorial, run as it stands: every command of it, and what the page says that it prints.
//!
//! Takes `docs/book/tutorial.md` and the built program; gives the outcome of one suite. `…` on the page stands for any
//! text. Promise: it runs in a temporary folder with free ports, and nothing of it is left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::report::{SuiteOutcome, SuiteReport};

const PAGE: &str = "docs/book/tutorial.md";
/// Addresses on the page, each replaced by a free one: the mailbox, the gateway, its stop lane.
const ADDRESSES: [&str; 3] = ["127.0.0.1:8025", "127.0.0.1:7420", "127.0.0.1:7421"];
/// How often something that takes a moment is tried, ten times a second.
const PATIENCE: u32 = 600;

/// One command, and what it should print.
#[derive(Debug, PartialEq, Eq)]
struct TutorialStep {
    command: String,
    expected: Vec<String>,
}

/// Runs the tutorial, as one suite.
pub fn suite(report: &mut SuiteReport) {
    report.time("tutorial", || {
        let ran = fs::read_to_string(PAGE).map_err(|error| format!("`{PAGE}`: {error}")).and_then(|page| {
            let mut place = TutorialPlace::new()?;
            let steps = place.with_free_addresses(steps(&page));
            let count = steps.len();
            steps.iter().try_for_each(|step| place.take(step))?;
            Ok(count)
        });
        match ran {
            Ok(count) if count > 20 => (SuiteOutcome::Passed, ()),
            Ok(count) => (SuiteOutcome::Failed(format!("the page has only {count} steps")), ()),
            Err(reason) => {
                println!("\n{reason}");
                (SuiteOutcome::Failed(reason.lines().next().unwrap_or_default().to_owned()), ())
            }
        }
    });
}

/// The steps of a page: `console` blocks, and `sh` blocks that write a file. Other `sh` blocks are for the reader alone.
fn steps(page: &str) -> Vec<TutorialStep> {
    let mut steps: Vec<TutorialStep> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let Some((kind, text)) = block.split_once('\n') else { continue };
        if kind == "sh" && text.starts_with("cat >>") {
            steps.push(TutorialStep { command: text.to_owned(), expected: Vec::new() });
        }
        let mut goes_on = false;
        for line in text.lines().filter(|_| kind == "console") {
            let (begins, line) = line.strip_prefix("$ ").map_or((false, line), |command| (true, command));
            match steps.last_mut() {
                Some(step) if goes_on => step.command += &format!("\n{line}"),
                Some(step) if !begins => step.expected.push(line.to_owned()),
                _ => steps.push(TutorialStep { command: line.to_owned(), expected: Vec::new() }),
            }
            goes_on = (goes_on || begins) && line.ends_with('\\');
        }
    }
    steps
}

/// Whether a line is the expected one.
fn fits(expected: &str, line: &str) -> bool {
    let mut rest = line;
    for (n, part) in expected.split('…').enumerate() {
        match rest.find(part) {
            Some(at) if n > 0 || at == 0 => rest = rest.get(at + part.len()..).unwrap_or_default(),
            _ => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}

/// The first expected line that was not printed, or that something else was printed.
fn difference(expected: &[String], printed: &str) -> Option<String> {
    let mut lines = printed.lines();
    for wanted in expected {
        if wanted == "…" {
            return None;
        }
        if !lines.next().is_some_and(|line| fits(wanted, line)) {
            return Some(format!("the page says: {wanted}"));
        }
    }
    lines.next().map(|line| format!("the page does not say: {line}"))
}

/// The folder that the tutorial runs in, and the programs that it started.
struct TutorialPlace {
    /// Everything is in it; it is removed at the end.
    folder: PathBuf,
    here: PathBuf,
    /// The folder of the program.
    programs: PathBuf,
    addresses: [String; 3],
    variables: Vec<(String, String)>,
    running: Vec<Child>,
}

impl TutorialPlace {
    fn new() -> Result<Self, String> {
        let io = |error: std::io::Error| error.to_string();
        let folder = std::env::temp_dir().join(format!("sluice-tutorial-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(io)?;
        // Bound together, so that they differ.
        let free: Vec<TcpListener> =
            ADDRESSES.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>().map_err(io)?;
        let mut addresses = ADDRESSES.map(str::to_owned);
        for (address, listener) in addresses.iter_mut().zip(&free) {
            *address = listener.local_addr().map_err(io)?.to_string();
        }
        let ours = std::env::current_exe().map_err(io)?;
        let programs = ours.parent().unwrap_or(Path::new("")).to_owned();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let [_, main, stop] = &addresses;
        let variables = vec![
            variable("PATH", &format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display())),
            variable("HOME", &folder.display().to_string()),
            variable("SLUICE_LISTEN", main),
            variable("SLUICE_STOP_LISTEN", stop),
            // How full the disk of this machine is, is not what is tested here.
            variable("SLUICE_DISK__LOW", "1MB/0%"),
            variable("SLUICE_DISK__STOP", "1MB/0%"),
        ];
        Ok(Self { here: folder.clone(), folder, programs, addresses, variables, running: Vec::new() })
    }

    fn with_free_addresses(&self, steps: Vec<TutorialStep>) -> Vec<TutorialStep> {
        let free = |text: String| {
            ADDRESSES.iter().zip(&self.addresses).fold(text, |text, (written, free)| text.replace(written, free))
        };
        let expected = |lines: Vec<String>| lines.into_iter().map(free).collect();
        steps
            .into_iter()
            .map(|step| TutorialStep { command: free(step.command), expected: expected(step.expected) })
            .collect()
    }

    /// Does one step. The error is what differs from the page.
    fn take(&mut self, TutorialStep { command, expected }: &TutorialStep) -> Result<(), String> {
        println!("$ {command}");
        if let Some(folder) = command.strip_prefix("cd ") {
            self.here.push(folder);
            return Ok(());
        }
        if let Some((name, value)) = command.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            self.variables.push((name.to_owned(), value.to_owned()));
            return Ok(());
        }
        if let Some(command) = command.strip_suffix(" &") {
            let line = format!("exec {command}");
            let started = self.shell(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            self.running.push(started.map_err(|error| format!("`{command}`: {error}"))?);
            return self.wait_for(if command.contains("--mailbox") { 0 } else { 1 });
        }
        // The copy of the mailbox takes a moment.
        let tries = if command.starts_with("sluice services show") { PATIENCE } else { 1 };
        let mut differs = String::new();
        for _ in 0..tries {
            let printed =
                if command.starts_with("sluice connect") { self.connect(command) } else { self.run(command) }?;
            match difference(expected, &printed) {
                None => return Ok(()),
                Some(what) => differs = format!("{what}\n$ {command}\n{printed}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(differs)
    }

    fn shell(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.here).env_clear().envs(self.variables.iter().cloned());
        shell.stdin(Stdio::null());
        shell
    }

    fn run(&self, command: &str) -> Result<String, String> {
        let ended = self.shell(&format!("{{ {command}\n}} 2>&1")).output();
        let ended = ended.map_err(|error| format!("`{command}`: {error}"))?;
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    /// Signs in like a person with a browser: opens the link that the command prints.
    fn connect(&self, command: &str) -> Result<String, String> {
        let io = |error: std::io::Error| format!("`{command}`: {error}");
        let line = format!("exec {command} --no-browser 2>&1");
        let mut child = self.shell(&line).stdout(Stdio::piped()).spawn().map_err(io)?;
        let stdout = child.stdout.take().ok_or("the command has no output")?;
        let (mut stdout, mut printed) = (BufReader::new(stdout), String::new());
        while stdout.read_line(&mut printed).map_err(io)? > 0 {
            let Some(link) = printed.lines().last().filter(|line| line.starts_with("http://")) else { continue };
            let back = open(link).and_then(|home| home.ok_or_else(|| std::io::Error::other("it leads nowhere")));
            back.and_then(|home| open(&home)).map_err(io)?;
        }
        child.wait().map_err(io)?;
        Ok(printed)
    }

    /// Waits until a program answers at its address.
    fn wait_for(&self, which: usize) -> Result<(), String> {
        let address = self.addresses.get(which).map_or("", String::as_str);
        for _ in 0..PATIENCE {
            // The mailbox has no page for this; that it answers is enough.
            if ask(address, "/readyz").is_ok_and(|answer| which == 0 || answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("nothing answers at {address} (programs: {})", self.programs.display()))
    }
}

impl Drop for TutorialPlace {
    fn drop(&mut self) {
        for child in &mut self.running {
            drop(child.kill());
            drop(child.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// One request; the whole answer.
fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Opens a link; gives the place that the answer leads to, if it leads anywhere.
fn open(link: &str) -> std::io::Result<Option<String>> {
    let rest = link.trim().strip_prefix("http://").unwrap_or(link);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let answer = ask(address, &format!("/{path}"))?;
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let mut headers = answer.lines().take_while(|line| !line.is_empty()).filter_map(header);
    Ok(headers.find(|(name, _)| name == "location").map(|(_, place)| place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_their_output_are_read_from_the_page() {
        let page = "Text\n\n```console\n$ one \\\n    more\nprinted\n…\n$ two\n```\n\n```sh\ncargo build\n```\n\n\
                    ```sh\ncat >> a <<'END'\nb\nEND\n```\n";
        let step = |command: &str, expected: &[&str]| TutorialStep {
            command: command.into(),
            expected: expected.iter().map(|&line| line.to_owned()).collect(),
        };
        let wanted =
            [step("one \\\n    more", &["printed", "…"]), step("two", &[]), step("cat >> a <<'END'\nb\nEND", &[])];
        assert_eq!(steps(page), wanted);
    }

    #[test]
    fn another_line_a_missing_one_and_one_too_many_are_differences() {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let expected = lines(&["status  done", "call_… of …"]);
        assert_eq!(difference(&expected, "status  done\ncall_1 of clerk\n"), None);
        for printed in ["status  held\ncall_1 of clerk", "status  done", "status  done\ncall_1 of clerk\nmore", ""] {
            assert!(difference(&expected, printed).is_some(), "{printed}");
        }
        assert_eq!(difference(&lines(&["first", "…"]), "first\nsecond\nthird"), None);
        assert!(difference(&lines(&["…x"]), "a y").is_some());
    }
}
