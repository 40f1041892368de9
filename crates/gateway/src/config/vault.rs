//! Where the root key of the vault comes from.

use std::path::PathBuf;

use super::section::section;

section! {
    /// Where the root key of the vault comes from: a passphrase if `passphrase_file` is set, else `key_file`, else the
    /// systemd credential `sluice-root-key`, else a key file that is made on the first start.
    Vault at "vault" {
        /// File that holds the root key, for its owner only (mode 0600).
        key_file: Option<PathBuf> = None => "`keys/root.key` in the data folder",
        /// File that holds a passphrase of at least 12 characters, for its owner only (mode 0600).
        passphrase_file: Option<PathBuf> = None,
        /// The key file of before, while the gateway starts with another key for the first time.
        old_key_file: Option<PathBuf> = None,
        /// The passphrase of before, while the gateway starts with another key for the first time.
        old_passphrase_file: Option<PathBuf> = None,
    }
}
