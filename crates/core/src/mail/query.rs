//! A search as typed: `from: to: subject: label: before: after: is: has:` and free words.
//!
//! Takes a line of text, gives a [`MailSearchQuery`] or says what is wrong with it. Promise: an unknown filter
//! is an error, never a word; only letters and digits of the text reach the index.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::words;
use crate::clock::UtcMillis;

/// Longest query, in bytes.
pub const LONGEST: usize = 512;
/// Most words and filters in one query.
pub const MOST: usize = 24;

/// Part of a message in which a word is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MailSearchField {
    /// Anywhere.
    Any,
    /// Its sender.
    From,
    /// Its recipients.
    To,
    /// Its subject.
    Subject,
}

/// Words that must (or must not) be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailSearchTerm {
    /// The part of the message.
    pub field: MailSearchField,
    /// One word, or several that stand side by side in this order.
    pub words: Vec<String>,
    /// Whether the last word may be the beginning of a longer one.
    pub open: bool,
    /// Whether it must be absent instead.
    pub not: bool,
}

/// A parsed search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MailSearchQuery {
    /// Words that must or must not be found.
    pub terms: Vec<MailSearchTerm>,
    /// Labels it must carry, as typed.
    pub labels: Vec<String>,
    /// Received at or after this time.
    pub after: Option<UtcMillis>,
    /// Received before this time.
    pub before: Option<UtcMillis>,
    /// Whether it must be unread, or read.
    pub unread: Option<bool>,
    /// Whether it must carry a file, or none.
    pub attachment: Option<bool>,
}

/// Why a search was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailSearchError {
    /// Too long, or of too many parts.
    #[error("a search has at most {MOST} parts and {LONGEST} bytes")]
    TooLong,
    /// A filter that does not exist.
    #[error(
        "there is no filter `{0}:`; known are from, to, subject, label, before, after, is, has; to search for the words, put them in quotes"
    )]
    UnknownFilter(String),
    /// A filter without a value.
    #[error("`{0}:` needs a value right after it")]
    Empty(&'static str),
    /// A value the filter does not take.
    #[error("`{filter}:` takes {takes}")]
    Value {
        /// The filter.
        filter: &'static str,
        /// The values it takes.
        takes: &'static str,
    },
    /// A minus before a filter that cannot be negated.
    #[error("`-{0}:` is not possible")]
    Not(&'static str),
    /// Only things that must be absent.
    #[error("a search needs something that must be there, not only what must not")]
    OnlyNot,
}

impl MailSearchError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong => "search.too_long",
            Self::UnknownFilter(_) => "search.unknown_filter",
            Self::Empty(_) | Self::Value { .. } => "search.value",
            Self::Not(_) | Self::OnlyNot => "search.not",
        }
    }
}

/// Reads a search.
///
/// # Errors
/// When it is too long or uses a filter in an invalid way.
pub fn parse(text: &str) -> Result<MailSearchQuery, MailSearchError> {
    if text.len() > LONGEST {
        return Err(MailSearchError::TooLong);
    }
    let mut query = MailSearchQuery::default();
    let mut rest = text.trim_start();
    let mut parts = 0;
    while !rest.is_empty() {
        parts += 1;
        if parts > MOST {
            return Err(MailSearchError::TooLong);
        }
        let (part, after) = part(rest);
        query.add(&part)?;
        rest = after.trim_start();
    }
    if !query.terms.is_empty() && query.terms.iter().all(|term| term.not) && !query.has_filter() {
        return Err(MailSearchError::OnlyNot);
    }
    Ok(query)
}

/// One part as typed.
#[derive(Debug, PartialEq, Eq)]
struct MailSearchPart<'t> {
    not: bool,
    filter: Option<&'t str>,
    value: &'t str,
    quoted: bool,
}

fn part(text: &str) -> (MailSearchPart<'_>, &str) {
    let (not, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let name = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
    let (filter, text) = match text.split_at_checked(name) {
        Some((filter, rest)) if !filter.is_empty() && rest.starts_with(':') => {
            (Some(filter), rest.get(1..).unwrap_or_default())
        }
        _ => (None, text),
    };
    if let Some(inside) = text.strip_prefix('"') {
        // An open quotation mark extends to the end.
        let (value, rest) = inside.split_once('"').unwrap_or((inside, ""));
        return (MailSearchPart { not, filter, value, quoted: true }, rest);
    }
    let (value, rest) =
        text.split_at_checked(text.find(char::is_whitespace).unwrap_or(text.len())).unwrap_or((text, ""));
    (MailSearchPart { not, filter, value, quoted: false }, rest)
}

impl MailSearchQuery {
    fn has_filter(&self) -> bool {
        !self.labels.is_empty()
            || self.after.is_some()
            || self.before.is_some()
            || self.unread.is_some()
            || self.attachment.is_some()
    }

    fn add(&mut self, part: &MailSearchPart<'_>) -> Result<(), MailSearchError> {
        let plain = |filter: &'static str| match (part.not, part.value.is_empty()) {
            (true, _) => Err(MailSearchError::Not(filter)),
            (false, true) => Err(MailSearchError::Empty(filter)),
            (false, false) => Ok(part.value),
        };
        let Some(filter) = part.filter else {
            self.words(MailSearchField::Any, part);
            return Ok(());
        };
        match filter.to_ascii_lowercase().as_str() {
            "from" => self.filtered("from", MailSearchField::From, part),
            "to" => self.filtered("to", MailSearchField::To, part),
            "subject" => self.filtered("subject", MailSearchField::Subject, part),
            "label" | "in" => {
                self.labels.push(plain("label")?.to_owned());
                Ok(())
            }
            "before" => {
                self.before = Some(day("before", plain("before")?)?);
                Ok(())
            }
            "after" => {
                self.after = Some(day("after", plain("after")?)?);
                Ok(())
            }
            "is" => {
                self.unread = Some(match part.value {
                    "unread" => !part.not,
                    "read" => part.not,
                    _ => return Err(MailSearchError::Value { filter: "is", takes: "`unread` or `read`" }),
                });
                Ok(())
            }
            "has" if part.value == "attachment" => {
                self.attachment = Some(!part.not);
                Ok(())
            }
            "has" => Err(MailSearchError::Value { filter: "has", takes: "`attachment`" }),
            _ => Err(MailSearchError::UnknownFilter(filter.chars().take(32).collect())),
        }
    }

    fn filtered(
        &mut self,
        name: &'static str,
        field: MailSearchField,
        part: &MailSearchPart<'_>,
    ) -> Result<(), MailSearchError> {
        if words::of(part.value).is_empty() {
            return Err(MailSearchError::Empty(name));
        }
        self.words(field, part);
        Ok(())
    }

    fn words(&mut self, field: MailSearchField, part: &MailSearchPart<'_>) {
        let words = words::of(part.value);
        let open = !part.quoted && part.value.ends_with('*') && words.last().is_some_and(|word| word.len() >= 3);
        if !words.is_empty() {
            self.terms.push(MailSearchTerm { field, words, open, not: part.not });
        }
    }
}

fn day(filter: &'static str, text: &str) -> Result<UtcMillis, MailSearchError> {
    let wrong = MailSearchError::Value { filter, takes: "a day as `2026-11-30`" };
    let date: Date = text.replace('/', "-").parse().map_err(|_| wrong.clone())?;
    let zoned = date.to_zoned(TimeZone::UTC).map_err(|_| wrong)?;
    Ok(UtcMillis::from_millis(zoned.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn term(field: MailSearchField, words: &[&str]) -> MailSearchTerm {
        MailSearchTerm { field, words: words.iter().map(ToString::to_string).collect(), open: false, not: false }
    }

    #[test]
    fn filters_and_words_are_told_apart() {
        let query =
            parse("from:ana invoice \"due soon\" subject:\"Q3 report\" label:Work is:unread has:attachment").unwrap();
        assert_eq!(
            query.terms,
            [
                term(MailSearchField::From, &["ana"]),
                term(MailSearchField::Any, &["invoice"]),
                term(MailSearchField::Any, &["due", "soon"]),
                term(MailSearchField::Subject, &["q3", "report"]),
            ]
        );
        assert_eq!((query.labels, query.unread, query.attachment), (vec!["Work".to_owned()], Some(true), Some(true)));
    }

    #[test]
    fn days_are_days_of_utc() {
        let query = parse("after:2026-01-02 before:2026/01/03").unwrap();
        assert_eq!(query.before.unwrap().since(query.after.unwrap()).as_secs(), 86_400);
        assert_eq!(query.after.unwrap().as_seconds(), 1_767_312_000);
    }

    #[test]
    fn an_unknown_filter_is_an_error_and_not_a_word() {
        assert_eq!(parse("form:ana").unwrap_err().code(), "search.unknown_filter");
        assert_eq!(parse("before:soon").unwrap_err().code(), "search.value");
        assert_eq!(parse("from:").unwrap_err().code(), "search.value");
        assert_eq!(parse("-label:Work").unwrap_err().code(), "search.not");
        assert_eq!(parse("-spam").unwrap_err().code(), "search.not");
        assert_eq!(parse(&"a ".repeat(MOST + 1)).unwrap_err().code(), "search.too_long");
        assert_eq!(parse("\"re: hello\"").unwrap().terms, [term(MailSearchField::Any, &["re", "hello"])]);
    }

    #[test]
    fn what_must_be_absent_and_what_may_go_on() {
        let query = parse("report* -draft").unwrap();
        assert!(query.terms[0].open && !query.terms[0].not);
        assert!(query.terms[1].not);
        assert!(!parse("re*").unwrap().terms[0].open, "two letters would be half of all words");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader_or_brings_signs_into_the_index(text in ".{0,200}") {
            if let Ok(query) = parse(&text) {
                for word in query.terms.iter().flat_map(|term| &term.words) {
                    prop_assert!(word.chars().all(char::is_alphanumeric), "{word:?}");
                }
            }
        }
    }
}
