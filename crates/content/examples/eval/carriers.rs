//! The same text in each carrier.
//!
//! Takes attack texts, gives the share of recall that remains in each carrier. Promise: only texts that are found in
//! plain form count, so that the share depends on the carrier alone.

use base64::Engine as _;

use super::flags;

type CarrierEncoder = fn(&str) -> String;

/// Each carrier, with the function that applies it.
pub const CARRIERS: [(&str, CarrierEncoder, Option<&str>); 25] = [
    ("base64", |text| base64::engine::general_purpose::STANDARD.encode(text), None),
    ("hex", |text| text.bytes().map(|byte| format!("{byte:02x}")).collect(), None),
    ("hex dump", |text| text.bytes().map(|byte| format!("{byte:02x} ")).collect(), None),
    ("percent", |text| text.bytes().map(|byte| format!("%{byte:02X}")).collect(), None),
    ("rot13", |text| text.chars().map(turned).collect(), None),
    ("reversed", |text| text.chars().rev().collect(), None),
    ("spaced", |text| text.chars().flat_map(|c| [c, ' ']).collect(), None),
    ("dotted", |text| text.split(' ').map(|word| between(word, ".")).collect::<Vec<_>>().join(" "), None),
    ("leet", |text| text.chars().map(leet).collect(), None),
    ("homoglyph", |text| text.chars().map(lookalike).collect(), None),
    ("full width", |text| text.chars().map(|c| shifted(c, '!'..='~', 0xff01)).collect(), None),
    ("math letters", |text| text.chars().map(math).collect(), None),
    ("zero width", |text| between(text, "\u{200b}"), None),
    (
        "tag characters",
        |text| {
            format!("Thanks for the note!{}", text.chars().map(|c| shifted(c, ' '..='~', 0xe0020)).collect::<String>())
        },
        None,
    ),
    ("selectors", |text| format!("Thanks!{}", text.bytes().filter_map(selector).collect::<String>()), None),
    ("soft hyphen", |text| between(text, "\u{ad}"), None),
    ("bidi", |text| format!("\u{202e}{}\u{202c}", text.chars().rev().collect::<String>()), None),
    (
        "combining",
        |text| text.chars().flat_map(|c| [c, if c.is_alphabetic() { '\u{301}' } else { '\u{200b}' }]).collect(),
        None,
    ),
    ("entities", |text| text.chars().map(|c| format!("&#{};", u32::from(c))).collect(), None),
    (
        "html entities",
        |text| format!("<p>{}</p>", text.chars().map(|c| format!("&#x{:x};", u32::from(c))).collect::<String>()),
        Some("text/html"),
    ),
    (
        "html comment",
        |text| format!("<html><body><p>Dear all, see you on Monday.</p><!-- {text} --></body></html>"),
        None,
    ),
    (
        "hidden html",
        |text| {
            format!(
                "<html><body><p>See you on Monday.</p><div style=\"display:none\">{}</div></body></html>",
                escaped(text)
            )
        },
        None,
    ),
    (
        "white on white",
        |text| format!("<p>See you.</p><span style=\"color:#fff;background:#ffffff\">{}</span>", escaped(text)),
        Some("text/html"),
    ),
    ("alt text", |text| format!("<p>See you.</p><img src=x alt=\"{}\">", escaped(text)), Some("text/html")),
    ("unicode escapes", |text| text.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect(), None),
];

/// Prints the share of the plain recall that remains in each carrier.
pub fn table(texts: &[&str]) {
    let short: Vec<&str> =
        texts.iter().copied().filter(|text| text.len() < 4000 && text.is_ascii()).step_by(9).collect();
    let caught: Vec<&str> = short.into_iter().filter(|text| flags(text, None)).collect();
    println!("carriers: share of {} caught texts that is still caught", caught.len());
    for (name, dress, content_type) in CARRIERS {
        let still = caught.iter().filter(|text| flags(&dress(text), content_type)).count();
        println!("{name:<34} {:.3}", still as f64 / caught.len().max(1) as f64);
    }
}

fn turned(c: char) -> char {
    match c {
        'a'..='m' | 'A'..='M' => char::from(c as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(c as u8 - 13),
        _ => c,
    }
}

fn between(text: &str, mark: &str) -> String {
    text.chars().map(|c| c.to_string()).collect::<Vec<_>>().join(mark)
}

fn leet(c: char) -> char {
    match c.to_ascii_lowercase() {
        'a' => '4',
        'e' => '3',
        'i' => '1',
        'o' => '0',
        's' => '5',
        't' => '7',
        _ => c,
    }
}

fn lookalike(c: char) -> char {
    match c {
        'a' => 'а',
        'c' => 'с',
        'e' => 'е',
        'i' => 'і',
        'o' => 'о',
        'p' => 'р',
        's' => 'ѕ',
        'x' => 'х',
        'y' => 'у',
        _ => c,
    }
}

fn shifted(c: char, range: std::ops::RangeInclusive<char>, to: u32) -> char {
    if range.contains(&c) { char::from_u32(u32::from(c) - u32::from(*range.start()) + to).unwrap() } else { c }
}

fn math(c: char) -> char {
    match c {
        'a'..='z' => shifted(c, 'a'..='z', 0x1d41a),
        'A'..='Z' => shifted(c, 'A'..='Z', 0x1d400),
        _ => c,
    }
}

fn selector(byte: u8) -> Option<char> {
    let byte = u32::from(byte);
    char::from_u32(if byte < 16 { 0xfe00 + byte } else { 0xe0100 + byte - 16 })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
