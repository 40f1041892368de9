//! The folded copy: what a text says once its costume is off.
//!
//! Takes a text, gives one in which compatibility forms, accents, look-alikes and case no longer differ. For
//! detectors only. Promise: plain ASCII is not copied; the copy is never more than four times the original.

use std::borrow::Cow;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use super::homoglyphs;

/// A folded text and whether look-alikes were found in it.
#[derive(Debug)]
pub(in crate::stages) struct Folded<'a> {
    pub(in crate::stages) text: Cow<'a, str>,
    /// Words that mix letters of several scripts.
    pub(in crate::stages) mixed: usize,
    /// Characters that are letters only in disguise: full width, mathematical, enclosed, small capitals.
    pub(in crate::stages) dressed: usize,
}

/// Folds a text. ASCII letters keep their case, because the detectors do not mind it.
pub(in crate::stages) fn fold(text: &str) -> Folded<'_> {
    if text.is_ascii() {
        return Folded { text: Cow::Borrowed(text), mixed: 0, dressed: 0 };
    }
    let most = text.len().saturating_mul(4);
    let mut out = String::with_capacity(text.len());
    let mut word = Word::default();
    let (mut mixed, mut dressed) = (0, 0);
    for c in text.chars() {
        if out.len() > most {
            break;
        }
        if !belongs(c) {
            mixed += word.close(&mut out);
            match c {
                '\u{201c}' | '\u{201d}' | '\u{ab}' | '\u{bb}' => out.push('"'),
                '\u{2010}'..='\u{2015}' => out.push('-'),
                _ if c.is_ascii() || is_settled(c) => out.push(c),
                _ => dressed += letter(c, &mut out, &mut word),
            }
            word = Word { start: out.len(), ..Word::default() };
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
    Folded { text: Cow::Owned(out), mixed, dressed }
}

/// Whether a character continues a word of letters that could be mistaken for each other.
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

/// Pushes what a character stands for; gives one if it was a Latin letter in disguise.
fn letter(c: char, out: &mut String, word: &mut Word) -> usize {
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

/// The word being written: where it begins in the copy, and whose letters it has.
#[derive(Debug, Default)]
struct Word {
    start: usize,
    latin: bool,
    foreign: bool,
}

impl Word {
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
