//! Leak scan: finds content that must not leave.
//!
//! Takes `JudgedCall`, gives `LeakCheckedCall`. Any blocking match refuses the call, without redaction; personal data of many
//! people needs an approval. Promise: the audit log, the alert and the answer get pattern ids, lengths and hashes,
//! never the content.

use serde_json::{Value, json};
use sluice_content::leak::{LeakFinding, LeakReport, LeakScope, LeakWeight, OutboundPart, parts_of};
use sluice_core::approval::allowance::TierEscalation;
use sluice_core::capability::Effect;
use sluice_core::policy::TargetOrigin;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::TracedTarget;
use sluice_services::{AttachedText, CallError, mounts};

use super::policy::JudgedCall;
use crate::Gateway;

/// The name prefix of a proxy's capabilities.
const PROXY: &str = "proxy.";
/// The most findings that are recorded; further ones add no information.
const RECORDED: usize = 16;

/// A call that carries out nothing that must stay.
#[derive(Debug)]
pub struct LeakCheckedCall(JudgedCall);

/// Scans what would leave. A read carries nothing out, unless a third-party server answers it.
///
/// # Errors
/// When something is found.
pub(crate) fn scan(gw: &Gateway, mut judged: JudgedCall) -> Result<LeakCheckedCall, CallError> {
    if judged.checked().effect() == Effect::Write || mounts::is_mount(judged.checked().service()) {
        let arguments = Value::Object(judged.checked().action().arguments().clone());
        // The spawn options stay here, but a person who is asked sees them.
        let spawn = judged.checked().action().spawn().map(|options| Value::Object(options.fields()));
        let along = along(gw, &judged)?;
        let mut parts = parts_of("", &arguments);
        parts.extend(spawn.iter().flat_map(|options| parts_of("spawn", options)));
        parts.extend(along.iter().map(|one| OutboundPart::new(one.field.as_str(), one.text.as_str())));
        // A proxy sends its arguments to a third party.
        let stranger = judged.checked().action().capability().as_str().starts_with(PROXY);
        let mut report = gw.scan.scan(&parts, if stranger { LeakScope::Proxy } else { LeakScope::Service });
        report.findings.retain(|finding| !is_users_own(finding, &parts, judged.targets()));
        if report.blocks() {
            return Err(refuse(&report));
        }
        if report.needs_approval() {
            judged.escalate(TierEscalation::Findings);
        }
    }
    Ok(LeakCheckedCall(judged))
}

/// What leaves besides the arguments: files, or a message that is forwarded.
fn along(gw: &Gateway, judged: &JudgedCall) -> Result<Vec<AttachedText>, CallError> {
    let checked = judged.checked();
    // Without a service nothing leaves.
    let Ok(service) = gw.services.for_service(checked.service()) else { return Ok(Vec::new()) };
    Ok(service.attached_texts(checked.action())?)
}

/// Whether a finding is a password only because of its argument's name, and the user wrote exactly this value into the
/// task: `change my password to …`. Formats of secrets, and secrets of the vault, are blocked no matter who wrote them.
/// The argument must be that value and nothing else: text next to a requested address must not leave with it.
fn is_users_own(finding: &LeakFinding, parts: &[OutboundPart<'_>], targets: &[TracedTarget]) -> bool {
    let whole = |value: &str| parts.iter().any(|part| part.is(&finding.field, value));
    finding.pattern == "generic.password"
        && targets.iter().any(|target| {
            target.origin == TargetOrigin::Asked && target.argument == finding.field && whole(&target.value)
        })
}

/// Scans texts that go to people through a third-party channel, such as the preview of an approval request in a chat.
///
/// # Errors
/// When something is found: in that case the text must be replaced by one that says where to look instead.
pub fn preview(gw: &Gateway, parts: &[OutboundPart<'_>]) -> Result<(), CallError> {
    let report = gw.scan.scan(parts, LeakScope::Service);
    if report.blocks() { Err(refuse(&report)) } else { Ok(()) }
}

/// The refusal, with the findings for the audit log.
fn refuse(report: &LeakReport) -> CallError {
    let blocking = || report.findings.iter().filter(|finding| finding.weight == LeakWeight::Block).take(RECORDED);
    let mut ids: Vec<&str> = blocking().map(|finding| finding.pattern.as_str()).collect();
    ids.dedup();
    let fields: std::collections::BTreeSet<&str> = blocking().map(|finding| finding.field.as_str()).collect();
    let fields = fields.into_iter().collect::<Vec<_>>().join("`, `");
    let text = format!("the call holds something that must not leave: {} in `{fields}`", ids.join(", "));
    let findings: Vec<Value> = blocking()
        .map(|finding| {
            json!({
                "pattern": finding.pattern, "field": finding.field, "view": finding.view,
                "length": finding.length, "hash": finding.hash,
            })
        })
        .collect();
    tracing::warn!(findings = findings.len(), "a call was refused because of what it would have carried out");
    let mut no = CallError::from(Refusal::new(Code::LeakFound).with_text(&text));
    no.findings = Some(Box::new(Value::Array(findings)));
    no
}

impl LeakCheckedCall {
    pub(crate) fn into_judged(self) -> JudgedCall {
        self.0
    }
}
