//! Questions and their answers, standing approvals, alerts.

use std::fs;

use serde_json::{Value, json};

use crate::cli_gateway::{CliTestGateway, staying};

/// Asks for something a person decides about.
fn ask(gate: &CliTestGateway, name: &str) -> Value {
    fs::write(gate.path("workspace").join(name), "x").unwrap();
    gate.pending("filesystem.delete", &json!({"path": gate.workspace(name)}))
}

fn approval(call: &Value) -> &str {
    call["approval_id"].as_str().unwrap()
}

#[test]
fn the_card_says_who_what_why_how_many_until_when_and_hides_nothing() {
    let gate = CliTestGateway::open();
    assert_eq!(gate.run(&["approvals", "list"]).stderr, "no approvals\n");
    let call = ask(&gate, "odd\u{202e}name.txt");
    insta::assert_snapshot!(gate.masked(&gate.works(&["approvals", "show", approval(&call)])), @r"
    who       assistant, at filesystem
    what      filesystem.delete
      path         GATE/workspace/odd\u{202e}name.txt
    what it is about, in the words of others:
        | deletes GATE/workspace/odd\u{202e}name.txt: 1 bytes, sha256 HASH
        | all of it: x
        | state of all files: sha256 HASH
    origin    path GATE/workspace/odd\u{202e}name.txt: known
    why       rule org.yaml:44
    risk      low
    how many  1 write
    until     TIME
    digest    sha256-v1:HASH
    always    1: `filesystem.delete` on GATE/workspace/odd\u{202e}name.txt, 30 days, 100 uses
    always    2: `filesystem.delete` on known files in GATE/workspace, 30 days, 100 uses
    approval  appr_ID
    status    pending
    ");
    insta::assert_snapshot!(gate.table(&gate.works(&["approvals", "list"])), @r"
    APPROVAL  STATUS  AGENT  ASKS FOR  ASKED  UNTIL
    appr_ID  pending  assistant  filesystem.delete GATE/workspace/odd\u{202e}name.txt  TIME  TIME
    ");
}

#[test]
fn a_question_is_answered_once() {
    let gate = CliTestGateway::open();
    let call = ask(&gate, "a.txt");
    let wait = |patience: &str| gate.run(&["approvals", "wait", approval(&call), "--timeout", patience]);
    assert_eq!(wait("1ms").code, 8);
    let digest = gate.json(&["approvals", "show", approval(&call)])["writes"][0]["digest"].as_str().unwrap().to_owned();
    let run = gate.run(&["approvals", "approve", approval(&call), "--digest", "sha256-v1:00000000"]);
    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(gate.path("workspace/a.txt").exists());
    let run = gate.run(&["approvals", "approve", approval(&call), "--digest", &digest[..20], "--note", "go on"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    insta::assert_snapshot!(gate.masked(&run.stdout), @r"
    approval  appr_ID
    status    approved, by operator:admin at TIME
    note      go on
    ");
    assert_eq!(wait("60s").code, 0);
    for second in ["approve", "deny", "always"] {
        let run = gate.run(&["approvals", second, approval(&call)]);
        assert_eq!(run.code, 7, "{second}: {}", run.stderr);
        assert!(run.stderr.contains("already"), "{}", run.stderr);
    }
    gate.run(&["calls", "wait", call["call_id"].as_str().unwrap(), "--timeout", "60s"]);
    assert!(!gate.path("workspace/a.txt").exists());
}

#[test]
fn a_no_is_a_no_for_everyone_who_waits() {
    let gate = CliTestGateway::open();
    let call = ask(&gate, "a.txt");
    // Nobody reads what it prints; its exit code must not turn into a yes for that.
    let (mut child, _) = staying(&gate, &["approvals", "wait", approval(&call)]);
    gate.works(&["approvals", "deny", &approval(&call)[..20], "--note", "not this one"]);
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert_eq!(gate.run(&["calls", "wait", call["call_id"].as_str().unwrap(), "--timeout", "60s"]).code, 6);
    assert!(gate.path("workspace/a.txt").exists());
    assert_eq!(gate.json(&["approvals", "show", approval(&call)])["note"], "not this one");
}

#[test]
fn a_batch_is_approved_only_as_far_as_was_said() {
    let gate = CliTestGateway::with("batch:\n  services:\n    filesystem: {limit: 1, window: 10m}\n");
    let write = |name: &str| json!({"path": gate.workspace(name), "content": "x"});
    assert_eq!(gate.call("filesystem.write", &write("0.txt"), &[]).code, 0);
    let calls: Vec<Value> =
        ["1.txt", "2.txt", "3.txt"].iter().map(|name| gate.pending("filesystem.write", &write(name))).collect();
    let id = approval(&calls[0]);
    assert!(calls.iter().all(|call| approval(call) == id), "{calls:?}");
    let run = gate.run(&["approvals", "approve", id]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("batch limit reached: say which writes to approve") && run.stderr.contains("--first N"),
        "{}",
        run.stderr
    );
    assert_eq!(gate.run(&["approvals", "always", id]).code, 2);
    let card = gate.works(&["approvals", "show", id]);
    assert!(card.contains("how many  3 writes") && card.contains("too many writes in a short time"), "{card}");
    for name in ["1.txt", "2.txt", "3.txt"] {
        assert!(card.contains(&format!("origin    path {}: known", gate.workspace(name))), "{name} in {card}");
    }
    gate.works(&["approvals", "approve", id, "--only", calls[1]["buffer_id"].as_str().unwrap()]);
    gate.run(&["calls", "wait", calls[1]["call_id"].as_str().unwrap(), "--timeout", "60s"]);
    assert!(gate.path("workspace/2.txt").exists());
    assert!(!gate.path("workspace/1.txt").exists() && !gate.path("workspace/3.txt").exists());
}

#[test]
fn a_standing_approval_answers_what_its_bound_says_until_it_is_taken_back() {
    let gate = CliTestGateway::open();
    let narrow = ask(&gate, "n.txt");
    gate.works(&["approvals", "approve", approval(&narrow), "--for", "always"]);
    let call = ask(&gate, "a.txt");
    assert_eq!(gate.run(&["approvals", "session", approval(&call)]).code, 7, "the call has no session");
    let card = gate.works(&["approvals", "show", approval(&call)]);
    let (file, folder) = (gate.workspace("a.txt"), gate.workspace(""));
    let folder = folder.trim_end_matches('/');
    for line in [
        format!("always    1: `filesystem.delete` on {file}, 30 days, 100 uses"),
        format!("always    2: `filesystem.delete` on known files in {folder}, 30 days, 100 uses"),
    ] {
        assert!(card.contains(&line), "{line} in {card}");
    }
    assert_ne!(gate.run(&["approvals", "always", approval(&call), "--bound", "3"]).code, 0);
    gate.works(&["approvals", "always", approval(&call), "--bound", "2"]);
    let list = gate.json(&["allowances", "list"]);
    let wide = &list["data"][1];
    assert_eq!((wide["covers"].as_str(), wide["active"].as_bool()), (Some("filesystem.delete"), Some(true)));
    assert_eq!(list["data"][0]["bound"], format!("`filesystem.delete` on {}", gate.workspace("n.txt")));
    assert_eq!((wide["uses"].as_u64(), wide["uses_left"].as_u64()), (Some(0), Some(100)));
    let table = gate.masked(&gate.works(&["allowances", "list"]));
    assert!(table.starts_with("ALLOWANCE ") && table.contains("alw_ID") && table.contains("LAST USE"), "{table}");
    assert!(table.contains("on known files in"), "{table}");
    fs::write(gate.path("workspace/b.txt"), "x").unwrap();
    let run = gate.call("filesystem.delete", &json!({"path": gate.workspace("b.txt")}), &["--wait", "60s"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let list = gate.json(&["allowances", "list"]);
    assert!(list["data"][1]["uses"] == 1 && list["data"][1]["last_used_at"].is_string(), "{list}");
    gate.works(&["allowances", "revoke", list["data"][1]["allowance_id"].as_str().unwrap()]);
    ask(&gate, "c.txt");
}

#[test]
fn questions_are_printed_as_they_come() {
    let gate = CliTestGateway::open();
    let (mut child, mut lines) = staying(&gate, &["approvals", "watch"]);
    let call = ask(&gate, "a.txt");
    lines.until("what      filesystem.delete");
    lines.until(approval(&call));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn alerts_are_listed_and_acknowledged() {
    let gate = CliTestGateway::open();
    let run =
        gate.call("alerts.send", &json!({"message": "look \u{1b}[2J here", "severity": "warning"}), &["--wait", "60s"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let list = gate.json(&["alerts", "list", "--open", "--severity", "warning"]);
    let alert = list["data"].as_array().unwrap().iter().find(|alert| alert["topic"] == "alert.agent").unwrap();
    let table = gate.works(&["alerts", "list", "--open"]);
    assert!(table.starts_with("ALERT ") && !table.contains('\u{1b}'), "{table}");
    let id = alert["alert_id"].as_str().unwrap();
    gate.works(&["alerts", "ack", id]);
    let open = gate.json(&["alerts", "list", "--open"]);
    assert!(open["data"].as_array().unwrap().iter().all(|alert| alert["alert_id"] != id), "{open}");
    assert_eq!(gate.run(&["alerts", "ack", "msg_ffff"]).code, 3);
}
