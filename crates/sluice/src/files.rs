//! Policy files on disk.
//!
//! Takes a directory (`org.yaml`, `agents/<name>.yaml`) or one such file; gives their texts. Promise: what
//! cannot be read, or would silently not count, is a coded problem, never skipped.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sluice_core::AgentName;
use sluice_core::policy::{Fault, MAX_BYTES, Source, Sources};

use crate::failure::{Exit, Failure, io_words};

/// Most agent files in one directory.
const AGENTS: usize = 100_000;

/// What was found on disk.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sources: Sources,
    /// Where each source lies, org first, then agents in order.
    pub(crate) paths: Vec<PathBuf>,
    /// What could not be read.
    pub(crate) faults: Vec<Fault>,
}

/// Reads a policy directory or a single policy file.
pub(crate) fn read(path: &Path) -> Result<Found, Failure> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("cannot read policies at `{shown}`")).why(io_words(&error)).hint(
            "name a directory with org.yaml and agents/, or start one: sluice policy templates team --out policies",
        )
    })?;
    let mut found = Found::default();
    if about.is_dir() {
        found.directory(path);
        if found.paths.is_empty() && found.faults.is_empty() {
            return Err(Failure::new(Exit::NotFound, format!("no policy files in `{shown}`"))
                .why("it has neither org.yaml nor agents/<name>.yaml")
                .hint("start with a template: sluice policy templates team --out policies"));
        }
    } else {
        let is_agent = path.parent().and_then(Path::file_name).is_some_and(|parent| parent == "agents");
        if is_agent { found.agent(path) } else { found.org(path) }
    }
    Ok(found)
}

impl Found {
    fn directory(&mut self, path: &Path) {
        let org = path.join("org.yaml");
        if org.exists() {
            self.org(&org);
        }
        self.refuse_other_ending(&path.join("org.yml"));
        let agents = path.join("agents");
        if !agents.exists() {
            return;
        }
        let entries = match fs::read_dir(&agents).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => {
                return self.problem("policy.unreadable", &agents, format!("not readable: {}", io_words(&error)));
            }
        };
        let mut entries: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        entries.sort();
        if entries.len() > AGENTS {
            return self.problem("policy.too_large", &agents, format!("more than {AGENTS} agent files"));
        }
        for entry in entries {
            match entry.extension().and_then(|ending| ending.to_str()) {
                Some("yaml") => self.agent(&entry),
                Some("yml") => self.refuse_other_ending(&entry),
                _ => {}
            }
        }
    }

    /// A file that looks like policy and is not read as policy would be worse than none.
    fn refuse_other_ending(&mut self, path: &Path) {
        if path.exists() {
            self.problem("policy.file_name", path, "policy files end in `.yaml`; this one would not count".into());
        }
    }

    fn org(&mut self, path: &Path) {
        if let Some(source) = self.source(path) {
            self.sources.org = Some(source);
            self.paths.push(path.to_owned());
        }
    }

    fn agent(&mut self, path: &Path) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match AgentName::new(stem) {
            Err(why) => self.problem("policy.agent_name", path, format!("the file is not named after an agent: {why}")),
            Ok(name) => {
                if let Some(source) = self.source(path) {
                    self.sources.agents.push((name, source));
                    self.paths.push(path.to_owned());
                }
            }
        }
    }

    fn source(&mut self, path: &Path) -> Option<Source> {
        match text(path) {
            Ok(text) => Some(Source { name: path.display().to_string(), text }),
            Err((code, message)) => {
                self.problem(code, path, message);
                None
            }
        }
    }

    fn problem(&mut self, code: &'static str, path: &Path, message: String) {
        self.faults.push(Fault::of_file(code, path.display().to_string(), message));
    }
}

/// The text of a file, within limits.
fn text(path: &Path) -> Result<String, (&'static str, String)> {
    let unreadable = |error: std::io::Error| ("policy.unreadable", format!("not readable: {}", io_words(&error)));
    let about = fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(("policy.unreadable", "not a regular file".into()));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that grows while it is read is noticed too.
    let limit = MAX_BYTES as u64 + 1;
    fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() > MAX_BYTES {
        return Err(("policy.too_large", format!("larger than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count() + 1;
        ("policy.not_utf8", format!("not valid UTF-8 text: line {line} has a byte that is none"))
    })
}
