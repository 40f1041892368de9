//! How fast the audit log is: append, verify and prove, beside plain SHA-256 over the same bytes.
//!
//! `cargo run --release -p sluice-core --example audit_speed -- 1000000`

#![expect(clippy::disallowed_methods, reason = "a measurement needs the real clock")]
#![expect(clippy::unwrap_used, reason = "a measurement that fails may stop")]

use std::num::NonZero;
use std::ops::Range;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use sluice_core::audit::checkpoint::{CheckpointSigner, LogGrowth, origin};
use sluice_core::audit::export::{self, AuditExportFormat, AuditExportHeader};
use sluice_core::audit::key::SecretKey;
use sluice_core::audit::tree::{KeptHashSource, SparseTree, TreeFrontier, inclusion_proof, verify_inclusion};
use sluice_core::audit::verify::{AuditExport, VerifierTrust, verify};
use sluice_core::audit::{AuditFact, AuditHash, ChainHead, commit};
use sluice_core::{Actor, Digest, Entropy, HoldId, NodeName, UtcMillis};

const EVERY: u64 = 1_000;

struct BenchEntropy;
impl Entropy for BenchEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// The kept hashes of each eighth level.
struct MemoryTreeStore(Vec<Vec<AuditHash>>);
impl KeptHashSource for &MemoryTreeStore {
    fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.0.get(usize::from(level / 8))?.get(range).map(<[AuditHash]>::to_vec)
    }
}

fn fact(log: &NodeName, seq: u64) -> AuditFact {
    let mut fact = AuditFact::new("hold.held", Actor::Node(log.clone())).with("capability", "email.send");
    fact.hold = Some(HoldId::from_bits(u128::from(seq)));
    fact.digest = Some(Digest::of(&seq.to_be_bytes()));
    fact.commitments.insert("arguments".into(), commit(&[7; 32], &seq.to_be_bytes()));
    fact
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed(), value)
}

/// Processor time of all threads so far, where the system reports it.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().map(|rest| rest.split_whitespace().skip(11).take(2));
    ticks.into_iter().flatten().filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Seconds of wall time (best of nine) and of processor time (mean): the machine is shared.
fn measure(mut work: impl FnMut()) -> (f64, f64) {
    let before = cpu();
    let wall = (0..9).map(|_| timed(&mut work).0.as_secs_f64()).fold(f64::MAX, f64::min);
    (wall, (cpu() - before) / 9.0)
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let log = NodeName::new("gw-1").unwrap();
    let key = SecretKey::generate(&origin(&log), &BenchEntropy).unwrap();
    let mut signer = CheckpointSigner::new(key, &log).unwrap();
    let (mut entries, mut checkpoints, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = MemoryTreeStore(vec![Vec::new(); 8]);
    let (mut head, mut frontier) = (ChainHead::genesis(&log), TreeFrontier::new());
    let (time, ()) = timed(|| {
        for seq in 0..count {
            let at = UtcMillis::from_millis(1_730_000_000_000 + i64::try_from(seq).unwrap());
            let sealed = head.seal(&log, at, &fact(&log, seq));
            frontier.append(sealed.hash, |level, _, hash| memory.0.get_mut(usize::from(level / 8)).unwrap().push(hash));
            export::write_entry(&mut entries, &sealed.hash, &sealed.body).unwrap();
            bodies.extend_from_slice(&sealed.body);
            if (seq + 1).is_multiple_of(EVERY) {
                let growth =
                    LogGrowth::prove(&SparseTree(&memory), signer.last().tree.size, head, frontier.root()).unwrap();
                export::write_checkpoint(&mut checkpoints, &signer.sign(&growth).unwrap()).unwrap();
            }
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let per = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
    println!(
        "append, sign, write: {count} entries of {} B in {time:.2?}",
        bodies.len() / usize::try_from(count).unwrap()
    );

    let stated =
        AuditExportHeader { form: AuditExportFormat::V1, key: signer.key().clone(), log, size: count, start: None }
            .to_bytes();
    let floor = |name: &str, bytes: &[u8]| {
        let (wall, cpu) = measure(|| assert!(Sha256::digest(bytes).len() == 32));
        println!(
            "plain SHA-256 over {name}: {:.2} GB/s ({wall:.3} s, {cpu:.3} s of processor)",
            per(bytes.len(), wall)
        );
        (wall, cpu)
    };
    let (bodies_floor, bodies_cpu) = floor("the bodies", &bodies);
    let (file_floor, file_cpu) = floor("entries.jsonl", &entries);
    for threads in [1, 2, 4] {
        let trust =
            VerifierTrust { key: Some(signer.key().clone()), anchors: Vec::new(), threads: NonZero::new(threads) };
        let (wall, cpu) = measure(|| {
            let export = AuditExport { log: &stated, entries: entries.as_slice(), checkpoints: checkpoints.as_slice() };
            let report = verify(export, &trust).unwrap();
            assert_eq!((report.entries, report.covered), (count, count / EVERY * EVERY));
        });
        println!(
            "verify on {threads}: {wall:.3} s, {cpu:.3} s of processor; bodies {:.2} GB/s, {:.2} of the floor ({:.2} by processor); file {:.2} of the floor ({:.2} by processor)",
            per(bodies.len(), wall),
            bodies_floor / wall,
            bodies_cpu / cpu,
            file_floor / wall,
            file_cpu / cpu,
        );
    }
    let root = frontier.root();
    let (mut worst, mut at) = (Duration::ZERO, 12_345 % count);
    for _ in 0..1_000 {
        let (time, path) = timed(|| inclusion_proof(&SparseTree(&memory), at, count).unwrap());
        let leaf = memory.0.first().and_then(|leaves| leaves.get(usize::try_from(at).unwrap())).unwrap();
        verify_inclusion(leaf, at, count, &path, &root).unwrap();
        worst = worst.max(time);
        at = (at + 7_919) % count;
    }
    println!("inclusion proof, worst of 1,000: {worst:.2?}");
}
