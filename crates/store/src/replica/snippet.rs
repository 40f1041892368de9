//! Finds words in a text again: to count them, to check that they are adjacent, to show them.
//!
//! Promise: a word is found where the index would find it, and a snippet is one line of the text.

use sluice_core::mail::query::{MailSearchField, MailSearchTerm};
use sluice_core::mail::words;

/// Longest snippet, in bytes of the text it is cut from.
const WINDOW: usize = 160;

/// How often a word occurs in a text, up to `most`, and its first position.
pub fn count(text: &str, word: &str, open: bool, most: u32) -> (u32, Option<usize>) {
    let mut found = (0, None);
    if word.is_ascii() && text.is_ascii() {
        return count_ascii(text.as_bytes(), word.as_bytes(), open, most);
    }
    words::each(text, |one, from, _| {
        let same = if open { one.starts_with(word) } else { one == word };
        if same && found.0 < most {
            found.0 += 1;
            found.1.get_or_insert(from);
        }
    });
    found
}

fn count_ascii(text: &[u8], word: &[u8], open: bool, most: u32) -> (u32, Option<usize>) {
    let (Some(first), mut times, mut place, mut at) = (word.first().copied(), 0, None, 0) else { return (0, None) };
    let other = first.to_ascii_uppercase();
    while let Some(rest) = text.get(at..) {
        let Some(step) = rest.iter().position(|byte| *byte == first || *byte == other) else { break };
        let start = at + step;
        let end = start + word.len();
        let before = start.checked_sub(1).and_then(|i| text.get(i)).is_some_and(u8::is_ascii_alphanumeric);
        let after = !open && text.get(end).is_some_and(u8::is_ascii_alphanumeric);
        if !before && !after && text.get(start..end).is_some_and(|found| found.eq_ignore_ascii_case(word)) {
            times += 1;
            place.get_or_insert(start);
            if times >= most {
                break;
            }
        }
        at = start + 1;
    }
    (times, place)
}

/// Whether the words of a term are adjacent in a text.
pub fn side_by_side(text: &str, term: &MailSearchTerm) -> bool {
    let mut lately: std::collections::VecDeque<String> = std::collections::VecDeque::new();
    let mut found = false;
    words::each(text, |word, _, _| {
        if found {
            return;
        }
        lately.push_back(word.to_owned());
        if lately.len() > term.words.len() {
            lately.pop_front();
        }
        let last = term.words.len().saturating_sub(1);
        found = lately.len() == term.words.len()
            && lately.iter().zip(&term.words).enumerate().all(|(at, (have, want))| {
                if at == last && term.open { have.starts_with(want.as_str()) } else { have == want }
            });
    });
    found
}

/// The position of the first of the words.
pub fn first(text: &str, terms: &[MailSearchTerm]) -> Option<usize> {
    let wanted = terms.iter().filter(|term| !term.not && term.field == MailSearchField::Any);
    let places = wanted.flat_map(|term| term.words.iter().map(move |word| (word, term.open)));
    places.filter_map(|(word, open)| count(text, word, open, 1).1).min()
}

/// A line around the first word that is found; `None` if no word is.
pub fn around(text: &str, terms: &[MailSearchTerm]) -> Option<String> {
    first(text, terms).and_then(|place| line(text, place))
}

/// A line around a position.
pub fn line(text: &str, place: usize) -> Option<String> {
    let from = floor(text, place.saturating_sub(WINDOW / 3));
    let to = floor(text, (from + WINDOW).min(text.len()));
    let cut = text.get(from..to)?;
    let mut line = String::with_capacity(WINDOW + 8);
    if from > 0 {
        line.push('…');
    }
    for (at, word) in cut.split_whitespace().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        line.push_str(word);
    }
    if to < text.len() {
        line.push('…');
    }
    Some(line)
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_counted_as_the_index_cuts_them() {
        assert_eq!(count("Invoice invoice, invoiced INVOICE", "invoice", false, 10), (3, Some(0)));
        assert_eq!(count("Invoice invoice, invoiced INVOICE", "invoice", true, 10).0, 4);
        assert_eq!(count("l'été ete", "ete", false, 10), (2, Some(2)));
    }

    #[test]
    fn a_snippet_is_one_line_around_the_word() {
        let text = format!("{}\nthe invoice is\r\n due {}", "before ".repeat(40), "after ".repeat(40));
        let terms =
            [MailSearchTerm { field: MailSearchField::Any, words: vec!["invoice".into()], open: false, not: false }];
        let line = around(&text, &terms).unwrap();
        assert!(line.contains("the invoice is due") && !line.contains('\n') && line.len() < 200, "{line}");
        assert!(around("nothing here", &terms).is_none());
    }

    proptest! {
        #[test]
        fn the_quick_count_is_the_slow_count(text in "[aAbB ,.]{0,40}", word in "[ab]{1,3}", open: bool) {
            let mut slow = 0;
            words::each(&text, |one, _, _| slow += u32::from(if open { one.starts_with(&word) } else { one == word }));
            prop_assert_eq!(count(&text, &word, open, 1000).0, slow);
        }

        #[test]
        fn no_text_breaks_a_snippet(text in ".{0,300}", word in "\\w{1,4}") {
            let terms = [MailSearchTerm { field: MailSearchField::Any, words: words::of(&word), open: true, not: false }];
            let _any = around(&text, &terms);
        }
    }
}
