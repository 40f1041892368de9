//! Questions on the terminal of `sluice serve`: each one that waits is printed once, with how to answer it.
//!
//! Takes the open questions; prints to the terminal and, where configured, rings its bell and notifies the desktop.
//! Promise: nothing is printed where standard output is no terminal, because that would be a log; what must not leave is
//! not printed; the desktop is told who asks, never what.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use sluice_core::approval::Approval;
use sluice_core::ids::ApprovalId;
use sluice_gateway::Gateway;
use sluice_gateway::channels::shown;
use sluice_gateway::gate::deciding::Question;

use crate::screen::Screen;

/// Most questions looked at, and lines of one that are printed.
const MOST: u32 = 200;
const LINES: usize = 20;

/// How often it is looked whether a question waits that was not printed yet.
const EVERY: Duration = Duration::from_millis(500);

/// Prints each question as it comes, for as long as it is polled.
pub(super) async fn announce_all(gw: &Gateway, screen: &Screen) {
    let mut printed: BTreeSet<ApprovalId> = BTreeSet::new();
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        if !gw.config.approvals.terminal {
            continue;
        }
        // What cannot be read now is printed later: the question waits anyway.
        let Ok(open) = gw.store.open_approvals(MOST).await else { continue };
        printed.retain(|id| open.iter().any(|approval| approval.id == *id));
        for approval in &open {
            if printed.insert(approval.id) {
                announce(gw, screen, approval).await;
            }
        }
    }
}

async fn announce(gw: &Gateway, screen: &Screen, approval: &Approval) {
    let Ok(question) = Question::read(gw, approval.id).await else { return };
    let sight = shown::of(gw, &question, shown::PAGE);
    let who = question.holds.first().map_or_else(|| "a client".to_owned(), |hold| format!("agent {}", hold.agent()));
    let (id, bell) = (approval.id, if gw.config.approvals.bell { "\x07" } else { "" });
    let mut text = format!("{bell}\nwaiting for an answer: {} ({who}, {id})\n", sight.title);
    let lines: Vec<&str> = sight.text.lines().collect();
    for line in lines.iter().take(LINES) {
        text.push_str(&format!("  {line}\n"));
    }
    if lines.len() > LINES {
        text.push_str(&format!("  … {} more lines: sluice approvals show {id}\n", lines.len() - LINES));
    }
    text.push_str(&format!("answer it: sluice approvals watch   (or: sluice approvals approve {id} | deny {id})\n"));
    // A terminal that is gone is no reason to stop serving.
    let _ = screen.raw(text.as_bytes());
    if gw.config.approvals.desktop {
        notify_desktop(&format!("{who} waits for an answer"));
    }
}

/// Shows a notification on the desktop, where there is one.
fn notify_desktop(text: &str) {
    let mut command = Command::new("notify-send");
    command.args(["--app-name=Sluicegate", "--", "Sluicegate", text]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without the program there is no desktop to tell. Whoever is told, nobody waits for it but a thread of its own.
    if let Ok(mut child) = command.spawn() {
        std::thread::spawn(move || drop(child.wait()));
    }
}
