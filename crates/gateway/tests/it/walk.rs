//! One call, door to answer.

use serde_json::json;
use sluice_core::Millis;
use sluice_core::refusal::Code;
use sluice_gateway::corridor::CallOutcome;

use super::test_gateway::{TestGateway, TestGatewayPlan, ana};

#[tokio::test]
async fn a_read_is_answered_and_recorded_once() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let before = house.record().await.len();
    let answer = house.call("system.time", json!({"timezone": "Europe/Berlin"})).await.unwrap();
    let CallOutcome::Done { result, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(result["utc"], "2024-10-27T03:33:20.000Z");
    assert_eq!(result["local"], "2024-10-27T04:33:20+01:00");
    assert_eq!(house.record().await[before..], ["call.answered"]);
}

#[tokio::test]
async fn a_blocked_call_says_which_rule_and_leaves_its_entry() {
    let plan = TestGatewayPlan {
        agent: "rules:\n  - {capability: system.time, tier: blocked, reason: clocks are none of its business}\n".into(),
        ..TestGatewayPlan::default()
    };
    let house = TestGateway::new(plan).await;
    let no = house.call("system.time", json!({})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::PolicyBlocked);
    assert!(no.rule.as_deref().unwrap().ends_with("agents/clerk.yaml:2"), "{:?}", no.rule);
    assert!(no.refusal.text().contains("clocks are none of its business"));
    assert_eq!(house.record().await.last().unwrap(), "call.refused");
}

#[tokio::test]
async fn an_unknown_capability_and_a_wrong_argument_are_refused_and_recorded() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    for (capability, arguments, code) in [
        ("email.explode", json!({}), Code::SchemaUnknownCapability),
        ("email.send", json!({"to": "a@example.org"}), Code::GatewayUnsupported),
        ("system.time", json!({"zone": "UTC"}), Code::SchemaUnknownArgument),
        ("state.persistent.get", json!({}), Code::SchemaMissingArgument),
        ("state.persistent.get", json!({"key": 5}), Code::SchemaWrongType),
        ("state.session.get", json!({"key": "a"}), Code::StateNoSession),
        ("custom:deploy", json!({}), Code::GatewayUnsupported),
    ] {
        let no = house.call(capability, arguments).await.unwrap_err();
        assert_eq!(no.refusal.code(), code, "{capability}");
        assert!(no.call.is_some());
        assert_eq!(house.record().await.last().unwrap(), "call.refused");
    }
}

#[tokio::test]
async fn a_write_without_delay_is_done_by_the_time_it_is_answered_if_waited_for() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let path = house.path("a.txt");
    let answer = house.call("filesystem.write", json!({"path": path, "content": "one"})).await.unwrap();
    assert!(matches!(answer, CallOutcome::Held { .. }), "{answer:?}");
    assert_eq!(house.let_go().await, 1);
    assert_eq!(std::fs::read_to_string(house.path("a.txt")).unwrap(), "one");
}

#[tokio::test]
async fn a_held_write_waits_and_a_cancelled_one_never_happens() {
    let plan =
        TestGatewayPlan { config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    let write = |name: &str, house: &TestGateway| json!({"path": house.path(name), "content": "x"});
    let CallOutcome::Held { hold: kept, .. } = house.call("filesystem.write", write("kept", &house)).await.unwrap()
    else {
        panic!()
    };
    let CallOutcome::Held { hold: stopped, .. } =
        house.call("filesystem.write", write("stopped", &house)).await.unwrap()
    else {
        panic!()
    };
    house.pass(Millis::from_secs(29));
    assert_eq!(house.let_go().await, 0);
    house.gw.store.cancel(stopped, ana()).await.unwrap();
    house.pass(Millis::from_secs(1));
    assert_eq!(house.let_go().await, 1);
    assert!(house.work().join("kept").exists() && !house.work().join("stopped").exists());
    assert_eq!(house.gw.store.hold(kept).await.unwrap().unwrap().state.word(), "done");
}

#[tokio::test]
async fn a_clock_set_ahead_does_not_shorten_the_undo_window() {
    let plan =
        TestGatewayPlan { config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap();
    house.clock.jump(house.gw.now() + Millis::from_hours(5));
    assert_eq!(house.let_go().await, 0, "the clock jumped");
    house.pass(Millis::from_secs(29));
    assert_eq!(house.let_go().await, 0, "thirty seconds have not passed");
    house.pass(Millis::from_secs(62));
    assert_eq!(house.let_go().await, 1);
}

#[tokio::test]
async fn a_policy_that_became_stricter_asks_before_a_held_write_leaves() {
    let plan =
        TestGatewayPlan { config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    let CallOutcome::Held { hold, .. } =
        house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap()
    else {
        panic!()
    };
    let stricter = "defaults: {tier: approval_required}\n";
    std::fs::write(house.folder.path().join("policies/org.yaml"), stricter).unwrap();
    sluice_gateway::loops::policy::reload(&house.gw, ana()).await.unwrap().expect("another version");
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 0);
    assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "awaiting_approval");
    assert!(!house.work().join("a").exists());
}

#[tokio::test]
async fn broken_policy_files_change_nothing() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let before = house.gw.policy.get().version().to_owned();
    std::fs::write(house.folder.path().join("policies/org.yaml"), "defaults: {tier: sometimes}\n").unwrap();
    let no = sluice_gateway::loops::policy::reload(&house.gw, ana()).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::PolicyInvalid);
    assert_eq!(house.gw.policy.get().version(), before);
    let filter = sluice_store::AlertFilter::default();
    let alerts = house.gw.store.alerts(filter, None, 10).await.unwrap();
    assert_eq!(alerts[0].message.topic, "policy.refused");
}

#[tokio::test]
async fn a_check_never_executes_what_it_allows() {
    let plan = TestGatewayPlan { org: "defaults: {tier: approval_required}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    std::fs::write(house.work().join("precious"), "x").unwrap();
    let wish =
        json!({"capability": "filesystem.delete", "arguments": {"path": house.path("precious")}, "mode": "check"});
    let CallOutcome::Awaiting { hold, approval, call, .. } = house.wish(wish).await.unwrap() else { panic!() };
    let decision = sluice_store::DecideApproval {
        approval,
        by: ana(),
        channel: "test".into(),
        ruling: sluice_store::ApprovalRuling::Allow { answer: sluice_core::approval::ApprovalAnswer::Once, note: None },
        shown: Vec::new(),
        allowance: None,
    };
    house.gw.store.decide(decision).await.unwrap();
    assert_eq!(house.let_go().await, 1);
    let row = house.gw.store.hold(hold).await.unwrap().unwrap();
    let told = sluice_gateway::rooms::answer::call_outcome(&house.gw.store, call, &row).await.unwrap();
    assert_eq!(told, CallOutcome::Allowed { call, estimate: None });
    assert!(house.work().join("precious").exists(), "the caller carries it out, not we");
}

#[tokio::test]
async fn a_retry_with_the_same_key_is_the_same_call() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let wish = |content: &str| {
        json!({
            "capability": "filesystem.write", "idempotency_key": "k1", "wait_ms": 0,
            "arguments": {"path": house.path("a"), "content": content},
        })
    };
    let CallOutcome::Held { call, .. } = house.wish(wish("x")).await.unwrap() else { panic!() };
    let CallOutcome::Held { call: again, .. } = house.wish(wish("x")).await.unwrap() else { panic!() };
    assert_eq!(call, again);
    assert_eq!(house.wish(wish("y")).await.unwrap_err().refusal.code(), Code::CallKeyReuse);
}

#[tokio::test]
async fn a_retry_hears_the_first_answer_though_the_call_could_not_be_made_any_more() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::write(house.path("a"), "x").unwrap();
    let wishes = [
        json!({"capability": "filesystem.move", "arguments": {"source": house.path("a"), "destination": house.path("b")}}),
        json!({"capability": "filesystem.copy", "arguments": {"source": house.path("b"), "destination": house.path("c")}}),
        json!({"capability": "filesystem.delete", "arguments": {"path": house.path("b")}}),
        json!({"capability": "state.shared.set", "arguments": {"key": "k", "value": 1, "expected_version": 0}}),
    ];
    for (n, mut wish) in wishes.into_iter().enumerate() {
        (wish["wait_ms"], wish["idempotency_key"]) = (0.into(), format!("key-{n}").into());
        house.wish(wish.clone()).await.unwrap();
        house.let_go().await;
        // Its own effect stands in the way of a second one.
        let CallOutcome::Done { call, .. } = house.wish(wish.clone()).await.unwrap() else { panic!("{wish}") };
        let mut other = wish.clone();
        other["idempotency_key"] = "another".into();
        assert!(house.wish(other).await.is_err(), "under another key it is another call: {wish}");
        // So do rules that came later.
        std::fs::write(house.folder.path().join("policies/org.yaml"), "defaults: {tier: blocked}\n").unwrap();
        sluice_gateway::loops::policy::reload(&house.gw, crate::test_gateway::ana()).await.unwrap();
        let CallOutcome::Done { call: again, .. } = house.wish(wish.clone()).await.unwrap() else { panic!("{wish}") };
        assert_eq!(call, again);
        std::fs::write(house.folder.path().join("policies/org.yaml"), "defaults: {tier: autonomous}\n").unwrap();
        sluice_gateway::loops::policy::reload(&house.gw, crate::test_gateway::ana()).await.unwrap();
    }
}

#[tokio::test]
async fn an_identical_call_moments_later_must_be_meant() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let mut wish = json!({
        "capability": "filesystem.write", "wait_ms": 0, "arguments": {"path": house.path("a"), "content": "x"},
    });
    house.wish(wish.clone()).await.unwrap();
    let no = house.wish(wish.clone()).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::CallPossibleDuplicate);
    assert!(no.other.as_deref().unwrap().starts_with("buf_"));
    wish["allow_duplicate"] = true.into();
    house.wish(wish).await.unwrap();
}

#[tokio::test]
async fn a_read_that_needs_a_person_is_answered_after_their_yes() {
    let plan = TestGatewayPlan { org: "defaults: {tier: approval_required}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    let CallOutcome::Awaiting { hold, approval, call, .. } = house.call("system.info", json!({})).await.unwrap() else {
        panic!()
    };
    assert_eq!(house.let_go().await, 0);
    let decision = sluice_store::DecideApproval {
        approval,
        by: ana(),
        channel: "test".into(),
        ruling: sluice_store::ApprovalRuling::Allow { answer: sluice_core::approval::ApprovalAnswer::Once, note: None },
        shown: Vec::new(),
        allowance: None,
    };
    house.gw.store.decide(decision).await.unwrap();
    assert_eq!(house.let_go().await, 1);
    let row = house.gw.store.hold(hold).await.unwrap().unwrap();
    let CallOutcome::Done { result, .. } =
        sluice_gateway::rooms::answer::call_outcome(&house.gw.store, call, &row).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(result["name"], "Sluicegate");
}

#[tokio::test]
async fn what_was_done_can_be_taken_back_unless_someone_worked_on() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::write(house.work().join("a"), "old").unwrap();
    std::fs::write(house.work().join("b"), "old").unwrap();
    let mut holds = Vec::new();
    for name in ["a", "b"] {
        let arguments = json!({"path": house.path(name), "content": "new"});
        let CallOutcome::Held { hold, .. } = house.call("filesystem.write", arguments).await.unwrap() else { panic!() };
        house.let_go().await;
        holds.push(house.gw.store.hold(hold).await.unwrap().unwrap());
    }
    std::fs::write(house.work().join("b"), "newer work").unwrap();
    let steps = sluice_gateway::rooms::rollback::plan(&house.gw, &holds).await.unwrap();
    assert_eq!(steps[0].code, Some("rollback.conflict"), "{steps:?}");
    assert!(steps[1].possible, "{steps:?}");
    sluice_gateway::rooms::rollback::take_back(&house.gw, &holds[0], ana()).await.unwrap();
    let no = sluice_gateway::rooms::rollback::take_back(&house.gw, &holds[1], ana()).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::RollbackConflict);
    house.pass(Millis::from_secs(6));
    house.let_go().await;
    assert_eq!(std::fs::read_to_string(house.work().join("a")).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(house.work().join("b")).unwrap(), "newer work");
    let record = house.record().await;
    assert!(record.iter().any(|kind| kind == "rollback.undone"), "{record:?}");
}

#[tokio::test]
async fn state_has_versions_conflicts_and_rollback() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let set = |value: u32, expected: u64| json!({"key": "plan", "value": value, "expected_version": expected});
    house.call("state.shared.set", set(1, 0)).await.unwrap();
    house.let_go().await;
    let no = house.call("state.shared.set", set(2, 0)).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::StateConflict);
    let CallOutcome::Held { hold, .. } = house.call("state.shared.set", set(2, 1)).await.unwrap() else { panic!() };
    house.let_go().await;
    let CallOutcome::Done { result, .. } = house.call("state.shared.get", json!({"key": "plan"})).await.unwrap() else {
        panic!()
    };
    assert_eq!((result["value"].as_u64(), result["version"].as_u64()), (Some(2), Some(2)));
    let done = house.gw.store.hold(hold).await.unwrap().unwrap();
    sluice_gateway::rooms::rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    house.pass(Millis::from_secs(6));
    house.let_go().await;
    let CallOutcome::Done { result, .. } = house.call("state.shared.get", json!({"key": "plan"})).await.unwrap() else {
        panic!()
    };
    assert_eq!(result["value"], 1);
}

#[tokio::test]
async fn a_notify_call_tells_people() {
    let plan = TestGatewayPlan { org: "defaults: {tier: notify}\n".into(), ..TestGatewayPlan::default() };
    let house = TestGateway::new(plan).await;
    house.call("system.time", json!({})).await.unwrap();
    let alerts = house.gw.store.alerts(sluice_store::AlertFilter::default(), None, 10).await.unwrap();
    assert_eq!(alerts[0].message.topic, "call.notify");
    assert_eq!(alerts[0].message.body["capability"], "system.time");
}

#[tokio::test]
async fn a_wide_search_or_edit_passes_by_what_a_narrow_rule_hides() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    std::fs::create_dir(house.work().join("secret")).unwrap();
    for name in ["open.txt", "secret/key.txt"] {
        std::fs::write(house.work().join(name), "the key is 7").unwrap();
    }
    let secret = house.path("secret/");
    let rules =
        format!("rules:\n  - {{capability: \"filesystem.*\", tier: blocked, conditions: {{path_prefix: {secret}}}}}\n");
    std::fs::write(house.folder.path().join("policies/agents/clerk.yaml"), rules).unwrap();
    sluice_gateway::loops::policy::reload(&house.gw, ana()).await.unwrap().expect("another version");
    let root = house.work().display().to_string();
    for (capability, arguments) in [
        ("filesystem.search_content", json!({"path": root, "pattern": "key"})),
        ("filesystem.search", json!({"path": root, "pattern": "**"})),
    ] {
        let CallOutcome::Done { result, .. } = house.call(capability, arguments).await.unwrap() else { panic!() };
        let text = result.to_string();
        assert!(text.contains("open.txt") && !text.contains("key.txt"), "{capability}: {text}");
    }
    let edit = json!({"path": root, "pattern": "7", "replace": "8", "replace_all": true, "include_glob": "**"});
    house.call("filesystem.edit", edit).await.unwrap();
    house.let_go().await;
    assert_eq!(std::fs::read_to_string(house.work().join("open.txt")).unwrap(), "the key is 8");
    assert_eq!(std::fs::read_to_string(house.work().join("secret/key.txt")).unwrap(), "the key is 7");
}
