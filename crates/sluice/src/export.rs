//! Writes an audit export: three plain files that can be verified without us.
//!
//! Takes a store and a log; gives a folder. The file formats are in `docs/audit.md`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sluice_core::NodeName;
use sluice_core::audit::SealedAuditEntry;
use sluice_core::audit::export::{
    AuditExportFormat, AuditExportHeader, AuditExportStart, CHECKPOINTS, ENTRIES, LOG, write_checkpoint, write_entry,
};
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_store::Store;

/// How many entries are read at once.
const PAGE: u32 = 4096;
/// The largest `log.json` that is read.
const MAX_LOG: u64 = 1 << 20;

/// The paths of the three files of an export.
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
    /// The files of a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        Ok(Self::of(folder))
    }

    /// The files in an existing folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self { log: folder.join(LOG), entries: folder.join(ENTRIES), checkpoints: folder.join(CHECKPOINTS) }
    }

    /// Reads `log.json`.
    ///
    /// # Errors
    /// When it cannot be read, or is too large.
    pub fn read_log(&self) -> anyhow::Result<Vec<u8>> {
        let file = File::open(&self.log).with_context(|| format!("cannot read `{}`", self.log.display()))?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_LOG), &mut bytes)?;
        Ok(bytes)
    }
}

/// An export that is being written: checkpoints first, so that an entry appended meanwhile is just not covered yet.
#[derive(Debug)]
pub struct AuditExportWriter {
    files: ExportFiles,
    checkpoints: BufWriter<File>,
    entries: BufWriter<File>,
    start: Option<AuditExportStart>,
    size: u64,
}

impl AuditExportWriter {
    /// Creates the files. `start` replaces the archived entries.
    ///
    /// # Errors
    /// When they cannot be created.
    pub fn create(files: &ExportFiles, start: Option<AuditExportStart>) -> anyhow::Result<Self> {
        let (checkpoints, entries) = (create(&files.checkpoints)?, create(&files.entries)?);
        let size = start.as_ref().map_or(0, |start| start.frontier.size());
        Ok(Self { files: files.clone(), checkpoints, entries, start, size })
    }

    /// Writes the next checkpoint.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&mut self, note: &SignedNote) -> anyhow::Result<()> {
        Ok(write_checkpoint(&mut self.checkpoints, note)?)
    }

    /// Writes the next entry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn entry(&mut self, entry: &SealedAuditEntry) -> anyhow::Result<()> {
        write_entry(&mut self.entries, &entry.hash, &entry.body)?;
        self.size += 1;
        Ok(())
    }

    /// How many entries the log has so far, including archived ones.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Writes `log.json`. Returns how many entries the log has, including archived ones.
    ///
    /// # Errors
    /// When the files cannot be completed.
    pub fn finish(self, log: NodeName, key: VerifierKey) -> anyhow::Result<u64> {
        let Self { files, checkpoints, entries, start, size } = self;
        finish(checkpoints)?;
        finish(entries)?;
        let mut about = create(&files.log)?;
        about.write_all(&AuditExportHeader { form: AuditExportFormat::V1, key, log, size, start }.to_bytes())?;
        finish(about)?;
        Ok(size)
    }
}

/// Exports a log of a store, without its archived entries. Returns how many entries it has.
///
/// # Errors
/// When the store cannot be read or the files cannot be written.
pub async fn write(store: &Store, log: NodeName, key: VerifierKey, files: &ExportFiles) -> anyhow::Result<u64> {
    let start = store.pruned_log(log.clone()).await?.map(|pruned| pruned.start);
    let mut writer = AuditExportWriter::create(files, start)?;
    for signed in store.checkpoints(log.clone()).await? {
        writer.checkpoint(&signed.note)?;
    }
    loop {
        let page = store.entries(log.clone(), writer.size(), PAGE).await?;
        if page.is_empty() {
            break;
        }
        page.iter().try_for_each(|entry| writer.entry(entry))?;
    }
    writer.finish(log, key)
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).with_context(|| format!("cannot write `{}`", path.display()))
}

fn finish(file: BufWriter<File>) -> anyhow::Result<()> {
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}
