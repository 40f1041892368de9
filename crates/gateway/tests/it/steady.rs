//! The release loop goes on: whatever one service or one agent does, the others have their turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal, RetryAdvice};
use sluice_core::{BoxedFuture, CapabilityName, HoldId, Millis, ServiceName};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::CallOutcome;
use sluice_services::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, ServiceSlot, WriteError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::http::{OpenTestGateway, ask, open};
use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A service that does what the test says: whether effects and lookups come back, what lookups find, how many places it has.
pub(crate) struct GatedTestService {
    performs: Semaphore,
    looks: Semaphore,
    places: Option<Arc<Semaphore>>,
    finds: Mutex<fn() -> LookupOutcome>,
    outcome: Mutex<fn() -> Result<CompletedWrite, WriteError>>,
    performed: Mutex<Vec<String>>,
    pub(crate) looked: AtomicUsize,
    pub(crate) is_up: bool,
}

fn performed() -> CompletedWrite {
    CompletedWrite { receipt: "r".into(), result: Value::Null, after: None, undo_until: None }
}

impl GatedTestService {
    fn new() -> Self {
        Self {
            performs: Semaphore::new(0),
            looks: Semaphore::new(0),
            places: None,
            finds: Mutex::new(|| LookupOutcome::Unknown),
            outcome: Mutex::new(|| Ok(performed())),
            performed: Mutex::default(),
            looked: AtomicUsize::new(0),
            is_up: true,
        }
    }

    pub(crate) fn open() -> Self {
        let gated = Self::new();
        gated.performs.add_permits(10_000);
        gated.looks.add_permits(10_000);
        gated
    }

    /// Effects leave, and nobody hears how they went.
    pub(crate) fn unclear() -> Self {
        let gated = Self::open();
        *gated.outcome.lock().unwrap() = || Err(WriteError::Unclear);
        gated
    }

    pub(crate) fn agents(&self) -> Vec<String> {
        self.performed.lock().unwrap().clone()
    }
}

impl Service for GatedTestService {
    fn offers(&self, _: &CapabilityName) -> bool {
        self.is_up
    }
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }
    fn starting(&self) -> Option<Refusal> {
        (!self.is_up).then(|| Refusal::new(Code::ServiceStarting))
    }
    fn read<'a>(&'a self, _: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async { Ok(Value::Null) })
    }
    fn reserve<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        Box::pin(async {
            match &self.places {
                None => Ok(ServiceSlot::Free),
                Some(places) => Ok(ServiceSlot::Slot(Arc::clone(places).acquire_owned().await.unwrap())),
            }
        })
    }
    fn perform<'a>(
        &'a self,
        _: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async {
            self.performed.lock().unwrap().push(hold.agent().to_string());
            self.performs.acquire().await.unwrap().forget();
            let outcome = *self.outcome.lock().unwrap();
            outcome()
        })
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async {
            self.looked.fetch_add(1, Ordering::SeqCst);
            self.looks.acquire().await.unwrap().forget();
            let finds = *self.finds.lock().unwrap();
            finds()
        })
    }
}

async fn offered(house: &TestGateway, name: &str, class: &str, gated: GatedTestService) -> Arc<GatedTestService> {
    offered_by(&house.gw, name, class, gated).await
}

/// Puts a service behind the gate of this gateway.
pub(crate) async fn offered_by(
    gw: &Gateway,
    name: &str,
    class: &str,
    gated: GatedTestService,
) -> Arc<GatedTestService> {
    let gated = Arc::new(gated);
    let text = format!("- {{name: {name}.tell, effect: write, class: {class}, delay_s: 0, summary: Tells it.}}");
    let capabilities: Vec<Capability> = Catalogue::from_yaml(&text).unwrap().iter().cloned().collect();
    let service = Arc::clone(&gated) as Arc<dyn Service>;
    gw.offer(ServiceName::new(name).unwrap(), service, capabilities).await.unwrap();
    gated
}

async fn house(config: &str) -> TestGateway {
    let config = format!(
        "batch: {{limit: 100000}}\nbudgets: {{writes_per_account: 100000, writes_per_gateway: 100000}}\n{config}"
    );
    TestGateway::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await
}

async fn tell(house: &TestGateway, key: &str, service: &str) -> Result<HoldId, Refusal> {
    let wish = json!({"capability": format!("{service}.tell"), "arguments": {}, "wait_ms": 0, "allow_duplicate": true});
    match house.wish_as(key, wish).await {
        Ok(CallOutcome::Held { hold, .. }) => Ok(hold),
        Ok(other) => panic!("{other:?}"),
        Err(no) => Err(*no.refusal),
    }
}

async fn state(house: &TestGateway, hold: HoldId) -> HoldState {
    house.gw.store.hold(hold).await.unwrap().unwrap().state
}

/// Waits for what goes on in tasks, in real time and bounded. The gateway's own clock stands still.
async fn becomes(house: &TestGateway, hold: HoldId, word: &str) {
    let there = async {
        while state(house, hold).await.word() != word {
            tokio::task::yield_now().await;
        }
    };
    let late = timeout(Duration::from_secs(20), there).await.is_err();
    assert!(!late, "{hold} is {} and not {word}", state(house, hold).await.word());
}

/// Waits until a counter has this number, likewise.
async fn reaches(counter: impl Fn() -> usize, number: usize) {
    let there = async {
        while counter() < number {
            tokio::task::yield_now().await;
        }
    };
    let late = timeout(Duration::from_secs(20), there).await.is_err();
    assert!(!late && counter() == number, "{} and not {number}", counter());
}

async fn write_file(house: &TestGateway, name: &str) -> HoldId {
    let arguments = json!({"path": house.path(name), "content": "x"});
    match house.call("filesystem.write", arguments).await.unwrap() {
        CallOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lookups_that_hang_delay_no_write_of_another_service_and_no_step() {
    let mut house = house("").await;
    let slow = GatedTestService::unclear();
    slow.looks.forget_permits(10_000);
    let slow = offered(&house, "slow", "findable", slow).await;
    let key = house.agent_key.clone();
    let mut doubts = Vec::new();
    for _ in 0..6 {
        doubts.push(tell(&house, &key, "slow").await.unwrap());
    }
    assert_eq!(house.let_go().await, 6);
    house.pass(Millis::from_secs(121));
    house.step().await;
    reaches(|| slow.looked.load(Ordering::SeqCst), 3).await;
    // The file leaves with the next step, and that step waits for nobody.
    let file = write_file(&house, "a").await;
    house.pass(Millis::from_secs(30));
    assert_eq!(timeout(Duration::from_secs(20), house.step()).await.unwrap(), 1);
    becomes(&house, file, "done").await;
    for doubt in doubts {
        assert_eq!(state(&house, doubt).await.word(), "in_doubt");
    }
}

#[tokio::test]
async fn writes_that_hang_delay_no_write_of_another_service_and_leave_a_place_for_other_agents() {
    let mut house = house("release: {at_once: 8}\n").await;
    let slow = offered(&house, "slow", "findable", GatedTestService::new()).await;
    let (flood, clerk) = (house.another("flood").await, house.agent_key.clone());
    for _ in 0..100 {
        tell(&house, &flood, "slow").await.unwrap();
    }
    assert_eq!(house.step().await, 6, "three quarters of the places");
    reaches(|| slow.agents().len(), 6).await;
    let file = write_file(&house, "a").await;
    let own = tell(&house, &clerk, "slow").await.unwrap();
    house.pass(Millis::from_secs(30));
    assert_eq!(house.step().await, 2, "the file, and the other agent at the same service");
    becomes(&house, file, "done").await;
    reaches(|| slow.agents().len(), 7).await;
    slow.performs.add_permits(10_000);
    becomes(&house, own, "done").await;
}

#[tokio::test]
async fn an_agent_with_many_writes_gets_every_second_turn() {
    let mut house = house("release: {paces: {slow: 1/s}}\n").await;
    let slow = offered(&house, "slow", "findable", GatedTestService::open()).await;
    let (flood, clerk) = (house.another("flood").await, house.agent_key.clone());
    for _ in 0..60 {
        tell(&house, &flood, "slow").await.unwrap();
    }
    for _ in 0..3 {
        house.let_go().await;
        house.pass(Millis::from_secs(1));
    }
    assert_eq!(slow.agents(), ["flood"; 3], "one each second");
    let mut mine = Vec::new();
    for _ in 0..3 {
        mine.push(tell(&house, &clerk, "slow").await.unwrap());
    }
    for _ in 0..6 {
        house.let_go().await;
        house.pass(Millis::from_secs(1));
    }
    let order = slow.agents();
    assert_eq!(order.iter().skip(3).filter(|agent| *agent == "clerk").count(), 3, "{order:?}");
    for hold in mine {
        assert_eq!(state(&house, hold).await.word(), "done");
    }
}

#[tokio::test]
async fn a_local_service_has_no_pace_and_a_paced_one_has_its_own() {
    let mut house = house("release: {pace: 2/s, paces: {quick: off}}\n").await;
    for name in ["slow", "quick"] {
        offered(&house, name, "findable", GatedTestService::open()).await;
    }
    let key = house.agent_key.clone();
    let mut count = BTreeMap::new();
    for n in 0..10 {
        write_file(&house, &n.to_string()).await;
        tell(&house, &key, "slow").await.unwrap();
        tell(&house, &key, "quick").await.unwrap();
    }
    house.pass(Millis::from_secs(30));
    house.let_go().await;
    for hold in house.gw.store.holds(None, 100).await.unwrap() {
        *count.entry((hold.service.to_string(), hold.state.word())).or_insert(0) += 1;
    }
    let of = |service: &str, word| count.get(&(service.to_owned(), word)).copied().unwrap_or(0);
    assert_eq!((of("filesystem", "done"), of("quick", "done"), of("slow", "done")), (10, 10, 2), "{count:?}");
}

#[tokio::test]
async fn a_queue_that_would_take_too_long_is_refused_with_a_time_for_its_agent_alone() {
    let mut house = house("release: {paces: {slow: 1/s}, queue: 10s}\n").await;
    offered(&house, "slow", "findable", GatedTestService::open()).await;
    let (flood, clerk) = (house.another("flood").await, house.agent_key.clone());
    let mut taken = 0;
    let no = loop {
        match tell(&house, &flood, "slow").await {
            Ok(_) => taken += 1,
            Err(no) => break no,
        }
        assert!(taken <= 11, "ten seconds at one write a second");
    };
    assert_eq!((taken, no.code(), no.code().status()), (11, Code::HoldQueueFull, 429));
    assert_eq!(no.retry(), RetryAdvice::After(Millis::from_secs(1)));
    tell(&house, &clerk, "slow").await.unwrap();
    write_file(&house, "a").await;
    // Once some have left there is room again.
    for _ in 0..8 {
        house.pass(Millis::from_secs(1));
        house.let_go().await;
    }
    tell(&house, &flood, "slow").await.unwrap();
}

#[tokio::test]
async fn a_lookup_that_did_not_reach_the_service_counts_for_nothing_and_people_are_told_once() {
    let mut house = house("").await;
    let slow = GatedTestService::unclear();
    *slow.finds.lock().unwrap() = || LookupOutcome::NotLooked;
    let slow = offered(&house, "slow", "findable", slow).await;
    let key = house.agent_key.clone();
    let hold = tell(&house, &key, "slow").await.unwrap();
    house.let_go().await;
    for _ in 0..60 {
        house.pass(Millis::from_mins(2));
        house.let_go().await;
    }
    assert!(matches!(state(&house, hold).await, HoldState::InDoubt { rounds: 0, .. }));
    assert!(slow.looked.load(Ordering::SeqCst) > 20, "it is tried again and again");
    let alerts = house.gw.store.alerts(sluice_store::AlertFilter::default(), None, 100).await.unwrap();
    assert_eq!(alerts.iter().filter(|alert| alert.message.topic == "hold.not_looked").count(), 1);
    // Reachable again: the answers count, and only the last one asks a person.
    *slow.finds.lock().unwrap() = || LookupOutcome::Unknown;
    for round in 1..=7 {
        assert_eq!(state(&house, hold).await.word(), "in_doubt", "before lookup {round}");
        house.pass(Millis::from_mins(3));
        house.let_go().await;
    }
    assert_eq!(state(&house, hold).await.word(), "needs_human");
}

#[tokio::test]
async fn a_doubt_is_looked_up_over_half_an_hour_before_a_person_is_asked() {
    let mut house = house("").await;
    let slow = offered(&house, "slow", "findable", GatedTestService::unclear()).await;
    let key = house.agent_key.clone();
    let hold = tell(&house, &key, "slow").await.unwrap();
    house.let_go().await;
    let mut seen = Vec::new();
    for second in (0..2_400).step_by(10) {
        let before = slow.looked.load(Ordering::SeqCst);
        house.let_go().await;
        if slow.looked.load(Ordering::SeqCst) > before {
            seen.push(second);
        }
        house.pass(Millis::from_secs(10));
    }
    assert_eq!(seen, [120, 150, 240, 420, 720, 1320, 1920]);
    assert_eq!(state(&house, hold).await.word(), "needs_human");
}

#[tokio::test]
async fn what_has_no_place_at_its_service_is_not_armed() {
    let mut house = house("").await;
    let places = Arc::new(Semaphore::new(0));
    let slow = GatedTestService { places: Some(Arc::clone(&places)), ..GatedTestService::open() };
    let slow = offered(&house, "slow", "opaque", slow).await;
    let key = house.agent_key.clone();
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(tell(&house, &key, "slow").await.unwrap());
    }
    assert_eq!(house.step().await, 3);
    for hold in &holds {
        becomes(&house, *hold, "preparing").await;
    }
    // As long as they wait nothing of them can have left, and people can still stop them.
    let stopped = house.gw.store.cancel(holds[0], crate::test_gateway::ana()).await.unwrap();
    assert!(matches!(stopped, sluice_store::CancelHoldOutcome::Stopped(_)), "{stopped:?}");
    assert_eq!(slow.agents().len(), 0);
    places.add_permits(3);
    for hold in &holds[1..] {
        becomes(&house, *hold, "done").await;
    }
    assert_eq!(slow.agents().len(), 2);
}

#[tokio::test]
async fn a_gateway_that_stops_begins_nothing_more() {
    let mut house = house("").await;
    let places = Arc::new(Semaphore::new(0));
    let slow = offered(
        &house,
        "slow",
        "opaque",
        GatedTestService { places: Some(Arc::clone(&places)), ..GatedTestService::open() },
    )
    .await;
    let key = house.agent_key.clone();
    let hold = tell(&house, &key, "slow").await.unwrap();
    house.step().await;
    becomes(&house, hold, "preparing").await;
    house.gw.enter(sluice_gateway::GatewayPhase::Stopping);
    places.add_permits(1);
    becomes(&house, hold, "ready").await;
    assert_eq!((slow.agents().len(), house.step().await), (0, 0));
}

#[tokio::test]
async fn what_is_being_started_says_so_and_never_that_it_is_unknown() {
    let house = house("mounts: {crm: {command: /bin/true}}\n").await;
    offered(&house, "slow", "findable", GatedTestService { is_up: false, ..GatedTestService::open() }).await;
    for capability in ["crm.create", "slow.tell"] {
        let no = house.call(capability, json!({})).await.unwrap_err().refusal;
        assert_eq!((no.code(), no.code().status()), (Code::ServiceStarting, 503), "{capability}");
        assert!(matches!(no.retry(), RetryAdvice::After(_)), "{capability}");
    }
    let no = house.call("erp.create", json!({})).await.unwrap_err().refusal;
    assert_eq!(no.code(), Code::SchemaUnknownCapability, "what nobody starts is unknown");
    let not_up: Vec<String> = house.gw.services.starting_services().iter().map(ToString::to_string).collect();
    assert_eq!(not_up, ["mount.crm", "slow"]);
}

async fn said(open: &OpenTestGateway, body: Value) -> (u16, Value) {
    let answer = ask(open.main, "POST", "/v1/holds/settle", &open.house.operator_token, Some(&body)).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn many_unclear_writes_are_listed_and_settled_by_what_was_listed() {
    let config = "batch: {limit: 100000}\n".to_owned();
    let mut open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    let key = open.house.agent_key.clone();
    let flood = open.house.another("flood").await;
    offered(&open.house, "slow", "opaque", GatedTestService::unclear()).await;
    let mut holds = Vec::new();
    for key in [&key, &key, &key, &flood] {
        holds.push(tell(&open.house, key, "slow").await.unwrap());
    }
    open.house.let_go().await;
    open.house.pass(Millis::from_secs(2));
    open.house.let_go().await;
    for hold in &holds {
        assert_eq!(state(&open.house, *hold).await.word(), "needs_human");
    }
    let (status, list) = said(&open, json!({"service": "slow", "agent": "clerk", "as": "done", "dry_run": true})).await;
    assert_eq!(
        (status, list["data"].as_array().unwrap().len(), list["dry_run"].clone()),
        (200, 3, json!(true)),
        "{list}"
    );
    assert_eq!(state(&open.house, holds[0]).await.word(), "needs_human", "a dry run settles nothing");
    let (status, _) = said(&open, json!({"service": "slow", "as": "done"})).await;
    assert_eq!(status, 422, "what was not listed is not settled");
    let seen = |index: usize| json!({"buffer_id": list["data"][index]["buffer_id"], "version": list["data"][index]["version"]});
    let old = json!({"buffer_id": list["data"][2]["buffer_id"], "version": 1});
    let body = json!({"service": "slow", "as": "done", "evidence": "seen there", "writes": [seen(0), old]});
    let (status, done) = said(&open, body).await;
    assert_eq!((status, done["data"].as_array().unwrap().len()), (200, 1), "{done}");
    assert_eq!(done["left"][0]["code"], "store.conflict");
    let body = json!({"service": "slow", "as": "retry", "writes": [seen(1)]});
    assert_eq!(said(&open, body).await.1["data"][0]["state"], "retrying");
    let body = json!({"service": "other", "as": "not_done", "writes": [seen(2)]});
    assert_eq!(said(&open, body).await.1["left"][0]["code"], "hold.not_found", "of this service alone");
    let body = json!({"service": "slow", "as": "not_done", "writes": [seen(2)]});
    assert_eq!(said(&open, body).await.1["data"][0]["state"], "dead");
    assert_eq!(state(&open.house, holds[3]).await.word(), "needs_human", "that of another agent");
    let record: Vec<String> = open.house.entries().await.iter().map(ToString::to_string).collect();
    let settled = record.iter().filter(|entry| entry.contains("operator:ana") && entry.contains("hold.")).count();
    assert!(settled >= 3, "each write has its own entry: {settled}");
}
