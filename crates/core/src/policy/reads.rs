//! Reads inside a call: what a call tells about files besides what it does.
//!
//! Takes a question; gives its own verdict and one verdict for each path that the call reads (the source of a copy, the
//! folder of a search), judged as a `filesystem.read` of that path. Promise: reading is one permission. The strictest of
//! all verdicts counts, so no capability reads what a rule keeps from `filesystem.read`. A call that was asked for as a
//! spawn is also judged by the rules that name `proxy.spawn`: they can make the answer stricter and nothing else.

use serde_json::{Map, Value};

use super::Policy;
use super::judge::{Base, Hit, Reason, Verdict};
use super::layer::Layer;
use super::pattern::Pattern;
use super::question::Question;
use super::rule::RuleRef;
use crate::capability::Capability;
use crate::ids::CapabilityName;
use crate::proxy::spawn;
use crate::tier::Tier;

/// The capability that stands for reading a file or folder.
const READ: &str = "filesystem.read";

/// What policy says to a whole call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallVerdict {
    /// About the call itself.
    pub own: Verdict,
    /// About each path that it reads.
    pub reads: Vec<ReadVerdict>,
    /// What rules that name `proxy.spawn` say, if it is one and there are any.
    pub spawn: Option<Verdict>,
}

/// What policy says to reading one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVerdict {
    /// The path.
    pub path: String,
    /// About `filesystem.read` of it.
    pub verdict: Verdict,
}

impl Policy {
    /// Judges a call, and the reads in it.
    #[must_use]
    pub fn judge_call(&self, question: &Question<'_>) -> CallVerdict {
        let judge_read = |(path, arguments): (String, Map<String, Value>), name: &CapabilityName| ReadVerdict {
            path,
            verdict: self.judge(&Question { capability: name, arguments: &arguments, account: None, ..*question }),
        };
        let own = self.judge(question);
        let reads = match CapabilityName::new(READ) {
            Ok(name) => self.reads_of(question).into_iter().map(|read| judge_read(read, &name)).collect(),
            Err(_) => Vec::new(),
        };
        CallVerdict { own, reads, spawn: self.judge_spawn(question) }
    }

    /// What the rules that name `proxy.spawn` itself say. A rule about all capabilities that begin alike says its word about
    /// the operation already, and no default counts twice.
    fn judge_spawn(&self, question: &Question<'_>) -> Option<Verdict> {
        let (arguments, name) = (question.spawn?, CapabilityName::new(spawn::CAPABILITY).ok()?);
        // Where targets come from is asked of the operation: a rule about the spawn sees the same ones.
        let found = self.judge(&Question { capability: &name, arguments, spawn: None, account: None, ..*question });
        let names_it = |hit: &Hit| {
            let rule = self.rule(hit.rule);
            rule.is_some_and(|rule| rule.pattern == Pattern::Name(spawn::CAPABILITY.into()))
        };
        let [agent, org, system] = [found.agent, found.org, found.system].map(|hit| hit.filter(names_it));
        let tier = [agent, org, system].into_iter().flatten().map(|hit| hit.tier).reduce(Tier::raise)?;
        let base = if agent.is_some() { Base::AgentRule } else { Base::OrgOverride };
        Some(Verdict { tier, base, agent, org, system, unknown: false })
    }

    /// The paths a call reads, each with the arguments of the `filesystem.read` it counts as. An argument that is no
    /// text is not asked about: it is refused before anything is read.
    pub(super) fn reads_of(&self, question: &Question<'_>) -> Vec<(String, Map<String, Value>)> {
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

    /// The answer: the strictest of all.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.all().fold(self.own.tier, |tier, verdict| tier.raise(verdict.tier))
    }

    /// The rule that asked for the answer; nothing if a default did.
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
    pub fn hits(&self) -> impl Iterator<Item = (Layer, &Hit)> {
        self.all().flat_map(Verdict::hits)
    }

    /// Every reason, in reading order.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        self.all().flat_map(Verdict::reasons)
    }
}
