//! A proof for one entry: a small text that shows it to be in the signed log, without the rest of it.
//!
//! Takes an entry, the hash before it, a path and a checkpoint; gives a C2SP `tlog-proof` whose
//! extra data is the entry itself. Promise: what [`AuditEntryProof::verify`] accepts was in the log when the
//! checkpoint was signed, at the place it says.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::checkpoint::{Checkpoint, CheckpointParseError, decimal, hash_of_base64, origin};
use super::key::VerifierKey;
use super::note::{NoteError, SignedNote};
use super::tree::{self, TreeError};
use super::{AuditEntry, AuditHash, leaf};

/// First line of a proof.
const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// Most hashes in a path.
const MAX_PATH: usize = 64;
/// Longest proof read: the longest entry in base64, and room for the rest.
const MAX_BYTES: usize = 8 << 20;

/// An entry with everything that proves it was logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntryProof {
    /// Its place, from 0.
    pub index: u64,
    /// The hash of the entry before it.
    pub before: AuditHash,
    /// Its canonical bytes.
    pub body: Vec<u8>,
    /// From its leaf to the root: see [`tree::inclusion_proof`].
    pub path: Vec<AuditHash>,
    /// A signed checkpoint that covers it.
    pub checkpoint: SignedNote,
}

/// An entry that is proven to be in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenAuditEntry {
    /// What it says.
    pub entry: AuditEntry,
    /// Its hash.
    pub hash: AuditHash,
    /// The checkpoint that was signed.
    pub checkpoint: Checkpoint,
}

/// Why a proof is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not in the form of a proof.
    #[error("not a proof: {0}")]
    Form(&'static str),
    /// Its checkpoint is not signed by a known key.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// Its note is not a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointParseError),
    /// The path does not lead from the entry to the signed root.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The entry names another log or place than the proof.
    #[error("the entry belongs to another log or place than the proof says")]
    Place,
}

impl ProofError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Form(_) => "audit.proof_form",
            Self::Note(error) => error.code(),
            Self::Checkpoint(error) => error.code(),
            Self::Tree(error) => error.code(),
            Self::Place => "audit.proof_place",
        }
    }
}

impl AuditEntryProof {
    /// Parses a proof. Nothing is verified yet.
    ///
    /// # Errors
    /// When it is not in the form, to the byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProofError> {
        if bytes.len() > MAX_BYTES {
            return Err(ProofError::Form("it is longer than 8 MiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ProofError::Form("it is not UTF-8"))?;
        let (top, note) = text.split_once("\n\n").ok_or(ProofError::Form("there is no blank line"))?;
        let mut lines = top.split('\n');
        if lines.next() != Some(HEADER) {
            return Err(ProofError::Form("the first line is another"));
        }
        let extra = lines.next().and_then(|line| STANDARD.decode(line.strip_prefix("extra ")?).ok());
        let extra = extra.ok_or(ProofError::Form("the second line is not the entry"))?;
        let (before, body) = extra.split_first_chunk::<32>().ok_or(ProofError::Form("the entry is too short"))?;
        let index = lines.next().and_then(|line| decimal(line.strip_prefix("index ")?));
        let index = index.ok_or(ProofError::Form("the third line is not a place"))?;
        let path = lines.map(hash_of_base64).collect::<Option<Vec<_>>>().filter(|path| path.len() < MAX_PATH);
        let path = path.ok_or(ProofError::Form("the path is not made of hashes"))?;
        let checkpoint = SignedNote::parse(note.as_bytes())?;
        Ok(Self { index, before: AuditHash(*before), body: body.to_vec(), path, checkpoint })
    }

    /// The entry, if it is proven to be in a log that one of these keys signed.
    ///
    /// # Errors
    /// When it is not.
    pub fn verify(&self, keys: &[VerifierKey]) -> Result<ProvenAuditEntry, ProofError> {
        let checkpoint = Checkpoint::parse(self.checkpoint.open(keys)?)?;
        let hash = leaf(&self.before, &self.body);
        tree::verify_inclusion(&hash, self.index, checkpoint.tree.size, &self.path, &checkpoint.tree.root)?;
        let entry: AuditEntry =
            serde_json::from_slice(&self.body).map_err(|_| ProofError::Form("the body is not an entry"))?;
        if entry.seq != self.index || origin(&entry.log) != checkpoint.origin {
            return Err(ProofError::Place);
        }
        Ok(ProvenAuditEntry { entry, hash, checkpoint })
    }
}

impl fmt::Display for AuditEntryProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extra = STANDARD.encode([self.before.0.as_slice(), &self.body].concat());
        write!(f, "{HEADER}\nextra {extra}\nindex {}\n", self.index)?;
        self.path.iter().try_for_each(|hash| writeln!(f, "{}", STANDARD.encode(hash.0)))?;
        write!(f, "\n{}", self.checkpoint)
    }
}
