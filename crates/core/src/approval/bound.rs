//! Bounds: which calls a standing approval covers, made from the one call a person approved.
//!
//! Takes a call with its targets; gives two or three bounds to choose from, the narrowest first, each in words; answers
//! whether another call is inside one. Promise: a call is inside only if every argument that is no text for people is;
//! an argument that cannot be read is inside nothing, and neither is one the approved call did not have.

mod values;
mod wording;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command;
use super::risk::{self, Risk, RiskQuestion};
use crate::action::Action;
use crate::capability::Capability;
use crate::ids::CapabilityName;
use crate::policy::path::Normal;
use crate::policy::{Origin, Origins};
use crate::target::{Traced, origins};

pub use values::ValueKind;
use values::{BoundedValue, bounded_values};

/// Longest description of a bound, in characters. What takes more to say is not offered.
pub const LONGEST_WORDS: usize = 200;
/// Domains at which strangers have their mailboxes: nobody means all of them.
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
    /// The definition of the tool that a person accepted, if others define it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<String>,
    /// What each argument may be, by its role.
    roles: BTreeMap<String, RoleBound>,
}

/// What the values in one role may be.
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

/// A call as bounds see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedCall {
    capability: CapabilityName,
    account: Option<String>,
    definition: Option<String>,
    /// Nothing if an argument cannot be read.
    values: Option<Vec<BoundedValue>>,
    /// Whether the gateway knows what the arguments mean.
    described: bool,
    risk: Risk,
    origins: Origins,
}

impl BoundedCall {
    /// Reads a call. `capability` is its name without the mark of a call that is only checked.
    #[must_use]
    pub fn of(capability: &CapabilityName, spec: Option<&Capability>, action: &Action, targets: &[Traced]) -> Self {
        let described = spec.filter(|spec| spec.definition.is_none());
        let question = RiskQuestion { capability, spec, arguments: action.arguments(), targets };
        Self {
            capability: capability.clone(),
            account: action.account().map(str::to_owned),
            definition: action.definition().map(str::to_owned),
            values: bounded_values(described, action.arguments()),
            described: described.is_some(),
            risk: risk::of_call(&question),
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
    pub fn risk(&self) -> Risk {
        self.risk
    }

    /// Whether any standing approval may answer it: its risk is not high, and every target was asked for or is known.
    #[must_use]
    pub fn may_be_answered(&self) -> bool {
        self.risk != Risk::High && !self.origins.has(Origin::Seen) && !self.origins.has(Origin::New)
    }

    /// The bounds a person can choose from, the narrowest first. None where no standing approval could answer the same
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
        offers.filter(|bound| bound.words(&self.capability).chars().count() <= LONGEST_WORDS).collect()
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

/// The targets of a call as they are once a person has approved it: what can become known is.
#[must_use]
pub fn once_approved(targets: &[Traced]) -> Vec<Traced> {
    let known = |target: &Traced| match (target.origin, &target.print) {
        (Origin::Seen | Origin::New, Some(_)) => Traced { origin: Origin::Known, ..target.clone() },
        _ => target.clone(),
    };
    targets.iter().map(known).collect()
}

impl TargetBound {
    /// Whether a call is inside.
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
    pub fn words(&self, capability: &CapabilityName) -> String {
        wording::of(self, capability)
    }

    /// With every role widened that can be; nothing if none can.
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
                let inside = |path: &Normal<'_>| folders.iter().any(|folder| path.is_within(folder));
                value.kind == ValueKind::Path && Normal::new(&value.normal).is_ok_and(|path| inside(&path))
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
