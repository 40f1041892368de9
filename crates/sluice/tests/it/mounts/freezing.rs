//! What a server's word is worth, and what a freeze keeps from it.

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::stub::StubServer;

use super::{FREE, MountTestGateway, stub, word};
use crate::running::ask;

fn tool(mount: &Value, name: &str) -> Value {
    let tools = mount["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["tool"] == name).unwrap().clone()
}

#[test]
fn a_tool_is_a_write_until_a_person_accepts_that_it_only_reads_and_again_once_it_changed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "Says the same again.").unwrap();
    let more = format!("      STUB_FILE: \"{}\"\n", file.path().display());
    let lines = stub("good", "good", &more);
    let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", file.path().display()));
    let rules = "rules:\n  - {capability: good.write, tier: autonomous}\n";
    let scene = MountTestGateway::new(&lines, rules);
    let mount = scene.opened("good");
    let echo = tool(&mount, "echo");
    assert_eq!((&echo["effect"], &echo["claims_to_read"]), (&json!("write"), &json!(true)), "{echo}");
    let asked = scene.call("good.echo", "1");
    assert_eq!(asked.body["status"], "awaiting_approval", "the server's word is not enough: {asked:?}");
    // What the server itself does not call a read, nobody can; what was shown must be what is accepted; no agent accepts.
    let write = json!({"tools": [word(&tool(&mount, "write"))], "read_only": true});
    assert_eq!(scene.accept("good", &write).body["code"], "door.parameter");
    let stale = json!({"tools": [{"tool": "echo", "digest": "00"}], "read_only": true});
    assert_eq!(scene.accept("good", &stale).body["code"], "store.conflict");
    let reads = json!({"tools": [word(&echo)], "read_only": true});
    let agent = ask(scene.place.main, "POST", "/v1/mounts/good/accept", &scene.place.agent_key, Some(&reads)).unwrap();
    assert_eq!(agent.status, 403, "{agent:?}");
    let accepted = scene.accept("good", &reads);
    let echo = tool(&accepted.body, "echo");
    assert_eq!(echo["effect"], "read", "{accepted:?}");
    assert!(echo["read_only_by"].is_string(), "{echo}");
    assert_eq!(scene.said("good.echo", "2"), "echo 2");
    // Another definition, even of the same tool and accepted as it is, is a write again.
    fs::write(file.path(), "Says it louder.").unwrap();
    assert_eq!(scene.said("good.write", "3"), "write 3");
    let changed = scene.until("good", |_| scene.state_of("good", "echo") == "changed");
    assert!(tool(&changed, "echo")["read_only_by"].is_null(), "{changed}");
    let again = scene.accept("good", &json!({"tools": [word(&tool(&changed, "echo"))]}));
    assert_eq!(tool(&again.body, "echo")["effect"], "write", "{again:?}");
    assert_eq!(scene.call("good.echo", "4").body["status"], "awaiting_approval");
    // And a person's word can be taken back.
    let reads = json!({"tools": [word(&tool(&again.body, "echo"))], "read_only": true});
    assert_eq!(tool(&scene.accept("good", &reads).body, "echo")["effect"], "read");
    let writes = json!({"tools": [word(&tool(&again.body, "echo"))], "read_only": false});
    assert_eq!(tool(&scene.accept("good", &writes).body, "echo")["effect"], "write");
    let said = command(&scene, &["accept", "good", "--all", "--read-only", "--yes"]);
    assert!(said.contains("/description \"Says it louder.\""), "what is accepted is shown: {said}");
    assert_eq!(tool(&scene.mount("good"), "echo")["effect"], "read", "{said}");
    command(&scene, &["accept", "good", "echo", "--write", "--yes"]);
    assert_eq!(tool(&scene.mount("good"), "echo")["effect"], "write");
}

/// Runs `sluice mounts` as the operator; gives what it printed.
fn command(scene: &MountTestGateway, words: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("mounts").args(words).env_clear().current_dir(scene.place.folder.path());
    command.env("SLUICE_URL", format!("http://{}", scene.place.main)).env("SLUICE_TOKEN", &scene.place.operator_token);
    let run = command.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn a_frozen_server_is_handed_nothing_though_its_tools_only_read() {
    let (address, heard) = StubServer { kind: "good".into(), file: None }.listen();
    let lines = format!(
        "  far: {{url: \"http://{address}/mcp\", http: true, allow_addresses: [127.0.0.1/32], timeout: 5s, recheck: 1s}}\n"
    );
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("far");
    assert_eq!(scene.said("far.echo", "before"), "echo before");
    let said = |text: &str| heard.lock().unwrap().iter().filter(|request| request.contains(text)).count();
    let scopes = [
        (json!({}), "", true),
        (json!({"agent": "clerk"}), "?agent=clerk", true),
        (json!({"service": "mount.far"}), "?service=mount.far", true),
        (json!({"agent": "scout"}), "?agent=scout", false),
        (json!({"service": "mount.near"}), "?service=mount.near", false),
    ];
    for (n, (mut scope, query, stops)) in scopes.into_iter().enumerate() {
        scope["reason"] = json!("it smells");
        assert_eq!(scene.operator("POST", "/v1/freezes", Some(&scope)).status, 201);
        let (text, check) = (format!("carried out {n}"), format!("checked {n}"));
        let answer = scene.call("far.echo", &text);
        let body = json!({"capability": "far.echo", "arguments": {"text": check}, "mode": "check"});
        let checked = scene.place.call(&body).unwrap();
        if stops {
            for answer in [answer, checked] {
                assert_eq!((answer.status, &answer.body["code"]), (423, &json!("freeze.active")), "{answer:?}");
                assert!(answer.body["detail"].as_str().unwrap().ends_with("it smells"), "{answer:?}");
            }
            assert_eq!((said(&text), said(&check)), (0, 0), "nothing was handed over");
        } else {
            assert_eq!((answer.status, &checked.body["status"]), (200, &json!("allowed")), "{answer:?} {checked:?}");
            assert_eq!(said(&text), 1);
        }
        assert_eq!(scene.operator("DELETE", &format!("/v1/freezes{query}"), None).status, 204);
        scene.opened("far");
        assert_eq!(scene.said("far.echo", "after"), "echo after");
    }
}

#[test]
fn a_frozen_server_is_not_asked_for_its_tools_either_and_comes_back_when_that_is_lifted() {
    let (address, heard) = StubServer { kind: "good".into(), file: None }.listen();
    let lines = format!(
        "  far: {{url: \"http://{address}/mcp\", http: true, allow_addresses: [127.0.0.1/32], timeout: 5s, start_timeout: 2s}}\n"
    );
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("far");
    assert_eq!(scene.operator("POST", "/v1/freezes", Some(&json!({"service": "mount.far"}))).status, 201);
    let before = heard.lock().unwrap().len();
    scene.operator("POST", "/v1/mounts/far/test", None);
    scene.operator("POST", "/v1/mounts/far/test", None);
    assert_eq!(heard.lock().unwrap().len(), before, "{:?}", heard.lock().unwrap().last());
    assert_eq!(scene.operator("DELETE", "/v1/freezes?service=mount.far", None).status, 204);
    scene.operator("POST", "/v1/mounts/far/test", None);
    assert_eq!(scene.said("far.echo", "again"), "echo again");
}
