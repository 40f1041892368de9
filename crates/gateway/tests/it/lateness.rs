//! Sleep, slow services and clocks that are set: what is late, and what is not yet known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::Refusal;
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{BoxedFuture, CapabilityName, HoldId, Millis, ServiceName};
use sluice_gateway::corridor::CallOutcome;
use sluice_services::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use sluice_store::AlertFilter;
use sluice_testkit::ManualClock;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A service that takes long to prepare and never says how it went; a look finds nothing.
struct SlowTestService {
    clock: ManualClock,
    prepares: Millis,
    performed: AtomicUsize,
    looked: AtomicUsize,
}

impl Service for SlowTestService {
    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("slow.")
    }
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }
    fn read<'a>(&'a self, _: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async { Ok(Value::Null) })
    }
    fn prepare<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async {
            self.clock.advance(self.prepares);
            Ok(PreparedWrite::default())
        })
    }
    fn perform<'a>(
        &'a self,
        _: Permit,
        _: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        self.performed.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { LookupOutcome::Absent })
    }
    fn current_fingerprint<'a>(
        &'a self,
        _: &'a Hold,
        _: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn undo<'a>(&'a self, _: Permit, _: &'a Hold, _: &'a [u8]) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn discard_undo_data<'a>(&'a self, _: &'a [u8]) -> BoxedFuture<'a, ()> {
        Box::pin(async {})
    }
}

const TELL: &str = "- {name: slow.tell, effect: write, class: findable, delay_s: 30, summary: Tells it.}";

/// The service behind the gate, as it is after every start.
async fn offered(house: &TestGateway, prepares: Millis) -> Arc<SlowTestService> {
    let (performed, looked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slow = Arc::new(SlowTestService { clock: house.clock.clone(), prepares, performed, looked });
    let capabilities: Vec<Capability> = Catalogue::from_yaml(TELL).unwrap().iter().cloned().collect();
    let (name, service) = (ServiceName::new("slow").unwrap(), Arc::clone(&slow) as Arc<dyn Service>);
    house.gw.offer(name, service, capabilities).await.unwrap();
    slow
}

async fn house_with(prepares: Millis) -> (TestGateway, Arc<SlowTestService>, HoldId) {
    let agent = "rules:\n  - {capability: slow.tell, tier: autonomous}\n";
    let house = TestGateway::new(TestGatewayPlan { agent: agent.into(), ..TestGatewayPlan::default() }).await;
    let slow = offered(&house, prepares).await;
    let CallOutcome::Held { hold, .. } = house.call("slow.tell", json!({})).await.unwrap() else { panic!() };
    (house, slow, hold)
}

async fn state(house: &TestGateway, hold: HoldId) -> &'static str {
    house.gw.store.hold(hold).await.unwrap().unwrap().state.word()
}

#[tokio::test]
async fn what_came_due_while_the_machine_slept_is_announced_again_and_waits_a_minute() {
    let mut house = TestGateway::new(TestGatewayPlan {
        config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(),
        ..TestGatewayPlan::default()
    })
    .await;
    house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap();
    house.sleep(Millis::from_secs(100));
    assert_eq!(house.let_go().await, 0, "late is not the same as now");
    let alerts = house.gw.store.alerts(AlertFilter::default(), None, 10).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.message.topic == "hold.overdue" && alert.message.body["reheld"] == 1));
    house.pass(Millis::from_secs(59));
    assert_eq!(house.let_go().await, 0);
    house.pass(Millis::from_secs(2));
    assert_eq!(house.let_go().await, 1);
    assert!(house.work().join("a").exists());
}

#[tokio::test]
async fn after_a_sleep_writes_leave_one_by_one() {
    let mut house = TestGateway::new(TestGatewayPlan {
        config: "holds: {delays: {\"filesystem.*\": 30s}}\n".into(),
        ..TestGatewayPlan::default()
    })
    .await;
    for name in ["a", "b", "c"] {
        house.call("filesystem.write", json!({"path": house.path(name), "content": "x"})).await.unwrap();
    }
    // Due just as the machine wakes: on time, and still not all at once.
    house.sleep(Millis::from_secs(31));
    assert_eq!(house.gw.slow_start(), None);
    assert_eq!(house.let_go().await, 1);
    house.pass(Millis::from_secs(1));
    assert_eq!(house.let_go().await, 1);
    // Whoever wonders why the third one waits is told.
    assert_eq!(house.gw.slow_start(), Some(1));
    for (passed, speed) in [(30, Some(2)), (60, Some(8)), (90, None)] {
        house.pass(Millis::from_secs(passed));
        assert_eq!(house.gw.slow_start(), speed);
    }
}

#[tokio::test]
async fn a_clock_set_forward_does_not_settle_a_doubt() {
    let (mut house, slow, hold) = house_with(Millis::ZERO).await;
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1);
    assert_eq!(state(&house, hold).await, "in_doubt");
    house.clock.jump(house.gw.now() + Millis::from_hours(1));
    house.let_go().await;
    // Long enough for the clock to be believed again; the service's index may lag for another minute.
    house.pass(Millis::from_secs(70));
    house.let_go().await;
    assert_eq!(slow.looked.load(Ordering::SeqCst), 0, "an absence would prove nothing yet");
    house.pass(Millis::from_secs(121));
    house.let_go().await;
    assert_eq!(slow.looked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_doubt_older_than_the_process_settles_once_more() {
    let (mut house, _, hold) = house_with(Millis::ZERO).await;
    house.pass(Millis::from_secs(31));
    house.let_go().await;
    assert_eq!(state(&house, hold).await, "in_doubt");
    // The wall clock may have been set while nobody looked.
    let mut house = house.restart(Millis::from_mins(10)).await;
    let slow = offered(&house, Millis::ZERO).await;
    for _ in 0..11 {
        house.pass(Millis::from_secs(10));
        house.let_go().await;
    }
    assert_eq!(slow.looked.load(Ordering::SeqCst), 0);
    house.pass(Millis::from_secs(20));
    house.let_go().await;
    assert_eq!(slow.looked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_write_whose_claim_ran_out_while_it_was_prepared_is_not_begun() {
    let (mut house, slow, hold) = house_with(Millis::from_secs(56)).await;
    house.pass(Millis::from_secs(31));
    house.let_go().await;
    assert_eq!(slow.performed.load(Ordering::SeqCst), 0, "another gateway may have taken it up by now");
    let record = house.entries().await;
    assert!(record.iter().any(|entry| entry.to_string().contains("execute.out_of_time")), "{record:#?}");
    assert_ne!(state(&house, hold).await, "in_doubt", "nothing can have happened");
}
