//! Actors: who caused an event, as the audit log records it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{AgentName, NameError, NodeName, PersonName};

/// Who caused a change of state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The program that asks, with its own credential.
    Agent(AgentName),
    /// A person the operator's configuration names as an approver.
    Person(PersonName),
    /// A person with an operator's credential.
    Operator(PersonName),
    /// A gateway node on its own: schedules, recovery, expiry.
    Node(NodeName),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Person(name) => write!(f, "person:{name}"),
            Self::Operator(name) => write!(f, "operator:{name}"),
            Self::Node(name) => write!(f, "node:{name}"),
        }
    }
}

impl FromStr for Actor {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (kind, name) = text.split_once(':').ok_or(NameError::Prefix { expected: "actor:" })?;
        match kind {
            "agent" => name.parse().map(Self::Agent),
            "person" => name.parse().map(Self::Person),
            "operator" => name.parse().map(Self::Operator),
            "node" => name.parse().map(Self::Node),
            _ => Err(NameError::Prefix { expected: "actor:" }),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_prints_and_parses_back() {
        for text in ["agent:clerk", "person:Ana Alder", "operator:root", "node:gw-1/stop"] {
            assert_eq!(text.parse::<Actor>().unwrap().to_string(), text);
        }
        for bad in ["", "clerk", "robot:x", "agent:a b"] {
            assert!(bad.parse::<Actor>().is_err(), "{bad}");
        }
    }
}
