//! `sluice audit verify --archive`: verifies the segments of an archived log in order.
//!
//! Takes the folder of a log in the archive; gives how far its segments reach. Promise: each segment is verified, and
//! must begin exactly where the one before ended, so that no segment can be left out or exchanged.

use std::path::{Path, PathBuf};

use sluice_core::audit::export::AuditExportHeader;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::verify::{VerificationReport, VerifierTrust, VerifyError};
use sluice_core::audit::{ChainHead, checkpoint::Checkpoint};
use sluice_gateway::archive;

use super::{expected_checkpoints, none_of, read_small, unreadable};
use crate::console::CommandConsole;
use crate::export::ExportFiles;
use crate::failure::{CliError, CommandExit};

/// Verifies every segment of an archived log.
pub(super) fn verify(
    folder: &Path,
    trust: &VerifierTrust,
    kept: &[SignedNote],
    (json, screen): (bool, &CommandConsole),
) -> Result<CommandExit, CliError> {
    let found = archive::segments(folder).map_err(|error| unreadable(folder, &error))?;
    if found.is_empty() {
        return Err(CliError::new(
            CommandExit::NotFound,
            format!("`{}` contains no archived segment", folder.display()),
        )
        .hint("give the folder of one log: DATA/archive/LOG"));
    }
    let kept = [trust.anchors.as_slice(), kept].concat();
    let mut compared = 0;
    let mut verified: Vec<(PathBuf, VerificationReport)> = Vec::new();
    for segment in found {
        let log = read_small(&ExportFiles::of(&segment).log)?;
        let log =
            AuditExportHeader::parse(&log).map_err(|error| not_verified(&segment, error.code(), &error.to_string()))?;
        if let Some((_, before)) = verified.last() {
            follows(&segment, &log, before)?;
        }
        let anchors = within(&log, &kept);
        compared += anchors.len();
        let trust = VerifierTrust { anchors, ..trust.clone() };
        let report = archive::verify_folder(&segment, &trust).map_err(|error| match error {
            VerifyError::Read(error) => unreadable(&segment, &error),
            error => not_verified(&segment, error.code(), &error.to_string()),
        })?;
        if report.uncovered > 0 {
            return Err(not_verified(&segment, "audit.truncated", "no checkpoint covers its last entries"));
        }
        verified.push((segment, report));
    }
    if let (0, false, Some((_, last))) = (compared, kept.is_empty(), verified.last()) {
        return Err(none_of(&format!("these segments of {}", last.log)));
    }
    if compared < kept.len() {
        let left = kept.len() - compared;
        screen.note(format_args!(
            "{left} of the checkpoints cover entries that are in no segment here and were not compared"
        ));
    }
    show(&verified, (json, screen))?;
    Ok(CommandExit::Ok)
}

/// Checks that a segment begins where the one before ended.
fn follows(segment: &Path, log: &AuditExportHeader, before: &VerificationReport) -> Result<(), CliError> {
    let root = log.start.as_ref().map(|start| start.frontier.root());
    let end = ChainHead { size: before.tree.size, hash: before.head };
    if log.log == before.log && log.head_before_export() == end && root == Some(before.tree.root) {
        return Ok(());
    }
    let why = format!(
        "it begins at entry #{}, and the segment before ends with #{}",
        log.head_before_export().size,
        end.size - 1
    );
    Err(not_verified(segment, "audit.missing", &why))
}

/// The checkpoints that cover entries of this segment.
fn within(log: &AuditExportHeader, kept: &[SignedNote]) -> Vec<SignedNote> {
    let covers = |note: &SignedNote| Checkpoint::parse(note.text_unverified()).map(|checkpoint| checkpoint.tree.size);
    let mut own = expected_checkpoints::of_log(kept, &log.log);
    own.retain(|note| covers(note).is_ok_and(|size| log.head_before_export().size < size && size <= log.size));
    own
}

fn show(verified: &[(PathBuf, VerificationReport)], (json, screen): (bool, &CommandConsole)) -> Result<(), CliError> {
    let (Some((_, first)), Some((_, last))) = (verified.first(), verified.last()) else { return Ok(()) };
    let anchored = verified.iter().filter_map(|(_, report)| report.anchored).max();
    if json {
        let segments = verified.iter().map(|(folder, report)| {
            serde_json::json!({"folder": folder, "first": report.first, "entries": report.entries, "head": report.head})
        });
        return Ok(screen.json(&serde_json::json!({
            "verified": true, "log": last.log, "first": first.first, "end": last.tree.size, "head": last.head,
            "key": last.key.to_string(), "key_known": last.key_known, "anchored": anchored,
            "segments": segments.collect::<Vec<_>>(),
        }))?);
    }
    screen.line(format_args!("log          {}", last.log))?;
    screen.line(format_args!("segments     {}", verified.len()))?;
    screen.line(format_args!("entries      #{} to #{}, all signed", first.first, last.tree.size - 1))?;
    screen.line(format_args!("head         {}", last.head))?;
    screen.line(format_args!("key          {}", last.key))?;
    if let Some(anchored) = anchored {
        screen.line(format_args!("anchored     the first {anchored} entries match a checkpoint you kept"))?;
    }
    if first.first > 0 {
        screen.note(format_args!("the segments before entry #{} are not in this folder", first.first));
    }
    if last.key_known {
        screen.line("verified: every archived entry matches its signature by the key you gave")?;
    } else {
        screen.line("consistent: the segments have no contradictions")?;
        screen.note("no key was given; use --key with what `sluice audit key` printed when the log was created");
    }
    Ok(())
}

fn not_verified(segment: &Path, code: &str, why: &str) -> CliError {
    CliError::new(CommandExit::NotVerified, format!("the segment `{}` does not verify ({code})", segment.display()))
        .why(why)
        .hint("keep it and compare it with a copy; docs/audit.md explains each code")
}
