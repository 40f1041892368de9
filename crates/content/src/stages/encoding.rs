//! Stage 2: turns bytes into text that means what it shows.
//!
//! Takes `BoundedContent`, gives `TextContent`. Promise: the output is UTF-8 without characters that hide, reorder or control; text
//! that was hidden with them is kept as a surface for the detectors and never shown.

pub(super) mod fold;
mod hidden_characters;
mod homoglyphs;
pub(super) mod views;

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use serde_json::{Value, json};
use sluice_core::json::{JsonTextKind, classify};

use super::json::{JsonDocument, JsonStringRole, MarkupIntent, joined};
use super::size::{BoundedContent, ContentFormat, ContentPiece, JsonStringsKind, looks_wide};
use crate::finding::{Carrier, ContentStage, Finding};

/// A text that only detectors read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetectorSurface {
    pub(super) carrier: Carrier,
    pub(super) text: String,
}

/// One text of one kind.
#[derive(Debug, Clone)]
pub(super) struct TextPassage<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) kind: ContentFormat,
    pub(super) shown: bool,
    /// The parsed text, if it is JSON. Then the document counts.
    pub(super) document: Option<JsonDocument>,
}

/// Content whose text means what it shows.
#[derive(Debug, Clone)]
pub struct TextContent<'a> {
    pub(super) passages: Vec<TextPassage<'a>>,
    pub(super) surfaces: Vec<DetectorSurface>,
    pub(super) findings: Vec<Finding>,
}

/// Runs stage 2. It never refuses: bytes that cannot be decoded become replacement characters and a finding.
#[must_use]
pub fn read(bounded: BoundedContent<'_>) -> TextContent<'_> {
    read_as(bounded, None)
}

/// Runs stage 2, where a schema describes the strings of JSON ([`super::ScreeningPlan::shape`]).
#[must_use]
pub fn read_as<'a>(bounded: BoundedContent<'a>, shape: Option<&Value>) -> TextContent<'a> {
    let BoundedContent { pieces, mut findings } = bounded;
    let mut surfaces = Vec::new();
    let passages = pieces.into_iter().map(|piece| {
        let (kind, shown) = (piece.kind, piece.shown);
        let text = decode(piece, &mut findings);
        if let ContentFormat::Json(strings) = kind {
            let document = read_json(text, (strings, shape), &mut surfaces, &mut findings);
            return TextPassage { text: Cow::Borrowed(""), kind, shown, document: Some(document) };
        }
        TextPassage { text: hidden_characters::settle(text, &mut surfaces, &mut findings), kind, shown, document: None }
    });
    let passages = passages.collect();
    TextContent { passages, surfaces, findings }
}

/// Reads JSON whose strings and keys are cleaned: an escaped character is treated as if it were literal.
fn read_json(
    text: Cow<'_, str>,
    (strings, shape): (JsonStringsKind, Option<&Value>),
    surfaces: &mut Vec<DetectorSurface>,
    findings: &mut Vec<Finding>,
) -> JsonDocument {
    let mut found = Vec::new();
    // A stray character between strings, or one that is not allowed raw inside them, does not make the text different.
    let text = match classify(text.as_bytes()) {
        JsonTextKind::One | JsonTextKind::Several | JsonTextKind::Repeated => text,
        JsonTextKind::Broken => hidden_characters::settle(text, surfaces, &mut found),
    };
    let tool_result = json!({"properties": {"content": {"items": {"properties": {
        "text": {"contentMediaType": "text/plain"},
    }}}}});
    let (otherwise, shape) = match strings {
        JsonStringsKind::Data => (MarkupIntent::Data, shape),
        JsonStringsKind::Unsaid | JsonStringsKind::Definition => (MarkupIntent::Source, shape),
        JsonStringsKind::ToolResult => (MarkupIntent::Data, Some(&tool_result)),
    };
    let mut document = JsonDocument::read(text.into_owned(), otherwise, shape);
    settle_strings(&mut document, surfaces, &mut found);
    findings.extend(Finding::heaviest_of_each(found));
    document
}

/// Removes from each string of a document what stage 2 removes from a text.
pub(super) fn settle_strings(
    document: &mut JsonDocument,
    surfaces: &mut Vec<DetectorSurface>,
    findings: &mut Vec<Finding>,
) {
    let leaves = document.leaves();
    if leaves.iter().all(|(_, text)| hidden_characters::is_fine(text)) {
        return;
    }
    let mut found = Vec::new();
    // Letters can be smuggled a few in each string.
    for role in [JsonStringRole::Value, JsonStringRole::Key] {
        let mut smuggled = Vec::new();
        hidden_characters::settle(Cow::Owned(joined(&leaves, role, "")), &mut smuggled, &mut found);
        surfaces.extend(smuggled.into_iter().filter(|surface| surface.carrier != Carrier::Bidi));
    }
    document.each(&mut |text, _| match hidden_characters::settle(Cow::Borrowed(text), surfaces, &mut found) {
        Cow::Borrowed(_) => None,
        Cow::Owned(settled) => Some(settled),
    });
    findings.extend(Finding::heaviest_of_each(found));
}

/// Decodes by the declared charset, else a byte order mark, else UTF-8 if it is valid, else a guess. JSON is always
/// UTF-8, and invalid bytes become replacement characters.
fn decode<'a>(piece: ContentPiece<'a>, findings: &mut Vec<Finding>) -> Cow<'a, str> {
    let is_json = matches!(piece.kind, ContentFormat::Json(_));
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
            findings.push(Finding::note(ContentStage::Encoding, "charset.guessed", 0));
            guess(&bytes)
        }
    };
    if declared.is_some_and(|declared| declared != encoding) {
        findings.push(Finding::note(ContentStage::Encoding, "charset.mismatch", 0));
    }
    let (text, _, broken) = encoding.decode(&bytes);
    if broken {
        findings.push(Finding::note(ContentStage::Encoding, "charset.broken", 0));
    }
    Cow::Owned(text.into_owned())
}

fn wide(bytes: &[u8]) -> &'static Encoding {
    let high_first = bytes.chunks_exact(2).take(64).filter(|pair| pair.first() == Some(&0)).count() > 32;
    if high_first { UTF_16BE } else { UTF_16LE }
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    // Enough for a decision; more megabytes do not improve the guess.
    detector.feed(bytes.get(..64 << 10).unwrap_or(bytes), true);
    detector.guess(None, Utf8Detection::Allow)
}

impl DetectorSurface {
    pub(super) fn new(carrier: Carrier, text: String) -> Self {
        Self { carrier, text }
    }
}

/// Removes from a decoded text what stage 2 removes from a raw one.
pub(super) fn settle(text: String, surfaces: &mut Vec<DetectorSurface>, findings: &mut Vec<Finding>) -> String {
    hidden_characters::settle(Cow::Owned(text), surfaces, findings).into_owned()
}
