//! Checksums: numbers and tokens that carry their own proof.
//!
//! Takes a match of a shape; checks whether its last characters follow from the rest. Promise: pure arithmetic, no
//! guess; a wrong checksum means that it is not a match.

use base64::Engine as _;

use super::bytes::is_digit;

/// CRC-32 as in zip and Ethernet.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

/// Whether a token ends in the CRC-32 of the part between its prefix and that end, as six base 62 digits (GitHub, npm).
pub(super) fn crc_base62(token: &[u8], prefix: usize) -> bool {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let Some(body) = token.get(prefix..) else { return false };
    let Some((body, sum)) = body.split_last_chunk::<6>() else { return false };
    let mut crc = crc32(body);
    for digit in sum.iter().rev() {
        if DIGITS.get(crc as usize % 62) != Some(digit) {
            return false;
        }
        crc /= 62;
    }
    crc == 0
}

/// Decodes base64 of either alphabet, with or without padding.
pub(super) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    let text = text.get(..end)?;
    // One extra character is ignored: the rest decides.
    let text = if text.len() % 4 == 1 { text.get(..text.len() - 1)? } else { text };
    let url = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    // The bits after the last byte need not be zero: some encoders leave them.
    let lenient = base64::engine::GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let engine = if url {
        base64::engine::GeneralPurpose::new(&base64::alphabet::URL_SAFE, lenient)
    } else {
        base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, lenient)
    };
    engine.decode(text).ok()
}

/// Whether the first part of a token in three parts is the header of a JSON Web Token.
pub(super) fn is_jwt(token: &[u8]) -> bool {
    let mut parts = token.split(|byte| *byte == b'.');
    let Some(header) = parts.next().and_then(base64) else { return false };
    let says = |word: &[u8]| memchr::memmem::find(&header, word).is_some();
    header.starts_with(b"{") && (says(b"\"alg\"") || says(b"\"typ\"") || says(b"\"enc\"") || says(b"\"kid\""))
}

/// The digits of a text, as numbers.
#[cfg(test)]
pub(super) fn digits(text: &[u8]) -> Vec<u32> {
    text.iter().filter(|byte| is_digit(**byte)).map(|byte| u32::from(byte - b'0')).collect()
}

/// The checksum of payment cards.
pub(super) fn luhn(digits: &[u32]) -> bool {
    let doubled =
        |(n, digit): (usize, &u32)| if n % 2 == 1 { digit * 2 - if *digit > 4 { 9 } else { 0 } } else { *digit };
    digits.len() > 1 && digits.iter().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// Whether digits have the length, the first digits and the checksum of a payment card.
pub(super) fn is_card(digits: &[u32]) -> bool {
    let first = |n: usize| digits.iter().take(n).fold(0, |all, digit| all * 10 + digit);
    let (two, three, four) = (first(2), first(3), first(4));
    let fits = match digits.len() {
        13 | 19 => two / 10 == 4 || (digits.len() == 19 && (four == 6011 || two == 62 || two == 65)),
        14 => two == 36 || two == 38 || two == 39 || (300..=305).contains(&three),
        15 => two == 34 || two == 37,
        16 => {
            two / 10 == 4
                || (51..=55).contains(&two)
                || (2221..=2720).contains(&four)
                || four == 6011
                || two == 65
                || (644..=649).contains(&three)
                || (3528..=3589).contains(&four)
                || two == 62
        }
        _ => false,
    };
    fits && digits.iter().any(|digit| Some(digit) != digits.first()) && luhn(digits)
}

/// The length of account numbers by country code.
const IBAN: &[u8] = b"AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20YE30";

/// Whether letters and digits, without spaces, are an international account number.
pub(super) fn is_iban(text: &[u8]) -> bool {
    let Some((country, rest)) = text.split_first_chunk::<2>() else { return false };
    let wanted = IBAN.chunks(4).find(|entry| entry.starts_with(country)).and_then(|entry| match entry {
        [_, _, tens, ones] => Some(usize::from(tens - b'0') * 10 + usize::from(ones - b'0')),
        _ => None,
    });
    if wanted != Some(text.len()) || !rest.iter().take(2).all(|byte| is_digit(*byte)) {
        return false;
    }
    let turned = text.iter().skip(4).chain(text.iter().take(4));
    let rest = turned.fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        b'A'..=b'Z' => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
        _ => 97,
    });
    rest == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_well_known_test_numbers_are_right() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert!(is_card(&digits(b"4111 1111 1111 1111")) && !is_card(&digits(b"4111 1111 1111 1112")));
        assert!(is_iban(b"GB82WEST12345698765432") && !is_iban(b"GB82WEST12345698765433"));
        assert!(is_iban(b"DE89370400440532013000") && !is_iban(b"DE8937040044053201300"));
    }

    #[test]
    fn a_token_header_is_told_from_any_other_base64() {
        assert!(is_jwt(b"eyJhbGciOiJIUzI1NiJ9.e30.c2ln"));
        assert!(!is_jwt(b"eyJoZWxsbyI6IndvcmxkIn0.e30.c2ln"));
        assert!(!is_jwt(b"not-base64!"));
    }

    #[test]
    fn base64_is_read_with_and_without_padding_in_both_alphabets() {
        for text in ["aGk_", "aGk/", "aGk", "aGk=", "aGkx"] {
            assert!(base64(text.as_bytes()).is_some_and(|bytes| bytes.starts_with(b"hi")), "{text}");
        }
    }
}
