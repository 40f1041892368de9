//! Thousands of installations in which everything goes wrong, and what must be true in all of them.
#![expect(clippy::panic, reason = "a seed that fails must say so")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_testkit::sim::{Failure, Plan, Report, run};

const SEEDS: u64 = 200;
const TURNS: u32 = 300;

/// Runs seeds on every core; gives what each was, in order.
fn sweep(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Vec<Result<Report, Failure>> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return done;
            }
            done.push((seed, run(&plan(seed))));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| panic!("a seed panicked"))).collect()
    });
    let all: BTreeMap<u64, _> = all;
    all.into_values().collect()
}

#[test]
fn one_seed() {
    #[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    match run(&Plan { seed, turns: TURNS, bug: None }) {
        Ok(report) => println!("{report:#?}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn survey() {
    let results = sweep(0..SEEDS, |seed| Plan { seed, turns: TURNS, bug: None });
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut taken = BTreeMap::new();
    let (mut holds, mut effects) = (0, 0);
    for result in &results {
        match result {
            Ok(report) => {
                holds += report.holds;
                effects += report.effects;
                for (edge, count) in report.taken.iter().chain(&report.asked) {
                    *taken.entry(*edge).or_insert(0) += count;
                }
            }
            Err(failure) => {
                let what: String = failure.what.chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
                let key: Vec<&str> = what.split(' ').filter(|w| !w.starts_with("buf_") && !w.starts_with("appr_")).collect();
                kinds.entry(key.join(" ")).or_default().push(failure.plan.seed);
            }
        }
    }
    println!("{holds} holds, {effects} effects");
    for (edge, count) in taken { println!("{count:>6} {} -{}-> {}", edge.from, edge.by, edge.to); }
    for (kind, seeds) in kinds { println!("{:>5} {kind}: {:?}", seeds.len(), &seeds[..seeds.len().min(5)]); }
}
