//! What a freeze keeps from a security proxy.

use std::time::Duration;

use serde_json::json;

use super::{ProxiedServiceReply, ProxyTestGateway, WIDE, scene};
use crate::running::{TestHttpResponse, pause};

/// A call of each effect, in each mode, that would reach the service.
fn calls(scene: &ProxyTestGateway) -> Vec<TestHttpResponse> {
    let feed = json!({"author": "ana"});
    let post = json!({"board": "b", "text": "hi"});
    let mut answers = Vec::new();
    for (capability, arguments) in [("proxy.board.feed", &feed), ("proxy.board.post", &post)] {
        for mode in ["execute", "check"] {
            let body = json!({"capability": capability, "arguments": arguments, "mode": mode, "wait_ms": 10_000,
                              "allow_duplicate": true});
            answers.push(scene.place.call(&body).unwrap());
        }
    }
    answers
}

#[test]
fn a_frozen_proxy_is_sent_nothing_by_any_effect_or_mode_and_goes_on_when_that_is_lifted() {
    let scene = scene(WIDE);
    let scopes = [
        (json!({}), "", true),
        (json!({"agent": "clerk"}), "?agent=clerk", true),
        (json!({"service": "proxy.board"}), "?service=proxy.board", true),
        (json!({"agent": "scout"}), "?agent=scout", false),
        (json!({"service": "proxy.other"}), "?service=proxy.other", false),
    ];
    for (mut scope, query, stops) in scopes {
        scope["reason"] = json!("it smells");
        assert_eq!(scene.operator("POST", "/v1/freezes", Some(&scope)).status, 201, "{scope}");
        let before = scene.service.asked();
        if stops {
            for answer in calls(&scene) {
                assert_eq!(
                    (answer.status, &answer.body["code"]),
                    (423, &json!("freeze.active")),
                    "{scope}: {answer:?}"
                );
                assert!(answer.body["detail"].as_str().unwrap().ends_with("it smells"), "{answer:?}");
            }
            assert_eq!(scene.service.asked(), before, "{scope}: nothing was sent");
        } else {
            scene.service.say(ProxiedServiceReply::Json(r#"{"posts": []}"#.into()));
            assert_eq!(scene.feed().status, 200, "{scope}");
            assert_eq!(scene.service.asked(), before + 1, "{scope}");
        }
        assert_eq!(scene.operator("DELETE", &format!("/v1/freezes{query}"), None).status, 204);
        scene.service.say(ProxiedServiceReply::Json(r#"{"posts": []}"#.into()));
        assert_eq!(scene.feed().status, 200, "after {scope}");
    }
}

#[test]
fn a_task_that_would_be_started_again_is_not_once_its_proxy_is_frozen() {
    for scope in [json!({}), json!({"agent": "clerk"}), json!({"service": "proxy.board"})] {
        let scene = scene(WIDE);
        scene.service.say(ProxiedServiceReply::Status(500));
        std::thread::scope(|threads| {
            let call = threads.spawn(|| scene.feed());
            while scene.service.asked() == 0 {
                pause(Duration::from_millis(5));
            }
            assert_eq!(scene.operator("POST", "/v1/freezes", Some(&scope)).status, 201, "{scope}");
            let answer = call.join().unwrap();
            assert_ne!(answer.status, 200, "{answer:?}");
        });
        assert_eq!(scene.service.asked(), 1, "{scope}: the second request was sent while frozen");
    }
}
