//! The archive of the audit log: segments of it as files, each of which verifies by itself.
//!
//! Takes a store and a segment of one of its logs; gives a folder with the three files of an export, the entries compressed
//! with gzip. Promise: a segment has its name only once it is whole, on disk, and was read back and verified with the log's key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use sluice_core::NodeName;
use sluice_core::audit::export::{
    AuditExportFormat, AuditExportHeader, AuditExportStart, CHECKPOINTS, ENTRIES, LOG, write_checkpoint, write_entry,
};
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::tree::TreeFrontier;
use sluice_core::audit::verify::{AuditExport, VerificationReport, VerifierTrust, VerifyError, verify};
use sluice_store::{LogSegment, Store, StoreError};

/// The folder of the archive in the data folder.
pub const FOLDER: &str = "archive";
/// File of the entries of a segment.
pub const PACKED_ENTRIES: &str = "entries.jsonl.gz";
/// Name prefix of a segment that is not complete yet.
const PARTIAL: &str = ".partial-";
/// Entries and checkpoints that are read at once.
const PAGE: u32 = 1_000;
/// Largest `log.json` that is read.
const LARGEST_LOG: u64 = 1 << 20;

/// Why a segment was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The database cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be written or read.
    #[error("the archive cannot be written: {0}")]
    File(#[from] io::Error),
    /// The entries are not what was signed.
    #[error("a segment does not verify: {0}")]
    Verify(#[from] VerifyError),
    /// The segment verifies but is not the requested one.
    #[error("a segment does not end at the entry that was signed")]
    OtherEnd,
}

/// The folder with the segments of a log.
#[must_use]
pub fn folder_of(data: &Path, log: &NodeName) -> PathBuf {
    data.join(FOLDER).join(log.as_str().replace('/', "-"))
}

/// Every whole segment in a folder, in the order of their entries.
///
/// # Errors
/// When the folder cannot be read.
pub fn segments(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.join(LOG).is_file() && !name_of(&path).starts_with(PARTIAL) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The entries of an export or a segment, decompressed where they are compressed.
///
/// # Errors
/// When there are none.
pub fn open_entries(folder: &Path) -> io::Result<Box<dyn BufRead>> {
    const AHEAD: usize = 1 << 20;
    match File::open(folder.join(ENTRIES)) {
        Ok(file) => Ok(Box::new(BufReader::with_capacity(AHEAD, file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match File::open(folder.join(PACKED_ENTRIES)) {
            Ok(file) => Ok(Box::new(BufReader::with_capacity(AHEAD, MultiGzDecoder::new(file)))),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Verifies an export or a segment.
///
/// # Errors
/// With the first fault, or when a file cannot be read.
pub fn verify_folder(folder: &Path, trust: &VerifierTrust) -> Result<VerificationReport, VerifyError> {
    let mut log = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(folder.join(LOG))?, LARGEST_LOG), &mut log)?;
    let checkpoints = BufReader::new(File::open(folder.join(CHECKPOINTS))?);
    verify(AuditExport { log: &log, entries: open_entries(folder)?, checkpoints }, trust)
}

/// Writes a segment to a folder of its own in `folder`, verifies it, and returns the record that replaces its entries
/// when the log is pruned.
///
/// # Errors
/// When the database cannot be read, the files cannot be written, or what was written does not verify.
pub async fn write(
    store: &Store,
    segment: &LogSegment,
    key: &VerifierKey,
    folder: &Path,
) -> Result<AuditExportStart, ArchiveError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let head: String = segment.head.to_string().chars().take(8).collect();
    let name = format!("{:012}-{:012}-{head}", segment.first(), segment.end);
    let (whole, partial) = (folder.join(&name), folder.join(format!("{PARTIAL}{name}")));
    // What a crash left behind, of this segment or of an earlier one.
    for left in fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path()) {
        if name_of(&left).starts_with(PARTIAL) {
            fs::remove_dir_all(&left)?;
        }
    }
    for left in segments(folder)?.iter().filter(|left| name_of(left).starts_with(&format!("{:012}-", segment.first())))
    {
        if was_interrupted(store, segment, left).await? {
            fs::remove_dir_all(left)?;
        }
    }
    DirBuilder::new().mode(0o700).create(&partial)?;
    let start = write_entries(store, segment, &partial).await?;
    write_checkpoints(store, segment, &partial).await?;
    let about = AuditExportHeader {
        form: AuditExportFormat::V1,
        key: key.clone(),
        log: segment.log.clone(),
        size: segment.end,
        start: segment.start.clone(),
    };
    let mut file = create(&partial.join(LOG))?;
    file.write_all(&about.to_bytes())?;
    file.sync_all()?;
    check(&partial, segment, key).await?;
    fs::rename(&partial, &whole)?;
    for folder in [whole.as_path(), folder] {
        File::open(folder)?.sync_all()?;
    }
    Ok(start)
}

/// Whether a crash before the log was pruned left a segment with the same first entry: it holds the
/// beginning of what is archived now. A segment of another history, from before a restore, stays.
async fn was_interrupted(store: &Store, segment: &LogSegment, left: &Path) -> Result<bool, ArchiveError> {
    let log = AuditExportHeader::parse(&fs::read(left.join(LOG))?).ok();
    let Some(last) = log.and_then(|log| log.size.checked_sub(1)).filter(|last| *last < segment.end) else {
        return Ok(false);
    };
    let page = store.entries(segment.log.clone(), last, 1).await?;
    let hash = page.first().filter(|entry| entry.seq == last).map(|entry| entry.hash.to_string());
    Ok(hash.is_some_and(|hash| name_of(left).ends_with(&format!("-{}", hash.get(..8).unwrap_or_default()))))
}

async fn write_entries(store: &Store, segment: &LogSegment, to: &Path) -> Result<AuditExportStart, ArchiveError> {
    let mut out = GzEncoder::new(BufWriter::new(create(&to.join(PACKED_ENTRIES))?), Compression::default());
    let mut frontier = segment.start.as_ref().map_or_else(TreeFrontier::new, |start| start.frontier.clone());
    let (mut next, mut start) = (segment.first(), None);
    while next < segment.end {
        let page = store.entries(segment.log.clone(), next, PAGE).await?;
        for entry in page.iter().take_while(|entry| entry.seq < segment.end) {
            write_entry(&mut out, &entry.hash, &entry.body)?;
            frontier.push(entry.hash);
            if frontier.size() == segment.prunable() {
                start = Some(AuditExportStart { frontier: frontier.clone(), head: entry.hash });
            }
        }
        if frontier.size() == next {
            return Err(StoreError::Damaged { detail: format!("entry {next} is missing") }.into());
        }
        next = frontier.size();
    }
    out.finish()?.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    start.ok_or(ArchiveError::OtherEnd)
}

/// Every checkpoint over entries of the segment, with what witnesses cosigned.
async fn write_checkpoints(store: &Store, segment: &LogSegment, to: &Path) -> Result<(), ArchiveError> {
    let mut out = BufWriter::new(create(&to.join(CHECKPOINTS))?);
    let mut after = segment.first();
    loop {
        let page = store.checkpoints_after(segment.log.clone(), after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.size;
        for signed in page.iter().take_while(|signed| signed.size <= segment.end) {
            let mut note = signed.note.to_string();
            for line in store.cosignatures(segment.log.clone(), signed.size).await? {
                note.push_str(line.trim_end());
                note.push('\n');
            }
            // If a cosignature does not fit under its note, the note is kept without it.
            write_checkpoint(&mut out, &SignedNote::parse(note.as_bytes()).unwrap_or_else(|_| signed.note.clone()))?;
        }
        if after >= segment.end {
            break;
        }
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}

/// Reads a segment back and checks that it is complete and signed to its end.
async fn check(folder: &Path, segment: &LogSegment, key: &VerifierKey) -> Result<(), ArchiveError> {
    let trust =
        VerifierTrust { key: Some(key.clone()), anchors: Vec::new(), threads: Some(std::num::NonZero::<usize>::MIN) };
    let path = folder.to_path_buf();
    let report = tokio::task::spawn_blocking(move || verify_folder(&path, &trust)).await;
    let report = report.map_err(io::Error::other)??;
    let is_whole = report.tree.size == segment.end && report.head == segment.head && report.uncovered == 0;
    if is_whole { Ok(()) } else { Err(ArchiveError::OtherEnd) }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
