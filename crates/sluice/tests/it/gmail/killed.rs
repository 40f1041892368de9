//! The whole gateway killed (SIGKILL) while mails and drafts are on their way: none twice, none lost, all to be seen.
//!
//! The oracle is the mailbox, in a process of its own, read through its own API: a doubled effect is a second message
//! with the same subject, whatever the gateway believes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use sluice_testkit::postgres::Database;

use super::house::Mailbox;
use crate::running::{Place, ask, pause};

/// Fewer than the attempts after which a write that takes the gateway with it is set aside.
const KILLS: usize = 4;
const CLIENTS: usize = 4;
const RULES: &str = "defaults: {tier: autonomous}\n";
/// How long what is on its way may take after the last kill, in steps of a quarter of a second.
const PATIENCE: u32 = 120;

/// Subjects of the writes that were acknowledged, with the id of their call.
type Told = Arc<Mutex<BTreeMap<String, String>>>;

#[test]
fn kills_under_load_send_no_mail_twice_and_lose_none() {
    kill_under_load(None);
}

/// W11 as far as a kill reaches it: a gateway that dies between the COMMIT it sent and the answer reads again.
#[test]
fn kills_under_load_send_no_mail_twice_and_lose_none_on_postgres() {
    let Some(database) = Database::fresh() else { return };
    kill_under_load(Some(database.url()));
}

fn kill_under_load(postgres: Option<&str>) {
    let mailbox = Mailbox::open(30);
    let config = format!(
        "sandbox: degraded\nbatch: {{services: {{email: \"off\"}}}}\nholds:\n  delays:\n    email.send: 0s\n    email.draft: 0s\n\
         services:\n  connections:\n    gmail:\n      api: http://{}\n",
        mailbox.address
    );
    let place = Arc::new(Place::new(&config, RULES, postgres));
    std::fs::write(place.folder.path().join("policies/agents/clerk.yaml"), "rules: []\n").unwrap();
    let mut running = place.start();
    let body = json!({"token": mailbox.token()});
    let given = ask(place.main, "POST", "/v1/services/gmail/token", &place.operator_token, Some(&body)).unwrap();
    assert_eq!(given.status, 200, "{given:?}");

    let (told, over) = (Told::default(), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (place, told, over) = (Arc::clone(&place), Arc::clone(&told), Arc::clone(&over));
            std::thread::spawn(move || drive(&place, client, &told, &over))
        })
        .collect();
    let (mut random, mut doubts) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Each life does something before it ends, however busy the machine is.
        let before = happened(&mailbox);
        for _ in 0..100 {
            if happened(&mailbox) > before + 2 {
                break;
            }
            pause(Duration::from_millis(50));
        }
        pause(Duration::from_millis(random >> 56));
        running.kill();
        running = place.start();
        doubts += count(&place, "in_doubt");
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let told = told.lock().unwrap().clone();
    for _ in 0..PATIENCE {
        if ["held", "preparing", "armed"].into_iter().all(|state| count(&place, state) == 0)
            && told.values().filter(|call| status(&place, call) == "done").count() * 2 > told.len()
        {
            break;
        }
        pause(Duration::from_millis(250));
    }
    let (mut done, effects) = (0, effects(&mailbox));
    for (subject, call) in &told {
        let (status, times) = (status(&place, call), effects.get(subject).copied().unwrap_or(0));
        match status.as_str() {
            "done" => assert_eq!(times, 1, "{subject} is done"),
            // Visible, and on its way to a proof: it has happened at most once, and nobody has said more.
            "executing" | "in_doubt" | "held" => {
                assert!(times <= 1, "{subject} is {status} and happened {times} times")
            }
            other => panic!("{subject} ended as {other}"),
        }
        done += usize::from(status == "done");
    }
    assert!(effects.values().all(|times| *times == 1), "something happened twice: {effects:?}");
    println!("{KILLS} kills, {} writes, {done} done, {doubts} in doubt after a kill", told.len());
    assert!(doubts > 0 && done > KILLS, "too little happened to prove anything: {doubts} doubts, {done} done");
    drop(running);
}

/// One client: mails and drafts in turn, each asked for with its own key until there is an answer.
fn drive(place: &Place, client: usize, told: &Told, over: &AtomicBool) {
    for n in 0.. {
        let subject = format!("load {client} {n}");
        let capability = if n % 2 == 0 { "email.send" } else { "email.draft" };
        let arguments = json!({"to": "li@northpeak.example", "subject": subject, "body": "as said"});
        let body =
            json!({"capability": capability, "idempotency_key": subject, "wait_ms": 400, "arguments": arguments});
        for _ in 0..2_000 {
            if over.load(Ordering::SeqCst) {
                return;
            }
            match place.call(&body) {
                Ok(answer) if answer.body["call_id"].is_string() && answer.status < 300 => {
                    let call = answer.body["call_id"].as_str().unwrap().to_owned();
                    told.lock().unwrap().insert(subject.clone(), call);
                    break;
                }
                Ok(_) | Err(_) => pause(Duration::from_millis(20)),
            }
        }
    }
}

/// How much has happened at the mailbox.
fn happened(mailbox: &Mailbox) -> u64 {
    let said = mailbox.owner(&json!({}));
    said["sent"].as_u64().unwrap() + said["drafts"].as_u64().unwrap()
}

/// Held writes in a state.
fn count(place: &Place, state: &str) -> u64 {
    let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap();
    status.body["holds"][state].as_u64().unwrap_or(0)
}

fn status(place: &Place, call: &str) -> String {
    let answer = ask(place.main, "GET", &format!("/v1/calls/{call}"), &place.agent_key, None).unwrap();
    answer.body["status"].as_str().unwrap_or_default().to_owned()
}

/// How often each subject is among what was sent or drafted, by the mailbox's own word. A draft that was made for a
/// mail and is not sent yet carries no effect: only drafts that were asked for count, which have odd numbers.
fn effects(mailbox: &Mailbox) -> BTreeMap<String, usize> {
    let (token, mut found) = (mailbox.token(), BTreeMap::new());
    for label in ["SENT", "DRAFT"] {
        let list = format!("/gmail/v1/users/me/messages?labelIds={label}&maxResults=500");
        let list: Value = ask(mailbox.address, "GET", &list, &token, None).unwrap().body;
        for id in list["messages"].as_array().into_iter().flatten() {
            let path = format!("/gmail/v1/users/me/messages/{}?format=raw", id["id"].as_str().unwrap());
            let message = ask(mailbox.address, "GET", &path, &token, None).unwrap().body;
            let raw = message["raw"].as_str().unwrap().trim_end_matches('=');
            let raw = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(raw).unwrap();
            let raw = String::from_utf8_lossy(&raw).into_owned();
            let subject = raw.lines().find_map(|line| line.strip_prefix("Subject: load ")).map(str::to_owned);
            let Some(subject) = subject else { continue };
            let number: usize = subject.split(' ').nth(1).unwrap().trim().parse().unwrap();
            if label == "SENT" || number % 2 == 1 {
                *found.entry(format!("load {}", subject.trim())).or_default() += 1;
            }
        }
    }
    found
}

/// W12: the provider gave another refresh token and ended the one before, and the gateway died before it had the answer.
#[test]
fn a_renewed_grant_that_died_with_the_gateway_stops_the_connection_and_loses_no_write() {
    let mailbox = Mailbox::open(10);
    let at = mailbox.address;
    let config = format!(
        "sandbox: degraded\nholds: {{delays: {{email.send: 1m}}}}\nservices:\n  connections:\n    gmail:\n      client_id: us\n      \
         api: http://{at}\n      authorize: http://{at}/o/oauth2/v2/auth\n      token: http://{at}/token\n"
    );
    let place = Place::new(&config, RULES, None);
    std::fs::write(place.folder.path().join("policies/agents/clerk.yaml"), "rules: []\n").unwrap();
    let running = place.start();
    sign_in(&place);
    let until = |what: &str, there: &dyn Fn() -> bool| {
        for _ in 0..1_200 {
            if there() {
                return;
            }
            pause(Duration::from_millis(25));
        }
        panic!("it did not happen in time: {what}");
    };
    let state = || {
        let shown = ask(place.main, "GET", "/v1/services/gmail", &place.operator_token, None).unwrap();
        shown.body["state"].as_str().unwrap_or_default().to_owned()
    };
    until("the copy is whole", &|| state() == "live");
    let (sent, renewed) = (mailbox.sent(), || mailbox.calls_of("POST /token"));
    let before = renewed();
    let mail = json!({"to": "li@northpeak.example", "subject": "waits", "body": "as said"});
    let call = place.call(&json!({"capability": "email.send", "arguments": mail, "wait_ms": 0})).unwrap();
    let call = call.body["call_id"].as_str().unwrap().to_owned();
    // A new life knows nothing of the token and renews it first: the provider does, and the answer dies on its way.
    mailbox.owner(&json!({"lose_rotation": true}));
    running.kill();
    let running = place.start();
    until("the grant is renewed", &|| renewed() > before);
    running.kill();
    let running = place.start();
    until("the connection is stopped", &|| state() == "needs_reauth");
    let alerts = ask(place.main, "GET", "/v1/alerts", &place.operator_token, None).unwrap().body;
    let alerts = alerts["data"].as_array().cloned().unwrap_or_default();
    assert_eq!(alerts.iter().filter(|one| one["topic"] == "connection.needs_reauth").count(), 1, "{alerts:?}");
    assert_eq!(mailbox.sent(), sent);
    assert!(["held", "executing"].contains(&status(&place, &call).as_str()), "{}", status(&place, &call));
    let asked = renewed();
    sign_in(&place);
    until("it works again", &|| state() == "live");
    assert_eq!(renewed(), asked + 1, "what was refused is asked for once, and then a person signs in");
    drop(running);
}

/// A person says yes in the browser.
fn sign_in(place: &Place) {
    let operator = |path: &str, body: &Value| {
        let answer = ask(place.main, "POST", path, &place.operator_token, Some(body)).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    let begun = operator("/v1/services/gmail/connect", &json!({"redirect": "http://127.0.0.1:9/"}));
    let link = begun["link"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let (host, path) = link.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let home = text.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let part = |name: &str| {
        let query = home.split_once('?').unwrap().1;
        query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap().to_owned()
    };
    operator("/v1/services/gmail/finish", &json!({"state": part("state"), "code": part("code")}));
}
