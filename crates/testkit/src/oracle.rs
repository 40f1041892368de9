//! A simulated external service that counts and never forgets: files that outlive the process that writes them.
//!
//! Represents the mail or chat server of a crash test. Each effect is one `write(2)` to an append-only file or one
//! `rename(2)`, so a killed process has made it completely or not at all, and the page cache keeps it. Promise: every
//! effect it reports has happened, exactly as often as it says.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, Permit};
use sluice_core::{Digest, HoldId};
use sluice_store::LookupEvidence;

/// The service, seen from one process.
#[derive(Debug)]
pub struct OracleService {
    folder: PathBuf,
    log: File,
}

/// One effect that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleEffect {
    /// The held write that caused it.
    pub hold: HoldId,
    /// The digest of the bytes that were sent.
    pub digest: String,
}

impl OracleService {
    /// Opens the service in this folder, or creates it.
    ///
    /// # Panics
    /// When the folder cannot be used.
    #[must_use]
    pub fn open(folder: &Path) -> Self {
        for sub in ["handles", "consumed"] {
            fs::create_dir_all(folder.join(sub)).unwrap_or_else(|error| panic!("no service: {error}"));
        }
        Self { folder: folder.to_owned(), log: append_to(&folder.join("effects.log")) }
    }

    /// Creates a handle that holds the bytes to be sent and has no effect yet.
    ///
    /// # Panics
    /// When there is such a handle already.
    pub fn create_handle(&self, name: &str, digest: Digest) {
        // Renamed only when complete: no service would show a handle without its bytes.
        let draft = self.folder.join(format!("draft.{name}"));
        fs::write(&draft, digest.to_string()).unwrap_or_else(|error| panic!("no handle: {error}"));
        let named = fs::hard_link(&draft, self.folder.join("handles").join(name));
        named.unwrap_or_else(|error| panic!("no second handle {name}: {error}"));
        drop(fs::remove_file(draft));
    }

    /// Performs a write. For class B this consumes its handle, and returns `false` if that is gone.
    #[must_use]
    pub fn perform(&self, class: EffectClass, permit: &Permit) -> bool {
        match class {
            EffectClass::ConsumeOnce => permit.handle().is_some_and(|handle| self.consume(handle)),
            EffectClass::Absolute | EffectClass::Findable | EffectClass::Opaque => {
                let line = format!("effect {} {} {}\n", class.as_str(), permit.hold(), permit.action().digest());
                write_line(&self.log, &line);
                true
            }
        }
    }

    fn consume(&self, handle: &str) -> bool {
        let (inert, used) = (self.folder.join("handles").join(handle), self.folder.join("consumed").join(handle));
        match fs::rename(inert, used) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => panic!("the service broke: {error}"),
        }
    }

    /// The result of a lookup of an uncertain write, by the rule of its class.
    #[must_use]
    pub fn look(&self, hold: &Hold) -> LookupEvidence {
        let found = || self.happened().iter().any(|effect| effect.hold == hold.id);
        match (hold.class, &hold.handle) {
            (EffectClass::Absolute | EffectClass::Findable, _) if found() => applied("found"),
            (EffectClass::Absolute | EffectClass::Findable, _) => LookupEvidence::Absent,
            (EffectClass::ConsumeOnce, Some(handle)) if self.folder.join("consumed").join(handle).exists() => {
                applied(handle)
            }
            (EffectClass::ConsumeOnce, Some(handle)) if self.folder.join("handles").join(handle).exists() => {
                LookupEvidence::Absent
            }
            (EffectClass::ConsumeOnce, _) | (EffectClass::Opaque, _) => LookupEvidence::Inconclusive,
        }
    }

    /// All effects that ever happened.
    ///
    /// # Panics
    /// When a line is incomplete: then a single `write(2)` was torn, and no count can be trusted.
    #[must_use]
    pub fn happened(&self) -> Vec<OracleEffect> {
        let text = fs::read_to_string(self.folder.join("effects.log")).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "the last effect is torn");
        let said = text.lines().map(|line| match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["effect", _, hold, digest] => happened(hold, digest),
            _ => panic!("an effect nobody understands: {line}"),
        });
        let consumed = fs::read_dir(self.folder.join("consumed")).into_iter().flatten().flatten().map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let hold = name.split('.').next().unwrap_or_default();
            happened(hold, &fs::read_to_string(entry.path()).unwrap_or_default())
        });
        said.chain(consumed).collect()
    }
}

fn happened(hold: &str, digest: &str) -> OracleEffect {
    let hold = hold.parse().unwrap_or_else(|error| panic!("an effect for `{hold}`: {error}"));
    OracleEffect { hold, digest: digest.to_owned() }
}

fn applied(receipt: &str) -> LookupEvidence {
    LookupEvidence::Applied { receipt: receipt.to_owned(), result: None, after: None, service_until: None }
}

/// A file that is only appended to.
pub(crate) fn append_to(path: &Path) -> File {
    let file = File::options().create(true).append(true).open(path);
    file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes one line with one `write(2)`: completely or not at all.
pub(crate) fn write_line(mut file: &File, line: &str) {
    let written = file.write(line.as_bytes());
    assert!(written.is_ok_and(|count| count == line.len()), "a line was not written whole");
}
