//! Planted faults that the checks must find.

use sluice_testkit::crash_state::Workload;
use sluice_testkit::ids::SplitMix;

use crate::anywhere::{KillTally, kill_often};
use crate::check::{CrashViolation, check};
use crate::environment::{CrashEnvironment, CrashRun, LifeEnding};

const WORK: Workload = Workload { writes: 50, class: None };
/// A planted fault that survives this many kills is not caught.
const PATIENCE: u32 = 300;

/// Kills the planted driver until the checks find this kind of error; gives the number of kills it took.
fn caught(plant: &'static str, wrong: CrashViolation, mut environment: CrashEnvironment) -> u32 {
    let mut tally = KillTally::default();
    for seed in 1.. {
        let run = CrashRun { environment: &environment, seed, work: WORK, plant: Some(plant) };
        kill_often(&run, &mut SplitMix::new(seed), &mut tally);
        let verdict = check(&environment, WORK);
        if verdict.kinds().contains(&wrong) {
            eprintln!("{plant}: {wrong:?} found after {} kills: {:?}", tally.kills, verdict.kinds());
            return tally.kills;
        }
        assert!(tally.kills < PATIENCE, "{plant} was not found in {} kills: {:?}", tally.kills, verdict.wrongs);
        environment = environment.cleared();
    }
    unreachable!("the seeds do not end")
}

/// Without a kill the planted fault does no harm: only kills reveal it.
fn harmless_alive(plant: &'static str, environment: &CrashEnvironment) {
    let run = CrashRun { environment, seed: 1, work: WORK, plant: Some(plant) };
    assert!(!run.live(0, LifeEnding::Natural, &[]).died, "nobody kills this one");
    let verdict = check(environment, WORK);
    assert!(verdict.wrongs.is_empty(), "{:#?}", verdict.wrongs);
}

#[test]
fn a_naive_rescue_is_caught_by_the_writes_it_repeats() {
    harmless_alive("naive_rescue", &CrashEnvironment::sqlite());
    caught("naive_rescue", CrashViolation::Doubled, CrashEnvironment::sqlite());
    if let Some(environment) = CrashEnvironment::postgres() {
        caught("naive_rescue", CrashViolation::Doubled, environment);
    }
}

#[test]
fn a_record_written_after_the_commit_is_caught() {
    harmless_alive("audit_after_commit", &CrashEnvironment::sqlite());
    caught("audit_after_commit", CrashViolation::Record, CrashEnvironment::sqlite());
}
