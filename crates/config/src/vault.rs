//! Vault settings: where the root key of the vault comes from.

use std::path::PathBuf;

use super::section::section;

section! {
    /// Where the root key of the vault comes from: a passphrase if `passphrase_file` is set, else `key_file`, else the
    /// systemd credential `sluice-root-key`, else a key file that is created on the first start.
    Vault at "vault" {
        /// File that holds the root key, readable only by its owner (mode 0600).
        key_file: Option<PathBuf> = None => "`keys/root.key` in the data folder",
        /// File that holds a passphrase of at least 12 characters, readable only by its owner (mode 0600).
        passphrase_file: Option<PathBuf> = None,
        /// The previous key file, for the first start of the gateway with another key.
        old_key_file: Option<PathBuf> = None,
        /// The previous passphrase file, for the first start of the gateway with another key.
        old_passphrase_file: Option<PathBuf> = None,
    }
}
