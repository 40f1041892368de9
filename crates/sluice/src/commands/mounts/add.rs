//! `sluice mounts add`: adds a server to `sluice.yaml`, and the gateway loads it.
//!
//! Takes a recipe, or a command or address with its permissions; gives the lines below `mounts:`. Promise: a
//! configuration that is invalid afterwards is restored, and nothing else in the file changes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::import::{self, InstallArgs, PlanTerms, ServerPlan};
use super::launch::{self, DescribedServer, ServerLaunch};
use super::set::{self, ProposalAnswer};
use super::{file, reload};
use crate::client::GatewayArgs;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Add a server to sluice.yaml.
#[derive(Debug, Args)]
pub(crate) struct MountsAddArgs {
    /// A recipe file, or the name of a server that the options describe
    recipe_or_name: String,
    /// Value for `{key}` in a recipe
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Address of the server
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    at: Option<String>,
    /// Secret of the vault that is sent to the address
    #[arg(long, requires = "at")]
    secret: Option<String>,
    /// How the secret is sent: `bearer`, `basic`, `header X-Api-Key`, `query key`
    #[arg(long, requires = "secret")]
    credential: Option<String>,
    /// File or folder that the program may read and execute
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// File or folder that the program may read and change
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Host that the program may reach
    #[arg(long, value_name = "HOST")]
    network: Vec<String>,
    /// Environment variable of the program; `NAME=vault:SECRET` takes it from the vault
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// State the facts that the gateway proposes about the tools, without asking
    #[arg(long)]
    accept_facts: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    install: InstallArgs,
    /// The program and its arguments; `npx PACKAGE`, `uvx PACKAGE` and the like install the package once
    #[arg(last = true)]
    command: Vec<String>,
}

impl MountsAddArgs {
    pub(super) fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        self.with_package(reach, screen)?.write(reach, screen)
    }

    /// The options for a server that was planned.
    pub(super) fn of_plan(
        name: String,
        plan: ServerPlan,
        write: Vec<PathBuf>,
        (accept_facts, print): (bool, bool),
    ) -> Self {
        let install = InstallArgs { yes: false, allow_scripts: false, accept_network: false, into: None };
        let ServerPlan { url, secret, credential, command, env, read, network, remarks: _ } = plan;
        Self {
            recipe_or_name: name,
            set: Vec::new(),
            at: url,
            secret,
            credential,
            read,
            write,
            network,
            env,
            accept_facts,
            print,
            install,
            command,
        }
    }

    /// With the program of a package in the place of the command that would fetch the package at each start.
    fn with_package(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<Self, CliError> {
        let Some((command, args)) = self.command.split_first() else { return Ok(self) };
        let launch = launch::launch(command, args).map_err(|why| {
            CliError::new(CommandExit::Usage, "the command cannot be used").why(crate::escape::escape_line(&why))
        })?;
        if let ServerLaunch::Program { .. } | ServerLaunch::Address { .. } = launch {
            return Ok(self);
        }
        let server = DescribedServer { name: None, launch, env: Vec::new() };
        let terms = PlanTerms { name: &self.recipe_or_name, install: &self.install, base: &import::base(reach)? };
        let ServerPlan { command, read, network, .. } = import::plan(screen, server, &terms)?;
        Ok(Self { command, read: [self.read, read].concat(), network: [self.network, network].concat(), ..self })
    }

    /// Writes the lines, and makes the gateway load them.
    pub(super) fn write(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let block = self.block()?;
        if self.print {
            screen.raw(block.as_bytes())?;
            return Ok(CommandExit::Ok);
        }
        let changed = file::change(reach.which(), screen, |before| Ok(file::joined(before, &block)))?;
        let lost = changed.before.iter().flatten().any(|mount| !changed.after.contains(mount));
        if lost {
            return Err(changed.put_back("another mount would have changed"));
        }
        let known = |name: &str| changed.before.iter().flatten().any(|mount| mount.name == name);
        let new: Vec<String> =
            changed.after.iter().map(|mount| mount.name.clone()).filter(|name| !known(name)).collect();
        let exit = reload::reload_and_show(reach, screen, &changed.file, new.clone())?;
        let answer = if self.accept_facts { ProposalAnswer::Accept } else { ProposalAnswer::Ask };
        for name in new {
            set::propose(reach, screen, &name, answer)?;
        }
        Ok(exit)
    }

    /// The lines below `mounts:`.
    fn block(&self) -> Result<String, CliError> {
        let path = Path::new(&self.recipe_or_name);
        let by_hand = self.at.is_some() || !self.command.is_empty();
        if !by_hand && path.is_file() {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| {
                CliError::new(CommandExit::Failed, "the recipe cannot be read").why(describe_io_error(&error))
            })?;
            return self.recipe(&text);
        }
        if !by_hand {
            return Err(CliError::new(CommandExit::Usage, format!("no recipe file `{}`", self.recipe_or_name))
                .hint("give a file, or describe a server: --at URL, or -- COMMAND ARGS"));
        }
        self.described()
    }

    fn recipe(&self, text: &str) -> Result<String, CliError> {
        let mut text = text.to_owned();
        for pair in &self.set {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| CliError::new(CommandExit::Usage, format!("`{pair}` is not in the form KEY=VALUE")))?;
            text = text.replace(&format!("{{{key}}}"), value);
        }
        let below: Vec<&str> = text.lines().skip_while(|line| line.trim_end() != "mounts:").skip(1).collect();
        let below: String = below.iter().flat_map(|line| [*line, "\n"]).collect();
        if let Some(open) = placeholder(&below) {
            let hint = format!("add --set {open}=…");
            return Err(CliError::new(CommandExit::Usage, format!("the recipe needs a value for `{open}`")).hint(hint));
        }
        if below.trim().is_empty() {
            return Err(CliError::new(CommandExit::Usage, "the recipe has nothing below `mounts:`"));
        }
        Ok(below)
    }

    fn described(&self) -> Result<String, CliError> {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
        let paths = |items: &[PathBuf]| items.iter().map(|item| item.display().to_string()).collect::<Vec<_>>();
        let mut block = format!("  {}:\n", self.recipe_or_name);
        // Writing to a string cannot fail.
        if let Some(url) = &self.at {
            let _ = writeln!(block, "    url: {}", quoted(url));
        }
        if let Some(secret) = &self.secret {
            let _ = writeln!(block, "    secret: {}", quoted(secret));
        }
        if let Some(credential) = &self.credential {
            let _ = writeln!(block, "    credential: {}", quoted(credential));
        }
        if let Some((command, args)) = self.command.split_first() {
            let _ = writeln!(block, "    command: {}", quoted(command));
            if !args.is_empty() {
                let _ = writeln!(block, "    args: [{}]", list(args));
            }
        }
        if !self.env.is_empty() {
            let _ = writeln!(block, "    env:");
        }
        for pair in &self.env {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| CliError::new(CommandExit::Usage, format!("`{pair}` is not in the form NAME=VALUE")))?;
            let _ = writeln!(block, "      {name}: {}", quoted(value));
        }
        if !self.read.is_empty() || !self.write.is_empty() {
            let (read, write) = (list(&paths(&self.read)), list(&paths(&self.write)));
            let _ = writeln!(block, "    files: {{read: [{read}], write: [{write}]}}");
        }
        if !self.network.is_empty() {
            let _ = writeln!(block, "    network: [{}]", list(&self.network));
        }
        Ok(block)
    }
}

/// The first `{key}` that is not replaced yet.
fn placeholder(text: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    let keys = text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(key, _)| key));
    keys.filter(|key| !key.is_empty()).find(|key| key.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recipe_still_needs_is_named() {
        assert_eq!(placeholder("command: \"{installed}/bin/x\""), Some("installed"));
        assert_eq!(placeholder("files: {read: [/a], write: [/b]}"), None);
    }
}
