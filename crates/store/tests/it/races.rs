//! Races: two decisions, a cancel against a release, two gateways at once. One wins, and the audit log says which.
//!
//! Real threads; on PostgreSQL two gateways, on SQLite two callers of one. The controls at the end do it wrongly and
//! must be caught: without them, a test that never races would look the same.

use std::collections::BTreeSet;
use std::sync::Barrier;

use futures_util::future::join_all;
use sluice_core::approval::ApprovalAnswer;
use sluice_core::batch::SlidingWindow;
use sluice_core::hold::Hold;
use sluice_core::{ApprovalId, HoldId, Millis, Tier};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, ArmWrite, CancelHoldOutcome, DecideApproval, DecisionOutcome,
    FreezeTarget, Store, StoreError, WriteClaimOutcome,
};
use sluice_testkit::postgres::TestDatabase;
use sluice_testkit::test_store::decision;
use sluice_testkit::{ManualClock, TestStore};
use tokio::runtime::Runtime;

use crate::engines::{StoreTestDatabase, WINDOW, agent, operator, recorded, run_sql};
use crate::{checker, engines};

/// Races of each kind, on each engine.
const RACES: usize = 5_000;
/// How many operations a side runs at once; also how often the winner can change.
const AT_ONCE: usize = 25;

/// Runs a test between two sides that share a database.
fn between(test: impl Fn(&TestStore, &Store, &Store)) {
    let world = StoreTestDatabase::file();
    let world = world.open("gw-1");
    test(&world, &world.store, &world.store);
    checker::check(&world);
    between_gateways(test);
}

/// Like [`between`], for engines where separate gateways can collide.
fn between_gateways(test: impl Fn(&TestStore, &Store, &Store)) {
    let Some(place) = StoreTestDatabase::server() else { return };
    let (one, two) = (place.open("gw-1"), place.open("gw-2"));
    test(&one, &one.store, &two.store);
    checker::check(&one);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn wide() -> SlidingWindow {
    SlidingWindow { limit: u32::MAX, span: Millis::from_mins(10) }
}

fn many(world: &TestStore, tier: Tier) -> Vec<AdmissionOutcome> {
    let mails: Vec<_> = (0..RACES)
        .map(|n| Admission { tier, window: wide(), allow_duplicate: true, ..world.mail("clerk", &n.to_string()) })
        .collect();
    let admit = |mail| async { world.store.admit(mail).await.unwrap() };
    world.wait(join_all(mails.into_iter().map(admit)))
}

/// Both sides work through the same list at the same time, a few items at once. The right side sometimes takes them in
/// reverse order, so that sometimes one and sometimes the other comes first.
fn race<T: Sync, L: Send, R: Send>(
    list: &[T],
    left: impl Fn(&Runtime, &[T]) -> Vec<L> + Sync,
    right: impl Fn(&Runtime, &[T]) -> Vec<R> + Sync,
) -> Vec<(L, R)> {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let right = scope.spawn(|| {
            let runtime = runtime();
            start.wait();
            let mut answers = Vec::with_capacity(list.len());
            for block in list.chunks(8 * AT_ONCE) {
                let backwards: Vec<_> = block.chunks(AT_ONCE).rev().map(|few| right(&runtime, few)).collect();
                answers.extend(backwards.into_iter().rev().flatten());
            }
            answers
        });
        let runtime = runtime();
        start.wait();
        let left: Vec<_> = list.chunks(AT_ONCE).flat_map(|few| left(&runtime, few)).collect();
        left.into_iter().zip(right.join().unwrap()).collect()
    })
}

fn yes(approval: ApprovalId) -> DecideApproval {
    decision(approval, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None })
}

fn no(approval: ApprovalId) -> DecideApproval {
    DecideApproval { by: operator(), ..decision(approval, ApprovalRuling::Deny { note: None }) }
}

#[test]
fn of_two_answers_at_once_exactly_one_counts() {
    between(|world, one, two| {
        let questions: Vec<(HoldId, ApprovalId)> = many(world, Tier::ApprovalRequired)
            .into_iter()
            .map(|admitted| match admitted {
                AdmissionOutcome::Awaiting { hold, approval, .. } => (hold, approval),
                other => panic!("{other:?}"),
            })
            .collect();
        let answer =
            |store: &Store, runtime: &Runtime, few: &[(HoldId, ApprovalId)], how: fn(ApprovalId) -> DecideApproval| {
                let decide = |&(_, approval): &(HoldId, ApprovalId)| store.decide(how(approval));
                let counts = |decided: Result<DecisionOutcome, StoreError>| {
                    matches!(decided.unwrap(), DecisionOutcome::Now { .. })
                };
                runtime.block_on(join_all(few.iter().map(decide))).into_iter().map(counts).collect()
            };
        let won = race(
            &questions,
            |runtime, few| answer(one, runtime, few, yes),
            |runtime, few| answer(two, runtime, few, no),
        );
        let states = states(world);
        for ((hold, _), (approved, denied)) in questions.iter().zip(&won) {
            assert!(approved ^ denied, "{hold}: approved {approved}, denied {denied}");
            assert_eq!(states[hold], if *approved { "held" } else { "denied" }, "{hold}");
        }
        let yeses = won.iter().filter(|(approved, _)| *approved).count();
        assert_eq!((recorded(world, "approval.approved"), recorded(world, "approval.denied")), (yeses, RACES - yeses));
        assert!((1..RACES).contains(&yeses), "both sides must win sometimes: {yeses} of {RACES}");
    });
}

fn states(world: &TestStore) -> std::collections::BTreeMap<HoldId, &'static str> {
    let holds = world.wait(world.store.holds(None, 1_000_000)).unwrap();
    holds.into_iter().map(|hold| (hold.id, hold.state.word())).collect()
}

/// Claims and arms: with the permit, something may leave.
fn release(world: &TestStore, store: &Store, runtime: &Runtime, few: &[Hold]) -> Vec<bool> {
    let claimed = runtime.block_on(store.claim(world.claims(few))).unwrap();
    let arm = |claimed: WriteClaimOutcome| async move {
        let WriteClaimOutcome::Ours(hold) = claimed else { return false };
        let wire = hold.action.digest();
        let arming = ArmWrite { hold: hold.id, epoch: hold.epoch, wire, handle: None, before: None };
        match store.arm(arming).await {
            Ok(_) => true,
            Err(StoreError::Fenced) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    runtime.block_on(join_all(claimed.into_iter().map(arm)))
}

#[test]
fn what_is_cancelled_is_never_permitted_to_leave() {
    between(|world, one, two| {
        many(world, Tier::Notify);
        world.clock.advance(WINDOW);
        let due = world.wait(world.store.due_holds(world.now(), u32::MAX)).unwrap();
        assert_eq!(due.len(), RACES);
        let won = race(
            &due,
            |runtime, few| release(world, one, runtime, few),
            |runtime, few| {
                let cancel = |hold: &Hold| two.cancel(hold.id, agent("clerk"));
                let stopped = |answer: Result<CancelHoldOutcome, StoreError>| {
                    matches!(answer.unwrap(), CancelHoldOutcome::Stopped(_))
                };
                runtime.block_on(join_all(few.iter().map(cancel))).into_iter().map(stopped).collect()
            },
        );
        let states = states(world);
        for (hold, (permitted, stopped)) in due.iter().zip(&won) {
            assert!(permitted ^ stopped, "{}: permitted {permitted}, stopped {stopped}", hold.id);
            assert_eq!(states[&hold.id], if *permitted { "armed" } else { "cancelled" });
        }
        let stopped = won.iter().filter(|(_, stopped)| *stopped).count();
        assert!((1..RACES).contains(&stopped), "both sides must win sometimes: {stopped} of {RACES}");
    });
}

#[test]
fn one_key_at_two_gateways_is_one_write() {
    between(|world, one, two| {
        let pairs: Vec<_> = (0..200)
            .map(|n| {
                let keyed = || Admission {
                    idempotency_key: Some(format!("key {n}")),
                    window: wide(),
                    ..world.mail("clerk", &n.to_string())
                };
                (keyed(), keyed())
            })
            .collect();
        let admit = |store: &Store, runtime: &Runtime, mails: Vec<Admission>| {
            let answers = runtime.block_on(join_all(mails.into_iter().map(|mail| store.admit(mail))));
            answers.into_iter().map(Result::unwrap).collect()
        };
        let answers = race(
            &pairs,
            |runtime, few| admit(one, runtime, few.iter().map(|(left, _)| left.clone()).collect()),
            |runtime, few| admit(two, runtime, few.iter().map(|(_, right)| right.clone()).collect()),
        );
        for answer in answers {
            let ((AdmissionOutcome::Held { hold: first, .. }, AdmissionOutcome::Again { hold: same, .. })
            | (AdmissionOutcome::Again { hold: same, .. }, AdmissionOutcome::Held { hold: first, .. })) = answer
            else {
                panic!("{answer:?}")
            };
            assert_eq!(first, same);
        }
    });
}

#[test]
fn a_window_is_not_wider_for_an_agent_that_asks_two_gateways() {
    between(|world, one, two| {
        for round in 0..10 {
            let name = format!("clerk-{round}");
            let mails: Vec<_> = (0..6)
                .map(|n| (world.mail(&name, &format!("left {n}")), world.mail(&name, &format!("right {n}"))))
                .collect();
            let admit = |store: &Store, runtime: &Runtime, mails: Vec<Admission>| -> Vec<bool> {
                let answers = runtime.block_on(join_all(mails.into_iter().map(|mail| store.admit(mail))));
                answers.into_iter().map(|answer| matches!(answer.unwrap(), AdmissionOutcome::Held { .. })).collect()
            };
            let answers = race(
                &mails,
                |runtime, few| admit(one, runtime, few.iter().map(|(left, _)| left.clone()).collect()),
                |runtime, few| admit(two, runtime, few.iter().map(|(_, right)| right.clone()).collect()),
            );
            let held: usize = answers.iter().map(|(left, right)| usize::from(*left) + usize::from(*right)).sum();
            assert_eq!(held, 5, "{name}");
        }
    });
}

#[test]
fn two_gateways_admit_for_many_agents_at_once_without_blocking_each_other() {
    let Some(database) = TestDatabase::fresh() else { return };
    let clock = ManualClock::default();
    let (one, mut two) =
        (TestStore::server(database.url(), "gw-1", &clock), TestStore::server(database.url(), "gw-2", &clock));
    two.ids = std::sync::Arc::clone(&one.ids);
    let mails = |side: &str| -> Vec<Admission> {
        let mail = |n: usize| Admission {
            window: wide(),
            ..one.mail(&format!("clerk-{:02}", n % 20), &format!("{side} {n}"))
        };
        (0..1_000).map(mail).collect()
    };
    let (forwards, mut backwards) = (mails("left"), mails("right"));
    backwards.reverse();
    std::thread::scope(|scope| {
        for (world, mails) in [(&one, forwards), (&two, backwards)] {
            scope.spawn(move || {
                let answers = world.wait(join_all(mails.into_iter().map(|mail| world.store.admit(mail))));
                assert!(answers.into_iter().all(|answer| answer.is_ok()));
            });
        }
    });
    checker::check(&one);
    run_sql(
        database.url(),
        "SELECT pg_stat_clear_snapshot(); DO $$ BEGIN \
         ASSERT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()) = 0; END $$",
    );
}

#[test]
fn identical_calls_at_two_gateways_are_one_write() {
    between(|world, one, two| {
        let pairs: Vec<_> = (0..100)
            .map(|n| {
                let plain = || Admission { window: wide(), ..world.mail("clerk", &n.to_string()) };
                (plain(), plain())
            })
            .collect();
        let admit = |store: &Store, runtime: &Runtime, mails: Vec<Admission>| -> Vec<bool> {
            let answers = runtime.block_on(join_all(mails.into_iter().map(|mail| store.admit(mail))));
            answers
                .into_iter()
                .map(|answer| match answer {
                    Ok(_) => true,
                    Err(StoreError::PossibleDuplicate { .. }) => false,
                    Err(other) => panic!("{other:?}"),
                })
                .collect()
        };
        let answers = race(
            &pairs,
            |runtime, few| admit(one, runtime, few.iter().map(|(left, _)| left.clone()).collect()),
            |runtime, few| admit(two, runtime, few.iter().map(|(_, right)| right.clone()).collect()),
        );
        assert!(answers.iter().all(|(left, right)| left ^ right));
    });
}

#[test]
fn when_a_freeze_returns_it_has_named_everything_that_may_still_leave() {
    between(|world, one, two| {
        for round in 0..20 {
            for n in 0..4 {
                let mail = world.mail(&format!("clerk-{round}"), &n.to_string());
                world.admit(mail);
            }
            world.clock.advance(WINDOW);
            let due = world.wait(world.store.due_holds(world.now(), 100)).unwrap();
            let claimed = world.wait(world.store.claim(world.claims(&due))).unwrap();
            let ours: Vec<Hold> = claimed
                .into_iter()
                .map(|claimed| match claimed {
                    WriteClaimOutcome::Ours(hold) => *hold,
                    other => panic!("{other:?}"),
                })
                .collect();
            let start = Barrier::new(2);
            let (armed, in_flight) = std::thread::scope(|scope| {
                let frozen = scope.spawn(|| {
                    let runtime = runtime();
                    start.wait();
                    runtime.block_on(two.freeze(FreezeTarget::All, operator(), "now".into())).unwrap()
                });
                let runtime = runtime();
                start.wait();
                let arm = |hold: &Hold| {
                    let (wire, epoch) = (hold.action.digest(), hold.epoch);
                    let arming = ArmWrite { hold: hold.id, epoch, wire, handle: None, before: None };
                    runtime.block_on(one.arm(arming)).is_ok()
                };
                let armed: BTreeSet<_> = ours.iter().filter(|hold| arm(hold)).map(|hold| hold.id).collect();
                (armed, frozen.join().unwrap())
            });
            assert_eq!(in_flight.into_iter().collect::<BTreeSet<_>>(), armed, "round {round}");
            for hold in &ours {
                let outcome = if armed.contains(&hold.id) { engines::refused() } else { engines::not_done() };
                world.finish(hold.id, hold.epoch, outcome).unwrap();
                world.wait(world.store.cancel(hold.id, operator())).unwrap();
            }
            world.wait(world.store.unfreeze(FreezeTarget::All, operator())).unwrap();
        }
    });
}

/// How many of these rows end with more than one recorded decision when two deciders first read and then write. With
/// `careful`, the write says which state it expects.
fn naive(rows: usize, careful: bool, decide: impl Fn(usize, &str, &Barrier) + Sync, count: impl Fn() -> i64) -> i64 {
    let write = if careful { "AND state = 'pending'" } else { "" };
    let meet = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..rows).for_each(|row| decide(row, write, &meet)));
        }
    });
    count()
}

#[test]
fn control_on_sqlite_looking_before_writing_lets_two_answers_win() {
    for (careful, expected) in [(false, 100), (true, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.db");
        let open = || {
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
            connection
        };
        open()
            .execute_batch(
                "PRAGMA journal_mode = wal; CREATE TABLE a (id INTEGER PRIMARY KEY, state TEXT); \
                 CREATE TABLE decisions (id INTEGER); \
                 WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99) \
                 INSERT INTO a SELECT i, 'pending' FROM n;",
            )
            .unwrap();
        let decide = |row: usize, expects: &str, meet: &Barrier| {
            let connection = open();
            let look = format!("SELECT state FROM a WHERE id = {row}");
            let state: String = connection.query_row(&look, [], |row| row.get(0)).unwrap();
            meet.wait();
            let write = format!("UPDATE a SET state = 'decided' WHERE id = {row} {expects}");
            if state == "pending" && connection.execute(&write, []).unwrap() == 1 {
                connection.execute(&format!("INSERT INTO decisions VALUES ({row})"), []).unwrap();
            }
            meet.wait();
        };
        let count = || {
            let twice = "SELECT count(*) FROM (SELECT id FROM decisions GROUP BY id HAVING count(*) > 1)";
            open().query_row(twice, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(naive(100, careful, decide, count), expected, "careful: {careful}");
    }
}

#[test]
fn control_on_postgres_looking_before_writing_lets_two_answers_win() {
    for (careful, expected) in [(false, 100), (true, 0)] {
        let Some(schema) = engines::StoreTestSchema::fresh() else { return };
        run_sql(
            schema.url(),
            "CREATE TABLE a (id INT PRIMARY KEY, state TEXT); CREATE TABLE decisions (id INT); \
             INSERT INTO a SELECT i, 'pending' FROM generate_series(0, 99) i",
        );
        let asked = |query: String| -> i64 {
            let runtime = runtime();
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(schema.url(), tokio_postgres::NoTls).await.unwrap();
                let ask = async {
                    let row = client.query_one(&query, &[]).await.unwrap();
                    drop(client);
                    row.get::<_, i64>(0)
                };
                tokio::join!(ask, connection).0
            })
        };
        let decide = |row: usize, expects: &str, meet: &Barrier| {
            let pending = asked(format!("SELECT count(*) FROM a WHERE id = {row} AND state = 'pending'"));
            meet.wait();
            if pending == 1 {
                asked(format!(
                    "WITH hit AS (UPDATE a SET state = 'decided' WHERE id = {row} {expects} RETURNING id), \
                     told AS (INSERT INTO decisions SELECT id FROM hit RETURNING id) SELECT count(*) FROM told"
                ));
            }
            meet.wait();
        };
        let count = || {
            let twice = "SELECT count(*) FROM (SELECT id FROM decisions GROUP BY id HAVING count(*) > 1) t";
            asked(twice.into())
        };
        assert_eq!(naive(100, careful, decide, count), expected, "careful: {careful}");
    }
}
