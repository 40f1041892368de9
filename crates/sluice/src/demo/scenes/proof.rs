//! The audit log, and the totals.

use anyhow::{Context as _, ensure};
use sluice_core::audit::key::SecretKey;
use sluice_core::audit::verify::{AuditExport, VerifierTrust, VerifyError, verify};
use sluice_gateway::loops::housekeeping;

use super::super::gateway::DemoGateway;
use super::SceneOutput;
use crate::export::{self, ExportFiles};

/// Verifies the audit log, and a copy with one changed byte. The gateway has stopped: no entries are added any more.
pub fn proof(out: SceneOutput<'_>, stage: &mut DemoGateway) -> anyhow::Result<()> {
    stage.close()?;
    stage.wait(housekeeping::checkpoint(&stage.gw, 1)).map_err(|no| anyhow::anyhow!("{}", no.refusal))?;
    let files = ExportFiles::in_folder(&stage.folder().join("export"))?;
    let secret = std::fs::read_to_string(stage.folder().join("keys/audit.key"))?;
    let key = SecretKey::parse(secret.trim())?.public().clone();
    std::fs::write(stage.folder().join("audit.pub"), format!("{key}\n"))?;
    let log = stage.gw.store.node().clone();
    let size = stage.wait(export::write(&stage.gw.store, log, key.clone(), &files))?;
    let trust = VerifierTrust { key: Some(key), ..VerifierTrust::default() };

    let (about, entries, notes) =
        (files.read_log()?, std::fs::read(&files.entries)?, std::fs::read(&files.checkpoints)?);
    let untouched = AuditExport { log: &about, entries: entries.as_slice(), checkpoints: notes.as_slice() };
    let report = verify(untouched, &trust)?;
    ensure!(report.covered == size && report.uncovered == 0, "not everything is covered");
    writeln!(out, "10 PROOF      audit log: {size} entries, chained, in a signed tree    verified ✓")?;

    let mut forged = entries;
    let target = size / 2;
    let line = forged.split_mut(|byte| *byte == b'\n').nth(usize::try_from(target)?).context("no such line")?;
    // The last digit of its time: it changes by one millisecond.
    let time = line.windows(5).position(|word| word == b"\"at\":").context("an entry without a time")?;
    if let Some(digit) = line.get_mut(time + 5 + 12) {
        *digit ^= 1;
    }
    let tampered = AuditExport { log: &about, entries: forged.as_slice(), checkpoints: notes.as_slice() };
    let error = verify(tampered, &trust).err().context("the forgery was not found")?;
    let VerifyError::Fault(fault) = &error else { anyhow::bail!("unexpected: {error}") };
    ensure!(fault.seq == target, "the wrong entry was named: {fault}");
    writeln!(
        out,
        "              one bit changed in a copy                    first bad entry: #{} ({}) ✗\n",
        fault.seq,
        error.code()
    )?;
    Ok(())
}

/// Prints the totals.
pub fn summary(out: SceneOutput<'_>, stage: &DemoGateway, sent_before: u64) -> anyhow::Result<()> {
    let reached = stage.sent().saturating_sub(sent_before);
    // Three from the flood, one each from hold, freeze and the lost response, three after the outage.
    ensure!(reached == 9, "{reached} mails reached the mailbox instead of 9");
    writeln!(out, "{}", "─".repeat(96))?;
    writeln!(
        out,
        " attempted {} writes · mails that reached the mailbox {reached} · approvals requested {} · undone {} · sent twice 0",
        stage.tally.writes, stage.tally.questions, stage.tally.undone
    )?;
    Ok(())
}
