//! The checks of a declared program.
//!
//! Promise: no argument of a call is run as code by a shell or by a program that starts another one, no argument stands
//! where it could become an option or shift the others, and everything that a repeated run needs is declared.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::program::{CommandTemplate, DeclaredProgram, EnvironmentValue, WHOLE, has_place, is_joined};
use super::super::request::{ANSWER, KEY};
use super::super::{CustomArgumentKind, CustomCapability};
use super::{ANSWER_KB, CustomFlawList, SLOWEST, is_word, names_a_secret, refuse_for_a_read};
use crate::capability::{Effect, EffectClass};
use crate::ids::SecretName;
use crate::proxy::{ProxyFlaw, TemplatePiece, pieces};

/// Memory that may be asked for, in megabytes.
const MEMORY_MB: std::ops::RangeInclusive<u32> = 16..=65_536;
/// Most items of a command line, hosts, folders and variables.
const MOST: usize = 64;
/// Programs that run a text they are given. Their first argument that is no option is a script.
const INTERPRETERS: [&str; 21] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "python",
    "python2",
    "python3",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "php",
    "lua",
    "tclsh",
    "pwsh",
    "deno",
    "bun",
    "osascript",
];
/// Options after which an interpreter takes a text to run.
const CODE: [&str; 8] = ["-c", "-e", "-E", "-m", "-r", "--eval", "--command", "-Command"];
/// Programs that start another one, which their arguments name.
const LAUNCHERS: [&str; 34] = [
    "env",
    "xargs",
    "sudo",
    "doas",
    "su",
    "runuser",
    "nohup",
    "nice",
    "ionice",
    "timeout",
    "setsid",
    "stdbuf",
    "busybox",
    "toybox",
    "ssh",
    "find",
    "watch",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "time",
    "taskset",
    "chrt",
    "script",
    "systemd-run",
    "start-stop-daemon",
    "parallel",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "eval",
    "strace",
];

/// The parts of a declaration that the checks look at.
struct ProgramCheck<'a> {
    declared: &'a CustomCapability,
    used: &'a mut BTreeSet<String>,
    flaws: &'a mut CustomFlawList,
}

pub(super) fn check(
    declared: &CustomCapability,
    own: &DeclaredProgram,
    used: &mut BTreeSet<String>,
    flaws: &mut CustomFlawList,
) {
    let mut checked = ProgramCheck { declared, used, flaws };
    for (place, template) in own.templates() {
        checked.command(place, &template);
    }
    check_limits(own, flaws);
    check_reach(declared, own, flaws);
    check_environment(own, flaws);
    check_exit_codes(own, flaws);
    check_effect(declared, own, flaws);
    if own.answer.is_none() && !declared.keep.is_empty() {
        flaws.add("custom.keep", "keep", "`keep` needs `program.answer`: only JSON has places to keep values of");
    }
    if own.answer.as_ref().is_some_and(|answer| !answer.is_object()) {
        flaws.add("custom.answer", "program.answer", "the answer is described by a JSON Schema");
    }
}

pub(super) fn warn(own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    for name in own.secrets() {
        let text = format!(
            "the program is given the secret `{name}` itself and can send it to whatever it reaches; a declared request \
             needs no secret in a program's hands"
        );
        flaws.add("custom.secret_given", "program.environment", text);
    }
    if let Some(name) = interpreter(&own.command)
        && own.command.iter().any(|item| CODE.contains(&item.as_str()))
    {
        let text = format!("`{name}` runs a text of this file; a script of its own can be reviewed and has a hash");
        flaws.add("custom.inline_script", "program.command", text);
    }
}

/// The name of the interpreter that a command starts, if it starts one.
fn interpreter(command: &[String]) -> Option<&'static str> {
    let name = file_name(command.first()?);
    // `python3.12` is one, too.
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.into_iter().find(|known| *known == name || *known == bare)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a text is an absolute path without anything that leads elsewhere.
fn is_plain_path(text: &str) -> bool {
    let parts = text.strip_prefix('/').map(|rest| rest.trim_end_matches('/'));
    let fine = |part: &str| !part.is_empty() && part != "." && part != "..";
    parts.is_some_and(|rest| rest.split('/').all(fine)) && !text.contains(['\0', '\n', '{', '}'])
}

impl ProgramCheck<'_> {
    fn command(&mut self, place: &str, template: &CommandTemplate) {
        let at = format!("{place}.command");
        let Some((program, items)) = template.command.split_first() else {
            return self.flaws.add("custom.command", at, "name the program by its whole path, then its arguments");
        };
        if !is_plain_path(program) {
            let text = "the program is an absolute path as it is, without `..` and without places to fill";
            self.flaws.add("custom.command", at.clone(), text);
        }
        let of_system = ["/usr/", "/bin/", "/sbin/"].iter().any(|folder| program.starts_with(folder));
        if of_system && LAUNCHERS.contains(&file_name(program)) {
            let text = format!("`{}` starts another program; name that one", file_name(program));
            self.flaws.add("custom.shell", at.clone(), text);
        }
        if template.command.len() > MOST {
            self.flaws.add("custom.command", at.clone(), format!("at most {MOST} items"));
        }
        self.interpreted(&at, &template.command);
        let mut options_end = false;
        for item in items {
            options_end |= item == "--";
            self.item(place, item, options_end);
        }
        self.input(place, template);
        for name in template.places() {
            self.place(place, &name);
        }
        if template.reads_all() {
            self.used.extend(self.declared.arguments.keys().cloned());
        }
    }

    /// An interpreter takes its script and its code from the file, never from a call.
    fn interpreted(&mut self, at: &str, command: &[String]) {
        let Some(name) = interpreter(command) else { return };
        let items = command.get(1..).unwrap_or_default();
        let is_code = |item: &str| CODE.iter().any(|option| item.starts_with(option));
        let script = items.iter().position(|item| !item.starts_with('-'));
        let after_code = items.iter().position(|item| is_code(item)).map(|at| at + 1);
        let read = items.iter().enumerate().filter(|(n, item)| {
            Some(*n) == script || Some(*n) == after_code || is_code(item) || script.is_none_or(|script| *n < script)
        });
        if read.into_iter().any(|(_, item)| has_place(item)) {
            let text = format!("`{name}` would run what a call says: an argument stands after the script, as `$1`");
            self.flaws.add("custom.shell", at.to_owned(), text);
        }
    }

    /// Whether arguments can stand where they do in an item.
    fn item(&mut self, place: &str, item: &str, options_end: bool) {
        let at = || format!("{place}.command");
        if item.contains('\0') {
            self.flaws.add("custom.command", at(), "an item has a NUL in it");
        }
        let pieces = pieces(item);
        if pieces.iter().any(|piece| matches!(piece, TemplatePiece::Literal(text) if text.contains(['{', '}']))) {
            let text = format!("`{item}`: braces stand around the name of an argument; give JSON as `input`");
            self.flaws.add("custom.command", at(), text);
        }
        let mut before = String::new();
        for piece in pieces {
            let name = match piece {
                TemplatePiece::Literal(text) => {
                    before.push_str(text);
                    continue;
                }
                TemplatePiece::Place(name) => name,
            };
            // `-n{count}`: the value could add letters, each an option.
            if before.starts_with('-') && !options_end && !before.contains('=') {
                let text = format!("`{item}`: behind an option a value stands after `=`: `--name={{{name}}}`");
                self.flaws.add("custom.command", at(), text);
            }
            let argument = self.declared.arguments.get(name);
            if let Some(argument) = argument
                && matches!(argument.kind, CustomArgumentKind::Texts | CustomArgumentKind::Object)
            {
                let text = format!("`{name}` is no single value: it would be several items; give it as `input`");
                self.flaws.add("custom.command", at(), text);
            }
            let is_option = before.starts_with('-') && is_joined(&before) && !options_end;
            let is_alone = before.len() + name.len() + 2 == item.len();
            if argument.is_some_and(|argument| !argument.required) && !(is_option && is_alone) {
                let text = format!("`{name}` can be left out, so it stands in `--name={{{name}}}` or is required");
                self.flaws.add("custom.command", at(), text);
            }
            before.push_str("value");
        }
    }

    fn input(&mut self, place: &str, template: &CommandTemplate) {
        if let Some(Value::String(text)) = &template.input
            && text != WHOLE
        {
            let text = "`json` for all arguments as one object, or an object with places to fill";
            self.flaws.add("custom.input", format!("{place}.input"), text);
        }
    }

    /// Whether a place has something to be filled with.
    fn place(&mut self, place: &str, name: &str) {
        let at = || place.to_owned();
        self.used.insert(name.to_owned());
        if name == KEY {
            if self.declared.effect == Effect::Read {
                self.flaws.add("custom.effect", at(), "only a write has a `{call.key}`");
            }
        } else if let Some(kept) = name.strip_prefix(ANSWER) {
            if place != "program.rollback" || !self.declared.keep.contains_key(kept) {
                let text = format!("`{{{name}}}` is a value of `keep`, and stands in `rollback` only");
                self.flaws.add("custom.unknown_argument", at(), text);
            }
        } else if !self.declared.arguments.contains_key(name) {
            self.flaws.add("custom.unknown_argument", at(), format!("`{{{name}}}` is not among `arguments`"));
        }
    }
}

fn check_limits(own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    let limits = &own.limits;
    if limits.timeout_seconds == 0 || limits.timeout_seconds > SLOWEST {
        flaws.add("custom.limits", "program.limits.timeout_seconds", format!("between 1 and {SLOWEST}"));
    }
    if limits.answer_kb == 0 || limits.answer_kb > ANSWER_KB {
        flaws.add("custom.limits", "program.limits.answer_kb", format!("between 1 and {ANSWER_KB}"));
    }
    if !MEMORY_MB.contains(&limits.memory_mb) {
        let text = format!("between {} and {}", MEMORY_MB.start(), MEMORY_MB.end());
        flaws.add("custom.limits", "program.limits.memory_mb", text);
    }
}

/// Folders, files and hosts.
fn check_reach(declared: &CustomCapability, own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    for (key, list) in [("reads", &own.reads), ("writes", &own.writes), ("files", &own.files)] {
        for path in list.iter().filter(|path| !is_plain_path(path)) {
            let text = format!("`{path}` is no absolute path without `..`");
            flaws.add("custom.folder", format!("program.{key}"), text);
        }
        if list.len() > MOST {
            flaws.add("custom.folder", format!("program.{key}"), format!("at most {MOST}"));
        }
    }
    let below = |path: &str, folder: &String| {
        let rest = path.strip_prefix(folder.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(folder) = &own.folder
        && (!is_plain_path(folder) || !own.reads.iter().chain(&own.writes).any(|known| below(folder, known)))
    {
        flaws.add("custom.folder", "program.folder", "the folder it starts in lies in one of `reads` or `writes`");
    }
    for path in own.bound_files().iter().filter(|path| own.writes.iter().any(|folder| below(path, folder))) {
        let text = format!("`{path}` lies where the program may write, so that it could change what is approved");
        flaws.add("custom.changeable", "program.writes", text);
    }
    if declared.effect == Effect::Read && !own.writes.is_empty() {
        flaws.add("custom.effect", "program.writes", "a read changes nothing; anything else is `effect: write`");
    }
    let is_host = |host: &&String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '*';
        !host.is_empty() && host.chars().all(plain)
    };
    if let Some(host) = own.network.iter().find(|host| !is_host(host)) {
        let text = format!("`{host}` is no host name; port 443 is the only one");
        flaws.add("custom.network", "program.network", text);
    }
    if own.network.is_empty() && !own.allow_addresses.is_empty() {
        flaws.add("custom.network", "program.allow_addresses", "it reaches no host: name hosts in `network`");
    }
}

fn check_environment(own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    if own.environment.len() > MOST {
        flaws.add("custom.environment", "program.environment", format!("at most {MOST} variables"));
    }
    for (name, value) in &own.environment {
        let at = format!("program.environment.{name}");
        if !is_word(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            flaws.add("custom.environment", at.clone(), "a variable has letters, digits and `_`");
        }
        match EnvironmentValue::of(value) {
            EnvironmentValue::Key => {}
            EnvironmentValue::Secret(secret) => {
                if SecretName::new(secret).is_err() {
                    flaws.add("custom.environment", at, format!("`{secret}` is no name of a secret"));
                }
            }
            EnvironmentValue::Text(text) => {
                if has_place(text) {
                    let text = "of a call, only `{call.key}` is placed in a variable; use the command or `input`";
                    flaws.add("custom.environment", at.clone(), text);
                }
                if text.contains('\0') {
                    flaws.add("custom.environment", at.clone(), "the value has a NUL in it");
                }
                if names_a_secret(name) {
                    let text = format!("`{name}` looks like a credential; put it in the vault and write `secret:NAME`");
                    flaws.add("custom.secret", at, text);
                }
            }
        }
    }
}

fn check_exit_codes(own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    let codes = &own.exit_codes;
    let mut seen = BTreeSet::new();
    let all = codes.done.iter().chain(&codes.not_applied).chain(&codes.refused);
    if let Some(twice) = all.into_iter().find(|code| !seen.insert(**code)) {
        flaws.add("custom.exit_codes", "program.exit_codes", format!("{twice} stands there twice"));
    }
    if codes.done.is_empty() {
        flaws.add("custom.exit_codes", "program.exit_codes.done", "at least one code says that it is done");
    }
}

/// Whether the declared effect and class match the programs of the declaration.
fn check_effect(declared: &CustomCapability, own: &DeclaredProgram, flaws: &mut CustomFlawList) {
    if declared.effect == Effect::Read {
        let has = [
            ("class", declared.class.is_some()),
            ("program.lookup", own.lookup.is_some()),
            ("program.rollback", own.rollback.is_some()),
            ("keep", !declared.keep.is_empty()),
            (
                "program.environment",
                own.environment.values().any(|value| EnvironmentValue::of(value) == EnvironmentValue::Key),
            ),
        ];
        return refuse_for_a_read(&has, flaws);
    }
    match declared.class {
        Some(EffectClass::ConsumeOnce) if !own.takes_key(&own.template()) => {
            let text = "`consume_once` needs `{call.key}` in the command, the input or a variable: by it the program \
                        recognises a repeated run";
            flaws.add("custom.class", "class", text);
        }
        Some(EffectClass::Findable) if own.lookup.is_none() => {
            flaws.add("custom.class", "class", "`findable` needs `lookup`: the program that finds the write");
        }
        Some(_) | None => {}
    }
    if let Some(rollback) = &own.rollback
        && !rollback.repeatable
        && !own.takes_key(&rollback.template())
    {
        let text = "an unclear rollback is run again: give it `{call.key}`, or say `repeatable: true` if running it \
                    twice does what running it once does";
        flaws.0.push(ProxyFlaw { code: "custom.rollback", place: "program.rollback".into(), text: text.into() });
    }
}
