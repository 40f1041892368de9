//! Faults under load, held against a service that counts: whatever breaks, nothing is lost, doubled or sent after its
//! cancel, and people are asked only about what nobody can know.
//!
//! Each scenario prints a table for each class of effect. A slice runs with every test run, the whole with
//! `cargo xtask nightly faults`. See docs/faults.md.

mod clocks;
mod disks;
mod load;
mod oracle;
mod servers;
mod table;

use std::sync::Arc;
use std::time::Duration;

use load::{AgentLoad, CONFIG, RULES, declare};
use oracle::{EffectOracle, OracleBehavior, next};
use sluice_testkit::depth::repetitions;

use crate::running::{RunningGateway, TestInstallation, pause};

/// A service that answers, mostly, and late, cut or not at all at times.
const UNRELIABLE: OracleBehavior = OracleBehavior { late: 300, hang: 10, cut: 150, refuse: 20, down: 20 };

/// A gateway with everything declared that the service offers.
fn place(oracle: &EffectOracle, postgres: Option<&str>) -> Arc<TestInstallation> {
    let place = TestInstallation::new(CONFIG, RULES, postgres);
    declare(&place, oracle);
    Arc::new(place)
}

#[test]
fn kills_of_the_whole_process() {
    let oracle = EffectOracle::open();
    oracle.behave(OracleBehavior { late: 500, ..OracleBehavior::default() });
    let place = place(&oracle, None);
    let mut running = place.start();
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    let mut random = 7;
    for _ in 0..repetitions(8, 300) {
        load.goes_on(8);
        random = next(random);
        pause(Duration::from_millis(random >> 56));
        running.kill();
        running = place.start();
    }
    oracle.behave(OracleBehavior::default());
    load.goes_on(8);
    load.settle("kills", true).assert_as_promised();
    drop(running);
}

#[test]
fn services_that_are_slow_hang_cut_refuse_and_are_down() {
    let oracle = EffectOracle::open();
    let place = place(&oracle, None);
    let _running: RunningGateway = place.start();
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    for _ in 0..repetitions(2, 60) {
        oracle.behave(UNRELIABLE);
        load.goes_on(60);
        oracle.behave(OracleBehavior { down: 1000, ..OracleBehavior::default() });
        load.goes_on(10);
        oracle.behave(OracleBehavior::default());
        load.goes_on(20);
    }
    load.settle("slow services", false).assert_as_promised();
}
