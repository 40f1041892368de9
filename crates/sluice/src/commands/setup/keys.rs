//! Finds the key for a client: the one that `sluice init` or `sluice keys create` stored in the data folder.
//!
//! Takes the folder of agent keys and perhaps a name; gives one file. Promise: if several match, none is guessed.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_core::AgentName;

use crate::failure::{CliError, CommandExit};

/// The key file of an agent, or the only key file.
///
/// # Errors
/// When there is none, or several and no agent is given.
pub(super) fn find(folder: &Path, agent: Option<&AgentName>) -> Result<PathBuf, CliError> {
    if let Some(agent) = agent {
        return Ok(folder.join(format!("{agent}.key")));
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut keys: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "key")).collect();
    keys.sort();
    match keys.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(CliError::new(CommandExit::NotFound, format!("no agent key in `{}`", folder.display()))
            .hint("give one: --key-file FILE; or create one: sluice keys create --agent NAME --out FILE")),
        several => {
            let names: Vec<String> =
                several.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
            Err(CliError::new(CommandExit::Usage, "several agents have a key in the data folder")
                .why(names.join(", "))
                .hint("choose one: --agent NAME"))
        }
    }
}
