//! Tables: columns for people, fitted to their terminal; complete lines for programs.

mod fit;

use comfy_table::{ColumnConstraint, ContentArrangement, Table as Grid, Width, presets};
use owo_colors::OwoColorize as _;
use sluice_core::{Clock as _, UtcMillis};

use crate::console::CommandConsole;
use crate::escape;
use crate::failure::CliError;
use crate::system::SystemClock;
use crate::time_args::{age, moment};

/// Fewest characters of an id that are shown.
const SHORTEST: usize = 12;

/// A table under construction.
#[derive(Debug)]
pub(crate) struct TextTable {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that a narrow terminal goes without, the least important first.
    spare: &'static [&'static str],
}

impl TextTable {
    /// A table with these column names.
    pub(crate) fn new(names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| name.to_uppercase()).collect(), rows: Vec::new(), spare: &[] }
    }

    /// Names columns that a narrow terminal goes without, the least important first.
    pub(crate) fn spare(self, spare: &'static [&'static str]) -> Self {
        Self { spare, ..self }
    }

    /// Adds a row. Its text may come from anywhere.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| escape::escape_line(cell)).collect());
    }

    /// Prints the table; if it is empty, prints `empty`.
    pub(crate) fn print(self, screen: &CommandConsole, empty: &str) -> Result<(), CliError> {
        if self.rows.is_empty() {
            screen.note(empty);
            return Ok(());
        }
        let lines = match screen.width() {
            Some(width) => self.fitted(usize::from(width), SystemClock.now()),
            None => self.whole(),
        };
        for (n, line) in lines.into_iter().enumerate() {
            if n == 0 {
                screen.line(line.bold())?;
            } else {
                screen.line(line)?;
            }
        }
        Ok(())
    }

    /// Complete cells, for programs and `-o wide`.
    fn whole(self) -> Vec<String> {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(self.names).add_rows(self.rows);
        grid.set_content_arrangement(ContentArrangement::Disabled);
        flush_left(&grid)
    }

    /// Cells fitted to a terminal of this width: ages instead of times, and no word or id broken over lines.
    fn fitted(mut self, width: usize, now: UtcMillis) -> Vec<String> {
        for cell in self.rows.iter_mut().flatten() {
            if let Some(at) = timestamp(cell) {
                *cell = age(at, now);
            }
        }
        let columns = fit::columns(&self.names, &self.rows, self.spare, width);
        let cut = |row: &[String]| -> Vec<String> {
            let cell =
                |column: &fit::FittedColumn| row.get(column.index).map_or_else(String::new, |cell| column.cut(cell));
            columns.iter().map(cell).collect()
        };
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(cut(&self.names));
        grid.add_rows(self.rows.iter().map(|row| cut(row)));
        grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(u16::try_from(width).unwrap_or(u16::MAX));
        for (column, fitted) in grid.column_iter_mut().zip(&columns) {
            // The style adds a blank on each side.
            let cells = u16::try_from(fitted.width + fit::PADDING).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(cells)));
        }
        flush_left(&grid)
    }
}

/// The lines of a table. Borderless cells begin with a blank; the first column should not.
fn flush_left(grid: &Grid) -> Vec<String> {
    grid.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect()
}

/// The time in a cell, if it holds a time of the API and nothing else.
fn timestamp(cell: &str) -> Option<UtcMillis> {
    cell.get(10..11).filter(|mark| *mark == "T")?;
    moment(cell)
}

/// Ids as they are shown: complete for programs, on a terminal as short as they stay unique.
pub(crate) fn short_ids(screen: &CommandConsole, ids: &[String]) -> Vec<String> {
    if screen.width().is_none() {
        return ids.to_vec();
    }
    shortened(ids)
}

fn shortened(ids: &[String]) -> Vec<String> {
    let longest = ids.iter().map(String::len).max().unwrap_or(0);
    let unique = |length: usize| {
        let cut: std::collections::BTreeSet<&str> = ids.iter().map(|id| id.get(..length).unwrap_or(id)).collect();
        let whole: std::collections::BTreeSet<&String> = ids.iter().collect();
        cut.len() == whole.len()
    };
    // Two characters more than needed, so that the next entry does not make them ambiguous.
    let length = (SHORTEST..longest).find(|length| unique(*length)).map_or(longest, |length| length + 2);
    ids.iter().map(|id| id.get(..length).unwrap_or(id).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use sluice_core::Millis;

    use super::*;

    const NOW: UtcMillis = UtcMillis::from_millis(1_763_589_600_000);

    fn holds(error: &str) -> TextTable {
        let names = ["hold", "state", "agent", "capability", "tier", "since", "until", "last error"];
        let mut table = TextTable::new(&names).spare(&["tier", "agent"]);
        let times = [NOW - Millis::from_mins(3), NOW + Millis::from_secs(27)].map(|at| at.to_string());
        let [since, until] = times;
        let cells = ["buf_0193aaaabbbb", "retrying", "inbox-helper", "email.send", "approval_required"];
        let mut cells: Vec<String> = cells.map(str::to_owned).into();
        cells.extend([since, until, error.to_owned()]);
        table.row(&cells);
        table
    }

    #[test]
    fn a_table_fits_80_columns_without_breaking_ids_or_words() {
        for width in [40, 60, 80, 120] {
            let lines = holds("the service refused the connection twice; its certificate ended").fitted(width, NOW);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            assert!(lines[1].contains("buf_0193aaaabbbb"), "{width}: {lines:#?}");
        }
        let lines = holds("").fitted(80, NOW);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].starts_with("HOLD") && !lines[0].contains("TIER"), "{lines:#?}");
        assert!(lines[1].contains("3 min ago") && lines[1].contains("in 27 s"), "{lines:#?}");
    }

    #[test]
    fn programs_and_wide_get_every_column_and_whole_times() {
        let lines = holds("").whole();
        assert!(lines[0].contains("TIER") && lines[1].contains("approval_required"), "{lines:#?}");
        assert!(lines[1].contains(&NOW.to_string()[..10]), "{lines:#?}");
    }

    #[test]
    fn only_a_time_of_the_api_is_shown_as_an_age() {
        assert_eq!(timestamp("2025-11-19T22:00:00.000Z"), Some(NOW));
        for other in ["-", "", "held", "2026-11-16", "2026-11-16T02:19:09 and more", "日本語日本語日本語"] {
            assert_eq!(timestamp(other), None, "{other}");
        }
    }

    #[test]
    fn shortened_ids_stay_unique() {
        let ids =
            ["buf_0193aaaabbbbcccc1111", "buf_0193aaaabbbbcccd2222", "buf_0193aaaabbbbcccd2222"].map(String::from);
        let short = shortened(&ids);
        assert_eq!(short, ["buf_0193aaaabbbbcccc11", "buf_0193aaaabbbbcccd22", "buf_0193aaaabbbbcccd22"]);
        assert_eq!(shortened(&["buf_0193aaaabbbbcccc1111".to_owned()]), ["buf_0193aaaabb"]);
        assert!(shortened(&[]).is_empty());
    }
}
