//! `sluice demo`: shows what Sluicegate does in a minute, and checks every step.
//!
//! No account, no network, no model: the real gateway with its doors, loops and isolated workers, the real Gmail
//! adapter, a local service that speaks Gmail's API and counts its calls, and a scripted agent over MCP. The demo has
//! its own clock, so that nobody waits. Every line it prints is checked first; if a check fails, the demo fails.

mod gateway;
mod gmail_emulator;
mod messages;
mod scenes;

use std::io::Write;

use anyhow::Context as _;

use crate::console::TaskProgress;
use gateway::DemoGateway;

/// How the demo runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemoOptions {
    /// Keep the folder with its database and export.
    pub keep: bool,
    /// How many times faster than real time the demo's clock runs; `None`: steps are immediate.
    pub speed: Option<u32>,
    /// Show on stderr how far the copy is.
    pub progress: bool,
}

/// How many messages the demo's mailbox has.
pub const MESSAGES: u64 = 5_012;

/// Serves only the demo's mailbox, until the process is stopped, for testing a client.
///
/// # Errors
/// When the address cannot be used.
pub fn serve_mailbox(out: &mut dyn Write, address: std::net::SocketAddr, messages: u64) -> anyhow::Result<()> {
    anyhow::ensure!(address.ip().is_loopback(), "the demo's mailbox accepts only addresses of this machine");
    let clock = std::sync::Arc::new(crate::system::SystemClock);
    let mailbox = messages::mailbox(messages, sluice_core::Clock::now(clock.as_ref()).as_millis());
    let upstream = std::sync::Arc::new(gmail_emulator::GmailEmulator::new(mailbox, clock));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(address).await.context("the address is not free")?;
        let address = listener.local_addr()?;
        writeln!(out, "{} with {messages} messages: http://{address}/gmail/v1/users/me/", messages::OWNER)?;
        writeln!(out, "sign in at http://{address}/o/oauth2/v2/auth, tokens from http://{address}/token")?;
        out.flush()?;
        gmail_emulator::serve(upstream, listener).await;
        Ok(())
    })
}

/// Runs the whole demo.
///
/// # Errors
/// When a scene does not end as expected, or the output cannot be written.
pub fn run(out: &mut dyn Write, telling: DemoOptions) -> anyhow::Result<()> {
    let folder =
        tempfile::Builder::new().prefix("sluice-demo-").tempdir().context("the temporary folder cannot be created")?;
    let mut stage = DemoGateway::set(folder.path(), MESSAGES, telling.speed)?;
    writeln!(
        out,
        "sluice demo: gateway {} · mailbox {} · agent inbox-helper (scripted, over MCP)",
        stage.main,
        messages::OWNER
    )?;
    writeln!(
        out,
        "Nothing leaves this machine. The demo has its own clock; every line is checked when it is printed."
    )?;
    out.flush()?;
    let copying = TaskProgress::new("copying the mailbox", Some(MESSAGES), telling.progress);
    let took = stage.wait_for_copy(|done, _| copying.reached(done, None))?;
    drop(copying);
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
