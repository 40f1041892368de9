//! `templates` and `schema`: where a policy begins.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sluice_core::policy::{SCHEMA, TEMPLATES, Template};

use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;

/// List policies to start from, or write one.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy templates\n  sluice policy templates team --out policies")]
pub(crate) struct Templates {
    /// The one to show or write
    name: Option<String>,
    /// Write its files to this directory
    #[arg(long, value_name = "DIR", requires = "name")]
    out: Option<PathBuf>,
    /// List for machines
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

impl Templates {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let Some(name) = &self.name else { return self.list(screen) };
        let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else {
            let names: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
            return Err(Failure::new(Exit::NotFound, format!("there is no template `{}`", name.escape_debug()))
                .hint(format!("templates are {}", names.join(", "))));
        };
        if let Some(dir) = &self.out {
            return write(template, dir, screen);
        }
        for file in template.files {
            screen.note(format_args!("--- {}", file.path));
            screen.raw(file.text.as_bytes())?;
        }
        Ok(Exit::Ok)
    }

    fn list(&self, screen: &Screen) -> Result<Exit, Failure> {
        if self.json {
            let files = |template: &Template| template.files.iter().map(|file| file.path).collect::<Vec<_>>();
            let list = TEMPLATES.iter().map(|t| json!({"name": t.name, "summary": t.summary, "files": files(t)}));
            screen.json(&list.collect::<Vec<_>>())?;
            return Ok(Exit::Ok);
        }
        for template in TEMPLATES {
            screen.line(format_args!("{:<10} {}", template.name, template.summary))?;
        }
        Ok(Exit::Ok)
    }
}

/// Writes all files of a template; nothing that exists is overwritten.
fn write(template: &Template, dir: &Path, screen: &Screen) -> Result<Exit, Failure> {
    if let Some(taken) = template.files.iter().map(|file| dir.join(file.path)).find(|path| path.exists()) {
        return Err(Failure::new(Exit::Conflict, format!("`{}` exists already", taken.display()))
            .hint("choose another directory with --out"));
    }
    for file in template.files {
        let path = dir.join(file.path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut new = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
            new.write_all(file.text.as_bytes())
        });
        written.map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write `{}`", path.display())).why(io_words(&error))
        })?;
        screen.line(path.display())?;
    }
    screen.note(format_args!("next: sluice policy check {}", dir.display()));
    Ok(Exit::Ok)
}

/// Print the JSON Schema of policy files.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy schema > policy.schema.json")]
pub(crate) struct Schema {}

impl Schema {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        screen.raw(SCHEMA.as_bytes())?;
        Ok(Exit::Ok)
    }
}
