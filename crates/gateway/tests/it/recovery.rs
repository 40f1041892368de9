//! Memory outside the database: a restored, cut or swapped database is noticed at start, nothing of it leaves, and only an
//! admin's decision lets it go on. What a crash leaves behind is none of that.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use sluice_core::hold::{HoldState, StaleReason};
use sluice_core::refusal::Code;
use sluice_core::{HoldId, Millis};
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::loops::housekeeping;
use sluice_gateway::recovery::decide::{RecoveryDecision, decide, view};
use sluice_gateway::{Gateway, recovery};
use sluice_store::{AlertFilter, FreezeTarget, MessageSeverity};

use super::test_gateway::{
    OnDatabaseFile, OnPostgresServer, TestGateway, TestGatewayDatabase, TestGatewayOn, TestGatewayPlan, ana,
};

pub fn plan() -> TestGatewayPlan {
    let config = "batch: {services: {filesystem: off}}\nholds: {delays: {\"filesystem.*\": 30s}}\n";
    TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }
}

/// A write that waits; its id.
pub async fn held<G: TestGatewayDatabase>(house: &TestGatewayOn<G>, name: &str) -> HoldId {
    let call = house.call("filesystem.write", json!({"path": house.path(name), "content": "x"})).await.unwrap();
    match call {
        CallOutcome::Held { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

/// Copies a folder with everything in it, replacing what was there.
pub fn copy(from: &Path, to: &Path) {
    let _there = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn state_of(root: &Path) -> Value {
    serde_json::from_slice(&fs::read(root.join("data.state/state.json")).unwrap()).unwrap()
}

fn write_state(root: &Path, state: &Value) {
    fs::write(root.join("data.state/state.json"), state.to_string()).unwrap();
}

/// What was found, as codes.
async fn found(gw: &Gateway) -> Vec<&'static str> {
    view(gw).await.unwrap().findings.into_iter().map(|finding| finding.code).collect()
}

/// Nothing leaves, nothing new is taken, people are told, and the record says why.
async fn assert_frozen<G: TestGatewayDatabase>(house: &mut TestGatewayOn<G>, code: &str) {
    assert!(house.gw.recovery.is_suspected());
    assert!(found(&house.gw).await.contains(&code), "{:?}", found(&house.gw).await);
    house.pass(Millis::from_hours(1));
    assert_eq!(house.let_go().await, 0);
    let no = house.call("filesystem.write", json!({"path": house.path("new"), "content": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::FreezeActive);
    let refused = house.gw.store.unfreeze(FreezeTarget::All, ana()).await.unwrap_err();
    assert_eq!(refused.code(), "recovery.required", "an ordinary unfreeze does not lift it");
    assert!(!housekeeping::checkpoint(&house.gw, 1).await.unwrap(), "nothing is signed");
    let filter = AlertFilter { severity_at_least: MessageSeverity::Critical, ..AlertFilter::default() };
    let alerts = house.gw.store.alerts(filter, None, 9).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.message.topic == "recovery.suspected"), "{alerts:?}");
    let entries = house.entries().await;
    let said = entries
        .iter()
        .any(|entry| entry["fact"]["kind"] == "recovery.suspected" && entry["fact"]["detail"].to_string().len() > 20);
    assert!(said, "{:?}", house.record().await);
}

#[tokio::test]
async fn a_restored_copy_of_the_data_folder_sends_nothing_until_a_person_decides() {
    let house = TestGateway::new(plan()).await;
    let (sent, cancelled) = (held(&house, "sent").await, held(&house, "cancelled").await);
    let mut house =
        house.restart_after(Millis::from_secs(1), |root| copy(&root.join("data"), &root.join("backup"))).await;
    house.gw.store.cancel(cancelled, ana()).await.unwrap();
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1);
    fs::remove_file(house.work().join("sent")).unwrap();

    let mut house =
        house.restart_after(Millis::from_secs(1), |root| copy(&root.join("backup"), &root.join("data"))).await;
    assert_frozen(&mut house, "recovery.starts_behind").await;
    for name in ["sent", "cancelled"] {
        assert!(!house.work().join(name).exists(), "{name} left again");
    }
    for id in [sent, cancelled] {
        let state = house.gw.store.hold(id).await.unwrap().unwrap().state;
        assert_eq!(state, HoldState::Stale { why: StaleReason::Restored });
    }

    // An investigation keeps it frozen, also across a start.
    decide(&house.gw, RecoveryDecision::Investigate, ana()).await.unwrap();
    assert_eq!(view(&house.gw).await.unwrap().standing, "investigating");
    let mut house = house.restart(Millis::from_secs(1)).await;
    assert_frozen(&mut house, "recovery.starts_behind").await;
    assert_eq!(view(&house.gw).await.unwrap().standing, "investigating");

    // Accepted: what was open stays with a person, what is new goes its way, and it is signed again.
    decide(&house.gw, RecoveryDecision::RestoredFromBackup, ana()).await.unwrap();
    assert_eq!(view(&house.gw).await.unwrap().standing, "trusted");
    assert_eq!(house.let_go().await, 0);
    held(&house, "new").await;
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1);
    assert!(house.work().join("new").exists() && !house.work().join("sent").exists());
    assert!(housekeeping::checkpoint(&house.gw, 1).await.unwrap());
    let kinds = house.record().await;
    for kind in ["recovery.investigating", "recovery.accepted"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind}");
    }
    let house = house.restart(Millis::from_secs(1)).await;
    assert!(!house.gw.recovery.is_suspected(), "the accepted database is the truth");
    let again = decide(&house.gw, RecoveryDecision::RestoredFromBackup, ana()).await.unwrap_err();
    assert_eq!(again.refusal.code(), Code::RecoveryNotNeeded);
}

#[tokio::test]
async fn a_copy_made_while_it_ran_is_behind_once_anything_left_also_after_a_kill() {
    let mut house = TestGateway::new(plan()).await;
    held(&house, "sent").await;
    house.pass(Millis::from_secs(31));
    let root = house.folder.path().to_path_buf();
    copy(&root.join("data"), &root.join("hot"));
    assert_eq!(house.let_go().await, 1);
    fs::remove_file(house.work().join("sent")).unwrap();
    // Dropped as it is: no loop had the time for a last look.
    let mut house = house.restart_after(Millis::from_secs(1), |root| copy(&root.join("hot"), &root.join("data"))).await;
    assert_frozen(&mut house, "recovery.log_behind").await;
    assert!(!house.work().join("sent").exists());
}

/// Kills at whatever point, and each point of a start.
async fn no_crash_looks_like_a_restore<G: TestGatewayDatabase>() {
    let mut house = TestGatewayOn::<G>::new(plan()).await;
    for n in 0..12 {
        held(&house, &format!("a{n}")).await;
        if n % 3 == 0 {
            house.pass(Millis::from_secs(31));
            house.let_go().await;
        }
        if n % 4 == 0 {
            housekeeping::checkpoint(&house.gw, 1).await.unwrap();
        }
        let dies_at = n % 4;
        house = house
            .restart_after(Millis::from_secs(1), move |root| {
                // As a start leaves it that died after it was announced, and after the database had counted it.
                let mut state = state_of(root);
                let epoch = state["epoch"].as_u64().unwrap();
                match dies_at {
                    0 => state["starting"] = json!(epoch + 1),
                    1 => (state["epoch"], state["starting"]) = (json!(epoch - 1), json!(epoch)),
                    _ => return,
                }
                write_state(root, &state);
            })
            .await;
        assert!(!house.gw.recovery.is_suspected(), "{n}: {:?}", found(&house.gw).await);
    }
}

#[tokio::test]
async fn a_killed_gateway_is_never_called_restored() {
    no_crash_looks_like_a_restore::<OnDatabaseFile>().await;
}

#[tokio::test]
async fn a_killed_gateway_on_a_server_is_never_called_restored() {
    no_crash_looks_like_a_restore::<OnPostgresServer>().await;
}

/// What is different between the file and the database, each alone.
async fn each_difference_is_named<G: TestGatewayDatabase>() {
    type Change = fn(&Path);
    let edits: [(&str, Change); 7] = [
        ("recovery.state_file_missing", |root| fs::remove_file(root.join("data.state/state.json")).unwrap()),
        ("recovery.state_file_unreadable", |root| fs::write(root.join("data.state/state.json"), "{").unwrap()),
        ("recovery.other_instance", |root| edit(root, |state| state["instance"] = json!("00ff"))),
        ("recovery.starts_behind", |root| edit(root, |state| state["epoch"] = json!(99))),
        ("recovery.starts_ahead", |root| edit(root, |state| state["epoch"] = json!(0))),
        ("recovery.log_behind", |root| edit_log(root, |log| log["size"] = json!(log["size"].as_u64().unwrap() + 500))),
        ("recovery.log_ahead", |root| edit_log(root, |log| log["reserved"] = json!(1))),
    ];
    for (code, change) in edits {
        let house = TestGatewayOn::<G>::new(plan()).await;
        let id = held(&house, "a").await;
        let mut house = house.restart_after(Millis::from_secs(1), change).await;
        assert_frozen(&mut house, code).await;
        assert!(!house.work().join("a").exists(), "{code}");
        let state = house.gw.store.hold(id).await.unwrap().unwrap().state;
        assert_eq!(state, HoldState::Stale { why: StaleReason::Restored }, "{code}");
        decide(&house.gw, RecoveryDecision::RestoredFromBackup, ana()).await.unwrap();
        let house = house.restart(Millis::from_secs(1)).await;
        assert!(!house.gw.recovery.is_suspected(), "{code}: {:?}", found(&house.gw).await);
    }
}

fn edit(root: &Path, change: impl FnOnce(&mut Value)) {
    let mut state = state_of(root);
    change(&mut state);
    write_state(root, &state);
}

fn edit_log(root: &Path, change: impl FnOnce(&mut Value)) {
    edit(root, |state| change(&mut state["logs"]["test"]));
}

#[tokio::test]
async fn a_database_behind_ahead_or_of_another_gateway_is_named_and_frozen() {
    each_difference_is_named::<OnDatabaseFile>().await;
}

#[tokio::test]
async fn a_server_s_database_behind_ahead_or_of_another_gateway_is_named_and_frozen() {
    each_difference_is_named::<OnPostgresServer>().await;
}

/// Cuts the record of a stopped gateway so that it looks whole: entries, checkpoints and the end of the log.
pub fn cut_history(database: &Path, size: u64) {
    let db = Connection::open(database).unwrap();
    let size = i64::try_from(size).unwrap();
    db.execute("DELETE FROM audit_entries WHERE log = 'test' AND seq >= ?1", [size]).unwrap();
    db.execute("DELETE FROM checkpoints WHERE log = 'test' AND size > ?1", [size]).unwrap();
    let hash: Vec<u8> = db
        .query_row("SELECT hash FROM audit_entries WHERE log = 'test' AND seq = ?1", [size - 1], |row| row.get(0))
        .unwrap();
    db.execute("UPDATE nodes SET log_size = ?1, log_hash = ?2 WHERE node = 'test'", params![size, hash]).unwrap();
}

/// Takes entries away and leaves the rest as it is.
pub fn cut_crudely(database: &Path, from: u64) {
    let db = Connection::open(database).unwrap();
    db.execute("DELETE FROM audit_entries WHERE log = 'test' AND seq >= ?1", [i64::try_from(from).unwrap()]).unwrap();
}

#[tokio::test]
async fn a_cut_history_is_named_and_never_signed() {
    let house = TestGateway::new(plan()).await;
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    held(&house, "a").await;
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    let before = house.gw.store.checkpoints(house.gw.store.node().clone()).await.unwrap();
    assert_eq!(before.len(), 2);
    let first = before[0].size;
    let mut house =
        house.restart_after(Millis::from_secs(1), |root| cut_history(&root.join("data/sluice.db"), first)).await;
    let codes = found(&house.gw).await;
    assert!(codes.contains(&"recovery.checkpoint_missing"), "{codes:?}");
    assert_frozen(&mut house, "recovery.log_behind").await;
    for _ in 0..3 {
        housekeeping::step(&house.gw, 0).await.unwrap();
    }
    let after = house.gw.store.checkpoints(house.gw.store.node().clone()).await.unwrap();
    assert_eq!(after.len(), 1, "the fork is not signed");
}

#[tokio::test]
async fn a_damaged_tail_freezes_at_start_and_cannot_be_accepted() {
    let house = TestGateway::new(plan()).await;
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    held(&house, "a").await;
    let size = house.gw.store.logs().await.unwrap()[0].1.size;
    let mut house =
        house.restart_after(Millis::from_secs(1), |root| cut_crudely(&root.join("data/sluice.db"), size - 1)).await;
    assert_frozen(&mut house, "recovery.record_damaged").await;
    let no = decide(&house.gw, RecoveryDecision::RestoredFromBackup, ana()).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::RecoveryDamaged);
    assert!(house.gw.recovery.is_suspected());
}

#[tokio::test]
async fn a_record_that_cannot_be_signed_any_more_freezes_a_running_gateway() {
    let mut house = TestGateway::new(plan()).await;
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    held(&house, "a").await;
    let size = house.gw.store.logs().await.unwrap()[0].1.size;
    cut_crudely(&house.folder.path().join("data/sluice.db"), size - 1);
    let no = housekeeping::checkpoint(&house.gw, 1).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::StoreDamaged);
    assert_frozen(&mut house, "recovery.record_damaged").await;
    assert!(!house.work().join("a").exists());
}

#[tokio::test]
async fn a_checkpoint_that_could_not_be_kept_is_kept_later() {
    let house = TestGateway::new(plan()).await;
    held(&house, "a").await;
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    let log = house.gw.store.node().clone();
    let signed = house.gw.store.last_checkpoint(log.clone()).await.unwrap().unwrap();
    // As a disk leaves it that was full between signing and keeping: the signer knows of it, the database does not.
    let database = house.folder.path().join("data/sluice.db");
    let forget = "DELETE FROM audit_nodes; DELETE FROM checkpoints";
    rusqlite::Connection::open(&database).unwrap().execute_batch(forget).unwrap();
    held(&house, "b").await;
    assert!(housekeeping::checkpoint(&house.gw, 1).await.unwrap());
    assert!(!house.gw.recovery.is_suspected(), "a full disk is not a restore");
    let kept = house.gw.store.last_checkpoint(log.clone()).await.unwrap().unwrap();
    assert_eq!((kept.size, kept.note.to_string()), (signed.size, signed.note.to_string()), "the very same note");
    assert!(housekeeping::checkpoint(&house.gw, 1).await.unwrap());
    assert!(house.gw.store.last_checkpoint(log).await.unwrap().unwrap().size > signed.size);
}

#[tokio::test]
async fn a_database_that_goes_back_under_a_running_gateway_stops_the_next_effect() {
    let mut house = TestGateway::new(plan()).await;
    held(&house, "a").await;
    recovery::step(&house.gw).await;
    let size = house.gw.store.logs().await.unwrap()[0].1.size;
    cut_history(&house.folder.path().join("data/sluice.db"), size - 2);
    house.pass(Millis::from_secs(31));
    house.let_go().await;
    assert!(!house.work().join("a").exists(), "it is armed, but the file outside knows more entries");
    assert!(house.gw.recovery.is_suspected());
}

#[tokio::test]
async fn while_the_state_file_cannot_be_written_nothing_leaves_and_people_are_told() {
    let mut house = TestGateway::new(plan()).await;
    held(&house, "a").await;
    let state = house.folder.path().join("data.state");
    fs::rename(&state, house.folder.path().join("gone")).unwrap();
    house.pass(Millis::from_secs(31));
    house.let_go().await;
    assert!(!house.work().join("a").exists());
    let filter = AlertFilter { severity_at_least: MessageSeverity::Critical, ..AlertFilter::default() };
    let alerts = house.gw.store.alerts(filter, None, 9).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.message.topic == "recovery.state_file"), "{alerts:?}");
    assert!(!house.gw.recovery.is_suspected(), "a full disk is not a restore");
    fs::rename(house.folder.path().join("gone"), &state).unwrap();
    house.pass(Millis::from_mins(2));
    house.let_go().await;
    assert!(house.work().join("a").exists(), "it is tried again");
}

#[tokio::test]
async fn a_database_of_an_earlier_release_is_adopted_and_a_new_data_folder_begins_anew() {
    let house = TestGateway::new(plan()).await;
    held(&house, "a").await;
    let earlier = |root: &Path| {
        let db = Connection::open(root.join("data/sluice.db")).unwrap();
        db.execute("DELETE FROM instances", []).unwrap();
        db.execute("DELETE FROM recovery_nodes", []).unwrap();
        fs::remove_dir_all(root.join("data.state")).unwrap();
    };
    let mut house = house.restart_after(Millis::from_secs(1), earlier).await;
    assert!(!house.gw.recovery.is_suspected());
    assert!(house.record().await.contains(&"recovery.adopted".to_owned()));
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1, "what was open goes its way");

    // Everything removed on purpose: a new gateway, and what was remembered of the old one is kept.
    let old = view(&house.gw).await.unwrap().instance;
    let house = house.restart_after(Millis::from_secs(1), |root| fs::remove_dir_all(root.join("data")).unwrap()).await;
    assert!(!house.gw.recovery.is_suspected());
    assert!(house.folder.path().join(format!("data.state/state.json.{old}")).exists());
    assert!(house.record().await.contains(&"recovery.replaced".to_owned()));
}

/// A failover to a standby that was behind, while the gateway runs.
#[tokio::test]
async fn a_server_that_went_back_is_noticed_on_reconnect_and_nothing_is_sent_afterwards() {
    let mut house = TestGatewayOn::<OnPostgresServer>::new(plan()).await;
    let Some(database) = house.database() else { return };
    let (sent, cancelled) = (held(&house, "sent").await, held(&house, "cancelled").await);
    database.keep_copy();
    house.gw.store.cancel(cancelled, ana()).await.unwrap();
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1);
    fs::remove_file(house.work().join("sent")).unwrap();
    let lost = held(&house, "lost").await;
    house.database().unwrap().fail_over();

    // Before anybody has looked: no call is taken, no write is claimed, nothing is stopped in vain.
    let no = house.call("filesystem.write", json!({"path": house.path("new"), "content": "x"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::StoreUnavailable);
    assert!(house.gw.store.missing_acknowledged().is_some());
    assert!(house.gw.store.due_holds(house.gw.now(), 9).await.is_err());

    recovery::step(&house.gw).await;
    assert_frozen(&mut house, "recovery.log_behind").await;
    for id in [sent, cancelled] {
        let state = house.gw.store.hold(id).await.unwrap().unwrap().state;
        assert_eq!(state, HoldState::Stale { why: StaleReason::Restored }, "it is in what is left, and was open there");
    }
    assert_eq!(house.gw.store.hold(lost).await.unwrap(), None);
    for name in ["sent", "cancelled", "lost", "new"] {
        assert!(!house.work().join(name).exists(), "{name} left");
    }

    // Also across a start; and a person's decision lets it go on.
    let house = house.restart(Millis::from_secs(1)).await;
    assert!(house.gw.recovery.is_suspected());
    decide(&house.gw, RecoveryDecision::RestoredFromBackup, ana()).await.unwrap();
    let mut house = house.restart(Millis::from_secs(1)).await;
    assert!(!house.gw.recovery.is_suspected());
    held(&house, "after").await;
    house.pass(Millis::from_secs(31));
    assert_eq!(house.let_go().await, 1);
    assert!(house.work().join("after").exists() && !house.work().join("sent").exists());
}

#[tokio::test]
async fn connections_that_are_cut_come_back_without_a_person() {
    let mut house = TestGatewayOn::<OnPostgresServer>::new(plan()).await;
    if house.database().is_none() {
        return;
    }
    for name in ["a", "b", "c"] {
        held(&house, name).await;
        house.database().unwrap().cut();
        recovery::step(&house.gw).await;
    }
    house.pass(Millis::from_secs(31));
    house.database().unwrap().cut();
    assert_eq!(house.let_go().await, 3);
    recovery::step(&house.gw).await;
    assert!(!house.gw.recovery.is_suspected());
    for name in ["a", "b", "c"] {
        assert!(house.work().join(name).exists(), "{name}");
    }
}
