//! Thousands of simulated installations in which everything fails, and what must be true in all of them.
//!
//! A failing seed prints how to run it again. Besides the sweep there are planted bugs: a check that does not catch
//! them within a few hundred seeds checks nothing.
#![expect(clippy::panic, reason = "a seed that fails must say so")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluice_core::approval;
use sluice_core::hold::diagram::{LifecycleEdge, edges};
use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Millis, Tier};
use sluice_store::{
    AbandonedClaims, Admission, AdmissionOutcome, AttemptOutcome, HoldSettlement, SettleHold, StoreError,
};
use sluice_testkit::TestStore;
use sluice_testkit::depth::repetitions;
use sluice_testkit::sim::{PlantedBug, SimFailure, SimPlan, SimReport, run};
use sluice_testkit::test_store::ana;

/// Seeds of the sweep: a slice in every run, the whole count in a nightly one.
const SEEDS: [u64; 2] = [2_000, 100_000];
const TURNS: u32 = 160;

/// Steps that no use case of the store takes, and why.
const UNTAKEN: [(&str, &str, &str); 1] = [
    // Only a request that is merged into another would take it, and the store does not merge single requests.
    ("awaiting_approval", "pull_back", "awaiting_approval"),
];

/// Steps of approval requests that no run takes, and why; the contract tests of the store have them.
const UNASKED: [(&str, &str, &str); 3] = [
    // Each simulated write that needed approval has its own request by the time it leaves.
    ("consumed", "consume", "consumed"),
    // Simulated people change no words, and nobody repeats an open request.
    ("pending", "reword", "approved"),
    ("pending", "supersede", "superseded"),
];

/// Runs seeds on every core until one is enough; gives all results.
fn sweep(
    seeds: Range<u64>,
    bug: Option<PlantedBug>,
    enough: fn(&Result<SimReport, SimFailure>) -> bool,
) -> Vec<Result<SimReport, SimFailure>> {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let result = run(&SimPlan { seed, turns: TURNS, bug });
            stop.fetch_or(enough(&result), Ordering::Relaxed);
            done.push((seed, result));
        }
        done
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all: BTreeMap<u64, _> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| panic!("a sweep died"))).collect()
    });
    all.into_values().collect()
}

fn or_panic(result: Result<SimReport, SimFailure>) -> SimReport {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

/// `SLUICE_SEED` runs that seed and prints its trace.
#[test]
fn one_seed() {
    #[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let report = or_panic(run(&SimPlan { seed, turns: TURNS, bug: None }));
    println!("{} held, {} happened, trace {}", report.holds, report.effects, report.hash);
}

#[test]
fn whatever_breaks_nothing_is_lost_doubled_or_sent_after_a_no_and_every_edge_is_taken() {
    let mut taken: BTreeMap<LifecycleEdge, u32> = BTreeMap::new();
    let mut asked: BTreeMap<LifecycleEdge, u32> = BTreeMap::new();
    let (mut holds, mut effects) = (0, 0);
    for result in sweep(0..repetitions(SEEDS[0], SEEDS[1]), None, Result::is_err) {
        let report = or_panic(result);
        (holds, effects) = (holds + report.holds, effects + report.effects);
        for (edge, count) in report.taken {
            *taken.entry(edge).or_default() += count;
        }
        for (edge, count) in report.asked {
            *asked.entry(edge).or_default() += count;
        }
    }
    println!("{holds} held, {effects} happened");
    for (edge, count) in taken.iter().chain(&asked) {
        println!("{count:>7} {} --{}--> {}", edge.from, edge.by, edge.to);
    }
    let seen: BTreeSet<LifecycleEdge> = taken.into_keys().collect();
    let missing: Vec<(&str, &str, &str)> =
        edges().into_iter().filter(|edge| !seen.contains(edge)).map(|edge| (edge.from, edge.by, edge.to)).collect();
    assert_eq!(missing, UNTAKEN);
    let unasked = approval::diagram::edges().into_iter().filter(|edge| !asked.contains_key(edge));
    let unasked: Vec<(&str, &str, &str)> = unasked.map(|edge| (edge.from, edge.by, edge.to)).collect();
    assert_eq!(unasked, UNASKED);
}

#[test]
fn fifty_seeds_leave_the_same_trace_twice_and_fifty_different_ones() {
    let hashes = || -> Vec<String> {
        sweep(5_000..5_050, None, Result::is_err).into_iter().map(|result| or_panic(result).hash).collect()
    };
    let once = hashes();
    assert_eq!(once, hashes());
    assert_eq!(once.iter().collect::<BTreeSet<_>>().len(), 50);
}

/// The first seed that catches a planted bug must break the promise that this bug breaks.
fn caught(bug: PlantedBug, promise: &[&str]) {
    const WITHIN: u64 = 400;
    let results = sweep(0..WITHIN, Some(bug), Result::is_err);
    let failure = results.into_iter().find_map(Result::err);
    let failure = failure.unwrap_or_else(|| panic!("{bug:?} was not caught within {WITHIN} seeds"));
    println!("{bug:?} caught by seed {}: {}", failure.plan.seed, failure.what);
    assert!(promise.iter().any(|name| failure.what.contains(name)), "{bug:?} was caught by accident: {failure}");
}

#[test]
fn a_planted_naive_rescue_is_caught() {
    caught(PlantedBug::NaiveRescue, &["I1", "I3"]);
}

#[test]
fn a_planted_retry_on_timeout_is_caught() {
    caught(PlantedBug::RetryOnTimeout, &["I1", "I3"]);
}

#[test]
fn a_planted_new_handle_per_retry_is_caught() {
    caught(PlantedBug::NewHandlePerRetry, &["I1", "I3"]);
}

#[test]
fn planted_indifference_to_lateness_is_caught() {
    caught(PlantedBug::NoGrace, &["G15"]);
}

#[test]
fn planted_belief_in_a_wall_clock_that_jumps_is_caught() {
    caught(PlantedBug::WallClockOnly, &["G16"]);
}

#[test]
fn a_planted_absence_before_the_service_has_settled_is_caught() {
    caught(PlantedBug::AbsentBeforeSettle, &["I1", "I3"]);
}

// Bugs that the simulation found in the store, each in the smallest setup in which it can happen.

#[test]
fn two_questions_whose_time_is_up_end_together() {
    let world = TestStore::memory();
    for text in ["a", "b"] {
        world.admit(Admission { tier: Tier::ApprovalRequired, ..world.mail("clerk", text) });
    }
    world.clock.advance(Millis::from_hours(2));
    assert_eq!(world.wait(world.store.expire_approvals(10)).map(|ended| ended.len()).ok(), Some(2));
}

#[test]
fn writes_to_one_object_run_one_after_the_other() {
    let world = TestStore::memory();
    for text in ["a", "b"] {
        world.admit(Admission { object_key: Some("thread".into()), ..world.mail("clerk", text) });
    }
    world.clock.advance(Millis::from_secs(31));
    assert_eq!(world.claim_due().len(), 1);
    assert_eq!(world.claim_due().len(), 0, "the first is still under way");
}

#[test]
fn a_write_that_waits_for_a_person_cannot_be_asked_about_a_second_time() {
    let world = TestStore::memory();
    let AdmissionOutcome::Awaiting { hold, .. } =
        world.admit(Admission { tier: Tier::ApprovalRequired, ..world.mail("clerk", "a") })
    else {
        panic!("not asked")
    };
    let settle = SettleHold {
        hold,
        version: world.hold(hold).version,
        by: ana(),
        word: HoldSettlement::Again,
        tier: Tier::ApprovalRequired,
        approval: ApprovalId::from_bits(900),
        message: MessageId::from_bits(901),
        expiry: Millis::from_hours(1),
    };
    assert!(matches!(world.wait(world.store.settle(settle)), Err(StoreError::Move(_))));
}

#[test]
fn a_window_that_trips_again_pulls_back_what_was_held_since_its_card_was_put() {
    let world = TestStore::memory();
    let asked = world.admit(Admission { weight: 6, ..world.mail("clerk", "bulk") });
    assert!(matches!(asked, AdmissionOutcome::Awaiting { batch: true, .. }));
    world.clock.advance(Millis::from_mins(11));
    let held = world.admit_held("clerk", "small");
    world.admit(Admission { weight: 6, ..world.mail("clerk", "bulk again") });
    assert_eq!(world.state(held), "awaiting_approval");
}

#[test]
fn a_write_its_node_died_preparing_is_not_sent_unannounced_hours_later() {
    let world = TestStore::memory();
    let hold = world.admit_held("clerk", "a");
    world.clock.advance(Millis::from_secs(31));
    assert_eq!(world.claim_due().len(), 1);
    world.clock.advance(Millis::from_hours(3));
    let recovered = world.wait(world.store.recover(AbandonedClaims::Expired, 10, MessageId::from_bits(900)));
    assert_eq!(recovered.ok(), Some(vec![hold]));
    assert_eq!(world.state(hold), "stale");
}

#[test]
fn a_retry_that_came_due_while_nobody_was_there_is_judged_by_the_grace_rule() {
    let world = TestStore::memory();
    let hold = world.admit_held("clerk", "a");
    world.clock.advance(Millis::from_secs(31));
    assert_eq!(world.claim_due().len(), 1);
    let refused = AttemptOutcome::NotDone { code: "execute.later".into() };
    assert!(world.finish(hold, 1, refused).is_ok());
    world.clock.advance(Millis::from_hours(3));
    let late = world.wait(world.store.apply_grace_rule(10, MessageId::from_bits(900)));
    assert_eq!(late.map(|late| late.stale).ok(), Some(vec![hold]));
}
