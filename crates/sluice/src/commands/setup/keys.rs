//! Finding the key a client uses: the one `sluice init` or `sluice keys create` left in the data folder.
//!
//! Takes the folder of agent keys and perhaps a name; gives one file. Promise: where several fit, none is guessed.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_core::AgentName;

use crate::failure::{Exit, Failure};

/// The key file of an agent, or the only one there is.
///
/// # Errors
/// When there is none, or several and nobody said which.
pub(super) fn find(folder: &Path, agent: Option<&AgentName>) -> Result<PathBuf, Failure> {
    if let Some(agent) = agent {
        return Ok(folder.join(format!("{agent}.key")));
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut keys: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "key")).collect();
    keys.sort();
    match keys.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::new(Exit::NotFound, format!("there is no agent key in `{}`", folder.display()))
            .hint("name one: --key-file FILE; or make one: sluice keys create --agent NAME --out FILE")),
        several => {
            let names: Vec<String> =
                several.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
            Err(Failure::new(Exit::Usage, "several agents have a key here")
                .why(names.join(", "))
                .hint("say which: --agent NAME"))
        }
    }
}
