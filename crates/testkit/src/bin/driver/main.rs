//! One life of a gateway's store, for tests that end it without warning.
//!
//! Takes a database, a folder that stands for the world outside, and a workload; comes back from
//! whatever the last life left, drives the workload to its end, and says how far it has come. Ends
//! with code 0 when every write is settled, and with 3 when the store said something it must not.
#![expect(clippy::panic, reason = "a driver that cannot go on must end loudly")]

mod life;
mod plants;
mod points;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use sluice_core::capability::EffectClass;
use sluice_core::{NodeName, Span};
use sluice_store::{Store, StoreError};
use sluice_testkit::lives::{Acks, LastingClock, Workload};
use sluice_testkit::oracle::Oracle;

use crate::life::Life;
use crate::plants::Plant;
use crate::points::Points;

const USAGE: &str = "sluice-driver store=PATH|URL oracle=FOLDER node=NAME seed=N life=N writes=N \
     [class=WORD] [crash=POINT:N] [plant=WORD] [flight=N] [down=SECONDS]";

/// What the parent wants of this life.
#[derive(Debug)]
pub struct Asked {
    pub store: String,
    pub folder: PathBuf,
    pub node: NodeName,
    pub seed: u64,
    pub life: u64,
    pub work: Workload,
    pub plant: Option<Plant>,
    /// How many operations are under way at once.
    pub flight: usize,
    /// How long nobody was here, if that matters to the test.
    pub down: Option<Span>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: HashMap<&str, &str> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let asked = read(&words);
    let points = Points::dying_at(words.get("crash").copied());
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    if asked.plant == Some(Plant::SyncOff) {
        plants::admit_without_sync(&asked);
        return ExitCode::SUCCESS;
    }
    match begin(asked, points).and_then(|life| runtime.block_on(life.run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            points::say(&format!("failed {error:?}"));
            ExitCode::from(3)
        }
    }
}

fn read(words: &HashMap<&str, &str>) -> Asked {
    let word = |name: &str| words.get(name).copied().unwrap_or_else(|| panic!("{name} is missing: {USAGE}"));
    let number = |name: &str| word(name).parse::<u64>().unwrap_or_else(|_| panic!("{name} is no number: {USAGE}"));
    let class = words
        .get("class")
        .map(|class| EffectClass::from_word(class).unwrap_or_else(|| panic!("`{class}` is no effect class")));
    let writes = u32::try_from(number("writes")).unwrap_or_else(|_| panic!("too many writes"));
    Asked {
        store: word("store").to_owned(),
        folder: PathBuf::from(word("oracle")),
        node: word("node").parse().unwrap_or_else(|error| panic!("{error}")),
        seed: number("seed"),
        life: number("life"),
        work: Workload { writes, class },
        plant: words.get("plant").map(|plant| Plant::named(plant)),
        flight: words.get("flight").map_or(12, |n| n.parse().unwrap_or_else(|_| panic!("flight is no number"))),
        down: words.get("down").map(|_| Span::from_secs(number("down"))),
    }
}

/// Opens everything, after the downtime there was.
fn begin(asked: Asked, points: Points) -> Result<Life, StoreError> {
    let clock = LastingClock::resume(&asked.folder);
    if asked.life > 0 {
        clock.advance(asked.down.unwrap_or_else(|| downtime(asked.seed.wrapping_add(asked.life))));
    }
    if asked.plant == Some(Plant::NaiveRescue) {
        plants::rescue_naively(&asked.store);
    }
    points.before("open");
    let node = asked.node.clone();
    let store = if asked.store.starts_with("postgres://") {
        Store::open_server_with_clock(&asked.store, node, Arc::new(clock.clock.clone()))?
    } else {
        Store::open_file(Path::new(&asked.store), node, Arc::new(clock.clock.clone()))?
    };
    points.after("open");
    let (oracle, acks) = (Oracle::open(&asked.folder), Acks::resume(&asked.folder));
    Ok(Life::new(asked, store, clock, points, oracle, acks))
}

/// Mostly a quick restart; sometimes late enough to be announced again, or to be left to a person.
fn downtime(seed: u64) -> Span {
    match sluice_testkit::ids::SplitMix::new(seed).below(10) {
        0 => Span::from_mins(11),
        1 | 2 => Span::from_secs(45),
        _ => Span::from_secs(1),
    }
}
