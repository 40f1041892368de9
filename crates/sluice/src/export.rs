//! Writing an audit export: three plain files that verify without us.
//!
//! Takes a store and a log; gives a folder. The forms are those of `docs/audit.md`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sluice_core::NodeName;
use sluice_core::audit::Sealed;
use sluice_core::audit::export::{CHECKPOINTS, ENTRIES, Form, LOG, Log, write_checkpoint, write_entry};
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::Note;
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

/// An export that is being written: checkpoints first, so that an entry appended meanwhile is merely not covered yet.
#[derive(Debug)]
pub struct Writer {
    files: ExportFiles,
    checkpoints: BufWriter<File>,
    entries: BufWriter<File>,
    size: u64,
}

impl Writer {
    /// Begins the files.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn create(files: &ExportFiles) -> anyhow::Result<Self> {
        let (checkpoints, entries) = (create(&files.checkpoints)?, create(&files.entries)?);
        Ok(Self { files: files.clone(), checkpoints, entries, size: 0 })
    }

    /// The next checkpoint.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&mut self, note: &Note) -> anyhow::Result<()> {
        Ok(write_checkpoint(&mut self.checkpoints, note)?)
    }

    /// The next entry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn entry(&mut self, entry: &Sealed) -> anyhow::Result<()> {
        write_entry(&mut self.entries, &entry.hash, &entry.body)?;
        self.size += 1;
        Ok(())
    }

    /// How many entries it has.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Says what it is an export of. Gives how many entries it has.
    ///
    /// # Errors
    /// When the files cannot be written to the end.
    pub fn finish(self, log: NodeName, key: VerifierKey) -> anyhow::Result<u64> {
        let Self { files, checkpoints, entries, size } = self;
        finish(checkpoints)?;
        finish(entries)?;
        let mut about = create(&files.log)?;
        about.write_all(&Log { form: Form::V1, key, log, size, start: None }.to_bytes())?;
        finish(about)?;
        Ok(size)
    }
}

/// Writes a log of a store out. Gives how many entries it has.
///
/// # Errors
/// When the store cannot be read or the files cannot be written.
pub async fn write(store: &Store, log: NodeName, key: VerifierKey, files: &ExportFiles) -> anyhow::Result<u64> {
    let mut writer = Writer::create(files)?;
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
