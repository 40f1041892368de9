//! Combines the tables of the fault scenarios into one.
//!
//! Takes the output of the tests; gives one row for each scenario and class of effect, and their sum. Promise: a
//! scenario that ran several times is counted each time.

use std::collections::BTreeMap;
use std::fmt;

/// The counts of each class, in the order in which the scenarios print them.
const COLUMNS: [&str; 8] =
    ["acknowledged", "executed", "lost", "doubled", "after cancel", "asked", "without doubt", "open"];

/// All tables so far.
#[derive(Debug, Default)]
pub struct FaultTables(BTreeMap<(String, String), [u64; 8]>);

impl FaultTables {
    /// Reads a line of the tests' output. Lines that are not rows of a table are ignored.
    pub fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let ["faults", scenario, class, figures @ ..] = words.as_slice() else { return };
        let counts: Vec<u64> = figures.iter().map_while(|figure| figure.parse().ok()).collect();
        let Some(counts) = counts.first_chunk::<8>() else { return };
        let row = self.0.entry(((*scenario).to_owned(), (*class).to_owned())).or_default();
        row.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for FaultTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut all = [0; 8];
        writeln!(f, "\n| scenario | class | {} |\n|---|---|{}", COLUMNS.join(" | "), "--:|".repeat(COLUMNS.len()))?;
        for ((scenario, class), counts) in &self.0 {
            writeln!(f, "| {scenario} | {class} | {} |", counts.map(|count| count.to_string()).join(" | "))?;
            all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        writeln!(f, "| all | | {} |", all.map(|count| count.to_string()).join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_same_scenario_and_class_are_added_up() {
        let mut tables = FaultTables::default();
        assert_eq!(tables.to_string(), "");
        for line in [
            "faults | scenario | class | acknowledged | executed | lost | doubled | after cancel | asked | without doubt | open",
            "faults | kills | opaque | 22 | 16 | 0 | 0 | 0 | 3 | 0 | 1 | done 18, needs_human 3",
            "test faults::kills ... ok",
            "faults | kills | opaque | 2 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | done 1, needs_human 1",
        ] {
            tables.read(line);
        }
        let text = tables.to_string();
        assert!(text.contains("| kills | opaque | 24 | 17 | 0 | 0 | 0 | 4 | 0 | 1 |\n| all | | 24 | 17 |"), "{text}");
    }
}
