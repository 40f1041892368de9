//! The index of all rules, so that a question touches only rules that could decide it.
//!
//! Takes the files; gives, per layer, for each pattern the few rules that must be tested. Promise: the
//! work per question depends on how many patterns can name one capability and how deep a path is, not on
//! how many rules there are.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet, HashTable};

use super::facts::CallFacts;
use super::layer::{PolicyFile, PolicyLayer};
use super::pattern::CapabilityPattern;
use super::rule::Rule;
use super::rule_program::{
    InternedText, PatternBitset, PatternFilter, PatternId, RuleProgram, RuleProgramBuilder, RuleProgramInput,
    RulePrograms, all_patterns, cell_count,
};
use crate::capability::{Capability, Catalogue, ParamKind};
use crate::tier::Tier;

/// Largest merged program for one name, in cells: one program then answers instead of one for each pattern.
const MERGED: usize = 256;
/// Up to this many cells, the rules of an agent are read one after the other, whatever their patterns.
const OWN: usize = 24;

/// The first rule of a file that applies, with what a verdict needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstRuleMatch {
    /// Its number in the file; `NONE` if there is none.
    pub(crate) rule: u32,
    /// Its tier as written.
    pub(crate) tier: Tier,
    /// It has a rate limit.
    pub(crate) rated: bool,
    /// Its conditions could not be decided.
    pub(crate) broken: bool,
}

impl FirstRuleMatch {
    pub(crate) const NONE: Self = Self { rule: u32::MAX, tier: Tier::Blocked, rated: false, broken: false };

    pub(crate) const fn is_some(self) -> bool {
        self.rule != u32::MAX
    }
}

/// The compiled form of all files.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    /// Every name of the catalogue and every name a rule spells out.
    names: HashTable<IndexedName>,
    /// Every prefix a rule has, for names that no rule spells out.
    prefixes: HashMap<Box<str>, PatternId>,
    /// Lengths that occur among them.
    lengths: Vec<usize>,
    system: SharedRuleFile,
    org: SharedRuleFile,
    agents: HashTable<IndexedAgent>,
    programs: RulePrograms,
    /// What names refer to, side by side.
    listed: Vec<RuleProgram>,
    patterns: Vec<PatternId>,
}

/// The index entry of a name.
#[derive(Debug)]
pub(crate) struct IndexedName {
    text: InternedText,
    capability: Option<Box<Capability>>,
    /// Its arguments that are paths; one list for all names with the same.
    paths: Arc<[Box<str>]>,
    /// Programs of the system file and of org.yaml for it.
    system: IndexSlice,
    org: IndexSlice,
    /// Patterns of agent files that match it.
    patterns: IndexSlice,
    marks: PatternBitset,
}

/// Neighbours in a list.
#[derive(Debug, Clone, Copy, Default)]
struct IndexSlice {
    start: u32,
    count: u32,
}

/// The rules of one file by pattern, up to the first one without conditions: numbers in order.
type RulesByPattern = HashMap<PatternId, Vec<u32>>;

/// A file that counts for every agent.
#[derive(Debug, Default)]
struct SharedRuleFile {
    /// For names that no rule spells out.
    by_pattern: HashMap<PatternId, RuleProgram>,
}

/// An agent with a file.
#[derive(Debug)]
struct IndexedAgent {
    name: InternedText,
    file: u32,
    rules: AgentRulePrograms,
}

/// The rules of one agent.
#[derive(Debug)]
enum AgentRulePrograms {
    /// All in one, in order.
    Few(RuleProgram),
    Many(Box<HashMap<PatternId, RuleProgram>>),
}

impl IndexSlice {
    #[inline]
    fn of<T>(self, list: &[T]) -> &[T] {
        let start = self.start as usize;
        list.get(start..start + self.count as usize).unwrap_or_default()
    }

    /// Puts items at the end of a list.
    fn add<T>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) -> Self {
        let start = list.len();
        list.extend(items);
        Self { start: start as u32, count: (list.len() - start) as u32 }
    }
}

impl IndexedName {
    pub(crate) fn capability(&self) -> Option<&Capability> {
        self.capability.as_deref()
    }

    pub(crate) fn paths(&self) -> &[Box<str>] {
        &self.paths
    }
}

/// The answer of each layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerMatches {
    pub(crate) system: FirstRuleMatch,
    pub(crate) org: FirstRuleMatch,
    pub(crate) agent: FirstRuleMatch,
    /// The file of the agent, if it has one.
    pub(crate) agent_file: Option<u32>,
}

impl RuleIndex {
    pub(crate) fn new(files: &[PolicyFile], catalogue: &Catalogue) -> Self {
        let mut ids: HashMap<CapabilityPattern, PatternId> = HashMap::new();
        for rule in files.iter().flat_map(|file| &file.rules) {
            let next = ids.len() as PatternId;
            ids.entry(rule.pattern.clone()).or_insert(next);
        }
        let mut index = Self::default();
        for (pattern, id) in &ids {
            if let CapabilityPattern::Prefix(start) = pattern {
                index.prefixes.insert(start.clone(), *id);
                index.lengths.push(start.len());
            }
        }
        index.lengths.sort_unstable();
        index.lengths.dedup();
        let mut names: HashMap<&str, Option<&Capability>> = HashMap::new();
        for pattern in ids.keys() {
            if let CapabilityPattern::Name(text) = pattern {
                names.insert(text, None);
            }
        }
        names.extend(catalogue.iter().map(|capability| (capability.name.as_str(), Some(capability))));
        IndexCompiler { builder: RuleProgramBuilder::default(), ids: &ids, index }.compile(files, &names)
    }

    /// Patterns that match a name by its start.
    fn prefixes_of(&self, name: &str) -> impl Iterator<Item = PatternId> {
        let fitting = self.lengths.iter().take_while(move |length| **length <= name.len());
        fitting.filter_map(move |length| self.prefixes.get(name.get(..*length)?).copied())
    }

    /// The index entry of a name.
    #[inline]
    pub(crate) fn lookup(&self, name: &str) -> Option<&IndexedName> {
        self.names.find(self.programs.hash(name), |own| self.programs.text_equals(own.text, name))
    }

    #[inline]
    fn agent(&self, agent: &str) -> Option<&IndexedAgent> {
        if self.agents.is_empty() {
            return None;
        }
        self.agents.find(self.programs.hash(agent), |own| self.programs.text_equals(own.name, agent))
    }

    /// The file of an agent.
    pub(crate) fn agent_file(&self, agent: &str) -> Option<u32> {
        self.agent(agent).map(|agent| agent.file)
    }

    /// The first rule of each layer that applies.
    #[inline]
    pub(crate) fn find_matches(
        &self,
        name: Option<&IndexedName>,
        facts: &CallFacts<'_>,
        files: &[PolicyFile],
        org: Option<u32>,
    ) -> LayerMatches {
        let question = facts.question;
        let of_file =
            |file: u32| RuleProgramInput { rules: files.get(file as usize).map_or(&[][..], |file| &file.rules), facts };
        let agent = self.agent(question.agent.as_str());
        let (system, org) = (of_file(0), org.map_or(RuleProgramInput { rules: &[], facts }, of_file));
        let mut answers = LayerMatches {
            system: FirstRuleMatch::NONE,
            org: FirstRuleMatch::NONE,
            agent: FirstRuleMatch::NONE,
            agent_file: agent.map(|agent| agent.file),
        };
        match name {
            Some(name) => {
                for program in name.system.of(&self.listed) {
                    self.programs.find_first_match(program, &all_patterns(), system, &mut answers.system);
                }
                for program in name.org.of(&self.listed) {
                    self.programs.find_first_match(program, &all_patterns(), org, &mut answers.org);
                }
                if let Some(agent) = agent {
                    let patterns = (name.patterns.of(&self.patterns), name.marks);
                    self.ask_agent(agent, patterns, of_file(agent.file), &mut answers.agent);
                }
            }
            None => {
                for id in self.prefixes_of(question.capability.as_str()) {
                    if let Some(program) = self.system.by_pattern.get(&id) {
                        self.programs.find_first_match(program, &all_patterns(), system, &mut answers.system);
                    }
                    if let Some(program) = self.org.by_pattern.get(&id) {
                        self.programs.find_first_match(program, &all_patterns(), org, &mut answers.org);
                    }
                    if let Some(agent) = agent {
                        self.ask_agent(
                            agent,
                            (&[id], PatternBitset::of([id])),
                            of_file(agent.file),
                            &mut answers.agent,
                        );
                    }
                }
            }
        }
        answers
    }

    #[inline]
    fn ask_agent(
        &self,
        agent: &IndexedAgent,
        (patterns, marks): (&[PatternId], PatternBitset),
        call: RuleProgramInput<'_, '_>,
        found: &mut FirstRuleMatch,
    ) {
        match &agent.rules {
            AgentRulePrograms::Few(program) => {
                let wanted = PatternFilter { marks, is: |id| patterns.contains(&id) };
                self.programs.find_first_match(program, &wanted, call, found);
            }
            AgentRulePrograms::Many(programs) => {
                for program in patterns.iter().filter_map(|id| programs.get(id)) {
                    self.programs.find_first_match(program, &all_patterns(), call, found);
                }
            }
        }
    }
}

/// Builds an index.
struct IndexCompiler<'c> {
    builder: RuleProgramBuilder,
    ids: &'c HashMap<CapabilityPattern, PatternId>,
    index: RuleIndex,
}

impl IndexCompiler<'_> {
    fn compile(mut self, files: &[PolicyFile], names: &HashMap<&str, Option<&Capability>>) -> RuleIndex {
        let (mut system, mut org) = ((&[][..], RulesByPattern::new()), (&[][..], RulesByPattern::new()));
        let mut of_agents: HashSet<PatternId> = HashSet::new();
        let mut agents = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let sorted = self.sort(&file.rules);
            match (file.layer, &file.agent) {
                (PolicyLayer::System, _) => system = (&file.rules, sorted),
                (PolicyLayer::Org, _) => org = (&file.rules, sorted),
                (PolicyLayer::Agent, Some(agent)) => {
                    of_agents.extend(sorted.keys());
                    let rules = self.compile_agent_rules(&file.rules, &sorted);
                    agents.push(IndexedAgent { name: self.builder.intern(agent.as_str()), file: number as u32, rules });
                }
                (PolicyLayer::Agent, None) => {}
            }
        }
        self.index.system.by_pattern = self.by_pattern(system.0, &system.1);
        self.index.org.by_pattern = self.by_pattern(org.0, &org.1);
        let mut lists: HashSet<Arc<[Box<str>]>> = HashSet::new();
        let mut known = Vec::new();
        for (text, capability) in names {
            let exact = self.ids.get(&CapabilityPattern::Name((*text).into())).copied();
            let mut patterns: Vec<PatternId> = exact.into_iter().chain(self.index.prefixes_of(text)).collect();
            let of_system = self.compile_name(system.0, &system.1, &patterns, |index| &index.system);
            let of_org = self.compile_name(org.0, &org.1, &patterns, |index| &index.org);
            patterns.retain(|id| of_agents.contains(id));
            let index = &mut self.index;
            let paths = capability.iter().flat_map(|capability| capability.params_of(ParamKind::Path));
            let paths: Arc<[Box<str>]> = paths.map(|param| param.name.as_str().into()).collect();
            known.push(IndexedName {
                text: self.builder.intern(text),
                capability: capability.cloned().map(Box::new),
                paths: Arc::clone(lists.get_or_insert(paths)),
                system: IndexSlice::add(&mut index.listed, of_system),
                org: IndexSlice::add(&mut index.listed, of_org),
                marks: PatternBitset::of(patterns.iter().copied()),
                patterns: IndexSlice::add(&mut index.patterns, patterns),
            });
        }
        let Self { builder, mut index, .. } = self;
        index.programs = builder.programs;
        let programs = &index.programs;
        for name in known {
            let hash = programs.hash(programs.text(name.text));
            index.names.insert_unique(hash, name, |name| programs.hash(programs.text(name.text)));
        }
        for agent in agents {
            let hash = programs.hash(programs.text(agent.name));
            index.agents.insert_unique(hash, agent, |agent| programs.hash(programs.text(agent.name)));
        }
        index
    }

    /// Rules by pattern, without those that are never reached.
    fn sort(&self, rules: &[Rule]) -> RulesByPattern {
        let mut sorted = RulesByPattern::new();
        let mut closed: HashSet<PatternId> = HashSet::new();
        for (number, rule) in rules.iter().enumerate() {
            let Some(id) = self.ids.get(&rule.pattern) else { continue };
            if closed.contains(id) {
                continue; // An earlier rule without conditions has this pattern: nothing gets here.
            }
            if rule.is_unconditional() {
                closed.insert(*id);
            }
            sorted.entry(*id).or_default().push(number as u32);
        }
        sorted
    }

    fn by_pattern(&mut self, rules: &[Rule], sorted: &RulesByPattern) -> HashMap<PatternId, RuleProgram> {
        let mut add = |(id, numbers): (&PatternId, &Vec<u32>)| {
            let chosen: Vec<(u32, PatternId)> = numbers.iter().map(|number| (*number, *id)).collect();
            (*id, self.builder.add(rules, &chosen, false))
        };
        sorted.iter().map(&mut add).collect()
    }

    fn compile_agent_rules(&mut self, rules: &[Rule], sorted: &RulesByPattern) -> AgentRulePrograms {
        let mut all: Vec<(u32, PatternId)> =
            sorted.iter().flat_map(|(id, numbers)| numbers.iter().map(|number| (*number, *id))).collect();
        if count_cells(rules, all.iter().map(|(number, _)| number), OWN) > OWN {
            return AgentRulePrograms::Many(Box::new(self.by_pattern(rules, sorted)));
        }
        all.sort_unstable();
        AgentRulePrograms::Few(self.builder.add(rules, &all, true))
    }

    /// The programs of a shared file for a name: one that holds the rules of all its patterns up to the first
    /// one without conditions, if they are not too many, or else one for each pattern.
    fn compile_name(
        &mut self,
        rules: &[Rule],
        sorted: &RulesByPattern,
        patterns: &[PatternId],
        file: fn(&RuleIndex) -> &SharedRuleFile,
    ) -> Vec<RuleProgram> {
        let lists: Vec<(PatternId, &Vec<u32>)> =
            patterns.iter().filter_map(|id| sorted.get(id).map(|numbers| (*id, numbers))).collect();
        let ends = |number: &u32| rules.get(*number as usize).is_some_and(Rule::is_unconditional);
        // Only the last of a list can have no conditions.
        let end = lists.iter().filter_map(|(_, numbers)| numbers.last().copied().filter(ends)).min();
        let reached = |numbers: &Vec<u32>| end.map_or(numbers.len(), |end| numbers.partition_point(|n| *n <= end));
        let all = lists.iter().flat_map(|(_, numbers)| numbers.iter().take(reached(numbers)));
        let total = count_cells(rules, all, MERGED);
        if lists.len() < 2 && total > 0 || total > MERGED {
            let programs = &file(&self.index).by_pattern;
            return lists.iter().filter_map(|(id, _)| programs.get(id).copied()).collect();
        }
        let mut chosen: Vec<(u32, PatternId)> = lists
            .iter()
            .flat_map(|(id, numbers)| numbers.iter().take(reached(numbers)).map(|number| (*number, *id)))
            .collect();
        if chosen.is_empty() {
            return Vec::new();
        }
        chosen.sort_unstable();
        vec![self.builder.add(rules, &chosen, false)]
    }
}

/// How many cells rules take; once there are more than `enough`, the rest is not counted.
fn count_cells<'n>(rules: &[Rule], numbers: impl Iterator<Item = &'n u32>, enough: usize) -> usize {
    let mut total = 0;
    for rule in numbers.filter_map(|number| rules.get(*number as usize)) {
        total += cell_count(rule);
        if total > enough {
            break;
        }
    }
    total
}
