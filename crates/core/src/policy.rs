//! Policy: rules people write, compiled into verdicts.
//!
//! Takes three layers of files (system, organisation, agent) and the catalogue; gives, for each question, a
//! tier and the rules that gave it. Promise: a lower layer never loosens a floor, an error never skips a
//! rule, the same question to the same version gets the same answer, and the work does not grow with the
//! number of rules. The language is described in `docs/policy.md`.

mod changed_files;
mod condition;
mod diff;
mod explain;
mod facts;
mod fault;
mod format;
mod index;
mod input;
mod judge;
mod layer;
mod live;
pub(crate) mod path;
mod pattern;
mod project;
mod propose;
mod reads;
#[cfg(test)]
mod reference;
mod rule;
mod rule_program;
mod schema;
mod suggest;
mod template;
mod testing;
mod yaml;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub use changed_files::{ChangedFile, ChangedFiles};
pub use condition::time::RuleRateLimit;
pub use diff::{ChangeDirection, PolicyChange, PolicyDiff, TierRange};
pub use explain::{
    ConditionExplanation, LayerExplanation, ReadExplanation, RuleExplanation, RuleState, VerdictExplanation,
};
pub use fault::{FaultSeverity, FileFault, PolicyLoadError, SourcePosition};
pub use format::{PolicyFormatError, format};
pub use input::{NoRateCounter, PolicyInput, RateCounter, RateKey, TargetOrigin, TargetOrigins};
pub use judge::{RateUse, RuleHit, Verdict, VerdictBase, VerdictReason};
pub use layer::{MAX_BYTES, MAX_RULES, PolicyLayer};
pub use live::LivePolicy;
pub use pattern::CapabilityPattern;
pub use propose::{RuleProposal, propose, stays_on_machine};
pub use reads::{CallVerdict, ReadVerdict};
pub use rule::{Rule, RuleRef};
pub use schema::SCHEMA;
pub use template::{PolicyTemplate, PolicyTemplateFile, TEMPLATES};
pub use testing::{ConstantRateCounter, PolicyTestOutcome};

use crate::capability::Catalogue;
use crate::ids::AgentName;
use crate::tier::Tier;
use fault::FaultCollector;
use index::RuleIndex;
use layer::PolicyFile;
use project::AgentProjects;

/// Files people write, read so that every problem can be shown where it stands. `sluice.yaml` is read
/// with it too.
pub mod reading {
    pub use super::fault::{FaultCollector, FileFaultCodes};
    pub use super::suggest::{closest, escape, is_unsafe};
    pub use super::yaml::{YamlComment, YamlDocument, YamlKey, YamlNode, YamlValue, parse};
}

/// The immutable layer.
/// The rules that ship with the gateway, as their file says them.
pub const SYSTEM: &str = include_str!("../../../policies/system.yaml");
const SYSTEM_NAME: &str = "system.yaml";

/// One policy file with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    /// Its name in messages, usually its path.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// All files of one policy. The system layer is not among them: it is part of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySources {
    /// `org.yaml`.
    pub org: Option<PolicySource>,
    /// `agents/<name>.yaml`.
    pub agents: Vec<(AgentName, PolicySource)>,
}

/// A policy, and warnings for its author.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// Ready to judge.
    pub policy: Arc<Policy>,
    /// Sorted by file and line.
    pub warnings: Vec<FileFault>,
}

/// All rules of a gateway, ready to judge.
#[derive(Debug)]
pub struct Policy {
    /// The system file first.
    files: Vec<PolicyFile>,
    org: Option<u32>,
    default: Option<Tier>,
    index: RuleIndex,
    projects: AgentProjects,
    catalogue: Arc<Catalogue>,
    version: String,
}

impl Policy {
    /// Reads and compiles all files. Tests inside them are not run: see [`Policy::test`].
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load(sources: &PolicySources, catalogue: &Arc<Catalogue>) -> Result<LoadedPolicy, PolicyLoadError> {
        Self::load_with_system(SYSTEM, sources, catalogue)
    }

    fn load_with_system(
        system: &str,
        sources: &PolicySources,
        catalogue: &Arc<Catalogue>,
    ) -> Result<LoadedPolicy, PolicyLoadError> {
        let mut faults = Vec::new();
        let mut failed = false;
        let mut files = Vec::new();
        let mut read = |name: &str, text: &str, owner: (PolicyLayer, Option<&AgentName>)| {
            let mut found = FaultCollector::new(name, text);
            files.push(layer::read_file(name, text, owner, catalogue, &mut found));
            failed |= found.failed();
            faults.extend(found.into_list());
        };
        read(SYSTEM_NAME, system, (PolicyLayer::System, None));
        if let Some(org) = &sources.org {
            read(&org.name, &org.text, (PolicyLayer::Org, None));
        }
        let mut agents: Vec<_> = sources.agents.iter().collect();
        agents.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (agent, source) in &agents {
            read(&source.name, &source.text, (PolicyLayer::Agent, Some(agent)));
        }
        for pair in agents.windows(2) {
            if let [(one, first), (other, second)] = pair
                && one == other
            {
                failed = true;
                let message = format!("`{one}` already has a file: {}", first.name);
                faults.push(FileFault::of_file("policy.two_files", second.name.clone(), message));
            }
        }
        if failed {
            return Err(PolicyLoadError { faults });
        }
        let org = sources.org.as_ref().map(|_| 1);
        let default = files.iter().find(|file| file.layer == PolicyLayer::Org).and_then(|file| file.default);
        let index = RuleIndex::new(&files, catalogue);
        let mut projects = AgentProjects::default();
        for file in &files {
            match (&file.projects, &file.agent) {
                (Some(folders), Some(agent)) => drop(projects.own.insert(agent.clone(), folders.clone())),
                (Some(folders), None) => projects.shared.clone_from(folders),
                (None, _) => {}
            }
        }
        let version = version(system, sources.org.as_ref(), &agents, catalogue);
        let policy = Self { files, org, default, index, projects, catalogue: Arc::clone(catalogue), version };
        Ok(LoadedPolicy { policy: Arc::new(policy), warnings: faults })
    }

    /// The version of exactly these rules: `sha256:` over all files and the catalogue.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The rule a verdict names.
    #[must_use]
    pub fn rule(&self, rule: RuleRef) -> Option<&Rule> {
        self.files.get(rule.file as usize)?.rules.get(rule.rule as usize)
    }

    /// The place of that rule: `org.yaml:12`.
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
    pub fn rule_count(&self) -> usize {
        self.files.iter().skip(1).map(|file| file.rules.len()).sum()
    }

    /// How many tests its files hold, without those of the system.
    #[must_use]
    pub fn test_count(&self) -> usize {
        self.files.iter().skip(1).map(|file| file.tests.len()).sum()
    }

    /// `defaults.tier`, if org.yaml has one.
    #[must_use]
    pub const fn default_tier(&self) -> Option<Tier> {
        self.default
    }
}

/// Whether a name is that of a tool that only its client knows.
fn is_custom(name: &str) -> bool {
    name.starts_with("custom:")
}

/// The parts of an argument that rules can depend on.
struct HashedParam<'a>(&'a crate::capability::CapabilityParam);

/// As it was printed when versions were introduced: the same rules keep the same version.
impl std::fmt::Debug for HashedParam<'_> {
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

fn version(
    system: &str,
    org: Option<&PolicySource>,
    agents: &[&(AgentName, PolicySource)],
    catalogue: &Catalogue,
) -> String {
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
        // Only what rules can depend on: a better description of an argument does not change the policy.
        let params: Vec<_> = capability.params.iter().map(HashedParam).collect();
        add(&format!("{:?} {params:?}", capability.effect));
    }
    let hash: [u8; 32] = hash.finalize().into();
    format!("sha256:{}", crate::hex::encode(&hash))
}

#[cfg(test)]
mod tests;
