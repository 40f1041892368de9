//! `templates` and `schema`: how to start a policy.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sluice_core::policy::{PolicyTemplate, SCHEMA, TEMPLATES};

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// List policy templates, or write one.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy templates\n  sluice policy templates team --out policies")]
pub(crate) struct PolicyTemplatesArgs {
    /// Template to show or write
    name: Option<String>,
    /// Write its files to this directory
    #[arg(long, value_name = "DIR", requires = "name")]
    out: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

impl PolicyTemplatesArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let Some(name) = &self.name else { return self.list(screen) };
        let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else {
            let names: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
            return Err(CliError::new(CommandExit::NotFound, format!("no template named `{}`", name.escape_debug()))
                .hint(format!("the templates are {}", names.join(", "))));
        };
        if let Some(dir) = &self.out {
            return write(template, dir, screen);
        }
        for file in template.files {
            screen.note(format_args!("--- {}", file.path));
            screen.raw(file.text.as_bytes())?;
        }
        Ok(CommandExit::Ok)
    }

    fn list(&self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        if self.json {
            let files = |template: &PolicyTemplate| template.files.iter().map(|file| file.path).collect::<Vec<_>>();
            let list = TEMPLATES.iter().map(|t| json!({"name": t.name, "summary": t.summary, "files": files(t)}));
            screen.json(&list.collect::<Vec<_>>())?;
            return Ok(CommandExit::Ok);
        }
        for template in TEMPLATES {
            screen.line(format_args!("{:<10} {}", template.name, template.summary))?;
        }
        Ok(CommandExit::Ok)
    }
}

/// Writes all files of a template; nothing that exists is overwritten.
fn write(template: &PolicyTemplate, dir: &Path, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    if let Some(taken) = template.files.iter().map(|file| dir.join(file.path)).find(|path| path.exists()) {
        return Err(CliError::new(CommandExit::Conflict, format!("`{}` already exists", taken.display()))
            .hint("choose another directory with --out"));
    }
    for file in template.files {
        let path = dir.join(file.path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut new = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
            new.write_all(file.text.as_bytes())
        });
        written.map_err(|error| {
            CliError::new(CommandExit::Failed, format!("cannot write `{}`", path.display()))
                .why(describe_io_error(&error))
        })?;
        screen.line(path.display())?;
    }
    screen.note(format_args!("next: sluice policy check {}", dir.display()));
    Ok(CommandExit::Ok)
}

/// Print the JSON Schema of policy files.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy schema > policy.schema.json")]
pub(crate) struct PolicySchemaArgs {}

impl PolicySchemaArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        screen.raw(SCHEMA.as_bytes())?;
        Ok(CommandExit::Ok)
    }
}
