//! Places that a request names: checks whether a message can be delivered there at all.
//!
//! Takes the text of a chat or an address; gives it in the form that channels take. Promise: a place to which no server
//! could deliver is refused when the request is made, so that nobody waits for an answer to a message that cannot be
//! sent.

use sluice_core::refusal::Code;
use sluice_services::CallError;

/// Chat ids have at most 52 bits.
const LARGEST_CHAT: u64 = 1 << 52;

/// The id of a chat, or the name of a Telegram channel.
pub(super) fn chat(text: &str) -> Result<String, CallError> {
    let number = text.parse::<i64>().ok().filter(|chat| *chat != 0 && chat.unsigned_abs() <= LARGEST_CHAT);
    if let Some(number) = number {
        return Ok(number.to_string());
    }
    let plain = |name: &str| {
        (5..=32).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if text.strip_prefix('@').is_some_and(plain) {
        return Ok(text.to_owned());
    }
    Err(CallError::with_text(Code::SchemaWrongType, "`target.tg_chat_id` is the number of a chat, such as 123456789"))
}

/// An e-mail address, without a display name before it.
pub(super) fn address(text: &str) -> Result<String, CallError> {
    let local = |part: &str| {
        (1..=64).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&b))
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
    };
    let label = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let fine = text.len() <= 254
        && text
            .rsplit_once('@')
            .is_some_and(|(name, domain)| local(name) && domain.contains('.') && domain.split('.').all(label));
    if fine {
        return Ok(text.to_owned());
    }
    Err(CallError::with_text(Code::SchemaWrongType, "`target.email_to` is one address, such as you@example.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_letter_can_reach_is_a_place() {
        for fine in ["123456789", "-1001234567890", "@approvals"] {
            assert_eq!(chat(fine).unwrap(), fine);
        }
        for bad in ["0", "", "x", "1.5", "1e9", "@a", "@1bcde", "@has space", &"9".repeat(500), "9007199254740993"] {
            assert!(chat(bad).is_err(), "{bad}");
        }
        for fine in ["you@domain.com", "a.b+c@x-y.example.org", "o'hara@example.com"] {
            assert_eq!(address(fine).unwrap(), fine);
        }
        let long = format!("{}@example.com", "x".repeat(65));
        for bad in [
            "not-an-address",
            "@x.com",
            "a@",
            "a@b",
            "a@b..com",
            "a@-b.com",
            "a b@x.com",
            "A <a@b.com>",
            "a@b.com, c@d.com",
            "a@b@c.com",
            &long,
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
