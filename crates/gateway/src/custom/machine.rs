//! Declared programs as they are on this machine: their files, and what lies around them.
//!
//! Takes declarations and the configuration; gives a print of every file whose content is approved, and the flaws that
//! only this machine can show. Promise: a program that could read the gateway's own files, and one whose file agents can
//! change, is offered to nobody.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_core::custom::program::DeclaredProgram;
use sluice_core::proxy::Flaw;

use super::FoundCapability;
use crate::config::Config;
use crate::own_files::{OwnFiles, real};
use crate::programs::print_of;

/// One file whose content belongs to what is approved.
#[derive(Debug)]
pub(super) struct FilePrint {
    /// Its path and the state of its content, as people are shown it.
    pub line: String,
    /// Its path.
    pub path: PathBuf,
    /// Device and number of the file that was read; nothing if there is no file.
    pub identity: Option<(u64, u64)>,
    /// Whether everybody may change it.
    is_open_to_all: bool,
}

/// How the line of a file begins.
pub(super) const FILE: &str = "file ";

/// The state of every file of a program, in the order of the declaration. It reads the disk.
///
/// # Errors
/// When a program is not there or cannot be read, in words.
pub(super) fn prints_of(own: &DeclaredProgram) -> Result<Vec<FilePrint>, String> {
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
                let (print, about) = print_of(&path).map_err(|error| format!("`{text}` cannot be read: {error}"))?;
                (print, Some((about.dev(), about.ino())), about.permissions().mode())
            }
            Ok(about) if about.is_dir() => ("a folder".to_owned(), None, 0),
            Ok(_) => ("no ordinary file".to_owned(), None, 0),
            Err(_) => ("not there".to_owned(), None, 0),
        };
        Ok(FilePrint {
            line: format!("{FILE}{} {print}", json!(text)),
            path,
            identity,
            is_open_to_all: mode & 0o002 != 0,
        })
    };
    own.bound_files().into_iter().map(read).collect()
}

/// Programs of a declaration that are not on this machine.
#[must_use]
pub fn missing_programs(found: &FoundCapability) -> Vec<Flaw> {
    let Some(own) = found.usable().and_then(|declared| declared.program()) else { return Vec::new() };
    let missing = prints_of(own).err();
    missing.map(|text| Flaw { code: "custom.program", place: "program.command".into(), text }).into_iter().collect()
}

/// Looks at the files of each declared program, and at what lies around them. Whatever is wrong becomes a flaw.
pub fn look_at_machine(found: &mut [FoundCapability], config: &Config) {
    let own_files = OwnFiles::of(config);
    for one in found {
        let Some(own) = one.usable().and_then(|declared| declared.program()) else { continue };
        match looked_at(own, &own_files, config) {
            Ok(prints) => one.prints = prints.into_iter().map(|print| print.line).collect(),
            Err(flaw) => one.flaws.push(flaw),
        }
    }
}

fn looked_at(own: &DeclaredProgram, own_files: &OwnFiles, config: &Config) -> Result<Vec<FilePrint>, Flaw> {
    let flaw = |code, place: &str, text: String| Flaw { code, place: place.into(), text };
    let prints = prints_of(own).map_err(|text| flaw("custom.program", "program.command", text))?;
    let key = config.tls.as_ref().map(|tls| tls.key.as_path());
    let shared = [("reads", &own.reads), ("writes", &own.writes), ("files", &own.files)];
    for (field, path) in shared.iter().flat_map(|(field, list)| list.iter().map(move |path| (field, path))) {
        let is_key = key.is_some_and(|key| real(key).starts_with(real(Path::new(path))));
        if own_files.touched_by(Path::new(path)).is_some() || is_key {
            let text = format!("`{path}` holds, or lies in, files of the gateway: a program could read keys or rules");
            return Err(flaw("custom.own_files", &format!("program.{field}"), text));
        }
    }
    let roots = || config.filesystem.roots.iter();
    for print in &prints {
        let there = real(&print.path);
        let is_below = roots().any(|root| !root.read_only && there.starts_with(real(&root.path)));
        if is_below || print.is_open_to_all {
            let text =
                format!("`{}` can be changed by agents or by everybody: keep it elsewhere", print.path.display());
            return Err(flaw("custom.changeable", "program.command", text));
        }
        if own_files.touched_by(&print.path).is_some() {
            let text = format!("`{}` lies among the gateway's own files: keep it elsewhere", print.path.display());
            return Err(flaw("custom.own_files", "program.command", text));
        }
    }
    for path in &own.writes {
        let there = real(Path::new(path));
        let meets = |root: PathBuf| there.starts_with(&root) || root.starts_with(&there);
        if roots().any(|root| root.trusted && meets(real(&root.path))) {
            let text = format!("what a program writes to `{path}` is outside text, and the root there is trusted");
            return Err(flaw("custom.folder", "program.writes", text));
        }
    }
    Ok(prints)
}
