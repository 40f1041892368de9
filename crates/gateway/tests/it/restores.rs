//! A thousand random restores and cuts: of the database, of the record alone, of the state file and of the checkpoints
//! file, in all combinations. Whatever knows more than the database names it, and nothing of it can leave.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::audit::kept::checkpoints_in;
use sluice_core::{Entropy as _, Millis, NodeName};
use sluice_gateway::loops::housekeeping;
use sluice_gateway::recovery::{self, start};
use sluice_store::{AlertFilter, FreezeTarget, MessageSeverity, Store};
use sluice_testkit::depth::repetitions;
use sluice_testkit::ids::SeededEntropy;

use super::recovery::{copy, cut_crudely, cut_history, held, plan};
use super::test_gateway::TestGateway;

/// Lives of the gateway; after each, everything is copied.
const LIVES: u64 = 10;
/// Cases: a slice in every run, the whole count in a nightly one.
const CASES: [u64; 2] = [1_000, 20_000];

/// Small random numbers.
struct RestoreTestRandom(SeededEntropy);

impl RestoreTestRandom {
    fn below(&self, n: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_be_bytes(bytes) % n
    }
}

/// What is done to the record alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordCut {
    None,
    History(u64),
    Crude(u64),
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoredFileState {
    Of(u64),
    Missing,
    Garbage,
}

/// A life in which writes wait, leave and are cancelled, copied at the end of each start.
async fn a_life() -> TestGateway {
    let mut house = TestGateway::new(plan()).await;
    for life in 0..LIVES {
        let (leaves, stays, cancelled) = (format!("l{life}"), format!("s{life}"), format!("c{life}"));
        held(&house, &leaves).await;
        let cancelled = held(&house, &cancelled).await;
        house.gw.store.cancel(cancelled, super::test_gateway::ana()).await.unwrap();
        house.pass(Millis::from_secs(31));
        assert!(house.let_go().await >= 1);
        held(&house, &stays).await;
        if life % 2 == 0 {
            housekeeping::checkpoint(&house.gw, 1).await.unwrap();
        }
        // As the loop does before an orderly end.
        recovery::step(&house.gw).await;
        house = house
            .restart_after(Millis::from_secs(1), |root| {
                copy(&root.join("data"), &root.join(format!("copies/{life}/data")));
                copy(&root.join("data.state"), &root.join(format!("copies/{life}/state")));
            })
            .await;
        assert!(!house.gw.recovery.is_suspected(), "an orderly life is not suspected");
    }
    house
}

fn size_of(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("state/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    state["logs"]["test"]["size"].as_u64().unwrap()
}

/// The size of the last checkpoint in a file of them.
fn last_checkpoint(file: &Path) -> u64 {
    let notes = checkpoints_in(&fs::read_to_string(file).unwrap_or_default());
    notes.last().map_or(0, |note| Checkpoint::parse(note.text_unverified()).unwrap().tree.size)
}

#[tokio::test]
async fn a_thousand_restores_and_cuts_send_nothing_and_are_all_named() {
    let house = a_life().await;
    let copies = house.folder.path().join("copies");
    let of = |life: u64| copies.join(life.to_string());
    let dice = RestoreTestRandom(SeededEntropy::new(18));
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let (mut suspected, mut whole, mut all_back) = (0, 0, 0);
    for case in 0..repetitions(CASES[0], CASES[1]) {
        let db = if dice.below(3) == 0 { LIVES - 1 } else { dice.below(LIVES) };
        let size = size_of(&of(db));
        let cut = match dice.below(4) {
            0 => RecordCut::History(1 + dice.below(size - 1)),
            1 => RecordCut::Crude(1 + dice.below(size - 1)),
            _ => RecordCut::None,
        };
        let state = match dice.below(8) {
            0 => RestoredFileState::Missing,
            1 => RestoredFileState::Garbage,
            2 | 3 => RestoredFileState::Of(dice.below(LIVES)),
            4 => RestoredFileState::Of(db),
            _ => RestoredFileState::Of(LIVES - 1),
        };
        let checkpoints = match dice.below(3) {
            0 => RestoredFileState::Missing,
            1 => RestoredFileState::Of(dice.below(LIVES)),
            _ => RestoredFileState::Of(LIVES - 1),
        };
        let what =
            format!("case {case}: database of life {db}, record {cut:?}, state {state:?}, checkpoints {checkpoints:?}");

        let _before = fs::remove_dir_all(root.join("data"));
        let _before = fs::remove_dir_all(root.join("data.state"));
        copy(&of(db).join("data"), &root.join("data"));
        fs::create_dir_all(root.join("data.state")).unwrap();
        match state {
            RestoredFileState::Of(life) => {
                fs::copy(of(life).join("state/state.json"), root.join("data.state/state.json")).unwrap();
            }
            RestoredFileState::Garbage => fs::write(root.join("data.state/state.json"), "{\"form\":").unwrap(),
            RestoredFileState::Missing => {}
        }
        if let RestoredFileState::Of(life) = checkpoints {
            fs::copy(of(life).join("state/checkpoints"), root.join("data.state/checkpoints")).unwrap();
        }
        match cut {
            RecordCut::None => {}
            RecordCut::History(at) => cut_history(&root.join("data/sluice.db"), at),
            RecordCut::Crude(at) => cut_crudely(&root.join("data/sluice.db"), at),
        }
        let newest = last_checkpoint(&root.join("data.state/checkpoints"));

        let mut config = house.config();
        config.data = root.join("data");
        config.state_file = root.join("data.state/state.json");
        config.checkpoints_file = root.join("data.state/checkpoints");
        let node = NodeName::new("test").unwrap();
        let store = Store::open_file(&root.join("data/sluice.db"), node.clone(), Arc::clone(&house.world().clock));
        let store = Arc::new(store.unwrap());
        let signed = store.checkpoints(node).await.unwrap().last().map_or(0, |last| last.size);
        let recovery = start::open(&config, &store, house.world(), false).await.unwrap();

        // Nothing on this machine knows more than a database, a state file and a checkpoints file of one moment.
        let same_moment = state == RestoredFileState::Of(db) && cut == RecordCut::None && newest <= signed;
        assert_eq!(recovery.is_suspected(), !same_moment, "{what}");
        if same_moment {
            whole += u32::from(db == LIVES - 1);
            all_back += u32::from(db < LIVES - 1);
            continue;
        }
        suspected += 1;
        let freezes = store.freezes().await.unwrap();
        assert!(freezes.iter().any(|freeze| freeze.scope == FreezeTarget::All), "{what}");
        let now = house.gw.now() + Millis::from_hours(48);
        assert!(store.due_holds(now, 99).await.unwrap().is_empty(), "{what}");
        assert!(store.doubtful_holds(now, 99).await.unwrap().is_empty(), "{what}");
        let holds = store.holds(None, 500).await.unwrap();
        let waits =
            |word: &str| ["awaiting_approval", "held", "ready", "preparing", "armed", "in_doubt"].contains(&word);
        assert!(holds.iter().all(|hold| !waits(hold.state.word())), "{what}");
        let filter = AlertFilter { severity_at_least: MessageSeverity::Critical, ..AlertFilter::default() };
        let alerts = store.alerts(filter, None, 9).await.unwrap();
        let alert = alerts.iter().find(|alert| alert.message.topic == "recovery.suspected");
        let findings = alert.unwrap_or_else(|| panic!("{what}")).message.body["findings"].as_array().unwrap().len();
        assert!(findings > 0, "{what}");
    }
    println!("{suspected} suspected, {whole} were whole, {all_back} were put back altogether");
    assert!(suspected > 700 && whole > 10 && all_back > 5);
}
