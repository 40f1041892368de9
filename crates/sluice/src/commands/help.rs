//! `sluice help`: help of commands, and the pages of the manual, without a network.
//!
//! Promise: the printed page belongs to the version that prints it.

use clap::{Args, CommandFactory as _};

use crate::SluiceCli;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// The pages: name, topic and text.
const PAGES: [(&str, &str, &str); 19] = [
    ("adapters", "how the gateway talks to services", include_str!("../../../../docs/adapters.md")),
    ("asking-people", "how people are asked and answer", include_str!("../../../../docs/approvals.md")),
    ("audit-log", "the audit log, and how to verify it", include_str!("../../../../docs/audit.md")),
    ("backups", "creating and restoring backups", include_str!("../../../../docs/backup.md")),
    ("configuration", "every setting", include_str!("../../../../docs/config.md")),
    ("content", "the six stages for incoming content", include_str!("../../../../docs/content.md")),
    ("errors", "every error code, and what to do", include_str!("../../../../docs/errors.md")),
    ("gateway", "one call, from the request to the audit log", include_str!("../../../../docs/gateway.md")),
    ("gmail", "connecting a mailbox", include_str!("../../../../docs/gmail.md")),
    ("leaks", "the leak scan for outgoing content", include_str!("../../../../docs/leaks.md")),
    ("lifecycles", "states of writes and approvals", include_str!("../../../../docs/lifecycles.md")),
    ("mcp-door", "agents that speak MCP", include_str!("../../../../docs/mcp.md")),
    ("mounting", "third-party MCP servers behind the gate", include_str!("../../../../docs/mounts.md")),
    ("origin", "where targets come from; taint", include_str!("../../../../docs/origin.md")),
    ("rules", "policy files", include_str!("../../../../docs/policy.md")),
    ("security-proxies", "services that are not trusted", include_str!("../../../../docs/proxies.md")),
    ("connections", "connecting services, replicas, disconnecting", include_str!("../../../../docs/services.md")),
    ("ways-out", "egress: outgoing requests", include_str!("../../../../docs/egress.md")),
    ("workers", "sandboxed worker processes", include_str!("../../../../docs/workers.md")),
];

/// Show the help of a command, or a manual page.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice help holds\n  sluice help holds cancel\n  sluice help errors")]
pub(crate) struct HelpCommand {
    /// Command, or page of the manual
    topic: Vec<String>,
}

impl HelpCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let words: Vec<&str> = self.topic.iter().map(String::as_str).collect();
        let [first, rest @ ..] = words.as_slice() else {
            screen.line(SluiceCli::command().render_help().ansi())?;
            screen.line("Pages (sluice help PAGE):")?;
            for (name, about, _) in PAGES {
                screen.line(format_args!("  {name:<17} {about}"))?;
            }
            return Ok(CommandExit::Ok);
        };
        if let Some(help) = command(&words) {
            screen.line(help.ansi())?;
            return Ok(CommandExit::Ok);
        }
        match PAGES.iter().find(|(name, ..)| rest.is_empty() && name == first) {
            Some((_, _, page)) => {
                screen.raw(page.as_bytes())?;
                Ok(CommandExit::Ok)
            }
            None => {
                let wanted = words.join(" ");
                Err(CliError::new(
                    CommandExit::NotFound,
                    format!("no help page for `{}`", crate::escape::escape_line(&wanted)),
                )
                .hint("list all commands and pages: sluice help"))
            }
        }
    }
}

/// The help of a command, given by its words.
fn command(words: &[&str]) -> Option<clap::builder::StyledStr> {
    let mut at = SluiceCli::command();
    at.build();
    for word in words {
        at = at.find_subcommand(word).filter(|found| !found.is_hide_set())?.clone();
    }
    Some(at.render_long_help())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_never_hidden_by_a_command_of_the_same_name() {
        for (name, about, page) in PAGES {
            assert!(command(&[name]).is_none(), "`sluice help {name}` shows the command");
            assert!(!about.is_empty() && page.starts_with("# "), "{name}");
        }
        assert!(command(&["holds", "cancel"]).is_some());
        assert!(command(&["complete"]).is_none(), "hidden commands stay hidden");
    }
}
