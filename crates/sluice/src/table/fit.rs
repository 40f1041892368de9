//! Fits columns to a terminal: spare columns are dropped first, then long cells lose their middle.
//!
//! Takes the cells and a width; gives the columns that are shown and how wide each is. Promise: an id in the first
//! column is never cut, and no cell is broken inside a word. A last column of prose may run over several lines.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Blanks of the style around each cell.
pub(super) const PADDING: usize = 2;
/// The narrowest that a cut column gets.
const NARROWEST: usize = 8;
/// How far a long column is cut before a spare column is dropped instead.
const READABLE: usize = 30;
/// The narrowest column in which prose is worth reading over several lines.
const NARROWEST_PROSE: usize = 24;
/// Last columns with sentences, not with single words.
const PROSE: [&str; 8] =
    ["DESCRIPTION", "REASON", "MESSAGE", "WHAT HAPPENED", "LAST ERROR", "ERROR", "THE SERVICE SAYS", "NOTE"];

/// A column that is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FittedColumn {
    /// Its place in a row.
    pub(super) index: usize,
    /// Its width without padding.
    pub(super) width: usize,
    /// Whether its text runs over several lines instead of being cut.
    wraps: bool,
}

impl FittedColumn {
    /// A cell as it is shown in this column.
    pub(super) fn cut(&self, cell: &str) -> String {
        if self.wraps { cell.to_owned() } else { without_middle(cell, self.width) }
    }
}

/// The columns that are shown in this width.
pub(super) fn columns(names: &[String], rows: &[Vec<String>], spare: &[&str], width: usize) -> Vec<FittedColumn> {
    let natural = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).chain(names.get(index));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let mut shown: Vec<FittedColumn> =
        (0..names.len()).map(|index| FittedColumn { index, width: natural(index), wraps: false }).collect();
    // A column that is empty in every row says nothing on a narrow terminal.
    let empty = |column: &FittedColumn| rows.iter().all(|row| row.get(column.index).is_none_or(|cell| is_blank(cell)));
    if total(&shown) > width {
        shown.retain(|column| column.index == 0 || !empty(column));
    }
    for name in spare {
        if fits(&shown, names, width) {
            break;
        }
        shown.retain(|column| names.get(column.index).is_none_or(|known| !known.eq_ignore_ascii_case(name)));
    }
    shrink(&mut shown, names, width);
    shown
}

/// Whether the columns fit once long ones are cut as far as they stay readable.
fn fits(shown: &[FittedColumn], names: &[String], width: usize) -> bool {
    let readable = |column: &FittedColumn| if is_prose(column, names) { NARROWEST_PROSE } else { READABLE };
    let slack: usize = shown.iter().skip(1).map(|column| column.width.saturating_sub(readable(column))).sum();
    total(shown).saturating_sub(slack) <= width
}

fn is_prose(column: &FittedColumn, names: &[String]) -> bool {
    names.get(column.index).is_some_and(|name| PROSE.contains(&name.as_str()))
}

fn is_blank(cell: &str) -> bool {
    cell.is_empty() || cell == "-"
}

/// The width of all columns. The first blank and the last one are not printed.
fn total(shown: &[FittedColumn]) -> usize {
    shown.iter().map(|column| column.width + PADDING).sum::<usize>().saturating_sub(1)
}

/// Makes columns narrower until they fit: prose at the end first, then the widest; at last the last columns go.
fn shrink(shown: &mut Vec<FittedColumn>, names: &[String], width: usize) {
    if let Some(over) = total(shown).checked_sub(width).filter(|over| *over > 0)
        && let Some(last) = shown.last_mut().filter(|last| is_prose(last, names))
    {
        last.width = last.width.saturating_sub(over).max(NARROWEST_PROSE.min(last.width));
        last.wraps = true;
    }
    while total(shown) > width {
        let is_wide = |column: &&mut FittedColumn| column.width > NARROWEST;
        if let Some(widest) = shown.iter_mut().skip(1).filter(is_wide).max_by_key(|column| column.width) {
            widest.width -= 1;
        } else if shown.len() > 2 {
            shown.pop();
        } else {
            break;
        }
    }
}

/// A text that is at most this wide: the beginning and the end of it, with an ellipsis between.
fn without_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    // The beginning says what it is, such as a capability; the end tells it from others, such as the name of a file.
    let front = (room * 3).div_ceil(5);
    let begin = taken(text.chars(), front);
    let end: String = taken(text.chars().rev(), room - front).chars().rev().collect();
    format!("{begin}…{end}")
}

/// As many characters as fit.
fn taken(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_loses_its_middle() {
        assert_eq!(without_middle("filesystem.delete", 17), "filesystem.delete");
        assert_eq!(without_middle("/srv/projects/mail/reports/2026/q3.xlsx", 20), "/srv/project…q3.xlsx");
        assert_eq!(without_middle("日本語日本語", 7), "日本…語");
    }

    #[test]
    fn spare_columns_go_before_anything_is_cut() {
        let names = ["A", "B", "C"].map(str::to_owned);
        let rows = vec![["x".repeat(10), "y".repeat(10), "z".repeat(10)].to_vec()];
        let shown = columns(&names, &rows, &["b"], 30);
        assert_eq!(shown.iter().map(|column| (column.index, column.width)).collect::<Vec<_>>(), [(0, 10), (2, 10)]);
        let all = columns(&names, &rows, &["b"], 40);
        assert_eq!(all.len(), 3);
    }
}
