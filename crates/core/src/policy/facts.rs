//! The facts of a call that conditions test: arguments by their meaning, computed once and only when needed.
//!
//! Takes a question and, if the catalogue has it, the capability. For tools the catalogue does not know,
//! the name of an argument tells its meaning; a value of another shape is an error, never a guess.

use std::cell::OnceCell;

use serde_json::Value;

use super::index::IndexedName;
use super::input::PolicyInput;
use super::path::{NormalPath, PolicyPathError};
use super::project::AgentProjects;
use crate::capability::{Capability, ParamKind};
use crate::shell::{ShellAnalysisError, ShellScript};

/// Names of the arguments in which unknown tools usually take paths.
const PATHS: [&str; 9] =
    ["path", "source", "destination", "file_path", "notebook_path", "directory", "working_directory", "cwd", "root"];
const CONTENTS: [&str; 5] = ["content", "body", "text", "message", "new_string"];
const RECIPIENTS: [&str; 4] = ["to", "recipients", "cc", "bcc"];

/// Names of the arguments in which tools take a command for a shell.
const COMMANDS: [&str; 2] = ["command", "cmd"];
/// Names of the arguments in which tools take the folder a command runs in; the client's own comes last.
const FOLDERS: [&str; 5] = ["workdir", "working_directory", "directory", "dir_path", "cwd"];
/// Arguments of shell tools that do not change what runs.
const ASIDE: [&str; 12] = [
    "description",
    "timeout",
    "timeout_ms",
    "run_in_background",
    "is_background",
    "justification",
    "yield_time_ms",
    "max_output_tokens",
    "tty",
    "login",
    "explanation",
    "reason",
];
/// Names of the arguments in which tools take files they change, beside those of [`PATHS`] that are not folders.
const FILES: [&str; 9] =
    ["path", "source", "destination", "file_path", "notebook_path", "target_file", "root", "old_path", "new_path"];
/// Arguments that hold text to look for or to insert, and no paths.
const NO_PATHS: [&str; 7] = ["old_string", "query", "pattern", "regex", "prompt", "description", "explanation"];
/// The lines that announce files in a patch that a tool applies.
const PATCHED: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// A question with its capability, and the facts computed so far.
pub(crate) struct CallFacts<'q> {
    pub(crate) question: &'q PolicyInput<'q>,
    pub(crate) capability: Option<&'q Capability>,
    /// Arguments that are paths, as far as the catalogue knows.
    path_names: &'q [Box<str>],
    paths: OnceCell<CallPaths<'q>>,
    projects: &'q AgentProjects,
    script: OnceCell<Option<Result<ShellScript, ShellAnalysisError>>>,
}

/// The path arguments of a call. Two fit without allocation; more than two occur only in unknown tools.
#[derive(Debug, Default)]
pub(crate) struct CallPaths<'q> {
    first: Option<NormalPath<'q>>,
    second: Option<NormalPath<'q>>,
    more: Vec<NormalPath<'q>>,
    /// Set when one of them cannot be compared; then none is.
    pub(crate) broken: Option<PolicyPathError>,
}

impl<'q> CallPaths<'q> {
    #[inline]
    fn add(&mut self, value: &'q Value) {
        match value.as_str().map_or(Err(PolicyPathError::Empty), NormalPath::new) {
            Ok(path) if self.first.is_none() => self.first = Some(path),
            Ok(path) if self.second.is_none() => self.second = Some(path),
            Ok(path) => self.more.push(path),
            Err(fault) => self.broken = self.broken.or(Some(fault)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NormalPath<'q>> {
        self.first.iter().chain(&self.second).chain(&self.more)
    }

    /// Whether one of them satisfies the test.
    #[inline]
    pub(crate) fn any(&self, does: impl Fn(&NormalPath<'q>) -> bool) -> bool {
        self.first.as_ref().is_some_and(&does) || self.second.as_ref().is_some_and(&does) || self.more.iter().any(does)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether the index has looked at all there is to look at.
    pub(crate) const fn is_single(&self) -> bool {
        self.first.is_some() && self.second.is_none()
    }
}

impl<'q> CallFacts<'q> {
    #[inline]
    pub(crate) fn new(
        question: &'q PolicyInput<'q>,
        name: Option<&'q IndexedName>,
        projects: &'q AgentProjects,
    ) -> Self {
        let capability = name.and_then(IndexedName::capability);
        let path_names = name.map_or(&[][..], IndexedName::paths);
        Self { question, capability, path_names, paths: OnceCell::new(), projects, script: OnceCell::new() }
    }

    /// The folders the agent works in.
    pub(crate) fn projects(&self) -> &'q [Box<str>] {
        self.projects.of(self.question.agent)
    }

    /// The folder in which relative paths begin.
    pub(crate) fn folder(&self) -> Option<&'q str> {
        self.argument("cwd").and_then(Value::as_str)
    }

    /// The parsed command of the call; `None` if it has none.
    pub(crate) fn script(&self) -> Option<&Result<ShellScript, ShellAnalysisError>> {
        self.script.get_or_init(|| self.read_script()).as_ref()
    }

    fn read_script(&self) -> Option<Result<ShellScript, ShellAnalysisError>> {
        let mut given = COMMANDS.iter().filter_map(|name| self.argument(name));
        let command = given.next()?;
        if command.as_str().is_some_and(is_patch) {
            return None;
        }
        if given.next().is_some() {
            return Some(Err(ShellAnalysisError("two commands are given")));
        }
        // SECURITY: an unknown argument may choose another shell, another user or another environment.
        let known = |name: &str| COMMANDS.contains(&name) || FOLDERS.contains(&name) || ASIDE.contains(&name);
        if !self.question.arguments.keys().all(|name| known(name)) {
            return Some(Err(ShellAnalysisError("the tool was given more than a command")));
        }
        // A folder beside the client's own changes relative paths; it is accepted only if it is the same folder.
        let folders: Vec<&Value> = FOLDERS.iter().filter_map(|name| self.argument(name)).collect();
        if folders.windows(2).any(|pair| matches!(pair, [one, other] if one != other)) {
            return Some(Err(ShellAnalysisError("the tool runs in another folder")));
        }
        Some(match command {
            Value::String(text) => ShellScript::parse(text),
            Value::Array(words) => match words.iter().map(Value::as_str).collect::<Option<Vec<&str>>>() {
                Some(words) => ShellScript::of_words(&words),
                None => Err(ShellAnalysisError("the command is not a text")),
            },
            _ => Err(ShellAnalysisError("the command is not a text")),
        })
    }

    /// The command as it was given, for rules about its plain text.
    pub(crate) fn command_texts(&self) -> Vec<&'q str> {
        let mut texts = Vec::new();
        for value in COMMANDS.iter().filter_map(|name| self.argument(name)) {
            match value {
                Value::String(text) => texts.push(text.as_str()),
                Value::Array(words) => texts.extend(words.iter().filter_map(Value::as_str)),
                _ => {}
            }
        }
        texts
    }

    /// Files the call names by its arguments; `None` in the place of one that is not a text.
    pub(crate) fn files(&self) -> Vec<Option<&'q str>> {
        if self.capability.is_some() {
            return self.of_kind(ParamKind::Path).map(Value::as_str).collect();
        }
        let named = FILES.iter().filter_map(|name| self.argument(name)).map(Value::as_str);
        let patches = ["input", "patch", "command"].iter().filter_map(|name| self.argument(name)?.as_str());
        let patched = patches.filter(|text| is_patch(text)).flat_map(patched_files);
        named.chain(patched.map(Some)).collect()
    }

    /// Every text among the arguments of a tool the catalogue does not know that could be a path, whatever its name.
    pub(crate) fn texts(&self) -> Vec<&'q str> {
        let mut found = Vec::new();
        if self.capability.is_none() {
            let arguments = self.question.arguments.iter();
            let no_path = |name: &str| CONTENTS.contains(&name) || NO_PATHS.contains(&name) || COMMANDS.contains(&name);
            arguments.filter(|(name, _)| !no_path(name)).for_each(|(_, value)| each_text(value, 0, &mut found));
        }
        found
    }

    /// Addresses the call names; `None` in the place of one that is not a text.
    pub(crate) fn addresses(&self) -> Vec<Option<&'q str>> {
        match self.capability {
            Some(_) => self.of_kind(ParamKind::Url).map(Value::as_str).collect(),
            None => ["url", "uri"].iter().filter_map(|name| self.argument(name)).map(Value::as_str).collect(),
        }
    }

    pub(crate) fn argument(&self, name: &str) -> Option<&'q Value> {
        self.question.arguments.get(name)
    }

    /// What the catalogue says about an argument.
    pub(crate) fn kind(&self, name: &str) -> Option<ParamKind> {
        self.capability.and_then(|capability| capability.param(name)).map(|param| param.kind)
    }

    /// Whether the capability could have such an argument.
    pub(crate) fn can_have(&self, kind: ParamKind) -> bool {
        self.capability.is_none_or(|capability| capability.params.iter().any(|param| param.kind == kind))
    }

    /// Arguments of a kind that the call carries.
    pub(crate) fn of_kind(&self, kind: ParamKind) -> impl Iterator<Item = &'q Value> {
        let params = self.capability.map_or(&[][..], |capability| &capability.params);
        let names: &[&str] = match (self.capability, kind) {
            (None, ParamKind::Path) => &PATHS,
            (None, ParamKind::Content) => &CONTENTS,
            (None, ParamKind::Recipients) => &RECIPIENTS,
            _ => &[],
        };
        let arguments = self.question.arguments;
        let known =
            params.iter().filter(move |param| param.kind == kind).filter_map(|param| arguments.get(&param.name));
        let usual = (!names.is_empty()).then(|| arguments.iter().filter(|(name, _)| names.contains(&name.as_str())));
        known.chain(usual.into_iter().flatten().map(|(_, value)| value))
    }

    /// All path arguments, normalised.
    #[inline]
    pub(crate) fn paths(&self) -> &CallPaths<'q> {
        self.paths.get_or_init(|| {
            let mut paths = CallPaths::default();
            match (self.capability, self.path_names) {
                (Some(_), [only]) => {
                    if let Some(value) = self.argument(only) {
                        paths.add(value);
                    }
                }
                (Some(_), names) => {
                    names.iter().filter_map(|name| self.argument(name)).for_each(|value| paths.add(value));
                }
                (None, _) => self.of_kind(ParamKind::Path).for_each(|value| paths.add(value)),
            }
            paths
        })
    }

    /// Hands every address of the call to `see`, unchanged. Gives how many there are.
    ///
    /// `Ok(None)` means that the call leaves its main recipients open (a reply without `to`).
    pub(crate) fn recipients(&self, mut see: impl FnMut(&'q str, &'q str)) -> Result<Option<u64>, &'static str> {
        let named = match self.capability {
            Some(capability) => capability.params_of(ParamKind::Recipients).next().map(|param| param.name.as_str()),
            None => RECIPIENTS.into_iter().find(|name| self.argument(name).is_some()),
        };
        if named.and_then(|name| self.argument(name)).is_none() {
            return Ok(None);
        }
        let mut count = 0;
        for value in self.of_kind(ParamKind::Recipients) {
            match value {
                Value::String(text) => each_address(text, &mut |local, domain| {
                    count += 1;
                    see(local, domain);
                })?,
                Value::Array(list) => {
                    for item in list {
                        let text = item.as_str().ok_or("a recipient is not a text")?;
                        each_address(text, &mut |local, domain| {
                            count += 1;
                            see(local, domain);
                        })?;
                    }
                }
                _ => return Err("the recipients are neither a text nor a list"),
            }
        }
        Ok((count > 0).then_some(count))
    }
}

/// Collects the texts of a value that are short enough to be a path.
fn each_text<'v>(value: &'v Value, depth: usize, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) if text.len() <= 4096 && !text.contains('\n') => found.push(text),
        Value::Array(items) if depth < 8 => items.iter().for_each(|item| each_text(item, depth + 1, found)),
        Value::Object(members) if depth < 8 => members.values().for_each(|item| each_text(item, depth + 1, found)),
        _ => {}
    }
}

/// The files that a patch names.
pub(crate) fn patched_files(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| PATCHED.iter().find_map(|start| line.strip_prefix(start))).map(str::trim)
}

/// Whether a text is a patch for several files, as some coding agents pass to their tools.
pub(crate) fn is_patch(text: &str) -> bool {
    text.trim_start().starts_with("*** Begin Patch")
}

/// Splits `a@b, "C, D" <c@d>` into addresses. A text that a mail program might read differently is an error.
pub(crate) fn each_address<'t>(text: &'t str, see: &mut impl FnMut(&'t str, &'t str)) -> Result<(), &'static str> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let (mut start, mut quoted, mut angled, mut escaped) = (0, false, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' if !quoted => angled = true,
            '>' if !quoted => angled = false,
            ',' if !quoted && !angled => {
                let (local, domain) = one_address(text.get(start..at).unwrap_or_default())?;
                see(local, domain);
                start = at + 1;
            }
            ';' | '(' | ')' | ':' if !quoted => return Err("the recipients hold a group, a comment or a route"),
            c if c.is_control() => return Err("the recipients hold a control character"),
            _ => {}
        }
    }
    let (local, domain) = one_address(text.get(start..).unwrap_or_default())?;
    see(local, domain);
    Ok(())
}

/// `local@domain`, bare or in angle brackets after a display name.
fn one_address(text: &str) -> Result<(&str, &str), &'static str> {
    let text = text.trim();
    let bare = match text.rsplit_once('<') {
        Some((name, rest)) => {
            let name_holds_an_address =
                name.contains(['<', '>']) || (name.contains('@') && !name.trim().starts_with('"'));
            if name_holds_an_address {
                return Err("a display name looks like an address");
            }
            rest.strip_suffix('>').ok_or("an address is not closed by `>`")?
        }
        None => text,
    };
    let (local, domain) = bare.split_once('@').ok_or("a recipient is not an address")?;
    let atoms = |part: &str, more: &[u8]| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    if !atoms(local, b"!#$%&'*+-/=?^_`{|}~.")
        || !atoms(domain, b"-.")
        || domain.starts_with('.')
        || domain.ends_with('.')
    {
        return Err("a recipient is not a plain address");
    }
    Ok((local, domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Result<Vec<String>, &'static str> {
        let mut list = Vec::new();
        each_address(text, &mut |local, domain| list.push(format!("{local}@{domain}")))?;
        Ok(list)
    }

    #[test]
    fn addresses_are_read_as_a_mail_program_reads_them() {
        assert_eq!(addresses("a@b.c, d@e.f").unwrap(), ["a@b.c", "d@e.f"]);
        assert_eq!(addresses("\"Doe, Jane\" <j@x.org>, Bob <b@y.org>").unwrap(), ["j@x.org", "b@y.org"]);
        assert_eq!(addresses(" ").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        for bad in [
            "a@b@c",
            "a",
            "a@",
            "@b",
            "a@b,,c@d",
            "friends: a@b;",
            "a@b (c@evil.org)",
            "good@corp.org <evil@x.org>",
            "<a@b> c@d",
            "a@b\r\nBcc: c@d",
            "\"a@b",
            "a@b.",
            "a@bücher.de",
            "a <b <c@d>",
            "\"x\"@b.c",
        ] {
            assert!(addresses(bad).is_err(), "{bad}");
        }
    }
}
