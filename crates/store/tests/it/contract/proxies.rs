//! Tasks of security proxies.

use sluice_core::crash::{Cause, CrashReport, Footprint, NextStep, Scene, next_step};
use sluice_core::ids::{JobId, MessageId};
use sluice_core::{Actor, AgentName};
use sluice_store::{AlertFilter, Scope, Severity, TaskEnd, TaskState};
use sluice_testkit::World;

use crate::engines::{across_restarts, code, everywhere, operator, recorded, service};

fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

fn begin(world: &World, n: u128) -> bool {
    world.wait(world.store.begin_task(JobId::from_bits(n), "moltbook", "feed", clerk())).unwrap().is_none()
}

fn crash(world: &World, cause: Cause, footprint: Footprint, n: u128) -> TaskEnd {
    let at = world.now();
    let scene = Scene { at, cause, last_action: None, requests: 3, content: Some(b"evil words"), files: &[] };
    let report = CrashReport::new(&scene);
    let next = next_step(&report, 0, footprint);
    TaskEnd { state: TaskState::Crashed, requests: 3, crash: Some((report, next, MessageId::from_bits(n))) }
}

#[test]
fn a_task_has_one_end_and_both_are_recorded() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = TaskEnd { state: TaskState::Clean, requests: 1, crash: None };
        world.wait(world.store.end_task(JobId::from_bits(1), end.clone())).unwrap();
        assert_eq!(code(world.wait(world.store.end_task(JobId::from_bits(1), end))), "store.conflict");
        let tasks = world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap();
        assert_eq!((tasks.len(), tasks[0].state, tasks[0].requests), (1, TaskState::Clean, 1));
        assert!(tasks[0].ended_at.is_some() && tasks[0].report.is_none());
        assert_eq!(world.wait(world.store.proxy_tasks("moltbook", true, None, 10)).unwrap(), []);
        assert_eq!((recorded(world, "proxy.started"), recorded(world, "proxy.ended")), (1, 1));
    });
}

#[test]
fn an_attack_without_a_trace_waits_for_a_person_and_tells_them_at_once() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = crash(world, Cause::Injection { findings: 2 }, Footprint::Clean, 9);
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        let against = world.wait(world.store.begin_task(JobId::from_bits(2), "moltbook", "feed", clerk())).unwrap();
        assert!(!against.unwrap().quarantined);
        let alerts = world.wait(world.store.alerts(AlertFilter::default(), None, 10)).unwrap();
        assert_eq!(
            (alerts[0].message.topic.as_str(), alerts[0].message.severity),
            ("proxy.crashed", Severity::Critical)
        );
        assert!(!alerts[0].message.body.to_string().contains("evil"), "{}", alerts[0].message.body);
        assert_eq!(world.wait(world.store.freezes()).unwrap(), []);
        let other = world.wait(world.store.begin_task(JobId::from_bits(3), "other", "feed", clerk())).unwrap();
        assert_eq!(other, None, "another proxy runs on");
        let thief = Actor::Agent(clerk());
        assert!(world.wait(world.store.clear_proxy("moltbook", thief)).is_err());
        let was = world.wait(world.store.clear_proxy("moltbook", operator())).unwrap();
        assert!(was.crash.unwrap().starts_with("crash-"));
        assert!(begin(world, 4));
        assert!(world.wait(world.store.clear_proxy("moltbook", operator())).is_err(), "nothing stands against it");
    });
}

#[test]
fn an_attack_that_left_a_trace_freezes_the_connection_until_it_is_cleared() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = crash(world, Cause::Forbidden, Footprint::Modified, 9);
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!(frozen[0].scope, Scope::Service(service("proxy.moltbook")));
        let standings = world.wait(world.store.proxy_standings()).unwrap();
        assert!(standings[0].quarantined);
        world.wait(world.store.clear_proxy("moltbook", operator())).unwrap();
        assert_eq!(world.wait(world.store.freezes()).unwrap(), []);
        assert!(begin(world, 2));
    });
}

#[test]
fn an_ordinary_fault_stands_in_nobodys_way() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = crash(world, Cause::Exited { code: 101 }, Footprint::Clean, 9);
        assert!(matches!(end.crash.as_ref().unwrap().1, NextStep::Respawn { .. }));
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        assert!(begin(world, 2));
        let crashed = world.wait(world.store.proxy_tasks("moltbook", true, None, 10)).unwrap();
        assert_eq!((crashed.len(), crashed[0].state), (1, TaskState::Crashed));
    });
}

#[test]
fn a_person_can_set_a_proxy_aside() {
    everywhere(|world| {
        world.wait(world.store.quarantine_proxy("moltbook", operator(), "odd answers".into())).unwrap();
        assert!(!begin(world, 1));
        assert_eq!(world.wait(world.store.proxy_standings()).unwrap()[0].reason, "odd answers");
        assert_eq!(world.wait(world.store.freezes()).unwrap().len(), 1);
    });
}

#[test]
fn what_a_dead_node_left_running_is_ended_by_its_next_life() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        assert!(begin(&world, 1));
        drop(world);
        let world = place.open("gw-1");
        let at = world.now();
        let left = world.wait(world.store.end_left_tasks(move |_| {
            let cause = Cause::Exited { code: -1 };
            let scene = Scene { at, cause, last_action: None, requests: 0, content: None, files: &[] };
            let report = CrashReport::new(&scene);
            let next = next_step(&report, 0, Footprint::Clean);
            TaskEnd { state: TaskState::Crashed, requests: 0, crash: Some((report, next, MessageId::from_bits(5))) }
        }));
        assert_eq!(left.unwrap().len(), 1);
        let tasks = world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap();
        assert_eq!(tasks[0].state, TaskState::Crashed);
        let again = world.wait(world.store.end_left_tasks(|_| unreachable!())).unwrap();
        assert_eq!(again, []);
        world
    });
}

#[test]
fn what_a_task_may_not_keep_is_on_record_by_its_code() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let refused = world.store.refuse_proposal("moltbook", JobId::from_bits(1), "proposal.leak", operator());
        world.wait(refused).unwrap();
        assert_eq!(recorded(world, "proxy.proposal_refused"), 1);
    });
}
