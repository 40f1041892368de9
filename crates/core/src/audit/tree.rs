//! The tree over the entries: RFC 6962 roots, and proofs that something is in it or that it only grew.
//!
//! Takes the hashes of entries as leaves; gives roots and proofs. Promise: two trees with the same
//! size and root have the same leaves in the same order, and a proof that checks here checks in any
//! other RFC 6962 or RFC 9162 verifier.
//!
//! A store keeps the hashes of every eighth level ([`is_kept`]): the leaves, and one hash for every
//! 256 of the level below. [`TreeFrontier::append`] hands them out as they become complete, and
//! [`SparseTree`] finds every other node from at most 128 of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::AuditHash;

/// Prefix of an inner node, as in RFC 6962.
const NODE: [u8; 1] = [1];
/// Levels between two kept ones: one kept hash stands for 2^8 of the kept level below.
const STRIDE: u8 = 8;

/// Why a proof was not made, or does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The entry or the older tree is not inside the tree.
    #[error("{index} is not inside a tree of {size}")]
    Outside {
        /// The entry's place or the older size.
        index: u64,
        /// Size of the tree.
        size: u64,
    },
    /// The store does not have a node that the proof needs.
    #[error("node {index} of level {level} is not stored")]
    Gap {
        /// Levels above the leaves.
        level: u8,
        /// Place in its level, from 0.
        index: u64,
    },
    /// The proof has more or fewer hashes than trees of these sizes call for.
    #[error("the proof has the wrong number of hashes")]
    Length,
    /// The hashes do not add up to the root.
    #[error("the proof leads to another root")]
    Root,
}

impl TreeError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Outside { .. } => "audit.proof_outside",
            Self::Gap { .. } => "audit.tree_gap",
            Self::Length => "audit.proof_length",
            Self::Root => "audit.proof_root",
        }
    }
}

/// The complete subtrees on the right edge: all that is needed to append and to compute the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FrontierParts")]
pub struct TreeFrontier {
    size: u64,
    /// Roots of the complete subtrees, largest (leftmost) first; one per bit set in `size`.
    peaks: Vec<AuditHash>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontierParts {
    size: u64,
    peaks: Vec<AuditHash>,
}

impl TryFrom<FrontierParts> for TreeFrontier {
    type Error = TreeError;
    fn try_from(parts: FrontierParts) -> Result<Self, TreeError> {
        Self::from_parts(parts.size, parts.peaks)
    }
}

impl TreeFrontier {
    /// The frontier of a tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds it from a size and the roots of its complete subtrees, largest first.
    ///
    /// # Errors
    /// When the size does not call for exactly that many.
    pub fn from_parts(size: u64, peaks: Vec<AuditHash>) -> Result<Self, TreeError> {
        let fits = usize::try_from(size.count_ones()).is_ok_and(|count| count == peaks.len());
        if fits { Ok(Self { size, peaks }) } else { Err(TreeError::Length) }
    }

    /// Number of leaves.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Roots of the complete subtrees, largest first.
    #[must_use]
    pub fn peaks(&self) -> &[AuditHash] {
        &self.peaks
    }

    /// Appends a leaf.
    pub fn push(&mut self, leaf: AuditHash) {
        self.append(leaf, |_, _, _| ());
    }

    /// Appends a leaf and hands over each node a store must keep that this completes, as level,
    /// index and hash: the leaf itself first, then, every 256 leaves, the levels above.
    pub fn append(&mut self, leaf: AuditHash, keep: impl FnMut(u8, u64, AuditHash)) {
        // A leaf fits at the end of every tree.
        let _fits = self.graft(0, leaf, keep);
    }

    /// Appends a whole subtree of `2^level` leaves; `false`, and nothing done, where such a subtree cannot start.
    pub fn push_subtree(&mut self, level: u8, root: AuditHash) -> bool {
        self.graft(level, root, |_, _, _| ())
    }

    fn graft(&mut self, level: u8, root: AuditHash, mut keep: impl FnMut(u8, u64, AuditHash)) -> bool {
        let Some(count) = 1_u64.checked_shl(level.into()) else { return false };
        if !self.size.is_multiple_of(count) {
            return false;
        }
        let (mut level, mut index, mut hash) = (level, self.size >> level, root);
        self.size += count;
        loop {
            if is_kept(level) {
                keep(level, index, hash);
            }
            // An odd node completes its parent, whose left half is the smallest peak.
            if index & 1 == 0 {
                break;
            }
            let Some(left) = self.peaks.pop() else { break };
            (level, index, hash) = (level + 1, index >> 1, node(&left, &hash));
        }
        self.peaks.push(hash);
        true
    }

    /// The root of the tree so far.
    #[must_use]
    pub fn root(&self) -> AuditHash {
        bag(&self.peaks)
    }
}

/// The hash of an inner node.
#[must_use]
pub fn node(left: &AuditHash, right: &AuditHash) -> AuditHash {
    AuditHash(Sha256::new().chain_update(NODE).chain_update(left.0).chain_update(right.0).finalize().into())
}

/// The root of a tree without leaves.
#[must_use]
pub fn empty_root() -> AuditHash {
    AuditHash(Sha256::digest([]).into())
}

/// Combines peaks into one root, from the right.
fn bag(peaks: &[AuditHash]) -> AuditHash {
    peaks.iter().rev().copied().reduce(|right, left| node(&left, &right)).unwrap_or_else(empty_root)
}

/// The root of a complete subtree from all its leaves (or all its nodes of one lower level): a power of two of them.
#[must_use]
pub fn fold(hashes: &[AuditHash]) -> Option<AuditHash> {
    if !hashes.len().is_power_of_two() {
        return None;
    }
    let mut frontier = TreeFrontier::new();
    hashes.iter().for_each(|hash| frontier.push(*hash));
    Some(frontier.root())
}

/// A source of hashes of complete subtrees.
pub trait TreeNodeSource {
    /// The root of the complete subtree number `index` (from 0) of `2^level` leaves.
    fn node(&self, level: u8, index: u64) -> Option<AuditHash>;
}

/// A source of kept hashes: one range read per node.
pub trait KeptHashSource {
    /// The stored hashes of a kept level; `None` when any of them is absent.
    fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>>;
}

/// Whether a store must keep the complete nodes of this level.
#[must_use]
pub const fn is_kept(level: u8) -> bool {
    level.is_multiple_of(STRIDE)
}

/// The kept nodes above the leaves that become complete when the tree grows: level and range of indices.
pub fn completed(from: u64, to: u64) -> impl Iterator<Item = (u8, Range<u64>)> {
    (STRIDE..64)
        .step_by(usize::from(STRIDE))
        .map(move |level| (level, from >> level..to >> level))
        .filter(|(_, range)| !range.is_empty())
}

/// The kept nodes right below a node: their level and which. Folding them gives the node. 2 to 256 of them,
/// and the leaf itself for a leaf.
#[must_use]
pub fn below(level: u8, index: u64) -> (u8, Range<u64>) {
    let base = if level == 0 { 0 } else { (level - 1) / STRIDE * STRIDE };
    let count = 1_u64 << (level - base);
    let first = index.saturating_mul(count);
    (base, first..first.saturating_add(count))
}

/// Every node of a tree of which only the kept levels are stored.
#[derive(Debug, Clone, Copy)]
pub struct SparseTree<K>(pub K);

impl<K: KeptHashSource> TreeNodeSource for SparseTree<K> {
    fn node(&self, level: u8, index: u64) -> Option<AuditHash> {
        if is_kept(level) {
            return self.0.kept_hashes(level, index..index.checked_add(1)?)?.into_iter().next();
        }
        let (level, range) = below(level, index);
        fold(&self.0.kept_hashes(level, range)?)
    }
}

/// The path that proves entry `index` to be in the tree of the first `size` entries.
///
/// # Errors
/// When it is not, or a node is not stored.
pub fn inclusion_proof(nodes: &impl TreeNodeSource, index: u64, size: u64) -> Result<Vec<AuditHash>, TreeError> {
    if index >= size {
        return Err(TreeError::Outside { index, size });
    }
    // From the root down; a verifier walks up.
    let mut path = Vec::new();
    let mut span = 0..size;
    while span.end - span.start > 1 {
        let middle = split(&span);
        let (inside, beside) = if index < middle {
            (span.start..middle, middle..span.end)
        } else {
            (middle..span.end, span.start..middle)
        };
        path.push(range_root(nodes, beside)?);
        span = inside;
    }
    path.reverse();
    Ok(path)
}

/// The proof that the tree of the first `older` entries is the beginning of the tree of the first `newer`.
///
/// # Errors
/// When `older` is larger, or a node is not stored.
pub fn consistency_proof(nodes: &impl TreeNodeSource, older: u64, newer: u64) -> Result<Vec<AuditHash>, TreeError> {
    if older > newer {
        return Err(TreeError::Outside { index: older, size: newer });
    }
    if older == 0 || older == newer {
        return Ok(Vec::new());
    }
    let mut path = Vec::new();
    let mut span = 0..newer;
    while span.end != older {
        let middle = split(&span);
        let (inside, beside) = if older <= middle {
            (span.start..middle, middle..span.end)
        } else {
            (middle..span.end, span.start..middle)
        };
        path.push(range_root(nodes, beside)?);
        span = inside;
    }
    // The older tree's last subtree; when that is the whole older tree, the verifier knows it already.
    if span.start > 0 {
        path.push(range_root(nodes, span)?);
    }
    path.reverse();
    Ok(path)
}

/// Whether a leaf is entry `index` of the tree of this size and root (RFC 9162, 2.1.3.2).
///
/// # Errors
/// When the proof does not show it.
pub fn verify_inclusion(
    leaf: &AuditHash,
    index: u64,
    size: u64,
    proof: &[AuditHash],
    root: &AuditHash,
) -> Result<(), TreeError> {
    if index >= size {
        return Err(TreeError::Outside { index, size });
    }
    let (mut this, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in proof {
        if last == 0 {
            return Err(TreeError::Length);
        }
        if this & 1 == 1 || this == last {
            hash = node(sibling, &hash);
            while this & 1 == 0 && this != 0 {
                (this, last) = (this >> 1, last >> 1);
            }
        } else {
            hash = node(&hash, sibling);
        }
        (this, last) = (this >> 1, last >> 1);
    }
    match (last, hash == *root) {
        (0, true) => Ok(()),
        (0, false) => Err(TreeError::Root),
        (_, _) => Err(TreeError::Length),
    }
}

/// The size and root of a tree, as published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeHead {
    /// Number of leaves.
    pub size: u64,
    /// Root.
    pub root: AuditHash,
}

/// Whether one tree is the beginning of another (RFC 9162, 2.1.4.2). The empty tree begins every tree.
///
/// # Errors
/// When the proof does not show it.
pub fn verify_consistency(older: &TreeHead, newer: &TreeHead, proof: &[AuditHash]) -> Result<(), TreeError> {
    if older.size > newer.size {
        return Err(TreeError::Outside { index: older.size, size: newer.size });
    }
    if older.size == newer.size || older.size == 0 {
        let empty = older.size > 0 || older.root == empty_root();
        let same = older.size < newer.size || older.root == newer.root;
        return match (proof.is_empty(), empty && same) {
            (true, true) => Ok(()),
            (true, false) => Err(TreeError::Root),
            (false, _) => Err(TreeError::Length),
        };
    }
    // A complete older tree is itself the first node of the path.
    let (start, rest) = if older.size.is_power_of_two() {
        (older.root, proof)
    } else {
        proof.split_first().map(|(first, rest)| (*first, rest)).ok_or(TreeError::Length)?
    };
    let (mut this, mut last) = (older.size - 1, newer.size - 1);
    while this & 1 == 1 {
        (this, last) = (this >> 1, last >> 1);
    }
    let (mut old, mut new) = (start, start);
    for sibling in rest {
        if last == 0 {
            return Err(TreeError::Length);
        }
        if this & 1 == 1 || this == last {
            (old, new) = (node(sibling, &old), node(sibling, &new));
            while this & 1 == 0 && this != 0 {
                (this, last) = (this >> 1, last >> 1);
            }
        } else {
            new = node(&new, sibling);
        }
        (this, last) = (this >> 1, last >> 1);
    }
    match (last, old == older.root && new == newer.root) {
        (0, true) => Ok(()),
        (0, false) => Err(TreeError::Root),
        (_, _) => Err(TreeError::Length),
    }
}

/// Where RFC 6962 splits a range of two or more: after the largest power of two smaller than its length.
fn split(span: &Range<u64>) -> u64 {
    let length = span.end - span.start;
    span.start + (1 << (length - 1).ilog2())
}

/// The root of a range that starts where a subtree at least as long starts, from the fewest complete subtrees.
fn range_root(nodes: &impl TreeNodeSource, span: Range<u64>) -> Result<AuditHash, TreeError> {
    let mut peaks = Vec::new();
    let mut start = span.start;
    while start < span.end {
        let level = (span.end - start).ilog2();
        // A u64 has 64 bits, so a level always fits.
        let (level, index) = (u8::try_from(level).unwrap_or(u8::MAX), start >> level);
        peaks.push(nodes.node(level, index).ok_or(TreeError::Gap { level, index })?);
        start += 1 << level;
    }
    Ok(bag(&peaks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// A store that keeps what it must, and counts its reads.
    #[derive(Default)]
    struct Memory {
        frontier: TreeFrontier,
        kept: BTreeMap<(u8, u64), AuditHash>,
        reads: Cell<u64>,
        most: Cell<u64>,
    }

    impl Memory {
        fn of(leaves: impl IntoIterator<Item = AuditHash>) -> Self {
            let mut memory = Self::default();
            for leaf in leaves {
                let kept = &mut memory.kept;
                memory.frontier.append(leaf, |level, index, hash| {
                    kept.insert((level, index), hash);
                });
            }
            memory
        }
    }

    impl KeptHashSource for &Memory {
        fn kept_hashes(&self, level: u8, range: Range<u64>) -> Option<Vec<AuditHash>> {
            self.reads.set(self.reads.get() + 1);
            self.most.set(self.most.get().max(range.end - range.start));
            range.map(|index| self.kept.get(&(level, index)).copied()).collect()
        }
    }

    fn leaf(data: &[u8]) -> AuditHash {
        AuditHash(Sha256::new().chain_update([0]).chain_update(data).finalize().into())
    }

    fn leaves(count: u64) -> Vec<AuditHash> {
        (0..count).map(|i| leaf(&i.to_be_bytes())).collect()
    }

    fn hash(text: &str) -> AuditHash {
        text.parse().unwrap()
    }

    /// The leaves of the certificate-transparency reference tests.
    const REFERENCE: [&[u8]; 8] = [
        &[],
        &[0],
        &[0x10],
        &[0x20, 0x21],
        &[0x30, 0x31],
        &[0x40, 0x41, 0x42, 0x43],
        &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
        &[0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f],
    ];

    const ROOTS: [&str; 9] = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    #[test]
    fn the_roots_are_those_of_the_reference_tests() {
        let mut frontier = TreeFrontier::new();
        assert_eq!(frontier.root(), hash(ROOTS[0]));
        for (data, root) in REFERENCE.iter().zip(&ROOTS[1..]) {
            frontier.push(leaf(data));
            assert_eq!(frontier.root(), hash(root));
        }
    }

    #[test]
    fn the_proofs_are_those_of_the_reference_tests() {
        let memory = Memory::of(REFERENCE.iter().map(|data| leaf(data)));
        let nodes = SparseTree(&memory);
        let path = |index, size| inclusion_proof(&nodes, index, size).unwrap();
        assert_eq!(path(0, 1), []);
        assert_eq!(
            path(0, 8),
            [
                hash("96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"),
                hash("5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"),
                hash("6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"),
            ]
        );
        assert_eq!(
            path(5, 8),
            [
                hash("bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"),
                hash("ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"),
                hash("d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
            ]
        );
        assert_eq!(path(2, 3), [hash("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125")]);
        assert_eq!(
            path(1, 5),
            [
                hash("6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
                hash("5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"),
                hash("bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"),
            ]
        );
        let grown = |older, newer| consistency_proof(&nodes, older, newer).unwrap();
        assert_eq!(grown(1, 1), []);
        assert_eq!(
            grown(1, 8),
            [
                hash("96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"),
                hash("5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"),
                hash("6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"),
            ]
        );
        assert_eq!(
            grown(6, 8),
            [
                hash("0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"),
                hash("ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"),
                hash("d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
            ]
        );
        assert_eq!(
            grown(2, 5),
            [
                hash("5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"),
                hash("bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"),
            ]
        );
    }

    #[test]
    fn every_proof_of_every_small_tree_holds_and_only_for_its_own_place() {
        let all = leaves(70);
        let memory = Memory::of(all.iter().copied());
        let nodes = SparseTree(&memory);
        let trees: Vec<TreeHead> = (0..=70)
            .map(|size| TreeHead { size, root: Memory::of(all[..size as usize].iter().copied()).frontier.root() })
            .collect();
        for newer in &trees {
            for index in 0..newer.size {
                let proof = inclusion_proof(&nodes, index, newer.size).unwrap();
                let check = |leaf: &AuditHash, index, proof: &[AuditHash]| {
                    verify_inclusion(leaf, index, newer.size, proof, &newer.root)
                };
                let this = &all[index as usize];
                assert_eq!(check(this, index, &proof), Ok(()));
                assert!(check(&AuditHash([9; 32]), index, &proof).is_err());
                assert!(index + 1 == newer.size || check(this, index + 1, &proof).is_err());
                assert_eq!(check(this, index, &[proof.clone(), vec![*this]].concat()), Err(TreeError::Length));
                if let Some((_, short)) = proof.split_last() {
                    assert_eq!(check(this, index, short), Err(TreeError::Length));
                }
            }
            for older in trees.iter().take(newer.size as usize + 1) {
                let proof = consistency_proof(&nodes, older.size, newer.size).unwrap();
                assert_eq!(verify_consistency(older, newer, &proof), Ok(()), "{older:?} {newer:?}");
                let forged = TreeHead { root: AuditHash([9; 32]), ..*older };
                assert_eq!(verify_consistency(&forged, newer, &proof), Err(TreeError::Root), "{older:?} {newer:?}");
                if older.size > 0 {
                    let forged = TreeHead { root: AuditHash([9; 32]), ..*newer };
                    assert_eq!(verify_consistency(older, &forged, &proof), Err(TreeError::Root));
                }
                let long = [proof.clone(), vec![AuditHash([9; 32])]].concat();
                assert_eq!(verify_consistency(older, newer, &long), Err(TreeError::Length));
                if let Some((_, short)) = proof.split_last() {
                    assert_eq!(verify_consistency(older, newer, short), Err(TreeError::Length));
                }
            }
        }
        assert!(verify_consistency(&trees[5], &trees[4], &[]).is_err());
    }

    #[test]
    fn a_store_learns_exactly_the_kept_nodes_and_proofs_need_few_of_them() {
        let all = leaves(70_000);
        let memory = Memory::of(all.iter().copied());
        for (level, range) in completed(0, 70_000) {
            for index in range {
                let (base, below) = below(level, index);
                let hashes = (&memory).kept_hashes(base, below).unwrap();
                assert_eq!(hashes.len(), 256);
                assert_eq!(fold(&hashes), memory.kept.get(&(level, index)).copied(), "{level} {index}");
            }
        }
        let told: u64 = 70_000 + completed(0, 70_000).map(|(_, range)| range.end - range.start).sum::<u64>();
        assert_eq!(memory.kept.len() as u64, told);
        assert_eq!(completed(0, 70_000).collect::<Vec<_>>(), [(8, 0..273), (16, 0..1)]);
        assert_eq!(completed(255, 256).collect::<Vec<_>>(), [(8, 0..1)]);
        assert_eq!(completed(256, 511).count(), 0);

        let root = memory.frontier.root();
        for index in [0, 1, 255, 256, 40_000, 65_535, 65_536, 69_999] {
            memory.reads.set(0);
            memory.most.set(0);
            let proof = inclusion_proof(&SparseTree(&memory), index, 70_000).unwrap();
            assert_eq!(verify_inclusion(&all[index as usize], index, 70_000, &proof, &root), Ok(()));
            assert!(
                memory.reads.get() <= 2 * 17 && memory.most.get() <= 128,
                "{} {}",
                memory.reads.get(),
                memory.most.get()
            );
        }
    }

    #[test]
    fn a_gap_in_the_store_is_named() {
        let mut memory = Memory::of(leaves(600));
        memory.kept.remove(&(8, 0));
        let error = inclusion_proof(&SparseTree(&memory), 400, 600).unwrap_err();
        assert_eq!((error, error.code()), (TreeError::Gap { level: 8, index: 0 }, "audit.tree_gap"));
    }

    #[test]
    fn a_stored_frontier_goes_on_where_it_was_and_a_wrong_one_is_refused() {
        let memory = Memory::of(leaves(77));
        let text = serde_json::to_string(&memory.frontier).unwrap();
        let mut again: TreeFrontier = serde_json::from_str(&text).unwrap();
        again.push(leaf(&77_u64.to_be_bytes()));
        assert_eq!(again, Memory::of(leaves(78)).frontier);
        assert!(again.peaks().len() <= 64);
        let wrong = text.replace("\"size\":77", "\"size\":79");
        assert!(serde_json::from_str::<TreeFrontier>(&wrong).is_err());
    }

    #[test]
    fn whole_subtrees_fit_only_where_they_can_start() {
        let all = leaves(12);
        let mut frontier = Memory::of(all[..8].iter().copied()).frontier;
        assert!(frontier.push_subtree(2, fold(&all[8..]).unwrap()));
        assert_eq!(frontier, Memory::of(all.iter().copied()).frontier);
        assert!(!frontier.push_subtree(3, AuditHash([1; 32])) && !frontier.push_subtree(64, AuditHash([1; 32])));
        assert_eq!(frontier.size(), 12);
    }

    fn bytes(hashes: &[AuditHash]) -> Vec<u8> {
        hashes.iter().flat_map(|hash| hash.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Another implementation makes the same roots and the same proofs, to the byte.
        #[test]
        fn roots_and_proofs_agree_with_another_implementation(
            size in 1_u64..1500, index in any::<prop::sample::Index>(), older in any::<prop::sample::Index>()
        ) {
            let mut other = MemoryBackedTree::<Sha256, [u8; 8]>::new();
            (0..size).for_each(|i| other.push(i.to_be_bytes()));
            let memory = Memory::of(leaves(size));
            let nodes = SparseTree(&memory);
            let root = memory.frontier.root();
            prop_assert_eq!(other.root().as_bytes().to_vec(), root.0.to_vec());
            let index = index.index(size as usize) as u64;
            let path = inclusion_proof(&nodes, index, size).unwrap();
            let theirs = other.prove_inclusion(index as usize);
            prop_assert_eq!(bytes(&path), theirs.as_bytes());
            prop_assert_eq!(verify_inclusion(&leaf(&index.to_be_bytes()), index, size, &path, &root), Ok(()));
            let older = older.index(size as usize) as u64 + 1;
            let grown = consistency_proof(&nodes, older, size).unwrap();
            let theirs = other.prove_consistency((size - older) as usize);
            prop_assert_eq!(bytes(&grown), theirs.as_bytes());
        }
    }
}
