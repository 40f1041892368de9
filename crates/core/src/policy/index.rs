//! All rules, laid out so that a question touches only those that could decide it.
//!
//! Takes the files; gives, per layer, for each pattern the few rules that are worth testing. Promise: the
//! work per question depends on how many patterns can name one capability and how deep a path is, not on
//! how many rules there are.

use hashbrown::HashMap;

use super::condition::{Condition, Held};
use super::facts::Facts;
use super::layer::{File, Layer};
use super::path::Depths;
use super::pattern::Pattern;
use super::rule::Rule;
use crate::capability::{Capability, Catalogue};

/// Numbers a distinct pattern text of the whole policy.
type PatternId = u32;

/// The first rule of a file that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its number in the file; `NONE` if there is none.
    pub(crate) rule: u32,
    /// It could not be decided whether its conditions hold.
    pub(crate) broken: bool,
}

impl Found {
    pub(crate) const NONE: Self = Self { rule: u32::MAX, broken: false };

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
    system: Table,
    org: Table,
    agents: HashMap<Box<str>, (u32, Table)>,
}

#[derive(Debug)]
struct Name {
    capability: Option<Box<Capability>>,
    /// All patterns of any file that match it.
    patterns: Box<[PatternId]>,
}

/// The rules of one file by pattern.
#[derive(Debug, Default)]
struct Table(HashMap<PatternId, Program>);

/// The rules of one file with one pattern, in order, up to the first one without conditions.
#[derive(Debug, Default)]
struct Program {
    /// Without an indexed path condition: tested one after the other.
    plain: Vec<u32>,
    by_path: Option<Box<ByPath>>,
}

/// Rules with a path prefix: only those are tested whose prefix is an ancestor of a path of the call.
#[derive(Debug, Default)]
struct ByPath {
    all: Vec<u32>,
    prefixes: HashMap<Box<str>, Vec<u32>>,
    depths: Depths,
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
        for capability in catalogue.iter() {
            let name = index.name(capability.name.as_str(), Some(capability), &ids);
            index.names.insert(capability.name.as_str().into(), name);
        }
        for pattern in ids.keys() {
            if let Pattern::Name(text) = pattern
                && !index.names.contains_key(text)
            {
                let name = index.name(text, None, &ids);
                index.names.insert(text.clone(), name);
            }
        }
        for (number, file) in files.iter().enumerate() {
            let table = Table::new(&file.rules, &ids);
            match (file.layer, &file.agent) {
                (Layer::System, _) => index.system = table,
                (Layer::Org, _) => index.org = table,
                (Layer::Agent, Some(agent)) => drop(index.agents.insert(agent.as_str().into(), (number as u32, table))),
                (Layer::Agent, None) => {}
            }
        }
        index
    }

    fn name(&self, text: &str, capability: Option<&Capability>, ids: &HashMap<Pattern, PatternId>) -> Name {
        let mut patterns: Vec<PatternId> = ids.get(&Pattern::Name(text.into())).copied().into_iter().collect();
        patterns.extend(self.prefixes_of(text));
        Name { capability: capability.cloned().map(Box::new), patterns: patterns.into() }
    }

    /// Patterns that match a name by its start.
    fn prefixes_of(&self, name: &str) -> impl Iterator<Item = PatternId> {
        let fitting = self.lengths.iter().take_while(move |length| **length <= name.len());
        fitting.filter_map(move |length| self.prefixes.get(name.get(..*length)?).copied())
    }

    /// What the catalogue says about a name.
    pub(crate) fn capability(&self, name: &str) -> Option<&Capability> {
        self.names.get(name)?.capability.as_deref()
    }

    /// The file of an agent.
    pub(crate) fn agent_file(&self, agent: &str) -> Option<u32> {
        self.agents.get(agent).map(|(file, _)| *file)
    }

    /// The first rule of each layer that applies; `rules` gives the rules of a file.
    pub(crate) fn ask<'r>(&self, facts: &mut Facts<'r>, files: &'r [File], org: Option<u32>) -> Answers
    where
        Self: 'r,
    {
        let question = facts.question;
        let rules = |file: u32| files.get(file as usize).map_or(&[][..], |file| &file.rules);
        let agent = self.agents.get(question.agent.as_str());
        let mut answers = Answers {
            system: Found::NONE,
            org: Found::NONE,
            agent: Found::NONE,
            agent_file: agent.map(|(file, _)| *file),
        };
        let mut visit = |pattern: PatternId, facts: &Facts<'_>| {
            self.system.first(pattern, rules(0), facts, &mut answers.system);
            if let Some(org) = org {
                self.org.first(pattern, rules(org), facts, &mut answers.org);
            }
            if let Some((file, table)) = agent {
                table.first(pattern, rules(*file), facts, &mut answers.agent);
            }
        };
        match self.names.get(question.capability.as_str()) {
            Some(name) => name.patterns.iter().for_each(|pattern| visit(*pattern, facts)),
            None => self.prefixes_of(question.capability.as_str()).for_each(|pattern| visit(pattern, facts)),
        }
        answers
    }
}

impl Table {
    fn new(rules: &[Rule], ids: &HashMap<Pattern, PatternId>) -> Self {
        let mut table: HashMap<PatternId, Program> = HashMap::new();
        let mut closed: hashbrown::HashSet<PatternId> = hashbrown::HashSet::new();
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
        Self(table)
    }

    #[inline]
    fn first(&self, pattern: PatternId, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        if let Some(program) = self.0.get(&pattern) {
            program.first(rules, facts, found);
        }
    }
}

impl Program {
    fn add(&mut self, number: u32, rule: &Rule) {
        let Some(Condition::PathPrefix { prefixes, .. }) = rule.indexed.and_then(|n| rule.conditions.get(n)) else {
            self.plain.push(number);
            return;
        };
        let by_path = self.by_path.get_or_insert_default();
        by_path.all.push(number);
        for prefix in &prefixes.listed {
            by_path.depths.add(prefix);
            let list = by_path.prefixes.entry(prefix.clone()).or_default();
            if list.last() != Some(&number) {
                list.push(number);
            }
        }
    }

    /// Lowers `found` to the first rule here that applies, if that comes earlier.
    fn first(&self, rules: &[Rule], facts: &Facts<'_>, found: &mut Found) {
        walk(&self.plain, rules, facts, false, found);
        let Some(by_path) = &self.by_path else { return };
        let paths = facts.paths();
        if paths.broken.is_some() {
            walk(&by_path.all, rules, facts, false, found);
            return;
        }
        let proven = paths.is_single();
        for path in paths.iter() {
            for ancestor in by_path.depths.ancestors(path) {
                if let Some(list) = by_path.prefixes.get(ancestor) {
                    walk(list, rules, facts, proven, found);
                }
            }
        }
    }
}

/// Tests rules in order until one applies or an earlier one is known. `proven`: their path condition holds.
fn walk(list: &[u32], rules: &[Rule], facts: &Facts<'_>, proven: bool, found: &mut Found) {
    for &number in list {
        if number >= found.rule {
            return;
        }
        let Some(rule) = rules.get(number as usize) else { return };
        match rule.test_except(facts, rule.indexed.filter(|_| proven)) {
            Held::No => {}
            Held::Yes => return *found = Found { rule: number, broken: false },
            Held::Broken(_) => return *found = Found { rule: number, broken: true },
        }
    }
}
