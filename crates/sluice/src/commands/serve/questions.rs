//! Approvals on the terminal of `sluice serve`: each pending one is printed once, with how to answer it.
//!
//! Takes the open approvals; prints to the terminal and, if configured, rings its bell and notifies the desktop.
//! Promise: nothing is printed if standard output is not a terminal, because that would be a log; text that the leak
//! scan holds back is not printed; the desktop notification says who asks, never what.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use sluice_core::approval::Approval;
use sluice_core::ids::ApprovalId;
use sluice_gateway::Gateway;
use sluice_gateway::gate::deciding::ApprovalRequest;
use sluice_gateway::gate::rendering;

use crate::console::CommandConsole;

/// Most approvals that are read, and most lines of one that are printed.
const MOST: u32 = 200;
const LINES: usize = 20;

/// How often to check for a pending approval that was not printed yet.
const EVERY: Duration = Duration::from_millis(500);

/// Prints each approval as it arrives, as long as this future is polled.
pub(super) async fn announce_all(gw: &Gateway, screen: &CommandConsole) {
    let mut printed: BTreeSet<ApprovalId> = BTreeSet::new();
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        if !gw.config.approvals.terminal {
            continue;
        }
        // An approval that cannot be read now is printed later: it stays pending.
        let Ok(open) = gw.store.open_approvals(MOST).await else { continue };
        printed.retain(|id| open.iter().any(|approval| approval.id == *id));
        for approval in &open {
            if printed.insert(approval.id) {
                announce(gw, screen, approval).await;
            }
        }
    }
}

async fn announce(gw: &Gateway, screen: &CommandConsole, approval: &Approval) {
    let Ok(question) = ApprovalRequest::read(gw, approval.id).await else { return };
    let sight = rendering::of(gw, &question, rendering::PAGE);
    let who = question.holds.first().map_or_else(|| "a client".to_owned(), |hold| format!("agent {}", hold.agent()));
    let (id, bell) = (approval.id, if gw.config.approvals.bell { "\x07" } else { "" });
    let mut text = format!("{bell}\napproval needed: {} ({who}, {id})\n", sight.title);
    let lines: Vec<&str> = sight.text.lines().collect();
    for line in lines.iter().take(LINES) {
        text.push_str(&format!("  {line}\n"));
    }
    if lines.len() > LINES {
        text.push_str(&format!("  … {} more lines: sluice approvals show {id}\n", lines.len() - LINES));
    }
    text.push_str(&format!("to answer: sluice approvals watch   (or: sluice approvals approve {id} | deny {id})\n"));
    // A terminal that is gone is no reason to stop serving.
    let _ = screen.raw(text.as_bytes());
    if gw.config.approvals.desktop {
        notify_desktop(&format!("{who} waits for an approval"));
    }
}

/// Shows a desktop notification, where there is a desktop.
fn notify_desktop(text: &str) {
    let mut command = Command::new("notify-send");
    command.args(["--app-name=Sluicegate", "--", "Sluicegate", text]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without the program there is no desktop to notify. Only a separate thread waits for it.
    if let Ok(mut child) = command.spawn() {
        std::thread::spawn(move || drop(child.wait()));
    }
}
