//! Disguises that keep the letters: spaced, leet, turned by thirteen, backwards.
//!
//! Takes a text, gives what it says. Promise: linear, and never longer than the text.

/// So many letters have to be joined for a text to be spaced.
const JOINED: usize = 8;

/// `i g n o r e   t h i s` becomes `ignore this`. Nothing, if too little of the text is spaced.
pub(super) fn unspaced(text: &str) -> Option<String> {
    if spaced(text) < JOINED {
        return None;
    }
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied();
    let lone = |index: usize| {
        at(index).is_some_and(char::is_alphanumeric)
            && (index == 0 || at(index - 1).is_some_and(|c| !c.is_alphanumeric()))
            && at(index + 1).is_none_or(|c| !c.is_alphanumeric())
    };
    let mut out = String::with_capacity(text.len());
    let (mut index, mut joined) = (0, 0);
    while let Some(c) = at(index) {
        if lone(index) && lone(index + 2) && at(index + 1).is_some_and(|c| c != '\n') {
            let separator = at(index + 1);
            // Letters with the same single separator between them are one word.
            out.push(c);
            while at(index + 1) == separator && lone(index + 2) {
                out.extend(at(index + 2));
                joined += 1;
                index += 2;
            }
            index += 1;
            // What follows is the space between two words, or punctuation that was spaced as well.
            if at(index) == separator && at(index + 1).is_some_and(|c| !c.is_alphanumeric() && Some(c) != separator) {
                index += 1;
            }
        } else {
            // The gaps between spaced words are wider; one space is what a word list expects.
            if !(c == ' ' && out.ends_with([' ', '\n'])) {
                out.push(c);
            }
            index += 1;
        }
    }
    (joined >= JOINED).then_some(out)
}

/// How often a letter that stands alone is followed, one sign later, by another: at least as often as letters would
/// be joined. One look at each character, because most texts end here.
fn spaced(text: &str) -> usize {
    // The last five characters, the newest last: a bit for each that is a letter or a digit.
    const ALONE_TWICE: u32 = 0b01010;
    let (mut last, mut count) = (0, 0);
    let mut see = |letter: bool| {
        last = (last << 1 | u32::from(letter)) & 0b11111;
        count += usize::from(last == ALONE_TWICE);
    };
    text.chars().for_each(|c| see(c.is_alphanumeric()));
    see(false);
    count
}

/// `1gn0r3` becomes `ignore`; a one stands for `one`.
pub(super) fn unleet(text: &str, one: char) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut words, mut changed) = (0, 0);
    for word in text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '(' | ')')) {
        let core = word.trim_end_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '@' | '$'));
        let letters = core.chars().filter(char::is_ascii_alphabetic).count();
        let swapped = core.chars().filter(|&c| leet(c, one).is_some()).count();
        words += usize::from(letters + swapped > 0);
        // A number, a version or a hash has more digits than a word in disguise.
        let other = core.chars().count() - letters - swapped;
        if swapped > 0 && other <= 1 && (letters + swapped <= 3 || letters * 3 >= swapped) && core.len() <= 24 {
            changed += usize::from(letters > 0);
            out.extend(word.chars().map(|c| leet(c, one).unwrap_or(c)));
        } else {
            out.push_str(word);
        }
    }
    (changed >= 3 && changed * 8 >= words).then_some(out)
}

fn leet(c: char, one: char) -> Option<char> {
    Some(match c {
        '0' => 'o',
        '1' | '!' | '|' => one,
        '2' => 'z',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '6' | '9' => 'g',
        '7' | '+' => 't',
        '8' => 'b',
        _ => return None,
    })
}

/// Letters thirteen places on.
pub(in crate::stages) fn rot13(text: &str) -> String {
    let turn = |c: char| match c {
        'a'..='m' | 'A'..='M' => char::from_u32(u32::from(c) + 13).unwrap_or(c),
        'n'..='z' | 'N'..='Z' => char::from_u32(u32::from(c) - 13).unwrap_or(c),
        _ => c,
    };
    text.chars().map(turn).collect()
}

/// Backwards.
pub(in crate::stages) fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pairs of lone letters, counted as `unspaced` finds them.
    fn pairs(text: &str) -> usize {
        let chars: Vec<char> = text.chars().collect();
        let lone = |at: usize| {
            chars.get(at).is_some_and(|c| c.is_alphanumeric())
                && at.checked_sub(1).is_none_or(|before| !chars[before].is_alphanumeric())
                && chars.get(at + 1).is_none_or(|c| !c.is_alphanumeric())
        };
        (0..chars.len()).filter(|at| lone(*at) && lone(*at + 2)).count()
    }

    #[test]
    fn a_spaced_text_is_read_from_its_first_letter_to_its_last() {
        assert_eq!(unspaced("i g n o r e   t h i s").as_deref(), Some("ignore this"));
        assert_eq!(unspaced("a b c d e f g h"), None, "seven were joined");
        assert_eq!(unspaced("a b c d e f g h i").as_deref(), Some("abcdefghi"));
        assert_eq!(unspaced("и г н о р и р у й").as_deref(), Some("игнорируй"));
    }

    proptest! {
        #[test]
        fn lone_letters_are_counted_as_they_are_joined(text in "[ab\u{e9}\u{433} .\n-]{0,60}") {
            prop_assert_eq!(spaced(&text), pairs(&text));
        }
    }
}
