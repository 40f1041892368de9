//! A bound in words for people.
//!
//! Takes a bound; gives one line. Promise: every value it covers is in the line, whole and visible.

use std::collections::BTreeSet;

use super::{RoleBound, TargetBound, ValueKind};
use crate::approval::card::escape_invisible;
use crate::ids::CapabilityName;

/// "`email.send` to accounts@northpeak.example".
pub(super) fn of(bound: &TargetBound, capability: &CapabilityName) -> String {
    let mut line = format!("`{capability}`");
    for (role, covered) in &bound.roles {
        line.push(' ');
        line.push_str(&role_words(role, covered));
    }
    if bound.roles.is_empty() {
        line.push_str(" without arguments that name a target");
    }
    if let Some(account) = &bound.account {
        line.push_str(&format!(" as account {}", escape_invisible(account)));
    }
    line
}

fn role_words(role: &str, covered: &RoleBound) -> String {
    let name = escape_invisible(&role.replace("~1", "/").replace("~0", "~"));
    match covered {
        RoleBound::Values { kind: ValueKind::Recipient, values } => format!("to {}", listed(values)),
        RoleBound::Values { kind: ValueKind::Path, values } => format!("on {}", listed(values)),
        RoleBound::Values { kind: ValueKind::Command, values } => {
            format!("with exactly the command {}", quoted(values.iter()))
        }
        RoleBound::Values { kind: ValueKind::Plain, values } if role == "channel" => {
            format!("in channel {}", listed(values))
        }
        RoleBound::Values { kind: ValueKind::Plain, values } => format!("with {name} {}", listed(values)),
        RoleBound::Domains(domains) => format!("to known addresses at {}", listed(domains)),
        RoleBound::Folders(folders) => format!("on known files in {}", listed(folders)),
        RoleBound::FirstWords(words) => {
            format!("with known commands that begin with `{}`", escape_invisible(&words.join(" ")))
        }
    }
}

fn listed(values: &BTreeSet<String>) -> String {
    values.iter().map(|value| escape_invisible(value)).collect::<Vec<_>>().join(", ")
}

fn quoted<'a>(values: impl Iterator<Item = &'a String>) -> String {
    values.map(|value| format!("`{}`", escape_invisible(value))).collect::<Vec<_>>().join(", ")
}
