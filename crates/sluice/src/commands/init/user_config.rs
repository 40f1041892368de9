//! The user's own configuration: a link to the user's first gateway, so that commands find it from any folder.
//!
//! Promise: a file, or a link to an existing file, is never replaced.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::user_config_file;

/// Makes the user's configuration a link to this one. Returns the link if commands now find this gateway through it.
///
/// # Errors
/// When there is a home folder and the link cannot be created in it.
pub(super) fn link(config: &Path) -> Result<Option<PathBuf>, CliError> {
    let Some(file) = user_config_file()? else { return Ok(None) };
    let config = fs::canonicalize(config).map_err(|error| cannot(config, &error))?;
    if let Ok(there) = file.canonicalize() {
        return Ok((there == config).then_some(file));
    }
    if file.symlink_metadata().is_ok_and(|about| !about.is_symlink()) {
        return Ok(None);
    }
    // What is left is nothing, or a link to a gateway that was removed.
    let _stale = fs::remove_file(&file);
    let made = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| symlink(&config, &file));
    match made {
        Ok(()) => Ok(Some(file)),
        // A read-only home folder is no reason to fail: the gateway can be given with --config.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(cannot(&file, &error)),
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(CommandExit::Failed, format!("cannot link `{}`", path.display())).why(describe_io_error(error))
}
