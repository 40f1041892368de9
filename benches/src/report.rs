//! The report: tables for people, one section for each measurement.
//!
//! Takes rows; gives Markdown, and stores it in a file in which each section replaces its older version. Promise: each
//! row says what it was compared with, its target, and whether the target was reached.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;

use crate::rounds::MedianRange;

/// The target of a row's ratio.
#[derive(Debug, Clone, Copy)]
pub enum RatioTarget {
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
    /// No target: it is information.
    None,
}

/// One line of a table.
#[derive(Debug, Clone)]
pub struct ReportLine {
    /// What was measured.
    pub what: String,
    /// Our figure, for information.
    pub ours: String,
    /// The floor or peer.
    pub against: String,
    /// Its figure, for information.
    pub floor: String,
    /// The claim, over all rounds.
    pub ratio: MedianRange,
    /// The target of the ratio.
    pub target: RatioTarget,
}

/// One table, with the notes needed to read it.
#[derive(Debug, Clone)]
pub struct ReportSection {
    /// The word that selects it.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// How it was measured.
    pub how: String,
    /// Its lines.
    pub rows: Vec<ReportLine>,
    /// What was left out and why, and other notes.
    pub notes: Vec<String>,
}

impl ReportLine {
    /// Whether the target was reached. A row without a target always counts as reached.
    pub fn is_met(&self) -> bool {
        match self.target {
            RatioTarget::AtLeast(least) => self.ratio.middle >= least,
            RatioTarget::AtMost(most) => self.ratio.middle <= most,
            RatioTarget::None => true,
        }
    }
}

impl ReportSection {
    /// Whether every row reached its target.
    pub fn is_met(&self) -> bool {
        self.rows.iter().all(ReportLine::is_met)
    }
}

impl fmt::Display for ReportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, ours, against, floor, ratio, target } = self;
        let wanted = match target {
            RatioTarget::AtLeast(least) => format!("≥ {}", figure(*least)),
            RatioTarget::AtMost(most) => format!("≤ {}", figure(*most)),
            RatioTarget::None => "–".into(),
        };
        let word = match target {
            RatioTarget::None => "",
            _ if self.is_met() => "ok",
            _ => "**below**",
        };
        let range = format!("{} … {}", figure(ratio.low), figure(ratio.high));
        writeln!(
            f,
            "| {what} | {ours} | {against} | {floor} | **{}** ({range}) | {wanted} | {word} |",
            figure(ratio.middle)
        )
    }
}

impl fmt::Display for ReportSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.how)?;
        writeln!(f, "| what | ours | against | its figure | ratio (range of rounds) | target | |")?;
        writeln!(f, "|---|---:|---|---:|---:|---:|---|")?;
        self.rows.iter().try_for_each(|row| write!(f, "{row}"))?;
        for note in &self.notes {
            write!(f, "\n* {note}")?;
        }
        let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        writeln!(f, "\n\nMeasured {now} by `cargo xtask bench {}`.", self.name)
    }
}

/// A number for people: three significant digits, with thousands separated.
pub fn figure(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return "?".into();
    }
    if size >= 1_000.0 {
        let whole = format!("{number:.0}");
        let (sign, digits) = whole.strip_prefix('-').map_or(("", whole.as_str()), |digits| ("-", digits));
        let parts: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().filter_map(|part| std::str::from_utf8(part).ok()).collect();
        return format!("{sign}{}", parts.join(","));
    }
    match size {
        _ if size >= 10.0 && number.fract() == 0.0 => format!("{number:.0}"),
        _ if size >= 100.0 => format!("{number:.0}"),
        _ if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Puts a section into the file in place of its older version, and leaves the others unchanged.
pub fn keep(path: &Path, machine: &str, section: &ReportSection) -> anyhow::Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    std::fs::write(path, merged(&old, machine, section)).with_context(|| format!("writing {}", path.display()))
}

fn merged(old: &str, machine: &str, section: &ReportSection) -> String {
    let heading = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let mut kept: Vec<String> = old.split("\n## ").skip(1).map(|part| part.trim_end().to_owned()).collect();
    let fresh = section.to_string();
    let fresh = fresh.strip_prefix("## ").unwrap_or(&fresh).trim_end().to_owned();
    match kept.iter_mut().find(|part| heading(part) == section.title) {
        Some(part) => *part = fresh,
        None => kept.push(fresh),
    }
    kept.sort_by_key(|part| ORDER.iter().position(|title| *title == heading(part)));
    let sections: Vec<String> = kept.into_iter().map(|part| format!("## {part}\n")).collect();
    format!("{}\n{}\n\n{}", HEAD.trim_start(), machine.trim_end(), sections.join("\n"))
}

/// The sections of the report, in reading order.
pub const ORDER: [&str; 13] = [
    "Admitting writes",
    "The audit log",
    "From due to done",
    "Policy decisions",
    "The life of a worker",
    "The way out",
    "Leak scan",
    "Content",
    "The gateway over HTTP",
    "The approval gate",
    "Mounted servers",
    "The copy of a mailbox",
    "One agent beside a flood",
];

const HEAD: &str = "
# Benchmarks

Written by `cargo xtask bench`; do not edit.

**Only the ratios are claims.** Both sides of a ratio are measured in the same run, in turns, and the median over the
rounds is shown with the range it comes from. Absolute figures tell how this machine felt at that moment; whatever else
ran beside it is in them. Rows bound by the processor are measured on the processor clock, rows bound by the disk on the
wall clock. A *floor* is the least anything could cost that keeps the same promise; a *peer* is a program people use.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &'static str, ours: &str) -> ReportSection {
        let ratio = MedianRange { middle: 0.61, low: 0.5, high: 0.7 };
        let row = ReportLine {
            what: "w".into(),
            ours: ours.into(),
            against: "floor".into(),
            floor: "2".into(),
            ratio,
            target: RatioTarget::AtLeast(0.5),
        };
        ReportSection { name: "store", title, how: "h".into(), rows: vec![row], notes: vec!["n".into()] }
    }

    #[test]
    fn a_newer_section_replaces_its_older_self_and_leaves_the_others() {
        let [store, audit, ..] = ORDER;
        let one = merged("", "m", &section(audit, "first"));
        let two = merged(&one, "m", &section(store, "second"));
        let three = merged(&two, "m", &section(audit, "third"));
        assert!(!three.contains("first") && three.contains("second") && three.contains("third"), "{three}");
        assert!(three.find(store) < three.find(audit), "{three}");
        assert_eq!(three.matches("# Benchmarks").count(), 1);
    }

    #[test]
    fn a_row_says_whether_it_reached_its_target() {
        let mut section = section("Admitting writes", "1");
        assert!(section.is_met() && section.to_string().contains("| ok |"));
        section.rows[0].target = RatioTarget::AtMost(0.5);
        assert!(!section.is_met() && section.to_string().contains("**below**"));
    }

    #[test]
    fn figures_keep_the_digits_that_mean_something() {
        assert_eq!(
            [0.456, 12.34, 123.4, 12_345.6, -1_234_567.0].map(figure),
            ["0.46", "12.3", "123", "12,346", "-1,234,567"]
        );
        assert_eq!([90.0, f64::NAN].map(figure), ["90", "?"]);
    }
}
