//! A kill at every point, for every class.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_core::capability::EffectClass;
use sluice_testkit::crash_state::Workload;

use crate::check::{check, settle};
use crate::environment::{CrashEnvironment, CrashRun, LifeEnding};

const WRITES: u32 = 12;
/// How many seeds to try until a process reaches a point that depends on chance.
const SEEDS: u64 = 12;

/// The steps of a process, by the driver's names.
const STEPS: [&str; 20] = [
    "open",
    "start",
    "recover",
    "overdue",
    "admit",
    "ack",
    "due",
    "claim",
    "handle",
    "arm",
    "effect",
    "finish",
    "cancel",
    "decide",
    "expire",
    "recover_expired",
    "doubtful",
    "lookup",
    "resolve",
    "settle",
];

/// A point, a visit, a class.
#[derive(Debug, Clone, Copy)]
struct KillPointCase {
    step: &'static str,
    side: &'static str,
    visit: u32,
    class: EffectClass,
}

/// The steps between the request for a write and its end.
const CORE: [&str; 7] = ["admit", "ack", "claim", "arm", "effect", "finish", "resolve"];

/// Every point at its first visit; also at these later visits, for these steps only.
fn cases(later: &[u32], steps: &[&str]) -> Vec<KillPointCase> {
    let mut cases = Vec::new();
    for step in STEPS {
        for side in ["before", "after"] {
            let later = later.iter().filter(|_| steps.contains(&step));
            for &visit in std::iter::once(&1).chain(later) {
                // Only a class that consumes a handle creates one.
                let classes = EffectClass::ALL.into_iter();
                let classes = classes.filter(|class| step != "handle" || *class == EffectClass::ConsumeOnce);
                cases.extend(classes.map(|class| KillPointCase { step, side, visit, class }));
            }
        }
    }
    cases
}

/// Ends the process at the point, restarts it, and checks the result. Returns whether the process reached the point at
/// all.
fn die_there(environment: &CrashEnvironment, case: KillPointCase, seed: u64) -> bool {
    let run = CrashRun { environment, seed, work: Workload { writes: WRITES, class: Some(case.class) }, plant: None };
    let point = format!("{}_{}", case.side, case.step);
    let mut life = 0;
    // Some steps need something to recover: writes that were sent, or that became due meanwhile.
    let down = match case.step {
        "recover" | "recover_expired" | "doubtful" | "lookup" | "resolve" => {
            assert!(run.live(life, LifeEnding::At("after_effect", 2), &[]).died, "{case:?}: nothing was sent");
            life += 1;
            "down=1"
        }
        "overdue" | "settle" => {
            assert!(run.live(life, LifeEnding::At("after_ack", 8), &[]).died, "{case:?}: nothing was admitted");
            life += 1;
            "down=3700"
        }
        _ => "down=1",
    };
    let died = run.live(life, LifeEnding::At(&point, case.visit), &[down]).died;
    life += 1;
    assert!(!run.live(life, LifeEnding::Natural, &["down=1"]).died, "nobody kills this one");
    let verdict = check(environment, run.work);
    assert!(verdict.wrongs.is_empty(), "{case:?} seed {seed}: {:#?}", verdict.wrongs);
    let verdict = settle(&run, life, &verdict);
    assert!(verdict.wrongs.is_empty(), "{case:?} seed {seed}, after people: {:#?}", verdict.wrongs);
    died
}

fn everywhere(cases: &[KillPointCase], environments: Vec<CrashEnvironment>) {
    let (next, deaths) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let unreached = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for environment in environments {
            let (next, deaths, unreached) = (&next, &deaths, &unreached);
            scope.spawn(move || {
                let mut environment = environment;
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Later visits may not happen; the first one must.
                    let seeds = if case.visit == 1 { 1..=SEEDS } else { 1..=1 };
                    let mut died = false;
                    for seed in seeds {
                        died = die_there(&environment, *case, seed);
                        environment = environment.cleared();
                        if died {
                            deaths.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                    if case.visit == 1 && !died {
                        unreached.lock().unwrap().push(*case);
                    }
                }
            });
        }
    });
    let unreached = unreached.into_inner().unwrap();
    assert!(unreached.is_empty(), "no life came by {unreached:#?}");
    eprintln!("{} deaths at {} points and visits", deaths.into_inner(), cases.len());
}

#[test]
fn a_death_at_any_point_loses_nothing_and_repeats_nothing_on_sqlite() {
    everywhere(&cases(&[2, 5], &STEPS), vec![CrashEnvironment::sqlite(), CrashEnvironment::sqlite()]);
}

#[test]
fn a_death_at_any_point_loses_nothing_and_repeats_nothing_on_postgres() {
    let (Some(one), Some(two)) = (CrashEnvironment::postgres(), CrashEnvironment::postgres()) else { return };
    everywhere(&cases(&[3], &CORE), vec![one, two]);
}
