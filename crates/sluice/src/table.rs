//! Tables: columns for people, fitted to their terminal; complete lines for programs.

use comfy_table::{ContentArrangement, Table as Grid, presets};
use owo_colors::OwoColorize as _;

use crate::console::CommandConsole;
use crate::escape;
use crate::failure::CliError;
use crate::time_args::moment;

/// Fewest characters of an id that are shown.
const SHORTEST: usize = 12;

/// A table under construction.
#[derive(Debug)]
pub(crate) struct TextTable {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these column names.
    pub(crate) fn new(names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| name.to_uppercase()).collect(), rows: Vec::new() }
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
        let width = screen.width();
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(self.names);
        for row in self.rows {
            grid.add_row(row.into_iter().map(|cell| if width.is_some() { briefly(cell) } else { cell }));
        }
        match width {
            Some(width) => grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => grid.set_content_arrangement(ContentArrangement::Disabled),
        };
        // Borderless cells begin with a space; the first column should not.
        for (n, line) in grid.lines().enumerate() {
            let line = line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned();
            if n == 0 {
                screen.line(line.bold())?;
            } else {
                screen.line(line)?;
            }
        }
        Ok(())
    }
}

/// A time without its year and milliseconds, for people; any other text unchanged.
fn briefly(cell: String) -> String {
    match (moment(&cell), cell.get(5..10), cell.get(11..19)) {
        (Some(_), Some(day), Some(time)) => format!("{day} {time}Z"),
        _ => cell,
    }
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
    use super::*;

    #[test]
    fn moments_are_brief_on_a_terminal_and_nothing_else_is() {
        assert_eq!(briefly("2026-11-16T02:19:09.818Z".into()), "11-16 02:19:09Z");
        for other in ["-", "", "held", "2026-11-16", "2026-11-16T02:19:09 and more", "日本語日本語日本語"] {
            assert_eq!(briefly(other.into()), other);
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
