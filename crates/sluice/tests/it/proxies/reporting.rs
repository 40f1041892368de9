//! Budgets, routing scores and reviews of proxies, against the running program.

use std::fs;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use super::{ATTACK, ProxiedServiceReply, ProxyTestGateway, WIDE, asked_and_left, cli, scene, scene_of, wait_until};

fn with_budget(budget: &str) -> ProxyTestGateway {
    let scene = scene_of(|service| format!("{}budget: {budget}\n", service.declaration(WIDE)));
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": []}"#.into()));
    scene
}

fn budget(scene: &ProxyTestGateway) -> Value {
    scene.operator("GET", "/v1/proxies/board/budget", None).body
}

fn said(scene: &ProxyTestGateway, words: &[&str]) -> (i32, String) {
    let ran = cli(scene, words);
    let text = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (ran.status.code().unwrap(), text)
}

#[test]
fn beyond_the_budget_of_a_day_nothing_is_sent_and_people_are_told_once() {
    let mut scene = with_budget("{requests_per_day: 2}");
    assert_eq!([scene.feed().status, scene.feed().status], [200, 200]);
    let posts = json!({"capability": "proxy.board.post", "arguments": {"board": "b", "text": "hi"}, "wait_ms": 20_000});
    let spawn = json!({"capability": "proxy.spawn", "arguments": {"label": "board", "task": "feed", "context": {"author": "ana"}}});
    let check = json!({"capability": "proxy.board.feed", "arguments": {"author": "ana"}, "mode": "check"});
    let all_refused = |scene: &ProxyTestGateway| {
        for body in [&posts, &spawn, &check] {
            let answer = scene.place.call(body).unwrap();
            assert_eq!((answer.status, &answer.body["code"]), (429, &json!("proxy.budget")), "{body}: {answer:?}");
            assert!(answer.body["detail"].as_str().unwrap().contains("requests_per_day"), "{answer:?}");
            let wait = answer.body["retry_after_ms"].as_u64().unwrap();
            assert!((1..=24 * 3_600_000).contains(&wait), "{answer:?}");
        }
        assert_eq!(scene.feed().body["code"], "proxy.budget");
        assert_eq!(scene.service.asked(), 2, "nothing was sent");
    };
    all_refused(&scene);
    // The count is in the database: a restart changes nothing.
    scene.running.take().unwrap().kill();
    scene.running = Some(scene.place.start());
    all_refused(&scene);
    let shown = budget(&scene);
    assert_eq!(
        (&shown["used"]["requests"], &shown["left"]["requests"], &shown["fits"]),
        (&json!(2), &json!(0), &json!(false)),
        "{shown}"
    );
    assert_eq!(scene.shown()["state"], "idle", "a used-up day is nobody's attack");
    let alerts = scene.operator("GET", "/v1/alerts", None).body;
    let told: Vec<&Value> =
        alerts["data"].as_array().unwrap().iter().filter(|alert| alert["topic"] == "proxy.budget").collect();
    assert_eq!(told.len(), 1, "{alerts}");
    assert!(told[0].to_string().contains("100"), "{alerts}");
}

#[test]
fn money_is_counted_exactly_and_shown_before_and_after() {
    let scene = with_budget("{price_per_request: \"0.4\", cost_per_day: \"1\"}");
    let check = json!({"capability": "proxy.board.feed", "arguments": {"author": "ana"}, "mode": "check"});
    let answer = scene.place.call(&check).unwrap();
    assert_eq!(answer.body["status"], "allowed", "{answer:?}");
    let estimate = &answer.body["estimate"];
    assert_eq!((&estimate["most"]["cost"], &estimate["most"]["requests"]), (&json!("0.4"), &json!(1)), "{answer:?}");
    assert_eq!((&estimate["most"]["bytes"], &estimate["most"]["milliseconds"]), (&json!(524_288), &json!(300_000)));
    assert_eq!(estimate["left_today"]["cost"], "1", "{answer:?}");
    assert_eq!(budget(&scene)["used"]["requests"], 0, "a check uses nothing");
    assert_eq!([scene.feed().status, scene.feed().status], [200, 200]);
    assert_eq!(scene.feed().body["code"], "proxy.budget", "0.8 and another 0.4 are more than 1");
    let shown = budget(&scene);
    assert_eq!(
        (&shown["used"]["cost"], &shown["left"]["cost"], &shown["percent"]),
        (&json!("0.8"), &json!("0.2"), &json!(80)),
        "{shown}"
    );
    assert_eq!(shown["used"]["bytes"], 26, "what came, not what could have come: {shown}");
    assert_eq!(shown["reserved"]["requests"], 0, "{shown}");
    assert_eq!((&shown["days"][0]["tasks"], &shown["days"][0]["percent"]), (&json!(2), &json!(80)), "{shown}");
    let (code, text) = said(&scene, &["proxies", "budget", "board"]);
    assert!(code == 0 && text.contains("cost 0.8 (80 %)") && text.contains("no more tasks until"), "{text}");
    assert!(text.contains("per task") && text.contains("cost 0.4"), "{text}");
    let (code, text) = said(&scene, &["proxies", "budget", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["data"][0]["used"]["cost"], "0.8", "{code}");
    assert_eq!(said(&scene, &["proxies", "budget", "nobody"]).0, 3);
    let alerts = scene.operator("GET", "/v1/alerts", None).body.to_string();
    assert!(alerts.contains("proxy.budget"), "{alerts}");
}

#[test]
fn a_task_under_way_holds_its_share_and_one_that_was_left_counts_with_all_it_can_have_used() {
    let mut scene = with_budget("{requests_per_day: 10, price_per_request: \"0.01\"}");
    let word = Arc::new((Mutex::new(false), Condvar::new()));
    scene.service.say(ProxiedServiceReply::Late(Arc::clone(&word), "{}".into()));
    let line = asked_and_left(&scene, "ana");
    wait_until("the service is asked", || scene.service.asked() == 1);
    let shown = budget(&scene);
    assert_eq!((&shown["reserved"]["requests"], &shown["reserved"]["bytes"]), (&json!(1), &json!(524_288)), "{shown}");
    scene.running.take().unwrap().kill();
    scene.running = Some(scene.place.start());
    drop(line);
    *word.0.lock().unwrap() = true;
    word.1.notify_all();
    let shown = budget(&scene);
    assert_eq!((&shown["used"]["requests"], &shown["used"]["bytes"]), (&json!(1), &json!(524_288)), "{shown}");
    assert_eq!((&shown["used"]["cost"], &shown["reserved"]["requests"]), (&json!("0.01"), &json!(0)), "{shown}");
}

#[test]
fn what_never_left_costs_nothing() {
    let scene = with_budget("{price_per_request: \"0.4\", cost_per_day: \"1\"}");
    let body = json!({"capability": "proxy.board.feed", "arguments": {"author": "ana@example.org"}});
    assert_ne!(scene.place.call(&body).unwrap().status, 200);
    let shown = budget(&scene);
    assert_eq!((&shown["used"]["requests"], &shown["used"]["cost"]), (&json!(0), &json!("0")), "{shown}");
}

#[test]
fn a_review_names_what_is_not_usual_and_strict_fails_on_it() {
    let scene = scene(WIDE);
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": []}"#.into()));
    for _ in 0..3 {
        assert_eq!(scene.feed().status, 200);
    }
    let (code, text) = said(&scene, &["proxies", "review", "board", "--strict"]);
    assert!(code == 0 && text.contains("3 tasks, 0 failed") && text.contains("no deviations"), "{code}: {text}");
    scene.service.say(ProxiedServiceReply::Json(json!({"posts": [{"text": ATTACK}]}).to_string()));
    assert_eq!(scene.feed().body["code"], "content.withheld");
    let (code, text) = said(&scene, &["proxies", "review", "--strict", "--since", "1d"]);
    assert!(code == 1 && text.contains("review.crashes") && text.contains("INJECTION_DETECTED"), "{code}: {text}");
    assert!(text.contains("review.findings"), "{text}");
    assert_eq!(said(&scene, &["proxies", "review", "board"]).0, 0, "without --strict it is a report");
    let report = scene.operator("GET", "/v1/proxies/board/review?period=7d", None).body;
    assert_eq!((&report["now"]["tasks"], &report["now"]["failures"]), (&json!(4), &json!(1)), "{report}");
    assert_eq!(report["now"]["crashes"], json!({"INJECTION_DETECTED": 1}), "{report}");
    assert_eq!(
        (&report["now"]["operations"], &report["has_history"]),
        (&json!({"feed": 4}), &json!(false)),
        "{report}"
    );
    assert_eq!(report["now"]["answer_bytes"]["count"], 4, "{report}");
    assert!(!report.to_string().contains("attacker@evil"), "{report}");
    for bad in ["0s", "91d", "soon", "-1d"] {
        let answer = scene.operator("GET", &format!("/v1/proxies/board/review?period={bad}"), None);
        assert_eq!(answer.body["code"], "door.parameter", "{bad}: {answer:?}");
    }
    assert_eq!(scene.operator("GET", "/v1/proxies/board/budget?days=0", None).body["code"], "door.parameter");
    let agents = crate::running::ask(scene.place.main, "GET", "/v1/proxies/board/review", &scene.place.agent_key, None);
    assert_eq!(agents.unwrap().status, 403, "reports are for people");
}

#[test]
fn a_check_says_what_a_proxy_is_worth_and_warns_of_a_dear_one() {
    let scene = with_budget("{price_per_request: \"0.11\"}");
    let file = scene.place.folder.path().join("proxies/board.yaml");
    let (code, text) = said(&scene, &["proxies", "check", file.to_str().unwrap()]);
    assert!(
        code == 0 && text.contains("proxy.dear") && text.contains("routing score of `feed`: 70/100"),
        "{code}: {text}"
    );
    let (_, text) = said(&scene, &["proxies", "check", file.to_str().unwrap(), "--json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&found["data"][0]["warnings"][0]["code"], &found["data"][0]["flaws"]),
        (&json!("proxy.dear"), &json!([])),
        "{found}"
    );
    let (code, text) = said(&scene, &["proxies", "show", "board"]);
    assert!(code == 0 && text.contains("proxy.board.feed 70/100") && text.contains("proxy.dear"), "{text}");
    let (_, text) = said(&scene, &["proxies", "list"]);
    assert!(text.contains("SCORE"), "{text}");
    for (bad, place) in [
        ("{requests_per_day: 0}", "budget.requests_per_day"),
        ("{bytes_per_day: 1000}", "budget.bytes_per_day"),
        ("{seconds_per_day: 299}", "budget.seconds_per_day"),
        ("{price_per_request: \"2\", cost_per_day: \"1\"}", "budget.cost_per_day"),
    ] {
        let copy = scene.place.folder.path().join("other.yaml");
        fs::write(&copy, format!("{}budget: {bad}\n", scene.service.declaration(WIDE))).unwrap();
        let (code, text) = said(&scene, &["proxies", "check", copy.to_str().unwrap()]);
        assert!(code == 1 && text.contains("proxy.budget") && text.contains(place), "{bad}: {text}");
    }
}
