//! A Bot API somebody else wrote: the ordinary way of a question, from the message to the press, the reply and the edit.
//!
//! `SLUICE_TEST_TELEGRAM` names its address; `crates/testkit/counterparts/telegram` says how it is started. What it does
//! not do (offsets, waiting, limits, conflicts) our strict stand-in does, in `telegram.rs`.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_gateway::channels::Channel as _;
use sluice_gateway::channels::telegram::TelegramChannel;
use sluice_gateway::loops::outbox::OutboxLoop;

use crate::accounts::counterpart;
use crate::http::raw;
use crate::telegram::{ANA, ASKS, PEOPLE, button};
use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// Of its own for each run: the server keeps what it was told.
fn token(house: &TestGateway) -> String {
    let run = house.folder.path().file_name().unwrap().to_string_lossy().replace(|c: char| !c.is_alphanumeric(), "");
    format!("123:{run}")
}

/// A person's side of the server.
async fn side(address: &str, path: &str, body: Value) -> Value {
    let text = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    );
    raw(address.parse().unwrap(), request.as_bytes()).await.json()["result"].clone()
}

/// Every message of a bot, as the server has it now.
async fn sent(address: &str, token: &str) -> Vec<Value> {
    let history = side(address, "/getUpdatesHistory", json!({"token": token})).await;
    history.as_array().unwrap().iter().filter(|one| one["message"]["chat_id"] == ANA).cloned().collect()
}

#[tokio::test]
async fn somebody_elses_telegram_takes_the_question_and_brings_the_press_and_the_reply() {
    let Some(address) = counterpart("SLUICE_TEST_TELEGRAM") else { return };
    let house =
        TestGateway::new(TestGatewayPlan { config: PEOPLE.into(), agent: ASKS.into(), ..TestGatewayPlan::default() })
            .await;
    let (file, token) = (house.folder.path().join("token"), token(&house));
    std::fs::write(&file, &token).unwrap();
    let telegram = Arc::new(TelegramChannel::new(&file, &format!("http://{address}")).unwrap());
    let outbox = OutboxLoop::new(vec![telegram.clone()]);
    let person = json!({"id": ANA, "is_bot": false, "first_name": "Ana"});
    let chat = json!({"id": ANA, "type": "private", "first_name": "Ana"});
    for (name, note) in [("pressed", false), ("replied", true)] {
        let arguments = json!({"path": house.path(name), "content": "hello"});
        let answer = house.call("filesystem.write", arguments).await.unwrap();
        let sluice_gateway::corridor::CallOutcome::Awaiting { approval, .. } = answer else { panic!("{answer:?}") };
        outbox.step(&house.gw).await.unwrap();
        let letter = sent(&address, &token).await.pop().unwrap();
        let original = json!({"message_id": letter["messageId"], "chat": chat, "text": letter["message"]["text"]});
        if note {
            let words = json!({"botToken": token, "from": person, "chat": chat, "date": 1, "text": "4 only this one", "reply_to_message": original});
            side(&address, "/sendMessage", words).await;
        } else {
            let press = json!({"botToken": token, "from": person, "date": 1, "data": button(&letter["message"], "1"), "message": original});
            side(&address, "/sendCallback", press).await;
        }
        telegram.receive_answers(&house.gw).await.unwrap();
        let card = house.gw.store.approval(approval).await.unwrap().unwrap().approval;
        assert_eq!((card.state.word(), card.note.as_deref()), ("approved", note.then_some("only this one")));
        outbox.step(&house.gw).await.unwrap();
        let shown = sent(&address, &token).await;
        let edited = shown.iter().find(|one| one["messageId"] == letter["messageId"]).unwrap();
        let text = edited["message"]["text"].as_str().unwrap();
        assert!(text.starts_with("Allowed: filesystem.write\nallowed once by ana at"), "{text}");
    }
}
