//! From `init` to a connected client: each step finds what the step before it made, from any folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sluice_testkit::postgres::TestDatabase;

use crate::cli_gateway::CliTestGateway;
use crate::policy::{SluiceRunOutput, TestFolder};

/// Runs a command in a folder of the bench, as a user with a home folder there.
fn run_in(bench: &TestFolder, folder: &str, arguments: &[&str]) -> SluiceRunOutput {
    fs::create_dir_all(bench.path(folder)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .current_dir(bench.path(folder))
        .env_clear()
        .env("HOME", bench.path("home"))
        .output()
        .unwrap();
    SluiceRunOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn is_same(printed: &str, file: &Path) -> bool {
    fs::canonicalize(printed.trim()).is_ok_and(|found| found == fs::canonicalize(file).unwrap())
}

#[test]
fn a_gateway_is_found_from_any_folder() {
    let bench = TestFolder::new();
    let made = run_in(&bench, "work", &["init", "--dir", "../gate", "--yes"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let file = bench.path("gate/sluice.yaml");
    for folder in ["gate", "gate/workspace", "gate/workspace/deep/er", "work", "home", "elsewhere"] {
        let run = run_in(&bench, folder, &["config", "path"]);
        assert_eq!(run.code, 0, "{folder}: {}", run.stderr);
        let found = bench.path(folder).join(run.stdout.trim());
        assert_eq!(fs::canonicalize(found).unwrap(), fs::canonicalize(&file).unwrap(), "{folder}");
    }
    // The nearest one counts, and the first gateway stays the user's own.
    assert_eq!(run_in(&bench, "work", &["init", "--dir", "second", "--yes"]).code, 0);
    let inside = run_in(&bench, "work/second/workspace", &["config", "path"]);
    assert!(is_same(&inside.stdout, &bench.path("work/second/sluice.yaml")), "{}", inside.stdout);
    let outside = run_in(&bench, "elsewhere", &["config", "path"]);
    assert!(is_same(&outside.stdout, &file), "{}", outside.stdout);
    // One that is gone makes room for the next.
    fs::remove_dir_all(bench.path("gate")).unwrap();
    assert_eq!(run_in(&bench, "elsewhere", &["config", "path"]).code, 3);
    assert_eq!(run_in(&bench, "work", &["init", "--dir", "third", "--yes"]).code, 0);
    let outside = run_in(&bench, "elsewhere", &["config", "path"]);
    assert!(is_same(&outside.stdout, &bench.path("work/third/sluice.yaml")), "{}", outside.stdout);
}

#[test]
fn a_configuration_that_others_can_change_is_not_used_unless_it_is_named() {
    let bench = TestFolder::new();
    bench.file("shared/sluice.yaml", "");
    let file = bench.path("shared/sluice.yaml");
    assert_eq!(run_in(&bench, "shared/project", &["config", "path"]).code, 0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let run = run_in(&bench, "shared/project", &["status"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("is not used") && run.stderr.contains("--config"), "{}", run.stderr);
    let named = run_in(&bench, "shared/project", &["config", "path", "--config", "../sluice.yaml"]);
    assert_eq!(named.code, 0, "{}", named.stderr);
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        assert_eq!(run_in(&bench, "shared/project", &["config", "path"]).code, 1, "it belongs to somebody else");
    }
}

#[test]
fn serve_without_a_configuration_says_so_and_makes_nothing() {
    let bench = TestFolder::new();
    let run = run_in(&bench, "empty", &["serve"]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("sluice init") && run.stderr.contains("--config"), "{}", run.stderr);
    assert_eq!(fs::read_dir(bench.path("empty")).unwrap().count(), 0);
}

#[test]
fn setup_takes_address_and_key_from_the_gateway_that_init_made() {
    let bench = TestFolder::new();
    assert_eq!(run_in(&bench, "work", &["init", "--dir", "../gate", "--agent", "clerk", "--yes"]).code, 0);
    let file = bench.path("gate/sluice.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\nlisten: 127.0.0.1:7555\nstop_listen: 127.0.0.1:7556\n")).unwrap();
    let key = fs::canonicalize(bench.path("gate/data/agents/clerk.key")).unwrap().display().to_string();
    for client in ["claude-code", "codex", "gemini", "cursor", "vscode", "claude-desktop"] {
        let run = run_in(&bench, "project", &["setup", client, "--print"]);
        assert_eq!(run.code, 0, "{client}: {}", run.stderr);
        for part in ["http://127.0.0.1:7555", &key] {
            assert!(run.stdout.contains(part), "{client} {part}: {}", run.stdout);
        }
    }
    let told = run_in(&bench, "project", &["setup", "codex", "--print", "--url", "http://127.0.0.1:9000"]);
    assert!(told.stdout.contains("http://127.0.0.1:9000") && told.stdout.contains(&key), "{}", told.stdout);
    // Where several agents have keys, none is guessed.
    fs::copy(&key, bench.path("gate/data/agents/second.key")).unwrap();
    let torn = run_in(&bench, "project", &["setup", "codex", "--print"]);
    assert!(torn.code == 2 && torn.stderr.contains("clerk, second"), "{}", torn.stderr);
    let told = run_in(&bench, "project", &["setup", "codex", "--print", "--agent", "second"]);
    assert!(told.code == 0 && told.stdout.contains("second.key"), "{}", told.stderr);
    // A file that cannot be read is not guessed around.
    fs::write(&file, "listen: nowhere\n").unwrap();
    assert_eq!(run_in(&bench, "project", &["setup", "codex", "--print"]).code, 1);
    let nobody = TestFolder::new();
    let run = run_in(&nobody, "project", &["setup", "codex", "--print"]);
    assert!(run.code == 3 && run.stderr.contains("sluice init"), "{}", run.stderr);
}

#[test]
fn the_next_steps_of_init_keep_the_key_that_setup_needs() {
    let bench = TestFolder::new();
    let run = run_in(&bench, "work", &["init", "--dir", "../gate", "--yes"]);
    assert!(run.stderr.contains("sluice setup") && run.stderr.contains("sluice serve"), "{}", run.stderr);
    assert!(!run.stderr.contains("delete"), "{}", run.stderr);
}

#[test]
fn the_doctor_of_a_client_fails_while_its_gateway_does_not_answer() {
    let mut gate = CliTestGateway::open();
    let home = gate.bench.path("home").display().to_string();
    let config = gate.bench.path("gate/sluice.yaml").display().to_string();
    let run = |gate: &CliTestGateway, words: &[&str]| {
        gate.bench.run_with(words, "", &[("HOME", &home), ("SLUICE_CONFIG", &config)])
    };
    for client in ["claude-code", "codex", "gemini", "cursor"] {
        let set = run(&gate, &["setup", client, "--hooks"]);
        assert_eq!(set.code, 0, "{client}: {}", set.stderr);
        let found = run(&gate, &["doctor", "--client", client]);
        assert_eq!(found.code, 0, "{client}: {}", found.stdout);
        assert!(found.stdout.contains("responds and accepts the key of agent"), "{client}: {}", found.stdout);
    }
    gate.signal(rustix::process::Signal::TERM);
    gate.ended();
    for client in ["claude-code", "codex", "gemini", "cursor"] {
        let report = run(&gate, &["doctor", "--client", client, "--json"]);
        let checks: Value = serde_json::from_str(&report.stdout).unwrap();
        let failed = |one: &&Value| one["check"] == "gateway" && one["state"] == "fail";
        assert!(checks["checks"].as_array().unwrap().iter().find(failed).is_some(), "{client}: {}", report.stdout);
        assert_eq!(report.code, 1, "{client}");
    }
}

#[test]
fn init_founds_the_first_administrator_on_postgresql_and_a_second_one_is_refused() {
    let Some(database) = TestDatabase::fresh() else { return };
    let bench = TestFolder::new();
    bench.file("url.txt", database.url());
    let run = run_in(&bench, "work", &["init", "--dir", "../gate", "--yes", "--database-url-file", "../url.txt"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!bench.path("gate/data/sluice.db").exists());
    let yaml = fs::read_to_string(bench.path("gate/sluice.yaml")).unwrap();
    assert!(yaml.contains("url_file") && !yaml.contains("postgres://"), "{yaml}");
    let mode = fs::metadata(bench.path("gate/data/database.url")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = run_in(&bench, "work", &["init", "--dir", "../other", "--yes", "--database-url", database.url()]);
    assert!(again.code == 7 && again.stderr.contains("already belongs to a gateway"), "{}", again.stderr);
    assert!(!bench.path("other/sluice.yaml").exists());
    let bad = run_in(&bench, "work", &["init", "--dir", "../bad", "--yes", "--database-url", "mysql://secret"]);
    assert!(bad.code == 2 && !bad.stderr.contains("secret"), "{}", bad.stderr);
}
