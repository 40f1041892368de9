//! The peer: Cedar, with the same rules, used as its manual recommends.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::str::FromStr as _;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, Policy, PolicyId, PolicySet,
    Request, RestrictedExpression,
};
use sluice_core::Tier;

use super::rules::{BenchRule, BenchRules, PolicyQuestion, RuleSubject};
use crate::rounds::{RunTimes, timed_here};

/// How many answers are compared with a plain scan.
const COMPARED: usize = 256;

/// Rules in Cedar's own form.
pub struct CedarPolicy {
    authorizer: Authorizer,
    policies: PolicySet,
    tiers: HashMap<PolicyId, Tier>,
    entities: Entities,
}

impl CedarPolicy {
    /// Each rule is a `permit`; services are groups of actions.
    pub fn new(rules: &BenchRules) -> anyhow::Result<Self> {
        let (mut policies, mut tiers) = (PolicySet::new(), HashMap::new());
        for (number, rule) in rules.0.iter().enumerate() {
            let id = PolicyId::new(format!("rule{number}"));
            policies.add(Policy::parse(Some(id.clone()), text(rule))?)?;
            tiers.insert(id, rule.tier);
        }
        let names: HashSet<String> = super::rules::names().collect();
        let actions = names.iter().map(|name| {
            let group = name.split_once('.').map_or("", |(service, _)| service);
            Ok(Entity::new_no_attrs(uid("Action", name)?, HashSet::from([uid("Action", group)?])))
        });
        let entities = Entities::from_entities(actions.collect::<anyhow::Result<Vec<_>>>()?, None)?;
        Ok(Self { authorizer: Authorizer::new(), policies, tiers, entities })
    }

    /// Queries in Cedar's own form.
    pub fn requests(&self, questions: &[PolicyQuestion]) -> anyhow::Result<Vec<Request>> {
        let request = |asked: &PolicyQuestion| {
            let path = ("path".to_owned(), RestrictedExpression::new_string(asked.path.clone()));
            Ok(Request::new(
                uid("Agent", asked.agent.as_str())?,
                uid("Action", asked.capability.as_str())?,
                uid("Gateway", "gw")?,
                Context::from_pairs([path])?,
                None,
            )?)
        };
        questions.iter().map(request).collect()
    }

    /// The strictest of the rules that matched.
    fn answer(&self, request: &Request) -> Option<Tier> {
        let response = self.authorizer.is_authorized(request, &self.policies, &self.entities);
        let tier = response.diagnostics().reason().filter_map(|id| self.tiers.get(id)).max().copied();
        debug_assert_eq!(tier.is_some(), response.decision() == Decision::Allow);
        tier
    }

    /// One round.
    pub fn decide(&self, requests: &[Request]) -> anyhow::Result<RunTimes> {
        let work = || {
            for request in requests {
                black_box(self.answer(request));
            }
            Ok(())
        };
        Ok(timed_here(requests.len() as u64, work)?.0)
    }

    /// Checks that it has the same rules: it must give the same answers.
    pub fn must_agree(&self, rules: &BenchRules, questions: &[PolicyQuestion]) -> anyhow::Result<()> {
        let sample = questions.get(..COMPARED).unwrap_or(questions);
        let mut matched = 0;
        for (asked, request) in sample.iter().zip(self.requests(sample)?) {
            let (answer, expected) = (self.answer(&request), rules.scan(asked));
            anyhow::ensure!(answer == expected, "{asked:?}: Cedar says {answer:?}, the rules {expected:?}");
            matched += usize::from(answer.is_some());
        }
        anyhow::ensure!(matched > 0, "no rule of Cedar's matched anything");
        Ok(())
    }
}

fn text(rule: &BenchRule) -> String {
    let principal = rule.agent.as_ref().map_or("principal".into(), |agent| format!("principal == Agent::\"{agent}\""));
    let action = match &rule.about {
        RuleSubject::Name(name) => format!("action == Action::\"{name}\""),
        RuleSubject::Service(service) => format!("action in Action::\"{service}\""),
        RuleSubject::All => "action".into(),
    };
    let when = rule.folder.as_ref().map(|folder| format!(" when {{ context.path like \"{folder}/*\" }}"));
    format!("permit({principal}, {action}, resource){};", when.unwrap_or_default())
}

fn uid(kind: &str, id: &str) -> anyhow::Result<EntityUid> {
    Ok(EntityUid::from_type_name_and_id(EntityTypeName::from_str(kind)?, EntityId::new(id)))
}
