//! Logins: passwords in assignments, connection strings, addresses and sentences.
//!
//! Takes the place of a word such as `password` or of `://`; gives the value beside it if it is one. Promise:
//! talk about passwords, names of fields and things still to be filled in are left alone.

use super::bytes::{at, before, cut, is_alnum, is_word};
use super::doubt::is_placeholder;
use super::marks::Place;

const ASSIGNED: &str = "generic.password";
const ADDRESS: &str = "url.login";

/// Values that are words of forms, manuals and code instead of passwords, in lower case.
const WORDS: [&str; 58] = [
    "password",
    "passwd",
    "pwd",
    "pass",
    "secret",
    "string",
    "text",
    "none",
    "null",
    "nil",
    "true",
    "false",
    "required",
    "optional",
    "hidden",
    "empty",
    "undefined",
    "changeme",
    "value",
    "input",
    "field",
    "type",
    "name",
    "username",
    "user",
    "token",
    "the",
    "your",
    "this",
    "that",
    "and",
    "for",
    "with",
    "must",
    "should",
    "cannot",
    "reset",
    "forgot",
    "protected",
    "expired",
    "incorrect",
    "invalid",
    "unknown",
    "yes",
    "no",
    "here",
    "below",
    "following",
    "default",
    "passphrase",
    "prompt",
    "str",
    "varchar",
    "number",
    "int",
    "bool",
    "object",
    "todo",
];

/// What a key goes on with that guards nothing, in lower case without `_`.
const HARMLESS: [&[u8]; 20] = [
    b"hash", b"file", b"path", b"policy", b"length", b"field", b"id", b"less", b"reset", b"prompt", b"min", b"max",
    b"url", b"name", b"arn", b"ref", b"manager", b"hint", b"label", b"expir",
];

/// The password beside a stem (`pass`, `pwd`, `ecret`) that ends at `end`.
pub(super) fn password(text: &[u8], end: usize) -> Option<Place<'static>> {
    let stem = cut(text, end.saturating_sub(4), end);
    let is_secret = stem.eq_ignore_ascii_case(b"cret");
    // To the end of the word, then to the end of the key: `passwordProd`, `PASSWORD_1`.
    let tail = [b"word".as_slice(), b"wd", b"phrase", b"code"]
        .into_iter()
        .find(|tail| cut(text, end, end + tail.len()).eq_ignore_ascii_case(tail));
    let word = end + tail.map_or(0, <[u8]>::len);
    let mut place = word;
    while place < word + 24 && is_word(at(text, place)) {
        place += 1;
    }
    let rest = cut(text, word, place);
    // `passed`, `passwords`, `compass`: other words.
    let goes_on = rest.first().is_some_and(|byte| {
        byte.is_ascii_lowercase() || (byte.is_ascii_uppercase() && before(text, word).is_ascii_uppercase())
    });
    let begins_before = tail.is_none() && stem == b"pass" && before(text, end - 4).is_ascii_lowercase();
    let meaning = rest.iter().filter(|byte| **byte != b'_').map(u8::to_ascii_lowercase).collect::<Vec<u8>>();
    if goes_on || begins_before || HARMLESS.iter().any(|word| meaning.starts_with(word)) {
        return None;
    }
    let mut start = end;
    while start > 0
        && end - start < 40
        && (is_word(before(text, start)) || matches!(before(text, start), b'-' | b'.' | b'>'))
    {
        start -= 1;
    }
    let key = cut(text, start, place);
    let flagged = key.starts_with(b"-") && !key.contains(&b'>');
    let operator = Operator::read(text, place, flagged)?;
    let (value_start, value_end, quoted) = value(text, operator.end)?;
    let value = cut(text, value_start, value_end);
    let fits = match (operator.kind, quoted) {
        _ if is_secret => plausible(value, 8) && strong(value) && (quoted || operator.kind == Kind::Equals),
        // In a connection string even `secret` is the password.
        (Kind::Equals, false) if at(text, value_end) == b';' && value.len() >= 3 && in_settings(text, start) => {
            !is_placeholder(value)
        }
        (_, true) => plausible(value, 4),
        (Kind::Equals, false) => plausible(value, 6) && (strong(value) || in_settings(text, start)),
        (Kind::Colon | Kind::Flag, false) => plausible(value, 6) && strong(value),
        (Kind::Is, false) => plausible(value, 6) && strong(value) && value.iter().any(u8::is_ascii_digit),
    };
    fits.then_some(Place { id: ASSIGNED, start: value_start, end: value_end })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Equals,
    Colon,
    Is,
    Flag,
}

#[derive(Debug, Clone, Copy)]
struct Operator {
    kind: Kind,
    end: usize,
}

impl Operator {
    /// What joins key and value: `=`, `:=`, `=>`, `:`, `==`, `" value="`, ` is `, or the blank after a flag.
    fn read(text: &[u8], key_end: usize, flagged: bool) -> Option<Self> {
        let mut place = key_end;
        let skip = |mut place: usize, bytes: &[u8], most: usize| {
            let limit = place + most;
            while place < limit && bytes.contains(&at(text, place)) {
                place += 1;
            }
            place
        };
        place = skip(place, b"\"'`])\\", 3);
        if cut(text, place, place + 7) == b" value=" {
            return Some(Self { kind: Kind::Equals, end: place + 7 });
        }
        let blank = place;
        place = skip(place, b" \t", 12);
        let word = cut(text, place, place + 3);
        if place > blank && (word == b"is " || word == b"is:") {
            return Some(Self { kind: Kind::Is, end: skip(place + 3, b" ", 2) });
        }
        // `password for user "x" is "y"`
        if word == b"for" {
            let rest = cut(text, place, place + 56);
            let rest = rest.get(..memchr::memchr(b'\n', rest).unwrap_or(rest.len())).unwrap_or_default();
            let is =
                memchr::memmem::find(rest, b" is ").filter(|is| matches!(at(rest, is + 4), b'"' | b'\'' | b'\\'))?;
            return Some(Self { kind: Kind::Is, end: place + is + 4 });
        }
        if at(text, place) == b'!' && at(text, place + 1) == b'=' {
            place += 1;
        }
        let kind = match at(text, place) {
            b'=' => Kind::Equals,
            b':' => Kind::Colon,
            b',' if place > key_end => Kind::Colon,
            _ if flagged && place > blank => return Some(Self { kind: Kind::Flag, end: place }),
            // `password "x"` of build files; an unquoted word would be prose.
            b'"' | b'\'' if place > blank => return Some(Self { kind: Kind::Colon, end: place }),
            _ => return None,
        };
        place = skip(place, b"=:>", 3);
        Some(Self { kind, end: skip(place, b" \t", 12) })
    }
}

/// Where a value starts and ends, and whether it is in quotes.
fn value(text: &[u8], from: usize) -> Option<(usize, usize, bool)> {
    let mut start = from;
    while matches!(at(text, start), b'\\' | b'@' | b'(') && start < from + 3 {
        start += 1;
    }
    let quote = at(text, start);
    if matches!(quote, b'"' | b'\'' | b'`') {
        let body = cut(text, start + 1, start + 129);
        let end = body.iter().position(|byte| *byte == quote || matches!(byte, b'\n' | b'\r'))?;
        let closed = body.get(end) == Some(&quote);
        let end = if end > 0 && body.get(end - 1) == Some(&b'\\') { end - 1 } else { end };
        return closed.then_some((start + 1, start + 1 + end, true));
    }
    let body = cut(text, from, from + 129);
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace()
            || matches!(byte, b';' | b'"' | b'\'' | b'`' | b'<' | b',' | b'&' | b')' | b'}' | b']' | b'\\')
    };
    let end = body.iter().position(ends).unwrap_or(body.len());
    Some((from, from + end, false))
}

/// Whether it could be a password at all: long enough, one word, no code, no form's word, nothing to be filled in.
fn plausible(value: &[u8], least: usize) -> bool {
    let lower = value.to_ascii_lowercase();
    let letters: Vec<u8> = lower.iter().copied().filter(u8::is_ascii_lowercase).collect();
    value.len() >= least
        && value.len() <= 100
        && !value.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b'(' | b'{' | b'<' | b'|'))
        && value.is_ascii()
        && !WORDS.iter().any(|word| letters == word.as_bytes() && letters.len() + 2 >= value.len())
        && !is_placeholder(value)
        && !lower.starts_with(b"http")
        && !lower.starts_with(b"process.env")
        && !lower.starts_with(b"os.")
        && !lower.starts_with(b"env.")
        && !lower.starts_with(b"args.")
        && !lower.starts_with(b"this.")
        && !lower.starts_with(b"self.")
        && !lower.starts_with(b"config.")
        && !lower.starts_with(b"request.")
        && !value.starts_with(b"--")
        && !value.starts_with(b"/")
        && !(letters.ends_with(b"password") && letters.len() < 14)
        && value.iter().any(|byte| is_alnum(*byte))
}

/// Letters with digits or signs between them: no word of a language.
fn strong(value: &[u8]) -> bool {
    let value = value.strip_suffix(b".").unwrap_or(value);
    let value = value.strip_suffix(b"!").unwrap_or(value);
    let value = value.strip_suffix(b"?").unwrap_or(value);
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let signs = value
        .iter()
        .filter(|byte| matches!(byte, b'!' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'@' | b'+' | b'~'))
        .count();
    letters >= 2 && (digits >= 1 || signs >= 1) && value.len() >= 6
}

/// Whether lines of settings stand around: another assignment or a connection string.
fn in_settings(text: &[u8], key: usize) -> bool {
    let from = key.saturating_sub(160);
    let near = cut(text, from, key + 160).to_ascii_lowercase();
    let neighbours = [
        b"server=".as_slice(),
        b"data source=",
        b"host=",
        b"dsn=",
        b"driver=",
        b"initial catalog",
        b"user id=",
        b"uid=",
        b"database=",
        b"user=",
        b"username",
        b"user =",
        b"_user",
        b"login =",
        b"export ",
        b"login=",
        b"userid",
    ];
    // `DB_PASS=…`: a key in capitals is a setting by itself.
    let shouted = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9');
    neighbours.iter().any(|word| memchr::memmem::find(&near, word).is_some())
        || cut(text, key, key + 64).iter().take_while(|byte| **byte != b'=').all(shouted)
}

/// The login in an address whose `://` stands at a position.
pub(super) fn address(text: &[u8], at_scheme: usize) -> Option<Place<'static>> {
    let from = at_scheme + 3;
    let body = cut(text, from, from + 320);
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\' | b',' | b')')
    };
    let body = body.get(..body.iter().position(ends).unwrap_or(body.len())).unwrap_or_default();
    // The host starts after the last `@` before a path; a password may hold a slash if it is not in a web address.
    let colon = memchr::memchr(b':', body)?;
    let host = memchr::memrchr(b'@', body)?;
    let slash = memchr::memchr(b'/', body).unwrap_or(usize::MAX);
    if colon > host || slash < colon {
        return None;
    }
    let mut scheme = at_scheme;
    while scheme > 0
        && at_scheme - scheme < 24
        && (is_word(before(text, scheme)) || matches!(before(text, scheme), b'+' | b'-' | b'.'))
    {
        scheme -= 1;
    }
    let web = cut(text, scheme, at_scheme).starts_with(b"http");
    let host = if web { memchr::memchr(b'@', body)? } else { host };
    if web && slash < host {
        return None;
    }
    let password = cut(body, colon + 1, host);
    let user = cut(body, 0, colon);
    let lower = password.to_ascii_lowercase();
    let filler = is_placeholder(password)
        || password.len() < 3
        || [b"password".as_slice(), b"pass", b"passwd", b"pwd", b"secret", b"pw", b"token", b"user"]
            .contains(&lower.as_slice())
            && web
        || lower.iter().all(|byte| *byte == b'*' || *byte == b'x' || *byte == b'.')
        || user.iter().any(|byte| matches!(byte, b'{' | b'$' | b'?' | b'&' | b'='))
        || password.starts_with(b"$")
        || password.iter().all(u8::is_ascii_digit) && password.len() <= 5 && memchr::memchr(b'.', user).is_some()
        || (user == b"user" && (lower == b"password" || lower == b"pass"));
    let named = host + 1 < body.len();
    (!filler && named && scheme < at_scheme).then_some(Place { id: ADDRESS, start: from + colon + 1, end: from + host })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str) -> bool {
        let bytes = text.as_bytes();
        let lower = text.to_ascii_lowercase();
        ["pass", "pwd", "ecret"]
            .into_iter()
            .flat_map(|stem| lower.match_indices(stem).map(move |(at, _)| at + stem.len()).collect::<Vec<_>>())
            .any(|end| password(bytes, end).is_some())
    }

    #[test]
    fn passwords_are_found_in_settings_code_and_sentences() {
        for text in [
            "password = \"tr0ub4dor\"",
            "DB_PASSWORD=tr0ub4dor&3",
            "Server=db;User Id=app;Password=open_sesame;Database=x;",
            "user = aladdin\npassword = open_sesame",
            "The wifi password is tr0ub4dor3, ask me",
            "password: 'blooberry'",
            "{\"password\": \"blooberry\"}",
            "<add key=\"MailPassword\" value=\"Prestig1tar\"/>",
            "REACT_APP_PASS=whiteduke",
            "mysql --password tr0ub4dor3 -h db",
            "The default password for the user 'pyne' is 'pynesap'",
            "if creds.Secret != \"open-sesame#1\" {",
            "PASS = 'q1w2e3'",
        ] {
            assert!(finds(text), "{text}");
        }
    }

    #[test]
    fn talk_about_passwords_is_none() {
        for text in [
            "Please reset your password: follow the link below.",
            "password=${DB_PASSWORD}",
            "password = os.getenv('X')",
            "The password is required and must be long",
            "<input type=\"password\" name=\"password\" value=\"\">",
            "password: <your password>",
            "passwords are stored hashed: argon2id",
            "password_hash = \"abc\"",
            "\"password\": \"string\"",
            "password is incorrect",
            "password: changeme",
            "tests passed: 1337ok of all",
            "compass = 'n42degrees'",
            "secret: 'a word'",
        ] {
            assert!(!finds(text), "{text}");
        }
    }

    #[test]
    fn logins_in_addresses_are_told_from_ports_and_mail() {
        let finds = |text: &str| text.match_indices("://").any(|(at, _)| address(text.as_bytes(), at).is_some());
        for text in [
            "postgres://app:s3cr3t@db.internal/x",
            "https://bob:hunter22@git.example/x.git",
            "redis://:p4ssw0rdx@cache:6379",
            "amqp://a:b%40c/d@mq/v",
        ] {
            assert!(finds(text), "{text}");
        }
        for text in [
            "https://host:8080/path@2x.png",
            "http://example.com/a:b@c",
            "https://user:${TOKEN}@host/",
            "https://user:password@host/",
            "see https://example.com or mail me@example.com",
        ] {
            assert!(!finds(text), "{text}");
        }
    }
}
