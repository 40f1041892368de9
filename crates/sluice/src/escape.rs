//! Outside text on a person's screen.
//!
//! SECURITY: text from an agent, a file or a service must neither steer the terminal nor look like
//! something else. Promise: characters that could move, hide or recolour text are shown as escape codes.

use std::fmt::Write as _;

use serde_json::Value;
use sluice_core::policy::reading::is_unsafe;

/// One line of text with invisible characters made visible.
pub(crate) fn escape_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unsafe(c) => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

/// The lines of a text, with invisible characters made visible.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('\n').map(escape_line)
}

/// A JSON value as one line: strings as they are, everything else as JSON.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => escape_line(text),
        Value::Null => "-".into(),
        other => escape_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_or_deceive_is_shown_as_its_code() {
        assert_eq!(escape_line("a\u{1b}[2J\u{202e}b\u{200b}\r"), "a\\u{1b}[2J\\u{202e}b\\u{200b}\\u{d}");
        assert_eq!(escape_line("one\ntwo\tthree"), "one\\ntwo\\tthree");
        assert_eq!(escape_line("grün 日本"), "grün 日本");
        assert_eq!(lines("a\n\u{7}b").collect::<Vec<_>>(), ["a", "\\u{7}b"]);
        assert_eq!(value(&serde_json::json!({"a": "\u{202e}"})), "{\"a\":\"\\u{202e}\"}");
    }
}
