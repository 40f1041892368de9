//! Sessions: opened, tainted, cleared by people, ended.

use sluice_core::AgentName;
use sluice_core::ids::{KeyId, SessionId};
use sluice_store::{LONGEST_TASK, Session, StatedTask, TaskSource};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::ana;

use crate::checker;
use crate::engines::{across_restarts, agent, code, everywhere, operator, recorded};

const TASK: &str = "find out what Li earns";

fn open(world: &TestStore) -> SessionId {
    let id = SessionId::mint(world.ids.as_ref());
    let clerk = AgentName::new("clerk").unwrap();
    let task = Some(stated(TASK));
    world.wait(world.store.open_session(id, clerk, Some("editor 1.2".into()), task)).unwrap();
    id
}

fn stated(text: &str) -> StatedTask {
    StatedTask { text: text.into(), by: TaskSource::Key(KeyId::from_bits(5)) }
}

fn session(world: &TestStore, id: SessionId) -> Session {
    world.wait(world.store.session(id)).unwrap().unwrap()
}

#[test]
fn a_session_is_kept_and_its_task_is_not_on_record() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let id = open(&world);
        let opened_at = world.now();
        drop(world);
        let world = place.open("gw-1");
        let found = session(&world, id);
        assert_eq!((found.client.as_deref(), found.task.as_deref()), (Some("editor 1.2"), Some(TASK)));
        assert_eq!((found.agent.as_str(), found.opened_at), ("clerk", opened_at));
        assert_eq!((found.ended_at, found.tainted_at), (None, None));
        assert!(world.wait(world.store.session(SessionId::from_bits(99))).unwrap().is_none());
        let opened = checker::entries(&world).into_iter().find(|entry| entry.fact.kind == "session.opened").unwrap();
        assert_eq!(opened.fact.detail["task_bytes"], TASK.len().to_string());
        assert!(!format!("{opened:?} {found:?}").contains("Li earns"));
        world
    });
}

#[test]
fn further_prompts_join_the_task_and_only_those_who_may_state_them() {
    everywhere(|world| {
        let id = open(world);
        let clerk = || Some(AgentName::new("clerk").unwrap());
        let state = |agent, task| world.wait(world.store.state_task(id, agent, task));
        let strange = Some(AgentName::new("scout").unwrap());
        assert_eq!(code(state(strange, stated("mail eve@x.example"))), "store.not_found");
        let own = StatedTask { text: "mail eve@x.example".into(), by: TaskSource::Operator(agent("clerk")) };
        assert_eq!(code(state(clerk(), own)), "approval.not_an_approver", "an agent never states its own");
        assert_eq!(session(world, id).task.as_deref(), Some(TASK));
        state(clerk(), stated("and mail ana@x.example")).unwrap();
        let by_operator = StatedTask { text: "thanks".into(), by: TaskSource::Operator(operator()) };
        state(None, by_operator).unwrap();
        let whole = format!("{TASK}\n\nand mail ana@x.example\n\nthanks");
        assert_eq!(session(world, id).task, Some(whole));
        let long = "x".repeat(LONGEST_TASK - 1);
        state(clerk(), stated(&long)).unwrap();
        assert_eq!(session(world, id).task, Some(long), "nothing is cut in its middle");
        let facts: Vec<_> = checker::entries(world).into_iter().filter(|e| e.fact.kind == "session.tasked").collect();
        let by: Vec<&str> = facts.iter().map(|entry| entry.fact.detail["task_by"].as_str()).collect();
        assert_eq!(by[0], format!("task:{}", KeyId::from_bits(5)));
        assert_eq!((by[1], by.len()), (operator().to_string().as_str(), 3));
        world.wait(world.store.end_session(id, operator())).unwrap();
        assert_eq!(code(state(clerk(), stated("more"))), "store.not_found", "it is over");
    });
}

#[test]
fn a_session_ends_once_and_not_by_a_stranger() {
    everywhere(|world| {
        let id = open(world);
        assert_eq!(code(world.wait(world.store.end_session(id, agent("scout")))), "store.not_found");
        assert_eq!(session(world, id).ended_at, None);
        world.wait(world.store.end_session(id, agent("clerk"))).unwrap();
        let ended = session(world, id).ended_at;
        assert_eq!(ended, Some(world.now()));
        world.clock.advance(sluice_core::Millis::from_secs(1));
        world.wait(world.store.end_session(id, operator())).unwrap();
        assert_eq!((session(world, id).ended_at, recorded(world, "session.ended")), (ended, 1));
    });
}

#[test]
fn only_a_person_clears_a_taint() {
    everywhere(|world| {
        let id = open(world);
        world.wait(world.store.taint_session(id, "content.injection".into())).unwrap();
        let since = session(world, id).tainted_at;
        assert_eq!(since, Some(world.now()));
        world.clock.advance(sluice_core::Millis::from_secs(1));
        world.wait(world.store.taint_session(id, "content.injection".into())).unwrap();
        assert_eq!((session(world, id).tainted_at, recorded(world, "session.tainted")), (since, 1));
        let node = sluice_core::Actor::Node(world.store.node().clone());
        for who in [agent("clerk"), agent("scout"), node] {
            assert_eq!(code(world.wait(world.store.clear_taint(id, who))), "approval.not_an_approver");
        }
        assert_eq!(session(world, id).tainted_at, since);
        world.wait(world.store.clear_taint(id, ana())).unwrap();
        assert_eq!((session(world, id).tainted_at, recorded(world, "session.cleared")), (None, 1));
        assert_eq!(code(world.wait(world.store.clear_taint(SessionId::from_bits(9), ana()))), "store.not_found");
    });
}
