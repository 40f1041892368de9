//! Brakes: what stops is never held up, and what was stopped does not start by itself.

use base64::Engine as _;
use serde_json::json;
use sluice_core::{Millis, ServiceName};
use sluice_gateway::corridor::CallOutcome;
use sluice_store::FreezeTarget;

use super::test_gateway::{GmailTestGateway, ana, gmail};

fn email() -> FreezeTarget {
    FreezeTarget::Service(ServiceName::new("email").unwrap())
}

#[tokio::test]
async fn a_cancel_is_carried_out_at_once_whatever_stands_still() {
    let house = GmailTestGateway::connected(5).await;
    let rules = "rules:\n  - {capability: email.send, tier: autonomous}\n";
    house.rule("defaults: {tier: approval_required}\n", rules);
    house.set("holds: {delays: {email.cancel: 1h}}\n");
    let house = house.restart().await;
    let hold = house.send("Never mind").await;
    house.gw.store.freeze(email(), ana(), "stop".into()).await.unwrap();
    let answer = house.call("email.cancel", json!({"buffer_id": hold})).await.unwrap();
    assert!(matches!(&answer, CallOutcome::Done { result, .. } if result["status"] == "cancelled"), "{answer:?}");
    assert_eq!(house.state(hold).await, "cancelled");
    let late = house.call("email.cancel", json!({"buffer_id": hold})).await.unwrap_err();
    assert_eq!(late.refusal.code().as_str(), "hold.too_late");
    let none = house.call("email.cancel", json!({"buffer_id": "buf_00000000000000000000000000000001"})).await;
    assert_eq!(none.unwrap_err().refusal.code().as_str(), "hold.not_found");
}

#[tokio::test]
async fn a_freeze_outlives_a_pause_and_agents_are_told_who_stopped_them() {
    let mut house = GmailTestGateway::connected(5).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Wait").await);
    house.gw.connections.pause(&gmail(), ana()).await.unwrap();
    let no = house.call("email.send", json!({"to": "a@b.example", "body": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "service.stopped");
    assert!(no.refusal.to_string().contains("`gmail`"), "{}", no.refusal);
    house.gw.store.freeze(email(), ana(), "stop".into()).await.unwrap();
    house.gw.connections.resume(&gmail(), ana()).await.unwrap();
    house.pass(Millis::from_mins(1)).await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("held", sent), "a person froze it");
    let no = house.call("email.send", json!({"to": "a@b.example", "body": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "freeze.active");
}

#[tokio::test]
async fn a_mail_on_its_way_at_the_end_of_its_connection_does_not_leave_through_the_next() {
    let mut house = GmailTestGateway::connected(5).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Between two connections").await);
    house.mailbox.fail("drafts/send", json!({"status": 503}));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "in_doubt");
    let receipt = house.gw.connections.disconnect(&gmail(), ana()).await.unwrap();
    assert_eq!((receipt.cancelled.len(), receipt.on_their_way.as_slice()), (0, [hold].as_slice()));
    house.connect().await;
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    for _ in 0..30 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("cancelled", sent));
}

#[tokio::test]
async fn a_draft_somebody_changed_while_a_retry_waits_is_not_sent_as_the_approved_mail() {
    let mut house = GmailTestGateway::connected(5).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Invoice").await);
    house.mailbox.fail("drafts/send", json!({"status": 429}));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "ready", "it is tried again");
    let raw = b"From: office@alderfinch.example\r\nTo: mallory@elsewhere.example\r\nSubject: Invoice\r\n\r\nPay me.";
    let raw = base64::engine::general_purpose::URL_SAFE.encode(raw);
    house.mailbox.owner(&json!({"edit_drafts": raw}));
    for _ in 0..40 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("needs_human", sent));
    assert_eq!(house.mailbox.calls_of("POST drafts/send"), 1, "it was not asked for again");
}
