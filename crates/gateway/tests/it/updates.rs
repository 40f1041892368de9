//! Sixty crafted updates: each differs from the one that decides in one thing, and none of them decides.

use serde_json::{Value, json};

use crate::telegram::{ANA, DAN, PEOPLE, TelegramFixture, button, press, written};

/// The update, with one member set.
fn with(mut update: Value, at: &str, value: Value) -> Value {
    let (parent, name) = at.rsplit_once('/').unwrap();
    update.pointer_mut(parent).unwrap_or_else(|| panic!("{at}"))[name] = value;
    update
}

/// The update, with one member taken away.
fn without(mut update: Value, at: &str) -> Value {
    let (parent, name) = at.rsplit_once('/').unwrap();
    update.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
    update
}

/// Every update that must not decide: about this message, whose yes is this.
fn crafted(number: i64, yes: &str, no_menu: &str, id: &str) -> Vec<Value> {
    let pressed = || press(ANA, ANA, number, yes);
    let said = |text: &str| written(ANA, ANA, number, text);
    let secret = yes.split(':').nth(1).unwrap();
    let mut table = vec![
        // Who.
        press(DAN, ANA, number, yes),
        press(0, ANA, number, yes),
        press(-ANA, ANA, number, yes),
        with(pressed(), "/callback_query/from/is_bot", json!(true)),
        without(pressed(), "/callback_query/from"),
        with(pressed(), "/callback_query/from/id", json!(ANA.to_string())),
        with(pressed(), "/callback_query/from/id", json!(null)),
        // Where.
        press(DAN, DAN, number, yes),
        press(ANA, DAN, number, yes),
        press(ANA, -500, number, yes),
        press(ANA, -ANA, number, yes),
        without(pressed(), "/callback_query/message"),
        without(pressed(), "/callback_query/message/chat"),
        with(pressed(), "/callback_query/message/chat/id", json!("1001")),
        // Which message.
        press(ANA, ANA, number + 1, yes),
        press(ANA, ANA, number - 1, yes),
        press(ANA, ANA, 0, yes),
        with(pressed(), "/callback_query/message/message_id", json!(number.to_string())),
        with(without(pressed(), "/callback_query/message"), "/callback_query/inline_message_id", json!("1")),
        // Which secret and which answer.
        press(ANA, ANA, number, ""),
        press(ANA, ANA, number, "1"),
        press(ANA, ANA, number, &format!("{id}:1")),
        press(ANA, ANA, number, &format!("s:{id}:1")),
        press(ANA, ANA, number, "s::1"),
        press(ANA, ANA, number, &format!("s:{}:1", "A".repeat(22))),
        press(ANA, ANA, number, &format!("s:{}:1", secret.to_lowercase().to_uppercase())),
        press(ANA, ANA, number, &format!("s:{}:1", &secret[..21])),
        press(ANA, ANA, number, &format!("s:{secret}A:1")),
        press(ANA, ANA, number, &format!("s:{secret}:")),
        press(ANA, ANA, number, &format!("s:{secret}:1 ok")),
        press(ANA, ANA, number, &format!("s:{secret}:yes")),
        press(ANA, ANA, number, &format!("s:{secret}:all 1")),
        press(ANA, ANA, number, &format!("S:{secret}:1")),
        press(ANA, ANA, number, &format!(" {yes}")),
        without(pressed(), "/callback_query/data"),
        with(without(pressed(), "/callback_query/data"), "/callback_query/game_short_name", json!("g")),
        // Words instead of a press.
        written(DAN, ANA, number, "1"),
        written(DAN, DAN, number, "1"),
        written(ANA, -500, number, "1"),
        written(ANA, ANA, number + 7, "1"),
        with(said("1"), "/message/from/is_bot", json!(true)),
        without(said("1"), "/message/from"),
        without(said("1"), "/message/reply_to_message"),
        with(said("1"), "/message/sender_chat", json!({"id": ANA})),
        with(said("1"), "/message/via_bot", json!({"id": 5})),
        with(said("1"), "/message/forward_origin", json!({"type": "user"})),
        with(said("1"), "/message/forward_date", json!(1)),
        with(said("1"), "/message/edit_date", json!(1)),
        with(without(said("1"), "/message/text"), "/message/caption", json!("1")),
        json!({"edited_message": said("1")["message"]}),
        json!({"channel_post": said("1")["message"]}),
        json!({"business_message": said("1")["message"]}),
        json!({"edited_channel_post": said("1")["message"]}),
        json!({"message_reaction": {"chat": {"id": ANA}, "message_id": number, "new_reaction": [{"type": "emoji", "emoji": "👍"}]}}),
        json!({"poll_answer": {"user": {"id": ANA}, "option_ids": [0]}}),
        json!({"inline_query": {"id": "1", "from": {"id": ANA}, "query": "1"}}),
        json!({"my_chat_member": {"chat": {"id": ANA}, "from": {"id": ANA}}}),
        json!({"callback_query": "1"}),
        json!({"message": []}),
        json!({}),
    ];
    table.extend(["no", "1?", "1.", "1 and 2", "yes", "ok", "👍", "１", "①", "1️⃣", "> 1", no_menu].map(said));
    table
}

#[tokio::test]
async fn of_more_than_sixty_crafted_updates_none_decides_and_the_exact_one_does() {
    let world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("a").await;
    world.tell().await;
    let letter = world.service.letter();
    let (number, yes) = (letter["message_id"].as_i64().unwrap(), button(&letter, "1"));
    let table = crafted(number, &yes, letter["text"].as_str().unwrap(), &id);
    assert!(table.len() >= 60, "{}", table.len());
    for update in table {
        world.service.push(update.clone());
        world.hear().await.unwrap();
        assert_eq!(world.state(&id).await, "pending", "{update}");
    }
    let before = world.house.record().await;
    assert!(!before.iter().any(|kind| kind == "approval.approved" || kind == "approval.denied"), "{before:?}");
    let refused = before.iter().filter(|kind| *kind == "channel.refused").count();
    assert!(refused >= 40, "what is refused is on record: {refused}");
    world.service.push(press(ANA, ANA, number, &yes));
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "approved", "and the exact one decides");
    let exact = world.service.with(|kept| kept.updates.back().cloned().unwrap());
    for _ in 0..100 {
        world.telegram.handle_update(&world.house.gw, exact.clone()).await.unwrap();
    }
    let decided = world.house.record().await.iter().filter(|kind| *kind == "approval.approved").count();
    assert_eq!(decided, 1, "a hundred times the same is one decision");
}
