//! Risk: how bad a wrong approval can be.
//!
//! Takes a call with its targets; gives low, medium or high. Promise: risk follows from what cannot be taken back and
//! how far it reaches, never from how a write is retried; what nobody has described is at least medium.

use serde_json::{Map, Value};

use super::command;
use crate::capability::{Capability, Effect, ParamKind};
use crate::ids::CapabilityName;
use crate::policy::Origin;
use crate::target::{Traced, is_prose, naming};

/// More targets or objects than this are many.
pub const MANY: usize = 5;
/// Deepest nesting of arguments that is looked at.
const DEPTH: usize = 12;

/// How bad a wrong approval can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// It stays here, or it can be taken back.
    Low,
    /// Something leaves this machine and cannot be called back, or nobody has described what it does.
    Medium,
    /// Many or unmet targets, money, code, or a deletion that cannot be undone.
    High,
}

/// A call whose risk is wanted.
#[derive(Debug, Clone, Copy)]
pub struct RiskQuestion<'a> {
    /// The capability's name, without the mark of a call that is only checked.
    pub capability: &'a CapabilityName,
    /// Its description, if there is one.
    pub spec: Option<&'a Capability>,
    /// The arguments of the call.
    pub arguments: &'a Map<String, Value>,
    /// Its targets with their origins.
    pub targets: &'a [Traced],
}

/// How far a described capability reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// This machine, or the user's own account: nobody else gets anything.
    Own,
    /// Own, but something runs or is replaced by it.
    OwnDeep,
    /// Somebody else, or another machine, gets something.
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
/// What leaves: others read it, or another machine gets a request.
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
pub fn of_call(call: &RiskQuestion<'_>) -> Risk {
    let reach = reach_of(call);
    let reads = call.spec.is_some_and(|spec| spec.effect == Effect::Read);
    let base = match reach {
        // What is answered from here is the same for any argument.
        Some(Reach::Own) if reads => return Risk::Low,
        Some(Reach::Runs) => return Risk::High,
        Some(Reach::Own) => Risk::Low,
        Some(Reach::OwnDeep | Reach::Outside) | None => Risk::Medium,
    };
    let verb = naming::verb_of(call.capability.as_str());
    let undone = reach.is_some() && call.spec.is_some_and(|spec| spec.reversible);
    let high = has_unmet(call.targets)
        || is_many(call)
        || (naming::deletes(verb) && !undone && !reads)
        || (reach.is_none() && (naming::pays(verb) || naming::names_money(call.arguments) || executes(call, verb)));
    if high { Risk::High } else { base }
}

/// How far a capability of the shipped catalogue reaches; nothing for what others define.
fn reach_of(call: &RiskQuestion<'_>) -> Option<Reach> {
    let name = call.capability.as_str();
    // SECURITY: what others define is judged as unknown, whatever they call it.
    call.spec.filter(|spec| spec.definition.is_none())?;
    let service = name.split(['.', ':']).next().unwrap_or(name);
    if name == "process.run" {
        Some(Reach::Runs)
    } else if OUTSIDE.contains(&name) || service == "network" || service == "proxy" {
        Some(Reach::Outside)
    } else if DEEP.contains(&name) {
        Some(Reach::OwnDeep)
    } else {
        OWN.contains(&service).then_some(Reach::Own)
    }
}

/// Whether a target was first met in outside text, or nowhere.
#[must_use]
pub fn has_unmet(targets: &[Traced]) -> bool {
    targets.iter().any(|target| match target.origin {
        Origin::Asked | Origin::Known => false,
        Origin::Seen | Origin::New => true,
    })
}

fn is_many(call: &RiskQuestion<'_>) -> bool {
    let objects = call.spec.into_iter().flat_map(|spec| spec.params_of(ParamKind::Objects));
    let objects = objects.filter_map(|param| call.arguments.get(&param.name)?.as_array()).map(Vec::len).sum::<usize>();
    call.targets.len().max(objects) > MANY
}

/// Whether a tool nobody has described carries out what it is given. A single command of plain words that the task
/// names, or that a person approved before, is the exception.
fn executes(call: &RiskQuestion<'_>, verb: &str) -> bool {
    let mut found = Vec::new();
    executed(call.arguments, "", (naming::executes(verb), 0), &mut found);
    let is_met = |place: &str| {
        let mut own = call.targets.iter().filter(|target| target.argument == place).peekable();
        own.peek().is_some() && own.all(|target| !matches!(target.origin, Origin::Seen | Origin::New))
    };
    !found.iter().all(|(place, name, value)| match value {
        Value::String(text) => naming::is_command(name) && !command::is_decided_each_time(text) && is_met(place),
        Value::Null | Value::Bool(_) | Value::Number(_) => !naming::is_executed(name),
        Value::Array(_) | Value::Object(_) => false,
    })
}

/// The arguments that are carried out, each with its place and its name. In a tool that carries out whatever it is given
/// that is everything that is no text for people.
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

impl Risk {
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
