//! Policy: what the rules say to this call.
//!
//! Takes `Sourced`, gives `Judged`: a tier with its reasons, raised by a tainted session where there is one.
//! Refuses what is blocked. Promise: the policy that judged is the one recorded, whole, by its version.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_core::approval::allowance::{Escalation, Why};
use sluice_core::approval::reason::AskReason;
use sluice_core::batch::Window;
use sluice_core::capability::Effect;
use sluice_core::hold::Hold;
use sluice_core::policy::{CallVerdict, Origins, Policy, Question, RateKey, Rates, Reason};
use sluice_core::proxy::spawn;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::{Traced, origins};
use sluice_core::{Action, AgentName, CallId, CapabilityName, Span, Tier};
use sluice_store::{Rate, Session};

use super::observe;
use super::origin::{self, Sourced};
use super::refused::Wanted;
use super::schema::Checked;
use crate::services::{self, CHECKED};
use crate::{Gateway, No};

/// A call with its verdict.
#[derive(Debug)]
pub struct Judged {
    checked: Checked,
    targets: Vec<Traced>,
    policy: Arc<Policy>,
    tier: Tier,
    rule: Option<String>,
    rates: Vec<Rate>,
    why: Vec<Why>,
    reasons: Vec<AskReason>,
    /// What the rules said, where observe mode lets the call through all the same.
    would: Option<Tier>,
}

/// What policy says to an action now.
#[derive(Debug)]
pub struct Opinion {
    /// The rules that were asked.
    pub policy: Arc<Policy>,
    /// What they said about the call and about the reads in it.
    pub verdict: CallVerdict,
    /// With every escalation.
    pub tier: Tier,
    /// Counters that a call counts towards.
    pub rates: Vec<Rate>,
    /// Why a person is needed, if one is.
    pub why: Vec<Why>,
    /// The same for people: which rule, in its author's words.
    pub reasons: Vec<AskReason>,
}

/// Judges a call.
///
/// # Errors
/// When it is blocked, or the counters cannot be read.
pub(crate) async fn judge(gw: &Gateway, sourced: Sourced) -> Result<Judged, No> {
    let session = sourced.checked().known().session();
    let writes = sourced.checked().effect() == Effect::Write;
    let seen = sourced.is_traced().then(|| origins(sourced.targets()));
    let opinion = opinion(gw, sourced.checked().action(), session, (writes, seen)).await?;
    let (checked, targets) = sourced.into_parts();
    let is_observed = observe::covers(gw, checked.action(), &opinion);
    let Opinion { policy, verdict, tier, rates, why, reasons } = opinion;
    let rule = verdict.decided_by().map(|rule| policy.location(rule));
    if is_observed {
        let wanted = Wanted::new(checked.action().clone(), &targets);
        observe::record(gw, &checked, &wanted, (tier, rule.clone())).await?;
        // The verdict stands in the record; what follows treats the call as one that people are told about.
        return Ok(Judged {
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
        let mut no = refused_by(checked.action(), (&policy, &verdict), checked.known().call());
        no.wanted = Some(Box::new(Wanted::new(checked.action().clone(), &targets)));
        return Err(no);
    }
    Ok(Judged { checked, targets, policy, tier, rule, rates, why, reasons, would: None })
}

/// The refusal of an action that the rules block, with the rule and its author's reason.
pub(crate) fn blocked(action: &Action, opinion: &Opinion, call: CallId) -> No {
    refused_by(action, (&opinion.policy, &opinion.verdict), call)
}

fn refused_by(action: &Action, (policy, verdict): (&Policy, &CallVerdict), call: CallId) -> No {
    let rule = verdict.decided_by().map(|rule| policy.location(rule));
    let by = rule.as_deref().unwrap_or("the default");
    let mut words = format!("`{}` is blocked by {by}", action.capability());
    if let Some(read) = verdict.stricter_read() {
        words = format!("{words}, because it reads `{}`", read.path);
    }
    if let Some(reason) = verdict.decided_by().and_then(|rule| policy.rule(rule)?.reason.clone()) {
        words = format!("{words}: {reason}");
    }
    let mut no = No::from(Refusal::new(Code::PolicyBlocked).with_text(&words));
    no.rule = rule;
    no.call = Some(call);
    no
}

/// Asks the policy in force about an action, counters and taint included. Where the targets come from is found out if
/// nobody has yet and a rule wants to know.
///
/// # Errors
/// When the counters, or what the session was shown, cannot be read.
pub async fn opinion(
    gw: &Gateway,
    action: &Action,
    session: Option<&Session>,
    (writes, targets): (bool, Option<Origins>),
) -> Result<Opinion, No> {
    let policy = gw.policy.get();
    let now = gw.now();
    let session_id = session.map(|session| session.id.to_string());
    // What an agent has read it still knows in its next session: it is as tainted as the worst of them.
    let tainted = writes && gw.store.any_tainted(action.agent().clone()).await?;
    let spawn = spawn::arguments(&services::carried_name(action), action);
    let mut question = Question::new(action.agent(), action.capability(), action.arguments(), now);
    question.spawn = spawn.as_ref();
    question.account = action.account();
    question.session = session_id.as_deref();
    question.tainted = tainted;
    question.targets = targets;
    let mut verdict = policy.judge_call(&question);
    if targets.is_none() && verdict.reasons().any(|reason| matches!(reason, Reason::Broken(_))) {
        question.targets = Some(origins(&origin::of(gw, action, session).await?));
        verdict = policy.judge_call(&question);
    }
    let limits: Vec<(RateKey, Window, Tier)> = verdict
        .hits()
        .filter_map(|(_, hit)| {
            let limit = policy.rule(hit.rule)?.rate?;
            let most = u32::try_from(limit.max).unwrap_or(u32::MAX);
            hit.rate.map(|used| (used.key, Window { limit: most, span: limit.window }, limit.on_exceed))
        })
        .collect();
    let mut counted = Counted(HashMap::new());
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
    let reasons = reasons(&policy, &verdict, tainted && writes);
    let tier = if tainted && writes { verdict.tier().raise(Tier::ApprovalRequired) } else { verdict.tier() };
    // Looked at again where it is counted: another call may take the last place meanwhile.
    let rates = limits.into_iter().map(|(key, window, on_exceed)| {
        let fits = counted.0.get(&key).is_none_or(|used| *used < u64::from(window.limit));
        Rate { rule: key.to_string(), window, on_exceed: fits.then_some(on_exceed) }
    });
    let rates = rates.collect();
    Ok(Opinion { policy, verdict, tier, rates, why, reasons })
}

/// Policy's second look at a held write, just before it leaves.
///
/// # Errors
/// When the counters or the session cannot be read.
pub async fn look_again(gw: &Gateway, hold: &Hold) -> Result<Opinion, No> {
    let session = match hold.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    // A call that was only checked is judged under the name it would be carried out under.
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

/// Every reason for a person to be asked. An empty list means that nobody needs to be.
fn why(verdict: &CallVerdict, taint: bool) -> Vec<Why> {
    let mut found = Vec::new();
    for reason in verdict.reasons() {
        let why = match reason {
            Reason::Rule(_, _, tier) | Reason::Default(tier) if tier >= Tier::ApprovalRequired => Why::Policy,
            Reason::Rule(..) | Reason::Default(_) => continue,
            Reason::Rate(..) => Why::Escalation(Escalation::RateLimit),
            Reason::Broken(_) | Reason::Unknown => Why::Escalation(Escalation::Evaluation),
        };
        if !found.contains(&why) {
            found.push(why);
        }
    }
    if taint {
        found.push(Why::Escalation(Escalation::Taint));
    }
    found
}

/// The same for people, with each rule by its place and in its author's words.
fn reasons(policy: &Policy, verdict: &CallVerdict, taint: bool) -> Vec<AskReason> {
    let named = |code: &str, rule| AskReason::new(code).with_rule(policy.location(rule));
    let mut found: Vec<AskReason> = verdict
        .reasons()
        .filter_map(|reason| match reason {
            Reason::Rule(_, rule, tier) if tier >= Tier::ApprovalRequired => {
                let words = policy.rule(rule).and_then(|rule| rule.reason.as_deref());
                Some(words.iter().fold(named("policy.rule", rule), |reason, words| reason.with_text(*words)))
            }
            Reason::Default(tier) if tier >= Tier::ApprovalRequired => Some(AskReason::new("policy.default")),
            Reason::Rule(..) | Reason::Default(_) => None,
            Reason::Rate(rule, _) => Some(named("policy.rate_limit", rule)),
            Reason::Broken(rule) => Some(named("policy.evaluation", rule)),
            Reason::Unknown => Some(AskReason::new("policy.unknown")),
        })
        .collect();
    if taint {
        found.push(AskReason::new("session.tainted"));
    }
    found
}

/// Counts read beforehand: policy asks without waiting.
struct Counted(HashMap<RateKey, u64>);

impl Rates for Counted {
    fn count(&self, _: &AgentName, key: RateKey, _: Span) -> u64 {
        // A counter nobody read is as good as full.
        self.0.get(&key).copied().unwrap_or(u64::MAX)
    }
}

impl Judged {
    pub(crate) fn checked(&self) -> &Checked {
        &self.checked
    }
    pub(crate) fn targets(&self) -> &[Traced] {
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
    pub(crate) fn rates(&self) -> &[Rate] {
        &self.rates
    }
    pub(crate) fn why(&self) -> &[Why] {
        &self.why
    }
    /// Why a person is asked, for people.
    pub(crate) fn reasons(&self) -> &[AskReason] {
        &self.reasons
    }
    /// Where its targets come from, for a call of which nobody had to know until a person is asked.
    pub(crate) fn trace(&mut self, targets: Vec<Traced>) {
        self.targets = targets;
    }
    pub(crate) fn would(&self) -> Option<Tier> {
        self.would
    }
    /// A person is asked, for a reason no standing yes answers.
    pub(crate) fn escalate(&mut self, reason: Escalation) {
        self.tier = self.tier.raise(Tier::ApprovalRequired);
        self.reasons.push(AskReason::new(match reason {
            Escalation::RateLimit => "policy.rate_limit",
            Escalation::Taint => "session.tainted",
            Escalation::Findings => "leak.findings",
            Escalation::Evaluation => "policy.evaluation",
            Escalation::Budget => "budget.account",
            Escalation::Novelty => "budget.new_targets",
        }));
        self.why.push(Why::Escalation(reason));
    }
    pub(crate) fn into_checked(self) -> Checked {
        self.checked
    }
}

impl Opinion {
    /// Whether a person is asked for a reason that a yes to many writes at once does not answer.
    #[must_use]
    pub fn asks_alone(&self) -> bool {
        let rate = Why::Escalation(Escalation::RateLimit);
        self.tier == Tier::ApprovalRequired && self.why.iter().any(|why| *why != rate)
    }
}

/// A stricter answer than the one a write was admitted under, if there is one now.
#[must_use]
pub fn stricter(hold: &Hold, opinion: &Opinion) -> Option<Tier> {
    match opinion.tier {
        Tier::Blocked => Some(Tier::Blocked),
        Tier::ApprovalRequired if hold.consent.is_none() && hold.tier < Tier::ApprovalRequired => {
            Some(Tier::ApprovalRequired)
        }
        Tier::ApprovalRequired | Tier::Notify | Tier::Autonomous => None,
    }
}
