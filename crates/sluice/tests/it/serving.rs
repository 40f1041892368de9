//! Serving, being found, being refused: `serve`, `status`, `freeze` and how every command ends without a gateway.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::json;

use crate::cli_gateway::CliTestGateway;
use crate::policy::TestFolder;

#[test]
fn a_gateway_says_where_it_answers_and_ends_in_order_when_told() {
    let mut gate = CliTestGateway::open();
    assert!(gate.said.starts_with(&format!("listening on {} (emergency-stop port: http://127.0.0.1:", gate.url)));
    let run = gate.run(&["serve"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stderr.contains("error: "), "{}", run.stderr);
    assert_eq!(gate.run(&["status"]).code, 0, "the first one goes on");
    gate.signal(Signal::TERM);
    assert_eq!(gate.ended(), 0);
    let run = gate.run(&["status"]);
    assert_eq!((run.code, run.stdout.as_str()), (11, ""));
    assert!(run.stderr.contains(&format!("error: the gateway at {} does not respond", gate.url)), "{}", run.stderr);
    assert!(run.stderr.contains("why:  connection refused") && run.stderr.contains("hint: start it"), "{}", run.stderr);
}

#[test]
fn a_gateway_leaves_no_core_behind() {
    let gate = CliTestGateway::open();
    let limits = fs::read_to_string(format!("/proc/{}/limits", gate.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

#[test]
fn rules_are_read_again_by_themselves_once_they_are_written_whole() {
    let gate = CliTestGateway::open();
    let before = gate.json(&["status"])["policy_version"].clone();
    let org = gate.path("policies/org.yaml");
    let old = fs::read_to_string(&org).unwrap();
    let new = old.replace("recipients_max: 5", "recipients_max: 4");
    // Saved as an editor that is not careful saves: emptied, begun, ended. Its beginning alone would be valid.
    let head = new.find("\n  - ").map(|at| new.get(..at).unwrap().to_owned()).unwrap();
    for _ in 0..5 {
        fs::write(&org, "").unwrap();
        fs::write(&org, &head).unwrap();
        fs::write(&org, &new).unwrap();
    }
    gate.until(|status| status["policy_version"] != before);
    let seen = gate.json(&["policy", "history"]);
    let versions: std::collections::BTreeSet<String> =
        seen["data"].as_array().unwrap().iter().map(|entry| entry["version"].to_string()).collect();
    assert_eq!(versions.len(), 2, "the old rules and the new, nothing in between: {seen}");
    // What is left of a file whose writer failed changes nothing, and people are told where.
    fs::write(&org, "").unwrap();
    let told = || gate.json(&["alerts", "list"]).to_string();
    gate.until(|_| told().contains("policy.refused"));
    assert!(told().contains("org.yaml") && told().contains("empty"), "{}", told());
    assert_eq!(gate.json(&["policy", "history"]), seen);
}

#[test]
fn hanging_up_has_the_rules_read_again_and_ends_nothing() {
    let gate = CliTestGateway::open();
    let before = gate.json(&["status"])["policy_version"].clone();
    let org = gate.path("policies/org.yaml");
    let text = fs::read_to_string(&org).unwrap().replace("recipients_max: 5", "recipients_max: 4");
    fs::write(&org, text).unwrap();
    gate.signal(Signal::HUP);
    // Either the signal or the watcher of the folder is first; the rules are new in both cases.
    gate.until(|status| status["policy_version"] != before);
}

#[test]
fn the_status_fits_one_screen() {
    let gate = CliTestGateway::open();
    insta::assert_snapshot!(gate.masked(&gate.works(&["status"])), @r"
    gateway     URL, open
    node        NODE, release 0.1.0
    rules       29 rules, version sha256:HASH
    frozen      nothing
    holds       none
    approvals   0 open
    alerts      0 open
    budget      0 of 2000 in 24 h: all agents
    disk        enough
    CHANNELS    none: nobody is notified of approvals and alerts; set up `telegram` or `email` in sluice.yaml
    audit log   NODE: N entries, N signed, head HASH
    ");
    assert_eq!(gate.json(&["status"])["phase"], "open");
}

#[test]
fn a_gateway_can_be_started_frozen() {
    let mut gate = CliTestGateway::open();
    gate.signal(Signal::TERM);
    assert_eq!(gate.ended(), 0);
    gate.restart_with(&["--frozen"]);
    let status = gate.masked(&gate.works(&["status"]));
    assert!(status.contains("frozen      all, by node:"), "{status}");
    assert!(status.contains("the gateway was started with --frozen"), "{status}");
    let write = json!({"path": gate.workspace("a.txt"), "content": "x"});
    assert!(gate.call("filesystem.write", &write, &[]).stderr.contains("freeze.active"));
    gate.works(&["unfreeze"]);
    assert_eq!(gate.json(&["status"])["freezes"], json!([]));
}

#[test]
fn a_freeze_holds_until_it_is_lifted() {
    let gate = CliTestGateway::open();
    insta::assert_snapshot!(gate.works(&["freeze", "--agent", "assistant", "--reason", "looks odd"]), @"frozen      agent assistant");
    let status = gate.masked(&gate.works(&["status"]));
    assert!(status.contains("frozen      agent assistant, by operator:admin since TIME: looks odd"), "{status}");
    let run = gate.call("filesystem.write", &json!({"path": gate.workspace("a.txt"), "content": "x"}), &[]);
    assert_eq!(run.code, 5);
    assert!(run.stderr.contains("docs: docs/errors.md, freeze.active   (request req_"), "{}", run.stderr);
    assert!(!gate.path("workspace/a.txt").exists());
    assert_eq!(gate.run(&["unfreeze"]).code, 3, "everything was not frozen");
    gate.works(&["unfreeze", "--agent", "assistant"]);
    assert_eq!(gate.run(&["unfreeze", "--agent", "assistant"]).code, 3);
    assert_eq!(gate.run(&["freeze", "--agent", "assistant", "--service", "filesystem"]).code, 2);
}

#[test]
fn a_credential_comes_from_the_environment_or_a_private_file_only() {
    let gate = CliTestGateway::open();
    let bare = |arguments: &[&str], variables: &[(&str, &str)]| gate.bench.run_with(arguments, "", variables);
    let token = fs::read_to_string(gate.path("data/operator.token")).unwrap();
    let url = gate.url.as_str();

    let run = bare(&["status"], &[("SLUICE_URL", url)]);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.stderr.contains("no operator token found"), "{}", run.stderr);
    assert_eq!(bare(&["status", "--url", url], &[("SLUICE_TOKEN", token.trim())]).code, 0);

    let file = gate.bench.path("token");
    fs::write(&file, &token).unwrap();
    let named = [("SLUICE_URL", url), ("SLUICE_TOKEN_FILE", file.to_str().unwrap())];
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let run = bare(&["status"], &named);
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("other users can access") && run.stderr.contains("chmod 600"), "{}", run.stderr);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(bare(&["status"], &named).code, 0);

    assert_eq!(bare(&["status", "--token", token.trim()], &named).code, 2, "not on the command line");
    let strange = format!("sgo_{}", "A".repeat(43));
    let run = bare(&["status"], &[("SLUICE_URL", url), ("SLUICE_TOKEN", &strange)]);
    assert_eq!(run.code, 10, "{}", run.stderr);
    assert!(!run.stderr.contains(&strange), "{}", run.stderr);
    let agent = fs::read_to_string(gate.path("data/agents/assistant.key")).unwrap();
    let run = bare(&["status"], &[("SLUICE_URL", url), ("SLUICE_TOKEN", agent.trim())]);
    assert_eq!(run.code, 4, "an agent key is not even sent in the place of a token: {}", run.stderr);
    assert_eq!(gate.run(&["call", "agent.whoami"]).code, 4, "an operator token does not stand in for an agent key");
    assert_eq!(bare(&["status"], &[("SLUICE_URL", "http://user:secret@127.0.0.1:1")]).code, 2);
    let run = bare(&["status"], &[("SLUICE_URL", "http://192.0.2.1:7420")]);
    assert_eq!(run.code, 4, "the token of this machine is not sent to another: {}", run.stderr);
}

#[test]
fn a_viewer_looks_and_decides_nothing() {
    let gate = CliTestGateway::open();
    let call = gate.pending("filesystem.delete", &{
        fs::write(gate.path("workspace/a.txt"), "x").unwrap();
        json!({"path": gate.workspace("a.txt")})
    });
    let file = gate.bench.path("viewer.token");
    gate.works(&["keys", "create", "--operator", "vera", "--role", "viewer", "--out", file.to_str().unwrap()]);
    let viewer = |arguments: &[&str]| gate.run_as(arguments, &[("SLUICE_TOKEN_FILE", file.to_str().unwrap())]);
    let approval = call["approval_id"].as_str().unwrap();
    assert_eq!(viewer(&["approvals", "show", approval]).code, 0);
    for refused in [
        &["approvals", "approve", approval][..],
        &["approvals", "deny", approval],
        &["holds", "cancel", call["buffer_id"].as_str().unwrap()],
        &["freeze"],
        &["keys", "list"],
        &["policy", "apply", gate.path("policies").to_str().unwrap()],
    ] {
        let run = viewer(refused);
        assert_eq!(run.code, 5, "{refused:?}: {}", run.stderr);
        assert!(run.stderr.contains("identity.not_allowed"), "{}", run.stderr);
    }
    assert_eq!(gate.json(&["approvals", "show", approval])["status"], "pending");
}

#[test]
fn what_stops_things_is_heard_at_either_address() {
    let gate = CliTestGateway::open();
    let yaml = fs::read_to_string(gate.path("sluice.yaml")).unwrap();
    // Nobody listens at the stop address this configuration names; the main one answers.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong: String =
        yaml.lines().filter(|line| !line.starts_with("stop_listen")).map(|line| format!("{line}\n")).collect();
    let other = gate.path("other.yaml");
    fs::write(&other, format!("{wrong}stop_listen: {closed}\n")).unwrap();
    let run = gate.bench.run(&["freeze", "--config", other.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // Nobody listens at the main address this one names; the stop lane answers.
    let wrong: String =
        yaml.lines().filter(|line| !line.starts_with("listen")).map(|line| format!("{line}\n")).collect();
    fs::write(&other, format!("{wrong}listen: {closed}\n")).unwrap();
    let other = other.to_str().unwrap();
    assert_eq!(gate.bench.run(&["status", "--config", other]).code, 0);
    // Whoever stops something has to find it first.
    for list in ["approvals", "holds", "alerts"] {
        let run = gate.bench.run(&[list, "list", "--config", other]);
        assert_eq!(run.code, 0, "{list}: {}", run.stderr);
    }
    assert_eq!(gate.bench.run(&["calls", "list", "--state", "held", "--config", other]).code, 0);
    assert_eq!(gate.bench.run(&["unfreeze", "--config", other]).code, 0);
    assert_eq!(gate.bench.run(&["agents", "list", "--config", other]).code, 11);
}

#[test]
fn what_is_not_a_gateway_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
        }
    });
    let token = format!("sgo_{}", "A".repeat(43));
    let run = TestFolder::new().run_with(&["agents", "list", "--url", &url], "", &[("SLUICE_TOKEN", &token)]);
    assert_eq!((run.code, run.stdout.as_str()), (11, ""));
    assert!(run.stderr.contains(&format!("the server at {url} is not a sluice gateway")), "{}", run.stderr);
}

#[test]
fn nothing_is_coloured_where_nobody_looks() {
    let gate = CliTestGateway::open();
    for list in [&["agents", "list"][..], &["keys", "list"], &["status"], &["policy", "history"]] {
        assert!(!gate.works(list).contains('\u{1b}'), "{list:?}");
    }
    let run = gate.run(&["agents", "show", "nobody"]);
    assert_eq!(run.code, 3);
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.stderr);
    assert!(gate.works(&["agents", "list", "--color", "always"]).contains('\u{1b}'));
}

#[test]
fn every_command_shows_examples_before_anything_else() {
    let bench = TestFolder::new();
    for command in [
        "serve",
        "status",
        "freeze",
        "unfreeze",
        "call",
        "agents list",
        "agents show",
        "agents add",
        "agents pause",
        "agents resume",
        "agents remove",
        "keys list",
        "keys create",
        "keys rotate",
        "keys revoke",
        "approvals list",
        "approvals show",
        "approvals approve",
        "approvals deny",
        "approvals session",
        "approvals always",
        "approvals wait",
        "approvals watch",
        "holds list",
        "holds show",
        "holds cancel",
        "holds extend",
        "holds send-now",
        "holds retry",
        "holds discard",
        "holds settle",
        "calls list",
        "calls show",
        "calls wait",
        "alerts list",
        "alerts ack",
        "allowances list",
        "channels list",
        "channels test",
        "allowances revoke",
        "rollback plan",
        "rollback apply",
        "events tail",
        "policy apply",
        "policy history",
        "policy revert",
        "policy diff",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let run = bench.run(&words);
        assert_eq!(run.code, 0, "{command}: {}", run.stderr);
        assert!(run.stdout.starts_with("Examples:\n  "), "{command}:\n{}", run.stdout);
    }
}
