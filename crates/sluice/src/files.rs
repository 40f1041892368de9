//! Policy files for commands: the same files that the gateway reads, with a hint if there are none.

use std::fs;
use std::path::Path;

use sluice_services::policies::PolicyFiles;

use crate::failure::{CliError, CommandExit, describe_io_error};

/// Reads a policy directory or a single policy file.
pub(crate) fn read(path: &Path) -> Result<PolicyFiles, CliError> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| {
        CliError::new(CommandExit::NotFound, format!("cannot read policies at `{shown}`")).why(describe_io_error(&error)).hint(
            "give a directory with org.yaml and agents/, or create one: sluice policy templates team --out policies",
        )
    })?;
    if !about.is_dir() {
        return Ok(PolicyFiles::file(path));
    }
    let found = PolicyFiles::folder(path);
    if found.paths.is_empty() && found.faults.is_empty() {
        return Err(CliError::new(CommandExit::NotFound, format!("no policy files in `{shown}`"))
            .why("it has neither org.yaml nor agents/<name>.yaml")
            .hint("create one from a template: sluice policy templates team --out policies"));
    }
    Ok(found)
}
