//! The layers of the jail: which are on, and which are mandatory.
//!
//! Takes the results of setting them up; gives a list for people. Promise: a layer without a report counts as off.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What happens when a layer is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JailMode {
    /// No job runs without every mandatory layer.
    Required,
    /// The job runs with the layers that are available, and everyone is notified.
    Degraded,
}

/// One layer of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JailLayerName {
    /// No descriptor except the frame socket, `/dev/null` three times, and perhaps the scratch folder.
    Descriptors,
    /// An empty environment.
    Environment,
    /// Limits on memory, processor time, files and processes.
    Limits,
    /// No capabilities, and no way to get any.
    Privileges,
    /// No other process can read its memory, and it leaves no core dump.
    Dumpable,
    /// Its own user, process, network, mount, host name and message queue namespaces.
    Namespaces,
    /// An empty root folder.
    EmptyRoot,
    /// Landlock: no file, no port, no abstract socket, no signal.
    Landlock,
    /// Seccomp: no system call except those of the list.
    Seccomp,
}

/// The state of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailLayer {
    /// The name of the layer.
    pub name: JailLayerName,
    /// Whether it is in force.
    pub on: bool,
    /// What is in force, or why it is not.
    pub detail: String,
}

/// All layers of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JailLayers(Vec<JailLayer>);

impl JailLayerName {
    /// All layers, in the order in which they are set up.
    pub const ALL: [Self; 9] = [
        Self::Descriptors,
        Self::Environment,
        Self::Limits,
        Self::Namespaces,
        Self::EmptyRoot,
        Self::Privileges,
        Self::Dumpable,
        Self::Landlock,
        Self::Seccomp,
    ];

    /// The name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Environment => "environment",
            Self::Limits => "limits",
            Self::Privileges => "privileges",
            Self::Dumpable => "dumpable",
            Self::Namespaces => "namespaces",
            Self::EmptyRoot => "empty_root",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    /// Whether no job runs without this layer. Many systems forbid namespaces to ordinary users; Landlock and seccomp
    /// give the same protection, so namespaces are used only where they are allowed.
    #[must_use]
    pub const fn is_mandatory(self) -> bool {
        match self {
            Self::Descriptors
            | Self::Environment
            | Self::Limits
            | Self::Privileges
            | Self::Dumpable
            | Self::Landlock
            | Self::Seccomp => true,
            Self::Namespaces | Self::EmptyRoot => false,
        }
    }
}

impl fmt::Display for JailLayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JailLayers {
    /// Records the result of setting up a layer.
    pub fn note<E: fmt::Display>(&mut self, name: JailLayerName, went: Result<String, E>) {
        let (on, detail) = match went {
            Ok(detail) => (true, detail),
            Err(why) => (false, why.to_string()),
        };
        self.0.push(JailLayer { name, on, detail: detail.chars().take(200).collect() });
    }

    /// Records the result of a layer that was set up a second time. It is in force only if both succeeded.
    pub fn again<E: fmt::Display>(&mut self, name: JailLayerName, went: Result<String, E>) {
        let held = self.has(name);
        if held || went.is_err() {
            self.0.retain(|layer| layer.name != name);
            self.note(name, went);
        }
    }

    /// Each layer, in the order of the records.
    pub fn iter(&self) -> impl Iterator<Item = &JailLayer> {
        self.0.iter()
    }

    /// Whether a layer is in force.
    #[must_use]
    pub fn has(&self, name: JailLayerName) -> bool {
        self.0.iter().any(|layer| layer.name == name && layer.on)
    }

    /// The layers that are not in force.
    #[must_use]
    pub fn missing(&self) -> Vec<JailLayerName> {
        JailLayerName::ALL.into_iter().filter(|name| !self.has(*name)).collect()
    }

    /// The missing layers that make `required` refuse.
    #[must_use]
    pub fn missing_mandatory(&self) -> Vec<JailLayerName> {
        self.missing().into_iter().filter(|name| name.is_mandatory()).collect()
    }

    /// Whether a job may run in this mode.
    #[must_use]
    pub fn suffice(&self, mode: JailMode) -> bool {
        mode == JailMode::Degraded || self.missing_mandatory().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_but(missing: Option<JailLayerName>) -> JailLayers {
        let mut layers = JailLayers::default();
        for name in JailLayerName::ALL.into_iter().filter(|name| Some(*name) != missing) {
            layers.note(name, Ok::<_, String>("on".into()));
        }
        layers
    }

    #[test]
    fn a_missing_mandatory_layer_refuses_and_a_missing_namespace_does_not() {
        assert!(all_but(None).suffice(JailMode::Required));
        for name in JailLayerName::ALL {
            let layers = all_but(Some(name));
            assert_eq!(layers.suffice(JailMode::Required), !name.is_mandatory(), "{name}");
            assert!(layers.suffice(JailMode::Degraded));
            assert_eq!(layers.missing(), [name]);
        }
    }

    #[test]
    fn a_layer_that_failed_or_was_never_tried_is_off() {
        let mut layers = JailLayers::default();
        layers.note(JailLayerName::Seccomp, Err("the kernel has none"));
        assert!(!layers.has(JailLayerName::Seccomp) && !layers.has(JailLayerName::Landlock));
        assert!(!layers.suffice(JailMode::Required));
    }
}
