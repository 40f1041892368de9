//! The README's first steps, run as they stand.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::running::{ask, free_addresses, pause};

/// One command and what it should print.
struct ReadmeStep {
    command: String,
    expected: Vec<String>,
}

/// The steps between the markers of the README.
fn steps() -> Vec<ReadmeStep> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let part = readme.split("<!-- transcript -->").nth(1).unwrap().split("<!-- /transcript -->").next().unwrap();
    let mut steps: Vec<ReadmeStep> = Vec::new();
    for line in part.lines().filter(|line| !line.starts_with("```") && !line.is_empty()) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(ReadmeStep { command: command.to_owned(), expected: Vec::new() }),
            (None, Some(step)) => step.expected.push(line.to_owned()),
            (None, None) => panic!("words before the first command: {line}"),
        }
    }
    steps
}

/// Whether a line is the expected one, where `…` stands for anything.
fn fits(expected: &str, line: &str) -> bool {
    let mut rest = line;
    let parts: Vec<&str> = expected.split('…').collect();
    for (n, part) in parts.iter().enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if n == 0 && at != 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || expected.ends_with('…')
}

/// Ends with the test.
struct ReadmeServerProcess(Child);

impl Drop for ReadmeServerProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_first_steps_of_the_readme_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let bin = PathBuf::from(env!("CARGO_BIN_EXE_sluice"));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.parent().unwrap().display());
    let [main, stop] = free_addresses();
    let mut env = vec![
        ("PATH".to_owned(), path),
        ("SLUICE_LISTEN".to_owned(), main.to_string()),
        ("SLUICE_STOP_LISTEN".to_owned(), stop.to_string()),
        // How full the disk of this machine is, is not what is tested here.
        ("SLUICE_DISK__LOW".to_owned(), "1MB/0%".to_owned()),
        ("SLUICE_DISK__STOP".to_owned(), "1MB/0%".to_owned()),
    ];
    let mut here = folder.path().to_path_buf();
    let mut server = None;
    let steps = steps();
    assert!(steps.len() > 10, "the README has its transcript");
    for ReadmeStep { command, expected } in steps {
        if let Some(to) = command.strip_prefix("cd ") {
            here.push(to);
            continue;
        }
        if let Some((name, value)) = command.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            env.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let mut shell = Command::new("sh");
        shell.current_dir(&here).env_clear().envs(env.clone()).stdin(Stdio::null());
        if let Some(command) = command.strip_suffix(" &") {
            let child = shell.args(["-c", &format!("exec {command}")]).stdout(Stdio::null()).stderr(Stdio::null());
            server = Some(ReadmeServerProcess(child.spawn().unwrap()));
            let ready = || ask(main, "GET", "/readyz", "", None).is_ok_and(|answer| answer.status == 200);
            for _ in 0..3_000 {
                if ready() {
                    break;
                }
                pause(std::time::Duration::from_millis(10));
            }
            assert!(ready(), "the gateway got ready");
            continue;
        }
        let output = shell.args(["-c", &format!("{{ {command}; }} 2>&1")]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        for (n, wanted) in expected.iter().enumerate() {
            if wanted == "…" {
                break;
            }
            assert!(lines.get(n).is_some_and(|line| fits(wanted, line)), "$ {command}\nwanted: {wanted}\ngot:\n{text}");
        }
        assert!(
            expected.last().is_some_and(|last| last == "…") || lines.len() == expected.len(),
            "$ {command}\n{text}"
        );
    }
    assert!(server.is_some());
}

#[test]
fn an_ellipsis_stands_for_anything_and_nothing_else_does() {
    assert!(fits("call  call_…", "call  call_01"));
    assert!(fits("…/mygate", "/tmp/x/mygate"));
    assert!(fits("a…b…", "a 1 b 2"));
    assert!(!fits("status  done", "status  held"));
    assert!(!fits("…/mygate", "/tmp/x/mygate2"));
    assert!(!fits("done", "undone"));
}
