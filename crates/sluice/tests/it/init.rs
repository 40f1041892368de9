//! `sluice init`, `config` and `doctor`, end to end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use sluice_core::UtcMillis;
use sluice_gateway::keys::{TokenKind, hash_of};
use sluice_store::{AccessKeyKind, OperatorRole, Store};

use crate::policy::{SluiceRunOutput, TestFolder};

fn mode(bench: &TestFolder, name: &str) -> u32 {
    fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o7777
}

fn json(run: &SluiceRunOutput) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}\n{}\n{}", run.stdout, run.stderr))
}

/// A gateway's folder `gate` whose ports nobody uses.
fn gate(arguments: &[&str]) -> TestFolder {
    let bench = TestFolder::new();
    let run = bench.run(&[&["init", "--dir", "gate", "--yes"], arguments].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    bench
}

#[test]
fn a_folder_is_made_that_checks_and_opens_for_exactly_three_keys() {
    let bench = gate(&[]);
    for (name, expected) in [
        ("gate/data", 0o700),
        ("gate/data/agents", 0o700),
        ("gate/data/agents/assistant.key", 0o600),
        ("gate/data/agents/assistant.task", 0o600),
        ("gate/data/operator.token", 0o600),
        ("gate/data/sluice.db", 0o600),
    ] {
        assert_eq!(mode(&bench, name), expected, "{name}");
    }
    assert!(
        fs::read_dir(bench.path("gate")).unwrap().flatten().all(|e| !e.file_name().to_string_lossy().starts_with('.'))
    );
    let run = bench.run(&["config", "check", "--config", "gate/sluice.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "gate/sluice.yaml is valid\n"), "{}", run.stderr);
    assert_eq!(bench.run(&["policy", "check", "gate/policies"]).code, 0);

    let read = |name: &str| fs::read_to_string(bench.path(name)).unwrap().trim().to_owned();
    let (agent_kind, agent_hash) = hash_of(&read("gate/data/agents/assistant.key")).unwrap();
    let (operator_kind, operator_hash) = hash_of(&read("gate/data/operator.token")).unwrap();
    let (task_kind, task_hash) = hash_of(&read("gate/data/agents/assistant.task")).unwrap();
    assert_eq!((agent_kind, operator_kind, task_kind), (TokenKind::Agent, TokenKind::Operator, TokenKind::Task));
    let store = Store::open_to_read(&bench.path("gate/data/sluice.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let keys = runtime.block_on(store.keys()).unwrap();
    assert_eq!(keys.len(), 3);
    for key in keys {
        assert!(key.is_live(UtcMillis::from_millis(i64::MAX)));
        match key.kind {
            AccessKeyKind::Agent(name) => assert_eq!((name.as_str(), key.hash), ("assistant", agent_hash)),
            AccessKeyKind::Operator(_, role) => assert_eq!((role, key.hash), (OperatorRole::Admin, operator_hash)),
            AccessKeyKind::Task(name) => assert_eq!((name.as_str(), key.hash), ("assistant", task_hash)),
            AccessKeyKind::Inbox(_) => panic!("no inbox was asked for"),
        }
    }
    assert_eq!(runtime.block_on(store.agents()).unwrap().len(), 1);
}

#[test]
fn keys_are_not_printed_where_nobody_sits() {
    let bench = TestFolder::new();
    let run = bench.run(&["init", "--dir", "gate", "--yes"]);
    let json_run = bench.run(&["init", "--dir", "other", "--yes", "--json"]);
    for text in [&run.stdout, &run.stderr, &json_run.stdout, &json_run.stderr] {
        assert!(!text.contains("sga_") && !text.contains("sgo_") && !text.contains("sgt_"), "{text}");
    }
    assert!(run.stdout.contains("gate/data/operator.token") && run.stderr.contains("next:"));
    assert!(json(&json_run)["agent_key_file"].as_str().unwrap().ends_with("other/data/agents/assistant.key"));
    // A database that was read by a thief opens nothing.
    let token = fs::read_to_string(bench.path("gate/data/operator.token")).unwrap();
    let database = fs::read(bench.path("gate/data/sluice.db")).unwrap();
    assert!(!database.windows(token.trim().len()).any(|window| window == token.trim().as_bytes()));
}

#[test]
fn every_template_fits_any_agent_and_its_folder() {
    for (template, agent) in [("coding", "mine"), ("personal", "ann"), ("team", "clerk"), ("strict", "auditor")] {
        let bench = gate(&["--template", template, "--agent", agent]);
        let rules = fs::read_to_string(bench.path(&format!("gate/policies/agents/{agent}.yaml"))).unwrap();
        let workspace = fs::canonicalize(bench.path("gate/workspace")).unwrap();
        assert!(rules.contains(&format!("path_prefix: {}/", workspace.display())), "{rules}");
        assert_eq!(fs::read_dir(bench.path("gate/policies/agents")).unwrap().count(), 1);
        let shown = json(&bench.run(&["config", "show", "--json", "--config", "gate/sluice.yaml"]));
        assert_eq!(shown["filesystem.roots"]["value"][0]["agents"][0], agent);
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_half_done() {
    for taken in ["sluice.yaml", "data", "policies", "workspace"] {
        let bench = TestFolder::new();
        bench.file(&format!("gate/{taken}"), "mine");
        let run = bench.run(&["init", "--dir", "gate", "--yes"]);
        assert_eq!(run.code, 7, "{}", run.stderr);
        assert!(run.stderr.contains("already exists") && run.stderr.contains("hint:"));
        assert_eq!(fs::read_dir(bench.path("gate")).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(bench.path(&format!("gate/{taken}"))).unwrap(), "mine");
    }
    let bench = TestFolder::new();
    let run = bench.run(&["init", "--dir", "a: b", "--yes"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert_eq!(fs::read_dir(bench.path("a: b")).unwrap().count(), 0);
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    let bench = TestFolder::new();
    let run = bench.run(&["init", "--dir", "gate"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("hint: add --yes"), "{}", run.stderr);
    assert!(!bench.path("gate").exists());
    assert_eq!(bench.run(&["init", "--template", "loose", "--yes"]).code, 2);
    assert_eq!(bench.run(&["init", "--agent", "../x", "--yes"]).code, 2);
}

#[test]
fn config_says_what_is_in_force_and_why() {
    let bench = TestFolder::new();
    bench.file("sluice.yaml", "node: gate-1\nbatch:\n  limit: 6\n");
    let secret = ("SLUICE_DATABASE_URL", "postgres://sluice:hunter2@db/sluice");
    let environment = [("SLUICE_APPROVALS__EXPIRY", "2h"), secret];
    let run = bench.run_with(&["config", "show", "--origin"], "", &environment);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let line = |key: &str| {
        let line = run.stdout.lines().find(|line| line.split(' ').next() == Some(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("node"), "node gate-1 sluice.yaml:1:7");
    assert_eq!(line("batch.limit"), "batch.limit 6 sluice.yaml:3:10");
    assert_eq!(line("approvals.expiry"), "approvals.expiry 2h environment SLUICE_APPROVALS__EXPIRY");
    assert_eq!(line("listen"), "listen 127.0.0.1:7420 default");
    assert_eq!(line("database.url"), "database.url set (hidden) environment SLUICE_DATABASE_URL");
    let shown = bench.run_with(&["config", "show", "--json"], "", &environment);
    assert!(!run.stdout.contains("hunter2") && !shown.stdout.contains("hunter2"));
    assert_eq!(json(&shown)["batch.limit"]["value"], 6);
    assert_eq!(json(&shown)["batch.limit"]["origin"], "file");
}

#[test]
fn problems_of_the_configuration_are_shown_with_their_place() {
    let bench = TestFolder::new();
    bench.file("sluice.yaml", "lisen: 127.0.0.1:7420\n");
    let run = bench.run_with(&["config", "check"], "", &[("SLUICE_BATCH__LIMIT", "many")]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    for part in [
        "error: unknown key `lisen` [config.unknown_key]\n  --> sluice.yaml:1:1\n   |\n 1 | lisen: 127.0.0.1:7420\n   | ^^^^^\n",
        "did you mean `listen`?",
        "environment variable SLUICE_BATCH__LIMIT",
        "error: 2 errors in `sluice.yaml`",
    ] {
        assert!(run.stderr.contains(part), "{part}\n---\n{}", run.stderr);
    }
    let run = bench.run(&["config", "check", "--json"]);
    assert_eq!((run.code, json(&run)["faults"][0]["line"].as_u64()), (1, Some(1)));
    assert_eq!(bench.run(&["config", "show"]).code, 1);
}

#[test]
fn the_file_is_the_one_named_by_flag_then_by_variable_then_the_one_here() {
    let bench = TestFolder::new();
    assert_eq!(bench.run(&["config", "path"]).code, 3);
    assert_eq!(bench.run(&["config", "check"]).code, 3);
    assert_eq!(bench.run(&["config", "path", "--config", "none.yaml"]).code, 3);
    bench.file("sluice.yaml", "").file("b.yaml", "").file("c.yaml", "");
    let path = |arguments: &[&str], environment: &[(&str, &str)]| {
        let run = bench.run_with(&[&["config", "path"], arguments].concat(), "", environment);
        run.stdout.trim().rsplit('/').next().unwrap().to_owned()
    };
    assert_eq!(path(&[], &[]), "sluice.yaml");
    assert_eq!(path(&[], &[("SLUICE_CONFIG", "b.yaml")]), "b.yaml");
    assert_eq!(path(&["--config", "c.yaml"], &[("SLUICE_CONFIG", "b.yaml")]), "c.yaml");
    let schema = json(&bench.run(&["config", "schema"]));
    assert_eq!(schema["title"], "sluice.yaml");
}

/// Two neighbouring ports that are free for now.
fn free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

fn state<'a>(report: &'a Value, check: &str) -> &'a str {
    let all = report["checks"].as_array().unwrap();
    let found = all.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("{check} in {report}"))["state"].as_str().unwrap()
}

#[test]
fn the_doctor_finds_a_new_folder_in_order() {
    let bench = gate(&[]);
    let listen = format!("127.0.0.1:{}", free_ports());
    // How full the disk of this machine is, is not what is tested here.
    let environment =
        [("SLUICE_LISTEN", listen.as_str()), ("SLUICE_DISK__LOW", "0B/0%"), ("SLUICE_DISK__STOP", "0B/0%")];
    let run = bench.run_with(&["doctor", "--json", "--config", "gate/sluice.yaml"], "", &environment);
    assert_eq!(run.code, 0, "{}", run.stdout);
    let report = json(&run);
    for check in ["config", "policies", "permissions", "database", "disk", "clock", "openat2", "listen", "stop_listen"]
    {
        assert_eq!(state(&report, check), "ok", "{check}: {}", run.stdout);
    }
    for layer in ["descriptors", "environment", "limits", "privileges", "dumpable", "landlock", "seccomp"] {
        assert_eq!(state(&report, layer), "ok", "{layer}: {}", run.stdout);
    }
    for layer in ["namespaces", "empty_root"] {
        assert!(["ok", "warn"].contains(&state(&report, layer)), "where the system allows it: {}", run.stdout);
    }
    let run = bench.run_with(&["doctor", "--config", "gate/sluice.yaml"], "", &environment);
    assert!(run.stdout.starts_with("ok    config       gate/sluice.yaml is valid\n"), "{}", run.stdout);
    assert!(!run.stdout.contains('\u{1b}') && run.stderr.contains("0 checks failed"));
}

#[test]
fn the_doctor_names_everything_that_is_wrong() {
    let bench = gate(&[]);
    fs::set_permissions(bench.path("gate/data/operator.token"), fs::Permissions::from_mode(0o644)).unwrap();
    bench.file("gate/policies/org.yaml", "defaults: {teir: notify}\n").file("gate/data/sluice.db", "not a database");
    fs::remove_dir(bench.path("gate/workspace")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    // Whoever has the port answers nothing and hangs up.
    let silent = std::thread::spawn(move || drop(taken.accept()));
    let environment = [
        ("SLUICE_LISTEN", listen.as_str()),
        ("SLUICE_DISK__LOW", "900000GB/99%"),
        ("SLUICE_DISK__STOP", "800000GB/1%"),
    ];
    let run = bench.run_with(&["doctor", "--json", "--config", "gate/sluice.yaml"], "", &environment);
    silent.join().unwrap();
    assert_eq!(run.code, 1);
    let report = json(&run);
    for check in ["policies", "permissions", "database", "disk", "filesystem", "listen"] {
        assert_eq!(state(&report, check), "fail", "{check}: {}", run.stdout);
    }
    assert!(report["checks"].as_array().unwrap().iter().all(|f| f["state"] != "fail" || f["hint"].is_string()));
    bench.file("gate/sluice.yaml", "lisen: x\n");
    let run = bench.run(&["doctor", "--config", "gate/sluice.yaml"]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.starts_with("fail  config") && run.stderr.contains("did you mean `listen`?"), "{}", run.stdout);
}
