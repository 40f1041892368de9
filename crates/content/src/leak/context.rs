//! Context: random values that only their neighbours identify as secrets.
//!
//! Takes a long token; decides whether it is random and in the place of a secret: behind a key such as `client_secret`,
//! or in a line that names a vendor and a key. Promise: a hash, an id or an address without such words around it is not
//! reported.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use super::bytes::{at, before, cut, is_alnum, is_hex, is_word, line};
use super::formats::VENDORS;
use super::marks::{LeakMatch, around, is_publishable};
use super::plausibility::{entropy, is_placeholder, is_random};

/// How many bytes before the value are read.
const REACH: usize = 64;
/// Parts of key names that hold a secret, in lower case without punctuation.
const STRONG: [&str; 27] = [
    "secret",
    "password",
    "passwd",
    "apikey",
    "apitoken",
    "accesskey",
    "accesstoken",
    "authtoken",
    "authkey",
    "privatekey",
    "credential",
    "clientkey",
    "encryptionkey",
    "signingkey",
    "masterkey",
    "servicekey",
    "refreshtoken",
    "bearertoken",
    "personalaccess",
    "accountkey",
    "licensekey",
    "sharedkey",
    "sessiontoken",
    "deploykey",
    "webhooksecret",
    "subscriptionkey",
    "apipass",
];
/// Ends of key names that may hold a secret: they count only in the form of a setting.
const WEAK: [&str; 8] = ["key", "token", "pat", "pwd", "pass", "auth", "login", "passphrase"];
/// Parts of key names that hold no secret.
const HARMLESS: [&str; 37] = [
    "public",
    "publish",
    "idempot",
    "page",
    "next",
    "cursor",
    "continu",
    "primary",
    "foreign",
    "partition",
    "cache",
    "sortkey",
    "etag",
    "checksum",
    "digest",
    "fingerprint",
    "tokeniz",
    "sitekey",
    "storekey",
    "messagekey",
    "keyid",
    "tokenid",
    "thumbprint",
    "csrf",
    "xsrf",
    "nonce",
    "unsub",
    "tracking",
    "secretname",
    "secretarn",
    "secretid",
    "secretref",
    "keyname",
    "keypath",
    "keyfile",
    "keyvault",
    "tokenurl",
];
/// Words that turn a vendor's name into a key of that vendor.
const HINTS: [&str; 10] = ["key", "token", "secret", "pass", "auth", "login", "pat", "credential", "apid", "sid"];

/// The id of a value with a strong key name.
const ASSIGNED: &str = "generic.assigned";
/// The id of a value near a vendor's name.
const VENDOR: &str = "generic.vendor";
/// The id of an Amazon secret, which has no prefix of its own.
const AWS: &str = "aws.secret";

/// Decides whether the token between two positions is a secret by its context.
pub(super) fn judge(text: &[u8], start: usize, end: usize) -> Option<LeakMatch<'static>> {
    let (start, end) = value(text, start, end)?;
    let value = cut(text, start, end);
    if is_publishable(value) {
        return None;
    }
    let random = is_random(value);
    if !random && !mixed(value) && !is_uuid(value) && value.len() != 40 {
        return None;
    }
    if is_aws(value) {
        let line = squeezed(&around(text, start, end, 120));
        if has(&line, "aws") || has(&line, "secretaccess") || has(&line, "secretkey") {
            return Some(LeakMatch { id: AWS, start, end });
        }
    }
    let key = ValueKey::before(text, start);
    if key.is_harmless() {
        return None;
    }
    // A value after `client_secret=` need not be perfectly random, but must not be a word or a name.
    let likely =
        random || (key.direct && value.len() >= 16 && mixed(value) && !is_placeholder(value) && entropy(value) >= 3.0);
    if likely && key.direct && key.is_strong() && !key.in_address {
        return Some(LeakMatch { id: ASSIGNED, start, end });
    }
    if likely && key.direct && key.in_address && key.opens_accounts() {
        return Some(LeakMatch { id: ASSIGNED, start, end });
    }
    if random && key.direct && key.is_setting && key.is_weak() && !key.in_address {
        return Some(LeakMatch { id: ASSIGNED, start, end });
    }
    // `mailjet token 0123…` is joined only by a blank: then the word before the value must say what it is.
    let said = || {
        HINTS.iter().any(|hint| key.name.ends_with(hint.as_bytes()))
            || VENDORS.iter().any(|vendor| key.name.ends_with(vendor.as_bytes()))
    };
    if !key.in_address && (key.direct && (random || is_uuid(value)) || random && said()) {
        // The vendor must be on the key's side: a name after the value does not count.
        let (from, _) = line(text, start, 100);
        let side = cut(text, from, start);
        let words = squeezed(&side.to_ascii_lowercase());
        let alone = VENDORS.iter().any(|vendor| key.name == vendor.as_bytes());
        if (alone || HINTS.iter().any(|hint| has(&words, hint))) && names_vendor(side) {
            return Some(LeakMatch { id: VENDOR, start, end });
        }
    }
    None
}

/// Whether a vendor's name is in a text as a separate word, also in `vendorKey` and `VENDOR_KEY`.
fn names_vendor(side: &[u8]) -> bool {
    static SEARCH: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let build = || AhoCorasick::builder().ascii_case_insensitive(true).build(VENDORS).ok();
    SEARCH.get_or_init(build).as_ref().is_some_and(|search| {
        search
            .find_overlapping_iter(side)
            .any(|hit| !before(side, hit.start()).is_ascii_alphabetic() && !at(side, hit.end()).is_ascii_lowercase())
    })
}

/// The value inside a token: the text after its last `=`, without dots and dashes at either end.
fn value(text: &[u8], start: usize, end: usize) -> Option<(usize, usize)> {
    let token = cut(text, start, end);
    let body = token.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    let from = memchr::memrchr(b'=', cut(token, 0, body)).map_or(0, |at| at + 1);
    let mut from = start + from;
    let mut to = end;
    while from < to && matches!(at(text, from), b'.' | b'-' | b'/' | b'=') {
        from += 1;
    }
    while from < to && matches!(before(text, to), b'.' | b'-' | b'/') {
        to -= 1;
    }
    (to - from >= 16 && to - from <= 512).then_some((from, to))
}

/// The text before a value that names it.
#[derive(Debug)]
struct ValueKey {
    /// The name in lower case, without punctuation.
    name: Vec<u8>,
    /// Whether an operator or a quote joins the two.
    direct: bool,
    /// Whether it has the form of a setting: with `=` or in quotes, and not as prose.
    is_setting: bool,
    /// Whether it is a parameter of an address.
    in_address: bool,
}

impl ValueKey {
    fn before(text: &[u8], value: usize) -> Self {
        let floor = value.saturating_sub(REACH);
        let mut place = value;
        let (mut operator, mut quote, mut lines) = (false, false, 0);
        // Skips quotes, brackets, blanks and operators, back to the last letter of the key.
        while place > floor {
            match before(text, place) {
                b'=' | b':' | b',' | b'|' => operator = true,
                // The sign of an arrow, not of a tag.
                b'>' if matches!(before(text, place - 1), b'=' | b'-') => operator = true,
                b'"' | b'\'' | b'`' | b'\\' | b'(' | b'[' | b'{' | b'@' => quote = true,
                b' ' | b'\t' | b'*' | b')' | b']' | b'<' | b'?' | b'!' => {}
                b'\n' | b'\r' if lines < 1 && operator => lines += 1,
                _ => break,
            }
            place -= 1;
        }
        let end = place;
        while place > floor && (is_word(before(text, place)) || matches!(before(text, place), b'-' | b'.' | b' ')) {
            // Two blanks, or a blank after four words: the key ends here.
            if before(text, place) == b' ' && (before(text, place - 1) == b' ' || end - place > 28) {
                break;
            }
            place -= 1;
        }
        let raw = cut(text, place, end);
        // `the API key is …`
        let told = [b" is".as_slice(), b" ist", b" lautet", b" est"].iter().find_map(|link| raw.strip_suffix(*link));
        operator |= told.is_some() && value > end;
        let raw = told.unwrap_or(raw);
        let flag = raw.iter().rposition(|byte| *byte == b' ').map_or(raw, |at| raw.get(at + 1..).unwrap_or_default());
        let spaced = raw.contains(&b' ');
        // `--token VALUE` joins by a blank.
        let flagged = flag.starts_with(b"-") && value > end;
        // Inside an address, `token=` is usually a newsletter ticket.
        let line = cut(text, value.saturating_sub(300), value);
        let chunk =
            line.iter().rposition(|byte| byte.is_ascii_whitespace()).map_or(line, |at| cut(line, at, line.len()));
        let in_address =
            memchr::memmem::find(chunk, b"://").is_some() || memchr::memmem::find(chunk, b"www.").is_some();
        let name = squeezed(&if flagged { flag.to_ascii_lowercase() } else { raw.to_ascii_lowercase() });
        Self {
            direct: (operator || flagged || (quote && !spaced)) && end > place,
            is_setting: flagged || quote || at(text, end) == b'=' || !spaced,
            in_address,
            name,
        }
    }

    fn is_strong(&self) -> bool {
        STRONG.iter().any(|word| has(&self.name, word))
    }

    fn is_weak(&self) -> bool {
        WEAK.iter().any(|word| self.name.ends_with(word.as_bytes())) && self.name.len() > 3
    }

    fn is_harmless(&self) -> bool {
        HARMLESS.iter().any(|word| has(&self.name, word))
    }

    /// Whether the parameter of an address is a login, and not a newsletter ticket.
    fn opens_accounts(&self) -> bool {
        [
            "apikey",
            "accesstoken",
            "clientsecret",
            "apisecret",
            "password",
            "secretkey",
            "privatekey",
            "authtoken",
            "apitoken",
        ]
        .iter()
        .any(|word| has(&self.name, word))
    }
}

/// A text without everything except letters and digits.
fn squeezed(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| is_alnum(*byte)).collect()
}

fn has(text: &[u8], word: &str) -> bool {
    memchr::memmem::find(text, word.as_bytes()).is_some()
}

/// Whether it has both letters and digits, and is no path or address.
fn mixed(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    digits >= 2 && letters >= 2 && value.iter().filter(|byte| matches!(byte, b'/' | b'.')).count() <= 2
}

/// Forty base64 characters of all three kinds: an Amazon secret, if a word about Amazon is near.
fn is_aws(value: &[u8]) -> bool {
    value.len() == 40
        && value.iter().all(|byte| is_alnum(*byte) || matches!(byte, b'+' | b'/' | b'='))
        && !is_placeholder(value)
        && entropy(value) >= 3.0
}

fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value
            .iter()
            .enumerate()
            .all(|(n, byte)| if matches!(n, 8 | 13 | 18 | 23) { *byte == b'-' } else { is_hex(*byte) })
        && !is_placeholder(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leak::bytes::TokenRuns;

    fn ids(text: &str) -> Vec<&'static str> {
        let text = text.as_bytes();
        TokenRuns::new(text, 16).filter_map(|(start, end)| judge(text, start, end)).map(|place| place.id).collect()
    }

    #[test]
    fn a_random_value_behind_a_key_is_a_secret_in_any_notation() {
        for text in [
            "client_secret=q7Rb2kLw9ZtX4vNc8mYp",
            "\"apiKey\": \"9f86d081884c7d659a2feaa0c55ad015\"",
            "API_TOKEN => 'q7Rb2kLw9ZtX4vNc8mYp'",
            "deploy --auth-token q7Rb2kLw9ZtX4vNc8mYp now",
            "secretKey := \"q7Rb2kLw9ZtX4vNc8mYp\"",
            "the API key is 9f86d081884c7d659a2feaa0c55ad015",
        ] {
            assert_eq!(ids(text), ["generic.assigned"], "{text}");
        }
        assert_eq!(ids("datadog api key 9f86d081884c7d659a2feaa0c55ad015: use it"), ["generic.vendor"]);
        assert_eq!(ids("mailjet_key: 9f86d081884c7d659a2feaa0c55ad015"), ["generic.assigned"]);
        assert_eq!(ids("sumologic: {\"id\": 1, \"key_v\": \"9f86d081884c7d659a2feaa0c55ad015\"}"), ["generic.vendor"]);
    }

    #[test]
    fn hashes_ids_and_links_are_left_alone() {
        for text in [
            "commit 9f86d081884c7d659a2feaa0c55ad0159f86d081",
            "sha256: 9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015",
            "idempotency_key=q7Rb2kLw9ZtX4vNc8mYp",
            "https://news.example/u?token=q7Rb2kLw9ZtX4vNc8mYp",
            "Message-ID: <20021021q7Rb2kLw9ZtX4vNc8mYp@mail.example>",
            "apiKey: configurationProviderFactory",
            "publishableKey: 'pk_live_q7Rb2kLw9ZtX4vNc8mYpQ1m8'",
            "the build is 9f86d081884c7d659a2feaa0c55ad015",
        ] {
            assert_eq!(ids(text), Vec::<&str>::new(), "{text}");
        }
    }
}
