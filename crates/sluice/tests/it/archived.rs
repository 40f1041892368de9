//! A log whose oldest entries were archived, under the real program: what is left verifies, what was archived verifies, and
//! neither can be shortened.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sluice_core::{Millis, NodeName};
use sluice_gateway::archive;
use sluice_store::{SegmentBounds, Store};
use sluice_testkit::clock::ManualClock;

use crate::running::{RunningGateway, TestInstallation, ask, now};

const ORG: &str = "defaults: {tier: autonomous}\n";

fn stop(mut running: RunningGateway) {
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    running.0.wait().unwrap();
}

fn sluice(place: &TestInstallation, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .env("SLUICE_CONFIG", place.folder.path().join("sluice.yaml"))
        .env("SLUICE_TOKEN", &place.operator_token)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs the program, demands the exit status, and gives what it printed.
fn run(place: &TestInstallation, status: i32, arguments: &[&str]) -> String {
    let output = sluice(place, arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn work(place: &TestInstallation, calls: usize) {
    for n in 0..calls {
        let arguments = json!({"key": format!("k{}", n % 20), "value": n});
        let answer = place
            .call(&json!({"capability": "state.persistent.set", "arguments": arguments, "allow_duplicate": true}))
            .unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Archives what a stopped gateway has signed, as its loop does when it is old enough.
fn archive_all(place: &TestInstallation) -> (PathBuf, u64) {
    let data = place.folder.path().join("data");
    let log = NodeName::new("gw").unwrap();
    let store = Store::open_file(&data.join("sluice.db"), log.clone(), Arc::new(ManualClock::at(now()))).unwrap();
    let key = fs::read_to_string(data.join("keys/audit.pub")).unwrap().trim().parse().unwrap();
    let folder = archive::folder_of(&data, &log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let later = now() + Millis::from_hours(1);
        let bounds = SegmentBounds { before: later, within: None, at_least: 256, at_most: 100_000 };
        let segment = store.next_segment(log.clone(), bounds).await.unwrap().unwrap();
        let start = archive::write(&store, &segment, &key, &folder).await.unwrap();
        let first = segment.prunable();
        store.prune_log(segment, start).await.unwrap();
        while store.sweep_pruned(log.clone(), 500).await.unwrap() {}
        (folder, first)
    })
}

fn standing(place: &TestInstallation) -> Value {
    ask(place.main, "GET", "/v1/recovery", &place.operator_token, None).unwrap().body["standing"].clone()
}

/// A gateway with two archived segments, running.
fn archived_twice() -> (TestInstallation, RunningGateway, PathBuf, u64) {
    let place = TestInstallation::new("", ORG, None);
    let mut first = 0;
    let mut folder = PathBuf::new();
    for _ in 0..2 {
        let running = place.start();
        work(&place, 300);
        stop(running);
        (folder, first) = archive_all(&place);
    }
    let running = place.start();
    work(&place, 5);
    (place, running, folder, first)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn what_is_left_of_an_archived_log_and_what_was_archived_verify_with_the_key() {
    let (place, running, folder, first) = archived_twice();
    assert_eq!(standing(&place), "trusted", "a gateway that archived is no gateway that was restored");
    let key = text(&place.folder.path().join("data/keys/audit.pub"));
    let left = run(&place, 0, &["audit", "verify", "--key", &key]);
    assert!(left.contains(&format!("the first {first} entries are archived")), "{left}");
    let segments = run(&place, 0, &["audit", "verify", "--archive", &text(&folder), "--key", &key]);
    assert!(segments.contains("segments     2") && segments.contains("verified"), "{segments}");
    // A checkpoint over archived entries is compared with the archive; one over later entries with what is left.
    let checkpoints = fs::read_to_string(archive::segments(&folder).unwrap()[0].join("checkpoints.txt")).unwrap();
    let kept = place.folder.path().join("kept.txt");
    fs::write(&kept, &checkpoints).unwrap();
    let old =
        run(&place, 0, &["audit", "verify", "--archive", &text(&folder), "--key", &key, "--against", &text(&kept)]);
    assert!(old.contains("anchored"), "{old}");
    let not_here = run(&place, 0, &["audit", "verify", "--key", &key, "--against", &text(&kept)]);
    assert!(not_here.contains("were not compared") && !not_here.contains("the first 0"), "{not_here}");
    fs::remove_file(&kept).unwrap();
    // An entry that is gone is said to be archived, and one that is left is shown and proven.
    for command in ["show", "prove"] {
        let gone = run(&place, 3, &["audit", command, "3"]);
        assert!(gone.contains("is archived"), "{command}: {gone}");
    }
    let kept = run(&place, 0, &["audit", "prove", &first.to_string()]);
    let proof = place.folder.path().join("proof.json");
    fs::write(&proof, kept).unwrap();
    run(&place, 0, &["audit", "verify", "--proof", &text(&proof), "--key", &key]);
    let out = place.folder.path().join("out");
    run(&place, 0, &["audit", "export", "--out", &text(&out)]);
    let exported = run(&place, 0, &["audit", "verify", "--export", &text(&out), "--key", &key]);
    assert!(exported.contains("verified"), "{exported}");
    stop(running);
}

#[test]
fn an_archive_with_a_changed_removed_or_foreign_segment_does_not_verify() {
    let (place, running, folder, _) = archived_twice();
    stop(running);
    let key = text(&place.folder.path().join("data/keys/audit.pub"));
    let found = archive::segments(&folder).unwrap();
    let verify = |status| run(&place, status, &["audit", "verify", "--archive", &text(&folder), "--key", &key]);
    // One character of one entry.
    let packed = found[1].join("entries.jsonl.gz");
    let good = fs::read(&packed).unwrap();
    let mut entries = String::new();
    GzDecoder::new(good.as_slice()).read_to_string(&mut entries).unwrap();
    let mut changed = GzEncoder::new(Vec::new(), Compression::default());
    changed.write_all(entries.replacen("state.persistent.set", "state.persistent.get", 1).as_bytes()).unwrap();
    fs::write(&packed, changed.finish().unwrap()).unwrap();
    let told = verify(9);
    assert!(told.contains("audit."), "{told}");
    // Half of a file.
    fs::write(&packed, &good[..good.len() / 2]).unwrap();
    assert!(matches!(sluice(&place, &["audit", "verify", "--archive", &text(&folder)]).status.code(), Some(1..)));
    fs::write(&packed, &good).unwrap();
    verify(0);
    // The second alone is the end of the log, and says so; with a stranger's first one it does not follow.
    let aside = place.folder.path().join("aside");
    fs::rename(&found[0], &aside).unwrap();
    assert!(verify(0).contains("are not in this folder"));
    let (other, other_running, others, _) = archived_twice();
    stop(other_running);
    fs::rename(&archive::segments(&others).unwrap()[0], &found[0]).unwrap();
    drop(other);
    verify(9);
    fs::remove_dir_all(&found[0]).unwrap();
    fs::rename(&aside, &found[0]).unwrap();
    verify(0);
}

#[test]
fn entries_that_nobody_archived_are_missing_whatever_the_database_says() {
    let place = TestInstallation::new("", ORG, None);
    let running = place.start();
    work(&place, 300);
    stop(running);
    let copy = fs::read(place.folder.path().join("data/sluice.db")).unwrap();
    archive_all(&place);
    let db = rusqlite::Connection::open(place.folder.path().join("data/sluice.db")).unwrap();
    let row: (i64, String, Vec<u8>, i64) = db
        .query_row("SELECT size, frontier, hash, archived FROM audit_pruned", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    drop(db);
    // The same row and the same entries missing, without the entry of the log that says so.
    let data = place.folder.path().join("data");
    for beside in ["sluice.db-wal", "sluice.db-shm"] {
        let _gone = fs::remove_file(data.join(beside));
    }
    fs::write(data.join("sluice.db"), copy).unwrap();
    let db = rusqlite::Connection::open(data.join("sluice.db")).unwrap();
    db.execute(
        "INSERT INTO audit_pruned (log, size, frontier, hash, archived, pruned_at) VALUES ('gw', ?1, ?2, ?3, ?4, 0)",
        (row.0, &row.1, &row.2, row.3),
    )
    .unwrap();
    db.execute("DELETE FROM audit_entries WHERE log = 'gw' AND seq < ?1", [row.0]).unwrap();
    drop(db);
    let told = run(&place, 9, &["audit", "verify", "--data", &text(&data)]);
    assert!(told.contains("no later entry says that it was archived"), "{told}");
}
