//! The gateway's own certificate.

use std::path::PathBuf;

use super::section::section;

section! {
    /// The gateway's own certificate. Both files, or none.
    TlsFiles at "tls" {
        /// Certificate chain (PEM).
        cert: Option<PathBuf> = None,
        /// Private key (PEM). Nobody but the gateway may read it.
        key: Option<PathBuf> = None,
        /// Certificates (PEM) by which the command line recognises the gateway, where the chain of `cert` ends in an
        /// authority of your own. `SLUICE_CA_FILE` says the same to the command line alone.
        ca_file: Option<PathBuf> = None,
    }
}

/// TLS as the gateway uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// What the command line recognises it by.
    pub ca_file: Option<PathBuf>,
}
