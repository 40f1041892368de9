//! Several gateways on one database, and claims that are no longer valid.

use sluice_core::hold::HoldState;
use sluice_core::nodes::{DIFFERS_AFTER, NodeDifferenceKind, NodePhase, NodeReport, NodeService, ServiceKind};
use sluice_core::{NodeName, ServiceName};
use sluice_store::{AbandonedClaims, MessageSeverity, OutboxMessage, WriteClaimOutcome};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::{LEASE, done};

use crate::engines::{WINDOW, armed, claimed, code, everywhere, message, messages, not_done, recover, with_two_nodes};

#[test]
fn a_result_under_an_old_claim_changes_nothing() {
    everywhere(|world| {
        let id = world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let old = claimed(world);
        assert_eq!(recover(world, AbandonedClaims::Own), [], "it belongs to this start");
        world.clock.advance(LEASE);
        assert_eq!(recover(world, AbandonedClaims::Expired), [id]);
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
        let id = one.admit_held("clerk", "hello");
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
        let id = one.admit_held("clerk", "hello");
        let hold = armed(one);
        one.clock.advance(LEASE);
        assert_eq!(recover(two, AbandonedClaims::Expired), [id]);
        assert_eq!(code(one.finish(id, hold.epoch, done("too late"))), "execute.fenced");
        assert!(matches!(one.hold(id).state, HoldState::InDoubt { .. }));
    });
}

#[test]
fn each_node_has_a_chain_of_its_own_and_one_write_may_be_in_both() {
    with_two_nodes(|one, two| {
        let id = one.admit_held("clerk", "hello");
        one.clock.advance(WINDOW);
        let list = two.wait(two.store.due_holds(two.now(), 9)).unwrap();
        assert!(matches!(two.wait(two.store.claim(two.claims(&list))).unwrap()[..], [WriteClaimOutcome::Ours(_)]));
        assert_eq!(one.wait(one.store.claim(one.claims(&list))).unwrap(), [WriteClaimOutcome::Lost(id)]);
        let logs = one.wait(one.store.logs()).unwrap();
        let sizes = logs.iter().map(|(log, head)| (log.as_str(), head.size));
        let sizes: Vec<_> = sizes.filter(|(log, _)| !log.ends_with("/stop")).collect();
        assert_eq!(sizes, [("gw-1", 1), ("gw-2", 2)]);
        assert_eq!(two.store.node().as_str(), "gw-2");
    });
}

fn report(release: &str, phase: NodePhase) -> NodeReport {
    NodeReport {
        release: release.into(),
        phase,
        policy_version: "sha256:1".into(),
        services: vec![NodeService {
            name: ServiceName::new("email").unwrap(),
            kind: ServiceKind::Connected,
            ready: true,
        }],
        log_keys: vec![(NodeName::new("gw-1").unwrap(), "gw-1+1+key".into())],
    }
}

#[test]
fn a_node_is_known_by_what_it_said_last() {
    with_two_nodes(|one, two| {
        assert_eq!(two.wait(two.store.known_nodes()).unwrap(), []);
        one.wait(one.store.report_node(report("1", NodePhase::Starting))).unwrap();
        one.clock.advance(WINDOW);
        one.wait(one.store.report_node(report("2", NodePhase::Open))).unwrap();
        two.wait(two.store.report_node(report("2", NodePhase::Stopping))).unwrap();
        let known = two.wait(two.store.known_nodes()).unwrap();
        let told: Vec<_> = known.iter().map(|node| (node.name.as_str(), node.report.clone())).collect();
        assert_eq!(told, [("gw-1", report("2", NodePhase::Open)), ("gw-2", report("2", NodePhase::Stopping))]);
        assert_eq!(known[0].alive_at, one.now());
        assert_eq!(known[0].started_at.max(known[0].alive_at), known[0].alive_at);
        assert_eq!(known[0].suspected_at, None);
    });
}

#[test]
fn a_node_of_a_newer_release_in_a_phase_of_its_own_hides_no_other_node() {
    with_two_nodes(|one, two| {
        one.wait(one.store.report_node(report("1", NodePhase::Open))).unwrap();
        // This release never reports this phase itself.
        two.wait(two.store.report_node(report("9", NodePhase::Unknown))).unwrap();
        let known = one.wait(one.store.known_nodes()).unwrap();
        let phases: Vec<_> = known.iter().map(|node| (node.name.as_str(), node.report.phase)).collect();
        assert_eq!(phases, [("gw-1", NodePhase::Open), ("gw-2", NodePhase::Unknown)]);
    });
}

#[test]
fn of_a_difference_people_are_told_once_by_whichever_node_and_once_that_it_is_over() {
    with_two_nodes(|one, two| {
        let told = |world: &TestStore, topic: &str| OutboxMessage {
            id: message(world),
            topic: topic.into(),
            severity: MessageSeverity::Warning,
            body: serde_json::json!({"text": "they differ"}),
        };
        let differ = |world: &TestStore, kinds: &[NodeDifferenceKind]| {
            let kinds = kinds.iter().copied().collect();
            world.wait(world.store.announce_divergence(kinds, told(world, "nodes.diverge"))).unwrap()
        };
        let agree = |world: &TestStore| world.wait(world.store.announce_agreement(told(world, "nodes.agree"))).unwrap();
        one.clock.advance(DIFFERS_AFTER);
        assert!(!agree(one), "nobody was told that they differ");
        assert!(differ(one, &[NodeDifferenceKind::Release]));
        assert!(!differ(two, &[NodeDifferenceKind::Release]) && !differ(one, &[NodeDifferenceKind::Release]));
        assert!(differ(two, &[NodeDifferenceKind::Release, NodeDifferenceKind::Services]), "that is news");
        assert!(!differ(one, &[NodeDifferenceKind::Services]));
        assert!(one.wait(one.store.is_divergence_open()).unwrap());
        assert!(agree(two));
        assert!(!agree(one) && !two.wait(two.store.is_divergence_open()).unwrap());
        assert!(!differ(one, &[NodeDifferenceKind::Release]), "it has not noticed yet that it is over");
        one.clock.advance(DIFFERS_AFTER);
        assert!(differ(one, &[NodeDifferenceKind::Release]));
        assert_eq!((messages(one, "nodes.diverge").len(), messages(one, "nodes.agree").len()), (3, 1));
    });
}
