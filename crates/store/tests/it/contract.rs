//! What every engine must do.

use sluice_core::hold::HoldState;
use sluice_core::{Actor, AgentName, Span};
use sluice_store::{Admitted, Cancelled, Choice, Claimed, Decided, Ruling, StoreError};
use sluice_testkit::ManualClock;
use sluice_testkit::postgres::Database;
use sluice_testkit::world::{LEASE, World, done};

/// Runs a test on SQLite in memory, SQLite on disk and PostgreSQL.
pub fn everywhere(test: impl Fn(&World)) {
    test(&World::memory());
    let folder = tempfile::tempdir().unwrap();
    test(&World::file(&folder.path().join("sluice.db")));
    if let Some(database) = Database::fresh() {
        test(&World::server(database.url(), "gw-1", &ManualClock::default()));
    }
}

fn agent(name: &str) -> Actor {
    Actor::Agent(AgentName::new(name).unwrap())
}

#[test]
fn a_write_walks_from_held_to_done() {
    everywhere(|world| {
        let id = world.held("clerk", "hello");
        assert!(world.claim_due().is_empty(), "nothing is due inside the undo window");
        world.clock.advance(Span::from_secs(30));
        let claimed = world.claim_due();
        let [Claimed::Ours(hold)] = claimed.as_slice() else { panic!("{claimed:?}") };
        let permit = world.arm(hold).unwrap();
        assert_eq!(permit.action().digest(), hold.action.digest());
        let hold = world.finish(id, permit.epoch(), done("msg-1")).unwrap();
        assert_eq!(hold.state, HoldState::Done { receipt: "msg-1".into(), at: world.now() });
        assert_eq!(world.hold(id), hold);
    });
}

#[test]
fn cancelled_means_never_sent() {
    everywhere(|world| {
        let id = world.held("clerk", "hello");
        let stranger = world.wait(world.store.cancel(id, agent("intruder")));
        assert!(matches!(stranger, Err(StoreError::NotFound { .. })));
        let Ok(Cancelled::Stopped(_)) = world.wait(world.store.cancel(id, agent("clerk"))) else { panic!() };
        world.clock.advance(LEASE);
        assert!(world.claim_due().is_empty());
        assert_eq!(world.state(id), "cancelled");
    });
}

#[test]
fn the_sixth_write_in_ten_minutes_pulls_back_the_five_before_it() {
    everywhere(|world| {
        let first: Vec<_> = (0..5).map(|n| world.held("clerk", &format!("mail {n}"))).collect();
        let sixth = world.mail("clerk", "mail 5");
        let Admitted::Awaiting { approval, batch: true, .. } = world.admit(sixth) else { panic!() };
        for id in &first {
            assert_eq!(world.state(*id), "awaiting_approval");
        }
        let Admitted::Awaiting { approval: same, .. } = world.admit(world.mail("clerk", "mail 6")) else { panic!() };
        assert_eq!(approval, same);
        let ruling = Ruling::Choose(Choice::First(3));
        let Ok(Decided::Now { allowed, denied, .. }) = world.decide(approval, ruling) else { panic!() };
        assert_eq!((allowed.as_slice(), denied.len()), (&first[..3], 4));
        world.clock.advance(Span::from_secs(30));
        assert_eq!(world.claim_due().len(), 3);
    });
}
