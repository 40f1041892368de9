//! Policy: rules people write, compiled into verdicts.
//!
//! Takes three layers of files (system, organisation, agent) and the catalogue; gives, for each question, a
//! tier and the rules that gave it. Promise: a lower layer never loosens a floor, an error never skips a
//! rule, the same question to the same version gets the same answer, and the work does not grow with the
//! number of rules. The language is described in `docs/policy.md`.

mod condition;
mod diff;
mod explain;
mod facts;
mod fault;
mod format;
mod index;
mod judge;
mod layer;
mod live;
pub(crate) mod path;
mod pattern;
mod program;
mod project;
mod propose;
mod question;
mod reads;
#[cfg(test)]
mod reference;
mod rule;
mod schema;
mod suggest;
mod template;
mod testing;
mod written;
mod yaml;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub use condition::span::Rate;
pub use diff::{Change, Diff, Direction, Reach};
pub use explain::{ConditionLine, Explanation, LayerLine, ReadLine, RuleLine, RuleState};
pub use fault::{Fault, LoadErrors, Place, Severity};
pub use format::{FormatError, format};
pub use judge::{Base, Hit, RateUse, Reason, Verdict};
pub use layer::{Layer, MAX_BYTES, MAX_RULES};
pub use live::LivePolicy;
pub use pattern::Pattern;
pub use propose::{Proposal, in_house, propose};
pub use question::{NoRates, Origin, Origins, Question, RateKey, Rates};
pub use reads::{CallVerdict, ReadVerdict};
pub use rule::{Rule, RuleRef};
pub use schema::SCHEMA;
pub use template::{TEMPLATES, Template, TemplateFile};
pub use testing::{Flat, Outcome};
pub use written::{ChangedFile, ChangedFiles};

use crate::capability::Catalogue;
use crate::ids::AgentName;
use crate::tier::Tier;
use fault::Faults;
use index::Index;
use layer::File;
use project::Projects;

/// Files people write, read so that every problem can be shown where it stands. `sluice.yaml` is read
/// with it too.
pub mod reading {
    pub use super::fault::{Family, Faults};
    pub use super::suggest::{closest, escape, is_unsafe};
    pub use super::yaml::{Comment, Document, Key, Kind, Node, parse};
}

/// The immutable layer.
/// The rules that ship with the gateway, as their file says them.
pub const SYSTEM: &str = include_str!("../../../policies/system.yaml");
const SYSTEM_NAME: &str = "system.yaml";

/// The text of one policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// How messages call it, usually its path.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// All files of one policy. The system layer is not among them: it is part of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `org.yaml`.
    pub org: Option<Source>,
    /// `agents/<name>.yaml`.
    pub agents: Vec<(AgentName, Source)>,
}

/// A policy and what its author should look at.
#[derive(Debug)]
pub struct Loaded {
    /// Ready to judge.
    pub policy: Arc<Policy>,
    /// By file and line.
    pub warnings: Vec<Fault>,
}

/// All rules of a gateway, ready to judge.
#[derive(Debug)]
pub struct Policy {
    /// The system file first.
    files: Vec<File>,
    org: Option<u32>,
    default: Option<Tier>,
    index: Index,
    projects: Projects,
    catalogue: Arc<Catalogue>,
    version: String,
}

impl Policy {
    /// Reads and compiles all files. Tests inside them are not run: see [`Policy::test`].
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load(sources: &Sources, catalogue: &Arc<Catalogue>) -> Result<Loaded, LoadErrors> {
        Self::load_with_system(SYSTEM, sources, catalogue)
    }

    fn load_with_system(system: &str, sources: &Sources, catalogue: &Arc<Catalogue>) -> Result<Loaded, LoadErrors> {
        let mut faults = Vec::new();
        let mut failed = false;
        let mut files = Vec::new();
        let mut read = |name: &str, text: &str, owner: (Layer, Option<&AgentName>)| {
            let mut found = Faults::new(name, text);
            files.push(layer::file(name, text, owner, catalogue, &mut found));
            failed |= found.failed();
            faults.extend(found.into_list());
        };
        read(SYSTEM_NAME, system, (Layer::System, None));
        if let Some(org) = &sources.org {
            read(&org.name, &org.text, (Layer::Org, None));
        }
        let mut agents: Vec<_> = sources.agents.iter().collect();
        agents.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (agent, source) in &agents {
            read(&source.name, &source.text, (Layer::Agent, Some(agent)));
        }
        for pair in agents.windows(2) {
            if let [(one, first), (other, second)] = pair
                && one == other
            {
                failed = true;
                let message = format!("`{one}` already has a file: {}", first.name);
                faults.push(Fault::of_file("policy.two_files", second.name.clone(), message));
            }
        }
        if failed {
            return Err(LoadErrors { faults });
        }
        let org = sources.org.as_ref().map(|_| 1);
        let default = files.iter().find(|file| file.layer == Layer::Org).and_then(|file| file.default);
        let index = Index::new(&files, catalogue);
        let mut projects = Projects::default();
        for file in &files {
            match (&file.projects, &file.agent) {
                (Some(folders), Some(agent)) => drop(projects.own.insert(agent.clone(), folders.clone())),
                (Some(folders), None) => projects.shared.clone_from(folders),
                (None, _) => {}
            }
        }
        let version = version(system, sources.org.as_ref(), &agents, catalogue);
        let policy = Self { files, org, default, index, projects, catalogue: Arc::clone(catalogue), version };
        Ok(Loaded { policy: Arc::new(policy), warnings: faults })
    }

    /// Names exactly these rules: `sha256:` over all files and the catalogue.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The rule a verdict names.
    #[must_use]
    pub fn rule(&self, rule: RuleRef) -> Option<&Rule> {
        self.files.get(rule.file as usize)?.rules.get(rule.rule as usize)
    }

    /// Where that rule stands: `org.yaml:12`.
    #[must_use]
    pub fn location(&self, rule: RuleRef) -> String {
        let file = self.files.get(rule.file as usize).map_or("?", |file| file.name.as_str());
        let line = self.rule(rule).map_or(0, |rule| rule.place.line);
        format!("{file}:{line}")
    }

    /// The capabilities it was checked against.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Agents that have a file of their own.
    pub fn agents(&self) -> impl Iterator<Item = &AgentName> {
        self.files.iter().filter_map(|file| file.agent.as_ref())
    }

    /// How many rules there are, without those of the system.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.files.iter().skip(1).map(|file| file.rules.len()).sum()
    }

    /// How many tests its files hold, without those of the system.
    #[must_use]
    pub fn tests(&self) -> usize {
        self.files.iter().skip(1).map(|file| file.tests.len()).sum()
    }

    /// `defaults.tier`, if org.yaml has one.
    #[must_use]
    pub const fn default_tier(&self) -> Option<Tier> {
        self.default
    }
}

/// Whether a name is that of a tool only its client knows.
fn is_custom(name: &str) -> bool {
    name.starts_with("custom:")
}

/// What of an argument decides.
struct Judged<'a>(&'a crate::capability::Param);

/// As it was printed when versions were first kept: the same rules have the same version.
impl std::fmt::Debug for Judged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Param");
        shown.field("name", &self.0.name).field("kind", &self.0.kind).field("required", &self.0.required);
        shown.field("target", &self.0.target).field("object", &self.0.object);
        if self.0.reads {
            shown.field("reads", &true);
        }
        shown.finish()
    }
}

fn version(system: &str, org: Option<&Source>, agents: &[&(AgentName, Source)], catalogue: &Catalogue) -> String {
    let mut hash = Sha256::new_with_prefix(b"sluice policy v1\0");
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(system);
    add(if org.is_some() { "org" } else { "no org" });
    add(org.map_or("", |org| &org.text));
    for (agent, source) in agents {
        add(agent.as_str());
        add(&source.text);
    }
    add("catalogue");
    for capability in catalogue.iter() {
        add(capability.name.as_str());
        // Only what rules can turn on: a better sentence about an argument is no other policy.
        let params: Vec<_> = capability.params.iter().map(Judged).collect();
        add(&format!("{:?} {params:?}", capability.effect));
    }
    let hash: [u8; 32] = hash.finalize().into();
    format!("sha256:{}", crate::hex::encode(&hash))
}

#[cfg(test)]
mod tests;
