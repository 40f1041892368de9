//! Personal data: addresses, telephone numbers, cards, accounts and people.
//!
//! Takes bytes; gives positions, and the people they belong to as far as they can be distinguished. Promise: data with
//! a checksum is verified; data with only a shape must have matching words around it.

use std::collections::BTreeSet;

use super::bytes::{at, before, cut, is_alnum, is_digit, is_word};
use super::checksums;
use super::marks::{LeakMatch, around};

/// Counting people stops at this number.
const ENOUGH: usize = 10_000;
/// Words that turn a plain number into a telephone number, in lower case.
const CALL: [&[u8]; 13] = [
    b"phone",
    b"tel",
    b"mobil",
    b"cell",
    b"call",
    b"fax",
    b"whatsapp",
    b"sms",
    b"handy",
    b"ring",
    b"dial",
    b"contact",
    b"number",
];

/// The data that was found.
#[derive(Debug, Default)]
pub(super) struct PersonalData {
    pub(super) places: Vec<LeakMatch<'static>>,
    /// E-mail addresses and telephone numbers, each in normal form.
    pub(super) people: BTreeSet<Vec<u8>>,
}

/// Searches for personal data.
pub(super) fn look(text: &[u8], found: &mut PersonalData) {
    for place in memchr::memchr_iter(b'@', text) {
        if let Some((start, end)) = address(text, place) {
            person(found, cut(text, start, end).to_ascii_lowercase());
            found.places.push(LeakMatch { id: "pii.email", start, end });
        }
    }
    let mut next = 0;
    for (n, chunk) in text.chunks(64).enumerate() {
        // Compared without a branch, so that text without digits is skipped many bytes at a time.
        if !chunk.iter().fold(false, |any, byte| any | byte.is_ascii_digit()) {
            continue;
        }
        for (offset, byte) in chunk.iter().enumerate() {
            let place = n * 64 + offset;
            if place >= next && is_digit(*byte) {
                next = number(text, place, found);
            }
        }
    }
}

fn person(found: &mut PersonalData, who: Vec<u8>) {
    if found.people.len() < ENOUGH {
        found.people.insert(who);
    }
}

/// Start and end of the e-mail address around an `@`.
fn address(text: &[u8], sign: usize) -> Option<(usize, usize)> {
    let local = |byte: u8| is_alnum(byte) || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-');
    let mut start = sign;
    while sign - start < 64 && local(before(text, start)) {
        start -= 1;
    }
    while matches!(at(text, start), b'.' | b'-' | b'%') && start < sign {
        start += 1;
    }
    let mut end = sign + 1;
    while end - sign < 255 && (is_alnum(at(text, end)) || matches!(at(text, end), b'.' | b'-')) {
        end += 1;
    }
    while matches!(before(text, end), b'.' | b'-') {
        end -= 1;
    }
    let domain = cut(text, sign + 1, end);
    let top = memchr::memrchr(b'.', domain)?;
    let top = domain.get(top + 1..)?;
    (start < sign && top.len() >= 2 && top.iter().all(u8::is_ascii_alphabetic) && !domain.starts_with(b"."))
        .then_some((start, end))
}

/// Tests the number that starts here; gives the position after it.
fn number(text: &[u8], start: usize, found: &mut PersonalData) -> usize {
    if let Some(place) = account(text, start) {
        found.places.push(place);
        return place.end;
    }
    let group = GroupedNumber::read(text, start);
    if is_word(before(text, start)) || is_word(at(text, group.end)) {
        return group.end;
    }
    let place = |id| LeakMatch { id, start: group.start, end: group.end };
    let digits = group.digits.len();
    if group.plain && (17..=19).contains(&digits) {
        found.places.push(place("pii.snowflake"));
    }
    if (13..=19).contains(&digits) && !group.dotted && checksums::is_card(&group.digits) {
        found.places.push(place("pii.card"));
    } else if is_ssn(text, &group) {
        found.places.push(place("pii.ssn"));
    } else if is_phone(text, &group) {
        // The last nine digits are the same with and without the country prefix.
        let own = group.digits.iter().rev().take(9).map(|digit| u8::try_from(*digit).unwrap_or(0)).collect();
        person(found, own);
        found.places.push(place("pii.phone"));
    }
    group.end
}

/// Digits with signs between them, as people write long numbers.
#[derive(Debug)]
struct GroupedNumber {
    start: usize,
    end: usize,
    digits: Vec<u32>,
    /// Whether a `+` is before it.
    plus: bool,
    /// Whether there are no signs inside.
    plain: bool,
    dotted: bool,
    /// The number of digits in each group between the signs.
    pattern: Vec<usize>,
}

impl GroupedNumber {
    fn read(text: &[u8], first: usize) -> Self {
        let (mut end, mut digits, mut pattern, mut length, mut dotted) = (first, Vec::new(), Vec::new(), 0, false);
        loop {
            let byte = at(text, end);
            if is_digit(byte) && digits.len() < 32 {
                digits.push(u32::from(byte - b'0'));
                length += 1;
                end += 1;
                continue;
            }
            let mut gap = end;
            while gap < end + 2 && matches!(at(text, gap), b' ' | b'-' | b'.' | b'(' | b')' | b'/') {
                gap += 1;
            }
            if gap == end || !is_digit(at(text, gap)) || digits.len() >= 32 {
                break;
            }
            dotted |= cut(text, end, gap).iter().any(|byte| matches!(byte, b'.' | b'/'));
            pattern.push(length);
            length = 0;
            end = gap;
        }
        while digits.len() >= 32 && is_digit(at(text, end)) {
            end += 1;
        }
        pattern.push(length);
        let open = if before(text, first) == b'(' { first - 1 } else { first };
        let plus = before(text, open) == b'+';
        Self {
            start: if plus { open - 1 } else { open },
            end,
            digits,
            plus,
            plain: pattern.len() == 1,
            dotted,
            pattern,
        }
    }
}

fn is_phone(text: &[u8], group: &GroupedNumber) -> bool {
    let digits = group.digits.len();
    let dated = matches!(group.pattern.as_slice(), [4, 2, 2] | [2, 2, 4] | [4, 2, 2, ..] | [2, 2, 2]);
    if !(7..=15).contains(&digits) || dated {
        return false;
    }
    if group.plus {
        return digits >= 8;
    }
    let pattern = group.pattern.strip_prefix(&[1]).unwrap_or(&group.pattern);
    // North America: three, three and four digits; the first of each group is not 0 or 1.
    if pattern == [3, 3, 4] {
        let own: Vec<u32> = group.digits.iter().rev().take(10).rev().copied().collect();
        return own.first().is_some_and(|digit| *digit >= 2) && own.get(3).is_some_and(|digit| *digit >= 2);
    }
    let near = around(text, group.start, group.start, 24);
    CALL.iter().any(|word| memchr::memmem::find(&near, word).is_some())
        && group.pattern.len() <= 6
        && digits >= 8
        && (group.digits.first() == Some(&0) || !group.plain || digits >= 10)
        && !group.dotted
}

fn is_ssn(text: &[u8], group: &GroupedNumber) -> bool {
    let value = |from: usize, to: usize| group.digits.iter().take(to).skip(from).fold(0, |all, digit| all * 10 + digit);
    let shaped = group.pattern == [3, 2, 4] && !group.dotted || group.pattern == [9];
    if !shaped || group.digits.len() != 9 {
        return false;
    }
    let (area, middle, serial) = (value(0, 3), value(3, 5), value(5, 9));
    let issued = area != 0
        && area != 666
        && area < 900
        && middle != 0
        && serial != 0
        && !matches!((area, middle, serial), (78, 5, 1120) | (219, 9, 9999));
    let near = around(text, group.start, group.end, 60);
    issued
        && [b"ssn".as_slice(), b"social sec", b"social-sec", b"soc sec", b"taxpayer"]
            .iter()
            .any(|word| memchr::memmem::find(&near, word).is_some())
}

/// An international account number whose first digit is here.
fn account(text: &[u8], digit: usize) -> Option<LeakMatch<'static>> {
    let start = digit.checked_sub(2)?;
    if !cut(text, start, digit).iter().all(u8::is_ascii_uppercase)
        || is_alnum(before(text, start))
        || !is_digit(at(text, digit + 1))
    {
        return None;
    }
    let mut letters = Vec::with_capacity(34);
    let mut end = start;
    while letters.len() < 34 {
        let byte = at(text, end);
        if byte.is_ascii_uppercase() || is_digit(byte) {
            letters.push(byte);
        } else if !(matches!(byte, b' ' | b'-') && is_alnum(at(text, end + 1))) {
            break;
        }
        end += 1;
        if letters.len() >= 15 && !is_alnum(at(text, end)) && checksums::is_iban(&letters) {
            return Some(LeakMatch { id: "pii.iban", start, end });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<&'static str> {
        let mut found = PersonalData::default();
        look(text.as_bytes(), &mut found);
        found.places.iter().map(|place| place.id).collect()
    }

    #[test]
    fn each_kind_is_found() {
        assert_eq!(ids("write to ana.b+x@mail.example.org, please"), ["pii.email"]);
        assert_eq!(ids("call +49 170 1234567 or (415) 555-0132"), ["pii.phone", "pii.phone"]);
        assert_eq!(ids("channel 123456789012345678 there"), ["pii.snowflake"]);
        assert_eq!(ids("card 4111 1111 1111 1111"), ["pii.card"]);
        assert_eq!(ids("IBAN GB82 WEST 1234 5698 7654 32."), ["pii.iban"]);
        assert_eq!(ids("his SSN is 536-90-4399"), ["pii.ssn"]);
    }

    #[test]
    fn dates_prices_versions_and_hashes_are_none() {
        for text in [
            "on 2024-10-27 at 10.15",
            "12.345.678 euros",
            "v1.2.3-4567",
            "9f86d081884c7d659a2f",
            "order 536-90-4399",
            "id=4111111111111112",
            "a@b",
        ] {
            assert_eq!(ids(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn one_person_written_twice_is_one_person() {
        let mut found = PersonalData::default();
        look(b"Ana@x.example ana@x.example +1 415 555 0132, 415-555-0132", &mut found);
        assert_eq!(found.people.len(), 2);
    }
}
