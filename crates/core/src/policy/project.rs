//! Projects: the folders an agent works in, as its policy file names them.
//!
//! Takes the `project` keys of all files; gives the folders of an agent. Promise: they come from files that only people
//! write. What a client says about its working folder is where relative paths begin, and never makes a folder a project.

use std::collections::HashMap;

use super::fault::Faults;
use super::path::Normal;
use super::suggest::escape;
use super::yaml::{Kind, Node};
use crate::ids::AgentName;

/// Most folders in one file.
const MOST: usize = 100;

/// The projects of all agents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Projects {
    /// Of agents whose file names none.
    pub(crate) shared: Vec<Box<str>>,
    pub(crate) own: HashMap<AgentName, Vec<Box<str>>>,
}

impl Projects {
    /// The folders of an agent.
    pub(crate) fn of(&self, agent: &AgentName) -> &[Box<str>] {
        self.own.get(agent).unwrap_or(&self.shared)
    }
}

/// Reads a `project` key: a folder or a list of folders.
pub(crate) fn read(node: &Node, faults: &mut Faults<'_>) -> Vec<Box<str>> {
    let items: Vec<&Node> = match &node.kind {
        Kind::List(items) if items.len() <= MOST => items.iter().collect(),
        Kind::List(_) => {
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
        match Normal::new(text) {
            // Everything would be inside.
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
