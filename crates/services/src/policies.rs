//! Policy files: reads and writes them on disk.
//!
//! Takes a folder (`org.yaml`, `agents/<name>.yaml`) or one such file; gives their texts. Promise: a file that
//! cannot be read, or would silently have no effect, is reported as a coded problem and never skipped.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::AgentName;
use sluice_core::capability::Catalogue;
use sluice_core::policy::reading::closest;
use sluice_core::policy::{
    FaultSeverity, FileFault, LivePolicy, MAX_BYTES, Policy, PolicyLoadError, PolicySource, PolicySources,
};
use sluice_core::refusal::{Code, Refusal};

use crate::CallError;

/// The problem text of an empty file.
const EMPTY: &str = "the file is empty; remove it, or write `rules: []`";
/// The most agent files in one folder.
const AGENTS: usize = 100_000;

/// The files that were found on disk.
#[derive(Debug, Default)]
pub struct PolicyFiles {
    /// The texts of the files.
    pub sources: PolicySources,
    /// The path of each source: org first, then agents in order.
    pub paths: Vec<PathBuf>,
    /// Files that could not be read.
    pub faults: Vec<FileFault>,
    /// Files that look like rules but have no effect.
    pub warnings: Vec<FileFault>,
}

/// Loads sources without putting them in force, and runs the tests in them.
///
/// # Errors
/// When they cannot be used, or one of their own tests fails.
pub fn try_out(sources: &PolicySources, known: &Arc<Catalogue>) -> Result<(), CallError> {
    let loaded = Policy::load(sources, known).map_err(|errors| refuse(&errors))?;
    let failed: Vec<_> =
        loaded.policy.test().iter().filter(|outcome| !outcome.passed).map(|outcome| outcome.as_fault()).collect();
    if failed.is_empty() { Ok(()) } else { Err(refuse(&PolicyLoadError { faults: failed })) }
}

/// Loads a folder into the policy in force, for the known capabilities. Returns its version and its files as JSON.
///
/// # Errors
/// When a file cannot be read or used; the old rules stay.
pub fn load(policy: &LivePolicy, folder: &Path, known: &Arc<Catalogue>) -> Result<(String, String), CallError> {
    let found = PolicyFiles::folder(folder);
    if !found.faults.is_empty() {
        return Err(refuse(&PolicyLoadError { faults: found.faults }));
    }
    for warning in &found.warnings {
        tracing::warn!(code = warning.code, "{}: {}", warning.file, warning.message);
    }
    let loaded = policy.replace(&found.sources, known).map_err(|errors| refuse(&errors))?;
    Ok((loaded.policy.version().to_owned(), as_json(&found.sources)))
}

/// The texts as JSON (name to text), as the store keeps them.
#[must_use]
pub fn as_json(sources: &PolicySources) -> String {
    let mut files = serde_json::Map::new();
    if let Some(org) = &sources.org {
        files.insert("org.yaml".into(), org.text.clone().into());
    }
    for (agent, source) in &sources.agents {
        files.insert(format!("agents/{agent}.yaml"), source.text.clone().into());
    }
    serde_json::Value::Object(files).to_string()
}

/// The files of a folder, ready to be sent to a gateway.
///
/// # Errors
/// When a file cannot be read or would have no effect: a file that the gateway would refuse in its own folder is not
/// left out silently.
pub fn to_send(folder: &Path) -> Result<serde_json::Map<String, serde_json::Value>, PolicyLoadError> {
    let found = PolicyFiles::folder(folder);
    if !found.faults.is_empty() {
        return Err(PolicyLoadError { faults: found.faults });
    }
    Ok(serde_json::from_str(&as_json(&found.sources)).unwrap_or_default())
}

/// Sources from such JSON.
///
/// # Errors
/// When a name is not that of a policy file, or a text is empty: such a file would not be read from the folder.
pub fn from_json(files: &serde_json::Map<String, serde_json::Value>) -> Result<PolicySources, CallError> {
    let mut sources = PolicySources::default();
    for (name, text) in files {
        let text = text
            .as_str()
            .ok_or_else(|| CallError::with_text(Code::SchemaWrongType, "each policy file must be a text"))?;
        if text.len() > MAX_BYTES {
            return Err(CallError::with_text(Code::DoorTooLarge, "a policy file is too large"));
        }
        if text.trim().is_empty() {
            let fault = FileFault::of_file("policy.empty", name.clone(), EMPTY);
            return Err(refuse(&PolicyLoadError { faults: vec![fault] }));
        }
        let source = PolicySource { name: name.clone(), text: text.to_owned() };
        let agent = name.strip_prefix("agents/").and_then(|rest| rest.strip_suffix(".yaml"));
        match (name.as_str(), agent.map(AgentName::new)) {
            ("org.yaml", _) => sources.org = Some(source),
            (_, Some(Ok(agent))) => sources.agents.push((agent, source)),
            (_, Some(Err(_)) | None) => {
                let text = format!("`{name}` is not a policy file: org.yaml or agents/<name>.yaml");
                return Err(CallError::with_text(Code::SchemaBadName, &text));
            }
        }
    }
    Ok(sources)
}

/// Writes policy files over those in the folder. Files that are not named are removed. Each file appears complete or
/// not at all.
///
/// # Errors
/// When the folder cannot be written to.
pub fn write(folder: &Path, files: &serde_json::Map<String, serde_json::Value>) -> std::io::Result<()> {
    let agents = folder.join("agents");
    fs::create_dir_all(&agents)?;
    for (name, text) in files {
        let place = folder.join(name);
        let beside = place.with_extension("yaml.new");
        fs::write(&beside, text.as_str().unwrap_or_default())?;
        fs::File::open(&beside)?.sync_all()?;
        fs::rename(&beside, &place)?;
    }
    let found = PolicyFiles::folder(folder);
    for path in found.paths {
        let name = path.strip_prefix(folder).map_or_else(|_| String::new(), |name| name.display().to_string());
        if !files.contains_key(&name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// A refusal that lists every problem of the files.
#[must_use]
pub fn refuse(errors: &PolicyLoadError) -> CallError {
    Refusal::new(Code::PolicyInvalid).with_text(&errors.to_string()).into()
}

/// Names, sizes and times of everything in the folder: changes when a file changes.
#[must_use]
pub fn stamp(folder: &Path) -> Vec<(PathBuf, u64, Option<std::time::SystemTime>)> {
    let mut seen = Vec::new();
    for place in [folder.to_path_buf(), folder.join("agents")] {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries.flatten() {
            if let Ok(about) = entry.metadata()
                && about.is_file()
            {
                seen.push((entry.path(), about.len(), about.modified().ok()));
            }
        }
    }
    seen.sort();
    seen
}

impl PolicyFiles {
    /// Reads a folder.
    #[must_use]
    pub fn folder(path: &Path) -> Self {
        let mut found = Self::default();
        found.directory(path);
        found
    }

    /// Reads one file: an agent's file if its folder is called `agents`, otherwise the organisation's.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        let mut found = Self::default();
        let is_agent = path.parent().and_then(Path::file_name).is_some_and(|parent| parent == "agents");
        if is_agent {
            found.agent(path)
        } else {
            found.org(path)
        }
        found
    }

    fn directory(&mut self, path: &Path) {
        self.warnings = ignored(path);
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
            Err(error) => return self.problem("policy.unreadable", &agents, format!("not readable: {error}")),
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

    /// A file that looks like policy but is not read as policy is worse than no file.
    fn refuse_other_ending(&mut self, path: &Path) {
        if path.exists() {
            self.problem("policy.file_name", path, "policy files end in `.yaml`; this one has no effect".into());
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

    fn source(&mut self, path: &Path) -> Option<PolicySource> {
        match text(path) {
            // An empty file is left when a writer failed. Reading it would drop every rule of the file.
            Ok(text) if text.trim().is_empty() => {
                self.problem("policy.empty", path, EMPTY.into());
                None
            }
            Ok(text) => Some(PolicySource { name: path.display().to_string(), text }),
            Err((code, message)) => {
                self.problem(code, path, message);
                None
            }
        }
    }

    fn problem(&mut self, code: &'static str, path: &Path, message: String) {
        self.faults.push(FileFault::of_file(code, path.display().to_string(), message));
    }
}

/// Warns of agent files that are named after no agent: their rules apply to no agent.
#[must_use]
pub fn warn_unknown_agents(sources: &PolicySources, agents: &[AgentName]) -> Vec<FileFault> {
    let missing = sources.agents.iter().filter(|(name, _)| !agents.contains(name));
    let fault = |(name, source): &(AgentName, PolicySource)| {
        let close = closest(name.as_str(), agents.iter().map(AgentName::as_str));
        let mut fault = warning("policy.unknown_agent", &source.name, format!("there is no agent `{name}`"));
        fault.why("the rules in this file apply to no agent");
        match close {
            Some(close) => fault.suggest_word(Some(close)),
            None => fault.hint(format!("add the agent: sluice agents add {name}; or remove the file")),
        };
        fault
    };
    missing.map(fault).collect()
}

/// Files of a policy folder that look like rules and are not read.
fn ignored(folder: &Path) -> Vec<FileFault> {
    let mut found = Vec::new();
    for path in listed(folder) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            let inside = listed(&path).into_iter();
            let inside: Vec<PathBuf> = match name {
                "agents" => inside.filter(|path| path.is_dir()).flat_map(|folder| listed(&folder)).collect(),
                _ => inside.collect(),
            };
            found.extend(inside.iter().filter(|path| is_rules(path)).map(|path| misplaced(path, name)));
        } else if is_rules(&path) && name != "org.yaml" && name != "org.yml" {
            found.extend(beside(&path, name));
        }
    }
    found
}

/// A file beside `org.yaml`.
fn beside(path: &Path, name: &str) -> Option<FileFault> {
    let shown = path.display().to_string();
    if name == "system.yaml" {
        // An identical copy of the built-in rules misleads nobody.
        if text(path).is_ok_and(|text| text == sluice_core::policy::SYSTEM) {
            return None;
        }
        let mut fault = warning("policy.ignored_file", &shown, "this file is not read".to_owned());
        fault.why("the system rules are built into the gateway and cannot be changed");
        fault.hint("put your own rules into org.yaml or agents/<name>.yaml, and remove this file");
        return Some(fault);
    }
    let mut fault = warning("policy.ignored_file", &shown, "this file is not read".to_owned());
    fault.why("rules are read from org.yaml and agents/<name>.yaml");
    match closest(name, ["org.yaml"]) {
        Some(close) => fault.suggest_word(Some(close)),
        None => fault.hint(format!("if these are the rules of an agent, move the file to agents/{name}")),
    };
    Some(fault)
}

/// A file in a folder that is not read.
fn misplaced(path: &Path, folder: &str) -> FileFault {
    let mut fault = warning("policy.ignored_file", &path.display().to_string(), "this file is not read".to_owned());
    fault.why("the rules of an agent are read from agents/<name>.yaml, directly in that folder");
    match closest(folder, ["agents"]).filter(|close| *close != folder) {
        Some(close) => fault.hint(format!("did you mean the folder `{close}`, not `{folder}`?")),
        None => fault.hint("move it there, or out of the policy folder"),
    };
    fault
}

fn warning(code: &'static str, file: &str, message: String) -> FileFault {
    let mut fault = FileFault::of_file(code, file, message);
    fault.severity = FaultSeverity::Warning;
    fault
}

fn is_rules(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["yaml", "yml"].contains(&ending)) && path.is_file()
}

/// The entries of a folder, sorted; hidden names left out.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(AGENTS).map(|entry| entry.path());
    let is_hidden =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('.'));
    let mut found: Vec<PathBuf> = entries.filter(|path| !is_hidden(path)).collect();
    found.sort();
    found
}

/// The text of a file, within the size limit.
fn text(path: &Path) -> Result<String, (&'static str, String)> {
    let unreadable = |error: std::io::Error| ("policy.unreadable", format!("not readable: {error}"));
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
        ("policy.not_utf8", format!("not valid UTF-8 text: line {line} has an invalid byte"))
    })
}
