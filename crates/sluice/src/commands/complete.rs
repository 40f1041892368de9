//! `sluice complete`: live ids for the shell. Hidden; the generated completions call it.
//!
//! Promise: it never asks, never fails loudly and prints nothing but ids and names.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::client::{Kind, Reach, entries, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Which verbs of which noun take what.
const TAKEN: [(&str, &[&str], &str); 8] = [
    ("approvals", &["show", "approve", "deny", "session", "always", "wait"], "approvals"),
    ("holds", &["show", "cancel", "extend", "send-now", "retry", "discard", "settle"], "holds"),
    ("calls", &["show", "wait"], "calls"),
    ("keys", &["rotate", "revoke"], "keys"),
    ("alerts", &["ack"], "alerts"),
    ("allowances", &["revoke"], "allowances"),
    ("rollback", &["plan", "apply"], "holds"),
    ("agents", &["show", "pause", "resume", "remove"], "agents"),
];

/// What follows the generated completions of a shell, so that it offers ids that exist. Other shells than
/// bash, zsh and fish complete words and options only.
pub(super) fn hook(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Fish => fish(),
        Shell::Zsh => zsh(),
        _ => String::new(),
    }
}

/// The branches that both shells with a `case` read: noun and verb, and of what they take an id.
fn cases() -> String {
    let mut cases = String::new();
    for (noun, verbs, kind) in TAKEN {
        let words = verbs.iter().map(|verb| format!("\"{noun} {verb}\"")).collect::<Vec<_>>().join("|");
        // Writing to a string cannot fail.
        let _ = writeln!(cases, "            {words}) kind={kind} ;;");
    }
    cases
}

fn zsh() -> String {
    let cases = cases();
    format!(
        r#"
_sluice_live() {{
    local kind=""
    if (( CURRENT >= 4 )) && [[ ${{words[CURRENT]}} != -* ]]; then
        case "${{words[2]}} ${{words[3]}}" in
{cases}        esac
    fi
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
    let cases = cases();
    format!(
        r#"
_sluice_live() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" kind=""
    if [[ $COMP_CWORD -ge 3 && $word != -* ]]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}        esac
    fi
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
    lines
}

/// Print ids that start like this.
#[derive(Debug, Args)]
pub(crate) struct Complete {
    #[command(flatten)]
    reach: Reach,
    /// Of what: approvals, holds, calls, keys, alerts, allowances, agents
    kind: String,
    /// What was typed so far
    #[arg(default_value = "")]
    start: String,
}

impl Complete {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        for id in self.found().unwrap_or_default() {
            screen.line(id)?;
        }
        Ok(Exit::Ok)
    }

    fn found(&self) -> Result<Vec<String>, Failure> {
        let client = self.reach.operator()?;
        if let Ok(kind) = Kind::from_str(&self.kind, false) {
            return client.starting(kind, &self.start);
        }
        if self.kind != "agents" {
            return Ok(Vec::new());
        }
        let agents = client.whole("/v1/agents")?;
        let names = entries(&agents).iter().map(|agent| text(agent, "name").to_owned());
        Ok(names.filter(|name| name.starts_with(&self.start)).collect())
    }
}
