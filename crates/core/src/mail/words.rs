//! Splits text into words, for everything that searches mail.
//!
//! Takes any text, gives its words folded: lower case, Latin letters without their accents, every sign
//! of a script without spaces as a word of its own. Promise: a word holds letters and digits only, so it
//! means nothing to a query language.

/// Longest word that is kept, in bytes; people do not write longer ones.
pub const LONGEST: usize = 48;

/// Calls back with each word of a text and where it stands, in bytes.
pub fn each(text: &str, mut found: impl FnMut(&str, usize, usize)) {
    let mut word = String::with_capacity(LONGEST);
    let mut start = 0;
    let mut end = |word: &mut String, start: usize, at: usize| {
        if !word.is_empty() && word.len() <= LONGEST {
            found(word, start, at);
        }
        word.clear();
    };
    for (at, c) in text.char_indices() {
        if c.is_ascii_alphanumeric() {
            if word.is_empty() {
                start = at;
            }
            word.push(c.to_ascii_lowercase());
        } else if c.is_ascii() || !c.is_alphanumeric() {
            end(&mut word, start, at);
        } else if stands_alone(c) {
            end(&mut word, start, at);
            word.push(c);
            end(&mut word, at, at + c.len_utf8());
        } else {
            if word.is_empty() {
                start = at;
            }
            push_folded(&mut word, c);
        }
    }
    end(&mut word, start, text.len());
}

/// The words of a text, in order.
#[must_use]
pub fn of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    each(text, |word, _, _| words.push(word.to_owned()));
    words
}

/// Scripts that put no spaces between words.
const fn stands_alone(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn push_folded(word: &mut String, c: char) {
    for lower in c.to_lowercase() {
        match plain(lower) {
            Some(letters) => word.push_str(letters),
            // Marks that only change the letter before them.
            None if matches!(lower, '\u{300}'..='\u{36f}') => {}
            None => word.push(lower),
        }
    }
}

/// The plain letters of an accented Latin letter.
const fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => "e",
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => "g",
        'ĥ' | 'ħ' => "h",
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => "i",
        'ĵ' => "j",
        'ķ' => "k",
        'ĺ' | 'ļ' | 'ľ' | 'ŀ' | 'ł' => "l",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' => "o",
        'œ' => "oe",
        'ŕ' | 'ŗ' | 'ř' => "r",
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => "s",
        'ß' => "ss",
        'ţ' | 'ť' | 'ŧ' | 'ț' => "t",
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => "u",
        'ŵ' => "w",
        'ý' | 'ÿ' | 'ŷ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        'þ' => "th",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn case_and_accents_do_not_matter() {
        assert_eq!(of("Ünïcode STRASSE straße, l'été"), ["unicode", "strasse", "strasse", "l", "ete"]);
        assert_eq!(of("a.b@c-d.example 2026"), ["a", "b", "c", "d", "example", "2026"]);
    }

    #[test]
    fn signs_without_spaces_between_words_are_words() {
        assert_eq!(of("東京 tower"), ["東", "京", "tower"]);
    }

    #[test]
    fn what_nobody_typed_is_no_word() {
        assert_eq!(of(&format!("a {} b", "x".repeat(LONGEST + 1))), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn a_word_means_nothing_to_a_query_language(text in ".*") {
            each(&text, |word, from, to| {
                assert!(!word.is_empty() && word.chars().all(char::is_alphanumeric) && word.len() <= LONGEST);
                assert!(text.get(from..to).is_some(), "the place of a word is a part of the text");
            });
        }

        #[test]
        fn folding_twice_changes_nothing(text in "\\PC*") {
            let once = of(&text);
            let twice = of(&once.join(" "));
            prop_assert_eq!(once, twice);
        }
    }
}
