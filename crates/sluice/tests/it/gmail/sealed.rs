//! A mailbox whose copy is encrypted on the disk: it works as any other, shows nothing, and its key can be lost.

use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_services::connections::ServiceConnections;

use super::test_gateway::{GmailTestGateway, ana, gmail};

const ON: &str = "services: {encrypt_copies: true}\n";
const OFF: &str = "services: {encrypt_copies: false}\n";
/// Of a subject, a text, an address and a file.
const CANARIES: [&str; 4] = ["Kingfisher4711", "marmalade0815", "li@northpeak.example", "ledger-row-77"];

fn folder(house: &GmailTestGateway) -> PathBuf {
    house.gw.config.data.join("replicas").join("gmail")
}

/// The canaries that any byte of any file of a copy shows.
fn shown(folder: &Path) -> Vec<&'static str> {
    let files: Vec<Vec<u8>> =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 2, "the files of the copy were not found");
    let there = |word: &str| files.iter().any(|bytes| bytes.windows(word.len()).any(|seen| seen == word.as_bytes()));
    CANARIES.into_iter().filter(|word| there(word)).collect()
}

fn fill(house: &GmailTestGateway) {
    house.mailbox.receive("Kingfisher4711", "The marmalade0815 stands in the shelf.");
    house.mailbox.receive_files("Kingfisher4711 figures", &[("figures.csv", "text/csv", b"a,b\nledger-row-77,2\n")]);
}

/// What an agent sees of it.
async fn seen(house: &GmailTestGateway) -> String {
    let found = house.read("email.search", json!({"query": "marmalade0815", "limit": 10})).await;
    let message = &found["messages"][0];
    assert!(message["snippet"].as_str().unwrap().contains("marmalade0815"), "{found}");
    let read = house.read("email.read", json!({"message_id": message["message_id"]})).await;
    let figures = house.read("email.search", json!({"query": "Kingfisher4711 has:attachment", "limit": 10})).await;
    let id = &figures["messages"][0]["message_id"];
    let whole = house.read("email.read", json!({"message_id": id})).await;
    let hash = whole["message"]["attachments"][0]["sha256"].as_str().unwrap_or_default().to_owned();
    let file = house.read("email.attachment", json!({"sha256": hash})).await;
    assert!(file.to_string().contains("ledger-row-77"), "{file}");
    format!("{} {}", read["message"], whole["message"])
}

#[tokio::test]
async fn an_encrypted_copy_answers_as_any_other_and_shows_nothing() {
    let mut house = GmailTestGateway::with(40, ON).await;
    house.connect().await;
    fill(&house);
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.state, view.messages, view.encrypted), ("live", Some(42), Some(true)));
    let before = seen(&house).await;
    assert_eq!(shown(&folder(&house)), [""; 0]);
    let sent = house.mailbox.sent();
    let hold = house.send("as said").await;
    house.pass(sluice_core::Millis::from_mins(5)).await;
    assert_eq!((house.state(hold).await, house.mailbox.sent()), ("done", sent + 1));

    // A fresh copy beside it, and a restart.
    house.mailbox.owner(&json!({"expire_history": true}));
    assert!(house.gw.connections.sync_now(&gmail()).await.unwrap().made_anew);
    assert_eq!(shown(&folder(&house)), [""; 0]);
    let house = house.restart().await;
    assert_eq!(seen(&house).await, before);

    let receipt = house.gw.connections.disconnect(&gmail(), ana()).await.unwrap();
    assert!(receipt.encrypted && receipt.secrets.contains(&"service/gmail/copy".to_owned()), "{receipt:?}");
    assert!(!folder(&house).exists());
}

#[tokio::test]
async fn a_copy_is_encrypted_and_decrypted_at_a_start_and_nothing_is_fetched_again() {
    let mut house = GmailTestGateway::with(40, OFF).await;
    house.connect().await;
    fill(&house);
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let (before, fetched) = (seen(&house).await, house.mailbox.calls_of("GET messages/one"));
    assert!(shown(&folder(&house)).contains(&"Kingfisher4711"), "in the clear it shows");
    let secret = ServiceConnections::copy_secret(&gmail()).unwrap();
    assert!(house.gw.vault.show(&secret).await.is_err());
    for (lines, encrypted) in [(ON, true), (ON, true), (OFF, false), (ON, true)] {
        house.set(lines);
        house = house.restart().await;
        assert_eq!(house.gw.connections.show(&gmail()).await.unwrap().encrypted, Some(encrypted));
        assert_eq!(shown(&folder(&house)).is_empty(), encrypted);
        assert_eq!(seen(&house).await, before);
        assert_eq!(
            house.gw.vault.show(&secret).await.unwrap().revoked.is_none(),
            encrypted,
            "no key is kept for nothing"
        );
        house.gw.connections.sync_now(&gmail()).await.unwrap();
        assert_eq!(house.mailbox.calls_of("GET messages/one"), fetched);
    }
}

#[tokio::test]
async fn a_copy_whose_key_is_gone_stays_closed_says_so_and_is_made_anew_when_a_person_wants_it() {
    let house = GmailTestGateway::with(40, ON).await;
    house.connect().await;
    fill(&house);
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let before = seen(&house).await;
    house.gw.vault.revoke(&ServiceConnections::copy_secret(&gmail()).unwrap(), ana()).await.unwrap();
    let files = std::fs::read_dir(folder(&house)).unwrap().count();
    let house = house.restart().await;
    let no = house.call("email.list", json!({"limit": 1})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "store.wrong_key");
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.encrypted, view.messages), (Some(true), None));
    assert!(view.error.unwrap().contains("key"), "people see why");
    assert!(house.alerts().await.contains(&"copy.locked".to_owned()));
    let no = house.gw.connections.sync_now(&gmail()).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "store.wrong_key");
    assert!(std::fs::read_dir(folder(&house)).unwrap().count() >= files - 2, "nothing but the log was tidied away");

    house.gw.connections.sync_afresh(&gmail()).await.unwrap();
    assert_eq!(seen(&house).await, before);
    assert_eq!(shown(&folder(&house)), [""; 0]);
    let house = house.restart().await;
    assert_eq!(seen(&house).await, before, "and the new key stays");
}
