//! The program about itself: version, completions, manual pages.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::complete;
use crate::Cli;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;

/// Print completions for a shell.
///
/// bash, zsh and fish also complete ids that exist, by asking the gateway. Elsewhere lists help:
/// sluice holds list --json | jq -r '.data[].buffer_id'
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice completions bash > /etc/bash_completion.d/sluice")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "sluice", &mut text);
        text.extend(complete::hook(self.shell).into_bytes());
        screen.raw(&text)?;
        Ok(Exit::Ok)
    }
}

/// Print the manual page, or write all pages to a directory.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice man | man -l -\n  sluice man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write one page per command here
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let Some(dir) = self.dir else {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text)?;
            screen.raw(&text)?;
            return Ok(Exit::Ok);
        };
        let written = fs::create_dir_all(&dir).and_then(|()| clap_mangen::generate_to(Cli::command(), &dir));
        written.map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write manual pages to `{}`", dir.display()))
                .why(io_words(&error))
        })?;
        screen.note(format_args!("wrote manual pages to {}", dir.display()));
        Ok(Exit::Ok)
    }
}

/// Print the version.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        if self.json {
            screen.json(&serde_json::json!({"name": "sluice", "version": version}))?;
        } else {
            screen.line(format_args!("sluice {version}"))?;
        }
        Ok(Exit::Ok)
    }
}
