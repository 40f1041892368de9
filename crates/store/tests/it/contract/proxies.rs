//! Tasks of security proxies.

use sluice_core::crash::{CrashCause, CrashContext, CrashFollowUp, CrashFootprint, CrashReport, next_step};
use sluice_core::ids::{JobId, MessageId};
use sluice_core::proxy::{BudgetLimit, MoneyAmount, ProxyUsage, day_of};
use sluice_core::{Actor, AgentName, Millis};
use sluice_store::{
    AlertFilter, BeginProxyTask, FreezeTarget, MessageSeverity, ProxyDailyUsage, ProxySuspension, ProxyTaskEnd,
    ProxyTaskNotes, ProxyTaskStart, ProxyTaskState, ProxyTaskUsage,
};
use sluice_testkit::TestStore;

use crate::engines::{across_restarts, code, everywhere, operator, recorded, service, with_two_nodes};

fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

pub(super) fn task(n: u128, proxy: &str) -> BeginProxyTask {
    let estimate = ProxyUsage { requests: 1, bytes: 1_000, millis: 60_000, cost: MoneyAmount::from_micros(10) };
    let limits = ProxyUsage { requests: 100, bytes: 100_000, millis: 6_000_000, cost: MoneyAmount::from_micros(1_000) };
    BeginProxyTask {
        id: JobId::from_bits(n),
        proxy: proxy.into(),
        operation: "feed".into(),
        agent: clerk(),
        estimate,
        limits,
        message: MessageId::from_bits(1_000_000 + n),
    }
}

fn begin(world: &TestStore, n: u128) -> bool {
    world.wait(world.store.begin_task(task(n, "moltbook"))).unwrap() == ProxyTaskStart::Begun
}

fn crash(world: &TestStore, cause: CrashCause, footprint: CrashFootprint, n: u128) -> ProxyTaskEnd {
    let at = world.now();
    let scene = CrashContext { at, cause, last_action: None, requests: 3, content: Some(b"evil words"), files: &[] };
    let report = CrashReport::new(&scene);
    let next = next_step(&report, 0, footprint);
    ProxyTaskEnd {
        crash: Some((report, next, MessageId::from_bits(n))),
        ..ProxyTaskEnd::of(ProxyTaskState::Crashed, 3)
    }
}

#[test]
fn a_task_has_one_end_and_both_are_recorded() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = ProxyTaskEnd::of(ProxyTaskState::Clean, 1);
        world.wait(world.store.end_task(JobId::from_bits(1), end.clone())).unwrap();
        assert_eq!(code(world.wait(world.store.end_task(JobId::from_bits(1), end))), "store.conflict");
        let tasks = world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap();
        assert_eq!((tasks.len(), tasks[0].state, tasks[0].requests), (1, ProxyTaskState::Clean, 1));
        assert!(tasks[0].ended_at.is_some() && tasks[0].report.is_none());
        assert_eq!(world.wait(world.store.proxy_tasks("moltbook", true, None, 10)).unwrap(), []);
        assert_eq!((recorded(world, "proxy.started"), recorded(world, "proxy.ended")), (1, 1));
    });
}

#[test]
fn an_attack_without_a_trace_waits_for_a_person_and_tells_them_at_once() {
    everywhere(|world| {
        assert!(begin(world, 1));
        let end = crash(world, CrashCause::Injection { findings: 2 }, CrashFootprint::Clean, 9);
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        let against = world.wait(world.store.begin_task(task(2, "moltbook"))).unwrap();
        assert!(matches!(against, ProxyTaskStart::Stands(ProxySuspension { quarantined: false, .. })), "{against:?}");
        let alerts = world.wait(world.store.alerts(AlertFilter::default(), None, 10)).unwrap();
        assert_eq!(
            (alerts[0].message.topic.as_str(), alerts[0].message.severity),
            ("proxy.crashed", MessageSeverity::Critical)
        );
        assert!(!alerts[0].message.body.to_string().contains("evil"), "{}", alerts[0].message.body);
        assert_eq!(world.wait(world.store.freezes()).unwrap(), []);
        let other = world.wait(world.store.begin_task(task(3, "other"))).unwrap();
        assert_eq!(other, ProxyTaskStart::Begun, "another proxy runs on");
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
        let end = crash(world, CrashCause::Forbidden, CrashFootprint::Modified, 9);
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!(frozen[0].scope, FreezeTarget::Service(service("proxy.moltbook")));
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
        let end = crash(world, CrashCause::Exited { code: 101 }, CrashFootprint::Clean, 9);
        assert!(matches!(end.crash.as_ref().unwrap().1, CrashFollowUp::Respawn { .. }));
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        assert!(begin(world, 2));
        let crashed = world.wait(world.store.proxy_tasks("moltbook", true, None, 10)).unwrap();
        assert_eq!((crashed.len(), crashed[0].state), (1, ProxyTaskState::Crashed));
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
            let cause = CrashCause::Exited { code: -1 };
            let scene = CrashContext { at, cause, last_action: None, requests: 0, content: None, files: &[] };
            let report = CrashReport::new(&scene);
            let next = next_step(&report, 0, CrashFootprint::Clean);
            ProxyTaskEnd {
                crash: Some((report, next, MessageId::from_bits(5))),
                ..ProxyTaskEnd::of(ProxyTaskState::Crashed, 0)
            }
        }));
        assert_eq!(left.unwrap().len(), 1);
        let tasks = world.wait(world.store.proxy_tasks("moltbook", false, None, 10)).unwrap();
        assert_eq!(tasks[0].state, ProxyTaskState::Crashed);
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

fn day(world: &TestStore) -> ProxyDailyUsage {
    let number = day_of(world.now());
    let days = world.wait(world.store.proxy_days(number)).unwrap();
    days.into_iter().find(|day| day.proxy == "moltbook").unwrap_or_else(|| ProxyDailyUsage::fresh("moltbook", number))
}

fn used(requests: u64, bytes: u64, millis: u64, micros: u64) -> ProxyUsage {
    ProxyUsage { requests, bytes, millis, cost: MoneyAmount::from_micros(micros) }
}

fn spend(world: &TestStore, n: u128, spent: ProxyUsage) {
    let ProxyTaskEnd { state, requests, .. } = ProxyTaskEnd::of(ProxyTaskState::Clean, 1);
    let spent =
        ProxyTaskUsage { used: spent, limits: task(n, "").limits, message: MessageId::from_bits(2_000_000 + n) };
    let end = ProxyTaskEnd { spent: Some(spent), ..ProxyTaskEnd::of(state, requests) };
    world.wait(world.store.end_task(JobId::from_bits(n), end)).unwrap();
}

fn told(world: &TestStore) -> Vec<u64> {
    let alerts = world.wait(world.store.alerts(AlertFilter::default(), None, 100)).unwrap();
    let budget = alerts.iter().rev().filter(|alert| alert.message.topic == "proxy.budget");
    budget.map(|alert| alert.message.body["percent"].as_u64().unwrap()).collect()
}

#[test]
fn what_a_task_may_use_is_reserved_and_settled_to_what_it_used() {
    everywhere(|world| {
        assert!(begin(world, 1) && begin(world, 2));
        assert_eq!((day(world).tasks, day(world).reserved), (2, used(2, 2_000, 120_000, 20)));
        spend(world, 1, used(1, 400, 250, 10));
        assert_eq!((day(world).used, day(world).reserved), (used(1, 400, 250, 10), used(1, 1_000, 60_000, 10)));
        // For an end that does not say what was used, everything that was reserved counts as used.
        world.wait(world.store.end_task(JobId::from_bits(2), ProxyTaskEnd::of(ProxyTaskState::CutOff, 1))).unwrap();
        assert_eq!((day(world).used, day(world).reserved), (used(2, 1_400, 60_250, 20), ProxyUsage::default()));
    });
}

#[test]
fn a_task_that_does_not_fit_the_day_does_not_begin_and_the_next_day_begins_anew() {
    for limit in BudgetLimit::ALL {
        everywhere(|world| {
            let narrow = |n: u128| {
                let mut new = task(n, "moltbook");
                let two = new.estimate.plus(new.estimate);
                match limit {
                    BudgetLimit::Requests => new.limits.requests = two.requests,
                    BudgetLimit::Bytes => new.limits.bytes = two.bytes,
                    BudgetLimit::Seconds => new.limits.millis = two.millis,
                    BudgetLimit::Cost => new.limits.cost = two.cost,
                }
                world.wait(world.store.begin_task(new)).unwrap()
            };
            assert_eq!([narrow(1), narrow(2)], [ProxyTaskStart::Begun, ProxyTaskStart::Begun]);
            assert_eq!(narrow(3), ProxyTaskStart::OverBudget(limit));
            assert_eq!((day(world).tasks, recorded(world, "proxy.started")), (2, 2));
            assert_eq!(recorded(world, "proxy.over_budget"), 1);
            assert_eq!(told(world), [0; 0], "only tasks under way stand against it");
            let estimate = task(0, "").estimate;
            spend(world, 1, estimate);
            spend(world, 2, estimate);
            assert_eq!(narrow(4), ProxyTaskStart::OverBudget(limit));
            assert_eq!(narrow(5), ProxyTaskStart::OverBudget(limit));
            assert_eq!(told(world), [100], "once a day");
            world.clock.advance(Millis::from_hours(24));
            assert_eq!(narrow(6), ProxyTaskStart::Begun);
        });
    }
}

#[test]
fn people_are_told_once_at_eighty_percent_and_once_at_all_of_it() {
    everywhere(|world| {
        let share = |n: u128, requests: u64| {
            assert!(begin(world, n));
            spend(world, n, used(requests, 0, 0, 0));
            told(world)
        };
        assert_eq!(share(1, 79), [0; 0]);
        assert_eq!(share(2, 1), [80]);
        assert_eq!(share(3, 19), [80]);
        assert_eq!(share(4, 1), [80, 100]);
        let refused = world.wait(world.store.begin_task(task(5, "moltbook"))).unwrap();
        assert_eq!((refused, told(world)), (ProxyTaskStart::OverBudget(BudgetLimit::Requests), vec![80, 100]));
    });
}

#[test]
fn counts_survive_restarts_and_what_was_left_running_is_settled() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        assert!(begin(&world, 1) && begin(&world, 2));
        spend(&world, 1, used(1, 10, 20, 30));
        drop(world);
        let world = place.open("gw-1");
        assert_eq!((day(&world).used, day(&world).reserved.requests), (used(1, 10, 20, 30), 1));
        let left = world.wait(world.store.end_left_tasks(|task| {
            let (_, reserved) = task.reserved.unwrap();
            let limits = ProxyUsage { requests: 100, ..reserved.plus(reserved) };
            let spent = ProxyTaskUsage { used: reserved, limits, message: MessageId::from_bits(77) };
            ProxyTaskEnd { spent: Some(spent), ..ProxyTaskEnd::of(ProxyTaskState::Crashed, task.requests) }
        }));
        assert_eq!(left.unwrap().len(), 1);
        assert_eq!((day(&world).used, day(&world).reserved), (used(2, 1_010, 60_020, 40), ProxyUsage::default()));
        world
    });
}

#[test]
fn two_nodes_share_the_budget_of_a_day() {
    with_two_nodes(|one, two| {
        let narrow = |world: &TestStore, n: u128| {
            let mut new = task(n, "moltbook");
            new.limits.requests = 3;
            world.wait(world.store.begin_task(new)).unwrap()
        };
        let begun = [narrow(one, 1), narrow(two, 2), narrow(one, 3)];
        assert_eq!(begun, [ProxyTaskStart::Begun, ProxyTaskStart::Begun, ProxyTaskStart::Begun]);
        assert_eq!(narrow(two, 4), ProxyTaskStart::OverBudget(BudgetLimit::Requests));
        assert_eq!(narrow(one, 5), ProxyTaskStart::OverBudget(BudgetLimit::Requests));
        spend(two, 2, used(0, 0, 0, 0));
        assert_eq!(narrow(one, 6), ProxyTaskStart::Begun, "what was not used is free again on every node");
    });
}

#[test]
fn a_review_is_given_what_tasks_did_and_not_what_they_read() {
    everywhere(|world| {
        let since = world.now();
        assert!(begin(world, 1) && begin(world, 2) && begin(world, 3));
        world.clock.advance(Millis::from_secs(2));
        let notes = ProxyTaskNotes {
            failed: Some("egress.limit".into()),
            refused: Some("egress.limit".into()),
            answer_bytes: Some(17),
            findings: 4,
            proposals_refused: 1,
        };
        let end = ProxyTaskEnd { notes, ..ProxyTaskEnd::of(ProxyTaskState::Clean, 1) };
        world.wait(world.store.end_task(JobId::from_bits(1), end)).unwrap();
        let end = crash(world, CrashCause::Injection { findings: 2 }, CrashFootprint::Clean, 9);
        world.wait(world.store.end_task(JobId::from_bits(2), end)).unwrap();
        let until = world.now() + Millis::from_secs(1);
        let facts = world.wait(world.store.proxy_task_facts("moltbook", (since, until), 10)).unwrap();
        let [second, first] = facts.as_slice() else { panic!("a task that runs is no fact yet: {facts:?}") };
        assert_eq!(
            (first.refused.as_deref(), first.answer_bytes, first.millis),
            (Some("egress.limit"), Some(17), Some(2_000))
        );
        assert_eq!((first.findings, first.proposals_refused, first.trigger.as_deref()), (4, 1, None));
        assert_eq!(second.trigger.as_deref(), Some("INJECTION_DETECTED"));
        assert_eq!(second.failed.as_deref(), Some("worker.crashed"));
        let before = world.wait(world.store.proxy_task_facts("moltbook", (until, until), 10)).unwrap();
        assert_eq!(before, []);
    });
}
