//! What the operator states about single tools: it takes effect at once, and nothing else changes.

use std::fs;

use serde_json::json;

use super::{FREE, MountTestGateway, stub};

const ASKS: &str = "rules: []\n";

#[test]
fn a_tool_stated_to_read_is_answered_at_once_and_its_server_goes_on() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), ASKS);
    scene.opened("good");
    assert_eq!(scene.call("good.write", "a").body["status"], "awaiting_approval");
    let before = scene.processes("good");
    let (code, said) = scene.run(&["mounts", "set", "good", "write", "read"]);
    assert!(code == Some(0) && said.contains("good: facts changed"), "{said}");
    assert_eq!(scene.said("good.write", "b"), "write b");
    assert_eq!(scene.processes("good"), before, "facts need no other process");
    assert_eq!(scene.mount("good")["restarts"], 0);
    let text = fs::read_to_string(scene.file()).unwrap();
    assert!(text.contains("    facts:\n      write: {read: true}\n"), "{text}");
    let (code, said) = scene.run(&["mounts", "set", "good", "write", "write", "delay=1h"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(scene.call("good.write", "c").body["status"], "awaiting_approval", "and it is a write again");
    let (code, said) = scene.run(&["mounts", "set", "good", "write", "--clear"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!fs::read_to_string(scene.file()).unwrap().contains("facts"), "nothing is left of it");
}

#[test]
fn a_hidden_tool_is_neither_seen_nor_called_and_a_tier_holds_where_no_rule_names_it() {
    let facts = "    facts: {echo: {hide: true}, write: {tier: blocked}, other: {read: true}}\n";
    let scene = MountTestGateway::new(&(stub("good", "good", "") + facts), ASKS);
    let mount = scene.opened("good");
    assert_eq!((scene.state_of("good", "echo"), &mount["open_tools"]), (json!("hidden"), &json!(1)));
    assert_eq!(mount["facts_without_tool"], json!(["other"]));
    assert!(!scene.tools().contains("good_echo"), "agents do not see it");
    let hidden = scene.call("good.echo", "a");
    assert_eq!(hidden.body["code"], "schema.unknown_capability", "{hidden:?}");
    let blocked = scene.call("good.write", "a");
    assert_eq!(blocked.body["status"], "blocked", "{blocked:?}");
    let (_, said) = scene.run(&["mounts", "show", "good"]);
    assert!(said.contains("`other` is not a tool of this server") && said.contains("hidden"), "{said}");
}

#[test]
fn proposals_come_from_annotations_and_change_nothing_until_they_are_accepted() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), ASKS);
    let mount = scene.opened("good");
    let of = |tool: &str| mount["tools"].as_array().unwrap().iter().find(|one| one["tool"] == tool).unwrap().clone();
    assert_eq!(of("echo")["proposed"]["facts"], json!({"read": true}));
    assert!(of("write")["proposed"].is_null(), "its server says that it writes");
    assert_eq!(scene.call("good.echo", "a").body["status"], "awaiting_approval");
    let (code, said) = scene.run(&["mounts", "set", "good", "--proposed"]);
    assert!(
        code == Some(2) && said.contains("its server declares it as read-only") && said.contains("--yes"),
        "{said}"
    );
    assert_eq!(scene.call("good.echo", "b").body["status"], "awaiting_approval");
    let (code, said) = scene.run(&["mounts", "set", "good", "--proposed", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(scene.said("good.echo", "c"), "echo c");
    let (_, said) = scene.run(&["mounts", "set", "good", "--proposed"]);
    assert!(said.contains("nothing is proposed"), "{said}");
}

#[test]
fn a_fact_that_cannot_be_read_changes_nothing() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), FREE);
    scene.opened("good");
    let before = fs::read_to_string(scene.file()).unwrap();
    for (words, why) in [
        (["good", "echo", "reads"], "is not a fact"),
        (["good", "echo", "tier=low"], "a tier is one of"),
        (["good", "echo", "delay=25h"], "must be at most 24h"),
        (["none", "echo", "read"], "has no mount `none`"),
    ] {
        let (code, said) = scene.run(&[&["mounts", "set"], &words[..]].concat());
        assert!(code != Some(0) && said.contains(why), "{words:?}: {said}");
        assert_eq!(fs::read_to_string(scene.file()).unwrap(), before, "{words:?}");
    }
}
