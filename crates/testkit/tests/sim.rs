//! Thousands of installations in which everything goes wrong, and what must be true in all of them.
#![expect(clippy::panic, reason = "a seed that fails must say so")]

use sluice_testkit::sim::{Plan, run};

const TURNS: u32 = 300;

#[test]
fn one_seed() {
    #[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    match run(&Plan { seed, turns: TURNS, bug: None }) {
        Ok(report) => println!("{report:#?}"),
        Err(failure) => panic!("{failure}"),
    }
}
