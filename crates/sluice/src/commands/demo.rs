//! `sluice demo`.

use clap::Args;

use crate::demo::{self, Telling};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// See what Sluicegate does, in a minute, without an account or a network
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice demo\n  sluice demo --headless\n  sluice demo --speed 10")]
pub(crate) struct Demo {
    /// Ask nothing and decide alone; every scene is checked either way
    #[arg(long)]
    headless: bool,
    /// Let time pass this many times as fast as it does, instead of at once
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    speed: Option<u32>,
    /// Keep the folder with the database and the export
    #[arg(long)]
    keep: bool,
    /// Serve the demo's mailbox alone at this address, for trying a mail client on it
    #[arg(long, value_name = "ADDRESS", hide = true)]
    mailbox: Option<std::net::SocketAddr>,
    /// How many messages that mailbox has
    #[arg(long, value_name = "COUNT", hide = true, default_value_t = demo::MESSAGES)]
    messages: u64,
}

impl Demo {
    pub(crate) fn run(self, _screen: &Screen) -> Result<Exit, Failure> {
        // So far no scene waits for a person, so both ways of telling are the same.
        let _ = self.headless;
        if let Some(address) = self.mailbox {
            let served = demo::serve_mailbox(&mut anstream::stdout().lock(), address, self.messages);
            return served.map(|()| Exit::Ok).map_err(|error| Failure::new(Exit::Failed, format!("{error:#}")));
        }
        let told = demo::run(&mut anstream::stdout().lock(), Telling { keep: self.keep, speed: self.speed });
        told.map_err(|error| {
            Failure::new(Exit::Failed, "a scene did not end as it must")
                .why(format!("{error:#}"))
                .hint("this is a defect of Sluicegate: please report it with the output above")
        })?;
        Ok(Exit::Ok)
    }
}
