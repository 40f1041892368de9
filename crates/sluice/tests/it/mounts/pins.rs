//! What a pin covers, and what a yes to a call was a yes to.

use std::fs;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{FREE, MountTestGateway, stub};
use crate::running::ask;

/// A server whose definitions say in a member of their own what stands in a file.
struct PinTestGateway {
    scene: MountTestGateway,
    file: NamedTempFile,
}

impl PinTestGateway {
    fn new(delay: &str, agent: &str) -> Self {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), "inside").unwrap();
        let path = file.path().display().to_string();
        let lines = stub("one", "marked", &format!("      STUB_FILE: \"{path}\"\n"));
        let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{path}\", "));
        let scene = MountTestGateway::new(&lines.replace("delay: 0s", &format!("delay: {delay}")), agent);
        scene.open("one");
        Self { scene, file }
    }

    /// The server says something else from now on, and it was noticed.
    fn turn(&self) -> Value {
        fs::write(self.file.path(), "outside").unwrap();
        assert_eq!(self.scene.operator("POST", "/v1/mounts/one/test", None).status, 200);
        self.scene.operator("GET", "/v1/mounts/one/waiting", None).body
    }

    /// A person accepts everything that waits.
    fn accept(&self, waiting: &Value) {
        let shown = waiting["tools"].as_array().unwrap().iter();
        let tools: Vec<Value> = shown.map(|one| json!({"tool": one["tool"], "digest": one["digest"]})).collect();
        let accepted = self.scene.operator("POST", "/v1/mounts/one/accept", Some(&json!({"tools": tools})));
        assert_eq!((accepted.status, &accepted.body["open_tools"]), (200, &json!(2)), "{accepted:?}");
    }

    /// What became of a call.
    fn end(&self, call: &Value) -> Value {
        let path = format!("/v1/calls/{}?wait_ms=20000", call["call_id"].as_str().unwrap());
        ask(self.scene.place.main, "GET", &path, &self.scene.place.agent_key, None).unwrap().body
    }
}

#[test]
fn a_member_that_no_revision_knows_is_pinned_shown_and_shuts_the_tool_when_it_changes() {
    let marked = PinTestGateway::new("0s", FREE);
    assert_eq!(marked.scene.said("one.echo", "1"), "echo 1");
    let waiting = marked.turn();
    assert_eq!(marked.scene.state_of("one", "echo"), "changed");
    assert_eq!(marked.scene.call("one.echo", "2").body["code"], "gateway.unsupported");
    let tool = &waiting["tools"][0];
    assert_eq!((&tool["accepted"]["x-reach"], &tool["waiting"]["x-reach"]), (&json!("inside"), &json!("outside")));
    marked.accept(&waiting);
    assert_eq!(marked.scene.said("one.echo", "3"), "echo 3");
}

#[test]
fn a_yes_to_a_call_is_no_yes_to_what_its_tool_became_meanwhile() {
    let marked = PinTestGateway::new("0s", "rules: []\n");
    let before = marked.scene.call("one.write", "a").body;
    assert_eq!(before["status"], "awaiting_approval", "{before}");
    let waiting = marked.turn();
    let approve = |call: &Value| {
        let path = format!("/v1/approvals/{}/decision", call["approval_id"].as_str().unwrap());
        let said = marked.scene.operator("POST", &path, Some(&json!({"decision": "approve"})));
        assert_eq!(said.status, 200, "{said:?}");
    };
    marked.accept(&waiting);
    approve(&before);
    let end = marked.end(&before);
    assert_eq!((&end["status"], &end["code"]), (&json!("dead"), &json!("mount.changed")), "{end}");
    assert!(end.to_string().contains("make it again"), "{end}");
    // What is asked for now is asked of the tool as it is now.
    let after = marked.scene.call("one.write", "a").body;
    assert_ne!(after["call_id"], before["call_id"]);
    approve(&after);
    let end = marked.end(&after);
    assert_eq!((&end["status"], &end["result"]["data"]["is_error"]), (&json!("done"), &json!(false)), "{end}");
}

#[test]
fn a_write_held_before_its_tool_was_accepted_anew_is_not_sent() {
    let marked = PinTestGateway::new("1h", FREE);
    let held = marked.scene.call("one.write", "a").body;
    assert_eq!(held["status"], "held", "{held}");
    let waiting = marked.turn();
    marked.accept(&waiting);
    let path = format!("/v1/holds/{}/send-now", held["buffer_id"].as_str().unwrap());
    let sent = marked.scene.operator("POST", &path, None);
    assert!(sent.status < 300, "{sent:?}");
    let end = marked.end(&held);
    assert_eq!((&end["status"], &end["code"]), (&json!("dead"), &json!("mount.changed")), "{end}");
}
