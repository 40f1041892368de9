//! Clients that act by themselves, and people who change what is asked.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::cli_gateway::CliTestGateway;

/// A credential for something that hands in replies.
fn inbox(gate: &CliTestGateway) -> String {
    gate.json(&["keys", "create", "--inbox", "phone"])["token"].as_str().unwrap().to_owned()
}

fn agent(gate: &CliTestGateway) -> String {
    fs::read_to_string(gate.path("data/agents/assistant.key")).unwrap().trim().to_owned()
}

#[test]
fn the_example_asks_is_answered_and_reads() {
    let gate = CliTestGateway::with(
        "inbox: {trust_sender: true}\napprovals: {people: [{name: ana, email: ana@example.com}]}\n",
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/approval_demo.py");
    let run = Command::new("python3")
        .arg(script)
        .env("SLUICE_URL", &gate.url)
        .env("SLUICE_AGENT_KEY", agent(&gate))
        .env("SLUICE_INBOX_KEY", inbox(&gate))
        .env("SLUICE_PERSON", "ana@example.com")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8(run.stdout).unwrap();
    insta::assert_snapshot!(gate.masked(&said), @r"
    asked: appr_ID is pending
    the agent cannot answer itself
    the id alone decides nothing: approval.reply_token
    replied: approved
    read: approved with the note 'add logs'
    ");
    let stats = gate.works(&["approvals", "stats"]);
    assert!(stats.contains("person:ana"), "{stats}");
}

#[test]
fn a_changed_write_is_carried_out_in_place_of_the_one_asked() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 0s}}\n");
    for name in ["wrong.txt", "right.txt"] {
        fs::write(gate.path("workspace").join(name), "x").unwrap();
    }
    let call = gate.pending("filesystem.delete", &json!({"path": gate.workspace("wrong.txt")}));
    let id = call["approval_id"].as_str().unwrap();
    let file = gate.path("changed.json");
    fs::write(&file, json!({"path": gate.workspace("right.txt")}).to_string()).unwrap();
    let said = gate.works(&["approvals", "modify", id, "--arguments", file.to_str().unwrap()]);
    assert!(said.contains("superseded"), "{said}");
    let seen = gate.json(&["calls", "wait", call["call_id"].as_str().unwrap()]);
    assert_eq!(seen["status"], "done", "{seen}");
    assert!(gate.path("workspace/wrong.txt").exists(), "what was asked about did not happen");
    assert!(!gate.path("workspace/right.txt").exists(), "what the person wanted did");
}
