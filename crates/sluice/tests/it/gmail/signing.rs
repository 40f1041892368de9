//! Signing in, and everything that ends it.

use serde_json::json;
use sluice_core::Millis;
use sluice_core::connection::ConnectionStep;
use sluice_core::ids::MessageId;
use sluice_services::connections::ServiceConnections;
use sluice_store::MoveConnection;

use super::test_gateway::{GmailTestGateway, ana, gmail};

#[tokio::test]
async fn a_permission_taken_back_stops_all_work_tells_people_once_and_is_not_asked_again() {
    let mut house = GmailTestGateway::connected(20).await;
    let sent = house.mailbox.sent();
    let hold = house.send("On its way").await;
    house.mailbox.owner(&json!({"revoke": true}));
    house.pass(Millis::from_secs(30)).await;
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.state, house.state(hold).await), ("needs_reauth", "ready"));
    let calls = house.mailbox.calls();
    for _ in 0..40 {
        house.pass(Millis::from_mins(1)).await;
        drop(house.gw.connections.sync_now(&gmail()).await);
    }
    assert_eq!(house.mailbox.calls(), calls, "the service is left alone");
    assert_eq!(house.alerts().await, ["connection.needs_reauth"]);
    assert_eq!(house.state(hold).await, "ready", "the write waits and is not buried");
    let no = house.call("email.send", json!({"to": "a@b.example", "subject": "x", "body": "y"})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "service.stopped", "nobody froze it");
    assert_eq!(house.newest(5).await.len(), 5, "the copy goes on answering");

    house.sign_in().await;
    house.gw.connections.go_live(&gmail(), ana()).await.unwrap();
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    house.pass(Millis::from_mins(1)).await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 1));
    assert_eq!(house.gw.connections.show(&gmail()).await.unwrap().state, "live");
}

#[tokio::test]
async fn what_is_ended_leaves_no_copy_no_secret_and_no_held_write() {
    let mut house = GmailTestGateway::connected(30).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Never").await);
    let folder = house.folder.path().join("data/replicas/gmail");
    assert!(folder.exists());
    let receipt = house.gw.connections.disconnect(&gmail(), ana()).await.unwrap();
    assert_eq!((receipt.cancelled.as_slice(), receipt.messages), ([hold].as_slice(), 30));
    // The key of an encrypted copy goes with it.
    let secrets = ["service/gmail/access", "service/gmail/copy"];
    assert_eq!(receipt.secrets, if receipt.encrypted { &secrets[..] } else { &secrets[..1] });
    assert!(receipt.capabilities.iter().any(|name| name.as_str() == "email.send"));
    assert!(!folder.exists(), "the copy is deleted");
    let secret = ServiceConnections::access_secret(&gmail()).unwrap();
    assert!(house.gw.vault.show(&secret).await.unwrap().revoked.is_some());
    house.pass(Millis::from_mins(5)).await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("cancelled", sent));
    let no = house.call("email.list", json!({})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "gateway.unsupported");
    assert!(house.gw.connections.disconnect(&gmail(), ana()).await.is_err(), "once is enough");
    // Something of it could not be deleted: it is ended again.
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("copy-1.db"), "half").unwrap();
    let rest = house.gw.connections.disconnect(&gmail(), ana()).await.unwrap();
    assert!(rest.cancelled.is_empty() && !folder.exists());
    assert!(house.gw.connections.disconnect(&gmail(), ana()).await.is_err(), "now nothing is left");

    house.connect().await;
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    assert_eq!(house.newest(5).await.len(), 5, "and can be connected anew");
}

#[tokio::test]
async fn a_pause_holds_writes_and_copies_until_a_person_lets_go() {
    let mut house = GmailTestGateway::connected(10).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Wait").await);
    house.gw.connections.pause(&gmail(), ana()).await.unwrap();
    let calls = house.mailbox.calls();
    house.pass(Millis::from_mins(5)).await;
    assert!(house.gw.connections.sync_now(&gmail()).await.is_err());
    assert_eq!((house.mailbox.calls(), house.state(hold).await), (calls, "held"));
    house.gw.connections.resume(&gmail(), ana()).await.unwrap();
    house.pass(Millis::from_secs(1)).await;
    assert_eq!((house.mailbox.sent(), house.state(hold).await), (sent + 1, "done"));
    let tested = house.gw.connections.test(&gmail()).await.unwrap();
    assert!(tested.works && tested.account.as_deref() == Some("office@alderfinch.example"));
}

#[tokio::test]
async fn an_ending_that_the_gateway_died_in_is_finished_when_it_comes_back() {
    let house = GmailTestGateway::connected(10).await;
    let hold = house.send("Never").await;
    let end = MoveConnection {
        name: gmail(),
        step: ConnectionStep::End,
        reason: None,
        account: None,
        by: ana(),
        message: MessageId::from_bits(7),
    };
    house.gw.store.move_connection(end).await.unwrap();
    let folder = house.folder.path().join("data/replicas/gmail");
    assert!(folder.exists(), "it died before the copy was gone");
    let house = house.restart().await;
    assert!(!folder.exists());
    assert_eq!(house.state(hold).await, "cancelled");
    let secret = ServiceConnections::access_secret(&gmail()).unwrap();
    assert!(house.gw.vault.show(&secret).await.unwrap().revoked.is_some());
}

#[tokio::test]
async fn a_doubt_waits_while_the_service_may_not_be_asked() {
    let mut house = GmailTestGateway::connected(5).await;
    let (sent, hold) = (house.mailbox.sent(), house.send("Half way").await);
    house.mailbox.fail("drafts/send", json!({"status": 503}));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "in_doubt");
    house.gw.connections.pause(&gmail(), ana()).await.unwrap();
    for _ in 0..60 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!(house.state(hold).await, "in_doubt", "nobody looked, so no look was used up");
    house.gw.connections.resume(&gmail(), ana()).await.unwrap();
    for _ in 0..30 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 1));
}

#[tokio::test]
async fn a_mailbox_in_which_people_are_asked_is_not_connected() {
    let asking = "email: {smtp_host: 127.0.0.1, smtp_security: \"off\", from: gate@alderfinch.example}\n\
                  approvals: {people: [{name: ana, email: office@alderfinch.example}]}\n";
    let house = GmailTestGateway::connected(10).await;
    assert_eq!(house.newest(5).await.len(), 5);
    let to_us = json!({"to": "Gate <gate+0a0b@alderfinch.example>", "subject": "x", "body": "1"});
    house.place("email.draft", to_us.clone()).await;

    house.set(asking);
    let house = house.restart().await;
    let no = house.call("email.list", json!({})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "gateway.unsupported", "people are asked there now: {no:?}");
    house.sign_in().await;
    let no = house.gw.connections.go_live(&gmail(), ana()).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "store.conflict");
    assert!(no.refusal.text().contains("office@alderfinch.example"), "{}", no.refusal.text());

    house.set(&asking.replace("email: office@", "email: ana@"));
    let house = house.restart().await;
    assert_eq!(house.newest(5).await.len(), 5, "they are asked elsewhere, and the mailbox is there again");
    let no = house.call("email.draft", to_us).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "policy.blocked", "nobody but people write there");
}
