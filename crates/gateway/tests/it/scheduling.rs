//! Planned calls: made when they are due, judged by the rules of that moment, ended by a freeze, late only within bounds.

use serde_json::{Value, json};
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, Millis, ServiceName};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::loops::schedule;
use sluice_store::{FreezeTarget, HoldFilter, Schedule, ScheduleState};

use crate::test_gateway::{TestGateway, TestGatewayPlan, ana, clerk};

fn plan() -> TestGatewayPlan {
    TestGatewayPlan {
        config: "batch: {services: {scheduler: off, alerts: off}}\n".into(),
        ..TestGatewayPlan::default()
    }
}

async fn made(house: &mut TestGateway, capability: &str, arguments: Value) -> Value {
    let CallOutcome::Held { hold, .. } = house.call(capability, arguments).await.unwrap() else { panic!("not held") };
    house.pass(Millis::from_secs(1));
    house.let_go().await;
    assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "done");
    serde_json::from_str(&house.gw.store.hold_result(hold).await.unwrap().unwrap()).unwrap()
}

async fn later(house: &mut TestGateway, seconds: u64) -> Value {
    let inputs = json!({"message": "an hour has passed"});
    made(house, "scheduler.delay", json!({"capability": "alerts.send", "inputs": inputs, "seconds": seconds})).await
}

async fn hourly(house: &mut TestGateway) -> Value {
    let inputs = json!({"message": "another hour"});
    made(
        house,
        "scheduler.cron_create",
        json!({"capability": "alerts.send", "inputs": inputs, "schedule": "0 * * * *"}),
    )
    .await
}

/// How many calls of a capability were admitted.
async fn calls(house: &TestGateway, capability: &str) -> usize {
    let holds = house.gw.store.holds_page(HoldFilter::default(), None, 1000).await.unwrap();
    holds.iter().filter(|hold| hold.action.capability().as_str() == capability).count()
}

async fn only(house: &TestGateway) -> Schedule {
    house.gw.store.schedules_of(clerk()).await.unwrap().into_iter().next().unwrap()
}

/// Time passes until the newest plan is due.
async fn until_due(house: &TestGateway) {
    let next = only(house).await.next_at.unwrap();
    house.pass(next.since(house.gw.now()));
}

async fn step(house: &mut TestGateway) -> usize {
    let made = schedule::step(&house.gw).await.unwrap();
    house.let_go().await;
    made
}

#[tokio::test]
async fn a_planned_call_is_made_once_when_it_is_due_also_after_a_restart() {
    let mut house = TestGateway::new(plan()).await;
    later(&mut house, 3600).await;
    house.pass(Millis::from_secs(3599));
    assert_eq!(step(&mut house).await, 0);
    let mut house = house.restart(Millis::from_secs(2)).await;
    assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (1, 1));
    assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (0, 1), "once");
    let plan = only(&house).await;
    assert_eq!((plan.state, plan.runs, plan.last_code), (ScheduleState::Done, 1, None));
}

#[tokio::test]
async fn a_repeated_plan_comes_again_and_can_be_ended_and_brought_back() {
    let mut house = TestGateway::new(plan()).await;
    let cron = hourly(&mut house).await;
    for expected in 1..=3 {
        until_due(&house).await;
        assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (1, expected));
    }
    let id = json!({"cron_id": cron["cron_id"]});
    let CallOutcome::Held { hold, .. } = house.call("scheduler.cron_delete", id).await.unwrap() else { panic!() };
    house.let_go().await;
    house.pass(Millis::from_hours(1));
    assert_eq!((step(&mut house).await, only(&house).await.state), (0, ScheduleState::Cancelled));
    let done = house.gw.store.hold(hold).await.unwrap().unwrap();
    sluice_gateway::rooms::rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    house.pass(Millis::from_secs(10));
    house.let_go().await;
    assert_eq!(only(&house).await.state, ScheduleState::Active);
    until_due(&house).await;
    assert_eq!(step(&mut house).await, 1);
}

#[tokio::test]
async fn a_due_call_is_judged_by_the_rules_of_that_moment_and_brings_no_approval_along() {
    let mut house = TestGateway::new(plan()).await;
    hourly(&mut house).await;
    let rules = "rules: [{capability: alerts.send, tier: approval_required}]\n";
    std::fs::write(house.folder.path().join("policies/agents/clerk.yaml"), rules).unwrap();
    sluice_services::policies::load(&house.gw.policy, &house.gw.config.policies, &house.gw.catalogue.known()).unwrap();
    until_due(&house).await;
    assert_eq!(step(&mut house).await, 1);
    let holds = house.gw.store.holds_page(HoldFilter::default(), None, 1000).await.unwrap();
    let due = holds.iter().find(|hold| hold.action.capability().as_str() == "alerts.send").unwrap();
    assert_eq!(due.state.word(), "awaiting_approval");
    std::fs::write(
        house.folder.path().join("policies/agents/clerk.yaml"),
        "rules: [{capability: alerts.send, tier: blocked}]\n",
    )
    .unwrap();
    sluice_services::policies::load(&house.gw.policy, &house.gw.config.policies, &house.gw.catalogue.known()).unwrap();
    until_due(&house).await;
    step(&mut house).await;
    assert_eq!(only(&house).await.last_code.as_deref(), Some("policy.blocked"));
}

#[tokio::test]
async fn a_freeze_or_a_removal_ends_plans_for_good() {
    for scope in
        [FreezeTarget::All, FreezeTarget::Agent(clerk()), FreezeTarget::Service(ServiceName::new("alerts").unwrap())]
    {
        let mut house = TestGateway::new(plan()).await;
        hourly(&mut house).await;
        house.gw.store.freeze(scope.clone(), ana(), "an incident".into()).await.unwrap();
        assert_eq!(step(&mut house).await, 0);
        house.gw.store.unfreeze(scope.clone(), ana()).await.unwrap();
        house.pass(Millis::from_hours(2));
        assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (0, 0), "{scope}");
        let plan = only(&house).await;
        assert_eq!((plan.state, plan.reason.as_deref()), (ScheduleState::Cancelled, Some("freeze.active")));
    }
    let mut house = TestGateway::new(plan()).await;
    hourly(&mut house).await;
    house.gw.store.remove_agent(clerk(), ana()).await.unwrap();
    house.pass(Millis::from_hours(2));
    assert_eq!((step(&mut house).await, only(&house).await.state), (0, ScheduleState::Cancelled));
}

#[tokio::test]
async fn what_came_due_while_nobody_was_awake_follows_the_grace_rule_and_comes_in_no_burst() {
    // Five minutes late: announced again, and made a minute later.
    let mut house = TestGateway::new(plan()).await;
    later(&mut house, 600).await;
    let mut house = house.restart(Millis::from_secs(900)).await;
    assert_eq!(step(&mut house).await, 0, "not at once");
    house.pass(Millis::from_secs(61));
    assert_eq!(step(&mut house).await, 1);
    // An hour late: never made, and people and the agent are told.
    later(&mut house, 600).await;
    let mut house = house.restart(Millis::from_hours(2)).await;
    assert_eq!((step(&mut house).await, only(&house).await.state), (0, ScheduleState::Missed));
    assert!(house.record().await.contains(&"schedule.missed".to_owned()));
    // Ten missed hours are not ten calls.
    hourly(&mut house).await;
    let before = calls(&house, "alerts.send").await;
    let mut house = house.restart(Millis::from_hours(10) + Millis::from_mins(30)).await;
    assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (0, before));
    until_due(&house).await;
    assert_eq!((step(&mut house).await, calls(&house, "alerts.send").await), (1, before + 1));
}

#[tokio::test]
async fn plans_are_bounded_the_agents_own_and_only_what_can_be_called() {
    let mut house = TestGateway::new(plan()).await;
    let refused = async |house: &TestGateway, capability: &str, arguments: Value| {
        house.call(capability, arguments).await.unwrap_err().refusal.code()
    };
    let cron = |capability: &str, inputs: Value, schedule: &str| json!({"capability": capability, "inputs": inputs, "schedule": schedule});
    let message = json!({"message": "x"});
    for (arguments, code) in [
        (cron("alerts.send", message.clone(), "every day"), Code::SchemaWrongType),
        (cron("alerts.send", message.clone(), "0 0 31 2 *"), Code::SchemaWrongType),
        (cron("alerts.send", json!({}), "0 * * * *"), Code::SchemaMissingArgument),
        (cron("alerts.send", json!({"message": "x", "to": "y"}), "0 * * * *"), Code::SchemaUnknownArgument),
        (cron("no.such", json!({}), "0 * * * *"), Code::SchemaUnknownCapability),
        (cron("system.time", json!({}), "0 * * * *"), Code::SchemaWrongType),
        (cron("scheduler.delay", json!({}), "0 * * * *"), Code::SchemaWrongType),
    ] {
        assert_eq!(refused(&house, "scheduler.cron_create", arguments.clone()).await, code, "{arguments}");
    }
    for n in 0..100 {
        let inputs = json!({"message": format!("reminder {n}")});
        made(&mut house, "scheduler.delay", json!({"capability": "alerts.send", "inputs": inputs, "seconds": 9999}))
            .await;
    }
    let inputs = json!({"message": "one too many"});
    let one_more = json!({"capability": "alerts.send", "inputs": inputs, "seconds": 9999});
    let CallOutcome::Held { hold, .. } = house.call("scheduler.delay", one_more).await.unwrap() else { panic!() };
    house.let_go().await;
    assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "dead");
    let foreign = HoldId::from_bits(7);
    let no =
        refused(&house, "scheduler.cron_delete", json!({"cron_id": format!("cron_{:032x}", foreign.bits())})).await;
    assert_eq!(no, Code::StoreNotFound);
    assert!(house.gw.store.schedules_of(AgentName::new("shop").unwrap()).await.unwrap().is_empty());
}
