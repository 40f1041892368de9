//! Exports that were tampered with: every edit before the last checkpoint is found and named.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop where it fails")]

use std::num::NonZero;
use std::ops::Range;

use sluice_core::audit::checkpoint::{Checkpoint, CheckpointSigner, LogGrowth, origin};
use sluice_core::audit::export::{self, AuditExportFormat, AuditExportHeader, AuditExportStart};
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::prove::AuditEntryProof;
use sluice_core::audit::tree::{self, KeptHashSource, SparseTree, TreeFrontier};
use sluice_core::audit::verify::{
    AuditExport, AuditFault, AuditFaultKind, VerificationReport, VerifierTrust, VerifyError, verify,
};
use sluice_core::audit::{AuditFact, AuditHash, ChainHead, SealedAuditEntry, commit, leaf};
use sluice_core::{Actor, Digest, Entropy, HoldId, NodeName, UtcMillis};

/// A generator with the same numbers in every run.
struct AuditTestRandom(u64);

impl AuditTestRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.end - range.start)
    }
}

struct FixedEntropy(u8);

impl Entropy for FixedEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(self.0);
    }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn secret(log: &NodeName, seed: u8) -> SecretKey {
    SecretKey::generate(&origin(log), &FixedEntropy(seed)).unwrap()
}

/// Facts as varied as real ones: short and long, with and without ids, digests and commitments, any script.
fn fact(log: &NodeName, salt: &str, seq: u64) -> AuditFact {
    let kinds = ["call.asked", "hold.held", "approval.granted", "hold.done", "policy.changed"];
    let text = format!("{salt}{seq}");
    let mut fact = AuditFact::new(kinds[seq as usize % kinds.len()], Actor::Node(log.clone())).with("note", &text);
    if seq.is_multiple_of(3) {
        fact.hold = Some(HoldId::from_bits(u128::from(seq)));
        fact.commitments.insert("arguments".into(), commit(&[7; 32], text.as_bytes()));
    }
    if seq % 4 == 1 {
        fact.digest = Some(Digest::of(text.as_bytes()));
        fact = fact.with("ünïcode", "żółć \u{1f512} \"quoted\" \\ \n");
    }
    if seq % 50 == 7 {
        fact = fact.with("long", "x".repeat(seq as usize * 3));
    }
    fact
}

/// A log with everything a store would keep.
struct TestAuditLog {
    log: NodeName,
    key: VerifierKey,
    entries: Vec<SealedAuditEntry>,
    head: ChainHead,
    frontier: TreeFrontier,
    kept: Vec<Vec<AuditHash>>,
    notes: Vec<SignedNote>,
}

impl KeptHashSource for &TestAuditLog {
    fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
        self.kept.get(usize::from(level / 8))?.get(range.start as usize..range.end as usize).map(<[AuditHash]>::to_vec)
    }
}

impl TestAuditLog {
    /// `size` entries and a checkpoint at every multiple of `every`.
    fn new(log: &str, salt: &str, seed: u8, size: u64, every: u64) -> Self {
        let log = name(log);
        let mut signer = CheckpointSigner::new(secret(&log, seed), &log).unwrap();
        let mut world = Self {
            key: signer.key().clone(),
            entries: Vec::new(),
            head: ChainHead::genesis(&log),
            frontier: TreeFrontier::new(),
            kept: vec![Vec::new(); 8],
            notes: Vec::new(),
            log,
        };
        for seq in 0..size {
            let at = UtcMillis::from_millis(1_730_000_000_000 + seq as i64);
            let sealed = world.head.seal(&world.log, at, &fact(&world.log, salt, seq));
            let kept = &mut world.kept;
            world.frontier.append(sealed.hash, |level, _, hash| kept[usize::from(level / 8)].push(hash));
            world.entries.push(sealed);
            if (seq + 1).is_multiple_of(every) {
                let signed = signer.last().tree.size;
                let growth = LogGrowth::prove(&SparseTree(&world), signed, world.head, world.frontier.root()).unwrap();
                world.notes.push(signer.sign(&growth).unwrap());
            }
        }
        world
    }

    fn files(&self) -> TestExportFiles {
        let log = AuditExportHeader {
            form: AuditExportFormat::V1,
            key: self.key.clone(),
            log: self.log.clone(),
            size: self.head.size,
            start: None,
        };
        let lines = self.entries.iter().map(|sealed| line(&sealed.hash, &sealed.body)).collect();
        TestExportFiles { log: log.to_bytes(), lines, notes: self.notes.iter().map(SignedNote::to_string).collect() }
    }
}

fn line(hash: &AuditHash, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    export::write_entry(&mut bytes, hash, body).unwrap();
    bytes
}

/// An export, easy to tamper with.
#[derive(Clone)]
struct TestExportFiles {
    log: Vec<u8>,
    /// The lines with their line feeds.
    lines: Vec<Vec<u8>>,
    notes: Vec<String>,
}

/// Where the body of a line starts.
const BODY: usize = 9 + 64 + 10;

impl TestExportFiles {
    fn verify(&self, trust: &VerifierTrust) -> Result<VerificationReport, VerifyError> {
        let mut checkpoints = Vec::new();
        for note in &self.notes {
            checkpoints.extend_from_slice(note.as_bytes());
            checkpoints.push(b'\n');
        }
        let entries = self.lines.concat();
        verify(AuditExport { log: &self.log, entries: entries.as_slice(), checkpoints: checkpoints.as_slice() }, trust)
    }

    fn fault(&self, trust: &VerifierTrust) -> AuditFault {
        match self.verify(trust) {
            Err(VerifyError::Fault(fault)) => *fault,
            other => panic!("not found out: {other:?}"),
        }
    }

    fn body(&self, at: usize) -> &[u8] {
        &self.lines[at][BODY..self.lines[at].len() - 2]
    }

    fn hash(&self, at: usize) -> AuditHash {
        std::str::from_utf8(&self.lines[at][9..73]).unwrap().parse().unwrap()
    }

    /// Recomputes every hash from here on, as an attacker would who can write the whole file.
    fn rechain(&mut self, from: usize, until: usize, log: &NodeName) {
        let mut before = if from == 0 { ChainHead::genesis(log).hash } else { self.hash(from - 1) };
        for at in from..until {
            let body = self.body(at).to_vec();
            before = leaf(&before, &body);
            self.lines[at] = line(&before, &body);
        }
    }

    /// Changes what an entry says, keeping its form.
    fn reword(&mut self, at: usize) {
        let body = String::from_utf8(self.body(at).to_vec()).unwrap();
        let reworded = body.replacen("\"note\":\"", "\"note\":\"forged ", 1);
        assert_ne!(body, reworded);
        self.lines[at] = line(&self.hash(at), reworded.as_bytes());
    }
}

const SIZE: usize = 2_050;
const EVERY: usize = 100;
/// Entries that a checkpoint covers.
const COVERED: usize = 2_000;

fn world() -> TestAuditLog {
    TestAuditLog::new("gw-1", "", 1, SIZE as u64, EVERY as u64)
}

fn trusting(world: &TestAuditLog, threads: usize) -> VerifierTrust {
    VerifierTrust { key: Some(world.key.clone()), anchors: Vec::new(), threads: NonZero::new(threads) }
}

/// Flips a byte so that the line stays one line.
fn flip(byte: &mut u8, dice: &mut AuditTestRandom) {
    let old = *byte;
    while *byte == old || *byte == b'\n' {
        *byte = dice.next() as u8;
    }
}

/// The expected finding of an edit: the kinds the evidence allows, and where.
struct ExpectedFault {
    kinds: &'static [AuditFaultKind],
    seq: usize,
    last: usize,
}

fn exactly(kinds: &'static [AuditFaultKind], seq: usize) -> ExpectedFault {
    ExpectedFault { kinds, seq, last: seq }
}

struct TestAuditLogs {
    world: TestAuditLog,
    /// A log of another node.
    other: TestAuditLog,
    /// Another history of the same node.
    twin: TestAuditLog,
}

/// One random edit that touches the entries before the last checkpoint.
fn tamper(
    files: &mut TestExportFiles,
    edit: usize,
    dice: &mut AuditTestRandom,
    worlds: &TestAuditLogs,
) -> ExpectedFault {
    use AuditFaultKind::*;
    let TestAuditLogs { world, other, twin } = worlds;
    let at = dice.below(COVERED);
    match edit {
        0 => {
            let end = files.lines[at].len() - 2;
            let place = dice.within(BODY..end);
            flip(&mut files.lines[at][place], dice);
            exactly(&[Changed, Malformed], at)
        }
        1 => {
            let place = dice.within(9..73);
            flip(&mut files.lines[at][place], dice);
            exactly(&[Changed, Malformed], at)
        }
        2 => {
            // Another digit, so that it is a hash and the wrong one.
            let place = dice.within(9..73);
            let digit = &mut files.lines[at][place];
            *digit = if *digit == b'0' { b'1' } else { b'0' };
            exactly(&[Changed], at)
        }
        3 => {
            let count = 1 + dice.below(3);
            files.lines.drain(at..at + count);
            exactly(&[Missing], at)
        }
        4 => {
            let copy = files.lines[at].clone();
            let to = dice.below(COVERED);
            files.lines.insert(to, copy);
            // A line copied to its own place pushes itself down: the second is the copy.
            exactly(&[Inserted], if to == at { at + 1 } else { to })
        }
        5 => {
            let to = (at + 1 + dice.below(COVERED - 1)) % COVERED;
            files.lines.swap(at, to);
            exactly(&[Reordered], at.min(to))
        }
        6 => {
            // A forged line with the right place and a hash that does not hold, or one that does.
            let body =
                String::from_utf8(files.body(at).to_vec()).unwrap().replacen("\"note\":\"", "\"note\":\"new ", 1);
            let before = if at == 0 { ChainHead::genesis(&world.log).hash } else { files.hash(at - 1) };
            let holds = dice.below(2) == 0;
            let hash = if holds { leaf(&before, body.as_bytes()) } else { AuditHash([dice.next() as u8; 32]) };
            files.lines.insert(at, line(&hash, body.as_bytes()));
            exactly(&[Inserted], at)
        }
        7 => {
            files.lines.truncate(at);
            ExpectedFault { kinds: &[Truncated], seq: at, last: (at / EVERY + 1) * EVERY - 1 }
        }
        8 => {
            // The last remaining line is cut in two.
            files.lines.truncate(at + 1);
            let end = dice.within(1..files.lines[at].len());
            files.lines[at].truncate(end);
            exactly(&[Truncated], at)
        }
        9 => {
            files.reword(at);
            files.rechain(at, SIZE, &world.log);
            let floor = at / EVERY * EVERY;
            ExpectedFault { kinds: &[Forked], seq: floor, last: floor + EVERY - 1 }
        }
        10 => {
            // A few entries are rewritten and chained; the old ones follow unchanged.
            let floor = at / EVERY * EVERY;
            let until = (at + 1 + dice.below(EVERY)).min(floor + EVERY - 1);
            if until <= at {
                files.reword(at);
                return exactly(&[Changed], at);
            }
            files.reword(at);
            files.rechain(at, until, &world.log);
            ExpectedFault { kinds: &[Forked], seq: floor, last: until - 1 }
        }
        11 | 12 => {
            // At the very beginning, another history is valid until its first checkpoint.
            let (at, from) = (at.max(1), if edit == 11 { other } else { twin });
            let end = (at + 1 + dice.below(300)).min(COVERED);
            let segment = from.files().lines[at..end].to_vec();
            files.lines.splice(at..end, segment);
            exactly(if edit == 11 { &[Malformed] } else { &[Changed] }, at)
        }
        13 => {
            // All checkpoints signed again, with another key.
            let forged = secret(&world.log, 99);
            let mut signer = CheckpointSigner::new(forged, &world.log).unwrap();
            for note in &mut files.notes {
                let size =
                    Checkpoint::parse(SignedNote::parse(note.as_bytes()).unwrap().text_unverified()).unwrap().tree.size;
                let head = ChainHead { size, hash: world.entries[size as usize - 1].hash };
                let mut frontier = TreeFrontier::new();
                world.entries[..size as usize].iter().for_each(|sealed| frontier.push(sealed.hash));
                let growth =
                    LogGrowth::prove(&SparseTree(world), signer.last().tree.size, head, frontier.root()).unwrap();
                *note = signer.sign(&growth).unwrap().to_string();
            }
            ExpectedFault { kinds: &[Signature], seq: 0, last: EVERY - 1 }
        }
        _ => unreachable!(),
    }
}

#[test]
fn a_thousand_random_edits_are_all_found_and_named() {
    let worlds = TestAuditLogs {
        world: world(),
        other: TestAuditLog::new("gw-2", "", 2, SIZE as u64, 2_000),
        twin: TestAuditLog::new("gw-1", "else ", 1, SIZE as u64, 2_000),
    };
    let world = &worlds.world;
    let clean = world.files();
    let mut dice = AuditTestRandom(42);
    for round in 0..1_000 {
        let mut files = clean.clone();
        // Signing twenty checkpoints again is slow, and always the same.
        let edit = if round < 5 { 13 } else { round % 13 };
        let expected = tamper(&mut files, edit, &mut dice, &worlds);
        let fault = files.fault(&trusting(world, 1 + round % 3));
        let what = format!("round {round}, edit {edit}: {fault}");
        assert!(expected.kinds.contains(&fault.kind), "{what}; expected {:?}", expected.kinds);
        assert_eq!((fault.seq, fault.last), (expected.seq as u64, expected.last as u64), "{what}");
        assert!(fault.covered <= fault.seq, "{what}");
    }
}

#[test]
fn an_honest_export_verifies_on_any_number_of_threads() {
    let world = world();
    let reports: Vec<VerificationReport> =
        [1, 2, 5].map(|threads| world.files().verify(&trusting(&world, threads)).unwrap()).into();
    assert!(reports.windows(2).all(|pair| pair[0] == pair[1]));
    let report = &reports[0];
    assert_eq!((report.first, report.entries, report.covered, report.uncovered), (0, 2_050, 2_000, 50));
    assert_eq!((report.checkpoints, report.key_known, report.anchored), (20, true, None));
    assert_eq!((report.head, report.tree.root), (world.head.hash, world.frontier.root()));
}

#[test]
fn a_rewritten_end_is_reported_as_not_covered() {
    let world = world();
    let mut dice = AuditTestRandom(7);
    for _ in 0..20 {
        let mut files = world.files();
        let at = dice.within(COVERED..SIZE);
        files.reword(at);
        // Without new hashes it breaks the chain.
        let fault = files.fault(&trusting(&world, 2));
        assert_eq!((fault.kind, fault.seq, fault.covered), (AuditFaultKind::Changed, at as u64, COVERED as u64));
        // With new hashes nothing in the export contradicts it; the report claims nothing about it.
        files.rechain(at, SIZE, &world.log);
        let report = files.verify(&trusting(&world, 2)).unwrap();
        assert_eq!((report.covered, report.uncovered), (COVERED as u64, (SIZE - COVERED) as u64));
        assert_ne!(report.head, world.head.hash);
    }
}

#[test]
fn a_checkpoint_from_elsewhere_covers_what_the_export_left_out() {
    let world = world();
    let mut files = world.files();
    let anchor = SignedNote::parse(files.notes[19].as_bytes()).unwrap();
    // Cut back to 1,500 entries, with everything removed that would contradict it.
    files.lines.truncate(1_500);
    files.notes.truncate(15);
    files.log = String::from_utf8(files.log).unwrap().replace("2050", "1500").into_bytes();
    let alone = files.verify(&trusting(&world, 2)).unwrap();
    assert_eq!((alone.covered, alone.anchored), (1_500, None));
    let anchored = VerifierTrust { anchors: vec![anchor], ..trusting(&world, 2) };
    let fault = files.fault(&anchored);
    assert_eq!((fault.kind, fault.seq, fault.last), (AuditFaultKind::Truncated, 1_500, 1_999));
    let report = world.files().verify(&anchored).unwrap();
    assert_eq!((report.anchored, report.checkpoints), (Some(2_000), 20));

    // A whole forged history with its own checkpoints, signed with the stolen key, against one kept checkpoint.
    let forged = TestAuditLog::new("gw-1", "else ", 1, SIZE as u64, EVERY as u64);
    assert!(forged.files().verify(&trusting(&world, 2)).is_ok());
    let fault = forged.files().fault(&anchored);
    assert_eq!((fault.kind, fault.seq, fault.last), (AuditFaultKind::Forked, 2_000, 2_000));
}

#[test]
fn another_key_is_found_out_only_by_who_knows_the_right_one() {
    let world = world();
    let forged = TestAuditLog::new("gw-1", "else ", 9, 300, 100);
    let fault = forged.files().fault(&trusting(&world, 1));
    assert_eq!((fault.kind, fault.seq), (AuditFaultKind::Signature, 0));
    let report = forged.files().verify(&VerifierTrust::default()).unwrap();
    assert!(!report.key_known);
}

#[test]
fn damaged_checkpoints_are_found() {
    let world = world();
    let trust = trusting(&world, 2);
    let mut dice = AuditTestRandom(3);
    for round in 0..200 {
        let mut files = world.files();
        let (which, at) = (dice.below(20), dice.below(180));
        let mut bytes = files.notes[which].clone().into_bytes();
        flip(&mut bytes[at], &mut dice);
        let Ok(text) = String::from_utf8(bytes) else { continue };
        files.notes[which] = text;
        let fault = files.fault(&trust);
        assert!(
            matches!(fault.kind, AuditFaultKind::Malformed | AuditFaultKind::Signature | AuditFaultKind::Truncated),
            "round {round}: {fault}"
        );
        assert!(fault.covered <= which as u64 * 100, "{fault}");
    }
    let mut files = world.files();
    files.notes.swap(3, 8);
    assert_eq!(files.fault(&trust).kind, AuditFaultKind::Malformed);
    let mut files = world.files();
    files.notes[19].pop();
    assert_eq!(files.fault(&trust).kind, AuditFaultKind::Malformed);
}

#[test]
fn the_end_and_the_count_must_agree() {
    let world = world();
    let trust = trusting(&world, 2);
    let mut files = world.files();
    files.lines.pop();
    let fault = files.fault(&trust);
    assert_eq!((fault.kind, fault.seq, fault.covered), (AuditFaultKind::Truncated, 2_049, 2_000));
    let mut files = world.files();
    files.lines.push(files.lines[2_049].clone());
    assert_eq!((files.fault(&trust).kind, files.fault(&trust).seq), (AuditFaultKind::Inserted, 2_050));
    let mut files = world.files();
    files.log = String::from_utf8(files.log).unwrap().replace("2050", "2049").into_bytes();
    assert_eq!((files.fault(&trust).kind, files.fault(&trust).seq), (AuditFaultKind::Inserted, 2_049));
    let mut files = world.files();
    files.lines[700] = vec![b'x'; 5 << 20];
    files.lines[700].push(b'\n');
    assert_eq!((files.fault(&trust).kind, files.fault(&trust).seq), (AuditFaultKind::Malformed, 700));
}

#[test]
fn a_pruned_export_still_proves_what_is_left() {
    let world = world();
    let cut = 1_234;
    let mut frontier = TreeFrontier::new();
    world.entries[..cut].iter().for_each(|sealed| frontier.push(sealed.hash));
    let start = AuditExportStart { frontier, head: world.entries[cut - 1].hash };
    let mut files = world.files();
    files.lines.drain(..cut);
    let mut log = AuditExportHeader::parse(&files.log).unwrap();
    log.start = Some(start.clone());
    files.log = log.to_bytes();
    let report = files.verify(&trusting(&world, 2)).unwrap();
    assert_eq!((report.first, report.entries, report.covered), (1_234, 816, 766));

    log.start = Some(AuditExportStart { head: AuditHash([1; 32]), ..start.clone() });
    let forged = TestExportFiles { log: log.to_bytes(), ..files.clone() };
    let fault = forged.fault(&trusting(&world, 2));
    assert_eq!((fault.kind, fault.seq), (AuditFaultKind::Changed, 1_234));
    let mut peaks = start.frontier.peaks().to_vec();
    peaks[0] = AuditHash([1; 32]);
    log.start = Some(AuditExportStart { frontier: TreeFrontier::from_parts(1_234, peaks).unwrap(), ..start });
    let forged = TestExportFiles { log: log.to_bytes(), ..files };
    assert_eq!(forged.fault(&trusting(&world, 2)).kind, AuditFaultKind::Forked);
}

#[test]
fn a_proof_stands_alone_and_only_for_its_own_entry() {
    let world = world();
    for index in [0_u64, 1, 99, 100, 1_234, 1_999] {
        let before =
            index.checked_sub(1).map_or(ChainHead::genesis(&world.log).hash, |at| world.entries[at as usize].hash);
        let sealed = &world.entries[index as usize];
        let path = tree::inclusion_proof(&SparseTree(&world), index, 2_000).unwrap();
        let proof =
            AuditEntryProof { index, before, body: sealed.body.clone(), path, checkpoint: world.notes[19].clone() };
        let text = proof.to_string();
        let read = AuditEntryProof::parse(text.as_bytes()).unwrap();
        assert_eq!(read, proof);
        let proven = read.verify(std::slice::from_ref(&world.key)).unwrap();
        assert_eq!((proven.entry.seq, proven.hash, proven.checkpoint.tree.size), (index, sealed.hash, 2_000));

        let code = |proof: AuditEntryProof| proof.verify(std::slice::from_ref(&world.key)).unwrap_err().code();
        assert_eq!(code(AuditEntryProof { before: AuditHash([1; 32]), ..proof.clone() }), "audit.proof_root");
        assert_eq!(code(AuditEntryProof { body: b"{}".to_vec(), ..proof.clone() }), "audit.proof_root");
        assert_eq!(code(AuditEntryProof { index: 2_000, ..proof.clone() }), "audit.proof_outside");
        assert_eq!(
            code(AuditEntryProof { checkpoint: world.notes[0].clone(), index: 5, ..proof.clone() }),
            "audit.proof_length"
        );
        let other = TestAuditLog::new("gw-2", "", 2, 1, 1);
        assert_eq!(proof.verify(&[other.key]).unwrap_err().code(), "audit.note_unknown_signer");
        for bad in [
            text.replace("index ", "index 0"),
            text.replace("tlog-proof@v1", "tlog-proof@v2"),
            text.replace("extra ", ""),
        ] {
            assert_eq!(AuditEntryProof::parse(bad.as_bytes()).unwrap_err().code(), "audit.proof_form");
        }
    }
}
