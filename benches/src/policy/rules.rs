//! Rules and queries, generated from a seed: the same for our engine, for Cedar and for a plain scan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Map, Value};
use sluice_core::capability::Catalogue;
use sluice_core::policy::{Policy, PolicySource, PolicySources};
use sluice_core::{AgentName, CapabilityName, Tier};
use sluice_testkit::ids::SplitMix;

/// Number of agents.
pub const AGENTS: u64 = 1_000;
const SERVICES: u64 = 20;
const VERBS: u64 = 10;
const FOLDERS: u64 = 64;
const PROJECTS: u64 = 16;
const QUESTIONS: usize = 4_096;
/// Most rules for all agents in the spread mode.
const SHARED: usize = 100;

/// The agents that rules apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleDistribution {
    /// At most 100 apply to all agents, the others to one agent each.
    Spread,
    /// All apply to all agents.
    Concentrated,
}

impl fmt::Display for RuleDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Spread { "spread" } else { "concentrated" })
    }
}

/// The capabilities that a rule applies to.
#[derive(Debug, Clone)]
pub enum RuleSubject {
    /// One capability.
    Name(String),
    /// All capabilities of a service.
    Service(String),
    /// All capabilities.
    All,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct BenchRule {
    /// The agent that it applies to; `None` for all agents.
    pub agent: Option<String>,
    /// The capabilities that it applies to.
    pub about: RuleSubject,
    /// The folder below which it applies.
    pub folder: Option<String>,
    /// The tier that it sets.
    pub tier: Tier,
}

/// A set of rules.
#[derive(Debug)]
pub struct BenchRules(pub Vec<BenchRule>);

/// One query.
#[derive(Debug)]
pub struct PolicyQuestion {
    /// The agent that calls.
    pub agent: AgentName,
    /// The capability that is called.
    pub capability: CapabilityName,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The path among the arguments.
    pub path: String,
    /// The folder of the path.
    pub folder: String,
}

impl BenchRules {
    /// A set of this many rules.
    pub fn new(mode: RuleDistribution, size: usize) -> anyhow::Result<Self> {
        let mut draws = SplitMix::new(0x5eed + size as u64);
        let rules = (0..size).map(|number| {
            let agent = (mode == RuleDistribution::Spread && number >= SHARED).then(|| agent(draws.below(AGENTS)));
            // In turns and not random: ten rules already have every kind. A rule for everything without a condition
            // would end every file.
            let (about, always_below) = match number % 10 {
                0..7 => (RuleSubject::Name(capability(&mut draws)), false),
                7 | 8 => (RuleSubject::Service(service(draws.below(SERVICES))), true),
                _ => (RuleSubject::All, true),
            };
            let folder = (always_below || draws.below(100) < 30).then(|| folder(&mut draws));
            let tier = match draws.below(4) {
                0 => Tier::Autonomous,
                1 => Tier::Notify,
                2 => Tier::ApprovalRequired,
                _ => Tier::Blocked,
            };
            BenchRule { agent, about, folder, tier }
        });
        let mut rules: Vec<BenchRule> = rules.collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.tier));
        Ok(Self(rules))
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Our engine with these rules.
    pub fn policy(&self) -> anyhow::Result<Arc<Policy>> {
        let mut org = String::from("defaults: {tier: notify}\noverrides:\n");
        let mut agents: BTreeMap<&str, String> = BTreeMap::new();
        for rule in &self.0 {
            let text = match &rule.agent {
                None => &mut org,
                Some(agent) => agents.entry(agent).or_insert_with(|| "rules:\n".into()),
            };
            text.push_str(&rule.yaml());
        }
        let agents = agents.into_iter().map(|(agent, text)| {
            Ok((AgentName::new(agent)?, PolicySource { name: format!("agents/{agent}.yaml"), text }))
        });
        let agents = agents.collect::<anyhow::Result<_>>()?;
        let sources = PolicySources { org: Some(PolicySource { name: "org.yaml".into(), text: org }), agents };
        let loaded = Policy::load(&sources, &catalogue()?);
        Ok(loaded.map_err(|errors| anyhow::anyhow!("the rules were refused: {errors:?}"))?.policy)
    }

    /// The strictest rule that matches, found by checking all of them.
    pub fn scan(&self, asked: &PolicyQuestion) -> Option<Tier> {
        self.0.iter().filter(|rule| rule.matches(asked)).map(|rule| rule.tier).max()
    }
}

impl BenchRule {
    fn yaml(&self) -> String {
        let about = match &self.about {
            RuleSubject::Name(name) => name.clone(),
            RuleSubject::Service(service) => format!("\"{service}.*\""),
            RuleSubject::All => "\"*\"".into(),
        };
        let conditions = self.folder.as_ref().map(|folder| format!(", conditions: {{path_prefix: {folder}}}"));
        format!("- {{capability: {about}, tier: {}{}}}\n", self.tier, conditions.unwrap_or_default())
    }

    fn matches(&self, asked: &PolicyQuestion) -> bool {
        let name = asked.capability.as_str();
        let about = match &self.about {
            RuleSubject::Name(own) => own == name,
            RuleSubject::Service(service) => name.split_once('.').is_some_and(|(own, _)| own == service),
            RuleSubject::All => true,
        };
        let below =
            |folder: &String| asked.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.agent.as_ref().is_none_or(|agent| agent == asked.agent.as_str())
            && about
            && self.folder.as_ref().is_none_or(below)
    }
}

/// The names of all capabilities.
pub fn names() -> impl Iterator<Item = String> {
    (0..SERVICES).flat_map(|number| (0..VERBS).map(move |verb| format!("{}.verb{verb}", service(number))))
}

fn catalogue() -> anyhow::Result<Arc<Catalogue>> {
    let param = "{name: path, kind: path, required: true, target: true}";
    let text: String =
        names().map(|name| format!("- {{name: {name}, effect: read, summary: s, params: [{param}]}}\n")).collect();
    Ok(Arc::new(Catalogue::from_yaml(&text).context("the catalogue")?))
}

/// All queries.
pub fn questions() -> anyhow::Result<Vec<PolicyQuestion>> {
    let mut draws = SplitMix::new(0xa5ced);
    let question = |_| {
        let folder = format!("/data/team{}/project{}", draws.below(FOLDERS), draws.below(PROJECTS));
        let path = format!("{folder}/file{}.txt", draws.below(1_000));
        let mut arguments = Map::new();
        arguments.insert("path".into(), Value::String(path.clone()));
        let agent = AgentName::new(&agent(draws.below(AGENTS)))?;
        Ok(PolicyQuestion { agent, capability: capability(&mut draws).parse()?, arguments, path, folder })
    };
    (0..QUESTIONS).map(question).collect()
}

fn agent(number: u64) -> String {
    format!("clerk-{number}")
}

fn service(number: u64) -> String {
    format!("service{number}")
}

/// The name of a capability, as it is called and as a rule writes it.
fn capability(draws: &mut SplitMix) -> String {
    format!("{}.verb{}", service(draws.below(SERVICES)), draws.below(VERBS))
}

fn folder(draws: &mut SplitMix) -> String {
    let team = draws.below(FOLDERS);
    if draws.below(2) == 0 {
        format!("/data/team{team}")
    } else {
        format!("/data/team{team}/project{}", draws.below(PROJECTS))
    }
}
