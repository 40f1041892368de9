//! One rule: about which capabilities, under which conditions, which tier.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::condition::read::{self, RuleScope};
use super::condition::time::RuleRateLimit;
use super::condition::{ConditionTruth, Quantifier, RuleCondition};
use super::facts::CallFacts;
use super::fault::{FaultCollector, SourcePosition};
use super::input::RateKey;
use super::layer::PolicyLayer;
use super::pattern::CapabilityPattern;
use super::suggest::{closest, escape};
use super::yaml::{YamlKey, YamlNode, YamlValue};
use crate::capability::{Capability, Catalogue, ParamKind};
use crate::json;
use crate::tier::Tier;

/// The keys a rule can have.
const KEYS: [&str; 4] = ["capability", "tier", "reason", "conditions"];
/// Longest reason, in characters: it is shown on one line.
const REASON: usize = 300;

/// Names a rule of a loaded policy. [`super::Policy::rule`] resolves it to its file and line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RuleRef {
    pub(crate) file: u32,
    pub(crate) rule: u32,
}

/// One rule of a policy file.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The capabilities it is about.
    pub pattern: CapabilityPattern,
    /// The tier it gives.
    pub tier: Tier,
    /// The author's reason.
    pub reason: Option<Box<str>>,
    /// How often it may apply before the tier rises.
    pub rate: Option<RuleRateLimit>,
    /// The place where it starts.
    pub place: SourcePosition,
    pub(crate) rate_key: RateKey,
    pub(crate) conditions: Vec<RuleCondition>,
    /// Its conditions in canonical JSON: the same text for the same conditions.
    pub(crate) meaning: Box<str>,
    /// The condition by which the index finds paths.
    pub(crate) indexed: Option<usize>,
}

impl Rule {
    /// Whether it has no conditions and applies to every call of its capabilities.
    #[must_use]
    pub fn is_unconditional(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether its conditions hold.
    pub(crate) fn test(&self, facts: &CallFacts<'_>) -> ConditionTruth {
        self.test_except(facts, None)
    }

    /// The same without one condition that is known to hold.
    pub(crate) fn test_except(&self, facts: &CallFacts<'_>, held: Option<usize>) -> ConditionTruth {
        let mut result = ConditionTruth::Yes;
        for (n, condition) in self.conditions.iter().enumerate() {
            if held == Some(n) {
                continue;
            }
            result = result.and(condition.test(facts));
            if result == ConditionTruth::No {
                break;
            }
        }
        result
    }
}

/// The owner of a file, which decides under which keys its rules count.
pub(crate) struct RuleOwner<'o> {
    pub(crate) layer: PolicyLayer,
    /// The owner of an agent file.
    pub(crate) agent: &'o str,
}

/// Reads one rule. Problems go to `faults`.
pub(crate) fn read_rule(
    node: &YamlNode,
    owner: &RuleOwner<'_>,
    catalogue: &Catalogue,
    faults: &mut FaultCollector<'_>,
) -> Option<Rule> {
    let YamlValue::Map(entries) = &node.kind else {
        faults
            .error(node.place, "policy.type", format!("a rule must be a map, not {}", node.noun()))
            .hint("for example `- {capability: email.send, tier: approval_required}`");
        return None;
    };
    refuse_unknown_keys(entries, &KEYS, "a rule", faults);
    let field = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
    let pattern = field("capability").and_then(|node| pattern(node, faults));
    let tier = field("tier").and_then(|node| tier(node, "tier", faults));
    for name in ["capability", "tier"] {
        if field(name).is_none() {
            faults.error(node.place, "policy.missing_key", format!("this rule has no `{name}`"));
        }
    }
    let reason = field("reason").and_then(|node| reason(node, faults));
    let pattern = pattern?;
    let scope = RuleScope {
        pattern: &pattern,
        matched: catalogue.iter().filter(|c| pattern.matches(c.name.as_str())).collect(),
    };
    if owner.layer != PolicyLayer::System {
        warn_about_unknown_names(
            &pattern,
            &scope,
            field("capability").map_or(node.place, |n| n.place),
            catalogue,
            faults,
        );
    }
    let conditions_node = field("conditions");
    let (conditions, rate) = match conditions_node {
        Some(node) if node.kind != YamlValue::Null => read::read(node, &scope, faults),
        _ => (Vec::new(), None),
    };
    let tier = tier?;
    if let (Some(rate), Some(node)) = (rate, conditions_node)
        && rate.on_exceed <= tier
    {
        faults
            .warning(node.place, "policy.no_effect", "this rate limit changes nothing")
            .why(format!("`on_exceed` is {}, which is not stricter than {tier}", rate.on_exceed));
    }
    warn_about_every_path(&conditions, tier, &scope, conditions_node, faults);
    let meaning = conditions_node.map_or_else(String::new, |node| {
        String::from_utf8(json::to_canonical_bytes(&node.to_json())).unwrap_or_default()
    });
    let indexed = conditions.iter().position(|condition| matches!(condition, RuleCondition::PathPrefix { .. }));
    let rate_key = rate_key(owner, &pattern, &meaning);
    Some(Rule {
        pattern,
        tier,
        reason,
        rate,
        place: node.place,
        rate_key,
        conditions,
        meaning: meaning.into(),
        indexed,
    })
}

fn rate_key(owner: &RuleOwner<'_>, pattern: &CapabilityPattern, meaning: &str) -> RateKey {
    let mut hash = Sha256::new();
    for part in [owner.layer.as_str(), owner.agent, &pattern.to_string(), meaning] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    RateKey(hash.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte)))
}

/// Refuses unknown keys.
pub(crate) fn refuse_unknown_keys(
    entries: &[(YamlKey, YamlNode)],
    known: &[&str],
    what: &str,
    faults: &mut FaultCollector<'_>,
) {
    for (key, _) in entries {
        if !known.contains(&key.text.as_str()) {
            faults
                .error(key.place, "policy.unknown_key", format!("unknown key `{}`", escape(&key.text)))
                .why(format!("{what} has the keys {}", known.join(", ")))
                .suggest_word(closest(&key.text, known.iter().copied()));
        }
    }
}

fn pattern(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<CapabilityPattern> {
    let Some(text) = node.as_text() else {
        faults.error(node.place, "policy.type", format!("`capability` must be a text, not {}", node.noun()));
        return None;
    };
    CapabilityPattern::new(text)
        .map_err(|why| {
            faults.error(node.place, "policy.pattern", format!("`{}` is not a capability", escape(text))).why(why);
        })
        .ok()
}

/// Reads a tier.
pub(crate) fn tier(node: &YamlNode, key: &str, faults: &mut FaultCollector<'_>) -> Option<Tier> {
    let text = node.as_text().unwrap_or_default();
    text.parse::<Tier>()
        .map_err(|unknown| {
            let shown = if text.is_empty() { node.noun().to_owned() } else { format!("`{}`", escape(text)) };
            faults
                .error(node.place, "policy.tier", format!("`{key}` cannot be {shown}"))
                .why(unknown.to_string())
                .suggest_word(closest(text, Tier::ALL.map(Tier::as_str)));
        })
        .ok()
}

fn reason(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<Box<str>> {
    match node.as_text() {
        Some(text) if text.chars().count() <= REASON => Some(text.into()),
        Some(_) => {
            faults.error(node.place, "policy.value", format!("a reason has at most {REASON} characters"));
            None
        }
        None => {
            faults.error(node.place, "policy.type", format!("`reason` must be a text, not {}", node.noun()));
            None
        }
    }
}

/// Warns about an unknown name: it may come with a service that is connected later, or be misspelt.
fn warn_about_unknown_names(
    pattern: &CapabilityPattern,
    scope: &RuleScope<'_>,
    place: SourcePosition,
    catalogue: &Catalogue,
    faults: &mut FaultCollector<'_>,
) {
    let (CapabilityPattern::Name(text) | CapabilityPattern::Prefix(text)) = pattern;
    if !scope.matched.is_empty() || text.starts_with("custom:") || "custom:".starts_with(&**text) {
        return;
    }
    let services = catalogue.iter().map(|c| c.name.as_str().split('.').next().unwrap_or_default());
    let close = match pattern {
        CapabilityPattern::Name(name) => closest(name, catalogue.iter().map(|c| c.name.as_str())).map(str::to_owned),
        CapabilityPattern::Prefix(start) => {
            closest(start.trim_end_matches('.'), services).map(|service| format!("{service}.*"))
        }
    };
    faults
        .warning(place, "policy.unknown_capability", format!("no capability known here matches `{pattern}`"))
        .why("the rule has no effect until a service adds one; calls of unknown capabilities need approval at least")
        .suggest_word(close.as_deref());
}

/// Warns about a prohibition that holds only when all paths lie in a place: it is easy to avoid.
fn warn_about_every_path(
    conditions: &[RuleCondition],
    tier: Tier,
    scope: &RuleScope<'_>,
    node: Option<&YamlNode>,
    faults: &mut FaultCollector<'_>,
) {
    let several = |capability: &&&Capability| capability.params_of(ParamKind::Path).count() > 1;
    let (Some(capability), Some(node)) = (scope.matched.iter().find(several), node) else { return };
    let every = conditions.iter().find(|condition| {
        matches!(
            condition,
            RuleCondition::PathPrefix { of: Quantifier::Every, .. }
                | RuleCondition::PathGlob { of: Quantifier::Every, .. }
        )
    });
    if let (Some(condition), true) = (every, tier > Tier::Notify) {
        let key = condition.key();
        faults
            .warning(node.place, "policy.every_path", format!("`{key}` holds only if every path of a call lies there"))
            .why(format!(
                "`{}` has more than one path, so this {tier} does not cover all the calls it seems to cover",
                capability.name
            ))
            .hint(format!("to catch calls with one such path use `any_{key}`"));
    }
}
