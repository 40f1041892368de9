//! A tree of words by their letters, to find all of them at any position.
//!
//! Takes a sorted list of words in lower case, gives those that start at a position of a text. Promise: built in a
//! millisecond, because a process that reads one mail pays for it; a walk is never longer than the longest word.

use std::borrow::Cow;

/// Marks a missing word or branch.
const NONE: u32 = u32::MAX;

/// A node where words diverge, or the only word that remains.
#[derive(Debug, Clone, Copy)]
struct TrieNode {
    /// The index of its first branch; branches are adjacent, and none means that only one word remains.
    branches: u32,
    count: u32,
    /// The word that ends here, or the one that remains.
    word: u32,
}

/// The words, and the nodes where they diverge.
#[derive(Debug)]
pub(super) struct WordTrie {
    words: Vec<Cow<'static, str>>,
    nodes: Vec<TrieNode>,
    /// The letter that leads to each node.
    letters: Vec<u8>,
    /// The node for each first letter.
    first: [u32; 256],
}

impl WordTrie {
    /// The words must be sorted, in lower case and unique.
    pub(super) fn new(words: Vec<Cow<'static, str>>) -> Self {
        let mut tree =
            Self { nodes: Vec::with_capacity(words.len() * 2), letters: Vec::new(), first: [NONE; 256], words };
        tree.letters.reserve(tree.words.len() * 2);
        tree.push(0);
        // The open work: a node, the words below it, and the number of letters that led to it.
        let mut open = vec![(0, 0, tree.words.len(), 0)];
        while let Some((node, from, to, depth)) = open.pop() {
            tree.part(node, from..to, depth, &mut open);
        }
        if let Some(root) = tree.nodes.first().copied() {
            for at in root.branches..root.branches.saturating_add(root.count) {
                let letter = tree.letters.get(at as usize).copied().unwrap_or_default();
                if let Some(slot) = tree.first.get_mut(usize::from(letter)) {
                    *slot = at;
                }
            }
        }
        tree
    }

    fn push(&mut self, letter: u8) -> usize {
        self.nodes.push(TrieNode { branches: NONE, count: 0, word: NONE });
        self.letters.push(letter);
        self.nodes.len() - 1
    }

    /// Adds the branches of a node.
    fn part(
        &mut self,
        node: usize,
        words: std::ops::Range<usize>,
        depth: usize,
        open: &mut Vec<(usize, usize, usize, usize)>,
    ) {
        let number = |at: usize| u32::try_from(at).unwrap_or(NONE);
        let mut rest = words;
        let ends = self.words.get(rest.start).is_some_and(|word| word.len() == depth);
        // The root always has branches: the first letter is looked up directly.
        if ends || (rest.len() == 1 && depth > 0) {
            if let Some(node) = self.nodes.get_mut(node) {
                node.word = number(rest.start);
            }
            rest.start += 1;
        }
        let first = self.nodes.len();
        while let Some(letter) = self.letter(rest.start, depth).filter(|_| !rest.is_empty()) {
            let group = rest.clone().take_while(|&at| self.letter(at, depth) == Some(letter)).count();
            let branch = self.push(letter);
            open.push((branch, rest.start, rest.start + group, depth + 1));
            rest.start += group;
        }
        let count = self.nodes.len() - first;
        if let Some(node) = self.nodes.get_mut(node).filter(|_| count > 0) {
            (node.branches, node.count) = (number(first), number(count));
        }
    }

    fn letter(&self, word: usize, depth: usize) -> Option<u8> {
        self.words.get(word)?.as_bytes().get(depth).copied()
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(AsRef::as_ref)
    }

    /// Whether a word begins with this byte, whatever its case.
    pub(super) fn begins(&self, byte: u8) -> bool {
        self.first.get(usize::from(byte.to_ascii_lowercase())).is_some_and(|node| *node != NONE)
    }

    /// Calls `each` for every word that begins here, with its end, shorter words first.
    pub(super) fn at(&self, text: &[u8], start: usize, mut each: impl FnMut(usize, usize)) {
        let lower = |at: usize| text.get(at).map(u8::to_ascii_lowercase);
        let Some(mut next) = lower(start).and_then(|byte| self.first.get(usize::from(byte)).copied()) else { return };
        let mut at = start + 1;
        while let Some(node) = self.nodes.get(next as usize) {
            if node.count == 0 {
                let rest = self.words.get(node.word as usize).and_then(|word| word.as_bytes().get(at - start..));
                if let Some(rest) = rest
                    && text.get(at..at + rest.len()).is_some_and(|text| text.eq_ignore_ascii_case(rest))
                {
                    each(node.word as usize, at + rest.len());
                }
                return;
            }
            if node.word != NONE {
                each(node.word as usize, at);
            }
            let Some(byte) = lower(at) else { return };
            let (first, count) = (node.branches as usize, node.count as usize);
            let branches = self.letters.get(first..first + count).unwrap_or_default();
            let Some(found) = branches.iter().position(|letter| *letter == byte) else { return };
            next = node.branches.saturating_add(u32::try_from(found).unwrap_or(NONE));
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_is_found_where_it_stands(
            words in proptest::collection::btree_set("[ab\u{e9} ]{1,5}", 1..40), text in "[abAB\u{e9} ]{0,24}"
        ) {
            let tree = WordTrie::new(words.iter().map(|word| Cow::Owned(word.clone())).collect());
            for start in 0..text.len() {
                let mut found = Vec::new();
                tree.at(text.as_bytes(), start, |word, end| found.push((word, end)));
                let known: Vec<(usize, usize)> = words
                    .iter()
                    .enumerate()
                    .filter(|(_, word)| {
                        let here = text.as_bytes().get(start..start + word.len());
                        here.is_some_and(|here| here.eq_ignore_ascii_case(word.as_bytes()))
                    })
                    .map(|(at, word)| (at, start + word.len()))
                    .collect();
                prop_assert_eq!(found, known);
            }
        }
    }
}
