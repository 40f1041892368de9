//! `sluice init`: a folder a gateway can start in.
//!
//! Makes configuration, policies, a workspace, the database and the first two keys. Promise: everything is
//! made beside and moved into place at the end, so that a failure leaves nothing half done; nothing that
//! exists is overwritten.

mod database;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use sluice_core::policy::{TEMPLATES, Template};
use sluice_core::{AgentName, NodeName};
use sluice_gateway::config::{Around, Config, FILE, schema};
use sluice_gateway::keys::{KindWord, Token};

use crate::commands::policy;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::settings::host_name;
use crate::system::SystemEntropy;

const YAML: &str = include_str!("init/sluice.yaml");
const SCHEMA: &str = "sluice.schema.json";
/// What is made, in the order in which it is moved into place: the configuration last, because it makes the
/// folder one of a gateway.
const PARTS: [&str; 5] = ["data", "policies", "workspace", SCHEMA, FILE];

/// Make a folder a gateway can start in.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice init\n  sluice init --dir gate --template team --agent bookkeeper --yes")]
pub(crate) struct Init {
    /// Where
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Policies to start from: coding, personal, team or strict
    #[arg(long, default_value = "personal", value_parser = ["coding", "personal", "team", "strict"])]
    template: String,
    /// Name of the first agent; otherwise the one of the template
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Folder the first agent works in, for the template `coding`; otherwise `workspace`
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// What is to be made.
struct Plan {
    dir: PathBuf,
    template: &'static Template,
    /// The agent the template is written for.
    written_for: &'static str,
    agent: AgentName,
    node: NodeName,
    /// Where the agent works, if not in `workspace`.
    project: Option<PathBuf>,
}

impl Init {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let plan = self.plan()?;
        if !self.yes {
            ask(&plan, screen)?;
        }
        let (agent_key, operator_token) = plan.make()?;
        let dir = plan.dir.as_path();
        let key_file = dir.join("data/agents").join(format!("{}.key", plan.agent));
        let token_file = dir.join("data/operator.token");
        if self.json {
            screen.json(&json!({
                "dir": dir, "config": dir.join(FILE), "template": plan.template.name, "agent": plan.agent,
                "agent_key_file": key_file, "operator_token_file": token_file,
            }))?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("made          {}", dir.display()))?;
        screen.line(format_args!("agent         {} (template {})", plan.agent, plan.template.name))?;
        screen.line(format_args!("agent key     {}", key_file.display()))?;
        screen.line(format_args!("your token    {}", token_file.display()))?;
        // SECURITY: on a terminal only. A pipe is a log somewhere, and the files hold the same.
        if io::stdout().is_terminal() {
            screen.line(format_args!("\nshown once:\n  agent key   {}", agent_key.expose()))?;
            screen.line(format_args!("  your token  {}\n", operator_token.expose()))?;
        }
        screen.note(format_args!(
            "next:\n  1. look at {0}/policies and try: sluice policy check {0}/policies\n  \
             2. check this machine: sluice doctor --config {0}/{FILE}\n  \
             3. start it: sluice serve --config {0}/{FILE}\n  \
             4. give the agent its key, and move it off this machine or delete the file",
            dir.display()
        ));
        Ok(Exit::Ok)
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let template = TEMPLATES
            .iter()
            .find(|template| template.name == self.template)
            .ok_or_else(|| Failure::new(Exit::NotFound, "there is no such template"))?;
        let written_for = template
            .files
            .iter()
            .find_map(|file| file.path.strip_prefix("agents/")?.strip_suffix(".yaml"))
            .ok_or_else(|| Failure::new(Exit::Failed, "the template has no agent"))?;
        let named = |why: sluice_core::ids::NameError| Failure::new(Exit::Failed, why.to_string());
        let agent = self.agent.clone().map_or_else(|| AgentName::new(written_for).map_err(named), Ok)?;
        let around = Around { host: host_name(), ..Around::default() };
        let (defaults, _) = Config::load(None, &[], &around)
            .map_err(|errors| Failure::new(Exit::Failed, "there are no defaults").why(errors.to_string()))?;
        let dir = std::path::absolute(&self.dir).map_err(|error| cannot("use", &self.dir, &error))?;
        if let Some(taken) = PARTS.iter().map(|part| dir.join(part)).find(|path| path.symlink_metadata().is_ok()) {
            return Err(Failure::new(Exit::Conflict, format!("`{}` exists already", taken.display()))
                .why("nothing is overwritten")
                .hint("choose another folder: sluice init --dir gate"));
        }
        let project = match &self.project {
            None => None,
            Some(_) if template.name != "coding" => {
                return Err(Failure::new(Exit::Usage, "only the template `coding` has a project"));
            }
            Some(project) => Some(fs::canonicalize(project).map_err(|error| cannot("use", project, &error))?),
        };
        Ok(Plan { dir, template, written_for, agent, node: defaults.node, project })
    }
}

/// Asks a person whether to go ahead.
fn ask(plan: &Plan, screen: &Screen) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "there is nobody to ask")
            .why("standard input is not a terminal")
            .hint("add --yes"));
    }
    screen.note(format_args!(
        "This makes a gateway in {} for the agent `{}` with the policies `{}`:\n  {}",
        plan.dir.display(),
        plan.agent,
        plan.template.name,
        plan.template.summary
    ));
    write!(io::stderr().lock(), "Go ahead? [Y/n] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    // The end of input is no answer.
    match answer.as_str().trim_end_matches(['\n', '\r']).to_ascii_lowercase().as_str() {
        "" if answer.is_empty() => Err(Failure::new(Exit::Usage, "nothing was answered; nothing was made")),
        "" | "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Failed, "nothing was made")),
    }
}

impl Plan {
    /// Makes everything beside, then moves it into place.
    fn make(&self) -> Result<(Token, Token), Failure> {
        fs::create_dir_all(&self.dir).map_err(|error| cannot("make", &self.dir, &error))?;
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
        let yaml = YAML.replace("{{node}}", self.node.as_str()).replace("{{agent}}", self.agent.as_str());
        write(&staged.join(FILE), yaml.as_bytes(), 0o644)?;
        check(staged)?;
        for (n, part) in PARTS.iter().enumerate() {
            let moved = renameat_with(CWD, staged.join(part), CWD, dir.join(part), RenameFlags::NOREPLACE);
            if let Err(error) = moved {
                // What was moved goes back into the folder that is about to vanish.
                for part in PARTS.iter().take(n) {
                    let _ = fs::rename(dir.join(part), staged.join(part));
                }
                return Err(cannot("make", &dir.join(part), &error.into()));
            }
        }
        Ok(keys)
    }

    /// The data folder with the database and the first two keys.
    fn data(&self, data: &Path) -> Result<(Token, Token), Failure> {
        folder(data, 0o700)?;
        folder(&data.join("agents"), 0o700)?;
        let agent = Token::generate(KindWord::Agent, &SystemEntropy);
        let operator = Token::generate(KindWord::Operator, &SystemEntropy);
        database::found(&data.join("sluice.db"), &self.node, (&self.agent, &agent), &operator)?;
        let key_file = data.join("agents").join(format!("{}.key", self.agent));
        for (path, token) in [(key_file, &agent), (data.join("operator.token"), &operator)] {
            write(&path, token.expose().as_bytes(), 0o600)?;
        }
        Ok((agent, operator))
    }

    /// The files of the template, for this agent and this folder.
    fn policies(&self, policies: &Path, dir: &Path) -> Result<(), Failure> {
        let workspace = match &self.project {
            Some(project) => format!("{}/", project.display()),
            None => format!("{}/workspace/", dir.display()),
        };
        let plain = |c: char| c.is_alphanumeric() || "/-_.+@=".contains(c);
        if !workspace.chars().all(plain) {
            return Err(Failure::new(Exit::Usage, format!("`{}` cannot be part of a rule as it is", dir.display()))
                .why("it has characters that mean something in YAML or at the end of a rule")
                .hint("choose a folder of letters, digits, `-`, `_` and `.`"));
        }
        for file in self.template.files {
            let path =
                file.path.replace(&format!("agents/{}.yaml", self.written_for), &format!("agents/{}.yaml", self.agent));
            let path = policies.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|error| cannot("make", parent, &error))?;
            }
            let text = file.text.replace(&format!("/workspace/{}/", self.written_for), &workspace);
            write(&path, text.as_bytes(), 0o644)?;
        }
        Ok(())
    }
}

/// What was made must be what a gateway accepts.
fn check(staged: &Path) -> Result<(), Failure> {
    let damaged = |why: String| Failure::new(Exit::Failed, "what was made does not load; nothing was kept").why(why);
    let around = Around { here: staged.to_owned(), ..Around::default() };
    Config::load(Some(&staged.join(FILE)), &[], &around).map_err(|errors| damaged(errors.to_string()))?;
    let loaded = policy::load(&staged.join("policies"))?.map_err(|errors| damaged(errors.to_string()))?;
    match loaded.policy.test().iter().find(|outcome| !outcome.passed) {
        Some(failed) => Err(damaged(failed.as_fault().to_string())),
        None => Ok(()),
    }
}

fn folder(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::DirBuilder::new().mode(mode).create(path).map_err(|error| cannot("make", path, &error))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
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

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot {what} `{}`", path.display())).why(io_words(error))
}
