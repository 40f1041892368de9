//! Rules laid out for reading: what a decision touches lies side by side in four plain lists.
//!
//! Takes the rules of one file that are about the same capabilities, in order; gives, for a call, the first
//! of them that applies. Promise: rules with a path prefix are found by the path and not one after the other,
//! texts are compared and never only their hashes, and nothing is allocated to answer.

use std::hash::{BuildHasher as _, Hasher as _};

use hashbrown::{DefaultHashBuilder, HashMap};

use super::condition::{Condition, Held};
use super::facts::Facts;
use super::index::Found;
use super::path::{Depths, same};
use super::rule::Rule;
use crate::tier::Tier;

/// Numbers a distinct pattern text of the whole policy.
pub(crate) type PatternId = u32;

/// Up to so many prefixes are compared one after the other.
const FEW: usize = 4;
/// In a slot: nothing.
const EMPTY: u32 = u32::MAX;

/// A text among all texts. The same text has the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text {
    start: u32,
    length: u32,
}

/// A rule, or one of its path prefixes, with what most verdicts need so that the rule itself is not fetched.
#[derive(Debug, Clone, Copy)]
struct Cell {
    rule: u32,
    pattern: PatternId,
    /// Of no meaning in rules without an indexed path condition.
    prefix: Text,
    tier: Tier,
    rated: bool,
    /// It has no condition but the indexed one.
    simple: bool,
}

/// Where the cells of one prefix begin.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    cell: u32,
}

/// Some rules of one file: where their cells are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Program {
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
    depths: Depths,
    /// Which patterns occur in either part.
    in_plain: Marks,
    in_paths: Marks,
}

/// Patterns, each as one bit that others may share: what has no bit in common has no pattern in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks(u32);

impl Marks {
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// Of some patterns.
    pub(crate) fn of(patterns: impl IntoIterator<Item = PatternId>) -> Self {
        Self(patterns.into_iter().fold(0, |marks, id| marks | 1 << (id % u32::BITS)))
    }

    #[inline]
    const fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a program is asked about: a call, and the file the rules are of.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c, 'q> {
    pub(crate) rules: &'c [Rule],
    pub(crate) facts: &'c Facts<'q>,
}

/// Which rules of a program count: those whose pattern `is` wanted, which `marks` stand for.
pub(crate) struct Wanted<F> {
    pub(crate) marks: Marks,
    pub(crate) is: F,
}

/// Every rule of a program.
pub(crate) const fn all() -> Wanted<impl Fn(PatternId) -> bool> {
    Wanted { marks: Marks::ALL, is: |_| true }
}

/// All programs of a policy.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    hasher: DefaultHashBuilder,
    texts: String,
    cells: Vec<Cell>,
    slots: Vec<Slot>,
}

impl Programs {
    /// The hash everything here is looked up by.
    #[inline]
    pub(crate) fn hash(&self, text: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    /// Whether a kept text is this one.
    #[inline]
    pub(crate) fn is(&self, kept: Text, text: &str) -> bool {
        same(self.text(kept).as_bytes(), text.as_bytes())
    }

    /// What was kept.
    #[inline]
    pub(crate) fn text(&self, text: Text) -> &str {
        let start = text.start as usize;
        self.texts.get(start..start + text.length as usize).unwrap_or_default()
    }

    /// Lowers `found` to the first rule of a program that applies, if that comes earlier.
    #[inline]
    pub(crate) fn run(
        &self,
        program: &Program,
        wanted: &Wanted<impl Fn(PatternId) -> bool>,
        call: Call<'_, '_>,
        found: &mut Found,
    ) {
        let first = program.first as usize;
        let middle = first + program.plain as usize;
        if program.in_plain.meet(wanted.marks) {
            for cell in self.cells.get(first..middle).unwrap_or_default() {
                if cell.rule >= found.rule {
                    break;
                }
                if (wanted.is)(cell.pattern) && consider(cell, call, true, found) {
                    break;
                }
            }
        }
        if !program.in_paths.meet(wanted.marks) || program.least >= found.rule {
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
        cells: &[Cell],
        wanted: &Wanted<impl Fn(PatternId) -> bool>,
        call: Call<'_, '_>,
        found: &mut Found,
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
                && consider(cell, call, paths.is_single() && !broken, found)
            {
                return;
            }
        }
    }

    fn by_prefix(&self, program: &Program, cells: &[Cell], call: Call<'_, '_>, found: &mut Found) {
        let paths = call.facts.paths();
        if paths.broken.is_some() {
            // In no order: whichever applies and comes before what was found so far is taken.
            for cell in cells {
                if cell.rule < found.rule {
                    consider(cell, call, false, found);
                }
            }
            return;
        }
        let proven = paths.is_single();
        for path in paths.iter() {
            for ancestor in program.depths.ancestors(path) {
                for cell in self.cells_of(program, cells, ancestor) {
                    if cell.rule >= found.rule || consider(cell, call, proven, found) {
                        break;
                    }
                }
            }
        }
    }

    /// The cells of a program with this prefix, in order.
    #[inline]
    fn cells_of<'c>(&self, program: &Program, cells: &'c [Cell], prefix: &str) -> impl Iterator<Item = &'c Cell> {
        let hash = self.hash(prefix) as u32;
        let mut at = hash;
        let place = loop {
            // At least half of the slots are empty, so this ends.
            let slot = self.slots.get(program.slots as usize + (at & program.mask) as usize);
            let Some(slot) = slot.filter(|slot| slot.cell != EMPTY) else { break None };
            if slot.hash == hash
                && let Some(cell) = cells.get(slot.cell as usize)
                && self.is(cell.prefix, prefix)
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
fn consider(cell: &Cell, call: Call<'_, '_>, proven: bool, found: &mut Found) -> bool {
    let held = if proven && cell.simple {
        Held::Yes
    } else {
        let rule = call.rules.get(cell.rule as usize);
        rule.map_or(Held::No, |rule| rule.test_except(call.facts, rule.indexed.filter(|_| proven)))
    };
    if held == Held::No {
        return false;
    }
    let Cell { rule, tier, rated, .. } = *cell;
    *found = Found { rule, tier, rated, broken: held != Held::Yes };
    true
}

/// The prefixes a rule is found by; nothing if it is not found by its path.
fn prefixes_of(rule: &Rule) -> Option<&[Box<str>]> {
    match rule.indexed.and_then(|n| rule.conditions.get(n)) {
        Some(Condition::PathPrefix { prefixes, .. }) => Some(&prefixes.listed),
        _ => None,
    }
}

/// How much room a rule takes in a program.
pub(crate) fn cells(rule: &Rule) -> usize {
    prefixes_of(rule).map_or(1, <[_]>::len)
}

/// Lays programs out.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) programs: Programs,
    kept: HashMap<Box<str>, Text>,
}

impl Builder {
    /// Keeps a text, once.
    pub(crate) fn keep(&mut self, text: &str) -> Text {
        if let Some(kept) = self.kept.get(text) {
            return *kept;
        }
        let kept = Text { start: self.programs.texts.len() as u32, length: text.len() as u32 };
        self.programs.texts.push_str(text);
        self.kept.insert(text.into(), kept);
        kept
    }

    /// Lays out rules by number, in order. `mixed`: their patterns differ and will be asked for.
    pub(crate) fn add(&mut self, rules: &[Rule], chosen: &[(u32, PatternId)], mixed: bool) -> Program {
        let (mut plain, mut by_path) = (Vec::new(), Vec::new());
        let mut depths = Depths::default();
        for (number, pattern) in chosen {
            let Some(rule) = rules.get(*number as usize) else { continue };
            let others = rule.conditions.len() - usize::from(rule.indexed.is_some());
            let cell = Cell {
                rule: *number,
                pattern: *pattern,
                prefix: Text { start: 0, length: 0 },
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
                by_path.push(Cell { prefix: self.keep(prefix), ..cell });
            }
        }
        let mut program = Program {
            first: self.programs.cells.len() as u32,
            plain: plain.len() as u32,
            by_path: by_path.len() as u32,
            least: by_path.iter().map(|cell| cell.rule).min().unwrap_or(u32::MAX),
            depths,
            in_plain: Marks::of(plain.iter().map(|cell| cell.pattern)),
            in_paths: Marks::of(by_path.iter().map(|cell| cell.pattern)),
            ..Program::default()
        };
        if by_path.len() > FEW && !mixed {
            by_path.sort_by_key(|cell| (cell.prefix, cell.rule));
            self.add_slots(&by_path, &mut program);
        }
        self.programs.cells.extend(plain.into_iter().chain(by_path));
        program
    }

    fn add_slots(&mut self, by_path: &[Cell], program: &mut Program) {
        let size = (by_path.len() * 2).next_power_of_two();
        let mut slots = vec![Slot { hash: 0, cell: EMPTY }; size];
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
                    *slot = Slot { hash, cell: number as u32 };
                    break;
                }
                at = at.wrapping_add(1);
            }
        }
        self.programs.slots.append(&mut slots);
    }
}
