//! Rules and questions, drawn from a seed: the same for our engine, for Cedar and for a plain scan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Map, Value};
use sluice_core::capability::Catalogue;
use sluice_core::policy::{Policy, Source, Sources};
use sluice_core::{AgentName, CapabilityName, Tier};
use sluice_testkit::ids::SplitMix;

/// Agents that ask.
pub const AGENTS: u64 = 1_000;
const SERVICES: u64 = 20;
const VERBS: u64 = 10;
const FOLDERS: u64 = 64;
const PROJECTS: u64 = 16;
const QUESTIONS: usize = 4_096;
/// Most rules for everybody in the spread mode.
const SHARED: usize = 100;

/// Whom rules belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At most 100 to everybody, the others to one agent each.
    Spread,
    /// All to everybody.
    Concentrated,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Spread { "spread" } else { "concentrated" })
    }
}

/// What a rule is about.
#[derive(Debug, Clone)]
pub enum About {
    /// One capability.
    Name(String),
    /// All of a service.
    Service(String),
    /// Everything.
    All,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Whose it is; everybody's if nobody's.
    pub agent: Option<String>,
    /// Which capabilities.
    pub about: About,
    /// Below which folder.
    pub folder: Option<String>,
    /// What it says.
    pub tier: Tier,
}

/// A set of rules.
#[derive(Debug)]
pub struct Rules(pub Vec<Rule>);

/// One question.
#[derive(Debug)]
pub struct Asked {
    /// Who.
    pub agent: AgentName,
    /// What.
    pub capability: CapabilityName,
    /// With which arguments.
    pub arguments: Map<String, Value>,
    /// The path among them.
    pub path: String,
    /// The folder it lies in.
    pub folder: String,
}

impl Rules {
    /// So many of them.
    pub fn new(mode: Mode, size: usize) -> anyhow::Result<Self> {
        let mut draws = SplitMix::new(0x5eed + size as u64);
        let rules = (0..size).map(|number| {
            let agent = (mode == Mode::Spread && number >= SHARED).then(|| agent(draws.below(AGENTS)));
            // In turns and not drawn: ten rules already have every kind. A rule about everything without a
            // condition would end every file.
            let (about, always_below) = match number % 10 {
                0..7 => (About::Name(capability(&mut draws)), false),
                7 | 8 => (About::Service(service(draws.below(SERVICES))), true),
                _ => (About::All, true),
            };
            let folder = (always_below || draws.below(100) < 30).then(|| folder(&mut draws));
            let tier = match draws.below(4) {
                0 => Tier::Autonomous,
                1 => Tier::Notify,
                2 => Tier::ApprovalRequired,
                _ => Tier::Blocked,
            };
            Rule { agent, about, folder, tier }
        });
        let mut rules: Vec<Rule> = rules.collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.tier));
        Ok(Self(rules))
    }

    /// How many.
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
        let agents = agents
            .into_iter()
            .map(|(agent, text)| Ok((AgentName::new(agent)?, Source { name: format!("agents/{agent}.yaml"), text })));
        let agents = agents.collect::<anyhow::Result<_>>()?;
        let sources = Sources { org: Some(Source { name: "org.yaml".into(), text: org }), agents };
        let loaded = Policy::load(&sources, &catalogue()?);
        Ok(loaded.map_err(|errors| anyhow::anyhow!("the rules were refused: {errors:?}"))?.policy)
    }

    /// The strictest rule that matches, found by looking at all of them.
    pub fn scan(&self, asked: &Asked) -> Option<Tier> {
        self.0.iter().filter(|rule| rule.matches(asked)).map(|rule| rule.tier).max()
    }
}

impl Rule {
    fn yaml(&self) -> String {
        let about = match &self.about {
            About::Name(name) => name.clone(),
            About::Service(service) => format!("\"{service}.*\""),
            About::All => "\"*\"".into(),
        };
        let conditions = self.folder.as_ref().map(|folder| format!(", conditions: {{path_prefix: {folder}}}"));
        format!("- {{capability: {about}, tier: {}{}}}\n", self.tier, conditions.unwrap_or_default())
    }

    fn matches(&self, asked: &Asked) -> bool {
        let name = asked.capability.as_str();
        let about = match &self.about {
            About::Name(own) => own == name,
            About::Service(service) => name.split_once('.').is_some_and(|(own, _)| own == service),
            About::All => true,
        };
        let below =
            |folder: &String| asked.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.agent.as_ref().is_none_or(|agent| agent == asked.agent.as_str())
            && about
            && self.folder.as_ref().is_none_or(below)
    }
}

/// Every capability there is.
pub fn names() -> impl Iterator<Item = String> {
    (0..SERVICES).flat_map(|number| (0..VERBS).map(move |verb| format!("{}.verb{verb}", service(number))))
}

fn catalogue() -> anyhow::Result<Arc<Catalogue>> {
    let param = "{name: path, kind: path, required: true, target: true}";
    let text: String =
        names().map(|name| format!("- {{name: {name}, effect: read, summary: s, params: [{param}]}}\n")).collect();
    Ok(Arc::new(Catalogue::from_yaml(&text).context("the catalogue")?))
}

/// All questions.
pub fn questions() -> anyhow::Result<Vec<Asked>> {
    let mut draws = SplitMix::new(0xa5ced);
    let question = |_| {
        let folder = format!("/data/team{}/project{}", draws.below(FOLDERS), draws.below(PROJECTS));
        let path = format!("{folder}/file{}.txt", draws.below(1_000));
        let mut arguments = Map::new();
        arguments.insert("path".into(), Value::String(path.clone()));
        let agent = AgentName::new(&agent(draws.below(AGENTS)))?;
        Ok(Asked { agent, capability: capability(&mut draws).parse()?, arguments, path, folder })
    };
    (0..QUESTIONS).map(question).collect()
}

fn agent(number: u64) -> String {
    format!("clerk-{number}")
}

fn service(number: u64) -> String {
    format!("service{number}")
}

/// The name of a capability, as it is asked and as a rule spells it.
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
