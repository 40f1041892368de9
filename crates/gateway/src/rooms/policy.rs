//! Policy: the verdict of the rules on a call.
//!
//! Takes `TracedCall`, gives `JudgedCall`: a tier with its reasons, raised if the session is tainted. Refuses blocked calls.
//! Promise: the complete policy that judged the call is recorded by its version.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_core::approval::allowance::{ApprovalTrigger, TierEscalation};
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::batch::SlidingWindow;
use sluice_core::capability::Effect;
use sluice_core::hold::Hold;
use sluice_core::policy::{
    CallVerdict, Policy, PolicyInput, RateCounter, RateKey, RuleRef, TargetOrigins, VerdictReason,
};
use sluice_core::proxy::spawn;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::{TracedTarget, origins};
use sluice_core::{Action, AgentName, CallId, CapabilityName, Millis, Tier};
use sluice_services::{CHECKED, CallError};
use sluice_store::{RateLimitCounter, Session};

use super::observe;
use super::origin::{self, TracedCall};
use super::schema::CheckedCall;
use crate::Gateway;
use sluice_services::refused_action::RefusedAction;

/// A call with its verdict.
#[derive(Debug)]
pub struct JudgedCall {
    checked: CheckedCall,
    targets: Vec<TracedTarget>,
    policy: Arc<Policy>,
    tier: Tier,
    rule: Option<String>,
    rates: Vec<RateLimitCounter>,
    why: Vec<ApprovalTrigger>,
    reasons: Vec<ApprovalReason>,
    /// The verdict of the rules, if observe mode allows the call against it.
    would: Option<Tier>,
}

/// The current verdict of policy on an action.
#[derive(Debug)]
pub struct PolicyOpinion {
    /// The rules that judged it.
    pub policy: Arc<Policy>,
    /// The verdicts on the call and on the reads in it.
    pub verdict: CallVerdict,
    /// The tier, with every escalation applied.
    pub tier: Tier,
    /// The counters that the call counts towards.
    pub rates: Vec<RateLimitCounter>,
    /// Why a person is needed, if one is.
    pub why: Vec<ApprovalTrigger>,
    /// The same reasons for people: which rule, in its author's words.
    pub reasons: Vec<ApprovalReason>,
}

/// Judges a call.
///
/// # Errors
/// When it is blocked, or the counters cannot be read.
pub(crate) async fn judge(gw: &Gateway, sourced: TracedCall) -> Result<JudgedCall, CallError> {
    let session = sourced.checked().known().session();
    let writes = sourced.checked().effect() == Effect::Write;
    let seen = sourced.is_traced().then(|| origins(sourced.targets()));
    let opinion = opinion(gw, sourced.checked().action(), session, (writes, seen)).await?;
    let (checked, targets) = sourced.into_parts();
    let is_observed = observe::covers(gw, checked.action(), &opinion);
    let PolicyOpinion { policy, verdict, tier, rates, why, reasons } = opinion;
    let rule = verdict.decided_by().map(|rule| policy.location(rule));
    if is_observed {
        let wanted = RefusedAction::new(checked.action().clone(), &targets);
        observe::record(gw, &checked, &wanted, (tier, rule.clone())).await?;
        // The verdict is in the audit log; from here on the call is treated as one with a notice.
        return Ok(JudgedCall {
            checked,
            targets,
            policy,
            tier: Tier::Notify,
            rule,
            rates,
            why: Vec::new(),
            reasons: Vec::new(),
            would: Some(tier),
        });
    }
    if tier == Tier::Blocked {
        let mut no = refused_by(gw, checked.action(), (&policy, &verdict), checked.known().call());
        no.wanted = Some(Box::new(RefusedAction::new(checked.action().clone(), &targets)));
        return Err(no);
    }
    Ok(JudgedCall { checked, targets, policy, tier, rule, rates, why, reasons, would: None })
}

/// The refusal of an action that the rules block, with the rule and its author's reason.
pub(crate) fn blocked_error(gw: &Gateway, action: &Action, opinion: &PolicyOpinion, call: CallId) -> CallError {
    refused_by(gw, action, (&opinion.policy, &opinion.verdict), call)
}

/// The place of a rule as agents and people are told it: its file, seen from the policy folder, and its line. Where the
/// folder lies is nobody's business but the operator's.
fn rule_name(gw: &Gateway, policy: &Policy, rule: RuleRef) -> String {
    let whole = policy.location(rule);
    let inside = std::path::Path::new(&whole).strip_prefix(&gw.config.policies);
    inside.map_or_else(|_| whole.clone(), |inside| inside.display().to_string())
}

fn refused_by(gw: &Gateway, action: &Action, (policy, verdict): (&Policy, &CallVerdict), call: CallId) -> CallError {
    let rule = verdict.decided_by().map(|rule| rule_name(gw, policy, rule));
    let by = rule.as_deref().unwrap_or("the default");
    let mut words = format!("`{}` is blocked by {by}", action.capability());
    if let Some(read) = verdict.stricter_read() {
        words = format!("{words}, because it reads `{}`", read.path);
    }
    if let Some(reason) = verdict.decided_by().and_then(|rule| policy.rule(rule)?.reason.clone()) {
        words = format!("{words}: {reason}");
    }
    let mut no = CallError::from(Refusal::new(Code::PolicyBlocked).with_text(&words));
    no.rule = rule;
    no.call = Some(call);
    no
}

/// Judges an action by the policy in force, including counters and taint. Finds the origin of the targets if that has
/// not been done and a rule needs it.
///
/// # Errors
/// When the counters, or the session's list of seen targets, cannot be read.
pub async fn opinion(
    gw: &Gateway,
    action: &Action,
    session: Option<&Session>,
    (writes, targets): (bool, Option<TargetOrigins>),
) -> Result<PolicyOpinion, CallError> {
    let policy = gw.policy.get();
    let now = gw.now();
    let session_id = session.map(|session| session.id.to_string());
    // An agent still knows in its next session what it read before: it is as tainted as its most tainted session.
    let tainted = writes && gw.store.has_tainted_session(action.agent().clone()).await?;
    let spawn = spawn::arguments(&sluice_services::carried_name(action), action);
    let mut question = PolicyInput::new(action.agent(), action.capability(), action.arguments(), now);
    question.spawn = spawn.as_ref();
    question.account = action.account();
    question.session = session_id.as_deref();
    question.tainted = tainted;
    question.targets = targets;
    let mut verdict = policy.judge_call(&question);
    if targets.is_none() && verdict.reasons().any(|reason| matches!(reason, VerdictReason::Broken(_))) {
        question.targets = Some(origins(&origin::of(gw, action, session).await?));
        verdict = policy.judge_call(&question);
    }
    let limits: Vec<(RateKey, SlidingWindow, Tier)> = verdict
        .hits()
        .filter_map(|(_, hit)| {
            let limit = policy.rule(hit.rule)?.rate?;
            let most = u32::try_from(limit.max).unwrap_or(u32::MAX);
            hit.rate.map(|used| (used.key, SlidingWindow { limit: most, span: limit.window }, limit.on_exceed))
        })
        .collect();
    let mut counted = RateCounts(HashMap::new());
    for (key, window, _) in &limits {
        let used = gw.store.rate_used(action.agent().clone(), &key.to_string(), window, now).await?;
        counted.0.insert(*key, u64::from(used));
    }
    let verdict = if limits.is_empty() {
        verdict
    } else {
        question.rates = &counted;
        policy.judge_call(&question)
    };
    let why = why(&verdict, tainted && writes);
    let reasons = reasons(gw, &policy, &verdict, tainted && writes);
    let tier = if tainted && writes { verdict.tier().raise(Tier::ApprovalRequired) } else { verdict.tier() };
    // Checked again when it is counted: another call may take the last place meanwhile.
    let rates = limits.into_iter().map(|(key, window, on_exceed)| {
        let fits = counted.0.get(&key).is_none_or(|used| *used < u64::from(window.limit));
        RateLimitCounter { rule: key.to_string(), window, on_exceed: fits.then_some(on_exceed) }
    });
    let rates = rates.collect();
    Ok(PolicyOpinion { policy, verdict, tier, rates, why, reasons })
}

/// Policy's second verdict on a held write, just before it leaves.
///
/// # Errors
/// When the counters or the session cannot be read.
pub async fn look_again(gw: &Gateway, hold: &Hold) -> Result<PolicyOpinion, CallError> {
    let session = match hold.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    // A call that was only checked is judged under the name of the action that would be carried out.
    let name = hold.action.capability().as_str();
    let judged = match name.strip_prefix(CHECKED).map(CapabilityName::new) {
        Some(Ok(name)) => {
            let arguments = Value::Object(hold.action.arguments().clone());
            let bare = Action::custom(name, hold.agent().clone(), arguments);
            bare.map_or_else(|_| hold.action.clone(), |bare| bare.with_spawn(hold.action.spawn().cloned()))
        }
        Some(Err(_)) | None => hold.action.clone(),
    };
    let seen = origins(&origin::of(gw, &judged, session.as_ref()).await?);
    let mut found = opinion(gw, &judged, session.as_ref(), (true, Some(seen))).await?;
    if observe::covers(gw, &judged, &found) {
        found.tier = Tier::Notify;
    }
    Ok(found)
}

/// Every reason to ask a person. An empty list means that no approval is needed.
fn why(verdict: &CallVerdict, taint: bool) -> Vec<ApprovalTrigger> {
    let mut found = Vec::new();
    for reason in verdict.reasons() {
        let why = match reason {
            VerdictReason::Rule(_, _, tier) | VerdictReason::Default(tier) if tier >= Tier::ApprovalRequired => {
                ApprovalTrigger::Policy
            }
            VerdictReason::Rule(..) | VerdictReason::Default(_) => continue,
            VerdictReason::Rate(..) => ApprovalTrigger::Escalation(TierEscalation::RateLimit),
            VerdictReason::Broken(_) | VerdictReason::Unknown => {
                ApprovalTrigger::Escalation(TierEscalation::Evaluation)
            }
        };
        if !found.contains(&why) {
            found.push(why);
        }
    }
    if taint {
        found.push(ApprovalTrigger::Escalation(TierEscalation::Taint));
    }
    found
}

/// The same reasons for people: each rule by its place and in its author's words.
fn reasons(gw: &Gateway, policy: &Policy, verdict: &CallVerdict, taint: bool) -> Vec<ApprovalReason> {
    let named = |code: &str, rule| ApprovalReason::new(code).with_rule(rule_name(gw, policy, rule));
    let mut found: Vec<ApprovalReason> = verdict
        .reasons()
        .filter_map(|reason| match reason {
            VerdictReason::Rule(_, rule, tier) if tier >= Tier::ApprovalRequired => {
                let words = policy.rule(rule).and_then(|rule| rule.reason.as_deref());
                Some(words.iter().fold(named("policy.rule", rule), |reason, words| reason.with_text(*words)))
            }
            VerdictReason::Default(tier) if tier >= Tier::ApprovalRequired => {
                Some(ApprovalReason::new("policy.default"))
            }
            VerdictReason::Rule(..) | VerdictReason::Default(_) => None,
            VerdictReason::Rate(rule, _) => Some(named("policy.rate_limit", rule)),
            VerdictReason::Broken(rule) => Some(named("policy.evaluation", rule)),
            VerdictReason::Unknown => Some(ApprovalReason::new("policy.unknown")),
        })
        .collect();
    if taint {
        found.push(ApprovalReason::new("session.tainted"));
    }
    found
}

/// Counters that were read beforehand, because policy cannot wait.
struct RateCounts(HashMap<RateKey, u64>);

impl RateCounter for RateCounts {
    fn count(&self, _: &AgentName, key: RateKey, _: Millis) -> u64 {
        // A counter that was not read counts as full.
        self.0.get(&key).copied().unwrap_or(u64::MAX)
    }
}

impl JudgedCall {
    pub(crate) fn checked(&self) -> &CheckedCall {
        &self.checked
    }
    pub(crate) fn targets(&self) -> &[TracedTarget] {
        &self.targets
    }
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }
    pub(crate) fn policy(&self) -> &str {
        self.policy.version()
    }
    pub(crate) fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }
    pub(crate) fn rates(&self) -> &[RateLimitCounter] {
        &self.rates
    }
    pub(crate) fn why(&self) -> &[ApprovalTrigger] {
        &self.why
    }
    /// Why a person is asked, as texts for people.
    pub(crate) fn reasons(&self) -> &[ApprovalReason] {
        &self.reasons
    }
    /// Sets the origin of the targets, for a call that needs it only because a person is asked.
    pub(crate) fn trace(&mut self, targets: Vec<TracedTarget>) {
        self.targets = targets;
    }
    pub(crate) fn would(&self) -> Option<Tier> {
        self.would
    }
    /// Asks a person, for a reason that no standing approval answers.
    pub(crate) fn escalate(&mut self, reason: TierEscalation) {
        self.tier = self.tier.raise(Tier::ApprovalRequired);
        self.reasons.push(ApprovalReason::new(match reason {
            TierEscalation::RateLimit => "policy.rate_limit",
            TierEscalation::Taint => "session.tainted",
            TierEscalation::Findings => "leak.findings",
            TierEscalation::Evaluation => "policy.evaluation",
            TierEscalation::Budget => "budget.account",
            TierEscalation::Novelty => "budget.new_targets",
        }));
        self.why.push(ApprovalTrigger::Escalation(reason));
    }
    pub(crate) fn into_checked(self) -> CheckedCall {
        self.checked
    }
}

impl PolicyOpinion {
    /// Whether a person is asked for a reason that an approval of a whole batch does not answer.
    #[must_use]
    pub fn asks_alone(&self) -> bool {
        let rate = ApprovalTrigger::Escalation(TierEscalation::RateLimit);
        self.tier == Tier::ApprovalRequired && self.why.iter().any(|why| *why != rate)
    }
}

/// The stricter tier, if the verdict is now stricter than when the write was admitted.
#[must_use]
pub fn stricter(hold: &Hold, opinion: &PolicyOpinion) -> Option<Tier> {
    match opinion.tier {
        Tier::Blocked => Some(Tier::Blocked),
        Tier::ApprovalRequired if hold.consent.is_none() && hold.tier < Tier::ApprovalRequired => {
            Some(Tier::ApprovalRequired)
        }
        Tier::ApprovalRequired | Tier::Notify | Tier::Autonomous => None,
    }
}
