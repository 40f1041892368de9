//! Every point once, for every class.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_core::capability::EffectClass;
use sluice_testkit::lives::Workload;

use crate::check::{check, settle};
use crate::ground::{Fate, Ground, Run};

const WRITES: u32 = 12;
/// As many as are worth trying until a life comes by a point that chance decides on.
const SEEDS: u64 = 12;

/// What a life does, in the words of the driver.
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
struct Case {
    step: &'static str,
    side: &'static str,
    visit: u32,
    class: EffectClass,
}

/// The steps in which a write is between being asked for and being over.
const CORE: [&str; 7] = ["admit", "ack", "claim", "arm", "effect", "finish", "resolve"];

/// Every point at its first visit; at later ones too, for those steps only.
fn cases(later: &[u32], steps: &[&str]) -> Vec<Case> {
    let mut cases = Vec::new();
    for step in STEPS {
        for side in ["before", "after"] {
            let later = later.iter().filter(|_| steps.contains(&step));
            for &visit in std::iter::once(&1).chain(later) {
                // Only what consumes a handle creates one.
                let classes = EffectClass::ALL.into_iter();
                let classes = classes.filter(|class| step != "handle" || *class == EffectClass::ConsumeOnce);
                cases.extend(classes.map(|class| Case { step, side, visit, class }));
            }
        }
    }
    cases
}

/// Dies at the point, comes back, and is judged. Says whether the life came by the point at all.
fn die_there(ground: &Ground, case: Case, seed: u64) -> bool {
    let run = Run { ground, seed, work: Workload { writes: WRITES, class: Some(case.class) }, plant: None };
    let point = format!("{}_{}", case.side, case.step);
    let mut life = 0;
    // Some steps need something to come back to: writes that were sent, or came due in the meantime.
    let down = match case.step {
        "recover" | "recover_expired" | "doubtful" | "lookup" | "resolve" => {
            assert!(run.live(life, Fate::At("after_effect", 2), &[]).died, "{case:?}: nothing was sent");
            life += 1;
            "down=1"
        }
        "overdue" | "settle" => {
            assert!(run.live(life, Fate::At("after_ack", 8), &[]).died, "{case:?}: nothing was admitted");
            life += 1;
            "down=3700"
        }
        _ => "down=1",
    };
    let died = run.live(life, Fate::At(&point, case.visit), &[down]).died;
    life += 1;
    assert!(!run.live(life, Fate::Natural, &["down=1"]).died, "nobody kills this one");
    let verdict = check(ground, run.work);
    assert!(verdict.wrongs.is_empty(), "{case:?} seed {seed}: {:#?}", verdict.wrongs);
    let verdict = settle(&run, life, &verdict);
    assert!(verdict.wrongs.is_empty(), "{case:?} seed {seed}, after people: {:#?}", verdict.wrongs);
    died
}

fn everywhere(cases: &[Case], grounds: Vec<Ground>) {
    let (next, deaths) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let unreached = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for ground in grounds {
            let (next, deaths, unreached) = (&next, &deaths, &unreached);
            scope.spawn(move || {
                let mut ground = ground;
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Later visits may not come; the first one must.
                    let seeds = if case.visit == 1 { 1..=SEEDS } else { 1..=1 };
                    let mut died = false;
                    for seed in seeds {
                        died = die_there(&ground, *case, seed);
                        ground = ground.cleared();
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
    everywhere(&cases(&[2, 5], &STEPS), vec![Ground::sqlite(), Ground::sqlite()]);
}

#[test]
fn a_death_at_any_point_loses_nothing_and_repeats_nothing_on_postgres() {
    let (Some(one), Some(two)) = (Ground::postgres(), Ground::postgres()) else { return };
    everywhere(&cases(&[3], &CORE), vec![one, two]);
}
