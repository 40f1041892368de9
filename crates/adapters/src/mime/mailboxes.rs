//! Parses the addresses of a header field by one strict reading of our own.
//!
//! Takes the value of a field on one line, gives the addresses in it. Promise: it gives an address only where RFC 5322
//! allows one reading, and reports an ambiguity otherwise.

/// One token of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AddressToken {
    /// A word without quotes, dots included.
    Atom(String),
    /// The text between quotes.
    Quoted(String),
    /// One of `< > @ , ; :`.
    Sign(char),
    /// Blanks or a comment.
    Gap,
}

/// The addresses of a value, in order. `None` if it can be read in two ways.
pub fn read(value: &str) -> Option<Vec<String>> {
    let tokens = tokens(value)?;
    let (mut found, mut in_group, mut one) = (Vec::new(), false, Vec::new());
    let mut in_angle = false;
    for token in tokens {
        match token {
            AddressToken::Sign('<') if !in_angle => in_angle = true,
            AddressToken::Sign('>') if in_angle => in_angle = false,
            AddressToken::Sign('<' | '>') => return None,
            AddressToken::Sign(',' | ';' | ':') if in_angle => return None,
            AddressToken::Sign(',') => {
                found.extend(mailbox(&std::mem::take(&mut one))?);
                continue;
            }
            AddressToken::Sign(';') => {
                if !std::mem::take(&mut in_group) {
                    return None;
                }
                found.extend(mailbox(&std::mem::take(&mut one))?);
                continue;
            }
            AddressToken::Sign(':') => {
                let is_name = one
                    .iter()
                    .all(|token| matches!(token, AddressToken::Atom(_) | AddressToken::Quoted(_) | AddressToken::Gap));
                if in_group || !is_name {
                    return None;
                }
                in_group = true;
                one.clear();
                continue;
            }
            AddressToken::Sign(_) | AddressToken::Atom(_) | AddressToken::Quoted(_) | AddressToken::Gap => {}
        }
        one.push(token);
    }
    if in_group || in_angle {
        return None;
    }
    found.extend(mailbox(&one)?);
    Some(found)
}

/// The address of one mailbox, if it has one.
fn mailbox(tokens: &[AddressToken]) -> Option<Option<String>> {
    let is_word =
        |token: &AddressToken| matches!(token, AddressToken::Atom(_) | AddressToken::Quoted(_) | AddressToken::Gap);
    let tokens = trimmed(tokens);
    let Some(open) = tokens.iter().position(|token| *token == AddressToken::Sign('<')) else {
        // A name without an address: there is nobody to reply to.
        return if tokens.iter().all(is_word) { Some(None) } else { spec(tokens).map(Some) };
    };
    let (name, rest) = tokens.split_at(open);
    let (Some(AddressToken::Sign('>')), Some(inner)) = (rest.last(), rest.get(1..rest.len().saturating_sub(1))) else {
        return None;
    };
    let inner = trimmed(inner);
    if inner.is_empty() {
        return name.iter().all(is_word).then_some(None);
    }
    let address = spec(inner)?;
    // A name that is itself an address counts only if it is the same address.
    let named = name.iter().all(is_word) || spec(trimmed(name)).is_some_and(|named| named == address);
    named.then_some(Some(address))
}

fn trimmed(tokens: &[AddressToken]) -> &[AddressToken] {
    let from = tokens.iter().position(|token| *token != AddressToken::Gap).unwrap_or(tokens.len());
    let to = tokens.iter().rposition(|token| *token != AddressToken::Gap).map_or(from, |at| at + 1);
    tokens.get(from..to).unwrap_or_default()
}

/// An address and nothing else.
fn spec(tokens: &[AddressToken]) -> Option<String> {
    let [local, AddressToken::Sign('@'), AddressToken::Atom(domain)] = tokens else { return None };
    let local = match local {
        AddressToken::Atom(text) if !text.contains("=?") => text.clone(),
        AddressToken::Quoted(text) if text.chars().all(|c| c.is_ascii_alphanumeric() || "._- ".contains(c)) => {
            format!("\"{text}\"")
        }
        _ => return None,
    };
    let label = |label: &str| {
        let plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.chars().all(plain)
    };
    // Invisible characters and lookalikes turn one address into two.
    let visible = local.chars().all(|c| c.is_ascii() || c.is_alphanumeric());
    let edges = local.starts_with('.') || local.ends_with('.') || local.contains("..");
    (domain.split('.').all(label) && !edges && visible).then(|| format!("{local}@{domain}"))
}

/// Splits a value into tokens. `None` if a quote or a comment has no end, or a sign is not allowed where it is.
fn tokens(value: &str) -> Option<Vec<AddressToken>> {
    let mut tokens = Vec::new();
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => {
                if tokens.last() != Some(&AddressToken::Gap) {
                    tokens.push(AddressToken::Gap);
                }
            }
            '"' => {
                let mut text = String::new();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => text.push(chars.next()?),
                        other => text.push(other),
                    }
                }
                tokens.push(AddressToken::Quoted(text));
            }
            '(' => {
                let mut depth = 1_usize;
                while depth > 0 {
                    match chars.next()? {
                        '(' => depth += 1,
                        ')' => depth -= 1,
                        '\\' => {
                            chars.next()?;
                        }
                        _ => {}
                    }
                }
                if tokens.last() != Some(&AddressToken::Gap) {
                    tokens.push(AddressToken::Gap);
                }
            }
            '<' | '>' | '@' | ',' | ';' | ':' => tokens.push(AddressToken::Sign(c)),
            ')' | '\\' | '[' | ']' => return None,
            c if c.is_control() => return None,
            c => {
                let mut text = String::from(c);
                while let Some(&next) = chars.peek() {
                    if " \t\"(<>@,;:)\\[]".contains(next) || next.is_control() {
                        break;
                    }
                    text.push(next);
                    chars.next();
                }
                tokens.push(AddressToken::Atom(text));
            }
        }
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_no_choice_is_read() {
        for (value, expected) in [
            ("a@b.example", vec!["a@b.example"]),
            ("Ana <a@b.example>", vec!["a@b.example"]),
            ("\"Doe, J. (x) <y@z>\" <a@b.example>", vec!["a@b.example"]),
            ("J. Q. Public <a@b.example> (work), c@d.example", vec!["a@b.example", "c@d.example"]),
            ("a@b.example (Ana)", vec!["a@b.example"]),
            ("a@b.example <a@b.example>", vec!["a@b.example"]),
            ("team: a@b.example, C <c@d.example>;", vec!["a@b.example", "c@d.example"]),
            ("undisclosed-recipients:;", vec![]),
            ("\"a b\"@c.example", vec!["\"a b\"@c.example"]),
            ("=?utf-8?q?Zo=C3=AB?= <z@b.example>", vec!["z@b.example"]),
            ("Zoë <zoë@bücher.example>", vec!["zoë@bücher.example"]),
            ("root", vec![]),
            ("<>", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(read(value), Some(expected.into_iter().map(str::to_owned).collect()), "{value}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not() {
        for value in [
            "a@b.example <c@d.example>",
            "<a@b.example> <c@d.example>",
            "a@b.example c@d.example",
            "<@a.example:c@d.example>",
            "a@b@c.example",
            "a@b.example>",
            "<a@b.example",
            "\"a@b.example <c@d.example>",
            "a@b.example (c",
            "a@b.example) <c@d.example>",
            "\"c@d.example\\\"\"@b.example",
            "=?utf-8?q?a=40b.example?=@c.example",
            "team: a@b.example",
            "x: y: a@b.example;",
            "a@b.example;c@d.example",
            "a@b.example\u{0}",
            "a @b.example",
            "a\u{200b}@b.example",
            "a@b\u{ad}.example",
            "a@b .example",
            "[x] <a@b.example>",
            "a@[127.0.0.1]",
        ] {
            assert_eq!(read(value), None, "{value}");
        }
    }
}
