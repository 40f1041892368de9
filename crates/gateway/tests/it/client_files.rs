//! Files that a coding client writes itself: kept before it does, put back when a person says so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_api::client_tools::{ClientTool, translate};
use sluice_core::Millis;
use sluice_gateway::loops::housekeeping;

use crate::http::{OpenTestGateway, ask, open, raw};
use crate::test_gateway::{TestGatewayPlan, ana, clerk};

/// Every file below a folder, with its bytes and permissions.
fn files(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let about = fs::symlink_metadata(entry.path()).unwrap();
        if about.is_dir() {
            found.extend(files(&entry.path()));
        } else if about.is_file() {
            found.insert(entry.path(), (about.permissions().mode(), fs::read(entry.path()).unwrap()));
        }
    }
    found
}

fn lay_out(work: &Path) {
    fs::create_dir_all(work.join("sub")).unwrap();
    for (name, text) in
        [("a.txt", "one\ntwo\n"), ("b.txt", "bee\n"), ("n.ipynb", "{}"), ("sub/c.txt", "sea\n"), ("sub/d.txt", "dee\n")]
    {
        fs::write(work.join(name), text).unwrap();
    }
}

/// What a client would say about one of its tools, in the words of the gateway.
fn wish(tool: &str, input: &Value, work: &Path) -> (String, Value) {
    let wish = translate(&ClientTool::Builtin(tool.into()), input, work.to_str()).unwrap();
    (wish.capability.to_string(), wish.arguments)
}

/// Asks for a tool; gives the number of the call if it is allowed.
async fn allowed(open: &OpenTestGateway, tool: &str, input: &Value) -> String {
    let (capability, arguments) = wish(tool, input, &open.house.work());
    let body = json!({"capability": capability, "arguments": arguments, "mode": "check", "allow_duplicate": true});
    let told = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&body)).await.json();
    assert_eq!(told["status"], "allowed", "{tool} {input}: {told}");
    told["call_id"].as_str().unwrap().replace("call_", "buf_")
}

/// Says that the tool is done; gives whether the gateway looked.
async fn reported(open: &OpenTestGateway, tool: &str, input: &Value) -> bool {
    let (capability, arguments) = wish(tool, input, &open.house.work());
    let body = json!({"capability": capability, "arguments": arguments});
    let told = ask(open.main, "POST", "/v1/written-files", &open.house.agent_key, Some(&body)).await;
    assert_eq!(told.status, 200, "{told:?}");
    told.json()["seen"] == true
}

async fn rollback(open: &OpenTestGateway, body: Value) -> Value {
    let told = ask(open.main, "POST", "/v1/rollbacks", &open.house.operator_token, Some(&body)).await;
    assert!(told.status < 300, "{told:?}");
    told.json()
}

async fn plan(open: &OpenTestGateway, call: &str) -> Value {
    rollback(open, json!({"buffer_ids": [call], "plan_only": true})).await["steps"][0].clone()
}

async fn apply(open: &mut OpenTestGateway, body: Value) -> Value {
    let told = rollback(open, body).await;
    open.house.pass(Millis::from_secs(6));
    open.house.let_go().await;
    told
}

/// Does what the client does with a tool.
fn act(tool: &str, input: &Value, work: &Path) {
    let word = |name: &str| input.get(name).and_then(Value::as_str);
    let path = || work.join(word("file_path").or(word("path")).or(word("notebook_path")).unwrap());
    match tool {
        "Bash" | "run_shell_command" => {
            let ran = Command::new("sh").args(["-c", word("command").unwrap()]).current_dir(work).status().unwrap();
            assert!(ran.success(), "{input}");
        }
        "Write" | "write_file" => fs::write(path(), word("content").unwrap()).unwrap(),
        "Edit" | "replace" => {
            let old = fs::read_to_string(path()).unwrap();
            fs::write(path(), old.replacen(word("old_string").unwrap(), word("new_string").unwrap(), 1)).unwrap();
        }
        "MultiEdit" => {
            let mut text = fs::read_to_string(path()).unwrap();
            for edit in input["edits"].as_array().unwrap() {
                text = text.replacen(edit["old_string"].as_str().unwrap(), edit["new_string"].as_str().unwrap(), 1);
            }
            fs::write(path(), text).unwrap();
        }
        "NotebookEdit" => fs::write(path(), "{\"cells\": []}").unwrap(),
        "Delete" => fs::remove_file(path()).unwrap(),
        "apply_patch" => {
            fs::write(work.join("a.txt"), "one\nthree\n").unwrap();
            fs::write(work.join("new.txt"), "fresh\n").unwrap();
            fs::remove_file(work.join("b.txt")).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn every_way_to_change_files(work: &Path) -> Vec<(&'static str, Value)> {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+three\n*** Add File: new.txt\n+fresh\n*** Delete File: b.txt\n*** End Patch";
    let at = |name: &str| work.join(name).to_str().unwrap().to_owned();
    let bash = |command: &str| ("Bash", json!({"command": command}));
    vec![
        ("Write", json!({"file_path": at("new.txt"), "content": "fresh"})),
        ("Write", json!({"file_path": at("a.txt"), "content": "over"})),
        ("write_file", json!({"file_path": at("sub/c.txt"), "content": "over"})),
        ("Edit", json!({"file_path": at("a.txt"), "old_string": "two", "new_string": "three"})),
        ("replace", json!({"file_path": at("a.txt"), "old_string": "two", "new_string": ""})),
        (
            "MultiEdit",
            json!({"file_path": at("a.txt"), "edits": [
                {"old_string": "two", "new_string": "three"}, {"old_string": "one", "new_string": ""}]}),
        ),
        ("NotebookEdit", json!({"notebook_path": at("n.ipynb"), "new_source": "x"})),
        ("Delete", json!({"path": at("a.txt")})),
        ("apply_patch", json!({"input": patch})),
        bash("sed -i 's/two/three/' a.txt"),
        bash("sed -i 's/e/x/' *.txt"),
        bash("rm a.txt"),
        bash("rm *.txt"),
        bash("rm -r sub"),
        bash("mv a.txt moved.txt"),
        bash("mv a.txt sub"),
        bash("mv a.txt b.txt"),
        bash("cp a.txt b.txt"),
        bash("cp a.txt sub/"),
        bash("echo more >> a.txt; echo x > new.txt"),
        bash("cd sub && rm c.txt && touch e.txt"),
        bash("chmod 600 a.txt"),
        bash("truncate -s 0 a.txt"),
        bash("printf x | tee a.txt b.txt"),
        bash("find sub -name 'c*' -delete"),
        ("run_shell_command", json!({"command": "rm b.txt"})),
    ]
}

#[tokio::test]
async fn every_file_a_client_changes_can_be_put_back() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    for (tool, input) in every_way_to_change_files(&work) {
        lay_out(&work);
        let before = files(&work);
        let call = allowed(&open, tool, &input).await;
        assert_eq!(files(&work), before, "looking changes nothing: {tool} {input}");
        act(tool, &input, &work);
        assert_ne!(files(&work), before, "{tool} {input}");
        assert!(reported(&open, tool, &input).await, "{tool} {input}");
        let step = plan(&open, &call).await;
        assert_eq!(
            (step["possible"].as_bool(), step["buffer_id"].as_str()),
            (Some(true), Some(call.as_str())),
            "{step}"
        );
        apply(&mut open, json!({"buffer_ids": [call]})).await;
        assert_eq!(files(&work), before, "{tool} {input}: {step}");
        let again = plan(&open, &call).await;
        assert_eq!(again["code"], "rollback.not_possible", "once: {again}");
        fs::remove_dir_all(&work).unwrap();
        fs::create_dir(&work).unwrap();
    }
}

#[tokio::test]
async fn several_changes_of_one_file_are_put_back_in_the_opposite_order() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let before = files(&work);
    for text in ["first", "second", "third"] {
        let input = json!({"file_path": work.join("a.txt"), "content": text});
        allowed(&open, "Write", &input).await;
        // What a tool that is given the whole content leaves is known without a report.
        act("Write", &input, &work);
        open.house.pass(Millis::from_secs(1));
    }
    let told = apply(&mut open, json!({"agent": "clerk", "since_ms": 0})).await;
    assert_eq!(told["steps"].as_array().unwrap().iter().filter(|step| step["possible"] == true).count(), 3, "{told}");
    assert_eq!(files(&work), before);
}

#[tokio::test]
async fn a_file_that_a_person_changed_since_is_not_overwritten_unless_they_say_so() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let input = json!({"file_path": work.join("a.txt"), "content": "the agent's\n"});
    let call = allowed(&open, "Write", &input).await;
    act("Write", &input, &work);
    assert!(reported(&open, "Write", &input).await);
    fs::write(work.join("a.txt"), "a person's\n").unwrap();

    let step = plan(&open, &call).await;
    assert_eq!((step["possible"].as_bool(), step["code"].as_str()), (Some(false), Some("rollback.conflict")), "{step}");
    let file = &step["files"][0];
    assert_eq!(file["does"], "changed");
    let difference = file["difference"].as_str().unwrap();
    assert!(difference.contains("-a person's") && difference.contains("+one"), "{difference}");
    apply(&mut open, json!({"buffer_ids": [call]})).await;
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "a person's\n");

    // Said so, but changed once more before it happened: what was not shown is not lost.
    rollback(&open, json!({"buffer_ids": [call], "force": true})).await;
    fs::write(work.join("a.txt"), "newer\n").unwrap();
    open.house.pass(Millis::from_secs(6));
    open.house.let_go().await;
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "newer\n");

    apply(&mut open, json!({"buffer_ids": [call], "force": true})).await;
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "one\ntwo\n");
}

#[tokio::test]
async fn what_a_client_did_not_report_is_shown_and_needs_a_persons_word() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let before = files(&work);
    let input = json!({"command": "sed -i 's/two/three/' a.txt"});
    let call = allowed(&open, "Bash", &input).await;
    act("Bash", &input, &work);
    let step = plan(&open, &call).await;
    assert_eq!(
        (step["code"].as_str(), step["files"][0]["does"].as_str()),
        (Some("rollback.conflict"), Some("changed"))
    );
    // A report that comes late may be about the work of a person.
    open.house.pass(Millis::from_secs(3_700));
    assert!(!reported(&open, "Bash", &input).await);
    apply(&mut open, json!({"buffer_ids": [call], "force": true})).await;
    assert_eq!(files(&work), before);
}

#[tokio::test]
async fn a_report_counts_once_and_only_for_the_agents_own_call() {
    let open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let other = open.house.another("other").await;
    let input = json!({"command": "rm a.txt"});
    let call = allowed(&open, "Bash", &input).await;
    let (capability, arguments) = wish("Bash", &input, &work);
    let body = json!({"capability": capability, "arguments": arguments});
    let strange = ask(open.main, "POST", "/v1/written-files", &other, Some(&body)).await.json();
    assert_eq!(strange["seen"], false);
    act("Bash", &input, &work);
    assert!(reported(&open, "Bash", &input).await);
    fs::write(work.join("a.txt"), "a person's\n").unwrap();
    assert!(!reported(&open, "Bash", &input).await, "the second one would make the person's file the agent's");
    assert_eq!(plan(&open, &call).await["code"], "rollback.conflict");
}

#[tokio::test]
async fn no_link_is_followed_when_files_are_kept_or_put_back() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let outside = open.house.folder.path().join("outside.txt");
    fs::write(&outside, "outside\n").unwrap();
    std::os::unix::fs::symlink(&outside, work.join("link.txt")).unwrap();
    let input = json!({"file_path": work.join("link.txt"), "content": "x"});
    let call = allowed(&open, "Write", &input).await;
    let step = plan(&open, &call).await;
    assert_eq!(
        (step["possible"].as_bool(), step["files"][0]["does"].as_str()),
        (Some(false), Some("cannot")),
        "{step}"
    );

    // A file that became a link after it was kept.
    let input = json!({"file_path": work.join("a.txt"), "content": "x"});
    let call = allowed(&open, "Write", &input).await;
    act("Write", &input, &work);
    reported(&open, "Write", &input).await;
    fs::remove_file(work.join("a.txt")).unwrap();
    std::os::unix::fs::symlink(&outside, work.join("a.txt")).unwrap();
    apply(&mut open, json!({"buffer_ids": [call], "force": true})).await;
    // A folder on the way that became one.
    let input = json!({"file_path": work.join("sub/c.txt"), "content": "x"});
    let call = allowed(&open, "Write", &input).await;
    act("Write", &input, &work);
    reported(&open, "Write", &input).await;
    let elsewhere = open.house.folder.path().join("elsewhere");
    fs::rename(work.join("sub"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, work.join("sub")).unwrap();
    apply(&mut open, json!({"buffer_ids": [call], "force": true})).await;
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside\n");
    assert_eq!(fs::read_to_string(elsewhere.join("c.txt")).unwrap(), "x");
}

#[tokio::test]
async fn what_cannot_be_kept_is_allowed_and_said_in_the_plan_and_in_the_record() {
    let config = "  undo_file: 10B\n  undo_files: 2\n  undo_day: 12B\n";
    let open = open(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    let work = open.house.work();
    lay_out(&work);
    fs::write(work.join("large.txt"), "more than ten bytes").unwrap();
    for (command, why) in [
        ("rm large.txt", "undo_file"),
        ("rm a.txt b.txt n.ipynb", "undo_files"),
        ("sed -i s/a/b/ a.txt sub/c.txt", "undo_day"),
        ("rm \"$X\"", "does not say which"),
        ("rm /etc/sluice-nothing", "outside"),
        ("eval \"$X\"", "could not be read"),
    ] {
        let call = allowed(&open, "Bash", &json!({"command": command})).await;
        let step = plan(&open, &call).await;
        let said = step["files"].as_array().unwrap().iter().filter(|file| file["does"] == "cannot");
        assert!(said.map(Value::to_string).any(|text| text.contains(why)), "{command}: {step}");
    }
    let entries = open.house.entries().await;
    let kept: Vec<&Value> = entries.iter().filter(|entry| entry["fact"]["kind"] == "client_write.kept").collect();
    assert_eq!(kept.len(), 6);
    assert!(kept.iter().all(|entry| entry["fact"]["detail"]["cannot_be_taken_back"] != "0"), "{kept:?}");
    assert!(!kept.iter().any(|entry| entry.to_string().contains("large.txt")), "the record names no file");
    // What changes nothing leaves nothing.
    allowed(&open, "Bash", &json!({"command": "ls -la"})).await;
    allowed(&open, "Bash", &json!({"command": "ls > /tmp/sluice-scratch"})).await;
    let entries = open.house.entries().await;
    assert_eq!(entries.iter().filter(|entry| entry["fact"]["kind"] == "client_write.kept").count(), 6);
}

#[tokio::test]
async fn what_was_kept_goes_when_its_time_is_over_and_when_it_was_put_back() {
    let mut open = open(TestGatewayPlan::default()).await;
    let work = open.house.work();
    lay_out(&work);
    let kept =
        |open: &OpenTestGateway| fs::read_dir(open.house.folder.path().join("data/undo")).map_or(0, Iterator::count);
    let call = allowed(&open, "Bash", &json!({"command": "rm a.txt"})).await;
    assert_eq!(kept(&open), 1);
    housekeeping::step(&open.house.gw, 0).await.unwrap();
    assert_eq!(kept(&open), 1, "not before its time");
    open.house.pass(Millis::from_hours(72));
    housekeeping::step(&open.house.gw, 0).await.unwrap();
    assert_eq!(kept(&open), 0);
    assert_eq!(plan(&open, &call).await["code"], "rollback.expired");

    let input = json!({"command": "rm b.txt"});
    let call = allowed(&open, "Bash", &input).await;
    act("Bash", &input, &work);
    reported(&open, "Bash", &input).await;
    apply(&mut open, json!({"buffer_ids": [call]})).await;
    assert_eq!((kept(&open), work.join("b.txt").exists()), (0, true));
}

#[tokio::test]
async fn a_call_that_a_person_approved_is_kept_at_the_moment_of_the_approval() {
    let org = "defaults: {tier: approval_required}\n";
    let mut open = open(TestGatewayPlan { org: org.into(), ..TestGatewayPlan::default() }).await;
    let work = open.house.work();
    lay_out(&work);
    let input = json!({"command": "rm a.txt"});
    let (capability, arguments) = wish("Bash", &input, &work);
    let body = json!({"capability": capability, "arguments": arguments, "mode": "check"});
    let told = ask(open.main, "POST", "/v1/calls", &open.house.agent_key, Some(&body)).await.json();
    assert_eq!(told["status"], "awaiting_approval", "{told}");
    let (call, approval) = (told["call_id"].as_str().unwrap(), told["approval_id"].as_str().unwrap());
    // The file changes while a person looks: the bytes of the moment of the answer count.
    fs::write(work.join("a.txt"), "later\n").unwrap();
    let path = format!("/v1/approvals/{approval}/decision");
    let said = json!({"decision": "approve"});
    let decided = ask(open.main, "POST", &path, &open.house.operator_token, Some(&said)).await;
    assert!(decided.status < 300, "{decided:?}");
    open.house.let_go().await;
    let path = format!("/v1/calls/{call}");
    assert_eq!(ask(open.main, "GET", &path, &open.house.agent_key, None).await.json()["status"], "allowed");
    act("Bash", &input, &work);
    reported(&open, "Bash", &input).await;
    apply(&mut open, json!({"agent": "clerk", "since_ms": 0})).await;
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "later\n");
}

/// Reads a file over MCP in a conversation of its own, naming a session; gives the session the record has for the call.
async fn read_naming(open: &OpenTestGateway, key: &str, named: &str) -> Option<String> {
    let path = open.house.path("a.txt");
    let params = json!({"name": "filesystem_read", "arguments": {"path": path}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: filesystem_read\r\nsluice-session: {named}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        open.main,
        body.len()
    );
    let told = raw(open.main, request.as_bytes()).await;
    assert_eq!(told.status, 200, "{told:?}");
    let entries = open.house.entries().await;
    let last = entries.iter().rev().find(|entry| entry["fact"]["kind"] == "call.answered").unwrap();
    last["fact"]["detail"]["session"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_bridge_joins_an_open_session_of_its_own_agent_and_no_other() {
    let open = open(TestGatewayPlan::default()).await;
    lay_out(&open.house.work());
    let house = &open.house;
    let other = house.another("other").await;
    let task = json!({"task": "mail ana@x.example"});
    let made = ask(open.main, "POST", "/v1/sessions", &house.task_key, Some(&task)).await.json();
    let session = made["session_id"].as_str().unwrap();
    assert_eq!(read_naming(&open, &house.agent_key, session).await.as_deref(), Some(session));
    // To another agent it does not exist; the call goes on without a session.
    assert_eq!(read_naming(&open, &other, session).await, None);
    assert_eq!(read_naming(&open, &house.agent_key, "sess_nonsense").await, None);
    let id = session.parse().unwrap();
    house.gw.store.end_session(id, ana()).await.unwrap();
    assert_eq!(read_naming(&open, &house.agent_key, session).await, None, "it is over");
    assert_eq!(house.gw.store.session(id).await.unwrap().unwrap().agent, clerk());
}
