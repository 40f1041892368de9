//! The record of a real gateway: had, exported, proven and verified by whoever runs it.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use sluice_testkit::postgres::TestDatabase;

use crate::cli_gateway::CliTestGateway;
use crate::running::TestInstallation;

/// Waits until something is signed; gives how much.
fn signed(gate: &CliTestGateway) {
    let of = |status: &Value| status["audit"].as_array().unwrap().iter().any(|log| log["signed"].as_u64() > Some(1));
    gate.until(of);
}

#[test]
fn a_served_folder_exports_its_record_and_a_tampered_copy_is_caught_with_its_public_key() {
    let gate = CliTestGateway::open();
    signed(&gate);
    let printed = gate.works(&["audit", "key"]);
    assert_eq!(printed, fs::read_to_string(gate.path("data/keys/audit.pub")).unwrap());
    let status = gate.json(&["status"]);
    let keys = status["audit"].as_array().unwrap().iter().filter_map(|log| log["key"].as_str());
    assert_eq!(keys.collect::<Vec<_>>(), [printed.trim()]);

    let (out, key) = (gate.bench.path("export"), gate.bench.path("audit.pub"));
    fs::write(&key, &printed).unwrap();
    let (out, key) = (out.to_str().unwrap(), key.to_str().unwrap());
    let made = gate.json(&["audit", "export", "--out", out]);
    assert!(made["signed"].as_u64() > Some(1), "{made}");
    let verify = ["audit", "verify", "--export", out, "--key", key];
    let report = gate.json(&verify);
    assert_eq!((&report["key_known"], &report["covered"]), (&true.into(), &made["signed"]));
    assert_eq!(gate.run(&["audit", "export", "--out", out]).code, 7, "an export is not overwritten");

    // The same, to the byte, out of the file.
    let (again, data) = (gate.bench.path("again"), gate.path("data"));
    gate.works(&["audit", "export", "--data", data.to_str().unwrap(), "--out", again.to_str().unwrap()]);
    let (ours, theirs) = (fs::read_to_string(format!("{out}/entries.jsonl")).unwrap(), again.join("entries.jsonl"));
    assert!(fs::read_to_string(theirs).unwrap().starts_with(&ours));

    let second = ours.lines().nth(1).unwrap();
    let forged = second.replacen("\"actor\":\"", "\"actor\":\"x", 1);
    assert_ne!(forged, second);
    fs::write(format!("{out}/entries.jsonl"), ours.replacen(second, &forged, 1)).unwrap();
    let run = gate.run(&verify);
    assert_eq!(run.code, 9, "{}", run.stdout);
    assert!(run.stderr.contains("audit.changed: entry 1:"), "{}", run.stderr);
}

#[test]
fn the_gateway_is_asked_and_its_file_is_read_when_it_does_not_answer() {
    let mut gate = CliTestGateway::open();
    signed(&gate);
    let shown = gate.works(&["audit", "show", "0"]);
    assert!(shown.starts_with("#0 "), "{shown}");
    assert_eq!(gate.works(&["audit", "show", "--last", "2"]).lines().count(), 2);
    assert_eq!(gate.works(&["audit", "show", "--limit", "2"]).lines().count(), 2, "a limit alone is one");
    let walked = gate.run(&["audit", "verify"]);
    assert_eq!((walked.code, walked.stderr.contains("the chain is valid")), (0, true), "{}", walked.stderr);
    assert_eq!(gate.run(&["audit", "show", "999999"]).code, 3);
    assert_eq!(gate.run(&["audit", "prove", "999999"]).code, 3);
    let (proof, key) = (gate.bench.path("entry.proof"), gate.path("data/keys/audit.pub"));
    fs::write(&proof, gate.works(&["audit", "prove", "1"])).unwrap();
    let (proof, key) = (proof.to_str().unwrap(), key.to_str().unwrap());
    assert!(gate.works(&["audit", "verify", "--proof", proof, "--key", key]).contains("entry #1 of"));

    gate.signal(Signal::TERM);
    assert_eq!(gate.ended(), 0);
    let run = gate.run(&["audit", "show", "0"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, shown.as_str()), "{}", run.stderr);
    assert!(run.stderr.contains("does not respond") && run.stderr.contains("sluice.db"), "{}", run.stderr);
    let run = gate.run(&["audit", "show", "--url", &gate.url]);
    assert_eq!(run.code, 11, "a gateway that was named is not replaced by a file: {}", run.stdout);
}

#[test]
fn a_record_on_a_server_is_exported_through_the_gateway() {
    let Some(database) = TestDatabase::fresh() else { return };
    let place = TestInstallation::new("", "defaults:\n  tier: notify\n", Some(database.url()));
    let _running = place.start();
    let (out, key) = (place.folder.path().join("export"), place.folder.path().join("data/keys/audit.pub"));
    let sluice = |arguments: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(arguments)
            .env_clear()
            .env("SLUICE_CONFIG", place.folder.path().join("sluice.yaml"))
            .env("SLUICE_TOKEN", &place.operator_token)
            .output()
            .unwrap();
        assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    let signed = |status: &str| {
        let status: Value = serde_json::from_str(status).unwrap();
        status["audit"].as_array().unwrap().iter().any(|log| log["log"] == "gw" && log["signed"].as_u64() > Some(0))
    };
    assert!((0..2_000).any(|_| signed(&sluice(&["status", "--json"]))), "nothing was signed");
    let (out, key) = (out.to_str().unwrap(), key.to_str().unwrap());
    sluice(&["audit", "export", "--out", out]);
    let report: Value =
        serde_json::from_str(&sluice(&["audit", "verify", "--export", out, "--key", key, "--json"])).unwrap();
    assert_eq!((&report["log"], &report["key_known"]), (&"gw".into(), &true.into()));
    assert!(report["covered"].as_u64() > Some(0), "{report}");
}
