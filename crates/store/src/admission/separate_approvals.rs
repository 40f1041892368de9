//! Approval requests apart from the batch card, when the batch window trips.
//!
//! Takes a write that needs approval for another reason, and the writes that still wait; gives each its approval
//! request. Promise: a card of many writes holds only writes that need approval because of the batch window alone. A
//! write that a rule sends to a person, or that a standing approval allowed, has its own approval request.

use sluice_core::approval::Approval;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::hold::{Hold, HoldMove};
use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Digest, HoldId, Tier};

use super::{Admission, AdmissionOutcome, BY_POLICY, BatchApprovalCard};
use crate::approvals::{self, AskApprovalAgain};
use crate::error::StoreError;
use crate::holds::{self, HoldMoveReason};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::StoreTx;
use crate::unit_of_work::UnitOfWork;

/// The part of an id that holds its time. An id derived from another keeps this part.
const TIME_BITS: u128 = u128::MAX << 80;

impl Admission {
    /// Asks for approval of this write alone; the writes that still wait need approval again as well.
    pub(super) fn ask_apart<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        card: BatchApprovalCard,
        code: &'static str,
    ) -> Result<AdmissionOutcome, StoreError> {
        let BatchApprovalCard { mut approval, is_new, asked, siblings } = card;
        let (ids, before, items) = (self.derived(self.hold), approval.version, approval.items);
        if is_new {
            // This write's own approval request uses the id that came with it.
            approval.id = ids.0;
        }
        self.pull_back(unit, &mut approval, &asked, siblings)?;
        if approval.items > items && is_new {
            approvals::insert(unit, &approval, "batch.window", &[self.window_reason()]);
            let body = serde_json::json!({"approval": approval.id, "agent": self.action.agent()});
            let topic = "approval.asked".into();
            outbox::put(unit, &OutboxMessage { id: ids.1, topic, severity: MessageSeverity::Action, body });
        } else if approval.items > items {
            approvals::grow(unit, &mut approval, before);
        }
        Ok(self.ask_alone(unit, code, self.asked_because(code, true)))
    }

    /// Makes the writes that still wait need approval again: on the card, or with a request of their own.
    pub(super) fn pull_back<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        approval: &mut Approval,
        asked: &[HoldId],
        siblings: Vec<Hold>,
    ) -> Result<(), StoreError> {
        let why = HoldMoveReason::because(unit.actor(), "batch.window");
        for sibling in siblings {
            let (id, digest, is_on_card) = (sibling.id, sibling.action.digest(), asked.contains(&sibling.id));
            if sibling.tier == Tier::ApprovalRequired && !is_on_card {
                // A rule requires approval and a standing approval gave it. A standing approval never covers a whole
                // batch.
                let (approval, message) = self.derived(id);
                let reasons = [ApprovalReason::new("batch.allowance"), self.window_reason()];
                let again = AskApprovalAgain {
                    approval,
                    message,
                    code: "batch.window",
                    expiry: self.expiry,
                    reasons: &reasons,
                };
                again.ask(unit, sibling, unit.actor())?;
                continue;
            }
            // Rows in these states always allow the move, and the query selects no others. A write that was set aside
            // and came back is on the card already.
            let pulled = holds::shift(unit, sibling, [HoldMove::PullBack { approval: approval.id }], &why);
            if pulled.is_ok() && !is_on_card {
                approvals::add_item(unit, approval, id, digest);
            }
        }
        Ok(())
    }

    /// Why this write alone needs approval.
    pub(super) fn asked_because(&self, code: &str, trips: bool) -> Vec<ApprovalReason> {
        let mut reasons = self.reasons.clone();
        if code != BY_POLICY {
            reasons.push(ApprovalReason::new(code));
        }
        if reasons.is_empty() {
            let reason = ApprovalReason::new("policy.rule");
            reasons.push(self.rule.iter().fold(reason, |reason, rule| reason.with_rule(rule)));
        }
        if trips {
            reasons.push(self.window_reason());
        }
        reasons
    }

    /// The reason that names the full batch window.
    pub(super) fn window_reason(&self) -> ApprovalReason {
        let text = format!("more than {} at {} within {}", self.window.limit, self.service, self.window.span);
        ApprovalReason::new("batch.window").with_text(text)
    }

    /// Ids for one more approval request and its message, the same for the same write each time.
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
