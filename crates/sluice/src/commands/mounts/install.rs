//! Packages of MCP servers, installed once into a private folder.
//!
//! Takes a package and a folder; gives the program in it, the files that it needs, the hosts that its own files name, and
//! what a person should know. Promise: nothing is installed before a person agreed to the command that is shown; no
//! script of a package runs unless that was allowed; the package manager is started directly, never by a shell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::launch::{PackageLaunch, printable};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Most files of a package that are read, and most bytes of each.
const FILES: usize = 3_000;
const BYTES: u64 = 2 << 20;
/// Most hosts that are proposed.
const HOSTS: usize = 12;
/// Hosts that source files name for people.
const TO_READ: [&str; 12] = [
    "github.com",
    "json-schema.org",
    "www.w3.org",
    "schema.org",
    "modelcontextprotocol.io",
    "opensource.org",
    "nodejs.org",
    "docs.python.org",
    "developer.mozilla.org",
    "stackoverflow.com",
    "en.wikipedia.org",
    "www.apache.org",
];
/// Names that others imitate.
const WELL_KNOWN: [&str; 8] = [
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@playwright/mcp",
    "@notionhq/notion-mcp-server",
    "mcp-server-git",
    "mcp-server-time",
    "mcp-server-fetch",
    "@upstash/context7-mcp",
];

/// The registry that a package comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackageRegistry {
    Npm,
    PyPi,
}

/// Where a package goes, and what is allowed.
#[derive(Debug)]
pub(super) struct InstallTerms<'t> {
    pub(super) folder: &'t Path,
    /// Whether a person agreed beforehand.
    pub(super) agreed: bool,
    /// Whether scripts of packages may run.
    pub(super) scripts: bool,
}

/// An installed package.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InstalledServer {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// Files that the program needs.
    pub(super) read: Vec<PathBuf>,
    /// Hosts that its own files name, the likeliest first.
    pub(super) hosts: Vec<String>,
    /// What a person should know, one sentence each.
    pub(super) remarks: Vec<String>,
}

/// Installs a package, unless it is there already.
pub(super) fn install(
    screen: &CommandConsole,
    (registry, launch): (PackageRegistry, &PackageLaunch),
    terms: &InstallTerms<'_>,
) -> Result<InstalledServer, CliError> {
    let folder = terms.folder;
    let is_there = match registry {
        PackageRegistry::Npm => folder.join("node_modules").join(&launch.name).join("package.json").is_file(),
        PackageRegistry::PyPi => distribution(folder, &launch.name).is_some(),
    };
    if is_there {
        screen.note(format_args!("`{}` is installed already in {}", launch.name, folder.display()));
    } else {
        let steps = steps((registry, launch), terms);
        screen.note(format_args!("this installs `{}` for this server alone:", launch.name));
        steps.iter().for_each(|step| screen.note(format_args!("  {}", step.join(" "))));
        if !terms.agreed {
            screen.confirm("Run it?", "--yes")?;
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| {
            CliError::new(CommandExit::Failed, format!("`{}` cannot be created", folder.display()))
                .why(describe_io_error(&error))
        })?;
        steps.iter().try_for_each(|step| run(step))?;
    }
    match registry {
        PackageRegistry::Npm => of_npm(folder, launch),
        PackageRegistry::PyPi => of_pypi(folder, launch),
    }
}

/// The commands that install a package.
fn steps((registry, launch): (PackageRegistry, &PackageLaunch), terms: &InstallTerms<'_>) -> Vec<Vec<String>> {
    let folder = terms.folder.display().to_string();
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match registry {
        PackageRegistry::Npm => {
            let spec =
                launch.version.as_ref().map_or(launch.name.clone(), |version| format!("{}@{version}", launch.name));
            let mut step = own(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund", "--loglevel=error"]);
            step.extend((!terms.scripts).then(|| "--ignore-scripts".to_owned()));
            step.extend(["--".to_owned(), spec]);
            vec![step]
        }
        PackageRegistry::PyPi => {
            let spec =
                launch.version.as_ref().map_or(launch.name.clone(), |version| format!("{}=={version}", launch.name));
            let mut step = own(&[
                &format!("{folder}/bin/python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]);
            // A package without a built form runs its own code when it is installed.
            step.extend((!terms.scripts).then(|| "--only-binary=:all:".to_owned()));
            step.extend(["--".to_owned(), spec]);
            vec![own(&["python3", "-m", "venv", &folder]), step]
        }
    }
}

fn run(step: &[String]) -> Result<(), CliError> {
    let Some((program, args)) = step.split_first() else { return Ok(()) };
    let ran = Command::new(program).args(args).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| {
        CliError::new(CommandExit::Failed, format!("`{program}` cannot be started"))
            .why(describe_io_error(&error))
            .hint(format!("install `{program}`, or install the server yourself and give its program: -- COMMAND ARGS"))
    })?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let lines: Vec<String> = escape::lines(said.trim_end()).collect();
    let last = lines.get(lines.len().saturating_sub(6)..).unwrap_or_default().join("; ");
    Err(CliError::new(CommandExit::Failed, "the package could not be installed; sluice.yaml was not changed")
        .why(last)
        .hint(
            "if the package needs its install scripts or has no built form, look at it first, then add --allow-scripts",
        ))
}

fn failed(text: String) -> CliError {
    CliError::new(CommandExit::Failed, text).hint("give the program yourself: -- COMMAND ARGS")
}

fn of_npm(folder: &Path, launch: &PackageLaunch) -> Result<InstalledServer, CliError> {
    let package = folder.join("node_modules").join(&launch.name);
    let text = fs::read_to_string(package.join("package.json")).unwrap_or_default();
    let about: Value = serde_json::from_str(&text).unwrap_or_default();
    let programs = programs_of(&about, &launch.name);
    let short = launch.name.rsplit('/').next().unwrap_or(&launch.name);
    let wanted = launch.program.as_deref().unwrap_or(short);
    let only = || programs.values().next().filter(|_| launch.program.is_none() && !programs.is_empty());
    let file = programs.get(wanted).or_else(only).ok_or_else(|| {
        let names: Vec<&str> = programs.keys().map(String::as_str).collect();
        failed(format!(
            "`{}` has no program `{}`; it has: {}",
            launch.name,
            printable(wanted),
            printable(&names.join(", "))
        ))
    })?;
    let script = real(&package.join(file));
    if !script.starts_with(real(folder)) {
        return Err(failed(format!("the program of `{}` lies outside of its package", launch.name)));
    }
    let mut command = Vec::new();
    let mut read = vec![real(folder)];
    let first = fs::read(&script).unwrap_or_default();
    if first.starts_with(b"#!")
        && !first.split(|byte| *byte == b'\n').next().unwrap_or_default().windows(4).any(|word| word == b"node")
    {
        command.push(script.display().to_string());
    } else {
        let node = on_path("node").ok_or_else(|| failed("there is no `node` on the path".into()))?;
        read.extend(outside_of_system(&node));
        command.extend([node.display().to_string(), script.display().to_string()]);
    }
    command.extend(launch.args.iter().cloned());
    let mut remarks = imitates(&launch.name);
    let version = about.get("version").and_then(Value::as_str).unwrap_or_default();
    remarks.extend(unpinned(launch, version));
    for script in ["preinstall", "install", "postinstall"] {
        if about.pointer(&format!("/scripts/{script}")).is_some() {
            remarks.push(format!("the package has an install script (`{script}`); look at it before you allow it"));
        }
    }
    let files = source_files(&[package], &["js", "cjs", "mjs"]);
    Ok(InstalledServer { command, read, hosts: hosts_in(&files), remarks: [remarks, traits_of(&files)].concat() })
}

/// The programs of a package of npm: names and files.
fn programs_of(about: &Value, name: &str) -> BTreeMap<String, String> {
    match about.get("bin") {
        Some(Value::String(file)) => [(name.rsplit('/').next().unwrap_or(name).to_owned(), file.clone())].into(),
        Some(Value::Object(map)) => {
            map.iter().filter_map(|(name, file)| Some((name.clone(), file.as_str()?.to_owned()))).collect()
        }
        _ => BTreeMap::new(),
    }
}

fn of_pypi(folder: &Path, launch: &PackageLaunch) -> Result<InstalledServer, CliError> {
    let program = launch.program.as_deref().unwrap_or(&launch.name);
    if program.contains('/') {
        return Err(failed(format!("`{}` is not the name of a program", printable(program))));
    }
    let script = folder.join("bin").join(program);
    if !script.is_file() {
        return Err(failed(format!("`{}` has no program `{}`", launch.name, printable(program))));
    }
    let mut read = vec![real(folder)];
    let python = real(&folder.join("bin/python"));
    // The interpreter needs its library, which lies beside the folder of its program.
    let prefix = python.parent().and_then(Path::parent).map(Path::to_owned);
    read.extend(prefix.filter(|prefix| !is_system(prefix) && prefix.components().count() > 1));
    let (about, record) = distribution(folder, &launch.name)
        .ok_or_else(|| failed(format!("`{}` was not found after it was installed", launch.name)))?;
    let mut remarks = imitates(&launch.name);
    let version = about.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
    remarks.extend(unpinned(launch, version.map_or("", |(_, version)| version.trim_end_matches(".dist-info"))));
    let files = source_files(&record, &["py"]);
    let mut command = vec![real(folder).join("bin").join(program).display().to_string()];
    command.extend(launch.args.iter().cloned());
    Ok(InstalledServer { command, read, hosts: hosts_in(&files), remarks: [remarks, traits_of(&files)].concat() })
}

/// The record of an installed package of PyPI, with the folders and files of the package itself.
fn distribution(folder: &Path, name: &str) -> Option<(PathBuf, Vec<PathBuf>)> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    let wanted = plain(name.split('[').next().unwrap_or(name));
    let versions = fs::read_dir(folder.join("lib")).ok()?.flatten();
    for site in versions.map(|entry| entry.path().join("site-packages")) {
        for entry in fs::read_dir(&site).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let is_it = file
                .strip_suffix(".dist-info")
                .and_then(|stem| stem.rsplit_once('-'))
                .is_some_and(|(stem, _)| plain(stem) == wanted);
            if !is_it {
                continue;
            }
            let record = fs::read_to_string(entry.path().join("RECORD")).unwrap_or_default();
            let tops: BTreeSet<&str> = record.lines().filter_map(|line| line.split(['/', ',']).next()).collect();
            let own = tops.into_iter().filter(|top| !top.is_empty() && *top != ".." && !top.ends_with(".dist-info"));
            return Some((entry.path(), own.map(|top| site.join(top)).collect()));
        }
    }
    None
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn is_system(path: &Path) -> bool {
    ["/usr", "/bin", "/lib"].iter().any(|system| path.starts_with(system))
}

/// A program of the path, without links.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file()).map(|file| real(&file))
}

/// What a program outside of the system's folders needs: the folder above that of its program.
fn outside_of_system(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent().and_then(Path::parent)?;
    (!is_system(prefix) && prefix.components().count() > 1).then(|| prefix.to_owned())
}

fn unpinned(launch: &PackageLaunch, installed: &str) -> Option<String> {
    let version = printable(installed);
    (launch.version.is_none() && !version.is_empty())
        .then(|| format!("no version was named; {version} was installed and stays until you install another"))
}

/// A remark about a name that looks like a well-known one.
fn imitates(name: &str) -> Vec<String> {
    let like = sluice_config::skeleton(name);
    let found = WELL_KNOWN.iter().find(|known| **known != name && sluice_config::skeleton(known) == like);
    found.map(|known| format!("its name looks like `{known}`, which is another package")).into_iter().collect()
}

/// The text of the package's own files of these kinds.
fn source_files(places: &[PathBuf], kinds: &[&str]) -> Vec<String> {
    let (mut open, mut found): (Vec<PathBuf>, Vec<String>) = (places.to_vec(), Vec::new());
    while let Some(path) = open.pop() {
        if found.len() >= FILES {
            break;
        }
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
            open.extend(entries.filter(|path| !path.ends_with("node_modules") && !path.ends_with("__pycache__")));
        } else if about.is_file()
            && about.len() <= BYTES
            && path.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| kinds.contains(&kind))
        {
            found.extend(fs::read(&path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found
}

/// Hosts of `https://` addresses, the most frequent first.
fn hosts_in(files: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for rest in files.iter().flat_map(|text| text.split("https://").skip(1)) {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.')).unwrap_or(rest.len());
        let host = rest.get(..end).unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let last = host.rsplit('.').next().unwrap_or_default();
        let is_name = host.contains('.') && last.len() >= 2 && last.chars().all(|c| c.is_ascii_lowercase());
        let is_example = host.split('.').any(|label| ["example", "localhost", "invalid", "test"].contains(&label));
        // `https://api.${region}.…` is a part of a name.
        let is_cut = rest.get(end..).is_some_and(|rest| rest.starts_with(['$', '{', '<', '%']));
        if is_name && !is_example && !is_cut && !TO_READ.contains(&host.as_str()) {
            *counts.entry(host).or_default() += 1;
        }
    }
    let mut hosts: Vec<(String, usize)> = counts.into_iter().collect();
    let is_service = |host: &str| host.starts_with("api.") || host.starts_with("mcp.") || host.contains(".api.");
    hosts.sort_by_key(|(host, count)| (!is_service(host), usize::MAX - count, host.clone()));
    hosts.into_iter().take(HOSTS).map(|(host, _)| host).collect()
}

/// What the package's own files do that a person should know.
fn traits_of(files: &[String]) -> Vec<String> {
    const TRAITS: [(&[&str], &str); 4] = [
        (
            &["child_process", "import subprocess", "from subprocess", "os.system("],
            "its own files start other programs; they run in the same sandbox",
        ),
        (
            &["new Function(", "eval(atob", "eval(Buffer", "exec(base64", "exec(zlib", "exec(bytes"],
            "its own files run code that they compose while they run",
        ),
        (
            &[".ssh/", "id_rsa", ".aws/credentials", "/etc/shadow", ".gnupg", "Login Data"],
            "its own files name places of keys and passwords; the sandbox does not let it read them",
        ),
        (
            &["webhook.site", "pastebin.com", "ngrok", "requestbin"],
            "its own files name a service that takes data from anyone",
        ),
    ];
    let has = |signs: &[&str]| files.iter().any(|text| signs.iter().any(|sign| text.contains(sign)));
    TRAITS.iter().filter(|(signs, _)| has(signs)).map(|(_, sentence)| (*sentence).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_sources_and_those_for_readers_are_left_out() {
        let files = [
            "fetch('https://api.weather.example.org/x'); // see https://github.com/a/b".to_owned(),
            "const A = 'https://api.notes.dev/v1', B = `https://cdn.notes.dev/`, C = 'https://cdn.notes.dev/'"
                .to_owned(),
            "`https://${host}/` 'https://localhost:80' 'https://a' 'https://eu.${region}.x.com' https://127.0.0.1/"
                .to_owned(),
        ];
        assert_eq!(hosts_in(&files), ["api.notes.dev", "cdn.notes.dev"]);
    }

    #[test]
    fn what_is_odd_about_a_package_is_said_in_sentences() {
        assert_eq!(imitates("@modelcontextprotoco1/server-memory").len(), 1);
        assert!(imitates("@modelcontextprotocol/server-memory").is_empty() && imitates("my-server").is_empty());
        let odd = traits_of(&["require('child_process').exec('cat ~/.ssh/id_rsa')".to_owned()]);
        assert_eq!(odd.len(), 2, "{odd:?}");
        assert!(traits_of(&["const regex = /a/".to_owned()]).is_empty());
    }

    #[test]
    fn a_program_is_found_by_its_name_or_as_the_only_one_and_never_outside_of_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("node_modules/@a/thing");
        fs::create_dir_all(package.join("dist")).unwrap();
        fs::write(package.join("dist/x.js"), "#!/bin/thing-runner\n").unwrap();
        let launch = |program: Option<&str>| PackageLaunch {
            name: "@a/thing".into(),
            version: None,
            program: program.map(str::to_owned),
            args: vec!["--a".into()],
        };
        let set = |bin: Value| {
            let about = serde_json::json!({"version": "1.0.0", "bin": bin, "scripts": {"postinstall": "x"}});
            fs::write(package.join("package.json"), about.to_string()).unwrap();
        };
        set(serde_json::json!({"other": "dist/x.js"}));
        let found = of_npm(folder.path(), &launch(None)).unwrap();
        assert!(found.command[0].ends_with("/dist/x.js") && found.command[1] == "--a", "{found:?}");
        assert!(found.remarks.iter().any(|remark| remark.contains("`postinstall`")), "{found:?}");
        assert!(found.remarks.iter().any(|remark| remark.contains("1.0.0 was installed")), "{found:?}");
        assert!(of_npm(folder.path(), &launch(Some("thing"))).unwrap_err().message.contains("it has: other"));
        set(serde_json::json!("/etc/passwd"));
        assert!(of_npm(folder.path(), &launch(None)).unwrap_err().message.contains("outside of its package"));
    }

    #[test]
    fn install_scripts_do_not_run_unless_they_were_allowed() {
        let launch = PackageLaunch { name: "a".into(), version: Some("1".into()), program: None, args: Vec::new() };
        let all = |registry, scripts| {
            let terms = InstallTerms { folder: Path::new("/srv/a"), agreed: true, scripts };
            steps((registry, &launch), &terms).concat().join(" ")
        };
        assert!(all(PackageRegistry::Npm, false).ends_with("--ignore-scripts -- a@1"));
        assert!(!all(PackageRegistry::Npm, true).contains("--ignore-scripts"));
        assert!(all(PackageRegistry::PyPi, false).ends_with("--only-binary=:all: -- a==1"));
        assert!(!all(PackageRegistry::PyPi, true).contains("--only-binary"));
    }
}
