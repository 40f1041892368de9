//! Allowances: standing approvals that a person gave.
//!
//! Takes an approval request before it is put to people; says whether a standing approval answers it.
//! Promise: an allowance answers what a policy rule asks and nothing else. It never answers an escalation
//! and never applies to a batch, whatever else matches; a request without a reason is not answered either.
//! Of the calls through the gateway's own doors, it answers only those inside its bound, with targets that were asked
//! for or are known, and never at high risk.

use super::bound::{BoundedCall, TargetBound};
use super::card;
use crate::actor::Actor;
use crate::clock::UtcMillis;
use crate::ids::{AgentName, AllowanceId, CapabilityName, RuleId, SessionId};

/// One standing approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// Its id.
    pub id: AllowanceId,
    /// How long it lasts.
    pub scope: AllowanceScope,
    /// Whose requests it answers.
    pub asker: ApprovalRequester,
    /// What it covers.
    pub covers: AllowanceCoverage,
    /// Only within these bounds.
    pub bounds: AllowanceBounds,
    /// When it was given.
    pub given_at: UtcMillis,
    /// How often it was used.
    pub used: AllowanceUsage,
    /// Whether it still counts.
    pub standing: AllowanceState,
}

/// How often an allowance was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllowanceUsage {
    /// How many requests it answered.
    pub times: u32,
    /// When it answered the last one.
    pub last: Option<UtcMillis>,
}

/// How long a standing approval lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowanceScope {
    /// Menu line 2: for as long as this session lasts.
    Session {
        /// The session.
        session: AllowanceSession,
    },
    /// Menu line 6: until revoked. The API calls it an allow rule.
    Standing {
        /// Its id in the API.
        rule: RuleId,
    },
}

/// A session, and who issued it. The two kinds are never equal, so that a client cannot use a standing
/// approval by sending the id of a session that the gateway issued.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AllowanceSession {
    /// Issued by the gateway.
    Issued(SessionId),
    /// Named by a client of the approval API.
    Claimed(String),
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ApprovalRequester {
    /// An agent at one of our doors.
    Agent(AgentName),
    /// A client of the approval API, by its `client_id`.
    Client(String),
}

/// What a standing approval covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowanceCoverage {
    /// An action type of the approval API, exactly.
    ActionType(String),
    /// A capability, exactly.
    Capability(CapabilityName),
    /// Every capability below this name: `email` covers `email.send`, not `emails.send`.
    Below(CapabilityName),
}

/// What narrows an allowance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowanceBounds {
    /// It answers nothing from this time on.
    pub expires_at: Option<UtcMillis>,
    /// How many more requests it answers.
    pub uses_left: Option<u32>,
    /// Which calls of its capability it covers. Without one it answers no call of an agent.
    pub target: Option<TargetBound>,
}

/// Whether a standing approval still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowanceState {
    /// It counts.
    Active,
    /// It was revoked.
    Revoked {
        /// Who revoked it.
        by: Actor,
        /// When it was revoked.
        at: UtcMillis,
    },
}

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalTrigger {
    /// A rule requires it.
    Policy,
    /// Something about this call raised its tier.
    Escalation(TierEscalation),
    /// The agent does too much in a short time.
    Batch,
}

/// What can raise a tier beyond the rules, apart from a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TierEscalation {
    /// A rate limit of a rule was exceeded.
    RateLimit,
    /// The session was shown an item with an injection finding.
    Taint,
    /// The content itself looks suspicious.
    Findings,
    /// A rule could not be evaluated.
    Evaluation,
    /// A daily budget is used up.
    Budget,
    /// The daily budget for new targets is used up.
    Novelty,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedAction<'a> {
    /// An action type of the approval API.
    ActionType(&'a str),
    /// One of our capabilities.
    Capability(&'a CapabilityName),
}

/// An approval request that is about to be put to people.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalRequestContext<'a> {
    /// Who asks.
    pub asker: &'a ApprovalRequester,
    /// The session.
    pub session: Option<&'a AllowanceSession>,
    /// What it asks for.
    pub asked: RequestedAction<'a>,
    /// The call, for one of our capabilities.
    pub call: Option<&'a BoundedCall>,
    /// Every reason a person is needed.
    pub why: &'a [ApprovalTrigger],
    /// The current time.
    pub at: UtcMillis,
}

/// Why an allowance cannot be used or revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllowanceError {
    /// It does not answer this request.
    #[error("this allowance does not answer the approval request")]
    DoesNotAnswer,
    /// It is already revoked.
    #[error("this allowance is already revoked")]
    AlreadyRevoked,
}

/// The allowance that answers, if any: a standing one before one for a session, the older before the newer.
#[must_use]
pub fn find_answering<'a>(
    allowances: impl IntoIterator<Item = &'a Allowance>,
    question: &ApprovalRequestContext<'_>,
) -> Option<&'a Allowance> {
    let order = |allowance: &&Allowance| {
        let session = match allowance.scope {
            AllowanceScope::Standing { .. } => false,
            AllowanceScope::Session { .. } => true,
        };
        (session, allowance.given_at, allowance.id)
    };
    allowances.into_iter().filter(|allowance| allowance.answers(question)).min_by_key(order)
}

impl Allowance {
    /// Whether this allowance answers this request.
    #[must_use]
    pub fn answers(&self, question: &ApprovalRequestContext<'_>) -> bool {
        // SECURITY: the reasons come first. No match below can make up for a reason that is not policy.
        !question.why.is_empty()
            && question.why.iter().all(|why| why.may_be_answered())
            && self.standing == AllowanceState::Active
            && self.asker == *question.asker
            && self.scope.applies_in_session(question.session)
            && self.covers.includes_action(question.asked)
            && self.bounds.is_usable_at(question.at)
            && self.reaches(question)
    }

    /// Whether the call is inside its bound. A request of the approval API has no targets that the gateway can read.
    fn reaches(&self, question: &ApprovalRequestContext<'_>) -> bool {
        match (&self.asker, question.asked, question.call) {
            (ApprovalRequester::Client(_), RequestedAction::ActionType(_), None) => true,
            (ApprovalRequester::Agent(_), RequestedAction::Capability(name), Some(call)) => {
                let bound = self.bounds.target.as_ref();
                call.capability() == name && call.may_be_answered() && bound.is_some_and(|bound| bound.admits(call))
            }
            // SECURITY: an allowance answers no other combination.
            (ApprovalRequester::Agent(_) | ApprovalRequester::Client(_), _, _) => false,
        }
    }

    /// What it covers, in words for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match (&self.covers, &self.bounds.target) {
            (AllowanceCoverage::Capability(name) | AllowanceCoverage::Below(name), Some(bound)) => bound.describe(name),
            (AllowanceCoverage::Capability(name) | AllowanceCoverage::Below(name), None) => {
                format!("`{name}`, without a bound: answers nothing")
            }
            (AllowanceCoverage::ActionType(name), _) => {
                let whose = match self.scope {
                    AllowanceScope::Session { .. } => "of this session",
                    AllowanceScope::Standing { .. } => "of this client",
                };
                format!("every {} {whose}", card::escape_invisible(name))
            }
        }
    }

    /// The number of the menu line that gave it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.scope {
            AllowanceScope::Session { .. } => "2",
            AllowanceScope::Standing { .. } => "6",
        }
    }

    /// Uses it to answer one request: one use fewer.
    ///
    /// # Errors
    /// When it does not answer this request.
    pub fn spend(mut self, question: &ApprovalRequestContext<'_>) -> Result<Self, AllowanceError> {
        if !self.answers(question) {
            return Err(AllowanceError::DoesNotAnswer);
        }
        self.bounds.uses_left = self.bounds.uses_left.map(|left| left.saturating_sub(1));
        self.used = AllowanceUsage { times: self.used.times.saturating_add(1), last: Some(question.at) };
        Ok(self)
    }

    /// Revokes it permanently.
    ///
    /// # Errors
    /// When it is already revoked; the log keeps who revoked it first.
    pub fn revoke(self, by: Actor, at: UtcMillis) -> Result<Self, AllowanceError> {
        match self.standing {
            AllowanceState::Active => Ok(Self { standing: AllowanceState::Revoked { by, at }, ..self }),
            AllowanceState::Revoked { .. } => Err(AllowanceError::AlreadyRevoked),
        }
    }
}

impl ApprovalTrigger {
    const fn may_be_answered(self) -> bool {
        match self {
            Self::Policy => true,
            Self::Escalation(_) | Self::Batch => false,
        }
    }
}

impl AllowanceScope {
    fn applies_in_session(&self, present: Option<&AllowanceSession>) -> bool {
        match self {
            Self::Session { session } => present == Some(session),
            Self::Standing { .. } => true,
        }
    }
}

impl AllowanceCoverage {
    fn includes_action(&self, asked: RequestedAction<'_>) -> bool {
        match (self, asked) {
            (Self::ActionType(covered), RequestedAction::ActionType(asked)) => covered == asked,
            (Self::Capability(covered), RequestedAction::Capability(asked)) => covered == asked,
            (Self::Below(above), RequestedAction::Capability(asked)) => {
                asked.as_str().strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with(['.', ':']))
            }
            (Self::ActionType(_), RequestedAction::Capability(_))
            | (Self::Capability(_) | Self::Below(_), RequestedAction::ActionType(_)) => false,
        }
    }
}

impl AllowanceBounds {
    /// Whether it has time and a use left.
    fn is_usable_at(&self, at: UtcMillis) -> bool {
        self.expires_at.is_none_or(|end| at < end) && self.uses_left.is_none_or(|left| left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::ids::PersonName;
    use proptest::prelude::*;
    use serde_json::json;

    const NOW: UtcMillis = UtcMillis::from_millis(1_730_000_000_000);

    fn agent(name: &str) -> ApprovalRequester {
        ApprovalRequester::Agent(AgentName::new(name).unwrap())
    }

    fn capability(name: &str) -> CapabilityName {
        CapabilityName::new(name).unwrap()
    }

    fn standing(covers: AllowanceCoverage) -> Allowance {
        Allowance {
            id: AllowanceId::from_bits(1),
            scope: AllowanceScope::Standing { rule: RuleId::from_bits(1) },
            asker: agent("clerk"),
            covers,
            bounds: AllowanceBounds {
                target: call("email.send").offers().into_iter().next(),
                ..AllowanceBounds::default()
            },
            given_at: NOW,
            used: AllowanceUsage::default(),
            standing: AllowanceState::Active,
        }
    }

    /// A call to one known address.
    fn call(name: &str) -> BoundedCall {
        let agent = AgentName::new("clerk").unwrap();
        let action = Action::custom(capability(name), agent, json!({"to": "a@b.example"})).unwrap();
        BoundedCall::of(&capability(name), None, &action, &[])
    }

    fn for_session(session: AllowanceSession) -> Allowance {
        Allowance {
            id: AllowanceId::from_bits(2),
            scope: AllowanceScope::Session { session },
            ..standing(AllowanceCoverage::Capability(capability("email.send")))
        }
    }

    /// A request that the plain allowances of these tests answer; each test changes one thing.
    struct World {
        asker: ApprovalRequester,
        session: Option<AllowanceSession>,
        capability: CapabilityName,
        call: Option<BoundedCall>,
        why: Vec<ApprovalTrigger>,
    }

    impl World {
        fn new() -> Self {
            Self {
                asker: agent("clerk"),
                session: Some(AllowanceSession::Issued(SessionId::from_bits(7))),
                capability: capability("email.send"),
                call: Some(call("email.send")),
                why: vec![ApprovalTrigger::Policy],
            }
        }
        fn question(&self) -> ApprovalRequestContext<'_> {
            ApprovalRequestContext {
                asker: &self.asker,
                session: self.session.as_ref(),
                asked: RequestedAction::Capability(&self.capability),
                call: self.call.as_ref(),
                why: &self.why,
                at: NOW,
            }
        }
    }

    fn any_why() -> impl Strategy<Value = ApprovalTrigger> {
        prop::sample::select(vec![
            ApprovalTrigger::Policy,
            ApprovalTrigger::Batch,
            ApprovalTrigger::Escalation(TierEscalation::RateLimit),
            ApprovalTrigger::Escalation(TierEscalation::Taint),
            ApprovalTrigger::Escalation(TierEscalation::Findings),
            ApprovalTrigger::Escalation(TierEscalation::Evaluation),
        ])
    }

    proptest! {
        #[test]
        fn an_allowance_answers_policy_and_never_an_escalation_or_a_batch(
            why in prop::collection::vec(any_why(), 0..4), session in any::<bool>(),
        ) {
            let world = World { why: why.clone(), ..World::new() };
            let allowance = if session {
                for_session(AllowanceSession::Issued(SessionId::from_bits(7)))
            } else {
                standing(AllowanceCoverage::Below(capability("email")))
            };
            let only_policy = !why.is_empty() && why.iter().all(|why| *why == ApprovalTrigger::Policy);
            prop_assert_eq!(allowance.answers(&world.question()), only_policy);
            prop_assert_eq!(allowance.spend(&world.question()).is_ok(), only_policy);
        }
    }

    #[test]
    fn a_standing_rule_comes_before_a_session() {
        let world = World::new();
        let session = for_session(AllowanceSession::Issued(SessionId::from_bits(7)));
        let rule = standing(AllowanceCoverage::Capability(capability("email.send")));
        let newer =
            Allowance { given_at: NOW + crate::Millis::from_secs(1), id: AllowanceId::from_bits(0), ..rule.clone() };
        let all = [session.clone(), newer, rule.clone()];
        assert_eq!(find_answering(&all, &world.question()), Some(&rule));
        assert_eq!((rule.code(), session.code()), ("6", "2"));
        assert_eq!(find_answering([&session], &world.question()), Some(&session));
        assert_eq!(find_answering([], &world.question()), None);
    }

    #[test]
    fn a_session_yes_ends_with_its_session_and_cannot_be_borrowed_by_name() {
        let issued = SessionId::from_bits(7);
        let allowance = for_session(AllowanceSession::Issued(issued));
        assert!(allowance.answers(&World::new().question()));
        for other in [
            None,
            Some(AllowanceSession::Issued(SessionId::from_bits(8))),
            Some(AllowanceSession::Claimed(issued.to_string())),
        ] {
            assert!(!allowance.answers(&World { session: other, ..World::new() }.question()));
        }
        let claimed = for_session(AllowanceSession::Claimed("sess_123".into()));
        let world = World { session: Some(AllowanceSession::Claimed("sess_123".into())), ..World::new() };
        assert!(claimed.answers(&world.question()));
    }

    #[test]
    fn a_yes_for_one_asker_is_none_for_another() {
        let allowance = standing(AllowanceCoverage::Capability(capability("email.send")));
        for asker in [agent("Clerk"), agent("clerk2"), ApprovalRequester::Client("clerk".into())] {
            assert!(!allowance.answers(&World { asker, ..World::new() }.question()));
        }
    }

    #[test]
    fn a_yes_covers_its_own_name_or_what_is_below_it() {
        let covered = |covers: AllowanceCoverage, name: &str| {
            let call = Some(call(name));
            standing(covers).answers(&World { capability: capability(name), call, ..World::new() }.question())
        };
        let below = || AllowanceCoverage::Below(capability("email"));
        assert!(covered(below(), "email.send"));
        assert!(covered(below(), "email.draft.send"));
        for other in ["email", "emails.send", "EMAIL.send", "slack.send"] {
            assert!(!covered(below(), other), "{other}");
        }
        assert!(!covered(AllowanceCoverage::Capability(capability("email.send")), "email.send.all"));
        assert!(!covered(AllowanceCoverage::ActionType("email.send".into()), "email.send"));
    }

    #[test]
    fn an_action_type_of_the_approval_api_matches_to_the_letter() {
        let asker = ApprovalRequester::Client("0123456789ab".into());
        let allowance =
            Allowance { asker: asker.clone(), ..standing(AllowanceCoverage::ActionType("exec_cmd".into())) };
        let world = World { asker, call: None, ..World::new() };
        let ask = |word| {
            allowance.answers(&ApprovalRequestContext { asked: RequestedAction::ActionType(word), ..world.question() })
        };
        assert!(ask("exec_cmd"));
        assert!(!ask("exec_cmd2") && !ask("EXEC_CMD") && !ask("") && !ask("*"));
    }

    #[test]
    fn time_and_uses_are_exact() {
        let world = World::new();
        let target = standing(AllowanceCoverage::Below(capability("email"))).bounds.target;
        let bound = |bounds: AllowanceBounds| {
            let bounds = AllowanceBounds { target: target.clone(), ..bounds };
            Allowance { bounds, ..standing(AllowanceCoverage::Below(capability("email"))) }
        };
        let until = |at| bound(AllowanceBounds { expires_at: Some(at), ..AllowanceBounds::default() });
        assert!(until(UtcMillis::from_millis(NOW.as_millis() + 1)).answers(&world.question()));
        assert!(!until(NOW).answers(&world.question()));

        let once = bound(AllowanceBounds { uses_left: Some(1), ..AllowanceBounds::default() });
        let spent = once.spend(&world.question()).unwrap();
        assert_eq!((spent.bounds.uses_left, spent.used), (Some(0), AllowanceUsage { times: 1, last: Some(NOW) }));
        assert_eq!(spent.spend(&world.question()), Err(AllowanceError::DoesNotAnswer));
    }

    #[test]
    fn an_allowance_without_a_bound_answers_no_call_of_an_agent() {
        let unbounded = Allowance {
            bounds: AllowanceBounds::default(),
            ..standing(AllowanceCoverage::Capability(capability("email.send")))
        };
        assert!(!unbounded.answers(&World::new().question()));
        assert!(
            !standing(AllowanceCoverage::Below(capability("email")))
                .answers(&World { call: None, ..World::new() }.question())
        );
        let other = World { call: Some(call("email.forward")), ..World::new() };
        assert!(
            !standing(AllowanceCoverage::Below(capability("email"))).answers(&other.question()),
            "another call than is asked"
        );
    }

    #[test]
    fn a_revoked_yes_answers_nothing_and_keeps_who_revoked_it() {
        let by = |name: &str| Actor::Person(PersonName::new(name).unwrap());
        let revoked = standing(AllowanceCoverage::Below(capability("email"))).revoke(by("ana"), NOW).unwrap();
        assert!(!revoked.answers(&World::new().question()));
        assert_eq!(revoked.standing, AllowanceState::Revoked { by: by("ana"), at: NOW });
        assert_eq!(revoked.revoke(by("dan"), NOW), Err(AllowanceError::AlreadyRevoked));
    }
}
