//! `sluice audit export`: one log, or every log of every node, as plain files.
//!
//! Takes the record as a gateway or a database file has it; gives three files for each log. Promise: an export is never written over
//! another one, and a key that the asked node does not know first-hand is said to be one.

use std::path::{Path, PathBuf};

use clap::Args;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::export::{CHECKPOINTS, LOG};
use sluice_core::audit::key::VerifierKey;

use super::source::{self, Log, Source};
use super::{AS_TOLD, Which, no_key, read_key};
use crate::client::Reach;
use crate::export::{ExportFiles, Writer};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Write a log out as three plain files that verify anywhere.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit export --out ./export\n  \
    sluice audit export --data ./data --key audit.pub --out ./export")]
pub(crate) struct ExportTo {
    #[command(flatten)]
    which: Which,
    /// File with the log's public key; otherwise the one the gateway or the data folder names
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where to write; made if it is not there, and must not hold an export already
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Every log of the record, of every node, each in a folder of its own
    #[arg(long, conflicts_with = "log")]
    all: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl ExportTo {
    pub(super) fn run(self, reach: &Reach, screen: &Screen) -> Result<Exit, Failure> {
        let named = self.key.as_deref().map(read_key).transpose()?;
        let source = source::open(reach, self.which.data.as_deref(), screen)?;
        if !self.all {
            let log = source.pick(self.which.log.as_ref())?;
            self.write(&source, (log, named.as_ref()), &self.out, screen)?;
            return Ok(Exit::Ok);
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
        // The rest is written; that it is not all must not be overlooked.
        without_key.map_or(Ok(Exit::Ok), Err)
    }

    /// Writes one log to a folder.
    fn write(
        &self,
        source: &Source,
        (log, named): (Log, Option<&VerifierKey>),
        out: &Path,
        screen: &Screen,
    ) -> Result<(), Failure> {
        if named.is_none() && log.key.is_some() && !log.is_own {
            screen.note(format_args!("{} is another node's log: {}", log.name, AS_TOLD));
        }
        let (log, key) = (log.name.clone(), named.cloned().or(log.key).ok_or_else(|| no_key(&log.name))?);
        if key.name() != origin(&log) {
            return Err(Failure::new(Exit::Usage, format!("the key is not the key of {log}"))
                .why(format!("it signs as `{}`", key.name())));
        }
        if out.join(LOG).exists() || out.join(CHECKPOINTS).exists() {
            return Err(Failure::new(Exit::Conflict, format!("`{}` holds an export already", out.display()))
                .hint("name another folder; exports are evidence and are not overwritten"));
        }
        let failed = |error: anyhow::Error| {
            Failure::new(Exit::Failed, "the export could not be written").why(format!("{error:#}"))
        };
        let mut writer = Writer::create(&ExportFiles::in_folder(out).map_err(failed)?).map_err(failed)?;
        let (mut signed, mut checkpoints) = (0, 0_u64);
        // The checkpoints first: an entry appended meanwhile is then merely not covered yet.
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
            page.iter().try_for_each(|entry| writer.entry(entry)).map_err(failed)?;
        }
        let size = writer.finish(log.clone(), key).map_err(failed)?;
        if self.json {
            screen
                .json(&serde_json::json!({"log": log, "entries": size, "signed": signed, "checkpoints": checkpoints,
                "folder": out}))?;
        } else {
            screen.note(format_args!("wrote {size} entries of {log} to {}, {signed} of them signed", out.display()));
        }
        Ok(())
    }
}
