//! Patterns that are matched together over a short text.
//!
//! Takes patterns and a text, both in lower case, gives the patterns that the text contains. Promise: linear in the
//! text; half of what a set of regular expressions builds is never built, because only the presence of a match is
//! needed, not its position.

use std::panic::{RefUnwindSafe, UnwindSafe};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

/// The memory limit for a program and its cached states.
const PROGRAM: usize = 64 << 20;
const STATES: usize = 16 << 20;

type CacheFactory = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

pub(super) struct TextPatterns {
    machine: DFA,
    caches: Pool<Cache, CacheFactory>,
}

impl TextPatterns {
    /// `None` if one of them cannot be parsed.
    pub(super) fn new(patterns: &[impl AsRef<str>]) -> Option<Self> {
        // Bytes and ASCII classes keep the programs small; the text is folded, so that other scripts are in lower case
        // already.
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let program = thompson::Config::new()
            .utf8(false)
            .shrink(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(PROGRAM));
        let search = DFA::config().match_kind(MatchKind::All).cache_capacity(STATES).skip_cache_capacity_check(true);
        let machine = DFA::builder().syntax(syntax).thompson(program).configure(search).build_many(patterns).ok()?;
        let again = machine.clone();
        let fresh: CacheFactory = Box::new(move || again.create_cache());
        Some(Self { machine, caches: Pool::new(fresh) })
    }

    /// The number of patterns.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.machine.pattern_len()
    }

    /// The indexes of the patterns that a text contains.
    pub(super) fn matching_patterns(&self, text: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let mut held = PatternSet::new(self.machine.pattern_len());
        let mut cache = self.caches.get();
        let read = self.machine.try_which_overlapping_matches(&mut cache, &Input::new(text), &mut held);
        // It never gives up, because no limit is set; if it did, every unread pattern would count as present.
        let all = read.is_err();
        (0..held.capacity())
            .filter(move |&at| all || regex_automata::PatternID::new(at).is_ok_and(|id| held.contains(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_text_holds_are_named_and_no_other() {
        let patterns = TextPatterns::new(&["te+a", r"\bcoffee\b", "at four$"]).unwrap();
        assert_eq!(patterns.matching_patterns(b"teea, coffees, at four").collect::<Vec<_>>(), [0, 2]);
        assert_eq!(patterns.matching_patterns(b"coffee").collect::<Vec<_>>(), [1]);
        assert_eq!(patterns.matching_patterns(b"").count(), 0);
        assert!(TextPatterns::new(&["("]).is_none());
    }
}
