//! One line of `entries.jsonl`, by fixed places: no JSON is parsed.
//!
//! A body ends in `"log":"<id>","seq":<n>,"v":1}` because its fields are in the order of their names.

use super::super::AuditHash;
use super::super::export::{CLOSING, MIDDLE, OPENING};
use crate::hex;
use crate::ids::NodeName;

const BEGIN: &[u8] = b"{\"at\":";
const END: &[u8] = b",\"v\":1}";

/// What every line of one log has in common.
pub(super) struct EntryLineFormat {
    /// Between the fact and the place: `},"log":"gw-1","seq":`.
    log: Vec<u8>,
}

/// A line in its form. Its content is not verified yet.
pub(super) struct EntryLine<'a> {
    pub(super) hash: AuditHash,
    pub(super) body: &'a [u8],
    pub(super) seq: u64,
}

impl EntryLineFormat {
    pub(super) fn new(log: &NodeName) -> Self {
        Self { log: format!("}},\"log\":\"{log}\",\"seq\":").into_bytes() }
    }

    /// The hash's digits and the body of a line without its line feed, if it is entry number `seq`. The fast way.
    pub(super) fn fits<'a>(&self, line: &'a [u8], seq: &DecimalCounter) -> Option<(&'a [u8; 64], &'a [u8])> {
        let (digits, body) = outer(line)?;
        let rest = body.strip_suffix(END)?.strip_suffix(seq.digits())?.strip_suffix(self.log.as_slice())?;
        rest.starts_with(BEGIN).then_some((digits, body))
    }

    /// Parses a line without its line feed, whatever place it claims.
    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Result<EntryLine<'a>, &'static str> {
        let (digits, body) = outer(line).ok_or("the line is not `{\"hash\":…,\"entry\":…}`")?;
        let hash = std::str::from_utf8(digits).ok().and_then(hex::decode).ok_or("the hash is not 64 hex digits")?;
        let head =
            body.strip_suffix(END).filter(|head| head.starts_with(BEGIN)).ok_or("the body is not that of an entry")?;
        let start = head.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |last| last + 1);
        let (head, digits) = head.split_at(start);
        let seq = std::str::from_utf8(digits).ok().and_then(super::super::checkpoint::decimal);
        let seq = seq.ok_or("the body does not say its place")?;
        if !head.ends_with(&self.log) {
            return Err("the entry belongs to another log");
        }
        Ok(EntryLine { hash: AuditHash(hash), body, seq })
    }

    /// The place a line claims, even when the rest of it is wrong.
    pub(super) fn claims(&self, line: &[u8]) -> Option<u64> {
        self.parse(line).ok().map(|line| line.seq)
    }
}

fn outer(line: &[u8]) -> Option<(&[u8; 64], &[u8])> {
    let (digits, rest) = line.strip_prefix(OPENING)?.split_first_chunk::<64>()?;
    Some((digits, rest.strip_prefix(MIDDLE)?.strip_suffix(CLOSING)?))
}

/// A number that counts up in decimal digits, so that no line needs a division.
pub(super) struct DecimalCounter {
    text: Vec<u8>,
}

impl DecimalCounter {
    pub(super) fn new(from: u64) -> Self {
        Self { text: from.to_string().into_bytes() }
    }

    pub(super) fn digits(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn step(&mut self) {
        for digit in self.text.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        self.text.insert(0, b'1');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_counts() {
        let mut counter = DecimalCounter::new(8);
        for seq in 8..1200_u64 {
            assert_eq!(counter.digits(), seq.to_string().as_bytes());
            counter.step();
        }
    }

    #[test]
    fn both_ways_of_reading_a_line_agree() {
        let shape = EntryLineFormat::new(&NodeName::new("gw-1").unwrap());
        let good = format!(
            "{{\"hash\":\"{}\",\"entry\":{{\"at\":1,\"fact\":{{}},\"log\":\"gw-1\",\"seq\":42,\"v\":1}}}}",
            "0a".repeat(32)
        );
        assert!(shape.fits(good.as_bytes(), &DecimalCounter::new(42)).is_some());
        assert!(shape.fits(good.as_bytes(), &DecimalCounter::new(2)).is_none());
        assert!(shape.parse(good.as_bytes()).is_ok_and(|line| line.seq == 42 && line.hash == AuditHash([10; 32])));
        for bad in [
            good.replace("hash", "hush"),
            good.replace("gw-1", "gw-2"),
            good.replace(":42,", ":042,"),
            good.replace(":42,", ":-42,"),
            good.replace(":42,", ":,"),
            good.replace("\"v\":1", "\"v\":2"),
            good.replace("\"at\"", "\"is\""),
            format!("{good} "),
            good.replace("}}", "}"),
        ] {
            assert!(
                shape.parse(bad.as_bytes()).is_err() && shape.fits(bad.as_bytes(), &DecimalCounter::new(42)).is_none(),
                "{bad}"
            );
        }
        // Digits are left to the comparison with the computed hash on the fast way.
        assert!(shape.parse(good.replace("0a0a", "0A0a").as_bytes()).is_err());
    }
}
