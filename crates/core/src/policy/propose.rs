//! Proposals: rules for observed calls that would have needed approval.
//!
//! Takes calls of one agent; gives rules that allow the calls that stay on the machine, as text for the agent's file.
//! Promise: a proposal is never wider than the observed words plus further words of the same program, and nothing
//! is proposed for a call that may reach another machine or that cannot be read.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::ids::CapabilityName;
use crate::shell::{ShellCommand, ShellScript, WordCertainty};

/// Most patterns in one proposal.
const PATTERNS: usize = 200;
/// Services of the gateway whose effects stay on the machine.
const LOCAL: [&str; 4] = ["filesystem.", "state.", "agent.", "system."];
/// Tools of coding agents that change or read files.
const FILES: [&str; 14] = [
    "custom:write_file",
    "custom:read_file",
    "custom:Read",
    "custom:NotebookRead",
    "custom:Grep",
    "custom:Glob",
    "custom:LS",
    "custom:read_many_files",
    "custom:list_directory",
    "custom:glob",
    "custom:search_file_content",
    "custom:grep_search",
    "custom:list_dir",
    "custom:grep_files",
];

/// A rule that could be added to an agent's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProposal {
    /// The capability it is about.
    pub capability: String,
    /// The rule as it is written in a file.
    pub text: String,
}

/// Whether a call stays on the machine, as far as this is known. An unknown call does not.
#[must_use]
pub fn stays_on_machine(capability: &CapabilityName, arguments: &Map<String, Value>) -> bool {
    let name = capability.as_str();
    if !name.starts_with("custom:") {
        return LOCAL.iter().any(|start| name.starts_with(start));
    }
    if FILES.contains(&name) {
        return true;
    }
    name == "custom:exec_cmd" && script(arguments).is_some_and(|script| script.stays_on_machine())
}

fn script(arguments: &Map<String, Value>) -> Option<ShellScript> {
    match arguments.get("command").or_else(|| arguments.get("cmd"))? {
        Value::String(text) => ShellScript::parse(text).ok(),
        Value::Array(words) => {
            ShellScript::of_words(&words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?).ok()
        }
        _ => None,
    }
}

/// Rules for calls of one agent.
#[must_use]
pub fn propose<'c>(calls: impl Iterator<Item = (&'c CapabilityName, &'c Map<String, Value>)>) -> Vec<RuleProposal> {
    let (mut patterns, mut others): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (capability, arguments) in calls.filter(|(capability, arguments)| stays_on_machine(capability, arguments)) {
        match capability.as_str() {
            "custom:exec_cmd" => {
                let commands = script(arguments).map(|script| script.commands).unwrap_or_default();
                patterns.extend(commands.iter().filter_map(pattern));
            }
            name => others.push(name.to_owned()),
        }
    }
    for list in [&mut patterns, &mut others] {
        list.sort();
        list.dedup();
        list.truncate(PATTERNS);
    }
    let mut proposals: Vec<RuleProposal> = others
        .into_iter()
        .map(|capability| {
            let within =
                if capability.starts_with("custom:") { ", conditions: {writes_within: [project]}" } else { "" };
            let text = format!("  - {{capability: {capability}, tier: notify{within}}}\n");
            RuleProposal { capability, text }
        })
        .collect();
    if !patterns.is_empty() {
        let mut text = String::from(
            "  - capability: custom:exec_cmd\n    tier: notify\n    conditions:\n      reads_within: [project, /tmp]\n      \
             writes_within: [project, /tmp]\n      commands:\n",
        );
        for pattern in &patterns {
            // INVARIANT: a JSON text is a YAML text.
            let _ = writeln!(text, "        - {}", Value::String(pattern.clone()));
        }
        proposals.push(RuleProposal { capability: "custom:exec_cmd".into(), text });
    }
    proposals
}

/// The program, its subcommand if it has one, and any further words.
fn pattern(command: &ShellCommand) -> Option<String> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let name = command.words.first()?.as_literal().filter(|name| plain(name))?;
    let second =
        command.words.get(1).filter(|word| word.certainty == WordCertainty::Literal).map(|word| word.text.as_str());
    let has_subcommands =
        matches!(name, "git" | "cargo" | "npm" | "pnpm" | "yarn" | "go" | "make" | "just" | "mvn" | "gradle");
    Some(match second.filter(|word| has_subcommands && plain(word) && !word.starts_with('-')) {
        Some(subcommand) => format!("{name} {subcommand} *"),
        None if has_subcommands => name.to_owned(),
        None => format!("{name} *"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(command: &str) -> (CapabilityName, Map<String, Value>) {
        let Value::Object(arguments) = json!({"command": command}) else { panic!() };
        (CapabilityName::new("custom:exec_cmd").unwrap(), arguments)
    }

    #[test]
    fn what_may_reach_another_machine_is_never_proposed() {
        for text in [
            "curl https://x.example/",
            "git push",
            "npm install",
            "python -c 'x'",
            "ssh h",
            "sh x.sh",
            "sudo ls",
            "$x",
            "ls; curl x",
            "ls $(wget y)",
            "cargo add x",
            "echo x > /dev/tcp/h/1",
            "gh pr create",
        ] {
            let (name, arguments) = call(text);
            assert!(!stays_on_machine(&name, &arguments), "{text}");
            assert!(propose([(&name, &arguments)].into_iter()).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_proposal_names_the_programs_that_were_seen() {
        let calls =
            [call("cargo test -p x"), call("ls src | wc -l"), call("cargo test"), call("curl https://x.example")];
        let proposals = propose(calls.iter().map(|(name, arguments)| (name, arguments)));
        let [proposal] = proposals.as_slice() else { panic!("{proposals:?}") };
        assert!(
            proposal.text.ends_with("        - \"cargo test *\"\n        - \"ls *\"\n        - \"wc *\"\n"),
            "{}",
            proposal.text
        );
    }
}
