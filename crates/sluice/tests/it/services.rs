//! A service from the first yes to the receipt of its end, as a person types it: the real gateway, the real adapter in its
//! worker, and the demo's mailbox as the service.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cli_gateway::{CliTestGateway, ProcessLines};

/// The demo's mailbox, alone.
struct DemoMailboxProcess {
    child: Child,
    address: String,
}

impl DemoMailboxProcess {
    fn open() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["demo", "--mailbox", "127.0.0.1:0", "--messages", "300"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = ProcessLines::of(&mut child).next().unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self { child, address }
    }

    /// Lines of `sluice.yaml`.
    fn config(&self) -> String {
        let at = &self.address;
        format!(
            "services:\n  connections:\n    gmail:\n      client_id: sluice.apps.example\n      api: http://{at}\n      \
             authorize: http://{at}/o/oauth2/v2/auth\n      token: http://{at}/token\n      revoke: http://{at}/revoke\n\
             holds: {{delays: {{email.send: 10m}}}}\n"
        )
    }
}

impl Drop for DemoMailboxProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a browser does with a link: one request, and where it leads.
fn browse(url: &str) -> (String, Option<String>) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let location = answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().starts_with("location: ").then(|| line[10..].trim().to_owned()));
    (answer, location)
}

/// `sluice connect`, and a person who says yes in their browser.
fn connect(gate: &CliTestGateway, arguments: &[&str]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .current_dir(gate.bench.path(""))
        .env_clear()
        .env("SLUICE_CONFIG", gate.path("sluice.yaml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut remarks = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    let link = loop {
        let mut line = String::new();
        if remarks.read_line(&mut line).unwrap() == 0 {
            return (child.wait().unwrap().code().unwrap(), String::new(), said);
        }
        said.push_str(&line);
        if line.starts_with("http://") {
            break line.trim().to_owned();
        }
    };
    let home = browse(&link).1.unwrap_or_else(|| panic!("no way back from {link}"));
    assert!(browse(&home.replace("state=", "state=x")).0.starts_with("HTTP/1.1 404"), "a stranger is sent away");
    assert!(browse(&home).0.contains("You can close this window"));
    remarks.read_to_string(&mut said).unwrap();
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    (child.wait().unwrap().code().unwrap(), stdout, said)
}

fn service(gate: &CliTestGateway) -> Value {
    gate.json(&["services", "show", "gmail"])
}

fn until(gate: &CliTestGateway, wanted: impl Fn(&Value) -> bool) -> Value {
    let found = (0..5_000).map(|_| service(gate)).find(|view| wanted(view));
    found.unwrap_or_else(|| panic!("it never came: {}", service(gate)))
}

#[test]
fn a_mailbox_is_connected_looked_after_and_ended_with_a_receipt() {
    let mailbox = DemoMailboxProcess::open();
    let gate = CliTestGateway::with(&mailbox.config());
    assert_eq!(service(&gate)["state"], "available");
    assert_eq!(gate.run(&["replica", "search", "invoice"]).code, 3, "nothing is connected");
    let secret = gate.bench.path("client.txt");
    std::fs::write(&secret, "sluice-client-secret\n").unwrap();
    let (code, stdout, stderr) =
        connect(&gate, &["connect", "gmail", "--no-browser", "--client-secret-file", secret.to_str().unwrap()]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("gmail is connected: "), "{stdout}");
    // Its copy is made, and is searched without asking the service.
    let view = until(&gate, |view| view["state"] == "live");
    assert!(view["messages"].as_u64().unwrap() >= 300, "{view}");
    let found = gate.json(&["replica", "search", "invoice", "--limit", "3"]);
    assert_eq!(found["data"].as_array().unwrap().len(), 3, "{found}");
    assert_eq!(gate.json(&["services", "test", "gmail"])["works"], true);
    assert!(gate.works(&["services", "sync", "gmail"]).contains(" in 1 page"));
    assert!(gate.works(&["services", "capabilities", "gmail"]).contains("email.send"));
    let status = gate.works(&["status"]);
    assert!(status.contains("service     gmail, live, synced"), "{status}");
    // A held write is stopped by the end; so is everything else.
    let mail = json!({"to": "li@northpeak.example", "subject": "Hello", "body": "Text"});
    let call = gate.call("email.send", &mail, &[]);
    assert_eq!(call.code, 8, "{}{}", call.stdout, call.stderr);
    let held: Value = serde_json::from_str(&call.stdout).unwrap();
    assert_eq!(service(&gate)["pending"], 1);
    gate.works(&["services", "pause", "gmail"]);
    assert_eq!(service(&gate)["state"], "paused");
    gate.works(&["services", "resume", "gmail"]);
    assert_eq!(gate.run(&["disconnect", "gmail"]).code, 2, "nobody is there to be asked");
    let receipt = gate.works(&["disconnect", "gmail", "--yes"]);
    for part in [
        "grant         revoked",
        "1 held write",
        "messages deleted",
        "service/gmail/oauth",
        "service/gmail/access",
        "email.send",
    ] {
        assert!(receipt.contains(part), "`{part}` is not in\n{receipt}");
    }
    assert!(receipt.contains(held["buffer_id"].as_str().unwrap()));
    assert_eq!(gate.json(&["holds", "show", held["buffer_id"].as_str().unwrap()])["state"], "cancelled");
    assert_eq!(service(&gate)["state"], "disconnected");
    assert_ne!(gate.call("email.search", &json!({"query": "invoice"}), &[]).code, 0, "it is offered no longer");
    let revoked = gate.json(&["secrets", "list"]);
    let live: Vec<&str> = revoked["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["revoked"] == false)
        .filter_map(|s| s["name"].as_str())
        .collect();
    assert!(!live.iter().any(|name| name.ends_with("/oauth") || name.ends_with("/access")), "{live:?}");
    // And it can begin anew.
    let (code, stdout, stderr) = connect(&gate, &["services", "connect", "gmail", "--no-browser"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

/// What the owner of the mailbox does past its API.
fn control(mailbox: &DemoMailboxProcess, wish: &Value) {
    let mut stream = TcpStream::connect(&mailbox.address).unwrap();
    let body = wish.to_string();
    write!(
        stream,
        "POST /__control HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_yes_taken_back_at_the_provider_stops_all_work_tells_people_once_and_is_mended_by_a_new_one() {
    let mailbox = DemoMailboxProcess::open();
    let gate = CliTestGateway::with(&mailbox.config());
    assert_eq!(connect(&gate, &["connect", "gmail", "--no-browser"]).0, 0);
    let before = until(&gate, |view| view["state"] == "live");
    control(&mailbox, &json!({"revoke": true}));
    for _ in 0..3 {
        assert_ne!(gate.run(&["services", "sync", "gmail"]).code, 0);
    }
    let view = service(&gate);
    assert_eq!((view["state"].as_str(), &view["messages"]), (Some("needs_reauth"), &before["messages"]), "{view}");
    assert!(gate.works(&["status"]).contains("gmail, needs_reauth"));
    let alerts = gate.json(&["alerts", "list"]);
    let told =
        alerts["data"].as_array().unwrap().iter().filter(|one| one["topic"] == "connection.needs_reauth").count();
    assert_eq!(told, 1, "{alerts}");
    assert_eq!(gate.run(&["services", "test", "gmail"]).code, 1);
    // What was copied is still read.
    assert_eq!(gate.call("email.search", &json!({"query": "invoice"}), &[]).code, 0);
    let (code, stdout, stderr) = connect(&gate, &["services", "reconnect", "gmail", "--no-browser"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    until(&gate, |view| view["state"] == "live");
    assert_eq!(gate.json(&["services", "test", "gmail"])["works"], true);
}

/// A request with a form, and where it leads.
fn submit(host: &str, path: &str, form: &str) -> Option<String> {
    let mut stream = TcpStream::connect(host).unwrap();
    let kind = "content-type: application/x-www-form-urlencoded\r\nconnection: close";
    write!(stream, "POST {path} HTTP/1.1\r\nhost: {host}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{form}", form.len())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().starts_with("location: ").then(|| line[10..].trim().to_owned()))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test: where its counterpart is comes from outside")]
fn somebody_elses_gmail_is_connected_by_pasting_and_copied() {
    let Ok(at) = std::env::var("SLUICE_TEST_GMAIL_EMULATOR") else {
        assert!(std::env::var("SLUICE_TEST_STRICT").is_err(), "SLUICE_TEST_GMAIL_EMULATOR is not set");
        eprintln!("skipped: SLUICE_TEST_GMAIL_EMULATOR is not set");
        return;
    };
    let gate = CliTestGateway::with(&format!(
        "services:\n  connections:\n    gmail:\n      client_id: sluice.apps.example\n      api: http://{at}\n      \
         authorize: http://{at}/o/oauth2/v2/auth\n      token: http://{at}/oauth2/token\n      revoke: http://{at}/oauth2/revoke\n"
    ));
    let secret = gate.bench.path("client.txt");
    std::fs::write(&secret, "sluice-client-secret\n").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["connect", "gmail", "--paste", "--client-secret-file", secret.to_str().unwrap()])
        .env_clear()
        .env("SLUICE_CONFIG", gate.path("sluice.yaml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut remarks = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("http://") {
        line.clear();
        assert_ne!(remarks.read_line(&mut line).unwrap(), 0, "no link");
    }
    // The person chooses their account on another machine, and brings back the address the browser could not open.
    let query = line.trim().split_once('?').unwrap().1;
    let form = format!("{query}&email=testuser%40example.com");
    let home = submit(&at, "/o/oauth2/v2/auth/callback", &form).unwrap();
    assert!(home.starts_with("http://127.0.0.1:7429/?"), "{home}");
    writeln!(child.stdin.take().unwrap(), "{home}").unwrap();
    let mut said = String::new();
    remarks.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    until(&gate, |view| view["state"] == "live");
    let found = gate.json(&["replica", "search", "subject:welcome"]);
    assert!(found["data"].as_array().unwrap().iter().any(|mail| mail["subject"] == "Welcome"), "{found}");
    assert_eq!(gate.json(&["services", "test", "gmail"])["works"], true);
    assert!(gate.works(&["disconnect", "gmail", "--yes"]).contains("grant         revoked"));
}

#[test]
fn a_service_nobody_described_and_a_client_nobody_named_are_refused_with_a_reason() {
    let gate = CliTestGateway::open();
    let run = gate.run(&["connect", "gmail", "--no-browser"]);
    assert!(
        run.code != 0 && run.stderr.contains("`client_id` of the service is not set under `services.connections`"),
        "{}",
        run.stderr
    );
    let run = gate.run(&["services", "show", "gmail"]);
    assert_eq!(run.code, 3, "{}", run.stderr);
}
