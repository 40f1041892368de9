//! Stage 4: detects text that tries to control its reader or the machines behind the reader.
//!
//! Takes `DefusedContent` and nothing else, gives `ScreenedContent`. Promise: no parameter exists through which trust in a sender
//! could affect the score; every surface is read, plain and decoded; every point has a finding.

mod code;
mod documents;
mod lexicon;
mod patterns;
mod phrases;
mod rules;
mod sentences;
mod structure;

use super::encoding::fold::fold;
use super::encoding::views::{atbash, caesar, reversed, rot13, views};
use super::encoding::{DetectorSurface, settle};
use super::html::DefusedContent;
use super::size::JsonStringsKind;
use crate::finding::{Carrier, ContentStage, Finding};
use sentences::TextReading;

/// Content whose findings are known.
#[derive(Debug, Clone)]
pub struct ScreenedContent<'a> {
    pub(super) defused: DefusedContent<'a>,
    pub(super) points: f32,
}

impl ScreenedContent<'_> {
    pub(super) fn is_json(&self) -> bool {
        self.defused.json.is_some()
    }

    /// Whether the content was declared as JSON.
    pub(super) fn claims_json(&self) -> bool {
        self.defused.json.is_some_and(|strings| strings != JsonStringsKind::Unsaid)
    }

    pub(super) fn text(&self) -> &str {
        &self.defused.text
    }

    pub(super) fn note(&mut self, finding: Finding) {
        self.defused.findings.push(finding);
    }
}

/// The factor by which a covert carrier increases the weight of its text.
const COVERT: f32 = 1.35;
/// Most findings that are kept for one surface.
const KEPT: usize = 12;

/// Runs stage 4.
#[must_use]
pub fn screen(mut defused: DefusedContent<'_>) -> ScreenedContent<'_> {
    let mut best = 0.0_f32;
    let mut findings = Vec::new();
    // JSON that is shown is read as its decoded content, not as it is written.
    if !(defused.json.is_some() && defused.documents.first().is_some_and(|document| document.is_valid)) {
        look(&defused.text, Carrier::Plain, &mut best, &mut findings);
    }
    for document in &defused.documents {
        documents::look_at(document, &mut best, &mut findings);
    }
    for surface in &defused.surfaces {
        look(&surface.text, surface.carrier, &mut best, &mut findings);
    }
    let smuggled: f32 = defused.findings.iter().map(|finding| finding.score).fold(0.0, f32::max);
    defused.findings.append(&mut findings);
    ScreenedContent { defused, points: best + smuggled }
}

/// Reads a surface, and every text that is encoded in it.
fn look(text: &str, carrier: Carrier, best: &mut f32, findings: &mut Vec<Finding>) {
    let folded = fold(text);
    let disguised = folded.dressed >= 6 || folded.mixed >= 3;
    if disguised {
        findings.push(Finding { carrier, ..Finding::note(ContentStage::Encoding, "confusable", 0) });
    }
    let own = if disguised && matches!(carrier, Carrier::Plain | Carrier::Json) { Carrier::Homoglyph } else { carrier };
    let plain = judge(&folded.text, own, best, findings);
    let mut inner: Vec<DetectorSurface> = views(&folded.text);
    inner.extend(deciphered_surfaces(&plain, &folded.text));
    for view in inner {
        // Decoded text can contain what stage 2 removes.
        let (mut hidden, mut smuggled) = (Vec::new(), Vec::new());
        let text = settle(view.text, &mut hidden, &mut smuggled);
        *best = smuggled.iter().map(|finding| finding.score).fold(*best, f32::max);
        findings.extend(smuggled.into_iter().filter(|finding| finding.score > 0.0));
        for surface in hidden {
            judge(&fold(&surface.text).text, surface.carrier, best, findings);
        }
        let again = fold(&text);
        let seen = judge(&again.text, view.carrier, best, findings);
        for surface in deciphered_surfaces(&seen, &again.text) {
            judge(&surface.text, surface.carrier, best, findings);
        }
    }
}

/// A letter substitution: whether it was detected, its carrier, and the function that reverses it.
type LetterCipher = (bool, Carrier, fn(&str) -> String);

/// The text with its letters restored, as far as its most common words show a substitution.
fn deciphered_surfaces<'a>(reading: &TextReading, text: &'a str) -> impl Iterator<Item = DetectorSurface> + use<'a> {
    let ways: [LetterCipher; 4] = [
        (reading.turned, Carrier::Rot13, rot13),
        (reading.backwards, Carrier::Reversed, reversed),
        (reading.moved, Carrier::Cipher, caesar),
        (reading.mirrored, Carrier::Cipher, atbash),
    ];
    ways.into_iter().filter(|(wanted, ..)| *wanted).map(|(_, carrier, undo)| DetectorSurface::new(carrier, undo(text)))
}

/// Scores one text. The score of an item is that of its worst surface.
fn judge(text: &str, carrier: Carrier, best: &mut f32, findings: &mut Vec<Finding>) -> TextReading {
    let mut reading = sentences::read(text);
    structure::weigh(text, &mut reading);
    code::weigh(text, &mut reading);
    let factor = if carrier.is_covert() { COVERT } else { 1.0 };
    let points = reading.points() * factor;
    *best = best.max(points);
    reading.hits.sort_by(|one, other| other.points.total_cmp(&one.points));
    findings.extend(reading.hits.iter().take(KEPT).map(|hit| Finding {
        stage: ContentStage::Injection,
        rule: hit.rule,
        carrier,
        span: hit.span,
        score: hit.points * factor,
    }));
    reading
}

/// Builds every pattern of this stage, which otherwise happens when a text first needs it.
pub(crate) fn build() {
    phrases::build();
    code::build();
}

/// All words of the lexicon, for measuring other engines with the same words.
#[must_use]
pub fn words() -> Vec<String> {
    lexicon::LEXICON.words().collect()
}

/// The number of rules.
#[must_use]
pub fn rule_count() -> usize {
    rules::count() + phrases::count() + code::count()
}
