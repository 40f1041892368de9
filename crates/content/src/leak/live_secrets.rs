//! Live secrets: the secrets of the vault, in every encoding in which they may leave.
//!
//! Takes the secrets of the vault with their ids; finds them raw, in base64 (three alignments, both alphabets), hex,
//! percent encoding, JSON escapes, quoted-printable, UTF-16, reversed and folded. Promise: neither the secrets nor
//! their forms can be printed, and a hit names only the id of the secret and the form.

use std::fmt;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::bytes::{at, before, is_alnum};
use super::fold::any_folding;
use super::pieces::{SecretPieces, SeenPieces, squeezed};

/// Shorter secrets are matched only in raw form and only as a whole word: encoded forms would match by chance.
pub const SHORT: usize = 8;
/// Longer secrets are searched in pieces only in their raw form.
const LONG: usize = 256;
/// Shorter secrets cannot be searched for at all: every text contains them.
pub const TOO_SHORT: usize = 4;

/// The live secrets of a vault, prepared for search. Built again whenever the vault changes.
#[derive(Default)]
pub struct LiveSecrets {
    search: Option<AhoCorasick>,
    /// The first four bytes of each form, by their hash: this skips most positions of a text.
    starts: Vec<u64>,
    /// For each form: its secret, its encoding, and whether it must be a whole word.
    forms: Vec<(usize, &'static str, bool)>,
    ids: Vec<String>,
    skipped: Vec<String>,
    pieces: SecretPieces,
}

impl fmt::Debug for LiveSecrets {
    /// SECURITY: shows counts only. The automaton holds the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSecrets")
            .field("secrets", &self.ids.len())
            .field("skipped", &self.skipped.len())
            .finish_non_exhaustive()
    }
}

/// A secret was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SecretMatch<'a> {
    pub(super) secret: &'a str,
    pub(super) form: &'static str,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl LiveSecrets {
    /// Prepares the search for all secrets.
    ///
    /// # Errors
    /// When there are too many for one search (gigabytes of them); then nothing may leave.
    pub fn new<I, B>(secrets: impl IntoIterator<Item = (I, B)>) -> Result<Self, TooManySecretsError>
    where
        I: Into<String>,
        B: AsRef<[u8]>,
    {
        let (mut made, mut needles, mut split) = (Self::default(), Vec::new(), Vec::new());
        for (id, secret) in secrets {
            let secret = secret.as_ref().trim_ascii();
            if secret.len() < TOO_SHORT {
                made.skipped.push(id.into());
                continue;
            }
            let n = made.ids.len();
            made.ids.push(id.into());
            for (form, needle) in forms(secret) {
                if form == "raw" || secret.len() <= LONG && matches!(form, "base64" | "base64url" | "hex") {
                    split.push((n, form, needle.clone()));
                }
                needles.push(needle);
                made.forms.push((n, form, secret.len() < SHORT));
            }
        }
        if !needles.is_empty() {
            let mut search = AhoCorasick::builder();
            search.match_kind(MatchKind::LeftmostLongest).start_kind(StartKind::Anchored);
            made.search = Some(search.build(&needles).map_err(|_| TooManySecretsError)?);
            made.starts = vec![0; STARTS];
            for needle in &needles {
                let (word, bit) = start(needle);
                if let Some(word) = made.starts.get_mut(word) {
                    *word |= bit;
                }
            }
        }
        made.pieces = SecretPieces::new(split);
        for needle in &mut needles {
            needle.fill(0);
        }
        Ok(made)
    }

    /// Ids of secrets that are too short to search for.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The number of secrets that are searched for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no secrets to search for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Every position of a secret, in any form: in the text as it is, and without its blanks. Possible pieces of
    /// secrets are kept in the trail.
    pub(super) fn look<'a>(&'a self, text: &[u8], trail: &mut SeenPieces) -> Vec<SecretMatch<'a>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut found = self.find(text);
        let tight = squeezed(text);
        self.pieces.read(&tight, trail);
        if tight.len() < text.len() {
            // Short secrets must be whole words, and without blanks nothing is.
            let long = |seen: &SecretMatch<'_>| seen.end - seen.start >= SHORT;
            found.extend(self.find(&tight).into_iter().filter(long));
        }
        found
    }

    /// An empty trail for one call.
    pub(super) fn trail(&self) -> SeenPieces {
        self.pieces.trail()
    }

    /// Keeps the start and end of a field.
    pub(super) fn edges(&self, field: &[u8], trail: &mut SeenPieces) {
        if !self.is_empty() {
            self.pieces.edges(&squeezed(field), trail);
        }
    }

    /// The secrets that can be assembled from the pieces.
    pub(super) fn secrets_from_pieces<'a>(
        &'a self,
        trail: &'a SeenPieces,
    ) -> impl Iterator<Item = SecretMatch<'a>> + 'a {
        self.pieces.reassembled_secrets(trail).filter_map(|(secret, form, end)| {
            self.ids.get(secret).map(|secret| SecretMatch { secret, form, start: 0, end })
        })
    }

    pub(super) fn find<'a>(&'a self, text: &[u8]) -> Vec<SecretMatch<'a>> {
        let mut found = Vec::new();
        let Some(search) = &self.search else { return found };
        let mut next = 0;
        for (place, window) in text.windows(TOO_SHORT).enumerate() {
            let (word, bit) = start(window);
            if place < next || self.starts.get(word).is_none_or(|word| word & bit == 0) {
                continue;
            }
            let Some(hit) = search.find(Input::new(text).range(place..).anchored(Anchored::Yes)) else { continue };
            let (start, end) = (hit.start(), hit.end());
            let inside = is_alnum(before(text, start)) || is_alnum(at(text, end));
            let form = self.forms.get(hit.pattern().as_usize());
            let Some((secret, form, _)) = form.filter(|(_, _, alone)| !(*alone && inside)) else { continue };
            next = end;
            found.extend(self.ids.get(*secret).map(|secret| SecretMatch { secret, form, start, end }));
        }
        found
    }
}

/// The number of words in the table of starts: 64 Ki bits.
const STARTS: usize = 1024;

/// The position of the first four bytes of a text in the table of starts: word and bit.
#[inline]
fn start(text: &[u8]) -> (usize, u64) {
    let first = text.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let hash = first.wrapping_mul(0x9E37_79B1);
    ((hash >> 22) as usize, 1 << (hash >> 16 & 63))
}

/// There are more secrets than one search can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the vault holds more secrets than the leak scan can search for")]
pub struct TooManySecretsError;

/// All forms of a secret, without duplicates.
fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut forms = vec![("raw", secret.to_vec())];
    if secret.len() < SHORT {
        return forms;
    }
    for skip in 0..3 {
        for (name, alphabet) in [("base64", STANDARD_NO_PAD), ("base64url", URL_SAFE_NO_PAD)] {
            let shifted: Vec<u8> = std::iter::repeat_n(0, skip).chain(secret.iter().copied()).collect();
            let text = alphabet.encode(&shifted);
            // Characters that also hold bits of the text before or after the secret are left out.
            let (from, to) = ((skip * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.extend(text.get(from..to).map(|inner| (name, inner.as_bytes().to_vec())));
        }
    }
    let hex = |upper: bool| -> Vec<u8> {
        let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
        let digit = |n: u8| digits.get(usize::from(n)).copied().unwrap_or(b'0');
        secret.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    };
    forms.push(("hex", hex(false)));
    forms.push(("hex", hex(true)));
    for upper in [true, false] {
        let escape = |byte: &u8| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
        let kept = |byte: &u8| is_alnum(*byte) || matches!(byte, b'-' | b'_' | b'.' | b'~');
        let some = secret.iter().flat_map(|byte| if kept(byte) { vec![*byte] } else { escape(byte).into_bytes() });
        forms.push(("percent", some.collect()));
        forms.push(("percent", secret.iter().flat_map(|byte| escape(byte).into_bytes()).collect()));
    }
    let quoted = secret.iter().flat_map(|byte| match byte {
        b'=' => b"=3D".to_vec(),
        0x20..=0x7E => vec![*byte],
        other => format!("={other:02X}").into_bytes(),
    });
    forms.push(("quoted-printable", quoted.collect()));
    if let Ok(text) = std::str::from_utf8(secret) {
        let escaped = serde_json::to_string(text).unwrap_or_default();
        let inner = escaped.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
        forms.push(("json", inner.as_bytes().to_vec()));
        forms.push(("json", inner.replace('/', "\\/").into_bytes()));
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        forms.push(("json", units.into_bytes()));
        let entities = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        forms.push(("entities", entities.into_bytes()));
        forms.push(("utf-16", text.encode_utf16().flat_map(u16::to_le_bytes).collect()));
        forms.push(("utf-16", text.encode_utf16().flat_map(u16::to_be_bytes).collect()));
    }
    forms.push(("reversed", secret.iter().rev().copied().collect()));
    any_folding(secret, |folded| {
        if folded.len() >= SHORT {
            forms.push(("folded", folded.to_vec()));
            forms.push(("folded", folded.iter().rev().copied().collect()));
        }
        false
    });
    let mut seen = std::collections::BTreeSet::new();
    forms.retain(|(_, form)| form.len() >= TOO_SHORT && seen.insert(form.clone()));
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Not-A-Real=Secret/42&<x>";

    fn seen(live: &LiveSecrets, text: &[u8]) -> Vec<&'static str> {
        live.find(text).into_iter().map(|seen| seen.form).collect()
    }

    #[test]
    fn a_secret_is_found_in_every_dress_at_every_place() {
        let live = LiveSecrets::new([("mail", SECRET)]).unwrap();
        for lead in ["", "a", "ab", "abc"] {
            let wrapped = format!("{lead}{SECRET} and more");
            for (form, text) in [
                ("base64", STANDARD_NO_PAD.encode(&wrapped)),
                ("base64", URL_SAFE_NO_PAD.encode(&wrapped)),
                ("hex", wrapped.bytes().map(|byte| format!("{byte:02x}")).collect()),
                ("hex", wrapped.bytes().map(|byte| format!("{byte:02X}")).collect()),
                ("percent", wrapped.bytes().map(|byte| format!("%{byte:02X}")).collect()),
                ("raw", wrapped.clone()),
            ] {
                let found = seen(&live, text.as_bytes());
                assert_eq!(found.len(), 1, "{form} after {lead:?}: {found:?}");
            }
        }
        let wide: Vec<u8> = SECRET.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(seen(&live, &wide), ["utf-16"]);
        let backwards: String = SECRET.chars().rev().collect();
        assert_eq!(seen(&live, backwards.as_bytes()), ["reversed"]);
        assert_eq!(seen(&live, b"nothing of the kind"), Vec::<&str>::new());
    }

    #[test]
    fn a_short_secret_must_stand_alone_and_a_tiny_one_is_named_as_skipped() {
        let live = LiveSecrets::new([("pin", "48151"), ("tiny", "ab")]).unwrap();
        assert_eq!(live.skipped(), ["tiny"]);
        assert_eq!(seen(&live, b"the code 48151, please"), ["raw"]);
        assert_eq!(seen(&live, b"order 2481516 arrived"), Vec::<&str>::new());
    }

    #[test]
    fn nothing_printable_holds_a_secret() {
        let live = LiveSecrets::new([("mail", SECRET)]).unwrap();
        let shown = format!("{live:?}");
        assert!(!shown.contains("Real") && !shown.contains("mail"), "{shown}");
    }
}
