//! `sluice demo`: what Sluicegate does, told in a minute and checked as it is told.
//!
//! No account, no network, no model: the real policy engine, the real store on a real file, a mailbox
//! that counts, and a scripted agent. Time is the demo's own, so that nobody waits. Every line it
//! prints is a fact it has just checked; when one does not hold, the demo fails.

mod letters;
mod mailbox;
mod scenes;
mod stage;
mod upstream;

use std::io::Write;

use anyhow::Context as _;

use stage::Stage;

/// How the demo is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Telling {
    /// Keep the folder with its database and export.
    pub keep: bool,
}

/// How many messages the demo's mailbox has.
pub const MESSAGES: u64 = 5_012;

/// Serves the demo's mailbox alone, until the process is stopped: for whoever wants to try a client on it.
///
/// # Errors
/// When the address cannot be used.
pub fn serve_mailbox(out: &mut dyn Write, address: std::net::SocketAddr, messages: u64) -> anyhow::Result<()> {
    anyhow::ensure!(address.ip().is_loopback(), "the demo's mailbox is for this machine only");
    let clock = std::sync::Arc::new(crate::system::SystemClock);
    let mailbox = letters::mailbox(messages, sluice_core::Clock::now(clock.as_ref()).as_millis());
    let upstream = std::sync::Arc::new(upstream::Upstream::new(mailbox, clock));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(address).await.context("the address is not free")?;
        let address = listener.local_addr()?;
        writeln!(out, "{} with {messages} messages: http://{address}/gmail/v1/users/me/", letters::OWNER)?;
        writeln!(out, "sign in at http://{address}/o/oauth2/v2/auth, tokens from http://{address}/token")?;
        out.flush()?;
        upstream::serve(upstream, listener).await;
        Ok(())
    })
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
