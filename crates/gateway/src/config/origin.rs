//! Where a value comes from.

use std::collections::BTreeMap;
use std::fmt;

use sluice_core::policy::Place;

/// Where one value comes from. Later ones win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The file.
    File {
        /// As it was named.
        file: String,
        /// Where in it.
        place: Place,
    },
    /// The environment.
    Variable {
        /// `SLUICE_LISTEN`.
        name: String,
    },
    /// The command line.
    Flag {
        /// `--listen`.
        name: &'static str,
    },
}

impl Origin {
    /// One word.
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

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::File { file, place } => f.pad(&format!("{file}:{}:{}", place.line, place.column)),
            Self::Variable { name } => f.pad(&format!("environment {name}")),
            Self::Flag { name } => f.pad(&format!("flag {name}")),
        }
    }
}

/// Where every value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Of one key, such as `limits.body`.
    #[must_use]
    pub fn of(&self, key: &str) -> Origin {
        self.0.get(key).cloned().unwrap_or(Origin::Default)
    }

    pub(crate) fn set(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_owned(), origin);
    }
}
