//! The whole gateway killed (SIGKILL) while mails and drafts are on their way: none twice, none lost, all to be seen.
//!
//! The oracle is the mailbox, in a process of its own, read through its own API: a doubled effect is a second message
//! with the same subject, whatever the gateway believes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use sluice_testkit::postgres::TestDatabase;

use super::test_gateway::MailboxProcess;
use crate::running::{TestInstallation, ask, pause};

/// Fewer than the attempts after which a write that takes the gateway with it is set aside.
const KILLS: usize = 4;
const CLIENTS: usize = 4;
/// Writes the clients may ask for in each half of a life.
const WRITES_PER_STEP: usize = 8;
/// How late the mailbox answers while a life works: enough to keep the number of messages small.
const USUAL_DELAY_MS: u64 = 300;
const RULES: &str = "defaults: {tier: autonomous}\n";
/// How long what is on its way may take after the last kill, in steps of a quarter of a second.
const PATIENCE: u32 = 120;

/// Subjects of the writes that were acknowledged, with the id of their call.
type AcknowledgedSubjects = Arc<Mutex<BTreeMap<String, String>>>;

#[test]
fn kills_under_load_send_no_mail_twice_and_lose_none() {
    kill_under_load(None);
}

/// W11 as far as a kill reaches it: a gateway that dies between the COMMIT it sent and the answer reads again.
#[test]
fn kills_under_load_send_no_mail_twice_and_lose_none_on_postgres() {
    let Some(database) = TestDatabase::fresh() else { return };
    kill_under_load(Some(database.url()));
}

fn kill_under_load(postgres: Option<&str>) {
    let mailbox = MailboxProcess::open(30);
    let config = format!(
        "sandbox: degraded\nbatch: {{services: {{email: \"off\"}}}}\nholds:\n  delays:\n    email.send: 0s\n    email.draft: 0s\n\
         services:\n  connections:\n    gmail:\n      api: http://{}\n",
        mailbox.address
    );
    let place = Arc::new(TestInstallation::new(&config, RULES, postgres));
    std::fs::write(place.folder.path().join("policies/agents/clerk.yaml"), "rules: []\n").unwrap();
    let mut running = place.start();
    let body = json!({"token": mailbox.token()});
    let given = ask(place.main, "POST", "/v1/services/gmail/token", &place.operator_token, Some(&body)).unwrap();
    assert_eq!(given.status, 200, "{given:?}");

    mailbox.owner(&json!({"slow_ms": USUAL_DELAY_MS}));
    let (told, over) = (AcknowledgedSubjects::default(), Arc::new(AtomicBool::new(false)));
    let quota = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (place, told) = (Arc::clone(&place), Arc::clone(&told));
            let (quota, over) = (Arc::clone(&quota), Arc::clone(&over));
            std::thread::spawn(move || drive(&place, client, &told, &quota, &over))
        })
        .collect();
    for kill in 0..KILLS {
        // Each life finishes something, however busy the machine is.
        quota.fetch_add(WRITES_PER_STEP, Ordering::SeqCst);
        let before = done_calls(&place, &told);
        until(&format!("life {kill} finishes two writes"), &place, || done_calls(&place, &told) >= before + 2);
        // Then the mailbox does what it is asked at once and answers late: the kill finds effects that happened and
        // that the gateway has not heard of.
        mailbox.owner(&json!({"slow_ms": 20_000}));
        quota.fetch_add(WRITES_PER_STEP, Ordering::SeqCst);
        let before = count_effects(&mailbox);
        until(&format!("life {kill} has an unanswered effect"), &place, || count_effects(&mailbox) > before);
        running.kill();
        mailbox.owner(&json!({"slow_ms": USUAL_DELAY_MS}));
        running = place.start();
    }
    over.store(true, Ordering::SeqCst);
    mailbox.owner(&json!({"slow_ms": 0}));
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
    // Statuses before effects: a write that ends between the two readings has happened by the second.
    let statuses: Vec<_> = told.iter().map(|(subject, call)| (subject, status(&place, call))).collect();
    let (mut done, effects) = (0, effects(&mailbox));
    for (subject, status) in statuses {
        let times = effects.get(subject).copied().unwrap_or(0);
        match status.as_str() {
            "done" => assert_eq!(times, 1, "{subject} is done"),
            // Visible, and on its way to a proof: it has happened at most once, and nobody has said more.
            "executing" | "retrying" | "in_doubt" | "held" => {
                assert!(times <= 1, "{subject} is {status} and happened {times} times")
            }
            other => panic!("{subject} ended as {other}"),
        }
        done += usize::from(status == "done");
    }
    assert!(effects.values().all(|times| *times == 1), "something happened twice: {effects:?}");
    let doubts = doubts(&place);
    println!("{KILLS} kills, {} writes, {done} done, {doubts} times in doubt", told.len());
    assert!(doubts > 0 && done > KILLS, "too little happened to prove anything: {doubts} doubts, {done} done");
    drop(running);
}

/// Waits for what another process does, and says what the gateway last logged when it does not happen.
fn until(what: &str, place: &TestInstallation, mut happened: impl FnMut() -> bool) {
    for _ in 0..2_400 {
        if happened() {
            return;
        }
        pause(Duration::from_millis(25));
    }
    let log = std::fs::read_to_string(place.folder.path().join("log")).unwrap_or_default();
    let last: Vec<&str> = log.lines().rev().take(40).collect();
    panic!("it did not happen in time: {what}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
}

/// How many of the acknowledged writes are done.
fn done_calls(place: &TestInstallation, told: &AcknowledgedSubjects) -> usize {
    let calls: Vec<String> = told.lock().unwrap().values().cloned().collect();
    calls.iter().filter(|call| status(place, call) == "done").count()
}

/// One client: mails and drafts in turn, each asked for with its own key until there is an answer.
fn drive(place: &TestInstallation, client: usize, told: &AcknowledgedSubjects, quota: &AtomicUsize, over: &AtomicBool) {
    for n in 0.. {
        let subject = format!("load {client} {n}");
        let capability = if is_draft(client, n) { "email.draft" } else { "email.send" };
        let arguments = json!({"to": "li@northpeak.example", "subject": subject, "body": "as said"});
        let body =
            json!({"capability": capability, "idempotency_key": subject, "wait_ms": 400, "arguments": arguments});
        for _ in 0..10_000 {
            if over.load(Ordering::SeqCst) {
                return;
            }
            if told.lock().unwrap().len() >= quota.load(Ordering::SeqCst) {
                pause(Duration::from_millis(20));
                continue;
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

/// Whether a client asks for a draft or a mail. Not all for the same at the same time: a mail that is being prepared when
/// the gateway dies is in no doubt.
const fn is_draft(client: usize, n: usize) -> bool {
    (client + n) % 2 == 1
}

/// How many mails that were asked for are sent or drafted.
fn count_effects(mailbox: &MailboxProcess) -> usize {
    effects(mailbox).values().sum()
}

/// Held writes in a state.
fn count(place: &TestInstallation, state: &str) -> u64 {
    let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap();
    status.body["holds"][state].as_u64().unwrap_or(0)
}

/// How often a write was in doubt, by the record: a doubt may be settled before anybody looks.
fn doubts(place: &TestInstallation) -> usize {
    let (mut doubts, mut cursor) = (0, String::new());
    loop {
        let path = format!("/v1/audit/entries?limit=500{cursor}");
        let page = ask(place.main, "GET", &path, &place.operator_token, None).unwrap().body;
        doubts += page["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry.to_string().contains("\"hold.in_doubt\""))
            .count();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return doubts,
        }
    }
}

fn status(place: &TestInstallation, call: &str) -> String {
    let answer = ask(place.main, "GET", &format!("/v1/calls/{call}"), &place.agent_key, None).unwrap();
    answer.body["status"].as_str().unwrap_or_default().to_owned()
}

/// How often each subject is among what was sent or drafted, by the mailbox's own word. A draft that was made for a
/// mail and is not sent yet carries no effect: only drafts that were asked for count.
fn effects(mailbox: &MailboxProcess) -> BTreeMap<String, usize> {
    for _ in 0..100 {
        if let Some(found) = list_effects(mailbox) {
            return found;
        }
    }
    panic!("the mailbox changed during each of a hundred listings");
}

/// Reads the mailbox once. `None`: a message that was listed was gone when it was read (a draft that was sent meanwhile).
fn list_effects(mailbox: &MailboxProcess) -> Option<BTreeMap<String, usize>> {
    let (token, mut found) = (mailbox.token(), BTreeMap::new());
    for label in ["SENT", "DRAFT"] {
        let list = format!("/gmail/v1/users/me/messages?labelIds={label}&maxResults=500");
        let list: Value = ask(mailbox.address, "GET", &list, &token, None).unwrap().body;
        for id in list["messages"].as_array().into_iter().flatten() {
            let path = format!("/gmail/v1/users/me/messages/{}?format=raw", id["id"].as_str().unwrap());
            let message = ask(mailbox.address, "GET", &path, &token, None).unwrap().body;
            let raw = message["raw"].as_str()?.trim_end_matches('=');
            let raw = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(raw).unwrap();
            let raw = String::from_utf8_lossy(&raw).into_owned();
            let subject = raw.lines().find_map(|line| line.strip_prefix("Subject: load ")).map(str::to_owned);
            let Some(subject) = subject else { continue };
            let numbers: Vec<usize> = subject.split_whitespace().map(|word| word.parse().unwrap()).collect();
            if label == "SENT" || is_draft(numbers[0], numbers[1]) {
                *found.entry(format!("load {}", subject.trim())).or_default() += 1;
            }
        }
    }
    Some(found)
}

/// W12: the provider gave another refresh token and ended the one before, and the gateway died before it had the answer.
#[test]
fn a_renewed_grant_that_died_with_the_gateway_stops_the_connection_and_loses_no_write() {
    let mailbox = MailboxProcess::open(10);
    let at = mailbox.address;
    let config = format!(
        "sandbox: degraded\nholds: {{delays: {{email.send: 1m}}}}\nservices:\n  connections:\n    gmail:\n      client_id: us\n      \
         api: http://{at}\n      authorize: http://{at}/o/oauth2/v2/auth\n      token: http://{at}/token\n"
    );
    let place = TestInstallation::new(&config, RULES, None);
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
    assert!(["held", "executing", "retrying"].contains(&status(&place, &call).as_str()), "{}", status(&place, &call));
    let asked = renewed();
    sign_in(&place);
    until("it works again", &|| state() == "live");
    assert_eq!(renewed(), asked + 1, "what was refused is asked for once, and then a person signs in");
    drop(running);
}

/// A person says yes in the browser.
fn sign_in(place: &TestInstallation) {
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
