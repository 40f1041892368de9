//! A gateway that dies between any two steps of telling somebody: the letter arrives, and counts once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::channels;
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::loops::outbox::OutboxLoop;

use crate::mail;
use crate::telegram::{ANA, PEOPLE, TelegramFixture};
use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// Goes on with a future until it has waited so often, then drops it, as a kill would. Whether it came to its end.
async fn cut_after<T>(waits: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Dies after so many waits while it tells somebody, comes back, and lets them answer. Whether it had died at all.
async fn dies_while_telling(waits: usize) -> bool {
    let mut world = TelegramFixture::new(&format!("{PEOPLE}  page: https://gate.example\n")).await;
    let id = world.ask("a").await;
    let ended = cut_after(waits, world.outbox.step(&world.house.gw)).await;
    world.house = world.house.restart(Millis::from_secs(61)).await;
    for _ in 0..4 {
        world.tell().await;
        world.house.pass(Millis::from_secs(61));
    }
    let letters: Vec<Value> = world.service.with(|kept| kept.messages.clone());
    assert!((1..=2).contains(&letters.len()), "after {waits}: {} letters", letters.len());
    // Whichever of them they find first, its button works, and the other one changes nothing.
    world.service.press(ANA, letters.first().unwrap(), "1");
    world.service.press(ANA, letters.last().unwrap(), "3");
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "approved", "after {waits}: {}", world.service.last_answer());
    for _ in 0..3 {
        world.tell().await;
    }
    let edited = world.service.with(|kept| kept.edits.len());
    assert_eq!(edited, letters.len(), "after {waits}: every letter that came shows the outcome");
    let record = world.house.record().await;
    let decided = record.iter().filter(|kind| *kind == "approval.approved" || *kind == "approval.denied").count();
    assert_eq!(decided, 1, "after {waits}");
    !ended
}

#[tokio::test]
async fn a_letter_survives_a_kill_between_any_two_steps_of_sending_it() {
    let mut kills = 0;
    while dies_while_telling(kills).await {
        kills += 1;
        assert!(kills < 200, "it never ends");
    }
    println!("killed at {kills} places");
    assert!(kills >= 6, "taking, writing down, linking, sending, noting and ending are steps of their own: {kills}");
}

#[tokio::test]
async fn an_outcome_survives_a_kill_while_it_is_shown() {
    for waits in 0..40 {
        let mut world = TelegramFixture::new(PEOPLE).await;
        let id = world.ask("a").await;
        world.tell().await;
        world.service.press(ANA, &world.service.letter(), "1");
        world.hear().await.unwrap();
        let ended = cut_after(waits, world.outbox.step(&world.house.gw)).await;
        world.house = world.house.restart(Millis::from_secs(61)).await;
        world.tell().await;
        assert!((1..=2).contains(&world.service.with(|kept| kept.edits.len())), "after {waits}");
        assert_eq!(world.state(&id).await, "approved");
        if ended {
            return;
        }
    }
    panic!("it never ends");
}

/// The same by mail: dies after so many waits while a letter goes out, and comes back.
async fn dies_while_mailing(waits: usize) -> bool {
    let (port, taken, _serves) = mail::server().await;
    let config = format!(
        "approvals:\n  people:\n    - {{name: ana, email: ana@example.test}}\n\
         email: {{smtp_host: 127.0.0.1, smtp_port: {port}, smtp_security: off, from: gate@example.test, reply_to: replies@example.test}}\n"
    );
    let agent = "rules:\n  - {capability: filesystem.write, tier: approval_required}\n".to_owned();
    let house = TestGateway::new(TestGatewayPlan { config, agent, ..TestGatewayPlan::default() }).await;
    let write = json!({"path": house.path("a"), "content": "x"});
    let Ok(CallOutcome::Awaiting { approval, .. }) = house.call("filesystem.write", write).await else { panic!() };
    let outbox = |house: &TestGateway| OutboxLoop::new(channels::configured(&house.gw.config).unwrap());
    let ended = cut_after(waits, outbox(&house).step(&house.gw)).await;
    let house = house.restart(Millis::from_secs(61)).await;
    for _ in 0..4 {
        outbox(&house).step(&house.gw).await.unwrap();
        house.pass(Millis::from_secs(61));
    }
    let letters = taken.lock().unwrap().clone();
    assert!((1..=2).contains(&letters.len()), "after {waits}: {} letters", letters.len());
    assert!(letters.iter().all(|letter| letter.replace("=\n", "").contains(&approval.to_string())), "after {waits}");
    let card = house.gw.store.approval(approval).await.unwrap().unwrap();
    assert!(card.approval.state.is_open(), "after {waits}: telling somebody decides nothing");
    !ended
}

#[tokio::test]
async fn a_letter_by_mail_survives_a_kill_between_any_two_steps_of_sending_it() {
    let mut kills = 0;
    while dies_while_mailing(kills).await {
        kills += 1;
        assert!(kills < 400, "it never ends");
    }
    assert!(kills >= 6, "connecting, greeting, sender, recipient, text and noting are steps of their own: {kills}");
}
