//! `sluice setup`: puts the gate into a client's configuration.
//!
//! Takes a client; writes its configuration and nothing else. Promise: each file appears whole or not at all, what was
//! there before is kept beside it, doing it again changes nothing, and `--undo` takes out what is ours and nothing else: if
//! nobody else has changed the file, it is what it was, byte for byte.

pub(crate) mod block;
mod keys;
pub(crate) mod members;
pub(crate) mod recipes;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::AgentName;
use sluice_gateway::config::Config;

use self::recipes::{Change, Place};
use crate::client::address_of;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::settings::{Which, variable};

/// Where a gateway answers whose configuration says nothing else.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

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
/// The client starts `sluice mcp`, which finds the gateway and the agent's key where the configuration says, or at --url and
/// --key-file. With --hooks the client also asks before it uses its own tools.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice setup claude-code --hooks\n  sluice setup claude-code --hooks --diff\n  sluice setup codex --url https://gate.example.org --key-file ~/clerk.key\n  sluice setup claude-code --undo"
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
    /// Whose configuration; otherwise of this folder, and --undo looks at both
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// Address of the gateway; otherwise the one in its configuration
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the agent's key; otherwise the one `sluice init` keeps in the data folder
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Whose key, if the data folder has several
    #[arg(long, value_name = "NAME", conflicts_with = "key_file")]
    agent: Option<AgentName>,
    #[command(flatten)]
    which: Which,
    /// With --hooks: file with a task key, so that what you type counts as asked for; otherwise the one beside the agent's
    /// key that ends in `.task`
    #[arg(long, value_name = "FILE", requires = "hooks")]
    task_key_file: Option<PathBuf>,
}

impl Setup {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let place = self.place()?;
        let changes = self.changes(&place);
        let mut files: Vec<PathBuf> = Vec::new();
        for change in &changes {
            if !files.contains(&change.file) {
                files.push(change.file.clone());
            }
        }
        let own = |file: &PathBuf| changes.iter().filter(|change| change.file == *file).collect::<Vec<_>>();
        let mut worst = Ok(Exit::Ok);
        if self.undo {
            for file in &files {
                if let Err(failure) = undo(file, &own(file), screen) {
                    // One file that cannot be undone does not keep the others from it.
                    screen.note(format_args!("left       {}: {}", file.display(), failure.message));
                    worst = Err(failure);
                }
            }
        } else {
            // All of them before the first is written: one that cannot be changed leaves none half set up.
            let edits: Vec<Option<Edited>> =
                files.iter().map(|file| self.edited(file, &own(file), screen)).collect::<Result<_, _>>()?;
            edits.iter().flatten().try_for_each(|edit| self.apply(edit, screen))?;
        }
        if self.client == For::Codex && self.hooks && !(self.print || self.diff || self.undo) {
            screen.note(
                "Codex runs a new or changed hook only after you trust it: start codex, type /hooks and allow it",
            );
        }
        if self.hooks && !(self.print || self.diff || self.undo) && worst.is_ok() {
            self.offer_coding_rules(screen);
        }
        worst
    }

    /// Names the rules that let a coding agent work, where the gateway's rules are not made for one.
    fn offer_coding_rules(&self, screen: &Screen) {
        let Ok(Some(config)) = self.gateway() else { return };
        let files = fs::read_dir(config.policies.join("agents")).into_iter().flatten().flatten();
        let is_for_a_project = |text: String| text.lines().any(|line| line.starts_with("project:"));
        if !files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(is_for_a_project) {
            screen.note(
                "These rules ask about most tools of a coding agent. Rules that let it read, edit its project, build and \
                 test without a question: sluice init --template coding --project DIR (see docs/coding-agents.md)",
            );
        }
    }

    fn changes(&self, place: &Place) -> Vec<Change> {
        let of = |scope, hooks| recipes::of(self.client, hooks, scope, place);
        if !self.undo {
            return of(self.scope.unwrap_or(Scope::Project), self.hooks);
        }
        let scopes = self.scope.map_or_else(|| vec![Scope::Project, Scope::User], |scope| vec![scope]);
        // With hooks and without, it is not the same that was written.
        scopes.into_iter().flat_map(|scope| [of(scope, true), of(scope, false)]).flatten().collect()
    }

    /// The configuration of the gateway, if there is one. One that cannot be read is an error, because the client would be
    /// sent to the wrong address.
    fn gateway(&self) -> Result<Option<Config>, Failure> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            return Ok(None);
        }
        let name = settings.name();
        let loaded = settings.loaded.map_err(|errors| {
            Failure::new(Exit::Failed, format!("`{name}` cannot be used to find the gateway"))
                .why(errors.faults.first().map_or_else(String::new, |fault| fault.message.clone()))
                .hint("see all problems: sluice config check; or say both: --url URL --key-file FILE")
        })?;
        Ok(Some(loaded.0))
    }

    /// Address of the gateway and the agent's key, from the command line or from the configuration.
    fn found(&self) -> Result<(String, PathBuf), Failure> {
        if self.undo {
            return Ok((self.url.clone().unwrap_or_default(), PathBuf::new()));
        }
        let config = match (&self.url, &self.key_file) {
            (Some(_), Some(_)) => None,
            _ => self.gateway()?,
        };
        let url = match (&self.url, &config) {
            (Some(url), _) => url.clone(),
            (None, Some(config)) => address_of(config),
            (None, None) => DEFAULT_URL.to_owned(),
        };
        let key = match (&self.key_file, &config) {
            (Some(file), _) => file.clone(),
            (None, Some(config)) => keys::find(&config.data.join("agents"), self.agent.as_ref())?,
            (None, None) => {
                return Err(Failure::new(Exit::NotFound, "there is no gateway to set the client up for")
                    .why("no sluice.yaml in this folder, in a folder above it or in the user's configuration")
                    .hint("make one: sluice init; or name it: --config FILE; or say both: --url URL --key-file FILE"));
            }
        };
        Ok((url, key))
    }

    fn place(&self) -> Result<Place, Failure> {
        let home = variable("HOME")?.ok_or_else(|| Failure::new(Exit::Failed, "there is no home folder"))?;
        let io = |error: std::io::Error| Failure::new(Exit::Failed, "this place cannot be used").why(io_words(&error));
        let (url, key) = self.found()?;
        let key = if self.undo {
            key
        } else {
            key.canonicalize().map_err(|error| {
                Failure::new(Exit::NotFound, format!("there is no key at `{}`", key.display()))
                    .why(io_words(&error))
                    .hint("make one: sluice keys create --agent NAME --out FILE")
            })?
        };
        let task_key = match &self.task_key_file {
            Some(file) => Some(file.canonicalize().map_err(|error| {
                Failure::new(Exit::NotFound, format!("there is no task key at `{}`", file.display()))
                    .why(io_words(&error))
                    .hint("make one: sluice keys create --task-for AGENT --out FILE")
            })?),
            None => Some(key.with_extension("task")).filter(|beside| beside.is_file()),
        };
        Ok(Place {
            home: home.into(),
            here: std::env::current_dir().map_err(io)?,
            program: std::env::current_exe().map_err(io)?.display().to_string(),
            url,
            key: key.display().to_string(),
            task_key: task_key.map(|file| file.display().to_string()),
        })
    }

    /// A file as it will be; nothing if it can only be shown what belongs there.
    fn edited(&self, file: &Path, changes: &[&Change], screen: &Screen) -> Result<Option<Edited>, Failure> {
        let before = read(file)?;
        let mut after = before.clone().unwrap_or_default();
        for change in changes {
            after = match change.edit.apply(&after) {
                Ok(after) => after,
                Err(why) if self.print => return bare(file, &why, changes, screen).map(|()| None),
                Err(why) => {
                    return Err(Failure::new(Exit::Conflict, format!("`{}` is left as it is", file.display()))
                        .why(why)
                        .hint("nothing was written; see what belongs there: --print"));
                }
            };
        }
        Ok(Some(Edited { file: file.to_owned(), before, after }))
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

/// What belongs into a file that cannot be edited, by itself.
fn bare(file: &Path, why: &str, changes: &[&Change], screen: &Screen) -> Result<(), Failure> {
    screen.note(format_args!("{}: {why}; by hand, put this into it", file.display()));
    let mut text = String::new();
    for change in changes {
        text = change.edit.apply(&text).map_err(|why| Failure::new(Exit::Failed, "nothing can be shown").why(why))?;
    }
    screen.raw(text.as_bytes())?;
    Ok(())
}

/// Where what was there before is kept.
fn kept(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-sluice");
    file.with_file_name(name)
}

/// Keeps what was there, once: the first time is what `--undo` goes back to. What is written now is known by its print.
/// Once somebody else has changed the file between two of our writes, there is no going back to the first.
fn keep(file: &Path, before: Option<&str>, after: &str) -> Result<(), Failure> {
    let place = kept(file);
    let earlier = read(&place)?.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let (first, alone) = match &earlier {
        Some(kept) => (kept.get("before").cloned().unwrap_or(Value::Null), is_ours(kept, before)),
        None => (json!(before), true),
    };
    write(&place, &json!({"before": first, "wrote": print(after), "alone": alone}).to_string())
}

/// Whether a file is as we wrote it, and nobody else has changed it since the first time.
fn is_ours(kept: &Value, now: Option<&str>) -> bool {
    let alone = kept.get("alone").and_then(Value::as_bool).unwrap_or(true);
    alone && now.map(print).is_some_and(|now| kept.get("wrote").and_then(Value::as_str) == Some(&now))
}

fn print(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Brings back what was there; where others have changed the file since, takes out what is ours.
fn undo(file: &Path, changes: &[&Change], screen: &Screen) -> Result<(), Failure> {
    let place = kept(file);
    let record = read(&place)?;
    let record: Option<Value> = record.map(|text| serde_json::from_str(&text).unwrap_or(Value::Null));
    let now = read(file)?;
    let before = record.as_ref().and_then(|kept| kept.get("before")).and_then(Value::as_str);
    let after = match (&record, &now) {
        (Some(kept), Some(_)) if is_ours(kept, now.as_deref()) => before.map(str::to_owned),
        (_, None) => None,
        (_, Some(text)) => {
            let left = changes.iter().try_fold(text.clone(), |text, change| change.edit.undo(&text));
            let left = left.map_err(|why| by_hand(file, why))?;
            // What was made by us and holds nothing of others goes as it came.
            let made = record.as_ref().is_some_and(|kept| kept.get("before") == Some(&Value::Null));
            (!(made && recipes::is_bare(&left))).then_some(left)
        }
    };
    if after == now && record.is_none() {
        screen.note(format_args!("untouched  {}", file.display()));
        return Ok(());
    }
    match &after {
        Some(after) if now.as_ref() == Some(after) => {}
        Some(after) => write(file, after)?,
        None if now.is_none() => {}
        None => fs::remove_file(target(file)).map_err(|error| unwritable(file, &error))?,
    }
    if record.is_some() {
        fs::remove_file(&place).map_err(|error| unwritable(&place, &error))?;
    }
    screen.note(format_args!("restored   {}", file.display()));
    Ok(())
}

fn by_hand(file: &Path, why: String) -> Failure {
    Failure::new(Exit::Conflict, format!("`{}` has changed since", file.display()))
        .why(why)
        .hint("take out the entries called sluice by hand")
}

/// The file behind a name: a link stays a link.
fn target(file: &Path) -> PathBuf {
    if let Ok(target) = fs::canonicalize(file) {
        return target;
    }
    match fs::read_link(file) {
        Ok(to) => file.parent().map_or(to.clone(), |folder| folder.join(to)),
        Err(_) => file.to_owned(),
    }
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

/// Writes a file whole or not at all, with the mode it had.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let file = &target(file);
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
