//! Why a verdict is what it is: every rule considered, in order, with what was compared.
//!
//! Takes a question; gives lines for people and the same as JSON. It walks the files from top to bottom
//! without the index; that it always agrees with [`Policy::judge`] is a tested property.

use std::fmt;

use serde::Serialize;

use super::Policy;
use super::condition::Held;
use super::facts::Facts;
use super::fault::Place;
use super::index::{Found, Name};
use super::judge::{Base, Hit, Layers, Verdict};
use super::layer::{File, Layer};
use super::question::Question;
use super::reads::CallVerdict;
use super::rule::{Rule, RuleRef};
use super::suggest::escape;
use crate::approval::card::visible;
use crate::tier::Tier;

/// A verdict with everything that led to it.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Who asked.
    pub agent: String,
    /// What was asked.
    pub capability: String,
    /// The answer.
    pub tier: Tier,
    /// What it starts from.
    pub base: Base,
    /// Where the deciding rule stands; nothing if a default decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The author's reason of the deciding rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Agent, org, system.
    pub layers: Vec<LayerLine>,
    /// What raised the tier above what a rule or default says.
    pub escalations: Vec<String>,
    /// Paths that the call reads, each judged as a `filesystem.read` of it; the strictest answer counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadLine>,
    /// Which policy answered.
    pub policy_version: String,
    /// The same answer in short.
    #[serde(skip)]
    pub verdict: Verdict,
}

/// One path that a call reads.
#[derive(Debug, Clone, Serialize)]
pub struct ReadLine {
    /// The path.
    pub path: String,
    /// What holds for reading it.
    pub tier: Tier,
    /// Where the rule stands that says so; nothing if a default does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The author's reason of that rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One layer of an explanation.
#[derive(Debug, Clone, Serialize)]
pub struct LayerLine {
    /// Which.
    pub layer: Layer,
    /// Its file; nothing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Rules about this capability, in order, up to the one that matched.
    pub rules: Vec<RuleLine>,
    /// Rules about other capabilities only.
    pub other_rules: usize,
    /// Rules about this capability below the one that matched.
    pub not_reached: usize,
    /// What the layer asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
}

/// One rule that was considered.
#[derive(Debug, Clone, Serialize)]
pub struct RuleLine {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// Which capabilities it is about.
    pub capability: String,
    /// The tier it gives.
    pub tier: Tier,
    /// What became of it.
    pub state: RuleState,
    /// Its author's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionLine>,
    /// Its rate limit, if it applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
}

/// What became of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleState {
    /// It applies.
    Matched,
    /// A condition does not hold.
    Skipped,
    /// A condition could not be decided, so it counts and asks a person at least.
    Error,
}

/// One condition of a rule.
#[derive(Debug, Clone, Serialize)]
pub struct ConditionLine {
    /// As written.
    pub condition: String,
    /// What became of it.
    pub state: ConditionState,
    /// What the call has.
    pub found: String,
}

/// What became of a condition.
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
    pub fn explain(&self, question: &Question<'_>) -> Explanation {
        let name = self.index.lookup(question.capability.as_str());
        let capability = name.and_then(Name::capability);
        let facts = Facts::new(question, name, &self.projects);
        let (agent_line, agent) =
            self.explain_file(Layer::Agent, self.index.agent_file(question.agent.as_str()), &facts);
        let (org_line, org) = self.explain_file(Layer::Org, self.org, &facts);
        let (system_line, system) = self.explain_file(Layer::System, Some(0), &facts);
        let unknown = self.is_unknown(question, capability);
        let verdict = Verdict::combine(Layers { agent, org, system }, self.default_for(capability), unknown);
        let whole = CallVerdict { own: verdict, ..self.judge_call(question) };
        let decided = whole.decided_by();
        let reason_of = |rule: Option<RuleRef>| rule.and_then(|rule| self.rule(rule)?.reason.as_deref()).map(visible);
        let reads = whole.reads.iter().map(|read| ReadLine {
            path: escape(&read.path),
            tier: read.verdict.tier,
            decided_by: read.verdict.decided_by().map(|rule| self.location(rule)),
            reason: reason_of(read.verdict.decided_by()),
        });
        Explanation {
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

    fn explain_file(&self, layer: Layer, number: Option<u32>, facts: &Facts<'_>) -> (LayerLine, Option<Hit>) {
        let mut line = LayerLine { layer, file: None, rules: Vec::new(), other_rules: 0, not_reached: 0, tier: None };
        let Some((number, file)) = number.and_then(|n| Some((n, self.files.get(n as usize)?))) else {
            return (line, None);
        };
        let file: &File = file;
        line.file = Some(file.name.clone());
        let mut found = Found::NONE;
        let (mut is_clear, mut first) = (false, 0);
        for (n, rule) in file.rules.iter().enumerate() {
            if !rule.pattern.matches(facts.question.capability.as_str()) {
                line.other_rules += 1;
            } else if is_clear {
                line.not_reached += 1;
            } else {
                let held = rule.test(facts);
                is_clear = held == Held::Yes;
                // After a rule that could not be decided the file is read on: the rest counts as well.
                if held != Held::No && !found.is_some() {
                    let (tier, rated) = (rule.tier, rule.rate.is_some());
                    found = Found { rule: n as u32, tier, rated, broken: held != Held::Yes };
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
                list.push(format!("{at} could not be decided, so it counts, a person is asked at least, and what follows it counts too"));
            }
            if hit.rate.is_some_and(|rate| rate.exceeded) {
                let tier = self.rule(hit.rule).and_then(|rule| rule.rate).map_or(hit.tier, |rate| rate.on_exceed);
                list.push(format!("the rate limit of {at} is exceeded: {tier}"));
            }
        }
        if verdict.unknown {
            list.push(format!("nobody knows this capability: {} at least", Tier::ApprovalRequired));
        }
        list
    }
}

fn rule_line(rule: &Rule, held: Held, facts: &Facts<'_>) -> RuleLine {
    let conditions = rule.conditions.iter().map(|condition| {
        let (state, found) = match condition.test(facts) {
            Held::Yes => (ConditionState::Holds, condition.found(facts)),
            Held::No => (ConditionState::Fails, condition.found(facts)),
            Held::Broken(why) => {
                let found = condition.found(facts);
                let found = if found.contains(why) { found } else { format!("{why}: {found}") };
                (ConditionState::Error, found)
            }
        };
        ConditionLine { condition: condition.to_string(), state, found }
    });
    RuleLine {
        place: rule.place,
        capability: rule.pattern.to_string(),
        tier: rule.tier,
        state: match held {
            Held::Yes => RuleState::Matched,
            Held::No => RuleState::Skipped,
            Held::Broken(_) => RuleState::Error,
        },
        reason: rule.reason.as_deref().map(visible),
        conditions: conditions.collect(),
        rate: None,
    }
}

impl fmt::Display for Explanation {
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
            Base::AgentRule => writeln!(f, "base: the rule of the agent file")?,
            Base::OrgOverride => writeln!(f, "base: the org override, as the agent file has no rule for this call")?,
            Base::OrgDefault(tier) => writeln!(f, "base: the org default, {tier}")?,
            Base::BuiltinDefault(tier) => writeln!(f, "base: no default is set, so {tier}")?,
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

impl LayerLine {
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
