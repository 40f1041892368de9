//! An export of a log, in memory.

use std::num::NonZero;
use std::ops::Range;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use sluice_core::audit::checkpoint::{CheckpointSigner, LogGrowth, origin};
use sluice_core::audit::export::{self, AuditExportFormat, AuditExportHeader};
use sluice_core::audit::key::{SecretKey, VerifierKey};
use sluice_core::audit::tree::{KeptHashSource, SparseTree, TreeFrontier};
use sluice_core::audit::verify::{AuditExport, VerificationReport, VerifierTrust, VerifyError, verify};
use sluice_core::audit::{AuditHash, ChainHead};
use sluice_testkit::ids::SeededEntropy;
use tokio::runtime::Runtime;

use crate::load::BenchStore;
use crate::rounds::{PairedRounds, in_turns, timed, timed_here};

/// Entries between two checkpoints.
pub const CHECKPOINT: u64 = 1_000;

/// The three files of an export.
pub struct ExportedLog {
    log: Vec<u8>,
    /// `entries.jsonl`.
    pub entries: Vec<u8>,
    checkpoints: Vec<u8>,
    key: VerifierKey,
    /// Number of entries.
    pub size: u64,
}

impl ExportedLog {
    /// The first entries of a store's log.
    pub fn first(count: u64, runtime: &Runtime, bench: &BenchStore) -> anyhow::Result<Self> {
        let log = &bench.node;
        let key = SecretKey::generate(&origin(log), &SeededEntropy::new(7))?;
        let mut signer = CheckpointSigner::new(key, log)?;
        let (mut entries, mut checkpoints) = (Vec::new(), Vec::new());
        let (mut head, mut frontier) = (ChainHead::genesis(log), TreeFrontier::new());
        let mut nodes = vec![Vec::new(); 8];
        while head.size < count {
            let missing = u32::try_from((count - head.size).min(10_000))?;
            let page = runtime.block_on(bench.store.entries(log.clone(), head.size, missing))?;
            anyhow::ensure!(!page.is_empty(), "the log ends after {} of {count} entries", head.size);
            for sealed in page {
                frontier.append(sealed.hash, |level, _, hash| {
                    if let Some(kept) = nodes.get_mut(usize::from(level / 8)) {
                        kept.push(hash);
                    }
                });
                head = ChainHead { size: head.size + 1, hash: sealed.hash };
                export::write_entry(&mut entries, &sealed.hash, &sealed.body)?;
                if head.size % CHECKPOINT == 0 {
                    let tree = SparseTree(HashesInMemory(&nodes));
                    let growth = LogGrowth::prove(&tree, signer.last().tree.size, head, frontier.root())?;
                    export::write_checkpoint(&mut checkpoints, &signer.sign(&growth)?)?;
                }
            }
        }
        let key = signer.key().clone();
        let log = AuditExportHeader {
            form: AuditExportFormat::V1,
            key: key.clone(),
            log: log.clone(),
            size: head.size,
            start: None,
        }
        .to_bytes();
        Ok(Self { log, entries, checkpoints, key, size: head.size })
    }

    /// Verifies all of it.
    pub fn verify(&self, threads: usize) -> anyhow::Result<()> {
        let report = self.verify_instead(&self.entries, threads)?;
        anyhow::ensure!(report.entries == self.size, "verified {} of {}", report.entries, self.size);
        Ok(())
    }

    fn verify_instead(&self, entries: &[u8], threads: usize) -> Result<VerificationReport, VerifyError> {
        let trust = VerifierTrust { key: Some(self.key.clone()), anchors: Vec::new(), threads: NonZero::new(threads) };
        verify(AuditExport { log: &self.log, entries, checkpoints: self.checkpoints.as_slice() }, &trust)
    }

    /// A verifier that checks nothing would be fast.
    pub fn must_refuse_a_changed_byte(&self) -> anyhow::Result<()> {
        let mut entries = self.entries.clone();
        let middle = entries.len() / 2;
        let digit = entries.iter().skip(middle).position(u8::is_ascii_digit).context("a digit in the log")?;
        if let Some(byte) = entries.get_mut(middle + digit) {
            *byte = if *byte == b'1' { b'2' } else { b'1' };
        }
        anyhow::ensure!(self.verify_instead(&entries, 1).is_err(), "a changed log was found to be sound");
        Ok(())
    }

    /// Verification compared with plain SHA-256 over the same bytes on one thread.
    pub fn beside_plain_hashing(&self, threads: usize, rounds: usize) -> anyhow::Result<PairedRounds> {
        let bytes = self.entries.len() as u64;
        let hash = || Ok(timed_here(bytes, || Ok(std::hint::black_box(Sha256::digest(&self.entries))))?.0);
        in_turns(rounds, || Ok(timed(bytes, || self.verify(threads))?.0), hash)
    }
}

/// Stored hashes in memory.
struct HashesInMemory<'a>(&'a [Vec<AuditHash>]);

impl KeptHashSource for HashesInMemory<'_> {
    fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.0.get(usize::from(level / 8))?.get(range).map(<[AuditHash]>::to_vec)
    }
}
