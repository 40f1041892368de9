//! Audit entries of calls that end at once: reads, checks and refusals.
//!
//! Held writes are recorded by their state changes. Promise: the call of a known caller leaves exactly one closing
//! entry, and an answer that cannot be recorded is not given.

use sluice_core::ids::MessageId;
use sluice_core::read_trace::ReadTrace;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::origins;
use sluice_core::{ServiceName, Tier};
use sluice_services::CallError;
use sluice_services::value::put;
use sluice_store::{CallEnding, CloseCall, MessageSeverity, NOTICE, OutboxMessage};

use super::approval::ApprovalCheckedCall;
use super::identity::CallContext;
use crate::Gateway;

/// The most targets that a notice names.
const NOTICE_TARGETS: usize = 5;

/// The entry of a read that was answered.
pub(crate) fn answered(gw: &Gateway, asked: &ApprovalCheckedCall) -> CloseCall {
    ending(gw, asked, CallEnding::Answered)
}

/// The entry of a check that was allowed. It cannot be written while its service, its agent or everything is frozen.
pub(crate) fn allowed(gw: &Gateway, asked: &ApprovalCheckedCall, unless_frozen: Option<ServiceName>) -> CloseCall {
    ending(gw, asked, CallEnding::Allowed { unless_frozen })
}

fn ending(gw: &Gateway, asked: &ApprovalCheckedCall, outcome: CallEnding) -> CloseCall {
    let checked = asked.checked();
    let known = checked.known();
    let call = known.call();
    let notify = (asked.tier() == Tier::Notify).then(|| {
        let outcome = if matches!(outcome, CallEnding::Allowed { .. }) { "allowed" } else { "answered" };
        let targets: Vec<&str> =
            asked.targets().iter().take(NOTICE_TARGETS).map(|target| target.value.as_str()).collect();
        let body = serde_json::json!({
            "call": call, "agent": known.agent(), "capability": checked.action().capability(), "outcome": outcome,
            "targets": targets,
        });
        let id = MessageId::mint(gw.ids.as_ref());
        OutboxMessage { id, topic: NOTICE.into(), severity: MessageSeverity::Info, body }
    });
    CloseCall {
        call,
        agent: known.agent().clone(),
        session: known.session().map(|session| session.id),
        capability: checked.action().capability().clone(),
        digest: Some(checked.action().digest()),
        tier: Some(asked.tier()),
        policy: asked.policy().to_owned(),
        rule: asked.rule().map(str::to_owned),
        outcome,
        rates: asked.rates().to_vec(),
        notify,
        door: Some(known.door()),
        findings: None,
        origins: (!asked.targets().is_empty()).then(|| origins(asked.targets()).to_string()),
        kept: None,
        observed: Vec::new(),
        read: None,
    }
}

/// Adds the result of a read to the notice about it: how many objects, and the ids of the first of them.
pub(crate) fn complete_notice(entry: &mut CloseCall, read: &ReadTrace) {
    if let Some(message) = &mut entry.notify {
        put(&mut message.body, "count", read.count);
        put(&mut message.body, "ids", read.ids.clone());
        put(&mut message.body, "more", read.more);
    }
}

/// Writes the entry.
///
/// # Errors
/// When it cannot be written: in that case the call must not be answered either.
pub(crate) async fn close(gw: &Gateway, entry: CloseCall) -> Result<(), CallError> {
    gw.store.close_call(entry).await?;
    gw.signals.events.notify_written();
    Ok(())
}

/// The alert for operators when content was about to leave that must not.
fn alert(gw: &Gateway, trace: &CallContext, findings: &serde_json::Value) -> OutboxMessage {
    let body = serde_json::json!({
        "call": trace.call, "agent": trace.agent, "capability": trace.capability, "findings": findings,
    });
    let id = MessageId::mint(gw.ids.as_ref());
    OutboxMessage { id, topic: "leak.found".into(), severity: MessageSeverity::Critical, body }
}

/// Records a refusal and returns it with its call. A refusal that cannot be recorded is still a refusal.
pub(crate) async fn refused(gw: &Gateway, trace: &CallContext, no: CallError) -> CallError {
    let no = no.for_call(trace.call);
    // The store itself refused this call: an entry that it could not write then cannot be written now.
    if no.recorded || no.refusal.code().room() == "store" {
        return no;
    }
    let kept = no.wanted.as_deref().filter(|wanted| wanted.may_be_kept(gw.leak_scan()));
    let entry = CloseCall {
        call: trace.call,
        agent: trace.agent.clone(),
        session: trace.session,
        capability: trace.capability.clone(),
        digest: kept.map(|wanted| wanted.action.digest()),
        tier: (no.refusal.code() == Code::PolicyBlocked).then_some(Tier::Blocked),
        policy: gw.policy.get().version().to_owned(),
        rule: no.rule.clone(),
        outcome: CallEnding::Refused { code: no.refusal.code().as_str().to_owned() },
        rates: Vec::new(),
        notify: no.findings.as_deref().map(|findings| alert(gw, trace, findings)),
        findings: no.findings.as_deref().cloned(),
        door: Some(trace.door),
        origins: kept.and_then(|wanted| wanted.origins.clone()),
        kept: kept.map(|wanted| wanted.action.clone()),
        observed: Vec::new(),
        read: None,
    };
    match close(gw, entry).await {
        Ok(()) => no,
        Err(unwritten) => {
            CallError { refusal: Box::new(Refusal::new(Code::AuditUnavailable).with_source(*unwritten.refusal)), ..no }
        }
    }
}
