//! `sluice init`: creates a folder for a new gateway.
//!
//! Creates the configuration, policies, a workspace, the database and the first two keys. Promise: everything is
//! created in a temporary folder and moved at the end, so that a failure leaves nothing half done; nothing that
//! exists is overwritten.

mod database;
mod user_config;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use sluice_config::{Config, ConfigContext, FILE, schema};
use sluice_core::policy::{PolicyTemplate, TEMPLATES};
use sluice_core::{AgentName, NodeName};
use sluice_gateway::keys::{KeyToken, TokenKind};
use zeroize::Zeroizing;

use crate::commands::policy;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::host_name;
use crate::system::SystemEntropy;

const YAML: &str = include_str!("init/sluice.yaml");
const SCHEMA: &str = "sluice.schema.json";
/// File in the data folder that holds the URL of a PostgreSQL server.
const DATABASE_URL: &str = "database.url";
/// The section of the configuration about it.
const SHARED_DATABASE: &str = "\n# State is kept by a PostgreSQL server that several gateways may share.\n\
database:\n  url_file: data/database.url\n";
/// What is created, in the order in which it is moved: the configuration last, because with it the folder becomes a
/// gateway.
const PARTS: [&str; 5] = ["data", "policies", "workspace", SCHEMA, FILE];

/// Create a folder for a new gateway.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice init\n  sluice init --dir gate --template team --agent bookkeeper --yes\n  sluice init --dir gate --database-url-file url.txt"
)]
pub(crate) struct InitCommand {
    /// Folder to create the gateway in
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Policies to start with: coding, personal, team or strict
    #[arg(long, default_value = "personal", value_parser = ["coding", "personal", "team", "strict"])]
    template: String,
    /// Name of the first agent; default: the one in the template
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// PostgreSQL server that stores the state, for gateways that share it: postgres://…
    #[arg(long, value_name = "URL", conflicts_with = "database_url_file")]
    database_url: Option<String>,
    /// File with that URL, so that its password is not visible in the process list
    #[arg(long, value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// Project folder of the first agent, for the template `coding`; default: `workspace`
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What will be created.
struct InitPlan {
    dir: PathBuf,
    template: &'static PolicyTemplate,
    /// The agent name in the template.
    written_for: &'static str,
    agent: AgentName,
    node: NodeName,
    /// The PostgreSQL server that stores the state; otherwise a file does.
    server: Option<Zeroizing<String>>,
    /// The project folder of the agent, if it is not `workspace`.
    project: Option<PathBuf>,
}

impl InitCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let plan = self.plan()?;
        if !self.yes {
            ask(&plan, screen)?;
        }
        let InitialCredentials { agent: agent_key, operator: operator_token, .. } = plan.make()?;
        let dir = plan.dir.as_path();
        let linked = user_config::link(&dir.join(FILE))?;
        let key_file = dir.join("data/agents").join(format!("{}.key", plan.agent));
        let token_file = dir.join("data/operator.token");
        if self.json {
            screen.json(&json!({
                "dir": dir, "config": dir.join(FILE), "template": plan.template.name, "agent": plan.agent,
                "agent_key_file": key_file, "operator_token_file": token_file, "user_config": linked,
            }))?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("created       {}", dir.display()))?;
        screen.line(format_args!("agent         {} (template {})", plan.agent, plan.template.name))?;
        screen.line(format_args!("agent key     {}", key_file.display()))?;
        screen.line(format_args!("your token    {}", token_file.display()))?;
        // SECURITY: on a terminal only. A pipe may be a log, and the files contain the same.
        if io::stdout().is_terminal() {
            screen.line(format_args!("\nshown once:\n  agent key   {}", agent_key.expose()))?;
            screen.line(format_args!("  your token  {}\n", operator_token.expose()))?;
        }
        // With the link, every command finds this gateway from any folder.
        let named = if linked.is_some() { String::new() } else { format!(" --config {}/{FILE}", dir.display()) };
        let hooks = if plan.template.name == "coding" { " --hooks" } else { "" };
        screen.note(format_args!(
            "next:\n  1. start the gateway:       sluice serve{named}\n  \
             2. connect a client:        sluice setup claude-code{hooks}{named}\n     \
             (or codex, gemini, cursor, vscode, claude-desktop; it uses the agent key above)\n  \
             3. check this machine:      sluice doctor{named}\n  \
             4. read the rules:          {}/policies",
            dir.display()
        ));
        Ok(CommandExit::Ok)
    }

    fn plan(&self) -> Result<InitPlan, CliError> {
        let template = TEMPLATES
            .iter()
            .find(|template| template.name == self.template)
            .ok_or_else(|| CliError::new(CommandExit::NotFound, "unknown template"))?;
        let written_for = template
            .files
            .iter()
            .find_map(|file| file.path.strip_prefix("agents/")?.strip_suffix(".yaml"))
            .ok_or_else(|| CliError::new(CommandExit::Failed, "the template contains no agent"))?;
        let named = |why: sluice_core::ids::NameError| CliError::new(CommandExit::Failed, why.to_string());
        let agent = self.agent.clone().map_or_else(|| AgentName::new(written_for).map_err(named), Ok)?;
        let around = ConfigContext { host: host_name(), ..ConfigContext::default() };
        let (defaults, _) = Config::load(None, &[], &around).map_err(|errors| {
            CliError::new(CommandExit::Failed, "the default configuration is invalid").why(errors.to_string())
        })?;
        let dir = std::path::absolute(&self.dir).map_err(|error| cannot("use", &self.dir, &error))?;
        if let Some(taken) = PARTS.iter().map(|part| dir.join(part)).find(|path| path.symlink_metadata().is_ok()) {
            return Err(CliError::new(CommandExit::Conflict, format!("`{}` already exists", taken.display()))
                .why("nothing is overwritten")
                .hint("choose another folder: sluice init --dir gate"));
        }
        let project = match &self.project {
            None => None,
            Some(_) if template.name != "coding" => {
                return Err(CliError::new(CommandExit::Usage, "--project works only with the template `coding`"));
            }
            Some(project) => Some(fs::canonicalize(project).map_err(|error| cannot("use", project, &error))?),
        };
        let server = self.server()?;
        Ok(InitPlan { dir, template, written_for, agent, node: defaults.node, server, project })
    }
}

impl InitCommand {
    /// The URL of the PostgreSQL server, if one was given.
    fn server(&self) -> Result<Option<Zeroizing<String>>, CliError> {
        let text = match (&self.database_url, &self.database_url_file) {
            (Some(url), _) => Zeroizing::new(url.clone()),
            (None, Some(file)) => {
                Zeroizing::new(fs::read_to_string(file).map_err(|error| cannot("read", file, &error))?)
            }
            (None, None) => return Ok(None),
        };
        let url = text.trim();
        // SECURITY: the value is not shown; it may contain a password.
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(CliError::new(CommandExit::Usage, "the database URL must start with `postgres://`"));
        }
        Ok(Some(Zeroizing::new(url.to_owned())))
    }
}

/// Asks for confirmation.
fn ask(plan: &InitPlan, screen: &CommandConsole) -> Result<(), CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::new(CommandExit::Usage, "confirmation needed, but stdin is not a terminal")
            .why("this command asks before it creates anything")
            .hint("add --yes"));
    }
    screen.note(format_args!(
        "This creates a gateway in {} for the agent `{}` with the policies `{}`:\n  {}",
        plan.dir.display(),
        plan.agent,
        plan.template.name,
        plan.template.summary
    ));
    write!(io::stderr().lock(), "Continue? [Y/n] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    // The end of input is not an answer.
    match answer.as_str().trim_end_matches(['\n', '\r']).to_ascii_lowercase().as_str() {
        "" if answer.is_empty() => Err(CliError::new(CommandExit::Usage, "no answer was given; nothing was created")),
        "" | "y" | "yes" => Ok(()),
        _ => Err(CliError::new(CommandExit::Failed, "not confirmed; nothing was created")),
    }
}

/// The first credentials of a gateway.
struct InitialCredentials {
    agent: KeyToken,
    operator: KeyToken,
    /// States what the agent's user asked for. It is stored only in its file.
    task: KeyToken,
}

impl InitPlan {
    /// Creates everything in a temporary folder, then moves it.
    fn make(&self) -> Result<InitialCredentials, CliError> {
        fs::create_dir_all(&self.dir).map_err(|error| cannot("create", &self.dir, &error))?;
        let dir = fs::canonicalize(&self.dir).map_err(|error| cannot("use", &self.dir, &error))?;
        let stage = tempfile::Builder::new()
            .prefix(".sluice-init-")
            .tempdir_in(&dir)
            .map_err(|error| cannot("write in", &dir, &error))?;
        let staged = stage.path();
        let keys = self.data(&staged.join("data"))?;
        self.policies(&staged.join("policies"), &dir)?;
        folder(&staged.join("workspace"), 0o755)?;
        write(&staged.join(SCHEMA), schema().as_bytes(), 0o644)?;
        let database = if self.server.is_some() { SHARED_DATABASE } else { "" };
        let yaml = YAML.replace("{{node}}", self.node.as_str()).replace("{{agent}}", self.agent.as_str());
        write(&staged.join(FILE), (yaml + database).as_bytes(), 0o644)?;
        check(staged)?;
        // Last, because a server keeps its changes even if nothing is moved.
        let place = match &self.server {
            Some(url) => database::InitDatabaseLocation::Server(url),
            None => database::InitDatabaseLocation::File(&staged.join("data/sluice.db")),
        };
        database::create_database(place, &self.node, &self.agent, &keys)?;
        for (n, part) in PARTS.iter().enumerate() {
            let moved = renameat_with(CWD, staged.join(part), CWD, dir.join(part), RenameFlags::NOREPLACE);
            if let Err(error) = moved {
                // What was moved goes back into the temporary folder, which is removed.
                for part in PARTS.iter().take(n) {
                    let _ = fs::rename(dir.join(part), staged.join(part));
                }
                return Err(cannot("create", &dir.join(part), &error.into()));
            }
        }
        Ok(keys)
    }

    /// Creates the data folder with the first keys.
    fn data(&self, data: &Path) -> Result<InitialCredentials, CliError> {
        folder(data, 0o700)?;
        folder(&data.join("agents"), 0o700)?;
        let agent = KeyToken::generate(TokenKind::Agent, &SystemEntropy);
        let operator = KeyToken::generate(TokenKind::Operator, &SystemEntropy);
        let made = InitialCredentials { agent, operator, task: KeyToken::generate(TokenKind::Task, &SystemEntropy) };
        if let Some(url) = &self.server {
            write(&data.join(DATABASE_URL), url.as_bytes(), 0o600)?;
        }
        let agents = data.join("agents");
        for (path, token) in [
            (agents.join(format!("{}.key", self.agent)), &made.agent),
            (agents.join(format!("{}.task", self.agent)), &made.task),
            (data.join("operator.token"), &made.operator),
        ] {
            write(&path, token.expose().as_bytes(), 0o600)?;
        }
        Ok(made)
    }

    /// Writes the files of the template, for this agent and this folder.
    fn policies(&self, policies: &Path, dir: &Path) -> Result<(), CliError> {
        let workspace = match &self.project {
            Some(project) => format!("{}/", project.display()),
            None => format!("{}/workspace/", dir.display()),
        };
        let plain = |c: char| c.is_alphanumeric() || "/-_.+@=".contains(c);
        if !workspace.chars().all(plain) {
            return Err(CliError::new(
                CommandExit::Usage,
                format!("the path `{}` cannot be used in a rule", dir.display()),
            )
            .why("it contains characters with a meaning in YAML or at the end of a rule")
            .hint("choose a folder name of letters, digits, `-`, `_` and `.`"));
        }
        for file in self.template.files {
            let path =
                file.path.replace(&format!("agents/{}.yaml", self.written_for), &format!("agents/{}.yaml", self.agent));
            let path = policies.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
            }
            let text = file.text.replace(&format!("/workspace/{}/", self.written_for), &workspace);
            write(&path, text.as_bytes(), 0o644)?;
        }
        Ok(())
    }
}

/// Checks that a gateway accepts what was created.
fn check(staged: &Path) -> Result<(), CliError> {
    let damaged =
        |why: String| CliError::new(CommandExit::Failed, "the new files do not load; nothing was created").why(why);
    let around = ConfigContext { here: staged.to_owned(), ..ConfigContext::default() };
    Config::load(Some(&staged.join(FILE)), &[], &around).map_err(|errors| damaged(errors.to_string()))?;
    let loaded = policy::load(&staged.join("policies"))?.map_err(|errors| damaged(errors.to_string()))?;
    match loaded.policy.test().iter().find(|outcome| !outcome.passed) {
        Some(failed) => Err(damaged(failed.as_fault().to_string())),
        None => Ok(()),
    }
}

fn folder(path: &Path, mode: u32) -> Result<(), CliError> {
    fs::DirBuilder::new().mode(mode).create(path).map_err(|error| cannot("create", path, &error))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(bytes)?;
        if !bytes.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        file.sync_all()
    });
    written.map_err(|error| cannot("write", path, &error))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> CliError {
    CliError::new(CommandExit::Failed, format!("cannot {what} `{}`", path.display())).why(describe_io_error(error))
}
