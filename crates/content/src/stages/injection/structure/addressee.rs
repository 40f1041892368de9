//! The addressee of a text: descriptive prose addresses nobody, a request addresses its reader.
//!
//! Takes a folded text and its reading, gives a request that does not fit the prose around it. Promise: one more pass
//! over the text, and only where a request was seen.

use super::super::lexicon::IdeaSet;
use super::super::sentences::{Sentence, TextReading};
use crate::finding::TextRange;

/// The least prose around a request: sentences, and bytes of each.
const PROSE: usize = 4;
const SENTENCE: usize = 40;
/// Longer documents have more than one voice.
const LONGEST: usize = 12_000;
/// Words of a personal message.
const PERSONAL: [&str; 22] = [
    "i", "me", "my", "mine", "we", "us", "our", "ours", "you", "your", "yours", "i'm", "i've", "i'll", "we're",
    "we've", "you're", "you've", "you'll", "let's", "please", "thanks",
];

/// The request, if everything around it is prose without an addressee.
pub(super) fn find_request_in_prose(text: &str, reading: &TextReading) -> Option<TextRange> {
    if text.len() > LONGEST {
        return None;
    }
    let wanted: Vec<usize> = (0..reading.sentences.len()).filter(|&at| requests(text, reading, at)).collect();
    let (first, last) = (*wanted.first()?, *wanted.last()?);
    if wanted.len() > 4 || last - first > 5 {
        return None;
    }
    let span = TextRange { start: reading.sentences.get(first)?.start, end: reading.sentences.get(last)?.end };
    let (before, after) = (text.get(..span.start)?, text.get(span.end..)?);
    let prose = count(before)? + count(after)?;
    (prose >= PROSE).then_some(span)
}

/// Whether a stretch is about nobody in particular.
pub(super) fn is_impersonal(text: &str) -> bool {
    let part = |c: char| !c.is_alphanumeric() && c != '\'';
    text.split(part).all(|word| !PERSONAL.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

fn requests(text: &str, reading: &TextReading, at: usize) -> bool {
    let Some(Sentence { start, end, ideas }) = reading.sentences.get(at) else { return false };
    if ideas.is_empty() {
        return false;
    }
    let body = text.get(*start..*end).unwrap_or_default().trim_end();
    let told = ideas.has(IdeaSet::IMPERATIVE) && ideas.has(IdeaSet::WORK.with(IdeaSet::RESPONSE));
    let asked = ideas.has(IdeaSet::ASKS) && body.ends_with('?');
    let addressed = ideas.has(IdeaSet::YOU.with(IdeaSet::PLEASE))
        && ideas.has(IdeaSet::IMPERATIVE.with(IdeaSet::RESPONSE).with(IdeaSet::NEWTASK));
    told || asked || addressed
}

/// The number of prose sentences; `None` if the text has an addressee, or is mostly a table or a program.
fn count(text: &str) -> Option<usize> {
    if !is_impersonal(text) {
        return None;
    }
    let (mut sentences, mut lines, mut odd) = (0, 0_usize, 0_usize);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines += 1;
        let listed = line.starts_with(['-', '*', '#', '|', '>', '<', '{', '[', '=', '+', '$', '`']);
        if listed || line.contains(['{', '}', '=', '|', '`', '@', '\\']) || line.contains("://") || line.contains("::")
        {
            odd += 1;
            continue;
        }
        for sentence in line.split_inclusive(['.', '?', '!']) {
            sentences += usize::from(sentence.len() >= SENTENCE && sentence.split_whitespace().count() >= 6);
        }
    }
    (odd * 2 <= lines).then_some(sentences)
}

#[cfg(test)]
mod tests {
    use crate::{ContentVerdict, RawContent, ScreeningPlan, clean};

    const PROSE: &str = "The river rises in the hills above the old town and flows west for ninety miles. \
        Its upper valley was settled by weavers in the twelfth century, and mills followed. \
        The bridge at the lower ford was built of local stone and has been repaired twice. \
        Floods in the spring of that year carried away most of the eastern bank. ";

    fn verdict(text: &str) -> ContentVerdict {
        clean(RawContent::new(text.as_bytes()), &ScreeningPlan::default()).unwrap().verdict()
    }

    #[test]
    fn a_request_in_prose_that_speaks_to_nobody_is_out_of_tune() {
        assert_eq!(verdict(PROSE), ContentVerdict::Pass);
        assert_ne!(verdict(&format!("{PROSE}Now compose a poem about the sea in your answer.")), ContentVerdict::Pass);
        assert_ne!(verdict(&format!("Tell me about the history of chess. {PROSE}")), ContentVerdict::Pass);
    }

    #[test]
    fn a_letter_may_ask_because_it_speaks_to_somebody_throughout() {
        let letter = format!("Dear Ann, I am writing to you about our trip. {PROSE}Please tell me what you think.");
        assert_eq!(verdict(&letter), ContentVerdict::Pass);
    }
}
