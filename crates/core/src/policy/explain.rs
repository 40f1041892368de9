//! Explains a verdict: every rule considered, in order, with what was compared.
//!
//! Takes a question; gives lines for people and the same as JSON. It walks the files from top to bottom
//! without the index; that it always agrees with [`Policy::judge`] is a tested property.

use std::fmt;

use serde::Serialize;

use super::Policy;
use super::condition::ConditionTruth;
use super::facts::CallFacts;
use super::fault::SourcePosition;
use super::index::{FirstRuleMatch, IndexedName};
use super::input::PolicyInput;
use super::judge::{LayerHits, RuleHit, Verdict, VerdictBase};
use super::layer::{PolicyFile, PolicyLayer};
use super::reads::CallVerdict;
use super::rule::{Rule, RuleRef};
use super::suggest::escape;
use crate::approval::card::escape_invisible;
use crate::tier::Tier;

/// A verdict with everything that contributed to it.
#[derive(Debug, Clone, Serialize)]
pub struct VerdictExplanation {
    /// The agent that made the call.
    pub agent: String,
    /// The capability of the call.
    pub capability: String,
    /// The tier of the verdict.
    pub tier: Tier,
    /// The tier the verdict starts from, and why.
    pub base: VerdictBase,
    /// The place of the deciding rule; `None` if a default decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The author's reason of the deciding rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Agent, org, system.
    pub layers: Vec<LayerExplanation>,
    /// What raised the tier above what a rule or default says.
    pub escalations: Vec<String>,
    /// Paths that the call reads, each judged as a `filesystem.read` of it; the strictest answer counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadExplanation>,
    /// The version of the policy that answered.
    pub policy_version: String,
    /// The same answer in short.
    #[serde(skip)]
    pub verdict: Verdict,
}

/// One path that a call reads.
#[derive(Debug, Clone, Serialize)]
pub struct ReadExplanation {
    /// The path.
    pub path: String,
    /// The tier for reading it.
    pub tier: Tier,
    /// The place of the rule that gave this tier; `None` if a default did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The author's reason of that rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One layer of an explanation.
#[derive(Debug, Clone, Serialize)]
pub struct LayerExplanation {
    /// The layer.
    pub layer: PolicyLayer,
    /// Its file; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Rules about this capability, in order, up to the one that matched.
    pub rules: Vec<RuleExplanation>,
    /// Rules about other capabilities only.
    pub other_rules: usize,
    /// Rules about this capability below the one that matched.
    pub not_reached: usize,
    /// The tier the layer asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
}

/// One rule that was considered.
#[derive(Debug, Clone, Serialize)]
pub struct RuleExplanation {
    /// The place of the rule.
    #[serde(flatten)]
    pub place: SourcePosition,
    /// The capabilities it is about.
    pub capability: String,
    /// The tier it gives.
    pub tier: Tier,
    /// Whether it applies.
    pub state: RuleState,
    /// Its author's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionExplanation>,
    /// Its rate limit, if it applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
}

/// Whether a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleState {
    /// It applies.
    Matched,
    /// A condition does not hold.
    Skipped,
    /// A condition could not be decided, so the rule counts and at least asks a person.
    Error,
}

/// One condition of a rule.
#[derive(Debug, Clone, Serialize)]
pub struct ConditionExplanation {
    /// The condition as written.
    pub condition: String,
    /// Whether it holds.
    pub state: ConditionState,
    /// The value the call has.
    pub found: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionState {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// It could not be decided.
    Error,
}

impl Policy {
    /// Explains the verdict on a question.
    #[must_use]
    pub fn explain(&self, question: &PolicyInput<'_>) -> VerdictExplanation {
        let name = self.index.lookup(question.capability.as_str());
        let capability = name.and_then(IndexedName::capability);
        let facts = CallFacts::new(question, name, &self.projects);
        let (agent_line, agent) =
            self.explain_file(PolicyLayer::Agent, self.index.agent_file(question.agent.as_str()), &facts);
        let (org_line, org) = self.explain_file(PolicyLayer::Org, self.org, &facts);
        let (system_line, system) = self.explain_file(PolicyLayer::System, Some(0), &facts);
        let unknown = self.is_unknown(question, capability);
        let verdict = Verdict::combine(LayerHits { agent, org, system }, self.default_for(capability), unknown);
        let whole = CallVerdict { own: verdict, ..self.judge_call(question) };
        let decided = whole.decided_by();
        let reason_of =
            |rule: Option<RuleRef>| rule.and_then(|rule| self.rule(rule)?.reason.as_deref()).map(escape_invisible);
        let reads = whole.reads.iter().map(|read| ReadExplanation {
            path: escape(&read.path),
            tier: read.verdict.tier,
            decided_by: read.verdict.decided_by().map(|rule| self.location(rule)),
            reason: reason_of(read.verdict.decided_by()),
        });
        VerdictExplanation {
            reads: reads.collect(),
            agent: question.agent.to_string(),
            capability: question.capability.to_string(),
            tier: whole.tier(),
            base: verdict.base,
            decided_by: decided.map(|rule| self.location(rule)),
            reason: reason_of(decided),
            layers: vec![agent_line, org_line, system_line],
            escalations: self.escalations(&verdict),
            policy_version: self.version.clone(),
            verdict,
        }
    }

    fn explain_file(
        &self,
        layer: PolicyLayer,
        number: Option<u32>,
        facts: &CallFacts<'_>,
    ) -> (LayerExplanation, Option<RuleHit>) {
        let mut line =
            LayerExplanation { layer, file: None, rules: Vec::new(), other_rules: 0, not_reached: 0, tier: None };
        let Some((number, file)) = number.and_then(|n| Some((n, self.files.get(n as usize)?))) else {
            return (line, None);
        };
        let file: &PolicyFile = file;
        line.file = Some(file.name.clone());
        let mut found = FirstRuleMatch::NONE;
        let (mut is_clear, mut first) = (false, 0);
        for (n, rule) in file.rules.iter().enumerate() {
            if !rule.pattern.matches(facts.question.capability.as_str()) {
                line.other_rules += 1;
            } else if is_clear {
                line.not_reached += 1;
            } else {
                let held = rule.test(facts);
                is_clear = held == ConditionTruth::Yes;
                // After a rule that could not be decided, the rest of the file is read: it counts as well.
                if held != ConditionTruth::No && !found.is_some() {
                    let (tier, rated) = (rule.tier, rule.rate.is_some());
                    found = FirstRuleMatch { rule: n as u32, tier, rated, broken: held != ConditionTruth::Yes };
                    first = line.rules.len();
                }
                line.rules.push(rule_line(rule, held, facts));
            }
        }
        let hit = self.hit(number, found, facts);
        if let (Some(hit), Some(last)) = (&hit, line.rules.get_mut(first)) {
            line.tier = Some(hit.tier);
            let rate = self.rule(hit.rule).and_then(|rule| rule.rate);
            last.rate = rate.zip(hit.rate).map(|(rate, used)| {
                let state = if used.exceeded { "exceeded" } else { "within" };
                format!("{state}: {} of {} calls in {} before this one", used.before, rate.max, rate.window)
            });
        }
        (line, hit)
    }

    fn escalations(&self, verdict: &Verdict) -> Vec<String> {
        let mut list = Vec::new();
        for (_, hit) in verdict.hits() {
            let at = self.location(hit.rule);
            if hit.broken {
                list.push(format!("{at} could not be decided: it counts, approval is required at least, and the rules after it count too"));
            }
            if hit.rate.is_some_and(|rate| rate.exceeded) {
                let tier = self.rule(hit.rule).and_then(|rule| rule.rate).map_or(hit.tier, |rate| rate.on_exceed);
                list.push(format!("the rate limit of {at} is exceeded: {tier}"));
            }
        }
        if verdict.unknown {
            list.push(format!("unknown capability: {} at least", Tier::ApprovalRequired));
        }
        list
    }
}

fn rule_line(rule: &Rule, held: ConditionTruth, facts: &CallFacts<'_>) -> RuleExplanation {
    let conditions = rule.conditions.iter().map(|condition| {
        let (state, found) = match condition.test(facts) {
            ConditionTruth::Yes => (ConditionState::Holds, condition.describe_found(facts)),
            ConditionTruth::No => (ConditionState::Fails, condition.describe_found(facts)),
            ConditionTruth::Broken(why) => {
                let found = condition.describe_found(facts);
                let found = if found.contains(why) { found } else { format!("{why}: {found}") };
                (ConditionState::Error, found)
            }
        };
        ConditionExplanation { condition: condition.to_string(), state, found }
    });
    RuleExplanation {
        place: rule.place,
        capability: rule.pattern.to_string(),
        tier: rule.tier,
        state: match held {
            ConditionTruth::Yes => RuleState::Matched,
            ConditionTruth::No => RuleState::Skipped,
            ConditionTruth::Broken(_) => RuleState::Error,
        },
        reason: rule.reason.as_deref().map(escape_invisible),
        conditions: conditions.collect(),
        rate: None,
    }
}

impl fmt::Display for VerdictExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} for {}: {}", self.capability, self.agent, self.tier)?;
        if let Some(reason) = &self.reason {
            writeln!(f, "  \"{reason}\"")?;
        }
        for layer in &self.layers {
            writeln!(f)?;
            layer.write(f)?;
        }
        writeln!(f)?;
        match self.base {
            VerdictBase::AgentRule => writeln!(f, "base: the rule of the agent file")?,
            VerdictBase::OrgOverride => {
                writeln!(f, "base: the org override, as the agent file has no rule for this call")?
            }
            VerdictBase::OrgDefault(tier) => writeln!(f, "base: the org default, {tier}")?,
            VerdictBase::BuiltinDefault(tier) => writeln!(f, "base: no default is set, so {tier}")?,
        }
        for escalation in &self.escalations {
            writeln!(f, "raised: {escalation}")?;
        }
        for read in &self.reads {
            let at = read.decided_by.as_ref().map(|at| format!(" ({at})")).unwrap_or_default();
            writeln!(f, "reads: filesystem.read of {}: {}{at}", read.path, read.tier)?;
        }
        match &self.decided_by {
            Some(at) => write!(f, "verdict: {} ({at})", self.tier),
            None => write!(f, "verdict: {}", self.tier),
        }
    }
}

impl LayerExplanation {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(file) = &self.file else {
            return writeln!(f, "{:<7} no file", self.layer);
        };
        match self.tier {
            Some(tier) => writeln!(f, "{:<7} {file}: {tier}", self.layer)?,
            None => writeln!(f, "{:<7} {file}: no rule matched", self.layer)?,
        }
        for rule in &self.rules {
            let state = match rule.state {
                RuleState::Matched => "matched",
                RuleState::Skipped => "skipped",
                RuleState::Error => "error  ",
            };
            writeln!(f, "  {state} line {:<4} {} -> {}", rule.place.line, rule.capability, rule.tier)?;
            for condition in &rule.conditions {
                let sign = match condition.state {
                    ConditionState::Holds => "holds",
                    ConditionState::Fails => "fails",
                    ConditionState::Error => "error",
                };
                writeln!(f, "            {sign}  {} ({})", condition.condition, condition.found)?;
            }
            if let Some(rate) = &rule.rate {
                writeln!(f, "            rate   {rate}")?;
            }
        }
        let mut rest = Vec::new();
        if self.not_reached > 0 {
            rest.push(format!("{} further down", self.not_reached));
        }
        if self.other_rules > 0 {
            rest.push(format!("{} about other capabilities", self.other_rules));
        }
        if !rest.is_empty() {
            writeln!(f, "  not considered: {}", rest.join(", "))?;
        }
        Ok(())
    }
}
