//! What a mailbox refuses: foreseen where it can be, told to people in the service's words, and no louder than it is.

use serde_json::json;
use sluice_core::Millis;
use sluice_core::refusal::Code;
use sluice_services::failing::{FailureAudience, failing};
use sluice_store::{AlertFilter, MessageSeverity};

use super::test_gateway::{GmailTestGateway, gmail};

#[tokio::test]
async fn unknown_labels_and_messages_are_refused_before_anything_is_held() {
    let house = GmailTestGateway::connected(5).await;
    let id = house.mailbox.receive("Hello", "x");
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    for (capability, arguments, code) in [
        ("email.label", json!({"message_id": id, "add_labels": ["NO SUCH LABEL"]}), Code::ExecuteBadArgument),
        ("email.label", json!({"message_id": id, "remove_labels": ["NO SUCH LABEL"]}), Code::ExecuteBadArgument),
        ("email.label", json!({"message_id": "m999999", "add_labels": ["STARRED"]}), Code::StoreNotFound),
        ("email.delete", json!({"message_id": "m999999"}), Code::StoreNotFound),
        ("email.bulk_delete", json!({"message_ids": [id, "m999999"]}), Code::StoreNotFound),
    ] {
        let no = house.call(capability, arguments.clone()).await.unwrap_err();
        assert_eq!(no.refusal.code(), code, "{capability} {arguments}: {}", no.refusal);
        let named = no.refusal.text();
        assert!(named.contains("NO SUCH LABEL") || named.contains("m999999"), "it is named: {named}");
    }
    assert!(house.gw.store.holds_page(Default::default(), None, 10).await.unwrap().is_empty());
    assert!(house.alerts().await.is_empty(), "nobody is woken for a wrong argument");
    house.place("email.label", json!({"message_id": id, "add_labels": ["STARRED"]})).await;
}

#[tokio::test]
async fn what_the_service_said_reaches_people_and_a_refusal_is_a_warning() {
    let mut house = GmailTestGateway::connected(5).await;
    house.mailbox.fail("POST drafts", json!({"status": 400}));
    let hold = house.send("Refused").await;
    house.pass(Millis::from_secs(30)).await;
    assert_eq!(house.state(hold).await, "dead");
    let row = house.gw.store.hold(hold).await.unwrap().unwrap();
    let people = failing(&house.gw.store, &row, FailureAudience::Person).await.unwrap().last_error.unwrap();
    assert_eq!(people.code, "execute.refused");
    assert_eq!(people.service_says.as_deref(), Some("failing on command"));
    let agents = failing(&house.gw.store, &row, FailureAudience::Agent).await.unwrap().last_error.unwrap();
    assert_eq!((agents.code.as_str(), agents.service_says), ("execute.refused", None));
    let alerts = house.gw.store.alerts(AlertFilter::default(), None, 10).await.unwrap();
    let dead = alerts.iter().find(|alert| alert.message.topic == "hold.dead").unwrap();
    assert_eq!(dead.message.severity, MessageSeverity::Warning);
}
