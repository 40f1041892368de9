//! Mail that leaves: once, whatever is lost on the way.

use serde_json::json;
use sluice_core::{Entropy as _, HoldId, Millis};
use sluice_testkit::depth::repetitions;
use sluice_testkit::ids::SeededEntropy;

use super::test_gateway::{GmailTestGateway, gmail};

#[tokio::test]
async fn a_read_asks_nothing_of_the_service_and_a_mail_reaches_it_once() {
    let mut house = GmailTestGateway::connected(60).await;
    let before = house.mailbox.calls();
    let found = house.read("email.search", json!({"query": "survey", "limit": 5})).await;
    assert_eq!(found["freshness"]["complete"], true, "{found}");
    let newest = house.newest(50).await;
    assert_eq!(newest.len(), 50);
    for id in &newest {
        drop(house.call("email.read", json!({"message_id": id})).await);
    }
    assert_eq!(house.mailbox.calls(), before, "reads ask nothing of the service");
    house.clear().await;

    let sent = house.mailbox.sent();
    let hold = house.send("Q3 figures").await;
    house.pass(Millis::from_secs(29)).await;
    assert_eq!((house.mailbox.sent(), house.state(hold).await), (sent, "held"), "it waits for its undo window");
    house.pass(Millis::from_secs(1)).await;
    assert_eq!((house.mailbox.sent(), house.state(hold).await), (sent + 1, "done"));
    assert_eq!(house.mailbox.calls_of("POST drafts/send"), 1);
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let found = house.read("email.search", json!({"query": "subject:\"Q3 figures\" label:SENT"})).await;
    assert_eq!(found["messages"].as_array().unwrap().len(), 1, "what was sent is in the copy: {found}");
}

#[tokio::test]
async fn an_answer_keeps_its_thread_and_a_forward_goes_on() {
    let mut house = GmailTestGateway::connected(20).await;
    let id = house.mailbox.receive("Roof survey", "When can you come?");
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let answer = house.place("email.reply", json!({"message_id": id, "body": "On Tuesday."})).await;
    let arguments = json!({"message_id": id, "to": "tom@alderfinch.example", "body": "For you."});
    let forward = house.place("email.forward", arguments).await;
    let draft =
        house.place("email.draft", json!({"to": "li@northpeak.example", "subject": "Later", "body": "…"})).await;
    house.pass(Millis::from_secs(30)).await;
    for hold in [answer, forward, draft] {
        assert_eq!(house.state(hold).await, "done");
    }
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let read = house.read("email.read", json!({"message_id": id})).await;
    let thread = read["message"]["thread_id"].clone();
    let found = house.read("email.search", json!({"query": "Tuesday label:SENT"})).await;
    assert_eq!(found["messages"][0]["thread_id"], thread, "{found}");
    assert_eq!(house.mailbox.owner(&json!({}))["drafts"], 1, "the one that a person is to finish");
}

#[tokio::test]
async fn a_held_mail_is_stopped_by_the_agent_that_wrote_it() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    let hold = house.send("Never mind").await;
    drop(house.call("email.cancel", json!({"buffer_id": hold})).await.unwrap());
    house.release_due().await;
    assert_eq!(house.state(hold).await, "cancelled");
    house.pass(Millis::from_mins(5)).await;
    assert_eq!(house.mailbox.sent(), sent);
}

#[tokio::test]
async fn a_message_a_person_deleted_meanwhile_ends_the_write_and_says_so() {
    let mut house = GmailTestGateway::connected(10).await;
    let id = house.mailbox.receive("Soon gone", "x");
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let delete = house.place("email.delete", json!({"message_id": id})).await;
    let answer = house.place("email.reply", json!({"message_id": id, "body": "Too late."})).await;
    house.mailbox.owner(&json!({"remove": [id]}));
    let sent = house.mailbox.sent();
    house.pass(Millis::from_secs(30)).await;
    assert_eq!((house.state(delete).await, house.state(answer).await), ("dead", "dead"));
    assert_eq!(house.mailbox.sent(), sent);
    assert_eq!(house.alerts().await.iter().filter(|topic| *topic == "hold.dead").count(), 2);
}

#[tokio::test]
async fn a_draft_a_person_deleted_is_a_persons_question_and_is_not_sent_anew() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    let hold = house.send("Half way").await;
    house.mailbox.fail("drafts/send", json!({"status": 503}));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "in_doubt");
    house.mailbox.owner(&json!({"remove_drafts": true}));
    for _ in 0..33 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("needs_human", sent));
    assert_eq!(house.mailbox.calls_of("POST drafts"), 1, "a second draft is never made");
}

#[tokio::test]
async fn an_outage_is_waited_out_and_then_ends_in_dead_letters() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    house.mailbox.fail("POST drafts", json!({"status": 503, "times": 3}));
    let lucky = house.send("Third time").await;
    house.pass(Millis::from_secs(30)).await;
    for minutes in [1, 2, 4] {
        assert_eq!(house.state(lucky).await, "ready");
        house.pass(Millis::from_mins(minutes)).await;
    }
    assert_eq!((house.state(lucky).await, house.mailbox.sent()), ("done", sent + 1));

    house.mailbox.fail("POST drafts", json!({"status": 503, "times": 6}));
    let unlucky = house.send("Never").await;
    house.pass(Millis::from_secs(30)).await;
    for minutes in [1, 2, 4, 8, 16] {
        assert_eq!(house.state(unlucky).await, "ready");
        house.pass(Millis::from_mins(minutes)).await;
    }
    assert_eq!((house.state(unlucky).await, house.mailbox.sent()), ("dead", sent + 1));
    assert_eq!(house.alerts().await.iter().filter(|topic| *topic == "hold.dead").count(), 1);
}

/// How many mails are sent under fire. Each takes two workers and more, a fifth of a second of processor time in a debug
/// build.
fn many() -> u64 {
    repetitions(60, 2_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_lost_on_the_way_each_mail_is_sent_exactly_once() {
    let mut house = GmailTestGateway::connected(5).await;
    let (many, before) = (many(), house.mailbox.sent());
    let dice = SeededEntropy::new(4_711);
    let roll = |sides: u64| {
        let mut bytes = [0; 8];
        dice.fill(&mut bytes);
        u64::from_le_bytes(bytes) % sides
    };
    let mut holds: Vec<HoldId> = Vec::new();
    let mut faults = 0;
    for n in 0..many {
        holds.push(house.send(&format!("Letter {n}")).await);
        // Lost replies most of all; then errors with and without effect, at both steps and while looking.
        let (kind, how) = match roll(10) {
            0..=2 => ("drafts/send", json!({"after": true})),
            3 => ("drafts/send", json!({"after": true, "status": 500})),
            4 => ("drafts/send", json!({"status": 500})),
            5 => ("POST drafts", json!({"after": true})),
            6 => ("GET drafts/one", json!({"status": 502})),
            7 => ("GET threads/one", json!({"after": true})),
            _ => continue,
        };
        faults += 1;
        house.mailbox.fail(kind, how);
    }
    for round in 0..400 {
        house.pass(if round < 40 { Millis::from_secs(10) } else { Millis::from_mins(1) }).await;
        let mut open = 0;
        for hold in &holds {
            open += usize::from(!matches!(house.state(*hold).await, "done"));
        }
        if open == 0 {
            break;
        }
    }
    for hold in &holds {
        assert_eq!(house.state(*hold).await, "done");
    }
    assert!(faults > many / 2, "{faults} faults are too few to prove anything");
    assert_eq!(house.mailbox.sent() - before, many, "each exactly once");
}
