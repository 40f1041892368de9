//! The contract that every engine must keep.

mod admission;
mod allowances;
mod archive;
mod attempts;
mod batches;
mod budgets;
mod calls;
mod connections;
mod dashboard;
mod doubt;
pub mod egress;
mod findings;
mod freezing;
mod gate;
mod keys;
mod lists;
mod mount_grants;
mod mounts;
mod nodes;
mod policies;
mod proxies;
mod questions;
mod record_search;
mod recovery;
mod retention;
mod retrying;
mod rollbacks;
mod sessions;
mod state;
mod stopping;
mod time;
pub mod vault;
mod written;

use sluice_core::hold::HoldState;
use sluice_core::{HoldId, Millis};
use sluice_testkit::test_store::done;

use crate::engines::{WINDOW, across_restarts, claimed, everywhere};

#[test]
fn a_write_walks_from_held_to_done() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(Millis::from_millis(29_999));
        assert!(world.claim_due().is_empty(), "nothing is due inside the undo window");
        world.clock.advance(Millis::from_millis(1));
        let hold = claimed(world);
        let permit = world.arm(&hold).unwrap();
        assert_eq!(permit.action().digest(), hold.action.digest());
        let hold = world.finish(id, permit.epoch(), done("msg-1")).unwrap();
        assert_eq!(hold.state, HoldState::Done { receipt: "msg-1".into(), at: world.now() });
        assert_eq!(world.hold(id), hold);
    });
}

#[test]
fn what_was_admitted_is_still_there_after_a_restart() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.wait(world.store.record_start("0.1.0")).unwrap();
        let id = world.admit_held("clerk", "hello");
        let before = world.hold(id);
        place.clock.advance(WINDOW);
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(world.hold(id), before);
        assert_eq!(world.store.last_alive(), Some(before.admitted_at));
        world.wait(world.store.record_start("0.1.0")).unwrap();
        assert_eq!(claimed(&world).id, id);
        world
    });
}

#[test]
fn writes_are_listed_a_page_at_a_time_in_order() {
    everywhere(|world| {
        let all: Vec<_> = (0..5).map(|n| world.admit_held("clerk", &format!("mail {n}"))).collect();
        let page = |after| {
            let page = world.wait(world.store.holds(after, 2)).unwrap();
            page.into_iter().map(|hold| hold.id).collect::<Vec<_>>()
        };
        assert_eq!(page(None), all[..2]);
        assert_eq!(page(Some(all[1])), all[2..4]);
        assert_eq!(page(Some(all[3])), all[4..]);
        assert_eq!(world.wait(world.store.hold(HoldId::from_bits(999))).unwrap(), None);
    });
}
