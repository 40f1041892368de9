//! At a terminal: questions appear where the gateway was started, and are answered with single keys.
//!
//! `script` of the base system gives each command a terminal of its own.

use std::fs;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::cli_gateway::{CliTestGateway, ProcessLines, free_ports};
use crate::policy::TestFolder;

/// A command on a terminal of its own. Ends when it is dropped.
struct PseudoTerminal {
    child: Child,
    keys: ChildStdin,
    lines: ProcessLines,
}

impl PseudoTerminal {
    fn run(gate_folder: &std::path::Path, words: &str) -> Self {
        Self::run_line(gate_folder, &format!("{} {words}", env!("CARGO_BIN_EXE_sluice")))
    }

    /// A command on a terminal of 80 columns, with `the-end` after what it prints.
    fn run_on_80_columns(gate_folder: &std::path::Path, words: &str) -> Self {
        let line = format!("stty cols 80; {} {words} --no-pager; echo the-end", env!("CARGO_BIN_EXE_sluice"));
        Self::run_line(gate_folder, &line)
    }

    fn run_line(gate_folder: &std::path::Path, line: &str) -> Self {
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", line, "/dev/null"])
            .current_dir(gate_folder)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (keys, lines) = (child.stdin.take().unwrap(), ProcessLines::of(&mut child));
        Self { child, keys, lines }
    }

    /// Reads until a line holds this; gives everything up to it.
    fn until(&mut self, part: &str) -> String {
        let mut seen = String::new();
        for _ in 0..400 {
            let Some(line) = self.lines.next() else { break };
            seen.push_str(&line);
            seen.push('\n');
            if line.contains(part) {
                return seen;
            }
        }
        panic!("`{part}` was not printed:\n{seen}");
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(gate: &CliTestGateway, name: &str) -> Value {
    fs::write(gate.path("workspace").join(name), "x").unwrap();
    gate.pending("filesystem.delete", &json!({"path": gate.workspace(name)}))
}

fn status(gate: &CliTestGateway, call: &Value) -> String {
    gate.json(&["approvals", "show", call["approval_id"].as_str().unwrap()])["status"].as_str().unwrap().to_owned()
}

#[test]
fn questions_are_answered_with_single_keys_and_never_by_a_key_pressed_before() {
    let gate = CliTestGateway::open();
    let mut terminal = PseudoTerminal::run(&gate.path(""), "approvals watch");
    terminal.until("no pending approvals");
    // Typed into the empty list: an answer to nothing.
    terminal.press("aa");
    let first = ask(&gate, "first.txt");
    let shown = terminal.until("[a] approve");
    assert!(shown.contains("first.txt") && shown.contains("filesystem.delete"), "{shown}");
    terminal.press("?");
    terminal.until("Other arguments, bounds");
    assert_eq!(status(&gate, &first), "pending", "keys pressed before the card, and help, decide nothing");
    terminal.press("x");
    terminal.until("[a] approve");
    assert_eq!(status(&gate, &first), "pending");
    terminal.press("d");
    terminal.until("denied");
    assert_eq!(status(&gate, &first), "denied");
    let second = ask(&gate, "second.txt");
    terminal.until("[a] approve");
    // What is decided elsewhere leaves the screen.
    gate.works(&["approvals", "deny", second["approval_id"].as_str().unwrap()]);
    terminal.until("decided elsewhere");
    let third = ask(&gate, "third.txt");
    terminal.until("[a] approve");
    terminal.press("a");
    // A high risk asks twice; anything else is approved at once.
    for _ in 0..2 {
        if status(&gate, &third) == "pending" {
            terminal.press("a");
        }
    }
    terminal.until("approved");
    assert!(["approved", "consumed"].contains(&status(&gate, &third).as_str()));
    terminal.press("q");
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn serve_prints_each_question_on_its_terminal_with_how_to_answer_it() {
    let bench = TestFolder::new();
    assert_eq!(bench.run(&["init", "--dir", "gate", "--yes"]).code, 0);
    let file = bench.path("gate/sluice.yaml");
    let written = fs::read_to_string(&file).unwrap();
    let [main, stop] = free_ports();
    let settings = format!(
        "listen: 127.0.0.1:{main}\nstop_listen: 127.0.0.1:{stop}\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\napprovals: {{bell: true}}\n"
    );
    fs::write(&file, format!("{written}\n{settings}")).unwrap();
    let mut terminal = PseudoTerminal::run(&bench.path("gate"), "serve");
    terminal.until("listening on");
    fs::write(bench.path("gate/workspace/a.txt"), "x").unwrap();
    let path = fs::canonicalize(bench.path("gate/workspace/a.txt")).unwrap();
    let key = bench.path("gate/data/agents/assistant.key").display().to_string();
    let input = json!({"path": path}).to_string();
    let config = file.display().to_string();
    let variables = [("SLUICE_AGENT_KEY_FILE", key.as_str()), ("SLUICE_CONFIG", config.as_str())];
    let run = bench.run_with(&["call", "filesystem.delete", "--input", &input, "--json"], "", &variables);
    assert_eq!(run.code, 8, "{}", run.stderr);
    let call: Value = serde_json::from_str(&run.stdout).unwrap();
    let shown = terminal.until("to answer: sluice approvals watch");
    for part in ["approval needed", "agent assistant", "filesystem.delete", "a.txt", "\u{7}"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains(call["approval_id"].as_str().unwrap()), "{shown}");
}

#[test]
fn serve_prints_no_question_where_its_output_is_a_log() {
    let gate = CliTestGateway::open();
    ask(&gate, "secret-name.txt");
    // The list has it; neither what the gateway said nor its log does.
    assert!(gate.works(&["approvals", "list"]).contains("pending"));
    let log = fs::read_to_string(gate.bench.path("serve.err")).unwrap();
    assert!(!log.contains("secret-name") && !gate.said.contains("approval needed"), "{log}");
}

#[test]
fn lists_say_what_is_asked_for_and_fit_80_columns() {
    let gate = CliTestGateway::open();
    let call = ask(&gate, "a-file-with-a-rather-long-name-that-does-not-fit-beside-everything-else.txt");
    let approval = call["approval_id"].as_str().unwrap();
    let listed = gate.json(&["approvals", "list"])["data"][0].clone();
    let summary = listed["summary"].as_str().unwrap();
    assert!(summary.starts_with("filesystem.delete ") && summary.ends_with("else.txt"), "{summary}");
    let held = gate.json(&["holds", "list"])["data"][0].clone();
    assert_eq!(held["targets"][0]["argument"], "path", "{held}");

    for list in ["approvals list", "holds list", "calls list"] {
        let mut terminal = PseudoTerminal::run_on_80_columns(&gate.path(""), list);
        let shown = terminal.until("the-end");
        let rows: Vec<&str> = shown.lines().map(str::trim_end).filter(|line| !line.contains("the-end")).collect();
        assert_eq!(rows.len(), 2, "{list}: one line for each: {shown}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{list}: {shown}");
        assert!(rows[1].contains("filesystem.delete"), "{list}: {shown}");
        // A write that waits for a person has no time of its own to show here.
        let has_age = rows[1].contains("ago") || rows[1].contains("in ") || rows[1].contains("now");
        assert!(has_age || list == "holds list", "{list}: {shown}");
    }
    let whole = gate.works(&["approvals", "list", "-o", "wide"]);
    assert!(whole.contains(approval) && whole.contains("else.txt"), "{whole}");
}
