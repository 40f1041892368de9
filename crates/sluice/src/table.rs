//! Tables: columns for people, as wide as their terminal; whole lines where something else reads.

use comfy_table::{ContentArrangement, Table as Grid, presets};
use owo_colors::OwoColorize as _;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::visible;

/// Fewest characters of an id that are shown.
const SHORTEST: usize = 12;

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    grid: Grid,
}

impl Table {
    /// With these column names.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(names.iter().map(|name| name.to_uppercase()));
        Self { grid }
    }

    /// A row. What it holds may come from anywhere.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.grid.add_row(cells.iter().map(|cell| visible::line(cell)));
    }

    /// Prints it; where it is empty, says so.
    pub(crate) fn print(mut self, screen: &Screen, empty: &str) -> Result<(), Failure> {
        if self.grid.is_empty() {
            screen.note(empty);
            return Ok(());
        }
        match screen.width() {
            Some(width) => self.grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => self.grid.set_content_arrangement(ContentArrangement::Disabled),
        };
        // Borderless cells begin with a space; the first column should not.
        for (n, line) in self.grid.lines().enumerate() {
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

/// Ids as they are shown: whole where something else reads, on a terminal as short as they stay unique.
pub(crate) fn short_ids(screen: &Screen, ids: &[String]) -> Vec<String> {
    if !screen.is_terminal() {
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
    // Two characters more than needed: the next entry should not make them ambiguous.
    let length = (SHORTEST..longest).find(|length| unique(*length)).map_or(longest, |length| length + 2);
    ids.iter().map(|id| id.get(..length).unwrap_or(id).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
