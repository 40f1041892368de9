//! Layers: lays the configuration file, the environment and the flags over each other.
//!
//! Takes the file, the environment and flags; gives each key its value from the topmost layer that has
//! one, and remembers the layer. Promise: an unknown key or variable is an error and never ignored.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use sluice_core::policy::reading::{
    FaultCollector, FileFaultCodes, YamlKey, YamlNode, YamlValue, closest, escape, parse,
};
use sluice_core::policy::{FileFault, SourcePosition};

use super::origin::{ConfigOrigin, ConfigOrigins};
use super::setting::{BoundedSetting, Setting, SettingError};

/// Keys of earlier releases, and their replacement.
const GONE: [(&str, &str); 1] =
    [("sessions.task_from", "a task is now given with a task key: sluice keys create --task-for AGENT --out FILE")];

/// The prefix of our environment variables.
const PREFIX: &str = "SLUICE_";
/// Variables of the command line and of tests.
const OTHERS: [&str; 10] = [
    "SLUICE_URL",
    "SLUICE_CA_FILE",
    "SLUICE_TOKEN",
    "SLUICE_TOKEN_FILE",
    "SLUICE_AGENT_KEY",
    "SLUICE_AGENT_KEY_FILE",
    "SLUICE_TASK_KEY",
    "SLUICE_TASK_KEY_FILE",
    "SLUICE_PAGER",
    "SLUICE_CONFIG",
];
const TESTS: &str = "SLUICE_TEST_";
/// Common variable names that are accepted in addition to the regular ones.
const ALIASES: [(&str, &str); 2] =
    [("SLUICE_DATABASE_URL", "database.url"), ("SLUICE_DATABASE_URL_FILE", "database.url_file")];

/// The error family of `sluice.yaml`.
const CONFIG: FileFaultCodes = FileFaultCodes {
    syntax: "config.syntax",
    key: "config.key",
    duplicate_key: "config.duplicate_key",
    alias: "config.alias",
    many_problems: "config.many_problems",
    language: "sluice.yaml",
};

/// A value given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLineFlag {
    /// The flag as it is typed: `--listen`.
    pub name: &'static str,
    /// The key it sets: `listen`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
}

/// One value before it is parsed.
enum RawConfigValue<'a> {
    Node(&'a YamlNode),
    Text(&'a str),
}

/// Reads values and collects errors.
pub(crate) struct ConfigReader<'a> {
    file: String,
    nodes: BTreeMap<String, &'a YamlNode>,
    texts: BTreeMap<String, (ConfigOrigin, &'a str)>,
    /// The folder that relative paths of the file start at, and the one for everything else.
    folder: &'a Path,
    here: &'a Path,
    origins: ConfigOrigins,
    faults: FaultCollector<'a>,
    /// Errors outside the file.
    loose: Vec<FileFault>,
}

/// Parses the file into a tree. Error messages show the veiled text.
pub(crate) fn tree(file: &str, text: &str, veiled: &str) -> Result<Option<YamlNode>, Vec<FileFault>> {
    let mut faults = FaultCollector::of(CONFIG, file, veiled);
    let document = parse(text, &mut faults);
    if faults.failed() {
        return Err(faults.into_list());
    }
    Ok(document.and_then(|document| document.root))
}

/// The text with anything that may be a password in a URL replaced, character by character.
pub(crate) fn veil(text: &str) -> String {
    let mut veiled = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let secret = line.find("://").map(|at| at + 3).zip(line.rfind('@')).filter(|(from, to)| from < to);
        let parts = secret.and_then(|(from, to)| Some((line.get(..from)?, line.get(from..to)?, line.get(to..)?)));
        let Some((before, secret, after)) = parts else {
            veiled.push_str(line);
            continue;
        };
        veiled.push_str(before);
        veiled.extend(secret.chars().map(|_| '*'));
        veiled.push_str(after);
    }
    veiled
}

impl<'a> ConfigReader<'a> {
    pub(crate) fn new(file: &str, text: &'a str, folder: &'a Path, here: &'a Path) -> Self {
        Self {
            file: file.to_owned(),
            nodes: BTreeMap::new(),
            texts: BTreeMap::new(),
            folder,
            here,
            origins: ConfigOrigins::default(),
            faults: FaultCollector::of(CONFIG, file, text),
            loose: Vec::new(),
        }
    }

    /// Adds the layer of the file. `known` are all keys, such as `limits.body`.
    pub(crate) fn lay_file(&mut self, root: &'a YamlNode, known: &[String]) {
        let Some(entries) = self.entries(root, "sluice.yaml") else { return };
        let tops: Vec<&str> = known.iter().map(|key| key.split('.').next().unwrap_or(key)).collect();
        for (key, node) in entries {
            let name = key.text.as_str();
            if known.iter().any(|known| known == name) {
                self.put(name.to_owned(), node);
            } else if tops.contains(&name) {
                let inside: Vec<&str> =
                    known.iter().filter_map(|known| known.strip_prefix(name)?.strip_prefix('.')).collect();
                for (key, node) in self.entries(node, name).unwrap_or_default() {
                    if inside.contains(&key.text.as_str()) {
                        self.put(format!("{name}.{}", key.text), node);
                    } else {
                        self.report_unknown_key(key, name, &inside, known);
                    }
                }
            } else {
                self.report_unknown_key(key, "", &tops, known);
            }
        }
    }

    fn put(&mut self, key: String, node: &'a YamlNode) {
        // A key without a value counts as not set.
        if node.kind != YamlValue::Null {
            self.nodes.insert(key, node);
        }
    }

    fn entries(&mut self, node: &'a YamlNode, what: &str) -> Option<&'a [(YamlKey, YamlNode)]> {
        match &node.kind {
            YamlValue::Map(entries) => Some(entries),
            YamlValue::Null => None,
            _ => {
                let message = format!("`{what}` must be a map of keys and values, not {}", node.noun());
                self.faults.error(node.place, "config.type", message);
                None
            }
        }
    }

    fn report_unknown_key(&mut self, key: &YamlKey, section: &str, inside: &[&str], known: &[String]) {
        let message = match section {
            "" => format!("unknown key `{}`", escape(&key.text)),
            section => format!("unknown key `{}` in `{section}`", escape(&key.text)),
        };
        let fault = self.faults.error(key.place, "config.unknown_key", message);
        if let Some((_, hint)) = GONE.iter().find(|(gone, _)| *gone == format!("{section}.{}", key.text)) {
            fault.hint(*hint);
            return;
        }
        // After typing errors, the most common mistake is a key in the wrong section.
        let elsewhere = known.iter().find(|known| known.rsplit('.').next() == Some(key.text.as_str()));
        match (closest(&key.text, inside.iter().copied()), elsewhere) {
            (Some(close), _) => drop(fault.hint(format!("did you mean `{close}`?"))),
            (None, Some(elsewhere)) => drop(fault.hint(format!("did you mean `{elsewhere}`?"))),
            (None, None) => drop(fault.hint("to list all keys: sluice config show")),
        }
    }

    /// Adds the layer of the environment.
    pub(crate) fn lay_environment(&mut self, variables: &'a [(String, String)], known: &[String]) {
        let regular = known.iter().map(|key| (variable(key), key.as_str()));
        let aliases = ALIASES.iter().map(|(name, key)| ((*name).to_owned(), *key));
        let names: BTreeMap<String, &str> = regular.chain(aliases).collect();
        let ours = variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
        for (name, value) in ours.filter(|(name, _)| !OTHERS.contains(&name.as_str()) && !name.starts_with(TESTS)) {
            let Some(key) = names.get(name) else {
                let message = format!("unknown variable `{}`", escape(name));
                let mut fault = FileFault::of_file("config.unknown_variable", place_of(name), message);
                fault.why("a variable that starts with SLUICE_ must be known to the gateway");
                fault.suggest_word(closest(name, names.keys().map(String::as_str)));
                self.loose.push(fault);
                continue;
            };
            // In files of variables, people unset a variable with an empty value.
            if value.is_empty() {
                continue;
            }
            let origin = ConfigOrigin::Variable { name: name.clone() };
            if let Some((ConfigOrigin::Variable { name: other }, _)) =
                self.texts.insert((*key).to_owned(), (origin, value))
            {
                let message = format!("`{}` and `{}` set the same key", escape(&other), escape(name));
                self.loose.push(FileFault::of_file("config.conflict", place_of(name), message));
            }
        }
    }

    /// Adds the layer of the flags.
    pub(crate) fn lay_flags(&mut self, flags: &'a [CommandLineFlag]) {
        for flag in flags {
            self.texts.insert(flag.key.to_owned(), (ConfigOrigin::Flag { name: flag.name }, &flag.value));
        }
    }

    /// The value of a key, if a layer sets it.
    pub(crate) fn take<T: Setting>(&mut self, key: &str) -> Option<T> {
        let (raw, origin) = if let Some((origin, text)) = self.texts.get(key) {
            (RawConfigValue::Text(text), origin.clone())
        } else {
            let node: &'a YamlNode = self.nodes.get(key)?;
            (RawConfigValue::Node(node), ConfigOrigin::File { file: self.file.clone(), place: node.place })
        };
        self.origins.set(key, origin);
        let read = match raw {
            RawConfigValue::Node(node) => T::from_node(node, self.folder),
            RawConfigValue::Text(text) => T::from_text(text, self.here),
        };
        read.map_err(|bad| self.bad(key, bad)).ok()
    }

    /// Whether a value lies within its bounds; if not, an error is recorded.
    pub(crate) fn check<T: BoundedSetting>(&mut self, key: &str, value: &T, range: &RangeInclusive<T>) -> bool {
        value.within(range).map_err(|bad| self.bad(key, bad)).is_ok()
    }

    fn bad(&mut self, key: &str, bad: SettingError) {
        let fault = self.refuse_at(key, bad.place, "config.value", format!("`{key}` {}", bad.message));
        if let Some(hint) = bad.hint {
            fault.hint(hint);
        }
    }

    /// Records an error of a key, shown where its value comes from.
    pub(crate) fn refuse(&mut self, key: &str, code: &'static str, message: impl Into<String>) -> &mut FileFault {
        self.refuse_at(key, None, code, message.into())
    }

    fn refuse_at(
        &mut self,
        key: &str,
        inner: Option<SourcePosition>,
        code: &'static str,
        message: String,
    ) -> &mut FileFault {
        let at = match self.origins.of(key) {
            ConfigOrigin::File { place, .. } => return self.faults.error(inner.unwrap_or(place), code, message),
            ConfigOrigin::Default => self.file.clone(),
            ConfigOrigin::Variable { name } => place_of(&name),
            ConfigOrigin::Flag { name } => name.to_owned(),
        };
        self.loose.push(FileFault::of_file(code, at, message));
        #[expect(clippy::unwrap_used, reason = "one was pushed on the line above")]
        self.loose.last_mut().unwrap()
    }

    /// The layer that a value comes from, so far.
    pub(crate) fn origin(&self, key: &str) -> ConfigOrigin {
        self.origins.of(key)
    }

    /// The origins of all values, or all errors.
    pub(crate) fn finish(self) -> Result<ConfigOrigins, Vec<FileFault>> {
        let mut faults = self.faults.into_list();
        faults.extend(self.loose);
        if faults.is_empty() { Ok(self.origins) } else { Err(faults) }
    }
}

/// The variable of a key: `limits.body` as `SLUICE_LIMITS__BODY`.
pub(crate) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

fn place_of(variable: &str) -> String {
    format!("environment variable {}", escape(variable))
}
