//! Passwords as people tell them: in other languages, and to a meeting.
//!
//! Takes the place of a word such as `Kennwort` or `密码`; gives the value beside it if it is one. Promise: a passcode
//! that stands with the link to its meeting is told from a password, so that an invitation asks a person and is not lost.

use super::bytes::{at, before, cut, is_alnum, line};
use super::login::{self, Kind, Operator};
use super::marks::Place;

/// Words for passwords that the stems of `login` do not reach, as they are written.
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

/// A passcode of a meeting, which those who are invited are meant to have.
pub(super) const PASSCODE: &str = "meeting.passcode";

/// Where links to meetings go, in lower case.
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
/// How far from its link a passcode stands.
const REACH: usize = 700;
/// The longest passcode that is no part of its link.
const LONGEST: usize = 16;
/// What stands before a passcode, in lower case.
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

/// The password beside a word that stands between two positions.
pub(super) fn password(text: &[u8], start: usize, end: usize) -> Option<Place<'static>> {
    let word = cut(text, start, end);
    let latin = word.first().is_some_and(u8::is_ascii);
    if latin && (is_alnum(before(text, start)) || before(text, start) >= 0x80 || at(text, end).is_ascii_alphabetic()) {
        return None;
    }
    let operator = Operator::read(text, end, false)?;
    // Two letters mean a password only where they are written like a setting.
    if word.len() == 2 && !matches!(operator.kind, Kind::Equals | Kind::Colon) {
        return None;
    }
    let (from, to, quoted) = login::value(text, operator.end)?;
    let value = cut(text, from, to);
    let fits = match (operator.kind, quoted) {
        (Kind::Bare, _) => login::plausible(value, 8) && login::evident(value),
        (Kind::Is, false) => login::plausible(value, 6) && login::strong(value) && value.iter().any(u8::is_ascii_digit),
        (_, true) => login::plausible(value, 6) && login::strong(value),
        (Kind::Equals | Kind::Colon | Kind::Flag, false) => login::plausible(value, 6) && login::strong(value),
    };
    fits.then_some(Place { id: named(text, start, from, to), start: from, end: to })
}

/// What a password is called that stands between `from` and `to` behind a key: a passcode beside the link to a meeting.
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
