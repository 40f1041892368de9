//! Budgets and the flood guard of checks: counted with the admission, for a day, on every engine.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::{DAY, DailyBudget, DailyBudgetLimits};
use sluice_core::policy::TargetOrigin;
use sluice_core::target::TracedTarget;
use sluice_core::{AgentName, Millis, Tier};
use sluice_store::{Admission, AdmissionOutcome, StoreError};
use sluice_testkit::TestStore;

use super::allowances::{always, give, using};
use crate::checker;
use crate::engines::{across_restarts, everywhere, question, service, with_two_nodes};

const PER_ACCOUNT: DailyBudgetLimits = DailyBudgetLimits { account: Some(10), gateway: None, new_targets: None };
const PER_GATEWAY: DailyBudgetLimits = DailyBudgetLimits { account: None, gateway: Some(3), new_targets: None };
const NEW_TARGETS: DailyBudgetLimits = DailyBudgetLimits { account: None, gateway: None, new_targets: Some(2) };

fn admit(world: &TestStore, agent: &str, text: &str, budgets: DailyBudgetLimits) -> AdmissionOutcome {
    world.admit(Admission { budgets, ..world.mail(agent, text) })
}

fn is_held(admitted: &AdmissionOutcome) -> bool {
    match admitted {
        AdmissionOutcome::Held { .. } => true,
        AdmissionOutcome::Awaiting { batch, .. } => {
            assert!(!batch, "the budget asks, not the batch window");
            false
        }
        other => panic!("{other:?}"),
    }
}

/// Why people were asked, according to the audit log.
fn reasons(world: &TestStore) -> Vec<String> {
    let asked = checker::entries(world).into_iter().filter(|entry| entry.fact.kind == "approval.pending");
    asked.filter_map(|entry| entry.fact.code).collect()
}

#[test]
fn a_drip_below_the_batch_window_ends_in_a_question_within_a_day() {
    across_restarts(|place| {
        let mut world = place.open("gw-1");
        let mut went = Vec::new();
        // One mail every twenty minutes for two days: never more than one in any batch window.
        for n in 0..144_u32 {
            let admitted = admit(&world, "clerk", &format!("drip {n}"), PER_ACCOUNT);
            if is_held(&admitted) {
                went.push(world.now());
            }
            if n == 5 {
                drop(world);
                world = place.open("gw-1");
            }
            if n == 11 {
                assert_eq!(went.len(), 10, "a restart loses nothing");
            }
            world.clock.advance(Millis::from_mins(20));
        }
        assert!((20..=30).contains(&went.len()), "what is older than a day is forgotten: {}", went.len());
        for first in &went {
            let within = went.iter().filter(|at| (*first..=*first + DAY).contains(*at)).count();
            assert!(within <= 10, "{within} within a day");
        }
        assert!(reasons(&world).iter().all(|reason| reason == DailyBudget::Account.code()), "{:?}", reasons(&world));
        world
    });
}

#[test]
fn a_budget_weighs_writes_counts_each_service_apart_and_shows_what_is_used() {
    everywhere(|world| {
        let heavy = |text: &str, weight: u32| {
            let window = SlidingWindow { limit: 1_000, ..SlidingWindow::default() };
            is_held(&world.admit(Admission { budgets: PER_ACCOUNT, weight, window, ..world.mail("clerk", text) }))
        };
        assert!(heavy("nine", 9));
        assert!(!heavy("two", 2), "nine and two are more than ten");
        assert!(heavy("one", 1), "a write that needs approval is not counted");
        assert!(!heavy("another", 1));
        let elsewhere = Admission { service: service("calendar"), ..world.mail("clerk", "elsewhere") };
        assert!(is_held(&world.admit(Admission { budgets: PER_ACCOUNT, ..elsewhere })));
        assert!(is_held(&admit(world, "scout", "mine", PER_ACCOUNT)), "another agent has a budget of its own");
        let used = world.wait(world.store.budgets_in_use(world.now())).unwrap();
        let used: Vec<_> = used
            .iter()
            .map(|one| (one.budget, one.agent.as_ref().map(AgentName::as_str), one.service.as_deref(), one.used))
            .collect();
        assert_eq!(
            used,
            [
                (DailyBudget::Gateway, None, None, 0),
                (DailyBudget::Account, Some("clerk"), Some("calendar"), 1),
                (DailyBudget::Account, Some("clerk"), Some("email"), 10),
                (DailyBudget::Account, Some("scout"), Some("email"), 1),
            ]
        );
        let tomorrow = world.now() + Millis::from_hours(25);
        assert_eq!(
            world.wait(world.store.budgets_in_use(tomorrow)).unwrap().len(),
            1,
            "only the gateway's, with nothing"
        );
    });
}

#[test]
fn the_budget_of_the_gateway_is_one_for_all_agents() {
    everywhere(|world| {
        for (n, agent) in ["clerk", "scout", "clerk"].into_iter().enumerate() {
            assert!(is_held(&admit(world, agent, &format!("{n}"), PER_GATEWAY)));
        }
        for agent in ["clerk", "scout", "porter"] {
            assert!(!is_held(&admit(world, agent, "one more", PER_GATEWAY)), "{agent}");
        }
        assert_eq!(reasons(world), [DailyBudget::Gateway.code(); 3]);
        world.clock.advance(Millis::from_hours(25));
        assert!(is_held(&admit(world, "porter", "tomorrow", PER_GATEWAY)));
    });
}

#[test]
fn the_budget_of_the_gateway_is_one_for_all_nodes() {
    with_two_nodes(|one, two| {
        assert!(is_held(&admit(one, "clerk", "a", PER_GATEWAY)));
        assert!(is_held(&admit(two, "scout", "b", PER_GATEWAY)));
        assert!(is_held(&admit(one, "scout", "c", PER_GATEWAY)));
        assert!(!is_held(&admit(two, "clerk", "d", PER_GATEWAY)));
    });
}

#[test]
fn new_targets_are_counted_once_each_and_known_ones_never() {
    everywhere(|world| {
        let send = |text: &str, targets: &[(&str, TargetOrigin)]| {
            let traced = |(print, origin): &(&str, TargetOrigin)| TracedTarget {
                argument: "to".into(),
                value: "li@x.example".into(),
                origin: *origin,
                source: None,
                print: Some((*print).into()),
            };
            let targets = targets.iter().map(traced).collect();
            is_held(&world.admit(Admission { budgets: NEW_TARGETS, targets, ..world.mail("clerk", text) }))
        };
        assert!(send("1", &[("aa", TargetOrigin::New)]));
        assert!(
            send("2", &[("aa", TargetOrigin::New), ("kk", TargetOrigin::Known), ("qq", TargetOrigin::Asked)]),
            "aa is counted already"
        );
        assert!(!send("3", &[("bb", TargetOrigin::Seen), ("cc", TargetOrigin::New)]), "two more are one too many");
        assert!(send("4", &[("bb", TargetOrigin::Seen)]));
        world.clock.advance(Millis::from_mins(11));
        assert!(!send("5", &[("cc", TargetOrigin::New)]));
        assert!(send("6", &[("aa", TargetOrigin::New), ("bb", TargetOrigin::New)]), "both were reached today");
        assert!(send("7", &[("kk", TargetOrigin::Known)]));
        assert_eq!(reasons(world), [DailyBudget::NewTargets.code(); 2]);
    });
}

#[test]
fn no_standing_approval_answers_an_exceeded_budget() {
    everywhere(|world| {
        let allowance = always(world, None);
        give(world, ApprovalAnswer::Always, &allowance);
        let send = |text: &str| {
            let mail = using(allowance.id, question(world, "clerk", text));
            is_held(&world.admit(Admission { budgets: PER_GATEWAY, ..mail }))
        };
        assert!(send("1") && send("2") && send("3"));
        assert!(!send("4"));
    });
}

#[test]
fn a_check_counts_in_no_window_of_writes_and_a_flood_of_questions_is_refused_with_a_time() {
    everywhere(|world| {
        let checks = Some(SlidingWindow { limit: 8, span: Millis::from_mins(10) });
        let check = |text: &str| {
            let mail = world.mail("clerk", text);
            world.wait(world.store.admit(Admission { checks, tier: Tier::ApprovalRequired, ..mail }))
        };
        for n in 0..8 {
            assert!(!is_held(&check(&format!("check {n}")).unwrap()));
        }
        let clerk = || AgentName::new("clerk").unwrap();
        let (email, window) = (service("email"), SlidingWindow::default());
        let used = world.wait(world.store.batch_used(clerk(), &email, &window, world.now())).unwrap();
        assert_eq!(used, 0, "checks are no writes");
        match check("one too many") {
            Err(StoreError::CheckFlood { after }) => {
                assert!(after > Millis::ZERO && after <= Millis::from_mins(11), "{after}");
            }
            other => panic!("{other:?}"),
        }
        for n in 0..5 {
            assert!(is_held(&world.admit(world.mail("clerk", &format!("write {n}")))), "writes go on");
        }
        let other = Admission { checks, tier: Tier::ApprovalRequired, ..world.mail("scout", "mine") };
        assert!(!is_held(&world.admit(other)), "another agent asks as before");
        world.clock.advance(Millis::from_mins(11));
        assert!(!is_held(&check("later").unwrap()));
    });
}
