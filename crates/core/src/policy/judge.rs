//! The verdict: a tier and the rules that gave it.
//!
//! Takes the answer of each layer; gives the strictest. Promise: an agent file replaces only the default;
//! the tier of an org override or a system rule is a minimum.

use serde::Serialize;

use super::condition::ConditionTruth;
use super::facts::CallFacts;
use super::index::{FirstRuleMatch, IndexedName};
use super::input::{PolicyInput, RateKey};
use super::layer::PolicyLayer;
use super::rule::{Rule, RuleRef};
use super::{Policy, is_custom};
use crate::capability::{Capability, Effect};
use crate::tier::Tier;

/// The verdict of policy on one question. Small, `Copy`, without text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The tier.
    pub tier: Tier,
    /// The base of the verdict, before floors and escalations.
    pub base: VerdictBase,
    /// The rule of the agent file that matched.
    pub agent: Option<RuleHit>,
    /// The override that matched.
    pub org: Option<RuleHit>,
    /// The system rule that matched.
    pub system: Option<RuleHit>,
    /// The capability is unknown, so at least a person is asked.
    pub unknown: bool,
}

/// The base of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictBase {
    /// The rule of the agent file.
    AgentRule,
    /// The override, there being no rule in the agent file.
    OrgOverride,
    /// `defaults.tier`.
    OrgDefault(Tier),
    /// The default where no file sets one: `notify` for reads, `approval_required` for writes.
    BuiltinDefault(Tier),
}

/// A rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleHit {
    /// The rule.
    pub rule: RuleRef,
    /// The tier that the rule states.
    pub written: Tier,
    /// The tier after the escalations of the rule.
    pub tier: Tier,
    /// Its conditions could not be decided, so it counts and asks at least a person; the rules after it in its file
    /// count as well, so that an argument that cannot be read is no way around a stricter rule.
    pub broken: bool,
    /// It is broken and no rule after it matched: the answer without it counts as well.
    pub open: bool,
    /// Its rate limit, if it has one.
    pub rate: Option<RateUse>,
}

/// A rate limit that a call counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateUse {
    /// The key to count it under once the call is admitted.
    pub key: RateKey,
    /// Calls counted before this one.
    pub before: u64,
    /// This call exceeds the limit.
    pub exceeded: bool,
}

/// One part of the answer to "why".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictReason {
    /// A rule matched.
    Rule(PolicyLayer, RuleRef, Tier),
    /// No rule set the base, so a default did.
    Default(Tier),
    /// A rule's conditions could not be decided.
    Broken(RuleRef),
    /// A rule's rate limit was exceeded.
    Rate(RuleRef, RateKey),
    /// The capability is unknown.
    Unknown,
}

impl Verdict {
    /// Combines the layers.
    #[inline]
    pub(crate) fn combine(layers: LayerHits, default: VerdictBase, unknown: bool) -> Self {
        let LayerHits { agent, org, system } = layers;
        let (base, mut tier) = match (&agent, &org, default) {
            (Some(hit), None, VerdictBase::OrgDefault(without) | VerdictBase::BuiltinDefault(without)) if hit.open => {
                (VerdictBase::AgentRule, hit.tier.raise(without))
            }
            (Some(hit), _, _) => (VerdictBase::AgentRule, hit.tier),
            (None, Some(hit), _) => (VerdictBase::OrgOverride, hit.tier),
            (None, None, VerdictBase::OrgDefault(tier) | VerdictBase::BuiltinDefault(tier)) => (default, tier),
            (None, None, VerdictBase::AgentRule | VerdictBase::OrgOverride) => (default, Tier::Blocked),
        };
        if let (Some(hit), VerdictBase::OrgDefault(without) | VerdictBase::BuiltinDefault(without)) = (&org, default)
            && hit.open
            && agent.is_none_or(|agent| agent.open)
        {
            tier = tier.raise(without);
        }
        for floor in [&org, &system].into_iter().flatten() {
            tier = tier.raise(floor.tier);
        }
        if unknown {
            tier = tier.raise(Tier::ApprovalRequired);
        }
        Self { tier, base, agent, org, system, unknown }
    }

    /// All matched rules, the most specific layer first.
    pub fn hits(&self) -> impl Iterator<Item = (PolicyLayer, &RuleHit)> {
        [(PolicyLayer::Agent, &self.agent), (PolicyLayer::Org, &self.org), (PolicyLayer::System, &self.system)]
            .into_iter()
            .filter_map(|(layer, hit)| hit.as_ref().map(|hit| (layer, hit)))
    }

    /// The rule that asked for the final tier; `None` if a default or the unknown name did.
    #[must_use]
    pub fn decided_by(&self) -> Option<RuleRef> {
        self.hits().find(|(_, hit)| hit.tier == self.tier).map(|(_, hit)| hit.rule)
    }

    /// Counters to increase once the call is admitted.
    pub fn counters(&self) -> impl Iterator<Item = RateKey> {
        self.hits().filter_map(|(_, hit)| hit.rate.map(|rate| rate.key))
    }

    /// Whether an escalation took part: a broken rule, an exceeded rate or an unknown name.
    #[must_use]
    pub fn is_escalated(&self) -> bool {
        self.unknown || self.hits().any(|(_, hit)| hit.tier != hit.written || hit.broken)
    }

    /// Every reason, in the order in which it is shown.
    pub fn reasons(&self) -> impl Iterator<Item = VerdictReason> {
        let default = match self.base {
            VerdictBase::OrgDefault(tier) | VerdictBase::BuiltinDefault(tier) => Some(VerdictReason::Default(tier)),
            VerdictBase::AgentRule | VerdictBase::OrgOverride => None,
        };
        let rules = self.hits().flat_map(|(layer, hit)| {
            let rate = hit.rate.filter(|rate| rate.exceeded).map(|rate| VerdictReason::Rate(hit.rule, rate.key));
            let broken = hit.broken.then_some(VerdictReason::Broken(hit.rule));
            std::iter::once(VerdictReason::Rule(layer, hit.rule, hit.written)).chain(broken).chain(rate)
        });
        default.into_iter().chain(rules).chain(self.unknown.then_some(VerdictReason::Unknown))
    }
}

/// The answer of each layer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LayerHits {
    pub(crate) agent: Option<RuleHit>,
    pub(crate) org: Option<RuleHit>,
    pub(crate) system: Option<RuleHit>,
}

impl Policy {
    /// Judges one call. Allocates nothing unless a path has to be normalised.
    #[must_use]
    pub fn judge(&self, question: &PolicyInput<'_>) -> Verdict {
        let name = self.index.lookup(question.capability.as_str());
        let capability = name.and_then(IndexedName::capability);
        let facts = CallFacts::new(question, name, &self.projects);
        let answers = self.index.find_matches(name, &facts, &self.files, self.org);
        let hit = |file: Option<u32>, found: FirstRuleMatch| file.and_then(|file| self.hit(file, found, &facts));
        let layers = LayerHits {
            agent: hit(answers.agent_file, answers.agent),
            org: hit(self.org, answers.org),
            system: hit(Some(0), answers.system),
        };
        Verdict::combine(layers, self.default_for(capability), self.is_unknown(question, capability))
    }

    /// The rule that was found, with its escalations.
    #[inline]
    pub(crate) fn hit(&self, file: u32, found: FirstRuleMatch, facts: &CallFacts<'_>) -> Option<RuleHit> {
        if !found.is_some() {
            return None;
        }
        let question = facts.question;
        let rule_ref = RuleRef { file, rule: found.rule };
        let mut tier = found.tier;
        let mut open = false;
        if found.broken {
            let rules = self.files.get(file as usize).map_or(&[][..], |file| &file.rules);
            let later = strictest_after(rules, found.rule, facts);
            (tier, open) = (tier.raise(Tier::ApprovalRequired).raise(later.tier), later.open);
        }
        let rated =
            if found.rated { self.rule(rule_ref).and_then(|rule| Some((rule.rate_key, rule.rate?))) } else { None };
        let rate = rated.map(|(key, rate)| {
            let before = question.rates.count(question.agent, key, rate.window);
            let exceeded = before >= rate.max;
            if exceeded {
                tier = tier.raise(rate.on_exceed);
            }
            RateUse { key, before, exceeded }
        });
        Some(RuleHit { rule: rule_ref, written: found.tier, tier, broken: found.broken, open, rate })
    }

    /// The default where no rule applies.
    #[inline]
    pub(crate) fn default_for(&self, capability: Option<&Capability>) -> VerdictBase {
        let reads = |capability: &Capability| capability.effect == Effect::Read;
        // What a capability declares about itself can only make the default stricter.
        let usual = |tier: Tier| capability.and_then(|capability| capability.usual).map_or(tier, |own| tier.raise(own));
        match self.default {
            Some(tier) => VerdictBase::OrgDefault(usual(tier)),
            None if capability.is_some_and(reads) => VerdictBase::BuiltinDefault(usual(Tier::Notify)),
            None => VerdictBase::BuiltinDefault(usual(Tier::ApprovalRequired)),
        }
    }

    /// Whether the name is neither in the catalogue nor has the `custom:` prefix.
    pub(crate) fn is_unknown(&self, question: &PolicyInput<'_>, capability: Option<&Capability>) -> bool {
        capability.is_none() && !is_custom(question.capability.as_str())
    }
}

/// What the rules after a broken one ask for.
struct LaterRulesOutcome {
    tier: Tier,
    open: bool,
}

/// Reads on after a broken rule, as if the file did not have it. The only place where all rules of a
/// file may be tested; a call only gets here with an argument that cannot be read.
fn strictest_after(rules: &[Rule], broken: u32, facts: &CallFacts<'_>) -> LaterRulesOutcome {
    let name = facts.question.capability.as_str();
    let mut tier = Tier::Autonomous;
    for rule in rules.iter().skip(broken as usize + 1).filter(|rule| rule.pattern.matches(name)) {
        match rule.test(facts) {
            ConditionTruth::No => {}
            ConditionTruth::Yes => return LaterRulesOutcome { tier: tier.raise(rule.tier), open: false },
            ConditionTruth::Broken(_) => tier = tier.raise(rule.tier),
        }
    }
    LaterRulesOutcome { tier, open: true }
}
