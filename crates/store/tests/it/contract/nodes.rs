//! Several gateways on one database, and claims that are no longer valid.

use sluice_core::hold::HoldState;
use sluice_store::{Abandoned, Claimed};
use sluice_testkit::world::{LEASE, done};

use crate::engines::{WINDOW, armed, claimed, code, everywhere, not_done, recover, with_two_nodes};

#[test]
fn a_result_under_an_old_claim_changes_nothing() {
    everywhere(|world| {
        let id = world.held("clerk", "hello");
        world.clock.advance(WINDOW);
        let old = claimed(world);
        assert_eq!(recover(world, Abandoned::Own), [], "it is of this life");
        world.clock.advance(LEASE);
        assert_eq!(recover(world, Abandoned::Expired), [id]);
        let new = claimed(world);
        assert_eq!((old.epoch, new.epoch), (1, 2));
        assert_eq!(code(world.arm(&old)), "execute.fenced");
        world.arm(&new).unwrap();
        let before = world.hold(id);
        for outcome in [done("late"), not_done()] {
            assert_eq!(code(world.finish(id, old.epoch, outcome)), "execute.fenced");
        }
        assert_eq!(world.hold(id), before);
        world.finish(id, new.epoch, done("r")).unwrap();
    });
}

#[test]
fn a_claim_belongs_to_the_node_that_made_it() {
    with_two_nodes(|one, two| {
        let id = one.held("clerk", "hello");
        one.clock.advance(WINDOW);
        let hold = claimed(one);
        assert_eq!(code(two.arm(&hold)), "execute.fenced");
        one.arm(&hold).unwrap();
        assert_eq!(code(two.finish(id, hold.epoch, done("r"))), "execute.fenced");
        one.finish(id, hold.epoch, done("r")).unwrap();
    });
}

#[test]
fn a_node_that_comes_back_after_its_lease_is_fenced() {
    with_two_nodes(|one, two| {
        let id = one.held("clerk", "hello");
        let hold = armed(one);
        one.clock.advance(LEASE);
        assert_eq!(recover(two, Abandoned::Expired), [id]);
        assert_eq!(code(one.finish(id, hold.epoch, done("too late"))), "execute.fenced");
        assert!(matches!(one.hold(id).state, HoldState::InDoubt { .. }));
    });
}

#[test]
fn each_node_has_a_chain_of_its_own_and_one_write_may_be_in_both() {
    with_two_nodes(|one, two| {
        let id = one.held("clerk", "hello");
        one.clock.advance(WINDOW);
        let list = two.wait(two.store.due(two.now(), 9)).unwrap();
        assert!(matches!(two.wait(two.store.claim(two.claims(&list))).unwrap()[..], [Claimed::Ours(_)]));
        assert_eq!(one.wait(one.store.claim(one.claims(&list))).unwrap(), [Claimed::Lost(id)]);
        let logs = one.wait(one.store.logs()).unwrap();
        let sizes = logs.iter().map(|(log, head)| (log.as_str(), head.size));
        let sizes: Vec<_> = sizes.filter(|(log, _)| !log.ends_with("/stop")).collect();
        assert_eq!(sizes, [("gw-1", 1), ("gw-2", 2)]);
        assert_eq!(two.store.node().as_str(), "gw-2");
    });
}
