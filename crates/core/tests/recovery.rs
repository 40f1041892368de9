//! The judgement of a database, on all that can be remembered and all that can be there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::NodeName;
use sluice_core::audit::Hash;
use sluice_core::recovery::{
    Circumstances, DatabaseFacts, FORM, FindingKind, GatewayState, Judgement, LogFacts, LogMark, RESERVED, Remembered,
    SignedMark, Suspicion, judge,
};

fn node() -> NodeName {
    NodeName::new("gw").unwrap()
}

/// The hash at a position of one history; another history has others from its fork on.
fn hash(size: u64, fork: u64) -> Hash {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&size.to_be_bytes());
    bytes[8] = u8::from(size > fork);
    Hash(bytes)
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
    };
    DatabaseFacts {
        instance: Some("here".into()),
        epoch: Some(epoch),
        suspicion: None,
        logs: BTreeMap::from([(node(), facts)]),
    }
}

fn around() -> Circumstances {
    Circumstances { own_logs: vec![node()], key_is_new: false, missing_checkpoints: Vec::new() }
}

fn kinds(judgement: Judgement) -> Vec<FindingKind> {
    match judgement {
        Judgement::Suspect(findings) => findings.into_iter().map(|finding| finding.kind).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    /// Whatever a crash leaves: the database ahead by no more than was reserved, the start announced or counted.
    #[test]
    fn a_crash_is_never_suspected(epoch in 1_u64..50, size in 1_u64..1_000, ahead in 0..=RESERVED, point in 0_u8..3) {
        let mut remembered = state(epoch, size, Some(size / 2));
        let counted = match point {
            0 => epoch,
            1 => { remembered.starting = Some(epoch + 1); epoch }
            _ => { remembered.starting = Some(epoch + 1); epoch + 1 }
        };
        let there = database(counted, size + ahead, u64::MAX, &remembered);
        prop_assert_eq!(judge(&Remembered::State(Box::new(remembered)), &there, &around()), Judgement::Continue);
    }

    /// Fewer entries, other entries, too many entries, or another count of starts: each is named.
    #[test]
    fn whatever_lacks_or_contradicts_what_is_remembered_is_suspected(
        epoch in 2_u64..50, size in 2_u64..1_000, there in 0_u64..2_000, fork in 0_u64..2_000, off in -1_i64..=1,
    ) {
        let remembered = state(epoch, size, None);
        let counted = epoch.saturating_add_signed(off);
        let facts = database(counted, there, fork, &remembered);
        let found = kinds(judge(&Remembered::State(Box::new(remembered)), &facts, &around()));
        prop_assert_eq!(found.contains(&FindingKind::LogBehind), there < size);
        prop_assert_eq!(found.contains(&FindingKind::LogForked), there >= size && size > fork);
        prop_assert_eq!(found.contains(&FindingKind::StartsBehind), off < 0);
        prop_assert_eq!(found.contains(&FindingKind::StartsAhead), off > 0);
        prop_assert_eq!(found.is_empty(), there >= size && size <= fork && off == 0);
    }
}

#[test]
fn what_is_there_at_a_first_start_decides_whether_it_is_new_adopted_joined_or_suspected() {
    let empty = DatabaseFacts::default();
    assert_eq!(judge(&Remembered::Nothing, &empty, &around()), Judgement::Found);
    let used = database(3, 9, u64::MAX, &state(3, 9, None));
    assert_eq!(
        judge(&Remembered::Nothing, &DatabaseFacts { instance: None, ..used.clone() }, &around()),
        Judgement::Adopt
    );
    assert_eq!(kinds(judge(&Remembered::Nothing, &used, &around())), [FindingKind::StateFileMissing]);
    let other = Circumstances { own_logs: vec![NodeName::new("gw-2").unwrap()], ..around() };
    let joined = DatabaseFacts { epoch: None, ..used.clone() };
    assert_eq!(judge(&Remembered::Nothing, &joined, &other), Judgement::Join);
    let unreadable = Remembered::Unreadable("torn".into());
    assert_eq!(kinds(judge(&unreadable, &used, &around())), [FindingKind::StateFileUnreadable]);
    // The file of a gateway that was here before: an empty database is suspected unless the keys are new as well.
    let before = Remembered::State(Box::new(state(3, 9, None)));
    assert_eq!(kinds(judge(&before, &empty, &around())), [FindingKind::OtherInstance]);
    let fresh = Circumstances { key_is_new: true, ..around() };
    assert_eq!(judge(&before, &empty, &fresh), Judgement::Replace);
    // A file that was written first, and a database that never heard of it.
    let announced = GatewayState { starting: Some(1), logs: BTreeMap::new(), ..state(0, 0, None) };
    assert_eq!(judge(&Remembered::State(Box::new(announced)), &empty, &around()), Judgement::Found);
}

#[test]
fn a_suspicion_and_a_missing_checkpoint_outlast_a_database_that_looks_well() {
    let mut remembered = state(3, 9, None);
    let there = database(3, 9, u64::MAX, &remembered);
    let missing = Circumstances { missing_checkpoints: vec![(node(), 7)], ..around() };
    let file = Remembered::State(Box::new(remembered.clone()));
    assert_eq!(kinds(judge(&file, &there, &missing)), [FindingKind::CheckpointMissing]);
    let findings = match judge(&file, &database(2, 9, u64::MAX, &remembered), &around()) {
        Judgement::Suspect(findings) => findings,
        other => panic!("{other:?}"),
    };
    let suspicion = Some(Suspicion { at: sluice_core::Timestamp::default(), findings, investigating: true });
    remembered.suspicion = suspicion.clone();
    let file = Remembered::State(Box::new(remembered.clone()));
    assert_eq!(kinds(judge(&file, &there, &around())), [FindingKind::StartsBehind], "only a person ends it");
    // The other way round: the database says so, and the file is another one by now.
    remembered.suspicion = None;
    let there = DatabaseFacts { suspicion, ..there };
    assert_eq!(kinds(judge(&Remembered::State(Box::new(remembered)), &there, &around())), [FindingKind::StartsBehind]);
}
