//! Links that lead nowhere: to a file that does not exist, or to a place that its page does not have.
//!
//! Takes a folder and its pages, each with its links and anchors; gives one line for each broken link. Addresses with a
//! scheme (`https:`, `mailto:`) are not followed. Promise: no link is followed outside of the folder.

pub mod html;
pub mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// One page, with its path from the folder that is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedPage {
    pub path: PathBuf,
    /// Where the links lead, as written.
    pub links: Vec<String>,
    /// The names that a link to this page can have after `#`.
    pub anchors: BTreeSet<String>,
}

/// Every broken link, as `page: link: what is wrong`.
pub fn broken(folder: &Path, pages: &[LinkedPage]) -> Vec<String> {
    let known: BTreeMap<&Path, &LinkedPage> = pages.iter().map(|page| (page.path.as_path(), page)).collect();
    let mut found = BTreeSet::new();
    for page in pages {
        for link in page.links.iter().filter(|link| !has_scheme(link)) {
            if let Err(what) = follow(folder, &known, page, link) {
                found.insert(format!("{}: {link}: {what}", page.path.display()));
            }
        }
    }
    found.into_iter().collect()
}

/// The files below a folder that have this ending, by their paths from the folder. Files of tools are left out.
pub fn files_below(folder: &Path, ending: &str) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(folder.join(&place))? {
            let entry = entry?;
            let name = entry.file_name();
            let (path, name) = (place.join(&name), name.to_string_lossy());
            let is_left_out = name.starts_with('.') || ["target", "node_modules"].contains(&&*name);
            match entry.file_type()? {
                _ if is_left_out => {}
                kind if kind.is_dir() => open.push(path),
                _ if path.extension().is_some_and(|other| other == ending) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn follow(
    folder: &Path,
    known: &BTreeMap<&Path, &LinkedPage>,
    page: &LinkedPage,
    link: &str,
) -> Result<(), &'static str> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = path.split('?').next().unwrap_or_default();
    let target = match decoded(path).as_str() {
        "" => page.path.clone(),
        path => normalised(page.path.parent().unwrap_or(Path::new("")), path).ok_or("it leads out of the folder")?,
    };
    if !folder.join(&target).exists() {
        return Err("there is no such file");
    }
    match known.get(target.as_path()) {
        Some(other) if !anchor.is_empty() && !other.anchors.contains(&decoded(anchor)) => {
            Err("the page has no such anchor")
        }
        Some(_) | None => Ok(()),
    }
}

/// A relative path from a place in the folder; `None` if it leads out of it.
fn normalised(place: &Path, path: &str) -> Option<PathBuf> {
    let mut target = PathBuf::new();
    for part in place.join(path).components() {
        match part {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !target.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(target)
}

fn has_scheme(link: &str) -> bool {
    let scheme = link.split_once(':').map_or("", |(scheme, _)| scheme);
    link.starts_with("//")
        || (!scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)))
}

/// The text with `%2F` and the like replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, links: &[&str], anchors: &[&str]) -> LinkedPage {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        LinkedPage { path: path.into(), links: texts(links), anchors: texts(anchors).into_iter().collect() }
    }

    /// A folder of its own with empty files.
    fn folder(name: &str, files: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-links-{name}-{}", std::process::id()));
        for file in files {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        folder
    }

    #[test]
    fn a_missing_file_and_a_missing_anchor_are_named_and_nothing_else() {
        let files = folder("broken", &["a.html", "deep/b.html", "image one.png"]);
        let good =
            ["#here", "#", "deep/b.html#there", "image%20one.png", "https://example.com/x", "mailto:a@b", "?q=1"];
        let bad = ["#gone", "gone.html", "deep/b.html#here", "../a.html", "/a.html", "deep/../deep/gone"];
        let pages = [
            page("a.html", &good, &["here"]),
            page("deep/b.html", &["../a.html#here", "b.html#there", "..", "../image one.png"], &["there"]),
        ];
        assert_eq!(broken(&files, &pages), Vec::<String>::new());
        let pages = [page("a.html", &bad, &["here"]), page("deep/b.html", &["a.html"], &["there"])];
        let found = broken(&files, &pages);
        std::fs::remove_dir_all(&files).unwrap();
        assert_eq!(
            found,
            [
                "a.html: #gone: the page has no such anchor",
                "a.html: ../a.html: it leads out of the folder",
                "a.html: /a.html: it leads out of the folder",
                "a.html: deep/../deep/gone: there is no such file",
                "a.html: deep/b.html#here: the page has no such anchor",
                "a.html: gone.html: there is no such file",
                "deep/b.html: a.html: there is no such file",
            ]
        );
    }

    #[test]
    fn files_are_found_at_any_depth_and_those_of_tools_are_left_out() {
        let files = folder("found", &["a.md", "b.txt", "x/y/c.md", "target/d.md", "x/.git/e.md"]);
        let found = files_below(&files, "md").unwrap();
        std::fs::remove_dir_all(&files).unwrap();
        assert_eq!(found, [PathBuf::from("a.md"), PathBuf::from("x/y/c.md")]);
    }
}
