//! Files that a client's own tool changes, as far as its call names them.
//!
//! Takes a call of `custom:write_file` or of a shell; gives the paths that the tool got or that its command names.
//! Promise: it decides nothing. It names too many files rather than too few, and reports when the call does not say
//! which files it changes. Files that a program writes without naming them are not seen here.

use super::Policy;
use super::condition::files::start_folder;
use super::facts::CallFacts;
use super::input::PolicyInput;
use crate::ids::AgentName;
use crate::shell::programs::{changed_files, operands};
use crate::shell::word_paths::{is_device, places};
use crate::shell::{BaseFolders, ShellCommand, ShellScript, ShellWord, WordCertainty};

/// The tool that changes the files it names.
const WRITE_FILE: &str = "custom:write_file";
/// Most paths that are named for one call.
const MOST: usize = 1_000;
/// Commands of git that change files of the working tree which they name.
const GIT: [&str; 4] = ["rm", "mv", "restore", "checkout"];

/// A file that a call may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Its absolute path, without `.` and `..`. The home folder is written `/~`.
    pub path: String,
    /// The path is a file name pattern.
    pub is_pattern: bool,
    /// If it is a folder, everything below it changes too.
    pub with_content: bool,
}

/// The files that a call may change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedFiles {
    /// Those it names, each once.
    pub files: Vec<ChangedFile>,
    /// Why there may be other files.
    pub unclear: Option<&'static str>,
}

impl ChangedFiles {
    /// Whether the call changes no file, as far as can be told.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.files.is_empty() && self.unclear.is_none()
    }

    fn add(&mut self, (word, bases): (&ShellWord, &BaseFolders), start: Option<&str>, with_content: bool) {
        let Some(found) = places(word, bases, start) else {
            return self.mark_unclear("the command does not say which files it changes");
        };
        for path in found.into_iter().filter(|path| !is_device(path)) {
            if let Some(known) = self.files.iter_mut().find(|known| known.path == path) {
                known.with_content |= with_content;
            } else if self.files.len() < MOST {
                let is_pattern = word.certainty == WordCertainty::Pattern;
                self.files.push(ChangedFile { path, is_pattern, with_content });
            } else {
                self.mark_unclear("the call names too many files");
            }
        }
    }

    fn mark_unclear(&mut self, why: &'static str) {
        self.unclear = self.unclear.or(Some(why));
    }
}

impl Policy {
    /// The folders an agent works in.
    pub fn projects_of(&self, agent: &AgentName) -> impl Iterator<Item = &str> {
        self.projects.of(agent).iter().map(|folder| &**folder)
    }

    /// The files that the tool of this call changes, if its client carries it out.
    #[must_use]
    pub fn changed_files(&self, question: &PolicyInput<'_>) -> ChangedFiles {
        let facts = CallFacts::new(question, None, &self.projects);
        let mut found = ChangedFiles::default();
        if question.capability.as_str() == WRITE_FILE {
            let named = facts.files();
            if named.is_empty() {
                found.mark_unclear("the call names no file");
            }
            for file in named {
                match file {
                    Some(file) => found.add((&file_word(file), &start_folder()), facts.folder(), false),
                    None => found.mark_unclear("the call names a file in a way that cannot be read"),
                }
            }
            return found;
        }
        match facts.script() {
            // Any other tool: the meaning of its arguments is unknown.
            None => {}
            Some(Err(_)) => found.mark_unclear("the command could not be read"),
            Some(Ok(script)) => of_script(script, facts.folder(), &mut found),
        }
        found
    }
}

fn file_word(file: &str) -> ShellWord {
    ShellWord { home: file == "~" || file.starts_with("~/"), ..ShellWord::literal(file) }
}

fn of_script(script: &ShellScript, start: Option<&str>, found: &mut ChangedFiles) {
    for redirect in script.redirects.iter().filter(|redirect| redirect.writes) {
        found.add((&redirect.target, &redirect.bases), start, false);
    }
    for command in &script.commands {
        for target in changed_files(command) {
            match &target.word {
                Some(word) => found.add((word, target.bases), start, target.removes),
                None => found.mark_unclear("the command does not say which files it changes"),
            }
        }
        match command.name() {
            "cp" | "mv" | "install" | "ln" => of_copy(command, start, found),
            "git" => of_git(command, start, found),
            "apply_patch" | "applypatch" => of_patch(command, start, found),
            _ => {}
        }
    }
}

/// Where the destination is a folder, files of the sources' names change in it.
fn of_copy(command: &ShellCommand, start: Option<&str>, found: &mut ChangedFiles) {
    let words = operands(command.words.get(1..).unwrap_or_default());
    let Some((destination, sources)) = words.split_last() else { return };
    for source in sources {
        let name = source.text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if source.certainty != WordCertainty::Literal || matches!(name, "" | "." | "..") {
            found.mark_unclear("the command does not say which files it copies");
            continue;
        }
        let text = format!("{}/{name}", destination.text.trim_end_matches('/'));
        found.add((&ShellWord { known: text.len(), text, ..destination.clone() }, &command.bases), start, false);
    }
}

fn of_git(command: &ShellCommand, start: Option<&str>, found: &mut ChangedFiles) {
    let verb = command.words.get(1).and_then(ShellWord::as_literal).unwrap_or_default();
    if !GIT.contains(&verb) {
        return;
    }
    for word in operands(command.words.get(2..).unwrap_or_default()) {
        // A branch or a commit is treated as a file that does not exist.
        found.add((&word, &command.bases), start, true);
    }
}

fn of_patch(command: &ShellCommand, start: Option<&str>, found: &mut ChangedFiles) {
    let patch = command.words.get(1).and_then(ShellWord::as_literal);
    let Some(patch) = patch.filter(|text| super::facts::is_patch(text)) else {
        return found.mark_unclear("the command does not say which files it changes");
    };
    for file in super::facts::patched_files(patch) {
        found.add((&file_word(file), &command.bases), start, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Catalogue;
    use crate::clock::UtcMillis;
    use crate::ids::CapabilityName;
    use crate::policy::PolicySources;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn of(capability: &str, arguments: Value) -> (Vec<String>, bool) {
        let policy = Policy::load(&PolicySources::default(), &Arc::new(Catalogue::default())).unwrap().policy;
        let (agent, capability) = (AgentName::new("coder").unwrap(), CapabilityName::new(capability).unwrap());
        let arguments = arguments.as_object().unwrap();
        let now = UtcMillis::from_millis(0);
        let found = policy.changed_files(&PolicyInput::new(&agent, &capability, arguments, now));
        let shown = |file: &ChangedFile| {
            let marks = [(file.is_pattern, "?"), (file.with_content, "/")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            format!("{}{marks}", file.path.strip_prefix("/srv/app/").unwrap_or(&file.path))
        };
        (found.files.iter().map(shown).collect(), found.unclear.is_some())
    }

    #[test]
    fn every_file_that_a_command_names_as_changed_is_found() {
        let mut wrong = Vec::new();
        for (command, wanted, unclear) in [
            ("ls -la", vec![], false),
            ("cargo test > out.txt 2>&1", vec!["out.txt"], false),
            ("echo x >> a; echo y > sub/b", vec!["a", "sub/b"], false),
            ("ls > /dev/null", vec![], false),
            ("sed -i 's/a/b/' src/lib.rs", vec!["src/lib.rs"], false),
            ("sed -i 's/a/b/' src/*.rs", vec!["src/*.rs?"], false),
            ("rm a b", vec!["a/", "b/"], false),
            ("rm -rf target", vec!["target/"], false),
            // A folder that cannot be entered leaves the command where it was.
            ("cd sub && rm a", vec!["a/", "sub/a/"], false),
            ("mv a b", vec!["a/", "b/", "b/a"], false),
            ("cp a b", vec!["b", "b/a"], false),
            ("tee log < x", vec!["log"], false),
            ("truncate -s 0 a", vec!["0/", "a"], false),
            ("find . -name '*.tmp' -delete", vec!["/srv/app/"], false),
            ("git checkout -- src/a.rs", vec!["src/a.rs/"], false),
            ("git restore src/a.rs", vec!["src/a.rs/"], false),
            ("git status", vec![], false),
            ("rm \"$X\"", vec![], true),
            ("patch -p1 < x.diff", vec![], true),
            ("eval \"$X\"", vec![], true),
            ("cp *.txt dir", vec![], true),
        ] {
            let (mut found, is_unclear) = of("custom:exec_cmd", json!({"command": command, "cwd": "/srv/app"}));
            let mut wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            if command.starts_with("truncate") {
                // Its size is read as a file that does not exist.
                found.retain(|path| !path.starts_with('0'));
                wanted.retain(|path| !path.starts_with('0'));
            }
            if (&found, is_unclear) != (&wanted, unclear) {
                wrong.push(format!("{command}: {found:?} {is_unclear}, not {wanted:?} {unclear}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn every_tool_for_files_names_its_file() {
        let patch = "*** Begin Patch\n*** Update File: a.rs\n@@\n-x\n+y\n*** Add File: b.rs\n+z\n*** Delete File: c.rs\n*** End Patch";
        for (arguments, wanted) in [
            (json!({"path": "/srv/app/a.rs", "file_path": "/srv/app/a.rs", "content": "x"}), vec!["a.rs"]),
            (json!({"path": "a.rs", "cwd": "/srv/app"}), vec!["a.rs"]),
            (json!({"notebook_path": "/srv/app/n.ipynb"}), vec!["n.ipynb"]),
            (json!({"input": patch, "cwd": "/srv/app"}), vec!["a.rs", "b.rs", "c.rs"]),
        ] {
            assert_eq!(of("custom:write_file", arguments.clone()), (paths(&wanted), false), "{arguments}");
        }
        assert_eq!(of("custom:write_file", json!({"content": "x"})), (vec![], true));
        let words = json!({"command": ["apply_patch", patch], "cwd": "/srv/app"});
        assert_eq!(of("custom:exec_cmd", words), (paths(&["a.rs", "b.rs", "c.rs"]), false));
        assert_eq!(of("custom:mcp.files.read", json!({"path": "/srv/app/a"})), (vec![], false));
    }

    fn paths(of: &[&str]) -> Vec<String> {
        of.iter().map(|path| (*path).to_owned()).collect()
    }
}
