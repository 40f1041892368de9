//! Problems in a policy file, shown at their place.
//!
//! Takes problems found while reading; gives text with `file:line:column`, the line itself and a
//! caret. Promise: every problem of every file is reported at once, in file order, up to a limit.

use std::fmt;

use serde::Serialize;

use super::suggest::escape;

/// Most problems kept per file; a file with more is not fixed line by line.
const PER_FILE: usize = 200;
/// Longest piece of a source line that is shown.
const EXCERPT: usize = 160;

/// Whether a problem stops the policy from loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultSeverity {
    /// It stops the policy from loading.
    Error,
    /// It does not stop the policy, but the file probably does not say what its author meant.
    Warning,
}

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct SourcePosition {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// How many characters it covers on that line, at least 1.
    #[serde(skip)]
    pub width: u32,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFault {
    /// Error or warning.
    pub severity: FaultSeverity,
    /// The stable code, such as `policy.unknown_key`.
    pub code: &'static str,
    /// The file as the caller named it.
    pub file: String,
    /// The place in the file.
    #[serde(flatten)]
    pub place: SourcePosition,
    /// What is wrong.
    pub message: String,
    /// Why that is a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The source line.
    #[serde(skip)]
    excerpt: Option<String>,
}

impl FileFault {
    /// Adds why it is a problem.
    pub fn why(&mut self, why: impl Into<String>) -> &mut Self {
        self.why = Some(why.into());
        self
    }

    /// Adds what to do about it.
    pub fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a "did you mean" hint, if there is a similar word.
    pub fn suggest_word(&mut self, close: Option<&str>) -> &mut Self {
        if let Some(close) = close {
            self.hint = Some(format!("did you mean `{}`?", escape(close)));
        }
        self
    }

    /// A problem of a whole file, which has no line to show.
    #[must_use]
    pub fn of_file(code: &'static str, file: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: FaultSeverity::Error,
            code,
            file: file.into(),
            place: SourcePosition::default(),
            message: message.into(),
            why: None,
            hint: None,
            excerpt: None,
        }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            FaultSeverity::Error => "error",
            FaultSeverity::Warning => "warning",
        };
        writeln!(f, "{word}: {} [{}]", self.message, self.code)?;
        let SourcePosition { line, column, width } = self.place;
        if line == 0 {
            write!(f, "  --> {}", self.file)?;
        } else {
            write!(f, "  --> {}:{line}:{column}", self.file)?;
        }
        if let Some(excerpt) = &self.excerpt {
            let number = line.to_string();
            let gutter = " ".repeat(number.len());
            let indent = " ".repeat(column.saturating_sub(1) as usize);
            let carets = "^".repeat(width.max(1) as usize);
            write!(f, "\n {gutter} |\n {number} | {excerpt}\n {gutter} | {indent}{carets}")?;
        }
        if let Some(why) = &self.why {
            write!(f, "\n  why:  {why}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// Why a set of policy files was refused: at least one error, and all warnings found before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PolicyLoadError {
    /// All problems, errors and warnings, by file and line.
    pub faults: Vec<FileFault>,
}

impl PolicyLoadError {
    /// How many of them are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.faults.iter().filter(|fault| fault.severity == FaultSeverity::Error).count()
    }
}

impl fmt::Display for PolicyLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

/// The codes of problems in any file of one kind, and the name of the language of that kind.
#[derive(Debug, Clone, Copy)]
pub struct FileFaultCodes {
    /// Not readable as one plain YAML document.
    pub syntax: &'static str,
    /// Not usable as a key.
    pub key: &'static str,
    /// The same key twice.
    pub duplicate_key: &'static str,
    /// An anchor or alias.
    pub alias: &'static str,
    /// Too many problems to show them all.
    pub many_problems: &'static str,
    /// The name of the language, such as `the policy language`.
    pub language: &'static str,
}

impl FileFaultCodes {
    /// Policy files.
    pub const POLICY: Self = Self {
        syntax: "policy.syntax",
        key: "policy.key",
        duplicate_key: "policy.duplicate_key",
        alias: "policy.alias",
        many_problems: "policy.many_problems",
        language: "the policy language",
    };
}

/// Collects the problems of one file.
#[derive(Debug)]
pub struct FaultCollector<'t> {
    family: FileFaultCodes,
    file: String,
    lines: Vec<&'t str>,
    list: Vec<FileFault>,
    /// The problem that stands for those after the limit.
    overflow: Option<FileFault>,
    failed: bool,
}

impl<'t> FaultCollector<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> Self {
        Self::of(FileFaultCodes::POLICY, file, text)
    }

    /// None so far, in a file of this kind.
    #[must_use]
    pub fn of(family: FileFaultCodes, file: &str, text: &'t str) -> Self {
        let lines = text.lines().collect();
        Self { family, file: file.to_owned(), lines, list: Vec::new(), overflow: None, failed: false }
    }

    pub(crate) const fn family(&self) -> FileFaultCodes {
        self.family
    }

    /// Adds an error.
    pub fn error(&mut self, place: SourcePosition, code: &'static str, message: impl Into<String>) -> &mut FileFault {
        self.failed = true;
        self.add(FaultSeverity::Error, place, code, message.into())
    }

    pub(crate) fn warning(
        &mut self,
        place: SourcePosition,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut FileFault {
        self.add(FaultSeverity::Warning, place, code, message.into())
    }

    /// Whether any error was reported so far.
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.failed
    }

    /// All of them, in file order.
    #[must_use]
    pub fn into_list(self) -> Vec<FileFault> {
        let mut list = self.list;
        list.sort_by_key(|fault| fault.place);
        if self.overflow.is_some() {
            let severity = if self.failed { FaultSeverity::Error } else { FaultSeverity::Warning };
            let mut more = FileFault::of_file(
                self.family.many_problems,
                self.file,
                format!("more than {PER_FILE} problems in this file"),
            );
            more.severity = severity;
            list.push(more);
        }
        list
    }

    fn add(
        &mut self,
        severity: FaultSeverity,
        place: SourcePosition,
        code: &'static str,
        message: String,
    ) -> &mut FileFault {
        let mut fault = FileFault::of_file(code, self.file.clone(), message);
        fault.severity = severity;
        fault.place = place;
        if self.list.len() >= PER_FILE {
            return self.overflow.insert(fault);
        }
        self.show(&mut fault);
        self.list.push(fault);
        #[expect(clippy::unwrap_used, reason = "one was pushed on the line above")]
        self.list.last_mut().unwrap()
    }

    /// Adds the source line, cut so that the marked part is in it and safe to print.
    fn show(&self, fault: &mut FileFault) {
        let SourcePosition { line, column, width } = fault.place;
        let Some(text) = (line as usize).checked_sub(1).and_then(|at| self.lines.get(at)) else { return };
        let column = column.max(1) as usize;
        let start = (column - 1).saturating_sub(EXCERPT / 2);
        let shown: String = text
            .chars()
            .skip(start)
            .take(EXCERPT)
            // One character in, one out: the caret below must not move.
            .map(|c| {
                if c == '\t' {
                    ' '
                } else if super::suggest::is_unsafe(c) {
                    '\u{fffd}'
                } else {
                    c
                }
            })
            .collect();
        let left = shown.chars().count().saturating_sub(column - 1 - start).max(1);
        // The caret is placed relative to the excerpt; the location above keeps the true column.
        if start > 0 {
            let marked: String = shown.chars().skip(column - 1 - start).collect();
            fault.excerpt = Some(format!("{}{marked}", " ".repeat(column - 1)));
        } else {
            fault.excerpt = Some(shown);
        }
        fault.place.width = u32::try_from((width.max(1) as usize).min(left)).unwrap_or(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_line_and_points_at_it() {
        let mut faults = FaultCollector::new("org.yaml", "rules:\n  - capabilty: x\n");
        faults
            .error(SourcePosition { line: 2, column: 5, width: 9 }, "policy.unknown_key", "unknown key `capabilty`")
            .suggest_word(Some("capability"));
        let list = faults.into_list();
        assert_eq!(
            list[0].to_string(),
            "error: unknown key `capabilty` [policy.unknown_key]\n  --> org.yaml:2:5\n   |\n 2 |   - capabilty: x\n   |     ^^^^^^^^^\n  hint: did you mean `capability`?"
        );
    }

    #[test]
    fn a_broken_file_does_not_flood() {
        let mut faults = FaultCollector::new("f", "x");
        for _ in 0..10_000 {
            faults.error(SourcePosition { line: 1, column: 1, width: 1 }, "c", "m");
        }
        assert_eq!(faults.into_list().len(), PER_FILE + 1);
    }

    #[test]
    fn control_characters_of_a_file_never_reach_the_terminal() {
        let mut faults = FaultCollector::new("f", "a\u{1b}[31m\u{202e}b");
        faults.error(SourcePosition { line: 1, column: 900, width: 70_000 }, "c", "m");
        let text = faults.into_list()[0].to_string();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
}
