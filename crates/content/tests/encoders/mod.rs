//! The output of real JSON encoders for a text: the inside of a string, as each writes it by default.
//!
//! Compared with `json.dumps` of Python 3 and `JSON.stringify` of Node where they are available
//! (`the_imitations_of_encoders_are_true`); the others follow the documentation of their libraries.

/// How one encoder writes a string.
type EncodeString = fn(&str) -> String;

/// Each encoder with how it writes a string.
pub const ENCODERS: [(&str, EncodeString); 9] = [
    ("Python json.dumps", python),
    ("JavaScript JSON.stringify", javascript),
    ("Go encoding/json", go),
    ("Java Jackson", jackson),
    ("Java Gson", gson),
    ("PHP json_encode", php),
    ("Ruby JSON.generate", javascript),
    ("Ruby on Rails to_json", rails),
    ("nobody: everything as \\uXXXX", everything),
];

/// Writes each character by `how`, and unchanged where that gives nothing.
fn written(text: &str, mut how: impl FnMut(char) -> Option<String>) -> String {
    text.chars().map(|c| how(c).unwrap_or_else(|| c.to_string())).collect()
}

/// `\uXXXX` for each UTF-16 unit.
fn units(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().fold(String::new(), |mut out, unit| {
        out.push_str(&format!("\\u{unit:04x}"));
        out
    })
}

/// The characters that every encoder escapes.
fn always(c: char) -> Option<String> {
    Some(match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        '\u{8}' => "\\b".into(),
        '\u{c}' => "\\f".into(),
        '\0'..='\u{1f}' => units(c),
        _ => return None,
    })
}

/// CPython's `json.dumps`, `ensure_ascii=True`: everything beyond ASCII, in lower case hex; DEL is ASCII.
pub fn python(text: &str) -> String {
    written(text, |c| always(c).or_else(|| (c > '~').then(|| units(c))))
}

/// `JSON.stringify` of ECMAScript, and Ruby's `JSON.generate`: only what must be escaped.
pub fn javascript(text: &str) -> String {
    written(text, always)
}

/// Go's `encoding/json`, `SetEscapeHTML(true)`: `<`, `>`, `&` and two line separators.
fn go(text: &str) -> String {
    written(text, |c| always(c).or_else(|| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}').then(|| units(c))))
}

/// Jackson's `ObjectMapper`: control characters in upper case hex.
fn jackson(text: &str) -> String {
    written(text, |c| {
        always(c).map(|escaped| if escaped.len() > 2 { escaped.to_uppercase().replace("\\U", "\\u") } else { escaped })
    })
}

/// Gson with `htmlSafe`: the signs of markup, `=` and `'` as well.
fn gson(text: &str) -> String {
    let safe = |c: char| matches!(c, '<' | '>' | '&' | '=' | '\'' | '\u{2028}' | '\u{2029}');
    written(text, |c| always(c).or_else(|| safe(c).then(|| units(c))))
}

/// PHP's `json_encode` without flags: `\/`, and everything beyond ASCII.
fn php(text: &str) -> String {
    written(text, |c| {
        always(c).or_else(|| if c == '/' { Some("\\/".into()) } else { (!c.is_ascii()).then(|| units(c)) })
    })
}

/// ActiveSupport's `to_json` with `escape_html_entities_in_json`.
fn rails(text: &str) -> String {
    go(text)
}

/// No encoder writes this, but every reader accepts it.
fn everything(text: &str) -> String {
    text.chars().map(|c| units(c).to_uppercase().replace("\\U", "\\u")).collect()
}
