//! Where the state file is, and whether another one of the same gateway lies elsewhere.
//!
//! A gateway that is started once with a home folder and once without computes two places for it. The data folder names
//! the one it had last; where two files exist, or none, it may freeze as after a restored backup.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_gateway::config::{Config, state_file_places};
use sluice_gateway::recovery;

use super::{Finding, State};
use crate::settings::variable;

/// The line about the state file, and a warning for each other one that may be meant.
pub(super) fn state_file(config: &Config) -> Vec<Finding> {
    let mut settled = config.clone();
    recovery::place::settle(&mut settled);
    let used = &settled.state_file;
    let mut homes = Vec::new();
    let named = |name: &str| variable(name).ok().flatten().map(PathBuf::from).filter(|path| path.is_absolute());
    homes.extend(named("XDG_STATE_HOME"));
    homes.extend(named("HOME").map(|home| home.join(".local/state")));
    homes.extend(home_of(&config.data).map(|home| home.join(".local/state")));
    let own = instance(used);
    let mut findings = vec![found(&settled)];
    let mut others = state_file_places(&config.data, &homes);
    others.retain(|other| other != used);
    for other in others {
        // A file of another gateway has nothing to do with this one.
        let Some(theirs) = instance(&other).filter(|theirs| own.as_ref().is_none_or(|own| own == theirs)) else {
            continue;
        };
        let message = format!(
            "another state file of this gateway ({theirs}) lies at {}: started with another HOME or XDG_STATE_HOME, the \
             gateway uses that one, and freezes",
            other.display()
        );
        let hint = format!("set recovery.state_file in sluice.yaml, for instance to {}", used.display());
        findings.push(Finding::new("state file", State::Warn, message).hint(hint));
    }
    findings
}

/// The line about the state file that is used. A gateway that ran before freezes without one.
fn found(config: &Config) -> Finding {
    let used = config.state_file.display();
    let has_run = config.data.join("keys").join("audit.pub").exists();
    if config.state_file.exists() || !has_run {
        return Finding::new("state file", State::Ok, format!("{used}"));
    }
    let named = config.data.join(recovery::place::NAMED_IN);
    let message = format!(
        "there is no state file at {used}, and {} names none that can be used: this gateway ran before, and freezes without it",
        named.display()
    );
    Finding::new("state file", State::Warn, message)
        .hint("start it with the HOME or XDG_STATE_HOME it had, or name the file: recovery.state_file in sluice.yaml")
}

/// The gateway a state file is of.
fn instance(path: &Path) -> Option<String> {
    let read: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    read.get("instance").and_then(Value::as_str).map(str::to_owned)
}

/// The home folder in which the data folder lies: the gateway may be started as another user than this one.
fn home_of(data: &Path) -> Option<PathBuf> {
    let depth = if data.starts_with("/home") || data.starts_with("/Users") { 3 } else { 2 };
    (depth == 3 || data.starts_with("/root")).then(|| data.components().take(depth).collect())
}
