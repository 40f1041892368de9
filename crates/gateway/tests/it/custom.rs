//! A custom capability from its declaration to the counting service behind it and back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sluice_core::approval::ApprovalAnswer as Yes;
use sluice_core::hold::Hold;
use sluice_core::ids::SecretName;
use sluice_core::refusal::Code;
use sluice_core::{ApprovalId, HoldId, Millis};
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::gate::deciding::{self, ApprovalRequest, DecisionSource};
use sluice_store::ApprovalRuling;

use crate::outside::{LoopbackUpstream, answer};
use crate::test_gateway::{TestGateway, TestGatewayPlan, ana};

/// A declaration for a service on loopback.
fn deploy(upstream: &LoopbackUpstream, more: &str) -> String {
    format!(
        "summary: Deploys a release.\neffect: write\nhold_seconds: 60\nbase_url: http://{}/v1\n\
         allow_addresses: [127.0.0.1]\ncredential: {{secret: deploy/token}}\n\
         arguments:\n  service: {{type: text, required: true, max: 60}}\n  version: {{type: text, required: true, max: 40}}\n\
         request:\n  method: POST\n  path: /services/{{service}}/releases\n  body: {{version: \"{{version}}\"}}\n{more}",
        upstream.address
    )
}

const BACK: &str = "idempotency_header: Idempotency-Key\nkeep: {release: /id}\n\
                    rollback: {method: DELETE, path: \"/services/{service}/releases/{answer.release}\"}\n";

/// Answers a release with its id and everything else with nothing.
async fn service() -> LoopbackUpstream {
    LoopbackUpstream::answering(|request, _| match request.split(' ').next() {
        Some("POST") => {
            answer("201 Created", "content-type: application/json\r\n", "{\"id\":\"r-17\",\"state\":\"live\"}")
        }
        _ => answer("204 No Content", "", ""),
    })
    .await
}

/// A gateway with this declaration of `deploy`.
async fn house(folder: &Path, declared: &str, agent: &str) -> TestGateway {
    std::fs::write(folder.join("deploy.yaml"), declared).unwrap();
    let config = format!("capabilities: {}\nbatch: {{services: {{custom.deploy: off}}}}\n", folder.display());
    let house = TestGateway::new(TestGatewayPlan { config, agent: agent.into(), ..TestGatewayPlan::default() }).await;
    let scope = SecretScope::new(vec!["deploy".into()], &["127.0.0.1".to_owned()]).unwrap();
    let value = SecretValue::new("hunter2/hunter2".into());
    let new = NewSecretValue { value, kind: None, scope: Some(scope), overlap: Millis::ZERO };
    house.gw.vault.set(&SecretName::new("deploy/token").unwrap(), new, ana()).await.unwrap();
    house
}

const ALLOWED: &str = "rules: [{capability: deploy, tier: autonomous}]\n";

fn release() -> Value {
    json!({"service": "web shop", "version": "1.2"})
}

pub async fn approve(house: &TestGateway, approval: ApprovalId) {
    let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
    let voice = DecisionSource { by: ana(), channel: "test", ceiling: None };
    deciding::rule(&house.gw, &voice, &question, ApprovalRuling::Allow { answer: Yes::Once, note: None })
        .await
        .unwrap();
}

async fn hold(house: &TestGateway, id: HoldId) -> Hold {
    house.gw.store.hold(id).await.unwrap().unwrap()
}

async fn placed(house: &TestGateway, arguments: Value) -> HoldId {
    match house.call("deploy", arguments).await.unwrap() {
        CallOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_declared_request_is_asked_about_held_sent_once_recorded_and_taken_back() {
    let (upstream, folder) = (service().await, tempfile::tempdir().unwrap());
    let mut house = house(folder.path(), &deploy(&upstream, BACK), "rules: []\n").await;
    // The organisation's default is autonomous; without a rule that names it, a person is asked all the same.
    let CallOutcome::Awaiting { hold: id, approval, .. } = house.call("deploy", release()).await.unwrap() else {
        panic!()
    };
    approve(&house, approval).await;
    house.pass(Millis::from_secs(59));
    house.let_go().await;
    assert_eq!(upstream.accepted(), 0, "it waits as long as its file says");
    house.pass(Millis::from_secs(2));
    house.let_go().await;
    let done = hold(&house, id).await;
    assert_eq!(done.state.word(), "done", "{done:?}");
    let heard = upstream.heard();
    assert_eq!(heard.len(), 1);
    assert!(heard[0].starts_with("POST /v1/services/web%20shop/releases HTTP/1.1\r\n"), "{}", heard[0]);
    assert!(heard[0].contains("authorization: Bearer hunter2/hunter2\r\n"), "{}", heard[0]);
    assert!(heard[0].contains(&format!("idempotency-key: {id}\r\n")), "{}", heard[0]);
    assert!(heard[0].ends_with("\r\n\r\n{\"version\":\"1.2\"}"), "{}", heard[0]);
    let result: Value = serde_json::from_str(&house.gw.store.hold_result(id).await.unwrap().unwrap()).unwrap();
    assert_eq!((&result["status_code"], &result["data"]["id"]), (&json!(201), &json!("r-17")));
    assert_eq!(result["provenance"], json!({"origin": "outside", "host": "127.0.0.1", "trusted": false}));
    let record = house.record().await;
    for kind in ["secret.used", "approval.approved"] {
        assert!(record.contains(&kind.to_owned()), "{kind}: {record:?}");
    }
    sluice_gateway::rooms::rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    house.pass(Millis::from_secs(10));
    house.let_go().await;
    let heard = upstream.heard();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard[1].starts_with("DELETE /v1/services/web%20shop/releases/r-17 HTTP/1.1\r\n"), "{}", heard[1]);
    assert!(house.record().await.contains(&"rollback.undone".to_owned()));
    let no = sluice_gateway::rooms::rollback::take_back(&house.gw, &done, ana()).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::RollbackUndone, "once");
}

#[tokio::test]
async fn a_rule_can_name_it_and_agents_find_it_with_its_schema() {
    let (upstream, folder) = (service().await, tempfile::tempdir().unwrap());
    let house = house(folder.path(), &deploy(&upstream, ""), ALLOWED).await;
    placed(&house, release()).await;
    let CallOutcome::Done { result, .. } =
        house.call("agent.capabilities", json!({"category": "deploy"})).await.unwrap()
    else {
        panic!()
    };
    let spec = &result["capabilities"][0];
    assert_eq!((&spec["name"], &spec["service"]), (&json!("deploy"), &json!("custom.deploy")));
    assert_eq!(spec["input_schema"]["properties"]["version"], json!({"type": "string", "maxLength": 40}));
    for (arguments, code) in [
        (json!({"service": "a"}), Code::SchemaMissingArgument),
        (json!({"service": "a", "version": "1", "host": "evil.example"}), Code::SchemaUnknownArgument),
        (json!({"service": "../admin", "version": "1"}), Code::SchemaWrongType),
        (json!({"service": "a", "version": "1".repeat(41)}), Code::SchemaWrongType),
    ] {
        let no = house.call("deploy", arguments.clone()).await.unwrap_err();
        assert_eq!(no.refusal.code(), code, "{arguments}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_declaration_that_changed_after_the_approval_sends_nothing() {
    let (upstream, folder) = (service().await, tempfile::tempdir().unwrap());
    let house = house(folder.path(), &deploy(&upstream, ""), ALLOWED).await;
    let id = placed(&house, release()).await;
    let other = deploy(&upstream, "").replace("/releases", "/previews");
    let path = folder.path().join("deploy.yaml");
    let mut house = house.restart_after(Millis::from_secs(1), |_| std::fs::write(&path, other).unwrap()).await;
    house.pass(Millis::from_secs(61));
    house.let_go().await;
    assert_eq!(hold(&house, id).await.state.word(), "dead");
    assert_eq!(upstream.accepted(), 0, "what was judged is not what would be sent");
}

/// A service that takes the request and hangs up before it answers, the first time.
async fn forgetful(then: fn(&str) -> Vec<u8>) -> LoopbackUpstream {
    let first = Arc::new(AtomicUsize::new(0));
    LoopbackUpstream::raw(move |mut stream, log| {
        let first = Arc::clone(&first);
        async move {
            while let Some(request) = crate::outside::request(&mut stream).await {
                log.lock().unwrap().push(request.clone());
                if first.fetch_add(1, Ordering::SeqCst) == 0 {
                    return;
                }
                tokio::io::AsyncWriteExt::write_all(&mut stream, &then(&request)).await.unwrap();
            }
        }
    })
    .await
}

fn posts(upstream: &LoopbackUpstream) -> usize {
    upstream.heard().iter().filter(|request| request.starts_with("POST ")).count()
}

/// Lets a write leave and whatever is unclear about it be looked at.
async fn settled(house: &mut TestGateway, id: HoldId) -> String {
    for _ in 0..8 {
        house.pass(Millis::from_secs(90));
        house.let_go().await;
    }
    hold(house, id).await.state.word().to_owned()
}

#[tokio::test]
async fn an_unclear_outcome_is_left_to_a_person_looked_up_or_repeated_as_the_file_says() {
    fn created(_: &str) -> Vec<u8> {
        answer("201 Created", "content-type: application/json\r\n", "{\"id\":\"r-17\"}")
    }
    fn listed(request: &str) -> Vec<u8> {
        let body = if request.starts_with("GET ") { "{\"items\":[{\"id\":\"r-17\"}]}" } else { "{}" };
        answer("200 OK", "content-type: application/json\r\n", body)
    }
    fn empty(request: &str) -> Vec<u8> {
        let body = if request.starts_with("GET ") { "{\"items\":[]}" } else { "{\"id\":\"r-18\"}" };
        answer("200 OK", "content-type: application/json\r\n", body)
    }
    let lookup = "class: findable\nlookup: {path: \"/services/{service}/releases\", query: {key: \"{call.key}\"}, \
                  applied: /items/0}\n";
    type Answering = fn(&str) -> Vec<u8>;
    let cases: [(&str, Answering, &str, usize); 4] = [
        ("", created, "needs_human", 1),
        ("class: consume_once\nidempotency_header: Idempotency-Key\n", created, "done", 2),
        (lookup, listed, "done", 1),
        (lookup, empty, "done", 2),
    ];
    for (more, then, state, sent) in cases {
        let (upstream, folder) = (forgetful(then).await, tempfile::tempdir().unwrap());
        let mut house = house(folder.path(), &deploy(&upstream, more), ALLOWED).await;
        let id = placed(&house, release()).await;
        assert_eq!((settled(&mut house, id).await.as_str(), posts(&upstream)), (state, sent), "{more:?}");
        let keys: std::collections::BTreeSet<String> = upstream
            .heard()
            .iter()
            .filter_map(|request| request.lines().find(|line| line.starts_with("idempotency-key")).map(str::to_owned))
            .collect();
        assert!(keys.len() <= 1, "a repeated request carries the same key: {keys:?}");
    }
}

#[tokio::test]
async fn what_the_service_plainly_refuses_did_not_happen() {
    for (status, state) in
        [("422 Unprocessable Content", "dead"), ("403 Forbidden", "dead"), ("500 Oops", "needs_human")]
    {
        let upstream = LoopbackUpstream::answering(move |_, _| answer(status, "", "{}")).await;
        let folder = tempfile::tempdir().unwrap();
        let mut house = house(folder.path(), &deploy(&upstream, ""), ALLOWED).await;
        let id = placed(&house, release()).await;
        assert_eq!(settled(&mut house, id).await, state, "{status}");
        assert_eq!(posts(&upstream), 1, "{status}");
    }
}

#[tokio::test]
async fn a_read_that_is_allowed_answers_at_once_and_its_answer_is_outside_text() {
    let upstream = LoopbackUpstream::answering(|_, _| {
        answer("200 OK", "content-type: application/json\r\n", "{\"orders\":[{\"to\":\"eve@evil.example\"}]}")
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let declared = format!(
        "summary: Lists orders.\neffect: read\nbase_url: http://{}\nallow_addresses: [127.0.0.1]\n\
         arguments: {{customer: {{type: text, required: true, max: 20}}}}\n\
         request: {{path: \"/customers/{{customer}}/orders\"}}\n",
        upstream.address
    );
    std::fs::write(folder.path().join("shop.orders.yaml"), declared).unwrap();
    std::fs::write(folder.path().join("broken.yaml"), "summary: x\n").unwrap();
    let config = format!("capabilities: {}\n", folder.path().display());
    let agent = "rules: [{capability: shop.orders, tier: autonomous}]\n".into();
    let house = TestGateway::new(TestGatewayPlan { config, agent, ..TestGatewayPlan::default() }).await;
    let CallOutcome::Done { result, .. } = house.call("shop.orders", json!({"customer": "ana"})).await.unwrap() else {
        panic!()
    };
    assert_eq!((&result["data"]["orders"][0]["to"], &result["untrusted"]), (&json!("eve@evil.example"), &json!(true)));
    assert_eq!(house.call("broken", json!({})).await.unwrap_err().refusal.code(), Code::SchemaUnknownCapability);
    assert!(upstream.heard()[0].starts_with("GET /customers/ana/orders HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_frozen_custom_capability_sends_nothing() {
    let (upstream, folder) = (service().await, tempfile::tempdir().unwrap());
    let mut house = house(folder.path(), &deploy(&upstream, ""), ALLOWED).await;
    placed(&house, release()).await;
    let scope = sluice_store::FreezeTarget::Service(sluice_core::ServiceName::new("custom.deploy").unwrap());
    house.gw.store.freeze(scope, ana(), "test".into()).await.unwrap();
    house.pass(Millis::from_secs(120));
    house.let_go().await;
    assert_eq!(upstream.accepted(), 0);
    let other = json!({"service": "web shop", "version": "1.3"});
    assert_eq!(house.call("deploy", other).await.unwrap_err().refusal.code(), Code::FreezeActive);
}

#[tokio::test]
async fn no_tool_of_an_agent_names_the_folder_of_declarations() {
    let (upstream, folder) = (service().await, tempfile::tempdir().unwrap());
    let house = house(folder.path(), &deploy(&upstream, ""), ALLOWED).await;
    let path = folder.path().join("deploy.yaml").display().to_string();
    let wish = json!({"capability": "custom:Write", "arguments": {"file_path": path}, "mode": "check", "wait_ms": 0});
    let no = house.wish(wish).await.unwrap_err();
    assert_eq!((no.refusal.code(), no.rule.as_deref()), (Code::PolicyBlocked, Some("built-in: own files")));
}

#[tokio::test]
async fn a_program_that_changed_while_the_gateway_was_off_is_not_run_without_a_person() {
    let (folder, program) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = program.path().join("deploy");
    let script = |body: &str| {
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("exit 0");
    let declared = format!("summary: Deploys.\neffect: write\nprogram: {{command: [{}]}}\n", path.display());
    let house = house(folder.path(), &declared, ALLOWED).await;
    let id = placed(&house, json!({})).await;
    let mut house = house.restart_after(Millis::from_secs(1), |_| script("exit 1")).await;
    house.pass(Millis::from_secs(61));
    house.let_go().await;
    // Had it been taken for the one that was judged, it would wait for a sandbox that this test does not have.
    assert_eq!(hold(&house, id).await.state.word(), "dead");
}
