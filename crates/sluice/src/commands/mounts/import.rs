//! `sluice mounts import`: servers from a pasted README block, or from the `mcpServers` of a client.
//!
//! Takes text or JSON, or a command such as `npx -y PACKAGE`; gives plans that `mounts add` writes. Promise: the text
//! never goes through a shell; a value that looks like a secret is not written to `sluice.yaml`; a host is added only if
//! a person agreed to it.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_config::is_mount_name;

use super::add::MountsAddArgs;
use super::install::{self, InstallTerms, InstalledServer, PackageRegistry};
use super::launch::{self, DescribedServer, ServerLaunch, printable};
use crate::client::GatewayArgs;
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Words in names of variables that hold secrets.
const SECRETS: [&str; 8] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "PAT"];

/// How a package is installed, and what a person agreed to beforehand.
#[derive(Debug, Clone, Args)]
pub(super) struct InstallArgs {
    /// Install the package without asking
    #[arg(long)]
    pub(super) yes: bool,
    /// Let packages run their install scripts, outside of the sandbox
    #[arg(long)]
    pub(super) allow_scripts: bool,
    /// Allow the hosts that the package's own files name
    #[arg(long)]
    pub(super) accept_network: bool,
    /// Folder that the package is installed into; by default servers/NAME beside sluice.yaml
    #[arg(long, value_name = "DIR")]
    pub(super) into: Option<PathBuf>,
}

/// Import servers from a file.
#[derive(Debug, Args)]
pub(super) struct MountsImportArgs {
    /// A file with `mcpServers` JSON or launch lines; `-` reads standard input
    file: PathBuf,
    /// Name of the server; needed for a launch line, and selects one of several
    #[arg(long)]
    name: Option<String>,
    /// File or folder that the program may read and execute
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// File or folder that the program may read and change
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Host that the program may reach
    #[arg(long, value_name = "HOST")]
    network: Vec<String>,
    #[command(flatten)]
    install: InstallArgs,
    /// State the facts that the gateway proposes about the tools, without asking
    #[arg(long)]
    accept_facts: bool,
    /// Show what would be written, and write nothing; packages are installed all the same
    #[arg(long)]
    print: bool,
}

/// What `mounts add` writes about one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ServerPlan {
    pub(super) url: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) credential: Option<String>,
    pub(super) command: Vec<String>,
    /// Pairs `NAME=VALUE`.
    pub(super) env: Vec<String>,
    pub(super) read: Vec<PathBuf>,
    pub(super) network: Vec<String>,
    /// What a person should know, one sentence each.
    pub(super) remarks: Vec<String>,
}

impl MountsImportArgs {
    pub(super) fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let text = if self.file == Path::new("-") {
            let mut text = String::new();
            io::stdin().lock().take(1 << 20).read_to_string(&mut text).map(|_| text)
        } else {
            fs::read_to_string(&self.file)
        };
        let text = text.map_err(|error| {
            CliError::new(CommandExit::NotFound, format!("`{}` cannot be read", self.file.display()))
                .why(describe_io_error(&error))
        })?;
        let refused = |why: String| {
            CliError::new(CommandExit::Failed, "the text was refused; nothing was done")
                .why(escape::escape_line(&why))
                .hint("give launch lines such as `npx -y PACKAGE ARGS`, or JSON with `mcpServers`")
        };
        let found = launch::read(&text).map_err(refused)?;
        let several = found.len() > 1;
        let mut exit = CommandExit::Ok;
        let mut any = false;
        for server in found {
            let own = server.name.as_deref().map(name_for);
            let name = match (&self.name, own) {
                (Some(wanted), Some(own)) if several && own != *wanted => continue,
                (Some(wanted), _) if !several || server.name.is_some() => wanted.clone(),
                (None, Some(own)) => own,
                _ => {
                    return Err(refused(
                        "a launch line has no name: add --name NAME, and give one line at a time".into(),
                    ));
                }
            };
            any = true;
            let terms = PlanTerms { name: &name, install: &self.install, base: &base(reach)? };
            let mut plan = plan(screen, server, &terms)?;
            plan.network.extend(self.network.iter().cloned());
            plan.read.extend(self.read.iter().cloned());
            let add = MountsAddArgs::of_plan(name, plan, self.write.clone(), (self.accept_facts, self.print));
            match add.write(reach, screen)? {
                CommandExit::Ok => {}
                other => exit = other,
            }
        }
        if any {
            Ok(exit)
        } else {
            Err(refused(format!("it has no server `{}`", self.name.as_deref().unwrap_or_default())))
        }
    }
}

/// The folder beside which servers are installed.
pub(super) fn base(reach: &GatewayArgs) -> Result<PathBuf, CliError> {
    let file = reach.which().file()?;
    let here = file.as_deref().and_then(Path::parent).map_or_else(|| PathBuf::from("."), Path::to_owned);
    Ok(fs::canonicalize(&here).unwrap_or(here))
}

/// What a plan is made with.
pub(super) struct PlanTerms<'t> {
    /// The name of the mount.
    pub(super) name: &'t str,
    pub(super) install: &'t InstallArgs,
    /// The folder beside which servers are installed.
    pub(super) base: &'t Path,
}

/// Plans one server; installs its package.
pub(super) fn plan(
    screen: &CommandConsole,
    server: DescribedServer,
    terms: &PlanTerms<'_>,
) -> Result<ServerPlan, CliError> {
    if !is_mount_name(terms.name) {
        return Err(CliError::new(
            CommandExit::Usage,
            format!("`{}` cannot be the name of a mount", printable(terms.name)),
        )
        .hint("a name has 1 to 32 characters of a-z, 0-9, `_` and `-`, and starts with a letter: --name NAME"));
    }
    let mut plan = ServerPlan::default();
    let package = |registry, launch: &launch::PackageLaunch| {
        let folder = match &terms.install.into {
            Some(folder) => folder.clone(),
            None => terms.base.join("servers").join(terms.name),
        };
        let agreed = terms.install.yes;
        let terms = InstallTerms { folder: &folder, agreed, scripts: terms.install.allow_scripts };
        install::install(screen, (registry, launch), &terms)
    };
    let installed = match &server.launch {
        ServerLaunch::Npm(launch) => Some(package(PackageRegistry::Npm, launch)?),
        ServerLaunch::PyPi(launch) => Some(package(PackageRegistry::PyPi, launch)?),
        ServerLaunch::Container { image } => {
            return Err(CliError::new(CommandExit::Failed, format!("`{image}` is a container image, and the gateway starts no containers"))
                .why("a program that can start containers has the whole machine")
                .hint("use its npm or PyPI package, or start the container yourself with an HTTP transport and add it: --at URL"));
        }
        ServerLaunch::Program { command, args } => {
            plan.command = [std::slice::from_ref(command), args.as_slice()].concat();
            None
        }
        ServerLaunch::Address { url, headers } => {
            plan.url = Some(url.clone());
            at_address(&mut plan, terms.name, headers)?;
            None
        }
    };
    if let Some(InstalledServer { command, read, hosts, remarks }) = installed {
        (plan.command, plan.read, plan.remarks) = (command, read, remarks);
        let hosts = agreed_hosts(screen, hosts, terms.install)?;
        plan.network.extend(hosts);
    }
    allow_arguments(&mut plan);
    for (name, value) in server.env {
        add_variable(&mut plan, terms.name, &name, &value);
    }
    plan.remarks.iter().for_each(|remark| screen.note(format_args!("note: {}", escape::escape_line(remark))));
    Ok(plan)
}

/// The hosts that a person agrees to.
fn agreed_hosts(screen: &CommandConsole, hosts: Vec<String>, install: &InstallArgs) -> Result<Vec<String>, CliError> {
    if hosts.is_empty() || install.accept_network {
        return Ok(hosts);
    }
    let list = hosts.join(", ");
    if install.yes || !io::stdin().is_terminal() {
        screen.note(format_args!(
            "its own files name these hosts: {list}; it may reach none of them. To allow one: --network HOST"
        ));
        return Ok(Vec::new());
    }
    screen.note(format_args!("its own files name these hosts: {list}"));
    match screen.confirm("Let it reach them?", "--accept-network") {
        Ok(()) => Ok(hosts),
        Err(failure) if failure.exit == CommandExit::Failed => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Files and folders that the arguments name are readable.
fn allow_arguments(plan: &mut ServerPlan) {
    let whole = ["/", "/home", "/root", "/etc", "/var", "/usr", "/srv", "/opt"];
    let named: Vec<PathBuf> = plan
        .command
        .iter()
        .skip(1)
        .map(|arg| arg.split_once('=').map_or(arg.as_str(), |(_, value)| value))
        .filter(|arg| arg.starts_with('/'))
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect();
    for path in named {
        if plan.read.iter().any(|known| path.starts_with(known)) {
            continue;
        }
        if whole.iter().any(|whole| path == Path::new(whole)) || std::env::home_dir().is_some_and(|home| path == home) {
            plan.remarks.push(format!(
                "an argument names `{}`, which is much; it was not allowed: --read PATH allows a part",
                path.display()
            ));
            continue;
        }
        plan.remarks.push(format!(
            "an argument names `{0}`; it may read it, and change it only with --write {0}",
            path.display()
        ));
        plan.read.push(path);
    }
}

/// Adds a variable; one that looks like a secret comes from the vault.
fn add_variable(plan: &mut ServerPlan, mount: &str, name: &str, value: &str) {
    let upper = name.to_ascii_uppercase();
    let is_secret = upper
        .split('_')
        .any(|word| SECRETS.iter().any(|secret| word == *secret || (secret.len() > 4 && word.contains(secret))));
    let is_blank = value.is_empty()
        || value.starts_with('<')
        || value.contains("${")
        || value.to_ascii_uppercase().starts_with("YOUR");
    if !is_secret && !is_blank {
        plan.env.push(format!("{name}={value}"));
        return;
    }
    let secret = format!("{mount}/{}", name.to_ascii_lowercase());
    plan.env.push(format!("{name}=vault:{secret}"));
    let hosts = if plan.network.is_empty() { "localhost".to_owned() } else { plan.network.join(" --host ") };
    plan.remarks.push(format!(
        "`{name}` comes from the vault and was not written down; store it: sluice secrets set {secret} --capability '{mount}.*' --host {hosts} < FILE"
    ));
}

/// The credential of a server at an address.
fn at_address(plan: &mut ServerPlan, mount: &str, headers: &[(String, String)]) -> Result<(), CliError> {
    let [(name, value)] = headers else {
        return match headers.len() {
            0 => Ok(()),
            _ => Err(CliError::new(
                CommandExit::Failed,
                "the server wants several headers; a mount sends one credential",
            )
            .hint("add it by hand: sluice mounts add NAME --at URL --secret SECRET")),
        };
    };
    let secret = format!("{mount}/key");
    let is_bearer = name.eq_ignore_ascii_case("authorization") && value.to_ascii_lowercase().starts_with("bearer");
    if !is_bearer {
        let scheme = value
            .split_once(' ')
            .filter(|_| name.eq_ignore_ascii_case("authorization"))
            .map(|(scheme, _)| format!(" {scheme}"));
        plan.credential = Some(format!("header {name}{}", scheme.unwrap_or_default()));
    }
    let host = plan.url.as_deref().and_then(|url| url.split('/').nth(2)).unwrap_or("HOST");
    let host = host.split(':').next().unwrap_or(host);
    plan.remarks.push(format!(
        "the header `{}` comes from the vault and was not written down; store its value: sluice secrets set {secret} --capability '{mount}.*' --host {} < FILE",
        printable(name), printable(host)
    ));
    plan.secret = Some(secret);
    Ok(())
}

/// A name for a mount, from the name in a client's configuration.
fn name_for(name: &str) -> String {
    let fold = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let folded: String = name.rsplit('/').next().unwrap_or(name).chars().map(fold).collect();
    folded.trim_start_matches(|c: char| !c.is_ascii_lowercase()).trim_end_matches('-').chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_client_becomes_one_of_a_mount() {
        for (name, wanted) in
            [("My Files", "my-files"), ("@scope/Thing.v2", "thing-v2"), ("1password", "password"), ("a_b", "a_b")]
        {
            assert_eq!(name_for(name), wanted);
            assert!(is_mount_name(wanted));
        }
    }

    #[test]
    fn what_looks_like_a_secret_is_not_written_down() {
        let mut plan = ServerPlan::default();
        for (name, value) in [
            ("API_KEY", "sk-live-1"),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "<token>"),
            ("REGION", "eu"),
            ("TEAM", "${input:team}"),
            ("KEYBOARD", "de"),
        ] {
            add_variable(&mut plan, "x", name, value);
        }
        assert_eq!(
            plan.env,
            [
                "API_KEY=vault:x/api_key",
                "GITHUB_PERSONAL_ACCESS_TOKEN=vault:x/github_personal_access_token",
                "REGION=eu",
                "TEAM=vault:x/team",
                "KEYBOARD=de"
            ]
        );
        assert!(!format!("{plan:?}").contains("sk-live-1"));
        assert!(plan.remarks[0].contains("sluice secrets set x/api_key --capability 'x.*' --host localhost"));
        let mut far = ServerPlan { url: Some("https://a.example:8443/mcp".into()), ..ServerPlan::default() };
        at_address(&mut far, "far", &[("X-Api-Key".into(), "sk-live-2".into())]).unwrap();
        assert_eq!((far.secret.as_deref(), far.credential.as_deref()), (Some("far/key"), Some("header X-Api-Key")));
        assert!(!format!("{far:?}").contains("sk-live-2") && far.remarks[0].contains("--host a.example <"), "{far:?}");
        let mut bearer = ServerPlan::default();
        at_address(&mut bearer, "far", &[("Authorization".into(), "Bearer x".into())]).unwrap();
        assert_eq!(bearer.credential, None);
    }

    #[test]
    fn a_folder_that_an_argument_names_is_readable_and_a_large_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let command =
            ["node", "x.js", &format!("--root={path}"), "/", "/no/such/place", "relative"].map(str::to_owned).to_vec();
        let mut plan = ServerPlan { command, ..ServerPlan::default() };
        allow_arguments(&mut plan);
        assert_eq!(plan.read, [folder.path()]);
        assert!(
            plan.remarks[0].contains("only with --write") && plan.remarks[1].contains("`/`, which is much"),
            "{:?}",
            plan.remarks
        );
    }
}
