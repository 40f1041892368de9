//! The mailbox on the other side: it counts what reaches it and never forgets.

use std::collections::BTreeMap;

/// A service with drafts that can be sent once, as mail services have.
#[derive(Debug, Default)]
pub struct Mailbox {
    drafts: BTreeMap<String, String>,
    sent: Vec<String>,
    calls: u64,
}

/// The answer got lost on the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostReply;

impl Mailbox {
    /// Stores an inert draft and gives its id.
    pub fn draft(&mut self, text: &str) -> String {
        self.calls += 1;
        let id = format!("draft-{}", self.calls);
        self.drafts.insert(id.clone(), text.to_owned());
        id
    }

    /// Sends a draft. A draft can be sent once.
    pub fn send(&mut self, draft: &str) -> Option<String> {
        self.calls += 1;
        let text = self.drafts.remove(draft)?;
        self.sent.push(text);
        Some(format!("mail-{}", self.sent.len()))
    }

    /// Sends a draft and loses the answer.
    pub fn send_and_lose_the_reply(&mut self, draft: &str) -> Result<String, LostReply> {
        self.send(draft);
        Err(LostReply)
    }

    /// Whether a draft is still there.
    pub fn has_draft(&mut self, draft: &str) -> bool {
        self.calls += 1;
        self.drafts.contains_key(draft)
    }

    /// How many mails have left.
    pub fn sent(&self) -> usize {
        self.sent.len()
    }
}
