//! The root key: read from its own file, a systemd credential, or a passphrase.
//!
//! Takes the configuration; gives the key. Promise: a file that others can read is refused, a key is created only for a
//! vault that never had one, and no error holds any part of a key or passphrase.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use sluice_core::Entropy;
use zeroize::Zeroizing;

use super::seal::RootKey;

/// The prefix of a key in a file.
const PREFIX: &str = "sgk_";
/// The name of the systemd credential.
pub const CREDENTIAL: &str = "sluice-root-key";
/// Memory in KiB, rounds and lanes of Argon2id.
pub const PASSPHRASE_COST: (u32, u32, u32) = (64 * 1024, 3, 1);
/// The length of a passphrase's salt, in bytes.
pub(super) const SALT: usize = 16;
/// The longest key or passphrase, in bytes.
const MOST: u64 = 4096;

/// The source of a root key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootKeySource {
    /// A file that holds the key, created on the first start.
    File(PathBuf),
    /// A credential provided by systemd.
    Credential(PathBuf),
    /// A file that holds a passphrase.
    Passphrase(PathBuf),
}

impl RootKeySource {
    /// The source that a configuration sets.
    #[must_use]
    pub fn of(config: &sluice_config::Config) -> Self {
        let vault = &config.vault;
        if let Some(path) = &vault.passphrase_file {
            return Self::Passphrase(path.clone());
        }
        if let Some(path) = &vault.key_file {
            return Self::File(path.clone());
        }
        match config.credentials.as_ref().map(|folder| folder.join(CREDENTIAL)).filter(|path| path.exists()) {
            Some(path) => Self::Credential(path),
            None => Self::File(config.data.join("keys").join("root.key")),
        }
    }

    /// The previous source, if the configuration names one.
    #[must_use]
    pub fn before(config: &sluice_config::Config) -> Option<Self> {
        let vault = &config.vault;
        vault.old_key_file.clone().map(Self::File).or_else(|| vault.old_passphrase_file.clone().map(Self::Passphrase))
    }

    /// A description without any secret.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::File(path) => format!("key file {}", path.display()),
            Self::Credential(path) => format!("systemd credential {}", path.display()),
            Self::Passphrase(path) => format!("passphrase in {}", path.display()),
        }
    }

    /// Whether a key exists at the source.
    #[must_use]
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) | Self::Credential(path) | Self::Passphrase(path) => path.exists(),
        }
    }

    /// Reads the key.
    ///
    /// # Errors
    /// Why it cannot be read, as a text that can be shown.
    pub fn read(&self, salt: &[u8]) -> Result<RootKey, String> {
        match self {
            Self::File(path) => {
                private(path)?;
                parse(&text(path)?, path)
            }
            // systemd itself controls who may read it.
            Self::Credential(path) => parse(&text(path)?, path),
            Self::Passphrase(path) => {
                private(path)?;
                let text = text(path)?;
                let phrase = text.trim_end_matches(['\r', '\n']);
                if phrase.chars().count() < 12 {
                    return Err(format!("the passphrase in {} has fewer than 12 characters", path.display()));
                }
                derive(phrase.as_bytes(), salt)
            }
        }
    }

    /// Creates a key. Only a key file can be created here, not a passphrase or credential.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn make(&self, entropy: &dyn Entropy) -> Result<RootKey, String> {
        match self {
            Self::File(path) => {
                let key = RootKey::generate(entropy);
                write(path, &key).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
                Ok(key)
            }
            Self::Credential(path) | Self::Passphrase(path) => Err(format!("{} does not exist", path.display())),
        }
    }
}

/// Writes a key to a new file, accessible to its owner only.
pub(super) fn write(path: &Path, key: &RootKey) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    let digits = Zeroizing::new(sluice_core::hex::encode(key.bytes()));
    let line = Zeroizing::new(format!("{PREFIX}{}\n", *digits));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    fs::File::open(folder)?.sync_all()
}

/// Refuses a file that others can access, or that belongs to another user.
fn private(path: &Path) -> Result<(), String> {
    let found = fs::metadata(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        return Err(format!("{} is open to others (mode {mode:03o}): chmod 600 it", path.display()));
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own && found.uid() != 0 {
        return Err(format!("{} belongs to another user", path.display()));
    }
    Ok(())
}

fn text(path: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut text = Zeroizing::new(String::with_capacity(256));
    fs::File::open(path).map_err(failed)?.take(MOST).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<RootKey, String> {
    let key = text.trim().strip_prefix(PREFIX).and_then(sluice_core::hex::decode::<32>);
    let key = key.ok_or_else(|| format!("{} does not hold a root key ({PREFIX} and 64 hex digits)", path.display()))?;
    Ok(RootKey::from_bytes(Zeroizing::new(key)))
}

fn derive(phrase: &[u8], salt: &[u8]) -> Result<RootKey, String> {
    passphrase_key(phrase, salt, PASSPHRASE_COST).map(RootKey::from_bytes)
}

/// Derives a key from a passphrase, at a cost: memory in KiB, rounds and lanes.
///
/// # Errors
/// When the cost or the salt cannot be used.
pub fn passphrase_key(
    phrase: &[u8],
    salt: &[u8],
    (memory, rounds, lanes): (u32, u32, u32),
) -> Result<Zeroizing<[u8; 32]>, String> {
    let failed = |error: argon2::Error| format!("the passphrase cannot be used: {error}");
    let params = Params::new(memory, rounds, lanes, Some(32)).map_err(failed)?;
    let mut key = Zeroizing::new([0; 32]);
    let kdf = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    kdf.hash_password_into(phrase, salt, key.as_mut_slice()).map_err(failed)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_testkit::ids::SeededEntropy;

    fn file(mode: u32, content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn no(answer: Result<RootKey, String>) -> String {
        answer.err().unwrap()
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let source = RootKeySource::File(folder.path().join("keys/root.key"));
        let key = source.make(&SeededEntropy::new(1)).unwrap_or_else(|why| panic!("{why}"));
        let path = folder.path().join("keys/root.key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(source.read(&[]).unwrap_or_else(|why| panic!("{why}")).fingerprint(), key.fingerprint());
        assert!(source.make(&SeededEntropy::new(2)).is_err(), "never over an existing one");
    }

    #[test]
    fn a_key_others_can_read_is_refused() {
        let key = format!("{PREFIX}{}", "ab".repeat(32));
        for mode in [0o640, 0o604, 0o660, 0o644, 0o610] {
            let (_folder, path) = file(mode, &key);
            assert!(no(RootKeySource::File(path.clone()).read(&[])).contains("open to others"), "{mode:o}");
            assert!(no(RootKeySource::Passphrase(path).read(&[7; SALT])).contains("open to others"), "{mode:o}");
        }
        let (_folder, path) = file(0o600, &key);
        assert!(RootKeySource::File(path).read(&[]).is_ok());
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_quoted() {
        for content in ["", "sgk_", "sgk_abc", "hunter2hunter2hunter2", &format!("sgk_{}", "zz".repeat(32))] {
            let (_folder, path) = file(0o600, content);
            let why = no(RootKeySource::File(path).read(&[]));
            assert!(why.contains("does not hold a root key") && !why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn a_passphrase_gives_the_same_key_with_the_same_salt() {
        let (_folder, path) = file(0o600, "correct horse battery staple\n");
        let source = RootKeySource::Passphrase(path);
        let key = |salt: u8| source.read(&[salt; SALT]).unwrap_or_else(|why| panic!("{why}")).fingerprint();
        assert_eq!(key(1), key(1));
        assert_ne!(key(1), key(2));
        let (_folder, path) = file(0o600, "short");
        assert!(no(RootKeySource::Passphrase(path).read(&[1; SALT])).contains("fewer than 12"));
    }
}
