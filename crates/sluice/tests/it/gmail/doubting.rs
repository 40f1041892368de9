//! Mails that two readers read differently: withheld, shown to people as two readings, never answered.

use serde_json::{Value, json};
use sluice_core::mail::query;
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::gate::deciding::ApprovalRequest;
use sluice_gateway::gate::rendering;

use super::test_gateway::{GmailTestGateway, ana, gmail};

/// The sender that an attacker wants to be shown and answered.
const WANTED: &str = "mallory@elsewhere.example";

/// Mails whose sender is mallory for one reader and ana for another.
fn doubtful() -> Vec<(&'static str, String)> {
    let body = "From: mallory@elsewhere.example\nSubject: invoice\n\nPlease pay.\n";
    let head = "From: ana@northpeak.example\nTo: office@alderfinch.example\nSubject: invoice\n";
    vec![
        ("a date in Z", format!("{head}Date: Tue, 17 Nov 2026 10:00:00 Z\n\n{body}")),
        ("a date in UT", format!("{head}Date: Tue, 17 Nov 2026 10:00:00 UT\n\n{body}")),
        ("a date before noon", format!("{head}Date: 17 Nov 2026 10:00:00 AM\n\n{body}")),
        ("a date after noon", format!("{head}Date: 17 Nov 2026 10:00:00 PM\n\n{body}")),
        ("two senders", format!("{head}From: mallory@elsewhere.example\n\nPlease pay.\n")),
        (
            "two addresses",
            "From: ana@northpeak.example, mallory@elsewhere.example\nSubject: invoice\n\nPlease pay.\n".into(),
        ),
        (
            "an address as a name",
            "From: ana@northpeak.example <mallory@elsewhere.example>\nSubject: invoice\n\nPay.\n".into(),
        ),
        ("a blank before the colon", format!("{head}From : mallory@elsewhere.example\n\nPlease pay.\n")),
        ("a lone carriage return", format!("X: y\rFrom: mallory@elsewhere.example\n{head}\nPlease pay.\n")),
        ("no field", format!("{head}this is no field\nFrom: mallory@elsewhere.example\n\nPlease pay.\n")),
    ]
}

async fn with(raw: &str) -> (GmailTestGateway, String) {
    let house = GmailTestGateway::connected(2).await;
    let id = house.mailbox.receive_raw(raw.as_bytes());
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    (house, id)
}

async fn code(house: &GmailTestGateway, capability: &str, arguments: Value) -> String {
    match house.call(capability, arguments).await {
        Ok(answer) => panic!("{capability}: {answer:?}"),
        Err(no) => no.refusal.code().as_str().to_owned(),
    }
}

#[tokio::test]
async fn a_mail_with_two_readings_is_withheld_and_nobody_is_answered() {
    let house = GmailTestGateway::connected(2).await;
    let mails: Vec<(&str, String)> =
        doubtful().into_iter().map(|(name, raw)| (name, house.mailbox.receive_raw(raw.as_bytes()))).collect();
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let list = house.read("email.list", json!({"limit": 50})).await;
    assert!(!list.to_string().contains(WANTED), "{list}");
    for (name, id) in &mails {
        let hit = list["messages"].as_array().unwrap().iter().find(|hit| hit["message_id"] == json!(id)).unwrap();
        assert_eq!(
            (&hit["withheld"], &hit["ambiguous"], &hit["from"]),
            (&json!(true), &json!(true), &json!("")),
            "{name}"
        );
        let no = house.call("email.read", json!({"message_id": id})).await.unwrap_err().refusal;
        assert_eq!(no.code().as_str(), "content.withheld", "{name}");
        assert!(no.text().contains("two readers"), "{name}: {}", no.text());
        for (capability, arguments) in [
            ("email.reply", json!({"message_id": id, "body": "ok"})),
            ("email.reply", json!({"message_id": id, "to": "ana@northpeak.example", "body": "ok"})),
            ("email.reply", json!({"message_id": id, "reply_all": true, "body": "ok"})),
            ("email.forward", json!({"message_id": id, "to": "tom@alderfinch.example"})),
        ] {
            assert_eq!(code(&house, capability, arguments).await, "content.ambiguous", "{name}: {capability}");
        }
    }
    assert_eq!(house.mailbox.sent(), 0);
}

#[tokio::test]
async fn people_see_both_readings_and_a_release_does_not_make_one_of_them_a_fact() {
    let (house, id) = with(&doubtful()[4].1).await;
    let found = house.gw.connections.search(&gmail(), query::parse("invoice").unwrap(), 10).await.unwrap();
    let hit = found.hits.iter().find(|hit| hit.id == id).unwrap();
    assert_eq!(hit.sender, "two readings: “ana@northpeak.example” or “mallory@elsewhere.example”");
    assert_eq!(code(&house, "email.read", json!({"message_id": id})).await, "content.withheld");
    let findings = house.gw.store.findings(true, None, 10).await.unwrap();
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert!(finding.author.contains("two readings"), "{finding:?}");
    house.gw.store.release_finding(finding.id, ana(), String::new()).await.unwrap();
    let read = house.read("email.read", json!({"message_id": id})).await;
    let message = &read["message"];
    assert_eq!((&message["from"], &message["ambiguous"]), (&Value::Null, &json!(["mail.ambiguous.sender"])), "{read}");
    assert!(message["body"].as_str().unwrap().contains("Please pay."), "{read}");
    let list = house.read("email.list", json!({})).await;
    assert!(!list.to_string().contains(WANTED), "{list}");
    assert_eq!(code(&house, "email.reply", json!({"message_id": id, "body": "ok"})).await, "content.ambiguous");
}

#[tokio::test]
async fn a_multipart_that_is_never_closed_is_read() {
    let raw = "From: ana@northpeak.example\r\nSubject: roof\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n\
               --b\r\nContent-Type: text/plain\r\n\r\nthe survey is on Tuesday\r\n";
    let (house, id) = with(raw).await;
    let read = house.read("email.read", json!({"message_id": id})).await;
    assert!(read["message"]["body"].as_str().unwrap().contains("the survey is on Tuesday"), "{read}");
}

#[tokio::test]
async fn what_the_receiving_server_found_out_stands_beside_the_sender_and_what_a_sender_claims_does_not() {
    let claim = "Authentication-Results: mx.google.com; dmarc=pass header.from=northpeak.example\r\n";
    let mail = "From: Li Wen <li@northpeak.example>\r\nTo: office@alderfinch.example\r\nSubject: roof survey\r\n";
    let recorded = "Delivered-To: office@alderfinch.example\r\nReceived: by 2002:a05 with SMTP id x\r\n\
        Authentication-Results: mx.google.com;\r\n       dkim=pass header.i=@northpeak.example;\r\n       \
        spf=softfail smtp.mailfrom=li@northpeak.example;\r\n       dmarc=pass (p=NONE) header.from=northpeak.example\r\n";
    let failed = recorded.replace("dmarc=pass", "dmarc=fail");
    let house = GmailTestGateway::connected(2).await;
    let receive = |raw: String| house.mailbox.receive_raw(raw.as_bytes());
    let good = receive(format!("{recorded}{mail}\r\nWhen?"));
    let bad = receive(format!("{failed}{claim}{mail}\r\nWhen?"));
    let forged = receive(format!("{mail}{claim}\r\nWhen?"));
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    for (id, expected) in [
        (&good, json!({"dmarc": "pass", "spf": "softfail", "dkim": "pass"})),
        (&bad, json!({"dmarc": "fail", "spf": "softfail", "dkim": "pass"})),
        (&forged, Value::Null),
    ] {
        let read = house.read("email.read", json!({"message_id": id})).await;
        assert_eq!(read["message"]["authentication"], expected, "{read}");
        let list = house.read("email.search", json!({"query": "roof"})).await;
        let hit = list["messages"].as_array().unwrap().iter().find(|hit| hit["message_id"] == json!(id)).unwrap();
        assert_eq!(hit["authentication"], expected, "{list}");
    }
    house.rule("defaults: {tier: approval_required}\n", "rules: []\n");
    let house = house.restart().await;
    let answer = house.call("email.reply", json!({"message_id": bad, "body": "On Tuesday."})).await.unwrap();
    let CallOutcome::Awaiting { approval, .. } = answer else { panic!("{answer:?}") };
    let question = ApprovalRequest::read(&house.gw, approval).await.unwrap();
    let card = rendering::of(&house.gw, &question, rendering::PAGE).text;
    assert!(card.contains("li@northpeak.example> (dmarc fail, spf softfail, dkim pass): roof survey"), "{card}");
}
