//! Pieces: a secret of the vault that leaves in parts, in any order, with any text between them.
//!
//! Takes every text of a call without its blanks; gives the secrets that can be assembled from what was found: in a few
//! pieces of at least six bytes anywhere, or in two at the edges of fields. Promise: one pass over each text, no work
//! that grows with the repetitions of a piece, and a common beginning alone is not a secret.

use std::borrow::Cow;
use std::fmt;

use super::bytes::cut;

/// The shortest piece that is searched for anywhere.
const PIECE: usize = 6;
/// Most pieces of a secret; longer secrets may have one for each 32 bytes.
const PIECES: usize = 4;
/// Shorter secrets are searched for at the edges of fields only.
const WHOLE: usize = 2 * PIECE;
/// How much of each edge of a field is kept.
const EDGE: usize = WHOLE;
/// Most fields whose edges are kept.
const FIELDS: usize = 4096;
/// The shortest piece at an edge.
const STUB: usize = 3;
/// Only this much of a longer secret is used.
const LONGEST: usize = 4096;
/// The mask for the last six bytes.
const WINDOW: u64 = (1 << (8 * PIECE)) - 1;

/// One form of one secret.
struct SecretForm {
    secret: usize,
    form: &'static str,
    bytes: Vec<u8>,
    /// For each position of it, the index of the stretch of six bytes there.
    stretches: Vec<usize>,
}

/// All forms that can be assembled from pieces.
#[derive(Default)]
pub(super) struct SecretPieces {
    /// Every stretch of six bytes of every form, sorted, without duplicates.
    stretches: Vec<u64>,
    /// A filter over their hashes: it skips most positions of a text.
    filter: Vec<u64>,
    needles: Vec<SecretForm>,
}

impl fmt::Debug for SecretPieces {
    /// SECURITY: shows counts only. It holds the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("needles", &self.needles.len()).finish_non_exhaustive()
    }
}

/// What was found so far in one call.
#[derive(Debug, Default)]
pub(super) struct SeenPieces {
    seen: Vec<bool>,
    /// First and last bytes of each field.
    edges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SecretPieces {
    /// Prepares the search for forms of secrets: the index of the secret, the name of the form, its bytes.
    pub(super) fn new(forms: impl IntoIterator<Item = (usize, &'static str, Vec<u8>)>) -> Self {
        let mut needles: Vec<SecretForm> = forms
            .into_iter()
            .map(|(secret, form, bytes)| (secret, form, cut(&squeezed(&bytes), 0, LONGEST).to_vec()))
            .filter(|(_, _, bytes)| bytes.len() >= super::SHORT)
            .map(|(secret, form, bytes)| SecretForm { secret, form, bytes, stretches: Vec::new() })
            .collect();
        let long = |needle: &&SecretForm| needle.bytes.len() >= WHOLE;
        let mut stretches: Vec<u64> =
            needles.iter().filter(long).flat_map(|needle| needle.bytes.windows(PIECE).map(number)).collect();
        stretches.sort_unstable();
        stretches.dedup();
        let mut filter = vec![0_u64; (stretches.len() / 4).next_power_of_two().max(1024)];
        for stretch in &stretches {
            let (word, bit) = place(*stretch, filter.len());
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
        for needle in needles.iter_mut().filter(|needle| needle.bytes.len() >= WHOLE) {
            let known = needle.bytes.windows(PIECE).filter_map(|window| stretches.binary_search(&number(window)).ok());
            needle.stretches = known.collect();
        }
        Self { stretches, filter, needles }
    }

    /// An empty trail.
    pub(super) fn trail(&self) -> SeenPieces {
        SeenPieces { seen: vec![false; self.stretches.len()], edges: Vec::new() }
    }

    /// Records which stretches occur in a text without blanks.
    pub(super) fn read(&self, text: &[u8], trail: &mut SeenPieces) {
        if self.stretches.is_empty() {
            return;
        }
        let mut window = 0;
        for (at, byte) in text.iter().enumerate() {
            window = (window << 8 | u64::from(*byte)) & WINDOW;
            let (word, bit) = place(window, self.filter.len());
            if self.filter.get(word).is_none_or(|word| word & bit == 0) || at + 1 < PIECE {
                continue;
            }
            let known = self.stretches.binary_search(&window).ok();
            if let Some(seen) = known.and_then(|known| trail.seen.get_mut(known)) {
                *seen = true;
            }
        }
    }

    /// Records the start and end of a field without blanks.
    pub(super) fn edges(&self, field: &[u8], trail: &mut SeenPieces) {
        if !field.is_empty() && trail.edges.len() < FIELDS {
            let last = cut(field, field.len().saturating_sub(EDGE), field.len());
            trail.edges.push((cut(field, 0, EDGE).to_vec(), last.to_vec()));
        }
    }

    /// The secrets that can be assembled: index, form, length.
    pub(super) fn reassembled_secrets<'a>(
        &'a self,
        trail: &'a SeenPieces,
    ) -> impl Iterator<Item = (usize, &'static str, usize)> + 'a {
        let whole =
            |needle: &&SecretForm| if needle.stretches.is_empty() { trail.meets(needle) } else { trail.covers(needle) };
        self.needles.iter().filter(whole).map(|needle| (needle.secret, needle.form, needle.bytes.len()))
    }
}

impl SeenPieces {
    /// Whether the found pieces cover a secret, except for a stub at the edge of a field.
    fn covers(&self, needle: &SecretForm) -> bool {
        let length = needle.bytes.len();
        let (mut pieces, mut covered, mut inside) = (0, 0, false);
        // The start and end of the part that no piece covers, if it is one stretch.
        let (mut gap, mut gaps) = ((0, 0), 0);
        for (at, stretch) in needle.stretches.iter().enumerate() {
            let seen = self.seen.get(*stretch) == Some(&true);
            pieces += usize::from(seen && !inside);
            inside = seen;
            if seen {
                if at > covered {
                    gap = (covered, at);
                    gaps += 1;
                }
                covered = at + PIECE;
            }
        }
        if covered < length {
            gap = (covered, length);
            gaps += 1;
        }
        let stub = cut(&needle.bytes, gap.0, gap.1);
        let at_an_edge = || {
            gap.1 - gap.0 < PIECE
                && self.edges.iter().any(|(first, last)| first.starts_with(stub) || last.ends_with(stub))
        };
        pieces <= PIECES.max(length / 32) && (gaps == 0 || gaps == 1 && pieces > 0 && at_an_edge())
    }

    /// Whether one field ends with the first part of a short secret and another begins with the rest.
    fn meets(&self, needle: &SecretForm) -> bool {
        let secret = needle.bytes.as_slice();
        (STUB..=secret.len().saturating_sub(STUB)).any(|at| {
            let (one, two) = (cut(secret, 0, at), cut(secret, at, secret.len()));
            self.edges.iter().any(|(_, last)| last.ends_with(one))
                && self.edges.iter().any(|(first, _)| first.starts_with(two))
        })
    }
}

/// A text without blanks of any kind, line ends and zero-width characters.
pub(super) fn squeezed(text: &[u8]) -> Cow<'_, [u8]> {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
    if !text.iter().any(|byte| blank(byte) || *byte >= 0x80) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let skip = match rest {
            [0xC2, 0x85 | 0xA0 | 0xAD, ..] => 2,
            [0xE2, 0x80, 0x80..=0x8F | 0xA8..=0xAF, ..] | [0xE2, 0x81, 0x9F..=0xA4, ..] => 3,
            [0xE3, 0x80, 0x80, ..] | [0xEF, 0xBB, 0xBF, ..] | [0xE1, 0x9A, 0x80, ..] | [0xE1, 0xA0, 0x8E, ..] => 3,
            _ => usize::from(blank(byte)),
        };
        if skip == 0 {
            out.push(*byte);
            rest = after;
        } else {
            rest = rest.get(skip..).unwrap_or_default();
        }
    }
    Cow::Owned(out)
}

/// Six bytes as a number.
fn number(window: &[u8]) -> u64 {
    window.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The position of a stretch in a filter of this many words, a power of two.
#[inline]
fn place(stretch: u64, words: usize) -> (usize, u64) {
    let hash = stretch.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (usize::try_from(hash >> 38).unwrap_or(0) & words.saturating_sub(1), 1 << (hash >> 32 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "q7Rb2kLw9ZtX4vNc8mYpT3sH";

    fn found(secret: &str, fields: &[&str]) -> bool {
        let pieces = SecretPieces::new([(0, "raw", secret.as_bytes().to_vec())]);
        let mut trail = pieces.trail();
        for field in fields {
            let field = squeezed(field.as_bytes());
            pieces.read(&field, &mut trail);
            pieces.edges(&field, &mut trail);
        }
        pieces.reassembled_secrets(&trail).count() == 1
    }

    #[test]
    fn pieces_are_found_in_any_order_and_anywhere_in_a_field() {
        let (one, two) = SECRET.split_at(11);
        assert!(found(SECRET, &[two, one]));
        assert!(found(SECRET, &[&format!("see {two} there"), &format!("and {one}, too")]));
        assert!(found(SECRET, &[&format!("{two} comes after {one}")]));
        assert!(found(SECRET, &[&SECRET[..6], &SECRET[18..], &SECRET[6..12], &SECRET[12..18]]));
        assert!(found(SECRET, &[&SECRET[..21], &SECRET[21..]]), "a stub at the edge of a field");
    }

    #[test]
    fn a_beginning_alone_is_no_secret_and_neither_are_crumbs() {
        assert!(!found(SECRET, &[&SECRET[..18]]));
        assert!(!found(SECRET, &[&SECRET[6..]]));
        let crumbs: Vec<String> =
            SECRET.as_bytes().chunks(5).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        assert!(!found(SECRET, &crumbs.iter().map(String::as_str).collect::<Vec<_>>()));
        let hook = "https://hooks.chat.example/services/T01AB2CD3/B0ZZ9Q1/kP3vX8tR5nM2";
        assert!(!found(hook, &["see https://hooks.chat.example/services/ for how it works", "T01AB2CD3 is the team"]));
    }

    #[test]
    fn a_short_secret_is_found_at_the_edges_of_two_fields() {
        assert!(found("hunter2024", &["r2024", "it is hunte"]));
        assert!(!found("hunter2024", &["we met in 2024", "hunter and fox"]));
    }

    #[test]
    fn blanks_of_every_kind_are_left_out() {
        assert_eq!(&*squeezed("a b\u{a0}c\u{2009}d\u{3000}e\r\n\tf\u{200b}gß".as_bytes()), "abcdefgß".as_bytes());
        assert!(matches!(squeezed(b"plain"), Cow::Borrowed(_)));
    }
}
