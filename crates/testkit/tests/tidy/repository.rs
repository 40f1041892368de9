//! The files of the repository, as text.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file, with its path from the root of the repository.
#[derive(Debug, Clone)]
pub struct RepositoryFile {
    pub path: String,
    pub text: String,
}

impl RepositoryFile {
    /// A file made up for a test, to plant an offence in.
    pub fn planted(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The name of the crate folder, if the file is under its `src`.
    pub fn crate_with_this_source(&self) -> Option<&str> {
        let (folder, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(folder)
    }

    /// `file:line: what`, counting from one.
    pub fn offence(&self, line: usize, what: &str) -> crate::TidyOffence {
        format!("{}:{line}: {what}", self.path)
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &str) -> RepositoryFile {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    RepositoryFile { path: path.into(), text }
}

/// Every text file of the repository. Files that tools leave behind are skipped, like in `.gitignore`.
pub fn files() -> Vec<RepositoryFile> {
    let mut found = Vec::new();
    visit(&root(), "", &mut found);
    assert!(found.len() > 20, "the repository was not found");
    found
}

pub fn rust_files() -> Vec<RepositoryFile> {
    files().into_iter().filter(RepositoryFile::is_rust).collect()
}

fn visit(folder: &Path, prefix: &str, found: &mut Vec<RepositoryFile>) {
    const LEFT_BEHIND: [&str; 7] = ["target", ".git", "node_modules", ".venv", "__pycache__", "dist", ".idea"];
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type().unwrap();
        // A module may have the name of a build folder.
        let is_source = prefix.split('/').any(|part| part == "src");
        if (LEFT_BEHIND.contains(&name.as_str()) && !is_source)
            || name.ends_with(".snap.new")
            || name.ends_with(".pending-snap")
        {
            continue;
        }
        if kind.is_dir() {
            visit(&entry.path(), &path, found);
        } else if kind.is_file() {
            // Pictures and other binary files are not text and have no lines to name.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                found.push(RepositoryFile { path, text });
            }
        }
    }
}
