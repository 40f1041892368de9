//! Freeze: nothing starts, anywhere, until someone lifts it.

use sluice_core::{Actor, AgentName};
use sluice_store::{Claimed, Outcome, Scope};
use sluice_testkit::World;

use crate::engines::{
    WINDOW, across_restarts, agent, armed, claimed, code, everywhere, operator, recorded, service, with_two_nodes,
};

fn scopes() -> [Scope; 3] {
    [Scope::All, Scope::Agent(AgentName::new("clerk").unwrap()), Scope::Service(service("email"))]
}

fn freeze(world: &World, scope: Scope) -> Vec<sluice_core::HoldId> {
    world.wait(world.store.freeze(scope, operator(), "because".into())).unwrap()
}

#[test]
fn each_scope_stops_admission_claim_and_arming() {
    for scope in scopes() {
        everywhere(|world| {
            world.held("clerk", "preparing");
            world.clock.advance(WINDOW);
            let preparing = claimed(world);
            let waiting = world.held("clerk", "waiting");
            world.clock.advance(WINDOW);
            let listed = world.wait(world.store.due(world.now(), 9)).unwrap();
            assert_eq!(freeze(world, scope.clone()), [], "nothing was in flight");
            assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "new")))), "freeze.active");
            assert_eq!(world.claim_due(), [], "what is frozen is not listed");
            let claimed = world.wait(world.store.claim(world.claims(&listed))).unwrap();
            assert_eq!(claimed, [Claimed::Frozen(waiting)], "and who listed it before does not get it");
            assert_eq!(code(world.arm(&preparing)), "freeze.active");
            assert_eq!((world.state(waiting), world.state(preparing.id)), ("held", "preparing"));
            let back = world.finish(preparing.id, preparing.epoch, Outcome::GivenBack).unwrap();
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
        freeze(world, Scope::Agent(AgentName::new("scout").unwrap()));
        freeze(world, Scope::Service(service("calendar")));
        let clerk = AgentName::new("clerk").unwrap();
        world.wait(world.store.refuse_if_frozen(clerk, service("email"))).unwrap();
    });
}

#[test]
fn no_task_of_a_proxy_begins_while_it_is_frozen() {
    let clerk = || AgentName::new("clerk").unwrap();
    for scope in [Scope::All, Scope::Agent(clerk()), Scope::Service(service("proxy.moltbook"))] {
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
        assert_eq!((frozen.scope, frozen.reason.as_str()), (Scope::All, "started frozen"));
        assert_eq!(recorded(world, "freeze.placed"), 1);
    });
}

#[test]
fn a_freeze_of_others_stops_nothing_here() {
    everywhere(|world| {
        freeze(world, Scope::Agent(AgentName::new("scout").unwrap()));
        freeze(world, Scope::Service(service("calendar")));
        world.held("clerk", "hello");
        armed(world);
    });
}

#[test]
fn a_freeze_names_what_of_its_scope_could_no_longer_be_stopped() {
    everywhere(|world| {
        let ours = world.held("clerk", "hello");
        armed(world);
        let theirs = world.held("scout", "hello");
        armed(world);
        world.held("clerk", "only waiting");
        assert_eq!(freeze(world, Scope::Agent(AgentName::new("clerk").unwrap())), [ours]);
        assert_eq!(freeze(world, Scope::Service(service("calendar"))), []);
        assert_eq!(freeze(world, Scope::All), [ours, theirs]);
    });
}

#[test]
fn a_freeze_survives_a_restart_and_ends_when_it_is_lifted() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        world.held("clerk", "hello");
        freeze(&world, Scope::All);
        freeze(&world, Scope::All);
        drop(world);
        place.clock.advance(WINDOW);
        let world = place.open("gw-1");
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!(frozen.len(), 1, "twice is once");
        assert_eq!((&frozen[0].scope, &frozen[0].by, frozen[0].reason.as_str()), (&Scope::All, &operator(), "because"));
        assert_eq!(world.claim_due(), []);
        world.wait(world.store.unfreeze(Scope::All, operator())).unwrap();
        assert_eq!(code(world.wait(world.store.unfreeze(Scope::All, operator()))), "store.not_found");
        claimed(&world);
        assert_eq!((recorded(&world, "freeze.placed"), recorded(&world, "freeze.lifted")), (2, 1));
        world
    });
}

#[test]
fn an_agent_cannot_lift_a_freeze() {
    everywhere(|world| {
        freeze(world, Scope::All);
        assert_eq!(code(world.wait(world.store.unfreeze(Scope::All, agent("clerk")))), "approval.not_an_approver");
        assert_eq!(world.wait(world.store.freezes()).unwrap().len(), 1);
    });
}

#[test]
fn a_freeze_on_one_node_holds_on_the_other() {
    with_two_nodes(|one, two| {
        one.held("clerk", "hello");
        one.clock.advance(WINDOW);
        let hold = claimed(two);
        freeze(one, Scope::All);
        assert_eq!(code(two.arm(&hold)), "freeze.active");
    });
}
