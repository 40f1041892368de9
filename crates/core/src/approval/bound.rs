//! Bounds: which calls a standing approval covers, made from the one call a person approved.
//!
//! Takes a call with its targets; gives two or three bounds to choose from, the narrowest first, each in words; tells
//! whether another call is inside one. Promise: a call is inside only if every argument is, except prose for people; an
//! argument that cannot be read, or that the approved call did not have, is never inside.

mod values;
mod wording;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command;
use super::risk::{self, ApprovalRisk, RiskAssessmentInput};
use crate::action::Action;
use crate::capability::Capability;
use crate::ids::CapabilityName;
use crate::policy::path::NormalPath;
use crate::policy::{TargetOrigin, TargetOrigins};
use crate::target::{TracedTarget, origins};

pub use values::ValueKind;
use values::{BoundedValue, bounded_values};

/// Longest description of a bound, in characters. A bound with a longer one is not offered.
pub const LONGEST_WORDS: usize = 200;
/// Domains at which anyone can have a mailbox: a bound never covers the whole domain.
const SHARED_DOMAINS: [&str; 18] = [
    "gmail.com",
    "googlemail.com",
    "outlook.com",
    "hotmail.com",
    "live.com",
    "msn.com",
    "yahoo.com",
    "icloud.com",
    "me.com",
    "aol.com",
    "proton.me",
    "protonmail.com",
    "gmx.com",
    "gmx.de",
    "gmx.net",
    "web.de",
    "mail.com",
    "mail.ru",
];

/// Which calls of one capability a standing approval covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetBound {
    /// The account of the service, if the call names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    /// The definition of the tool that a person accepted, if a third party defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<String>,
    /// What each argument may be, by its role.
    roles: BTreeMap<String, RoleBound>,
}

/// The values that one role may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RoleBound {
    /// One of these, each in its normal spelling.
    Values {
        /// How they are compared.
        kind: ValueKind,
        /// The values.
        values: BTreeSet<String>,
    },
    /// Any mailbox at one of these domains (lower case, no subdomains).
    Domains(BTreeSet<String>),
    /// Any path in one of these folders.
    Folders(BTreeSet<String>),
    /// Any command of plain words that begins with these.
    FirstWords(Vec<String>),
}

/// A call in the form that bounds compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedCall {
    capability: CapabilityName,
    account: Option<String>,
    definition: Option<String>,
    /// `None` if an argument cannot be read.
    values: Option<Vec<BoundedValue>>,
    /// Whether the gateway knows what the arguments mean.
    described: bool,
    risk: ApprovalRisk,
    origins: TargetOrigins,
}

impl BoundedCall {
    /// Reads a call. `capability` is its name without the prefix of a call that is only checked.
    #[must_use]
    pub fn of(
        capability: &CapabilityName,
        spec: Option<&Capability>,
        action: &Action,
        targets: &[TracedTarget],
    ) -> Self {
        let described = spec.filter(|spec| spec.definition.is_none());
        let question = RiskAssessmentInput { capability, spec, arguments: action.arguments(), targets };
        Self {
            capability: capability.clone(),
            account: action.account().map(str::to_owned),
            definition: action.definition().map(str::to_owned),
            values: bounded_values(described, action.arguments()),
            described: described.is_some(),
            risk: risk::assess_risk(&question),
            origins: origins(targets),
        }
    }

    /// Its capability.
    #[must_use]
    pub fn capability(&self) -> &CapabilityName {
        &self.capability
    }

    /// Its risk.
    #[must_use]
    pub fn risk(&self) -> ApprovalRisk {
        self.risk
    }

    /// Whether any standing approval may answer it: its risk is not high, and every target was asked for or is known.
    #[must_use]
    pub fn may_be_answered(&self) -> bool {
        self.risk != ApprovalRisk::High && !self.origins.has(TargetOrigin::Seen) && !self.origins.has(TargetOrigin::New)
    }

    /// The bounds a person can choose from, the narrowest first. Empty where no standing approval could answer the same
    /// call again.
    #[must_use]
    pub fn offers(&self) -> Vec<TargetBound> {
        let Some(values) = self.values.as_ref().filter(|values| self.described || !values.is_empty()) else {
            return Vec::new();
        };
        if !self.may_be_answered() {
            return Vec::new();
        }
        let exact = self.exactly(values);
        let wider = [widen_domains, widen_folders, widen_commands].into_iter().filter_map(|widen| exact.widened(widen));
        let offers = std::iter::once(exact.clone()).chain(wider.take(2));
        offers.filter(|bound| bound.describe(&self.capability).chars().count() <= LONGEST_WORDS).collect()
    }

    fn exactly(&self, values: &[BoundedValue]) -> TargetBound {
        let mut roles: BTreeMap<String, RoleBound> = BTreeMap::new();
        for value in values {
            let empty = || RoleBound::Values { kind: value.kind, values: BTreeSet::new() };
            if let RoleBound::Values { values, .. } = roles.entry(value.role.clone()).or_insert_with(empty) {
                values.insert(value.normal.clone());
            }
        }
        TargetBound { account: self.account.clone(), definition: self.definition.clone(), roles }
    }
}

/// The targets of a call after a person has approved it: those that can become known are known.
#[must_use]
pub fn mark_known_after_approval(targets: &[TracedTarget]) -> Vec<TracedTarget> {
    let known = |target: &TracedTarget| match (target.origin, &target.print) {
        (TargetOrigin::Seen | TargetOrigin::New, Some(_)) => {
            TracedTarget { origin: TargetOrigin::Known, ..target.clone() }
        }
        _ => target.clone(),
    };
    targets.iter().map(known).collect()
}

impl TargetBound {
    /// Whether a call is inside the bound.
    #[must_use]
    pub fn admits(&self, call: &BoundedCall) -> bool {
        let Some(values) = &call.values else { return false };
        self.account == call.account
            && self.definition == call.definition
            && self.roles.keys().all(|role| values.iter().any(|value| value.role == *role))
            && values.iter().all(|value| self.roles.get(&value.role).is_some_and(|bound| bound.admits(value)))
    }

    /// What it covers, in words for people.
    #[must_use]
    pub fn describe(&self, capability: &CapabilityName) -> String {
        wording::of(self, capability)
    }

    /// The bound with every role widened that can be; `None` if none can.
    fn widened(&self, widen: fn(ValueKind, &BTreeSet<String>) -> Option<RoleBound>) -> Option<Self> {
        let mut wider = self.clone();
        for bound in wider.roles.values_mut() {
            let RoleBound::Values { kind, values } = &*bound else { continue };
            if let Some(wide) = widen(*kind, values) {
                *bound = wide;
            }
        }
        (wider != *self).then_some(wider)
    }
}

impl RoleBound {
    fn admits(&self, value: &BoundedValue) -> bool {
        match self {
            Self::Values { kind, values } => *kind == value.kind && values.contains(&value.normal),
            Self::Domains(domains) => {
                value.kind == ValueKind::Recipient
                    && domain_of(&value.normal).is_some_and(|domain| domains.contains(domain))
            }
            Self::Folders(folders) => {
                let inside = |path: &NormalPath<'_>| folders.iter().any(|folder| path.is_within(folder));
                value.kind == ValueKind::Path && NormalPath::new(&value.normal).is_ok_and(|path| inside(&path))
            }
            Self::FirstWords(first) => {
                value.kind == ValueKind::Command
                    && command::plain_words(&value.normal)
                        .is_some_and(|words| words.len() >= first.len() && words.iter().zip(first).all(|(a, b)| a == b))
            }
        }
    }
}

fn domain_of(address: &str) -> Option<&str> {
    address.rsplit_once('@').map(|(_, domain)| domain)
}

fn widen_domains(kind: ValueKind, values: &BTreeSet<String>) -> Option<RoleBound> {
    let domains: Option<BTreeSet<String>> =
        values.iter().map(|address| domain_of(address).map(str::to_owned)).collect();
    let domains = domains.filter(|domains| !domains.iter().any(|domain| SHARED_DOMAINS.contains(&domain.as_str())))?;
    (kind == ValueKind::Recipient).then_some(RoleBound::Domains(domains))
}

fn widen_folders(kind: ValueKind, values: &BTreeSet<String>) -> Option<RoleBound> {
    let folder = |path: &String| {
        let (folder, _) = path.rsplit_once('/')?;
        (!folder.is_empty()).then(|| folder.to_owned())
    };
    let folders: BTreeSet<String> = values.iter().map(folder).collect::<Option<_>>()?;
    (kind == ValueKind::Path).then_some(RoleBound::Folders(folders))
}

fn widen_commands(kind: ValueKind, values: &BTreeSet<String>) -> Option<RoleBound> {
    let mut all = values.iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let words = command::first_words(only)?;
    (kind == ValueKind::Command).then(|| RoleBound::FirstWords(words.into_iter().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests;
