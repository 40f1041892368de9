//! Writing an audit export: three plain files that verify without us.
//!
//! Takes a store and a log; gives a folder. The forms are those of `docs/audit.md`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sluice_core::NodeName;
use sluice_core::audit::export::{CHECKPOINTS, ENTRIES, Form, LOG, Log, write_checkpoint, write_entry};
use sluice_core::audit::key::VerifierKey;
use sluice_store::Store;

/// How many entries are read at once.
const PAGE: u32 = 4096;
/// The largest `log.json` that is read.
const MAX_LOG: u64 = 1 << 20;

/// Where the three files of an export are.
#[derive(Debug, Clone)]
pub struct ExportFiles {
    /// `log.json`.
    pub log: PathBuf,
    /// `entries.jsonl`.
    pub entries: PathBuf,
    /// `checkpoints.txt`.
    pub checkpoints: PathBuf,
}

impl ExportFiles {
    /// The files of a folder, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        Ok(Self::of(folder))
    }

    /// The files of a folder that should be there.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self { log: folder.join(LOG), entries: folder.join(ENTRIES), checkpoints: folder.join(CHECKPOINTS) }
    }

    /// The bytes of `log.json`.
    ///
    /// # Errors
    /// When it cannot be read, or is larger than such a file can be.
    pub fn read_log(&self) -> anyhow::Result<Vec<u8>> {
        let file = File::open(&self.log).with_context(|| format!("cannot read `{}`", self.log.display()))?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_LOG), &mut bytes)?;
        Ok(bytes)
    }
}

/// Writes a log out. Gives how many entries it has.
///
/// # Errors
/// When the store cannot be read or the files cannot be written.
pub async fn write(store: &Store, log: NodeName, key: VerifierKey, files: &ExportFiles) -> anyhow::Result<u64> {
    // The checkpoints first: an entry appended meanwhile is then merely not covered yet.
    let mut notes = create(&files.checkpoints)?;
    for signed in store.checkpoints(log.clone()).await? {
        write_checkpoint(&mut notes, &signed.note)?;
    }
    finish(notes)?;
    let mut lines = create(&files.entries)?;
    let mut size = 0;
    loop {
        let page = store.entries(log.clone(), size, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for entry in &page {
            write_entry(&mut lines, &entry.hash, &entry.body)?;
        }
        size += page.len() as u64;
    }
    finish(lines)?;
    let mut about = create(&files.log)?;
    about.write_all(&Log { form: Form::V1, key, log, size, start: None }.to_bytes())?;
    finish(about)?;
    Ok(size)
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).with_context(|| format!("cannot write `{}`", path.display()))
}

fn finish(file: BufWriter<File>) -> anyhow::Result<()> {
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}
