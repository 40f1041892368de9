//! The judgement of a database, for everything that the state file and the database can contain.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::NodeName;
use sluice_core::audit::AuditHash;
use sluice_core::recovery::{
    DatabaseFacts, DatabaseSuspicion, FORM, GatewayState, LoadedStateFile, LogFacts, LogMark, RESERVED,
    RecoveryFindingKind, SignedMark, StartupDecision, StartupFacts, judge,
};

fn node() -> NodeName {
    NodeName::new("gw").unwrap()
}

/// The hash at a position of one history; another history has different ones from its fork on.
fn hash(size: u64, fork: u64) -> AuditHash {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&size.to_be_bytes());
    bytes[8] = u8::from(size > fork);
    AuditHash(bytes)
}

fn state(epoch: u64, size: u64, signed: Option<u64>) -> GatewayState {
    let checkpoint = signed.map(|size| SignedMark { size, note: format!("signed {size}") });
    let mark = LogMark { size, hash: hash(size, u64::MAX), reserved: Some(size + RESERVED), checkpoint };
    GatewayState {
        form: FORM.into(),
        instance: "here".into(),
        node: node(),
        epoch,
        starting: None,
        logs: BTreeMap::from([(node(), mark)]),
        checkpoints_from: 0,
        checkpoints_length: 0,
        suspicion: None,
    }
}

/// A database of this size, as it answers about what the state remembers.
fn database(epoch: u64, size: u64, fork: u64, about: &GatewayState) -> DatabaseFacts {
    let mark = &about.logs[&node()];
    let facts = LogFacts {
        size,
        hash: hash(size, fork),
        at_mark: (mark.size <= size).then(|| hash(mark.size, fork)),
        at_checkpoint: mark.checkpoint.as_ref().filter(|signed| signed.size <= size.min(fork)).map(|s| s.note.clone()),
        damage: None,
        pruned_to: 0,
    };
    DatabaseFacts {
        instance: Some("here".into()),
        epoch: Some(epoch),
        suspicion: None,
        logs: BTreeMap::from([(node(), facts)]),
    }
}

fn around() -> StartupFacts {
    StartupFacts { own_logs: vec![node()], key_is_new: false, missing_checkpoints: Vec::new() }
}

fn kinds(judgement: StartupDecision) -> Vec<RecoveryFindingKind> {
    match judgement {
        StartupDecision::Suspect(findings) => findings.into_iter().map(|finding| finding.kind).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    /// Every state after a crash: the database ahead by no more than was reserved, the start announced or counted.
    #[test]
    fn a_crash_is_never_suspected(epoch in 1_u64..50, size in 1_u64..1_000, ahead in 0..=RESERVED, point in 0_u8..3) {
        let mut remembered = state(epoch, size, Some(size / 2));
        let counted = match point {
            0 => epoch,
            1 => { remembered.starting = Some(epoch + 1); epoch }
            _ => { remembered.starting = Some(epoch + 1); epoch + 1 }
        };
        let there = database(counted, size + ahead, u64::MAX, &remembered);
        prop_assert_eq!(judge(&LoadedStateFile::State(Box::new(remembered)), &there, &around()), StartupDecision::Continue);
    }

    /// Fewer entries, different entries, too many entries, or another count of starts: each is named.
    #[test]
    fn whatever_lacks_or_contradicts_what_is_remembered_is_suspected(
        epoch in 2_u64..50, size in 2_u64..1_000, there in 0_u64..2_000, fork in 0_u64..2_000, off in -1_i64..=1,
    ) {
        let remembered = state(epoch, size, None);
        let counted = epoch.saturating_add_signed(off);
        let facts = database(counted, there, fork, &remembered);
        let found = kinds(judge(&LoadedStateFile::State(Box::new(remembered)), &facts, &around()));
        prop_assert_eq!(found.contains(&RecoveryFindingKind::LogBehind), there < size);
        prop_assert_eq!(found.contains(&RecoveryFindingKind::LogForked), there >= size && size > fork);
        prop_assert_eq!(found.contains(&RecoveryFindingKind::StartsBehind), off < 0);
        prop_assert_eq!(found.contains(&RecoveryFindingKind::StartsAhead), off > 0);
        prop_assert_eq!(found.is_empty(), there >= size && size <= fork && off == 0);
    }
}

#[test]
fn what_is_there_at_a_first_start_decides_whether_it_is_new_adopted_joined_or_suspected() {
    let empty = DatabaseFacts::default();
    assert_eq!(judge(&LoadedStateFile::Nothing, &empty, &around()), StartupDecision::Found);
    let used = database(3, 9, u64::MAX, &state(3, 9, None));
    assert_eq!(
        judge(&LoadedStateFile::Nothing, &DatabaseFacts { instance: None, ..used.clone() }, &around()),
        StartupDecision::Adopt
    );
    assert_eq!(kinds(judge(&LoadedStateFile::Nothing, &used, &around())), [RecoveryFindingKind::StateFileMissing]);
    let other = StartupFacts { own_logs: vec![NodeName::new("gw-2").unwrap()], ..around() };
    let joined = DatabaseFacts { epoch: None, ..used.clone() };
    assert_eq!(judge(&LoadedStateFile::Nothing, &joined, &other), StartupDecision::Join);
    let unreadable = LoadedStateFile::Unreadable("torn".into());
    assert_eq!(kinds(judge(&unreadable, &used, &around())), [RecoveryFindingKind::StateFileUnreadable]);
    // The file of an earlier gateway: an empty database is suspected unless the keys are new as well.
    let before = LoadedStateFile::State(Box::new(state(3, 9, None)));
    assert_eq!(kinds(judge(&before, &empty, &around())), [RecoveryFindingKind::OtherInstance]);
    let fresh = StartupFacts { key_is_new: true, ..around() };
    assert_eq!(judge(&before, &empty, &fresh), StartupDecision::Replace);
    // A file that was written first, and a start that never reached the database.
    let announced = GatewayState { starting: Some(1), logs: BTreeMap::new(), ..state(0, 0, None) };
    assert_eq!(judge(&LoadedStateFile::State(Box::new(announced)), &empty, &around()), StartupDecision::Found);
}

#[test]
fn a_suspicion_and_a_missing_checkpoint_outlast_a_database_that_looks_well() {
    let mut remembered = state(3, 9, None);
    let there = database(3, 9, u64::MAX, &remembered);
    let missing = StartupFacts { missing_checkpoints: vec![(node(), 7)], ..around() };
    let file = LoadedStateFile::State(Box::new(remembered.clone()));
    assert_eq!(kinds(judge(&file, &there, &missing)), [RecoveryFindingKind::CheckpointMissing]);
    let findings = match judge(&file, &database(2, 9, u64::MAX, &remembered), &around()) {
        StartupDecision::Suspect(findings) => findings,
        other => panic!("{other:?}"),
    };
    let suspicion = Some(DatabaseSuspicion { at: sluice_core::UtcMillis::default(), findings, investigating: true });
    remembered.suspicion = suspicion.clone();
    let file = LoadedStateFile::State(Box::new(remembered.clone()));
    assert_eq!(kinds(judge(&file, &there, &around())), [RecoveryFindingKind::StartsBehind], "only a person ends it");
    // The other way round: the database holds the suspicion, and the file has changed.
    remembered.suspicion = None;
    let there = DatabaseFacts { suspicion, ..there };
    assert_eq!(
        kinds(judge(&LoadedStateFile::State(Box::new(remembered)), &there, &around())),
        [RecoveryFindingKind::StartsBehind]
    );
}
