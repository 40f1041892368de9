//! One module per noun. A new command is a variant here and a line in [`run`].

pub(crate) mod about;
pub(crate) mod audit;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod policy;

use clap::Subcommand;

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// What `sluice` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See what Sluicegate does, in a minute, without an account or a network
    Demo(demo::Demo),
    /// Make a folder a gateway can start in
    Init(init::Init),
    /// Check the configuration and this machine
    Doctor(doctor::Doctor),
    /// Show and check the configuration
    Config(config::Config),
    /// Check, test, explain and compare the rules agents live by
    Policy(policy::Policy),
    /// Show the record, export it, and verify it with nothing but files
    Audit(audit::Audit),
    /// Print completions for a shell
    Completions(about::Completions),
    /// Print the manual page, or write all pages to a directory
    Man(about::Man),
    /// Print the version
    Version(about::Version),
}

/// Runs one command.
pub(crate) fn run(command: Command, screen: &Screen) -> Result<Exit, Failure> {
    match command {
        Command::Demo(demo) => demo.run(screen),
        Command::Init(init) => init.run(screen),
        Command::Doctor(doctor) => doctor.run(screen),
        Command::Config(config) => config.run(screen),
        Command::Policy(policy) => policy.run(screen),
        Command::Audit(audit) => audit.run(screen),
        Command::Completions(completions) => completions.run(screen),
        Command::Man(man) => man.run(screen),
        Command::Version(version) => version.run(screen),
    }
}
