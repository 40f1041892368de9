//! `sluice setup`: configures a client to use the gate.
//!
//! Takes a client; writes its configuration and nothing else. Promise: each file is written atomically, its former
//! content is stored beside it, a second run changes nothing, and `--undo` removes only what we wrote: if nobody else
//! has changed the file, it is restored byte for byte.

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
use sluice_config::Config;
use sluice_core::AgentName;

use self::recipes::{ClientFileChange, SetupPaths};
use crate::client::address_of;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::{ConfigFileArgs, variable};

/// The default address of a gateway.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// Clients that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SetupClient {
    /// Claude Code: .mcp.json and .claude/settings.json, or the user's files
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

/// Scope of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SetupScope {
    /// The configuration of this folder, if the client has one
    Project,
    /// The configuration of the user
    User,
}

/// Configure a client to use the gate.
///
/// The client starts `sluice mcp`, which uses the gateway and the agent key of the configuration, or of --url and
/// --key-file. With --hooks the client also asks before it uses its own tools.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice setup claude-code --hooks\n  sluice setup claude-code --hooks --diff\n  sluice setup codex --url https://gate.example.org --key-file ~/clerk.key\n  sluice setup claude-code --undo"
)]
pub(crate) struct SetupCommand {
    /// Client to configure
    #[arg(value_enum)]
    client: SetupClient,
    /// Show the files that would be written
    #[arg(long, conflicts_with_all = ["diff", "undo"])]
    print: bool,
    /// Show the differences
    #[arg(long, conflicts_with = "undo")]
    diff: bool,
    /// Restore the former configuration
    #[arg(long)]
    undo: bool,
    /// Also ask before the client uses its own tools
    #[arg(long)]
    hooks: bool,
    /// Scope of the configuration; default: this folder; --undo checks both
    #[arg(long, value_enum)]
    scope: Option<SetupScope>,
    /// Address of the gateway; default: the one in its configuration
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the agent key; default: the one that `sluice init` stores in the data folder
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Agent whose key is used, if the data folder has several
    #[arg(long, value_name = "NAME", conflicts_with = "key_file")]
    agent: Option<AgentName>,
    #[command(flatten)]
    which: ConfigFileArgs,
    /// With --hooks: file with a task key, so that your prompts count as tasks; default: the file beside the agent key
    /// that ends in `.task`
    #[arg(long, value_name = "FILE", requires = "hooks")]
    task_key_file: Option<PathBuf>,
}

impl SetupCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let place = self.place()?;
        let changes = self.changes(&place);
        let mut files: Vec<PathBuf> = Vec::new();
        for change in &changes {
            if !files.contains(&change.file) {
                files.push(change.file.clone());
            }
        }
        let own = |file: &PathBuf| changes.iter().filter(|change| change.file == *file).collect::<Vec<_>>();
        let mut worst = Ok(CommandExit::Ok);
        if self.undo {
            for file in &files {
                if let Err(failure) = undo(file, &own(file), screen) {
                    // A file that cannot be restored does not stop the others.
                    screen.note(format_args!("unchanged  {}: {}", file.display(), failure.message));
                    worst = Err(failure);
                }
            }
        } else {
            // All changes are prepared before the first file is written: an error leaves nothing half configured.
            let edits: Vec<Option<EditedClientFile>> =
                files.iter().map(|file| self.edited(file, &own(file), screen)).collect::<Result<_, _>>()?;
            edits.iter().flatten().try_for_each(|edit| self.apply(edit, screen))?;
        }
        if self.client == SetupClient::Codex && self.hooks && !(self.print || self.diff || self.undo) {
            screen.note(
                "Codex runs a new or changed hook only after you trust it: start codex, type /hooks and allow it",
            );
        }
        if self.hooks && !(self.print || self.diff || self.undo) && worst.is_ok() {
            self.offer_coding_rules(screen);
        }
        worst
    }

    /// Recommends the policy template for coding agents, if the gateway's policy is not made for one.
    fn offer_coding_rules(&self, screen: &CommandConsole) {
        let Ok(Some(config)) = self.gateway() else { return };
        let files = fs::read_dir(config.policies.join("agents")).into_iter().flatten().flatten();
        let is_for_a_project = |text: String| text.lines().any(|line| line.starts_with("project:"));
        if !files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(is_for_a_project) {
            screen.note(
                "The current policy requires approval for most tools of a coding agent. To let it read, edit its project, build and \
                 test without approval: sluice init --template coding --project DIR (see docs/coding-agents.md)",
            );
        }
    }

    fn changes(&self, place: &SetupPaths) -> Vec<ClientFileChange> {
        let of = |scope, hooks| recipes::of(self.client, hooks, scope, place);
        if !self.undo {
            return of(self.scope.unwrap_or(SetupScope::Project), self.hooks);
        }
        let scopes = self.scope.map_or_else(|| vec![SetupScope::Project, SetupScope::User], |scope| vec![scope]);
        // The entries with and without hooks differ.
        scopes.into_iter().flat_map(|scope| [of(scope, true), of(scope, false)]).flatten().collect()
    }

    /// The configuration of the gateway, if there is one. An unreadable configuration is an error, because the client
    /// would get the wrong address.
    fn gateway(&self) -> Result<Option<Config>, CliError> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            return Ok(None);
        }
        let name = settings.name();
        let loaded = settings.loaded.map_err(|errors| {
            CliError::new(CommandExit::Failed, format!("`{name}` cannot be used to find the gateway"))
                .why(errors.faults.first().map_or_else(String::new, |fault| fault.message.clone()))
                .hint("see all problems: sluice config check; or give both: --url URL --key-file FILE")
        })?;
        Ok(Some(loaded.0))
    }

    /// The address of the gateway and the agent key, from the command line or from the configuration.
    fn found(&self) -> Result<(String, PathBuf), CliError> {
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
                return Err(CliError::new(CommandExit::NotFound, "no gateway found to configure the client for")
                    .why("no sluice.yaml in this folder, in a parent folder or in the user's configuration")
                    .hint("create one: sluice init; or give its configuration: --config FILE; or give both: --url URL --key-file FILE"));
            }
        };
        Ok((url, key))
    }

    fn place(&self) -> Result<SetupPaths, CliError> {
        let home = variable("HOME")?.ok_or_else(|| CliError::new(CommandExit::Failed, "no home folder is known"))?;
        let io = |error: std::io::Error| {
            CliError::new(CommandExit::Failed, "this path cannot be used").why(describe_io_error(&error))
        };
        let (url, key) = self.found()?;
        let key = if self.undo {
            key
        } else {
            key.canonicalize().map_err(|error| {
                CliError::new(CommandExit::NotFound, format!("no key file at `{}`", key.display()))
                    .why(describe_io_error(&error))
                    .hint("create one: sluice keys create --agent NAME --out FILE")
            })?
        };
        let task_key = match &self.task_key_file {
            Some(file) => Some(file.canonicalize().map_err(|error| {
                CliError::new(CommandExit::NotFound, format!("no task key file at `{}`", file.display()))
                    .why(describe_io_error(&error))
                    .hint("create one: sluice keys create --task-for AGENT --out FILE")
            })?),
            None => Some(key.with_extension("task")).filter(|beside| beside.is_file()),
        };
        Ok(SetupPaths {
            home: home.into(),
            here: std::env::current_dir().map_err(io)?,
            program: std::env::current_exe().map_err(io)?.display().to_string(),
            url,
            key: key.display().to_string(),
            task_key: task_key.map(|file| file.display().to_string()),
        })
    }

    /// The new content of a file; `None` if it can only be printed for editing by hand.
    fn edited(
        &self,
        file: &Path,
        changes: &[&ClientFileChange],
        screen: &CommandConsole,
    ) -> Result<Option<EditedClientFile>, CliError> {
        let before = read(file)?;
        let mut after = before.clone().unwrap_or_default();
        for change in changes {
            after = match change.edit.apply(&after) {
                Ok(after) => after,
                Err(why) if self.print => return bare(file, &why, changes, screen).map(|()| None),
                Err(why) => {
                    return Err(CliError::new(CommandExit::Conflict, format!("`{}` was not changed", file.display()))
                        .why(why)
                        .hint("nothing was written; to see the entries: --print"));
                }
            };
        }
        Ok(Some(EditedClientFile { file: file.to_owned(), before, after }))
    }

    fn apply(&self, edited: &EditedClientFile, screen: &CommandConsole) -> Result<(), CliError> {
        let EditedClientFile { file, before, after } = edited;
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

/// A file with its current and its new content.
struct EditedClientFile {
    file: PathBuf,
    before: Option<String>,
    after: String,
}

/// Prints the entries for a file that cannot be edited.
fn bare(file: &Path, why: &str, changes: &[&ClientFileChange], screen: &CommandConsole) -> Result<(), CliError> {
    screen.note(format_args!("{}: {why}; add this by hand", file.display()));
    let mut text = String::new();
    for change in changes {
        text = change
            .edit
            .apply(&text)
            .map_err(|why| CliError::new(CommandExit::Failed, "the entries cannot be shown").why(why))?;
    }
    screen.raw(text.as_bytes())?;
    Ok(())
}

/// The file that stores the former content.
fn kept(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-sluice");
    file.with_file_name(name)
}

/// Stores the former content once: `--undo` restores the first one. What we write now is recognised by its fingerprint.
/// Once somebody else has changed the file between two of our writes, the first content is not restored any more.
fn keep(file: &Path, before: Option<&str>, after: &str) -> Result<(), CliError> {
    let place = kept(file);
    let earlier = read(&place)?.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let (first, alone) = match &earlier {
        Some(kept) => (kept.get("before").cloned().unwrap_or(Value::Null), is_ours(kept, before)),
        None => (json!(before), true),
    };
    write(&place, &json!({"before": first, "wrote": print(after), "alone": alone}).to_string())
}

/// Whether a file is as we wrote it, and nobody else has changed it since our first write.
fn is_ours(kept: &Value, now: Option<&str>) -> bool {
    let alone = kept.get("alone").and_then(Value::as_bool).unwrap_or(true);
    alone && now.map(print).is_some_and(|now| kept.get("wrote").and_then(Value::as_str) == Some(&now))
}

fn print(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Restores the former content; if somebody else has changed the file since, removes only our entries.
fn undo(file: &Path, changes: &[&ClientFileChange], screen: &CommandConsole) -> Result<(), CliError> {
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
            // A file that we created and that has no other content is removed.
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

fn by_hand(file: &Path, why: String) -> CliError {
    CliError::new(CommandExit::Conflict, format!("`{}` has changed since", file.display()))
        .why(why)
        .hint("remove the entries named sluice by hand")
}

/// The file behind a link: a link stays a link.
fn target(file: &Path) -> PathBuf {
    if let Ok(target) = fs::canonicalize(file) {
        return target;
    }
    match fs::read_link(file) {
        Ok(to) => file.parent().map_or(to.clone(), |folder| folder.join(to)),
        Err(_) => file.to_owned(),
    }
}

fn read(file: &Path) -> Result<Option<String>, CliError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::new(CommandExit::Failed, format!("cannot read `{}`", file.display()))
            .why(describe_io_error(&error))),
    }
}

/// Writes a file atomically, with its former mode.
fn write(file: &Path, text: &str) -> Result<(), CliError> {
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

fn unwritable(file: &Path, error: &std::io::Error) -> CliError {
    CliError::new(CommandExit::Failed, format!("cannot write `{}`", file.display())).why(describe_io_error(error))
}

/// Removed and added lines, without the common beginning and end.
fn difference(before: &str, after: &str, screen: &CommandConsole) -> Result<(), CliError> {
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
