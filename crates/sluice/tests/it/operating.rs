//! What commands say when something is odd, and what they print for scripts.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli_gateway::{CliTestGateway, staying};

#[test]
fn ids_for_scripts_are_those_of_what_is_listed() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 1h}}\n");
    fs::write(gate.path("workspace/old.txt"), "x").unwrap();
    let call = gate.pending("filesystem.delete", &json!({"path": gate.workspace("old.txt")}));
    let id = |name: &str| call[name].as_str().unwrap().to_owned();
    gate.works(&["approvals", "approve", &id("approval_id")]);
    let listed = gate.json(&["holds", "list"]);
    assert_eq!(listed["data"][0]["approval_id"], call["approval_id"], "the write names its approval: {listed}");
    for (arguments, name) in [
        (&["holds", "list"][..], "buffer_id"),
        (&["holds", "show", &id("buffer_id")], "buffer_id"),
        (&["calls", "list"], "call_id"),
        (&["calls", "show", &id("call_id")], "call_id"),
        (&["approvals", "show", &id("approval_id")], "approval_id"),
    ] {
        assert_eq!(gate.works(&[arguments, &["-o", "id"]].concat()), format!("{}\n", id(name)), "{arguments:?}");
    }
    let version = gate.json(&["status"])["policy_version"].as_str().unwrap().to_owned();
    assert_eq!(gate.works(&["policy", "history", "-o", "id"]), format!("{version}\n"));
    assert_eq!(gate.works(&["audit", "show", "0", "-o", "id"]), "0\n");
}

#[test]
fn freezing_a_name_nobody_has_is_done_and_warned_of() {
    let gate = CliTestGateway::open();
    let run = gate.run(&["freeze", "--agent", "asistant", "--json"]);
    let frozen: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&frozen["known"], &frozen["nearest"]), (&false.into(), &"assistant".into()));
    assert!(run.stderr.contains("did you mean `assistant`?"), "{}", run.stderr);
    let run = gate.run(&["freeze", "--service", "filesistem"]);
    assert_eq!((run.code, run.stderr.contains("did you mean `filesystem`?")), (0, true), "{}", run.stderr);
    assert!(gate.run(&["freeze", "--service", "zz"]).stderr.contains("no service zz is known yet"));
    assert_eq!(gate.json(&["status"])["freezes"].as_array().unwrap().len(), 3, "frozen all the same");
    assert!(!gate.run(&["freeze", "--service", "custom"]).stderr.contains("known yet"), "the tools of clients");
    for scope in [&["--agent", "assistant"][..], &["--service", "filesystem"], &[]] {
        let run = gate.run(&[&["freeze"], scope].concat());
        assert!(!run.stderr.contains("warning"), "{scope:?}: {}", run.stderr);
    }
    let lifted = gate.json(&["unfreeze", "--agent", "assistant"]);
    assert_eq!(lifted, json!({"scope": "agent assistant", "frozen": false}));
}

#[test]
fn a_refusal_says_what_is_the_case() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 1h}}\n");
    let call = gate.pending("filesystem.write", &json!({"path": gate.workspace("a"), "content": "x"}));
    let id = call["buffer_id"].as_str().unwrap();
    let run = gate.run(&["holds", "extend", id, "0s"]);
    assert_eq!((run.code, run.stderr.contains("1 second to 24 hours")), (2, true), "{}", run.stderr);
    gate.works(&["holds", "cancel", id]);
    for verb in [&["cancel", id][..], &["send-now", id], &["extend", id, "5m"]] {
        let run = gate.run(&[&["holds"], verb].concat());
        assert_eq!((run.code, run.stderr.contains("already cancelled")), (7, true), "{verb:?}: {}", run.stderr);
        assert!(!run.stderr.contains("already started"), "{}", run.stderr);
    }
    let run = gate.run(&["agents", "add", "assistant"]);
    assert_eq!((run.code, run.stderr.contains("there already is an agent")), (7, true), "{}", run.stderr);
    for list in ["holds", "calls", "approvals"] {
        let run = gate.run(&[list, "list", "--state", "bogus"]);
        assert_eq!((run.code, run.stderr.contains("state is one")), (2, true), "{list}: {}", run.stderr);
        assert!(!run.stderr.contains("capability lists"), "{}", run.stderr);
    }
}

#[test]
fn calls_the_rules_refused_are_listed_and_a_replay_does_not_pass_over_them() {
    let gate = CliTestGateway::open();
    let org = fs::read_to_string(gate.path("policies/org.yaml")).unwrap();
    let rule = "overrides:\n  - {capability: state.shared.set, tier: blocked}";
    fs::create_dir_all(gate.path("stricter/agents")).unwrap();
    fs::write(gate.path("stricter/org.yaml"), org.replacen("overrides:", rule, 1)).unwrap();
    let agent = gate.path("policies/agents/assistant.yaml");
    fs::copy(agent, gate.path("stricter/agents/assistant.yaml")).unwrap();
    let stricter = gate.path("stricter");
    gate.works(&["policy", "apply", stricter.to_str().unwrap()]);
    let run = gate.call("state.shared.set", &json!({"key": "a", "value": 1, "expected_version": 0}), &[]);
    assert_eq!(run.code, 5, "{}{}", run.stdout, run.stderr);
    let refused: Value = serde_json::from_str(&run.stdout).unwrap();
    gate.call("state.persistent.set", &json!({"key": "a", "value": 1}), &[]);

    let listed = gate.json(&["calls", "list", "--state", "blocked"]);
    let [one] = listed["data"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&one["call_id"], &one["code"]), (&refused["call_id"], &"policy.blocked".into()));
    assert_eq!((&one["agent"], &one["capability"]), (&"assistant".into(), &"state.shared.set".into()));
    assert_eq!(gate.json(&["calls", "list"])["data"].as_array().unwrap().len(), 2, "both kinds");
    assert_eq!(gate.json(&["calls", "list", "--state", "done"])["data"].as_array().unwrap().len(), 1);
    assert!(gate.works(&["calls", "list"]).contains("policy.blocked"));

    fs::create_dir_all(gate.path("looser/agents")).unwrap();
    fs::write(gate.path("looser/org.yaml"), org).unwrap();
    fs::copy(gate.path("stricter/agents/assistant.yaml"), gate.path("looser/agents/assistant.yaml")).unwrap();
    let looser = gate.path("looser");
    let diff = ["policy", "diff", looser.to_str().unwrap(), "--replay", "1h"];
    let found = gate.json(&diff);
    assert_eq!((&found["refused"], &found["refused_replayed"], &found["looser"]), (&1.into(), &1.into(), &1.into()));
    let [one] = found["differences"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&one["call_id"], one.get("buffer_id")), (&refused["call_id"], None));
    assert_eq!((&one["now"], &one["capability"]), (&"blocked".into(), &"state.shared.set".into()));
    let run = gate.run(&[&diff[..], &["--deny-looser"]].concat());
    assert_eq!(run.code, 1, "a block that would be lifted is looser: {}{}", run.stdout, run.stderr);

    // What must not leave is not kept either, whatever refused it.
    let secret = format!("{}{}", "AK".to_owned() + "IA", "QX7ZJ3M5W2K9V4TB");
    gate.call("state.shared.set", &json!({"key": "b", "value": secret, "expected_version": 0}), &[]);
    let found = gate.json(&diff);
    assert_eq!((&found["refused"], &found["refused_replayed"]), (&2.into(), &1.into()));
    let run = gate.run(&diff);
    assert!(run.stderr.contains("1 refused call not replayed"), "{}{}", run.stdout, run.stderr);
    for file in ["data/sluice.db", "data/sluice.db-wal"] {
        let bytes = fs::read(gate.path(file)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{file} holds it");
    }
}

#[test]
fn a_list_that_stays_outlives_a_restart_of_the_gateway() {
    let mut gate = CliTestGateway::open();
    let (mut child, mut lines) = staying(&gate, &["agents", "list", "--watch"]);
    lines.until("assistant");
    let (mut status, mut told) = staying(&gate, &["status", "--watch"]);
    told.until("frozen");
    gate.signal(Signal::TERM);
    assert_eq!(gate.ended(), 0);
    gate.restart();
    gate.works(&["agents", "add", "newcomer"]);
    lines.until("newcomer");
    gate.works(&["freeze", "--reason", "a look"]);
    told.until("a look");
    for child in [&mut child, &mut status] {
        assert!(child.try_wait().unwrap().is_none(), "it stays");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_prints_a_word_prints_it_for_machines_too() {
    let gate = CliTestGateway::open();
    let path = gate.json(&["config", "path"]);
    assert!(path["path"].as_str().unwrap().ends_with("gate/sluice.yaml"), "{path}");
    let policies = gate.path("policies");
    let formatted = gate.json(&["policy", "fmt", policies.to_str().unwrap(), "--check"]);
    assert_eq!(formatted, json!({"changed": [], "written": false}));
    let key = gate.json(&["keys", "create", "--inbox", "phone"])["key_id"].as_str().unwrap().to_owned();
    assert_eq!(gate.json(&["keys", "revoke", &key]), json!({"key_id": key, "revoked": true}));
}

#[test]
fn the_doctor_finds_a_folder_in_order_that_is_being_served() {
    let gate = CliTestGateway::open();
    let report: Value = serde_json::from_str(&gate.run(&["doctor", "--json"]).stdout).unwrap();
    for check in ["config", "policies", "permissions", "database", "listen", "stop_listen"] {
        let found = report["checks"].as_array().unwrap().iter().find(|finding| finding["check"] == check);
        assert_eq!(found.unwrap()["state"], "ok", "{check}: {report}");
    }
}
