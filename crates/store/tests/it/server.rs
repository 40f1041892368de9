//! PostgreSQL: connections that break at the worst moment, and gateways with the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use sluice_core::batch::SlidingWindow;
use sluice_core::{HoldId, Millis};
use sluice_store::{Admission, AdmissionOutcome};
use sluice_testkit::postgres::TestDatabase;
use sluice_testkit::{ManualClock, TestStore};

use crate::engines::{code, recorded, run_sql};
use crate::{checker, engines};

const PASS: u8 = 0;
/// The next COMMIT reaches the server, but its answer does not come back.
const LOSE_ANSWER: u8 = 1;
/// The next COMMIT does not reach the server.
const LOSE_COMMIT: u8 = 2;
/// A simple query with only this word.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// A connection to the server that can be cut at an exact place.
struct CuttableConnection {
    url: String,
    next: Arc<AtomicU8>,
    cuts: Arc<AtomicUsize>,
}

impl CuttableConnection {
    fn to(database: &TestDatabase) -> Self {
        let (head, rest) = database.url().split_once('@').unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{head}@{}/{path}", listener.local_addr().unwrap());
        let line = Self { url, next: Arc::default(), cuts: Arc::default() };
        let (address, next, cuts) = (address.to_owned(), Arc::clone(&line.next), Arc::clone(&line.cuts));
        // Lives as long as the test process; every pump ends with its connection.
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&address)) else { continue };
                pump(near, far, &next, &cuts);
            }
        });
        line
    }

    fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

fn pump(near: TcpStream, far: TcpStream, next: &Arc<AtomicU8>, cuts: &Arc<AtomicUsize>) {
    let muted = Arc::new(AtomicBool::new(false));
    let (mut from_far, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    let (silent, cut) = (Arc::clone(&muted), Arc::clone(cuts));
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = from_far.read(&mut buffer) {
            if silent.load(Ordering::SeqCst) {
                cut.fetch_add(1, Ordering::SeqCst);
                break;
            }
            if to_near.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        drop(to_near.shutdown(Shutdown::Both));
    });
    let (mut from_near, mut to_far) = (near, far);
    let (next, cuts) = (Arc::clone(next), Arc::clone(cuts));
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = from_near.read(&mut buffer) {
            let bytes = &buffer[..read];
            if bytes.windows(COMMIT.len()).any(|window| window == COMMIT) {
                match next.swap(PASS, Ordering::SeqCst) {
                    LOSE_ANSWER => muted.store(true, Ordering::SeqCst),
                    LOSE_COMMIT => {
                        cuts.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    _ => {}
                }
            }
            if to_far.write_all(bytes).is_err() {
                break;
            }
        }
        drop(to_far.shutdown(Shutdown::Both));
        drop(from_near.shutdown(Shutdown::Both));
    });
}

#[test]
fn a_cut_on_either_side_of_commit_is_one_write_and_the_caller_knows() {
    let Some(database) = TestDatabase::fresh() else { return };
    let line = CuttableConnection::to(&database);
    let world = TestStore::server(&line.url, "gw-1", &ManualClock::default());
    let mut ids = Vec::new();
    for round in 0..10 {
        for cut in [LOSE_ANSWER, LOSE_COMMIT] {
            let before = line.cuts();
            line.next.store(cut, Ordering::SeqCst);
            let mail = world.mail(&format!("clerk-{round}-{cut}"), "hello");
            ids.push(mail.hold);
            let admitted = world.wait(world.store.admit(mail));
            assert!(matches!(admitted, Ok(AdmissionOutcome::Held { .. })), "{admitted:?}");
            assert_eq!(line.cuts(), before + 1, "the line was cut where it should be");
        }
    }
    assert_eq!(recorded(&world, "hold.held"), ids.len(), "each happened once");
    for id in ids {
        assert_eq!(world.state(id), "held");
    }
    checker::check(&world);
}

#[test]
fn connections_cut_under_load_lose_nothing_and_double_nothing() {
    const CUTS: usize = 120;
    let Some(database) = TestDatabase::fresh() else { return };
    let world = TestStore::server(database.url(), "gw-1", &ManualClock::default());
    let (stop, admitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let window = SlidingWindow { limit: u32::MAX, span: Millis::from_mins(10) };
    let (acknowledged, unknown) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|caller| {
                let (world, stop, admitted) = (&world, &stop, &admitted);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let (mut acknowledged, mut unknown) = (Vec::new(), Vec::new());
                    for n in 0.. {
                        if stop.load(Ordering::SeqCst) {
                            break;
                        }
                        let mail = world.mail(&format!("clerk-{caller}"), &n.to_string());
                        let id = mail.hold;
                        match runtime.block_on(world.store.admit(Admission { window, ..mail })) {
                            Ok(_) => {
                                admitted.fetch_add(1, Ordering::SeqCst);
                                acknowledged.push(id);
                            }
                            Err(error) => {
                                let expected = ["store.unknown_outcome", "store.unavailable"];
                                assert!(expected.contains(&error.code()), "{error:?}");
                                unknown.push(id);
                            }
                        }
                    }
                    (acknowledged, unknown)
                })
            })
            .collect();
        let control = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        control.block_on(async {
            let (client, connection) = tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.unwrap();
            let cutting = async {
                for cut in 0..CUTS {
                    // Between two cuts at least one write must succeed, or the test would prove nothing.
                    let seen = admitted.load(Ordering::SeqCst);
                    while admitted.load(Ordering::SeqCst) == seen {
                        client.batch_execute("SELECT pg_sleep(0.001)").await.unwrap();
                    }
                    // A few milliseconds, varied: the cut falls anywhere in a transaction, or between two.
                    let (pause, backend) = (cut % 7, world.store.backend().unwrap());
                    let cut = format!("SELECT pg_sleep(0.00{pause}), pg_terminate_backend({backend})");
                    client.batch_execute(&cut).await.unwrap();
                }
                drop(client);
            };
            let ((), _) = tokio::join!(cutting, connection);
        });
        stop.store(true, Ordering::SeqCst);
        callers.into_iter().map(|caller| caller.join().unwrap()).fold(
            (BTreeSet::new(), BTreeSet::new()),
            |(mut all, mut lost), (acknowledged, unknown)| {
                all.extend(acknowledged);
                lost.extend(unknown);
                (all, lost)
            },
        )
    });
    // The audit log has one admission for each write; the checker compares both.
    checker::check(&world);
    let there: BTreeMap<HoldId, _> =
        world.wait(world.store.holds(None, 1_000_000)).unwrap().into_iter().map(|hold| (hold.id, hold)).collect();
    assert!(acknowledged.len() >= CUTS);
    for id in &acknowledged {
        assert!(there.contains_key(id), "{id} was acknowledged and is gone");
    }
    for id in there.keys() {
        assert!(acknowledged.contains(id) || unknown.contains(id), "{id} was never asked for");
    }
}

#[test]
fn of_two_gateways_with_one_name_the_older_is_fenced() {
    let Some(database) = TestDatabase::fresh() else { return };
    let clock = ManualClock::default();
    let old = TestStore::server(database.url(), "gw-1", &clock);
    old.admit_held("clerk", "before");
    let mut new = TestStore::server(database.url(), "gw-1", &clock);
    new.ids = Arc::clone(&old.ids);
    assert_eq!(code(old.wait(old.store.admit(old.mail("clerk", "from the old one")))), "store.node_taken");
    new.admit_held("clerk", "from the new one");
    assert_eq!(code(old.wait(old.store.record_start("0.1.0"))), "store.node_taken");
    assert_eq!(old.wait(old.store.holds(None, 9)).unwrap().len(), 2, "reading still works");
    checker::check(&new);
}

#[test]
fn a_database_that_defaults_to_forgetting_is_not_believed() {
    let Some(database) = TestDatabase::fresh() else { return };
    let name = database.url().rsplit_once('/').unwrap().1;
    run_sql(database.url(), &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    // Our sessions request durable commits themselves; the value they read back decides.
    let world = TestStore::server(database.url(), "gw-1", &ManualClock::default());
    world.admit_held("clerk", "hello");
    let ours = "DO $$ DECLARE mode TEXT; BEGIN SHOW synchronous_commit INTO mode; ASSERT mode = 'off'; END $$";
    run_sql(database.url(), ours);
}

#[test]
fn a_newer_schema_is_refused() {
    let Some(database) = TestDatabase::fresh() else { return };
    drop(TestStore::server(database.url(), "gw-1", &ManualClock::default()));
    run_sql(database.url(), &format!("INSERT INTO schema_version VALUES ({})", sluice_store::SCHEMA + 1));
    let node = sluice_core::NodeName::new("gw-1").unwrap();
    assert_eq!(code(sluice_store::Store::open_server(database.url(), node)), "store.newer_schema");
}

#[test]
fn a_store_can_be_opened_from_within_a_runtime_and_keeps_the_servers_time() {
    let Some(schema) = engines::StoreTestSchema::fresh() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = sluice_core::NodeName::new("gw-1").unwrap();
        let store = sluice_store::Store::open_server(schema.url(), node).unwrap();
        let ids = sluice_testkit::CountingIds::default();
        let admission = sluice_testkit::test_store::mail(&ids, "clerk", "hello");
        let id = admission.hold;
        store.admit(admission).await.unwrap();
        let admitted_at = store.hold(id).await.unwrap().unwrap().admitted_at;
        assert!(admitted_at > sluice_core::UtcMillis::from_millis(1_750_000_000_000), "{admitted_at}");
    });
}

/// Everything that a node refuses while something is missing.
fn refused(world: &TestStore) {
    assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "refused")))), "store.unavailable");
    assert_eq!(code(world.wait(world.store.record_heartbeat())), "store.unavailable");
    let stop = world.store.stop_lane();
    let by = sluice_core::Actor::Node(world.store.node().clone());
    assert_eq!(code(world.wait(stop.freeze(sluice_store::FreezeTarget::All, by, String::new()))), "store.unavailable");
    assert_eq!(code(world.wait(world.store.holds(None, 9))), "store.unavailable", "also reading");
}

#[test]
fn a_server_that_lacks_one_acknowledged_write_is_noticed_before_anything_is_done_on_it() {
    let Some(database) = TestDatabase::fresh() else { return };
    let world = TestStore::server(database.url(), "gw-1", &ManualClock::default());
    let kept = world.admit_held("clerk", "kept");
    database.keep_copy();
    let lost = world.admit_held("clerk", "lost");
    assert_eq!(world.store.missing_acknowledged(), None, "a cut is no loss");
    database.fail_over();
    refused(&world);
    let missing = world.store.missing_acknowledged().unwrap();
    assert!(missing.iter().any(|finding| finding.kind.code() == "recovery.log_behind"), "{missing:?}");
    // It refuses again: only recording the loss is allowed.
    refused(&world);
    let message = sluice_core::ids::MessageId::mint(world.ids.as_ref());
    assert!(world.wait(world.store.suspect(missing, message)).unwrap());
    assert_eq!(world.store.missing_acknowledged(), None);
    assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "frozen")))), "freeze.active");
    let there: BTreeSet<HoldId> =
        world.wait(world.store.holds(None, 9)).unwrap().into_iter().map(|hold| hold.id).collect();
    assert!(there.contains(&kept) && !there.contains(&lost));
    assert_eq!(recorded(&world, "recovery.suspected"), 1);
    let by = sluice_core::Actor::Node(world.store.node().clone());
    world
        .wait(world.store.stop_lane().freeze(sluice_store::FreezeTarget::All, by, "also the stop lane goes on".into()))
        .unwrap();
    checker::check(&world);
}

#[test]
fn a_copy_from_before_the_start_or_before_the_node_is_noticed_too() {
    let Some(database) = TestDatabase::fresh() else { return };
    let clock = ManualClock::default();
    let other = TestStore::server(database.url(), "gw-0", &clock);
    for earlier in [false, true] {
        if earlier {
            drop(TestStore::server(database.url(), "gw-1", &clock));
        }
        database.keep_copy();
        let world = TestStore::server(database.url(), "gw-1", &clock);
        database.fail_over();
        // Nothing was written since the start; the start itself is missing.
        assert_eq!(code(world.wait(world.store.record_heartbeat())), "store.unavailable", "{earlier}");
        assert!(world.store.missing_acknowledged().is_some(), "{earlier}");
        let message = sluice_core::ids::MessageId::mint(other.ids.as_ref());
        world.wait(world.store.suspect(world.store.missing_acknowledged().unwrap(), message)).unwrap();
        world.wait(world.store.record_heartbeat()).unwrap();
    }
}

#[test]
fn a_plain_cut_goes_on_by_itself() {
    let Some(database) = TestDatabase::fresh() else { return };
    let world = TestStore::server(database.url(), "gw-1", &ManualClock::default());
    for n in 0..4 {
        world.admit_held("clerk", &n.to_string());
        database.cut();
    }
    world.admit_held("clerk", "after");
    assert_eq!(world.store.missing_acknowledged(), None);
    assert_eq!(world.store.take_server_change(), None, "the same server");
    assert_eq!(world.wait(world.store.holds(None, 9)).unwrap().len(), 5);
    checker::check(&world);
}

#[test]
fn what_another_node_lost_is_noticed_by_whoever_has_seen_it() {
    let Some(database) = TestDatabase::fresh() else { return };
    let clock = ManualClock::default();
    let (idle, busy) =
        (TestStore::server(database.url(), "gw-1", &clock), TestStore::server(database.url(), "gw-2", &clock));
    busy.admit_held("clerk", "kept");
    database.keep_copy();
    busy.admit_held("clerk", "lost");
    let node = idle.store.node().clone();
    idle.wait(idle.store.recovery_facts(node, BTreeMap::new())).unwrap();
    database.fail_over();
    assert_eq!(code(idle.wait(idle.store.record_heartbeat())), "store.unavailable");
    let missing = idle.store.missing_acknowledged().unwrap();
    assert!(
        missing.iter().any(|finding| finding.log.as_ref().is_some_and(|log| log.as_str() == "gw-2")),
        "{missing:?}"
    );
}

#[test]
fn a_look_at_a_server_says_whether_it_has_standbys_and_waits_for_one() {
    let Some(database) = TestDatabase::fresh() else { return };
    let look = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sluice_store::examine_server(database.url())).unwrap().replication.unwrap()
    };
    let before = look();
    assert!(!before.is_synchronous);
    // A slot for a standby: none follows, and commits wait for none.
    let slot = database.url().rsplit_once('/').unwrap().1;
    run_sql(database.url(), &format!("SELECT pg_create_physical_replication_slot('{slot}')"));
    let with = look();
    run_sql(database.url(), &format!("SELECT pg_drop_replication_slot('{slot}')"));
    assert_eq!((with.is_synchronous, with.standbys), (false, before.standbys + 1));
}
