//! Agents, keys, rules of a running gateway, events and completions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use crate::cli_gateway::{CliTestGateway, staying};

#[test]
fn an_agent_comes_pauses_resumes_and_goes() {
    let gate = CliTestGateway::open();
    insta::assert_snapshot!(gate.masked(&gate.works(&["agents", "add", "clerk", "--note", "files\u{1b}things"])), @r"
    agent     clerk
    state     active
    keys      0
    since     TIME
    note      files\u{1b}things
    ");
    assert_eq!(gate.run(&["agents", "add", "clerk"]).code, 7);
    assert_eq!(gate.run(&["agents", "add", "no such name!"]).code, 2);
    assert_eq!(gate.json(&["agents", "pause", "clerk", "--reason", "odd"])["paused"], true);
    insta::assert_snapshot!(gate.table(&gate.works(&["agents", "list"])), @r"
    NAME  STATE  KEYS  SINCE  NOTE
    assistant  active  1  TIME  created by sluice init
    clerk  paused  0  TIME  files\u{1b}things
    ");
    assert_eq!(gate.json(&["agents", "resume", "clerk"])["paused"], false);
    assert_eq!(gate.run(&["agents", "remove", "clerk"]).code, 2, "nobody was asked");
    gate.works(&["agents", "remove", "clerk", "--yes"]);
    assert_eq!(gate.run(&["agents", "show", "nobody"]).code, 3);
}

#[test]
fn a_key_is_kept_privately_replaced_and_revoked() {
    let gate = CliTestGateway::open();
    let file = gate.bench.path("assistant.key");
    let out = file.to_str().unwrap();
    let made =
        gate.json(&["keys", "create", "--agent", "assistant", "--ttl", "90d", "--label", "second", "--out", out]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(made.get("token").is_none(), "it is in the file, and nowhere else");
    assert!(fs::read_to_string(&file).unwrap().starts_with("sga_"));
    let works = |key: &str| {
        let run = gate.run_as(&["call", "agent.whoami"], &[("SLUICE_AGENT_KEY_FILE", key)]);
        (run.code, run.stderr)
    };
    assert_eq!(works(out).0, 0, "{}", works(out).1);
    assert_eq!(gate.run(&["keys", "create", "--agent", "assistant", "--out", out]).code, 7, "nothing is overwritten");
    let absent = gate.bench.path("none.key");
    assert_eq!(gate.run(&["keys", "create", "--agent", "nobody", "--out", absent.to_str().unwrap()]).code, 3);
    assert!(!absent.exists(), "no empty file stays behind");

    let id = made["key_id"].as_str().unwrap();
    let next = gate.bench.path("next.key");
    gate.works(&["keys", "rotate", id, "--overlap", "1h", "--out", next.to_str().unwrap()]);
    assert_eq!((works(out).0, works(next.to_str().unwrap()).0), (0, 0));
    gate.works(&["keys", "revoke", id]);
    assert_eq!((works(out).0, works(next.to_str().unwrap()).0), (10, 0));
    let list = gate.works(&["keys", "list"]);
    assert!(list.starts_with("KEY ") && list.contains("revoked ") && !list.contains("sga_"), "{list}");

    let shown = gate.works(&["keys", "create", "--inbox", "phone"]);
    assert!(shown.starts_with("sgi_") && shown.lines().count() == 1, "{shown}");
    assert_eq!(gate.run(&["keys", "create"]).code, 2);
    assert_eq!(gate.run(&["keys", "create", "--operator", "ann"]).code, 2, "a role is said, not guessed");
    assert_eq!(gate.run(&["keys", "create", "--agent", "a", "--inbox", "b"]).code, 2);
}

#[test]
fn rules_are_put_in_force_listed_replayed_and_reverted() {
    let gate = CliTestGateway::open();
    let before = gate.json(&["status"])["policy_version"].as_str().unwrap().to_owned();
    let run = gate.call("filesystem.write", &json!({"path": gate.workspace("a.txt"), "content": "x"}), &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);

    let new = gate.bench.path("new");
    let copy = |name: &str| fs::copy(gate.path("policies").join(name), new.join(name)).unwrap();
    fs::create_dir_all(new.join("agents")).unwrap();
    copy("org.yaml");
    copy("agents/assistant.yaml");
    let text = fs::read_to_string(new.join("agents/assistant.yaml")).unwrap();
    let text = text.replacen("tier: autonomous", "tier: approval_required", 1);
    let text = text.split("\ntests:").next().unwrap().to_owned() + "\n";
    fs::write(new.join("agents/assistant.yaml"), text).unwrap();
    let new = new.to_str().unwrap();

    let replayed = gate.json(&["policy", "diff", new, "--replay", "7d"]);
    assert_eq!((replayed["writes"].as_u64(), replayed["stricter"].as_u64()), (Some(1), Some(1)), "{replayed}");
    let table = gate.masked(&gate.works(&["policy", "diff", new, "--replay", "7d"]));
    assert!(table.contains("call_ID") && table.contains("autonomous"), "{table}");
    assert_eq!(gate.json(&["status"])["policy_version"], before.as_str(), "only compared");

    assert_eq!(gate.run(&["policy", "apply", new, "--if-version", "sha256:00"]).code, 7);
    let applied = gate.works(&["policy", "apply", new]);
    assert!(applied.contains(&format!("before    {before}")), "{applied}");
    assert!(gate.works(&["policy", "apply", new]).contains("unchanged"));
    let call = gate.pending("filesystem.write", &json!({"path": gate.workspace("b.txt"), "content": "x"}));
    assert_eq!(call["status"], "awaiting_approval");
    assert_eq!(gate.json(&["policy", "history"])["data"].as_array().unwrap().len(), 2);
    assert!(gate.works(&["policy", "history"]).starts_with("VERSION "));
    gate.works(&["policy", "revert", &before["sha256:".len()..][..12]]);
    assert_eq!(gate.json(&["status"])["policy_version"], before.as_str());
    assert_eq!(gate.json(&["policy", "history"])["data"].as_array().unwrap().len(), 3, "it came back");
    assert_eq!(gate.run(&["policy", "revert", "zzzz"]).code, 3);

    fs::write(gate.bench.path("new/org.yaml"), "defaults: {tier: never}\n").unwrap();
    let run = gate.run(&["policy", "apply", new]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert_eq!(gate.json(&["status"])["policy_version"], before.as_str(), "broken files change nothing");
}

#[test]
fn events_are_followed_as_they_happen_and_from_where_one_was() {
    let gate = CliTestGateway::open();
    let (mut child, mut lines) = staying(&gate, &["events", "tail", "--types", "agent.*"]);
    // What follows is heard once somebody listens.
    gate.until(|status| status["listeners"] == 1);
    gate.works(&["agents", "add", "clerk"]);
    let line = lines.until("agent.added");
    assert!(line.contains("operator:admin agent.added agent=clerk"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(gate.run(&["events", "tail", "--after", "no id", "--limit", "1"]).code, 1);
}

#[test]
fn the_shell_is_offered_ids_that_exist() {
    let gate = CliTestGateway::with("holds:\n  delays:\n    filesystem.write: 10m\n");
    let call = gate.pending("filesystem.write", &json!({"path": gate.workspace("a.txt"), "content": "x"}));
    let hold = call["buffer_id"].as_str().unwrap();
    assert_eq!(gate.works(&["complete", "holds", "buf_0"]), format!("{hold}\n"));
    assert_eq!(gate.works(&["complete", "agents", "ass"]), "assistant\n");
    assert_eq!(gate.works(&["complete", "holds", "buf_f"]), "");
    let silent = gate.bench.run(&["complete", "holds", "buf_"]);
    assert_eq!((silent.code, silent.stdout.as_str(), silent.stderr.as_str()), (0, "", ""), "without a gateway");
    assert!(!gate.works(&["--help"]).contains("complete "), "hidden");

    let bash = "source SCRIPT; COMP_WORDS=(sluice holds cancel buf_); COMP_CWORD=3; _sluice_live sluice buf_ cancel; \
                echo \"${COMPREPLY[@]}\"";
    let zsh = "compdef() { :; }; compadd() { print -l ${(P)2}; }; source SCRIPT; words=(sluice holds cancel buf_); \
               CURRENT=4; _sluice_live";
    for (shell, quiet, line) in [("bash", "--norc", bash), ("zsh", "-f", zsh)] {
        let script = gate.bench.path(&format!("sluice.{shell}"));
        fs::write(&script, gate.works(&["completions", shell])).unwrap();
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_sluice")).parent().unwrap();
        let Ok(output) = Command::new(shell)
            .args([quiet, "-c", &line.replace("SCRIPT", &script.display().to_string())])
            .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
            .env("SLUICE_CONFIG", gate.path("sluice.yaml"))
            .output()
        else {
            continue; // A machine without this shell has no use for its completions.
        };
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, format!("{hold}\n"), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_list_comes_in_the_shape_that_was_asked_for() {
    let gate = CliTestGateway::open();
    gate.works(&["agents", "add", "clerk"]);
    assert_eq!(gate.works(&["agents", "list", "-o", "id"]), "assistant\nclerk\n");
    assert_eq!(gate.works(&["-o", "jsonl", "agents", "list"]).lines().count(), 2);
    assert!(gate.works(&["agents", "list", "--output=yaml"]).contains("name: clerk"));
    assert_eq!(gate.works(&["agents", "list", "--json", "-ojson"]), gate.works(&["agents", "list", "--json"]));
    assert!(gate.works(&["agents", "list", "-o", "wide"]).starts_with("NAME"));
    let run = gate.run(&["completions", "bash", "-o", "yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("no data for another output format"), "{}", run.stderr);
}

#[test]
fn sessions_are_listed_cleared_and_ended_by_people() {
    let gate = CliTestGateway::open();
    let key = gate.bench.path("assistant.key");
    gate.works(&["keys", "create", "--agent", "assistant", "--out", key.to_str().unwrap()]);
    let key = fs::read_to_string(key).unwrap();
    let at = gate.url.trim_start_matches("http://").parse().unwrap();
    let made = crate::running::ask(at, "POST", "/v1/sessions", key.trim(), Some(&json!({"client": "x"})));
    let id = made.unwrap().body["session_id"].as_str().unwrap().to_owned();
    let listed = gate.json(&["sessions", "list", "--agent", "assistant"]);
    assert_eq!(
        (listed["data"][0]["session_id"].as_str(), &listed["data"][0]["tainted"]),
        (Some(id.as_str()), &json!(false))
    );
    assert_eq!(gate.works(&["sessions", "list", "--tainted", "-o", "id"]), "");
    gate.works(&["sessions", "clear", &id]);
    gate.works(&["sessions", "end", &id[..16]]);
    assert!(gate.works(&["sessions", "show", &id]).contains("state     ended"));
    assert_eq!(gate.run(&["sessions", "clear", "sess_00000000000000000000000000000000"]).code, 3);
}
