//! What coding clients write themselves, and what their users asked for: through real hooks and the real bridge.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluice_config::state_file_places;

use crate::cli_gateway::CliTestGateway;

/// A gateway with one coding agent in one project, which is free there.
fn coding(rules: &str) -> CliTestGateway {
    let mut gate = CliTestGateway::open();
    fs::create_dir_all(gate.bench.path("app/sub")).unwrap();
    let app = fs::canonicalize(gate.bench.path("app")).unwrap();
    fs::write(gate.path("policies/org.yaml"), rules).unwrap();
    let agent = format!("project: {}/\nrules: []\n", app.display());
    fs::write(gate.path("policies/agents/assistant.yaml"), agent).unwrap();
    gate.signal(rustix::process::Signal::TERM);
    assert_eq!(gate.ended(), 0);
    gate.restart();
    gate
}

/// Runs a hook of a client; gives its exit code and what it printed.
fn hook(gate: &CliTestGateway, client: &str, input: &Value, key: (&str, &str)) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["hook", client, "--wait", "0s"])
        .env_clear()
        .env("HOME", gate.bench.path("."))
        .env("SLUICE_URL", &gate.url)
        .env(key.0, gate.path(key.1))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

const AGENT: (&str, &str) = ("SLUICE_AGENT_KEY_FILE", "data/agents/assistant.key");
const TASK: (&str, &str) = ("SLUICE_TASK_KEY_FILE", "data/agents/assistant.task");

/// What a client says before and after one of its tools.
fn said(client: &str, tool: &str, input: &Value, cwd: &Path) -> [Value; 2] {
    let events = match (client, tool) {
        ("gemini", _) => ["BeforeTool", "AfterTool"],
        ("cursor", "Shell") => ["beforeShellExecution", "afterShellExecution"],
        ("cursor", _) => ["preToolUse", "postToolUse"],
        _ => ["PreToolUse", "PostToolUse"],
    };
    events.map(|event| {
        let mut said = json!({
            "session_id": format!("{client}-1"), "cwd": cwd, "hook_event_name": event, "tool_name": tool,
            "tool_input": input, "tool_use_id": "toolu_1",
        });
        if tool == "Shell" {
            said["command"] = input["command"].clone();
        }
        if event.to_lowercase().starts_with("post") || event.starts_with("After") {
            said["tool_response"] = json!({"success": true});
        }
        said
    })
}

#[test]
fn files_a_client_wrote_itself_are_put_back_through_its_real_hooks() {
    let gate = coding("defaults: {tier: autonomous}\n");
    let app = fs::canonicalize(gate.bench.path("app")).unwrap();
    let at = |name: &str| app.join(name).display().to_string();
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch";
    let shell = json!({"command": "sed -i s/one/two/ a.txt"});
    let calls: [(&str, &str, Value, &str); 12] = [
        ("claude-code", "Write", json!({"file_path": at("a.txt"), "content": "two\n"}), "two\n"),
        ("claude-code", "Write", json!({"file_path": at("new.txt"), "content": "two\n"}), "one\n"),
        ("claude-code", "Edit", json!({"file_path": at("a.txt"), "old_string": "one", "new_string": "two"}), "two\n"),
        (
            "claude-code",
            "MultiEdit",
            json!({"file_path": at("a.txt"), "edits": [{"old_string": "one", "new_string": "two"}]}),
            "two\n",
        ),
        ("claude-code", "NotebookEdit", json!({"notebook_path": at("a.txt"), "new_source": "two"}), "two\n"),
        ("claude-code", "Bash", shell.clone(), "two\n"),
        ("codex", "apply_patch", json!({"input": patch}), "two\n"),
        ("codex", "shell", json!({"command": ["sed", "-i", "s/one/two/", "a.txt"]}), "two\n"),
        ("gemini", "write_file", json!({"file_path": at("a.txt"), "content": "two\n"}), "two\n"),
        ("gemini", "run_shell_command", shell.clone(), "two\n"),
        ("cursor", "Write", json!({"path": at("a.txt"), "contents": "two\n"}), "two\n"),
        ("cursor", "Shell", shell, "two\n"),
    ];
    for (client, tool, input, leaves) in &calls {
        fs::write(app.join("a.txt"), "one\n").unwrap();
        let [before, after] = said(client, tool, input, &app);
        let (code, told) = hook(&gate, client, &before, AGENT);
        assert!(code == Some(0) && !told.contains("deny"), "{client} {tool}: {told}");
        // The client does it.
        if input["file_path"] == json!(at("new.txt")) {
            fs::write(app.join("new.txt"), "two\n").unwrap();
        } else {
            fs::write(app.join("a.txt"), leaves).unwrap();
        }
        let (code, told) = hook(&gate, client, &after, AGENT);
        assert_eq!((code, told.as_str()), (Some(0), ""), "{client} {tool}");
        let plan = gate.json(&["rollback", "plan", "--agent", "assistant", "--since", "1h"]);
        let possible: Vec<&Value> =
            plan["steps"].as_array().unwrap().iter().filter(|step| step["possible"] == true).collect();
        assert_eq!(possible.len(), 1, "{client} {tool}: {plan}");
        let call = possible[0]["buffer_id"].as_str().unwrap();
        let undone = gate.json(&["rollback", "apply", call, "--yes"]);
        let hold = undone["buffer_ids"][0].as_str().unwrap();
        gate.works(&["holds", "send-now", hold]);
        assert_eq!(gate.run(&["calls", "wait", hold, "--timeout", "60s"]).code, 0, "{client} {tool}");
        assert_eq!(fs::read_to_string(app.join("a.txt")).unwrap(), "one\n", "{client} {tool}");
        assert!(!app.join("new.txt").exists());
    }
    // What a person changed since stays, and is shown.
    let [before, after] = said("claude-code", "Write", &json!({"file_path": at("a.txt"), "content": "two\n"}), &app);
    hook(&gate, "claude-code", &before, AGENT);
    fs::write(app.join("a.txt"), "two\n").unwrap();
    hook(&gate, "claude-code", &after, AGENT);
    fs::write(app.join("a.txt"), "a person's\n").unwrap();
    let sessions = gate.json(&["sessions", "list"])["data"].as_array().unwrap().clone();
    let session = sessions.iter().find(|session| session["client"] == "claude-code").unwrap();
    let session = session["session_id"].as_str().unwrap();
    let all = ["--agent", "assistant", "--since", "1h", "--session", session];
    let plan = gate.works(&[&["rollback", "plan"][..], &all].concat());
    assert!(plan.contains("changed since") && plan.contains("-a person's") && plan.contains("+one"), "{plan}");
    assert_eq!(gate.run(&[&["rollback", "apply", "--yes"][..], &all].concat()).code, 7);
    assert_eq!(fs::read_to_string(app.join("a.txt")).unwrap(), "a person's\n");
    let undone = gate.json(&[&["rollback", "apply", "--yes", "--force"][..], &all].concat());
    let hold = undone["buffer_ids"][0].as_str().unwrap();
    gate.works(&["holds", "send-now", hold]);
    assert_eq!(gate.run(&["calls", "wait", hold, "--timeout", "60s"]).code, 0);
    assert_eq!(fs::read_to_string(app.join("a.txt")).unwrap(), "one\n");
}

/// A bridge that a client started.
struct McpBridgeProcess {
    child: std::process::Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl McpBridgeProcess {
    fn start(gate: &CliTestGateway) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("mcp")
            .env_clear()
            .env("HOME", gate.bench.path("."))
            .env("SLUICE_URL", &gate.url)
            .env(AGENT.0, gate.path(AGENT.1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut bridge = Self { child, answers };
        let opening = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}}});
        assert_eq!(bridge.talk(&opening)["result"]["protocolVersion"], "2025-11-25");
        bridge
    }

    fn talk(&mut self, message: &Value) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
        serde_json::from_str(&self.answers.next().unwrap().unwrap()).unwrap()
    }

    /// Whether the client may write to this address, as the gateway judges it in the bridge's session.
    fn may_send(&mut self, id: u64, to: &str) -> bool {
        let arguments = json!({"tool_name": "send", "input": {"to": to}, "tool_use_id": format!("t{id}")});
        let params = json!({"name": "sluice_permission_prompt", "arguments": arguments});
        let told = self.talk(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        let text = told["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
        serde_json::from_str::<Value>(&text).unwrap()["behavior"] == "allow"
    }
}

impl Drop for McpBridgeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is asked for goes through; the rest is refused at once.
const ASKED: &str = "defaults: {tier: autonomous}\noverrides:\n  - {capability: custom:send, tier: notify, conditions: {targets: [asked]}}\n  - {capability: custom:send, tier: blocked}\n";

#[test]
fn the_bridge_of_a_client_works_in_the_session_that_knows_what_its_user_asked_for() {
    let gate = coding(ASKED);
    for (n, (client, event, session)) in [
        ("claude-code", "UserPromptSubmit", "session_id"),
        ("codex", "UserPromptSubmit", "session_id"),
        ("gemini", "BeforeAgent", "session_id"),
        ("cursor", "beforeSubmitPrompt", "conversation_id"),
    ]
    .into_iter()
    .enumerate()
    {
        let (ana, bob) = (format!("ana{n}@x.example"), format!("bob{n}@x.example"));
        let mut bridge = McpBridgeProcess::start(&gate);
        assert!(!bridge.may_send(1, &ana), "{client}: nobody has asked for anything yet");
        let mut prompt = json!({"cwd": "/srv", "hook_event_name": event, "prompt": format!("mail {ana}")});
        prompt[session] = json!(format!("{client}-s"));
        // The agent's own key states nothing.
        hook(&gate, client, &prompt, AGENT);
        assert!(!bridge.may_send(2, &ana), "{client}");
        let (code, printed) = hook(&gate, client, &prompt, TASK);
        let wanted = match client {
            "gemini" => "{}",
            "cursor" => "{\"continue\":true}",
            _ => "",
        };
        assert_eq!((code, printed.as_str()), (Some(0), wanted), "{client}");
        assert!(bridge.may_send(3, &ana), "{client}: asked for");
        assert!(!bridge.may_send(4, &bob), "{client}: not asked for");
        // A later prompt of the same conversation, in the same bridge.
        prompt["prompt"] = json!(format!("and mail {bob}"));
        hook(&gate, client, &prompt, TASK);
        assert!(bridge.may_send(5, &bob) && bridge.may_send(6, &ana), "{client}");
    }
}

#[test]
fn a_task_is_stated_on_the_command_line_by_an_operator_or_with_a_task_key() {
    let gate = coding(ASKED);
    let send = |session: &str, to: &str| {
        let run = gate.call("custom:send", &json!({"to": to}), &["--check", "--session", session]);
        run.stdout.contains("\"allowed\"")
    };
    let opened = gate.works(&["sessions", "start", "--agent", "assistant", "--task", "mail ana@x.example"]);
    let session = opened.trim();
    assert!(send(session, "ana@x.example") && !send(session, "bob@x.example"));
    gate.works(&["sessions", "task", session, "and bob@x.example"]);
    assert!(send(session, "bob@x.example"));
    let (task, agent) = (gate.path(TASK.1), gate.path(AGENT.1));
    let stated = ["sessions", "task", session, "and carl@x.example"];
    // The agent's own key is refused, and nothing else is used in its place.
    let run = gate.run_as(&stated, &[(AGENT.0, agent.to_str().unwrap())]);
    assert_ne!(run.code, 0, "{}", run.stdout);
    assert!(!send(session, "carl@x.example"));
    let run = gate.run_as(&stated, &[(TASK.0, task.to_str().unwrap())]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(send(session, "carl@x.example"));
}

#[test]
fn doctor_says_which_state_file_is_used_and_warns_of_another_one_of_the_same_gateway() {
    let gate = CliTestGateway::open();
    let home = gate.bench.path("home");
    let lines = |variables: &[(&str, &str)]| {
        let told: Value = serde_json::from_str(&gate.run_as(&["doctor", "--json"], variables).stdout).unwrap();
        let lines = told["checks"].as_array().unwrap().iter().filter(|check| check["check"] == "state file");
        lines.map(|check| (check["state"].clone(), check["message"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
    };
    // The gateway of this test was started without a home.
    let used = lines(&[]);
    assert_eq!((used.len(), &used[0].0), (1, &json!("ok")), "{used:?}");
    let text = fs::read_to_string(&used[0].1).unwrap();
    // With one, it finds nothing there, and goes by what the data folder names.
    let with_home = [("HOME", home.to_str().unwrap())];
    assert_eq!(lines(&with_home), used);
    // Two files of the same gateway: one of them is old.
    let data = gate.path("data");
    let place = state_file_places(&data, &[home.join(".local/state")]).into_iter().find(|one| one.starts_with(&home));
    let place = place.unwrap();
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, &text).unwrap();
    let both = lines(&with_home);
    assert_eq!((both.len(), &both[1].0), (2, &json!("warn")), "{both:?}");
    assert!(both[0].1.starts_with(home.to_str().unwrap()) && both[1].1.contains(&used[0].1), "{both:?}");
    // A file of another gateway is none of its business.
    let own: Value = serde_json::from_str(&text).unwrap();
    fs::write(&both[0].1, text.replace(own["instance"].as_str().unwrap(), "another")).unwrap();
    assert_eq!(lines(&with_home).len(), 1);
    // None at all: it says where it looked and what to set.
    fs::remove_file(&both[0].1).unwrap();
    fs::rename(&used[0].1, gate.bench.path("kept")).unwrap();
    let none = lines(&with_home);
    assert_eq!((none.len(), &none[0].0), (1, &json!("warn")), "{none:?}");
    assert!(none[0].1.contains(&both[0].1) && none[0].1.contains("state_file.path"), "{none:?}");
}
