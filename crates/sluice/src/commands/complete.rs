//! `sluice complete`: existing ids for shell completion. Hidden; the generated completions call it.
//!
//! Promise: it never asks, prints no errors, and prints nothing but ids and names.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use serde_json::Value;
use sluice_core::capability::Catalogue;

use crate::client::{ApiRequest, GatewayArgs, ListedIdKind, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Which commands of which noun take which kind of id. A test compares it with the real commands.
const TAKEN: [(&str, &[&str], &str); 15] = [
    ("approvals", &["show", "approve", "deny", "session", "always", "wait", "note", "modify", "choose"], "approvals"),
    ("holds", &["show", "cancel", "extend", "send-now", "retry", "discard", "settle"], "holds"),
    ("dead", &["show", "retry", "discard", "edit"], "dead"),
    ("calls", &["show", "wait"], "calls"),
    ("keys", &["rotate", "revoke"], "keys"),
    ("alerts", &["ack"], "alerts"),
    ("allowances", &["revoke"], "allowances"),
    ("findings", &["show", "release"], "findings"),
    ("sessions", &["show", "task", "clear", "end"], "sessions"),
    ("rollback", &["plan", "apply"], "holds"),
    ("agents", &["show", "pause", "resume", "remove", "observe"], "agents"),
    (
        "services",
        &["show", "reconnect", "disconnect", "sync", "pause", "resume", "test", "capabilities"],
        "connections",
    ),
    ("policy", &["revert"], "policies"),
    ("channels", &["test"], "channels"),
    ("login", &["revoke"], "browsers"),
];
/// The kind of value after these options, for every command.
const AFTER: [(&str, &str); 2] = [("--agent", "agents"), ("--service", "services")];

/// What is appended to the generated completions of a shell, so that it offers existing ids. Shells other than
/// bash, zsh and fish complete only words and options.
pub(super) fn hook(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Fish => fish(),
        Shell::Zsh => zsh(),
        _ => String::new(),
    }
}

/// The `case` branches of bash and zsh: noun and verb, and the kind of id they take.
fn cases() -> String {
    let mut cases = String::new();
    for (noun, verbs, kind) in TAKEN {
        let words = verbs.iter().map(|verb| format!("\"{noun} {verb}\"")).collect::<Vec<_>>().join("|");
        // Writing to a string cannot fail.
        let _ = writeln!(cases, "            {words}) kind={kind} ;;");
    }
    cases
}

/// The branches for values after an option.
fn after() -> String {
    let mut cases = String::new();
    for (option, kind) in AFTER {
        let _ = writeln!(cases, "        {option}) kind={kind} ;;");
    }
    cases
}

fn zsh() -> String {
    let (cases, after) = (cases(), after());
    format!(
        r#"
_sluice_live() {{
    local kind=""
    if (( CURRENT >= 4 )) && [[ ${{words[CURRENT]}} != -* ]]; then
        case "${{words[2]}} ${{words[3]}}" in
{cases}        esac
    fi
    case "${{words[CURRENT-1]}}" in
{after}    esac
    if [[ -n $kind ]]; then
        local -a ids
        ids=(${{(f)"$(sluice complete $kind "${{words[CURRENT]}}" 2>/dev/null)"}})
        compadd -a ids
        return
    fi
    _sluice "$@"
}}
compdef _sluice_live sluice
"#
    )
}

fn bash() -> String {
    let (cases, after) = (cases(), after());
    format!(
        r#"
_sluice_live() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" kind=""
    if [[ $COMP_CWORD -ge 3 && $word != -* ]]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}        esac
    fi
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{after}    esac
    if [[ -n $kind ]]; then
        COMPREPLY=($(compgen -W "$(sluice complete "$kind" "$word" 2>/dev/null)" -- "$word"))
        return
    fi
    _sluice "$@"
}}
complete -F _sluice_live -o bashdefault -o default sluice
"#
    )
}

fn fish() -> String {
    let mut lines = String::from("\n");
    for (noun, verbs, kind) in TAKEN {
        let (verbs, quote) = (verbs.join(" "), '\'');
        let seen = format!("__fish_seen_subcommand_from {noun}; and __fish_seen_subcommand_from {verbs}");
        let ids = format!("(sluice complete {kind} (commandline -ct) 2>/dev/null)");
        let _ = writeln!(lines, "complete -c sluice -n {quote}{seen}{quote} -f -a {quote}{ids}{quote}");
    }
    for (option, kind) in AFTER {
        let (option, quote) = (option.trim_start_matches('-'), '\'');
        let names = format!("(sluice complete {kind} (commandline -ct) 2>/dev/null)");
        let _ = writeln!(lines, "complete -c sluice -l {option} -x -a {quote}{names}{quote}");
    }
    lines
}

/// Print ids that begin with a text.
#[derive(Debug, Args)]
pub(crate) struct CompleteIdsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Kind of id: approvals, holds, dead, calls, keys, alerts, allowances, findings, sessions, agents, services,
    /// connections, policies, channels, browsers
    kind: String,
    /// Text typed so far
    #[arg(default_value = "")]
    start: String,
}

impl CompleteIdsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        for id in self.found().unwrap_or_default() {
            screen.line(id)?;
        }
        Ok(CommandExit::Ok)
    }

    fn found(&self) -> Result<Vec<String>, CliError> {
        let client = self.reach.open_operator_client()?;
        if let Ok(kind) = ListedIdKind::from_str(&self.kind, false) {
            return client.list_ids_with_prefix(kind, &self.start);
        }
        let field = |list: &Value, name: &str| -> Vec<String> {
            entries(list).iter().map(|entry| text_field(entry, name).to_owned()).collect()
        };
        let mut names = match self.kind.as_str() {
            "agents" => field(&client.get_all("/v1/agents")?, "name"),
            "channels" => field(&client.get_all("/v1/channels")?, "name"),
            "connections" => field(&client.get_all("/v1/services")?, "name"),
            "services" => {
                let mut names = field(&client.get_all("/v1/services").unwrap_or_default(), "name");
                let known =
                    Catalogue::builtin().map(|known| known.iter().map(|one| one.service().to_string()).collect());
                names.extend(known.unwrap_or_else(|_| Vec::new()));
                names
            }
            "browsers" => field(&client.get_all("/v1/dashboard-sessions")?, "dashboard_session_id"),
            "policies" => field(&client.list(&ApiRequest::get("/v1/policy/history"), 500)?, "version"),
            "dead" => field(&client.list(&ApiRequest::get("/v1/holds").with("state", Some("dead")), 500)?, "buffer_id"),
            _ => Vec::new(),
        };
        names.retain(|name| name.starts_with(&self.start));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// Commands whose first word is a new name, or a name known only on this machine.
    const NEW: [&str; 15] = [
        "agents add",
        "services connect",
        "secrets show",
        "secrets set",
        "secrets rotate",
        "secrets revoke",
        "egress show",
        "egress reset",
        "policy templates",
        "mounts add",
        "proxies",
        "capabilities",
        "mounts",
        "audit",
        "help",
    ];

    /// Whether the first word of a command is an id or a name of something.
    fn takes(command: &clap::Command) -> bool {
        let first = command.get_positionals().next().map(|word| word.get_id().as_str().to_owned());
        first.is_some_and(|id| ["id", "ids", "name", "names", "wanted"].contains(&id.as_str()))
    }

    #[test]
    fn every_command_that_takes_an_id_completes_it() {
        let cli = crate::SluiceCli::command();
        for noun in cli.get_subcommands() {
            for verb in noun.get_subcommands() {
                let (noun, verb_name) = (noun.get_name(), verb.get_name());
                let path = format!("{noun} {verb_name}");
                let listed = TAKEN.iter().any(|(of, verbs, _)| *of == noun && verbs.contains(&verb_name));
                let new = NEW.iter().any(|new| *new == path || *new == noun);
                assert!(!takes(verb) || listed || new, "`sluice {path}` takes an id and completes none");
            }
        }
        for (noun, verbs, _) in TAKEN {
            let noun = cli.find_subcommand(noun).unwrap_or_else(|| panic!("there is no `{noun}`"));
            for verb in verbs {
                let found = noun.find_subcommand(verb);
                assert!(found.is_some_and(takes), "`{} {verb}` takes no id", noun.get_name());
            }
        }
    }

    #[test]
    fn what_stands_after_an_option_is_completed_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = hook(shell);
            assert!(script.contains("agents") && script.contains("services") && script.contains("findings"), "{shell}");
            assert!(script.contains(if shell == Shell::Fish { "-l service" } else { "--service) kind=services" }));
        }
    }
}
