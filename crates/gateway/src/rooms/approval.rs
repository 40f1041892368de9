//! Approval: decides whether a person has to be asked or a standing approval answers.
//!
//! Takes `LeakCheckedCall`, gives `Asked`. The store creates the approval request in the transaction that admits the write,
//! because the batch window may ask for one too. Promise: a standing approval answers only policy's request for an
//! approval, never an escalation, and only a call inside its bound whose targets are `asked` or `known`.

use sluice_core::Tier;
use sluice_core::approval::allowance::{self, AllowanceSession, ApprovalRequester, RequestedAction as About};
use sluice_core::approval::bound::BoundedCall;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::capability::Effect;
use sluice_core::target::TracedTarget;
use sluice_services::CallError;
use sluice_store::{AllowanceUse, RateLimitCounter};

use super::leak::LeakCheckedCall;
use super::origin;
use super::policy::JudgedCall;
use super::schema::CheckedCall;
use crate::Gateway;

/// A call for which it is known whether a person is needed.
#[derive(Debug)]
pub struct ApprovalCheckedCall {
    judged: JudgedCall,
    allowance: Option<AllowanceUse>,
}

/// Looks for a standing approval where one could help.
///
/// # Errors
/// When the standing approvals cannot be read.
pub(crate) async fn ask(gw: &Gateway, cleared: LeakCheckedCall) -> Result<ApprovalCheckedCall, CallError> {
    let mut judged = cleared.into_judged();
    if judged.tier() != Tier::ApprovalRequired {
        return Ok(ApprovalCheckedCall { judged, allowance: None });
    }
    if judged.checked().effect() == Effect::Read {
        // A person who is asked about a read sees where its targets come from, as for a write.
        let checked = judged.checked();
        let targets = origin::of(gw, checked.action(), checked.known().session()).await?;
        judged.trace(targets);
    }
    let checked = judged.checked();
    let asker = ApprovalRequester::Agent(checked.known().agent().clone());
    let given = gw.store.allowances_of(asker.clone()).await?;
    if given.is_empty() {
        return Ok(ApprovalCheckedCall { judged, allowance: None });
    }
    let session = checked.known().session().map(|session| AllowanceSession::Issued(session.id));
    let name = checked.action().capability();
    let call = {
        let catalogue = gw.catalogue.known();
        BoundedCall::of(name, catalogue.get(name), checked.action(), judged.targets())
    };
    let question = allowance::ApprovalRequestContext {
        asker: &asker,
        session: session.as_ref(),
        asked: About::Capability(name),
        call: Some(&call),
        why: judged.why(),
        at: gw.now(),
    };
    let found = allowance::find_answering(&given, &question).map(|found| found.id);
    let allowance = found.map(|id| AllowanceUse { id, call });
    Ok(ApprovalCheckedCall { judged, allowance })
}

impl ApprovalCheckedCall {
    pub fn checked(&self) -> &CheckedCall {
        self.judged.checked()
    }
    pub fn effect(&self) -> Effect {
        self.checked().effect()
    }
    pub fn only_checks(&self) -> bool {
        self.checked().only_checks()
    }
    /// Whether a person still has to approve, as far as is known before the batch window is checked.
    pub fn needs_person(&self) -> bool {
        self.judged.tier() == Tier::ApprovalRequired
    }
    pub fn allowance(&self) -> Option<&AllowanceUse> {
        self.allowance.as_ref()
    }
    pub fn tier(&self) -> Tier {
        self.judged.tier()
    }
    pub fn targets(&self) -> &[TracedTarget] {
        self.judged.targets()
    }
    pub fn policy(&self) -> &str {
        self.judged.policy()
    }
    pub fn reasons(&self) -> &[ApprovalReason] {
        self.judged.reasons()
    }
    pub fn rule(&self) -> Option<&str> {
        self.judged.rule()
    }
    pub fn rates(&self) -> &[RateLimitCounter] {
        self.judged.rates()
    }
    /// The verdict of the rules on a call that observe mode allows.
    pub fn would(&self) -> Option<Tier> {
        self.judged.would()
    }
    pub fn into_checked(self) -> CheckedCall {
        self.judged.into_checked()
    }
}
