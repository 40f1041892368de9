//! Passwords in natural language: in several languages, and for meetings.
//!
//! Takes the position of a word such as `Kennwort` or `密码`; gives the value beside it if it is a password. Promise: a
//! passcode next to the link of its meeting is distinguished from a password, so that an invitation needs approval
//! instead of being blocked.

use super::bytes::{at, before, cut, is_alnum, line};
use super::login::{self, AssignmentKind, AssignmentOperator};
use super::marks::LeakMatch;

/// Words for passwords that the stems of `login` do not cover, in the spellings that occur.
pub(super) const WORDS: [&str; 38] = [
    "Kennwort",
    "kennwort",
    "KENNWORT",
    "Kenncode",
    "kenncode",
    "PW",
    "Pw",
    "pw",
    "Mot de passe",
    "mot de passe",
    "MOT DE PASSE",
    "Contraseña",
    "contraseña",
    "CONTRASEÑA",
    "Contrasena",
    "contrasena",
    "Senha",
    "senha",
    "Wachtwoord",
    "wachtwoord",
    "Hasło",
    "hasło",
    "Heslo",
    "heslo",
    "Lösenord",
    "lösenord",
    "Adgangskode",
    "adgangskode",
    "Salasana",
    "salasana",
    "Пароль",
    "пароль",
    "ПАРОЛЬ",
    "密码",
    "密碼",
    "パスワード",
    "비밀번호",
    "סיסמה",
];

/// The passcode of a meeting, which invited people are meant to have.
pub(super) const PASSCODE: &str = "meeting.passcode";

/// Hosts and paths of meeting links, in lower case.
const MEETINGS: [&[u8]; 11] = [
    b"zoom.us/",
    b"zoom.com/j",
    b"teams.microsoft.com/",
    b"teams.live.com/",
    b"webex.com/",
    b"meet.google.com/",
    b"gotomeeting.com/",
    b"gotomeet.",
    b"whereby.com/",
    b"meet.jit.si/",
    b"bluejeans.com/",
];
/// How far a passcode may be from its link.
const REACH: usize = 700;
/// The longest passcode that is not part of its link.
const LONGEST: usize = 16;
/// Words before a passcode, in lower case.
const CALLED: [&[u8]; 8] = [
    b"passcode",
    b"kenncode",
    b"pwd=",
    b"meeting",
    b"webinar",
    b"besprechung",
    "réunion".as_bytes(),
    "reunión".as_bytes(),
];

/// The password beside a word between two positions.
pub(super) fn password(text: &[u8], start: usize, end: usize) -> Option<LeakMatch<'static>> {
    let word = cut(text, start, end);
    let latin = word.first().is_some_and(u8::is_ascii);
    if latin && (is_alnum(before(text, start)) || before(text, start) >= 0x80 || at(text, end).is_ascii_alphabetic()) {
        return None;
    }
    let operator = AssignmentOperator::read(text, end, false)?;
    // Two letters mean a password only in the form of a setting.
    if word.len() == 2 && !matches!(operator.kind, AssignmentKind::Equals | AssignmentKind::Colon) {
        return None;
    }
    let (from, to, quoted) = login::value(text, operator.end)?;
    let value = cut(text, from, to);
    let fits = match (operator.kind, quoted) {
        (AssignmentKind::Bare, _) => login::is_plausible_password(value, 8) && login::is_evident_password(value),
        (AssignmentKind::Is, false) => {
            login::is_plausible_password(value, 6)
                && login::is_strong_password(value)
                && value.iter().any(u8::is_ascii_digit)
        }
        (_, true) => login::is_plausible_password(value, 6) && login::is_strong_password(value),
        (AssignmentKind::Equals | AssignmentKind::Colon | AssignmentKind::Flag, false) => {
            login::is_plausible_password(value, 6) && login::is_strong_password(value)
        }
    };
    fits.then_some(LeakMatch { id: named(text, start, from, to), start: from, end: to })
}

/// The id for a password between `from` and `to` after a key: a passcode if a meeting link is near.
pub(super) fn named(text: &[u8], key: usize, from: usize, to: usize) -> &'static str {
    let (first, _) = line(text, key, 32);
    let told = cut(text, first, from).to_ascii_lowercase();
    let in_link = told.ends_with(b"pwd=");
    let begins = cut(text, first, key).iter().all(|byte| !is_alnum(*byte));
    let called = begins || CALLED.iter().any(|word| memchr::memmem::find(&told, word).is_some());
    if !called || !in_link && to - from > LONGEST {
        return login::ASSIGNED;
    }
    let near = cut(text, from.saturating_sub(REACH), to + REACH).to_ascii_lowercase();
    let meets = MEETINGS.iter().any(|host| memchr::memmem::find(&near, host).is_some());
    if meets { PASSCODE } else { login::ASSIGNED }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str) -> bool {
        WORDS.iter().any(|word| {
            text.match_indices(word).any(|(at, word)| password(text.as_bytes(), at, at + word.len()).is_some())
        })
    }

    #[test]
    fn a_password_is_one_in_any_language() {
        for text in [
            "Kennwort: Hx7!pQz93",
            "PW: Hx7!pQz93",
            "pw=Hx7!pQz93",
            "mot de passe : Hx7!pQz93",
            "Contraseña: Hx7!pQz93.",
            "пароль: Hx7!pQz93",
            "密码：Hx7!pQz93，谢谢",
            "パスワード：Hx7!pQz93",
            "Das Kennwort lautet Hx7!pQz93",
            "wachtwoord: tr0ub4dor3",
        ] {
            assert!(finds(text), "{text}");
        }
    }

    #[test]
    fn talk_about_passwords_is_none_in_any_language() {
        for text in [
            "Kennwort: bitte ändern",
            "Das Kennwort ist abgelaufen",
            "mot de passe : oublié ?",
            "contraseña: obligatorio",
            "пароль: не менее 8 символов",
            "密码：请输入",
            "PW 2024 was a good year",
            "the pw is expired",
            "Kennwort: mindestens 8 Zeichen",
        ] {
            assert!(!finds(text), "{text}");
        }
    }
}
