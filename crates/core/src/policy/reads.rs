//! Reads inside a call: the files whose content a call reveals besides its main effect.
//!
//! Takes a question; gives its own verdict and one verdict for each path that the call reads (the source of a copy, the
//! folder of a search), judged as a `filesystem.read` of that path. Promise: reading is one permission. The strictest of
//! all verdicts counts, so no capability reads what a rule protects from `filesystem.read`. A call that was made as a
//! spawn is also judged by the rules that name `proxy.spawn`: they can make the answer stricter and nothing else.

use serde_json::{Map, Value};

use super::Policy;
use super::input::PolicyInput;
use super::judge::{RuleHit, Verdict, VerdictBase, VerdictReason};
use super::layer::PolicyLayer;
use super::pattern::CapabilityPattern;
use super::rule::RuleRef;
use crate::capability::Capability;
use crate::ids::CapabilityName;
use crate::proxy::spawn;
use crate::tier::Tier;

/// The capability that stands for reading a file or folder.
const READ: &str = "filesystem.read";

/// The verdicts on a whole call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallVerdict {
    /// The verdict on the call itself.
    pub own: Verdict,
    /// The verdict on each path that it reads.
    pub reads: Vec<ReadVerdict>,
    /// The verdict of rules that name `proxy.spawn`, if it is a spawn and there are any.
    pub spawn: Option<Verdict>,
}

/// The verdict on reading one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVerdict {
    /// The path.
    pub path: String,
    /// The verdict on `filesystem.read` of it.
    pub verdict: Verdict,
}

impl Policy {
    /// Judges a call, and the reads in it.
    #[must_use]
    pub fn judge_call(&self, question: &PolicyInput<'_>) -> CallVerdict {
        let judge_read = |(path, arguments): (String, Map<String, Value>), name: &CapabilityName| ReadVerdict {
            path,
            verdict: self.judge(&PolicyInput { capability: name, arguments: &arguments, account: None, ..*question }),
        };
        let own = self.judge(question);
        let reads = match CapabilityName::new(READ) {
            Ok(name) => self.reads_of(question).into_iter().map(|read| judge_read(read, &name)).collect(),
            Err(_) => Vec::new(),
        };
        CallVerdict { own, reads, spawn: self.judge_spawn(question) }
    }

    /// The verdict of the rules that name `proxy.spawn` itself. A rule about all capabilities with this prefix already
    /// applies to the operation, and no default counts twice.
    fn judge_spawn(&self, question: &PolicyInput<'_>) -> Option<Verdict> {
        let (arguments, name) = (question.spawn?, CapabilityName::new(spawn::CAPABILITY).ok()?);
        // The origins of targets belong to the operation: a rule about the spawn sees the same ones.
        let found = self.judge(&PolicyInput { capability: &name, arguments, spawn: None, account: None, ..*question });
        let names_it = |hit: &RuleHit| {
            let rule = self.rule(hit.rule);
            rule.is_some_and(|rule| rule.pattern == CapabilityPattern::Name(spawn::CAPABILITY.into()))
        };
        let [agent, org, system] = [found.agent, found.org, found.system].map(|hit| hit.filter(names_it));
        let tier = [agent, org, system].into_iter().flatten().map(|hit| hit.tier).reduce(Tier::raise)?;
        let base = if agent.is_some() { VerdictBase::AgentRule } else { VerdictBase::OrgOverride };
        Some(Verdict { tier, base, agent, org, system, unknown: false })
    }

    /// The paths a call reads, each with the arguments of the `filesystem.read` it counts as. An argument that is not a
    /// text is skipped: it is refused before anything is read.
    pub(super) fn reads_of(&self, question: &PolicyInput<'_>) -> Vec<(String, Map<String, Value>)> {
        let params = self.catalogue.get(question.capability).map_or(&[][..], |Capability { params, .. }| params);
        let named = params.iter().filter(|param| param.reads);
        let paths = named.filter_map(|param| question.arguments.get(&param.name)?.as_str());
        paths
            .map(|path| (path.to_owned(), Map::from_iter([("path".to_owned(), Value::String(path.to_owned()))])))
            .collect()
    }
}

impl CallVerdict {
    /// All verdicts, the call's own one first.
    pub fn all(&self) -> impl Iterator<Item = &Verdict> {
        std::iter::once(&self.own).chain(self.reads.iter().map(|read| &read.verdict)).chain(&self.spawn)
    }

    /// The strictest tier of all.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.all().fold(self.own.tier, |tier, verdict| tier.raise(verdict.tier))
    }

    /// The rule that asked for this tier; `None` if a default did.
    #[must_use]
    pub fn decided_by(&self) -> Option<RuleRef> {
        let tier = self.tier();
        self.all().filter(|verdict| verdict.tier == tier).find_map(Verdict::decided_by)
    }

    /// The read that made the answer stricter than the call alone would be, if one did.
    #[must_use]
    pub fn stricter_read(&self) -> Option<&ReadVerdict> {
        let stricter = self.reads.iter().filter(|read| read.verdict.tier > self.own.tier);
        stricter.max_by_key(|read| read.verdict.tier)
    }

    /// All matched rules.
    pub fn hits(&self) -> impl Iterator<Item = (PolicyLayer, &RuleHit)> {
        self.all().flat_map(Verdict::hits)
    }

    /// Every reason, in the order in which it is shown.
    pub fn reasons(&self) -> impl Iterator<Item = VerdictReason> {
        self.all().flat_map(Verdict::reasons)
    }
}
