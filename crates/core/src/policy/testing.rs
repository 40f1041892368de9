//! Tests inside policy files: what is given, what is expected.
//!
//! Takes the `tests` node; gives cases that a policy can be asked. A policy whose own tests fail is not
//! loaded, so a change that allows what its author wanted to stop is noticed before it takes effect.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Policy;
use super::fault::{FaultCollector, SourcePosition};
use super::input::{PolicyInput, RateCounter, RateKey, TargetOrigin, TargetOrigins};
use super::layer::PolicyLayer;
use super::rule::{self, refuse_unknown_keys};
use super::suggest::{closest, escape};
use super::yaml::{YamlNode, YamlValue};
use crate::clock::{Millis, UtcMillis};
use crate::ids::{AgentName, CapabilityName};
use crate::tier::Tier;

/// Most tests in one file.
const TESTS: usize = 10_000;
const GIVEN: [&str; 9] =
    ["agent", "capability", "arguments", "account", "session", "tainted", "targets", "now", "rates"];
/// The time of a test that names none: a Monday noon in UTC.
const NOON: UtcMillis = UtcMillis::from_millis(1_767_614_400_000);
/// The agent in a test of `org.yaml` that names none: an agent without a file.
const ANYONE: &str = "anyone";

/// One test.
#[derive(Debug, Clone)]
pub(crate) struct PolicyTestCase {
    pub(crate) place: SourcePosition,
    pub(crate) given: PolicyTestInput,
    pub(crate) tier: Tier,
    /// The pattern of the rule that must decide, or `default`.
    pub(crate) rule: Option<String>,
}

/// The call of a test: a question that owns its parts.
#[derive(Debug, Clone)]
pub(crate) struct PolicyTestInput {
    pub(crate) agent: Option<AgentName>,
    pub(crate) capability: CapabilityName,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) account: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) tainted: bool,
    pub(crate) targets: Option<TargetOrigins>,
    pub(crate) now: UtcMillis,
    pub(crate) rates: ConstantRateCounter,
}

/// The same count for every rate limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConstantRateCounter(pub u64);

impl RateCounter for ConstantRateCounter {
    fn count(&self, _: &AgentName, _: RateKey, _: Millis) -> u64 {
        self.0
    }
}

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyTestOutcome {
    /// The file of the test.
    pub file: String,
    /// The place in the file.
    #[serde(flatten)]
    pub place: SourcePosition,
    /// The agent in the test.
    pub agent: AgentName,
    /// The capability in the test.
    pub capability: CapabilityName,
    /// The tier the test expects.
    pub expected: Tier,
    /// The tier that policy gives.
    pub got: Tier,
    /// The deciding rule the test expects, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_rule: Option<String>,
    /// The pattern of the rule that decided, or `default`.
    pub got_rule: String,
    /// The place of that rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Whether the result is the expected one.
    pub passed: bool,
}

impl Policy {
    /// Runs the tests of all files.
    #[must_use]
    pub fn test(&self) -> Vec<PolicyTestOutcome> {
        let cases = self.files.iter().flat_map(|file| file.tests.iter().map(move |case| (file, case)));
        cases.map(|(file, case)| self.try_case(&file.name, file.agent.as_ref(), case)).collect()
    }

    fn try_case(&self, file: &str, owner: Option<&AgentName>, case: &PolicyTestCase) -> PolicyTestOutcome {
        let agent = case.given.agent_or(owner);
        let verdict = self.judge_call(&case.given.question(&agent));
        let decided = verdict.decided_by();
        let got_rule = decided
            .and_then(|rule| self.rule(rule))
            .map_or_else(|| "default".to_owned(), |rule| rule.pattern.to_string());
        let rule_fits = case.rule.as_ref().is_none_or(|expected| *expected == got_rule);
        PolicyTestOutcome {
            file: file.to_owned(),
            place: case.place,
            agent,
            capability: case.given.capability.clone(),
            expected: case.tier,
            got: verdict.tier(),
            expected_rule: case.rule.clone(),
            got_rule,
            decided_by: decided.map(|rule| self.location(rule)),
            passed: verdict.tier() == case.tier && rule_fits,
        }
    }
}

impl PolicyTestInput {
    /// The agent: the one named, the owner of the file, or an agent without a file.
    pub(crate) fn agent_or(&self, owner: Option<&AgentName>) -> AgentName {
        let anyone = || AgentName::new(ANYONE).unwrap_or_else(|_| unreachable_name());
        self.agent.clone().or_else(|| owner.cloned()).unwrap_or_else(anyone)
    }

    pub(crate) fn question<'q>(&'q self, agent: &'q AgentName) -> PolicyInput<'q> {
        PolicyInput {
            agent,
            capability: &self.capability,
            arguments: &self.arguments,
            spawn: None,
            account: self.account.as_deref(),
            session: self.session.as_deref(),
            tainted: self.tainted,
            targets: self.targets,
            now: self.now,
            rates: &self.rates,
        }
    }
}

#[expect(clippy::panic, reason = "the word is a constant that is a name; a test uses it")]
fn unreachable_name() -> AgentName {
    panic!("`{ANYONE}` is an agent name")
}

/// Reads the `tests` of a file.
pub(crate) fn read(node: &YamlNode, layer: PolicyLayer, faults: &mut FaultCollector<'_>) -> Vec<PolicyTestCase> {
    match &node.kind {
        YamlValue::Null => Vec::new(),
        YamlValue::List(items) if items.len() <= TESTS => {
            items.iter().filter_map(|item| case(item, layer, faults)).collect()
        }
        _ => {
            let message = format!("`tests` must be a list of at most {TESTS} tests, not {}", node.noun());
            faults.error(node.place, "policy.type", message);
            Vec::new()
        }
    }
}

fn case(node: &YamlNode, layer: PolicyLayer, faults: &mut FaultCollector<'_>) -> Option<PolicyTestCase> {
    let example = "for example `{given: {capability: email.send}, expect: {tier: blocked}}`";
    let YamlValue::Map(entries) = &node.kind else {
        faults.error(node.place, "policy.type", format!("a test must be a map, not {}", node.noun())).hint(example);
        return None;
    };
    refuse_unknown_keys(entries, &["given", "expect"], "a test", faults);
    let field = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
    let (Some(given_node), Some(expect)) = (field("given"), field("expect")) else {
        faults.error(node.place, "policy.missing_key", "a test needs `given` and `expect`").hint(example);
        return None;
    };
    let given = given(given_node, layer, faults);
    let YamlValue::Map(expected) = &expect.kind else {
        faults
            .error(expect.place, "policy.type", format!("`expect` must be a map, not {}", expect.noun()))
            .hint(example);
        return None;
    };
    refuse_unknown_keys(expected, &["tier", "rule"], "`expect`", faults);
    let expected = |name: &str| expected.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
    let Some(tier) = expected("tier") else {
        faults.error(expect.place, "policy.missing_key", "`expect` needs a `tier`");
        return None;
    };
    let tier = rule::tier(tier, "tier", faults);
    let rule = match expected("rule") {
        None => None,
        Some(node) => Some(text(node, "rule", faults)?),
    };
    Some(PolicyTestCase { place: node.place, given: given?, tier: tier?, rule })
}

fn given(node: &YamlNode, layer: PolicyLayer, faults: &mut FaultCollector<'_>) -> Option<PolicyTestInput> {
    let YamlValue::Map(entries) = &node.kind else {
        faults.error(node.place, "policy.type", format!("`given` must be a map, not {}", node.noun()));
        return None;
    };
    refuse_unknown_keys(entries, &GIVEN, "`given`", faults);
    let field = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
    let Some(capability) = field("capability") else {
        faults.error(node.place, "policy.missing_key", "`given` needs a `capability`");
        return None;
    };
    let capability_text = text(capability, "capability", faults)?;
    let Ok(name) = CapabilityName::new(capability_text.as_str()) else {
        faults
            .error(capability.place, "policy.value", format!("`{}` is not a capability name", escape(&capability_text)))
            .hint("a test asks for one capability; patterns with `*` belong in rules");
        return None;
    };
    let agent = match field("agent") {
        None => None,
        Some(node) if layer == PolicyLayer::Agent => {
            faults
                .error(node.place, "policy.unknown_key", "a test in an agent file is always about that agent")
                .hint("leave `agent` out, or move the test to org.yaml");
            return None;
        }
        Some(node) => {
            let text = text(node, "agent", faults)?;
            let agent = AgentName::new(text.as_str());
            if agent.is_err() {
                faults.error(node.place, "policy.value", format!("`{}` is not an agent name", escape(&text)));
            }
            Some(agent.ok()?)
        }
    };
    let arguments = match field("arguments").map(|node| (node, node.to_json())) {
        None | Some((_, Value::Null)) => Map::new(),
        Some((_, Value::Object(arguments))) => arguments,
        Some((node, _)) => {
            faults.error(node.place, "policy.type", format!("`arguments` must be a map, not {}", node.noun()));
            return None;
        }
    };
    let optional = |name: &str, faults: &mut FaultCollector<'_>| match field(name) {
        None => Some(None),
        Some(node) => text(node, name, faults).map(Some),
    };
    let account = optional("account", faults)?;
    let session = optional("session", faults)?;
    let tainted = match field("tainted").map(|node| (node, &node.kind)) {
        None => false,
        Some((_, YamlValue::Bool(tainted))) => *tainted,
        Some((node, _)) => {
            faults.error(node.place, "policy.type", format!("`tainted` must be true or false, not {}", node.noun()));
            return None;
        }
    };
    let targets = match field("targets") {
        None => None,
        Some(node) => Some(origins(node, faults)?),
    };
    let now = match field("now") {
        None => NOON,
        Some(node) => moment(node, faults)?,
    };
    let rates = match field("rates").map(|node| (node, &node.kind)) {
        None => ConstantRateCounter(0),
        Some((_, YamlValue::Integer(count))) if *count >= 0 => ConstantRateCounter(count.unsigned_abs()),
        Some((node, _)) => {
            faults
                .error(node.place, "policy.type", "`rates` must be a whole number")
                .why("it says how many calls every rate limit has counted before this one");
            return None;
        }
    };
    Some(PolicyTestInput { agent, capability: name, arguments, account, session, tainted, targets, now, rates })
}

fn text(node: &YamlNode, key: &str, faults: &mut FaultCollector<'_>) -> Option<String> {
    if node.as_text().is_none() {
        faults.error(node.place, "policy.type", format!("`{key}` must be a text, not {}", node.noun()));
    }
    node.as_text().map(str::to_owned)
}

fn origins(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<TargetOrigins> {
    let YamlValue::List(items) = &node.kind else {
        faults.error(node.place, "policy.type", "`targets` must be a list such as `[asked, known]`");
        return None;
    };
    let mut origins = TargetOrigins::default();
    for item in items {
        let word = item.as_text().unwrap_or_default();
        let Some(origin) = TargetOrigin::from_word(word) else {
            faults
                .error(item.place, "policy.value", format!("`{}` is not an origin", escape(word)))
                .why("origins are asked, known, seen, new")
                .suggest_word(closest(word, TargetOrigin::ALL.map(TargetOrigin::as_str)));
            return None;
        };
        origins = origins.with(origin);
    }
    Some(origins)
}

fn moment(node: &YamlNode, faults: &mut FaultCollector<'_>) -> Option<UtcMillis> {
    let parsed = node.as_text().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    if parsed.is_none() {
        faults
            .error(node.place, "policy.value", "`now` must be a moment with its offset")
            .hint("for example `\"2026-01-05T09:30:00+01:00\"`");
    }
    parsed.map(|moment| UtcMillis::from_millis(moment.as_millisecond()))
}
