//! `proxy.spawn`: whatever the direct call is told, the spawn is told too.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{ATTACK, ORG, ProxiedServiceReply, ProxiedTestService, ProxyTestGateway, WIDE};
use crate::running::{TestHttpResponse, TestInstallation, ask};

/// Rules for each tier, by what a call names; one about spawns alone; and one about everything, which is none about spawns.
const RULES: &str = "rules:
  - {capability: proxy.spawn, tier: blocked, reason: no hurry, conditions: {label_in: [board], timeout_minutes_lte: 1}}
  - {capability: proxy.spawn, tier: approval_required, conditions: {timeout_minutes_lte: 2}}
  - {capability: proxy.board.feed, tier: blocked, conditions: {author_in: [blocked]}}
  - {capability: proxy.board.feed, tier: approval_required, conditions: {author_in: [approval_required]}}
  - {capability: proxy.board.feed, tier: notify, conditions: {author_in: [notify]}}
  - {capability: proxy.board.post, tier: blocked, conditions: {board_in: [blocked]}}
  - {capability: proxy.board.post, tier: approval_required, conditions: {board_in: [approval_required]}}
  - {capability: proxy.board.post, tier: notify, conditions: {board_in: [notify]}}
  - {capability: \"proxy.board.*\", tier: autonomous}
  - {capability: \"*\", tier: blocked}
";
const TIERS: [&str; 4] = ["autonomous", "notify", "approval_required", "blocked"];

fn opened() -> ProxyTestGateway {
    let service = ProxiedTestService::open();
    let config = "holds: {delays: {\"proxy.*\": 0s}}\nsandbox: degraded\nbatch: {limit: 100}\n";
    let place = TestInstallation::new(config, ORG, None);
    fs::write(place.folder.path().join("policies/agents/clerk.yaml"), RULES).unwrap();
    fs::create_dir_all(place.folder.path().join("proxies")).unwrap();
    fs::write(place.folder.path().join("proxies/board.yaml"), service.declaration(WIDE)).unwrap();
    let running = place.start();
    let secret = json!({"value": "canary-board-token-7731", "capabilities": ["proxy.*"], "hosts": ["127.0.0.1"], "kind": "api_key"});
    let set = ask(place.main, "PUT", "/v1/secrets/board%2Ftoken", &place.operator_token, Some(&secret)).unwrap();
    assert!(set.status < 300, "{set:?}");
    ProxyTestGateway { place, service, running: Some(running) }
}

/// The same task asked for directly and as a spawn, with what else the request says.
fn twins(scene: &ProxyTestGateway, task: &str, context: &Value, more: &Value) -> [TestHttpResponse; 2] {
    let direct = json!({"capability": format!("proxy.board.{task}"), "arguments": context});
    let spawn =
        json!({"capability": "proxy.spawn", "arguments": {"label": "proxy-board", "task": task, "context": context}});
    [direct, spawn].map(|mut body| {
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        scene.place.call(&body).unwrap()
    })
}

fn spawn(scene: &ProxyTestGateway, arguments: Value) -> TestHttpResponse {
    let body = json!({"capability": "proxy.spawn", "arguments": arguments, "wait_ms": 20_000, "allow_duplicate": true});
    scene.place.call(&body).unwrap()
}

fn verdict(answer: &TestHttpResponse) -> (u16, Value, Value, Value) {
    let field = |name: &str| answer.body[name].clone();
    (answer.status, field("status"), field("code"), field("rule"))
}

fn fitting(scene: &ProxyTestGateway, task: &str) {
    let text = if task == "feed" { r#"{"posts": []}"# } else { r#"{"id": "7"}"# };
    scene.service.say(ProxiedServiceReply::Json(text.into()));
}

#[test]
fn at_every_tier_by_every_effect_and_mode_a_spawn_gets_the_verdict_of_the_direct_call() {
    let scene = opened();
    for (task, mode) in [("feed", "execute"), ("feed", "check"), ("post", "execute"), ("post", "check")] {
        for tier in TIERS {
            fitting(&scene, task);
            let context = if task == "feed" { json!({"author": tier}) } else { json!({"board": tier, "text": "hi"}) };
            let more = json!({"mode": mode, "wait_ms": 20_000, "allow_duplicate": true});
            if tier == "approval_required" {
                let more = json!({"mode": mode, "wait_ms": 0, "allow_duplicate": true});
                let [direct, spawned] = twins(&scene, task, &context, &more);
                assert_eq!(verdict(&direct), verdict(&spawned), "{task} {mode} {tier}");
                assert_eq!(direct.body["status"], "awaiting_approval", "{direct:?}");
                continue;
            }
            let before = scene.service.asked();
            let [direct, spawned] = twins(&scene, task, &context, &more);
            assert_eq!(verdict(&direct), verdict(&spawned), "{task} {mode} {tier}: {direct:?} {spawned:?}");
            let sent = if tier == "blocked" || mode == "check" { 0 } else { 2 };
            assert_eq!(scene.service.asked() - before, sent, "{task} {mode} {tier}");
            if tier == "blocked" {
                assert_eq!(spawned.body["code"], "policy.blocked", "{spawned:?}");
                let record = scene.operator("GET", "/v1/audit/search?capability=proxy.spawn", None).body;
                assert_eq!(record["data"], json!([]), "it is recorded as what it is: {record}");
            }
        }
    }
}

#[test]
fn rules_that_name_the_spawn_only_make_it_stricter() {
    let scene = opened();
    fitting(&scene, "feed");
    let short = |minutes: u32, author: &str| {
        let context = json!({"author": author});
        spawn(&scene, json!({"label": "board", "task": "feed", "context": context, "timeout_minutes": minutes}))
    };
    let blocked = short(1, "ana");
    assert_eq!(blocked.body["code"], "policy.blocked", "{blocked:?}");
    assert!(blocked.body.to_string().contains("no hurry"), "{blocked:?}");
    assert_eq!(scene.service.asked(), 0);
    let body = json!({"capability": "proxy.spawn", "wait_ms": 0,
                      "arguments": {"label": "board", "task": "feed", "context": {"author": "ana"}, "timeout_minutes": 2}});
    assert_eq!(scene.place.call(&body).unwrap().body["status"], "awaiting_approval");
    assert_eq!(short(3, "ana").status, 200);
    assert_eq!(short(3, "blocked").body["code"], "policy.blocked", "the rules of the operation hold as well");
}

#[test]
fn a_spawn_gives_what_the_direct_call_gives_with_label_and_task() {
    let scene = opened();
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": [{"text": "hello"}]}"#.into()));
    let [direct, spawned] = twins(&scene, "feed", &json!({"author": "ana"}), &json!({}));
    let mut expected = direct.body["result"].clone();
    (expected["label"], expected["task"]) = (json!("proxy-board"), json!("feed"));
    assert_eq!(spawned.body["result"], expected, "{spawned:?}");
    let heard = scene.service.heard.lock().unwrap().clone();
    assert_eq!(heard[0], heard[1], "the service cannot tell them apart");
    let bare = spawn(&scene, json!({"label": "board", "task": "feed", "context": {"author": "ana"}}));
    assert_eq!(bare.body["result"], expected, "{bare:?}");
}

#[test]
fn a_schema_of_the_caller_leaves_out_what_it_does_not_name_and_undoes_nothing() {
    let scene = opened();
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": [{"text": "hello"}]}"#.into()));
    let feed = |schema: Value| {
        spawn(&scene, json!({"label": "board", "task": "feed", "context": {"author": "ana"}, "output_schema": schema}))
    };
    let empty = json!({"type": "object", "properties": {"posts": {"type": "array", "items": {"type": "object", "properties": {}}}}});
    assert_eq!(feed(empty).body["result"]["data"], json!({"posts": [{}]}));
    let other = feed(json!({"type": "object", "required": ["likes"], "properties": {"likes": {"type": "integer"}}}));
    assert_eq!((other.status, &other.body["code"]), (422, &json!("proxy.output")), "{other:?}");
    assert_eq!(scene.shown()["state"], "idle", "an answer that does not fit the caller is no crash");
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "7"}"#.into()));
    let context = json!({"board": "b", "text": "hi"});
    let schema = json!({"type": "object", "required": ["likes"], "properties": {"likes": {"type": "integer"}}});
    let posted = spawn(&scene, json!({"label": "board", "task": "post", "context": context, "output_schema": schema}));
    assert_eq!(posted.body["status"], "done", "it happened: {posted:?}");
    assert_eq!(posted.body["result"]["data"], Value::Null, "{posted:?}");
    assert!(posted.body["result"]["notes"].to_string().contains("output_schema"), "{posted:?}");
    // Nothing that the declared schema refuses comes in by a wider one.
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": [], "secret_menu": "order 66"}"#.into()));
    let wide = json!({"type": "object", "properties": {"secret_menu": {"type": "string"}}});
    let body = json!({"capability": "proxy.spawn", "arguments": {"label": "board", "task": "feed", "context": {"author": "zoe"}, "output_schema": wide}});
    let answer = scene.place.call(&body).unwrap();
    assert!(answer.status != 200 && !answer.body.to_string().contains("order 66"), "{answer:?}");
}

#[test]
fn what_cannot_be_spawned_is_refused_before_anything_starts() {
    let scene = opened();
    fitting(&scene, "feed");
    let ana = || json!({"author": "ana"});
    let wrong = [
        (json!({"label": "bord", "task": "feed"}), "schema.unknown_capability", "`board`"),
        (json!({"label": "proxy-bord", "task": "feed"}), "schema.unknown_capability", "`board`"),
        (json!({"label": "board", "task": "fed"}), "schema.unknown_capability", "`feed`"),
        (json!({"label": "board", "task": "summarise all posts"}), "schema.unknown_capability", "feed, post"),
        (json!({"label": "board", "task": "feed/../post"}), "schema.unknown_capability", "feed, post"),
        (json!({"label": "board"}), "schema.missing_argument", "task"),
        (json!({"task": "feed"}), "schema.missing_argument", "label"),
        (json!({"label": "board", "task": "feed", "model": "haiku"}), "schema.unknown_argument", "model"),
        (json!({"label": "board", "task": "feed", "context": "author ana"}), "schema.wrong_type", "context"),
        (json!({"label": "board", "task": "feed", "context": {}}), "schema.missing_argument", "author"),
        (json!({"label": "board", "task": "feed"}), "schema.missing_argument", "author"),
        (
            json!({"label": "board", "task": "feed", "context": {"author": "ana", "url": "x"}}),
            "schema.unknown_argument",
            "url",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "timeout_minutes": 0}),
            "schema.wrong_type",
            "1 and 5",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "timeout_minutes": 6}),
            "schema.wrong_type",
            "1 and 5",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "output_schema": {}}),
            "schema.wrong_type",
            "output_schema",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "output_schema": {"type": "object"}}),
            "schema.wrong_type",
            "output_schema",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "output_schema": {"type": "object", "properties": {"a": {"$ref": "https://evil.example/s"}}}}),
            "schema.wrong_type",
            "output_schema",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "output_schema": {"type": "nonsense", "properties": {}}}),
            "schema.wrong_type",
            "output_schema",
        ),
        (
            json!({"label": "board", "task": "feed", "context": ana(), "output_schema": {"type": "string", "pattern": "("}}),
            "schema.wrong_type",
            "output_schema",
        ),
    ];
    for (arguments, code, words) in wrong {
        for mode in ["execute", "check"] {
            let body = json!({"capability": "proxy.spawn", "arguments": arguments, "mode": mode});
            let answer = scene.place.call(&body).unwrap();
            assert_eq!(answer.body["code"], code, "{arguments} {mode}: {answer:?}");
            assert!(answer.body.to_string().contains(words), "{arguments}: {answer:?}");
        }
    }
    assert_eq!(scene.service.asked(), 0);
    assert_eq!(scene.shown()["tasks"], json!([]));
}

#[test]
fn a_frozen_proxy_is_spawned_by_nobody() {
    let scene = opened();
    for scope in [json!({}), json!({"agent": "clerk"}), json!({"service": "proxy.board"})] {
        let mut body = scope.clone();
        body["reason"] = json!("it smells");
        assert_eq!(scene.operator("POST", "/v1/freezes", Some(&body)).status, 201, "{scope}");
        for (task, context) in [("feed", json!({"author": "ana"})), ("post", json!({"board": "b", "text": "hi"}))] {
            for mode in ["execute", "check"] {
                let answers = twins(&scene, task, &context, &json!({"mode": mode, "allow_duplicate": true}));
                let codes = answers.map(|answer| (answer.status, answer.body["code"].clone()));
                assert_eq!(
                    codes,
                    [(423, json!("freeze.active")), (423, json!("freeze.active"))],
                    "{scope} {task} {mode}"
                );
            }
        }
        let query: String = scope
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("?{name}={}", value.as_str().unwrap()))
            .collect();
        assert_eq!(scene.operator("DELETE", &format!("/v1/freezes{query}"), None).status, 204);
    }
    assert_eq!(scene.service.asked(), 0);
}

#[test]
fn a_repeated_call_is_seen_as_one_however_it_is_asked_for() {
    let scene = opened();
    fitting(&scene, "post");
    let post = |text: &str| json!({"board": "b", "text": text});
    let direct = json!({"capability": "proxy.board.post", "arguments": post("one"), "wait_ms": 20_000});
    assert_eq!(scene.place.call(&direct).unwrap().body["status"], "done");
    let spawned = |text: &str, key: Option<&str>, more: Value| {
        let mut arguments = json!({"label": "board", "task": "post", "context": post(text)});
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        let mut body = json!({"capability": "proxy.spawn", "arguments": arguments, "wait_ms": 20_000});
        if let Some(key) = key {
            body["idempotency_key"] = json!(key);
        }
        scene.place.call(&body).unwrap()
    };
    let again = spawned("one", None, json!({}));
    assert_eq!(again.body["code"], "call.possible_duplicate", "{again:?}");
    assert_eq!(spawned("one", None, json!({"timeout_minutes": 3})).body["code"], "call.possible_duplicate");
    assert_eq!(scene.service.asked(), 1);
    let first = spawned("two", Some("k"), json!({"timeout_minutes": 3}));
    let second = spawned("two", Some("k"), json!({"timeout_minutes": 3}));
    assert_eq!(
        (&first.body["status"], &first.body["call_id"]),
        (&json!("done"), &second.body["call_id"]),
        "{second:?}"
    );
    assert_eq!(scene.service.asked(), 2);
    assert_eq!(spawned("two", Some("k"), json!({"timeout_minutes": 4})).body["code"], "call.key_reuse");
    let mut other = direct;
    (other["arguments"], other["idempotency_key"]) = (post("two"), json!("k"));
    assert_eq!(scene.place.call(&other).unwrap().body["code"], "call.key_reuse");
    assert_eq!(scene.service.asked(), 2);
}

#[test]
fn a_person_is_shown_all_of_a_spawn_and_approves_exactly_that() {
    let scene = opened();
    fitting(&scene, "post");
    let schema = json!({"type": "object", "properties": {"id": {"type": "string", "maxLength": 9}}});
    let context = json!({"board": "approval_required", "text": "hi"});
    let arguments =
        json!({"label": "board", "task": "post", "context": context, "timeout_minutes": 4, "output_schema": schema});
    let body = json!({"capability": "proxy.spawn", "arguments": arguments, "wait_ms": 0});
    let asked = scene.place.call(&body).unwrap();
    let approval = asked.body["approval_id"].as_str().unwrap_or_else(|| panic!("{asked:?}")).to_owned();
    let shown = scene.operator("GET", &format!("/v1/approvals/{approval}"), None).body;
    let write = &shown["writes"][0];
    assert_eq!(
        (&write["capability"], &write["service"]),
        (&json!("proxy.board.post"), &json!("proxy.board")),
        "{shown}"
    );
    assert_eq!(write["spawn"], json!({"timeout_minutes": 4, "output_schema": schema}), "{shown}");
    let card = String::from_utf8(super::cli(&scene, &["approvals", "show", &approval]).stdout).unwrap();
    assert!(
        card.contains("proxy.spawn") && card.contains("spawn.output_schema") && card.contains("maxLength"),
        "{card}"
    );
    assert_eq!(scene.service.asked(), 0);
    super::cli(&scene, &["approvals", "approve", &approval]);
    let call = asked.body["call_id"].as_str().unwrap();
    let told =
        ask(scene.place.main, "GET", &format!("/v1/calls/{call}?wait_ms=20000"), &scene.place.agent_key, None).unwrap();
    assert_eq!(told.body["result"]["label"], "proxy-board", "{told:?}");
    assert_eq!(scene.service.asked(), 1);
}

#[test]
fn a_spawn_carries_nothing_out_that_must_stay() {
    let scene = opened();
    fitting(&scene, "post");
    let context = json!({"board": "b", "text": "write to ana@example.org"});
    let [direct, spawned] = twins(&scene, "post", &context, &json!({}));
    assert_eq!(verdict(&direct), verdict(&spawned));
    assert_eq!(spawned.body["code"], "leak.found", "{spawned:?}");
    let schema = json!({"type": "object", "properties": {"id": {"enum": ["ana@example.org"]}}});
    let context = json!({"board": "b", "text": "hi"});
    let answer = spawn(&scene, json!({"label": "board", "task": "post", "context": context, "output_schema": schema}));
    assert_eq!(answer.body["code"], "leak.found", "what a person would be shown is scanned: {answer:?}");
    assert_eq!(scene.service.asked(), 0);
}

#[test]
fn an_agent_that_was_shown_an_attack_is_asked_about_either_way() {
    let scene = opened();
    fitting(&scene, "post");
    let (main, key) = (scene.place.main, &scene.place.agent_key);
    let session = ask(main, "POST", "/v1/sessions", key, Some(&json!({}))).unwrap();
    let id = session.body["session_id"].as_str().unwrap().to_owned();
    let body = json!({"capability": "custom:fetch", "text": ATTACK});
    ask(main, "POST", &format!("/v1/sessions/{id}/observations"), key, Some(&body)).unwrap();
    let more = json!({"session_id": id, "wait_ms": 0, "allow_duplicate": true});
    let [direct, spawned] = twins(&scene, "post", &json!({"board": "b", "text": "hi"}), &more);
    assert_eq!(verdict(&direct), verdict(&spawned), "{direct:?} {spawned:?}");
    assert_eq!(spawned.body["status"], "awaiting_approval", "{spawned:?}");
}

#[test]
fn over_mcp_a_spawn_gets_what_the_direct_tool_gets() {
    let scene = opened();
    scene.service.say(ProxiedServiceReply::Json(r#"{"posts": [{"text": "hello"}]}"#.into()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("mcp")
        .env_clear()
        .env("SLUICE_URL", format!("http://{}", scene.place.main))
        .env("SLUICE_AGENT_KEY", &scene.place.agent_key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut talk = |id: u64, method: &str, params: Value| -> Value {
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        loop {
            let said: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
            if said["id"] == id {
                return said;
            }
        }
    };
    let client =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    talk(0, "initialize", client);
    let tools = talk(1, "tools/list", json!({}))["result"]["tools"].clone();
    let feed = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "proxy_board_feed").unwrap();
    assert!(feed["description"].as_str().unwrap().contains("Routing score"), "{feed}");
    let mut call = |id: u64, name: &str, arguments: Value| {
        talk(id, "tools/call", json!({"name": name, "arguments": arguments}))["result"].clone()
    };
    for author in ["ana", "blocked"] {
        let direct = call(2, "proxy_board_feed", json!({"author": author}));
        let spawned = call(3, "proxy_spawn", json!({"label": "board", "task": "feed", "context": {"author": author}}));
        assert_eq!(direct["isError"], spawned["isError"], "{direct} {spawned}");
        let (one, other) = (&direct["structuredContent"], &spawned["structuredContent"]);
        assert_eq!((&one["status"], &one["code"]), (&other["status"], &other["code"]), "{direct} {spawned}");
        assert_eq!(one["result"]["data"], other["result"]["data"], "{direct} {spawned}");
    }
    drop(input);
    drop(child.wait());
}

#[test]
fn spawns_are_offered_only_while_there_is_a_proxy() {
    let scene = opened();
    let offered = || {
        let list = ask(scene.place.main, "GET", "/v1/capabilities", &scene.place.agent_key, None).unwrap().body;
        list.to_string().contains("\"proxy.spawn\"")
    };
    assert!(offered());
    fs::remove_file(scene.place.folder.path().join("proxies/board.yaml")).unwrap();
    super::wait_until("the spawn is gone with its last proxy", || !offered());
    let answer = spawn(&scene, json!({"label": "board", "task": "feed", "context": {"author": "ana"}}));
    assert_eq!(answer.status, 501, "{answer:?}");
    fs::write(scene.place.folder.path().join("proxies/board.yaml"), scene.service.declaration(WIDE)).unwrap();
    super::wait_until("it is back", offered);
}
