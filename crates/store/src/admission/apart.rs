//! Questions apart from the batch card, when the batch window trips.
//!
//! Takes a write that a person is asked about for another reason, and the writes that still wait; gives each its
//! question. Promise: a card of many writes holds only writes that nothing but the batch window asks about; one that a
//! rule asks about, or that a standing approval let through, has a question of its own.

use sluice_core::approval::Approval;
use sluice_core::approval::reason::AskReason;
use sluice_core::hold::{Hold, Move};
use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Digest, HoldId, Tier};

use super::{Admission, Admitted, BY_POLICY, Card};
use crate::approvals::{self, AskAgain};
use crate::desk::Desk;
use crate::error::StoreError;
use crate::holds::{self, Why};
use crate::outbox::{self, Message, Severity};
use crate::sql::Tx;

/// The part of an id that says when it was made. What is derived from an id keeps it.
const TIME_BITS: u128 = u128::MAX << 80;

impl Admission {
    /// Asks about this write alone; the writes that still wait go back to people as well.
    pub(super) fn ask_apart<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        card: Card,
        code: &'static str,
    ) -> Result<Admitted, StoreError> {
        let Card { mut approval, is_new, asked, siblings } = card;
        let (ids, before, items) = (self.derived(self.hold), approval.version, approval.items);
        if is_new {
            // This write's own question has the id that came with it.
            approval.id = ids.0;
        }
        self.pull_back(desk, &mut approval, &asked, siblings)?;
        if approval.items > items && is_new {
            approvals::insert(desk, &approval, "batch.window", &[self.window_reason()]);
            let body = serde_json::json!({"approval": approval.id, "agent": self.action.agent()});
            let topic = "approval.asked".into();
            outbox::put(desk, &Message { id: ids.1, topic, severity: Severity::Action, body });
        } else if approval.items > items {
            approvals::grow(desk, &mut approval, before);
        }
        Ok(self.ask_alone(desk, code, self.asked_because(code, true)))
    }

    /// Takes the writes that still wait back to people: onto the card, or with a question of their own.
    pub(super) fn pull_back<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        approval: &mut Approval,
        asked: &[HoldId],
        siblings: Vec<Hold>,
    ) -> Result<(), StoreError> {
        let why = Why::because(desk.actor(), "batch.window");
        for sibling in siblings {
            let (id, digest, is_on_card) = (sibling.id, sibling.action.digest(), asked.contains(&sibling.id));
            if sibling.tier == Tier::ApprovalRequired && !is_on_card {
                // A rule asks about it, and a standing approval answered. None answers many writes at once.
                let (approval, message) = self.derived(id);
                let reasons = [AskReason::new("batch.allowance"), self.window_reason()];
                let again =
                    AskAgain { approval, message, code: "batch.window", expiry: self.expiry, reasons: &reasons };
                again.ask(desk, sibling, desk.actor())?;
                continue;
            }
            // Rows in these states always allow it; the query asked for nothing else. One that was set aside
            // and came back has its place on the card already.
            let pulled = holds::shift(desk, sibling, [Move::PullBack { approval: approval.id }], &why);
            if pulled.is_ok() && !is_on_card {
                approvals::add_item(desk, approval, id, digest);
            }
        }
        Ok(())
    }

    /// Why a person is asked about this write alone.
    pub(super) fn asked_because(&self, code: &str, trips: bool) -> Vec<AskReason> {
        let mut reasons = self.reasons.clone();
        if code != BY_POLICY {
            reasons.push(AskReason::new(code));
        }
        if reasons.is_empty() {
            let reason = AskReason::new("policy.rule");
            reasons.push(self.rule.iter().fold(reason, |reason, rule| reason.with_rule(rule)));
        }
        if trips {
            reasons.push(self.window_reason());
        }
        reasons
    }

    /// That the batch window is full, and which.
    pub(super) fn window_reason(&self) -> AskReason {
        let text = format!("more than {} at {} within {}", self.window.limit, self.service, self.window.span);
        AskReason::new("batch.window").with_text(text)
    }

    /// Ids for one more question and its message, the same for the same write each time.
    fn derived(&self, about: HoldId) -> (ApprovalId, MessageId) {
        let bits = |kind: &[u8], id: u128| {
            let whole = [kind, &id.to_be_bytes(), &about.bits().to_be_bytes()].concat();
            let hash = Digest::of(&whole).to_bytes();
            let tail = hash.iter().skip(1).take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
            (id & TIME_BITS) | tail
        };
        let approval = ApprovalId::from_bits(bits(b"question", self.approval.bits()));
        (approval, MessageId::from_bits(bits(b"message", self.message.bits())))
    }
}
