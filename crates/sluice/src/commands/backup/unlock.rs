//! Passphrases, recipients and identities from the command line. None of them is ever printed.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_core::audit::key::VerifierKey;
use sluice_gateway::backup::{BackupKey, BackupLock, new_identity};
use zeroize::Zeroizing;

use super::failed;
use crate::commands::secrets;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::system::SystemEntropy;

/// How a new backup is locked.
#[derive(Debug, Args)]
pub(super) struct BackupRecipientArgs {
    /// File with the passphrase; default: read from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "recipient")]
    passphrase_file: Option<PathBuf>,
    /// Public key of the recipient that can open it, instead of a passphrase: sluice backup key
    #[arg(long, value_name = "KEY")]
    recipient: Option<String>,
}

/// How a backup is opened.
#[derive(Debug, Args)]
pub(super) struct BackupUnlockArgs {
    /// File with the passphrase; default: read from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "identity")]
    passphrase_file: Option<PathBuf>,
    /// File with the secret key of the recipient, instead of a passphrase
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl BackupRecipientArgs {
    pub(super) fn lock(&self) -> Result<BackupLock, CliError> {
        match &self.recipient {
            Some(key) => BackupLock::recipient(key).map_err(failed),
            None => {
                let text = Zeroizing::new(secrets::value(self.passphrase_file.as_deref())?);
                BackupLock::passphrase(text).map_err(failed)
            }
        }
    }
}

impl BackupUnlockArgs {
    pub(super) fn key(&self) -> Result<BackupKey, CliError> {
        match &self.identity {
            Some(path) => BackupKey::identity(&Zeroizing::new(secrets::value(Some(path))?)).map_err(failed),
            None => {
                let text = secrets::value(self.passphrase_file.as_deref())?;
                Ok(BackupKey::Passphrase(Zeroizing::new(text)))
            }
        }
    }
}

/// Creates a recipient key: the secret key in a file, the public key as text.
pub(super) fn new_key(out: &Path) -> Result<String, CliError> {
    let (secret, public) = new_identity(&SystemEntropy);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(out);
    let written = file.and_then(|mut file| {
        file.write_all(Zeroizing::new(format!("{}\n", *secret)).as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        CliError::new(CommandExit::Failed, format!("`{}` cannot be written", out.display()))
            .why(describe_io_error(&error))
    })?;
    Ok(public)
}

/// Creates a private folder for decrypted files, removed at the end.
pub(super) fn scratch(wanted: Option<&Path>) -> Result<tempfile::TempDir, CliError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("sluice-backup-");
    let made = match wanted {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    };
    made.map_err(|error| {
        CliError::new(CommandExit::Failed, "no temporary folder can be created")
            .why(describe_io_error(&error))
            .hint("choose another folder: --scratch DIR")
    })
}

/// Reads a log's public key from a file.
pub(super) fn public_key(path: &Path) -> Result<VerifierKey, CliError> {
    crate::commands::audit::read_key(path)
}
