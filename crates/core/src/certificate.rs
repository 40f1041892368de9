//! Certificates: until when one is valid, and when people are notified.
//!
//! Takes the DER bytes of a certificate; gives the end of its validity. Promise: for any bytes, it gives a time
//! that stands in them or nothing.

use crate::clock::{Millis, UtcMillis};

/// How long before the end of a certificate people are notified.
pub const NOTICE: Millis = Millis::from_hours(14 * 24);

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version of a certificate, where it says one.
const VERSION: u8 = 0xa0;

/// The state of a certificate at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateStatus {
    /// Valid for longer than [`NOTICE`].
    Valid,
    /// Valid, but it ends soon.
    Expiring,
    /// No client accepts it any more.
    Expired,
}

/// The state of a certificate that is valid until `not_after`.
#[must_use]
pub fn certificate_status(not_after: UtcMillis, now: UtcMillis) -> CertificateStatus {
    if now >= not_after {
        CertificateStatus::Expired
    } else if now + NOTICE >= not_after {
        CertificateStatus::Expiring
    } else {
        CertificateStatus::Valid
    }
}

/// Until when a certificate (X.509, DER) is valid; `None` where the bytes are not a certificate.
#[must_use]
pub fn not_after(der: &[u8]) -> Option<UtcMillis> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (signed, _) = expect(certificate, SEQUENCE)?;
    let rest = expect(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = expect(rest, INTEGER)?;
    let (_algorithm, rest) = expect(rest, SEQUENCE)?;
    let (_issuer, rest) = expect(rest, SEQUENCE)?;
    let (validity, _) = expect(rest, SEQUENCE)?;
    let (_, _not_before, rest) = value(validity)?;
    let (kind, text, _) = value(rest)?;
    time(kind, text)
}

/// The next value if it is of this kind, and what follows it.
fn expect(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (kind, content, rest) = value(bytes)?;
    (kind == wanted).then_some((content, rest))
}

/// The next value: its kind, its content, and what follows it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, short], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (long.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(kind: u8, text: &[u8]) -> Option<UtcMillis> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let text = match (kind, text.len()) {
        // A year of two digits is one of 1950 to 2049.
        (UTC_TIME, 12) => format!("{}{text}", if text.as_bytes().first()? < &b'5' { "20" } else { "19" }),
        (GENERALIZED_TIME, 14) => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<i8>().ok();
    let year = text.get(..4)?.parse::<i16>().ok()?;
    let date =
        jiff::civil::DateTime::new(year, part(4, 6)?, part(6, 8)?, part(8, 10)?, part(10, 12)?, part(12, 14)?, 0);
    let at = date.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(UtcMillis::from_millis(at.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let head = if length < 0x80 { vec![kind, length] } else { vec![kind, 0x81, length] };
        [head, content.to_vec()].concat()
    }

    fn certificate(version: bool, kind: u8, end: &str) -> Vec<u8> {
        let validity = [tlv(UTC_TIME, b"240101000000Z"), tlv(kind, end.as_bytes())].concat();
        let mut signed = if version { tlv(VERSION, &tlv(INTEGER, &[2])) } else { Vec::new() };
        for part in [tlv(INTEGER, &[7]), tlv(SEQUENCE, b""), tlv(SEQUENCE, &[0x31; 120]), tlv(SEQUENCE, &validity)] {
            signed.extend(part);
        }
        tlv(SEQUENCE, &tlv(SEQUENCE, &signed))
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        for version in [true, false] {
            for (kind, text, said) in [
                (UTC_TIME, "261118071500Z", "2026-11-18T07:15:00.000Z"),
                (UTC_TIME, "491231235959Z", "2049-12-31T23:59:59.000Z"),
                (UTC_TIME, "990101000000Z", "1999-01-01T00:00:00.000Z"),
                (GENERALIZED_TIME, "20500101000000Z", "2050-01-01T00:00:00.000Z"),
            ] {
                let end = not_after(&certificate(version, kind, text)).unwrap();
                assert_eq!(end.to_string(), said);
            }
        }
    }

    #[test]
    fn whatever_is_cut_or_changed_gives_a_time_or_nothing() {
        let whole = certificate(true, UTC_TIME, "261118071500Z");
        for length in 0..whole.len() {
            assert_eq!(not_after(whole.get(..length).unwrap()), None, "{length}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut other = whole.clone();
                *other.get_mut(at).unwrap() = byte;
                let _no_panic = not_after(&other);
            }
        }
        for bad in ["261318071500Z", "2611180715Z", "261118071500+", "26111807150xZ"] {
            assert_eq!(not_after(&certificate(true, UTC_TIME, bad)), None, "{bad}");
        }
    }

    #[test]
    fn people_are_told_fourteen_days_ahead() {
        let end = UtcMillis::from_millis(1_800_000_000_000);
        assert_eq!(certificate_status(end, end), CertificateStatus::Expired);
        assert_eq!(certificate_status(end, end - Millis::from_secs(1)), CertificateStatus::Expiring);
        assert_eq!(certificate_status(end, end - NOTICE), CertificateStatus::Expiring);
        assert_eq!(certificate_status(end, end - NOTICE - Millis::from_secs(1)), CertificateStatus::Valid);
    }
}
