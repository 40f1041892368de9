//! The paths that a word of a command points to, without `.` and `..`.
//!
//! Takes a word, the folder the text starts in and what its `cd` commands made of it; gives absolute paths. The home
//! folder, which only the client's machine knows, is the folder `/~`. Links are not followed: nothing here reads a disk.

use super::{BaseFolders, ShellWord, WordCertainty};

/// Devices that keep nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// All files a word may mean, or `None` if that is unknown.
pub(crate) fn places(word: &ShellWord, bases: &BaseFolders, start: Option<&str>) -> Option<Vec<String>> {
    if word.certainty == WordCertainty::Unknown || climbs_late(&word.text) {
        return None;
    }
    // `.*` may match `..`, and hidden files are what rules about secrets name.
    let hides = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']);
    if word.certainty == WordCertainty::Pattern && word.text.split('/').any(hides) {
        return None;
    }
    if let Some(fixed) = fixed(word) {
        return Some(vec![fixed]);
    }
    if bases.anywhere {
        return None;
    }
    bases.folders.iter().map(|base| from(base, start, &word.text)).collect()
}

/// The most likely meaning, for prohibitions: an unknown part is read as it stands.
pub(crate) fn likely_places(word: &ShellWord, bases: &BaseFolders, start: Option<&str>) -> Vec<String> {
    if let Some(fixed) = fixed(word) {
        return vec![fixed];
    }
    let start = start.unwrap_or("/?");
    bases.folders.iter().filter_map(|base| from(base, Some(start), &word.text)).collect()
}

fn fixed(word: &ShellWord) -> Option<String> {
    if word.home {
        return Some(normal(&format!("/{}", word.text)));
    }
    word.text.starts_with('/').then(|| normal(&word.text))
}

fn from(base: &ShellWord, start: Option<&str>, text: &str) -> Option<String> {
    let folder = match fixed(base) {
        Some(folder) => folder,
        None => format!("{}/{}", start.filter(|start| start.starts_with('/'))?, base.text),
    };
    Some(normal(&format!("{folder}/{text}")))
}

/// Whether `..` follows a name, where a link would lead elsewhere.
fn climbs_late(text: &str) -> bool {
    let mut named = false;
    text.split('/').any(|part| {
        let late = named && part == "..";
        named |= !matches!(part, "" | "." | "..");
        late
    })
}

/// The path without `.`, `..` and doubled slashes; above the root is the root, as in the kernel.
pub(crate) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Whether a path is a device that keeps nothing.
pub(crate) fn is_device(path: &str) -> bool {
    DEVICES.contains(&path)
}

/// Whether a path lies in a folder. A removal must lie below it.
pub(crate) fn lies_in(path: &str, folder: &str, removes: bool) -> bool {
    match path.strip_prefix(folder.trim_end_matches('/')) {
        Some("") => !removes,
        Some(rest) => rest.starts_with('/'),
        None => false,
    }
}

/// Every piece of a text that could be a path, however it is quoted.
pub(crate) fn raw_pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "'\"`;|&<>(){}=,:$\\!".contains(c)).filter(|piece| !piece.is_empty())
}
