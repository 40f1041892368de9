//! Archiving: entries that leave a log were signed, the log says so, and everything that stays can still be proven.

use sluice_core::audit::checkpoint::{CheckpointSigner, origin};
use sluice_core::audit::export::{
    AuditExportFormat, AuditExportHeader, AuditExportStart, write_checkpoint, write_entry,
};
use sluice_core::audit::key::SecretKey;
use sluice_core::audit::tree::TreeFrontier;
use sluice_core::audit::verify::{AuditExport, VerificationReport, VerifierTrust, VerifyError, verify};
use sluice_core::audit::{AuditHash, SealedAuditEntry};
use sluice_core::{Millis, NodeName, UtcMillis};
use sluice_store::{AuditEntryFilter, LogSegment, SegmentBounds, StoreError};
use sluice_testkit::{SeededEntropy, TestStore};

use crate::engines::{everywhere, recorded};

fn log() -> NodeName {
    NodeName::new("gw-1").unwrap()
}

fn signer() -> CheckpointSigner {
    let key = SecretKey::generate(&origin(&log()), &SeededEntropy::new(1)).unwrap();
    CheckpointSigner::new(key, &log()).unwrap()
}

fn fill(world: &TestStore, name: &str, count: usize) {
    for n in 0..count {
        world.clock.advance(Millis::from_mins(11));
        world.admit_held("clerk", &format!("{name} {n}"));
    }
}

fn checkpoint(world: &TestStore, signer: &mut CheckpointSigner) -> u64 {
    let grown = world.wait(world.store.prepare_checkpoint()).unwrap();
    let note = signer.sign(&grown.growth).unwrap();
    world.wait(world.store.keep_checkpoint(grown, note)).unwrap();
    signer.last().tree.size
}

/// A log with checkpoints on both sides of the positions at which the tree keeps inner nodes.
fn signed_log(world: &TestStore, signer: &mut CheckpointSigner, name: &str) -> Vec<u64> {
    let mut sizes = Vec::new();
    for count in [3, 250, 4, 1, 260, 90] {
        fill(world, name, count);
        sizes.push(checkpoint(world, signer));
    }
    fill(world, name, 5);
    sizes
}

fn bounds(before: UtcMillis) -> SegmentBounds {
    SegmentBounds { before, within: None, at_least: 256, at_most: 100_000 }
}

fn next(world: &TestStore, bounds: SegmentBounds) -> Option<LogSegment> {
    world.wait(world.store.next_segment(log(), bounds)).unwrap()
}

fn entries(world: &TestStore, from: u64) -> Vec<SealedAuditEntry> {
    world.wait(world.store.entries(log(), from, 1_000_000)).unwrap()
}

/// What replaces the first entries of a log.
fn start_at(segment: &LogSegment, entries: &[SealedAuditEntry], to: u64) -> AuditExportStart {
    let mut frontier = segment.start.as_ref().map_or_else(TreeFrontier::new, |start| start.frontier.clone());
    let mut head = AuditHash([0; 32]);
    for entry in entries.iter().filter(|entry| (frontier.size()..to).contains(&entry.seq)).cloned().collect::<Vec<_>>()
    {
        frontier.push(entry.hash);
        head = entry.hash;
    }
    AuditExportStart { frontier, head }
}

fn prune(world: &TestStore, segment: &LogSegment) {
    let start = start_at(segment, &entries(world, segment.first()), segment.prunable());
    world.wait(world.store.prune_log(segment.clone(), start)).unwrap();
    while world.wait(world.store.sweep_pruned(log(), 100)).unwrap() {}
}

/// The log as it is in the database, exported and verified.
fn exported(world: &TestStore, signer: &CheckpointSigner) -> Result<VerificationReport, VerifyError> {
    let start = world.wait(world.store.pruned_log(log())).unwrap().map(|pruned| pruned.start);
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    let there = entries(world, start.as_ref().map_or(0, |start| start.frontier.size()));
    there.iter().for_each(|entry| write_entry(&mut lines, &entry.hash, &entry.body).unwrap());
    let signed = world.wait(world.store.checkpoints(log())).unwrap();
    signed.iter().for_each(|signed| write_checkpoint(&mut notes, &signed.note).unwrap());
    let size = there.last().unwrap().seq + 1;
    let about = AuditExportHeader { form: AuditExportFormat::V1, key: signer.key().clone(), log: log(), size, start };
    let trust = VerifierTrust { key: Some(signer.key().clone()), ..VerifierTrust::default() };
    verify(AuditExport { log: &about.to_bytes(), entries: lines.as_slice(), checkpoints: notes.as_slice() }, &trust)
}

#[test]
fn what_is_left_of_a_pruned_log_proves_and_grows_as_before() {
    everywhere(|world| {
        let mut signer = signer();
        let sizes = signed_log(world, &mut signer, "mail");
        let (newest, now) = (*sizes.last().unwrap(), world.now());
        let proof = |seq| world.wait(world.store.prove(log(), seq)).unwrap();
        let growth = |older, newer| world.wait(world.store.consistency(log(), older, newer)).unwrap();
        let proofs: Vec<_> = (0..newest).map(|seq| proof(seq).unwrap()).collect();
        let growths: Vec<_> = sizes.iter().map(|older| growth(*older, newest)).collect();
        for at_most in [300, 100_000] {
            let segment = next(world, SegmentBounds { at_most, ..bounds(now) }).unwrap();
            prune(world, &segment);
            let first = segment.prunable();
            assert!(first > 0 && first.is_multiple_of(256) && first <= segment.end);
            assert_eq!(entries(world, 0).first().unwrap().seq, first, "what was archived is gone, and nothing else");
            for seq in first..newest {
                let (now, before) = (proof(seq).unwrap(), &proofs[usize::try_from(seq).unwrap()]);
                assert_eq!((now.before, &now.body), (before.before, &before.body), "entry {seq}");
                assert_eq!(now.verify(std::slice::from_ref(signer.key())).unwrap().entry.seq, seq);
            }
            assert!(first == 0 || proof(first - 1).is_none(), "what is gone is not proven here");
            for (older, before) in sizes.iter().zip(&growths).filter(|(older, _)| **older >= first) {
                assert_eq!(growth(*older, newest), *before, "from {older}");
            }
            let report = exported(world, &signer).unwrap();
            assert_eq!((report.first, report.first + report.covered), (first, newest));
        }
        assert_eq!(recorded(world, "audit.pruned"), 2);
        // The log continues, and can be searched by a time before its first entry.
        signed_log(world, &mut signer, "later");
        assert_eq!(exported(world, &signer).unwrap().tree.size, entries(world, 0).last().unwrap().seq + 1);
        let filter =
            AuditEntryFilter { since: Some(UtcMillis::default()), limit: 10_000, bound: 100_000, ..Default::default() };
        let found = world.wait(world.store.search_record(filter)).unwrap();
        assert_eq!(found.entries.len(), entries(world, 0).len());
        assert!(found.is_all && found.next.is_none());
        let third = next(world, bounds(world.now())).unwrap();
        assert_eq!(third.first(), newest, "segments follow one another");
    });
}

#[test]
fn only_what_is_old_signed_and_seen_by_witnesses_is_archived() {
    everywhere(|world| {
        let mut signer = signer();
        let begun = world.now();
        let sizes = signed_log(world, &mut signer, "mail");
        let now = world.now();
        assert_eq!(next(world, bounds(begun)), None, "nothing is old enough");
        assert_eq!(next(world, SegmentBounds { at_least: 2_000, ..bounds(now) }), None, "too few");
        assert_eq!(next(world, SegmentBounds { within: Some(255), ..bounds(now) }), None, "a witness has not seen it");
        assert_eq!(next(world, SegmentBounds { within: Some(257), ..bounds(now) }).unwrap().end, sizes[2]);
        let all = next(world, bounds(now)).unwrap();
        assert_eq!(all.end, *sizes.last().unwrap(), "up to the last checkpoint, not to the last entry");
        let old = next(world, bounds(now - Millis::from_hours(20))).unwrap();
        assert!(old.end < all.end && sizes.contains(&old.end), "{old:?}");
    });
}

#[test]
fn a_log_is_not_pruned_of_what_was_not_signed_or_twice_or_out_of_order() {
    everywhere(|world| {
        let mut signer = signer();
        signed_log(world, &mut signer, "mail");
        let before = entries(world, 0);
        let segment = next(world, bounds(world.now())).unwrap();
        let good = start_at(&segment, &before, segment.prunable());
        let refused = |segment: &LogSegment, start: &AuditExportStart| {
            world.wait(world.store.prune_log(segment.clone(), start.clone())).unwrap_err()
        };
        let short = start_at(&segment, &before, segment.prunable() - 256);
        let mut changed = before.clone();
        changed[7].hash = AuditHash([7; 32]);
        let forged = start_at(&segment, &changed, segment.prunable());
        let headless = AuditExportStart { head: AuditHash([1; 32]), ..good.clone() };
        for wrong in [&short, &forged, &headless] {
            assert!(matches!(refused(&segment, wrong), StoreError::Conflict), "{wrong:?}");
        }
        let later = LogSegment { start: Some(good.clone()), ..segment.clone() };
        assert!(matches!(refused(&later, &good), StoreError::Conflict));
        assert!(world.wait(world.store.pruned_log(log())).unwrap().is_none());
        assert!(!world.wait(world.store.sweep_pruned(log(), 100)).unwrap());
        assert_eq!(entries(world, 0), before, "nothing went, and nothing was recorded");
        world.wait(world.store.prune_log(segment.clone(), good.clone())).unwrap();
        assert!(matches!(refused(&segment, &good), StoreError::Conflict));
    });
}
