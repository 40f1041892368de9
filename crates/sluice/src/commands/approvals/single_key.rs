//! `sluice approvals watch` on a terminal: each question is shown whole and answered with one key.
//!
//! Takes pending questions, the oldest first; gives decisions. Promise: a key pressed before a question was on the screen
//! does not answer it, what is decided is exactly what was shown, and what covers many writes or carries a high risk needs
//! the key twice.

use std::collections::BTreeSet;
use std::io::{Read as _, stdin};
use std::time::Duration;

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use serde_json::Value;

use super::{decide, fetch, show};
use crate::client::{Ask, Client, Heard, entries, text};
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;

/// How long nothing needs to happen before the list is read again.
const LOOK: Duration = Duration::from_secs(1);
const MENU: &str = "[a] approve once   [d] deny   [s] approve for this session   [l] later   [q] quit   [?] help";
const HELP: &str = "\
a  approve this once; what covers many writes or carries a high risk asks for the key a second time
d  deny
s  approve, and the same again for the rest of the session, within the narrowest bound the card offers
l  leave it pending; it comes back when this command starts again
q  quit; what is pending stays pending
All arguments, other bounds, notes and changes: sluice approvals --help";

/// What a person pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Approve,
    Deny,
    Session,
    Later,
    Help,
    Quit,
    Unknown,
    /// Nothing for a second.
    Silence,
}

impl Key {
    const fn read(byte: Option<u8>) -> Self {
        match byte {
            None => Self::Silence,
            Some(b'a' | b'A') => Self::Approve,
            Some(b'd' | b'D') => Self::Deny,
            Some(b's' | b'S') => Self::Session,
            Some(b'l' | b'L') => Self::Later,
            Some(b'?' | b'h' | b'H') => Self::Help,
            // Ctrl-C and Ctrl-D as well: the terminal sends no signals while it is read key by key.
            Some(b'q' | b'Q' | 3 | 4) => Self::Quit,
            Some(_) => Self::Unknown,
        }
    }
}

/// A terminal that gives single keys, until it is dropped.
struct KeyInput {
    before: Termios,
}

impl KeyInput {
    fn open() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| {
            Failure::new(Exit::Failed, "single keys cannot be read from this terminal").why(io_words(&error.into()))
        };
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        // A read gives what there is, or nothing after a second.
        single.special_codes[SpecialCodeIndex::VMIN] = 0;
        single.special_codes[SpecialCodeIndex::VTIME] = 10;
        tcsetattr(stdin(), OptionalActions::Now, &single).map_err(failed)?;
        Ok(Self { before })
    }

    /// Forgets what was typed so far.
    fn forget(&self) {
        let _ = tcflush(stdin(), QueueSelector::IFlush);
    }

    fn next(&self) -> Key {
        let mut byte = [0_u8];
        match stdin().read(&mut byte) {
            Ok(1) => Key::read(Some(byte[0])),
            Ok(_) => Key::Silence,
            Err(_) => Key::Quit,
        }
    }
}

impl Drop for KeyInput {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// How one question ended here.
enum Next {
    Question,
    Quit,
}

/// Shows questions as they come and takes a key for each.
pub(super) fn watch(client: &Client, screen: &Screen) -> Result<Exit, Failure> {
    let keys = KeyInput::open()?;
    let mut stream = client.listen(Some("approval.*,hold.*"), None).ok();
    let mut left: BTreeSet<String> = BTreeSet::new();
    let ask = Ask::get("/v1/approvals").with("state", Some("pending")).stops();
    let mut idle = false;
    loop {
        let list = client.list(&ask, 500)?;
        // The oldest first: it has waited longest.
        let waiting = entries(&list).iter().rev().map(|entry| text(entry, "approval_id").to_owned());
        let next = waiting.into_iter().find(|id| !left.contains(id));
        if let Some(id) = next {
            idle = false;
            let approval = fetch(client, &id)?;
            left.insert(id);
            if text(&approval, "status") != "pending" {
                continue;
            }
            match answer(client, screen, &keys, &approval)? {
                Next::Question => continue,
                Next::Quit => return Ok(Exit::Ok),
            }
        }
        if !idle {
            screen.note("no question waits; they appear here as they come ([q] quits)");
            idle = true;
        }
        if keys.next() == Key::Quit {
            return Ok(Exit::Ok);
        }
        match stream.as_mut().map(|stream| stream.next(Some(Duration::from_millis(1)))) {
            Some(Ok(Heard::Event(_) | Heard::Nothing)) => {}
            Some(Ok(Heard::End) | Err(_)) => stream = client.listen(Some("approval.*,hold.*"), None).ok(),
            None => client.pause(LOOK),
        }
    }
}

/// Shows one question and waits for a key, or until it is decided elsewhere.
fn answer(client: &Client, screen: &Screen, keys: &KeyInput, approval: &Value) -> Result<Next, Failure> {
    screen.line("")?;
    show(screen, approval, false)?;
    screen.note(MENU);
    // SECURITY: what was typed ahead was not an answer to this.
    keys.forget();
    let needs_two = text(approval, "subject") == "batch" || text(approval, "risk") == "high";
    let mut pressed: Option<Key> = None;
    loop {
        let key = keys.next();
        let done = match key {
            Key::Approve | Key::Session if needs_two && pressed != Some(key) => {
                let what = if text(approval, "subject") == "batch" { "covers many writes" } else { "has a high risk" };
                screen.note(format_args!("this {what}: press the same key again to approve"));
                pressed = Some(key);
                continue;
            }
            Key::Approve => decide::approve_shown(client, screen, approval),
            Key::Session => decide::session_shown(client, screen, approval),
            Key::Deny => decide::deny_shown(client, screen, approval),
            Key::Later => return Ok(Next::Question),
            Key::Quit => return Ok(Next::Quit),
            Key::Help => {
                screen.note(HELP);
                continue;
            }
            Key::Unknown => {
                screen.note(MENU);
                continue;
            }
            Key::Silence => {
                let now = fetch(client, text(approval, "approval_id"))?;
                if text(&now, "status") == "pending" {
                    continue;
                }
                screen.note(format_args!("decided elsewhere: {}", text(&now, "status")));
                return Ok(Next::Question);
            }
        };
        return match done {
            Ok(()) => Ok(Next::Question),
            // The question is still there, or gone: the next look tells. The person hears why.
            Err(failure) if failure.exit != Exit::Unreachable => {
                screen.failure(&failure);
                Ok(Next::Question)
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
            let decides = matches!(Key::read(Some(byte)), Key::Approve | Key::Deny | Key::Session);
            assert_eq!(decides, b"aAdDsS".contains(&byte), "{byte}");
        }
        assert_eq!(Key::read(None), Key::Silence);
    }
}
