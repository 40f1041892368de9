//! Cells, tags, titles: what stands between the parts of a line, and the columns of a table.
//!
//! Takes the bytes from one sign on, gives how many of them are layout and what stands for them. Promise: a bounded look ahead.

/// How far a tag, a title or a string is followed.
const AHEAD: usize = 300;
/// The most columns that are read.
const COLUMNS: usize = 24;
/// A cell this long may have been wrapped.
const WRAPPED: usize = 30;

/// A tag that only formats, or breaks a line (`\r`: a blank inside a sentence).
pub(super) fn tag(rest: &[u8]) -> (usize, Option<char>) {
    const INLINE: [&[u8]; 17] = [
        b"b", b"i", b"u", b"s", b"em", b"strong", b"span", b"font", b"wbr", b"mark", b"small", b"sub", b"sup", b"code",
        b"tt", b"big", b"ins",
    ];
    const BLOCK: [&[u8]; 18] = [
        b"p",
        b"div",
        b"td",
        b"tr",
        b"th",
        b"table",
        b"tbody",
        b"thead",
        b"ul",
        b"ol",
        b"li",
        b"h1",
        b"h2",
        b"h3",
        b"h4",
        b"pre",
        b"blockquote",
        b"section",
    ];
    let slash = usize::from(rest.get(1) == Some(&b'/'));
    let name = rest.get(1 + slash..).unwrap_or_default();
    let length = name.iter().take(11).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = name.get(..length).unwrap_or_default();
    let is = |known: &[&[u8]]| known.iter().any(|one| one.eq_ignore_ascii_case(name));
    let stands = match () {
        () if name.eq_ignore_ascii_case(b"br") => Some('\r'),
        () if is(&INLINE) => None,
        () if is(&BLOCK) => Some('\n'),
        () => return (0, None),
    };
    // A tag ends; `a < b` does not.
    let end = rest.iter().take(AHEAD).position(|byte| *byte == b'>');
    let closed = rest.get(1 + slash + length).is_some_and(|byte| matches!(byte, b'>' | b'/' | b' '));
    end.filter(|_| closed).map_or((0, None), |end| (end + 1, stands))
}

/// `(address "title")`: the length of the address, of what stands before the title, and where its quote ends it.
pub(super) fn link_title(rest: &[u8]) -> ((usize, usize), Option<char>, Option<usize>) {
    let none = ((1, 0), None, None);
    let Some(address) = rest.iter().take(AHEAD).position(|byte| matches!(byte, b' ' | b')')) else { return none };
    let blanks = rest.get(address..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count();
    if rest.get(address + blanks) != Some(&b'"') || blanks == 0 {
        return none;
    }
    let title = address + blanks + 1;
    let length = rest.get(title..).unwrap_or_default().windows(2).take(AHEAD * 8).position(|pair| pair == b"\")");
    length.map_or(none, |length| ((address, blanks + 1), Some('\n'), Some(title + length)))
}

/// The quote that opens the prose of a cell, or ends one string of a list.
pub(super) fn quote(rest: &[u8], before: Option<u8>) -> (usize, Option<char>) {
    let text = rest.get(1..).unwrap_or_default();
    if matches!(before, Some(b',' | b';' | b'\t' | b'[')) && is_prose(text) {
        return (1, Some('\n'));
    }
    // `one", "two`: a list whose strings go on.
    let blanks = text.iter().skip(1).take(3).take_while(|byte| **byte == b' ').count();
    if text.first() == Some(&b',') && text.get(1 + blanks) == Some(&b'"') {
        let next = text.get(2 + blanks..).unwrap_or_default();
        let is_key =
            next.iter().take(64).position(|byte| *byte == b'"').and_then(|end| next.get(end + 1)) == Some(&b':');
        if !is_key {
            return (3 + blanks, Some('\r'));
        }
    }
    (0, None)
}

fn is_prose(text: &[u8]) -> bool {
    text.iter().take(64).take_while(|byte| **byte != b'"').filter(|byte| **byte == b' ').count() >= 3
}

/// The texts of a table column by column, each in one line; `None` if there is no table.
pub(in super::super) fn columns(text: &str) -> Option<String> {
    let mark = if text.matches('|').take(6).count() >= 6 {
        '|'
    } else if text.matches('\t').take(4).count() >= 4 {
        '\t'
    } else {
        return None;
    };
    let mut columns: Vec<String> = Vec::new();
    let mut rows = 0;
    let mut before = [0_usize; COLUMNS];
    for line in text.lines().filter(|line| line.matches(mark).take(2).count() >= 1) {
        rows += 1;
        for (at, cell) in line.split(mark).take(COLUMNS).enumerate() {
            let cell = cell.trim();
            if cell.bytes().all(|byte| matches!(byte, b'-' | b':' | b'=' | b' ')) {
                continue;
            }
            if columns.len() <= at {
                columns.resize(at + 1, String::new());
            }
            if let Some(column) = columns.get_mut(at) {
                // A cell that was wrapped goes on in the next row.
                let goes_on = cell.starts_with(|c: char| c.is_lowercase())
                    || before.get(at).is_some_and(|&length| length >= WRAPPED);
                if !column.is_empty() {
                    column.push(if goes_on { ' ' } else { '\n' });
                }
                column.push_str(cell);
                if let Some(length) = before.get_mut(at) {
                    *length = cell.len();
                }
            }
        }
    }
    (rows >= 2 && columns.len() >= 2).then(|| columns.join("\n"))
}
