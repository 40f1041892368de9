//! Declared programs on this machine: their files, and the folders around them.
//!
//! Takes declarations and the configuration; gives a fingerprint of every file whose content is approved, and the flaws
//! that only this machine can show. Promise: a program that could read the gateway's own files is not offered, and
//! neither is one whose file agents can change.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_config::Config;
use sluice_core::custom::program::DeclaredProgram;
use sluice_core::proxy::ProxyFlaw;

use super::CustomCapabilityFile;
use crate::gateway_files::{GatewayOwnFiles, real};
use crate::programs::fingerprint_file;

/// One file whose content is part of what is approved.
#[derive(Debug)]
pub(super) struct ProgramFileFingerprint {
    /// Its path and the state of its content, as people see it.
    pub line: String,
    /// The path of the file.
    pub path: PathBuf,
    /// Device and inode of the file that was read; `None` if there is no file.
    pub identity: Option<(u64, u64)>,
    /// Whether everybody may change it.
    is_open_to_all: bool,
}

/// The start of a line about a file.
pub(super) const FILE: &str = "file ";

/// The state of every file of a program, in the order of the declaration. Reads the disk.
///
/// # Errors
/// When a program does not exist or cannot be read, in words.
pub(super) fn fingerprint_files(own: &DeclaredProgram) -> Result<Vec<ProgramFileFingerprint>, String> {
    let programs: Vec<String> =
        own.templates().into_iter().filter_map(|(_, template)| template.command.into_iter().next()).collect();
    let read = |text: String| {
        let (path, is_program) = (PathBuf::from(&text), programs.contains(&text));
        let about = path.metadata();
        let runs = about.as_ref().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
        if is_program && !runs {
            return Err(format!("there is no program `{text}` on this machine"));
        }
        let (print, identity, mode) = match about {
            Ok(about) if about.is_file() => {
                let (print, about) =
                    fingerprint_file(&path).map_err(|error| format!("`{text}` cannot be read: {error}"))?;
                (print, Some((about.dev(), about.ino())), about.permissions().mode())
            }
            Ok(about) if about.is_dir() => ("a folder".to_owned(), None, 0),
            Ok(_) => ("not a regular file".to_owned(), None, 0),
            Err(_) => ("not there".to_owned(), None, 0),
        };
        Ok(ProgramFileFingerprint {
            line: format!("{FILE}{} {print}", json!(text)),
            path,
            identity,
            is_open_to_all: mode & 0o002 != 0,
        })
    };
    own.bound_files().into_iter().map(read).collect()
}

/// Programs of a declaration that do not exist on this machine.
#[must_use]
pub fn missing_programs(found: &CustomCapabilityFile) -> Vec<ProxyFlaw> {
    let Some(own) = found.usable().and_then(|declared| declared.program()) else { return Vec::new() };
    let missing = fingerprint_files(own).err();
    missing
        .map(|text| ProxyFlaw { code: "custom.program", place: "program.command".into(), text })
        .into_iter()
        .collect()
}

/// Checks the files of each declared program, and the folders around them. Everything wrong becomes a flaw.
pub fn look_at_machine(found: &mut [CustomCapabilityFile], config: &Config) {
    let own_files = GatewayOwnFiles::of(config);
    for one in found {
        let Some(own) = one.usable().and_then(|declared| declared.program()) else { continue };
        match looked_at(own, &own_files, config) {
            Ok(prints) => one.prints = prints.into_iter().map(|print| print.line).collect(),
            Err(flaw) => one.flaws.push(flaw),
        }
    }
}

fn looked_at(
    own: &DeclaredProgram,
    own_files: &GatewayOwnFiles,
    config: &Config,
) -> Result<Vec<ProgramFileFingerprint>, ProxyFlaw> {
    let flaw = |code, place: &str, text: String| ProxyFlaw { code, place: place.into(), text };
    let prints = fingerprint_files(own).map_err(|text| flaw("custom.program", "program.command", text))?;
    let key = config.tls.as_ref().map(|tls| tls.key.as_path());
    let shared = [("reads", &own.reads), ("writes", &own.writes), ("files", &own.files)];
    for (field, path) in shared.iter().flat_map(|(field, list)| list.iter().map(move |path| (field, path))) {
        let is_key = key.is_some_and(|key| real(key).starts_with(real(Path::new(path))));
        if own_files.touched_by(Path::new(path)).is_some() || is_key {
            let text =
                format!("`{path}` contains or is inside the gateway's own files: a program could read keys or rules");
            return Err(flaw("custom.own_files", &format!("program.{field}"), text));
        }
    }
    let roots = || config.filesystem.roots.iter();
    for print in &prints {
        let there = real(&print.path);
        let is_below = roots().any(|root| !root.read_only && there.starts_with(real(&root.path)));
        if is_below || print.is_open_to_all {
            let text = format!(
                "`{}` can be changed by agents or by everybody: move it to another folder",
                print.path.display()
            );
            return Err(flaw("custom.changeable", "program.command", text));
        }
        if own_files.touched_by(&print.path).is_some() {
            let text =
                format!("`{}` is inside the gateway's own files: move it to another folder", print.path.display());
            return Err(flaw("custom.own_files", "program.command", text));
        }
    }
    for path in &own.writes {
        let there = real(Path::new(path));
        let meets = |root: PathBuf| there.starts_with(&root) || root.starts_with(&there);
        if roots().any(|root| root.trusted && meets(real(&root.path))) {
            let text = format!(
                "a program writes outside content to `{path}`, but the root there is trusted: use another folder"
            );
            return Err(flaw("custom.folder", "program.writes", text));
        }
    }
    Ok(prints)
}
