//! `sluice audit export`: exports one log, or the logs of all nodes, as plain files.
//!
//! Takes the audit log of a gateway or a database file; gives three files for each log. Promise: an export never
//! overwrites another one, and the command says when the responding node knows a key only from another node.

use std::path::{Path, PathBuf};

use clap::Args;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::export::{CHECKPOINTS, LOG};
use sluice_core::audit::key::VerifierKey;

use super::source::{self, AuditLogSource, SourcedAuditLog};
use super::{ARCHIVE_HINT, AS_TOLD, AuditSourceArgs, no_key, read_key};
use crate::client::GatewayArgs;
use crate::console::CommandConsole;
use crate::export::{AuditExportWriter, ExportFiles};
use crate::failure::{CliError, CommandExit};

/// Export a log as three plain files that can be verified anywhere.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit export --out ./export\n  \
    sluice audit export --data ./data --key audit.pub --out ./export")]
pub(crate) struct AuditExportArgs {
    #[command(flatten)]
    which: AuditSourceArgs,
    /// File with the log's public key; default: the key from the gateway or the data folder
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Folder to write to; created if it does not exist, must not contain an export
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Export the logs of all nodes, each to a folder of its own
    #[arg(long, conflicts_with = "log")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditExportArgs {
    pub(super) fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let named = self.key.as_deref().map(read_key).transpose()?;
        let source = source::open(reach, self.which.data.as_deref(), screen)?;
        if !self.all {
            let log = source.pick(self.which.log.as_ref())?;
            self.write(&source, (log, named.as_ref()), &self.out, screen)?;
            return Ok(CommandExit::Ok);
        }
        let mut without_key = None;
        for log in source.logs()?.into_iter().filter(|log| log.head.size > 0) {
            let named = named.as_ref().filter(|named| named.name() == origin(&log.name));
            if named.is_none() && log.key.is_none() {
                without_key.get_or_insert(no_key(&log.name));
                continue;
            }
            let folder = self.out.join(log.name.as_str().replace('/', "-"));
            self.write(&source, (log, named), &folder, screen)?;
        }
        // The other logs are written; that one is missing must not be overlooked.
        without_key.map_or(Ok(CommandExit::Ok), Err)
    }

    /// Writes one log to a folder.
    fn write(
        &self,
        source: &AuditLogSource,
        (log, named): (SourcedAuditLog, Option<&VerifierKey>),
        out: &Path,
        screen: &CommandConsole,
    ) -> Result<(), CliError> {
        if named.is_none() && log.key.is_some() && !log.is_own {
            screen.note(format_args!("{} is another node's log: {}", log.name, AS_TOLD));
        }
        let (start, head) = (log.start.clone(), log.head.size);
        let (log, key) = (log.name.clone(), named.cloned().or(log.key).ok_or_else(|| no_key(&log.name))?);
        if key.name() != origin(&log) {
            return Err(CliError::new(CommandExit::Usage, format!("the key does not belong to {log}"))
                .why(format!("it signs as `{}`", key.name())));
        }
        if out.join(LOG).exists() || out.join(CHECKPOINTS).exists() {
            return Err(CliError::new(
                CommandExit::Conflict,
                format!("`{}` already contains an export", out.display()),
            )
            .hint("choose another folder; exports are evidence and are not overwritten"));
        }
        let failed = |error: anyhow::Error| {
            CliError::new(CommandExit::Failed, "the export could not be written").why(format!("{error:#}"))
        };
        let mut writer =
            AuditExportWriter::create(&ExportFiles::in_folder(out).map_err(failed)?, start).map_err(failed)?;
        let first = writer.size();
        let progress = screen.progress("exporting", Some(head));
        let (mut signed, mut checkpoints) = (first, 0_u64);
        // The checkpoints first: an entry that is appended meanwhile is then just not covered yet.
        loop {
            let page = source.checkpoints(&log, signed)?;
            let Some((size, _)) = page.last() else { break };
            signed = *size;
            for (_, note) in &page {
                writer.checkpoint(note).map_err(failed)?;
                checkpoints += 1;
            }
        }
        loop {
            let page = source.entries(&log, writer.size(), u32::MAX)?;
            if page.is_empty() {
                break;
            }
            if page.first().is_some_and(|entry| entry.seq != writer.size()) {
                return Err(CliError::new(
                    CommandExit::Conflict,
                    format!("entry #{} of {log} is missing", writer.size()),
                )
                .why("it was archived while the export was written, or the log is damaged")
                .hint("export again to another folder; if it is still missing: sluice audit verify"));
            }
            page.iter().try_for_each(|entry| writer.entry(entry)).map_err(failed)?;
            progress.reached(writer.size(), None);
        }
        drop(progress);
        let size = writer.finish(log.clone(), key).map_err(failed)?;
        if self.json {
            screen.json(
                &serde_json::json!({"log": log, "first": first, "entries": size - first, "signed": signed - first,
                "checkpoints": checkpoints, "folder": out}),
            )?;
        } else {
            let (written, signed) = (size - first, signed - first);
            screen.note(format_args!("wrote {written} entries of {log} to {}, {signed} of them signed", out.display()));
        }
        if first > 0 && !self.json {
            screen.note(format_args!("entries before #{first} are in the gateway's archive; {ARCHIVE_HINT}"));
        }
        Ok(())
    }
}
