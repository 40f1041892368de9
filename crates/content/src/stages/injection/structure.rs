//! The shape of a whole text: a request where no person would put one.
//!
//! Takes a folded text and its reading, adds what stands out. Promise: one pass over the lines.

mod voice;

use super::lexicon::Set;
use super::sentences::{Hit, Reading, Sentence};
use crate::finding::Span;

/// A request among the rows of a table.
const AMONG_ROWS: f32 = 11.0;
/// A request before the headers of a mail.
const BEFORE_HEADERS: f32 = 10.0;
/// A request behind a text that had come to its end, or before one that had not begun.
const AT_THE_EDGE: f32 = 10.0;

/// A request in a text that otherwise speaks to nobody.
const OUT_OF_TUNE: f32 = 10.5;

/// Adds points for what the structure gives away.
pub(super) fn weigh(text: &str, reading: &mut Reading) {
    if let Some(span) = voice::stranger(text, reading) {
        add(reading, "place.out_of_tune", span, OUT_OF_TUNE);
    }
    let Some(lines) = Lines::of(text) else { return };
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

fn add(reading: &mut Reading, rule: &'static str, span: Span, points: f32) {
    reading.whole += points;
    reading.hits.push(Hit { rule, span, points });
}

/// The lines of a text, as far as their places matter.
#[derive(Debug, Default)]
struct Lines {
    count: usize,
    rows: usize,
    /// Lines that are no rows, the first few of them.
    others: Vec<Span>,
    first: Option<Span>,
    last: Option<Span>,
    /// The first line, if headers begin on the second.
    before_headers: Option<Span>,
}

impl Lines {
    fn of(text: &str) -> Option<Self> {
        const OTHERS: usize = 8;
        let mut lines = Self::default();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let span = Span { start, end: start + line.trim_end().len() };
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

    /// A sentence where every other line is a row: one that asks for something, or that speaks to its reader at all.
    fn stranger_among_rows(&self, text: &str, reading: &Reading) -> Option<Span> {
        let strangers = self.count - self.rows;
        if self.rows < 3 || strangers == 0 || strangers > 3 {
            return None;
        }
        self.others.iter().copied().find(|span| {
            let line = text.get(span.start..span.end).unwrap_or_default();
            let spoken = line.split_whitespace().count() >= 4 && !line.contains('|');
            let ended = line.ends_with(['.', '?', '!', ':', '"', '\'']);
            spoken
                && ((ended && asks_for_work(reading, *span)) || at(reading, *span).any(|one| one.ideas.has(Set::YOU)))
        })
    }
}

fn is_header(line: &str) -> bool {
    const HEADERS: [&str; 7] = ["subject:", "from:", "email_from:", "headline:", "title:", "date:", "to:"];
    HEADERS.iter().any(|header| line.get(..header.len()).is_some_and(|head| head.eq_ignore_ascii_case(header)))
}

fn at(reading: &Reading, span: Span) -> impl Iterator<Item = &Sentence> {
    reading
        .sentences
        .iter()
        .filter(move |sentence| sentence.start >= span.start.saturating_sub(1) && sentence.start < span.end)
}

/// A request or a question that a mail would not open with.
fn asks_for_work(reading: &Reading, span: Span) -> bool {
    let work = Set::IMPERATIVE.with(Set::ASKS).with(Set::RESPONSE).with(Set::NEWTASK).with(Set::WORK);
    at(reading, span).any(|sentence| sentence.ideas.has(work))
}

/// A line of its own that gives an assistant something to do.
fn gives_a_task(text: &str, reading: &Reading, span: Span) -> bool {
    let line = text.get(span.start..span.end).unwrap_or_default();
    let whole =
        line.starts_with(|c: char| c.is_uppercase()) && line.split_whitespace().count() >= 4 && line.len() < 300;
    whole
        && at(reading, span)
            .take(1)
            .any(|sentence| sentence.ideas.has(Set::IMPERATIVE) && sentence.ideas.has(Set::WORK.with(Set::RESPONSE)))
}

/// A question of its own line that is put to nobody: not about the reader, the writer or what they share.
fn asks_the_world(text: &str, reading: &Reading, span: Span) -> bool {
    let line = text.get(span.start..span.end).unwrap_or_default();
    let whole = line.ends_with('?')
        && line.starts_with(|c: char| c.is_uppercase())
        && (5..=30).contains(&line.split_whitespace().count());
    whole && at(reading, span).take(1).any(|sentence| sentence.ideas.has(Set::ASKS)) && voice::is_impersonal(line)
}
