//! Checks where the state file is, and whether another one of the same gateway exists elsewhere.
//!
//! A gateway that is started once with a home folder and once without gets two different paths for it. The data folder
//! stores the last path; where two files exist, or none, the gateway may freeze as after a restored backup.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_config::{Config, state_file_places};
use sluice_gateway::recovery;

use super::{DoctorCheckStatus, DoctorFinding};
use crate::settings::variable;

/// The finding about the state file, and a warning for each other file of this gateway.
pub(super) fn state_file(config: &Config) -> Vec<DoctorFinding> {
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
        // A state file of another gateway is ignored.
        let Some(theirs) = instance(&other).filter(|theirs| own.as_ref().is_none_or(|own| own == theirs)) else {
            continue;
        };
        let message = format!(
            "another state file of this gateway ({theirs}) exists at {}: when started with another HOME or XDG_STATE_HOME, the \
             gateway uses that file and freezes",
            other.display()
        );
        let hint = format!("set recovery.state_file in sluice.yaml, for example to {}", used.display());
        findings.push(DoctorFinding::new("state file", DoctorCheckStatus::Warn, message).hint(hint));
    }
    findings
}

/// The finding about the state file in use. A gateway that ran before freezes without one.
fn found(config: &Config) -> DoctorFinding {
    let used = config.state_file.display();
    let has_run = config.data.join("keys").join("audit.pub").exists();
    if config.state_file.exists() || !has_run {
        return DoctorFinding::new("state file", DoctorCheckStatus::Ok, format!("{used}"));
    }
    let named = config.data.join(recovery::place::NAMED_IN);
    let message = format!(
        "no state file at {used}, and {} names no usable one: this gateway ran before, and freezes without it",
        named.display()
    );
    DoctorFinding::new("state file", DoctorCheckStatus::Warn, message)
        .hint("start it with its former HOME or XDG_STATE_HOME, or set recovery.state_file in sluice.yaml")
}

/// The gateway that a state file belongs to.
fn instance(path: &Path) -> Option<String> {
    let read: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    read.get("instance").and_then(Value::as_str).map(str::to_owned)
}

/// The home folder that contains the data folder: the gateway may be started as another user than this one.
fn home_of(data: &Path) -> Option<PathBuf> {
    let depth = if data.starts_with("/home") || data.starts_with("/Users") { 3 } else { 2 };
    (depth == 3 || data.starts_with("/root")).then(|| data.components().take(depth).collect())
}
