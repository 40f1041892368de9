//! The `sluice` command line.
//!
//! Parses what a person typed, runs one command, prints data on stdout and talk on stderr, and ends with
//! one of the exit codes of [`failure::Exit`].

mod client;
mod commands;
mod demo;
mod export;
mod failure;
mod files;
mod screen;
mod settings;
mod span;
mod system;
mod table;
mod visible;
mod watch;

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
    // Before anything else is set up: a worker locks itself in with nothing in hand.
    match std::env::args_os().nth(1) {
        Some(role) if role == "worker" => return sluice_worker::run(),
        Some(role) if role == "stranger" => sluice_worker::stranger(),
        _ => {}
    }
    let cli = Cli::parse();
    // TLS needs to know its cryptography before anything connects; it can be told once, and this is the once.
    let _installed = rustls::crypto::ring::default_provider().install_default();
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
