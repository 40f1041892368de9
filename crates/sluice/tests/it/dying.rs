//! Dead letters and taking back everything, as people type it.

use std::fs;

use serde_json::{Value, json};

use crate::cli_gateway::CliTestGateway;

const SLOW: &str = "holds:\n  delays:\n    filesystem.write: 10m\n";

/// A write whose folder became a way out before it left.
fn dead(gate: &CliTestGateway, name: &str) -> String {
    fs::create_dir(gate.path("workspace").join(name)).unwrap();
    let path = gate.workspace(&format!("{name}/a.txt"));
    let call = gate.pending("filesystem.write", &json!({"path": path, "content": "milk"}));
    fs::remove_dir(gate.path("workspace").join(name)).unwrap();
    std::os::unix::fs::symlink("/", gate.path("workspace").join(name)).unwrap();
    let hold = call["buffer_id"].as_str().unwrap().to_owned();
    gate.works(&["holds", "send-now", &hold]);
    assert_eq!(gate.run(&["calls", "wait", &hold, "--timeout", "60s"]).code, 1);
    hold
}

#[test]
fn dead_letters_are_listed_by_cause_changed_tried_and_given_up() {
    let gate = CliTestGateway::with(SLOW);
    assert_eq!(gate.run(&["dead", "list"]).stderr, "no dead letters\n");
    let (first, second, third) = (dead(&gate, "a"), dead(&gate, "b"), dead(&gate, "c"));
    insta::assert_snapshot!(gate.table(&gate.works(&["dead", "list"])), @r"
    CAUSE  COUNT  SERVICE  FIRST  LAST  WHY  THE SERVICE SAYS
    filesystem.write:filesystem.symlink  3  filesystem  TIME  TIME  the path leads through a symbolic link, which is never followed
    ");
    assert!(gate.works(&["dead", "show", &first]).contains("milk"));
    // Changed: a new write in its place.
    let fixed = json!({"path": gate.workspace("fine.txt"), "content": "bread"}).to_string();
    let run = gate.run(&["dead", "edit", &first, "--input", &fixed]);
    assert_eq!(gate.masked(&run.stdout), "buf_ID is held\n", "{}", run.stderr);
    assert_eq!(gate.json(&["holds", "show", &first])["state"], "discarded");
    // Nobody is there to be asked; and what is blocked for the agent is blocked for whoever edits.
    assert_eq!(gate.run(&["dead", "discard", &second]).code, 2);
    let outside = json!({"path": "/etc/hosts", "content": "x"}).to_string();
    assert_eq!(gate.run(&["dead", "edit", &second, "--input", &outside]).code, 5);
    assert_eq!(gate.json(&["holds", "show", &second])["state"], "dead");
    gate.works(&["dead", "discard", &second, "--yes"]);
    let cause = "filesystem.write:filesystem.symlink";
    assert_eq!(gate.masked(&gate.works(&["dead", "retry", "--cause", cause, "--probe"])), "buf_ID is held\n");
    assert_eq!(gate.json(&["holds", "show", &third])["state"], "held");
    assert_eq!(gate.run(&["dead", "retry", "--cause", cause]).code, 3, "none are left");
    assert_eq!(gate.run(&["dead", "retry"]).code, 2);
}

#[test]
fn everything_an_agent_did_is_planned_and_then_taken_back() {
    let gate = CliTestGateway::open();
    let write = |name: &str, content: &str| {
        let input = json!({"path": gate.workspace(name), "content": content});
        assert_eq!(gate.call("filesystem.write", &input, &[]).code, 0);
    };
    write("a.txt", "one");
    write("b.txt", "two");
    write("c.txt", "three");
    fs::write(gate.path("workspace/c.txt"), "a person was here").unwrap();
    let all = ["rollback", "--agent", "assistant", "--since", "1h"];
    let plan = gate.json(&[&all[..], &["--dry-run"]].concat());
    let possible: Vec<bool> = plan["steps"].as_array().unwrap().iter().map(|s| s["possible"] == true).collect();
    assert_eq!(possible, [false, true, true], "the latest first, and never over a person: {plan}");
    assert!(gate.path("workspace/a.txt").exists(), "nothing was done");
    assert_eq!(gate.run(&all).code, 2, "nobody is there to be asked");
    let done: Value = serde_json::from_str(&gate.works(&[&all[..], &["--yes", "--json"]].concat())).unwrap();
    assert_eq!(done["buffer_ids"].as_array().unwrap().len(), 2);
    for hold in done["buffer_ids"].as_array().unwrap() {
        let hold = hold.as_str().unwrap();
        gate.works(&["holds", "send-now", hold]);
        assert_eq!(gate.run(&["calls", "wait", hold, "--timeout", "60s"]).code, 0);
    }
    assert!(!gate.path("workspace/a.txt").exists() && !gate.path("workspace/b.txt").exists());
    assert_eq!(fs::read_to_string(gate.path("workspace/c.txt")).unwrap(), "a person was here");
    for wrong in [&["rollback", "--agent", "assistant"][..], &["rollback", "--since", "1h"], &["rollback"]] {
        assert_eq!(gate.run(wrong).code, 2, "{wrong:?}");
    }
}
