//! A service that misbehaves, people who are faster, and mail nobody should have sent.

use serde_json::json;
use sluice_core::{Millis, UtcMillis};

use super::test_gateway::{GmailTestGateway, ana, gmail};

#[tokio::test]
async fn a_storm_of_429_is_waited_out_for_as_long_as_the_service_asked() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    house.mailbox.fail("drafts/send", json!({"status": 429, "retry_after_s": 600, "times": 4}));
    let holds = [house.send("One").await, house.send("Two").await, house.send("Three").await];
    house.pass(Millis::from_secs(30)).await;
    let asked = house.mailbox.calls_of("POST drafts/send");
    assert!(asked <= 3, "{asked}");
    // Ten minutes were asked for: until they are over nothing is sent, whatever our own schedule says.
    for _ in 0..18 {
        house.pass(Millis::from_secs(30)).await;
    }
    assert_eq!((house.mailbox.calls_of("POST drafts/send"), house.mailbox.sent()), (asked, sent));
    // The copy is looked after all the while: its reads find out when the service listens again, not the writes.
    for _ in 0..60 {
        drop(house.gw.connections.sync_now(&gmail()).await);
        house.pass(Millis::from_mins(1)).await;
    }
    for hold in holds {
        let row = house.gw.store.hold(hold).await.unwrap().unwrap();
        assert_eq!(row.state.word(), "done", "{:?} after {} attempts", row.state, row.attempts);
    }
    assert_eq!(house.mailbox.sent(), sent + 3);
}

#[tokio::test]
async fn a_500_that_did_it_and_a_500_that_did_not_both_end_with_one_effect() {
    let mut house = GmailTestGateway::connected(20).await;
    let ids = house.newest(2).await;
    let sent = house.mailbox.sent();
    let mut holds = Vec::new();
    for (n, after) in [(0, true), (1, false)] {
        house.mailbox.fail("POST messages/trash", json!({"status": 500, "after": after}));
        holds.push(house.place("email.delete", json!({"message_id": ids[n]})).await);
        house.pass(Millis::from_secs(30)).await;
        house.mailbox.fail("POST drafts/send", json!({"status": 500, "after": after}));
        holds.push(house.send(&format!("Nr {n}")).await);
        house.pass(Millis::from_secs(30)).await;
    }
    for _ in 0..40 {
        house.pass(Millis::from_secs(30)).await;
    }
    for hold in holds {
        assert_eq!(house.state(hold).await, "done");
    }
    assert_eq!(house.mailbox.sent(), sent + 2);
    for id in ids {
        assert!(house.mailbox.labels(&id).to_string().contains("TRASH"));
    }
}

#[tokio::test]
async fn a_credential_taken_away_between_draft_and_send_leaves_one_draft_and_sends_it_later() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    let hold = house.send("Half way").await;
    house.mailbox.fail("drafts/send", json!({"status": 401}));
    house.pass(Millis::from_secs(30)).await;
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.state, house.state(hold).await, house.mailbox.sent()), ("needs_reauth", "ready", sent));
    house.sign_in().await;
    house.gw.connections.go_live(&gmail(), ana()).await.unwrap();
    for _ in 0..4 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 1));
    assert_eq!(house.mailbox.calls_of("POST drafts"), 1, "the draft of the first attempt is the one that is sent");
}

#[tokio::test]
async fn a_label_that_is_gone_ends_the_write_and_no_other_label_is_set() {
    let mut house = GmailTestGateway::connected(10).await;
    let id = house.newest(1).await.remove(0);
    house.mailbox.owner(&json!({"make_label": "Tenders"}));
    // A label that was made a moment ago is known after the next copy, whether or not a mail came.
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let before = house.mailbox.labels(&id);
    let hold = house.place("email.label", json!({"message_id": id, "add_labels": ["Tenders"]})).await;
    house.mailbox.owner(&json!({"drop_label": "Tenders"}));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!((house.state(hold).await, house.mailbox.labels(&id)), ("dead", before));
    assert_eq!(house.mailbox.calls_of("POST messages/modify"), 0);
}

#[tokio::test]
async fn a_message_of_25_megabytes_is_kept_with_its_head_and_says_so() {
    let house = GmailTestGateway::connected(5).await;
    let mut raw = b"From: Li <li@northpeak.example>\r\nSubject: All the plans\r\n\r\n".to_vec();
    raw.extend(b"0123456789abcde\n".repeat((25 << 20) / 16));
    let id = house.mailbox.receive_raw(&raw);
    let after = house.mailbox.receive("After it", "x");
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let read = house.read("email.read", json!({"message_id": id})).await;
    let message = &read["message"];
    assert_eq!(
        (&message["subject"], &message["cut"], &message["body"]),
        (&json!("All the plans"), &json!(true), &json!(""))
    );
    assert!(message["size"].as_u64().unwrap() >= 25 << 20, "{message}");
    house.read("email.read", json!({"message_id": after})).await;
    assert_eq!(house.gw.connections.show(&gmail()).await.unwrap().error, None);
}

#[tokio::test]
async fn broken_mail_does_not_stop_the_copy() {
    let house = GmailTestGateway::connected(5).await;
    let broken: [&[u8]; 8] = [
        b"Subject: no end of the head",
        b"\r\n\r\n\r\n",
        b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n--a\r\n--a",
        b"Content-Type: text/plain; charset=utf-99\r\nSubject: =?x?b?!!!?=\r\n\r\n\xff\xfe\x00\x01",
        b"Content-Transfer-Encoding: base64\r\nSubject: half a base\r\n\r\nSGVsbG8\r\n=====",
        b"From: \"a\" <<<>@>,,;\r\nTo: :;\r\nDate: yesterday\r\n\r\nx",
        b"Content-Type: message/rfc822\r\n\r\nContent-Type: message/rfc822\r\n\r\n",
        b"\x00\x00\x00\x00",
    ];
    let ids: Vec<String> = broken.iter().map(|raw| house.mailbox.receive_raw(raw)).collect();
    let synced = house.gw.connections.sync_now(&gmail()).await.unwrap();
    assert_eq!(synced.set_aside, 0);
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.messages, view.error), (Some(13), None));
    for id in ids {
        // Shown as far as it can be read, or withheld: never an error of ours.
        if let Err(no) = house.call("email.read", json!({"message_id": id})).await {
            assert_eq!(no.refusal.code().as_str(), "content.withheld");
        }
    }
}

#[tokio::test]
async fn a_recipient_that_is_none_is_refused_and_nothing_reaches_the_service() {
    let mut house = GmailTestGateway::connected(5).await;
    let (sent, drafts) = (house.mailbox.sent(), house.mailbox.calls_of("POST drafts"));
    for to in
        ["nobody", "a@", "@b.example", "a@b@c.example", "a@b.example x@y.example", "a@b.example\r\nBcc: x@y.example"]
    {
        match house.call("email.send", json!({"to": to, "subject": "s", "body": "b"})).await {
            Err(_) => {}
            Ok(_) => house.pass(Millis::from_secs(30)).await,
        }
    }
    house.pass(Millis::from_mins(1)).await;
    assert_eq!((house.mailbox.sent(), house.mailbox.calls_of("POST drafts")), (sent, drafts));
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!(view.pending, 0, "none of them waits for ever");
}

#[tokio::test]
async fn a_jump_of_the_clock_neither_sends_a_held_mail_early_nor_keeps_it() {
    let mut house = GmailTestGateway::connected(5).await;
    let sent = house.mailbox.sent();
    let hold = house.send("Wait for it").await;
    let now = 1_795_000_000_000;
    // Ahead by a day: by the wall its window closed long ago, by the machine's age it has not.
    house.clock.jump(UtcMillis::from_millis(now + 86_400_000));
    house.release_due().await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("held", sent));
    assert!(house.alerts().await.contains(&"gateway.clock".to_owned()));
    for _ in 0..6 {
        house.pass(Millis::from_secs(30)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 1));
    // Back by an hour: it waits for the wall as well, and leaves once.
    let hold = house.send("And back").await;
    house.clock.jump(UtcMillis::from_millis(now + 82_800_000));
    house.pass(Millis::from_secs(31)).await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("held", sent + 1));
    for _ in 0..130 {
        house.pass(Millis::from_secs(30)).await;
    }
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 2));
}
