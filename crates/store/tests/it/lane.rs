//! The stop lane: stopping works while everything else waits, and when the disk is full.

use std::sync::{Arc, Condvar, Mutex};

use futures_util::future::{join_all, join3};
use sluice_core::batch::SlidingWindow;
use sluice_core::{Clock, HoldId, Millis, NodeName, UtcMillis};
use sluice_store::{Admission, ApprovalRuling, CancelHoldOutcome, DecisionOutcome, FreezeTarget, Store};
use sluice_testkit::test_store::{decision, mail};
use sluice_testkit::{CountingIds, ManualClock, TestStore};

use crate::checker;
use crate::damage::TmpfsDisk;
use crate::engines::{
    StoreTestSchema, WINDOW, agent, armed, asked, claimed, code, everywhere, operator, recorded, with_two_nodes,
};

fn stop(world: &TestStore, id: HoldId) -> CancelHoldOutcome {
    world.wait(world.store.stop_lane().cancel(id, operator())).unwrap()
}

fn freeze(world: &TestStore) -> Vec<HoldId> {
    world.wait(world.store.stop_lane().freeze(FreezeTarget::All, operator(), "because".into())).unwrap()
}

#[test]
fn the_stop_lane_does_what_the_ordinary_way_does() {
    everywhere(|world| {
        let lane = world.store.stop_lane();
        let in_flight = world.admit_held("clerk", "on its way");
        armed(world);
        let waiting = world.admit_held("clerk", "waiting");
        let (denied, question) = asked(world, "scout", "denied");
        let (allowed, other) = asked(world, "scribe", "allowed");
        assert!(matches!(stop(world, waiting), CancelHoldOutcome::Stopped(_)));
        assert!(matches!(stop(world, in_flight), CancelHoldOutcome::TooLate(_)));
        assert_eq!(code(world.wait(lane.cancel(denied, agent("clerk")))), "store.not_found", "a stranger's");
        let no = world.wait(lane.decide(decision(question, ApprovalRuling::Deny { note: None }))).unwrap();
        assert!(matches!(no, DecisionOutcome::Now { .. }));
        let answer = sluice_core::approval::ApprovalAnswer::Once;
        let yes = world.wait(lane.decide(decision(other, ApprovalRuling::Allow { answer, note: None }))).unwrap();
        assert!(matches!(yes, DecisionOutcome::Now { .. }));
        assert_eq!((world.state(denied), world.state(allowed), world.state(waiting)), ("denied", "held", "cancelled"));
        assert_eq!(freeze(world), [in_flight]);
        assert_eq!(world.wait(lane.freezes()).unwrap(), world.wait(world.store.freezes()).unwrap());
        assert_eq!(world.wait(lane.hold(waiting)).unwrap(), Some(world.hold(waiting)));
        assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "frozen")))), "freeze.active");
        assert_eq!(recorded(world, "freeze.placed"), 1);
    });
}

#[test]
fn a_freeze_in_the_stop_lane_of_one_node_holds_on_the_other() {
    with_two_nodes(|one, two| {
        one.admit_held("clerk", "hello");
        one.clock.advance(WINDOW);
        let hold = claimed(two);
        assert_eq!(freeze(one), []);
        assert_eq!(code(two.arm(&hold)), "freeze.active");
    });
}

/// A clock that blocks its readers while its gate is shut.
struct GatedClock {
    open: Mutex<bool>,
    opened: Condvar,
}

impl GatedClock {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }
}

impl Clock for GatedClock {
    fn now(&self) -> UtcMillis {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        ManualClock::default().now()
    }

    fn since_boot(&self) -> Millis {
        ManualClock::default().since_boot()
    }
}

#[test]
fn a_freeze_goes_past_a_full_queue() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(GatedClock { open: Mutex::new(true), opened: Condvar::new() });
    let node = NodeName::new("gw-1").unwrap();
    let store = Store::open_file(&folder.path().join("sluice.db"), node, clock.clone()).unwrap();
    let ids = CountingIds::default();
    let window = SlidingWindow { limit: u32::MAX, ..SlidingWindow::default() };
    let mails = (0..1_500).map(|n| Admission { window, ..mail(&ids, "clerk", &n.to_string()) });
    clock.set(false);
    // The writer hangs in the first group; a thousand wait in its queue and hundreds before it; then someone freezes.
    let crowd = join_all(mails.map(|mail| store.admit(mail)));
    let lane = store.stop_lane();
    let frozen = lane.freeze(FreezeTarget::All, operator(), "too much".into());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (crowd, frozen, ()) = runtime.block_on(join3(crowd, frozen, async { clock.set(true) }));
    frozen.unwrap();
    let admitted = crowd.iter().filter(|answer| answer.is_ok()).count();
    // The group that hung, and at most the one that was being collected.
    assert!(admitted <= 512, "{admitted} went before it");
    let refused = crowd.into_iter().filter_map(Result::err).all(|error| error.code() == "freeze.active");
    assert!(refused, "and nothing after it");
}

#[test]
fn on_a_server_stopping_does_not_wait_for_ordinary_work_that_is_stuck() {
    let Some(schema) = StoreTestSchema::fresh() else { return };
    let clock = ManualClock::default();
    let world = TestStore::server(schema.url(), "gw-1", &clock);
    let waiting = world.admit_held("clerk", "waiting");
    let (denied, question) = asked(&world, "scout", "denied");
    let stuck = Admission { idempotency_key: Some("k".into()), ..world.mail("scribe", "stuck") };
    std::thread::scope(|scope| {
        let lock = HeldTableLock::take(scope, schema.url());
        let stuck = scope.spawn(|| world.wait(world.store.admit(stuck)));
        lock.wait_for_a_waiter();
        assert!(matches!(stop(&world, waiting), CancelHoldOutcome::Stopped(_)));
        let no = decision(question, ApprovalRuling::Deny { note: None });
        world.wait(world.store.stop_lane().decide(no)).unwrap();
        assert_eq!(freeze(&world), []);
        assert_eq!(world.wait(world.store.stop_lane().freezes()).unwrap().len(), 1);
        let seen = |id| world.wait(world.store.stop_lane().hold(id)).unwrap().unwrap().state.word();
        assert_eq!((seen(waiting), seen(denied)), ("cancelled", "denied"));
        assert!(!stuck.is_finished(), "it must have been stuck all the while");
        drop(lock);
        drop(stuck.join().unwrap());
    });
    checker::check(&world);
    let logs: Vec<_> = world.wait(world.store.logs()).unwrap().into_iter().map(|(log, _)| log.to_string()).collect();
    assert_eq!(logs, ["gw-1", "gw-1/stop"]);
    assert_eq!(world.store.own_logs().len(), 2);
}

/// A table locked from outside.
struct HeldTableLock {
    url: String,
    _release: tokio::sync::oneshot::Sender<()>,
}

impl HeldTableLock {
    fn take<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, url: &str) -> Self {
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let (taken, is_taken) = std::sync::mpsc::channel();
        let own = url.to_owned();
        scope.spawn(move || {
            on_connection(&own, async |client| {
                client.batch_execute("BEGIN; LOCK TABLE idempotency IN ACCESS EXCLUSIVE MODE").await.unwrap();
                taken.send(()).unwrap();
                drop(released.await);
            });
        });
        is_taken.recv().unwrap();
        Self { url: url.to_owned(), _release: release }
    }

    fn wait_for_a_waiter(&self) {
        let waits = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'idempotency'::regclass";
        on_connection(
            &self.url,
            async |client| {
                while client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
            },
        );
    }
}

/// Works on its own connection.
fn on_connection(url: &str, work: impl AsyncFnOnce(&tokio_postgres::Client)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let work = async {
            work(&client).await;
            drop(client);
        };
        let ((), _) = tokio::join!(work, connection);
    });
}

/// Fills the rest of a disk.
fn fill(path: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
}

#[test]
fn on_a_full_disk_things_can_still_be_stopped_and_nothing_else_is_written() {
    let Some(disk) = TmpfsDisk::of("6m") else { return };
    let path = disk.path().join("sluice.db");
    let world = TestStore::file(&path);
    let ballast = || std::fs::metadata(disk.path().join("sluice.db.ballast")).unwrap().len();
    assert_eq!(ballast(), 1 << 20);
    let (waiting, (denied, question)) = (world.admit_held("clerk", "waiting"), asked(&world, "scout", "denied"));
    let filler = disk.path().join("filler");
    fill(&filler);
    let admit = |n: u32| {
        let mail = world.mail(&format!("agent-{n}"), &"text ".repeat(2_000));
        world.wait(world.store.admit(mail)).map(drop).map_err(|error| error.code())
    };
    let refusal = (0..500).find_map(|n| admit(n).err());
    assert_eq!(refusal, Some("store.disk_full"));
    assert_eq!(code(world.wait(world.store.cancel(waiting, operator()))), "store.disk_full", "the ordinary way");
    assert!(matches!(stop(&world, waiting), CancelHoldOutcome::Stopped(_)));
    assert_eq!(ballast(), 0, "it was released");
    let no = decision(question, ApprovalRuling::Deny { note: None });
    assert!(matches!(world.wait(world.store.stop_lane().decide(no)).unwrap(), DecisionOutcome::Now { .. }));
    assert_eq!(admit(600), Err("store.disk_full"), "the released space is for stops");
    freeze(&world);
    assert_eq!((world.state(waiting), world.state(denied)), ("cancelled", "denied"));
    assert_eq!(admit(601), Err("store.disk_full"));
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(admit(602), Err("freeze.active"), "there is space again, and the freeze stands");
    assert_eq!(ballast(), 1 << 20, "for the next time");
    world.wait(world.store.unfreeze(FreezeTarget::All, operator())).unwrap();
    assert_eq!(admit(603), Ok(()));
    checker::check(&world);
}
