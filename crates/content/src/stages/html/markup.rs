//! Whether a string of data holds markup.
//!
//! Takes a text that is not declared as markup. Promise: one pass; `Vec<String>`, `a < b` and `<placeholder>` are not
//! markup; an element that can load or run something is markup however it is written.

/// Elements that have an effect by themselves.
const ACTIVE: [&str; 24] = [
    "applet", "audio", "base", "body", "button", "details", "embed", "form", "frame", "frameset", "html", "iframe",
    "img", "input", "link", "marquee", "math", "meta", "object", "script", "style", "svg", "template", "video",
];
/// Elements that only arrange text.
const PLAIN: [&str; 66] = [
    "a",
    "abbr",
    "address",
    "article",
    "aside",
    "b",
    "bdi",
    "bdo",
    "big",
    "blockquote",
    "br",
    "caption",
    "center",
    "cite",
    "code",
    "col",
    "dd",
    "del",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "font",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "i",
    "ins",
    "kbd",
    "label",
    "li",
    "main",
    "mark",
    "nav",
    "noscript",
    "ol",
    "p",
    "pre",
    "q",
    "s",
    "section",
    "small",
    "span",
    "strike",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "title",
    "tr",
    "u",
    "ul",
];
/// The longest tag that is read.
const LONGEST: usize = 4096;

/// Whether a text holds markup.
pub(super) fn holds_markup(text: &str) -> bool {
    memchr::memchr_iter(b'<', text.as_bytes()).any(|at| text.get(at + 1..).is_some_and(opens))
}

/// Whether a tag, a comment or a declaration starts here, after its `<`.
fn opens(rest: &str) -> bool {
    let bytes = rest.as_bytes();
    if bytes.starts_with(b"!--") || bytes.get(..8).is_some_and(|head| head.eq_ignore_ascii_case(b"!doctype")) {
        return true;
    }
    let closes = bytes.first() == Some(&b'/');
    let from = usize::from(closes);
    let length = bytes.iter().skip(from).take(11).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let Some(name) = rest.get(from..from + length).filter(|name| !name.is_empty()) else { return false };
    let name = name.to_ascii_lowercase();
    let after = bytes.get(from + length..).unwrap_or_default();
    if !matches!(after.first(), Some(b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | 0x0c)) {
        return false;
    }
    if ACTIVE.contains(&name.as_str()) {
        return true;
    }
    let inside = after.get(..LONGEST).unwrap_or(after);
    let Some(end) = memchr::memchr(b'>', inside) else { return false };
    let inside = inside.get(..end).unwrap_or_default();
    let is_bare = inside.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b'/');
    let has_attributes = inside.contains(&b'=') && !inside.contains(&b'<');
    (PLAIN.contains(&name.as_str()) && (is_bare || has_attributes)) || (has_attributes && acts(inside))
}

/// Whether an attribute runs something.
fn acts(inside: &[u8]) -> bool {
    let lower = inside.to_ascii_lowercase();
    memchr::memmem::find_iter(&lower, b"on").any(|at| {
        let before = at.checked_sub(1).and_then(|at| lower.get(at)).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        let letters = lower.iter().skip(at).take_while(|byte| byte.is_ascii_alphabetic()).take(32).count();
        before && letters > 3 && lower.get(at + letters) == Some(&b'=')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_told_from_signs() {
        for text in [
            "<p>x</p>",
            "a <B>b",
            "<br/>",
            "x</div>",
            "<!-- x",
            "<img src=x",
            "<svg/onload=x>",
            "<a href='x'>",
            "<x onclick=y>",
            "<SCRIPT>",
            "<!DOCTYPE html>",
            "<span class=\"a\">",
        ] {
            assert!(holds_markup(text), "{text}");
        }
        for text in
            ["a < b", "Vec<String>", "a<b && c>d", "<placeholder>", "x <- y", "<https://a.b/c=d>", "<>", "<", "1<i"]
        {
            assert!(!holds_markup(text), "{text}");
        }
    }
}
