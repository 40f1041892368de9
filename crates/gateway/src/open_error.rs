//! Why a gateway could not be opened.

use sluice_core::policy::PolicyLoadError;
use sluice_store::StoreError;

/// Why a gateway could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The rules cannot be used.
    #[error("{0}")]
    Policy(PolicyLoadError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder cannot be used.
    #[error("the folder `{path}` cannot be used: {why}")]
    Folder {
        /// The path of the folder.
        path: String,
        /// Why it cannot be used.
        why: String,
    },
    /// The key that signs the audit log cannot be used.
    #[error("the key that signs the audit log cannot be used: {0}")]
    Key(String),
    /// The vault cannot be opened.
    #[error("{0}")]
    Vault(String),
    /// The certificates to trust cannot be read.
    #[error("the certificates of `egress.ca_file` cannot be used: {0}")]
    Trust(String),
    /// The leak patterns cannot be used.
    #[error("the leak scan cannot be prepared: {0}")]
    Leak(String),
    /// A mistake in the built-in catalogue.
    #[error("the catalogue of capabilities is broken: {0}")]
    Catalogue(String),
}

impl OpenError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Policy(_) => "policy.invalid",
            Self::Store(error) => error.code(),
            Self::Folder { .. } => "open.folder",
            Self::Key(_) => "open.key",
            Self::Vault(_) => "vault.locked",
            Self::Trust(_) => "open.trust",
            Self::Leak(_) => "open.leak",
            Self::Catalogue(_) => "gateway.internal",
        }
    }
}
