//! Archiving under a whole gateway: what leaves the database is in verified files, whatever interrupts it.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use sluice_core::Millis;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::verify::{VerificationReport, VerifierTrust};
use sluice_gateway::archive::{self, ArchiveError};
use sluice_gateway::loops::archive::step;
use sluice_gateway::loops::housekeeping;
use sluice_store::SegmentBounds;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

const FEWEST: u64 = 256;
const MOST: u64 = 100_000;

async fn house() -> TestGateway {
    TestGateway::new(TestGatewayPlan { config: "retention: {audit: 7d}\n".into(), ..TestGatewayPlan::default() }).await
}

async fn fill(house: &TestGateway, calls: usize) {
    for n in 0..calls {
        house.call("state.persistent.set", json!({"key": format!("k{}", n % 50), "value": n})).await.unwrap();
    }
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
}

fn segments(house: &TestGateway) -> Vec<PathBuf> {
    let folder = archive::folder_of(&house.gw.config.data, house.gw.store.node());
    archive::segments(&folder).unwrap_or_default()
}

fn key(house: &TestGateway) -> VerifierKey {
    let text = fs::read_to_string(house.folder.path().join("data/keys/audit.pub")).unwrap();
    text.trim().parse().unwrap()
}

fn verified(house: &TestGateway) -> Vec<VerificationReport> {
    let trust = VerifierTrust { key: Some(key(house)), ..VerifierTrust::default() };
    segments(house).iter().map(|folder| archive::verify_folder(folder, &trust).unwrap()).collect()
}

/// Number of the first entry in the database.
async fn first_entry(house: &TestGateway) -> u64 {
    let log = house.gw.store.node().clone();
    house.gw.store.entries(log, 0, 1).await.unwrap()[0].seq
}

fn database(house: &TestGateway) -> rusqlite::Connection {
    rusqlite::Connection::open(house.folder.path().join("data/sluice.db")).unwrap()
}

#[tokio::test]
async fn entries_older_than_the_retention_move_to_segments_that_follow_one_another() {
    let mut house = house().await;
    fill(&house, 300).await;
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 0, "nothing is old");
    house.pass(Millis::from_hours(24 * 8));
    fill(&house, 300).await;
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 1);
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 0, "what is young stays");
    let first = first_entry(&house).await;
    assert!(first >= FEWEST, "{first}");
    // A gateway that starts again trusts its own database, and goes on archiving.
    house = house.restart(Millis::from_secs(5)).await;
    assert!(!house.gw.recovery.is_suspected());
    house.pass(Millis::from_hours(24 * 8));
    fill(&house, 3).await;
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 1);
    let reports = verified(&house);
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].first, reports[1].first), (0, reports[0].tree.size), "no entry is left out");
    let last = first_entry(&house).await;
    assert!(first < last && last <= reports[1].tree.size);
    let told = house.entries().await.into_iter().filter(|entry| entry["fact"]["kind"] == "audit.pruned");
    let to: Vec<_> =
        told.map(|entry| entry["fact"]["detail"]["pruned_to"].as_str().unwrap().parse::<u64>().unwrap()).collect();
    assert_eq!(to.last(), Some(&last), "the log says what it was pruned of");
}

#[tokio::test]
async fn an_archiving_that_was_interrupted_is_done_again_and_leaves_one_segment() {
    let house = house().await;
    fill(&house, 300).await;
    house.pass(Millis::from_hours(24 * 8));
    let log = house.gw.store.node().clone();
    let bounds = SegmentBounds { before: house.gw.now(), within: None, at_least: FEWEST, at_most: MOST };
    let segment = house.gw.store.next_segment(log.clone(), bounds).await.unwrap().unwrap();
    let folder = archive::folder_of(&house.gw.config.data, &log);
    archive::write(&house.gw.store, &segment, &key(&house), &folder).await.unwrap();
    // A crash before the log was pruned; and one while the files were written.
    fs::create_dir(folder.join(".partial-of-a-crash")).unwrap();
    assert_eq!(first_entry(&house).await, 0);
    fill(&house, 20).await;
    house.pass(Millis::from_hours(24 * 8));
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 1);
    let reports = verified(&house);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].tree.size > segment.end, "it holds what came since as well");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left of the interrupted ones");
    // A crash after the log was pruned, before its entries were deleted.
    assert!(first_entry(&house).await > 0);
}

#[tokio::test]
async fn a_log_with_a_damaged_entry_is_not_archived_and_loses_nothing() {
    for damage in [
        "UPDATE audit_entries SET hash = zeroblob(32) WHERE seq = 40",
        "DELETE FROM audit_entries WHERE seq = 40",
        "DELETE FROM audit_entries WHERE seq = 0",
    ] {
        let house = house().await;
        fill(&house, 300).await;
        house.pass(Millis::from_hours(24 * 8));
        database(&house).execute(damage, []).unwrap();
        let before = house.entries().await.len();
        let error = step(&house.gw, FEWEST, MOST).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Verify(_) | ArchiveError::Store(_)), "{damage}: {error}");
        assert_eq!(house.entries().await.len(), before, "{damage}");
        assert!(segments(&house).is_empty(), "{damage}: a segment that does not verify has no name");
        assert!(house.gw.store.pruned_log(house.gw.store.node().clone()).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn an_archive_that_cannot_be_written_deletes_nothing() {
    let house = house().await;
    fill(&house, 300).await;
    house.pass(Millis::from_hours(24 * 8));
    fs::write(house.gw.config.data.join(archive::FOLDER), "in the way").unwrap();
    let error = step(&house.gw, FEWEST, MOST).await.unwrap_err();
    assert!(matches!(error, ArchiveError::File(_)), "{error}");
    assert_eq!(first_entry(&house).await, 0);
    fs::remove_file(house.gw.config.data.join(archive::FOLDER)).unwrap();
    assert_eq!(step(&house.gw, FEWEST, MOST).await.unwrap(), 1, "it goes on when the folder can be written");
}
