//! The learner: weights of rules from texts that are attacks or not.
//!
//! Takes the matches of each text, gives a weight for each rule. Promise: only additions, multiplications, divisions and square roots
//! of doubles in a fixed order, so that every machine gives the same table; no weight has the wrong sign; a rule without evidence keeps
//! the points that it was written with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::inputs::TrainingItem;

/// The points from which an item is flagged.
pub const FLAG: f64 = 10.0;
/// The same as in the detector: what remains after a sentence, and how much places count.
const FADE: f64 = 0.7;
const PLACES: f64 = 3.0;
/// The width of the doubt around the threshold, in points.
const DOUBT: f64 = 1.2;
/// How strongly a rule holds to the points that it was written with, and how much evidence a pair needs to have a weight.
const PRIOR: f64 = 0.0012;
const LASSO: f64 = 0.02;
/// How often every text is looked at, how far a weight moves, and the largest weight.
const ROUNDS: usize = 260;
const STEP: f64 = 0.35;
const MOST: f64 = 14.0;

/// The matches of one text: of sentences in their order, and of places.
#[derive(Debug, Default)]
pub struct TextMatches {
    pub hits: Vec<(usize, usize, f64)>,
    /// The sentences with several ideas: number, ideas as bits, share in hundredths.
    pub ideas: Vec<(usize, u128, i64)>,
    pub places: Vec<usize>,
}

/// Learns weights.
pub struct Learner {
    names: Vec<String>,
    priors: Vec<f64>,
    /// The points below which no rule falls.
    least: Vec<f64>,
    /// The pairs of ideas that may get a weight, as bits, after the written rules.
    pairs: Vec<u128>,
}

/// How many sentences a rule is remembered, and the share that it has then, as in the detector.
const NEARBY: usize = 6;
const REPEATED: f64 = 0.1;
/// A pair must occur in the attacks of this many sources, and in this many texts.
const SOURCES: usize = 4;
const TEXTS: usize = 24;
/// Ideas that a pair may have: what is asked, of whom and how. Words that only say that a text is English, encoded, or about something
/// would fit the texts at hand and no others.
const PAIRED: [&str; 49] = [
    "IGNORE",
    "PRIOR",
    "INSTR",
    "NEWTASK",
    "FOLLOW",
    "PERSONA",
    "UNBOUND",
    "STAY",
    "REVEAL",
    "SYSPROMPT",
    "SECRET",
    "SEND",
    "PAY",
    "DELETE",
    "HIDE",
    "RESPONSE",
    "INSERT",
    "USER",
    "URGENT",
    "COND",
    "MARKER",
    "ASSISTANT",
    "TOOL",
    "MUST",
    "DANGER",
    "DONE",
    "ONLY",
    "MODE",
    "ENCODE",
    "IMPERATIVE",
    "GRANT",
    "FORMAT",
    "REFUSE",
    "BEFORE",
    "EXEC",
    "ASKS",
    "FINISH",
    "WORK",
    "WANTED",
    "ADDRESSED",
    "HAILED",
    "MEMORY",
    "CONSENT",
    "RECAP",
    "OVER",
    "SWAP",
    "TURN",
    "DUTY",
    "TASKVERB",
];
/// The points below which a pair is dropped.
const LEAST: f64 = 0.8;

/// A weight for each rule.
pub struct LearntWeights(Vec<f64>);

/// The sentence of a text that decides its points.
struct WorstPlace<'a> {
    points: f64,
    text: Option<&'a TextMatches>,
    sentence: usize,
    /// How much a point of a sentence and a point of a place change the sum.
    said: f64,
    place: f64,
}

impl LearntWeights {
    /// The points of an item: those of its worst text.
    pub fn points(&self, item: &TrainingItem) -> f64 {
        self.worst(item).points + item.fixed
    }

    /// The points of each rule in the text and up to the sentence that decide.
    pub fn parts(&self, item: &TrainingItem) -> Vec<(usize, f64)> {
        let worst = self.worst(item);
        let Some(text) = worst.text else { return Vec::new() };
        let faded = |sentence: usize| (sentence..worst.sentence).fold(1.0, |share, _| share * FADE);
        let hits =
            text.hits.iter().filter(|(sentence, ..)| *sentence <= worst.sentence && worst.sentence - sentence < 64);
        let said = hits.map(|(sentence, rule, share)| (*rule, self.0[*rule] * share * faded(*sentence)));
        said.chain(text.places.iter().map(|rule| (*rule, self.0[*rule]))).collect()
    }

    fn worst<'a>(&self, item: &'a TrainingItem) -> WorstPlace<'a> {
        let mut worst = WorstPlace { points: 0.0, text: None, sentence: 0, said: 1.0, place: 0.0 };
        for text in &item.texts {
            let (mut sum, mut peak, mut at, mut best) = (0.0_f64, 0.0_f64, 0, 0);
            for group in text.hits.chunk_by(|one, other| one.0 == other.0) {
                let sentence = group[0].0;
                for _ in at..sentence.min(at + 64) {
                    sum *= FADE;
                }
                at = sentence;
                sum += group.iter().map(|(_, rule, share)| self.0[*rule] * share).sum::<f64>().max(0.0);
                if sum > peak {
                    (peak, best) = (sum, sentence);
                }
            }
            let places: f64 = text.places.iter().map(|rule| self.0[*rule]).sum();
            let capped = places > peak * PLACES;
            let points = peak + places.clamp(0.0, peak * PLACES);
            if points > worst.points {
                let (said, place) = if capped { (1.0 + PLACES, 0.0) } else { (1.0, 1.0) };
                worst = WorstPlace { points, text: Some(text), sentence: best, said, place };
            }
        }
        worst
    }
}

impl Learner {
    pub fn new() -> Self {
        let (mut names, mut priors, mut least) = (Vec::new(), Vec::new(), Vec::new());
        for (name, prior, fixed) in sluice_content::stages::injection::weights() {
            let prior = prior as f64 / 1000.0;
            names.push(name.to_owned());
            priors.push(prior);
            least.push(if fixed { prior } else { 0.0 });
        }
        Self { names, priors, least, pairs: Vec::new() }
    }

    /// Lets pairs of ideas have a weight: those that attacks of several sources share.
    pub fn with_pairs(mut self, items: &[TrainingItem], left_out: &str) -> Self {
        let mut seen: BTreeMap<u128, (BTreeSet<&str>, usize)> = BTreeMap::new();
        let ideas = sluice_content::stages::injection::ideas().iter().enumerate();
        let allowed = ideas.filter(|(_, name)| PAIRED.contains(name)).fold(0, |all, (bit, _)| all | 1_u128 << bit);
        for item in items.iter().filter(|item| item.attack && item.learns && item.source != left_out) {
            let mut own = BTreeSet::new();
            for (_, ideas, _) in item.texts.iter().flat_map(|text| &text.ideas) {
                own.extend(pairs_of(*ideas & allowed));
            }
            for pair in own {
                let entry = seen.entry(pair).or_default();
                entry.0.insert(&item.source);
                entry.1 += 1;
            }
        }
        let wanted = seen.into_iter().filter(|(_, (sources, texts))| sources.len() >= SOURCES && *texts >= TEXTS);
        self.use_pairs(wanted.map(|(pair, _)| pair).collect());
        self
    }

    fn use_pairs(&mut self, pairs: Vec<u128>) {
        let written = self.names.len() - self.pairs.len();
        self.names.truncate(written);
        self.priors.truncate(written);
        let ideas = sluice_content::stages::injection::ideas();
        for pair in &pairs {
            let named: Vec<&str> = (0..ideas.len()).filter(|bit| pair >> bit & 1 == 1).map(|bit| ideas[bit]).collect();
            self.names.push(format!("pair.{}", named.join("+")));
            self.priors.push(0.0);
        }
        self.pairs = pairs;
    }

    /// The items with the matches of the pairs among those of the written rules.
    pub fn prepared(&self, items: &[&TrainingItem]) -> Vec<TrainingItem> {
        items.iter().map(|item| self.prepare(item)).collect()
    }

    pub fn prepare(&self, item: &TrainingItem) -> TrainingItem {
        let written = self.names.len() - self.pairs.len();
        let texts = item.texts.iter().map(|text| {
            let mut hits = text.hits.clone();
            let mut last: BTreeMap<usize, usize> = BTreeMap::new();
            for (sentence, ideas, share) in &text.ideas {
                for (at, _) in self.pairs.iter().enumerate().filter(|(_, pair)| ideas & **pair == **pair) {
                    let repeated = last.insert(at, *sentence).is_some_and(|place| sentence - place <= NEARBY);
                    let share = *share as f64 / 100.0 * if repeated { REPEATED } else { 1.0 };
                    hits.push((*sentence, written + at, share));
                }
            }
            hits.sort_by_key(|(sentence, rule, _)| (*sentence, *rule));
            TextMatches { hits, ideas: Vec::new(), places: text.places.clone() }
        });
        TrainingItem { texts: texts.collect(), source: item.source.clone(), ..*item }
    }

    /// Learns twice: with every pair, and with those that got a weight.
    pub fn learn_in_full(&mut self, items: &[&TrainingItem]) -> LearntWeights {
        let prepared = self.prepared(items);
        let first = self.learn(&prepared.iter().collect::<Vec<_>>());
        let written = self.names.len() - self.pairs.len();
        let kept = self.pairs.iter().zip(first.0.iter().skip(written)).filter(|(_, weight)| **weight >= LEAST);
        self.use_pairs(kept.map(|(pair, _)| *pair).collect());
        let prepared = self.prepared(items);
        self.learn(&prepared.iter().collect::<Vec<_>>())
    }

    pub fn learn(&self, items: &[&TrainingItem]) -> LearntWeights {
        let mut weights = LearntWeights(self.priors.clone());
        let mut seen = vec![1e-6; self.priors.len()];
        let shares = shares(items);
        for round in 0..ROUNDS {
            let mut slope: Vec<f64> =
                weights.0.iter().zip(&self.priors).map(|(own, prior)| (own - prior) * PRIOR).collect();
            for (item, share) in items.iter().zip(&shares) {
                let worst = weights.worst(item);
                let margin = (worst.points + item.fixed - FLAG) / DOUBT;
                let wrong = if item.attack { -logistic(-margin) } else { logistic(margin) };
                let Some(text) = worst.text else { continue };
                descend(text, &worst, wrong * share, &weights, &mut slope);
            }
            let step = STEP * (1.0 - round as f64 / (ROUNDS as f64 * 1.05));
            for (at, slope) in slope.into_iter().enumerate() {
                seen[at] += slope * slope;
                // A pair needs evidence to have a weight at all.
                let slope = if at + self.pairs.len() >= self.names.len() { slope + LASSO } else { slope };
                let moved = weights.0[at] - step * slope / seen[at].sqrt();
                let calm = self.names[at].starts_with("calm.");
                weights.0[at] = if calm {
                    moved.clamp(-MOST, 0.0)
                } else {
                    moved.clamp(self.least.get(at).copied().unwrap_or(0.0), MOST)
                };
            }
        }
        for weight in &mut weights.0 {
            *weight = (*weight * 100.0).round() / 100.0;
        }
        weights
    }

    pub fn name(&self, rule: usize) -> &str {
        &self.names[rule]
    }

    /// The table of the weights, in thousandths.
    pub fn table(&self, weights: &LearntWeights) -> String {
        let mut out =
            String::from("# Thousandths of a point for each rule. Written by `cargo xtask train`; do not edit.\n");
        for (name, weight) in self.names.iter().zip(&weights.0) {
            let _ = writeln!(out, "{} {name}", (weight * 1000.0).round() as i64);
        }
        out
    }
}

/// The weight of each item: every source of attacks counts alike, and every kind of harmless text.
fn shares(items: &[&TrainingItem]) -> Vec<f64> {
    let mut counts = std::collections::BTreeMap::new();
    for item in items {
        *counts.entry((item.attack, item.source.as_str())).or_insert(0_u32) += 1;
    }
    items.iter().map(|item| item.emphasis / f64::from(counts[&(item.attack, item.source.as_str())])).collect()
}

/// Adds what an item says about each weight.
fn descend(text: &TextMatches, worst: &WorstPlace<'_>, wrong: f64, weights: &LearntWeights, slope: &mut [f64]) {
    for group in text.hits.chunk_by(|one, other| one.0 == other.0) {
        let sentence = group[0].0;
        if sentence > worst.sentence {
            break;
        }
        let points: f64 = group.iter().map(|(_, rule, share)| weights.0[*rule] * share).sum();
        if points <= 0.0 || worst.sentence - sentence > 64 {
            continue;
        }
        let mut faded = worst.said;
        for _ in sentence..worst.sentence {
            faded *= FADE;
        }
        for (_, rule, share) in group {
            slope[*rule] += wrong * faded * share;
        }
    }
    for rule in &text.places {
        slope[*rule] += wrong * worst.place;
    }
}

/// `1 / (1 + exp(-x))`, from basic operations only.
fn logistic(x: f64) -> f64 {
    let x = x.clamp(-30.0, 30.0);
    // exp(y) for a small y by its series, squared ten times.
    let y = -x / 1024.0;
    let mut power = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0)));
    for _ in 0..10 {
        power *= power;
    }
    1.0 / (1.0 + power)
}

/// Every two of the ideas.
fn pairs_of(ideas: u128) -> impl Iterator<Item = u128> {
    let bits = (0..128_u32).filter(move |bit| ideas >> bit & 1 == 1);
    bits.clone()
        .flat_map(move |one| bits.clone().filter(move |other| *other > one).map(move |other| 1 << one | 1 << other))
}
