//! JSON as services really write it, against a running gateway: escapes hide no attack, no character and no credential.

use std::fs;

use serde_json::{Value, json};
use sluice_content::leak::LiveSecrets;

use crate::proxies::{ATTACK, ProxiedServiceReply, WIDE, scene};
use crate::running::ask;

/// Every character as `\uXXXX`.
fn units(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// The inside of a JSON string as Python's `json.dumps` writes it: everything beyond ASCII is escaped.
pub(crate) fn dumped(text: &str) -> String {
    let plain = |c: char| if c.is_ascii() { c.to_string() } else { units(c.encode_utf8(&mut [0; 4])) };
    let quoted = Value::from(text).to_string();
    quoted.trim_matches('"').chars().map(plain).collect()
}

/// An attack that escapes take apart: each as the inside of a JSON string.
pub(crate) fn attacks() -> Vec<(&'static str, String)> {
    let between = |mark: &str| ATTACK.chars().map(|c| format!("{c}{mark}")).collect::<String>();
    let tags: String = ATTACK.bytes().filter_map(|byte| char::from_u32(0xe0000 + u32::from(byte))).collect();
    vec![
        ("everything escaped", units(ATTACK)),
        ("zero-width spaces", between("\\u200b")),
        ("soft hyphens", between("\\u00ad")),
        ("control characters", between("\\u0000")),
        ("tag characters", dumped(&format!("Thanks!{tags}"))),
        ("JSON in JSON", dumped(&format!("{{\"text\": \"{}\"}}", between("\\u200b")))),
        ("an HTML comment by Go", format!("\\u003cp\\u003eTea.\\u003c/p\\u003e\\u003c!-- {ATTACK} --\\u003e")),
    ]
}

/// How a service could spell a credential: each as the inside of a JSON string.
pub(crate) fn spellings(secret: &str) -> Vec<(&'static str, String)> {
    use base64::Engine as _;
    let each = |how: &dyn Fn(char) -> String| secret.chars().map(how).collect::<String>();
    let (half, rest) = secret.split_at(secret.len() / 2);
    let wide = each(&|c| char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c).to_string());
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    vec![
        ("as it is", secret.to_owned()),
        ("in a sentence", format!("you sent Bearer {secret}, thank you")),
        ("escapes", units(secret)),
        ("escapes in upper case", units(secret).to_uppercase().replace("\\U", "\\u")),
        ("halves with a blank", format!("{half} {rest}")),
        ("halves with a line end", format!("{half}\\n{rest}")),
        ("halves with an escaped blank", format!("{half}\\u00a0{rest}")),
        ("blanks", each(&|c| format!("{c} "))),
        ("raw zero-width characters", each(&|c| format!("{c}\u{200b}"))),
        ("escaped zero-width characters", each(&|c| format!("{c}\\u200b"))),
        ("escaped soft hyphens", each(&|c| format!("{c}\\u00ad"))),
        ("escaped controls", each(&|c| format!("{c}\\u0000"))),
        ("full width", dumped(&wide)),
        ("entities", each(&|c| format!("&#{};", u32::from(c)))),
        ("entities in hex", each(&|c| format!("\\u0026#x{:x};", u32::from(c)))),
        ("reversed", secret.chars().rev().collect()),
        ("reversed and escaped", units(&secret.chars().rev().collect::<String>())),
        ("percent", each(&|c| format!("%{:02x}", u32::from(c)))),
        ("quoted-printable", each(&|c| format!("={:02X}", u32::from(c)))),
        ("JSON in JSON", format!("{{\\\"echo\\\": \\\"{}\\\"}}", units(secret).replace('\\', "\\\\"))),
        ("base64", base64(secret)),
        ("escaped base64", units(&base64(secret))),
        ("hex", each(&|c| format!("{:02x}", u32::from(c)))),
        ("markup in between", format!("{half}\\u003cb\\u003e\\u003c/b\\u003e{rest}")),
    ]
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// No text of a value holds a secret in any spelling.
pub(crate) fn assert_holds_nothing(value: &Value, secret: &str, how: &str) {
    let known = LiveSecrets::new([("s", secret)]).unwrap();
    assert_eq!(known.scrub_json(value), None, "{how}: {value}");
    assert_eq!(known.scrub_text(&value.to_string()), None, "{how}: {value}");
    let (found, wanted) = (letters(&value.to_string()), letters(secret));
    assert!(!found.contains(&wanted), "{how}: {value}");
    assert!(!found.contains(&wanted.chars().rev().collect::<String>()), "{how}: backwards in {value}");
}

/// No file below a folder holds a secret, also not with other characters between its letters.
pub(crate) fn assert_no_file_holds(folder: &std::path::Path, secret: &str) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            assert_no_file_holds(&entry.path(), secret);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!letters(&text).contains(&letters(secret)), "it stands in {}", entry.path().display());
            assert!(!text.contains(&units(secret)), "its escapes stand in {}", entry.path().display());
        }
    }
}

#[test]
fn no_escape_in_the_answer_to_a_proxy_hides_an_attack_or_brings_a_hidden_character() {
    let scene = scene(WIDE);
    let shown = |text: &str| {
        scene.service.say(ProxiedServiceReply::Json(format!("{{\"posts\": [{{\"text\": \"{text}\"}}]}}")));
        scene.feed()
    };
    let honest = shown("caf\\u00e9 \\ud83d\\ude00 a\\u202eb\\u0000c\\u001b[2Jd\\u200be 1 \\u003c 2");
    let text = &honest.body["result"]["data"]["posts"][0]["text"];
    assert_eq!(text, "café 😀 a⟨U+202E⟩b⟨U+0000⟩c⟨U+001B⟩[2Jde 1 < 2", "{honest:?}");
    let page = shown(
        "\\u003cp\\u003eTea at \\u003cb\\u003efour\\u003c/b\\u003e\\u003c/p\\u003e\\u003cscript\\u003ex()\\u003c/script\\u003e",
    );
    assert_eq!(
        page.body["result"]["data"]["posts"][0]["text"].as_str().map(str::trim),
        Some("Tea at four"),
        "{page:?}"
    );
    // Bytes that are no UTF-8 are replaced, not guessed, and the agent is told.
    scene
        .service
        .say(ProxiedServiceReply::Bytes(b"{\"posts\": [{\"text\": \"\xcf\xf0\xe8\xe2\xe5\xf2 tea\"}]}".to_vec()));
    let replaced = scene.feed();
    let text = replaced.body["result"]["data"]["posts"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.starts_with('\u{fffd}') && text.ends_with(" tea"), "{text}");
    assert!(text.chars().all(|c| c.is_ascii() || c == '\u{fffd}'), "{text}");
    assert!(replaced.body["result"]["notes"].to_string().contains("replaced"), "{replaced:?}");
    assert!(honest.body["result"].get("notes").is_none(), "{honest:?}");
    // An attack cut into two strings, and one whole: both are crashes of the adversarial kind.
    let (first, second) = ATTACK.split_at(40);
    scene.service.say(ProxiedServiceReply::Json(json!({"posts": [{"text": first}, {"text": second}]}).to_string()));
    let cut = scene.feed();
    assert_eq!(cut.body["code"], "content.withheld", "{cut:?}");
}

#[test]
fn every_way_of_escaping_an_attack_is_withheld_by_a_proxy() {
    for (how, text) in attacks() {
        let scene = scene(WIDE);
        scene.service.say(ProxiedServiceReply::Json(format!("{{\"posts\": [{{\"text\": \"{text}\"}}]}}")));
        let answer = scene.feed();
        assert_eq!(answer.body["code"], "content.withheld", "{how}: {answer:?}");
        assert!(!answer.body.to_string().contains("attacker@evil"), "{how}");
    }
}

#[test]
fn a_key_given_twice_by_a_service_is_an_error_of_a_proxy() {
    let scene = scene(WIDE);
    for body in [
        r#"{"posts": [], "posts": [{"text": "x"}]}"#,
        r#"{"posts": [{"text": "a", "\u0074ext": "b"}]}"#,
        r#"{"posts": [{"text": "a", "te\u200bxt": "b"}]}"#,
    ] {
        scene.service.say(ProxiedServiceReply::Json(body.into()));
        let answer = scene.feed();
        assert_eq!((answer.status, &answer.body["code"]), (502, &json!("content.duplicate_key")), "{body}: {answer:?}");
    }
}

#[test]
fn no_spelling_of_a_credential_comes_back_through_a_proxy() {
    const SECRET: &str = "canary-board-token-7731";
    let scene = scene(WIDE);
    for (how, spelled) in spellings(SECRET) {
        scene.service.say(ProxiedServiceReply::Json(format!("{{\"posts\": [{{\"text\": \"{spelled}\"}}]}}")));
        let answer = scene.feed();
        assert_eq!(answer.status, 200, "{how}: {answer:?}");
        assert_holds_nothing(&answer.body, SECRET, how);
        let text = answer.body["result"]["data"]["posts"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("credential removed"), "{how}: {text}");
    }
    assert_no_file_holds(&scene.place.folder.path().join("data"), SECRET);
}

#[test]
fn what_a_client_says_its_agent_was_shown_is_read_decoded() {
    let scene = scene(WIDE);
    let (main, key) = (scene.place.main, &scene.place.agent_key);
    let session = ask(main, "POST", "/v1/sessions", key, Some(&json!({}))).unwrap();
    let id = session.body["session_id"].as_str().unwrap_or_else(|| panic!("{session:?}")).to_owned();
    let observed = |text: &str| {
        let body = json!({"capability": "custom:fetch", "text": text});
        ask(main, "POST", &format!("/v1/sessions/{id}/observations"), key, Some(&body)).unwrap().body
    };
    for (how, text) in attacks() {
        for document in [format!("{{\"text\": \"{text}\"}}"), format!("[1, \"x\", \"{text}\"]\n{{\"a\": 1}}")] {
            assert_eq!(observed(&document)["verdict"], "withheld", "{how}: {document}");
        }
    }
    let source = r#"{"page": "<p>Tea at <b>four</b></p>", "n": 1.50, "s": "caf\u00e9 \u202ex"}"#;
    let shown = observed(source);
    let expected = r#"{"page": "<p>Tea at <b>four</b></p>", "n": 1.50, "s": "café ⟨U+202E⟩x"}"#;
    assert_eq!((&shown["verdict"], &shown["text"]), (&json!("pass"), &json!(expected)));
}
