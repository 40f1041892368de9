//! Stage 4: does this text try to steer whoever reads it, or the machines behind them?
//!
//! Takes `Defused` and nothing else, gives `Screened`. Promise: there is no parameter through which trust in a
//! sender could reach the score; every surface is read, plain and decoded; each point has a finding.

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
use super::encoding::{Surface, settle};
use super::html::Defused;
use super::size::Strings;
use crate::finding::{Carrier, Finding, Stage};
use sentences::Reading;

/// Content whose findings are known.
#[derive(Debug, Clone)]
pub struct Screened<'a> {
    pub(super) defused: Defused<'a>,
    pub(super) points: f32,
}

impl Screened<'_> {
    pub(super) fn is_json(&self) -> bool {
        self.defused.json.is_some()
    }

    /// Whether somebody said that it is JSON.
    pub(super) fn claims_json(&self) -> bool {
        self.defused.json.is_some_and(|strings| strings != Strings::Unsaid)
    }

    pub(super) fn text(&self) -> &str {
        &self.defused.text
    }

    pub(super) fn note(&mut self, finding: Finding) {
        self.defused.findings.push(finding);
    }
}

/// What a covert carrier adds to the weight of what it carries.
const COVERT: f32 = 1.35;
/// The most findings that are kept of one surface.
const KEPT: usize = 12;

/// Stage 4.
#[must_use]
pub fn screen(mut defused: Defused<'_>) -> Screened<'_> {
    let mut best = 0.0_f32;
    let mut findings = Vec::new();
    // What is shown of JSON is read as what it says, not as how it is written.
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
    Screened { defused, points: best + smuggled }
}

/// Reads a surface, and whatever is encoded in it.
fn look(text: &str, carrier: Carrier, best: &mut f32, findings: &mut Vec<Finding>) {
    let folded = fold(text);
    let disguised = folded.dressed >= 6 || folded.mixed >= 3;
    if disguised {
        findings.push(Finding { carrier, ..Finding::note(Stage::Encoding, "confusable", 0) });
    }
    let own = if disguised && matches!(carrier, Carrier::Plain | Carrier::Json) { Carrier::Homoglyph } else { carrier };
    let plain = judge(&folded.text, own, best, findings);
    let mut inner: Vec<Surface> = views(&folded.text);
    inner.extend(turned(&plain, &folded.text));
    for view in inner {
        // What stage 2 takes out of a text can stand in what is decoded from it.
        let (mut hidden, mut smuggled) = (Vec::new(), Vec::new());
        let text = settle(view.text, &mut hidden, &mut smuggled);
        *best = smuggled.iter().map(|finding| finding.score).fold(*best, f32::max);
        findings.extend(smuggled.into_iter().filter(|finding| finding.score > 0.0));
        for surface in hidden {
            judge(&fold(&surface.text).text, surface.carrier, best, findings);
        }
        let again = fold(&text);
        let seen = judge(&again.text, view.carrier, best, findings);
        for surface in turned(&seen, &again.text) {
            judge(&surface.text, surface.carrier, best, findings);
        }
    }
}

/// Whether a way of moving letters shows, what it is called, and what undoes it.
type Way = (bool, Carrier, fn(&str) -> String);

/// What a text says if its letters are put back, as far as its commonest words show that they were moved.
fn turned<'a>(reading: &Reading, text: &'a str) -> impl Iterator<Item = Surface> + use<'a> {
    let ways: [Way; 4] = [
        (reading.turned, Carrier::Rot13, rot13),
        (reading.backwards, Carrier::Reversed, reversed),
        (reading.moved, Carrier::Cipher, caesar),
        (reading.mirrored, Carrier::Cipher, atbash),
    ];
    ways.into_iter().filter(|(wanted, ..)| *wanted).map(|(_, carrier, undo)| Surface::new(carrier, undo(text)))
}

/// Scores one text. An item is as bad as its worst surface.
fn judge(text: &str, carrier: Carrier, best: &mut f32, findings: &mut Vec<Finding>) -> Reading {
    let mut reading = sentences::read(text);
    structure::weigh(text, &mut reading);
    code::weigh(text, &mut reading);
    let factor = if carrier.is_covert() { COVERT } else { 1.0 };
    let points = reading.points() * factor;
    *best = best.max(points);
    reading.hits.sort_by(|one, other| other.points.total_cmp(&one.points));
    findings.extend(reading.hits.iter().take(KEPT).map(|hit| Finding {
        stage: Stage::Injection,
        rule: hit.rule,
        carrier,
        span: hit.span,
        score: hit.points * factor,
    }));
    reading
}

/// Builds every pattern of this stage, which is otherwise done where a text first needs it.
pub(crate) fn build() {
    phrases::build();
    code::build();
}

/// All words of the lexicon, for measuring others with the same.
#[must_use]
pub fn words() -> Vec<String> {
    lexicon::LEXICON.words().collect()
}

/// How many rules there are.
#[must_use]
pub fn rule_count() -> usize {
    rules::count() + phrases::count() + code::count()
}
