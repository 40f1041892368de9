//! Logins: passwords in assignments, connection strings, addresses and sentences.
//!
//! Takes the position of a word such as `password` or of `://`; gives the value beside it if it is a password. Promise:
//! prose about passwords, field names and placeholders are not reported.

use super::bytes::{at, before, cut, is_alnum, is_word};
use super::marks::LeakMatch;
use super::plausibility::{is_placeholder, turns};
use super::spoken_passwords;

pub(super) const ASSIGNED: &str = "generic.password";
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

/// Default passwords of programs, in lower case.
const DEFAULTS: [&str; 18] = [
    "postgres",
    "mysql",
    "root",
    "admin",
    "administrator",
    "password",
    "passwd",
    "pass",
    "guest",
    "test",
    "secret",
    "user",
    "dev",
    "minioadmin",
    "rabbitmq",
    "redis",
    "mongo",
    "sa",
];

/// Continuations of a key name that make it harmless, in lower case without `_`.
const HARMLESS: [&[u8]; 20] = [
    b"hash", b"file", b"path", b"policy", b"length", b"field", b"id", b"less", b"reset", b"prompt", b"min", b"max",
    b"url", b"name", b"arn", b"ref", b"manager", b"hint", b"label", b"expir",
];

/// The password beside a stem (`pass`, `pwd`, `ecret`) that ends at `end`.
pub(super) fn password(text: &[u8], end: usize) -> Option<LeakMatch<'static>> {
    let stem = cut(text, end.saturating_sub(4), end);
    let is_secret = stem.eq_ignore_ascii_case(b"cret");
    // Skips to the end of the word, then to the end of the key: `passwordProd`, `PASSWORD_1`.
    let tail = [b"word".as_slice(), b"wd", b"phrase", b"code", b"wort"]
        .into_iter()
        .find(|tail| cut(text, end, end + tail.len()).eq_ignore_ascii_case(tail));
    let word = end + tail.map_or(0, <[u8]>::len);
    let mut place = word;
    while place < word + 24 && is_word(at(text, place)) {
        place += 1;
    }
    let rest = cut(text, word, place);
    // `passed`, `passwords`, `compass` are other words.
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
    let operator = AssignmentOperator::read(text, place, flagged)?;
    let (value_start, value_end, quoted) = value(text, operator.end)?;
    let value = cut(text, value_start, value_end);
    let fits = match (operator.kind, quoted) {
        _ if is_secret => {
            is_plausible_password(value, 8)
                && is_strong_password(value)
                && (quoted || operator.kind == AssignmentKind::Equals)
        }
        // In a connection string, `secret` is the password too.
        (AssignmentKind::Equals, false)
            if at(text, value_end) == b';' && value.len() >= 3 && in_settings(text, start) =>
        {
            !is_placeholder(value)
        }
        (_, true) => is_plausible_password(value, 4),
        (AssignmentKind::Equals, false) => {
            is_plausible_password(value, 6) && (is_strong_password(value) || in_settings(text, start))
        }
        (AssignmentKind::Colon | AssignmentKind::Flag, false) => {
            is_plausible_password(value, 6) && is_strong_password(value)
        }
        (AssignmentKind::Is, false) => {
            is_plausible_password(value, 6) && is_strong_password(value) && value.iter().any(u8::is_ascii_digit)
        }
        (AssignmentKind::Bare, false) => is_plausible_password(value, 8) && is_evident_password(value),
    };
    let id = || spoken_passwords::named(text, start, value_start, value_end);
    fits.then(|| LeakMatch { id: id(), start: value_start, end: value_end })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssignmentKind {
    Equals,
    Colon,
    Is,
    Flag,
    /// Only a blank or a line break: the value alone must show that it is a password.
    Bare,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct AssignmentOperator {
    pub(super) kind: AssignmentKind,
    pub(super) end: usize,
}

/// Words that join a key and its value in sentences.
const LINKS: [&[u8]; 11] =
    [b"is ", b"is:", b"ist ", b"ist:", b"lautet ", b"lautet:", b"est ", b"est:", b"es ", b"es:", b"was "];
/// Words that introduce what a password opens.
const OPENS: [&[u8]; 14] = [
    b"for ",
    b"to ",
    b"of ",
    b"on ",
    b"at ",
    "für ".as_bytes(),
    b"zum ",
    b"zur ",
    b"vom ",
    b"pour ",
    b"para ",
    b"de ",
    b"du ",
    "для ".as_bytes(),
];

impl AssignmentOperator {
    /// The operator between key and value: `=`, `:=`, `=>`, `:`, `==`, `" value="`, ` is `, the next cell of a table,
    /// or the blank after a flag.
    pub(super) fn read(text: &[u8], key_end: usize, flagged: bool) -> Option<Self> {
        let mut place = key_end;
        let skip = |mut place: usize, bytes: &[u8], most: usize| {
            let limit = place + most;
            while place < limit && bytes.contains(&at(text, place)) {
                place += 1;
            }
            place
        };
        place = skip(place, b"\"'`])\\*", 4);
        if cut(text, place, place + 7) == b" value=" {
            return Some(Self { kind: AssignmentKind::Equals, end: place + 7 });
        }
        // `<td>Password</td><td>…`, `<password>…`
        if at(text, place) == b'>' || cut(text, place, place + 2) == b"</" {
            let end = over_tags(text, if at(text, place) == b'>' { place + 1 } else { place });
            return Some(Self { kind: AssignmentKind::Is, end });
        }
        let blank = place;
        place = skip(place, b" \t", 12);
        let here = cut(text, place, place + 8);
        if place > blank {
            if let Some(link) = LINKS.iter().find(|link| here.starts_with(link)) {
                return Some(Self { kind: AssignmentKind::Is, end: skip(place + link.len(), b" ", 2) });
            }
            if OPENS.iter().any(|word| here.starts_with(word)) {
                return Self::read_after_words(text, place);
            }
            // `| password | … |`
            if at(text, place) == b'|' && at(text, place + 1) != b'|' {
                return Some(Self { kind: AssignmentKind::Is, end: skip(place + 1, b" \t", 12) });
            }
        }
        if at(text, place) == b'!' && at(text, place + 1) == b'=' {
            place += 1;
        }
        let kind = match at(text, place) {
            b'=' => AssignmentKind::Equals,
            b':' => AssignmentKind::Colon,
            b',' if place > key_end => AssignmentKind::Colon,
            // The full-width colon.
            0xEF if cut(text, place, place + 3) == "：".as_bytes() => {
                return Some(Self { kind: AssignmentKind::Colon, end: skip(place + 3, b" ", 2) });
            }
            _ if flagged && place > blank => return Some(Self { kind: AssignmentKind::Flag, end: place }),
            // `password "x"` of build files; an unquoted word would be prose.
            b'"' | b'\'' if place > blank => return Some(Self { kind: AssignmentKind::Colon, end: place }),
            _ if place > blank => return Some(Self { kind: AssignmentKind::Bare, end: place }),
            _ => return None,
        };
        place = skip(place, b"=:>", 3);
        // `**Password:** …`, `<b>Password:</b> …`
        let marked = skip(place, b"*", 2);
        let marked = if cut(text, marked, marked + 2) == b"</" { over_tags(text, marked) } else { marked };
        let end = skip(marked, b" \t", 12);
        if kind == AssignmentKind::Colon && matches!(at(text, end), b'\n' | b'\r') {
            return Some(Self { kind: AssignmentKind::Bare, end: skip(end, b"\r\n \t", 12) });
        }
        Some(Self { kind, end })
    }

    /// The operator where words in between say what the password opens: `password for the portal: …`
    fn read_after_words(text: &[u8], place: usize) -> Option<Self> {
        let rest = cut(text, place, place + 56);
        let ends = |byte: &u8| matches!(byte, b'\n' | b'!' | b'?' | b';');
        let rest = rest.get(..rest.iter().position(ends).unwrap_or(rest.len())).unwrap_or_default();
        let is = memchr::memmem::find(rest, b" is ").map(|is| is + 4);
        // `password for user "x" is "y"`
        if let Some(is) = is.filter(|is| matches!(at(rest, *is), b'"' | b'\'' | b'\\')) {
            return Some(Self { kind: AssignmentKind::Is, end: place + is });
        }
        let colon = memchr::memmem::find(rest, b": ").map(|colon| colon + 2);
        colon.or(is).map(|end| Self { kind: AssignmentKind::Bare, end: place + end })
    }
}

/// Skips a limited number of tags and blanks at a position.
fn over_tags(text: &[u8], from: usize) -> usize {
    let mut place = from;
    for _ in 0..8 {
        while at(text, place).is_ascii_whitespace() && place < from + 160 {
            place += 1;
        }
        if at(text, place) != b'<' {
            break;
        }
        let Some(end) = memchr::memchr(b'>', cut(text, place, from + 240)) else { break };
        place += end + 1;
    }
    place
}

/// The start and end of a value, and whether it is in quotes.
pub(super) fn value(text: &[u8], from: usize) -> Option<(usize, usize, bool)> {
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
            // Punctuation of scripts in which no password is written.
            || *byte >= 0xE0
    };
    let end = body.iter().position(ends).unwrap_or(body.len());
    Some((from, from + end, false))
}

/// Whether it can be a password at all: long enough, one word, no code, no word of a form, no placeholder.
pub(super) fn is_plausible_password(value: &[u8], least: usize) -> bool {
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

/// Letters with digits or signs between them: not a word of any language.
pub(super) fn is_strong_password(value: &[u8]) -> bool {
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

/// Whether a value can only be a password: no name, no version, no order number.
pub(super) fn is_evident_password(value: &[u8]) -> bool {
    let end = value.iter().rposition(|byte| !matches!(byte, b'.' | b'!' | b'?' | b':')).map_or(0, |at| at + 1);
    let value = cut(value, 0, end);
    let count = |kind: fn(&u8) -> bool| value.iter().filter(|byte| kind(byte)).count();
    let (lower, upper, digits) =
        (count(u8::is_ascii_lowercase), count(u8::is_ascii_uppercase), count(u8::is_ascii_digit));
    let signs = count(|byte| matches!(byte, b'!' | b'#' | b'$' | b'%' | b'^' | b'*' | b'@' | b'+' | b'~' | b'?'));
    let (length, turns) = (value.len(), turns(value));
    let mail = memchr::memchr(b'@', value).is_some_and(|sign| memchr::memchr(b'.', cut(value, sign, length)).is_some());
    if length < 8 || digits == 0 || mail || value.iter().any(|byte| matches!(byte, b'/' | b'=' | b'[' | b'|')) {
        return false;
    }
    let simple = value.iter().all(|byte| is_alnum(*byte));
    lower >= 1 && upper >= 1 && (signs >= 1 || simple && turns * 5 >= 2 * length)
        || lower + upper >= 3 && signs >= 1 && turns >= 4
        || simple && lower >= 3 && digits >= 2 && turns >= 4
}

/// Whether there are other settings around it: another assignment or a connection string.
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
    // `DB_PASS=…`: a key in capitals has the form of a setting.
    let shouted = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9');
    neighbours.iter().any(|word| memchr::memmem::find(&near, word).is_some())
        || cut(text, key, key + 64).iter().take_while(|byte| **byte != b'=').all(shouted)
}

/// The login in an address whose `://` is at a position.
pub(super) fn address(text: &[u8], at_scheme: usize) -> Option<LeakMatch<'static>> {
    let from = at_scheme + 3;
    let body = cut(text, from, from + 320);
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\' | b',' | b')')
    };
    let body = body.get(..body.iter().position(ends).unwrap_or(body.len())).unwrap_or_default();
    // The host starts after the last `@` before a path; outside of web addresses a password may contain a slash.
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
    // Examples of manuals for the local machine: they open nothing for anybody else.
    let here = [b"localhost".as_slice(), b"127.0.0.1", b"[::1]", b"0.0.0.0"]
        .into_iter()
        .any(|name| cut(body, host + 1, body.len()).starts_with(name));
    let filler =
        filler || here && (lower.eq_ignore_ascii_case(user) || DEFAULTS.iter().any(|word| lower == word.as_bytes()));
    (!filler && named && scheme < at_scheme).then_some(LeakMatch {
        id: ADDRESS,
        start: from + colon + 1,
        end: from + host,
    })
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
            "Passwort: Hx7!pQz93",
            "Das Passwort ist Hx7!pQz93",
            "use the password Winter2024!xk to get in",
            "the password for the portal: Hx7!pQz93",
            "Password for the staging box is tr0ub4dor3x",
            "<td>Password</td><td>Hx7!pQz93</td>",
            "<b>Password:</b> Hx7!pQz93",
            "**Password:** Hx7!pQz93",
            "| password | Hx7!pQz93 |",
            "<password>Hx7!pQz93</password>",
            "Password:\n  Hx7!pQz93\n",
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
            "choose a password of 12 characters",
            "password Manager Pro 2024 is out",
            "the password SHA256-hashed with Argon2id",
            "a password for Windows11Pro or macOS14",
            "the password to the account: please ask Ana",
            "| password | string | yes |",
            "<label>Password</label><input type=\"password\" id=\"pw1\">",
            "password reset for order: A-2024-118812",
            "Passwort: bitte neu vergeben",
            "password ana.brandt2024@example.org was not found",
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
            "postgres://postgres:postgres@db.example.org/app",
            "postgres://app:s3cr3t9@localhost/x",
        ] {
            assert!(finds(text), "{text}");
        }
        for text in [
            "https://host:8080/path@2x.png",
            "http://example.com/a:b@c",
            "https://user:${TOKEN}@host/",
            "https://user:password@host/",
            "postgres://postgres:postgres@localhost:5432/app",
            "mysql://root:root@127.0.0.1/x",
            "amqp://guest:guest@localhost//",
            "redis://dev:secret@[::1]:6379",
            "see https://example.com or mail me@example.com",
        ] {
            assert!(!finds(text), "{text}");
        }
    }
}
