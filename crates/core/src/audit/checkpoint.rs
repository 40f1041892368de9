//! Checkpoints: the log's size, root and last hash, signed.
//!
//! Takes heads with proof that the log only grew; gives C2SP checkpoints as signed notes. Promise:
//! a [`CheckpointSigner`] never signs two histories. It refuses a tree that is smaller than the last it
//! signed, equal in size with another root, or larger without proof that the last is its beginning.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::SecretKey;
use super::note::{NoteError, SignedNote};
use super::tree::{self, TreeError, TreeHead, TreeNodeSource};
use super::{AuditHash, ChainHead};
use crate::ids::NodeName;

/// What the extension line with the last hash of the chain starts with.
const CHAIN: &str = "chain ";

/// The first line of every checkpoint of a log, and the name its key signs under.
#[must_use]
pub fn origin(log: &NodeName) -> String {
    format!("sluicegate/audit/{log}")
}

/// The signed statement: this log has exactly these entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log: see [`origin`].
    pub origin: String,
    /// Number of entries, and the root over them.
    pub tree: TreeHead,
    /// Hash of the last of them, or the genesis value.
    pub head: AuditHash,
    /// Further lines, ignored here and signed with the rest.
    pub extensions: Vec<String>,
}

/// Not the text of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint: {0}")]
pub struct CheckpointParseError(pub(super) &'static str);

impl CheckpointParseError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "audit.checkpoint_form"
    }
}

impl Checkpoint {
    /// Reads the text of a note.
    ///
    /// # Errors
    /// When it is not in the form, to the byte.
    pub fn parse(text: &str) -> Result<Self, CheckpointParseError> {
        let text = text.strip_suffix('\n').ok_or(CheckpointParseError("the last line does not end"))?;
        let mut lines = text.split('\n');
        let origin = lines.next().filter(|line| !line.is_empty()).ok_or(CheckpointParseError("it names no log"))?;
        let size = lines.next().and_then(decimal).ok_or(CheckpointParseError("its second line is not a size"))?;
        let root = lines.next().and_then(hash_of_base64).ok_or(CheckpointParseError("its third line is not a root"))?;
        let head = lines.next().and_then(|line| line.strip_prefix(CHAIN)?.parse().ok());
        let head = head.ok_or(CheckpointParseError("its fourth line is not the last hash of the chain"))?;
        let extensions: Vec<String> = lines.map(str::to_owned).collect();
        if extensions.iter().any(String::is_empty) {
            return Err(CheckpointParseError("it has an empty line"));
        }
        Ok(Self { origin: origin.to_owned(), tree: TreeHead { size, root }, head, extensions })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, tree, head, extensions } = self;
        write!(f, "{origin}\n{}\n{}\n{CHAIN}{head}\n", tree.size, STANDARD.encode(tree.root.0))?;
        extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The current state of a log, with the proof that it only grew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogGrowth {
    /// The end of the chain.
    pub head: ChainHead,
    /// The root over all entries.
    pub root: AuditHash,
    /// Proof that the tree signed last is the beginning of this one.
    pub consistency: Vec<AuditHash>,
    /// Proof that the end of the chain is the last leaf of this tree.
    pub inclusion: Vec<AuditHash>,
}

impl LogGrowth {
    /// Proves growth from the size signed last.
    ///
    /// # Errors
    /// When the log is now shorter, or a node is not stored.
    pub fn prove(
        nodes: &impl TreeNodeSource,
        signed: u64,
        head: ChainHead,
        root: AuditHash,
    ) -> Result<Self, TreeError> {
        let consistency = tree::consistency_proof(nodes, signed, head.size)?;
        let last = head.size.checked_sub(1);
        let inclusion = last.map_or(Ok(Vec::new()), |last| tree::inclusion_proof(nodes, last, head.size))?;
        Ok(Self { head, root, consistency, inclusion })
    }
}

/// Why a checkpoint was not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointSigningError {
    /// The log has fewer entries than were signed before.
    #[error("the log has {size} entries and {signed} are signed")]
    Smaller {
        /// Number of entries now.
        size: u64,
        /// Number of entries that were signed.
        signed: u64,
    },
    /// The log has as many entries as were signed before, but different ones.
    #[error("the {size} entries are not those that were signed")]
    Forked {
        /// Number of entries.
        size: u64,
    },
    /// The proof does not show that the log only grew, or that the chain ends in its last leaf.
    #[error("it is not shown that the log only grew: {0}")]
    Unproven(#[source] TreeError),
    /// The key signs under the name of another log.
    #[error("the key is named `{name}` and would sign for `{origin}`")]
    Key {
        /// Name of the key.
        name: String,
        /// Name of the log.
        origin: String,
    },
    /// The checkpoint given as the last one was not signed by this key, or it is for another log.
    #[error("the last checkpoint is not ours: {0}")]
    Last(&'static str),
    /// Not a text that can be signed.
    #[error(transparent)]
    Note(#[from] NoteError),
}

impl CheckpointSigningError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Smaller { .. } => "audit.sign_smaller",
            Self::Forked { .. } => "audit.sign_forked",
            Self::Unproven(_) => "audit.sign_unproven",
            Self::Key { .. } => "audit.sign_key",
            Self::Last(_) => "audit.sign_last",
            Self::Note(error) => error.code(),
        }
    }
}

/// The key together with what it signed last.
///
/// A checkpoint that [`CheckpointSigner::sign`] returns must be stored before it is shown to anyone, and given
/// to [`CheckpointSigner::resume`] at the next start: a signer that forgets can be made to sign a fork.
#[derive(Debug)]
pub struct CheckpointSigner {
    key: SecretKey,
    last: Checkpoint,
}

impl CheckpointSigner {
    /// For a log of which nothing has been signed.
    ///
    /// # Errors
    /// When the key is not named after the log.
    pub fn new(key: SecretKey, log: &NodeName) -> Result<Self, CheckpointSigningError> {
        let origin = origin(log);
        if key.public().name() != origin {
            return Err(CheckpointSigningError::Key { name: key.public().name().to_owned(), origin });
        }
        let tree = TreeHead { size: 0, root: tree::empty_root() };
        Ok(Self { key, last: Checkpoint { origin, tree, head: ChainHead::genesis(log).hash, extensions: Vec::new() } })
    }

    /// For a log of which this checkpoint was signed last.
    ///
    /// # Errors
    /// When the key is not named after the log, or has not signed this checkpoint of it.
    pub fn resume(key: SecretKey, log: &NodeName, last: &SignedNote) -> Result<Self, CheckpointSigningError> {
        let fresh = Self::new(key, log)?;
        let text = last.open(std::slice::from_ref(fresh.key.public()))?;
        let last = Checkpoint::parse(text).map_err(|CheckpointParseError(why)| CheckpointSigningError::Last(why))?;
        if last.origin != fresh.last.origin {
            return Err(CheckpointSigningError::Last("it belongs to another log"));
        }
        Ok(Self { last, ..fresh })
    }

    /// Continues from another checkpoint than the one signed last, or from the beginning. Only for a log that a person
    /// accepted as it is, after a restore: from then on the key has signed two histories, and each verifier with a
    /// checkpoint of the first can tell.
    ///
    /// # Errors
    /// When the key has not signed this checkpoint of this log.
    pub fn restart_from(&mut self, log: &NodeName, last: Option<&SignedNote>) -> Result<(), CheckpointSigningError> {
        let origin = origin(log);
        if self.last.origin != origin {
            return Err(CheckpointSigningError::Key { name: self.key.public().name().to_owned(), origin });
        }
        let Some(last) = last else {
            let tree = TreeHead { size: 0, root: tree::empty_root() };
            self.last = Checkpoint { origin, tree, head: ChainHead::genesis(log).hash, extensions: Vec::new() };
            return Ok(());
        };
        let text = last.open(std::slice::from_ref(self.key.public()))?;
        let last = Checkpoint::parse(text).map_err(|CheckpointParseError(why)| CheckpointSigningError::Last(why))?;
        if last.origin != origin {
            return Err(CheckpointSigningError::Last("it belongs to another log"));
        }
        self.last = last;
        Ok(())
    }

    /// The tree that was signed last; before the first checkpoint, the empty tree.
    #[must_use]
    pub const fn last(&self) -> &Checkpoint {
        &self.last
    }

    /// Signs the last checkpoint again: the same text and the same signature. For a note that could not be stored.
    ///
    /// # Errors
    /// Never for a checkpoint that was signed before.
    pub fn last_note(&self) -> Result<SignedNote, CheckpointSigningError> {
        Ok(SignedNote::sign(self.last.to_string(), &self.key)?)
    }

    /// The public key.
    #[must_use]
    pub const fn key(&self) -> &super::key::VerifierKey {
        self.key.public()
    }

    /// Signs the current state of the log, if the proof shows that it only grew.
    ///
    /// # Errors
    /// When it does not; nothing is signed or remembered then.
    pub fn sign(&mut self, growth: &LogGrowth) -> Result<SignedNote, CheckpointSigningError> {
        let LogGrowth { head, root, consistency, inclusion } = growth;
        let signed = &self.last;
        let tree = TreeHead { size: head.size, root: *root };
        if tree.size < signed.tree.size {
            return Err(CheckpointSigningError::Smaller { size: tree.size, signed: signed.tree.size });
        }
        if tree.size == signed.tree.size && (tree.root, head.hash) != (signed.tree.root, signed.head) {
            return Err(CheckpointSigningError::Forked { size: tree.size });
        }
        tree::verify_consistency(&signed.tree, &tree, consistency).map_err(CheckpointSigningError::Unproven)?;
        if let Some(last) = head.size.checked_sub(1) {
            tree::verify_inclusion(&head.hash, last, head.size, inclusion, root)
                .map_err(CheckpointSigningError::Unproven)?;
        }
        let next = Checkpoint { origin: signed.origin.clone(), tree, head: head.hash, extensions: Vec::new() };
        let note = SignedNote::sign(next.to_string(), &self.key)?;
        self.last = next;
        Ok(note)
    }
}

/// A number without sign or leading zeros.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

pub(super) fn hash_of_base64(text: &str) -> Option<AuditHash> {
    STANDARD.decode(text).ok()?.try_into().ok().map(AuditHash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;
    use crate::audit::AuditFact;
    use crate::audit::tree::{KeptHashSource, SparseTree, TreeFrontier};
    use crate::clock::UtcMillis;
    use crate::ids::Entropy;
    use std::ops::Range;

    struct Seven;
    impl Entropy for Seven {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(7);
        }
    }

    fn log() -> NodeName {
        NodeName::new("gw-1").unwrap()
    }

    fn key() -> SecretKey {
        SecretKey::generate(&origin(&log()), &Seven).unwrap()
    }

    /// A log in memory; small enough that the leaves are all that is kept.
    struct Chain {
        head: ChainHead,
        leaves: Vec<AuditHash>,
    }

    impl KeptHashSource for &Chain {
        fn kept_hashes(&self, _: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
            self.leaves.get(range.start as usize..range.end as usize).map(<[AuditHash]>::to_vec)
        }
    }

    impl Chain {
        fn of(texts: &[&str]) -> Self {
            let mut chain = Self { head: ChainHead::genesis(&log()), leaves: Vec::new() };
            for text in texts {
                let fact = AuditFact::new("hold.held", Actor::Node(log())).with("note", text);
                let sealed = chain.head.seal(&log(), UtcMillis::default(), &fact);
                chain.leaves.push(sealed.hash);
            }
            chain
        }

        fn growth(&self, signed: u64) -> LogGrowth {
            let mut frontier = TreeFrontier::new();
            self.leaves.iter().for_each(|leaf| frontier.push(*leaf));
            LogGrowth::prove(&SparseTree(self), signed, self.head, frontier.root()).unwrap()
        }
    }

    #[test]
    fn the_form_of_a_checkpoint_is_pinned() {
        let mut signer = CheckpointSigner::new(key(), &log()).unwrap();
        let note = signer.sign(&Chain::of(&["a", "b", "c"]).growth(0)).unwrap();
        let text = concat!(
            "sluicegate/audit/gw-1\n",
            "3\n",
            "FLk0cG5M4iMMMHcDs8k84KGE2RYvwmyAm4j7j+bR7lo=\n",
            "chain 92e7d114443f3a97980b8e676da65b63018259f61706f2a27c952e2df60f726a\n",
            "\n",
            "— sluicegate/audit/gw-1 /aHO5F3QfLt8HyrozVVaJxukVEpKhxDg0yhp5HlVNZqye/Q+tPE761HVCSfTvVN8uiC949xUtclMNHX+DX7VP3zKFwE=\n",
        );
        assert_eq!(note.to_string(), text);
        let text = note.open(&[signer.key().clone()]).unwrap();
        assert_eq!(Checkpoint::parse(text).unwrap(), *signer.last());
        assert_eq!(Checkpoint::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn a_log_that_grew_is_signed_and_one_that_did_not_is_signed_the_same_again() {
        let mut signer = CheckpointSigner::new(key(), &log()).unwrap();
        assert!(signer.sign(&Chain::of(&[]).growth(0)).is_ok());
        signer.sign(&Chain::of(&["a"]).growth(0)).unwrap();
        let note = signer.sign(&Chain::of(&["a", "b", "c"]).growth(1)).unwrap();
        assert_eq!(signer.sign(&Chain::of(&["a", "b", "c"]).growth(3)), Ok(note.clone()));
        let mut later = CheckpointSigner::resume(key(), &log(), &note).unwrap();
        assert!(later.sign(&Chain::of(&["a", "b", "c", "d"]).growth(3)).is_ok());
    }

    #[test]
    fn a_fork_is_never_signed() {
        let mut signer = CheckpointSigner::new(key(), &log()).unwrap();
        let note = signer.sign(&Chain::of(&["a", "b", "c"]).growth(0)).unwrap();
        for mut signer in [signer, CheckpointSigner::resume(key(), &log(), &note).unwrap()] {
            let mut code = |growth: &LogGrowth| signer.sign(growth).unwrap_err().code();
            assert_eq!(code(&Chain::of(&["a", "b"]).growth(0)), "audit.sign_smaller");
            assert_eq!(code(&Chain::of(&["a", "x", "c"]).growth(0)), "audit.sign_forked");
            assert_eq!(code(&Chain::of(&["a", "x", "c", "d"]).growth(3)), "audit.sign_unproven");
            let honest = Chain::of(&["a", "b", "c", "d"]).growth(3);
            assert_eq!(code(&LogGrowth { consistency: Vec::new(), ..honest.clone() }), "audit.sign_unproven");
            let other_head = ChainHead { hash: AuditHash([1; 32]), ..honest.head };
            assert_eq!(code(&LogGrowth { head: other_head, ..honest.clone() }), "audit.sign_unproven");
            assert!(signer.sign(&honest).is_ok());
        }
    }

    #[test]
    fn a_signer_resumes_only_from_its_own_checkpoint() {
        let other = NodeName::new("gw-2").unwrap();
        assert_eq!(CheckpointSigner::new(key(), &other).unwrap_err().code(), "audit.sign_key");
        let foreign = SecretKey::generate(&origin(&other), &Seven).unwrap();
        let mut signer = CheckpointSigner::new(foreign, &other).unwrap();
        let note = signer.sign(&Chain::of(&["a"]).growth(0)).unwrap();
        assert_eq!(CheckpointSigner::resume(key(), &log(), &note).unwrap_err().code(), "audit.note_unknown_signer");
        // Signed by our key, but about another log.
        let stray = SignedNote::sign(signer.last().to_string(), &key()).unwrap();
        assert_eq!(CheckpointSigner::resume(key(), &log(), &stray).unwrap_err().code(), "audit.sign_last");
    }

    #[test]
    fn what_is_not_quite_a_checkpoint_is_refused() {
        let mut signer = CheckpointSigner::new(key(), &log()).unwrap();
        signer.sign(&Chain::of(&["a", "b", "c"]).growth(0)).unwrap();
        let text = signer.last().to_string();
        assert!(Checkpoint::parse(&format!("{text}witness x\n")).is_ok());
        for bad in [
            text.trim_end().to_owned(),
            text.replace("\n3\n", "\n03\n"),
            text.replace("\n3\n", "\n+3\n"),
            text.replace("\n3\n", "\n18446744073709551616\n"),
            text.replace("=\n", "\n"),
            text.replace("chain ", "chain  "),
            text.replace("sluicegate/audit/gw-1", ""),
            format!("{text}\n"),
            format!("{text}\nx\n"),
        ] {
            assert!(Checkpoint::parse(&bad).is_err(), "{bad}");
        }
    }
}
