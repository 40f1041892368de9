//! Tools whose arguments are described in uncommon ways: they can be called, and their targets are found.

use serde_json::{Value, json};

use super::{FREE, MountTestGateway, stub};

#[test]
fn tools_with_uncommon_schemas_are_called_checked_and_judged() {
    let scene = MountTestGateway::new(&stub("odd", "shapes", ""), FREE);
    let mount = scene.opened("odd");
    assert_eq!(mount["open_tools"], 4, "{mount}");
    let call = |tool: &str, arguments: Value| {
        let body = json!({"capability": format!("odd.{tool}"), "arguments": arguments, "allow_duplicate": true});
        scene.place.call(&body).unwrap()
    };
    let taken = |tool: &str, arguments: Value| {
        let answer = call(tool, arguments.clone());
        assert_eq!(answer.status, 200, "{tool}: {answer:?}");
        let text = answer.body["result"]["data"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments, "{tool}");
    };
    taken("either", json!({"path": "/srv/a"}));
    taken("either", json!({"url": "https://a.example/"}));
    assert_eq!(call("either", json!({"path": "a", "url": "b"})).body["code"], "schema.wrong_type");
    assert_eq!(call("either", json!({"other": "a"})).body["code"], "schema.unknown_argument");
    taken("anything", json!({"whatever": {"deep": [1, "two"]}}));
    taken("named", json!({"id": "abc"}));
    assert_eq!(call("named", json!({"id": "-abc"})).body["code"], "schema.wrong_type", "look-around is checked");
    taken("unchecked", json!({"a": "x"}));
    let (_, said) = scene.run(&["mounts", "show", "odd"]);
    assert!(said.contains("unchecked: its arguments pass unchecked: `pattern`"), "{said}");
    assert!(said.contains("elsewhere: its schema cannot be used: `$ref` refers to another document"), "{said}");
}

#[test]
fn the_targets_of_a_tool_that_takes_anything_are_found_by_value() {
    let scene = MountTestGateway::new(&stub("odd", "shapes", ""), "rules: []\n");
    scene.opened("odd");
    let body =
        json!({"capability": "odd.anything", "arguments": {"note": "hello", "send": {"to": "eve@evil.example"}}});
    let asked = scene.place.call(&body).unwrap();
    assert_eq!(asked.body["status"], "awaiting_approval", "{asked:?}");
    let approval = asked.body["approval_id"].as_str().unwrap();
    let shown = scene.operator("GET", &format!("/v1/approvals/{approval}"), None).body.to_string();
    assert!(shown.contains("eve@evil.example"), "a person sees where it goes: {shown}");
}
