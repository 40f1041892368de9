//! Cache of actions that this thread has read or admitted lately, so that the same bytes are not parsed again.
//!
//! Takes stored bytes with the digest of their call; gives the action. Promise: a cached action was checked to be
//! canonical, and its bytes are compared with the stored ones every time.

use std::cell::RefCell;

use sluice_core::Digest;
use sluice_core::action::{Action, ActionError};

/// How many actions are cached. A write is read three times between its claim and its end.
const PLACES: usize = 1024;
/// Larger actions are not cached: the whole cache stays within a few megabytes.
const LARGEST: usize = 4096;

thread_local! {
    static SEEN: RefCell<Vec<Option<Action>>> = RefCell::new(vec![None; PLACES]);
}

/// The action in these stored bytes.
pub(crate) fn action(bytes: &[u8], digest: Digest) -> Result<Action, ActionError> {
    let kept = SEEN.with_borrow(|seen| seen.get(place(digest)).cloned().flatten());
    if let Some(kept) = kept.filter(|kept| kept.call_digest() == digest && kept.bytes() == bytes) {
        return Ok(kept);
    }
    let action = Action::from_stored(bytes)?;
    keep(&action);
    Ok(action)
}

/// Caches an action that will be read soon.
pub(crate) fn keep(action: &Action) {
    if action.bytes().len() <= LARGEST {
        SEEN.with_borrow_mut(|seen| {
            if let Some(kept) = seen.get_mut(place(action.call_digest())) {
                *kept = Some(action.clone());
            }
        });
    }
}

/// Each digest has one slot; a later action replaces the earlier one.
fn place(digest: Digest) -> usize {
    let [.., high, low] = digest.to_bytes();
    usize::from(u16::from_be_bytes([high, low])) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::AgentName;

    fn mail(text: &str) -> Action {
        let arguments = serde_json::json!({ "text": text });
        Action::custom("custom:mail".parse().unwrap(), AgentName::new("clerk").unwrap(), arguments).unwrap()
    }

    #[test]
    fn other_bytes_under_a_known_digest_are_read_for_themselves() {
        let (one, other) = (mail("one"), mail("other"));
        keep(&one);
        assert_eq!(action(one.bytes(), one.digest()), Ok(one.clone()));
        assert_eq!(action(other.bytes(), one.digest()), Ok(other));
        let spaced = String::from_utf8(one.bytes().to_vec()).unwrap().replace(':', ": ");
        assert_eq!(action(spaced.as_bytes(), one.digest()), Err(ActionError::NotCanonical));
    }
}
