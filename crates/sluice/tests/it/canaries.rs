//! Two hundred canaries through the real program: set, lent, sent, reflected, refused, revoked; none is in anything it
//! wrote or said.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::proxies::{ATTACK, ORG, wait_until};
use crate::running::{RunningGateway, TestInstallation, ask, pause};

const COUNT: usize = 200;

fn canary(n: usize) -> String {
    format!("CANARY{n:03}-{:x}", (n + 7) * 0x9e37_79b9)
}

/// Every spelling of every canary, to be looked for at once.
fn spellings() -> regex::bytes::Regex {
    let all: Vec<String> = (0..COUNT)
        .flat_map(|n| {
            let canary = canary(n);
            let percent: String = canary.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
            let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&canary);
            [canary, base64, hex, percent].map(|spelling| regex::escape(&spelling))
        })
        .collect();
    regex::bytes::RegexBuilder::new(&all.join("|")).size_limit(1 << 26).build().unwrap()
}

fn found(needles: &regex::bytes::Regex, bytes: &[u8]) -> BTreeSet<String> {
    needles.find_iter(bytes).map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned()).collect()
}

/// A service that gives back what it was sent, in every way it can think of.
fn mirror() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) < 3 {
                    break;
                }
                if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            drop(reader.read_exact(&mut body));
            log.lock().unwrap().extend_from_slice(head.as_bytes());
            let sent = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"));
            let sent = sent.and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
            let way = head.split(['/', ' ', '?']).find_map(|part| part.strip_prefix("way-")).unwrap_or_default();
            let encoded = base64::engine::general_purpose::STANDARD.encode(sent);
            let answer = match way {
                "well" => reply("200 OK", sent, &json!({"id": sent, "text": encoded}).to_string()),
                "refused" => reply("401 Unauthorized", sent, &format!("{{\"you sent\": \"{sent}\"}}")),
                "garbage" => reply("200 OK", sent, &format!("<p>{sent}</p>{encoded}")),
                "attack" => reply("200 OK", sent, &json!({"id": format!("{ATTACK} {sent}")}).to_string()),
                "cut" => format!("HTTP/1.1 200 {sent}\r\ncontent-length: 99999\r\n\r\n{sent}"),
                _ => reply("500 Internal Server Error", sent, sent),
            };
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    (address, heard)
}

fn reply(status: &str, sent: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nx-echo: {sent}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

fn declaration(service: SocketAddr) -> String {
    let answer = "{type: object, required: [id], properties: {id: {type: string}, text: {type: string}}}";
    let argument = "{type: text, required: true, max: 200}";
    format!(
        "service: Mirror\npurpose: Gives back what it gets.\nbase_url: http://{service}/v1\nallow_addresses: [127.0.0.1/32]\n\
         isolation: configured\ntrust: friend\ncredential: mirror/token\nlimits: {{per_minute: 5000, per_hour: 5000, burn: 5000}}\n\
         identity: {{relation: side, facts: {{last: {{type: text, max: 200}}}}, draft: {{text: {{type: text, max: 200}}}}}}\n\
         operations:\n  look:\n    summary: Reads.\n    path: /{{way}}\n    query: {{by: \"{{side}}\"}}\n\
         \x20   arguments: {{way: {argument}, side: {argument}}}\n    answer: {answer}\n    remember: {{last: /text}}\n\
         \x20 say:\n    summary: Posts.\n    method: POST\n    path: /{{way}}\n    body: {{text: \"{{text}}\"}}\n\
         \x20   arguments: {{way: {argument}, text: {argument}, side: {{type: text, max: 200}}}}\n    answer: {answer}\n\
         \x20   remember: {{last: /id}}\n    draft: {{does: open, named_by: text, keep: {{text: /text}}}}\n"
    )
}

/// Starts it with everything it can say kept: stdout and stderr, at its most talkative.
fn start(place: &TestInstallation) -> RunningGateway {
    let kept = |name: &str| fs::File::create(place.folder.path().join(name)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "--config"])
        .arg(place.folder.path().join("sluice.yaml"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(kept("stdout"))
        .stderr(kept("log"))
        .spawn()
        .unwrap();
    let running = RunningGateway(child);
    for _ in 0..3_000 {
        if ask(place.main, "GET", "/readyz", "", None).is_ok_and(|answer| answer.status == 200) {
            return running;
        }
        pause(Duration::from_millis(10));
    }
    panic!("the gateway did not get ready: {}", fs::read_to_string(place.folder.path().join("log")).unwrap());
}

/// Every file below a folder, with what is in it.
fn files(folder: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, all);
        } else if path.is_file() {
            all.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

fn sluice(place: &TestInstallation, words: &[&str], input: &str) -> Vec<u8> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(words)
        .env("SLUICE_URL", format!("http://{}", place.main))
        .env("SLUICE_TOKEN", &place.operator_token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let ran = child.wait_with_output().unwrap();
    [ran.stdout, ran.stderr].concat()
}

#[test]
fn no_canary_is_in_anything_the_program_writes_or_says() {
    let (service, heard) = mirror();
    let config = "holds: {delays: {\"proxy.*\": 0s}}\nsandbox: degraded\nlog: {level: trace, format: text}\n\
                  batch: {limit: 100000}\nbudgets: {writes_per_account: 100000, writes_per_gateway: 100000, \
                  writes_per_local_service: 100000, new_targets_per_agent: 100000}\n";
    let place = TestInstallation::new(config, ORG, None);
    let agent = "rules:\n  - {capability: \"proxy.*\", tier: autonomous}\n";
    fs::write(place.folder.path().join("policies/agents/clerk.yaml"), agent).unwrap();
    fs::create_dir_all(place.folder.path().join("proxies")).unwrap();
    fs::write(place.folder.path().join("proxies/mirror.yaml"), declaration(service)).unwrap();
    let running = start(&place);
    let mut said: Vec<u8> = Vec::new();
    let operator = |method: &str, path: &str, body: Option<&Value>| {
        ask(place.main, method, path, &place.operator_token, body).unwrap().body.to_string()
    };
    let mut ended = std::collections::BTreeMap::<&str, usize>::new();
    for n in 0..COUNT {
        let value = canary(n);
        // A new value each time: through the API, or through the command and its standard input.
        if n % 20 == 19 {
            said.extend(sluice(&place, &["secrets", "rotate", "mirror/token", "--overlap", "1s"], &value));
        } else {
            let secret = json!({
                "value": value, "capabilities": ["proxy.*"], "hosts": ["127.0.0.1"], "kind": "api_key",
            });
            said.extend(operator("PUT", "/v1/secrets/mirror%2Ftoken", Some(&secret)).into_bytes());
        }
        let way = match n {
            n if n % 20 == 3 => "refused",
            n if n % 20 == 7 => "garbage",
            n if n % 20 == 11 => "attack",
            n if n % 20 == 13 => "cut",
            n if n % 20 == 17 => "broken",
            _ => "well",
        };
        *ended.entry(way).or_default() += 1;
        let path = format!("way-{way}");
        let arguments = if way == "well" && n % 2 == 0 {
            json!({"capability": "proxy.mirror.look", "arguments": {"way": path, "side": format!("side {}", n % 7)}, "allow_duplicate": true})
        } else {
            let words = json!({"way": path, "text": format!("words {n}"), "side": "ana"});
            let wait = if way == "well" { 20_000 } else { 200 };
            json!({"capability": "proxy.mirror.say", "arguments": words, "allow_duplicate": true, "wait_ms": wait})
        };
        said.extend(place.call(&arguments).unwrap().body.to_string().into_bytes());
        let told = || String::from_utf8_lossy(&heard.lock().unwrap()).contains(&value);
        wait_until("the service has heard it", told);
        if way != "well" {
            let ended = || !operator("GET", "/v1/proxies/mirror", None).contains("\"state\":\"running\"");
            wait_until("the task has ended", ended);
        }
        if n % 10 == 4 {
            // An agent that has come by one tries to say it.
            let arguments = json!({"way": "way-well", "text": format!("it is {value}"), "side": "ana"});
            let body = json!({"capability": "proxy.mirror.say", "arguments": arguments});
            let answer = place.call(&body).unwrap();
            assert_ne!(answer.status, 200, "{answer:?}");
            said.extend(answer.body.to_string().into_bytes());
        }
        // Whatever stands against it by now, a person has looked.
        if way != "well" || n % 10 == 4 {
            operator("POST", "/v1/proxies/mirror/clear", None);
            operator("POST", "/v1/egress/proxy.mirror/reset", None);
        }
    }
    for path in [
        "/v1/proxies/mirror",
        "/v1/proxies/mirror/crashes",
        "/v1/secrets",
        "/v1/alerts",
        "/v1/audit/entries?last=true",
        "/v1/status",
    ] {
        said.extend(operator("GET", path, None).into_bytes());
    }
    for words in [
        &["proxies", "show", "mirror"][..],
        &["secrets", "list"],
        &["secrets", "show", "mirror/token"],
        &["holds", "list"],
    ] {
        said.extend(sluice(&place, words, ""));
    }
    let needles = spellings();
    let reached = found(&needles, &heard.lock().unwrap()).len();
    assert_eq!(reached, COUNT, "each canary reached the service it is for: {ended:?}");
    // As a power cut would, so that what is not yet in the database lies beside it.
    running.kill();
    let mut all = vec![("answers".to_owned(), said)];
    files(place.folder.path(), &mut all);
    let size = |ending: &str| -> usize {
        all.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, bytes)| bytes.len()).sum()
    };
    let count = |part: &str| all.iter().filter(|(name, _)| name.contains(part)).count();
    // What was looked through, so that nothing passes for want of something to find.
    assert!(size("sluice.db") > 100_000 && size("sluice.db-wal") > 10_000, "{} {}", size(".db"), size("-wal"));
    assert!(size("/log") > 1_000 && size("answers") > 50_000, "{} {}", size("/log"), size("answers"));
    assert!(
        count("/logs/crash-") >= 10 && count("/relations/") >= 8 && count("/drafts/") >= 50,
        "{:?}",
        all.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    assert!(count("audit.jsonl") >= 2, "the workspace's and its last good copy's");
    assert_eq!(count("/core"), 0, "a core was left");
    for (name, bytes) in &all {
        let singing = found(&needles, bytes);
        assert!(singing.is_empty(), "in {name}: {singing:?}");
    }
}
