//! Risk: how bad a wrong approval can be.
//!
//! Takes a call with its targets; gives low, medium or high. Promise: risk follows from what cannot be undone and
//! how far it reaches, never from how a write is retried; a capability without a description is at least medium.

use serde_json::{Map, Value};

use super::command;
use crate::capability::{Capability, Effect, ParamKind};
use crate::ids::CapabilityName;
use crate::policy::TargetOrigin;
use crate::target::{TracedTarget, is_prose, naming};

/// More targets or objects than this count as many.
pub const MANY: usize = 5;
/// Deepest nesting of arguments that is looked at.
const DEPTH: usize = 12;

/// How bad a wrong approval can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalRisk {
    /// It stays here, or it can be undone.
    Low,
    /// Something leaves this machine and cannot be undone, or nobody has described what it does.
    Medium,
    /// Many or unknown targets, money, code, or a deletion that cannot be undone.
    High,
}

/// A call whose risk is assessed.
#[derive(Debug, Clone, Copy)]
pub struct RiskAssessmentInput<'a> {
    /// The capability's name, without the prefix of a call that is only checked.
    pub capability: &'a CapabilityName,
    /// Its description, if there is one.
    pub spec: Option<&'a Capability>,
    /// The arguments of the call.
    pub arguments: &'a Map<String, Value>,
    /// Its targets with their origins.
    pub targets: &'a [TracedTarget],
}

/// How far a described capability reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CapabilityReach {
    /// This machine, or the user's own account: nobody else receives anything.
    Own,
    /// Own, but something runs or is replaced by it.
    OwnDeep,
    /// Another person or another machine receives something.
    Outside,
    /// It runs programs.
    Runs,
}

/// Services whose capabilities stay here or in the user's own account.
const OWN: [&str; 12] = [
    "email",
    "filesystem",
    "state",
    "secrets",
    "process",
    "git",
    "comms",
    "alerts",
    "agent",
    "scheduler",
    "system",
    "slack",
];
/// What leaves: other people read it, or another machine gets a request.
const OUTSIDE: [&str; 11] = [
    "email.send",
    "email.reply",
    "email.forward",
    "slack.send",
    "slack.reply",
    "slack.react",
    "slack.remove_react",
    "git.push",
    "git.pull",
    "git.clone",
    "alerts.send",
];
/// What runs something later, uses a credential or replaces a state as a whole.
const DEEP: [&str; 4] = ["process.kill", "scheduler.cron_create", "scheduler.delay", "state.snapshot.load"];

/// The risk of a call.
#[must_use]
pub fn assess_risk(call: &RiskAssessmentInput<'_>) -> ApprovalRisk {
    let reach = reach_of(call);
    let reads = call.spec.is_some_and(|spec| spec.effect == Effect::Read);
    let base = match reach {
        // A read that is answered from here has the same risk for any argument.
        Some(CapabilityReach::Own) if reads => return ApprovalRisk::Low,
        Some(CapabilityReach::Runs) => return ApprovalRisk::High,
        Some(CapabilityReach::Own) => ApprovalRisk::Low,
        Some(CapabilityReach::OwnDeep | CapabilityReach::Outside) | None => ApprovalRisk::Medium,
    };
    let verb = naming::verb_of(call.capability.as_str());
    let undone = reach.is_some() && call.spec.is_some_and(|spec| spec.reversible);
    let high = has_unfamiliar_target(call.targets)
        || is_many(call)
        || (naming::deletes(verb) && !undone && !reads)
        || (reach.is_none() && (naming::pays(verb) || naming::names_money(call.arguments) || executes(call, verb)));
    if high { ApprovalRisk::High } else { base }
}

/// How far a capability of the shipped catalogue reaches; `None` for third-party capabilities.
fn reach_of(call: &RiskAssessmentInput<'_>) -> Option<CapabilityReach> {
    let name = call.capability.as_str();
    // SECURITY: a third-party capability is judged as unknown, whatever its name.
    call.spec.filter(|spec| spec.definition.is_none())?;
    let service = name.split(['.', ':']).next().unwrap_or(name);
    if name == "process.run" {
        Some(CapabilityReach::Runs)
    } else if OUTSIDE.contains(&name) || service == "network" || service == "proxy" {
        Some(CapabilityReach::Outside)
    } else if DEEP.contains(&name) {
        Some(CapabilityReach::OwnDeep)
    } else {
        OWN.contains(&service).then_some(CapabilityReach::Own)
    }
}

/// Whether a target was first met in outside text, or nowhere.
#[must_use]
pub fn has_unfamiliar_target(targets: &[TracedTarget]) -> bool {
    targets.iter().any(|target| match target.origin {
        TargetOrigin::Asked | TargetOrigin::Known => false,
        TargetOrigin::Seen | TargetOrigin::New => true,
    })
}

fn is_many(call: &RiskAssessmentInput<'_>) -> bool {
    let objects = call.spec.into_iter().flat_map(|spec| spec.params_of(ParamKind::Objects));
    let objects = objects.filter_map(|param| call.arguments.get(&param.name)?.as_array()).map(Vec::len).sum::<usize>();
    call.targets.len().max(objects) > MANY
}

/// Whether a tool without a description executes what it is given. A single command of plain words that the task
/// names, or that a person approved before, is the exception.
fn executes(call: &RiskAssessmentInput<'_>, verb: &str) -> bool {
    let mut found = Vec::new();
    executed(call.arguments, "", (naming::executes(verb), 0), &mut found);
    let is_met = |place: &str| {
        let mut own = call.targets.iter().filter(|target| target.argument == place).peekable();
        own.peek().is_some() && own.all(|target| !matches!(target.origin, TargetOrigin::Seen | TargetOrigin::New))
    };
    !found.iter().all(|(place, name, value)| match value {
        Value::String(text) => naming::is_command(name) && !command::is_decided_each_time(text) && is_met(place),
        Value::Null | Value::Bool(_) | Value::Number(_) => !naming::is_executed(name),
        Value::Array(_) | Value::Object(_) => false,
    })
}

/// The arguments that are executed, each with its place and its name. In a tool that executes whatever it is given,
/// that is everything except prose for people.
fn executed<'a>(
    arguments: &'a Map<String, Value>,
    above: &str,
    (all, depth): (bool, usize),
    found: &mut Vec<(String, &'a str, &'a Value)>,
) {
    for (name, value) in arguments {
        let place = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        if naming::is_executed(name) || (all && value.is_string() && !is_prose(name)) || depth >= DEPTH {
            found.push((place, name, value));
            continue;
        }
        let objects: Vec<&Map<String, Value>> = match value {
            Value::Object(map) => vec![map],
            Value::Array(list) => list.iter().filter_map(Value::as_object).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        for map in objects {
            executed(map, &place, (all, depth + 1), found);
        }
    }
}

impl ApprovalRisk {
    /// The word used in files and on cards.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

#[cfg(test)]
mod tests;
