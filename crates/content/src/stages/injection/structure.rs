//! The structure of a whole text: finds a request where no person would put one.
//!
//! Takes a folded text and its reading, adds points for requests in unusual places. Promise: one pass over the lines.

mod addressee;

use super::lexicon::IdeaSet;
use super::sentences::{RuleMatch, Sentence, TextReading};
use crate::finding::TextRange;

/// Points for a request among the rows of a table.
const AMONG_ROWS: f32 = 11.0;
/// Points for a request before the headers of a mail.
const BEFORE_HEADERS: f32 = 10.0;
/// Points for a request after the end of a text, or before its beginning.
const AT_THE_EDGE: f32 = 10.0;

/// Points for a request in a text that otherwise addresses nobody.
const OUT_OF_TUNE: f32 = 10.5;

/// Adds points for suspicious structure.
pub(super) fn weigh(text: &str, reading: &mut TextReading) {
    if let Some(span) = addressee::find_request_in_prose(text, reading) {
        add(reading, "place.out_of_tune", span, OUT_OF_TUNE);
    }
    let Some(lines) = LineLayout::of(text) else { return };
    if let Some(stranger) = lines.stranger_among_rows(text, reading) {
        add(reading, "place.among_rows", stranger, AMONG_ROWS);
    }
    if let Some(first) = lines.before_headers
        && asks_for_work(reading, first)
    {
        add(reading, "place.before_headers", first, BEFORE_HEADERS);
    }
    for edge in [lines.first, lines.last].into_iter().flatten() {
        if gives_a_task(text, reading, edge) || (lines.count >= 3 && asks_the_world(text, reading, edge)) {
            add(reading, "place.edge", edge, AT_THE_EDGE);
        }
    }
}

fn add(reading: &mut TextReading, rule: &'static str, span: TextRange, points: f32) {
    reading.whole += points;
    reading.hits.push(RuleMatch { rule, span, points });
}

/// The lines of a text, as far as their positions matter.
#[derive(Debug, Default)]
struct LineLayout {
    count: usize,
    rows: usize,
    /// The first few lines that are not rows.
    others: Vec<TextRange>,
    first: Option<TextRange>,
    last: Option<TextRange>,
    /// The first line, if headers begin on the second.
    before_headers: Option<TextRange>,
}

impl LineLayout {
    fn of(text: &str) -> Option<Self> {
        const OTHERS: usize = 8;
        let mut lines = Self::default();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let span = TextRange { start, end: start + line.trim_end().len() };
            start += line.len();
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if line.starts_with('|') && line.len() > 2 {
                lines.rows += 1;
            } else if lines.others.len() < OTHERS {
                lines.others.push(span);
            }
            if lines.count == 1 && is_header(line) {
                lines.before_headers = lines.first.filter(|first| {
                    text.get(first.start..first.end).is_some_and(|line| !is_header(line) && line.contains(' '))
                });
            }
            lines.first = lines.first.or(Some(span));
            lines.last = Some(span);
            lines.count += 1;
        }
        (lines.count >= 2).then_some(lines)
    }

    /// A sentence where every other line is a row: one that requests something, or that addresses its reader at all.
    fn stranger_among_rows(&self, text: &str, reading: &TextReading) -> Option<TextRange> {
        let strangers = self.count - self.rows;
        if self.rows < 3 || strangers == 0 || strangers > 3 {
            return None;
        }
        self.others.iter().copied().find(|span| {
            let line = text.get(span.start..span.end).unwrap_or_default();
            let spoken = line.split_whitespace().count() >= 4 && !line.contains('|');
            let ended = line.ends_with(['.', '?', '!', ':', '"', '\'']);
            spoken
                && ((ended && asks_for_work(reading, *span))
                    || at(reading, *span).any(|one| one.ideas.has(IdeaSet::YOU)))
        })
    }
}

fn is_header(line: &str) -> bool {
    const HEADERS: [&str; 7] = ["subject:", "from:", "email_from:", "headline:", "title:", "date:", "to:"];
    HEADERS.iter().any(|header| line.get(..header.len()).is_some_and(|head| head.eq_ignore_ascii_case(header)))
}

fn at(reading: &TextReading, span: TextRange) -> impl Iterator<Item = &Sentence> {
    reading
        .sentences
        .iter()
        .filter(move |sentence| sentence.start >= span.start.saturating_sub(1) && sentence.start < span.end)
}

/// Whether this is a request or a question with which a mail would not begin.
fn asks_for_work(reading: &TextReading, span: TextRange) -> bool {
    let work =
        IdeaSet::IMPERATIVE.with(IdeaSet::ASKS).with(IdeaSet::RESPONSE).with(IdeaSet::NEWTASK).with(IdeaSet::WORK);
    at(reading, span).any(|sentence| sentence.ideas.has(work))
}

/// Whether this is a separate line that gives an assistant a task.
fn gives_a_task(text: &str, reading: &TextReading, span: TextRange) -> bool {
    let line = text.get(span.start..span.end).unwrap_or_default();
    let whole =
        line.starts_with(|c: char| c.is_uppercase()) && line.split_whitespace().count() >= 4 && line.len() < 300;
    whole
        && at(reading, span).take(1).any(|sentence| {
            sentence.ideas.has(IdeaSet::IMPERATIVE) && sentence.ideas.has(IdeaSet::WORK.with(IdeaSet::RESPONSE))
        })
}

/// Whether this is a question on its own line that addresses nobody: not about the reader, the writer or what they
/// share.
fn asks_the_world(text: &str, reading: &TextReading, span: TextRange) -> bool {
    let line = text.get(span.start..span.end).unwrap_or_default();
    let whole = line.ends_with('?')
        && line.starts_with(|c: char| c.is_uppercase())
        && (5..=30).contains(&line.split_whitespace().count());
    whole
        && at(reading, span).take(1).any(|sentence| sentence.ideas.has(IdeaSet::ASKS))
        && addressee::is_impersonal(line)
}
