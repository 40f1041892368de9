//! Notices: calls that needed no approval reach people as each of them chose.

use std::sync::{Arc, Mutex};

use serde_json::json;
use sluice_core::{BoxedFuture, Millis};
use sluice_gateway::Gateway;
use sluice_gateway::channels::{ApprovalMessage, Channel, ChannelError};
use sluice_gateway::loops::outbox::OutboxLoop;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A channel that keeps what it is told, or is dead.
#[derive(Debug, Default)]
struct RecordingTestChat {
    name: &'static str,
    said: Mutex<Vec<(String, String)>>,
    is_dead: Mutex<bool>,
}

impl Channel for RecordingTestChat {
    fn name(&self) -> &'static str {
        self.name
    }
    fn max_message_chars(&self) -> usize {
        4_000
    }
    fn show<'a>(&'a self, _: &'a ApprovalMessage) -> BoxedFuture<'a, Result<String, ChannelError>> {
        Box::pin(std::future::ready(Ok("1".into())))
    }
    fn edit<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn say<'a>(
        &'a self,
        place: &'a str,
        _: Option<&'a str>,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>> {
        if *self.is_dead.lock().unwrap() {
            return Box::pin(std::future::ready(Err(ChannelError::Later { after: None, why: "dead".into() })));
        }
        self.said.lock().unwrap().push((place.to_owned(), text.to_owned()));
        Box::pin(std::future::ready(Ok(())))
    }
    fn receive_answers<'a>(&'a self, _: &'a Gateway) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(std::future::pending())
    }
}

/// A house whose people are told, and their channels.
async fn told(people: &str) -> (TestGateway, Arc<RecordingTestChat>, Arc<RecordingTestChat>, OutboxLoop) {
    let config = format!("approvals:\n  people:\n{people}");
    let plan = TestGatewayPlan { config, org: "defaults: {tier: notify}\n".into(), ..TestGatewayPlan::default() };
    let (telegram, email) = ("telegram", "email");
    let chat = |name| Arc::new(RecordingTestChat { name, ..RecordingTestChat::default() });
    let (telegram, email) = (chat(telegram), chat(email));
    let outbox = OutboxLoop::new(vec![telegram.clone(), email.clone()]);
    (TestGateway::new(plan).await, telegram, email, outbox)
}

fn said(chat: &RecordingTestChat) -> Vec<(String, String)> {
    std::mem::take(&mut chat.said.lock().unwrap())
}

#[tokio::test]
async fn a_digest_says_who_did_what_to_whom_and_how_it_ended_and_comes_once() {
    let (mut house, chat, _, outbox) = told("    - {name: ana, telegram: 1001}\n").await;
    std::fs::write(house.work().join("a.txt"), "the CANARY itself").unwrap();
    house.call("filesystem.read", json!({"path": house.path("a.txt")})).await.unwrap();
    house.call("filesystem.read", json!({"path": house.path("a.txt")})).await.unwrap();
    house.call("filesystem.write", json!({"path": house.path("b.txt"), "content": "CANARY"})).await.unwrap();
    house.pass(Millis::from_mins(2));
    house.let_go().await;
    outbox.step(&house.gw).await.unwrap();
    assert_eq!(said(&chat), [], "not before its time");

    house.pass(Millis::from_hours(24));
    outbox.step(&house.gw).await.unwrap();
    let [(place, text)] = said(&chat).try_into().unwrap();
    assert_eq!(place, "1001");
    for part in
        ["3 calls", "clerk: filesystem.read, 2 times", "a.txt", "answered", "clerk: filesystem.write", "b.txt", "done"]
    {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(!text.contains("CANARY"), "{text}");
    outbox.step(&house.gw).await.unwrap();
    house.pass(Millis::from_hours(24));
    outbox.step(&house.gw).await.unwrap();
    assert_eq!(said(&chat), [], "told once, and nothing happened since");
}

#[tokio::test]
async fn each_person_is_told_as_they_chose_and_over_the_channel_they_chose() {
    let people = "    - {name: ana, telegram: 1001, email: ana@example.test, notices: each, notices_over: email}\n    \
                  - {name: bo, telegram: 1002}\n    - {name: eve, telegram: 1003, notices: off}\n";
    let (mut house, chat, mail, outbox) = told(people).await;
    house.call("filesystem.write", json!({"path": house.path("b.txt"), "content": "x"})).await.unwrap();
    outbox.step(&house.gw).await.unwrap();
    assert_eq!((said(&chat), said(&mail)), (vec![], vec![]), "the write is not over");
    house.pass(Millis::from_mins(2));
    house.let_go().await;
    outbox.step(&house.gw).await.unwrap();
    let [(place, text)] = said(&mail).try_into().unwrap();
    assert_eq!(place, "ana@example.test");
    assert!(text.contains("clerk: filesystem.write") && text.contains("b.txt") && text.contains("done"), "{text}");
    outbox.step(&house.gw).await.unwrap();
    assert_eq!((said(&chat), said(&mail)), (vec![], vec![]), "once");
    house.pass(Millis::from_hours(24));
    outbox.step(&house.gw).await.unwrap();
    let [(place, _)] = said(&chat).try_into().unwrap();
    assert_eq!((place.as_str(), said(&mail)), ("1002", vec![]));
}

#[tokio::test]
async fn a_notice_waits_for_a_dead_channel_and_is_not_called_delivered() {
    let (house, chat, _, outbox) = told("    - {name: ana, telegram: 1001}\n").await;
    house.call("state.persistent.list", json!({})).await.unwrap();
    house.pass(Millis::from_hours(24));
    *chat.is_dead.lock().unwrap() = true;
    outbox.step(&house.gw).await.unwrap();
    assert_eq!(house.gw.store.notices_before(house.gw.now(), 9).await.unwrap().len(), 1, "still waiting");
    *chat.is_dead.lock().unwrap() = false;
    house.pass(Millis::from_mins(2));
    outbox.step(&house.gw).await.unwrap();
    assert_eq!(said(&chat).len(), 1);
    assert!(house.gw.store.notices_before(house.gw.now(), 9).await.unwrap().is_empty());
}
