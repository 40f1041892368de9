//! The `sluice` command line.
//!
//! Parses the command line, runs one command, prints data on stdout and remarks on stderr, and ends with
//! one of the exit codes of `failure::CommandExit`.
#![warn(missing_docs)]

mod client;
mod client_process;
mod command_groups;
mod commands;
mod console;
mod demo;
mod escape;
mod export;
mod failure;
mod files;
mod output_format;
mod pager;
mod settings;
mod system;
mod table;
mod time_args;
mod watch;
mod write_failure;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};

use commands::SluiceCommand;
use console::{CommandConsole, OutputFormat};
use failure::{CliError, CommandExit};
use pager::Pager;

/// Heading of the options that every command has; they are shown after the command's own.
pub(crate) const GLOBAL_OPTIONS: &str = "Global options";

/// A gate between AI agents and what they can affect.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct SluiceCli {
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value = "auto", help_heading = GLOBAL_OPTIONS)]
    color: console::ColorMode,
    /// Print data only, no remarks
    #[arg(long, short, global = true, help_heading = GLOBAL_OPTIONS)]
    quiet: bool,
    /// Output format of data
    #[arg(long, short, global = true, value_enum, default_value = "table", help_heading = GLOBAL_OPTIONS)]
    output: OutputFormat,
    /// Do not use a pager for long output
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    no_pager: bool,
    #[command(subcommand)]
    command: SluiceCommand,
}

/// Runs the program: a worker if the first argument says so, otherwise the command line.
pub fn run() -> ExitCode {
    // Before anything else is set up: a worker isolates itself while it holds nothing.
    match std::env::args_os().nth(1) {
        Some(role) if role == "worker" => return sluice_worker::run(),
        Some(role) if role == "stranger" => sluice_worker::stranger(),
        _ => {}
    }
    let (cli, matches) = parse_arguments();
    // TLS needs its cryptography provider before any connection; it can be set only once.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let screen = CommandConsole::new(cli.color, cli.quiet, cli.output);
    let cli = match with_json_flag(cli) {
        Ok(cli) => cli,
        Err(failure) => {
            screen.failure(&failure);
            return failure.exit.into();
        }
    };
    let pager = if cli.no_pager || !pager::is_worth_it(&matches) { None } else { Pager::open(&screen) };
    let done = commands::run(cli.command, &screen);
    if let Some(pager) = pager {
        pager.close();
    }
    match done {
        Ok(exit) => exit.into(),
        // The reader closed the pipe: `sluice … | head` is not a failure.
        Err(CliError { closed: true, .. }) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Parses the command line.
fn parse_arguments() -> (SluiceCli, ArgMatches) {
    let mut matches = command_groups::with_command_groups(SluiceCli::command()).get_matches();
    let kept = matches.clone();
    (SluiceCli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit()), kept)
}

/// Every command with data has `--json`; every output format for data uses it.
fn with_json_flag(cli: SluiceCli) -> Result<SluiceCli, CliError> {
    if !cli.output.is_data() {
        return Ok(cli);
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, "--json".into());
    match SluiceCli::try_parse_from(words) {
        Ok(cli) => Ok(cli),
        // `--json` was given already.
        Err(error) if error.kind() == ErrorKind::ArgumentConflict => Ok(cli),
        Err(_) => Err(CliError::new(CommandExit::Usage, "this command has no data for another output format")
            .hint("leave out `--output`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that run something, or print only one format.
    const WITHOUT: [&str; 20] = [
        "demo",
        "serve",
        "mcp",
        "hook",
        "setup",
        "complete",
        "completions",
        "man",
        "help",
        "config schema",
        "capabilities schema",
        "policy schema",
        "egress show",
        "proxies crash",
        "mounts add",
        "mounts import",
        "mounts set",
        "mounts remove",
        "screen inbound",
        "screen outbound",
    ];

    fn walk(command: &clap::Command, path: &str, seen: &mut usize) {
        let mut verbs = command.get_subcommands().peekable();
        if verbs.peek().is_none() && !path.is_empty() {
            *seen += 1;
            let has = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
            assert_ne!(
                has,
                WITHOUT.contains(&path),
                "`sluice {path}` {}",
                if has { "has --json and is listed as an exception" } else { "lacks --json" }
            );
        }
        for verb in verbs {
            walk(verb, format!("{path} {}", verb.get_name()).trim(), seen);
        }
    }

    #[test]
    fn every_command_speaks_to_machines_too() {
        let mut seen = 0;
        walk(&SluiceCli::command(), "", &mut seen);
        assert!(seen > 60, "{seen}");
    }
}
