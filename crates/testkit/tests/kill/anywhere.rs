//! Kills at any moment: between two steps, inside a commit, during recovery.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sluice_testkit::crash_state::Workload;
use sluice_testkit::depth::repetitions;
use sluice_testkit::ids::SplitMix;

use crate::check::{CrashVerdict, check, settle};
use crate::environment::{CrashEnvironment, CrashRun, FinishedLife, LifeEnding};

const WRITES: u32 = 100;
/// Most kills of one run, so that every ten of them meet at least forty writes.
const DEATHS: u32 = 25;

/// The counts of all kills.
#[derive(Debug, Default, Clone, Copy)]
pub struct KillTally {
    pub runs: u32,
    pub writes: u32,
    pub kills: u32,
    /// Kills that found a write between its admission and its end.
    pub open: u32,
    /// Of these, kills that found one between its claim and its result.
    pub inside: u32,
    /// Kills while the process was still recovering from the one before.
    pub recovering: u32,
    pub undecided: usize,
}

/// One run with kills at any moment, then one process to the end. Gives its number.
pub fn kill_often(run: &CrashRun<'_>, random: &mut SplitMix, tally: &mut KillTally) -> u64 {
    let mut life = 0;
    for _ in 0..DEATHS {
        // One in four falls on the first steps, which after a kill are those of recovery.
        let after = if random.below(4) == 0 { random.below(10) } else { 10 + random.below(100) };
        let pause = Duration::from_micros(random.below(4_000));
        let lived = run.live(life, LifeEnding::Killed { after, pause }, &[]);
        tally.note_death_before(&lived, life);
        life += 1;
        if !lived.died {
            return life;
        }
        tally.kills += 1;
        tally.recovering += u32::from(!lived.lines.iter().any(|line| line == "awake"));
    }
    let last = run.live(life, LifeEnding::Natural, &[]);
    assert!(!last.died, "nobody kills this one");
    tally.note_death_before(&last, life);
    life
}

impl KillTally {
    /// The state that this process found shows what the kill before it interrupted.
    fn note_death_before(&mut self, life: &FinishedLife, number: u64) {
        let found = life.lines.iter().find_map(|line| line.strip_prefix("found ")).filter(|_| number > 0);
        let mut counts = found.unwrap_or_default().split(' ').filter_map(|word| word.parse::<u32>().ok());
        let (preparing, armed, open) = (counts.next(), counts.next(), counts.next());
        self.inside += u32::from(preparing.unwrap_or(0) + armed.unwrap_or(0) > 0);
        self.open += u32::from(open.unwrap_or(0) > 0);
    }
}

fn judge(run: &CrashRun<'_>, verdict: &CrashVerdict) {
    assert!(verdict.wrongs.is_empty(), "seed {}: {:#?}", run.seed, verdict.wrongs);
}

/// Kills until there were enough, on all databases at once.
fn kill_until(kills: u32, environments: Vec<CrashEnvironment>) -> KillTally {
    let (begun, total) = (Instant::now(), Mutex::new(KillTally::default()));
    let enough = |total: &KillTally| total.kills >= kills;
    std::thread::scope(|scope| {
        for environment in environments {
            let (total, enough) = (&total, &enough);
            scope.spawn(move || {
                let mut environment = environment;
                loop {
                    let seed = {
                        let mut total = total.lock().unwrap();
                        if enough(&total) {
                            break;
                        }
                        total.runs += 1;
                        u64::from(total.runs)
                    };
                    let work = Workload { writes: WRITES, class: None };
                    let run = CrashRun { environment: &environment, seed, work, plant: None };
                    let mut seen = KillTally::default();
                    let life = kill_often(&run, &mut SplitMix::new(seed), &mut seen);
                    let verdict = check(&environment, work);
                    judge(&run, &verdict);
                    judge(&run, &settle(&run, life, &verdict));
                    let mut total = total.lock().unwrap();
                    total.writes += WRITES;
                    total.kills += seen.kills;
                    total.open += seen.open;
                    total.inside += seen.inside;
                    total.recovering += seen.recovering;
                    total.undecided += verdict.undecided.len();
                    drop(total);
                    environment = environment.cleared();
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    eprintln!("{total:?} in {:.0} s", begun.elapsed().as_secs_f32());
    total
}

/// How many kills: `SLUICE_KILLS`, or a slice of the nightly number.
fn wanted() -> u32 {
    let named = std::env::var("SLUICE_KILLS").ok().map(|kills| kills.parse().unwrap());
    named.unwrap_or_else(|| u32::try_from(repetitions(400, 20_000)).unwrap())
}

fn demand(total: &KillTally, kills: u32) {
    assert!(total.kills >= kills, "{total:?}");
    assert!(total.inside * 4 >= total.kills, "too few kills found something under way: {total:?}");
    assert!(total.recovering * 20 >= total.kills, "too few kills fell on recovery: {total:?}");
    assert!(total.undecided > 0, "no opaque write was ever in doubt: {total:?}");
}

#[test]
fn kills_lose_nothing_and_repeat_nothing_on_sqlite() {
    let kills = wanted();
    let total = kill_until(kills, vec![CrashEnvironment::sqlite(), CrashEnvironment::sqlite()]);
    demand(&total, kills);
}

#[test]
fn kills_lose_nothing_and_repeat_nothing_on_postgres() {
    let (Some(one), Some(two)) = (CrashEnvironment::postgres(), CrashEnvironment::postgres()) else { return };
    let kills = wanted();
    let total = kill_until(kills, vec![one, two]);
    demand(&total, kills);
}
