//! Passphrases, recipients and identities as they are named on the command line. None is ever printed.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_core::audit::key::VerifierKey;
use sluice_gateway::backup::{BackupKey, BackupLock, new_identity};
use zeroize::Zeroizing;

use super::failed;
use crate::commands::secrets;
use crate::failure::{Exit, Failure, io_words};
use crate::system::SystemEntropy;

/// For whom a backup is made.
#[derive(Debug, Args)]
pub(super) struct For {
    /// File with the passphrase; otherwise it is read from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "recipient")]
    passphrase_file: Option<PathBuf>,
    /// Public key of who can open it, instead of a passphrase: sluice backup key
    #[arg(long, value_name = "KEY")]
    recipient: Option<String>,
}

/// What a backup is opened with.
#[derive(Debug, Args)]
pub(super) struct Opening {
    /// File with the passphrase; otherwise it is read from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "identity")]
    passphrase_file: Option<PathBuf>,
    /// File with the secret key of the recipient, instead of a passphrase
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl For {
    pub(super) fn lock(&self) -> Result<BackupLock, Failure> {
        match &self.recipient {
            Some(key) => BackupLock::recipient(key).map_err(failed),
            None => {
                let text = Zeroizing::new(secrets::value(self.passphrase_file.as_deref())?);
                BackupLock::passphrase(text).map_err(failed)
            }
        }
    }
}

impl Opening {
    pub(super) fn key(&self) -> Result<BackupKey, Failure> {
        match &self.identity {
            Some(path) => BackupKey::identity(&Zeroizing::new(secrets::value(Some(path))?)).map_err(failed),
            None => {
                let text = secrets::value(self.passphrase_file.as_deref())?;
                Ok(BackupKey::Passphrase(Zeroizing::new(text)))
            }
        }
    }
}

/// Makes a key for a recipient: the secret half in a file, the public half as text.
pub(super) fn new_key(out: &Path) -> Result<String, Failure> {
    let (secret, public) = new_identity(&SystemEntropy);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(out);
    let written = file.and_then(|mut file| {
        file.write_all(Zeroizing::new(format!("{}\n", *secret)).as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        Failure::new(Exit::Failed, format!("`{}` cannot be written", out.display())).why(io_words(&error))
    })?;
    Ok(public)
}

/// A folder of our own for decrypted files, gone at the end.
pub(super) fn scratch(wanted: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("sluice-backup-");
    let made = match wanted {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    };
    made.map_err(|error| {
        Failure::new(Exit::Failed, "there is no scratch folder").why(io_words(&error)).hint("--scratch DIR")
    })
}

/// A log's public key from a file.
pub(super) fn public_key(path: &Path) -> Result<VerifierKey, Failure> {
    crate::commands::audit::read_key(path)
}
