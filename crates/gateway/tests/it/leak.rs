//! What must not leave, through the whole corridor.
//!
//! Keys are put together at run time and are of no use to anybody.

use serde_json::{Value, json};
use sluice_content::leak::LiveSecrets;
use sluice_core::refusal::{Code, Retry};
use sluice_gateway::corridor::Answer;
use sluice_gateway::rooms::leak;
use sluice_store::{AlertFilter, Severity};

use crate::house::{House, Plan};

/// A key in the form of a well-known vendor, and of nobody's.
fn planted() -> String {
    format!("{}{}", "AK".to_owned() + "IA", "QX7ZJ3M5W2K9V4TB")
}

/// Arguments that put a value where all agents see it.
fn shared(value: impl serde::Serialize) -> Value {
    json!({"key": "x", "value": value, "expected_version": 0})
}

/// Everything the record holds, as text.
async fn whole_record(house: &House) -> String {
    let mut text = String::new();
    for (log, head) in house.gw.store.logs().await.unwrap() {
        for sealed in house.gw.store.entries(log, 0, u32::try_from(head.size).unwrap()).await.unwrap() {
            text.push_str(&String::from_utf8_lossy(&sealed.body));
        }
    }
    text
}

async fn alerts(house: &House) -> Vec<Value> {
    let filter = AlertFilter { open_only: false, severity_at_least: Severity::Info, agent: None };
    let found = house.gw.store.alerts(filter, None, 50).await.unwrap();
    found.iter().map(sluice_gateway::services::alerts::as_json).collect()
}

#[tokio::test]
async fn a_planted_secret_is_refused_in_both_modes_and_is_nowhere_afterwards() {
    let mut house = House::new(Plan::default()).await;
    let secret = planted();
    let text = format!("deploy with {secret} please");
    let path = house.path("notes.txt");
    for wish in [
        json!({"capability": "filesystem.write", "arguments": {"path": path, "content": text}, "wait_ms": 0}),
        json!({"capability": "filesystem.write", "arguments": {"path": path, "content": text}, "mode": "check", "wait_ms": 0}),
        json!({"capability": "state.shared.set", "arguments": {"key": "plan", "value": {"steps": ["a", text]}, "expected_version": 0}, "wait_ms": 0}),
        json!({"capability": "custom:post", "arguments": {"body": text}, "mode": "check", "wait_ms": 0}),
    ] {
        let no = house.wish(wish.clone()).await.unwrap_err();
        assert_eq!(no.refusal.code(), Code::LeakFound, "{wish}");
        assert_eq!(no.refusal.retry(), Retry::AfterChange);
        assert!(no.refusal.text().contains("aws.key_id"), "{}", no.refusal.text());
        assert!(no.refusal.hint().contains("do not encode"), "the agent is told what to do instead");
        assert!(!format!("{no:?} {}", serde_json::to_string(&*no.refusal).unwrap()).contains(&secret));
    }
    assert_eq!(house.let_go().await, 0);
    assert!(!house.work().join("notes.txt").exists());
    let record = whole_record(&house).await;
    assert_eq!(record.matches("leak.found").count(), 4);
    let record = record.replace('\\', "");
    assert!(record.contains("\"pattern\":\"aws.key_id\"") && record.contains("\"length\":20"));
    assert!(!record.contains(&secret) && !record.contains("deploy with"));
    let alerts = alerts(&house).await;
    assert_eq!(alerts.len(), 4);
    assert!(alerts.iter().all(|alert| alert["severity"] == "critical" && alert["topic"] == "leak.found"));
    assert!(!json!(alerts).to_string().contains(&secret));
}

#[tokio::test]
async fn ordinary_words_pass() {
    let mut house = House::new(Plan::default()).await;
    let content = "Dear Ana, the key to a good password is length. Call me on Monday. Yours, Ben <ben@example.org>";
    let answer = house.call("filesystem.write", json!({"path": house.path("a"), "content": content})).await.unwrap();
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
    assert_eq!(house.let_go().await, 1);
    assert!(alerts(&house).await.is_empty());
}

#[tokio::test]
async fn a_secret_of_the_vault_is_known_in_disguise_as_soon_as_the_vault_says_so() {
    let house = House::new(Plan::default()).await;
    let secret = "Turm-Falke=17/violet";
    let hidden: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let call = || house.call("state.shared.set", shared(hidden.as_str()));
    assert!(call().await.is_ok());
    house.gw.leak_scan().now_live(LiveSecrets::new([("mail-token", secret)]).unwrap());
    let no = call().await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::LeakFound);
    let split = shared(["Turm-Fal", "ke=17/violet"]);
    assert_eq!(house.call("state.shared.set", split).await.unwrap_err().refusal.code(), Code::LeakFound);
    let record = whole_record(&house).await;
    assert!(record.contains("vault.live") && record.contains("mail-token/hex"), "{record}");
    assert!(!record.contains(secret) && !record.contains(&hidden));
}

#[tokio::test]
async fn what_the_operator_names_stays_inside() {
    let config = "leak:\n  own: [Ana Brandt]\n  terms: [Projekt Falke]\n  patterns: {ticket: 'FAL-\\d+'}\n";
    let house = House::new(Plan { config: config.into(), ..Plan::default() }).await;
    for (text, id) in
        [("ask ana brandt", "own.identifier"), ("about projekt falke", "own.term"), ("see FAL-12", "ticket")]
    {
        let no = house.call("state.shared.set", shared(text)).await.unwrap_err();
        assert!(no.refusal.text().contains(id), "{}", no.refusal.text());
    }
    assert!(house.call("state.shared.set", shared("see you")).await.is_ok());
}

#[tokio::test]
async fn addresses_of_many_people_wait_for_a_person_and_those_of_few_do_not() {
    let house = House::new(Plan::default()).await;
    let people = |n: usize| (0..n).map(|n| format!("person{n}@example.org")).collect::<Vec<_>>().join("\n");
    let few = house.call("state.shared.set", shared(people(3))).await.unwrap();
    assert!(matches!(few, Answer::Held { .. }), "{few:?}");
    let many = house.call("state.shared.set", shared(people(30))).await.unwrap();
    assert!(matches!(many, Answer::Awaiting { .. }), "{many:?}");
}

#[tokio::test]
async fn a_preview_for_a_chat_is_scanned_too() {
    let house = House::new(Plan::default()).await;
    let scan = |text: &str| leak::preview(&house.gw, &[sluice_content::leak::Part::new("preview", text)]);
    assert!(scan("send `hello` to ana@example.org?").is_ok());
    let no = scan(&format!("send `{}`?", planted())).unwrap_err();
    assert_eq!(no.refusal.code(), Code::LeakFound);
}
