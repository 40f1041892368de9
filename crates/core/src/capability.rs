//! The catalogue of capabilities: what can be called, with arguments and effects, as data.
//!
//! Doors, policy, CLI and docs ([`page`]) read this one list. An argument the catalogue does not name does not
//! exist: a call that sends it and a rule that tests it are both refused.

pub mod page;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::Millis;
use crate::ids::{CapabilityName, ServiceName};
use crate::tier::Tier;

/// Whether a capability changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Answers from data that we already have.
    Read,
    /// Changes something, here or at a service.
    Write,
}

/// What "once" can mean for a write, and so what may be done when its outcome is unclear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// A: repeating it gives the same end state.
    Absolute,
    /// B: an inert handle is created first and can be consumed only once.
    ConsumeOnce,
    /// C: it carries our id in a place we can search.
    Findable,
    /// D: none of these. Never repeated without a person.
    Opaque,
}

impl EffectClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Absolute, Self::ConsumeOnce, Self::Findable, Self::Opaque];

    /// Its name in files and rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::ConsumeOnce => "consume_once",
            Self::Findable => "findable",
            Self::Opaque => "opaque",
        }
    }

    /// The class of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// How long a service's read side may lag. Before that, an absence there proves nothing.
    #[must_use]
    pub const fn settle(self) -> Millis {
        match self {
            Self::Absolute | Self::Opaque => Millis::ZERO,
            Self::ConsumeOnce => Millis::from_secs(30),
            Self::Findable => Millis::from_secs(120),
        }
    }
}

/// The only names an argument with prose for people can have. All other arguments are shown to people in full.
pub const PROSE: [&str; 9] =
    ["body", "subject", "text", "message", "note", "comment", "description", "title", "summary"];

/// The shape of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// Any text.
    Text,
    /// Text whose size matters to policy (`content_size_*`).
    Content,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// A file path, compared after lexical normalisation.
    Path,
    /// An address on the network.
    Url,
    /// Mail addresses: a comma-separated text or a list of texts.
    Recipients,
    /// Ids of objects; each one counts as a separate write.
    Objects,
    /// A list of texts.
    Texts,
    /// A JSON object.
    Object,
    /// Any JSON.
    Any,
}

/// One argument of a capability.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityParam {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub kind: ParamKind,
    /// Whether a call must carry it.
    #[serde(default)]
    pub required: bool,
    /// Whether it says who or where: recipients, hosts, paths, accounts.
    #[serde(default)]
    pub target: bool,
    /// Whether it names the object the write changes; writes to one object keep their order.
    #[serde(default)]
    pub object: bool,
    /// Whether it is prose that only people read. A card may cut prose; everything else is shown whole.
    #[serde(default)]
    pub prose: bool,
    /// Whether the call reads the content of the file or folder it names, or tells about it. Policy then also judges
    /// the call as a `filesystem.read` of that path, and the stricter answer counts.
    #[serde(default)]
    pub reads: bool,
    /// One sentence for people and models: what it means, in which unit, within which bounds.
    #[serde(default)]
    pub about: String,
    /// The words it can be; any text if there are none.
    #[serde(default)]
    pub choices: Vec<String>,
    /// The smallest number that is taken.
    #[serde(default)]
    pub min: Option<i64>,
    /// The largest number that is taken.
    #[serde(default)]
    pub max: Option<i64>,
    /// The value that counts where a call leaves it out.
    #[serde(default)]
    pub default: Option<Value>,
    /// Values as they are typically sent.
    #[serde(default)]
    pub examples: Vec<Value>,
}

impl CapabilityParam {
    /// An optional argument without a description.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: ParamKind) -> Self {
        Self {
            name: name.into(),
            kind,
            required: false,
            target: false,
            object: false,
            prose: false,
            reads: false,
            about: String::new(),
            choices: Vec::new(),
            min: None,
            max: None,
            default: None,
            examples: Vec::new(),
        }
    }

    /// As a JSON Schema.
    #[must_use]
    pub fn schema(&self) -> Value {
        let texts = || serde_json::json!({"type": "array", "items": {"type": "string"}});
        let mut shape = match self.kind {
            ParamKind::Text | ParamKind::Content | ParamKind::Path | ParamKind::Url => {
                serde_json::json!({"type": "string"})
            }
            ParamKind::Integer => serde_json::json!({"type": "integer"}),
            ParamKind::Number => serde_json::json!({"type": "number"}),
            ParamKind::Boolean => serde_json::json!({"type": "boolean"}),
            ParamKind::Recipients => serde_json::json!({"anyOf": [{"type": "string"}, texts()]}),
            ParamKind::Objects | ParamKind::Texts => texts(),
            ParamKind::Object => serde_json::json!({"type": "object"}),
            ParamKind::Any => serde_json::json!({}),
        };
        if let Some(shape) = shape.as_object_mut() {
            let words = |words: &[String]| (!words.is_empty()).then(|| words.into());
            let values = |values: &[Value]| (!values.is_empty()).then(|| values.into());
            let about = (!self.about.is_empty()).then(|| self.about.as_str().into());
            let more: [(&str, Option<Value>); 6] = [
                ("description", about),
                ("enum", words(&self.choices)),
                ("minimum", self.min.map(Value::from)),
                ("maximum", self.max.map(Value::from)),
                ("default", self.default.clone()),
                ("examples", values(&self.examples)),
            ];
            shape.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        }
        shape
    }
}

/// One thing that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// Its name, such as `email.send`.
    pub name: CapabilityName,
    /// What batch protection counts it under; the first part of the name unless given.
    #[serde(default)]
    pub service: Option<ServiceName>,
    /// Read or write.
    pub effect: Effect,
    /// What an unclear outcome allows. Every write has one.
    #[serde(default)]
    pub class: Option<EffectClass>,
    /// Whether the gateway can undo it.
    #[serde(default)]
    pub reversible: bool,
    /// How long a write waits before it runs, in seconds, unless configured.
    #[serde(default = "default_delay")]
    pub delay_s: u64,
    /// One sentence for people and models.
    pub summary: String,
    /// Its arguments.
    #[serde(default)]
    pub params: Vec<CapabilityParam>,
    /// The minimum tier where no rule names it. Raises the general default, never lowers it.
    #[serde(default)]
    pub usual: Option<Tier>,
    /// Its arguments as a JSON Schema, if `params` do not say it all.
    #[serde(default)]
    pub schema: Option<Value>,
    /// Whether it takes arguments that `params` does not name. Their targets are found by value.
    #[serde(skip)]
    pub open: bool,
    /// The digest of the definition that a person accepted, for a third-party capability. A call is frozen with it, so
    /// that an approval of the call covers this definition alone.
    #[serde(skip)]
    pub definition: Option<String>,
    /// The title that a third-party server gives it.
    #[serde(skip)]
    pub title: Option<String>,
    /// The JSON Schema of its structured results, if a third-party server declares one.
    #[serde(skip)]
    pub output: Option<Value>,
}

const fn default_delay() -> u64 {
    30
}

/// Why a catalogue was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Not readable.
    #[error("the catalogue could not be read: {0}")]
    Syntax(String),
    /// The same name twice.
    #[error("`{0}` is listed twice")]
    Twice(CapabilityName),
    /// A write without an effect class, or a read with one.
    #[error("`{0}` is a write without an effect class, or a read with one")]
    Class(CapabilityName),
}

impl Capability {
    /// The name of the service behind it in batch protection and freezes.
    #[must_use]
    pub fn service(&self) -> ServiceName {
        self.service.clone().unwrap_or_else(|| service_of(&self.name))
    }

    /// The argument of this name.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&CapabilityParam> {
        self.params.iter().find(|param| param.name == name)
    }

    /// Names of the arguments that hold prose only people read: those the manifest marks, out of a closed list of names.
    ///
    /// SECURITY: a manifest may come from a third party. It cannot declare a command to be prose.
    pub fn prose_params(&self) -> impl Iterator<Item = &str> {
        let is_text = |param: &&CapabilityParam| matches!(param.kind, ParamKind::Text | ParamKind::Content);
        let marked = self.params.iter().filter(|param| param.prose && !param.target && !param.object);
        marked.filter(is_text).map(|param| param.name.as_str()).filter(|name| PROSE.contains(name))
    }

    /// Arguments of one kind.
    pub fn params_of(&self, kind: ParamKind) -> impl Iterator<Item = &CapabilityParam> {
        self.params.iter().filter(move |param| param.kind == kind)
    }

    /// Its arguments as a JSON Schema.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        if let Some(schema) = &self.schema {
            return schema.clone();
        }
        let properties: Map<String, Value> =
            self.params.iter().map(|param| (param.name.clone(), param.schema())).collect();
        let required: Vec<&str> =
            self.params.iter().filter(|param| param.required).map(|param| param.name.as_str()).collect();
        serde_json::json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }

    /// The key that keeps writes to one object in order, if the call names one.
    #[must_use]
    pub fn object_key(&self, account: Option<&str>, arguments: &Map<String, Value>) -> Option<String> {
        let object = self.params.iter().find(|param| param.object)?;
        let value = arguments.get(&object.name)?.as_str()?;
        Some(format!("{}/{}/{value}", self.service(), account.unwrap_or("-")))
    }
}

/// The service a name belongs to when no manifest says otherwise.
#[must_use]
pub fn service_of(capability: &CapabilityName) -> ServiceName {
    let text = capability.as_str();
    let first = text.split(['.', ':']).next().unwrap_or(text);
    let first = first.get(..first.len().min(ServiceName::MAX)).unwrap_or(first);
    // A part of a capability name only has characters a service name may have.
    ServiceName::new(first).unwrap_or_else(|_| unreachable_service())
}

#[expect(
    clippy::panic,
    reason = "the alphabet of capability names is a subset of that of service names; a test walks it"
)]
fn unreachable_service() -> ServiceName {
    panic!("a capability name starts with a valid service name")
}

/// Every capability known to this gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    by_name: BTreeMap<CapabilityName, Capability>,
}

/// What ships with the gateway, one file per service.
const BUILTIN: [&str; 11] = [
    include_str!("../catalogue/email.yaml"),
    include_str!("../catalogue/slack.yaml"),
    include_str!("../catalogue/filesystem.yaml"),
    include_str!("../catalogue/state.yaml"),
    include_str!("../catalogue/secrets.yaml"),
    include_str!("../catalogue/process.yaml"),
    include_str!("../catalogue/git.yaml"),
    include_str!("../catalogue/comms.yaml"),
    include_str!("../catalogue/network.yaml"),
    include_str!("../catalogue/proxies.yaml"),
    include_str!("../catalogue/gateway.yaml"),
];

impl Catalogue {
    /// Everything that ships with the gateway.
    ///
    /// # Errors
    /// Never in a build whose tests passed: the files are part of the program.
    pub fn builtin() -> Result<Self, CatalogueError> {
        let mut catalogue = Self::default();
        for text in BUILTIN {
            for (_, capability) in Self::from_yaml(text)?.by_name {
                catalogue.add(capability)?;
            }
        }
        Ok(catalogue)
    }

    /// Reads a YAML list of capabilities.
    ///
    /// # Errors
    /// When it is not readable, names a capability twice, or leaves a write without an effect class.
    pub fn from_yaml(text: &str) -> Result<Self, CatalogueError> {
        let list: Vec<Capability> =
            serde_saphyr::from_str(text).map_err(|error| CatalogueError::Syntax(error.to_string()))?;
        let mut catalogue = Self::default();
        for capability in list {
            catalogue.add(capability)?;
        }
        Ok(catalogue)
    }

    /// Adds one capability.
    ///
    /// # Errors
    /// When the name is taken or the effect class does not fit the effect.
    pub fn add(&mut self, capability: Capability) -> Result<(), CatalogueError> {
        if (capability.effect == Effect::Write) != capability.class.is_some() {
            return Err(CatalogueError::Class(capability.name));
        }
        let name = capability.name.clone();
        if self.by_name.insert(name.clone(), capability).is_some() {
            return Err(CatalogueError::Twice(name));
        }
        Ok(())
    }

    /// Removes every capability of a service. Gives how many there were.
    pub fn remove(&mut self, service: &ServiceName) -> usize {
        let before = self.by_name.len();
        self.by_name.retain(|_, capability| capability.service() != *service);
        before - self.by_name.len()
    }

    /// The capability of this name.
    #[must_use]
    pub fn get(&self, name: &CapabilityName) -> Option<&Capability> {
        self.by_name.get(name)
    }

    /// All capabilities, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Capability> {
        self.by_name.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_must_say_what_once_means_for_it() {
        let text = "- {name: email.send, effect: write, summary: s}";
        assert!(matches!(Catalogue::from_yaml(text), Err(CatalogueError::Class(_))));
        let text = "- {name: email.send, effect: write, class: consume_once, summary: s}";
        assert_eq!(Catalogue::from_yaml(text).unwrap().len(), 1);
    }

    #[test]
    fn only_texts_that_people_read_are_marked_as_prose() {
        let catalogue = Catalogue::builtin().unwrap();
        let mut marked = Vec::new();
        for capability in catalogue.iter() {
            for param in capability.params.iter().filter(|param| param.prose) {
                assert!(PROSE.contains(&param.name.as_str()), "{} {}", capability.name, param.name);
                assert!(
                    matches!(param.kind, ParamKind::Text | ParamKind::Content),
                    "{} {}",
                    capability.name,
                    param.name
                );
                assert!(!param.target && !param.object && param.choices.is_empty());
                marked.push(capability.service().to_string());
            }
        }
        marked.dedup();
        // Not files, commands, requests, state or messages to other agents: what a program reads is shown whole.
        marked.sort();
        marked.dedup();
        assert_eq!(marked, ["alerts", "email", "git", "scheduler", "slack"]);
        let sly = "- {name: a.b, effect: read, summary: s, params: [{name: command, kind: text, prose: true}, \
                   {name: text, kind: object, prose: true}, {name: body, kind: text, prose: true, target: true}, \
                   {name: note, kind: text, prose: true}]}";
        let sly = Catalogue::from_yaml(sly).unwrap();
        assert_eq!(sly.iter().flat_map(Capability::prose_params).collect::<Vec<_>>(), ["note"]);
    }

    #[test]
    fn unknown_keys_and_doubles_are_refused() {
        assert!(Catalogue::from_yaml("- {name: a.b, effect: read, summary: s, colour: red}").is_err());
        let twice = "- {name: a.b, effect: read, summary: s}\n- {name: a.b, effect: read, summary: s}";
        assert!(matches!(Catalogue::from_yaml(twice), Err(CatalogueError::Twice(_))));
    }

    #[test]
    fn the_builtin_catalogue_reads_and_is_whole() {
        let catalogue = Catalogue::builtin().unwrap();
        for name in
            ["email.bulk_delete", "slack.react", "filesystem.copy", "state.shared.set", "git.push", "system.time"]
        {
            assert!(catalogue.get(&CapabilityName::new(name).unwrap()).is_some(), "{name}");
        }
        for capability in catalogue.iter() {
            assert!(capability.summary.ends_with('.'), "{} has a sentence", capability.name);
            let mut names: Vec<_> = capability.params.iter().map(|param| &param.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), capability.params.len(), "{} names an argument twice", capability.name);
            assert!(capability.params.iter().filter(|param| param.object).count() <= 1, "{}", capability.name);
            let reaches_out =
                capability.params.iter().any(|p| matches!(p.kind, ParamKind::Url | ParamKind::Recipients));
            assert!(!reaches_out || capability.effect == Effect::Write, "{} reaches out", capability.name);
            for param in &capability.params {
                let says_where = matches!(param.kind, ParamKind::Path | ParamKind::Url | ParamKind::Recipients);
                assert!(!says_where || param.target, "{} {} says who or where", capability.name, param.name);
            }
        }
    }

    #[test]
    fn every_argument_says_what_it_is_and_what_it_says_of_itself_fits_its_shape() {
        for capability in Catalogue::builtin().unwrap().iter() {
            for param in &capability.params {
                let place = format!("{} {}", capability.name, param.name);
                let sentence =
                    param.about.starts_with(|c: char| c.is_uppercase() || c == '`') && param.about.ends_with('.');
                assert!(sentence && param.about.len() >= 12, "{place} is described by a sentence: {:?}", param.about);
                let numeric = matches!(param.kind, ParamKind::Integer | ParamKind::Number);
                assert!(numeric || param.min.is_none() && param.max.is_none(), "{place} is no number");
                assert!(param.default.is_none() || !param.required, "{place} must be sent, so that nothing else holds");
                let flag = param.kind == ParamKind::Boolean && param.default.is_none();
                assert!(!flag || place == "email.search is_read", "{place} is on or off where it is left out");
            }
        }
    }

    #[test]
    fn every_capability_name_has_a_service() {
        for name in ["email.send", "custom:deploy", "a", &"x".repeat(128), "a-b_c:d.e"] {
            let service = service_of(&CapabilityName::new(name).unwrap());
            assert!(name.starts_with(service.as_str()));
        }
    }

    #[test]
    fn one_object_has_one_key() {
        let text = "- {name: email.delete, effect: write, class: absolute, summary: s, params: [{name: message_id, kind: text, object: true}]}";
        let catalogue = Catalogue::from_yaml(text).unwrap();
        let delete = catalogue.iter().next().unwrap();
        let Value::Object(arguments) = serde_json::json!({"message_id": "m1"}) else { unreachable!() };
        assert_eq!(delete.object_key(Some("ana"), &arguments).as_deref(), Some("email/ana/m1"));
        assert_eq!(delete.object_key(None, &Map::new()), None);
    }
}
