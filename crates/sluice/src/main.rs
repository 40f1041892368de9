//! The `sluice` command line.
//!
//! Parses what a person typed, runs one command, prints data on stdout and talk on stderr, and ends with
//! one of the exit codes of [`failure::Exit`].

mod commands;
mod demo;
mod export;
mod failure;
mod files;
mod screen;
mod settings;
mod system;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use failure::Failure;
use screen::Screen;

/// A gate between AI agents and what they can affect.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value = "auto", hide_possible_values = false)]
    color: screen::Color,
    /// Print data only, no remarks
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let screen = Screen::new(cli.color, cli.quiet);
    match commands::run(cli.command, &screen) {
        Ok(exit) => exit.into(),
        // Nobody reads on: `sluice … | head` is not a failure.
        Err(Failure { closed: true, .. }) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.failure(&failure);
            failure.exit.into()
        }
    }
}
