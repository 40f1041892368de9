//! Suggestions: rules for what observed agents did, tried on the same calls before anybody adds them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::policy::{Policy, Question, Source, Sources, propose};
use sluice_core::{Action, AgentName, Span, Tier, Timestamp};
use sluice_store::Observed;

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::{Gateway, No, policies};

/// Most observed calls that are looked at.
const MOST: usize = 10_000;

/// Which observed calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Suggest {
    /// Not older than so many seconds.
    pub seconds: u64,
    /// Only of this agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
}

/// What is proposed for one agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SuggestionView {
    /// The agent.
    pub agent: String,
    /// Observed calls that the rules would have asked about.
    pub would_have_asked: usize,
    /// Observed calls that the rules would have blocked.
    pub would_have_blocked: usize,
    /// How many of them could be looked at; large ones, and those with something that must not leave, are not kept.
    pub looked_at: usize,
    /// Rules for its file, to stand first under `rules`. Empty if nothing can be proposed.
    pub rules: String,
    /// Of the calls looked at: how many these rules would have asked about. Nothing if they cannot be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then_asked: Option<usize>,
    /// Of the calls looked at: how many would have been blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then_blocked: Option<usize>,
}

/// `POST /v1/policy/suggest`.
pub(super) async fn suggest(mut visit: Visit) -> Result<Reply, No> {
    let Suggest { seconds, agent } = visit.take()?;
    let gw = &visit.gw;
    let since = gw.now() - Span::from_secs(seconds);
    let mut agents: BTreeMap<AgentName, Seen> = BTreeMap::new();
    for call in gw.store.observed_calls(Observed { since, agent, limit: MOST }).await? {
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
    Ok(Reply::json(200, &Page::<SuggestionView> { data: found, next_cursor: None, has_more: false }))
}

/// What one agent did.
#[derive(Default)]
struct Seen {
    asked: usize,
    blocked: usize,
    calls: Vec<(Action, Timestamp)>,
}

impl Seen {
    fn view(&self, gw: &Gateway, agent: &AgentName) -> SuggestionView {
        let proposals = propose(self.calls.iter().map(|(action, _)| (action.capability(), action.arguments())));
        let rules: String = proposals.into_iter().map(|proposal| proposal.text).collect();
        let tried = try_out(gw, agent, &rules, &self.calls);
        SuggestionView {
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

/// How many calls would be asked about and blocked with the rules in the agent's file.
fn try_out(gw: &Gateway, agent: &AgentName, rules: &str, calls: &[(Action, Timestamp)]) -> Option<(usize, usize)> {
    let mut sources: Sources = policies::Found::folder(&gw.config.policies).sources;
    match sources.agents.iter_mut().find(|(name, _)| name == agent) {
        Some((_, source)) => source.text = with_rules(&source.text, rules)?,
        None => {
            let text = with_rules("rules:\n", rules)?;
            sources.agents.push((agent.clone(), Source { name: format!("agents/{agent}.yaml"), text }));
        }
    }
    let policy = Policy::load(&sources, &gw.catalogue.known()).ok()?.policy;
    let tiers = calls.iter().map(|(action, at)| {
        let mut question = Question::new(action.agent(), action.capability(), action.arguments(), *at);
        question.account = action.account();
        policy.judge(&question).tier
    });
    Some(tiers.fold((0, 0), |(asked, blocked), tier| match tier {
        Tier::Blocked => (asked, blocked + 1),
        Tier::ApprovalRequired => (asked + 1, blocked),
        Tier::Notify | Tier::Autonomous => (asked, blocked),
    }))
}

/// A file with rules put first under `rules`.
fn with_rules(text: &str, rules: &str) -> Option<String> {
    let at = if text.starts_with("rules:\n") { 0 } else { text.find("\nrules:\n")? + 1 };
    let (before, after) = text.split_at_checked(at + "rules:\n".len())?;
    Some(format!("{before}{rules}{after}"))
}
