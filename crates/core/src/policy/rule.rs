//! One rule: about which capabilities, under which conditions, which tier.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::condition::read::{self, Scope};
use super::condition::span::Rate;
use super::condition::{Condition, Held, Quantifier};
use super::facts::Facts;
use super::fault::{Faults, Place};
use super::layer::Layer;
use super::pattern::Pattern;
use super::question::RateKey;
use super::suggest::{closest, escape};
use super::yaml::{Key, Kind, Node};
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
    /// Which capabilities it is about.
    pub pattern: Pattern,
    /// The tier it gives.
    pub tier: Tier,
    /// Why, in its author's words.
    pub reason: Option<Box<str>>,
    /// How often it may apply before the tier rises.
    pub rate: Option<Rate>,
    /// Where it starts.
    pub place: Place,
    pub(crate) rate_key: RateKey,
    pub(crate) conditions: Vec<Condition>,
    /// Its conditions in canonical JSON: the same text for the same conditions.
    pub(crate) meaning: Box<str>,
    /// Which condition the index looks paths up by.
    pub(crate) indexed: Option<usize>,
}

impl Rule {
    /// Whether it applies to every call of its capabilities.
    #[must_use]
    pub fn is_unconditional(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether its conditions hold.
    pub(crate) fn test(&self, facts: &Facts<'_>) -> Held {
        self.test_except(facts, None)
    }

    /// The same without one condition that is known to hold.
    pub(crate) fn test_except(&self, facts: &Facts<'_>, held: Option<usize>) -> Held {
        let mut result = Held::Yes;
        for (n, condition) in self.conditions.iter().enumerate() {
            if held == Some(n) {
                continue;
            }
            result = result.and(condition.test(facts));
            if result == Held::No {
                break;
            }
        }
        result
    }
}

/// Whose file it is, which decides under what its rules count.
pub(crate) struct Owner<'o> {
    pub(crate) layer: Layer,
    /// Of an agent file.
    pub(crate) agent: &'o str,
}

/// Reads one rule. Problems go to `faults`.
pub(crate) fn rule(node: &Node, owner: &Owner<'_>, catalogue: &Catalogue, faults: &mut Faults<'_>) -> Option<Rule> {
    let Kind::Map(entries) = &node.kind else {
        faults
            .error(node.place, "policy.type", format!("a rule must be a map, not {}", node.noun()))
            .hint("for example `- {capability: email.send, tier: approval_required}`");
        return None;
    };
    refuse_strangers(entries, &KEYS, "a rule", faults);
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
    let scope =
        Scope { pattern: &pattern, matched: catalogue.iter().filter(|c| pattern.matches(c.name.as_str())).collect() };
    if owner.layer != Layer::System {
        warn_about_strangers(&pattern, &scope, field("capability").map_or(node.place, |n| n.place), catalogue, faults);
    }
    let conditions_node = field("conditions");
    let (conditions, rate) = match conditions_node {
        Some(node) if node.kind != Kind::Null => read::read(node, &scope, faults),
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
    let meaning = conditions_node
        .map_or_else(String::new, |node| String::from_utf8(json::canonical(&node.to_json())).unwrap_or_default());
    let indexed = conditions.iter().position(|condition| matches!(condition, Condition::PathPrefix { .. }));
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

fn rate_key(owner: &Owner<'_>, pattern: &Pattern, meaning: &str) -> RateKey {
    let mut hash = Sha256::new();
    for part in [owner.layer.as_str(), owner.agent, &pattern.to_string(), meaning] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    RateKey(hash.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte)))
}

/// Refuses keys that mean nothing here.
pub(crate) fn refuse_strangers(entries: &[(Key, Node)], known: &[&str], what: &str, faults: &mut Faults<'_>) {
    for (key, _) in entries {
        if !known.contains(&key.text.as_str()) {
            faults
                .error(key.place, "policy.unknown_key", format!("unknown key `{}`", escape(&key.text)))
                .why(format!("{what} has the keys {}", known.join(", ")))
                .mean(closest(&key.text, known.iter().copied()));
        }
    }
}

fn pattern(node: &Node, faults: &mut Faults<'_>) -> Option<Pattern> {
    let Some(text) = node.as_text() else {
        faults.error(node.place, "policy.type", format!("`capability` must be a text, not {}", node.noun()));
        return None;
    };
    Pattern::new(text)
        .map_err(|why| {
            faults.error(node.place, "policy.pattern", format!("`{}` is not a capability", escape(text))).why(why);
        })
        .ok()
}

/// Reads a tier.
pub(crate) fn tier(node: &Node, key: &str, faults: &mut Faults<'_>) -> Option<Tier> {
    let text = node.as_text().unwrap_or_default();
    text.parse::<Tier>()
        .map_err(|unknown| {
            let shown = if text.is_empty() { node.noun().to_owned() } else { format!("`{}`", escape(text)) };
            faults
                .error(node.place, "policy.tier", format!("`{key}` cannot be {shown}"))
                .why(unknown.to_string())
                .mean(closest(text, Tier::ALL.map(Tier::as_str)));
        })
        .ok()
}

fn reason(node: &Node, faults: &mut Faults<'_>) -> Option<Box<str>> {
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

/// A name nobody knows may come with a service that is connected later, or be misspelt.
fn warn_about_strangers(
    pattern: &Pattern,
    scope: &Scope<'_>,
    place: Place,
    catalogue: &Catalogue,
    faults: &mut Faults<'_>,
) {
    let (Pattern::Name(text) | Pattern::Prefix(text)) = pattern;
    if !scope.matched.is_empty() || text.starts_with("custom:") || "custom:".starts_with(&**text) {
        return;
    }
    let services = catalogue.iter().map(|c| c.name.as_str().split('.').next().unwrap_or_default());
    let close = match pattern {
        Pattern::Name(name) => closest(name, catalogue.iter().map(|c| c.name.as_str())).map(str::to_owned),
        Pattern::Prefix(start) => closest(start.trim_end_matches('.'), services).map(|service| format!("{service}.*")),
    };
    faults
        .warning(place, "policy.unknown_capability", format!("no capability known here matches `{pattern}`"))
        .why("the rule waits until a service brings one; calls of unknown capabilities need approval at least")
        .mean(close.as_deref());
}

/// A prohibition that holds only when all paths lie in a place is easily walked around.
fn warn_about_every_path(
    conditions: &[Condition],
    tier: Tier,
    scope: &Scope<'_>,
    node: Option<&Node>,
    faults: &mut Faults<'_>,
) {
    let several = |capability: &&&Capability| capability.params_of(ParamKind::Path).count() > 1;
    let (Some(capability), Some(node)) = (scope.matched.iter().find(several), node) else { return };
    let every = conditions.iter().find(|condition| {
        matches!(
            condition,
            Condition::PathPrefix { of: Quantifier::Every, .. } | Condition::PathGlob { of: Quantifier::Every, .. }
        )
    });
    if let (Some(condition), true) = (every, tier > Tier::Notify) {
        let key = condition.key();
        faults
            .warning(node.place, "policy.every_path", format!("`{key}` holds only if every path of a call lies there"))
            .why(format!(
                "`{}` has more than one path, so this {tier} does not reach all calls it seems to",
                capability.name
            ))
            .hint(format!("to catch calls with one such path use `any_{key}`"));
    }
}
