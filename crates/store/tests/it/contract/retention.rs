//! Retention: ended rows are deleted after their time, in any amount; open rows never are.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::ids::{JobId, SessionId};
use sluice_core::rollback::RollbackState;
use sluice_core::{AgentName, HoldId, Millis};
use sluice_store::{ApprovalRuling, HoldSettlement, ProxyTaskEnd, ProxyTaskState, RetentionCursor, RetentionPeriods};
use sluice_testkit::TestStore;

use super::rollbacks::arm_seeing;
use crate::checker;
use crate::engines::{WINDOW, armed, asked, claimed, everywhere, not_done, operator, recorded, settle};

const WEEK: Millis = Millis::from_hours(7 * 24);

const fn all(kept: Millis) -> RetentionPeriods {
    RetentionPeriods { writes: kept, sessions: kept, proxy_tasks: kept }
}

/// Applies retention page by page. Gives how many rows were deleted.
fn retain(world: &TestStore, kept: Millis, limit: u32) -> u64 {
    let (mut place, mut gone) = (Some(RetentionCursor::default()), 0);
    while let Some(from) = place {
        let step = world.wait(world.store.delete_expired(world.now(), &all(kept), (from, limit))).unwrap();
        gone += step.gone;
        place = step.next;
    }
    gone
}

fn there(world: &TestStore) -> Vec<HoldId> {
    world.wait(world.store.holds(None, 1_000)).unwrap().into_iter().map(|hold| hold.id).collect()
}

#[test]
fn writes_that_are_over_go_after_their_time_and_open_ones_never_do() {
    everywhere(|world| {
        world.admit_held("clerk", "tried again");
        let tried = armed(world);
        world.finish(tried.id, tried.epoch, not_done()).unwrap();
        let over = world.admit_held("clerk", "cancelled");
        world.wait(world.store.cancel(over, operator())).unwrap();
        let (denied, approval) = asked(world, "clerk", "denied");
        world.decide(approval, ApprovalRuling::Deny { note: None }).unwrap();
        let waits = world.admit_held("scout", "waits");
        let (asked_about, _) = asked(world, "scout", "asked");
        world.clock.advance(Millis::from_hours(7 * 24 - 1));
        assert_eq!(retain(world, WEEK, 2), 0, "not before its time");
        world.clock.advance(Millis::from_hours(2));
        let far = world.now() + Millis::from_hours(1_000);
        let early =
            world.wait(world.store.delete_expired(far, &all(Millis::from_hours(500)), (RetentionCursor::default(), 9)));
        assert_eq!(early.unwrap().gone, 0, "a caller whose clock is ahead deletes nothing");
        assert_eq!(retain(world, WEEK, 2), 3, "page by page, past those that stay: two writes and an approval request");
        let left = there(world);
        assert!(!left.contains(&over) && !left.contains(&denied), "{left:?}");
        for stays in [tried.id, waits, asked_about] {
            assert!(left.contains(&stays), "{stays} in state {}", world.state(stays));
        }
        assert!(world.wait(world.store.approval(approval)).unwrap().is_none(), "its approval request went with it");
        assert_eq!(retain(world, WEEK, 2), 0);
        assert!(recorded(world, "store.pruned") > 0);
    });
}

#[test]
fn a_write_that_was_cancelled_after_its_state_was_captured_goes_and_takes_the_captured_state_along() {
    everywhere(|world| {
        let cancelled = world.admit_held("clerk", "tried, then cancelled");
        world.clock.advance(WINDOW);
        let hold = claimed(world);
        arm_seeing(world, &hold, "inbox");
        world.finish(cancelled, hold.epoch, not_done()).unwrap();
        world.wait(world.store.cancel(cancelled, operator())).unwrap();
        let point = world.wait(world.store.hold_rollback(cancelled)).unwrap().unwrap();
        assert!(matches!(point.state, RollbackState::Captured { .. }), "{:?}", point.state);
        world.clock.advance(Millis::from_hours(7 * 24 + 1));
        assert_eq!(retain(world, WEEK, 9), 1);
        assert!(!there(world).contains(&cancelled));
        assert!(world.wait(world.store.hold_rollback(cancelled)).unwrap().is_none());
    });
}

#[test]
fn sessions_that_have_ended_go_after_their_time_and_open_or_tainted_ones_never_do() {
    everywhere(|world| {
        let open = || {
            let id = SessionId::mint(world.ids.as_ref());
            let clerk = AgentName::new("clerk").unwrap();
            world.wait(world.store.open_session(id, clerk, None, None)).unwrap();
            id
        };
        let is_there = |id| world.wait(world.store.session(id)).unwrap().is_some();
        let [ended, tainted, stays_open] = [open(), open(), open()];
        world.wait(world.store.taint_session(tainted, "finding".into())).unwrap();
        for id in [ended, tainted] {
            world.wait(world.store.end_session(id, operator())).unwrap();
        }
        world.clock.advance(Millis::from_hours(7 * 24 - 1));
        retain(world, WEEK, 1);
        assert!(is_there(ended), "not before its time");
        world.clock.advance(Millis::from_hours(2));
        assert_eq!(retain(world, WEEK, 1), 1);
        assert!(!is_there(ended) && is_there(tainted) && is_there(stays_open));
        world.wait(world.store.clear_taint(tainted, operator())).unwrap();
        assert_eq!(retain(world, WEEK, 1), 1);
        assert!(!is_there(tainted) && is_there(stays_open));
    });
}

#[test]
fn proxy_tasks_that_have_ended_go_after_their_time_and_running_ones_never_do() {
    everywhere(|world| {
        for n in [1, 2] {
            world.wait(world.store.begin_task(super::proxies::task(n, "moltbook"))).unwrap();
        }
        world.wait(world.store.end_task(JobId::from_bits(1), ProxyTaskEnd::of(ProxyTaskState::Clean, 1))).unwrap();
        world.clock.advance(WEEK + Millis::from_secs(1));
        assert_eq!(retain(world, WEEK + WEEK, 1), 0, "not before its time");
        assert_eq!(retain(world, WEEK, 1), 1);
        let left = world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap();
        assert_eq!(left.iter().map(|task| task.id).collect::<Vec<_>>(), [JobId::from_bits(2)]);
    });
}

/// A client of the approval API acts by itself: nothing consumes its approval, so that it would stay forever.
#[test]
fn answered_requests_of_the_approval_api_go_with_everything_they_left() {
    everywhere(|world| {
        let file = |preview: &str| super::gate::file(world, super::gate::wish("s", preview)).approval.id;
        let [approved, denied, waits] = ["one", "two", "three"].map(file);
        world.decide(approved, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        world.decide(denied, ApprovalRuling::Deny { note: None }).unwrap();
        let (held, for_write) = asked(world, "clerk", "approved for a write that waits");
        world.decide(for_write, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        world.clock.advance(WEEK + Millis::from_secs(1));
        assert_eq!(retain(world, WEEK, 2), 2);
        let is_there = |id| world.wait(world.store.approval(id)).unwrap().is_some();
        assert!(!is_there(approved) && !is_there(denied) && is_there(waits));
        assert!(is_there(for_write), "{} rests on it", world.state(held));
        assert!(world.wait(world.store.client_request(approved)).unwrap().is_none());
    });
}

#[test]
fn under_a_steady_load_the_tables_stay_as_large_as_their_time() {
    everywhere(|world| {
        let (per_day, mut largest) = (12_u32, 0);
        for day in 0..30_u32 {
            for n in 0..per_day {
                let id = world.admit_held(&format!("agent-{n}"), &format!("{day} {n}"));
                world.wait(world.store.cancel(id, operator())).unwrap();
            }
            world.clock.advance(Millis::from_hours(24));
            retain(world, WEEK, 5);
            while world.wait(world.store.prune(world.now(), 100)).unwrap() > 0 {}
            if day > 8 {
                largest = largest.max(there(world).len());
            }
        }
        assert!(largest <= 7 * per_day as usize, "{largest}");
    });
}

#[test]
fn whatever_was_deleted_the_record_verifies() {
    everywhere(|world| {
        let ids: Vec<HoldId> = (0..20).map(|n| world.admit_held(&format!("agent-{n}"), "hello")).collect();
        for (n, id) in ids.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
            world.wait(world.store.cancel(*id, operator())).unwrap();
            if n % 5 == 0 {
                world.clock.advance(Millis::from_hours(24));
                retain(world, WEEK, 3);
            }
        }
        world.clock.advance(WEEK + WEEK);
        retain(world, WEEK, 3);
        let entries = checker::entries(world);
        assert!(entries.iter().filter(|entry| entry.fact.hold.is_some()).count() >= 20, "the record keeps them all");
        let stays = settle(world, ids[0], HoldSettlement::GiveUp);
        assert!(stays.is_err() || there(world).contains(&ids[0]));
    });
}

#[test]
fn only_a_person_sets_the_time_back_and_it_is_on_record() {
    everywhere(|world| {
        let right = world.now();
        world.clock.jump(right + Millis::from_hours(400 * 24));
        world.admit_held("clerk", "by a clock that was ahead");
        world.clock.jump(right + Millis::from_secs(200));
        assert!(world.wait(world.store.time_ahead_of(world.now())).unwrap().is_some());
        let agent = crate::engines::agent("clerk");
        assert!(world.wait(world.store.repair_clock(world.now(), agent)).is_err());
        let repaired = world.wait(world.store.repair_clock(world.now(), operator())).unwrap();
        assert_eq!((repaired.ahead, repaired.now), (1, right + Millis::from_secs(200)));
        assert_eq!(world.wait(world.store.time_ahead_of(world.now())).unwrap(), None);
        assert_eq!(recorded(world, "clock.repaired"), 1);
        let id = world.admit_held("scout", "by the right clock");
        assert_eq!(world.hold(id).admitted_at, right + Millis::from_secs(200));
    });
}
