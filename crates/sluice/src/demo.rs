//! `sluice demo`: what Sluicegate does, told in a minute and checked as it is told.
//!
//! No account, no network, no model: the real policy engine, the real store on a real file, a mailbox
//! that counts, and a scripted agent. Time is the demo's own, so that nobody waits. Every line it
//! prints is a fact it has just checked; when one does not hold, the demo fails.

mod mailbox;
mod scenes;
mod stage;

use std::io::Write;

use anyhow::Context as _;

use stage::Stage;

/// How the demo is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Telling {
    /// Keep the folder with its database and export.
    pub keep: bool,
}

/// Tells the whole story.
///
/// # Errors
/// When a scene does not end as it must, or nothing can be written.
pub fn run(out: &mut dyn Write, telling: Telling) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-demo-").tempdir().context("no room for the demo")?;
    let mut stage = Stage::set(folder.path())?;
    writeln!(out, "sluice demo: a mailbox that counts, an agent called inbox-helper, and a gate between them.")?;
    writeln!(out, "Nothing leaves this machine. Time is the demo's own; every line was checked as it was printed.\n")?;
    scenes::judge(out, &stage)?;
    scenes::hold(out, &mut stage)?;
    scenes::release(out, &mut stage)?;
    scenes::flood(out, &mut stage)?;
    scenes::freeze(out, &mut stage)?;
    scenes::lost_reply(out, &mut stage)?;
    scenes::proof(out, &mut stage)?;
    scenes::summary(out, &stage)?;
    drop(stage);
    if telling.keep {
        let kept = folder.keep();
        writeln!(out, "\nkept: {}", kept.display())?;
    }
    Ok(())
}
