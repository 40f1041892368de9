//! Held writes and calls: looking, stopping, waiting longer, letting go, taking back.

use std::fs;

use serde_json::{Value, json};

use crate::cli_gateway::{CliTestGateway, staying};

/// Writes wait until somebody lets them go.
const SLOW: &str = "holds:\n  delays:\n    filesystem.write: 10m\n";

fn write(gate: &CliTestGateway, name: &str) -> Value {
    gate.pending("filesystem.write", &json!({"path": gate.workspace(name), "content": "one\ntwo\u{202e}"}))
}

fn id<'v>(call: &'v Value, name: &str) -> &'v str {
    call[name].as_str().unwrap()
}

#[test]
fn a_held_write_is_shown_whole_extended_and_sent() {
    let gate = CliTestGateway::with(SLOW);
    assert_eq!(gate.run(&["holds", "list"]).stderr, "no held writes\n");
    let call = write(&gate, "a.txt");
    let hold = id(&call, "buffer_id");
    insta::assert_snapshot!(gate.table(&gate.works(&["holds", "list", "--state", "held"])), @r"
    HOLD  STATE  AGENT  CAPABILITY  TARGET  TIER  SINCE  UNTIL  LAST ERROR
    buf_ID  held  assistant  filesystem.write  GATE/workspace/a.txt  autonomous  TIME  TIME
    ");
    insta::assert_snapshot!(gate.masked(&gate.works(&["holds", "show", hold])), @r"
    hold      buf_ID
    who       assistant, at filesystem
    what      filesystem.write
      content
        | one
        | two\u{202e}
      path         GATE/workspace/a.txt
    origin    path GATE/workspace/a.txt: known
    state     held
    tier      autonomous
    since     TIME
    until     TIME
    attempts  0
    digest    sha256-v1:HASH
    ");
    insta::assert_snapshot!(gate.table(&gate.works(&["calls", "list"])), @r"
    CALL  STATUS  AGENT  CAPABILITY  SINCE  APPROVAL OR REASON
    call_ID  held  assistant  filesystem.write  TIME  -
    ");
    let before = gate.json(&["holds", "show", hold])["cancel_deadline"].clone();
    let longer = gate.masked(&gate.works(&["holds", "extend", hold, "+10m"]));
    assert_eq!(longer, "buf_ID is held until TIME\n");
    assert_ne!(gate.json(&["holds", "show", hold])["cancel_deadline"], before);
    assert_eq!(gate.run(&["holds", "extend", hold, "soon"]).code, 2);

    let run = gate.run(&["calls", "wait", hold, "--timeout", "1ms"]);
    assert_eq!(run.code, 8, "{}", run.stderr);
    assert!(!gate.path("workspace/a.txt").exists(), "nothing left yet");
    gate.works(&["holds", "send-now", hold]);
    let run = gate.run(&["calls", "wait", id(&call, "call_id"), "--timeout", "60s"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(gate.path("workspace/a.txt").exists());
    assert_eq!(gate.json(&["calls", "show", hold])["status"], "done");
    let run = gate.run(&["holds", "cancel", hold]);
    assert_eq!(run.code, 7);
    assert!(run.stderr.contains("error: the write is already done"), "{}", run.stderr);
}

#[test]
fn a_cancelled_write_never_leaves() {
    let gate = CliTestGateway::with(SLOW);
    let (one, two) = (write(&gate, "a.txt"), write(&gate, "b.txt"));
    let run = gate.run(&["holds", "cancel", id(&one, "buffer_id"), "buf_ffff", id(&two, "buffer_id")]);
    assert_eq!(run.code, 3, "the one that does not exist: {}", run.stderr);
    assert_eq!(gate.masked(&run.stdout), "buf_ID is cancelled\nbuf_ID is cancelled\n");
    assert_eq!(gate.run(&["calls", "wait", id(&one, "call_id"), "--timeout", "10s"]).code, 1);
    assert!(!gate.path("workspace/a.txt").exists() && !gate.path("workspace/b.txt").exists());
}

#[test]
fn the_beginning_of_an_id_is_enough_if_it_is_the_only_one() {
    let gate = CliTestGateway::with(SLOW);
    let (one, two) = (write(&gate, "a.txt"), write(&gate, "b.txt"));
    let (one, two) = (id(&one, "buffer_id"), id(&two, "buffer_id"));
    let shared = one.chars().zip(two.chars()).take_while(|(a, b)| a == b).count();
    let run = gate.run(&["holds", "show", &one[..shared]]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("2 holds start with") && run.stderr.contains(two), "{}", run.stderr);
    let only = gate.json(&["holds", "show", &one[..=shared]]);
    assert_eq!(only["buffer_id"], one);
    let without_prefix = gate.json(&["holds", "show", &one[4..]]);
    assert_eq!(without_prefix["buffer_id"], one);
    for missing in ["buf_ffff", "appr_1", "../v1/status", "buf_ffffffffffffffffffffffffffffffff"] {
        assert_eq!(gate.run(&["holds", "show", missing]).code, 3, "{missing}");
    }
}

#[test]
fn a_write_is_taken_back_after_a_plan_and_a_yes() {
    let gate = CliTestGateway::open();
    let path = gate.workspace("a.txt");
    fs::write(&path, "before").unwrap();
    let run = gate.call("filesystem.write", &json!({"path": path, "content": "after"}), &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    let by_agent = ["--agent", "assistant", "--since", "1h"];
    let plan = gate.works(&[&["rollback", "plan"][..], &by_agent].concat());
    insta::assert_snapshot!(gate.table(&plan), @r"
    HOLD  CAPABILITY  CAN BE UNDONE  UNTIL  REASON
    buf_ID  filesystem.write  yes  TIME  -
    ");
    let run = gate.run(&[&["rollback", "apply"][..], &by_agent].concat());
    assert_eq!(run.code, 2, "nobody was asked");
    assert!(run.stderr.contains("hint: add --yes"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    let undone = gate.json(&[&["rollback", "apply", "--yes"][..], &by_agent].concat());
    let hold = undone["buffer_ids"][0].as_str().unwrap();
    gate.works(&["holds", "send-now", hold]);
    assert_eq!(gate.run(&["calls", "wait", hold, "--timeout", "60s"]).code, 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    let first = gate.json(&["rollback", "plan", undone["steps"][0]["buffer_id"].as_str().unwrap()]);
    assert_eq!(first["steps"][0]["possible"], false, "once is enough");
    assert_eq!(gate.run(&["rollback", "plan"]).code, 2);
}

#[test]
fn a_dead_write_is_tried_again_or_given_up_and_nobody_can_say_it_happened() {
    let gate = CliTestGateway::with(SLOW);
    let dead = |name: &str| {
        fs::create_dir(gate.path("workspace").join(name)).unwrap();
        let call = write(&gate, &format!("{name}/a.txt"));
        // What was a folder is a way out by the time the write leaves.
        fs::remove_dir(gate.path("workspace").join(name)).unwrap();
        std::os::unix::fs::symlink("/", gate.path("workspace").join(name)).unwrap();
        gate.works(&["holds", "send-now", id(&call, "buffer_id")]);
        let run = gate.run(&["calls", "wait", id(&call, "call_id"), "--timeout", "60s"]);
        assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("filesystem.symlink"), "{}", run.stdout);
        id(&call, "buffer_id").to_owned()
    };
    let state = |hold: &str| gate.json(&["holds", "show", hold])["state"].as_str().unwrap().to_owned();
    let (again, never, was) = (dead("a"), dead("b"), dead("c"));
    gate.works(&["holds", "retry", &again]);
    assert_eq!(state(&again), "held", "it waits like any other");
    gate.works(&["holds", "discard", &never]);
    assert_eq!(state(&never), "discarded");
    assert_eq!(gate.run(&["holds", "retry", &never]).code, 7, "given up is given up");
    let run = gate.run(&["holds", "settle", &was, "--happened", "seen on the disk"]);
    assert_eq!(run.code, 7, "it is known not to have happened: {}", run.stderr);
    assert_eq!(state(&was), "dead");
    assert!(!std::path::Path::new("/a.txt").exists());
}

#[test]
fn a_watched_list_shows_what_comes() {
    let gate = CliTestGateway::with(SLOW);
    let (mut child, mut lines) = staying(&gate, &["holds", "list", "--watch"]);
    let call = write(&gate, "a.txt");
    let line = lines.until(id(&call, "buffer_id"));
    assert!(line.contains(" held ") && !line.contains('\u{1b}'), "{line}");
    gate.works(&["holds", "cancel", id(&call, "buffer_id")]);
    lines.until(" cancelled ");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_call_ends_as_what_became_of_it() {
    let gate = CliTestGateway::open();
    let outside = gate.call("filesystem.read", &json!({"path": "/etc/hostname"}), &[]);
    assert_eq!(outside.code, 5, "{}", outside.stderr);
    let view: Value = serde_json::from_str(&outside.stdout).unwrap();
    assert_eq!(view["code"], "policy.blocked", "the rule is named, not the folder that is not opened: {view}");
    let blocked = gate.call("git.push", &json!({"path": gate.workspace("")}), &["--check"]);
    assert_eq!(blocked.code, 5, "{}{}", blocked.stdout, blocked.stderr);
    let view: Value = serde_json::from_str(&blocked.stdout).unwrap();
    assert_eq!((view["status"].as_str(), view["code"].as_str()), (Some("blocked"), Some("policy.blocked")));
    let input = json!({"path": gate.workspace("a.txt"), "content": "x"});
    let run = gate.call("filesystem.write", &input, &["--check"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(!gate.path("workspace/a.txt").exists(), "only asked");
    let keyed = |content: &str| {
        let input = json!({"path": gate.workspace("b.txt"), "content": content});
        gate.call("filesystem.write", &input, &["--key", "k1"])
    };
    let (first, again, other) = (keyed("x"), keyed("x"), keyed("y"));
    assert_eq!((first.code, again.code, other.code), (0, 0, 7), "{}{}", again.stderr, other.stderr);
    let call =
        |run: &crate::policy::SluiceRunOutput| serde_json::from_str::<Value>(&run.stdout).unwrap()["call_id"].clone();
    assert_eq!(call(&first), call(&again));
    assert_eq!(gate.call("no.such", &json!({}), &[]).code, 3);
    assert_eq!(gate.run(&["call", "filesystem.read", "--input", "[1]"]).code, 2);
}
