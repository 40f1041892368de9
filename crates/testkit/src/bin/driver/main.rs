//! One process of a gateway's store, for tests that kill it without warning.
//!
//! Takes a database, a folder that represents the outside world, and a workload; recovers from the state that the last
//! process left, drives the workload to its end, and reports its progress. Ends with code 0 when every write is settled,
//! and with 3 when the store gave an answer that it must not give.
#![expect(clippy::panic, reason = "a driver that cannot go on must end loudly")]

mod kill_points;
mod life;
mod planted_faults;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use sluice_core::capability::EffectClass;
use sluice_core::{Millis, NodeName};
use sluice_store::{Store, StoreError};
use sluice_testkit::crash_state::{AcknowledgedWrites, LastingClock, Workload};
use sluice_testkit::oracle::OracleService;

use crate::kill_points::KillPoints;
use crate::life::DriverLife;
use crate::planted_faults::PlantedFault;

const USAGE: &str = "sluice-driver store=PATH|URL oracle=FOLDER node=NAME seed=N life=N writes=N \
     [class=WORD] [crash=POINT:N] [plant=WORD] [flight=N] [down=SECONDS]";

/// What the parent wants from this process.
#[derive(Debug)]
pub struct DriverParams {
    pub store: String,
    pub folder: PathBuf,
    pub node: NodeName,
    pub seed: u64,
    pub life: u64,
    pub work: Workload,
    pub plant: Option<PlantedFault>,
    /// How many operations run at once.
    pub flight: usize,
    /// How long no node was running before, if that matters to the test.
    pub down: Option<Millis>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: HashMap<&str, &str> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let asked = read(&words);
    let points = KillPoints::dying_at(words.get("crash").copied());
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    if asked.plant == Some(PlantedFault::SyncOff) {
        planted_faults::admit_without_sync(&asked);
        return ExitCode::SUCCESS;
    }
    match begin(asked, points).and_then(|life| runtime.block_on(life.run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            kill_points::say(&format!("failed {error:?}"));
            ExitCode::from(3)
        }
    }
}

fn read(words: &HashMap<&str, &str>) -> DriverParams {
    let word = |name: &str| words.get(name).copied().unwrap_or_else(|| panic!("{name} is missing: {USAGE}"));
    let number = |name: &str| word(name).parse::<u64>().unwrap_or_else(|_| panic!("{name} is not a number: {USAGE}"));
    let class = words
        .get("class")
        .map(|class| EffectClass::from_word(class).unwrap_or_else(|| panic!("`{class}` is not an effect class")));
    let writes = u32::try_from(number("writes")).unwrap_or_else(|_| panic!("too many writes"));
    DriverParams {
        store: word("store").to_owned(),
        folder: PathBuf::from(word("oracle")),
        node: word("node").parse().unwrap_or_else(|error| panic!("{error}")),
        seed: number("seed"),
        life: number("life"),
        work: Workload { writes, class },
        plant: words.get("plant").map(|plant| PlantedFault::named(plant)),
        flight: words.get("flight").map_or(12, |n| n.parse().unwrap_or_else(|_| panic!("flight is not a number"))),
        down: words.get("down").map(|_| Millis::from_secs(number("down"))),
    }
}

/// Opens everything, after the chosen downtime.
fn begin(asked: DriverParams, points: KillPoints) -> Result<DriverLife, StoreError> {
    let clock = LastingClock::resume(&asked.folder);
    if asked.life > 0 {
        clock.advance(asked.down.unwrap_or_else(|| downtime(asked.seed.wrapping_add(asked.life))));
    }
    if asked.plant == Some(PlantedFault::NaiveRescue) {
        planted_faults::rescue_naively(&asked.store);
    }
    points.before("open");
    let node = asked.node.clone();
    let store = if asked.store.starts_with("postgres://") {
        Store::open_server_with_clock(&asked.store, node, Arc::new(clock.clock.clone()))?
    } else {
        Store::open_file(Path::new(&asked.store), node, Arc::new(clock.clock.clone()))?
    };
    points.after("open");
    let (oracle, acks) = (OracleService::open(&asked.folder), AcknowledgedWrites::resume(&asked.folder));
    Ok(DriverLife::new(asked, store, clock, points, oracle, acks))
}

/// Mostly a quick restart; sometimes long enough that writes are announced again, or left to a person.
fn downtime(seed: u64) -> Millis {
    match sluice_testkit::ids::SplitMix::new(seed).below(10) {
        0 => Millis::from_mins(11),
        1 | 2 => Millis::from_secs(45),
        _ => Millis::from_secs(1),
    }
}
