//! `sluice vault`: the root key that encrypts everything in the vault.

use clap::{Args, Subcommand};

use crate::client::{ApiRequest, GatewayArgs, display_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Show where the root key comes from, and replace it.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, before_help = "Examples:\n  sluice vault show\n  sluice vault rekey --yes")]
pub(crate) struct VaultCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: VaultSubcommand,
}

#[derive(Debug, Subcommand)]
enum VaultSubcommand {
    /// Show where the root key comes from
    #[command(before_help = "Examples:\n  sluice vault show")]
    Show {
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Encrypt all secrets with a new root key, which replaces the old one in its file
    #[command(before_help = "Examples:\n  sluice vault rekey --yes")]
    Rekey {
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl VaultCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        match self.verb {
            VaultSubcommand::Show { json } => {
                let vault = client.send(&ApiRequest::get("/v1/vault"))?;
                if json {
                    screen.json(&vault)?;
                } else {
                    for (name, key) in
                        [("root key", "root_key"), ("fingerprint", "fingerprint"), ("secrets", "secrets")]
                    {
                        screen.line(format_args!("{name:<13} {}", display_field(&vault, key)))?;
                    }
                }
            }
            VaultSubcommand::Rekey { yes, json } => {
                if !yes {
                    screen.confirm("Backups of the old root key will be useless. Replace the root key?", "--yes")?;
                }
                let done = client.send(&ApiRequest::post("/v1/vault/rekey"))?;
                if json {
                    screen.json(&done)?;
                }
                screen.note(format_args!(
                    "all secrets are encrypted with root key {}",
                    display_field(&done, "fingerprint")
                ));
            }
        }
        Ok(CommandExit::Ok)
    }
}
