//! Addresses of a header field, by one strict reading of our own.
//!
//! Takes the value of a field on one line, gives the addresses it names. Promise: it names an address only where
//! RFC 5322 leaves no choice, and says so where it does.

/// One piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A word without quotes, dots included.
    Atom(String),
    /// What stood between quotes.
    Quoted(String),
    /// One of `< > @ , ; :`.
    Sign(char),
    /// Blanks or a comment.
    Gap,
}

/// The addresses a value names, in order. Nothing if it can be read in two ways.
pub fn read(value: &str) -> Option<Vec<String>> {
    let tokens = tokens(value)?;
    let (mut found, mut in_group, mut one) = (Vec::new(), false, Vec::new());
    let mut in_angle = false;
    for token in tokens {
        match token {
            Token::Sign('<') if !in_angle => in_angle = true,
            Token::Sign('>') if in_angle => in_angle = false,
            Token::Sign('<' | '>') => return None,
            Token::Sign(',' | ';' | ':') if in_angle => return None,
            Token::Sign(',') => {
                found.extend(mailbox(&std::mem::take(&mut one))?);
                continue;
            }
            Token::Sign(';') => {
                if !std::mem::take(&mut in_group) {
                    return None;
                }
                found.extend(mailbox(&std::mem::take(&mut one))?);
                continue;
            }
            Token::Sign(':') => {
                let is_name = one.iter().all(|token| matches!(token, Token::Atom(_) | Token::Quoted(_) | Token::Gap));
                if in_group || !is_name {
                    return None;
                }
                in_group = true;
                one.clear();
                continue;
            }
            Token::Sign(_) | Token::Atom(_) | Token::Quoted(_) | Token::Gap => {}
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
fn mailbox(tokens: &[Token]) -> Option<Option<String>> {
    let is_word = |token: &Token| matches!(token, Token::Atom(_) | Token::Quoted(_) | Token::Gap);
    let tokens = trimmed(tokens);
    let Some(open) = tokens.iter().position(|token| *token == Token::Sign('<')) else {
        // A name alone is nobody who could be answered.
        return if tokens.iter().all(is_word) { Some(None) } else { spec(tokens).map(Some) };
    };
    let (name, rest) = tokens.split_at(open);
    let (Some(Token::Sign('>')), Some(inner)) = (rest.last(), rest.get(1..rest.len().saturating_sub(1))) else {
        return None;
    };
    let inner = trimmed(inner);
    if inner.is_empty() {
        return name.iter().all(is_word).then_some(None);
    }
    let address = spec(inner)?;
    // A name that is itself an address is one only if it is the same.
    let named = name.iter().all(is_word) || spec(trimmed(name)).is_some_and(|named| named == address);
    named.then_some(Some(address))
}

fn trimmed(tokens: &[Token]) -> &[Token] {
    let from = tokens.iter().position(|token| *token != Token::Gap).unwrap_or(tokens.len());
    let to = tokens.iter().rposition(|token| *token != Token::Gap).map_or(from, |at| at + 1);
    tokens.get(from..to).unwrap_or_default()
}

/// An address and nothing else.
fn spec(tokens: &[Token]) -> Option<String> {
    let [local, Token::Sign('@'), Token::Atom(domain)] = tokens else { return None };
    let local = match local {
        Token::Atom(text) if !text.contains("=?") => text.clone(),
        Token::Quoted(text) if text.chars().all(|c| c.is_ascii_alphanumeric() || "._- ".contains(c)) => {
            format!("\"{text}\"")
        }
        _ => return None,
    };
    let label = |label: &str| {
        let plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.chars().all(plain)
    };
    // Signs that nobody sees, and signs that look like others, make one address of two.
    let visible = local.chars().all(|c| c.is_ascii() || c.is_alphanumeric());
    let edges = local.starts_with('.') || local.ends_with('.') || local.contains("..");
    (domain.split('.').all(label) && !edges && visible).then(|| format!("{local}@{domain}"))
}

/// Cuts a value into pieces. Nothing if a quote or a comment has no end, or a sign has no place in it.
fn tokens(value: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => {
                if tokens.last() != Some(&Token::Gap) {
                    tokens.push(Token::Gap);
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
                tokens.push(Token::Quoted(text));
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
                if tokens.last() != Some(&Token::Gap) {
                    tokens.push(Token::Gap);
                }
            }
            '<' | '>' | '@' | ',' | ';' | ':' => tokens.push(Token::Sign(c)),
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
                tokens.push(Token::Atom(text));
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
