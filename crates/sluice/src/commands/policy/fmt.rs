//! `fmt`: formats policy files.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use sluice_core::policy::{PolicyFormatError, format};

use super::{PolicyPathArgs, counted, load_or_fail};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::files;

/// Rewrite files in the canonical format.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy fmt\n  sluice policy fmt --check")]
pub(crate) struct PolicyFmtArgs {
    #[command(flatten)]
    place: PolicyPathArgs,
    /// Change nothing; fail and list the files that would change
    #[arg(long)]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyFmtArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let path = &self.place.path;
        // A file with errors is not changed, because its meaning is not known.
        load_or_fail(path, screen)?;
        let found = files::read(path)?;
        let sources = found.sources.org.iter().chain(found.sources.agents.iter().map(|(_, source)| source));
        let mut names = Vec::new();
        for (source, path) in sources.zip(&found.paths) {
            let formatted = match format(&source.name, &source.text) {
                Ok(formatted) => formatted,
                Err(PolicyFormatError::Faulty(faults)) => {
                    faults.iter().for_each(|fault| screen.fault(fault));
                    return Err(CliError::new(CommandExit::Failed, format!("`{}` has errors", source.name)));
                }
                Err(PolicyFormatError::Unsafe) => {
                    return Err(CliError::new(CommandExit::Failed, format!("`{}` was not changed", source.name))
                        .why("formatting it would change what it means")
                        .hint("this is a defect of sluice; please report the file"));
                }
            };
            if formatted == source.text {
                continue;
            }
            names.push(source.name.as_str());
            if !self.json {
                screen.line(&source.name)?;
            }
            if !self.check {
                replace(path, &formatted)?;
            }
        }
        let changed = names.len();
        if self.json {
            screen.json(&serde_json::json!({"changed": names, "written": !self.check}))?;
        }
        match (self.check, changed) {
            (true, 1..) => {
                let message = format!("{} would change", counted(changed, "file"));
                return Err(CliError::new(CommandExit::Failed, message)
                    .hint(format!("run: sluice policy fmt {}", path.display())));
            }
            (_, 0) => screen.note("all files are formatted"),
            (false, _) => screen.note(format_args!("formatted {}", counted(changed, "file"))),
        }
        Ok(CommandExit::Ok)
    }
}

/// Replaces a file atomically, with the same permissions.
fn replace(path: &Path, text: &str) -> Result<(), CliError> {
    let write = || -> std::io::Result<()> {
        // The target of a link is replaced, not the link.
        let path = fs::canonicalize(path)?;
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| {
        CliError::new(CommandExit::Failed, format!("cannot write `{}`", path.display())).why(describe_io_error(&error))
    })
}
