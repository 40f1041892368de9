//! `sluice demo`: what Sluicegate does, told in a minute and checked as it is told.
//!
//! No account, no network, no model: the real gateway with its doors, loops and locked-in workers, the real Gmail
//! adapter, a service on this machine that speaks Gmail's API and counts, and a scripted agent over MCP. Time is the
//! demo's own, so that nobody waits. Every line it prints is a fact it has just checked; when one does not hold, the
//! demo fails.

mod letters;
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
    /// How many times as fast as real time the demo's own passes; nothing: at once.
    pub speed: Option<u32>,
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
    let mut stage = Stage::set(folder.path(), MESSAGES, telling.speed)?;
    writeln!(
        out,
        "sluice demo: gateway {} · mailbox {} · agent inbox-helper (scripted, over MCP)",
        stage.main,
        letters::OWNER
    )?;
    writeln!(out, "Nothing leaves this machine. Time is the demo's own; every line was checked as it was printed.")?;
    out.flush()?;
    let took = stage.copied(|_, _| {})?;
    let rate = u128::from(MESSAGES) * 1000 / took.as_millis().max(1);
    writeln!(
        out,
        "Connected: {MESSAGES} messages copied in {:.1} s ({rate} a second), each through all six stages.\n",
        took.as_secs_f64()
    )?;
    let sent_before = stage.sent();
    scenes::judge(out, &stage)?;
    scenes::read_freely(out, &stage)?;
    scenes::hold(out, &mut stage)?;
    scenes::flood(out, &mut stage)?;
    scenes::freeze(out, &mut stage)?;
    scenes::wipe(out, &mut stage)?;
    scenes::poisoned(out, &mut stage)?;
    scenes::outage(out, &mut stage)?;
    scenes::lost_reply(out, &mut stage)?;
    scenes::proof(out, &mut stage)?;
    scenes::summary(out, &stage, sent_before)?;
    drop(stage);
    if telling.keep {
        let kept = folder.keep();
        writeln!(out, "\nkept: {}", kept.display())?;
    }
    Ok(())
}
