//! One policy file: its owner, its rules, its default and its tests.

use std::fmt;

use serde::Serialize;

use super::fault::{FaultCollector, SourcePosition};
use super::pattern::CapabilityPattern;
use super::project;
use super::rule::{self, Rule, RuleOwner};
use super::suggest::escape;
use super::testing::{self, PolicyTestCase};
use super::yaml::{self, YamlKey, YamlNode, YamlValue};
use crate::capability::Catalogue;
use crate::ids::AgentName;
use crate::tier::Tier;

/// Largest file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Most rules in one file.
pub const MAX_RULES: usize = 100_000;

/// Which of the three layers a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyLayer {
    /// Ships with the program; nobody can loosen it.
    System,
    /// `org.yaml`: defaults, and overrides no agent file can loosen.
    Org,
    /// `agents/<name>.yaml`.
    Agent,
}

impl PolicyLayer {
    /// The name used in explanations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Org => "org",
            Self::Agent => "agent",
        }
    }

    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Org => &["name", "description", "project", "defaults", "overrides", "tests"],
            Self::System | Self::Agent => &["name", "description", "project", "rules", "tests"],
        }
    }

    const fn list(self) -> &'static str {
        match self {
            Self::Org => "overrides",
            Self::System | Self::Agent => "rules",
        }
    }
}

impl fmt::Display for PolicyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A policy file that was read.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFile {
    pub(crate) name: String,
    pub(crate) layer: PolicyLayer,
    pub(crate) agent: Option<AgentName>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) default: Option<Tier>,
    /// Folders the agents of this file work in.
    pub(crate) projects: Option<Vec<Box<str>>>,
    pub(crate) tests: Vec<PolicyTestCase>,
}

/// Reads one file. Problems go to `faults`; the result is complete only if none of them is an error.
pub(crate) fn read_file(
    name: &str,
    text: &str,
    (layer, agent): (PolicyLayer, Option<&AgentName>),
    catalogue: &Catalogue,
    faults: &mut FaultCollector<'_>,
) -> PolicyFile {
    let mut file = PolicyFile {
        name: name.to_owned(),
        layer,
        agent: agent.cloned(),
        rules: Vec::new(),
        default: None,
        projects: None,
        tests: Vec::new(),
    };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, at most {MAX_BYTES} are read", text.len());
        faults.error(SourcePosition::default(), "policy.too_large", message);
        return file;
    }
    let Some(root) = yaml::parse(text, faults).and_then(|document| document.root) else { return file };
    let YamlValue::Map(entries) = &root.kind else {
        if root.kind != YamlValue::Null {
            faults
                .error(root.place, "policy.type", format!("a policy file must be a map, not {}", root.noun()))
                .hint(format!("start with `{}:`", layer.list()));
        }
        return file;
    };
    refuse_unknown_file_keys(entries, layer, faults);
    for (key, node) in entries {
        match key.text.as_str() {
            "name" | "description" if node.as_text().is_none() => {
                let message = format!("`{}` must be a text, not {}", key.text, node.noun());
                faults.error(node.place, "policy.type", message);
            }
            "project" => file.projects = Some(project::read(node, faults)),
            "defaults" => file.default = default(node, faults),
            list if list == layer.list() => {
                let owner = RuleOwner { layer, agent: agent.map_or("", AgentName::as_str) };
                file.rules = rules(key, node, &owner, catalogue, faults);
            }
            "tests" => file.tests = testing::read(node, layer, faults),
            _ => {}
        }
    }
    warn_about_unreachable(&file.rules, faults);
    file
}

/// Refuses unknown keys, with a hint where the two kinds of file are mixed up.
fn refuse_unknown_file_keys(entries: &[(YamlKey, YamlNode)], layer: PolicyLayer, faults: &mut FaultCollector<'_>) {
    for (key, _) in entries {
        let other = match (layer, key.text.as_str()) {
            (PolicyLayer::Agent, "overrides") => Some("in an agent file the list is called `rules`"),
            (PolicyLayer::Org, "rules") => Some("in org.yaml the list is called `overrides`"),
            (PolicyLayer::Agent, "defaults") => {
                Some("defaults belong in org.yaml; end the rules with `capability: \"*\"` instead")
            }
            _ => None,
        };
        match other {
            Some(hint) => drop(
                faults
                    .error(key.place, "policy.unknown_key", format!("unknown key `{}`", escape(&key.text)))
                    .hint(hint),
            ),
            None => rule::refuse_unknown_keys(
                std::slice::from_ref(&(key.clone(), YamlNode::null(key.place))),
                layer.keys(),
                match layer {
                    PolicyLayer::Org => "org.yaml",
                    PolicyLayer::System | PolicyLayer::Agent => "an agent file",
                },
                faults,
            ),
        }
    }
}

fn default(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<Tier> {
    let YamlValue::Map(entries) = &node.kind else {
        faults.error(node.place, "policy.type", format!("`defaults` must be a map with `tier`, not {}", node.noun()));
        return None;
    };
    rule::refuse_unknown_keys(entries, &["tier"], "`defaults`", faults);
    let (_, node) = entries.iter().find(|(key, _)| key.text == "tier")?;
    rule::tier(node, "tier", faults)
}

fn rules(
    key: &YamlKey,
    node: &YamlNode,
    owner: &RuleOwner<'_>,
    catalogue: &Catalogue,
    faults: &mut FaultCollector<'_>,
) -> Vec<Rule> {
    match &node.kind {
        YamlValue::Null => Vec::new(),
        YamlValue::List(items) if items.len() > MAX_RULES => {
            let message = format!("{} rules in one file, at most {MAX_RULES} are read", items.len());
            faults.error(key.place, "policy.too_large", message);
            Vec::new()
        }
        YamlValue::List(items) => {
            items.iter().filter_map(|item| rule::read_rule(item, owner, catalogue, faults)).collect()
        }
        _ => {
            faults.error(
                node.place,
                "policy.type",
                format!("`{}` must be a list of rules, not {}", key.text, node.noun()),
            );
            Vec::new()
        }
    }
}

/// Warns about rules that no call ever reaches.
fn warn_about_unreachable(rules: &[Rule], faults: &mut FaultCollector<'_>) {
    use std::collections::HashMap;
    let mut covered: HashMap<(&str, bool), u32> = HashMap::new();
    let mut seen: HashMap<(&CapabilityPattern, &str), u32> = HashMap::new();
    for rule in rules {
        let (text, is_prefix) = match &rule.pattern {
            CapabilityPattern::Name(name) => (&**name, false),
            CapabilityPattern::Prefix(start) => (&**start, true),
        };
        let exact = if is_prefix { None } else { covered.get(&(text, false)) };
        let by_prefix = || (0..=text.len()).find_map(|end| covered.get(&(text.get(..end)?, true)));
        let earlier = exact.or_else(by_prefix);
        if let Some(line) = earlier {
            faults
                .warning(rule.place, "policy.unreachable", format!("this rule for `{}` is never reached", rule.pattern))
                .why(format!("the rule in line {line} already applies to every such call"))
                .hint("the first rule that fits decides: put the narrower one first");
        } else if let Some(line) = seen.get(&(&rule.pattern, &*rule.meaning)) {
            faults
                .warning(rule.place, "policy.unreachable", format!("this rule for `{}` is never reached", rule.pattern))
                .why(format!("the rule in line {line} has the same conditions"));
        }
        if rule.is_unconditional() {
            covered.entry((text, is_prefix)).or_insert(rule.place.line);
        }
        seen.entry((&rule.pattern, &*rule.meaning)).or_insert(rule.place.line);
    }
}
