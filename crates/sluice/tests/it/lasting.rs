//! A proxy with a lasting account, end to end: what its tasks are told, what they propose, what is kept of it.

use std::fs;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use sluice_config::{Config, ConfigContext};
use sluice_core::proxy::ProposalError;
use sluice_services::proxies::keep::screened;
use sluice_services::workers::{GatewayWorkers, WorkerProgram};

use crate::proxies::{ATTACK, ProxiedServiceReply, ProxiedTestService, ProxyTestGateway, scene_of, wait_until};
use crate::running::{TestHttpResponse, ask};
use crate::workers::TickingClock;

fn lasting(service: &ProxiedTestService) -> String {
    format!(
        r#"service: Board
purpose: Keep an account on a board.
base_url: http://{}/v1
allow_addresses: [127.0.0.1/32]
isolation: configured
trust: friend
credential: board/token
limits: {{per_minute: 50, per_hour: 100, burn: 200}}
identity:
  relation: author
  recent: 2
  relations: 5
  facts: {{last_post: {{type: text, max: 60}}, likes: {{type: integer}}}}
  draft: {{remote: {{type: text, max: 40}}, text: {{type: text, max: 200}}}}
operations:
  feed:
    summary: Lists posts of somebody.
    path: /feed
    query: {{by: "{{author}}", after: "{{relation.last_post}}", since: "{{recent.at}}", seen: "{{recent.count}}"}}
    arguments: {{author: {{type: text, required: true, max: 60}}}}
    answer: {{type: object, required: [id], properties: {{id: {{type: string}}, likes: {{type: integer}}, author: {{type: string}}}}}}
    remember: {{last_post: /id, likes: /likes}}
  circle:
    summary: Posts of those we talk with.
    path: /circle
    query: {{of: "{{relations}}"}}
    answer: {{type: object, required: [id], properties: {{id: {{type: string}}}}}}
  prepare:
    summary: Begins a post.
    method: POST
    path: /posts
    body: {{text: "{{text}}"}}
    arguments: {{title: {{type: text, required: true, max: 60}}, text: {{type: text, required: true, max: 200}}}}
    answer: {{type: object, required: [id], properties: {{id: {{type: string}}}}}}
    draft: {{does: open, named_by: title, keep: {{remote: /id, text: "{{text}}"}}}}
  publish:
    summary: Publishes what was prepared.
    method: POST
    path: /posts/{{draft.remote}}/publish
    arguments: {{title: {{type: text, required: true, max: 60}}}}
    answer: {{type: object, required: [id], properties: {{id: {{type: string}}}}}}
    draft: {{does: finish, named_by: title}}
  announce:
    summary: Publishes what was prepared, by its title.
    method: POST
    path: /announce
    body: {{title: "{{title}}"}}
    arguments: {{title: {{type: text, required: true, max: 60}}}}
    answer: {{type: object, required: [id], properties: {{id: {{type: string}}}}}}
    draft: {{does: finish, named_by: title}}
"#,
        service.address
    )
}

impl ProxyTestGateway {
    fn asks(&self, operation: &str, arguments: Value) -> TestHttpResponse {
        let capability = format!("proxy.board.{operation}");
        let body = json!({
            "capability": capability, "arguments": arguments, "allow_duplicate": true, "wait_ms": 20_000,
        });
        self.place.call(&body).unwrap()
    }

    fn last_heard(&self) -> String {
        self.service.heard.lock().unwrap().last().unwrap().lines().next().unwrap().to_owned()
    }

    fn sluice(&self, words: &[&str]) -> String {
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(words)
            .env("SLUICE_URL", format!("http://{}", self.place.main))
            .env("SLUICE_TOKEN", &self.place.operator_token)
            .output()
            .unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

#[test]
fn a_task_is_told_what_earlier_ones_left_also_after_a_restart() {
    let mut scene = scene_of(lasting);
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p1", "likes": 3, "author": "mallory"}"#.into()));
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    assert_eq!(scene.last_heard(), "GET /v1/feed?by=ana&seen=0 HTTP/1.1", "nothing is known yet");
    scene.running.take().unwrap().kill();
    scene.running = Some(scene.place.start());
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p2"}"#.into()));
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    let heard = scene.last_heard();
    assert!(heard.starts_with("GET /v1/feed?after=p1&by=ana&seen=1&since=20"), "{heard}");
    // Of another side it is told nothing of this one.
    assert_eq!(scene.asks("feed", json!({"author": "ben"})).status, 200);
    assert_eq!(scene.last_heard(), "GET /v1/feed?by=ben&seen=0 HTTP/1.1");
    assert_eq!(scene.asks("circle", json!({})).status, 200);
    assert_eq!(scene.last_heard(), "GET /v1/circle?of=ben%2Cana HTTP/1.1", "the last one first");
    let shown = scene.shown();
    let names: Vec<&str> =
        shown["relations"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ben", "ana"], "whoever the answer calls the author: {shown}");
    assert_eq!(shown["relations"][1]["facts"], json!({"last_post": "p2", "likes": 3}));
    assert_eq!(shown["trust"], "friend");
    let said = scene.sluice(&["proxies", "show", "board"]);
    assert!(said.contains("relation      ana, last ") && said.contains("last_post=p2"), "{said}");
}

#[test]
fn what_must_not_be_kept_is_refused_recorded_and_shown_and_the_answer_is_given_all_the_same() {
    let scene = scene_of(lasting);
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p1"}"#.into()));
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "carla.meier@example.org"}"#.into()));
    let answer = scene.asks("feed", json!({"author": "ana"}));
    assert_eq!((answer.status, &answer.body["result"]["data"]["id"]), (200, &json!("carla.meier@example.org")));
    scene.service.say(ProxiedServiceReply::Json("{\"id\": \"p\u{200b}3\"}".into()));
    scene.asks("feed", json!({"author": "ana"}));
    let shown = scene.shown();
    let codes: Vec<&str> =
        shown["refused_proposals"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!(codes.last(), Some(&"proposal.leak"), "{shown}");
    assert_ne!(shown["relations"][0]["facts"]["last_post"], "carla.meier@example.org");
    let record = scene.operator("GET", "/v1/audit/entries?last=true&limit=100", None).body.to_string();
    assert!(record.contains("proxy.proposal_refused") && record.contains("proposal.leak"), "{record}");
    assert!(!scene.written().contains("carla.meier"), "it is in a file");
    let said = scene.sluice(&["proxies", "show", "board"]);
    assert!(said.contains("refused       proposal.leak about a relation"), "{said}");
}

/// A worker that was taken over proposes whatever it likes: another one looks at its words.
#[test]
fn what_a_task_proposes_is_read_by_another_worker_and_must_come_out_as_it_went_in() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let workers = GatewayWorkers::default();
    assert_eq!(
        runtime.block_on(screened(&workers, &json!({"a": "p9"}))),
        Err(ProposalError::Unread),
        "nobody is there"
    );
    let variables = [("SLUICE_SANDBOX".to_owned(), "degraded".to_owned())];
    let (config, _) = Config::load(None, &variables, &ConfigContext::default()).unwrap();
    let program = WorkerProgram::at(std::path::Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
    workers.open(program, &config, Arc::new(TickingClock)).unwrap();
    let read = |values: Value| runtime.block_on(screened(&workers, &values));
    assert_eq!(read(json!({"last_post": "p9", "text": "We talked about gardens.", "likes": 3})), Ok(()));
    for hostile in [
        json!({"text": ATTACK}),
        json!({"text": "p\u{200b}9"}),
        json!({"text": "p\u{202e}9"}),
        json!({"text": "<script>alert(1)</script>"}),
        json!({"last_post": "p9", "text": format!("hello. {ATTACK}")}),
    ] {
        assert_eq!(read(hostile.clone()), Err(ProposalError::Content), "{hostile}");
    }
}

#[test]
fn a_draft_outlives_the_task_that_began_it_and_is_sent_by_another() {
    let scene = scene_of(lasting);
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p9"}"#.into()));
    let begun = scene.asks("prepare", json!({"title": "plan", "text": "hello"}));
    assert_eq!(begun.body["status"], "done", "{begun:?}");
    let draft = scene.shown()["named_drafts"][0].clone();
    assert_eq!((&draft["state"], &draft["fields"]), (&json!("IN_PROGRESS"), &json!({"remote": "p9", "text": "hello"})));
    let sent = scene.asks("publish", json!({"title": "plan"}));
    assert_eq!(sent.body["status"], "done", "{sent:?}");
    assert_eq!(scene.last_heard(), "POST /v1/posts/p9/publish HTTP/1.1");
    assert_eq!(scene.shown()["named_drafts"][0]["state"], "SENT");
    let before = scene.service.asked();
    assert_ne!(scene.asks("publish", json!({"title": "plan"})).body["status"], "done");
    assert_eq!(scene.service.asked(), before, "what is sent is not sent again");
}

#[test]
fn the_draft_a_crashed_task_worked_on_is_abandoned_and_after_an_attack_all_are() {
    let scene = scene_of(lasting);
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p9"}"#.into()));
    for title in ["one", "two", "three"] {
        scene.asks("prepare", json!({"title": title, "text": "hello"}));
    }
    let states = |scene: &ProxyTestGateway| {
        let shown = scene.shown();
        let all = shown["named_drafts"].as_array().unwrap().clone();
        let state = |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["state"].clone();
        ["one", "two", "three"].map(|name| state(name).as_str().unwrap().to_owned())
    };
    // An answer that is none: nobody's attack, but nobody knows what became of the draft.
    scene.service.say(ProxiedServiceReply::Json("[]".into()));
    scene.asks("publish", json!({"title": "one"}));
    assert_eq!(states(&scene), ["ABANDONED", "IN_PROGRESS", "IN_PROGRESS"]);
    // Nothing is sent for a draft that is not in progress, and nothing is held for it either.
    let before = scene.service.asked();
    for title in ["one", "none"] {
        let late = scene.asks("announce", json!({"title": title}));
        assert_eq!((late.status, late.body["code"].as_str()), (422, Some("execute.bad_argument")), "{late:?}");
    }
    let again = scene.asks("prepare", json!({"title": "two", "text": "hello"}));
    assert_eq!(again.body["code"], "execute.bad_argument", "{again:?}");
    assert_eq!(scene.service.asked(), before);
    // An attack in the answer to a write: quarantine, and no draft of that time goes on.
    scene.service.say(ProxiedServiceReply::Json(json!({"id": ATTACK}).to_string()));
    scene.asks("publish", json!({"title": "two"}));
    assert_eq!(scene.shown()["state"], "quarantined");
    assert_eq!(states(&scene), ["ABANDONED", "ABANDONED", "ABANDONED"]);
    assert!(!scene.written().contains("attacker@evil"), "content of an attack was written down");
}

fn names(scene: &ProxyTestGateway) -> String {
    ask(scene.place.main, "GET", "/v1/capabilities", &scene.place.agent_key, None).unwrap().body.to_string()
}

#[test]
fn declarations_follow_their_files_while_the_gateway_runs() {
    let scene = scene_of(lasting);
    let folder = scene.place.folder.path().join("proxies");
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p1"}"#.into()));
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    // A new one.
    fs::write(folder.join("second.yaml"), lasting(&scene.service).replace("/feed", "/second")).unwrap();
    wait_until("a new proxy is offered", || names(&scene).contains("proxy.second.feed"));
    let body = json!({"capability": "proxy.second.feed", "arguments": {"author": "ana"}});
    assert_eq!(scene.place.call(&body).unwrap().status, 200);
    assert_eq!(scene.last_heard(), "GET /v1/second?by=ana&seen=0 HTTP/1.1");
    // One that changes keeps its workspace; a task that runs ends as it began.
    let word = Arc::new((Mutex::new(false), Condvar::new()));
    scene.service.say(ProxiedServiceReply::Late(Arc::clone(&word), r#"{"id": "late"}"#.into()));
    let changed = lasting(&scene.service).replace("path: /feed", "path: /other");
    std::thread::scope(|scope| {
        let before = scene.service.asked();
        let late = scope.spawn(|| scene.asks("feed", json!({"author": "ana"})));
        wait_until("the task is under way", || scene.service.asked() > before);
        fs::write(folder.join("board.yaml"), &changed).unwrap();
        wait_until("the change is recorded", || {
            scene
                .operator("GET", "/v1/audit/entries?last=true&limit=100", None)
                .body
                .to_string()
                .contains("proxy.changed")
        });
        *word.0.lock().unwrap() = true;
        word.1.notify_all();
        let answer = late.join().unwrap();
        assert_eq!((answer.status, &answer.body["result"]["data"]["id"]), (200, &json!("late")), "{answer:?}");
    });
    scene.service.say(ProxiedServiceReply::Json(r#"{"id": "p3"}"#.into()));
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    let heard = scene.last_heard();
    assert!(heard.starts_with("GET /v1/other?after=late&by=ana&seen=2"), "it knows what the old one kept: {heard}");
    // A broken one changes nothing, and people are told.
    fs::write(folder.join("board.yaml"), changed.replace("limits:", "# limits:")).unwrap();
    wait_until("people are told", || {
        scene.operator("GET", "/v1/alerts", None).body.to_string().contains("proxy.refused")
    });
    assert_eq!(scene.asks("feed", json!({"author": "ana"})).status, 200);
    let shown = scene.shown();
    assert_eq!(shown["state"], "idle", "{shown}");
    assert!(shown["flaws"].to_string().contains("proxy.no_limiter"), "{shown}");
    // One that is removed is gone.
    fs::remove_file(folder.join("second.yaml")).unwrap();
    wait_until("it is offered no more", || !names(&scene).contains("proxy.second.feed"));
    let before = scene.service.asked();
    assert_ne!(scene.place.call(&body).unwrap().status, 200);
    assert_eq!(scene.service.asked(), before);
}
