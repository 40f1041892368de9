//! `sluice vault`: the root key everything is sealed under.

use clap::{Args, Subcommand};

use crate::client::{Ask, Reach, shown};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Show where the root key comes from, and replace it.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, before_help = "Examples:\n  sluice vault show\n  sluice vault rekey --yes")]
pub(crate) struct Vault {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show where the root key comes from
    #[command(before_help = "Examples:\n  sluice vault show")]
    Show {
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Put all secrets under a new root key, which takes the old one's place in its file
    #[command(before_help = "Examples:\n  sluice vault rekey --yes")]
    Rekey {
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

impl Vault {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        match self.verb {
            Verb::Show { json } => {
                let vault = client.ask(&Ask::get("/v1/vault"))?;
                if json {
                    screen.json(&vault)?;
                } else {
                    for (name, key) in
                        [("root key", "root_key"), ("fingerprint", "fingerprint"), ("secrets", "secrets")]
                    {
                        screen.line(format_args!("{name:<13} {}", shown(&vault, key)))?;
                    }
                }
            }
            Verb::Rekey { yes, json } => {
                if !yes {
                    screen.ask("Backups of the old root key open nothing from now on. Replace it?", "--yes")?;
                }
                let done = client.ask(&Ask::post("/v1/vault/rekey"))?;
                if json {
                    screen.json(&done)?;
                }
                screen.note(format_args!("everything is under root key {}", shown(&done, "fingerprint")));
            }
        }
        Ok(Exit::Ok)
    }
}
