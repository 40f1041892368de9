//! Suggestions: rules for the calls of observed agents, tested on the same calls before anybody adds them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::policy::{Policy, PolicyInput, PolicySource, PolicySources, propose};
use sluice_core::{Action, AgentName, Millis, Tier, UtcMillis};
use sluice_gateway::Gateway;
use sluice_services::{CallError, policies};
use sluice_store::ListObservedCalls;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// Most observed calls that are read.
const MOST: usize = 10_000;

/// The observed calls to use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuggestRulesBody {
    /// Only calls of the last so many seconds.
    pub seconds: u64,
    /// Only calls of this agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
}

/// The proposal for one agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RuleSuggestionView {
    /// The agent.
    pub agent: String,
    /// Observed calls that the rules would have asked about.
    pub would_have_asked: usize,
    /// Observed calls that the rules would have blocked.
    pub would_have_blocked: usize,
    /// How many of them could be read; calls that are large or hold something that must not leave are not kept.
    pub looked_at: usize,
    /// Rules for the agent's file, to be placed first under `rules`. Empty if nothing can be proposed.
    pub rules: String,
    /// How many of the calls read these rules would have asked about; absent if the rules cannot be tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then_asked: Option<usize>,
    /// How many of the calls read would have been blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then_blocked: Option<usize>,
}

/// `POST /v1/policy/suggest`.
pub(super) async fn suggest(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let SuggestRulesBody { seconds, agent } = visit.parse_body()?;
    let gw = &visit.gw;
    let since = gw.now() - Millis::from_secs(seconds);
    let mut agents: BTreeMap<AgentName, ObservedAgentCalls> = BTreeMap::new();
    for call in gw.store.observed_calls(ListObservedCalls { since, agent, limit: MOST }).await? {
        let seen = agents.entry(call.agent).or_default();
        match call.would.as_str() {
            "blocked" => seen.blocked += 1,
            _ => seen.asked += 1,
        }
        let kept = match call.digest {
            Some(digest) => gw.store.refused_action(digest).await?,
            None => None,
        };
        seen.calls.extend(kept.map(|action| (action, call.at)));
    }
    let found = agents.iter().map(|(agent, seen)| seen.view(gw, agent)).collect();
    Ok(HttpReply::json(200, &ListPage::<RuleSuggestionView> { data: found, next_cursor: None, has_more: false }))
}

/// The calls of one agent.
#[derive(Default)]
struct ObservedAgentCalls {
    asked: usize,
    blocked: usize,
    calls: Vec<(Action, UtcMillis)>,
}

impl ObservedAgentCalls {
    fn view(&self, gw: &Gateway, agent: &AgentName) -> RuleSuggestionView {
        let proposals = propose(self.calls.iter().map(|(action, _)| (action.capability(), action.arguments())));
        let rules: String = proposals.into_iter().map(|proposal| proposal.text).collect();
        let tried = try_out(gw, agent, &rules, &self.calls);
        RuleSuggestionView {
            agent: agent.to_string(),
            would_have_asked: self.asked,
            would_have_blocked: self.blocked,
            looked_at: self.calls.len(),
            rules,
            then_asked: tried.map(|(asked, _)| asked),
            then_blocked: tried.map(|(_, blocked)| blocked),
        }
    }
}

/// How many calls would be asked about and blocked with these rules in the agent's file.
fn try_out(gw: &Gateway, agent: &AgentName, rules: &str, calls: &[(Action, UtcMillis)]) -> Option<(usize, usize)> {
    let mut sources: PolicySources = policies::PolicyFiles::folder(&gw.config.policies).sources;
    match sources.agents.iter_mut().find(|(name, _)| name == agent) {
        Some((_, source)) => source.text = with_rules(&source.text, rules)?,
        None => {
            let text = with_rules("rules:\n", rules)?;
            sources.agents.push((agent.clone(), PolicySource { name: format!("agents/{agent}.yaml"), text }));
        }
    }
    let policy = Policy::load(&sources, &gw.catalogue.known()).ok()?.policy;
    let tiers = calls.iter().map(|(action, at)| {
        let mut question = PolicyInput::new(action.agent(), action.capability(), action.arguments(), *at);
        question.account = action.account();
        policy.judge(&question).tier
    });
    Some(tiers.fold((0, 0), |(asked, blocked), tier| match tier {
        Tier::Blocked => (asked, blocked + 1),
        Tier::ApprovalRequired => (asked + 1, blocked),
        Tier::Notify | Tier::Autonomous => (asked, blocked),
    }))
}

/// The file with the rules inserted first under `rules`.
fn with_rules(text: &str, rules: &str) -> Option<String> {
    let at = if text.starts_with("rules:\n") { 0 } else { text.find("\nrules:\n")? + 1 };
    let (before, after) = text.split_at_checked(at + "rules:\n".len())?;
    Some(format!("{before}{rules}{after}"))
}
