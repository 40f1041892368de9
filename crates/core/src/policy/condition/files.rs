//! Conditions about commands, and about the files and hosts a call names.
//!
//! Takes the facts of a call; answers holds or fails. Promise: a rule that allows holds only if every command, file and
//! host of the call is known and listed; a rule that forbids holds as soon as one of them is listed.

use std::fmt;

use super::ConditionTruth;
use crate::policy::facts::CallFacts;
use crate::policy::path::{NormalPath, PathGlobPattern};
use crate::policy::suggest::escape;
use crate::shell::pattern::{CommandPattern, is_listed};
use crate::shell::programs::{changed_files, host_of, named_hosts, possible_files};
use crate::shell::word_paths::{is_device, lies_in, likely_places, places, raw_pieces};
use crate::shell::{BaseFolders, ShellCommand, ShellScript, ShellWord};

/// The word that stands for the project folders of an agent's file.
pub(crate) const PROJECT: &str = "project";

/// Folders a rule names.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleFolders {
    /// The project of the agent is one of them.
    pub(crate) project: bool,
    pub(crate) listed: Vec<Box<str>>,
}

impl fmt::Display for RuleFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let project = self.project.then_some(PROJECT);
        f.write_str(&super::join(project.into_iter().chain(self.listed.iter().map(|folder| &**folder))))
    }
}

impl RuleFolders {
    fn contains_path(&self, path: &str, facts: &CallFacts<'_>, removes: bool) -> bool {
        // A folder around a project (`/tmp`, a home) does not permit the removal of the project itself.
        if removes && facts.projects().iter().any(|own| lies_in(own, path, false)) {
            return false;
        }
        let project = if self.project { facts.projects() } else { &[] };
        self.listed.iter().chain(project).any(|folder| lies_in(path, folder, removes))
    }

    fn hold_all(&self, facts: &CallFacts<'_>, word: Option<&ShellWord>, bases: &BaseFolders, removes: bool) -> bool {
        word.and_then(|word| places(word, bases, facts.folder()))
            .is_some_and(|places| places.iter().all(|path| is_device(path) || self.contains_path(path, facts, removes)))
    }
}

/// Every simple command of the text fits a pattern.
pub(crate) fn test_commands(patterns: &[CommandPattern], facts: &CallFacts<'_>) -> ConditionTruth {
    ConditionTruth::of(first_unlisted(patterns, facts).is_none())
}

/// The first command that is not listed, in words.
fn first_unlisted(patterns: &[CommandPattern], facts: &CallFacts<'_>) -> Option<String> {
    let script = match facts.script() {
        None => return Some("the call has no command".into()),
        Some(Err(why)) => return Some(format!("not judged: {why}")),
        Some(Ok(script)) => script,
    };
    if script.commands.is_empty() && script.redirects.is_empty() {
        return Some("the command is empty".into());
    }
    // SECURITY: bash opens a connection for these names.
    let connects = |text: &str| text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/");
    if script.redirects.iter().any(|redirect| connects(&redirect.target.text)) {
        return Some("a redirection opens a connection".into());
    }
    script.commands.iter().find_map(|command| match is_listed(patterns, command) {
        Ok(true) => None,
        Ok(false) => Some(format!("`{}` is not listed", escape(&render_command(command)))),
        Err(why) => Some(format!("`{}`: {why}", escape(&render_command(command)))),
    })
}

fn render_command(command: &ShellCommand) -> String {
    let variables = command.assignments.iter().map(|(name, _)| format!("{name}=…"));
    let words = command.words.iter().map(|word| if word.known == 0 { "…".to_owned() } else { word.text.clone() });
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Every file the call writes lies in the folders. A command without such files satisfies it; any other call names one.
pub(crate) fn writes_within(folders: &RuleFolders, facts: &CallFacts<'_>) -> ConditionTruth {
    let within = match facts.script() {
        Some(Err(_)) => false,
        Some(Ok(script)) => {
            let redirects = script.redirects.iter().filter(|redirect| redirect.writes);
            let mut changed = script.commands.iter().flat_map(changed_files);
            redirects.into_iter().all(|one| folders.hold_all(facts, Some(&one.target), &one.bases, false))
                && changed.all(|one| folders.hold_all(facts, one.word.as_ref(), one.bases, one.removes))
        }
        None => named_files(folders, facts),
    };
    ConditionTruth::of(within)
}

/// Every file the call names, to read or to write, lies in the folders.
pub(crate) fn reads_within(folders: &RuleFolders, facts: &CallFacts<'_>) -> ConditionTruth {
    let within = match facts.script() {
        Some(Err(_)) => false,
        Some(Ok(script)) => {
            let reads = script.redirects.iter().filter(|redirect| !redirect.writes);
            let file =
                |command: &ShellCommand, word: &ShellWord| folders.hold_all(facts, Some(word), &command.bases, false);
            reads.into_iter().all(|one| folders.hold_all(facts, Some(&one.target), &one.bases, false))
                && script.commands.iter().all(|command| possible_files(command).iter().all(|word| file(command, word)))
        }
        None => named_files(folders, facts),
    };
    ConditionTruth::of(within)
}

fn named_files(folders: &RuleFolders, facts: &CallFacts<'_>) -> bool {
    let files = facts.files();
    let bases = start_folder();
    !files.is_empty()
        && files.iter().all(|file| {
            file.is_some_and(|file| folders.hold_all(facts, Some(&ShellWord::literal(file)), &bases, false))
        })
}

pub(crate) fn start_folder() -> BaseFolders {
    BaseFolders { folders: vec![ShellWord::literal("")], anywhere: false }
}

/// At least one host is named, and all of them are listed.
pub(crate) fn hosts_within(hosts: &[Box<str>], facts: &CallFacts<'_>) -> ConditionTruth {
    let Some(named) = hosts_named(facts) else { return ConditionTruth::No };
    let listed = |host: &String| {
        hosts.iter().any(|own| match own.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|start| start.ends_with('.')),
            None => **own == **host,
        })
    };
    ConditionTruth::of(!named.is_empty() && named.iter().all(listed))
}

fn hosts_named(facts: &CallFacts<'_>) -> Option<Vec<String>> {
    match facts.script() {
        Some(Ok(script)) => {
            let mut found = Vec::new();
            for command in &script.commands {
                found.extend(named_hosts(command).ok()?);
            }
            Some(found)
        }
        Some(Err(_)) => None,
        None => facts.addresses().into_iter().map(|address| host_of(address?)).collect(),
    }
}

/// At least one word of the call, however it is written, names such a path.
pub(crate) fn any_named(globs: &[PathGlobPattern], facts: &CallFacts<'_>) -> ConditionTruth {
    let mut found = false;
    let mut look = |path: &str| found |= fits(globs, path);
    each_file(facts, &mut look);
    for text in facts.texts() {
        let word = ShellWord { home: text == "~" || text.starts_with("~/"), ..ShellWord::literal(text) };
        likely_places(&word, &start_folder(), facts.folder()).iter().for_each(|path| look(path));
    }
    if let Some(Ok(script)) = facts.script() {
        each_word(script, facts, &mut look);
    }
    // A command that is not understood needs approval, but what it plainly names is forbidden all the same.
    for text in facts.command_texts() {
        for piece in raw_pieces(text) {
            let word = ShellWord { home: piece.starts_with("~/"), ..ShellWord::literal(piece) };
            likely_places(&word, &start_folder(), facts.folder()).iter().for_each(|path| look(path));
        }
    }
    ConditionTruth::of(found)
}

/// At least one file that the call writes is such a path.
pub(crate) fn any_written(globs: &[PathGlobPattern], facts: &CallFacts<'_>) -> ConditionTruth {
    let mut found = false;
    let mut look = |path: &str| found |= fits(globs, path);
    match facts.script() {
        None => each_file(facts, &mut look),
        Some(Err(_)) => {}
        Some(Ok(script)) => {
            for one in script.redirects.iter().filter(|redirect| redirect.writes) {
                likely_places(&one.target, &one.bases, facts.folder()).iter().for_each(|path| look(path));
            }
            for one in script.commands.iter().flat_map(changed_files) {
                let places = one.word.map(|word| likely_places(&word, one.bases, facts.folder()));
                places.into_iter().flatten().for_each(|path| look(&path));
            }
        }
    }
    ConditionTruth::of(found)
}

fn fits(globs: &[PathGlobPattern], path: &str) -> bool {
    // A path that cannot be compared is too long to be one.
    NormalPath::new(path).is_ok_and(|path| globs.iter().any(|glob| glob.matches(&path)))
}

/// Every path argument, as it would be opened.
fn each_file(facts: &CallFacts<'_>, look: &mut impl FnMut(&str)) {
    for file in facts.files().into_iter().flatten() {
        let word = ShellWord { home: file == "~" || file.starts_with("~/"), ..ShellWord::literal(file) };
        likely_places(&word, &start_folder(), facts.folder()).iter().for_each(|path| look(path));
    }
}

fn each_word(script: &ShellScript, facts: &CallFacts<'_>, look: &mut impl FnMut(&str)) {
    let mut one = |word: &ShellWord, bases: &BaseFolders| {
        likely_places(word, bases, facts.folder()).iter().for_each(|path| look(path));
        // The value of `--option=value`, and what is attached to `-o`.
        let value = word.text.find('=').map(|at| at + 1).or_else(|| word.text.find('/').filter(|at| *at > 0));
        if let Some(at) = value {
            likely_places(&word.tail(at), bases, facts.folder()).iter().for_each(|path| look(path));
        }
    };
    for command in &script.commands {
        command.words.iter().for_each(|word| one(word, &command.bases));
        command.assignments.iter().for_each(|(_, value)| one(value, &command.bases));
    }
    for redirect in &script.redirects {
        one(&redirect.target, &redirect.bases);
    }
}

/// What the call has instead, in words for people.
pub(crate) fn found_commands(patterns: &[CommandPattern], facts: &CallFacts<'_>) -> String {
    first_unlisted(patterns, facts).unwrap_or_else(|| "every command is listed".into())
}

/// The files of the call, in words for people.
pub(crate) fn found_files(facts: &CallFacts<'_>) -> String {
    match facts.script() {
        Some(Err(why)) => format!("not judged: {why}"),
        Some(Ok(script)) => {
            let redirects = script.redirects.iter().map(|one| one.target.text.clone());
            let words = script.commands.iter().flat_map(possible_files).map(|word| word.text);
            let files: Vec<String> = redirects.chain(words).collect();
            if files.is_empty() {
                "the command names no file".into()
            } else {
                super::join(files.iter().map(String::as_str))
            }
        }
        None => {
            let files = facts.files();
            if files.is_empty() {
                "the call names no file".into()
            } else {
                super::join(files.iter().map(|file| file.unwrap_or("something that is not a text")))
            }
        }
    }
}

/// The hosts of the call, in words for people.
pub(crate) fn found_hosts(facts: &CallFacts<'_>) -> String {
    match hosts_named(facts) {
        None => "the call does not say clearly which hosts it means".into(),
        Some(hosts) if hosts.is_empty() => "no host is named".into(),
        Some(hosts) => super::join(hosts.iter().map(String::as_str)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use crate::capability::Catalogue;
    use crate::clock::UtcMillis;
    use crate::ids::{AgentName, CapabilityName};
    use crate::policy::{Policy, PolicyInput, PolicySource, PolicySources};
    use crate::tier::Tier;

    #[test]
    fn a_listed_folder_around_a_project_does_not_let_it_be_taken_away() {
        let text = "project: /tmp/work/app\nrules:\n  - capability: custom:exec_cmd\n    tier: autonomous\n    conditions: {commands: [\"find *\", \"rm -r *\", \"mv *\", \"rm *\"], writes_within: [project, /tmp]}\n";
        let agent = AgentName::new("coder").unwrap();
        let org = PolicySource { name: "org.yaml".into(), text: "defaults: {tier: approval_required}\n".into() };
        let own = PolicySource { name: "coder.yaml".into(), text: text.into() };
        let sources = PolicySources { org: Some(org), agents: vec![(agent.clone(), own)] };
        let policy = Policy::load(&sources, &Arc::new(Catalogue::default())).unwrap().policy;
        let capability = CapabilityName::new("custom:exec_cmd").unwrap();
        let tier = |command: &str| {
            let arguments = json!({"command": command, "cwd": "/tmp/work/app"});
            let arguments = arguments.as_object().unwrap();
            policy.judge(&PolicyInput::new(&agent, &capability, arguments, UtcMillis::from_millis(0))).tier
        };
        for free in ["rm a", "rm -r src", "find src -delete", "rm /tmp/other/x", "find /tmp/work/other -delete"] {
            assert_eq!(tier(free), Tier::Autonomous, "{free}");
        }
        for asked in [
            "find . -delete",
            "find .. -delete",
            "rm -r /tmp/work/app",
            "rm -r /tmp/work",
            "rm -r ../app",
            "mv /tmp/work/app /tmp/gone",
            "cd .. && rm -r app",
            "cd / && find tmp -delete",
        ] {
            assert_eq!(tier(asked), Tier::ApprovalRequired, "{asked}");
        }
    }
}
