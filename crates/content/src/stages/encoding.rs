//! Stage 2: bytes become text that means what it shows.
//!
//! Takes `Bounded`, gives `Text`. Promise: what comes out is UTF-8 without characters that hide, reorder
//! or control; whatever was hidden that way is kept as a surface for the detectors and never shown.

pub(super) mod fold;
mod homoglyphs;
mod marks;
pub(super) mod views;

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use serde_json::{Value, json};
use sluice_core::json::{Reading, reading};

use super::json::{Document, Intent, Role, joined};
use super::size::{Bounded, Kind, Piece, Strings, looks_wide};
use crate::finding::{Carrier, Finding, Stage};

/// A text that only detectors read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surface {
    pub(super) carrier: Carrier,
    pub(super) text: String,
}

/// One text of one kind.
#[derive(Debug, Clone)]
pub(super) struct Passage<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) kind: Kind,
    pub(super) shown: bool,
    /// The text taken apart, if it is JSON. It is then what counts.
    pub(super) document: Option<Document>,
}

/// Content as honest text.
#[derive(Debug, Clone)]
pub struct Text<'a> {
    pub(super) passages: Vec<Passage<'a>>,
    pub(super) surfaces: Vec<Surface>,
    pub(super) findings: Vec<Finding>,
}

/// Stage 2. It never refuses: what cannot be read becomes replacement characters and a finding.
#[must_use]
pub fn read(bounded: Bounded<'_>) -> Text<'_> {
    read_as(bounded, None)
}

/// Stage 2, where a schema says what the strings of JSON are ([`super::Plan::shape`]).
#[must_use]
pub fn read_as<'a>(bounded: Bounded<'a>, shape: Option<&Value>) -> Text<'a> {
    let Bounded { pieces, mut findings } = bounded;
    let mut surfaces = Vec::new();
    let passages = pieces.into_iter().map(|piece| {
        let (kind, shown) = (piece.kind, piece.shown);
        let text = decode(piece, &mut findings);
        if let Kind::Json(strings) = kind {
            let document = read_json(text, (strings, shape), &mut surfaces, &mut findings);
            return Passage { text: Cow::Borrowed(""), kind, shown, document: Some(document) };
        }
        Passage { text: marks::settle(text, &mut surfaces, &mut findings), kind, shown, document: None }
    });
    let passages = passages.collect();
    Text { passages, surfaces, findings }
}

/// JSON, each string and key of which is honest text: what an escape stands for is treated as if it had stood there.
fn read_json(
    text: Cow<'_, str>,
    (strings, shape): (Strings, Option<&Value>),
    surfaces: &mut Vec<Surface>,
    findings: &mut Vec<Finding>,
) -> Document {
    let mut found = Vec::new();
    // A stray character between strings, or one that may not stand in them raw, makes no other text of it.
    let text = match reading(text.as_bytes()) {
        Reading::One | Reading::Several | Reading::Repeated => text,
        Reading::Broken => marks::settle(text, surfaces, &mut found),
    };
    let tool_result = json!({"properties": {"content": {"items": {"properties": {
        "text": {"contentMediaType": "text/plain"},
    }}}}});
    let (otherwise, shape) = match strings {
        Strings::Data => (Intent::Data, shape),
        Strings::Unsaid | Strings::Definition => (Intent::Source, shape),
        Strings::ToolResult => (Intent::Data, Some(&tool_result)),
    };
    let mut document = Document::read(text.into_owned(), otherwise, shape);
    settle_strings(&mut document, surfaces, &mut found);
    findings.extend(Finding::heaviest_of_each(found));
    document
}

/// Takes out of each string of a document what stage 2 takes out of a text.
pub(super) fn settle_strings(document: &mut Document, surfaces: &mut Vec<Surface>, findings: &mut Vec<Finding>) {
    let leaves = document.leaves();
    if leaves.iter().all(|(_, text)| marks::is_fine(text)) {
        return;
    }
    let mut found = Vec::new();
    // Letters can be smuggled a few in each string.
    for role in [Role::Value, Role::Key] {
        let mut smuggled = Vec::new();
        marks::settle(Cow::Owned(joined(&leaves, role, "")), &mut smuggled, &mut found);
        surfaces.extend(smuggled.into_iter().filter(|surface| surface.carrier != Carrier::Bidi));
    }
    document.each(&mut |text, _| match marks::settle(Cow::Borrowed(text), surfaces, &mut found) {
        Cow::Borrowed(_) => None,
        Cow::Owned(settled) => Some(settled),
    });
    findings.extend(Finding::heaviest_of_each(found));
}

/// The charset that was declared, else a byte order mark, else UTF-8 if it is valid, else a guess; but JSON is UTF-8, and
/// what is not becomes replacement characters.
fn decode<'a>(piece: Piece<'a>, findings: &mut Vec<Finding>) -> Cow<'a, str> {
    let is_json = matches!(piece.kind, Kind::Json(_));
    let declared = piece.charset.as_deref().and_then(|label| Encoding::for_label(label.as_bytes()));
    let marked = Encoding::for_bom(&piece.bytes).map(|(encoding, _)| encoding);
    let plain_utf8 = marked.is_none_or(|mark| mark == UTF_8) && declared.is_none_or(|declared| declared == UTF_8);
    let bytes = match piece.bytes {
        Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if plain_utf8 && !text.contains('\0') => {
                return Cow::Borrowed(text.trim_start_matches('\u{feff}'));
            }
            _ => bytes.to_vec(),
        },
        Cow::Owned(bytes) => bytes,
    };
    let valid = std::str::from_utf8(&bytes).is_ok();
    let encoding = match (marked, declared) {
        (Some(mark), _) => mark,
        (None, Some(declared)) if declared != UTF_8 || valid => declared,
        _ if looks_wide(bytes.get(..4096).unwrap_or(&bytes)) => wide(&bytes),
        _ if valid || is_json => UTF_8,
        _ => {
            findings.push(Finding::note(Stage::Encoding, "charset.guessed", 0));
            guess(&bytes)
        }
    };
    if declared.is_some_and(|declared| declared != encoding) {
        findings.push(Finding::note(Stage::Encoding, "charset.mismatch", 0));
    }
    let (text, _, broken) = encoding.decode(&bytes);
    if broken {
        findings.push(Finding::note(Stage::Encoding, "charset.broken", 0));
    }
    Cow::Owned(text.into_owned())
}

fn wide(bytes: &[u8]) -> &'static Encoding {
    let high_first = bytes.chunks_exact(2).take(64).filter(|pair| pair.first() == Some(&0)).count() > 32;
    if high_first { UTF_16BE } else { UTF_16LE }
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    // Enough to tell; a guess over megabytes says nothing more.
    detector.feed(bytes.get(..64 << 10).unwrap_or(bytes), true);
    detector.guess(None, Utf8Detection::Allow)
}

impl Surface {
    pub(super) fn new(carrier: Carrier, text: String) -> Self {
        Self { carrier, text }
    }
}

/// Takes out of a decoded text what stage 2 takes out of a raw one.
pub(super) fn settle(text: String, surfaces: &mut Vec<Surface>, findings: &mut Vec<Finding>) -> String {
    marks::settle(Cow::Owned(text), surfaces, findings).into_owned()
}
