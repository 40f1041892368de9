//! The recipients of a message, read from an argument in the way a mail program reads a header line.
//!
//! Takes the value of a recipients argument: a text with separators, or a list of such texts. Gives
//! the addresses. Promise: an ambiguous text is counted as the larger number of
//! people, and an ambiguous address has no domain, so it is within none.

use serde_json::Value;

/// One recipient as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailRecipient {
    /// The address without its display name.
    pub address: String,
    /// How many people it may stand for: one, unless the text holds several addresses.
    pub people: u32,
}

/// Every recipient in the value of a recipients argument; none if it is neither text nor list.
#[must_use]
pub fn parse_recipients(value: &Value) -> Vec<MailRecipient> {
    match value {
        Value::String(text) => read_text(text),
        Value::Array(list) => list.iter().filter_map(Value::as_str).flat_map(read_text).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// How many people a value may reach.
#[must_use]
pub fn count_people(value: &Value) -> u32 {
    parse_recipients(value).iter().fold(0, |sum, recipient| sum.saturating_add(recipient.people))
}

impl MailRecipient {
    /// The part after the `@`, in lower case, if the address can only be read in one way.
    #[must_use]
    pub fn domain(&self) -> Option<String> {
        let (local, domain) = self.address.split_once('@')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        let certain = self.people == 1
            && !local.is_empty()
            && local.chars().all(|c| c.is_ascii_graphic() && !"\"(),:;<>[\\]".contains(c))
            && domain.chars().all(plain)
            && domain.split('.').all(|label| !label.is_empty());
        certain.then(|| domain.to_ascii_lowercase())
    }
}

fn read_text(text: &str) -> Vec<MailRecipient> {
    split(text).into_iter().filter_map(|part| recipient(&part)).collect()
}

/// A character, and whether it stands inside a quoted display name.
type QuotedChar = (char, bool);

/// The text, cut at every separator outside quotes. Semicolons and line breaks separate as well: some
/// services take them, so leaving them out would let a long list count as one.
fn split(text: &str) -> Vec<Vec<QuotedChar>> {
    mark(text)
        .split(|&(c, quoted)| !quoted && matches!(c, ',' | ';' | '\n' | '\r'))
        .map(<[QuotedChar]>::to_vec)
        .collect()
}

/// A quotation mark that is never closed quotes nothing, so that it cannot hide the rest of the list.
fn mark(text: &str) -> Vec<QuotedChar> {
    let (mut marked, mut quoted, mut escaped, mut opened_at) = (Vec::new(), false, false, 0);
    for c in text.chars() {
        let closes = quoted && !escaped && c == '"';
        let opens = !quoted && c == '"';
        escaped = quoted && !escaped && c == '\\';
        if opens {
            (quoted, opened_at) = (true, marked.len());
        }
        marked.push((c, quoted));
        if closes {
            quoted = false;
        }
    }
    if quoted {
        marked.iter_mut().skip(opened_at).for_each(|(_, quoted)| *quoted = false);
    }
    marked
}

/// `Ana <a@b.c>`, `a@b.c`, or `None` where there is only space.
fn recipient(part: &[QuotedChar]) -> Option<MailRecipient> {
    let text: String = part.iter().map(|&(c, _)| c).collect();
    if text.trim().is_empty() {
        return None;
    }
    // SECURITY: a quoted text is only a name when an address in brackets follows it.
    // Otherwise a parser less strict than this one could take addresses from there, so they count.
    let named = between_angles(part);
    let people = part.iter().filter(|&&(c, quoted)| c == '@' && !(quoted && named.is_some())).count();
    let people = u32::try_from(people).unwrap_or(u32::MAX).max(1);
    Some(MailRecipient { address: named.unwrap_or(text).trim().to_owned(), people })
}

/// The text in the pair of angle brackets that ends the part. Brackets in quotes do not count.
fn between_angles(part: &[QuotedChar]) -> Option<String> {
    let start = part.iter().rposition(|&marked| marked == ('<', false))?;
    let inside = part.get(start + 1..)?;
    let end = inside.iter().position(|&marked| marked == ('>', false))?;
    let nothing_follows = inside.iter().skip(end + 1).all(|(c, _)| c.is_whitespace());
    nothing_follows.then(|| inside.iter().take(end).map(|&(c, _)| c).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn addresses(value: Value) -> Vec<String> {
        parse_recipients(&value).into_iter().map(|recipient| recipient.address).collect()
    }

    #[test]
    fn texts_and_lists_name_the_same_people() {
        let both = ["a@b.c", "d@e.f"];
        assert_eq!(addresses(json!("a@b.c, d@e.f")), both);
        assert_eq!(addresses(json!(["a@b.c", "d@e.f"])), both);
        assert_eq!(addresses(json!(["a@b.c,d@e.f"])), both);
        assert_eq!(addresses(json!("a@b.c;d@e.f")), both);
        assert_eq!(addresses(json!("a@b.c\r\nd@e.f")), both);
    }

    #[test]
    fn display_names_may_hold_commas_in_quotes() {
        let value = json!(r#""Berg, Ana" <a@b.c>, Dan <d@e.f>, "quote \", more" <g@h.i>"#);
        assert_eq!(addresses(value.clone()), ["a@b.c", "d@e.f", "g@h.i"]);
        assert_eq!(count_people(&value), 3);
    }

    #[test]
    fn brackets_count_outside_quotes_only() {
        assert_eq!(addresses(json!(r#""<x@y.z>" <a@b.c>"#)), ["a@b.c"]);
        assert_eq!(addresses(json!(r#"Ana <"a b"@c.d>"#)), [r#""a b"@c.d"#]);
        assert_eq!(addresses(json!("Ana <a@b.c")), ["Ana <a@b.c"], "half a bracket is part of the text");
    }

    #[test]
    fn empty_parts_are_nobody() {
        assert_eq!(count_people(&json!(" , ,, ;\n")), 0);
        assert_eq!(count_people(&json!(["", "  "])), 0);
        assert_eq!(count_people(&json!("a@b.c,,")), 1);
        assert_eq!(count_people(&json!({"to": "a@b.c"})), 0);
    }

    #[test]
    fn a_list_cannot_hide_behind_quotes_or_spaces() {
        assert_eq!(count_people(&json!(r#""a@b.c, d@e.f, g@h.i"#)), 3, "a quote that never closes");
        assert_eq!(count_people(&json!(r#""a@b.c, d@e.f, g@h.i""#)), 3, "everything in quotes");
        assert_eq!(count_people(&json!("a@b.c d@e.f\tg@h.i")), 3, "no separators at all");
        assert_eq!(count_people(&json!(r#"a@b.c "d@e.f, g@h.i""#)), 3, "quotes behind an address");
        assert_eq!(count_people(&json!(r#"<a@b.c> "d@e.f, g@h.i""#)), 3, "quotes behind brackets");
        assert_eq!(count_people(&json!(r#""d@e.f, g@h.i" <a@b.c>"#)), 1, "a display name, however odd");
        assert_eq!(count_people(&json!("Team: a@b.c, d@e.f;")), 2, "a named group");
        let unclosed = addresses(json!(r#"a@b.c, "d@e.f, g@h.i <j@k.l>"#));
        assert_eq!(unclosed, ["a@b.c", "\"d@e.f", "j@k.l"], "a quote that never closes separates nothing");
    }

    #[test]
    fn only_an_address_with_one_reading_has_a_domain() {
        let domain = |text: &str| parse_recipients(&json!(text)).first().and_then(MailRecipient::domain);
        assert_eq!(domain("a@B.example"), Some("b.example".into()));
        assert_eq!(domain("Ana <a+x@b.example>"), Some("b.example".into()));
        assert_eq!(domain(r#""mallory@evil.example" <a@b.example>"#), Some("b.example".into()));
        for unclear in [
            "a@evil.example <b@good.example>",
            "a@evil.example@good.example",
            "a",
            "@good.example",
            "a@",
            "a@good..example",
            "a@good.example.",
            "a@göod.example",
            "a b@good.example",
            "x(a@good.example)",
            r#""a@evil.example"@good.example"#,
        ] {
            assert_eq!(domain(unclear), None, "{unclear}");
        }
    }

    proptest! {
        #[test]
        fn joining_clean_addresses_never_loses_one(
            names in prop::collection::vec("[a-z]{1,6}@[a-z]{1,6}\\.[a-z]{2,3}", 0..30),
            separator in prop::sample::select(vec![",", ", ", ";", "\n", " , ,"]),
        ) {
            let value = Value::String(names.join(separator));
            prop_assert_eq!(addresses(value.clone()), names.clone());
            prop_assert_eq!(count_people(&value) as usize, names.len());
        }

        #[test]
        fn whatever_the_text_every_unquoted_at_sign_counts(text in "[a-c@,;<>() \\n]{0,40}") {
            let count = count_people(&Value::String(text.clone())) as usize;
            prop_assert!(count >= text.matches('@').count());
        }
    }
}
