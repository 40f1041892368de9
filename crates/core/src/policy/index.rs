//! All rules, laid out so that a question touches only those that could decide it.
//!
//! Takes the files; gives, per layer, for each pattern the few rules that are worth testing. Promise: the
//! work per question depends on how many patterns can name one capability and how deep a path is, not on
//! how many rules there are.

use hashbrown::{HashMap, HashSet};

use super::condition::{Condition, Held};
use super::facts::Facts;
use super::layer::{File, Layer};
use super::path::Depths;
use super::pattern::Pattern;
use super::rule::Rule;
use crate::capability::{Capability, Catalogue, ParamKind};
use crate::tier::Tier;

/// Numbers a distinct pattern text of the whole policy.
type PatternId = u32;

/// The first rule of a file that applies, with what a verdict needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its number in the file; `NONE` if there is none.
    pub(crate) rule: u32,
    /// Its tier as written.
    pub(crate) tier: Tier,
    /// It has a rate limit.
    pub(crate) rated: bool,
    /// It could not be decided whether its conditions hold.
    pub(crate) broken: bool,
}

impl Found {
    pub(crate) const NONE: Self = Self { rule: u32::MAX, tier: Tier::Blocked, rated: false, broken: false };

    pub(crate) const fn is_some(self) -> bool {
        self.rule != u32::MAX
    }
}

/// The compiled form of all files.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Every name of the catalogue and every name a rule spells out.
    names: HashMap<Box<str>, Name>,
    /// Every prefix a rule has, for names nobody spelled out.
    prefixes: HashMap<Box<str>, PatternId>,
    /// Lengths that occur among them.
    lengths: Vec<usize>,
    system: Shared,
    org: Shared,
    agents: HashMap<Box<str>, (u32, Table)>,
}

/// What is known about a name.
#[derive(Debug, Default)]
pub(crate) struct Name {
    capability: Option<Box<Capability>>,
    /// Its arguments that are paths.
    paths: Box<[Box<str>]>,
    /// Programs of the system file and of org.yaml for it.
    system: Box<[u32]>,
    org: Box<[u32]>,
    /// Patterns of agent files that match it.
    patterns: Box<[PatternId]>,
}

/// The rules of one file by pattern.
#[derive(Debug, Default)]
struct Table(HashMap<PatternId, Program>);

/// The same for a file that counts for every agent: names know their programs by number.
#[derive(Debug, Default)]
struct Shared {
    by_pattern: HashMap<PatternId, u32>,
    programs: Vec<Program>,
}

/// The rules of one file with one pattern, in order, up to the first one without conditions.
#[derive(Debug, Default)]
struct Program {
    /// Without an indexed path condition: tested one after the other.
    plain: Candidates,
    by_path: ByPath,
}

/// Rules with a path prefix: only those are tested whose prefix is an ancestor of a path of the call.
#[derive(Debug, Default)]
enum ByPath {
    #[default]
    None,
    /// Most agents have one: it is compared where it lies.
    One(Box<str>, Candidate),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
struct Many {
    all: Candidates,
    prefixes: HashMap<Box<str>, Candidates>,
    depths: Depths,
}

/// What most verdicts need of a rule, so that they need not fetch the rule itself.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    rule: u32,
    tier: Tier,
    rated: bool,
    /// It has no condition but the indexed one.
    simple: bool,
}

/// Rules in order; the first lies where the list does, and mostly is the only one.
#[derive(Debug, Default)]
struct Candidates {
    first: Option<Candidate>,
    more: Vec<Candidate>,
}

impl Candidates {
    fn push(&mut self, candidate: Candidate) {
        match self.first {
            None => self.first = Some(candidate),
            Some(_) => self.more.push(candidate),
        }
    }

    fn last(&self) -> Option<&Candidate> {
        self.more.last().or(self.first.as_ref())
    }
}

impl Name {
    pub(crate) fn capability(&self) -> Option<&Capability> {
        self.capability.as_deref()
    }

    pub(crate) fn paths(&self) -> &[Box<str>] {
        &self.paths
    }
}

/// What each layer answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    pub(crate) system: Found,
    pub(crate) org: Found,
    pub(crate) agent: Found,
    /// The file of the agent, if it has one.
    pub(crate) agent_file: Option<u32>,
}

impl Index {
    pub(crate) fn new(files: &[File], catalogue: &Catalogue) -> Self {
        let mut ids: HashMap<Pattern, PatternId> = HashMap::new();
        for rule in files.iter().flat_map(|file| &file.rules) {
            let next = ids.len() as PatternId;
            ids.entry(rule.pattern.clone()).or_insert(next);
        }
        let mut index = Self::default();
        for (pattern, id) in &ids {
            if let Pattern::Prefix(start) = pattern {
                index.prefixes.insert(start.clone(), *id);
                index.lengths.push(start.len());
            }
        }
        index.lengths.sort_unstable();
        index.lengths.dedup();
        let mut of_agents: HashSet<PatternId> = HashSet::new();
        for (number, file) in files.iter().enumerate() {
            let table = Table::new(&file.rules, &ids);
            if file.layer == Layer::Agent {
                of_agents.extend(table.0.keys());
            }
            match (file.layer, &file.agent) {
                (Layer::System, _) => index.system = table.into(),
                (Layer::Org, _) => index.org = table.into(),
                (Layer::Agent, Some(agent)) => drop(index.agents.insert(agent.as_str().into(), (number as u32, table))),
                (Layer::Agent, None) => {}
            }
        }
        for capability in catalogue.iter() {
            let name = index.name(capability.name.as_str(), Some(capability), &ids, &of_agents);
            index.names.insert(capability.name.as_str().into(), name);
        }
        for pattern in ids.keys() {
            if let Pattern::Name(text) = pattern
                && !index.names.contains_key(text)
            {
                let name = index.name(text, None, &ids, &of_agents);
                index.names.insert(text.clone(), name);
            }
        }
        index
    }

    fn name(
        &self,
        text: &str,
        capability: Option<&Capability>,
        ids: &HashMap<Pattern, PatternId>,
        of_agents: &HashSet<PatternId>,
    ) -> Name {
        let exact = ids.get(&Pattern::Name(text.into())).copied();
        let patterns: Vec<PatternId> = exact.into_iter().chain(self.prefixes_of(text)).collect();
        let programs = |file: &Shared| patterns.iter().filter_map(|id| file.by_pattern.get(id).copied()).collect();
        let paths = capability.into_iter().flat_map(|capability| capability.params_of(ParamKind::Path));
        Name {
            capability: capability.cloned().map(Box::new),
            paths: paths.map(|param| param.name.as_str().into()).collect(),
            system: programs(&self.system),
            org: programs(&self.org),
            patterns: patterns.iter().copied().filter(|id| of_agents.contains(id)).collect(),
        }
    }

    /// Patterns that match a name by its start.
    fn prefixes_of(&self, name: &str) -> impl Iterator<Item = PatternId> {
        let fitting = self.lengths.iter().take_while(move |length| **length <= name.len());
        fitting.filter_map(move |length| self.prefixes.get(name.get(..*length)?).copied())
    }

    /// What is known about a name.
    pub(crate) fn lookup(&self, name: &str) -> Option<&Name> {
        self.names.get(name)
    }

    /// The file of an agent.
    pub(crate) fn agent_file(&self, agent: &str) -> Option<u32> {
        self.agents.get(agent).map(|(file, _)| *file)
    }

    /// The first rule of each layer that applies.
    pub(crate) fn ask(&self, name: Option<&Name>, facts: &Facts<'_>, files: &[File], org: Option<u32>) -> Answers {
        let question = facts.question;
        let rules = |file: u32| files.get(file as usize).map_or(&[][..], |file| &file.rules);
        let agent = self.agents.get(question.agent.as_str());
        let (system, org) = (rules(0), org.map_or(&[][..], rules));
        let mut answers = Answers {
            system: Found::NONE,
            org: Found::NONE,
            agent: Found::NONE,
            agent_file: agent.map(|(file, _)| *file),
        };
        match name {
            Some(name) => {
                name.system.iter().for_each(|n| self.system.run(*n, system, facts, &mut answers.system));
                name.org.iter().for_each(|n| self.org.run(*n, org, facts, &mut answers.org));
                if let Some((file, table)) = agent {
                    name.patterns.iter().for_each(|id| table.first(*id, rules(*file), facts, &mut answers.agent));
                }
            }
            None => {
                for id in self.prefixes_of(question.capability.as_str()) {
                    self.system.first(id, system, facts, &mut answers.system);
                    self.org.first(id, org, facts, &mut answers.org);
                    if let Some((file, table)) = agent {
                        table.first(id, rules(*file), facts, &mut answers.agent);
                    }
                }
            }
        }
        answers
    }
}

impl Table {
    fn new(rules: &[Rule], ids: &HashMap<Pattern, PatternId>) -> Self {
        let mut table: HashMap<PatternId, Program> = HashMap::new();
        let mut closed: HashSet<PatternId> = HashSet::new();
        for (number, rule) in rules.iter().enumerate() {
            let Some(id) = ids.get(&rule.pattern) else { continue };
            if closed.contains(id) {
                continue; // An earlier rule without conditions has this pattern: nothing gets here.
            }
            if rule.is_unconditional() {
                closed.insert(*id);
            }
            table.entry(*id).or_default().add(number as u32, rule);
        }
        table.shrink_to_fit();
        Self(table)
    }

    #[inline]
    fn first(&self, pattern: PatternId, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        if let Some(program) = self.0.get(&pattern) {
            program.first(rules, facts, found);
        }
    }
}

impl From<Table> for Shared {
    fn from(table: Table) -> Self {
        let mut shared = Self::default();
        for (id, program) in table.0 {
            shared.by_pattern.insert(id, shared.programs.len() as u32);
            shared.programs.push(program);
        }
        shared
    }
}

impl Shared {
    #[inline]
    fn first(&self, pattern: PatternId, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        if let Some(program) = self.by_pattern.get(&pattern) {
            self.run(*program, rules, facts, found);
        }
    }

    #[inline]
    fn run(&self, program: u32, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        if let Some(program) = self.programs.get(program as usize) {
            program.first(rules, facts, found);
        }
    }
}

impl Program {
    fn add(&mut self, number: u32, rule: &Rule) {
        let others = rule.conditions.len() - usize::from(rule.indexed.is_some());
        let candidate = Candidate { rule: number, tier: rule.tier, rated: rule.rate.is_some(), simple: others == 0 };
        let Some(Condition::PathPrefix { prefixes, .. }) = rule.indexed.and_then(|n| rule.conditions.get(n)) else {
            self.plain.push(candidate);
            return;
        };
        match (std::mem::take(&mut self.by_path), prefixes.listed.as_slice()) {
            (ByPath::None, [prefix]) => self.by_path = ByPath::One(prefix.clone(), candidate),
            (before, prefixes) => {
                let mut many = match before {
                    ByPath::None => Box::default(),
                    ByPath::Many(many) => many,
                    ByPath::One(prefix, first) => {
                        let mut many: Box<Many> = Box::default();
                        many.add(first, &[prefix]);
                        many
                    }
                };
                many.add(candidate, prefixes);
                self.by_path = ByPath::Many(many);
            }
        }
    }

    /// Lowers `found` to the first rule here that applies, if that comes earlier.
    fn first(&self, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        walk(&self.plain, rules, facts, true, found);
        match &self.by_path {
            ByPath::None => {}
            ByPath::One(_, only) if only.rule >= found.rule => {}
            ByPath::One(prefix, only) => {
                let paths = facts.paths();
                let broken = paths.broken.is_some();
                if broken || paths.iter().any(|path| path.is_within(prefix)) {
                    consider(only, rules, facts, paths.is_single() && !broken, found);
                }
            }
            ByPath::Many(many) => many.first(rules, facts, found),
        }
    }
}

impl Many {
    fn add(&mut self, candidate: Candidate, prefixes: &[Box<str>]) {
        self.all.push(candidate);
        for prefix in prefixes {
            self.depths.add(prefix);
            let list = self.prefixes.entry(prefix.clone()).or_default();
            if list.last().is_none_or(|last| last.rule != candidate.rule) {
                list.push(candidate);
            }
        }
    }

    fn first(&self, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        if self.all.first.is_none_or(|first| first.rule >= found.rule) {
            return;
        }
        let paths = facts.paths();
        if paths.broken.is_some() {
            walk(&self.all, rules, facts, false, found);
            return;
        }
        let proven = paths.is_single();
        for path in paths.iter() {
            for ancestor in self.depths.ancestors(path) {
                if let Some(list) = self.prefixes.get(ancestor) {
                    walk(list, rules, facts, proven, found);
                }
            }
        }
    }
}

/// Tests rules in order until one applies or an earlier one is known. `proven`: their indexed condition holds.
#[inline]
fn walk(list: &Candidates, rules: &[Rule], facts: &Facts<'_>, proven: bool, found: &mut Found) {
    for candidate in list.first.iter().chain(&list.more) {
        if candidate.rule >= found.rule || consider(candidate, rules, facts, proven, found) {
            return;
        }
    }
}

/// Tests one rule; whether it applies.
#[inline]
fn consider(candidate: &Candidate, rules: &[Rule], facts: &Facts<'_>, proven: bool, found: &mut Found) -> bool {
    let held = if proven && candidate.simple {
        Held::Yes
    } else {
        let rule = rules.get(candidate.rule as usize);
        rule.map_or(Held::No, |rule| rule.test_except(facts, rule.indexed.filter(|_| proven)))
    };
    if held == Held::No {
        return false;
    }
    let Candidate { rule, tier, rated, .. } = *candidate;
    *found = Found { rule, tier, rated, broken: held != Held::Yes };
    true
}
