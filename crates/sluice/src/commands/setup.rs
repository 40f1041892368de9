//! `sluice setup`: puts the gate into a client's configuration.
//!
//! Takes a client; writes its configuration and nothing else. Promise: each file appears whole or not at all, what was
//! there before is kept beside it, doing it again changes nothing, and `--undo` brings back exactly what was there.

mod block;
mod members;
mod recipes;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::recipes::{Change, Place};
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::settings::variable;

/// Clients that can be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum For {
    /// Claude Code: .mcp.json and .claude/settings.json, or those of the user
    ClaudeCode,
    /// Claude Desktop: claude_desktop_config.json
    ClaudeDesktop,
    /// Codex: ~/.codex/config.toml
    Codex,
    /// Gemini CLI: ~/.gemini/settings.json
    Gemini,
    /// Cursor: ~/.cursor/mcp.json and hooks.json
    Cursor,
    /// VS Code: .vscode/mcp.json
    Vscode,
}

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Of this folder, where the client has such a thing
    Project,
    /// Of the user
    User,
}

/// Put the gate into a client's configuration.
///
/// The client starts `sluice mcp`, which finds the gateway at --url and reads the agent's key from --key-file. With
/// --hooks the client also asks before it uses its own tools.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice setup claude-code --key-file ~/clerk.key --diff\n  sluice setup claude-code --key-file ~/clerk.key --hooks\n  sluice setup codex --key-file ~/clerk.key --print\n  sluice setup claude-code --undo"
)]
pub(crate) struct Setup {
    /// Which client
    #[arg(value_enum)]
    client: For,
    /// Show what would be written, file by file
    #[arg(long, conflicts_with_all = ["diff", "undo"])]
    print: bool,
    /// Show what would change
    #[arg(long, conflicts_with = "undo")]
    diff: bool,
    /// Bring back what was there before
    #[arg(long)]
    undo: bool,
    /// Also ask before the client's own tools are used
    #[arg(long)]
    hooks: bool,
    /// Whose configuration
    #[arg(long, value_enum, default_value = "project")]
    scope: Scope,
    /// Address of the gateway
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7420")]
    url: String,
    /// File with the agent's key
    #[arg(long, value_name = "FILE", required_unless_present = "undo")]
    key_file: Option<PathBuf>,
}

impl Setup {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let place = self.place()?;
        let changes = recipes::of(self.client, self.hooks || self.undo, self.scope, &place);
        let mut files: Vec<PathBuf> = changes.iter().map(|change| change.file.clone()).collect();
        files.dedup();
        if self.undo {
            files.iter().try_for_each(|file| undo(file, screen))?;
            return Ok(Exit::Ok);
        }
        // All of them before the first is written: one that cannot be changed leaves none half set up.
        let mut edits = Vec::new();
        for file in files {
            let own: Vec<&Change> = changes.iter().filter(|change| change.file == file).collect();
            edits.push(edited(file, &own)?);
        }
        edits.iter().try_for_each(|edit| self.apply(edit, screen))?;
        Ok(Exit::Ok)
    }

    fn place(&self) -> Result<Place, Failure> {
        let home = variable("HOME")?.ok_or_else(|| Failure::new(Exit::Failed, "there is no home folder"))?;
        let io = |error: std::io::Error| Failure::new(Exit::Failed, "this place cannot be used").why(io_words(&error));
        let key = match &self.key_file {
            Some(file) => file.canonicalize().map_err(|error| {
                Failure::new(Exit::NotFound, format!("there is no key at `{}`", file.display()))
                    .why(io_words(&error))
                    .hint("make one: sluice keys create --agent NAME --out FILE")
            })?,
            None => PathBuf::new(),
        };
        Ok(Place {
            home: home.into(),
            here: std::env::current_dir().map_err(io)?,
            program: std::env::current_exe().map_err(io)?.display().to_string(),
            url: self.url.clone(),
            key: key.display().to_string(),
        })
    }

    fn apply(&self, edited: &Edited, screen: &Screen) -> Result<(), Failure> {
        let Edited { file, before, after } = edited;
        if self.print {
            screen.note(format_args!("{}", file.display()));
            screen.raw(after.as_bytes())?;
            return Ok(());
        }
        if before.as_deref() == Some(after.as_str()) {
            screen.note(format_args!("unchanged  {}", file.display()));
            return Ok(());
        }
        if self.diff {
            screen.line(format_args!("--- {0}\n+++ {0}", file.display()))?;
            return difference(before.as_deref().unwrap_or_default(), after, screen);
        }
        keep(file, before.as_deref(), after)?;
        write(file, after)?;
        screen.note(format_args!("written    {}", file.display()));
        Ok(())
    }
}

/// A file as it is and as it will be.
struct Edited {
    file: PathBuf,
    before: Option<String>,
    after: String,
}

fn edited(file: PathBuf, changes: &[&Change]) -> Result<Edited, Failure> {
    let before = read(&file)?;
    let mut after = before.clone().unwrap_or_default();
    for change in changes {
        after = change.edit.apply(&after).map_err(|why| {
            Failure::new(Exit::Conflict, format!("`{}` is left as it is", file.display()))
                .why(why)
                .hint("put it in order, then run this again; nothing was written")
        })?;
    }
    Ok(Edited { file, before, after })
}

/// Where what was there before is kept.
fn kept(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-sluice");
    file.with_file_name(name)
}

/// Keeps what was there, once: the first time is what `--undo` goes back to. What is written now is known by its print.
fn keep(file: &Path, before: Option<&str>, after: &str) -> Result<(), Failure> {
    let place = kept(file);
    let first = match read(&place)? {
        Some(text) => serde_json::from_str::<Value>(&text).ok().and_then(|kept| kept.get("before").cloned()),
        None => None,
    };
    let first = first.unwrap_or_else(|| json!(before));
    write(&place, &json!({"before": first, "wrote": print(after)}).to_string())
}

fn print(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Brings back what was there.
fn undo(file: &Path, screen: &Screen) -> Result<(), Failure> {
    let place = kept(file);
    let Some(text) = read(&place)? else {
        screen.note(format_args!("untouched  {}", file.display()));
        return Ok(());
    };
    let kept: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let now = read(file)?;
    // What somebody added since must not be lost with what we wrote.
    let ours = now.as_deref().map(print).is_some_and(|now| kept.get("wrote").and_then(Value::as_str) == Some(&now));
    let as_before = kept.get("before").is_some_and(|before| *before == json!(now));
    if !ours && !as_before {
        return Err(Failure::new(Exit::Conflict, format!("`{}` has changed since", file.display()))
            .why(format!("what was there before is kept in `{}`", place.display()))
            .hint("take out the entries called sluice by hand"));
    }
    match kept.get("before").and_then(Value::as_str) {
        _ if as_before => {}
        Some(before) => write(file, before)?,
        None => fs::remove_file(file).map_err(|error| unwritable(file, &error))?,
    }
    fs::remove_file(&place).map_err(|error| unwritable(&place, &error))?;
    screen.note(format_args!("restored   {}", file.display()));
    Ok(())
}

fn read(file: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Failure::new(Exit::Failed, format!("cannot read `{}`", file.display())).why(io_words(&error)))
        }
    }
}

/// Writes a file whole or not at all, with the mode it had. A link stays one: what it leads to is written.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let file = real.as_path();
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    let mode = fs::metadata(file).map_or(0o600, |about| about.permissions().mode() & 0o777);
    let made = tempfile::NamedTempFile::new_in(folder).and_then(|mut beside| {
        beside.write_all(text.as_bytes())?;
        beside.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        beside.as_file().sync_all()?;
        beside.persist(file).map_err(|error| error.error)
    });
    made.map(drop).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot write `{}`", file.display())).why(io_words(error))
}

/// Lines that go and lines that come, without what both share at the ends.
fn difference(before: &str, after: &str, screen: &Screen) -> Result<(), Failure> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    for (sign, lines) in [('-', &old), ('+', &new)] {
        for line in lines.iter().take(lines.len() - tail).skip(head) {
            screen.line(format_args!("{sign}{line}"))?;
        }
    }
    Ok(())
}
