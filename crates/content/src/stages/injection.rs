//! Stage 4: detects text that tries to control its reader or the machines behind the reader.
//!
//! Takes `DefusedContent` and nothing else, gives `ScreenedContent`. Promise: no parameter exists through which trust in a sender
//! could affect the score; every surface is read, plain and decoded; every point has a finding.

mod code;
mod documents;
mod layout;
mod lexicon;
mod patterns;
mod phrases;
mod rules;
mod sentences;
mod structure;
mod weights;

use super::encoding::fold::fold;
use super::encoding::views::{atbash, caesar, reversed, rot13, views};
use super::encoding::{DetectorSurface, settle};
use super::html::DefusedContent;
use super::output::OutputContext;
use super::size::JsonStringsKind;
use crate::finding::{Carrier, ContentStage, Finding};
use sentences::{SaidSentences, TextReading};

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

/// The share of its weight, in hundredths, that a text counts with in plain sight, and in a covert carrier.
const PLAIN: i64 = 100;
const COVERT: i64 = 135;
/// Most findings that are kept for one surface.
const KEPT: usize = 12;

/// Runs stage 4.
#[must_use]
pub fn screen(mut defused: DefusedContent<'_>) -> ScreenedContent<'_> {
    let mut scan = InjectionScan { place: defused.place, ..InjectionScan::default() };
    scan.content(&defused);
    let smuggled: f32 = defused.findings.iter().map(|finding| finding.score).fold(0.0, f32::max);
    defused.findings.append(&mut scan.findings);
    ScreenedContent { defused, points: scan.best + smuggled }
}

/// The scan of one item: the points of its worst text, and what was found in all of them.
#[derive(Debug, Default)]
struct InjectionScan {
    /// Where the item goes: code is a finding only where something would run it.
    place: OutputContext,
    best: f32,
    findings: Vec<Finding>,
    /// The matches of each text, for learning weights.
    evidence: Option<Vec<TextEvidence>>,
}

impl InjectionScan {
    fn content(&mut self, defused: &DefusedContent<'_>) {
        // JSON that is shown is read as its decoded content, not as it is written.
        if !(defused.json.is_some() && defused.documents.first().is_some_and(|document| document.is_valid)) {
            self.look(&defused.text, Carrier::Plain);
        }
        for document in &defused.documents {
            documents::look_at(document, self);
        }
        for surface in &defused.surfaces {
            self.look(&surface.text, surface.carrier);
        }
    }

    /// Reads a surface, and every text that is encoded in it.
    fn look(&mut self, text: &str, carrier: Carrier) {
        let folded = fold(text);
        let disguised = folded.dressed >= 6 || folded.mixed >= 3;
        if disguised {
            self.findings.push(Finding { carrier, ..Finding::note(ContentStage::Encoding, "confusable", 0) });
        }
        let own =
            if disguised && matches!(carrier, Carrier::Plain | Carrier::Json) { Carrier::Homoglyph } else { carrier };
        let plain = self.judge(&folded.text, own, None);
        if let Some(columns) = layout::columns(&folded.text) {
            self.judge(&columns, own, None);
        }
        let mut inner: Vec<DetectorSurface> = views(&layout::without_diff_signs(&folded.text));
        inner.extend(deciphered_surfaces(&plain, &folded.text));
        if inner.is_empty() {
            return;
        }
        let said = plain.said();
        for view in inner {
            // Decoded text can contain what stage 2 removes.
            let (mut hidden, mut smuggled) = (Vec::new(), Vec::new());
            let text = settle(view.text, &mut hidden, &mut smuggled);
            self.best = smuggled.iter().map(|finding| finding.score).fold(self.best, f32::max);
            self.findings.extend(smuggled.into_iter().filter(|finding| finding.score > 0.0));
            for surface in hidden {
                self.judge(&fold(&surface.text).text, surface.carrier, None);
            }
            let again = fold(&text);
            let seen = self.judge(&again.text, view.carrier, Some(&said));
            for surface in deciphered_surfaces(&seen, &again.text) {
                self.judge(&surface.text, surface.carrier, Some(&said));
            }
        }
    }

    /// Scores one text. The score of an item is that of its worst text. What was `said` in plain sight is not covert.
    fn judge(&mut self, text: &str, carrier: Carrier, said: Option<&SaidSentences>) -> TextReading {
        let flat = layout::flatten(text);
        let mut reading = sentences::read(&flat.text);
        structure::weigh(&flat.text, &mut reading);
        let covert = carrier.is_covert();
        let share = |sentence: &str| match said {
            _ if !covert => PLAIN,
            Some(said) if said.has(sentence) => PLAIN,
            _ => COVERT,
        };
        let tally = reading.weigh(&flat.text, share);
        let code = code::find(text, &reading, self.place);
        let points = tally.points(reading.place_points()) + code.iter().map(|hit| hit.points).fold(0.0, f32::max);
        self.best = self.best.max(points);
        if let Some(evidence) = &mut self.evidence {
            evidence.push(reading.evidence());
        }
        let mut found: Vec<Finding> = reading
            .hits
            .iter()
            .chain(&reading.places)
            .map(|hit| Finding {
                stage: ContentStage::Injection,
                rule: weights::name(hit.rule),
                carrier,
                span: flat.original(hit.span),
                score: weights::in_points(weights::of(hit.rule) * hit.share / 100),
            })
            .collect();
        found.extend(code.into_iter().map(|hit| Finding {
            stage: ContentStage::Injection,
            rule: hit.name,
            carrier,
            span: hit.span,
            score: hit.points,
        }));
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        // What calms a text is named beside what alarms.
        let calm = found.iter().rev().take_while(|finding| finding.score < 0.0).take(2).cloned().collect::<Vec<_>>();
        found.truncate(KEPT);
        found.retain(|finding| finding.score >= 0.0);
        found.extend(calm);
        self.findings.append(&mut found);
        reading
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

/// The matches of one text of an item, for learning weights: rules by their index in [`weights`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextEvidence {
    /// For each match: the number of its sentence, its rule, and the share of the weight in hundredths.
    pub hits: Vec<(usize, usize, i64)>,
    /// For each sentence with several ideas: its number, the ideas as bits, and the share of the weight in hundredths.
    pub ideas: Vec<(usize, u128, i64)>,
    /// The rules about places.
    pub places: Vec<usize>,
}

/// The name of each written rule, its points before learning in thousandths, and whether learning may only raise them.
pub fn weights() -> impl Iterator<Item = (&'static str, i64, bool)> {
    weights::all()
}

/// The names of the ideas, by their bits.
#[must_use]
pub fn ideas() -> &'static [&'static str] {
    lexicon::IdeaSet::NAMES
}

/// The matches of every text of an item, in place of its score.
#[must_use]
pub fn evidence(defused: &DefusedContent<'_>) -> Vec<TextEvidence> {
    let mut scan = InjectionScan { place: defused.place, evidence: Some(Vec::new()), ..InjectionScan::default() };
    scan.content(defused);
    scan.evidence.unwrap_or_default()
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
