//! What must not leave, through the whole corridor.
//!
//! Keys are put together at run time and are of no use to anybody.

use base64::Engine as _;
use serde_json::{Value, json};
use sluice_content::leak::LiveSecrets;
use sluice_core::refusal::{Code, RetryAdvice};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::rooms::leak;
use sluice_store::{AlertFilter, MessageSeverity};

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A key in the form of a well-known vendor, and of nobody's.
fn planted() -> String {
    format!("{}{}", "AK".to_owned() + "IA", "QX7ZJ3M5W2K9V4TB")
}

/// Arguments that put a value where all agents see it.
fn shared(value: impl serde::Serialize) -> Value {
    json!({"key": "x", "value": value, "expected_version": 0})
}

/// Everything the record holds, as text.
async fn whole_record(house: &TestGateway) -> String {
    let mut text = String::new();
    for (log, head) in house.gw.store.logs().await.unwrap() {
        for sealed in house.gw.store.entries(log, 0, u32::try_from(head.size).unwrap()).await.unwrap() {
            text.push_str(&String::from_utf8_lossy(&sealed.body));
        }
    }
    text
}

async fn alerts(house: &TestGateway) -> Vec<Value> {
    let filter = AlertFilter { open_only: false, severity_at_least: MessageSeverity::Info, agent: None };
    let found = house.gw.store.alerts(filter, None, 50).await.unwrap();
    found.iter().map(sluice_services::alerts::as_json).collect()
}

#[tokio::test]
async fn a_planted_secret_is_refused_in_both_modes_and_is_nowhere_afterwards() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
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
        assert_eq!(no.refusal.retry(), RetryAdvice::AfterChange);
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
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let content = "Dear Ana, the key to a good password is length. Call me on Monday. Yours, Ben <ben@example.org>";
    let answer = house.call("filesystem.write", json!({"path": house.path("a"), "content": content})).await.unwrap();
    assert!(matches!(answer, CallOutcome::Held { .. }), "{answer:?}");
    assert_eq!(house.let_go().await, 1);
    assert!(alerts(&house).await.is_empty());
}

#[tokio::test]
async fn a_secret_of_the_vault_is_known_in_disguise_as_soon_as_the_vault_says_so() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let secret = "Turm-Falke=17/violet";
    let hidden: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let call = || house.call("state.shared.set", shared(hidden.as_str()));
    assert!(call().await.is_ok());
    house.gw.leak_scan().replace_live_secrets(LiveSecrets::new([("mail-token", secret)]).unwrap());
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
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
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
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let people = |n: usize| (0..n).map(|n| format!("person{n}@example.org")).collect::<Vec<_>>().join("\n");
    let few = house.call("state.shared.set", shared(people(3))).await.unwrap();
    assert!(matches!(few, CallOutcome::Held { .. }), "{few:?}");
    let many = house.call("state.shared.set", shared(people(30))).await.unwrap();
    assert!(matches!(many, CallOutcome::Awaiting { .. }), "{many:?}");
}

#[tokio::test]
async fn a_preview_for_a_chat_is_scanned_too() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let scan = |text: &str| leak::preview(&house.gw, &[sluice_content::leak::OutboundPart::new("preview", text)]);
    assert!(scan("send `hello` to ana@example.org?").is_ok());
    let no = scan(&format!("send `{}`?", planted())).unwrap_err();
    assert_eq!(no.refusal.code(), Code::LeakFound);
}

/// Every encoding that the scan looks through, alone and one inside another.
fn encoded(text: &str) -> Vec<(&'static str, String)> {
    let each = |how: &dyn Fn(char) -> String| text.chars().map(how).collect::<String>();
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let percent = each(&|c| format!("%{:02X}", u32::from(c)));
    let half = text.len() / 2;
    vec![
        ("plain", text.to_owned()),
        ("in a sentence", format!("use {text}, please")),
        ("longer than it is", format!("{text}AAAA")),
        ("percent", percent.clone()),
        ("JSON escapes", each(&|c| format!("\\u{:04x}", u32::from(c)))),
        ("quoted-printable", each(&|c| format!("={:02X}", u32::from(c)))),
        ("soft line break", format!("{}=\r\n{}", &text[..half], &text[half..])),
        ("entities", each(&|c| format!("&#{};", u32::from(c)))),
        ("zero-width characters", each(&|c| format!("{c}\u{200B}"))),
        ("full-width letters", each(&|c| char::from_u32(u32::from(c) + 0xFEE0).unwrap().to_string())),
        ("hex", sluice_core::hex::encode(text.as_bytes())),
        ("base64", base64(text)),
        ("base64 in a sentence", base64(&format!("the key is {text} now"))),
        ("base64 of percent", base64(&percent)),
        ("base64 twice", base64(&base64(text))),
    ]
}

/// Every prefix of a credential that stands in the gateway's own source.
fn prefixes() -> std::collections::BTreeSet<String> {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let literal = regex::Regex::new("\"(sg[a-z]{1,4}_)\"").unwrap();
    let mut folders: Vec<_> =
        ["api", "config", "core", "egress", "gateway", "protocol", "services", "sluice", "store", "worker"]
            .map(|name| crates.join(name).join("src"))
            .into();
    let mut found = std::collections::BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(kind) if kind == "rs" => {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.extend(literal.captures_iter(&text).map(|hit| hit[1].to_owned()));
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn every_credential_the_gateway_issues_is_found_in_every_encoding() {
    use sluice_content::leak::{LeakScope, LeakWeight, OutboundPart};
    use sluice_egress::leak::LeakScanner as _;
    let scan = sluice_egress::leak::of_formats().unwrap();
    let prefixes = prefixes();
    for kind in sluice_gateway::keys::TokenKind::ALL {
        assert!(prefixes.contains(kind.prefix()), "the walk over the source misses {}", kind.prefix());
    }
    assert!(prefixes.len() >= 5, "agents, operators, inboxes, tickets and root keys: {prefixes:?}");
    let noise = "Zq3vK8mPw2Lx7Ry5Tn9Bd4Hf6Jg1Cs0_aE-uIoMkQzX";
    let mut issued: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}{noise}")).collect();
    issued.push(format!("https://gate.example/a/{noise}"));
    issued.push(format!("{}+sluicegate/gw-1+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz", "PRIVATE+KEY"));
    for text in &issued {
        for (how, spelled) in encoded(text) {
            for scope in [LeakScope::Service, LeakScope::Proxy] {
                let report = scan.scan(&[OutboundPart::new("body", spelled.as_str())], scope);
                let ours = |pattern: &str| pattern.starts_with("sluicegate.");
                let blocked =
                    report.findings.iter().any(|found| ours(&found.pattern) && found.weight == LeakWeight::Block);
                assert!(blocked || text.contains("/a/") && how == "longer than it is", "{} as {how}", &text[..8]);
            }
        }
    }
}

#[tokio::test]
async fn a_live_token_of_the_gateway_leaves_by_no_write() {
    let mut house = TestGateway::new(TestGatewayPlan::default()).await;
    let path = house.path("notes.txt");
    for kind in sluice_gateway::keys::TokenKind::ALL {
        let token = sluice_gateway::keys::KeyToken::generate(kind, house.gw.entropy.as_ref());
        for content in
            [token.expose().to_owned(), format!("key: {}\u{200B}{}", &token.expose()[..20], &token.expose()[20..])]
        {
            let wish = json!({"capability": "filesystem.write", "arguments": {"path": path, "content": content}, "wait_ms": 0});
            let no = house.wish(wish).await.unwrap_err();
            assert_eq!(no.refusal.code(), Code::LeakFound);
            assert!(no.refusal.text().contains("sluicegate.token"), "{}", no.refusal.text());
        }
    }
    assert_eq!(house.let_go().await, 0);
}
