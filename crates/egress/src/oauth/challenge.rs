//! Challenges: what a server says about the access it wants, in `WWW-Authenticate`.
//!
//! Takes the headers of an answer; gives the parameters of its Bearer challenge. Pure. Promise: a header that is too long
//! or malformed gives fewer parameters, never others.

/// The longest header that is read, in bytes.
const LONGEST: usize = 8 << 10;
/// The most scopes that are taken from one text, and the longest of them.
const SCOPES: usize = 64;
const LONGEST_SCOPE: usize = 200;

/// A Bearer challenge (RFC 6750, RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BearerChallenge {
    /// The error code: `invalid_token`, `insufficient_scope`.
    pub error: Option<String>,
    /// The scopes that the request needs.
    pub scopes: Vec<String>,
    /// The address of the server's metadata.
    pub metadata: Option<String>,
}

impl BearerChallenge {
    /// The Bearer challenge of an answer, if it has one.
    #[must_use]
    pub fn of(headers: &[(String, String)]) -> Option<Self> {
        let values = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
        values.filter(|(_, value)| value.len() <= LONGEST).find_map(|(_, value)| read(value))
    }
}

/// The scopes of a text, each once, without what no scope can be (RFC 6749, 3.3).
#[must_use]
pub fn scope_words(text: &str) -> Vec<String> {
    let fits = |word: &&str| {
        word.len() <= LONGEST_SCOPE && word.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
    };
    let mut words: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace().filter(fits) {
        if words.len() < SCOPES && !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    words
}

/// One piece of the header.
#[derive(Debug, PartialEq, Eq)]
enum ChallengePiece {
    Scheme(String),
    Param(String, String),
}

fn read(value: &str) -> Option<BearerChallenge> {
    let mut found: Option<BearerChallenge> = None;
    for piece in pieces(value) {
        match (piece, &mut found) {
            (ChallengePiece::Scheme(name), None) if name.eq_ignore_ascii_case("bearer") => {
                found = Some(BearerChallenge::default());
            }
            // The next challenge begins.
            (ChallengePiece::Scheme(_), Some(_)) => break,
            (ChallengePiece::Param(name, value), Some(challenge)) => match name.as_str() {
                "error" => challenge.error = Some(value),
                "scope" => challenge.scopes = scope_words(&value),
                "resource_metadata" => challenge.metadata = Some(value),
                _ => {}
            },
            (ChallengePiece::Scheme(_) | ChallengePiece::Param(..), None) => {}
        }
    }
    found
}

/// The schemes and parameters of a header, in order.
fn pieces(value: &str) -> Vec<ChallengePiece> {
    let mut found = Vec::new();
    let mut rest = value.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let trimmed = after.trim_start();
        if name.is_empty() {
            // A character that belongs to nothing: passed over.
            let mut characters = rest.chars();
            characters.next();
            rest = characters.as_str();
        } else if let Some(given) = trimmed.strip_prefix('=').map(str::trim_start) {
            let (text, after) =
                if let Some(quoted) = given.strip_prefix('"') { unquoted(quoted) } else { plain(given) };
            found.push(ChallengePiece::Param(name.to_ascii_lowercase(), text));
            rest = after;
        } else {
            found.push(ChallengePiece::Scheme(name.to_owned()));
            rest = after;
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn plain(text: &str) -> (String, &str) {
    let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    (value.to_owned(), rest)
}

/// The text up to the closing quote, and what follows it.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(value: &str) -> Option<BearerChallenge> {
        BearerChallenge::of(&[("www-authenticate".into(), value.into())])
    }

    #[test]
    fn the_parameters_of_a_bearer_challenge_are_read_wherever_it_stands() {
        let wanted = BearerChallenge {
            error: Some("insufficient_scope".into()),
            scopes: vec!["files:read".into(), "files:write".into()],
            metadata: Some("https://mcp.example/.well-known/oauth-protected-resource".into()),
        };
        let params = "error=\"insufficient_scope\", scope=\"files:read files:write\", \
                      resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource\"";
        for header in [
            format!("Bearer {params}"),
            format!("bearer realm=\"a, b=\\\"c\\\"\",{params}"),
            format!("Basic realm=\"x\", Bearer {params}, error_description=\"no, not Bearer error=x\""),
            format!("Bearer {params}, Digest error=\"other\", scope=\"other\""),
            format!("Negotiate, Bearer {params}"),
        ] {
            assert_eq!(of(&header).as_ref(), Some(&wanted), "{header}");
        }
        assert_eq!(of("Bearer"), Some(BearerChallenge::default()));
        assert_eq!(of("Basic realm=\"Bearer\", charset=UTF-8"), None);
        assert_eq!(of(&format!("Bearer scope=\"{}\"", "x".repeat(LONGEST))), None, "too long");
    }

    #[test]
    fn a_scope_is_a_word_that_the_standard_allows() {
        assert_eq!(scope_words("a b a  c\"d e\u{7}f ü"), ["a", "b"]);
        assert_eq!(scope_words(&"x ".repeat(1000)), ["x"]);
        let many: String = (0..1000).map(|n| format!("s{n} ")).collect();
        assert_eq!(scope_words(&many).len(), SCOPES);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in ".{0,200}") {
            let _read = of(&text);
        }
    }
}
