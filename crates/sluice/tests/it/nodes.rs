//! Several gateways on one PostgreSQL under the real program: how a second one joins, and what each says of the other.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::Value;
use sluice_testkit::postgres::TestDatabase;

use crate::running::{TestInstallation, free_addresses};

/// A second node beside the first: its configuration and root key, another name and other addresses.
pub(crate) fn beside(first: &TestInstallation, name: &str) -> TestInstallation {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (first.folder.path(), folder.path());
    fs::create_dir_all(to.join("policies/agents")).unwrap();
    fs::create_dir_all(to.join("work")).unwrap();
    for made in ["data", "data/keys"] {
        fs::create_dir_all(to.join(made)).unwrap();
        fs::set_permissions(to.join(made), fs::metadata(from.join(made)).unwrap().permissions()).unwrap();
    }
    for file in ["policies/org.yaml", "data/keys/root.key"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let [main, stop] = free_addresses();
    let text = fs::read_to_string(from.join("sluice.yaml")).unwrap();
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some(("node", _)) => format!("node: {name}\n"),
        Some(("listen", _)) => format!("listen: {main}\n"),
        Some(("stop_listen", _)) => format!("stop_listen: {stop}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(to.join("sluice.yaml"), lines.collect::<String>()).unwrap();
    let (agent_key, operator_token) = (first.agent_key.clone(), first.operator_token.clone());
    TestInstallation { folder, main, agent_key, operator_token }
}

fn sluice(at: &TestInstallation, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .env("SLUICE_CONFIG", at.folder.path().join("sluice.yaml"))
        .env("SLUICE_TOKEN", &at.operator_token)
        .output()
        .unwrap()
}

fn works(at: &TestInstallation, arguments: &[&str]) -> String {
    let run = sluice(at, arguments);
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

fn json(at: &TestInstallation, arguments: &[&str]) -> Value {
    serde_json::from_str(&works(at, arguments)).unwrap()
}

fn public_key(at: &TestInstallation) -> String {
    at.folder.path().join("data/keys/audit.pub").display().to_string()
}

fn called(at: SocketAddr, key: &str) -> u16 {
    let body = serde_json::json!({"capability": "system.time"});
    crate::running::ask(at, "POST", "/v1/calls", key, Some(&body)).unwrap().status
}

#[test]
fn a_second_node_joins_and_every_node_lists_exports_and_verifies_the_other() {
    let Some(database) = TestDatabase::fresh() else { return };
    let first = TestInstallation::new("", "defaults:\n  tier: notify\n", Some(database.url()));
    let running = first.start();
    let second = beside(&first, "gw-2");
    let _beside = second.start();
    let list = json(&second, &["nodes", "list", "--json"]);
    let names: Vec<_> = list["nodes"].as_array().unwrap().iter().map(|node| (&node["name"], &node["state"])).collect();
    let open = Value::from("open");
    assert_eq!(names, [(&"gw".into(), &open), (&"gw-2".into(), &open)]);
    assert_eq!(list["differences"], serde_json::json!([]));
    let table = works(&second, &["nodes", "list"]);
    assert!(table.contains("gw-2 (responding)") && !table.contains("DIFFERS"), "{table}");

    // One agent's key opens both, and none once it is revoked at one.
    assert_eq!((called(first.main, &first.agent_key), called(second.main, &first.agent_key)), (200, 200));
    let keys = json(&first, &["keys", "list", "--json"]);
    let key = keys["data"].as_array().unwrap().iter().find(|key| key["kind"] == "agent").unwrap();
    works(&first, &["keys", "revoke", key["key_id"].as_str().unwrap()]);
    assert_eq!(called(second.main, &first.agent_key), 401);

    // The record of both is read, exported and verified at the second, each log with the key of its node.
    let signed = || json(&second, &["audit", "verify", "--json"])["logs"].as_array().unwrap().clone();
    let of = |logs: &[Value], name: &str| logs.iter().find(|log| log["log"] == name).unwrap().clone();
    let is_signed = |name: &str| of(&signed(), name)["signed"].as_u64() > Some(0);
    assert!((0..200).any(|_| is_signed("gw") && is_signed("gw-2")), "{:?}", signed());
    let logs = signed();
    assert_eq!(
        (&of(&logs, "gw")["key_from"], &of(&logs, "gw-2")["key_from"]),
        (&"its_node".into(), &"this_node".into())
    );
    let text = works(&second, &["audit", "verify"]);
    assert!(text.contains("are signed with the key that its node shared with the other nodes"), "{text}");
    let own = fs::read_to_string(public_key(&first)).unwrap();
    assert_eq!(works(&second, &["audit", "key", "--log", "gw"]).trim(), own.trim());
    assert!(works(&second, &["audit", "show", "0", "--log", "gw"]).contains("#0"));
    let out = second.folder.path().join("export");
    // The one that made the database never said which key it has, and signed nothing.
    let run = sluice(&second, &["audit", "export", "--all", "--out", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.code() == Some(3) && said.contains("the public key of setup is not known here"), "{said}");
    for (log, place) in [("gw", &first), ("gw-2", &second)] {
        let folder = out.join(log).display().to_string();
        let report = json(&second, &["audit", "verify", "--export", &folder, "--key", &public_key(place), "--json"]);
        assert_eq!((&report["log"], &report["key_known"]), (&log.into(), &true.into()));
        assert!(report["covered"].as_u64() > Some(0), "{report}");
        let other = if log == "gw" { &second } else { &first };
        let run = sluice(&second, &["audit", "verify", "--export", &folder, "--key", &public_key(other)]);
        assert_ne!(run.status.code(), Some(0), "the key of another node is not the key of {log}");
    }
    drop(running);
}
