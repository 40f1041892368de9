//! Whom an answer goes to: settled before anyone judges it, and nobody is added afterwards.

use serde_json::json;
use sluice_core::Millis;
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::gate::deciding::ApprovalRequest;
use sluice_gateway::gate::rendering;

use super::test_gateway::{GmailTestGateway, gmail};

/// To us and ana, with a copy to somebody elsewhere.
const ROOF: &[u8] = b"From: Li Wen <li@northpeak.example>\r\nReply-To: evil@elsewhere.example\r\n\
    To: office@alderfinch.example, ana@northpeak.example\r\nCc: mallory@elsewhere.example\r\nSubject: Roof survey\r\n\r\nWhen?";

async fn within() -> (GmailTestGateway, String) {
    let house = GmailTestGateway::connected(5).await;
    let rules = "rules:\n  - capability: email.reply\n    tier: autonomous\n    \
                 conditions: {recipients_within: [northpeak.example], recipients_max: 2}\n";
    house.rule("defaults: {tier: approval_required}\n", rules);
    let house = house.restart().await;
    let id = house.mailbox.receive_raw(ROOF);
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    (house, id)
}

#[tokio::test]
async fn an_answer_to_all_is_judged_shown_and_sent_as_what_it_is() {
    let (house, id) = within().await;
    let arguments = json!({"message_id": id, "to": "li@northpeak.example", "reply_all": true, "body": "On Tuesday."});
    let answer = house.call("email.reply", arguments).await.unwrap();
    let CallOutcome::Awaiting { hold, approval, .. } = answer else { panic!("somebody elsewhere gets it: {answer:?}") };
    let action = house.gw.store.hold(hold).await.unwrap().unwrap().action;
    assert_eq!(action.arguments()["cc"], json!(["ana@northpeak.example", "mallory@elsewhere.example"]));
    let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
    let card = rendering::of(&house.gw, &question, rendering::PAGE).text;
    for part in ["li@northpeak.example", "mallory@elsewhere.example", "Li Wen", "Roof survey"] {
        assert!(card.contains(part), "{part} is not on the card: {card}");
    }
}

#[tokio::test]
async fn an_answer_without_addressees_goes_to_the_sender_who_was_judged() {
    let (mut house, id) = within().await;
    let hold = house.place("email.reply", json!({"message_id": id, "body": "On Tuesday."})).await;
    let action = house.gw.store.hold(hold).await.unwrap().unwrap().action;
    assert_eq!(action.arguments()["to"], json!(["li@northpeak.example"]));
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "done");
    let sent = String::from_utf8(house.mailbox.last_sent()).unwrap();
    assert!(sent.contains("li@northpeak.example") && !sent.contains("elsewhere.example"), "{sent}");
}

#[tokio::test]
async fn the_card_of_a_delete_says_what_would_be_deleted() {
    let (house, id) = within().await;
    for (capability, arguments) in [
        ("email.delete", json!({"message_id": id})),
        ("email.bulk_delete", json!({"message_ids": [id]})),
        ("email.label", json!({"message_id": id, "add_labels": ["Starred"]})),
        ("email.forward", json!({"message_id": id, "to": "tom@alderfinch.example"})),
    ] {
        let answer = house.call(capability, arguments).await.unwrap();
        let CallOutcome::Awaiting { approval, .. } = answer else { panic!("{capability}: {answer:?}") };
        let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
        let card = rendering::of(&house.gw, &question, rendering::PAGE).text;
        assert!(card.contains("Li Wen <li@northpeak.example>: Roof survey"), "{capability}: {card}");
    }
}
