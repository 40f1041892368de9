//! Value origins: which layer a configuration value comes from.

use std::collections::BTreeMap;
use std::fmt;

use sluice_core::policy::SourcePosition;

/// The layer that one value comes from. Later variants win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// No layer set it.
    Default,
    /// The configuration file.
    File {
        /// The file as it was named.
        file: String,
        /// The place in the file.
        place: SourcePosition,
    },
    /// An environment variable.
    Variable {
        /// The variable, such as `SLUICE_LISTEN`.
        name: String,
    },
    /// A command line flag.
    Flag {
        /// The flag, such as `--listen`.
        name: &'static str,
    },
}

impl ConfigOrigin {
    /// The layer as one word.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Variable { .. } => "environment",
            Self::Flag { .. } => "flag",
        }
    }
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::File { file, place } => f.pad(&format!("{file}:{}:{}", place.line, place.column)),
            Self::Variable { name } => f.pad(&format!("environment {name}")),
            Self::Flag { name } => f.pad(&format!("flag {name}")),
        }
    }
}

/// The origins of all values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigOrigins(BTreeMap<String, ConfigOrigin>);

impl ConfigOrigins {
    /// The origin of one key, such as `limits.body`.
    #[must_use]
    pub fn of(&self, key: &str) -> ConfigOrigin {
        self.0.get(key).cloned().unwrap_or(ConfigOrigin::Default)
    }

    pub(crate) fn set(&mut self, key: &str, origin: ConfigOrigin) {
        self.0.insert(key.to_owned(), origin);
    }
}
