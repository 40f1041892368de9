//! Sizes: amounts of bytes, and how much of a disk must stay free.
//!
//! `1MB` is a million bytes, `1MiB` is 1024 times 1024.

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

use super::setting::{Setting, SettingError, word};

/// The units, larger ones first.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// An amount of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size of this many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }
    /// A size of this many millions of bytes.
    #[must_use]
    pub const fn from_mb(mb: u64) -> Self {
        Self(mb.saturating_mul(1_000_000))
    }
    /// A size of this many times 1024 bytes.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1024))
    }
    /// The size in bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit: u64| self.0 >= unit && self.0.is_multiple_of(unit);
        let (name, unit) = UNITS.into_iter().find(|(_, unit)| fits(*unit)).unwrap_or(("B", 1));
        f.pad(&format!("{}{name}", self.0 / unit))
    }
}

impl Setting for ByteSize {
    const WHAT: &'static str = "a size such as `1MB` or `32KiB`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at_checked(end).unwrap_or((text, ""));
        let bytes = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, bytes)| bytes);
        let size = digits.parse::<u64>().ok().zip(bytes).and_then(|(number, bytes)| number.checked_mul(bytes));
        size.map(Self).ok_or_else(|| SettingError::expected(Self::WHAT, text))
    }
    fn shown(&self) -> Value {
        json!(self.to_string())
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(B|KB|KiB|MB|MiB|GB|GiB)$"})
    }
}

/// How much of a disk must stay free: both an amount and a share of the whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeDiskFloor {
    /// At least this many bytes.
    pub free: ByteSize,
    /// And at least this percentage of the disk.
    pub percent: u8,
}

impl FreeDiskFloor {
    /// Whether a disk with this much free space is below the limit.
    #[must_use]
    pub const fn undercut(self, free: u64, whole: u64) -> bool {
        free < self.free.0 || (free as u128) * 100 < (whole as u128) * (self.percent as u128)
    }
}

impl fmt::Display for FreeDiskFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}%", self.free, self.percent))
    }
}

impl Setting for FreeDiskFloor {
    const WHAT: &'static str = "a size and a share such as `512MB/10%`";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let bad = || SettingError::expected(Self::WHAT, text);
        let (free, percent) = text.split_once('/').ok_or_else(bad)?;
        let free = ByteSize::from_text(free, base).map_err(|_| bad())?;
        let percent = percent.strip_suffix('%').and_then(|digits| digits.parse().ok()).filter(|p| *p < 100);
        Ok(Self { free, percent: percent.ok_or_else(bad)? })
    }
    fn shown(&self) -> Value {
        json!(format!("{}/{}%", word(&self.free.shown()), self.percent))
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(B|KB|KiB|MB|MiB|GB|GiB)/[0-9]{1,2}%$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_reads_and_prints_alike() {
        for (text, bytes) in [("1B", 1), ("1KB", 1000), ("32KiB", 32768), ("1MiB", 1 << 20), ("50MB", 50_000_000)] {
            let size = ByteSize::from_text(text, Path::new("")).unwrap();
            assert_eq!((size.as_bytes(), size.to_string()), (bytes, text.to_owned()));
        }
        for bad in ["", "1", "MB", "1 MB", "1mb", "1.5MB", "-1MB", "99999999999999GB"] {
            assert!(ByteSize::from_text(bad, Path::new("")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_disk_is_low_when_either_the_amount_or_the_share_is_gone() {
        let floor = FreeDiskFloor::from_text("512MB/10%", Path::new("")).unwrap();
        let gb = 1_000_000_000;
        assert!(!floor.undercut(gb, 5 * gb));
        assert!(floor.undercut(511_000_000, gb), "the amount");
        assert!(floor.undercut(gb, 11 * gb), "the share");
        assert!(!floor.undercut(u64::MAX, u64::MAX));
        for bad in ["512MB", "10%", "512MB/100%", "512MB/x%", "/"] {
            assert!(FreeDiskFloor::from_text(bad, Path::new("")).is_err(), "{bad}");
        }
    }
}
