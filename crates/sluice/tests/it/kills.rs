//! The whole process killed at random moments under load, with real clients and files that count.
//!
//! The oracle is the folder itself: every append is a line of its own, so a lost or a doubled effect is a
//! missing or a second line, whatever the gateway believes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::depth::repetitions;
use sluice_testkit::postgres::TestDatabase;

use crate::running::{TestInstallation, ask, pause};

/// Kills on each engine: a slice in every run, the whole count in a nightly one.
const KILLS: [u64; 2] = [100, 3_000];
const CLIENTS: usize = 6;
const RULES: &str = "defaults: {tier: autonomous}\n";
const CONFIG: &str = "batch: {services: {filesystem: off}}\n";

#[test]
fn nothing_is_lost_or_doubled_by_kills_on_sqlite() {
    kill_under_load(None);
}

#[test]
fn nothing_is_lost_or_doubled_by_kills_on_postgres() {
    let Some(database) = TestDatabase::fresh() else { return };
    kill_under_load(Some(database.url()));
}

/// What a client knows about one of its writes.
#[derive(Debug, Clone)]
struct ClientWriteRecord {
    line: String,
    /// The call's id, once an answer named it.
    call: Option<String>,
    status: String,
}

fn kill_under_load(postgres: Option<&str>) {
    let place = Arc::new(TestInstallation::new(CONFIG, RULES, postgres));
    let over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let sent: Arc<Mutex<BTreeMap<String, ClientWriteRecord>>> = Arc::default();
    let mut running = place.start();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (place, over, sent) = (Arc::clone(&place), Arc::clone(&over), Arc::clone(&sent));
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || drive(&place, client, &over, &sent, &acknowledged))
        })
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let kills = repetitions(KILLS[0], KILLS[1]);
    for _ in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pause(Duration::from_millis(random >> 56));
        running.kill();
        running = place.start();
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let mut sent = sent.lock().unwrap().clone();
    settle(&place, &mut sent);
    drain(&place);
    verify(&place, sent.values().filter(|one| one.status == "done").count());
    drop(running);
    judge(&place, &sent);
    let done = sent.values().filter(|one| one.status == "done").count();
    println!(
        "{kills} kills, {} writes, {done} done, {} acknowledged at once",
        sent.len(),
        acknowledged.load(Ordering::SeqCst)
    );
    assert!(done as u64 > kills / 4, "too little happened to prove anything: {done}");
}

/// One client: append a line, wait for the outcome, repeat with the same key until there is an answer.
fn drive(
    place: &TestInstallation,
    client: usize,
    over: &AtomicBool,
    sent: &Mutex<BTreeMap<String, ClientWriteRecord>>,
    acknowledged: &AtomicUsize,
) {
    for n in 0.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        // A file for each write: writes to one object wait for each other, and one in doubt would hold up the rest.
        let path = place.work().join(format!("{client}-{n}.log")).display().to_string();
        let (key, line) = (format!("{client}-{n}"), format!("line {client} {n}"));
        let body = json!({
            "capability": "filesystem.append", "idempotency_key": key, "wait_ms": 2000,
            "arguments": {"path": path, "content": format!("{line}\n")},
        });
        let mut one = ClientWriteRecord { line, call: None, status: "unknown".into() };
        sent.lock().unwrap().insert(key.clone(), one.clone());
        for _ in 0..600 {
            let Ok(answer) = place.call(&body) else {
                pause(Duration::from_millis(5));
                continue;
            };
            if answer.status == 503 {
                pause(Duration::from_millis(5));
                continue;
            }
            one.call = answer.body["call_id"].as_str().map(str::to_owned);
            one.status = answer.body["status"].as_str().unwrap_or("refused").to_owned();
            assert!(one.call.is_some(), "{answer:?}");
            if one.status == "done" {
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            break;
        }
        sent.lock().unwrap().insert(key, one);
    }
}

/// Waits until every write that has an id is over. What is proven absent is tried again after a minute.
fn settle(place: &TestInstallation, sent: &mut BTreeMap<String, ClientWriteRecord>) {
    for one in sent.values_mut() {
        let Some(call) = &one.call else { continue };
        for _ in 0..20 {
            let answer =
                ask(place.main, "GET", &format!("/v1/calls/{call}?wait_ms=5000"), &place.agent_key, None).unwrap();
            one.status = answer.body["status"].as_str().unwrap_or_default().to_owned();
            if !["held", "executing", "retrying", "in_doubt"].contains(&one.status.as_str()) {
                break;
            }
        }
    }
}

/// Waits until nothing is on its way any more, also of writes whose client never got an answer. What was proven
/// absent more than once waits for its next attempt longer than a test should: that it is scheduled is enough. On a slow
/// machine, kills can use up every attempt of a write: then people find it among the dead letters, or are asked whether
/// it happened.
fn drain(place: &TestInstallation) {
    let mut left = Value::Null;
    for _ in 0..160 {
        let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap();
        left = status.body["holds"].clone();
        if left == json!({}) {
            return;
        }
        pause(Duration::from_millis(500));
    }
    let seen = |state: &String| ["ready", "retrying", "dead", "needs_human"].contains(&state.as_str());
    assert!(left.as_object().is_some_and(|left| left.keys().all(seen)), "neither done, scheduled nor given up: {left}");
}

/// The record has every write that was done, and verifies from its first entry to its last.
fn verify(place: &TestInstallation, done: usize) {
    let sluice = |words: &[&str]| {
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(words)
            .env("SLUICE_URL", format!("http://{}", place.main))
            .env("SLUICE_TOKEN", &place.operator_token)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    sluice(&["audit", "verify"]);
    let folder = place.folder.path().join("export");
    sluice(&["audit", "export", "--out", folder.to_str().unwrap()]);
    let entries = std::fs::read_to_string(folder.join("entries.jsonl")).unwrap();
    let recorded = entries.lines().filter(|line| line.contains("\"hold.done\"")).count();
    assert!(recorded >= done, "{done} writes were done, and {recorded} are on record");
}

/// Holds what was told against what is in the files.
fn judge(place: &TestInstallation, sent: &BTreeMap<String, ClientWriteRecord>) {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for entry in std::fs::read_dir(place.work()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            for line in text.lines() {
                *found.entry(line.to_owned()).or_default() += 1;
            }
        }
    }
    for one in sent.values() {
        let times = found.get(&one.line).copied().unwrap_or(0);
        match one.status.as_str() {
            "done" => assert_eq!(times, 1, "{one:?}"),
            // Never answered, or waiting for another attempt: it may or may not have happened, but not twice.
            "unknown" | "executing" | "retrying" => assert!(times <= 1, "{one:?}"),
            // A person is asked whether it happened: it may have, once.
            "needs_human" | "needs_attention" | "in_doubt" => assert!(times <= 1, "{one:?}"),
            // Given up after attempts each of which was proven not to have happened.
            "dead" => assert_eq!(times, 0, "{one:?}"),
            _ => panic!("a write did not come to its end: {one:?}"),
        }
    }
    let known: std::collections::BTreeSet<&str> = sent.values().map(|one| one.line.as_str()).collect();
    assert!(found.keys().all(|line| known.contains(line.as_str())), "a line nobody asked for");
}
