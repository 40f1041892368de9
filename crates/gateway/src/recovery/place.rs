//! The place of the state file, independent of the environment of this start.
//!
//! Takes the configuration; gives it with the path of the state file in use. A gateway that is started once with `HOME`
//! and once without computes two paths, so the data folder names the one of the last trusted start.
//!
//! Promise: a configured path, or one that already has a state file, always wins over the named one. So the name counts
//! only if there would be no state file at all, and only if it names a file outside the data folder that nobody else
//! can write and whose form and name belong to this data folder.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sluice_config::{Config, is_state_file_of};

/// The file in the data folder that names the state file.
pub const NAMED_IN: &str = "state_file.path";
/// The longest path that is read.
const LONGEST: u64 = 4_096;
/// The permission bits that let other users change a file.
const OTHERS_WRITE: u32 = 0o022;

/// Sets the path in use.
pub fn settle(config: &mut Config) {
    if config.recovery.state_file.is_some() || config.state_file.exists() {
        return;
    }
    let Some(named) = named(&config.data) else { return };
    if config.recovery.checkpoints_file.is_none() {
        config.checkpoints_file = named.with_file_name("checkpoints");
    }
    config.state_file = named;
}

/// Notes the path of the state file for the next start.
///
/// # Errors
/// When the data folder cannot be written to.
pub(super) fn name(data: &Path, state: &Path) -> io::Result<()> {
    let file = data.join(NAMED_IN);
    let text = state.as_os_str().as_encoded_bytes();
    if fs::read(&file).is_ok_and(|before| before == text) {
        return Ok(());
    }
    let beside = data.join(format!("{NAMED_IN}.new"));
    let _left = fs::remove_file(&beside);
    let mut file_beside = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file_beside.write_all(text)?;
    file_beside.sync_all()?;
    fs::rename(&beside, &file)
}

fn named(data: &Path) -> Option<PathBuf> {
    let file = data.join(NAMED_IN);
    let is_short = fs::symlink_metadata(&file).is_ok_and(|about| about.is_file() && about.len() <= LONGEST);
    let path = PathBuf::from(fs::read_to_string(&file).ok().filter(|_| is_short)?);
    if !path.is_absolute() || path.starts_with(data) || !is_state_file_of(data, &path) {
        return None;
    }
    // SECURITY: anyone who can write to the data folder can write the name. The named file must be writable by us
    // alone.
    let about = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let is_ours = about.uid() == rustix::process::geteuid().as_raw();
    (is_ours && about.permissions().mode() & OTHERS_WRITE == 0).then_some(path)
}
