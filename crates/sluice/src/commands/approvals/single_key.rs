//! `sluice approvals watch` on a terminal: each approval is shown in full and answered with one key.
//!
//! Takes pending approvals, the oldest first; gives decisions. Promise: a key that was pressed before an approval was
//! on the screen does not answer it, a decision applies to exactly what was shown, and an approval of many writes or
//! of a high risk needs the key twice.

use std::collections::BTreeSet;
use std::io::{Read as _, stdin};
use std::time::Duration;

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use serde_json::Value;

use super::{decide, fetch, show};
use crate::client::{ApiRequest, EventStreamPoll, GatewayClient, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// How long to wait without an event before the list is read again.
const LOOK: Duration = Duration::from_secs(1);
const MENU: &str = "[a] approve once   [d] deny   [s] approve for this session   [l] later   [q] quit   [?] help";
const HELP: &str = "\
a  approve once; an approval of many writes or of a high risk needs the key twice
d  deny
s  approve, and later calls of this kind for the rest of the session, within the narrowest bound on the card
l  leave it pending; it is shown again when this command is started again
q  quit; pending approvals stay pending
Other arguments, bounds, notes and changes: sluice approvals --help";

/// The key a person pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalKeyPress {
    Approve,
    Deny,
    Session,
    Later,
    Help,
    Quit,
    Unknown,
    /// No key for one second.
    Silence,
}

impl ApprovalKeyPress {
    const fn read(byte: Option<u8>) -> Self {
        match byte {
            None => Self::Silence,
            Some(b'a' | b'A') => Self::Approve,
            Some(b'd' | b'D') => Self::Deny,
            Some(b's' | b'S') => Self::Session,
            Some(b'l' | b'L') => Self::Later,
            Some(b'?' | b'h' | b'H') => Self::Help,
            // Ctrl-C and Ctrl-D too: the terminal sends no signals while it is read key by key.
            Some(b'q' | b'Q' | 3 | 4) => Self::Quit,
            Some(_) => Self::Unknown,
        }
    }
}

/// A terminal in single-key mode, until this is dropped.
struct SingleKeyInput {
    before: Termios,
}

impl SingleKeyInput {
    fn open() -> Result<Self, CliError> {
        let failed = |error: rustix::io::Errno| {
            CliError::new(CommandExit::Failed, "single keys cannot be read from this terminal")
                .why(describe_io_error(&error.into()))
        };
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        // A read returns what there is, or nothing after a second.
        single.special_codes[SpecialCodeIndex::VMIN] = 0;
        single.special_codes[SpecialCodeIndex::VTIME] = 10;
        tcsetattr(stdin(), OptionalActions::Now, &single).map_err(failed)?;
        Ok(Self { before })
    }

    /// Discards everything typed so far.
    fn forget(&self) {
        let _ = tcflush(stdin(), QueueSelector::IFlush);
    }

    fn next(&self) -> ApprovalKeyPress {
        let mut byte = [0_u8];
        match stdin().read(&mut byte) {
            Ok(1) => ApprovalKeyPress::read(Some(byte[0])),
            Ok(_) => ApprovalKeyPress::Silence,
            Err(_) => ApprovalKeyPress::Quit,
        }
    }
}

impl Drop for SingleKeyInput {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// How one approval ended here.
enum ApprovalPromptEnd {
    Question,
    Quit,
}

/// Shows approvals as they arrive and reads a key for each.
pub(super) fn watch(client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
    let keys = SingleKeyInput::open()?;
    let mut stream = client.listen(Some("approval.*,hold.*"), None).ok();
    let mut left: BTreeSet<String> = BTreeSet::new();
    let ask = ApiRequest::get("/v1/approvals").with("state", Some("pending")).via_stop_lane();
    let mut idle = false;
    loop {
        let list = client.list(&ask, 500)?;
        // The oldest first: it has waited longest.
        let waiting = entries(&list).iter().rev().map(|entry| text_field(entry, "approval_id").to_owned());
        let next = waiting.into_iter().find(|id| !left.contains(id));
        if let Some(id) = next {
            idle = false;
            let approval = fetch(client, &id)?;
            left.insert(id);
            if text_field(&approval, "status") != "pending" {
                continue;
            }
            match answer(client, screen, &keys, &approval)? {
                ApprovalPromptEnd::Question => continue,
                ApprovalPromptEnd::Quit => return Ok(CommandExit::Ok),
            }
        }
        if !idle {
            screen.note("no pending approvals; new ones appear here ([q] quits)");
            idle = true;
        }
        if keys.next() == ApprovalKeyPress::Quit {
            return Ok(CommandExit::Ok);
        }
        match stream.as_mut().map(|stream| stream.next(Some(Duration::from_millis(1)))) {
            Some(Ok(EventStreamPoll::Event(_) | EventStreamPoll::Nothing)) => {}
            Some(Ok(EventStreamPoll::End) | Err(_)) => stream = client.listen(Some("approval.*,hold.*"), None).ok(),
            None => client.pause(LOOK),
        }
    }
}

/// Shows one approval and waits for a key, or until it is decided elsewhere.
fn answer(
    client: &GatewayClient,
    screen: &CommandConsole,
    keys: &SingleKeyInput,
    approval: &Value,
) -> Result<ApprovalPromptEnd, CliError> {
    screen.line("")?;
    show(screen, approval, false)?;
    screen.note(MENU);
    // SECURITY: keys typed before the card was shown are not an answer to it.
    keys.forget();
    let needs_two = text_field(approval, "subject") == "batch" || text_field(approval, "risk") == "high";
    let mut pressed: Option<ApprovalKeyPress> = None;
    loop {
        let key = keys.next();
        let done = match key {
            ApprovalKeyPress::Approve | ApprovalKeyPress::Session if needs_two && pressed != Some(key) => {
                let what =
                    if text_field(approval, "subject") == "batch" { "covers many writes" } else { "has a high risk" };
                screen.note(format_args!("this {what}: press the same key again to approve"));
                pressed = Some(key);
                continue;
            }
            ApprovalKeyPress::Approve => decide::approve_shown(client, screen, approval),
            ApprovalKeyPress::Session => decide::session_shown(client, screen, approval),
            ApprovalKeyPress::Deny => decide::deny_shown(client, screen, approval),
            ApprovalKeyPress::Later => return Ok(ApprovalPromptEnd::Question),
            ApprovalKeyPress::Quit => return Ok(ApprovalPromptEnd::Quit),
            ApprovalKeyPress::Help => {
                screen.note(HELP);
                continue;
            }
            ApprovalKeyPress::Unknown => {
                screen.note(MENU);
                continue;
            }
            ApprovalKeyPress::Silence => {
                let now = fetch(client, text_field(approval, "approval_id"))?;
                if text_field(&now, "status") == "pending" {
                    continue;
                }
                screen.note(format_args!("decided elsewhere: {}", text_field(&now, "status")));
                return Ok(ApprovalPromptEnd::Question);
            }
        };
        return match done {
            Ok(()) => Ok(ApprovalPromptEnd::Question),
            // The approval may be gone or still pending: the next read shows which. The person sees the reason.
            Err(failure) if failure.exit != CommandExit::Unreachable => {
                screen.failure(&failure);
                Ok(ApprovalPromptEnd::Question)
            }
            Err(failure) => Err(failure),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keys_of_the_menu_decide() {
        for byte in 0..=u8::MAX {
            let decides = matches!(
                ApprovalKeyPress::read(Some(byte)),
                ApprovalKeyPress::Approve | ApprovalKeyPress::Deny | ApprovalKeyPress::Session
            );
            assert_eq!(decides, b"aAdDsS".contains(&byte), "{byte}");
        }
        assert_eq!(ApprovalKeyPress::read(None), ApprovalKeyPress::Silence);
    }
}
