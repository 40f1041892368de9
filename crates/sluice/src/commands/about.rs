//! Commands about the program itself: version, completions, manual pages.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::complete;
use crate::SluiceCli;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Print shell completions.
///
/// bash, zsh and fish also complete existing ids, by asking the gateway. In other shells, use a list:
/// sluice holds list --json | jq -r '.data[].buffer_id'
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice completions bash > /etc/bash_completion.d/sluice")]
pub(crate) struct CompletionsCommand {
    /// Shell to print completions for
    shell: Shell,
}

impl CompletionsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut SluiceCli::command(), "sluice", &mut text);
        text.extend(complete::hook(self.shell).into_bytes());
        screen.raw(&text)?;
        Ok(CommandExit::Ok)
    }
}

/// Print the manual page, or write all pages to a directory.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice man | man -l -\n  sluice man --dir /usr/local/share/man/man1")]
pub(crate) struct ManCommand {
    /// Write one page per command to this directory
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl ManCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let Some(dir) = self.dir else {
            let mut text = Vec::new();
            clap_mangen::Man::new(SluiceCli::command()).render(&mut text)?;
            screen.raw(&text)?;
            return Ok(CommandExit::Ok);
        };
        let written = fs::create_dir_all(&dir).and_then(|()| clap_mangen::generate_to(SluiceCli::command(), &dir));
        written.map_err(|error| {
            CliError::new(CommandExit::Failed, format!("cannot write manual pages to `{}`", dir.display()))
                .why(describe_io_error(&error))
        })?;
        screen.note(format_args!("wrote manual pages to {}", dir.display()));
        Ok(CommandExit::Ok)
    }
}

/// Print the version, the kind of build and the commit.
#[derive(Debug, Args)]
pub(crate) struct VersionCommand {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl VersionCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let (version, target) = (env!("CARGO_PKG_VERSION"), env!("BUILT_FOR_TARGET"));
        let commit = Some(env!("BUILT_FROM_COMMIT")).filter(|commit| !commit.is_empty());
        let build = if cfg!(debug_assertions) { "development" } else { "release" };
        if self.json {
            let about = serde_json::json!({"name": "sluice", "version": version, "commit": commit, "build": build, "target": target});
            screen.json(&about)?;
        } else {
            let commit = commit.map(|commit| format!(", commit {}", commit.get(..12).unwrap_or(commit)));
            screen.line(format_args!("sluice {version} ({build} build{}, {target})", commit.unwrap_or_default()))?;
        }
        Ok(CommandExit::Ok)
    }
}
