//! A wall clock that jumps ahead by more than a year under a running gateway, and comes back.
//!
//! The clock is moved for that process alone, by libfaketime; without it the scenario says so and does nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::depth::repetitions;

use super::load::AgentLoad;
use super::oracle::{EffectOracle, OracleBehavior};
use super::place;
use crate::running::{TestInstallation, ask, pause};

const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let found =
        folders.chain([PathBuf::from("/usr/lib")]).map(|folder| folder.join(LIBRARY)).find(|path| path.is_file());
    if found.is_none() {
        sluice_testkit::skip("no libfaketime on this machine (Debian: apt-get install libfaketime)");
    }
    found
}

fn alerts(place: &TestInstallation) -> String {
    ask(place.main, "GET", "/v1/alerts", &place.operator_token, None).unwrap().body.to_string()
}

fn status(place: &TestInstallation) -> Value {
    ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap().body
}

#[test]
fn clocks_that_jump_a_year_ahead_and_come_back() {
    let Some(library) = library() else { return };
    let oracle = EffectOracle::open();
    oracle.behave(OracleBehavior { late: 300, ..OracleBehavior::default() });
    let place = place(&oracle, None);
    let offset = place.folder.path().join("offset");
    fs::write(&offset, "+0\n").unwrap();
    let on = Path::new("1");
    let running = place.start_with(&[
        ("LD_PRELOAD", &library),
        ("FAKETIME_TIMESTAMP_FILE", &offset),
        ("FAKETIME_NO_CACHE", on),
        ("FAKETIME_DONT_FAKE_MONOTONIC", on),
    ]);
    let path = place.work().join("kept.txt");
    let write = json!({
        "capability": "filesystem.append", "idempotency_key": "kept", "wait_ms": 10_000,
        "arguments": {"path": path, "content": "once\n"},
    });
    let first = place.call(&write).unwrap();
    assert_eq!(first.body["status"], "done", "{first:?}");
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    for _ in 0..repetitions(1, 20) {
        load.goes_on(15);
        fs::write(&offset, "+400d\n").unwrap();
        let is_said = (0..6_000).any(|_| {
            pause(Duration::from_millis(20));
            status(&place)["clock_doubt"].is_string() && alerts(&place).contains("clock.jumped")
        });
        assert!(is_said, "nobody is told of the jump: {} {}", status(&place), alerts(&place));
        load.goes_on(15);
        // Keys are not forgotten, neither during the jump nor after it.
        assert_eq!(place.call(&write).unwrap().body["call_id"], first.body["call_id"]);
        fs::write(&offset, "+0\n").unwrap();
        load.goes_on(15);
    }
    assert_eq!(place.call(&write).unwrap().body["call_id"], first.body["call_id"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "once\n");
    fs::remove_file(&path).unwrap();
    let table = load.settle("clock jumps", false);
    table.assert_as_promised();
    assert!(!table.to_string().contains("held"), "a write is held for the jump: {table}");
    drop(running);
}
