//! A gateway that is killed while a declared program runs, and the command that checks declarations.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::{DeclaredProgramFolders, deploy, runs};
use crate::running::{TestInstallation, ask, pause};

const ORG: &str = "defaults: {tier: autonomous}\noverrides: [{capability: deploy, tier: autonomous}]\n";

/// Waits in real time for another process.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1_500 {
        if is_so() {
            return;
        }
        pause(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

#[test]
fn a_gateway_killed_while_a_program_runs_leaves_a_doubt_and_never_runs_it_twice() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "echo run >> runs; sleep 98771");
    programs.declare("deploy", &deploy("").replace("hold_seconds: 5", "hold_seconds: 0"));
    let config = format!("capabilities: {}\n", programs.path("capabilities").display());
    let place = TestInstallation::new(&config, ORG, None);
    let running = place.start();
    let wish = json!({"capability": "deploy", "arguments": {"service": "a"}, "wait_ms": 0});
    let answer = place.call(&wish).unwrap();
    let call = answer.body["call_id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    until("it runs", || runs(&programs) == 1);
    running.kill();
    until("it ended with the gateway", || !is_running("98771"));
    let running = place.start();
    let status = || {
        let path = format!("/v1/calls/{call}");
        let answer = ask(place.main, "GET", &path, &place.agent_key, None);
        answer.map(|answer| answer.body["status"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    };
    until("a person is needed", || status() == "needs_human");
    assert_eq!(runs(&programs), 1, "it may have happened, so it is not done again");
    drop(running);
}

fn is_running(mark: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(mark))
}

#[test]
fn the_check_command_finds_flaws_and_warns_of_secrets_in_a_programs_hands() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "exit 0");
    programs.declare("deploy", &deploy("  environment: {TOKEN: \"secret:deploy/token\"}\n"));
    programs.declare("shell", &deploy("").replace("[BIN/deploy, ", "[/bin/sh, -c, "));
    programs.declare("gone", &deploy("").replace("BIN/deploy", "BIN/gone"));
    let check = |name: &str| {
        let file = programs.path("capabilities").join(format!("{name}.yaml"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let output = command.args(["capabilities", "check"]).arg(file).env_clear().output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (fine, said) = check("deploy");
    assert!(fine && said.contains("warning: custom.secret_given"), "{said}");
    let (fine, said) = check("shell");
    assert!(!fine && said.contains("custom.shell"), "{said}");
    let (fine, said) = check("gone");
    assert!(fine && said.contains("warning: custom.program"), "{said}");
}
