//! The layers of the jail: which are on, and which must be.
//!
//! Takes what was tried; gives a list people can read. Promise: a layer that nobody reported counts as off.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What happens when a layer cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// No job is done without every mandatory layer.
    Required,
    /// The job is done with what there is, and everyone is told.
    Degraded,
}

/// One layer of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerName {
    /// No descriptor but the frame socket, three times nothing, and perhaps the scratch folder.
    Descriptors,
    /// No environment.
    Environment,
    /// Memory, processor time, files, processes.
    Limits,
    /// No capability, and none to be had.
    Privileges,
    /// Nobody can look into its memory, and it leaves no core.
    Dumpable,
    /// Own users, processes, network, mounts, host name, message queues.
    Namespaces,
    /// An empty root folder.
    EmptyRoot,
    /// No file, no port, no abstract socket, no signal.
    Landlock,
    /// No system call but those of the list.
    Seccomp,
}

/// How one layer went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Which.
    pub name: LayerName,
    /// Whether it holds.
    pub on: bool,
    /// What holds, or why it does not.
    pub detail: String,
}

/// All layers of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layers(Vec<Layer>);

impl LayerName {
    /// All of them, in the order in which they are put on.
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

    /// As people read it.
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

    /// Whether no job is done without it. Many systems forbid namespaces to ordinary users, and what they
    /// give is given a second time by Landlock and seccomp; so they are used where they are allowed.
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

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Layers {
    /// Writes down how a layer went.
    pub(crate) fn note<E: fmt::Display>(&mut self, name: LayerName, went: Result<String, E>) {
        let (on, detail) = match went {
            Ok(detail) => (true, detail),
            Err(why) => (false, why.to_string()),
        };
        self.0.push(Layer { name, on, detail: detail.chars().take(200).collect() });
    }

    /// Writes down how a layer went that was put on a second time. It holds only if it did both times.
    pub(crate) fn again<E: fmt::Display>(&mut self, name: LayerName, went: Result<String, E>) {
        let held = self.has(name);
        if held || went.is_err() {
            self.0.retain(|layer| layer.name != name);
            self.note(name, went);
        }
    }

    /// Each, as it was put on.
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        self.0.iter()
    }

    /// Whether a layer holds.
    #[must_use]
    pub fn has(&self, name: LayerName) -> bool {
        self.0.iter().any(|layer| layer.name == name && layer.on)
    }

    /// The layers that do not hold.
    #[must_use]
    pub fn missing(&self) -> Vec<LayerName> {
        LayerName::ALL.into_iter().filter(|name| !self.has(*name)).collect()
    }

    /// Those of them without which `required` refuses.
    #[must_use]
    pub fn missing_mandatory(&self) -> Vec<LayerName> {
        self.missing().into_iter().filter(|name| name.is_mandatory()).collect()
    }

    /// Whether a job may be done in this mode.
    #[must_use]
    pub fn suffice(&self, mode: Mode) -> bool {
        mode == Mode::Degraded || self.missing_mandatory().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_but(missing: Option<LayerName>) -> Layers {
        let mut layers = Layers::default();
        for name in LayerName::ALL.into_iter().filter(|name| Some(*name) != missing) {
            layers.note(name, Ok::<_, String>("on".into()));
        }
        layers
    }

    #[test]
    fn a_missing_mandatory_layer_refuses_and_a_missing_namespace_does_not() {
        assert!(all_but(None).suffice(Mode::Required));
        for name in LayerName::ALL {
            let layers = all_but(Some(name));
            assert_eq!(layers.suffice(Mode::Required), !name.is_mandatory(), "{name}");
            assert!(layers.suffice(Mode::Degraded));
            assert_eq!(layers.missing(), [name]);
        }
    }

    #[test]
    fn a_layer_that_failed_or_was_never_tried_is_off() {
        let mut layers = Layers::default();
        layers.note(LayerName::Seccomp, Err("the kernel has none"));
        assert!(!layers.has(LayerName::Seccomp) && !layers.has(LayerName::Landlock));
        assert!(!layers.suffice(Mode::Required));
    }
}
