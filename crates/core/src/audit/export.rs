//! An export: three plain files that anyone can check without us.
//!
//! Takes sealed entries and signed checkpoints; gives the bytes of `entries.jsonl`,
//! `checkpoints.txt` and `log.json`. Promise: there is one way to write a given log, so that two
//! exports of it can be compared with `cmp`. The reading side is [`super::verify`]; the forms are
//! written down in `docs/audit.md`.

use std::io::{self, BufRead, Read as _, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::key::VerifierKey;
use super::note::SignedNote;
use super::tree::TreeFrontier;
use super::{AuditHash, ChainHead};
use crate::ids::NodeName;
use crate::json;

/// File of the entries, one a line.
pub const ENTRIES: &str = "entries.jsonl";
/// File of the signed checkpoints.
pub const CHECKPOINTS: &str = "checkpoints.txt";
/// File that says what log this is.
pub const LOG: &str = "log.json";
/// Longest line of `entries.jsonl`, with its line feed.
pub const MAX_LINE: usize = 4 << 20;
/// Longest note in `checkpoints.txt`.
pub(super) const MAX_NOTE: usize = 64 << 10;

/// Before the hash of a line.
pub(super) const OPENING: &[u8] = b"{\"hash\":\"";
/// Between hash and body.
pub(super) const MIDDLE: &[u8] = b"\",\"entry\":";
/// After the body.
pub(super) const CLOSING: &[u8] = b"}";

/// The contents of `log.json`. Nothing in it is trusted by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditExportHeader {
    /// Form of the export.
    pub form: AuditExportFormat,
    /// The key the checkpoints are said to be signed with.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub key: VerifierKey,
    /// Which log.
    pub log: NodeName,
    /// Number of entries the log had, those before `start` included.
    pub size: u64,
    /// Where the export begins, when entries before were pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<AuditExportStart>,
}

/// Forms of an export. There is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditExportFormat {
    /// The one in `docs/audit.md`.
    #[serde(rename = "sluicegate-audit-export-v1")]
    V1,
}

/// A replacement for the entries that are no longer in the export. It proves itself: with anything
/// else in its place no later root matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditExportStart {
    /// The tree of those entries.
    pub frontier: TreeFrontier,
    /// The hash of the last of those entries.
    pub head: AuditHash,
}

/// Not the contents of `log.json`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`log.json` is not in its form: {0}")]
pub struct AuditLogParseError(String);

impl AuditLogParseError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "audit.log_form"
    }
}

impl AuditExportHeader {
    /// The bytes of `log.json`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers into a Vec: there is no failing case, and an empty file would not parse.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads `log.json`.
    ///
    /// # Errors
    /// When it is not in its form.
    pub fn parse(bytes: &[u8]) -> Result<Self, AuditLogParseError> {
        let value = json::parse(bytes, &json::REQUEST).map_err(|error| AuditLogParseError(error.to_string()))?;
        let log: Self = serde_json::from_value(value).map_err(|error| AuditLogParseError(error.to_string()))?;
        let first = log.start.as_ref().map_or(0, |start| start.frontier.size());
        if first > log.size {
            return Err(AuditLogParseError("it starts after its end".into()));
        }
        Ok(log)
    }

    /// The end of the chain before the first exported entry.
    #[must_use]
    pub fn head_before_export(&self) -> ChainHead {
        let start = self.start.as_ref();
        start.map_or_else(
            || ChainHead::genesis(&self.log),
            |start| ChainHead { size: start.frontier.size(), hash: start.head },
        )
    }
}

/// Writes one line of `entries.jsonl`.
///
/// # Errors
/// When writing fails, or the body cannot be a line.
pub fn write_entry(out: &mut impl Write, hash: &AuditHash, body: &[u8]) -> io::Result<()> {
    let length = OPENING.len() + 64 + MIDDLE.len() + body.len() + CLOSING.len() + 1;
    if length > MAX_LINE || body.contains(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an entry is one line of at most 4 MiB"));
    }
    out.write_all(OPENING)?;
    out.write_all(&hex_of(hash))?;
    out.write_all(MIDDLE)?;
    out.write_all(body)?;
    out.write_all(CLOSING)?;
    out.write_all(b"\n")
}

/// Appends one signed checkpoint to `checkpoints.txt`: the note, then a blank line.
///
/// # Errors
/// When writing fails.
pub fn write_checkpoint(out: &mut impl Write, note: &SignedNote) -> io::Result<()> {
    writeln!(out, "{note}")
}

/// The bytes of the next note of `checkpoints.txt`, without the blank line after it; `None` at the end.
/// Neither a checkpoint nor a signature has an empty line, so the second one ends the note.
pub(super) fn read_note(from: &mut impl BufRead) -> io::Result<Option<Result<Vec<u8>, &'static str>>> {
    let mut note = Vec::new();
    let mut blanks = 0;
    loop {
        let start = note.len();
        let room = u64::try_from(MAX_NOTE - start.min(MAX_NOTE) + 1).unwrap_or(0);
        from.by_ref().take(room).read_until(b'\n', &mut note)?;
        let line = note.get(start..).unwrap_or_default();
        match line {
            [] if note.is_empty() => return Ok(None),
            [b'\n'] if blanks == 1 => {
                note.truncate(start);
                return Ok(Some(Ok(note)));
            }
            [b'\n'] => blanks += 1,
            [.., b'\n'] => (),
            _ if note.len() > MAX_NOTE => return Ok(Some(Err("a note is longer than 64 KiB"))),
            _ => return Ok(Some(Err("the last note is cut off"))),
        }
    }
}

/// A hash as 64 hex digits.
pub(super) fn hex_of(hash: &AuditHash) -> [u8; 64] {
    let mut text = [0; 64];
    // There is room for two digits of each byte: there is no failing case.
    drop(base16ct::lower::encode(&hash.0, &mut text));
    text
}

/// The hash that 64 digits stand for. Invalid digits give an arbitrary hash: only for digits that are
/// compared with those of the computed hash as well.
pub(super) fn hash_of_hex(digits: &[u8; 64]) -> AuditHash {
    let mut bytes = [0; 32];
    drop(base16ct::lower::decode(digits, &mut bytes));
    AuditHash(bytes)
}

fn as_text<S: Serializer>(key: &VerifierKey, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(key)
}

fn from_text<'de, D: Deserializer<'de>>(d: D) -> Result<VerifierKey, D::Error> {
    String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    #[test]
    fn the_form_of_a_line_is_pinned() {
        let mut out = Vec::new();
        write_entry(&mut out, &AuditHash([0xab; 32]), b"{}").unwrap();
        let digits = "ab".repeat(32);
        assert_eq!(out, format!("{{\"hash\":\"{digits}\",\"entry\":{{}}}}\n").into_bytes());
        assert!(write_entry(&mut out, &AuditHash([0; 32]), b"{\n}").is_err());
        assert!(write_entry(&mut out, &AuditHash([0; 32]), &vec![b' '; MAX_LINE]).is_err());
    }

    #[test]
    fn the_form_of_log_json_is_pinned() {
        let log = AuditExportHeader {
            form: AuditExportFormat::V1,
            key: KEY.parse().unwrap(),
            log: NodeName::new("gw-1").unwrap(),
            size: 7,
            start: None,
        };
        let text =
            format!("{{\"form\":\"sluicegate-audit-export-v1\",\"key\":\"{KEY}\",\"log\":\"gw-1\",\"size\":7}}\n");
        assert_eq!(log.to_bytes(), text.as_bytes());
        assert_eq!(AuditExportHeader::parse(text.as_bytes()), Ok(log.clone()));
        let frontier = TreeFrontier::from_parts(5, vec![AuditHash([1; 32]), AuditHash([2; 32])]).unwrap();
        let pruned = AuditExportHeader { start: Some(AuditExportStart { frontier, head: AuditHash([3; 32]) }), ..log };
        assert_eq!(AuditExportHeader::parse(&pruned.to_bytes()), Ok(pruned.clone()));
        assert_eq!(pruned.head_before_export(), ChainHead { size: 5, hash: AuditHash([3; 32]) });
        for bad in [
            text.replace("v1", "v2"),
            text.replace("c74f", "c74e"),
            text.replace("\"size\"", "\"Size\""),
            text.replace("}\n", ",\"x\":1}"),
            String::from_utf8(pruned.to_bytes()).unwrap().replace("\"size\":7", "\"size\":4"),
        ] {
            assert_eq!(AuditExportHeader::parse(bad.as_bytes()).unwrap_err().code(), "audit.log_form", "{bad}");
        }
    }

    #[test]
    fn notes_come_back_one_by_one_and_a_cut_one_is_seen() {
        let file = "a\nb\n\n— s\n\nc\n\n— t\n— u\n\n".to_owned();
        let mut from = file.as_bytes();
        let mut next = || read_note(&mut from).unwrap();
        assert_eq!(next(), Some(Ok("a\nb\n\n— s\n".into())));
        assert_eq!(next(), Some(Ok("c\n\n— t\n— u\n".into())));
        assert_eq!(next(), None);
        for cut in ["a\n\n— s\n", "a\n\n— s", "a\n", "a\n\n"] {
            assert!(matches!(read_note(&mut cut.as_bytes()), Ok(Some(Err(_)))), "{cut}");
        }
        let long = "x".repeat(MAX_NOTE + 2);
        assert!(matches!(read_note(&mut long.as_bytes()), Ok(Some(Err("a note is longer than 64 KiB")))));
    }

    #[test]
    fn digits_are_those_of_the_plain_encoder() {
        let hash = AuditHash(std::array::from_fn(|i| (i * 37) as u8));
        assert_eq!(hex_of(&hash).to_vec(), hash.to_string().into_bytes());
        assert_eq!(hash_of_hex(&hex_of(&hash)), hash);
    }
}
