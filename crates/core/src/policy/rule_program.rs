//! Rules in a layout for fast reading: a decision reads neighbouring cells of four plain lists.
//!
//! Takes the rules of one file that are about the same capabilities, in order; gives, for a call, the first
//! of them that applies. Promise: rules with a path prefix are found by the path and not one after the other,
//! texts are compared and never only their hashes, and an answer allocates nothing.

use std::hash::{BuildHasher as _, Hasher as _};

use hashbrown::{DefaultHashBuilder, HashMap};

use super::condition::{ConditionTruth, RuleCondition};
use super::facts::CallFacts;
use super::index::FirstRuleMatch;
use super::path::{PathDepths, bytes_equal};
use super::rule::Rule;
use crate::tier::Tier;

/// Numbers a distinct pattern text of the whole policy.
pub(crate) type PatternId = u32;

/// Up to this many prefixes are compared one after the other.
const FEW: usize = 4;
/// An empty slot.
const EMPTY: u32 = u32::MAX;

/// A text among all texts. The same text has the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InternedText {
    start: u32,
    length: u32,
}

/// A rule, or one of its path prefixes, with the data that most verdicts need, so that the rule itself is not fetched.
#[derive(Debug, Clone, Copy)]
struct RuleCell {
    rule: u32,
    pattern: PatternId,
    /// Without meaning in rules without an indexed path condition.
    prefix: InternedText,
    tier: Tier,
    rated: bool,
    /// It has no condition but the indexed one.
    simple: bool,
}

/// Where the cells of one prefix begin.
#[derive(Debug, Clone, Copy)]
struct PrefixSlot {
    hash: u32,
    cell: u32,
}

/// Some rules of one file: where their cells are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RuleProgram {
    first: u32,
    /// Cells without an indexed path condition, in order.
    plain: u32,
    /// Cells with one, after them: in order, or by prefix if there are slots.
    by_path: u32,
    /// The first rule among the latter.
    least: u32,
    slots: u32,
    /// One less than there are slots; zero if there are none.
    mask: u32,
    depths: PathDepths,
    /// Which patterns occur in either part.
    in_plain: PatternBitset,
    in_paths: PatternBitset,
}

/// Patterns, each as one bit that others may share: two sets without a common bit have no common pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PatternBitset(u32);

impl PatternBitset {
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// The marks of some patterns.
    pub(crate) fn of(patterns: impl IntoIterator<Item = PatternId>) -> Self {
        Self(patterns.into_iter().fold(0, |marks, id| marks | 1 << (id % u32::BITS)))
    }

    #[inline]
    const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The input of a program: a call, and the file of the rules.
#[derive(Clone, Copy)]
pub(crate) struct RuleProgramInput<'c, 'q> {
    pub(crate) rules: &'c [Rule],
    pub(crate) facts: &'c CallFacts<'q>,
}

/// The rules of a program that count: those whose pattern satisfies `is`; `marks` stand for these patterns.
pub(crate) struct PatternFilter<F> {
    pub(crate) marks: PatternBitset,
    pub(crate) is: F,
}

/// Every rule of a program.
pub(crate) const fn all_patterns() -> PatternFilter<impl Fn(PatternId) -> bool> {
    PatternFilter { marks: PatternBitset::ALL, is: |_| true }
}

/// All programs of a policy.
#[derive(Debug, Default)]
pub(crate) struct RulePrograms {
    hasher: DefaultHashBuilder,
    texts: String,
    cells: Vec<RuleCell>,
    slots: Vec<PrefixSlot>,
}

impl RulePrograms {
    /// The hash for all lookups here.
    #[inline]
    pub(crate) fn hash(&self, text: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    /// Whether a stored text is equal to this one.
    #[inline]
    pub(crate) fn text_equals(&self, kept: InternedText, text: &str) -> bool {
        bytes_equal(self.text(kept).as_bytes(), text.as_bytes())
    }

    /// The stored text.
    #[inline]
    pub(crate) fn text(&self, text: InternedText) -> &str {
        let start = text.start as usize;
        self.texts.get(start..start + text.length as usize).unwrap_or_default()
    }

    /// Lowers `found` to the first rule of a program that applies, if that comes earlier.
    #[inline]
    pub(crate) fn find_first_match(
        &self,
        program: &RuleProgram,
        wanted: &PatternFilter<impl Fn(PatternId) -> bool>,
        call: RuleProgramInput<'_, '_>,
        found: &mut FirstRuleMatch,
    ) {
        let first = program.first as usize;
        let middle = first + program.plain as usize;
        if program.in_plain.intersects(wanted.marks) {
            for cell in self.cells.get(first..middle).unwrap_or_default() {
                if cell.rule >= found.rule {
                    break;
                }
                if (wanted.is)(cell.pattern) && test_cell(cell, call, true, found) {
                    break;
                }
            }
        }
        if !program.in_paths.intersects(wanted.marks) || program.least >= found.rule {
            return;
        }
        let by_path = self.cells.get(middle..middle + program.by_path as usize).unwrap_or_default();
        if program.mask == 0 {
            self.one_by_one(by_path, wanted, call, found);
        } else {
            self.by_prefix(program, by_path, call, found);
        }
    }

    #[inline]
    fn one_by_one(
        &self,
        cells: &[RuleCell],
        wanted: &PatternFilter<impl Fn(PatternId) -> bool>,
        call: RuleProgramInput<'_, '_>,
        found: &mut FirstRuleMatch,
    ) {
        for cell in cells {
            if cell.rule >= found.rule {
                return;
            }
            if !(wanted.is)(cell.pattern) {
                continue;
            }
            let paths = call.facts.paths();
            let broken = paths.broken.is_some();
            if (broken || paths.any(|path| path.is_within(self.text(cell.prefix))))
                && test_cell(cell, call, paths.is_single() && !broken, found)
            {
                return;
            }
        }
    }

    fn by_prefix(
        &self,
        program: &RuleProgram,
        cells: &[RuleCell],
        call: RuleProgramInput<'_, '_>,
        found: &mut FirstRuleMatch,
    ) {
        let paths = call.facts.paths();
        if paths.broken.is_some() {
            // In no order: a rule that applies and comes before the one found so far is taken.
            for cell in cells {
                if cell.rule < found.rule {
                    test_cell(cell, call, false, found);
                }
            }
            return;
        }
        let proven = paths.is_single();
        for path in paths.iter() {
            for ancestor in program.depths.ancestors(path) {
                for cell in self.cells_of(program, cells, ancestor) {
                    if cell.rule >= found.rule || test_cell(cell, call, proven, found) {
                        break;
                    }
                }
            }
        }
    }

    /// The cells of a program with this prefix, in order.
    #[inline]
    fn cells_of<'c>(
        &self,
        program: &RuleProgram,
        cells: &'c [RuleCell],
        prefix: &str,
    ) -> impl Iterator<Item = &'c RuleCell> {
        let hash = self.hash(prefix) as u32;
        let mut at = hash;
        let place = loop {
            // At least half of the slots are empty, so this ends.
            let slot = self.slots.get(program.slots as usize + (at & program.mask) as usize);
            let Some(slot) = slot.filter(|slot| slot.cell != EMPTY) else { break None };
            if slot.hash == hash
                && let Some(cell) = cells.get(slot.cell as usize)
                && self.text_equals(cell.prefix, prefix)
            {
                break Some((slot.cell as usize, cell.prefix));
            }
            at = at.wrapping_add(1);
        };
        let rest = place.and_then(|(start, _)| cells.get(start..)).unwrap_or_default();
        rest.iter().take_while(move |cell| place.is_some_and(|(_, text)| cell.prefix == text))
    }
}

/// Tests one rule; whether it applies. `proven`: its indexed condition holds.
#[inline]
fn test_cell(cell: &RuleCell, call: RuleProgramInput<'_, '_>, proven: bool, found: &mut FirstRuleMatch) -> bool {
    let held = if proven && cell.simple {
        ConditionTruth::Yes
    } else {
        let rule = call.rules.get(cell.rule as usize);
        rule.map_or(ConditionTruth::No, |rule| rule.test_except(call.facts, rule.indexed.filter(|_| proven)))
    };
    if held == ConditionTruth::No {
        return false;
    }
    let RuleCell { rule, tier, rated, .. } = *cell;
    *found = FirstRuleMatch { rule, tier, rated, broken: held != ConditionTruth::Yes };
    true
}

/// The prefixes by which a rule is found; `None` if it is not found by its path.
fn prefixes_of(rule: &Rule) -> Option<&[Box<str>]> {
    match rule.indexed.and_then(|n| rule.conditions.get(n)) {
        Some(RuleCondition::PathPrefix { prefixes, .. }) => Some(&prefixes.listed),
        _ => None,
    }
}

/// How many cells a rule takes in a program.
pub(crate) fn cell_count(rule: &Rule) -> usize {
    prefixes_of(rule).map_or(1, <[_]>::len)
}

/// Builds programs.
#[derive(Debug, Default)]
pub(crate) struct RuleProgramBuilder {
    pub(crate) programs: RulePrograms,
    kept: HashMap<Box<str>, InternedText>,
}

impl RuleProgramBuilder {
    /// Stores a text, once.
    pub(crate) fn intern(&mut self, text: &str) -> InternedText {
        if let Some(kept) = self.kept.get(text) {
            return *kept;
        }
        let kept = InternedText { start: self.programs.texts.len() as u32, length: text.len() as u32 };
        self.programs.texts.push_str(text);
        self.kept.insert(text.into(), kept);
        kept
    }

    /// Adds rules by number, in order. `mixed`: their patterns differ and will be filtered.
    pub(crate) fn add(&mut self, rules: &[Rule], chosen: &[(u32, PatternId)], mixed: bool) -> RuleProgram {
        let (mut plain, mut by_path) = (Vec::new(), Vec::new());
        let mut depths = PathDepths::default();
        for (number, pattern) in chosen {
            let Some(rule) = rules.get(*number as usize) else { continue };
            let others = rule.conditions.len() - usize::from(rule.indexed.is_some());
            let cell = RuleCell {
                rule: *number,
                pattern: *pattern,
                prefix: InternedText { start: 0, length: 0 },
                tier: rule.tier,
                rated: rule.rate.is_some(),
                simple: others == 0,
            };
            let Some(prefixes) = prefixes_of(rule) else {
                plain.push(cell);
                continue;
            };
            for prefix in prefixes {
                depths.add(prefix);
                by_path.push(RuleCell { prefix: self.intern(prefix), ..cell });
            }
        }
        let mut program = RuleProgram {
            first: self.programs.cells.len() as u32,
            plain: plain.len() as u32,
            by_path: by_path.len() as u32,
            least: by_path.iter().map(|cell| cell.rule).min().unwrap_or(u32::MAX),
            depths,
            in_plain: PatternBitset::of(plain.iter().map(|cell| cell.pattern)),
            in_paths: PatternBitset::of(by_path.iter().map(|cell| cell.pattern)),
            ..RuleProgram::default()
        };
        if by_path.len() > FEW && !mixed {
            by_path.sort_by_key(|cell| (cell.prefix, cell.rule));
            self.add_slots(&by_path, &mut program);
        }
        self.programs.cells.extend(plain.into_iter().chain(by_path));
        program
    }

    fn add_slots(&mut self, by_path: &[RuleCell], program: &mut RuleProgram) {
        let size = (by_path.len() * 2).next_power_of_two();
        let mut slots = vec![PrefixSlot { hash: 0, cell: EMPTY }; size];
        program.mask = size as u32 - 1;
        program.slots = self.programs.slots.len() as u32;
        let mut before = None;
        for (number, cell) in by_path.iter().enumerate() {
            if before.replace(cell.prefix) == Some(cell.prefix) {
                continue;
            }
            let hash = self.programs.hash(self.programs.text(cell.prefix)) as u32;
            let mut at = hash;
            while let Some(slot) = slots.get_mut((at & program.mask) as usize) {
                if slot.cell == EMPTY {
                    *slot = PrefixSlot { hash, cell: number as u32 };
                    break;
                }
                at = at.wrapping_add(1);
            }
        }
        self.programs.slots.append(&mut slots);
    }
}
