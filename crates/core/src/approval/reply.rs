//! The six-line menu and the replies it accepts.
//!
//! Takes the text a person sent back, without quotes and signature; gives their answer, or says why
//! the text is none. Promise: an approval is exact. Only a lone `1`, `2` or `6`, or a `4` or `5` with a text,
//! allows anything; a `3` denies, whatever reason follows it; any other reply changes nothing and shows
//! the menu again.

/// The menu, the same for every approval request.
pub const MENU: &str = "\
1  Allow once
2  Allow for this session
3  Deny (reply: 3, or 3 your reason)
4  Allow once and add a note (reply: 4 your note)
5  Change, then allow once (reply: 5 the changed text)
6  Always allow this action type (until revoked)";

/// The longest note or changed text, in characters.
pub const LONGEST_PAYLOAD: usize = 4096;

/// What a person answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalReply {
    /// 1: allow this action.
    Once,
    /// 2: allow this action and similar ones, for the session.
    Session,
    /// 3: deny, with the reason if one was given.
    Deny(Option<String>),
    /// 4: allow this action, with words for the agent. They are data and mean nothing to the gateway.
    Note(String),
    /// 5: allow the text given here instead of this action.
    Amend(String),
    /// 6: allow this action and similar ones, until revoked.
    Always,
}

/// Why a text is not an answer. Nothing was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyParseError {
    /// There is no text.
    #[error("the reply is empty")]
    Empty,
    /// It does not start with one of the six digits on its own.
    #[error("a reply starts with one digit from 1 to 6")]
    NoCode,
    /// A note or a change without its text.
    #[error("`{code}` needs a text after it")]
    PayloadMissing {
        /// The digit that was sent.
        code: &'static str,
    },
    /// More words than the answer takes. They may contradict it, so it does not count.
    #[error("`{code}` stands alone, without further words")]
    PayloadUnwanted {
        /// The digit that was sent.
        code: &'static str,
    },
    /// The e-mail holds more text than the answer, around a quote or a signature. It may contradict the answer.
    #[error("the mail holds more text than the answer")]
    MoreText,
    /// A text longer than [`LONGEST_PAYLOAD`].
    #[error("the text after the digit is longer than {LONGEST_PAYLOAD} characters")]
    PayloadTooLong,
}

/// Reads a reply. Every word of the text counts, so pass only what the person wrote.
///
/// # Errors
/// When the text is not exactly one of the six answers.
pub fn parse(text: &str) -> Result<ApprovalReply, ReplyParseError> {
    let text = text.trim();
    let digit = text.chars().next().ok_or(ReplyParseError::Empty)?;
    // The digits are ASCII: `１`, `①` and `1️⃣` are decoration, not this menu's codes.
    let code = CODES.into_iter().find(|code| code.starts_with(digit)).ok_or(ReplyParseError::NoCode)?;
    let rest = text.strip_prefix(code).unwrap_or_default();
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Err(ReplyParseError::NoCode);
    }
    let payload = rest.trim();
    match code {
        "4" => required(code, payload).map(ApprovalReply::Note),
        "5" => required(code, payload).map(ApprovalReply::Amend),
        // A denial counts, however long its reason is.
        "3" => Ok(ApprovalReply::Deny(reason(payload))),
        _ if !payload.is_empty() => Err(ReplyParseError::PayloadUnwanted { code }),
        "1" => Ok(ApprovalReply::Once),
        "2" => Ok(ApprovalReply::Session),
        "6" => Ok(ApprovalReply::Always),
        _ => Err(ReplyParseError::NoCode),
    }
}

const CODES: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

fn reason(payload: &str) -> Option<String> {
    payload.chars().any(is_visible).then(|| payload.chars().take(LONGEST_PAYLOAD).collect())
}

fn required(code: &'static str, payload: &str) -> Result<String, ReplyParseError> {
    if !payload.chars().any(is_visible) {
        return Err(ReplyParseError::PayloadMissing { code });
    }
    if payload.chars().count() > LONGEST_PAYLOAD {
        return Err(ReplyParseError::PayloadTooLong);
    }
    Ok(payload.to_owned())
}

/// Whether a reader would see it: a change to a text of nothing but joiners is a mistake.
fn is_visible(c: char) -> bool {
    let formats = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_whitespace() && !c.is_control() && !formats
}

impl ApprovalReply {
    /// The digit, as it is sent on the wire.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Once => "1",
            Self::Session => "2",
            Self::Deny(_) => "3",
            Self::Note(_) => "4",
            Self::Amend(_) => "5",
            Self::Always => "6",
        }
    }

    /// Whether the reply allows anything.
    #[must_use]
    pub const fn allows(&self) -> bool {
        match self {
            Self::Once | Self::Session | Self::Note(_) | Self::Amend(_) | Self::Always => true,
            Self::Deny(_) => false,
        }
    }
}

impl ReplyParseError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty
            | Self::NoCode
            | Self::PayloadMissing { .. }
            | Self::PayloadUnwanted { .. }
            | Self::MoreText
            | Self::PayloadTooLong => "approval.unclear_reply",
        }
    }

    /// The text for the person: nothing happened, why, and the menu again.
    #[must_use]
    pub fn explain(&self) -> String {
        format!("Nothing was decided: {self}. The approval is still open. Please reply with one of these:\n\n{MENU}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_line_of_the_menu_has_its_reply() {
        for (text, reply) in [
            ("1", ApprovalReply::Once),
            ("2", ApprovalReply::Session),
            ("3", ApprovalReply::Deny(None)),
            ("3 too risky", ApprovalReply::Deny(Some("too risky".into()))),
            ("3\n\nnot before Monday,\nplease", ApprovalReply::Deny(Some("not before Monday,\nplease".into()))),
            ("4 add logs", ApprovalReply::Note("add logs".into())),
            ("5 npm test", ApprovalReply::Amend("npm test".into())),
            ("6", ApprovalReply::Always),
            (" \r\n\t1\u{a0}\n", ApprovalReply::Once),
            ("4\nadd logs", ApprovalReply::Note("add logs".into())),
            ("5   Dear Ana,\n\nyes.\n", ApprovalReply::Amend("Dear Ana,\n\nyes.".into())),
            ("4 1", ApprovalReply::Note("1".into())),
        ] {
            assert_eq!(parse(text), Ok(reply.clone()), "{text:?}");
            assert!(text.trim().starts_with(reply.code()));
        }
        let codes: Vec<&str> = MENU.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(codes, CODES);
    }

    #[test]
    fn words_after_a_yes_take_it_back() {
        for text in ["1 and 2", "1 thanks", "1\nno wait", "1\n\nno wait", "2 3", "6 if you must", "1 ?", "1 > 1"] {
            assert!(matches!(parse(text), Err(ReplyParseError::PayloadUnwanted { .. })), "{text:?}");
        }
        assert_eq!(parse(&format!("3 {}", "x".repeat(9_000))).unwrap().code(), "3", "a long reason denies too");
    }

    #[test]
    fn anything_but_a_digit_on_its_own_decides_nothing() {
        for text in [
            "no",
            "yes",
            "ok",
            "3?",
            "1?",
            "1.",
            "1)",
            "1,",
            "(1)",
            "#1",
            "+1",
            "-1",
            "01",
            "11",
            "12",
            "1.0",
            "0",
            "7",
            "1st",
            "4add logs",
            "> 1",
            "\"1\"",
            "１",
            "①",
            "❶",
            "1️⃣",
            "1\u{20e3}",
            "١",
            "一",
            "¹",
            "👍",
            "I",
            "l",
            "1\u{200b}",
            "\u{200b}1",
            "\u{feff}1",
            "\u{202e}1",
            "1\0",
        ] {
            assert_eq!(parse(text), Err(ReplyParseError::NoCode), "{text:?}");
        }
        for text in ["", "  ", "\r\n\n", "\u{a0}"] {
            assert_eq!(parse(text), Err(ReplyParseError::Empty), "{text:?}");
        }
    }

    #[test]
    fn a_note_and_a_change_need_their_text() {
        for text in ["4", "4  ", "4 \u{200b}\u{feff}", "4\n\n"] {
            assert_eq!(parse(text), Err(ReplyParseError::PayloadMissing { code: "4" }), "{text:?}");
        }
        assert_eq!(parse("5"), Err(ReplyParseError::PayloadMissing { code: "5" }));
        assert!(parse(&format!("5 {}", "é".repeat(LONGEST_PAYLOAD))).is_ok());
        assert_eq!(parse(&format!("5 {}", "é".repeat(LONGEST_PAYLOAD + 1))), Err(ReplyParseError::PayloadTooLong));
    }

    #[test]
    fn an_unclear_reply_gets_a_friendly_answer_with_the_menu() {
        assert_eq!(
            parse("1 thanks").unwrap_err().explain(),
            format!(
                "Nothing was decided: `1` stands alone, without further words. The approval is still open. \
                 Please reply with one of these:\n\n{MENU}"
            )
        );
        assert_eq!(ReplyParseError::NoCode.code(), "approval.unclear_reply");
    }

    proptest! {
        #[test]
        fn nothing_allows_but_the_exact_form(text in "\\PC{0,3}[0-9\\PC]{0,2}[ \\n]{0,2}[a-z0-9]{0,3}") {
            if parse(&text).is_ok_and(|reply| reply.allows()) {
                let text = text.trim();
                let lone = ["1", "2", "6"].contains(&text);
                let with_text = text.starts_with(['4', '5']) && text.chars().nth(1).is_some_and(char::is_whitespace);
                prop_assert!(lone || with_text, "{text:?}");
            }
        }

        #[test]
        fn a_payload_comes_back_as_it_was_sent(payload in "[a-z1-6>][a-z \\n1-6>]{0,40}[a-z]") {
            prop_assert_eq!(parse(&format!("5 {payload}")), Ok(ApprovalReply::Amend(payload)));
        }
    }
}
