//! Help of `sluice` itself: its commands in groups instead of in one long list.
//!
//! Takes the command that clap derives; gives the same command with a help text in groups. Promise: every command stands in
//! exactly one group, and no line is longer than 80 characters.

use clap::Command;

/// Width of the help text.
const WIDTH: usize = 80;
/// The column at which descriptions begin.
const INDENT: usize = 16;

/// The groups, each with its commands in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["demo", "init", "setup", "serve", "login", "status", "doctor", "mcp", "hook"]),
    ("Decide", &["approvals", "allowances", "freeze", "unfreeze", "holds", "dead", "rollback", "findings"]),
    ("Inspect", &["call", "calls", "sessions", "events", "alerts", "replica", "capabilities", "screen"]),
    ("Connect", &["connect", "disconnect", "services", "mounts", "proxies", "egress", "secrets", "channels"]),
    ("Policy", &["policy", "agents", "keys"]),
    ("Audit", &["audit", "backup", "recover"]),
    ("Admin", &["config", "vault", "nodes", "clock", "completions", "man", "help", "version"]),
];

/// Prints the commands of `sluice --help` in groups.
pub(crate) fn with_command_groups(command: Command) -> Command {
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups.push_str(heading);
        groups.push_str(":\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            push_row(&mut groups, name, &about.map(ToString::to_string).unwrap_or_default());
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// One command and its description, wrapped.
fn push_row(text: &mut String, name: &str, about: &str) {
    let mut line = format!("  {name:<width$}", width = INDENT - 2);
    for word in about.split_whitespace() {
        let is_first = line.trim_end().len() < INDENT;
        if !is_first && line.len() + 1 + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(INDENT);
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::SluiceCli;

    #[test]
    fn every_command_stands_in_exactly_one_group() {
        let command = SluiceCli::command();
        let shown: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let times = shown.iter().filter(|name| **name == verb.get_name()).count();
            assert_eq!(times, 1, "`{}`", verb.get_name());
        }
        for name in shown {
            assert!(command.find_subcommand(name).is_some(), "there is no command `{name}`");
        }
    }

    #[test]
    fn the_help_fits_a_terminal_of_80_columns() {
        let help = with_command_groups(SluiceCli::command()).render_help().to_string();
        assert!(help.contains("\nDecide:\n  approvals     List approvals and answer them\n"), "{help}");
        let groups = help.split("\nOptions:").next().unwrap_or_default();
        for line in groups.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}
