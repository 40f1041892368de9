//! Credentials that a service gives back, in every spelling and by every way in: none reaches an agent or the database.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sluice_config::network::CredentialPlacement;
use sluice_content::leak::LiveSecrets;
use sluice_core::ids::{JobId, SecretName};
use sluice_core::{CallId, Millis, ServiceName};
use sluice_egress::leak::of_formats;
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue};
use sluice_egress::{EgressRequest, TicketScope};
use sluice_gateway::corridor::CallOutcome;
use sluice_services::intake::{ContentRecipient, IncomingItem, IntakeOutcome};

use crate::outside::{LoopbackUpstream, TestEgress, answer, named, wide};
use crate::test_gateway::{TestGateway, TestGatewayPlan, ana, clerk};

/// Letters and digits only, so that every other character in an answer can be left out before looking for it.
const SECRET: &str = "Zq3vK8mPw2Lx7Ry5Tn9Bd4Hf";

/// How a service could spell a credential: name, media type and body.
fn spellings() -> Vec<(&'static str, &'static str, String)> {
    let each = |how: &dyn Fn(char) -> String| SECRET.chars().map(how).collect::<String>();
    let (zero, blanks) = (each(&|c| format!("{c}\u{200B}")), each(&|c| format!("{c} ")));
    let percent = each(&|c| format!("%{:02X}", u32::from(c)));
    let quoted = each(&|c| format!("={:02X}", u32::from(c)));
    let escaped = each(&|c| format!("\\u{:04x}", u32::from(c)));
    let (half, rest) = SECRET.split_at(11);
    vec![
        ("as it is", "text/plain", format!("you sent {SECRET}")),
        ("reversed", "text/plain", SECRET.chars().rev().collect()),
        ("zero-width characters", "text/plain", zero.clone()),
        ("blanks", "text/plain", blanks),
        ("soft hyphens", "text/plain", each(&|c| format!("{c}\u{AD}"))),
        ("full-width letters", "text/plain", each(&|c| char::from_u32(u32::from(c) + 0xFEE0).unwrap().to_string())),
        ("JSON escapes in text", "text/plain", escaped.clone()),
        ("JSON escapes in JSON", "application/json", format!("{{\"echo\": \"{escaped}\"}}")),
        ("zero-width characters in JSON", "application/json", json!({"echo": zero}).to_string()),
        ("escaped zero-width characters in JSON", "application/json", {
            format!("{{\"echo\": \"{}\"}}", each(&|c| format!("{c}\\u200b")))
        }),
        ("JSON in JSON", "application/json", json!({"echo": json!({"echo": zero}).to_string()}).to_string()),
        ("quoted-printable", "text/plain", quoted.clone()),
        ("soft line breaks", "text/plain", format!("{half}=\r\n{rest}")),
        ("percent signs", "text/plain", percent.clone()),
        ("percent signs twice", "text/plain", percent.replace('%', "%25")),
        ("entities in text", "text/plain", each(&|c| format!("&#{};", u32::from(c)))),
        ("entities in a page", "text/html", format!("<p>{}</p>", each(&|c| format!("&#x{:x};", u32::from(c))))),
        ("markup in a page", "text/html", format!("<p>{half}<b></b>{rest}</p>")),
        ("a comment in a page", "text/html", format!("<p>{half}<!-- x -->{rest}</p>")),
        ("base64", "text/plain", STANDARD.encode(SECRET)),
        ("base64 of a sentence", "text/plain", STANDARD.encode(format!("you sent {SECRET} to me"))),
        ("base64 of zero-width characters", "text/plain", URL_SAFE_NO_PAD.encode(&zero)),
        ("base64 of quoted-printable", "text/plain", STANDARD.encode(&quoted)),
        ("base64 twice", "text/plain", STANDARD.encode(STANDARD.encode(SECRET))),
        ("hex", "text/plain", sluice_core::hex::encode(SECRET.as_bytes())),
    ]
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Neither the secret nor the spelling of it is in a text, whatever stands in between its letters.
fn holds_nothing(text: &str, spelled: &str, how: &str) {
    let found = letters(text);
    assert!(!found.contains(SECRET), "{how}: the credential itself in {text}");
    let backwards: String = SECRET.chars().rev().collect();
    assert!(!found.contains(&backwards), "{how}: backwards in {text}");
    // Frames of a spelling, such as the name of a key, may stay.
    let inner: String = letters(spelled).chars().skip(12).take(24).collect();
    assert!(inner.len() < 20 || !found.contains(&inner), "{how}: its spelling in {text}");
    let known = LiveSecrets::new([("s", SECRET)]).unwrap();
    assert_eq!(known.scrub_text(text), None, "{how}: {text}");
}

fn plan(upstream: &LoopbackUpstream) -> TestGatewayPlan {
    let port = upstream.address.port();
    let config = format!(
        "batch: {{services: {{network: off}}}}\nholds: {{delays: {{\"network.*\": 0s}}}}\negress:\n  connections:\n    web: {{hosts: [127.0.0.1], ports: [{port}], http: true, methods: [GET], allow_addresses: [127.0.0.1], agents: [clerk], burn: 100000, per_minute: 10000, per_hour: 100000}}\n"
    );
    TestGatewayPlan { config, ..TestGatewayPlan::default() }
}

async fn reflecting() -> LoopbackUpstream {
    LoopbackUpstream::answering(|request, _| {
        let nth = request.split(['/', ' ']).nth(2).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        let (_, kind, body) = spellings().swap_remove(nth);
        // In a header, too, where its characters may stand there.
        let plain = body.bytes().all(|byte| (b' '..0x7F).contains(&byte));
        let header = if plain { format!("etag: \"{body}\"\r\n") } else { String::new() };
        answer("200 OK", &format!("content-type: {kind}\r\n{header}"), &body)
    })
    .await
}

async fn set(house: &TestGateway) {
    let scope = SecretScope::new(vec!["network.credentialed_request".into()], &["127.0.0.1".to_owned()]).unwrap();
    let new = NewSecretValue {
        value: SecretValue::new(SECRET.into()),
        kind: None,
        scope: Some(scope),
        overlap: Millis::ZERO,
    };
    house.gw.vault.set(&SecretName::new("crm").unwrap(), new, ana()).await.unwrap();
}

#[tokio::test]
async fn no_spelling_of_a_reflected_credential_reaches_an_agent_or_the_database() {
    let upstream = reflecting().await;
    let mut house = TestGateway::new(plan(&upstream)).await;
    set(&house).await;
    house.gw.egress.refresh().await.unwrap();
    for (nth, (how, _, spelled)) in spellings().into_iter().enumerate() {
        let url = upstream.url(&format!("/{nth}"));
        let calls = [
            ("network.credentialed_request", json!({"url": url, "secret_name": "crm"})),
            // Of a secret that this very request did not carry.
            ("network.http_request", json!({"url": format!("{url}/other")})),
        ];
        for (capability, arguments) in calls {
            let CallOutcome::Held { hold, .. } = house.call(capability, arguments).await.unwrap() else {
                panic!("{how}")
            };
            house.let_go().await;
            let result = house.gw.store.hold_result(hold).await.unwrap().unwrap_or_else(|| panic!("{how}: no result"));
            let shown: Value = serde_json::from_str(&result).unwrap();
            assert_eq!(shown["status_code"], 200, "{how}: {shown}");
            let body = shown["body"].as_str().unwrap_or_else(|| panic!("{how}: {shown}"));
            holds_nothing(body, &spelled, how);
            holds_nothing(shown["headers"].to_string().as_str(), &spelled, how);
            assert!(body.contains("credential removed"), "{how}: {body}");
        }
    }
    // Mounted servers, adapters, attachments and observations come in by the same way, as JSON or as text.
    for (how, kind, spelled) in spellings() {
        let document = json!({"content": [{"type": "text", "text": spelled}], "structured": {"echo": spelled}});
        let items = [(Some("application/json"), document.to_string()), (Some(kind), spelled.clone())];
        for (declared, text) in items {
            let item = IncomingItem {
                bytes: text.into_bytes(),
                declared: declared.map(str::to_owned),
                service: ServiceName::new("notes").unwrap(),
                source: "a tool".into(),
                author: "a server".into(),
                at: house.gw.now(),
                beside: Some(format!("x-echo: {spelled}")),
                reader: Some(ContentRecipient {
                    agent: clerk(),
                    session: None,
                    call: CallId::from_bits(1),
                    notes: None,
                }),
                enveloped: false,
            };
            let IntakeOutcome::Clean(cleaned) = house.gw.intake.take_in(&item).await.unwrap() else { panic!("{how}") };
            holds_nothing(&cleaned.text, &spelled, how);
            if let Some(value) = &cleaned.value {
                for leaf in leaves(value) {
                    holds_nothing(&leaf, &spelled, how);
                }
            }
        }
    }
    let folder = house.folder.path().to_path_buf();
    for entry in std::fs::read_dir(folder.join("data")).or_else(|_| std::fs::read_dir(&folder)).unwrap() {
        let path = entry.unwrap().path();
        if let (true, Ok(bytes)) = (path.is_file(), std::fs::read(&path)) {
            let found = letters(&String::from_utf8_lossy(&bytes));
            assert!(!found.contains(SECRET), "the credential stands in {}", path.display());
        }
    }
}

fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().flat_map(leaves).collect(),
        Value::Object(map) => map.values().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn no_spelling_of_a_reflected_credential_reaches_a_worker_of_a_proxy_or_an_adapter() {
    let upstream = reflecting().await;
    let out = TestEgress::with(None, Arc::new(of_formats().unwrap())).await;
    out.secret("crm", SECRET, &["127.0.0.1"]).await;
    for (placed, placement) in ["bearer", "header x-api-key", "query key"].into_iter().enumerate() {
        let mut connection = wide(&upstream);
        let placement = CredentialPlacement::parse(placement).unwrap();
        connection.credential = Some((SecretName::new("crm").unwrap(), placement));
        out.egress.open(connection);
        for (nth, (how, kind, spelled)) in spellings().into_iter().enumerate() {
            // A page is put together by the worker that reads it; what it reports is looked through again.
            if kind == "text/html" && !spelled.contains("&#") {
                continue;
            }
            let scope = TicketScope {
                job: JobId::from_bits((placed * 1000 + nth) as u128),
                capability: "proxy.shop.search".into(),
                hosts: vec!["127.0.0.1".into()],
                operations: Vec::new(),
                by: ana(),
                lasts: Millis::from_mins(5),
            };
            let ticket = out.egress.issue(&named("web"), scope).await.unwrap();
            let request = EgressRequest::get(&upstream.url(&format!("/{nth}")));
            let heard = out.egress.exchange(&ticket, request).await.unwrap();
            holds_nothing(&String::from_utf8_lossy(&heard.body), &spelled, how);
            holds_nothing(&format!("{:?}", heard.headers), &spelled, how);
        }
    }
}
