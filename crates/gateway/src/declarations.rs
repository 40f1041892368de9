//! Files that operators declare things in: one YAML file each, named after what it declares.
//!
//! Takes a folder or a path; gives the files, and what one says. Promise: a file that is too large is not read, and one
//! that cannot be read says why.

use std::path::{Path, PathBuf};

use sluice_core::proxy::Unreadable;

/// The declarations in a folder, in the order of their names. A folder that is not there holds none.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    paths
}

/// The name of what a file declares, and what it says.
pub(crate) fn read<T>(
    path: &Path,
    longest: usize,
    parse: impl FnOnce(&str) -> Result<T, Unreadable>,
) -> (String, Result<T, Unreadable>) {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = std::fs::metadata(path).and_then(|about| {
        let small = u64::try_from(longest).is_ok_and(|longest| about.len() <= longest);
        if small { std::fs::read_to_string(path) } else { Err(std::io::ErrorKind::FileTooLarge.into()) }
    });
    (name, text.map_err(|error| Unreadable(error.to_string())).and_then(|text| parse(&text)))
}
