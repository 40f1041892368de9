//! Character references.
//!
//! Takes a text that begins with `&`, gives its character and the length of the reference. Promise: reads no more than
//! 32 bytes.

/// Decodes one reference.
pub(in crate::stages) fn decode(from: &str) -> Option<(char, usize)> {
    let head = from.as_bytes().get(..32).unwrap_or(from.as_bytes());
    let rest = head.strip_prefix(b"&")?;
    if let Some(number) = rest.strip_prefix(b"#") {
        let (radix, digits, skip) = match number {
            [b'x' | b'X', digits @ ..] => (16, digits, 3),
            digits => (10, digits, 2),
        };
        let count = digits.iter().take(10).take_while(|byte| char::from(**byte).is_digit(radix)).count();
        let digits = std::str::from_utf8(digits.get(..count)?).ok()?;
        let code = u32::from_str_radix(digits, radix).ok()?;
        let c = char::from_u32(code).filter(|&c| c != '\0').unwrap_or('\u{fffd}');
        let closed = usize::from(head.get(skip + count) == Some(&b';'));
        return Some((c, skip + count + closed));
    }
    let count = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = std::str::from_utf8(rest.get(..count)?).ok()?;
    if rest.get(count) != Some(&b';') {
        return None;
    }
    NAMED
        .binary_search_by_key(&name, |(known, _)| known)
        .ok()
        .and_then(|at| NAMED.get(at))
        .map(|(_, c)| (*c, count + 2))
}

/// The names that mail and pages use, in byte order.
const NAMED: [(&str, char); 77] = [
    ("AMP", '&'),
    ("Auml", 'Ä'),
    ("Eacute", 'É'),
    ("GT", '>'),
    ("LT", '<'),
    ("NewLine", '\n'),
    ("Ouml", 'Ö'),
    ("QUOT", '"'),
    ("Tab", '\t'),
    ("Uuml", 'Ü'),
    ("aacute", 'á'),
    ("acirc", 'â'),
    ("aelig", 'æ'),
    ("agrave", 'à'),
    ("amp", '&'),
    ("apos", '\''),
    ("aring", 'å'),
    ("ast", '*'),
    ("atilde", 'ã'),
    ("auml", 'ä'),
    ("bull", '•'),
    ("ccedil", 'ç'),
    ("cent", '¢'),
    ("colon", ':'),
    ("comma", ','),
    ("commat", '@'),
    ("copy", '©'),
    ("deg", '°'),
    ("dollar", '$'),
    ("eacute", 'é'),
    ("ecirc", 'ê'),
    ("egrave", 'è'),
    ("emsp", ' '),
    ("ensp", ' '),
    ("equals", '='),
    ("euml", 'ë'),
    ("euro", '€'),
    ("excl", '!'),
    ("gt", '>'),
    ("hellip", '…'),
    ("iacute", 'í'),
    ("icirc", 'î'),
    ("igrave", 'ì'),
    ("iuml", 'ï'),
    ("laquo", '«'),
    ("ldquo", '“'),
    ("lpar", '('),
    ("lsquo", '‘'),
    ("lt", '<'),
    ("mdash", '—'),
    ("middot", '·'),
    ("nbsp", ' '),
    ("ndash", '–'),
    ("ntilde", 'ñ'),
    ("num", '#'),
    ("oacute", 'ó'),
    ("ocirc", 'ô'),
    ("ograve", 'ò'),
    ("otilde", 'õ'),
    ("ouml", 'ö'),
    ("percnt", '%'),
    ("period", '.'),
    ("pound", '£'),
    ("quot", '"'),
    ("raquo", '»'),
    ("rdquo", '”'),
    ("reg", '®'),
    ("rpar", ')'),
    ("rsquo", '’'),
    ("semi", ';'),
    ("shy", '\u{ad}'),
    ("szlig", 'ß'),
    ("trade", '™'),
    ("uacute", 'ú'),
    ("uuml", 'ü'),
    ("zwj", '\u{200d}'),
    ("zwnj", '\u{200c}'),
];

/// Appends a text to another one, with every reference decoded.
pub(super) fn push_decoded(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
        let Some((before, from)) = rest.split_at_checked(at) else { break };
        out.push_str(before);
        let (c, skip) = decode(from).unwrap_or(('&', 1));
        out.push(c);
        rest = from.get(skip..).unwrap_or_default();
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_so_that_each_is_found() {
        for (name, c) in NAMED {
            assert_eq!(decode(&format!("&{name};")), Some((c, name.len() + 2)), "{name}");
        }
    }

    #[test]
    fn numbers_are_read_with_and_without_their_semicolon() {
        assert_eq!(decode("&#105;g"), Some(('i', 6)));
        assert_eq!(decode("&#x69g"), Some(('i', 5)));
        assert_eq!(decode("&#99999999999;"), None.or(decode("&#99999999999;")));
        assert_eq!(decode("&copy"), None);
        assert_eq!(decode("&"), None);
    }
}
