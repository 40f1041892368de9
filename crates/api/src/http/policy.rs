//! The rules, for operators: those in force, those of the past, and the effect of others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sluice_core::ids::SessionId;
use sluice_core::policy::{Policy, PolicyInput, TargetOrigin};
use sluice_core::proxy::spawn;
use sluice_core::refusal::Code;
use sluice_core::target::origins;
use sluice_core::{Action, AgentName, CallId, CapabilityName, HoldId, Millis};
use sluice_gateway::Gateway;
use sluice_gateway::loops::policy::put_in_force;
use sluice_gateway::rooms::origin;
use sluice_services::value::put;
use sluice_services::{CHECKED, CallError, policies};
use sluice_store::{ListRefusedCalls, PolicyRecord, RefusedCall};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{ListPage, TargetView};

/// Most held writes that one replay reads.
const MOST: usize = 100_000;

/// Policy files.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFilesBody {
    /// `org.yaml` and `agents/<name>.yaml`, each with its text. All files: a file that is not named is removed.
    pub files: Map<String, Value>,
    /// Apply only if this version is in force now.
    #[serde(default)]
    pub if_version: Option<String>,
}

/// `GET /v1/policy`: the rules in force, as files.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let policy = gw.policy.get();
    let found = policies::PolicyFiles::folder(&gw.config.policies);
    let files: Value = serde_json::from_str(&policies::as_json(&found.sources)).unwrap_or(Value::Null);
    Ok(HttpReply::json(200, &json!({"version": policy.version(), "rules": policy.rule_count(), "files": files})))
}

/// `PUT /v1/policy`: puts files in force.
pub(super) async fn apply(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let PolicyFilesBody { files, if_version } = visit.parse_body()?;
    let gw = &visit.gw;
    let (before, changed) = put_in_force(gw, &files, if_version, visit.actor()?).await?;
    Ok(HttpReply::json(200, &json!({"version": gw.policy.get().version(), "changed": changed, "before": before})))
}

/// `GET /v1/policy/history`.
pub(super) async fn history(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let found = visit.gw.store.policy_history(limit).await?;
    let data: Vec<Value> = found
        .iter()
        .map(|record| json!({"version": record.version, "by": record.by, "at": record.at.to_string()}))
        .collect();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// Rules that were in force before.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertPolicyBody {
    /// The version, or the start of it.
    pub version: String,
}

/// `POST /v1/policy/revert`.
pub(super) async fn revert(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let RevertPolicyBody { version } = visit.parse_body()?;
    let gw = visit.gw.clone();
    let record = match gw.store.policy(&version).await? {
        Some(record) => record,
        None => starting_like(&gw, &version).await?,
    };
    let files: Map<String, Value> = serde_json::from_str(&record.sources).unwrap_or_default();
    visit.body = Some(json!({"files": files}));
    apply(visit).await
}

/// The one set of past rules whose version starts like this.
async fn starting_like(gw: &Gateway, version: &str) -> Result<PolicyRecord, CallError> {
    let mut meant = gw.store.policy_history(500).await?;
    meant.retain(|record| {
        record.version.starts_with(version)
            || record.version.strip_prefix("sha256:").is_some_and(|hash| hash.starts_with(version))
    });
    // The same rules may have been in force more than once.
    meant.sort_unstable_by(|one, other| one.version.cmp(&other.version));
    meant.dedup_by(|one, other| one.version == other.version);
    match (meant.pop(), meant.is_empty()) {
        (Some(record), true) => Ok(record),
        (Some(_), false) | (None, _) => {
            Err(CallError::with_text(Code::StoreNotFound, "no version, or more than one, starts like that"))
        }
    }
}

/// A call to explain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainCallBody {
    /// The agent.
    #[schemars(with = "String")]
    pub agent: AgentName,
    /// The capability.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// The arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The session: its task, what it was shown, and whether it is tainted.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_id: Option<SessionId>,
    /// The account at the service.
    #[serde(default)]
    pub account: Option<String>,
}

/// `POST /v1/policy/explain`.
pub(super) async fn explain(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ExplainCallBody { agent, capability, arguments, session_id, account } = visit.parse_body()?;
    let gw = &visit.gw;
    let session = match session_id {
        Some(id) => gw.store.session(id).await?.filter(|session| session.agent == agent),
        None => None,
    };
    if session_id.is_some() && session.is_none() {
        return Err(CallError::new(Code::IdentitySession));
    }
    // A call that was only checked is explained under the name that it would be carried out under.
    let name = capability.as_str().strip_prefix(CHECKED).map(CapabilityName::new);
    let capability = name.and_then(Result::ok).unwrap_or(capability);
    let action = Action::custom(capability.clone(), agent.clone(), Value::Object(arguments.clone()));
    let targets = match action {
        Ok(action) => origin::of(gw, &action, session.as_ref()).await?,
        Err(_) => Vec::new(),
    };
    let named = session_id.map(|id| id.to_string());
    let mut question = PolicyInput::new(&agent, &capability, &arguments, gw.now());
    question.session = named.as_deref();
    question.account = account.as_deref();
    question.tainted = gw.store.has_tainted_session(agent.clone()).await?;
    question.targets = Some(origins(&targets));
    let mut explained = serde_json::to_value(gw.policy.get().explain(&question)).unwrap_or_default();
    let targets: Vec<TargetView> = targets.into_iter().map(TargetView::from).collect();
    put(&mut explained, "targets", serde_json::to_value(targets).unwrap_or_default());
    Ok(HttpReply::json(200, &explained))
}

/// A request to replay the past with other rules.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayPolicyBody {
    /// The other rules.
    pub files: Map<String, Value>,
    /// How many seconds of the past are replayed.
    pub seconds: u64,
}

/// A call that other rules would have treated differently.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReplayDifferenceView {
    /// The id of the call.
    pub call_id: String,
    /// The write it became; absent if the rules refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_id: Option<String>,
    /// The agent.
    pub agent: String,
    /// The capability.
    pub capability: String,
    /// The tier under the rules in force.
    pub now: String,
    /// The tier under the other rules.
    pub then: String,
    /// The deciding rule of the other rules.
    pub rule: Option<String>,
}

/// What a replay found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReplayView {
    /// How many writes were replayed. Answered reads keep no arguments, so they cannot be replayed.
    pub writes: usize,
    /// How many calls, refused ones included, would be treated more strictly.
    pub stricter: usize,
    /// How many calls would be treated less strictly.
    pub looser: usize,
    /// How many calls the rules refused in that time.
    pub refused: usize,
    /// How many refused calls were replayed. Their arguments are kept for 30 days, unless they are large, hold
    /// something that must not leave, or a limit refused the call rather than a rule.
    pub refused_replayed: usize,
    /// Whether `refused` counts all of them; the search of the audit log is limited.
    pub refused_all: bool,
    /// The first hundred differences.
    pub differences: Vec<ReplayDifferenceView>,
}

/// `POST /v1/policy/replay`.
pub(super) async fn replay(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ReplayPolicyBody { files, seconds } = visit.parse_body()?;
    let gw = &visit.gw;
    let sources = policies::from_json(&files)?;
    let other = Policy::load(&sources, &gw.catalogue.known()).map_err(|errors| policies::refuse(&errors))?.policy;
    Ok(HttpReply::json(200, &compare(gw, &other, Millis::from_secs(seconds)).await?))
}

async fn compare(gw: &Gateway, other: &Policy, span: Millis) -> Result<ReplayView, CallError> {
    let current = gw.policy.get();
    let rules = (current.as_ref(), other);
    let since = u64::try_from((gw.now() - span).as_millis().max(0)).unwrap_or(0);
    let mut after = HoldId::from_bits(u128::from(since) << 80);
    let refused = ListRefusedCalls {
        since: gw.now() - span,
        agent: None,
        service: None,
        session: None,
        before: None,
        limit: MOST,
        bound: 2 * MOST as u64,
    };
    let refused = gw.store.refusals(refused).await?;
    let by_rules = refused.calls.iter().filter(|call| call.code.starts_with("policy."));
    let mut found = ReplayView {
        writes: 0,
        stricter: 0,
        looser: 0,
        refused: by_rules.clone().count(),
        refused_replayed: 0,
        refused_all: refused.is_all && refused.calls.len() < MOST,
        differences: Vec::new(),
    };
    for call in by_rules {
        compare_refused(gw, rules, call, &mut found).await?;
    }
    while found.writes < MOST {
        let page = gw.store.holds(Some(after), 500).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for hold in page.iter().filter(|hold| hold.reverses.is_none()) {
            found.writes += 1;
            let name = hold.action.capability().as_str();
            let name = name.strip_prefix(CHECKED).unwrap_or(name);
            let Ok(name) = CapabilityName::new(name) else { continue };
            let session = hold.session.map(|id| id.to_string());
            let spawn = spawn::arguments(&name, &hold.action);
            let mut question = PolicyInput::new(hold.agent(), &name, hold.action.arguments(), hold.admitted_at);
            question.spawn = spawn.as_ref();
            question.account = hold.action.account();
            question.session = session.as_deref();
            question.targets = Some(origins(&gw.store.hold_targets(hold.id).await?));
            found.note(rules, &question, (hold.call, Some(hold.id)));
        }
    }
    Ok(found)
}

/// Replays a call that the rules refused, if its arguments are kept.
async fn compare_refused(
    gw: &Gateway,
    rules: (&Policy, &Policy),
    call: &RefusedCall,
    found: &mut ReplayView,
) -> Result<(), CallError> {
    let Some(digest) = call.digest else { return Ok(()) };
    let Some(action) = gw.store.refused_action(digest).await? else { return Ok(()) };
    let session = call.session.map(|id| id.to_string());
    let words = call.origins.as_deref().unwrap_or_default();
    let spawn = spawn::arguments(action.capability(), &action);
    let mut question = PolicyInput::new(action.agent(), action.capability(), action.arguments(), call.at);
    question.spawn = spawn.as_ref();
    question.account = action.account();
    question.session = session.as_deref();
    question.targets = Some(words.split(", ").filter_map(TargetOrigin::from_word).collect());
    found.note(rules, &question, (call.call, None));
    found.refused_replayed += 1;
    Ok(())
}

impl ReplayView {
    /// Compares the rules in force and the other rules for one call.
    fn note(
        &mut self,
        (current, other): (&Policy, &Policy),
        question: &PolicyInput<'_>,
        (call, hold): (CallId, Option<HoldId>),
    ) {
        let (now, then) = (current.judge_call(question), other.judge_call(question));
        if now.tier() == then.tier() {
            return;
        }
        if then.tier() > now.tier() {
            self.stricter += 1;
        } else {
            self.looser += 1;
        }
        if self.differences.len() < 100 {
            self.differences.push(ReplayDifferenceView {
                call_id: call.to_string(),
                buffer_id: hold.map(|id| id.to_string()),
                agent: question.agent.to_string(),
                capability: question.capability.to_string(),
                now: now.tier().as_str().into(),
                then: then.tier().as_str().into(),
                rule: then.decided_by().map(|rule| other.location(rule)),
            });
        }
    }
}
