//! Planted faults that the checks must find.

use sluice_testkit::ids::SplitMix;
use sluice_testkit::lives::Workload;

use crate::anywhere::{Tally, kill_often};
use crate::check::{Wrong, check};
use crate::ground::{Fate, Ground, Run};

const WORK: Workload = Workload { writes: 50, class: None };
/// A plant that survives this many kills is not caught.
const PATIENCE: u32 = 300;

/// Kills the planted driver until the checks find this kind of wrong; gives the number of kills it took.
fn caught(plant: &'static str, wrong: Wrong, mut ground: Ground) -> u32 {
    let mut tally = Tally::default();
    for seed in 1.. {
        let run = Run { ground: &ground, seed, work: WORK, plant: Some(plant) };
        kill_often(&run, &mut SplitMix::new(seed), &mut tally);
        let verdict = check(&ground, WORK);
        if verdict.kinds().contains(&wrong) {
            eprintln!("{plant}: {wrong:?} found after {} kills: {:?}", tally.kills, verdict.kinds());
            return tally.kills;
        }
        assert!(tally.kills < PATIENCE, "{plant} was not found in {} kills: {:?}", tally.kills, verdict.wrongs);
        ground = ground.cleared();
    }
    unreachable!("the seeds do not end")
}

/// Without a kill the plant does no harm: it is the kills that bring it to light.
fn harmless_alive(plant: &'static str, ground: &Ground) {
    let run = Run { ground, seed: 1, work: WORK, plant: Some(plant) };
    assert!(!run.live(0, Fate::Natural, &[]).died, "nobody kills this one");
    let verdict = check(ground, WORK);
    assert!(verdict.wrongs.is_empty(), "{:#?}", verdict.wrongs);
}

#[test]
fn a_naive_rescue_is_caught_by_the_writes_it_repeats() {
    harmless_alive("naive_rescue", &Ground::sqlite());
    caught("naive_rescue", Wrong::Doubled, Ground::sqlite());
    if let Some(ground) = Ground::postgres() {
        caught("naive_rescue", Wrong::Doubled, ground);
    }
}

#[test]
fn a_record_written_after_the_commit_is_caught() {
    harmless_alive("audit_after_commit", &Ground::sqlite());
    caught("audit_after_commit", Wrong::Record, Ground::sqlite());
}
