//! What a server says when it fails: to the agent, to people, and on its error output.

use std::time::Duration;

use serde_json::json;
use sluice_testkit::stub::ATTACK;

use super::{FREE, MountTestGateway, stub};
use crate::running::{ask, pause};

#[test]
fn the_message_of_a_failed_call_reaches_the_agent_and_the_list_of_calls_screened() {
    let scene = MountTestGateway::new(&stub("tells", "explains", ""), FREE);
    scene.open("tells");
    let read = scene.call("tells.echo", "no page named \"Plan\"");
    assert_eq!((read.status, &read.body["code"]), (502, &json!("mount.failed")), "{read:?}");
    let text = read.body.to_string();
    assert!(text.contains("the server says: \\\"no page named 'Plan'\\\""), "{text}");
    let call = read.body["call_id"].as_str().unwrap().to_owned();
    let (_, shown) = scene.run(&["calls", "show", &call]);
    assert!(shown.contains("no page named 'Plan'"), "{shown}");

    let attacked = scene.call("tells.echo", ATTACK).body.to_string();
    assert!(attacked.contains("withheld as fnd_") && !attacked.contains("attacker@evil"), "{attacked}");
}

#[test]
fn a_write_that_a_server_answers_with_an_error_is_in_doubt_with_the_servers_words() {
    let scene = MountTestGateway::new(&stub("tells", "explains", ""), FREE);
    scene.open("tells");
    let doubt = scene.call("tells.write", "the disk is full");
    let call = doubt.body["call_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/calls/{call}?wait_ms=500");
    let mut state = doubt.body.clone();
    for _ in 0..100 {
        if state["status"] == "needs_human" || state["status"] == "in_doubt" {
            break;
        }
        pause(Duration::from_millis(100));
        state = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap().body;
    }
    state = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap().body;
    assert_eq!(state["last_error"]["service_says"], "the disk is full", "the agent is told: {state}");
    let (_, shown) = scene.run(&["calls", "show", &call]);
    assert!(shown.contains("the disk is full"), "{shown}");
}

#[test]
fn the_error_output_of_a_program_is_kept_in_lines_and_shown() {
    let scene = MountTestGateway::new(&stub("tells", "explains", ""), FREE);
    scene.open("tells");
    for n in 1..=3_usize {
        scene.call("tells.echo", &"x".repeat(n));
    }
    let log = scene.operator("GET", "/v1/mounts/tells/logs", None).body;
    let lines: Vec<&str> = log["data"].as_array().unwrap().iter().filter_map(|line| line["text"].as_str()).collect();
    let of_server: Vec<&&str> = lines.iter().filter(|line| line.starts_with("cannot do")).collect();
    assert_eq!(of_server, [&"cannot do 1 of these", &"cannot do 2 of these", &"cannot do 3 of these"], "{log}");
    assert!(
        lines.iter().any(|line| line.contains("is started")) && lines.iter().any(|line| line.contains("failed: xx"))
    );
    let last = log["data"].as_array().unwrap().last().unwrap()["number"].as_u64().unwrap();
    let none = scene.operator("GET", &format!("/v1/mounts/tells/logs?after={last}"), None).body;
    assert_eq!(none["data"], json!([]));
    let (code, said) = scene.run(&["mounts", "logs", "tells", "--lines", "1000"]);
    assert!(code == Some(0) && said.contains("cannot do 2 of these"), "{said}");
    let agent = ask(scene.place.main, "GET", "/v1/mounts/tells/logs", &scene.place.agent_key, None).unwrap();
    assert_eq!(agent.status, 403, "no agent reads it");
}
