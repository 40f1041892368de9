//! `sluice demo`.

use clap::Args;

use crate::console::CommandConsole;
use crate::demo::{self, DemoOptions};
use crate::failure::{CliError, CommandExit};

/// See what Sluicegate does, in a minute, without an account or a network
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice demo\n  sluice demo --headless\n  sluice demo --speed 10")]
pub(crate) struct DemoCommand {
    /// Run without questions; every scene is checked in any case
    #[arg(long)]
    headless: bool,
    /// Let time pass this many times as fast as real time, instead of at once
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    speed: Option<u32>,
    /// Keep the folder with the database and the export
    #[arg(long)]
    keep: bool,
    /// Serve only the demo's mailbox at this address, for testing a mail client
    #[arg(long, value_name = "ADDRESS", hide = true)]
    mailbox: Option<std::net::SocketAddr>,
    /// Number of messages in that mailbox
    #[arg(long, value_name = "COUNT", hide = true, default_value_t = demo::MESSAGES)]
    messages: u64,
}

impl DemoCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        // No scene waits for a person yet, so both modes are the same.
        let _ = self.headless;
        if let Some(address) = self.mailbox {
            let served = demo::serve_mailbox(&mut anstream::stdout().lock(), address, self.messages);
            return served
                .map(|()| CommandExit::Ok)
                .map_err(|error| CliError::new(CommandExit::Failed, format!("{error:#}")));
        }
        let options = DemoOptions { keep: self.keep, speed: self.speed, progress: screen.is_terminal() };
        let told = demo::run(&mut anstream::stdout().lock(), options);
        told.map_err(|error| {
            CliError::new(CommandExit::Failed, "a scene did not end as expected")
                .why(format!("{error:#}"))
                .hint("this is a defect of Sluicegate: please report it with the output above")
        })?;
        Ok(CommandExit::Ok)
    }
}
