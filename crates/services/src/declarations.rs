//! Declaration files of operators: one YAML file each, named after the thing it declares.
//!
//! Takes a folder or a path; gives the list of files, or the content of one. Promise: a file that is too large is not
//! read, and the error for an unreadable file says why.

use std::path::{Path, PathBuf};

use sluice_core::proxy::ProxyFileError;

/// The declarations in a folder, sorted by name. A missing folder holds none.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    paths
}

/// Reads a declaration: the name of the declared thing and the content.
pub fn read<T>(
    path: &Path,
    longest: usize,
    parse: impl FnOnce(&str) -> Result<T, ProxyFileError>,
) -> (String, Result<T, ProxyFileError>) {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = std::fs::metadata(path).and_then(|about| {
        let small = u64::try_from(longest).is_ok_and(|longest| about.len() <= longest);
        if small { std::fs::read_to_string(path) } else { Err(std::io::ErrorKind::FileTooLarge.into()) }
    });
    (name, text.map_err(|error| ProxyFileError(error.to_string())).and_then(|text| parse(&text)))
}
