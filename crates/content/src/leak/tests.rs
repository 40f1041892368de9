//! Tests of the whole scan. Keys are assembled at run time and are of no use to anybody.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::*;

fn scan(parts: &[OutboundPart<'_>], scope: LeakScope) -> LeakReport {
    Scanner::new(&LeakConfig::default()).unwrap().scan(parts, scope, &LiveSecrets::default())
}

fn blocking(text: &str) -> Vec<String> {
    let report = scan(&[OutboundPart::new("body", text)], LeakScope::Service);
    report
        .findings
        .into_iter()
        .filter(|finding| finding.weight == LeakWeight::Block)
        .map(|finding| finding.pattern)
        .collect()
}

/// This many characters that look generated and are the same in every run.
fn noise(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters[usize::try_from(state % letters.len() as u64).unwrap()]
    };
    (0..length).map(|_| next()).collect()
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// A made-up key of a vendor.
fn key(mark: &str, alphabet: &str, length: usize) -> String {
    format!("{mark}{}", noise(alphabet, length))
}

#[test]
fn keys_of_many_vendors_are_found_in_an_ordinary_sentence() {
    for (mark, alphabet, length, id) in [
        ("ghp_", ALNUM, 36, "github.token"),
        ("npm_", ALNUM, 36, "npm.token"),
        ("glpat-", ALNUM, 20, "gitlab.token"),
        ("sk_live_", ALNUM, 24, "stripe.key"),
        ("AKIA", UPPER, 16, "aws.key_id"),
        ("AIza", ALNUM, 35, "google.api_key"),
        ("xoxb-123456789012-", ALNUM, 24, "slack.token"),
        ("SG.", ALNUM, 22, ""),
        ("shpat_", HEX, 32, "shopify.token"),
        ("dop_v1_", HEX, 64, "digitalocean.token"),
        ("hf_", ALNUM, 34, "huggingface.token"),
        ("sk-ant-api03-", ALNUM, 93, "anthropic.key"),
        ("xai-", ALNUM, 80, "seed.xai"),
        ("sk-", ALNUM, 24, "seed.sk"),
        ("Authorization: ApiKey ", ALNUM, 60, "header.token"),
        ("X-JFrog-Art-Api: ", ALNUM, 73, "header.private"),
        ("dckr_oat_", ALNUM, 32, "docker.token"),
        ("ddapp_", ALNUM, 34, "datadog.token"),
        ("tk-us-", ALNUM, 48, "scalingo.token"),
        ("p8e-", ALNUM, 32, "adobe.secret"),
        ("mdb_sa_sk_", ALNUM, 40, "mongodb.atlas"),
        ("hcxmk_", ALNUM, 58, "honeycomb.key"),
        ("https://hook.eu1.make.com/", "abcdefghijklmnopqrstuvwxyz0123456789", 32, "make.hook"),
        ("https://maker.ifttt.com/trigger/x/with/key/", ALNUM, 43, "make.hook"),
        ("WIFI:T:WPA;S:Home;P:", ALNUM, 12, ""),
        ("hvs.", ALNUM, 95, "vault.token"),
        ("lin_api_", ALNUM, 40, "linear.key"),
        ("dapi", HEX, 32, "databricks.token"),
        ("Bearer ", ALNUM, 20, "seed.bearer"),
        ("AGE-SECRET-KEY-1", UPPER, 58, "age.identity"),
        ("pypi-AgEIcHlwaS5vcmc", ALNUM, 60, "pypi.token"),
        ("rubygems_", HEX, 48, "rubygems.key"),
        ("dckr_pat_", ALNUM, 27, "docker.token"),
        ("NRAK-", UPPER, 27, "newrelic.key"),
        ("glsa_", ALNUM, 32, ""),
    ] {
        let text = format!("Hi Sam, please use {} for the deploy, thanks", key(mark, alphabet, length));
        let found = blocking(&text);
        if id.is_empty() {
            assert!(found.is_empty(), "half a key of {mark} is none: {found:?}");
        } else {
            assert!(found.iter().any(|found| found == id), "{mark}: {found:?}");
        }
    }
}

#[test]
fn placeholders_of_the_same_shape_pass() {
    for text in [
        format!("set it to ghp_{}", "x".repeat(36)),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        "sk-your-api-key-goes-here-please".to_owned(),
        "Authorization: Bearer <your token here please>".to_owned(),
        "export API_KEY=${API_KEY}".to_owned(),
        "curl -u user:$PASSWORD https://example.org".to_owned(),
        "-----BEGIN PRIVATE KEY----- goes in the file".to_owned(),
    ] {
        assert_eq!(blocking(&text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_sum_at_the_end_outweighs_any_doubt_about_the_rest() {
    let body = "example".repeat(4) + "ab";
    let mut sum = checksums::crc32(body.as_bytes());
    let digits: Vec<char> = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".chars().collect();
    let mut tail = Vec::new();
    for _ in 0..6 {
        tail.insert(0, digits[(sum % 62) as usize]);
        sum /= 62;
    }
    let right: String = format!("ghp_{body}{}", tail.iter().collect::<String>());
    assert_eq!(blocking(&right), ["github.token"]);
    assert_eq!(blocking(&format!("ghp_{body}000000")), Vec::<String>::new());
}

#[test]
fn whatever_dress_a_key_wears_it_is_found() {
    let plain = format!("the key is {} ok", key("ghp_", ALNUM, 36));
    let percent: String = plain.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let escaped: String = plain.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    let entities: String = plain.chars().map(|c| format!("&#{};", c as u32)).collect();
    let quoted = plain.replace("ghp_", "gh=70_");
    let invisible = plain.replace("ghp_", "g\u{200B}h\u{AD}p_");
    let wide: String = plain
        .chars()
        .map(|c| if c.is_ascii_graphic() { char::from_u32(c as u32 + 0xFEE0).unwrap() } else { c })
        .collect();
    let hex: String = plain.bytes().map(|byte| format!("{byte:02x}")).collect();
    let sixteen: Vec<u8> = plain.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let twice = STANDARD.encode(STANDARD.encode(&plain));
    let wrapped: String = STANDARD
        .encode(plain.repeat(4))
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8_lossy(line) + "\r\n")
        .collect();
    for (name, text) in [
        ("base64", STANDARD.encode(&plain)),
        ("base64url", URL_SAFE_NO_PAD.encode(&plain)),
        ("base64 of UTF-16", STANDARD.encode(sixteen)),
        ("twice", twice),
        ("wrapped", wrapped),
        ("hex", hex),
        ("percent", percent),
        ("escapes", escaped),
        ("entities", entities),
        ("quoted-printable", quoted),
        ("invisible", invisible),
        ("full width", wide),
    ] {
        assert!(blocking(&text).iter().any(|id| id == "github.token"), "{name}: {:?}", blocking(&text));
    }
}

#[test]
fn a_key_split_across_parts_is_found_and_honest_parts_are_not_glued() {
    let whole = key("ghp_", ALNUM, 36);
    let (one, two) = whole.split_at(17);
    let split = [OutboundPart::new("items[0]", one), OutboundPart::new("items[1]", two)];
    assert!(scan(&split, LeakScope::Service).findings.iter().any(|finding| finding.field == "(joined)"));
    let honest = [
        OutboundPart::new("subject", "token"),
        OutboundPart::new("body", "a word about nothing"),
        OutboundPart::new("footer", "end"),
    ];
    assert!(scan(&honest, LeakScope::Service).findings.is_empty());
}

fn vault(secret: &str, parts: &[OutboundPart<'_>]) -> bool {
    let live = LiveSecrets::new([("mail", secret)]).unwrap();
    let report = Scanner::new(&LeakConfig::default()).unwrap().scan(parts, LeakScope::Service, &live);
    report.findings.iter().any(|finding| finding.pattern == "vault.live" && finding.weight == LeakWeight::Block)
}

#[test]
fn a_secret_of_the_vault_does_not_leave_in_halves_whatever_the_order_of_the_fields() {
    let secret = noise(ALNUM, 30);
    let (one, two) = secret.split_at(14);
    let long = format!("{}{two}{}", "word after word ".repeat(200), " and so on".repeat(200));
    for parts in [
        [OutboundPart::new("body", two), OutboundPart::new("subject", one)],
        [OutboundPart::new("body", long.as_str()), OutboundPart::new("subject", one)],
        [OutboundPart::new("body", "nothing"), OutboundPart::new("note", format!("{two} first, then {one}"))],
    ] {
        assert!(vault(&secret, &parts), "{:?}", parts.iter().map(|part| &part.name).collect::<Vec<_>>());
    }
    let encoded = STANDARD.encode(&secret);
    let (one, two) = encoded.split_at(18);
    assert!(
        vault(&secret, &[OutboundPart::new("body", two), OutboundPart::new("subject", one)]),
        "halves of its base64"
    );
}

#[test]
fn blanks_and_line_ends_inside_do_not_hide_a_secret_of_the_vault() {
    let secret = noise(ALNUM, 24);
    let spaced: String = secret.chars().flat_map(|letter| [letter, ' ']).collect();
    let thin: String = secret.chars().flat_map(|letter| [letter, '\u{2009}']).collect();
    let (one, two) = secret.split_at(9);
    for text in [spaced, thin, format!("{one}\n{two}")] {
        assert!(vault(&secret, &[OutboundPart::new("body", text.as_str())]));
        let long = format!("{}{text}{}", "word after word ".repeat(100), " and so on".repeat(100));
        assert!(vault(&secret, &[OutboundPart::new("body", long), OutboundPart::new("subject", "hello")]));
    }
}

#[test]
fn the_common_beginning_of_a_secret_is_none() {
    let secret = format!("https://hooks.chat.example/services/{}", noise(ALNUM, 30));
    let said = "Hooks start with https://hooks.chat.example/services/ and are made in the settings.";
    assert!(!vault(&secret, &[OutboundPart::new("body", said), OutboundPart::new("subject", "hooks.chat.example")]));
    assert!(vault(&secret, &[OutboundPart::new("body", secret.as_str())]));
}

#[test]
fn the_key_of_a_field_is_read_with_its_value() {
    let value = serde_json::json!({"login": {"password": "tr0ub4dor"}, "note": "tr0ub4dor"});
    let report = scan(&parts_of("", &value), LeakScope::Service);
    let fields: Vec<&str> = report.findings.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!(fields, ["login.password"]);
}

#[test]
fn personal_data_blocks_in_proxies_and_asks_only_about_many_people_elsewhere() {
    let one = [OutboundPart::new("body", "write to ana@example.org or call +49 170 1234567, id 123456789012345678")];
    assert!(scan(&one, LeakScope::Proxy).blocks());
    assert!(!scan(&one, LeakScope::Service).blocks() && !scan(&one, LeakScope::Service).needs_approval());
    let many: String = (0..25).map(|n| format!("p{n}@example.org, ")).collect();
    assert!(scan(&[OutboundPart::new("body", many.as_str())], LeakScope::Service).needs_approval());
    assert!(
        !scan(&[OutboundPart::new("to", many.as_str())], LeakScope::Service).needs_approval(),
        "addressees are not content"
    );
}

fn weight(text: &str) -> Option<LeakWeight> {
    scan(&[OutboundPart::new("body", text)], LeakScope::Service).weight().filter(|weight| *weight > LeakWeight::Note)
}

#[test]
fn an_invitation_to_a_meeting_asks_a_person_and_is_not_refused() {
    let link = "https://us02web.zoom.us/j/85012345678?pwd=Q1ZkR3h1T2pWbE5hWmM4bVlwVDNzSDA5";
    for text in [
        format!("Join here: {link}"),
        format!("Join Zoom Meeting\n{link}\n\nMeeting ID: 850 1234 5678\nPasscode: aB3dE9\n"),
        "https://acme.webex.com/meet/ana\nMeeting password: pJx3Gm2Vt99 (from phones)".to_owned(),
        "https://teams.microsoft.com/l/meetup-join/19\nMeeting ID: 394 412\nPasscode: aB3dE9".to_owned(),
    ] {
        assert_eq!(weight(&text), Some(LeakWeight::Flag), "{text}");
    }
    assert_eq!(weight("Passcode: aB3dE9"), Some(LeakWeight::Block), "without its meeting it may be any");
    let other = format!("{link}\nthe root password of the server: pJx3Gm2Vt99");
    assert_eq!(weight(&other), Some(LeakWeight::Block), "a link beside it does not make it a passcode");
}

#[test]
fn keys_for_pages_and_logins_of_manuals_are_no_secrets() {
    let noise = noise(ALNUM, 30);
    for text in [
        format!("Stripe('pk_live_{noise}')"),
        format!("publishable_key = \"pk_test_{noise}\""),
        "DATABASE_URL: postgres://postgres:postgres@localhost:5432/app".to_owned(),
    ] {
        assert_eq!(weight(&text), None, "{text}");
    }
    assert_eq!(weight(&format!("sk_live_{noise}")), Some(LeakWeight::Block));
}

#[test]
fn passwords_in_prose_tables_and_other_languages_are_found() {
    let hex = noise(HEX, 32);
    for text in [
        "Passwort: Hx7!pQz93".to_owned(),
        "密码：Hx7!pQz93".to_owned(),
        "mot de passe : Hx7!pQz93".to_owned(),
        "Log in with password Winter2024!xk please".to_owned(),
        "<tr><td>Password</td><td>Hx7!pQz93</td></tr>".to_owned(),
        format!("the API key is {hex}"),
        key("ntn_", ALNUM, 46),
    ] {
        assert_eq!(weight(&text), Some(LeakWeight::Block), "{text}");
    }
    let signed = format!("https://b.s3.example/x?X-Amz-Credential=AKIA{}%2F20240101%2Fs3", self::noise(UPPER, 16));
    assert_eq!(weight(&signed), Some(LeakWeight::Flag), "a signed link asks");
}

#[test]
fn the_words_of_the_seed_block_everywhere() {
    for text in ["see /data/.openclaw/x", "in memory/owner/notes", "read SOUL.md first", "MEMORY.md", "openclaw.json"] {
        assert_eq!(blocking(text).len(), 1, "{text}");
    }
}

#[test]
fn no_finding_holds_what_was_found() {
    let secret = key("ghp_", ALNUM, 36);
    let report = scan(&[OutboundPart::new("body", format!("x {secret}"))], LeakScope::Service);
    let shown = format!("{report:?}");
    assert!(!shown.contains(&secret[4..]), "{shown}");
    let [finding] = report.findings.as_slice() else { panic!("{shown}") };
    assert_eq!((finding.length, finding.hash.len()), (40, 12));
}

#[test]
fn the_name_of_a_key_is_looked_at_and_never_told() {
    let secret = "kP9xQ2vLm7Zt";
    let live = LiveSecrets::new([("crm", secret.as_bytes())]).unwrap();
    let value = serde_json::json!({"value": {secret: "x", "other": {"deep": {secret: key("ghp_", ALNUM, 36)}}}});
    let report = Scanner::new(&LeakConfig::default()).unwrap().scan(&parts_of("", &value), LeakScope::Service, &live);
    let shown = format!("{report:?}");
    assert!(report.blocks() && !shown.contains(secret), "{shown}");
    let mut fields: Vec<&str> = report.findings.iter().map(|finding| finding.field.as_str()).collect();
    fields.sort_unstable();
    fields.dedup();
    assert_eq!(fields, ["(key 2)", "(key 5)", "(value)"]);
}

#[test]
fn hostile_lengths_end_quickly() {
    let long = 200_000;
    for text in [
        "a".repeat(long),
        "=".repeat(long),
        "%41".repeat(long / 3),
        "\\u0041".repeat(long / 6),
        "password=".repeat(long / 9),
        "://a:".repeat(long / 5),
        "@a.b".repeat(long / 4),
        "1 ".repeat(long / 2),
        "ghp_".repeat(long / 4),
        "QUFB".repeat(long / 4),
        "curl ".repeat(long / 5),
        "&#65;".repeat(long / 5),
        "-----BEGIN ".repeat(long / 11),
    ] {
        // The promise is that it ends; the time limit of the test suite checks it.
        let report = scan(&[OutboundPart::new("body", text.as_str())], LeakScope::Proxy);
        assert!(report.findings.len() <= 3 * ENOUGH);
    }
}
