//! What breaks under a running gateway: the database, the disk, the clock.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::corridor::CallOutcome;
use sluice_gateway::{DiskSpace, loops};

use crate::test_gateway::{OnPostgresServer, TestGateway, TestGatewayOn, TestGatewayPlan, ana};

/// A small file system of one's own.
struct SmallTestDisk(tempfile::TempDir);

impl SmallTestDisk {
    /// Nothing where this machine does not allow one; the test says so.
    fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let words = ["-t", "tmpfs", "-o", &format!("size={size}"), "sluice-test"];
        let mounted = Command::new("mount").args(words).arg(folder.path()).output();
        if mounted.is_ok_and(|run| run.status.success()) {
            return Some(Self(folder));
        }
        sluice_testkit::skip("no file system of one's own here (needs root and mount)");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallTestDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).output());
    }
}

fn note(n: usize, size: usize) -> Value {
    json!({"key": format!("k{n}"), "value": "x".repeat(size)})
}

#[tokio::test]
async fn on_a_full_disk_writes_are_refused_and_stopping_still_works() {
    let Some(disk) = SmallTestDisk::of("48m") else { return };
    let data = disk.path().join("data");
    let config = format!("data: {}\nholds: {{delays: {{\"state.*\": 30s}}}}\n", data.display());
    let mut house = TestGateway::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    let CallOutcome::Held { hold, .. } = house.call("state.persistent.set", note(0, 10)).await.unwrap() else {
        panic!()
    };
    let ballast = disk.path().join("ballast");
    let refused =
        |answer: Result<CallOutcome, sluice_services::CallError>| answer.err().map(|no| no.refusal.code().as_str());
    let mut fill = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut fill, &[1; 4096]).is_ok() {}
    drop(fill);
    let mut said = None;
    for n in 1..2_000 {
        said = refused(house.call("state.persistent.set", note(n, 20_000)).await);
        if said.is_some() {
            break;
        }
    }
    assert_eq!(said, Some("store.disk_full"));
    let before = house.gw.store.holds(None, 10_000).await.unwrap().len();
    let mut unanswered = false;
    for _ in 0..500 {
        unanswered |= refused(house.call("system.time", json!({})).await).is_some();
    }
    assert!(unanswered, "no answer without its record");
    loops::housekeeping::step(&house.gw, 1).await.ok();
    assert_ne!(house.gw.disk_space(), DiskSpace::Enough, "the gateway has seen it");
    // What stops things has space of its own.
    let lane = house.gw.store.stop_lane();
    lane.freeze(sluice_store::FreezeTarget::All, ana(), "full".into()).await.unwrap();
    lane.cancel(hold, ana()).await.unwrap();
    assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "cancelled");
    std::fs::remove_file(&ballast).unwrap();
    house.gw.store.unfreeze(sluice_store::FreezeTarget::All, ana()).await.unwrap();
    loops::housekeeping::step(&house.gw, 1).await.unwrap();
    assert_eq!(house.gw.store.holds(None, 10_000).await.unwrap().len(), before, "nothing refused was kept");
    assert!(matches!(house.call("state.persistent.set", note(5_000, 10)).await, Ok(CallOutcome::Held { .. })));
    house.pass(Millis::from_secs(31));
    assert!(house.let_go().await > 0, "what was acknowledged leaves");
}

#[tokio::test]
async fn while_the_database_is_away_calls_are_refused_and_nothing_is_lost() {
    let config = "holds: {delays: {\"state.*\": 30s}}\n".to_owned();
    let mut house =
        TestGatewayOn::<OnPostgresServer>::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    if house.database().is_none() {
        return;
    }
    let CallOutcome::Held { hold, .. } = house.call("state.persistent.set", note(0, 10)).await.unwrap() else {
        panic!()
    };
    // Calls are on their way while the server goes.
    let calls = futures_util::future::join_all((1..10).map(|n| house.call("state.persistent.set", note(n, 10))));
    let gone = async {
        tokio::task::yield_now().await;
        house.database().unwrap().go_away();
    };
    let (answers, ()) = tokio::join!(calls, gone);
    let no = house.call("state.persistent.set", note(99, 10)).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "store.unavailable");
    assert!(house.call("system.time", json!({})).await.is_err(), "no answer without its record");
    house.database().unwrap().come_back();
    let mut again = Err(no);
    for _ in 0..50 {
        again = house.call("state.persistent.set", note(100, 10)).await;
        if again.is_ok() {
            break;
        }
    }
    assert!(matches!(again, Ok(CallOutcome::Held { .. })), "{again:?}");
    // A reader that was cut off says so once and is another one the next time.
    let mut kept = house.gw.store.holds(None, 1_000).await;
    for _ in 0..20 {
        if kept.is_ok() {
            break;
        }
        kept = house.gw.store.holds(None, 1_000).await;
    }
    let kept = kept.unwrap();
    assert!(kept.iter().any(|kept| kept.id == hold));
    for answer in &answers {
        // Acknowledged means kept. A refused one may be there only if its outcome was called unknown.
        if let Ok(CallOutcome::Held { hold, .. }) = answer {
            assert!(kept.iter().any(|kept| kept.id == *hold));
        }
    }
    house.pass(Millis::from_secs(31));
    house.let_go().await;
    assert_eq!(house.gw.store.hold(hold).await.unwrap().unwrap().state.word(), "done");
}

#[tokio::test]
async fn a_clock_set_back_lets_nothing_out_early_and_loses_nothing() {
    let config = "holds: {delays: {\"filesystem.*\": 30s}}\n".to_owned();
    let mut house = TestGateway::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    house.call("filesystem.write", json!({"path": house.path("a"), "content": "x"})).await.unwrap();
    house.clock.jump(house.gw.now() - Millis::from_hours(5));
    assert_eq!(house.let_go().await, 0, "the clock jumped");
    let alerts = house.gw.store.alerts(sluice_store::AlertFilter::default(), None, 10).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.message.topic == "gateway.clock"));
    house.call("filesystem.write", json!({"path": house.path("b"), "content": "x"})).await.unwrap();
    house.pass(Millis::from_secs(29));
    assert_eq!(house.let_go().await, 0);
    // Long enough for the clock to be trusted, and for both windows by both clocks.
    house.pass(Millis::from_hours(6));
    house.let_go().await;
    house.pass(Millis::from_secs(120));
    house.let_go().await;
    assert!(house.work().join("a").exists() && house.work().join("b").exists());
}
