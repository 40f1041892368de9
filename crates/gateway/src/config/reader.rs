//! The layers of configuration, laid over each other.
//!
//! Takes the file, the environment and flags; gives each key its value from the topmost layer that has
//! one, and remembers which. Promise: a key or variable nobody knows is an error, never ignored.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use sluice_core::policy::reading::{Family, Faults, Key, Kind, Node, closest, escape, parse};
use sluice_core::policy::{Fault, Place};

use super::origin::{Origin, Origins};
use super::setting::{Bad, Bounded, Setting};

/// Keys of earlier releases, and what is done instead.
const GONE: [(&str, &str); 1] =
    [("sessions.task_from", "a task is stated with a task key: sluice keys create --task-for AGENT --out FILE")];

/// What every variable of ours starts with.
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
/// Names people are used to, beside the regular ones.
const ALIASES: [(&str, &str); 2] =
    [("SLUICE_DATABASE_URL", "database.url"), ("SLUICE_DATABASE_URL_FILE", "database.url_file")];

/// Problems of `sluice.yaml`.
const CONFIG: Family = Family {
    syntax: "config.syntax",
    key: "config.key",
    duplicate_key: "config.duplicate_key",
    alias: "config.alias",
    many_problems: "config.many_problems",
    language: "sluice.yaml",
};

/// A value given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As it is typed: `--listen`.
    pub name: &'static str,
    /// The key it sets: `listen`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
}

/// One value before it is understood.
enum Raw<'a> {
    Node(&'a Node),
    Text(&'a str),
}

/// Reads values and collects problems.
pub(crate) struct Reader<'a> {
    file: String,
    nodes: BTreeMap<String, &'a Node>,
    texts: BTreeMap<String, (Origin, &'a str)>,
    /// Where relative paths of the file, and of everything else, begin.
    folder: &'a Path,
    here: &'a Path,
    origins: Origins,
    faults: Faults<'a>,
    /// Problems outside the file.
    loose: Vec<Fault>,
}

/// The tree of a file. Problems show the veiled text.
pub(crate) fn tree(file: &str, text: &str, veiled: &str) -> Result<Option<Node>, Vec<Fault>> {
    let mut faults = Faults::of(CONFIG, file, veiled);
    let document = parse(text, &mut faults);
    if faults.failed() {
        return Err(faults.into_list());
    }
    Ok(document.and_then(|document| document.root))
}

/// The text with what may be a password in a URL made unreadable, character by character.
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

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &str, text: &'a str, folder: &'a Path, here: &'a Path) -> Self {
        Self {
            file: file.to_owned(),
            nodes: BTreeMap::new(),
            texts: BTreeMap::new(),
            folder,
            here,
            origins: Origins::default(),
            faults: Faults::of(CONFIG, file, text),
            loose: Vec::new(),
        }
    }

    /// Lays the file down. `known` are all keys, such as `limits.body`.
    pub(crate) fn lay_file(&mut self, root: &'a Node, known: &[String]) {
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
                        self.stranger(key, name, &inside, known);
                    }
                }
            } else {
                self.stranger(key, "", &tops, known);
            }
        }
    }

    fn put(&mut self, key: String, node: &'a Node) {
        // A key without a value is as if it were not there.
        if node.kind != Kind::Null {
            self.nodes.insert(key, node);
        }
    }

    fn entries(&mut self, node: &'a Node, what: &str) -> Option<&'a [(Key, Node)]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Null => None,
            _ => {
                let message = format!("`{what}` must be a map of keys and values, not {}", node.noun());
                self.faults.error(node.place, "config.type", message);
                None
            }
        }
    }

    fn stranger(&mut self, key: &Key, section: &str, inside: &[&str], known: &[String]) {
        let message = match section {
            "" => format!("unknown key `{}`", escape(&key.text)),
            section => format!("unknown key `{}` in `{section}`", escape(&key.text)),
        };
        let fault = self.faults.error(key.place, "config.unknown_key", message);
        if let Some((_, hint)) = GONE.iter().find(|(gone, _)| *gone == format!("{section}.{}", key.text)) {
            fault.hint(*hint);
            return;
        }
        // A key that stands in the wrong section is the commonest mistake after a slip of the pen.
        let elsewhere = known.iter().find(|known| known.rsplit('.').next() == Some(key.text.as_str()));
        match (closest(&key.text, inside.iter().copied()), elsewhere) {
            (Some(close), _) => drop(fault.hint(format!("did you mean `{close}`?"))),
            (None, Some(elsewhere)) => drop(fault.hint(format!("did you mean `{elsewhere}`?"))),
            (None, None) => drop(fault.hint("all keys: sluice config show")),
        }
    }

    /// Lays the environment down.
    pub(crate) fn lay_environment(&mut self, variables: &'a [(String, String)], known: &[String]) {
        let regular = known.iter().map(|key| (variable(key), key.as_str()));
        let aliases = ALIASES.iter().map(|(name, key)| ((*name).to_owned(), *key));
        let names: BTreeMap<String, &str> = regular.chain(aliases).collect();
        let ours = variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
        for (name, value) in ours.filter(|(name, _)| !OTHERS.contains(&name.as_str()) && !name.starts_with(TESTS)) {
            let Some(key) = names.get(name) else {
                let message = format!("unknown variable `{}`", escape(name));
                let mut fault = Fault::of_file("config.unknown_variable", place_of(name), message);
                fault.why("it starts with SLUICE_, so it is probably meant for the gateway");
                fault.mean(closest(name, names.keys().map(String::as_str)));
                self.loose.push(fault);
                continue;
            };
            // An empty variable is how people unset one in files of variables.
            if value.is_empty() {
                continue;
            }
            let origin = Origin::Variable { name: name.clone() };
            if let Some((Origin::Variable { name: other }, _)) = self.texts.insert((*key).to_owned(), (origin, value)) {
                let message = format!("`{}` and `{}` say the same thing", escape(&other), escape(name));
                self.loose.push(Fault::of_file("config.conflict", place_of(name), message));
            }
        }
    }

    /// Lays flags down.
    pub(crate) fn lay_flags(&mut self, flags: &'a [Flag]) {
        for flag in flags {
            self.texts.insert(flag.key.to_owned(), (Origin::Flag { name: flag.name }, &flag.value));
        }
    }

    /// The value of a key, if a layer has one.
    pub(crate) fn take<T: Setting>(&mut self, key: &str) -> Option<T> {
        let (raw, origin) = if let Some((origin, text)) = self.texts.get(key) {
            (Raw::Text(text), origin.clone())
        } else {
            let node: &'a Node = self.nodes.get(key)?;
            (Raw::Node(node), Origin::File { file: self.file.clone(), place: node.place })
        };
        self.origins.set(key, origin);
        let read = match raw {
            Raw::Node(node) => T::from_node(node, self.folder),
            Raw::Text(text) => T::from_text(text, self.here),
        };
        read.map_err(|bad| self.bad(key, bad)).ok()
    }

    /// Whether a value lies within its bounds; if not, that is a problem.
    pub(crate) fn check<T: Bounded>(&mut self, key: &str, value: &T, range: &RangeInclusive<T>) -> bool {
        value.within(range).map_err(|bad| self.bad(key, bad)).is_ok()
    }

    fn bad(&mut self, key: &str, bad: Bad) {
        let fault = self.refuse_at(key, bad.place, "config.value", format!("`{key}` {}", bad.message));
        if let Some(hint) = bad.hint {
            fault.hint(hint);
        }
    }

    /// A problem of a key, shown where its value comes from.
    pub(crate) fn refuse(&mut self, key: &str, code: &'static str, message: impl Into<String>) -> &mut Fault {
        self.refuse_at(key, None, code, message.into())
    }

    fn refuse_at(&mut self, key: &str, inner: Option<Place>, code: &'static str, message: String) -> &mut Fault {
        let at = match self.origins.of(key) {
            Origin::File { place, .. } => return self.faults.error(inner.unwrap_or(place), code, message),
            Origin::Default => self.file.clone(),
            Origin::Variable { name } => place_of(&name),
            Origin::Flag { name } => name.to_owned(),
        };
        self.loose.push(Fault::of_file(code, at, message));
        #[expect(clippy::unwrap_used, reason = "one was pushed on the line above")]
        self.loose.last_mut().unwrap()
    }

    /// Where a value comes from, so far.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.origins.of(key)
    }

    /// Where values come from, or all problems.
    pub(crate) fn finish(self) -> Result<Origins, Vec<Fault>> {
        let mut faults = self.faults.into_list();
        faults.extend(self.loose);
        if faults.is_empty() { Ok(self.origins) } else { Err(faults) }
    }
}

/// `limits.body` as `SLUICE_LIMITS__BODY`.
pub(crate) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

fn place_of(variable: &str) -> String {
    format!("environment variable {}", escape(variable))
}
