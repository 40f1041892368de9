//! The `sluice` command line.
//!
//! Parses what a person typed, runs one command, prints data on stdout and talk on stderr, and ends with
//! one of the exit codes of [`failure::Exit`].

mod client;
mod client_process;
mod commands;
mod demo;
mod export;
mod failing;
mod failure;
mod files;
mod pager;
mod screen;
mod settings;
mod shape;
mod span;
mod system;
mod table;
mod visible;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};

use commands::Command;
use failure::{Exit, Failure};
use pager::Pager;
use screen::{Output, Screen};

/// A gate between AI agents and what they can affect.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value = "auto", hide_possible_values = false)]
    color: screen::Color,
    /// Print data only, no remarks
    #[arg(long, short, global = true)]
    quiet: bool,
    /// How data is printed
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    output: Output,
    /// Print long lists as they are
    #[arg(long, global = true)]
    no_pager: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Before anything else is set up: a worker locks itself in with nothing in hand.
    match std::env::args_os().nth(1) {
        Some(role) if role == "worker" => return sluice_worker::run(),
        Some(role) if role == "stranger" => sluice_worker::stranger(),
        _ => {}
    }
    let (cli, matches) = asked();
    // TLS needs to know its cryptography before anything connects; it can be told once, and this is the once.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let screen = Screen::new(cli.color, cli.quiet, cli.output);
    let cli = match shaped(cli) {
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
        // Nobody reads on: `sluice … | head` is not a failure.
        Err(Failure { closed: true, .. }) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.failure(&failure);
            failure.exit.into()
        }
    }
}

/// What was typed.
fn asked() -> (Cli, ArgMatches) {
    let mut matches = Cli::command().get_matches();
    let kept = matches.clone();
    (Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit()), kept)
}

/// Every command with data has `--json`; whatever shape of data is wanted asks for that.
fn shaped(cli: Cli) -> Result<Cli, Failure> {
    if !cli.output.is_data() {
        return Ok(cli);
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, "--json".into());
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(cli),
        // It was there already.
        Err(error) if error.kind() == ErrorKind::ArgumentConflict => Ok(cli),
        Err(_) => Err(Failure::new(Exit::Usage, "this command has no data to print in another shape")
            .hint("leave `--output` out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that run something, or print one thing in a form of its own.
    const WITHOUT: [&str; 18] = [
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
                if has { "is no exception" } else { "lacks --json" }
            );
        }
        for verb in verbs {
            walk(verb, format!("{path} {}", verb.get_name()).trim(), seen);
        }
    }

    #[test]
    fn every_command_speaks_to_machines_too() {
        let mut seen = 0;
        walk(&Cli::command(), "", &mut seen);
        assert!(seen > 60, "{seen}");
    }
}
