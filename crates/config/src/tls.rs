//! TLS settings: the gateway's own certificate.

use std::path::PathBuf;

use super::section::section;

section! {
    /// The gateway's own certificate. Both files, or none.
    TlsFiles at "tls" {
        /// Certificate chain (PEM).
        cert: Option<PathBuf> = None,
        /// Private key (PEM). Only the gateway may be able to read it.
        key: Option<PathBuf> = None,
        /// Certificates (PEM) that the command line trusts for the gateway, if the chain of `cert` ends in a private
        /// authority. `SLUICE_CA_FILE` sets the same for the command line only.
        ca_file: Option<PathBuf> = None,
    }
}

/// TLS as the gateway uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// The certificates that the command line trusts.
    pub ca_file: Option<PathBuf>,
}
