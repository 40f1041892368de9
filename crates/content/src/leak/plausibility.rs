//! Values that look like secrets but are not.
//!
//! Takes a value; decides whether it is a placeholder (`<your-key>`, `xxxx`, `${TOKEN}`, an example from a manual) and
//! how random it is. Promise: only values that no real secret can have are excluded.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use super::bytes::{is_alnum, is_digit, is_hex};

/// Words that appear only where a value is still to be filled in, in lower case.
const FILLERS: [&[u8]; 34] = [
    b"example",
    b"your_",
    b"your-",
    b"yourapi",
    b"yoursecret",
    b"yourtoken",
    b"yourkey",
    b"yourpass",
    b"my_secret",
    b"my-secret",
    b"placeholder",
    b"changeme",
    b"change_me",
    b"change-me",
    b"replace",
    b"redacted",
    b"dummy",
    b"notreal",
    b"not_real",
    b"sample",
    b"xxxx",
    b"****",
    b"....",
    b"____",
    b"insert",
    b"todo",
    b"fixme",
    b"undefined",
    b"secret_here",
    b"token_here",
    b"key_here",
    b"goes_here",
    b"1234567890abcdef",
    b"abcdefghijklmnop",
];

/// Entropy in bits per byte, by the frequency of each byte.
pub(super) fn entropy(value: &[u8]) -> f64 {
    let mut seen = [0_u32; 256];
    for byte in value {
        if let Some(count) = seen.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "values are far below the precision of a float")]
    let all = value.len() as f64;
    let bits = seen.iter().filter(|count| **count > 0).map(|count| {
        let share = f64::from(*count) / all;
        -share * share.log2()
    });
    bits.sum()
}

/// Whether a value is a placeholder that people write instead of a secret.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    static SEARCH: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let build = || AhoCorasick::builder().ascii_case_insensitive(true).build(FILLERS).ok();
    SEARCH.get_or_init(build).as_ref().is_some_and(|search| search.is_match(value))
        || is_reference(value)
        || is_monotone(value)
}

/// Whether a value refers to the place of a secret instead of being one: `${X}`, `$(x)`, `{{x}}`, `<x>`, `%x%`,
/// `os.getenv`.
pub(super) fn is_reference(value: &[u8]) -> bool {
    let wrapped = |open: &[u8], close: &[u8]| {
        value.strip_prefix(open).is_some_and(|rest| memchr::memmem::find(rest, close).is_some_and(|at| at > 0))
    };
    let variable = value.strip_prefix(b"$").is_some_and(|rest| {
        rest.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && rest.iter().all(|byte| is_alnum(*byte) || matches!(byte, b'_' | b':' | b'.' | b'>' | b'-' | b'[' | b']'))
    });
    variable
        || wrapped(b"${", b"}")
        || wrapped(b"$(", b")")
        || wrapped(b"{{", b"}}")
        || wrapped(b"{", b"}")
        || wrapped(b"<", b">")
        || wrapped(b"[", b"]")
        || wrapped(b"%", b"%")
        || wrapped(b"#{", b"}")
        || wrapped(b"@@", b"@@")
        || wrapped(b"(", b")")
}

/// Whether a value repeats one short text, or is a simple sequence such as `abcdefgh` or `12345678`.
fn is_monotone(value: &[u8]) -> bool {
    let body: Vec<u8> = value.iter().copied().filter(|byte| is_alnum(*byte)).collect();
    if body.len() < 6 {
        return false;
    }
    let pairs = body.windows(2);
    let (mut same, mut steps, mut all) = (0_usize, 0_usize, 0_usize);
    for pair in pairs {
        let [one, two] = pair else { continue };
        all += 1;
        same += usize::from(one == two);
        steps += usize::from(one.wrapping_add(1) == *two || two.wrapping_add(1) == *one);
    }
    let mut seen = [false; 256];
    for byte in &body {
        if let Some(entry) = seen.get_mut(usize::from(*byte)) {
            *entry = true;
        }
    }
    let distinct = seen.iter().filter(|seen| **seen).count();
    // Four in five pairs are equal or differ by one: random values never look like this.
    (same + steps) * 5 >= all * 4 || (body.len() >= 12 && distinct <= 3)
}

/// Whether a value is as random as a generated secret of its alphabet.
pub(super) fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| is_digit(**byte)).count();
    let upper = value.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let lower = value.iter().filter(|byte| byte.is_ascii_lowercase()).count();
    let length = value.len();
    if length < 16 || digits < 2 || upper + lower < 3 {
        return false;
    }
    // The cheap tests come first: most tokens of ordinary text fail one of them.
    let generated = if value.iter().all(|byte| is_hex(*byte)) {
        length >= 24 && digits >= 4 && (upper == 0 || lower == 0) && entropy(value) >= 2.8
    } else {
        let turns = turns(value);
        // Words have vowels in a row and change from letter to digit only at their end; random text changes all the
        // time.
        let lively = turns * 5 >= length || (upper > 2 && lower > 2 && turns * 6 >= length);
        upper + lower >= 4 && lively && entropy(value) >= if length < 24 { 3.3 } else { 3.7 }
    };
    generated && !is_placeholder(value)
}

/// How often a value changes between lower case, upper case, digits and other characters.
pub(super) fn turns(value: &[u8]) -> usize {
    let kind = |byte: u8| match byte {
        b'a'..=b'z' => 0_u8,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    value.windows(2).filter(|pair| matches!(pair, [one, two] if kind(*one) != kind(*two))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_to_be_filled_in_is_a_placeholder() {
        for value in [
            "<your-api-key>",
            "${API_KEY}",
            "$API_KEY",
            "xxxxxxxxxxxxxxxx",
            "{{ token }}",
            "aaaaaaaaaaaaaaaa",
            "%TOKEN%",
            "AKIAIOSFODNN7EXAMPLE",
            "changeme123",
            "123456789012",
        ] {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in ["q7Rb2kLw9ZtX4vNc", "hunter2", "correct horse", "$ecret-9!"] {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn random_values_are_told_from_words_and_names() {
        for value in ["9f86d081884c7d659a2feaa0c55ad015", "q7Rb2kLw9ZtX4vNcQ1m8", "zt7GeN6IH911xvRj"] {
            assert!(is_random(value.as_bytes()), "{value}");
        }
        for value in [
            "authenticationProviderFactory",
            "2024-10-27-release-notes",
            "0000000000000000000000000000",
            "configuration_file_path_2",
        ] {
            assert!(!is_random(value.as_bytes()), "{value}");
        }
    }
}
