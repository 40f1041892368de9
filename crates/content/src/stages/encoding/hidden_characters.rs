//! Characters that hide, reorder or control.
//!
//! Takes a text, gives it without them. Promise: joiners that a script or an emoji needs stay, the others are removed
//! or made visible and reported; letters smuggled in tags, selectors or overrides become surfaces.

use std::borrow::Cow;

use super::DetectorSurface;
use crate::finding::{Carrier, ContentStage, Finding, TextRange};

/// The class of a character in this stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharacterClass {
    /// An ordinary character.
    Fine,
    Control,
    /// Overrides, embeddings and isolates.
    Bidi,
    ZeroWidth,
    /// ZWJ and ZWNJ, which emoji, Arabic and Indic scripts need.
    Joiner,
    SoftHyphen,
    Tag,
    Selector,
    Filler,
    /// Line and paragraph separators.
    Break,
}

fn mark(c: char) -> CharacterClass {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' => CharacterClass::Fine,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => CharacterClass::Control,
        '\u{ad}' => CharacterClass::SoftHyphen,
        '\u{200c}' | '\u{200d}' => CharacterClass::Joiner,
        '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => CharacterClass::Bidi,
        '\u{200b}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}'
        | '\u{180e}'
        | '\u{34f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' => CharacterClass::ZeroWidth,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' => CharacterClass::Filler,
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' | '\u{180b}'..='\u{180d}' => CharacterClass::Selector,
        '\u{e0000}'..='\u{e007f}' => CharacterClass::Tag,
        '\u{2028}' | '\u{2029}' => CharacterClass::Break,
        _ => CharacterClass::Fine,
    }
}

/// How often each class was seen, and the first position.
#[derive(Debug, Default)]
struct CharacterCounts {
    count: [usize; 8],
    first: [usize; 8],
}

const RULES: [(CharacterClass, &str); 8] = [
    (CharacterClass::Control, "control"),
    (CharacterClass::Bidi, "bidi"),
    (CharacterClass::ZeroWidth, "zero_width"),
    (CharacterClass::Joiner, "joiner"),
    (CharacterClass::SoftHyphen, "soft_hyphen"),
    (CharacterClass::Tag, "tags"),
    (CharacterClass::Selector, "selectors"),
    (CharacterClass::Filler, "filler"),
];

impl CharacterCounts {
    fn note(&mut self, mark: CharacterClass, at: usize) {
        let Some(slot) = RULES.iter().position(|(known, _)| *known == mark) else { return };
        if let (Some(count), Some(first)) = (self.count.get_mut(slot), self.first.get_mut(slot)) {
            if *count == 0 {
                *first = at;
            }
            *count += 1;
        }
    }

    fn has(&self, mark: CharacterClass) -> bool {
        RULES.iter().zip(&self.count).any(|((known, _), count)| *known == mark && *count > 0)
    }

    fn report(&self, findings: &mut Vec<Finding>) {
        for ((_, rule), (count, first)) in RULES.iter().zip(self.count.iter().zip(&self.first)) {
            if *count > 0 {
                findings.push(Finding::note(ContentStage::Encoding, rule, *first));
            }
        }
    }
}

/// Whether every character is ordinary. Plain bytes are not decoded, and are checked one cache line at a time.
pub(in crate::stages::encoding) fn is_fine(text: &str) -> bool {
    const LINE: usize = 64;
    let strange = |byte: &u8| !matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let until = at + LINE;
        if bytes.get(at..until).is_some_and(|line| !line.iter().fold(false, |odd, byte| odd | strange(byte))) {
            at = until;
            continue;
        }
        // Each line is read at most once more, whatever it holds.
        while at < until.min(bytes.len()) {
            if bytes.get(at).is_some_and(strange) {
                let c = text.get(at..).and_then(|rest| rest.chars().next());
                match c {
                    Some(c) if mark(c) == CharacterClass::Fine => at += c.len_utf8(),
                    Some(_) | None => return false,
                }
            } else {
                at += 1;
            }
        }
    }
    true
}

/// Removes these characters or makes them visible.
pub(super) fn settle<'a>(
    text: Cow<'a, str>,
    surfaces: &mut Vec<DetectorSurface>,
    findings: &mut Vec<Finding>,
) -> Cow<'a, str> {
    if is_fine(&text) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut seen = CharacterCounts::default();
    let (mut tags, mut selected) = (String::new(), Vec::new());
    let mut previous = ' ';
    let mut flag = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let mark = mark(c);
        match mark {
            CharacterClass::Fine => out.push(c),
            CharacterClass::Break => out.push('\n'),
            CharacterClass::Joiner if joins(previous, chars.peek().copied()) => out.push(c),
            // The flags of England, Scotland and Wales are encoded in tag characters.
            CharacterClass::Tag if flag => out.push(c),
            CharacterClass::Selector if is_plain_selector(c, previous) => out.push(c),
            CharacterClass::Control | CharacterClass::Bidi => {
                seen.note(mark, out.len());
                show(c, &mut out);
            }
            CharacterClass::Tag => {
                seen.note(mark, out.len());
                tags.extend(char::from_u32(u32::from(c) - 0xe0000).filter(|c| !c.is_control()));
            }
            CharacterClass::Selector => {
                seen.note(mark, out.len());
                selected.extend(selector_byte(c));
            }
            CharacterClass::ZeroWidth
            | CharacterClass::Joiner
            | CharacterClass::SoftHyphen
            | CharacterClass::Filler => seen.note(mark, out.len()),
        }
        flag = c == '\u{1f3f4}' || (flag && mark == CharacterClass::Tag && c != '\u{e007f}');
        previous = c;
    }
    seen.report(findings);
    smuggled(Carrier::Tags, &tags, surfaces, findings);
    smuggled(Carrier::Selectors, &String::from_utf8_lossy(&selected), surfaces, findings);
    if seen.has(CharacterClass::Control) || seen.has(CharacterClass::Bidi) {
        // The text between them is also read without them.
        let bare = text
            .chars()
            .filter(|c| !matches!(mark(*c), CharacterClass::Control | CharacterClass::Bidi | CharacterClass::ZeroWidth))
            .collect();
        surfaces.push(DetectorSurface::new(Carrier::Control, bare));
    }
    if let Some(turned) = overridden(&text) {
        surfaces.push(DetectorSurface::new(Carrier::Bidi, turned));
    }
    Cow::Owned(out)
}

/// Letters in invisible characters are never an accident.
fn smuggled(carrier: Carrier, hidden: &str, surfaces: &mut Vec<DetectorSurface>, findings: &mut Vec<Finding>) {
    let letters = hidden.chars().filter(|c| c.is_alphanumeric()).count();
    if letters < 4 {
        return;
    }
    let score = if letters < 12 { 6.0 } else { 12.0 };
    let span = TextRange { start: 0, end: hidden.len() };
    findings.push(Finding { stage: ContentStage::Encoding, rule: "smuggled.text", carrier, span, score });
    surfaces.push(DetectorSurface::new(carrier, hidden.to_owned()));
}

/// Whether a joiner is between emoji, or inside a script that shapes its letters.
fn joins(previous: char, next: Option<char>) -> bool {
    let shaped = |c: char| matches!(c, '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{fb50}'..='\u{fdff}' | '\u{1780}'..='\u{17ff}');
    let pictured =
        |c: char| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}' | '\u{a9}' | '\u{ae}');
    next.is_some_and(|next| {
        (shaped(previous) && (shaped(next) || next.is_whitespace())) || (pictured(previous) && pictured(next))
    })
}

/// Whether this is a single selector after a sign with two forms. A run of them, or one after a letter, carries hidden
/// data.
fn is_plain_selector(c: char, previous: char) -> bool {
    let after_sign = !previous.is_alphabetic() && mark(previous) == CharacterClass::Fine && !previous.is_whitespace();
    let ideograph = matches!(previous, '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}' | '\u{1820}'..='\u{18aa}');
    let picture =
        matches!(c, '\u{fe0e}' | '\u{fe0f}') && (after_sign || previous == '\u{2139}' || previous == '\u{24c2}');
    picture || ideograph || (matches!(c, '\u{fe00}'..='\u{fe0d}') && after_sign && !previous.is_ascii())
}

fn selector_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0xfe00..=0xfe0f => u8::try_from(code - 0xfe00).ok(),
        0xe0100..=0xe01ef => u8::try_from(code - 0xe0100 + 16).ok(),
        _ => None,
    }
}

fn show(c: char, out: &mut String) {
    out.push_str("\u{27e8}U+");
    let code = u32::from(c);
    for shift in [12, 8, 4, 0] {
        out.extend(char::from_digit((code >> shift) & 15, 16).map(|digit| digit.to_ascii_uppercase()));
    }
    out.push('\u{27e9}');
}

/// The text that a reader sees where the direction was reversed.
fn overridden(text: &str) -> Option<String> {
    const RLO: char = '\u{202e}';
    if !text.contains(RLO) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut turned: Option<Vec<char>> = None;
    for c in text.chars() {
        match (c, &mut turned) {
            (RLO, run) => out.extend(run.replace(Vec::new()).into_iter().flatten().rev()),
            ('\u{202c}' | '\u{202d}' | '\u{2069}', run) => out.extend(run.take().into_iter().flatten().rev()),
            (c, Some(run)) => run.push(c),
            (c, None) => out.push(c),
        }
    }
    out.extend(turned.into_iter().flatten().rev());
    Some(out)
}
