//! Policy differences: per agent and capability, looser or stricter.
//!
//! Takes two policies; compares them over every agent with a file and every other agent, times every
//! capability either knows or names, and puts all questions of their tests to both. It compares rules and
//! how far they can reach, not only their text: a moved line or a new comment is no change.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::Policy;
use super::index::IndexedName;
use super::judge::VerdictBase;
use super::layer::PolicyFile;
use super::pattern::CapabilityPattern;
use super::rule::Rule;
use crate::capability::Capability;
use crate::ids::{AgentName, CapabilityName};
use crate::tier::Tier;

/// All differences in behaviour.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyDiff {
    /// Version of the old policy.
    pub old: String,
    /// Version of the new policy.
    pub new: String,
    /// By agent and capability.
    pub changes: Vec<PolicyChange>,
    /// Questions from the tests of both that are answered differently.
    pub answers: Vec<TierChange>,
}

/// One agent and capability for which the rules changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyChange {
    /// The agent; `None` stands for all agents without a file.
    pub agent: Option<AgentName>,
    /// The capability, or the prefix of names that only rules contain (`custom:*`).
    pub capability: String,
    /// The direction of the change.
    pub direction: ChangeDirection,
    /// The reach before.
    pub old: TierRange,
    /// The reach after.
    pub new: TierRange,
}

/// A question that gets another answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierChange {
    /// The test that asks it.
    pub test: String,
    /// The agent in the question.
    pub agent: AgentName,
    /// The capability in the question.
    pub capability: CapabilityName,
    /// The tier before.
    pub old: Tier,
    /// The tier after.
    pub new: Tier,
}

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeDirection {
    /// Some calls need less approval than before.
    Looser,
    /// Looser in one respect, stricter in another.
    Mixed,
    /// The same tiers under other conditions.
    Conditions,
    /// Some calls need more approval than before.
    Stricter,
}

/// Which tiers calls of one capability can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TierRange {
    /// When no condition of any rule holds.
    pub otherwise: Tier,
    /// The loosest tier a call can get.
    pub loosest: Tier,
    /// The strictest tier a call can get, without rate limits and errors.
    pub strictest: Tier,
}

impl Policy {
    /// The differences in behaviour between this policy and `new`.
    #[must_use]
    pub fn diff(&self, new: &Self) -> PolicyDiff {
        let agents: BTreeSet<&AgentName> = self.agents().chain(new.agents()).collect();
        let agents = std::iter::once(None).chain(agents.into_iter().map(Some));
        let subjects = subjects(self, new);
        let mut changes = Vec::new();
        for agent in agents {
            for subject in &subjects {
                let (before, after) = (self.view(agent, subject), new.view(agent, subject));
                if before.same_as(&after) {
                    continue;
                }
                let (old, new) = (before.reach(), after.reach());
                changes.push(PolicyChange {
                    agent: agent.cloned(),
                    capability: subject.to_string(),
                    direction: ChangeDirection::between(old, new),
                    old,
                    new,
                });
            }
        }
        // A change that every agent shares is listed once, for agents without a file.
        let shared: Vec<PolicyChange> = changes.iter().filter(|change| change.agent.is_none()).cloned().collect();
        changes.retain(|change| {
            change.agent.is_none()
                || !shared.iter().any(|common| {
                    (&common.capability, common.old, common.new) == (&change.capability, change.old, change.new)
                })
        });
        PolicyDiff { old: self.version.clone(), new: new.version.clone(), changes, answers: self.answers(new) }
    }

    /// Which tiers calls of this capability by this agent can get, whatever their arguments.
    #[must_use]
    pub fn reach(&self, agent: &AgentName, capability: &CapabilityName) -> TierRange {
        self.view(Some(agent), &CapabilityPattern::Name(capability.as_str().into())).reach()
    }

    /// Questions of both policies' tests that get another answer.
    fn answers(&self, new: &Self) -> Vec<TierChange> {
        let mut list: Vec<TierChange> = Vec::new();
        for file in self.files.iter().chain(&new.files) {
            for case in &file.tests {
                let agent = case.given.agent_or(file.agent.as_ref());
                let question = case.given.question(&agent);
                let (before, after) = (self.judge_call(&question).tier(), new.judge_call(&question).tier());
                if before != after {
                    let test = format!("{}:{}", file.name, case.place.line);
                    let capability = case.given.capability.clone();
                    list.push(TierChange { test, agent: agent.clone(), capability, old: before, new: after });
                }
            }
        }
        list
    }

    /// The rules that can decide about a subject.
    fn view<'p>(&'p self, agent: Option<&AgentName>, subject: &CapabilityPattern) -> ApplicableRules<'p> {
        let agent_file = agent.and_then(|agent| self.index.agent_file(agent.as_str()));
        let file = |number: Option<u32>| number.and_then(|n| self.files.get(n as usize));
        let capability = match subject {
            CapabilityPattern::Name(name) => self.index.lookup(name).and_then(IndexedName::capability),
            CapabilityPattern::Prefix(_) => None,
        };
        let (CapabilityPattern::Name(text) | CapabilityPattern::Prefix(text)) = subject;
        ApplicableRules {
            layers: [file(agent_file), file(self.org), file(Some(0))].map(|file| candidates(file, subject)),
            default: self.default_for(capability),
            unknown: capability.is_none() && !super::is_custom(text),
        }
    }
}

/// Every capability of either catalogue, every name a rule spells out, and prefixes no known name has.
fn subjects(old: &Policy, new: &Policy) -> BTreeSet<CapabilityPattern> {
    let known = |policy: &Policy| -> Vec<CapabilityName> {
        policy.catalogue.iter().map(|capability: &Capability| capability.name.clone()).collect()
    };
    let names: BTreeSet<CapabilityName> = known(old).into_iter().chain(known(new)).collect();
    let mut subjects: BTreeSet<CapabilityPattern> =
        names.iter().map(|name| CapabilityPattern::Name(name.as_str().into())).collect();
    for rule in old.files.iter().chain(&new.files).flat_map(|file| &file.rules) {
        let stranger = !names.iter().any(|name| rule.pattern.matches(name.as_str()));
        if stranger || rule.pattern == CapabilityPattern::Prefix("".into()) {
            subjects.insert(rule.pattern.clone());
        }
    }
    subjects
}

/// Rules about a subject, up to the first one without conditions.
fn candidates<'p>(file: Option<&'p PolicyFile>, subject: &CapabilityPattern) -> Vec<&'p Rule> {
    let mut list = Vec::new();
    for rule in file.map_or(&[][..], |file| &file.rules) {
        if rule.pattern.covers(subject) {
            list.push(rule);
            if rule.is_unconditional() {
                break;
            }
        }
    }
    list
}

struct ApplicableRules<'p> {
    /// Agent, org, system.
    layers: [Vec<&'p Rule>; 3],
    default: VerdictBase,
    unknown: bool,
}

impl ApplicableRules<'_> {
    fn same_as(&self, other: &Self) -> bool {
        let same_rules = self.layers.iter().zip(&other.layers).all(|(left, right)| {
            left.len() == right.len()
                && left.iter().zip(right).all(|(l, r)| {
                    // A broader pattern with the same effect on this subject is the same.
                    l.tier == r.tier && l.meaning == r.meaning && l.is_unconditional() == r.is_unconditional()
                })
        });
        same_rules && self.unknown == other.unknown && (self.default == other.default || !self.uses_default())
    }

    /// Whether a call can pass all rules of the agent file and all overrides without a match.
    fn uses_default(&self) -> bool {
        let [agent, org, _] = &self.layers;
        !agent.iter().chain(org).any(|rule| rule.is_unconditional())
    }

    fn reach(&self) -> TierRange {
        let options = self.layers.each_ref().map(|rules| {
            let mut tiers: Vec<Option<Tier>> = rules.iter().map(|rule| Some(rule.tier)).collect();
            if !rules.iter().any(|rule| rule.is_unconditional()) {
                tiers.push(None);
            }
            tiers.sort_unstable();
            tiers.dedup();
            tiers
        });
        let otherwise =
            self.layers.each_ref().map(|rules| rules.last().filter(|r| r.is_unconditional()).map(|r| r.tier));
        let otherwise = self.combine(otherwise);
        let (mut loosest, mut strictest) = (otherwise, otherwise);
        let [agents, orgs, systems] = &options;
        for agent in agents {
            for org in orgs {
                for system in systems {
                    let tier = self.combine([*agent, *org, *system]);
                    loosest = loosest.min(tier);
                    strictest = strictest.max(tier);
                }
            }
        }
        TierRange { otherwise, loosest, strictest }
    }

    fn combine(&self, [agent, org, system]: [Option<Tier>; 3]) -> Tier {
        let default = match self.default {
            VerdictBase::OrgDefault(tier) | VerdictBase::BuiltinDefault(tier) => tier,
            VerdictBase::AgentRule | VerdictBase::OrgOverride => Tier::Blocked,
        };
        let unknown = self.unknown.then_some(Tier::ApprovalRequired);
        let base = agent.or(org).unwrap_or(default);
        [org, system, unknown].into_iter().flatten().fold(base, Tier::raise)
    }
}

impl ChangeDirection {
    fn between(old: TierRange, new: TierRange) -> Self {
        let pairs = [(old.otherwise, new.otherwise), (old.loosest, new.loosest), (old.strictest, new.strictest)];
        match (pairs.iter().any(|(o, n)| n < o), pairs.iter().any(|(o, n)| n > o)) {
            (true, true) => Self::Mixed,
            (true, false) => Self::Looser,
            (false, true) => Self::Stricter,
            (false, false) => Self::Conditions,
        }
    }

    /// The name, for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Looser => "looser",
            Self::Mixed => "mixed",
            Self::Conditions => "conditions",
            Self::Stricter => "stricter",
        }
    }
}

impl PolicyDiff {
    /// Whether both behave alike.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.answers.is_empty()
    }

    /// How many changes have this direction.
    #[must_use]
    pub fn count(&self, direction: ChangeDirection) -> usize {
        self.changes.iter().filter(|change| change.direction == direction).count()
    }
}

impl fmt::Display for TierRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.otherwise)?;
        if self.loosest != self.strictest {
            write!(f, " ({} to {})", self.loosest, self.strictest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::policy;
    use super::*;

    #[test]
    fn a_moved_line_is_no_change_and_a_loosened_rule_is_marked() {
        let old = policy(
            "defaults: {tier: notify}\noverrides:\n  - {capability: email.send, tier: approval_required}\n",
            &[],
        );
        let moved = policy(
            "# comment\n\ndefaults: {tier: notify}\noverrides:\n  - tier: approval_required\n    capability: email.send\n",
            &[],
        );
        assert!(old.diff(&moved).is_empty());
        let loose = policy("defaults: {tier: notify}\noverrides:\n  - {capability: email.send, tier: notify}\n", &[]);
        let diff = old.diff(&loose);
        let [change] = &diff.changes[..] else { panic!("{:?}", diff.changes) };
        assert_eq!((change.capability.as_str(), change.direction), ("email.send", ChangeDirection::Looser));
        assert_eq!((change.old.otherwise, change.new.otherwise), (Tier::ApprovalRequired, Tier::Notify));
        assert_eq!(loose.diff(&old).changes[0].direction, ChangeDirection::Stricter);
    }

    #[test]
    fn only_the_agent_whose_file_changed_is_named() {
        let org = "defaults: {tier: notify}\n";
        let old = policy(org, &[("clerk", "rules: [{capability: git.*, tier: blocked}]"), ("maid", "rules: []")]);
        let new = policy(
            org,
            &[("clerk", "rules: [{capability: git.*, tier: blocked, conditions: {path_prefix: /x}}]"), ("maid", "")],
        );
        let diff = old.diff(&new);
        assert!(!diff.changes.is_empty());
        for change in &diff.changes {
            assert_eq!(change.agent.as_ref().unwrap().as_str(), "clerk");
            assert!(change.capability.starts_with("git."), "{change:?}");
            assert_eq!(change.direction, ChangeDirection::Looser);
        }
    }

    #[test]
    fn a_capability_is_out_of_reach_only_if_no_arguments_lead_to_it() {
        let rules = "rules:\n  - {capability: git.push, tier: blocked}\n  - {capability: filesystem.read, tier: notify, conditions: {path_prefix: /x}}\n  - {capability: filesystem.*, tier: blocked}\n";
        let policy = policy("defaults: {tier: notify}\n", &[("clerk", rules)]);
        let clerk = AgentName::new("clerk").unwrap();
        let loosest = |name: &str| policy.reach(&clerk, &CapabilityName::new(name).unwrap()).loosest;
        assert_eq!(loosest("git.push"), Tier::Blocked);
        assert_eq!(loosest("filesystem.write"), Tier::Blocked);
        assert_eq!(loosest("filesystem.read"), Tier::Notify);
    }

    #[test]
    fn questions_of_the_tests_are_put_to_both() {
        let tests =
            "\ntests: [{given: {capability: filesystem.read, arguments: {path: /a/b}}, expect: {tier: autonomous}}]\n";
        let old = policy(
            &format!(
                "overrides: [{{capability: filesystem.read, tier: autonomous, conditions: {{path_prefix: /a}}}}]{tests}"
            ),
            &[],
        );
        let new = policy(
            &format!(
                "overrides: [{{capability: filesystem.read, tier: autonomous, conditions: {{path_prefix: /b}}}}]{tests}"
            ),
            &[],
        );
        let diff = old.diff(&new);
        assert_eq!(diff.changes[0].direction, ChangeDirection::Conditions);
        assert_eq!((diff.answers[0].old, diff.answers[0].new), (Tier::Autonomous, Tier::Notify));
    }
}
