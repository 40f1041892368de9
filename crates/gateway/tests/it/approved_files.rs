//! What a person approves about files is what they were shown: the bytes that are read, and what is replaced.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::approval::ApprovalAnswer as Yes;
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{ApprovalId, HoldId};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::gate::deciding::{self, ApprovalRequest, DecisionSource};
use sluice_gateway::gate::rendering;
use sluice_store::ApprovalRuling;

use crate::test_gateway::{TestGateway, TestGatewayPlan, ana};

const ORG: &str = "defaults: {tier: autonomous}
overrides:
  - {capability: \"filesystem.*\", tier: approval_required}
";

/// One way to change files after the question.
struct FileChangeCase {
    name: &'static str,
    capability: &'static str,
    arguments: fn(&TestGateway) -> Value,
    /// What happens while the person looks.
    change: fn(&Path),
    /// Whether the write happened.
    happened: fn(&Path) -> bool,
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

const CASES: [FileChangeCase; 10] = [
    FileChangeCase {
        name: "the source of a copy",
        capability: "filesystem.copy",
        arguments: |house| json!({"source": house.path("a.txt"), "destination": house.path("new.txt")}),
        change: |work| fs::write(work.join("a.txt"), "published secrets").unwrap(),
        happened: |work| work.join("new.txt").exists(),
    },
    FileChangeCase {
        name: "the destination of a copy",
        capability: "filesystem.copy",
        arguments: |house| json!({"source": house.path("a.txt"), "destination": house.path("b.txt"), "overwrite": true}),
        change: |work| fs::write(work.join("b.txt"), "work of a person").unwrap(),
        happened: |work| read(work.join("b.txt")) == "first",
    },
    FileChangeCase {
        name: "the source of a move",
        capability: "filesystem.move",
        arguments: |house| json!({"source": house.path("a.txt"), "destination": house.path("new.txt")}),
        change: |work| fs::write(work.join("a.txt"), "published secrets").unwrap(),
        happened: |work| work.join("new.txt").exists(),
    },
    FileChangeCase {
        name: "the destination of a move",
        capability: "filesystem.move",
        arguments: |house| json!({"source": house.path("a.txt"), "destination": house.path("b.txt"), "overwrite": true}),
        change: |work| fs::write(work.join("b.txt"), "work of a person").unwrap(),
        happened: |work| !work.join("a.txt").exists(),
    },
    FileChangeCase {
        name: "a file that is written",
        capability: "filesystem.write",
        arguments: |house| json!({"path": house.path("b.txt"), "content": "written"}),
        change: |work| fs::write(work.join("b.txt"), "work of a person").unwrap(),
        happened: |work| read(work.join("b.txt")) == "written",
    },
    FileChangeCase {
        name: "a file that is new",
        capability: "filesystem.write",
        arguments: |house| json!({"path": house.path("new.txt"), "content": "written"}),
        change: |work| fs::write(work.join("new.txt"), "work of a person").unwrap(),
        happened: |work| read(work.join("new.txt")) == "written",
    },
    FileChangeCase {
        name: "a file that is added to",
        capability: "filesystem.append",
        arguments: |house| json!({"path": house.path("b.txt"), "content": " added"}),
        change: |work| fs::write(work.join("b.txt"), "work of a person").unwrap(),
        happened: |work| read(work.join("b.txt")).ends_with(" added"),
    },
    FileChangeCase {
        name: "a file that is edited",
        capability: "filesystem.edit",
        arguments: |house| json!({"path": house.path("b.txt"), "pattern": "second", "replace": "third"}),
        change: |work| fs::write(work.join("b.txt"), "rm -rf second").unwrap(),
        happened: |work| read(work.join("b.txt")).contains("third"),
    },
    FileChangeCase {
        name: "one more file below an edited folder",
        capability: "filesystem.edit",
        arguments: |house| json!({"path": house.work().display().to_string(), "pattern": "second", "replace": "third", "replace_all": true}),
        change: |work| fs::write(work.join("c.txt"), "another second").unwrap(),
        happened: |work| read(work.join("b.txt")).contains("third") || read(work.join("c.txt")).contains("third"),
    },
    FileChangeCase {
        name: "a file that is deleted",
        capability: "filesystem.delete",
        arguments: |house| json!({"path": house.path("b.txt")}),
        change: |work| fs::write(work.join("b.txt"), "work of a person").unwrap(),
        happened: |work| !work.join("b.txt").exists(),
    },
];

async fn house() -> TestGateway {
    let house = TestGateway::new(TestGatewayPlan {
        org: ORG.into(),
        config: "batch: {services: {filesystem: off}}\n".into(),
        ..TestGatewayPlan::default()
    })
    .await;
    fs::write(house.work().join("a.txt"), "first").unwrap();
    fs::write(house.work().join("b.txt"), "second").unwrap();
    house
}

async fn asked(house: &TestGateway, capability: &str, arguments: Value) -> (HoldId, ApprovalId) {
    match house.call(capability, arguments).await.unwrap() {
        CallOutcome::Awaiting { hold, approval, .. } => (hold, approval),
        other => panic!("{capability} was not asked about: {other:?}"),
    }
}

async fn approve(house: &TestGateway, approval: ApprovalId) {
    let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
    let voice = DecisionSource { by: ana(), channel: "test", ceiling: None };
    let ruling = ApprovalRuling::Allow { answer: Yes::Once, note: None };
    deciding::rule(&house.gw, &voice, &question, ruling).await.unwrap();
}

async fn hold(house: &TestGateway, id: HoldId) -> Hold {
    house.gw.store.hold(id).await.unwrap().unwrap()
}

/// The question a write waits for.
fn waits_for(hold: &Hold) -> ApprovalId {
    match hold.state {
        sluice_core::hold::HoldState::AwaitingApproval { approval } => approval,
        ref other => panic!("{} instead of waiting", other.word()),
    }
}

async fn standing(house: &TestGateway, approval: ApprovalId) -> &'static str {
    house.gw.store.approval(approval).await.unwrap().unwrap().approval.state.word()
}

#[tokio::test]
async fn whatever_changes_between_question_and_execution_ends_the_approval_and_is_asked_about_again() {
    for case in &CASES {
        let FileChangeCase { name, capability, arguments, change, happened } = case;
        let mut house = house().await;
        let (id, first) = asked(&house, capability, arguments(&house)).await;
        approve(&house, first).await;
        let before = hold(&house, id).await.action;
        change(&house.work());
        house.let_go().await;
        assert!(!happened(&house.work()), "{name}: carried out in a state nobody was shown");
        let now = hold(&house, id).await;
        let second = waits_for(&now);
        assert_ne!(first, second, "{name}");
        assert_eq!([standing(&house, first).await, standing(&house, second).await], ["revoked", "pending"], "{name}");
        assert!(now.action.found() != before.found() && now.action.digest() != before.digest(), "{name}");
        assert_eq!(now.action.arguments(), before.arguments(), "{name}");
        approve(&house, second).await;
        house.let_go().await;
        assert!(happened(&house.work()), "{name}: {}", hold(&house, id).await.state.word());
        assert_eq!(hold(&house, id).await.state.word(), "done", "{name}");
    }
}

#[tokio::test]
async fn what_did_not_change_is_carried_out_with_one_approval() {
    for case in &CASES {
        let mut house = house().await;
        let (id, approval) = asked(&house, case.capability, (case.arguments)(&house)).await;
        approve(&house, approval).await;
        house.let_go().await;
        assert_eq!(hold(&house, id).await.state.word(), "done", "{}", case.name);
        assert!((case.happened)(&house.work()), "{}", case.name);
        assert_eq!(standing(&house, approval).await, "consumed", "{}", case.name);
    }
}

#[tokio::test]
async fn a_change_and_back_again_is_no_change() {
    let mut house = house().await;
    let (id, approval) = asked(&house, "filesystem.copy", (CASES[0].arguments)(&house)).await;
    approve(&house, approval).await;
    fs::write(house.work().join("a.txt"), "something else").unwrap();
    fs::write(house.work().join("a.txt"), "first").unwrap();
    house.let_go().await;
    assert_eq!(hold(&house, id).await.state.word(), "done");
    assert_eq!(read(house.work().join("new.txt")), "first");
}

#[tokio::test]
async fn a_deletion_that_was_tampered_with_is_not_brought_back_unseen() {
    let mut house = house().await;
    let (deleted, approval) = asked(&house, "filesystem.delete", json!({"path": house.path("b.txt")})).await;
    approve(&house, approval).await;
    house.let_go().await;
    assert!(!house.work().join("b.txt").exists());
    let (id, approval) = asked(&house, "filesystem.restore", json!({"path": house.path("b.txt")})).await;
    approve(&house, approval).await;
    fs::write(house.work().join(format!(".sluice-trash/{deleted}/b.txt")), "something else").unwrap();
    house.let_go().await;
    assert!(!house.work().join("b.txt").exists());
    approve(&house, waits_for(&hold(&house, id).await)).await;
    house.let_go().await;
    assert_eq!(read(house.work().join("b.txt")), "something else");
}

#[tokio::test]
async fn a_source_that_is_gone_is_refused_and_nothing_is_done() {
    let mut house = house().await;
    let (id, approval) = asked(&house, "filesystem.copy", (CASES[0].arguments)(&house)).await;
    approve(&house, approval).await;
    fs::remove_file(house.work().join("a.txt")).unwrap();
    house.let_go().await;
    assert_eq!(hold(&house, id).await.state.word(), "dead");
    assert!(!house.work().join("new.txt").exists());
}

#[tokio::test]
async fn people_see_hash_size_and_the_beginning_of_what_is_copied_and_the_difference_of_an_edit() {
    let house = house().await;
    let card = async |approval| {
        let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
        rendering::of(&house.gw, &question, rendering::PAGE).text
    };
    let (_, approval) = asked(&house, "filesystem.copy", (CASES[1].arguments)(&house)).await;
    let text = card(approval).await;
    let hash = |content: &str| sluice_core::hex::encode(&Sha256::digest(content));
    for part in ["5 bytes", "6 bytes", &hash("first"), &hash("second"), "all of it: first"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let (_, approval) = asked(&house, "filesystem.edit", (CASES[7].arguments)(&house)).await;
    let text = card(approval).await;
    for part in ["-second", "+third", &hash("third")] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[tokio::test]
async fn a_repeated_call_is_a_duplicate_though_the_file_changed_in_between() {
    let plan =
        TestGatewayPlan { config: "batch: {services: {filesystem: off}}\n".into(), ..TestGatewayPlan::default() };
    let mut house = TestGateway::new(plan).await;
    let append = json!({"path": house.path("log.txt"), "content": "one\n"});
    assert!(matches!(house.call("filesystem.append", append.clone()).await.unwrap(), CallOutcome::Held { .. }));
    house.let_go().await;
    let again = house.call("filesystem.append", append.clone()).await.unwrap_err();
    assert_eq!(again.refusal.code(), Code::CallPossibleDuplicate);
    let named = json!({"capability": "filesystem.append", "arguments": append, "wait_ms": 0, "idempotency_key": "k1"});
    house.wish(named.clone()).await.unwrap();
    house.let_go().await;
    house.wish(named).await.unwrap();
    house.let_go().await;
    assert_eq!(read(house.work().join("log.txt")), "one\none\n");
}

#[tokio::test]
async fn what_nobody_had_to_approve_goes_on_as_before() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    fs::write(house.work().join("a.txt"), "first").unwrap();
    let CallOutcome::Held { hold: id, .. } = house.call("filesystem.copy", (CASES[0].arguments)(&house)).await.unwrap()
    else {
        panic!("an autonomous copy is held");
    };
    fs::write(house.work().join("a.txt"), "other").unwrap();
    house.let_go().await;
    assert_eq!(hold(&house, id).await.state.word(), "done");
    assert_eq!(read(house.work().join("new.txt")), "other");
}
