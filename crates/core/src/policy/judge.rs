//! The verdict: a tier and which rules gave it.
//!
//! Takes what each layer answered; gives the strictest. Promise: an agent file replaces only the default;
//! whatever an org override or a system rule asks for is asked for at least.

use serde::Serialize;

use super::condition::Held;
use super::facts::Facts;
use super::index::{Found, Name};
use super::layer::Layer;
use super::question::{Question, RateKey};
use super::rule::{Rule, RuleRef};
use super::{Policy, is_custom};
use crate::capability::{Capability, Effect};
use crate::tier::Tier;

/// What policy says to one question. Small, copied freely, no text in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The answer.
    pub tier: Tier,
    /// What the answer starts from, before floors and escalations.
    pub base: Base,
    /// The rule of the agent file that matched.
    pub agent: Option<Hit>,
    /// The override that matched.
    pub org: Option<Hit>,
    /// The system rule that matched.
    pub system: Option<Hit>,
    /// Nobody knows this capability, so a person is asked at least.
    pub unknown: bool,
}

/// Where a verdict starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The rule of the agent file.
    AgentRule,
    /// The override, there being no rule in the agent file.
    OrgOverride,
    /// `defaults.tier`.
    OrgDefault(Tier),
    /// What holds where nobody wrote a default: `notify` for reads, `approval_required` for writes.
    BuiltinDefault(Tier),
}

/// A rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Which one.
    pub rule: RuleRef,
    /// Its tier as written.
    pub written: Tier,
    /// Its tier after its own escalations.
    pub tier: Tier,
    /// Its conditions could not be decided, so it counts and asks a person at least; and whatever the rest
    /// of its file asks for, so that an argument nobody can read is no way around a stricter rule.
    pub broken: bool,
    /// It is broken and nothing after it matched: the answer without it counts as well.
    pub open: bool,
    /// Its rate limit, if it has one.
    pub rate: Option<RateUse>,
}

/// A rate limit that a call counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateUse {
    /// What to count it under once the call is admitted.
    pub key: RateKey,
    /// Calls counted before this one.
    pub before: u64,
    /// This call is one too many.
    pub exceeded: bool,
}

/// One part of the answer to "why".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A rule matched.
    Rule(Layer, RuleRef, Tier),
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
    /// Puts the layers together.
    #[inline]
    pub(crate) fn combine(layers: Layers, default: Base, unknown: bool) -> Self {
        let Layers { agent, org, system } = layers;
        let (base, mut tier) = match (&agent, &org, default) {
            (Some(hit), None, Base::OrgDefault(without) | Base::BuiltinDefault(without)) if hit.open => {
                (Base::AgentRule, hit.tier.raise(without))
            }
            (Some(hit), _, _) => (Base::AgentRule, hit.tier),
            (None, Some(hit), _) => (Base::OrgOverride, hit.tier),
            (None, None, Base::OrgDefault(tier) | Base::BuiltinDefault(tier)) => (default, tier),
            (None, None, Base::AgentRule | Base::OrgOverride) => (default, Tier::Blocked),
        };
        if let (Some(hit), Base::OrgDefault(without) | Base::BuiltinDefault(without)) = (&org, default)
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

    /// All matched rules, the most particular layer first.
    pub fn hits(&self) -> impl Iterator<Item = (Layer, &Hit)> {
        [(Layer::Agent, &self.agent), (Layer::Org, &self.org), (Layer::System, &self.system)]
            .into_iter()
            .filter_map(|(layer, hit)| hit.as_ref().map(|hit| (layer, hit)))
    }

    /// The rule that asked for the final tier; nothing if a default or the unknown name did.
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

    /// Every reason, in reading order.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        let default = match self.base {
            Base::OrgDefault(tier) | Base::BuiltinDefault(tier) => Some(Reason::Default(tier)),
            Base::AgentRule | Base::OrgOverride => None,
        };
        let rules = self.hits().flat_map(|(layer, hit)| {
            let rate = hit.rate.filter(|rate| rate.exceeded).map(|rate| Reason::Rate(hit.rule, rate.key));
            let broken = hit.broken.then_some(Reason::Broken(hit.rule));
            std::iter::once(Reason::Rule(layer, hit.rule, hit.written)).chain(broken).chain(rate)
        });
        default.into_iter().chain(rules).chain(self.unknown.then_some(Reason::Unknown))
    }
}

/// What each layer answered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Layers {
    pub(crate) agent: Option<Hit>,
    pub(crate) org: Option<Hit>,
    pub(crate) system: Option<Hit>,
}

impl Policy {
    /// Judges one call. Allocates nothing unless a path has to be normalised.
    #[must_use]
    pub fn judge(&self, question: &Question<'_>) -> Verdict {
        let name = self.index.lookup(question.capability.as_str());
        let capability = name.and_then(Name::capability);
        let facts = Facts::new(question, name, &self.projects);
        let answers = self.index.ask(name, &facts, &self.files, self.org);
        let hit = |file: Option<u32>, found: Found| file.and_then(|file| self.hit(file, found, &facts));
        let layers = Layers {
            agent: hit(answers.agent_file, answers.agent),
            org: hit(self.org, answers.org),
            system: hit(Some(0), answers.system),
        };
        Verdict::combine(layers, self.default_for(capability), self.is_unknown(question, capability))
    }

    /// The rule that was found, with its escalations.
    #[inline]
    pub(crate) fn hit(&self, file: u32, found: Found, facts: &Facts<'_>) -> Option<Hit> {
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
        Some(Hit { rule: rule_ref, written: found.tier, tier, broken: found.broken, open, rate })
    }

    /// What holds where no rule does.
    #[inline]
    pub(crate) fn default_for(&self, capability: Option<&Capability>) -> Base {
        let reads = |capability: &Capability| capability.effect == Effect::Read;
        // What a capability says of itself can only make the default stricter.
        let usual = |tier: Tier| capability.and_then(|capability| capability.usual).map_or(tier, |own| tier.raise(own));
        match self.default {
            Some(tier) => Base::OrgDefault(usual(tier)),
            None if capability.is_some_and(reads) => Base::BuiltinDefault(usual(Tier::Notify)),
            None => Base::BuiltinDefault(usual(Tier::ApprovalRequired)),
        }
    }

    /// Whether neither the catalogue nor the `custom:` prefix accounts for the name.
    pub(crate) fn is_unknown(&self, question: &Question<'_>, capability: Option<&Capability>) -> bool {
        capability.is_none() && !is_custom(question.capability.as_str())
    }
}

/// What the rules after a broken one ask for.
struct Later {
    tier: Tier,
    open: bool,
}

/// Reads on after a broken rule, as the file would be read without it. The only place where all rules of a
/// file may be looked at; a call only gets here with an argument that cannot be read.
fn strictest_after(rules: &[Rule], broken: u32, facts: &Facts<'_>) -> Later {
    let name = facts.question.capability.as_str();
    let mut tier = Tier::Autonomous;
    for rule in rules.iter().skip(broken as usize + 1).filter(|rule| rule.pattern.matches(name)) {
        match rule.test(facts) {
            Held::No => {}
            Held::Yes => return Later { tier: tier.raise(rule.tier), open: false },
            Held::Broken(_) => tier = tier.raise(rule.tier),
        }
    }
    Later { tier, open: true }
}
