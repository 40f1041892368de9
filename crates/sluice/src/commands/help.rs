//! `sluice help`: commands, and the pages of the manual, without a network.
//!
//! Promise: what is printed is the page of the version that prints it.

use clap::{Args, CommandFactory as _};

use crate::Cli;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Pages by name, and what each is about.
const PAGES: [(&str, &str, &str); 19] = [
    ("adapters", "how services are spoken to", include_str!("../../../../docs/adapters.md")),
    ("asking-people", "how people are asked, and how they answer", include_str!("../../../../docs/approvals.md")),
    ("audit-log", "the record, and how to verify it", include_str!("../../../../docs/audit.md")),
    ("backups", "copies of a gateway, and putting them back", include_str!("../../../../docs/backup.md")),
    ("configuration", "every setting", include_str!("../../../../docs/config.md")),
    ("content", "the six stages of what comes in", include_str!("../../../../docs/content.md")),
    ("errors", "every code, and what to do", include_str!("../../../../docs/errors.md")),
    ("gateway", "one call from door to record", include_str!("../../../../docs/gateway.md")),
    ("gmail", "connecting a mailbox", include_str!("../../../../docs/gmail.md")),
    ("leaks", "what is kept from leaving", include_str!("../../../../docs/leaks.md")),
    ("lifecycles", "states of writes and questions", include_str!("../../../../docs/lifecycles.md")),
    ("mcp-door", "agents that speak MCP", include_str!("../../../../docs/mcp.md")),
    ("mounting", "other people's MCP servers behind the gate", include_str!("../../../../docs/mounts.md")),
    ("origin", "whose idea a target was; taint", include_str!("../../../../docs/origin.md")),
    ("rules", "policy files", include_str!("../../../../docs/policy.md")),
    ("security-proxies", "services that are not trusted", include_str!("../../../../docs/proxies.md")),
    ("connections", "services, their copies, their end", include_str!("../../../../docs/services.md")),
    ("ways-out", "egress: the only way out", include_str!("../../../../docs/egress.md")),
    ("workers", "locked-in processes", include_str!("../../../../docs/workers.md")),
];

/// Explain a command, or a thing that matters.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice help holds\n  sluice help holds cancel\n  sluice help errors")]
pub(crate) struct Help {
    /// A command, or a page of the manual
    topic: Vec<String>,
}

impl Help {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let words: Vec<&str> = self.topic.iter().map(String::as_str).collect();
        let [first, rest @ ..] = words.as_slice() else {
            screen.line(Cli::command().render_help().ansi())?;
            screen.line("Pages (sluice help PAGE):")?;
            for (name, about, _) in PAGES {
                screen.line(format_args!("  {name:<17} {about}"))?;
            }
            return Ok(Exit::Ok);
        };
        if let Some(help) = command(&words) {
            screen.line(help.ansi())?;
            return Ok(Exit::Ok);
        }
        match PAGES.iter().find(|(name, ..)| rest.is_empty() && name == first) {
            Some((_, _, page)) => {
                screen.raw(page.as_bytes())?;
                Ok(Exit::Ok)
            }
            None => {
                let wanted = words.join(" ");
                Err(Failure::new(Exit::NotFound, format!("there is no help on `{}`", crate::visible::line(&wanted)))
                    .hint("sluice help lists commands and pages"))
            }
        }
    }
}

/// The help of a command, given by its words.
fn command(words: &[&str]) -> Option<clap::builder::StyledStr> {
    let mut at = Cli::command();
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
