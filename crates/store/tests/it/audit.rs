//! The audit log end to end: appended by use cases, signed, exported, verified, proven.

use futures_util::future::join_all;
use sluice_core::audit::checkpoint::{CheckpointSigner, origin};
use sluice_core::audit::export::{AuditExportFormat, AuditExportHeader, write_checkpoint, write_entry};
use sluice_core::audit::key::SecretKey;
use sluice_core::audit::verify::{AuditExport, VerifierTrust, verify};
use sluice_core::{Millis, NodeName};
use sluice_store::AdmissionOutcome;
use sluice_testkit::SeededEntropy;
use sluice_testkit::test_store::TestStore;

use crate::engines::{everywhere, operator};

fn log() -> NodeName {
    NodeName::new("gw-1").unwrap()
}

fn signer() -> CheckpointSigner {
    let key = SecretKey::generate(&origin(&log()), &SeededEntropy::new(1)).unwrap();
    CheckpointSigner::new(key, &log()).unwrap()
}

fn fill(world: &TestStore, from: usize, count: usize) {
    for n in from..from + count {
        world.clock.advance(Millis::from_mins(11));
        assert!(matches!(world.admit(world.mail("clerk", &format!("mail {n}"))), AdmissionOutcome::Held { .. }));
    }
}

fn checkpoint(world: &TestStore, signer: &mut CheckpointSigner) {
    let grown = world.wait(world.store.prepare_checkpoint()).unwrap();
    let note = signer.sign(&grown.growth).unwrap();
    world.wait(world.store.keep_checkpoint(grown, note)).unwrap();
}

/// The three files of an export.
fn export(world: &TestStore, signer: &CheckpointSigner) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let entries = world.wait(world.store.entries(log(), 0, 1_000_000)).unwrap();
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for entry in &entries {
        write_entry(&mut lines, &entry.hash, &entry.body).unwrap();
    }
    for signed in world.wait(world.store.checkpoints(log())).unwrap() {
        write_checkpoint(&mut notes, &signed.note).unwrap();
    }
    let about = AuditExportHeader {
        form: AuditExportFormat::V1,
        key: signer.key().clone(),
        log: log(),
        size: entries.len() as u64,
        start: None,
    };
    (about.to_bytes(), lines, notes)
}

#[test]
fn a_signed_log_verifies_offline_and_every_covered_entry_can_be_proven() {
    everywhere(|world| {
        let mut signer = signer();
        let mut made = 0;
        // Across the positions at which the tree keeps inner nodes.
        for count in [1, 9, 245, 3, 260] {
            fill(world, made, count);
            made += count;
            checkpoint(world, &mut signer);
        }
        fill(world, made, 4);
        let (about, lines, notes) = export(world, &signer);
        let trust = VerifierTrust { key: Some(signer.key().clone()), ..VerifierTrust::default() };
        let files = AuditExport { log: &about, entries: lines.as_slice(), checkpoints: notes.as_slice() };
        let report = verify(files, &trust).unwrap();
        assert_eq!((report.entries, report.covered, report.uncovered, report.checkpoints), (522, 518, 4, 5));

        for seq in [0, 1, 9, 255, 256, 257, 511, 517] {
            let proof = world.wait(world.store.prove(log(), seq)).unwrap().unwrap();
            let proven = proof.verify(std::slice::from_ref(signer.key())).unwrap();
            assert_eq!(proven.entry.seq, seq);
        }
        assert!(world.wait(world.store.prove(log(), 518)).unwrap().is_none(), "no checkpoint covers it yet");
    });
}

#[test]
fn entries_of_many_who_come_at_once_form_one_chain() {
    everywhere(|world| {
        let mut signer = signer();
        // More than fit into one statement, and not a multiple of it; some of them put the others on a card.
        let mails: Vec<_> = (0..101).map(|n| world.mail(&format!("clerk-{}", n % 7), &format!("mail {n}"))).collect();
        let admitted = world.wait(join_all(mails.into_iter().map(|mail| world.store.admit(mail))));
        assert!(admitted.iter().all(Result::is_ok), "{admitted:?}");
        checkpoint(world, &mut signer);
        let (about, lines, notes) = export(world, &signer);
        let trust = VerifierTrust { key: Some(signer.key().clone()), ..VerifierTrust::default() };
        let files = AuditExport { log: &about, entries: lines.as_slice(), checkpoints: notes.as_slice() };
        let report = verify(files, &trust).unwrap();
        assert!(report.entries >= 101 && report.covered == report.entries, "{report:?}");
        assert_eq!(
            world.wait(world.store.logs()).unwrap().iter().map(|(_, head)| head.size).max(),
            Some(report.entries)
        );
    });
}

#[test]
fn a_signer_that_comes_back_goes_on_from_the_kept_checkpoint() {
    everywhere(|world| {
        let mut first = signer();
        fill(world, 0, 5);
        checkpoint(world, &mut first);
        let kept = world.wait(world.store.last_checkpoint(log())).unwrap().unwrap();
        let key = SecretKey::generate(&origin(&log()), &SeededEntropy::new(1)).unwrap();
        let mut second = CheckpointSigner::resume(key, &log(), &kept.note).unwrap();
        fill(world, 5, 300);
        checkpoint(world, &mut second);
        assert_eq!(second.last().tree.size, 305);
    });
}

#[test]
fn every_log_a_node_writes_is_signed_by_it_that_of_the_stop_lane_too() {
    everywhere(|world| {
        fill(world, 0, 3);
        let lane = world.store.stop_lane();
        world.wait(lane.freeze(sluice_store::FreezeTarget::All, operator(), "because".into())).unwrap();
        let mut covered = 0;
        for log in world.store.own_logs() {
            let key = SecretKey::generate(&origin(&log), &SeededEntropy::new(1)).unwrap();
            let mut signer = CheckpointSigner::new(key, &log).unwrap();
            let grown = world.wait(world.store.prepare_log_checkpoint(log.clone())).unwrap();
            let note = signer.sign(&grown.growth).unwrap();
            world.wait(world.store.keep_checkpoint(grown, note)).unwrap();
            covered += world.wait(world.store.last_checkpoint(log)).unwrap().unwrap().size;
        }
        let written: u64 = world.wait(world.store.logs()).unwrap().iter().map(|(_, head)| head.size).sum();
        assert_eq!((covered, written), (4, 4));
    });
}
