//! The adapter against a third-party Gmail emulator: `emulate`, started as `crates/testkit/counterparts/gmail` describes.
//!
//! `SLUICE_TEST_GMAIL_EMULATOR` contains its address, such as `127.0.0.1:4713`. Where it is known to differ from the
//! real service (a history that never expires), nothing is tested.

use std::io::Write as _;

use serde_json::{Value, json};
use sluice_adapters::adapter::{Adapter, ServiceWrite};
use sluice_adapters::conformance::{self, ConformanceStage};
use sluice_adapters::gmail::GmailAdapter;
use sluice_adapters::net::{Net, NetRequest};
use sluice_core::capability::Capability;

use super::http::EmulatorConnection;
use super::write;

const ME: &str = "/gmail/v1/users/me";
/// The token in the seed beside the launcher.
const TOKEN: &str = "sluice_test_token";

struct ThirdPartyGmailTarget {
    gmail: GmailAdapter,
    net: EmulatorConnection,
    given: u64,
    drafting: bool,
    /// A prefix for names of this run: the service keeps those of earlier runs.
    run: u128,
    start: String,
}

impl ThirdPartyGmailTarget {
    fn ask(&mut self, request: NetRequest) -> Value {
        let reply = self.net.exchange(request).unwrap();
        assert!(reply.status < 300, "{} {}", reply.status, String::from_utf8_lossy(&reply.body));
        serde_json::from_slice(&reply.body).unwrap_or_default()
    }

    fn receive(&mut self, subject: &str) -> String {
        use base64::Engine as _;
        let raw = format!(
            "From: Li <li@northpeak.example>\r\nTo: testuser@example.com\r\nSubject: {subject}\r\n\
             Message-ID: <{}.{}@x.example>\r\n\r\nHello\r\n",
            self.run, self.given
        );
        let raw = base64::engine::general_purpose::URL_SAFE.encode(raw);
        let body = json!({"raw": raw, "labelIds": ["INBOX", "UNREAD"]});
        self.ask(NetRequest::post(format!("{ME}/messages"), &body))["id"].as_str().unwrap().to_owned()
    }
}

impl ConformanceStage for ThirdPartyGmailTarget {
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net) {
        (&self.gmail, &mut self.net)
    }

    fn write(&mut self, capability: &Capability) -> ServiceWrite {
        self.given += 1;
        let n = self.given;
        self.drafting = capability.name.as_str() == "email.draft";
        let id = self.receive(&format!("Question {n}"));
        let arguments = match capability.name.as_str() {
            "email.send" | "email.draft" => {
                json!({"to": "li@northpeak.example", "subject": format!("Nr {n}"), "body": format!("Text {n}\n")})
            }
            "email.reply" => json!({"message_id": id, "to": "ana@example.com", "body": format!("Answer {n}")}),
            "email.forward" => json!({"message_id": id, "to": ["tom@alderfinch.example"], "body": "see below"}),
            "email.delete" => json!({"message_id": id}),
            "email.bulk_delete" => json!({"message_ids": [id]}),
            _ => json!({"message_id": id, "add_labels": ["Work"], "remove_labels": ["INBOX"]}),
        };
        let op = format!("buf_{}_{n}", self.run);
        write(&op, capability.name.as_str(), arguments)
    }

    fn effects(&mut self) -> u64 {
        let count = |list: &Value, name: &str| list[name].as_array().map_or(0, Vec::len);
        let sent = self.ask(NetRequest::get(format!("{ME}/messages?labelIds=SENT&maxResults=500")));
        let drafts = self.ask(NetRequest::get(format!("{ME}/drafts?maxResults=500")));
        let path = format!("{ME}/history?startHistoryId={}&maxResults=500", self.start);
        let feed = self.ask(NetRequest::get(path));
        let entries = feed["history"].as_array().cloned().unwrap_or_default();
        let labels: usize = entries.iter().map(|e| count(e, "labelsAdded") + count(e, "labelsRemoved")).sum();
        let drafts = if self.drafting { count(&drafts, "drafts") } else { 0 };
        (count(&sent, "messages") + drafts + labels) as u64
    }

    fn expire(&mut self) -> bool {
        false
    }
}

#[test]
fn the_adapter_keeps_its_promises_at_somebody_elses_gmail() {
    #[expect(clippy::disallowed_methods, reason = "a test: where its counterpart is comes from outside")]
    let Ok(address) = std::env::var("SLUICE_TEST_GMAIL_EMULATOR") else {
        assert!(std::env::var("SLUICE_TEST_STRICT").is_err(), "SLUICE_TEST_GMAIL_EMULATOR is not set");
        drop(writeln!(std::io::stderr(), "skipped: SLUICE_TEST_GMAIL_EMULATOR is not set"));
        return;
    };
    #[expect(clippy::disallowed_methods, reason = "a test: the service outlives it, so its names must differ")]
    let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let net = EmulatorConnection::at(address.parse().unwrap(), TOKEN);
    let gmail = GmailAdapter::new("testuser@example.com").unwrap();
    let mut stage = ThirdPartyGmailTarget { gmail, net, given: 0, drafting: false, run, start: String::new() };
    let id = stage.receive("first");
    let first = stage.ask(NetRequest::get(format!("{ME}/messages/{id}?format=minimal")));
    stage.start = first["historyId"].as_str().unwrap().to_owned();
    // It keeps only the headers it knows, so a draft cannot be recognised by our header. The real service keeps all
    // headers; a sent mail is found by its text at both.
    let differs = |finding: &str| {
        finding.starts_with("email.draft:") && finding.ends_with("it was done, but the lookup says Absent")
    };
    let findings: Vec<String> = conformance::check(&mut stage).into_iter().filter(|one| !differs(one)).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
