//! Policy files on disk, for commands: what the gateway reads, with advice where there is nothing to read.

use std::fs;
use std::path::Path;

use sluice_gateway::policies::Found;

use crate::failure::{Exit, Failure, io_words};

/// Reads a policy directory or a single policy file.
pub(crate) fn read(path: &Path) -> Result<Found, Failure> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("cannot read policies at `{shown}`")).why(io_words(&error)).hint(
            "name a directory with org.yaml and agents/, or start one: sluice policy templates team --out policies",
        )
    })?;
    if !about.is_dir() {
        return Ok(Found::file(path));
    }
    let found = Found::folder(path);
    if found.paths.is_empty() && found.faults.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("no policy files in `{shown}`"))
            .why("it has neither org.yaml nor agents/<name>.yaml")
            .hint("start with a template: sluice policy templates team --out policies"));
    }
    Ok(found)
}
