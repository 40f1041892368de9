//! Freeze: nothing starts, anywhere, until someone lifts it.

use sluice_core::{Actor, AgentName};
use sluice_store::{AttemptOutcome, FreezeTarget, WriteClaimOutcome};
use sluice_testkit::TestStore;

use crate::engines::{
    WINDOW, across_restarts, agent, armed, claimed, code, everywhere, operator, recorded, service, with_two_nodes,
};

fn scopes() -> [FreezeTarget; 3] {
    [FreezeTarget::All, FreezeTarget::Agent(AgentName::new("clerk").unwrap()), FreezeTarget::Service(service("email"))]
}

fn freeze(world: &TestStore, scope: FreezeTarget) -> Vec<sluice_core::HoldId> {
    world.wait(world.store.freeze(scope, operator(), "because".into())).unwrap()
}

#[test]
fn each_scope_stops_admission_claim_and_arming() {
    for scope in scopes() {
        everywhere(|world| {
            world.admit_held("clerk", "preparing");
            world.clock.advance(WINDOW);
            let preparing = claimed(world);
            let waiting = world.admit_held("clerk", "waiting");
            world.clock.advance(WINDOW);
            let listed = world.wait(world.store.due_holds(world.now(), 9)).unwrap();
            assert_eq!(freeze(world, scope.clone()), [], "nothing was in flight");
            assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "new")))), "freeze.active");
            assert_eq!(world.claim_due(), [], "a frozen write is not listed");
            let claimed = world.wait(world.store.claim(world.claims(&listed))).unwrap();
            assert_eq!(claimed, [WriteClaimOutcome::Frozen(waiting)], "and a claim from an earlier list fails");
            assert_eq!(code(world.arm(&preparing)), "freeze.active");
            assert_eq!((world.state(waiting), world.state(preparing.id)), ("held", "preparing"));
            let back = world.finish(preparing.id, preparing.epoch, AttemptOutcome::GivenBack).unwrap();
            assert_eq!((back.state.word(), back.attempts), ("ready", 0));
        });
    }
}

#[test]
fn what_is_frozen_is_refused_in_the_operators_words() {
    for scope in scopes() {
        everywhere(|world| {
            freeze(world, scope.clone());
            let clerk = AgentName::new("clerk").unwrap();
            let no = world.wait(world.store.refuse_if_frozen(clerk, service("email"))).unwrap_err();
            let text = no.to_string();
            assert!(text.starts_with(&format!("frozen ({scope}) since ")) && text.ends_with(": because"), "{text}");
        });
    }
    everywhere(|world| {
        freeze(world, FreezeTarget::Agent(AgentName::new("scout").unwrap()));
        freeze(world, FreezeTarget::Service(service("calendar")));
        let clerk = AgentName::new("clerk").unwrap();
        world.wait(world.store.refuse_if_frozen(clerk, service("email"))).unwrap();
    });
}

#[test]
fn no_task_of_a_proxy_begins_while_it_is_frozen() {
    let clerk = || AgentName::new("clerk").unwrap();
    for scope in [FreezeTarget::All, FreezeTarget::Agent(clerk()), FreezeTarget::Service(service("proxy.moltbook"))] {
        everywhere(|world| {
            freeze(world, scope.clone());
            let begun = world.wait(world.store.begin_task(super::proxies::task(1, "moltbook")));
            assert_eq!(code(begun), "freeze.active");
            assert_eq!(world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap(), []);
        });
    }
}

#[test]
fn everything_is_frozen_once_however_often_it_is_asked_for() {
    everywhere(|world| {
        let node = Actor::Node(world.store.node().clone());
        assert!(world.wait(world.store.freeze_all_once(node.clone(), "started frozen".into())).unwrap());
        assert!(!world.wait(world.store.freeze_all_once(node, "again".into())).unwrap());
        let [frozen] = world.wait(world.store.freezes()).unwrap().try_into().unwrap();
        assert_eq!((frozen.scope, frozen.reason.as_str()), (FreezeTarget::All, "started frozen"));
        assert_eq!(recorded(world, "freeze.placed"), 1);
    });
}

#[test]
fn a_freeze_of_others_stops_nothing_here() {
    everywhere(|world| {
        freeze(world, FreezeTarget::Agent(AgentName::new("scout").unwrap()));
        freeze(world, FreezeTarget::Service(service("calendar")));
        world.admit_held("clerk", "hello");
        armed(world);
    });
}

#[test]
fn a_freeze_names_what_of_its_scope_could_no_longer_be_stopped() {
    everywhere(|world| {
        let ours = world.admit_held("clerk", "hello");
        armed(world);
        let theirs = world.admit_held("scout", "hello");
        armed(world);
        world.admit_held("clerk", "only waiting");
        assert_eq!(freeze(world, FreezeTarget::Agent(AgentName::new("clerk").unwrap())), [ours]);
        assert_eq!(freeze(world, FreezeTarget::Service(service("calendar"))), []);
        assert_eq!(freeze(world, FreezeTarget::All), [ours, theirs]);
    });
}

#[test]
fn a_freeze_survives_a_restart_and_ends_when_it_is_lifted() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.admit_held("clerk", "hello");
        freeze(&world, FreezeTarget::All);
        freeze(&world, FreezeTarget::All);
        drop(world);
        place.clock.advance(WINDOW);
        let world = place.open("gw-1");
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!(frozen.len(), 1, "the second time changes nothing");
        assert_eq!(
            (&frozen[0].scope, &frozen[0].by, frozen[0].reason.as_str()),
            (&FreezeTarget::All, &operator(), "because")
        );
        assert_eq!(world.claim_due(), []);
        world.wait(world.store.unfreeze(FreezeTarget::All, operator())).unwrap();
        assert_eq!(code(world.wait(world.store.unfreeze(FreezeTarget::All, operator()))), "store.not_found");
        claimed(&world);
        assert_eq!((recorded(&world, "freeze.placed"), recorded(&world, "freeze.lifted")), (2, 1));
        world
    });
}

#[test]
fn an_agent_cannot_lift_a_freeze() {
    everywhere(|world| {
        freeze(world, FreezeTarget::All);
        assert_eq!(
            code(world.wait(world.store.unfreeze(FreezeTarget::All, agent("clerk")))),
            "approval.not_an_approver"
        );
        assert_eq!(world.wait(world.store.freezes()).unwrap().len(), 1);
    });
}

#[test]
fn a_freeze_on_one_node_holds_on_the_other() {
    with_two_nodes(|one, two| {
        one.admit_held("clerk", "hello");
        one.clock.advance(WINDOW);
        let hold = claimed(two);
        freeze(one, FreezeTarget::All);
        assert_eq!(code(two.arm(&hold)), "freeze.active");
    });
}
