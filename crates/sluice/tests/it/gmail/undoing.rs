//! Taking back: exactly what was done, and never over what a person did since.

use serde_json::json;
use sluice_core::{HoldId, Millis};
use sluice_gateway::rooms::rollback;

use super::test_gateway::{GmailTestGateway, ana, gmail};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_deletes_are_taken_back_but_for_the_three_a_person_changed_since() {
    let mut house = GmailTestGateway::connected(80).await;
    let ids = house.newest(50).await;
    let labels: Vec<_> = ids.iter().map(|id| house.mailbox.labels(id)).collect();
    let mut holds: Vec<HoldId> = Vec::new();
    for id in &ids {
        holds.push(house.place("email.delete", json!({"message_id": id})).await);
    }
    house.pass(Millis::from_secs(30)).await;
    house.pass(Millis::from_secs(1)).await;
    for (hold, id) in holds.iter().zip(&ids) {
        assert_eq!(house.state(*hold).await, "done");
        assert!(house.mailbox.labels(id).to_string().contains("TRASH"));
    }
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let left = house.newest(50).await;
    assert!(ids.iter().all(|id| !left.contains(id)), "the copy does not list what is in the trash");

    // The owner took three of them out of the trash again, and only opened or starred others.
    let changed = [&ids[3], &ids[17], &ids[42]];
    let (opened, starred) = (&ids[5], &ids[6]);
    house.mailbox.owner(&json!({"relabel": {"ids": changed, "add": ["INBOX", "STARRED"], "remove": ["TRASH"]}}));
    house.mailbox.owner(&json!({"relabel": {"ids": [opened], "add": [], "remove": ["UNREAD"]}}));
    house.mailbox.owner(&json!({"relabel": {"ids": [starred], "add": ["STARRED"], "remove": []}}));
    let mut done = Vec::new();
    for hold in &holds {
        done.push(house.gw.store.hold(*hold).await.unwrap().unwrap());
    }
    let (steps, made) = rollback::take_all_back(&house.gw, &only(&done), &ana()).await.unwrap();
    let refused: Vec<_> = steps.iter().filter(|step| !step.possible).collect();
    assert_eq!((made.len(), refused.len()), (47, 3));
    assert!(refused.iter().all(|step| step.code == Some("rollback.conflict")), "{refused:?}");
    house.pass(Millis::from_secs(5)).await;
    house.pass(Millis::from_secs(1)).await;
    for hold in &made {
        assert_eq!(house.state(*hold).await, "done");
    }
    for (id, before) in ids.iter().zip(&labels) {
        let now = house.mailbox.labels(id);
        if changed.contains(&id) {
            assert!(!now.to_string().contains("TRASH") && now.to_string().contains("STARRED"), "{now}");
        } else if id == opened || id == starred {
            let has = |label: &str| now.to_string().contains(label);
            assert!(has("INBOX") && !has("TRASH"), "what the delete moved is back: {now}");
            assert!(!(id == opened && has("UNREAD")) && (id != starred || has("STARRED")), "and the rest stays: {now}");
        } else {
            assert_eq!(now, *before, "exactly the labels it had");
        }
    }
}

#[tokio::test]
async fn labels_go_back_a_draft_goes_away_and_a_sent_mail_says_that_it_cannot() {
    let mut house = GmailTestGateway::connected(20).await;
    let id = house.newest(1).await.remove(0);
    let before = house.mailbox.labels(&id);
    let label = house.place("email.label", json!({"message_id": id, "add_labels": ["Starred"]})).await;
    let draft = house.place("email.draft", json!({"to": "a@b.example", "subject": "x", "body": "y"})).await;
    let sent = house.send("Gone for good").await;
    house.pass(Millis::from_secs(30)).await;
    assert_ne!(house.mailbox.labels(&id), before);
    let mut done = Vec::new();
    for hold in [label, draft, sent] {
        assert_eq!(house.state(hold).await, "done");
        done.push(house.gw.store.hold(hold).await.unwrap().unwrap());
    }
    let (steps, made) = rollback::take_all_back(&house.gw, &only(&done), &ana()).await.unwrap();
    assert_eq!(made.len(), 2);
    let refused: Vec<_> = steps.iter().filter(|step| !step.possible).collect();
    assert_eq!((refused[0].buffer_id, refused[0].code), (sent, Some("rollback.irreversible")));
    house.pass(Millis::from_secs(5)).await;
    assert_eq!(house.mailbox.labels(&id), before);
    assert_eq!(house.mailbox.owner(&json!({}))["drafts"], 0);
}

/// What a call gave.
async fn result(house: &GmailTestGateway, hold: HoldId) -> serde_json::Value {
    serde_json::from_str(&house.gw.store.hold_result(hold).await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn one_delete_of_fifty_is_taken_back_message_by_message() {
    let mut house = GmailTestGateway::connected(80).await;
    let ids = house.newest(50).await;
    let labels: Vec<_> = ids.iter().map(|id| house.mailbox.labels(id)).collect();
    let bulk = house.place("email.bulk_delete", json!({"message_ids": ids})).await;
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(bulk).await, "done");
    let (starred, gone) = ([&ids[3], &ids[17]], &ids[42]);
    let moved = json!({"ids": starred, "add": ["INBOX", "STARRED"], "remove": ["TRASH"]});
    house.mailbox.owner(&json!({"relabel": moved, "remove": [gone]}));
    let done = house.gw.store.hold(bulk).await.unwrap().unwrap();
    let back = rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    house.pass(Millis::from_secs(5)).await;
    assert_eq!(house.state(back).await, "done");
    let told = result(&house, back).await;
    assert_eq!((told["restored"].as_array().unwrap().len(), told["refused"].as_array().unwrap().len()), (49, 1));
    for (id, before) in ids.iter().zip(&labels) {
        let (mut now, refused) = (house.mailbox.labels(id), told["refused"].as_array().unwrap().contains(&json!(id)));
        assert_eq!(refused, gone == id);
        if starred.contains(&id) {
            let labels = now.as_array_mut().unwrap();
            assert!(labels.contains(&json!("STARRED")), "what the owner did since stays: {labels:?}");
            labels.retain(|label| label != "STARRED");
        }
        if !refused {
            assert_eq!(now, *before, "exactly the labels it had");
        }
    }
}

#[tokio::test]
async fn a_delete_of_several_that_broke_off_says_what_it_did_and_can_be_taken_back() {
    let mut house = GmailTestGateway::connected(30).await;
    let ids = house.newest(5).await;
    let labels: Vec<_> = ids.iter().map(|id| house.mailbox.labels(id)).collect();
    house.mailbox.fail("messages/trash", json!({"status": 503, "skip": 2, "times": 1}));
    let bulk = house.place("email.bulk_delete", json!({"message_ids": ids})).await;
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(bulk).await, "in_doubt");
    for _ in 0..3 {
        house.pass(Millis::from_mins(1)).await;
    }
    assert_eq!(house.state(bulk).await, "done", "in part");
    let told = result(&house, bulk).await;
    assert_eq!((&told["in_part"], told["left"].as_array().unwrap().len()), (&json!(true), 3));
    let done = house.gw.store.hold(bulk).await.unwrap().unwrap();
    let back = rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    house.pass(Millis::from_secs(5)).await;
    assert_eq!(house.state(back).await, "done");
    for (id, before) in ids.iter().zip(&labels) {
        assert_eq!(house.mailbox.labels(id), *before);
    }
}

/// Held writes and nothing else.
fn only(holds: &[sluice_core::hold::Hold]) -> rollback::RollbackSelection {
    rollback::RollbackSelection { holds: holds.to_vec(), ..rollback::RollbackSelection::default() }
}

#[tokio::test]
async fn what_was_changed_since_is_taken_back_only_by_a_person_who_saw_the_difference() {
    let mut house = GmailTestGateway::connected(20).await;
    let id = house.newest(1).await.remove(0);
    let before = house.mailbox.labels(&id);
    let delete = house.place("email.delete", json!({"message_id": id})).await;
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(delete).await, "done");
    // The owner moved it to the spam folder meanwhile.
    house.mailbox.owner(&json!({"relabel": {"ids": [id], "add": ["SPAM"], "remove": ["TRASH"]}}));
    let done = [house.gw.store.hold(delete).await.unwrap().unwrap()];
    let plan = rollback::plan(&house.gw, &done).await.unwrap();
    assert_eq!((plan[0].possible, plan[0].code, plan[0].can_be_forced), (false, Some("rollback.conflict"), true));
    assert!(plan[0].difference[0].contains("SPAM") && plan[0].difference[0].contains("INBOX"), "{plan:?}");
    assert!(rollback::take_all_back(&house.gw, &only(&done), &ana()).await.unwrap().1.is_empty());
    let chosen = rollback::RollbackSelection { force: true, ..only(&done) };
    let (steps, made) = rollback::take_all_back(&house.gw, &chosen, &ana()).await.unwrap();
    assert!(steps[0].possible && made.len() == 1, "{steps:?}");
    house.pass(Millis::from_secs(5)).await;
    assert_eq!(house.state(made[0]).await, "done");
    assert_eq!(house.mailbox.labels(&id), before);
    let again = rollback::plan(&house.gw, &done).await.unwrap();
    assert_eq!((again[0].code, again[0].undone_by.is_some()), (Some("rollback.already_undone"), true), "{again:?}");
}
