//! Words for people: the nearest known word, and untrusted text made safe to print.

use std::fmt::Write as _;

/// Longest untrusted text in a message, in characters.
const SHOWN: usize = 60;

/// The known word that is probably meant, if one is close enough.
#[must_use]
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > 64 {
        return None;
    }
    let allowed = match word.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= 4)
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Whether a character could move, hide or recolour what a person reads.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Untrusted text with nothing invisible in it, cut to length.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == SHOWN {
            shown.push('…');
            break;
        }
        if is_unsafe(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A JSON value as one short line.
pub(crate) fn show_value(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("`{}`", escape(text)),
        other => {
            let text = other.to_string();
            escape(&text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_a_stranger_is_not() {
        let known = ["capability", "tier", "reason", "conditions"];
        assert_eq!(closest("capabilty", known), Some("capability"));
        assert_eq!(closest("teir", known), Some("tier"), "a swap of neighbours is one edit");
        assert_eq!(closest("condition", known), Some("conditions"));
        assert_eq!(closest("colour", known), None);
        assert_eq!(closest("", known), None);
    }

    #[test]
    fn foreign_text_is_cut_and_made_visible() {
        assert_eq!(escape("a\u{1b}[2J\u{202e}b"), "a\\u{1b}[2J\\u{202e}b");
        assert_eq!(escape(&"x".repeat(100)).chars().count(), SHOWN + 1);
    }
}
