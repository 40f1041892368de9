//! Projects: the folders an agent works in, as its policy file names them.
//!
//! Takes the `project` keys of all files; gives the folders of an agent. Promise: they come from files that only people
//! write. The working folder that a client states is where relative paths begin; it never makes a folder a project.

use std::collections::HashMap;

use super::fault::FaultCollector;
use super::path::NormalPath;
use super::suggest::escape;
use super::yaml::{YamlNode, YamlValue};
use crate::ids::AgentName;

/// Most folders in one file.
const MOST: usize = 100;

/// The projects of all agents.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentProjects {
    /// The folders of agents whose file names none.
    pub(crate) shared: Vec<Box<str>>,
    pub(crate) own: HashMap<AgentName, Vec<Box<str>>>,
}

impl AgentProjects {
    /// The folders of an agent.
    pub(crate) fn of(&self, agent: &AgentName) -> &[Box<str>] {
        self.own.get(agent).unwrap_or(&self.shared)
    }
}

/// Reads a `project` key: a folder or a list of folders.
pub(crate) fn read(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Vec<Box<str>> {
    let items: Vec<&YamlNode> = match &node.kind {
        YamlValue::List(items) if items.len() <= MOST => items.iter().collect(),
        YamlValue::List(_) => {
            faults.error(node.place, "policy.type", format!("`project` is a list of at most {MOST} folders"));
            return Vec::new();
        }
        _ => vec![node],
    };
    let mut folders = Vec::new();
    for item in items {
        let Some(text) = item.as_text() else {
            let message = format!("`project` must be a folder or a list of folders, not {}", item.noun());
            faults.error(item.place, "policy.type", message);
            continue;
        };
        match NormalPath::new(text) {
            // Every path would be inside.
            Ok(path) if path.as_str() == "/" => {
                faults.error(item.place, "policy.path", "the root folder cannot be a project");
            }
            Ok(path) => folders.push(path.as_str().into()),
            Err(fault) => {
                faults
                    .error(item.place, "policy.path", format!("`{}` cannot be a project: {fault}", escape(text)))
                    .hint("write an absolute path such as `/home/me/app`");
            }
        }
    }
    folders
}
