//! The whole way: asked by letter, answered by mail, decided once.

use std::time::Duration;

use sluice_core::Millis;
use sluice_gateway::channels::Channel as _;

use super::faults::InterruptibleRelay;
use super::mail_server::post;
use super::test_gateway::{RepliesTestGateway, RepliesTestPlan};

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_goes_out_and_its_signed_reply_decides() {
    for security in ["imap_security: tls", "imap_security: starttls", "imap_security: \"off\""] {
        let Some(post) = post() else { return };
        let mut house =
            RepliesTestGateway::new(post, RepliesTestPlan { email: security.into(), ..RepliesTestPlan::default() })
                .await;
        let letter = house.ask().await;
        let (local, domain) = house.replies.split_once('@').unwrap();
        let token = letter.reply_to.strip_prefix(&format!("{local}+")).unwrap().strip_suffix(&format!("@{domain}"));
        assert!(token.is_some_and(|token| token.len() == 32), "{}", letter.reply_to);
        assert!(!letter.message_id.contains(token.unwrap()), "whoever sees the conversation cannot answer with it");
        let quoted = letter.text.lines().map(|line| format!("> {line}\n")).collect::<String>();
        let quoted = quoted.replace("=\n> ", "").replace('=', "");
        house.send(&house.reply(&letter, &format!("1\n\nOn Tue, 17 Nov 2026, gate@example.test wrote:\n{quoted}")));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, "approved", "{security}: {:?}", house.refused().await);
        assert!(house.post.inbox(&house.replies).iter().all(|(seen, _)| *seen), "marked, and still there");
        house.show().await;
        let told = house.told();
        assert!(told.len() == 1 && told[0].contains("allowed once by ana"), "{told:?}");
        let facts = house.facts().await;
        let decided =
            facts.iter().find(|fact| fact["kind"].as_str().unwrap().contains("approved")).unwrap().to_string();
        assert!(decided.contains("email") && decided.contains("ana"), "{decided}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_while_nobody_looks_is_told_by_the_server_at_once() {
    let Some(post) = post() else { return };
    let relay = InterruptibleRelay::to(post.port("imap")).await;
    // The server would be asked after 25 minutes; the test does not take as long.
    let email = "imap_security: \"off\", imap_poll: 25m".into();
    let mut house =
        RepliesTestGateway::new(post, RepliesTestPlan { email, port: Some(relay.port), ..RepliesTestPlan::default() })
            .await;
    let letter = house.ask().await;
    let heard = async {
        // Told once, then looked at.
        house.email.receive_answers(&house.gw).await.unwrap();
        house.look().await;
    };
    let sent = async {
        relay.saw("IDLE\r\n").await;
        house.send(&house.reply(&letter, "3"));
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(heard, sent) }).await.unwrap();
    assert_eq!(house.state(letter.approval).await, "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_was_read_is_moved_where_the_operator_wants_it_and_never_deleted() {
    let Some(post) = post() else { return };
    let email = "imap_security: \"off\", imap_done_folder: Done".into();
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan { email, ..RepliesTestPlan::default() }).await;
    let letter = house.ask().await;
    house.send(&house.reply(&letter, "1"));
    house.put(b"From: stranger@evil.test\r\nTo: x@example.test\r\nSubject: buy\r\n\r\n1\r\n");
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "approved");
    assert!(house.post.inbox(&house.replies).is_empty());
    assert_eq!(house.post.done(&house.replies).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_nobody_takes_is_refused_once_and_one_put_off_is_tried_again() {
    for (name, state) in [("reject", "refused"), ("tempfail", "failed")] {
        let Some(post) = post() else { return };
        let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
        house.ask().await;
        let open = house.gw.store.open_approvals(10).await.unwrap();
        let place = format!("{name}@example.test");
        let letter = sluice_gateway::channels::ApprovalMessage {
            approval: open[0].id,
            place,
            title: "t".into(),
            text: "t".into(),
            buttons: Vec::new(),
            secret: "AAAAAAAAAAAAAAAAAAAAAA".into(),
            withheld: None,
            can_approve: true,
        };
        let fault = house.email.show(&letter).await.unwrap_err();
        let refused = matches!(fault, sluice_gateway::channels::ChannelError::Refused { .. });
        assert_eq!(refused, state == "refused", "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_is_told_what_was_decided_and_changes_nothing() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let (first, second) = (house.ask().await, house.ask().await);
    house.send(&house.reply(&first, "3"));
    house.look().await;
    house.send(&house.reply(&first, "1"));
    house.look().await;
    assert_eq!(house.state(first.approval).await, "denied");
    assert!(house.told().iter().any(|text| text.contains("already denied by ana")), "{:?}", house.told());
    house.clock.advance(Millis::from_hours(2));
    house.send(&house.reply(&second, "1"));
    house.look().await;
    assert_ne!(house.state(second.approval).await, "approved");
    assert!(house.told().iter().any(|text| text.contains("nobody answered in time")), "{:?}", house.told());
}
