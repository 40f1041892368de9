//! The folded copy: a text without its disguises.
//!
//! Takes a text, gives one in which compatibility forms, accents, lookalikes and case no longer differ. For detectors
//! only. Promise: plain ASCII is not copied; the copy is never more than four times the original.

use std::borrow::Cow;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use super::homoglyphs;

/// A folded text and the number of disguises found in it.
#[derive(Debug)]
pub(in crate::stages) struct FoldedText<'a> {
    pub(in crate::stages) text: Cow<'a, str>,
    /// Words that mix letters of several scripts.
    pub(in crate::stages) mixed: usize,
    /// Characters that are disguised letters: full width, mathematical, enclosed, small capitals.
    pub(in crate::stages) dressed: usize,
}

/// Folds a text. ASCII letters keep their case, because the detectors ignore it.
pub(in crate::stages) fn fold(text: &str) -> FoldedText<'_> {
    if text.is_ascii() {
        return FoldedText { text: Cow::Borrowed(text), mixed: 0, dressed: 0 };
    }
    let most = text.len().saturating_mul(4);
    let mut out = String::with_capacity(text.len());
    let mut word = WordScripts::default();
    let (mut mixed, mut dressed) = (0, 0);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if out.len() > most {
            break;
        }
        // Plain text is copied as a whole, as far as there is room for it.
        let plain = rest.bytes().take(most + 1 - out.len()).take_while(u8::is_ascii).count();
        if let Some((plain, after)) = rest.split_at_checked(plain).filter(|_| plain > 1) {
            mixed += word.copy(plain, &mut out);
            rest = after;
            continue;
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        if !belongs(c) {
            mixed += word.close(&mut out);
            match c {
                '\u{201c}' | '\u{201d}' | '\u{ab}' | '\u{bb}' => out.push('"'),
                '\u{2010}'..='\u{2015}' => out.push('-'),
                _ if c.is_ascii() || is_settled(c) => out.push(c),
                _ => dressed += letter(c, &mut out, &mut word),
            }
            word = WordScripts { start: out.len(), ..WordScripts::default() };
        } else if c.is_ascii() {
            word.latin |= c.is_ascii_alphabetic();
            out.push(c);
        } else if matches!(c, '\u{2018}' | '\u{2019}' | '\u{2bc}') {
            out.push('\'');
        } else {
            dressed += letter(c, &mut out, &mut word);
        }
    }
    mixed += word.close(&mut out);
    FoldedText { text: Cow::Owned(out), mixed, dressed }
}

/// Whether a character continues a word of letters that have lookalikes.
fn belongs(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{2bc}')
        || (!c.is_ascii()
            && !is_settled(c)
            && (c.is_alphanumeric() || is_combining_mark(c) || homoglyphs::dressed(c).is_some()))
}

/// Hangul syllables, kana and ideographs need no folding.
fn is_settled(c: char) -> bool {
    matches!(c, '\u{ac00}'..='\u{d7a3}' | '\u{4e00}'..='\u{9fff}' | '\u{3040}'..='\u{30ff}')
}

/// Appends what a character stands for; gives one if it was a disguised Latin letter.
fn letter(c: char, out: &mut String, word: &mut WordScripts) -> usize {
    if let Some(plain) = homoglyphs::dressed(c) {
        out.push(plain);
        word.latin = true;
        return 1;
    }
    let mut disguised = 0;
    decompose_compatible(c, |part| {
        if part.is_ascii() {
            word.latin |= part.is_ascii_alphabetic();
            disguised = usize::from(part.is_ascii_alphanumeric() && !('\u{c0}'..='\u{24f}').contains(&c));
            out.push(part);
        } else if !is_combining_mark(part) {
            word.foreign |= homoglyphs::latin(part).is_some();
            for lower in part.to_lowercase() {
                match lower {
                    'ß' => out.push_str("ss"),
                    'ø' => out.push('o'),
                    'ł' => out.push('l'),
                    'ı' => out.push('i'),
                    'æ' => out.push_str("ae"),
                    other => out.push(other),
                }
            }
        }
    });
    disguised
}

/// The word in progress: where it begins in the copy, and which scripts it has.
#[derive(Debug, Default)]
struct WordScripts {
    start: usize,
    latin: bool,
    foreign: bool,
}

impl WordScripts {
    /// Continues with plain text; gives one if that ends a word that mixes scripts.
    fn copy(&mut self, plain: &str, out: &mut String) -> usize {
        let ends = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'\'';
        let letters = |text: &str| text.bytes().any(|byte| byte.is_ascii_alphabetic());
        let bytes = plain.as_bytes();
        let (Some(first), Some(last)) = (bytes.iter().position(ends), bytes.iter().rposition(ends)) else {
            self.latin |= letters(plain);
            out.push_str(plain);
            return 0;
        };
        let (head, tail) = (plain.get(..first).unwrap_or_default(), plain.get(first..).unwrap_or_default());
        self.latin |= letters(head);
        out.push_str(head);
        let mixed = self.close(out);
        out.push_str(tail);
        let open = plain.get(last + 1..).unwrap_or_default();
        *self = Self { start: out.len() - open.len(), latin: letters(open), foreign: false };
        mixed
    }

    /// Ends the word. One that mixes scripts is rewritten in Latin letters; gives one if it was.
    fn close(&mut self, out: &mut String) -> usize {
        if !(self.latin && self.foreign && out.is_char_boundary(self.start)) {
            return 0;
        }
        let tail = out.split_off(self.start);
        out.extend(tail.chars().map(|c| homoglyphs::latin(c).unwrap_or(c)));
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_text_is_copied_as_it_would_be_letter_by_letter(text in "[ab1'. \u{430}\u{435}\u{e9}\u{2019}\u{ff41}]{0,40}") {
            // A character that folds to nothing separates the others.
            let parted: String = text.chars().flat_map(|c| [c, '\u{301}']).collect();
            let (whole, single) = (fold(&text), fold(&parted));
            prop_assert_eq!((whole.text.as_ref(), whole.mixed), (single.text.as_ref(), single.mixed));
        }
    }

    #[test]
    fn a_copy_that_grows_too_long_is_cut_without_being_counted_again_and_again() {
        // One character becomes eighteen; after this many of them there is room for only a part of the plain text.
        let text = "\u{fdfa}".repeat(20_000) + " " + &"a".repeat(119_999);
        let folded = fold(&text);
        assert_eq!(folded.text.len(), text.len() * 4 + 1);
        assert!(folded.text.ends_with("aaa"));
    }

    #[test]
    fn a_word_that_mixes_scripts_is_found_wherever_its_plain_letters_stand() {
        for (text, folded, mixed) in [
            ("ign\u{43e}re it", "ignore it", 1),
            ("x \u{456}gnore", "x ignore", 1),
            ("ignor\u{435}", "ignore", 1),
            ("a b \u{43e}\u{43d} c", "a b \u{43e}\u{43d} c", 0),
        ] {
            let found = fold(text);
            assert_eq!((found.text.as_ref(), found.mixed), (folded, mixed), "{text}");
        }
    }
}
