//! Allowances: a person's standing approval.
//!
//! Takes a question about to be put to people; says whether someone has answered it in advance.
//! Promise: an allowance answers the policy's question and no other. It never answers an escalation
//! and never applies to a batch, whatever else matches; a reason nobody gave is not answered either.
//! Of a call through the gateway's own doors it answers only what is inside its bound, with targets that were asked for
//! or are known, and never at high risk.

use super::bound::{BoundedCall, TargetBound};
use super::card;
use crate::actor::Actor;
use crate::clock::Timestamp;
use crate::ids::{AgentName, AllowanceId, CapabilityName, RuleId, SessionId};

/// One standing yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// Its id.
    pub id: AllowanceId,
    /// For how long.
    pub scope: Scope,
    /// For whom.
    pub asker: Asker,
    /// For what.
    pub covers: Covers,
    /// Only within these bounds.
    pub bounds: Bounds,
    /// When it was given.
    pub given_at: Timestamp,
    /// What it has answered so far.
    pub used: Used,
    /// Whether it still counts.
    pub standing: Standing,
}

/// What an allowance has answered so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// How many questions.
    pub times: u32,
    /// When it answered the last one.
    pub last: Option<Timestamp>,
}

/// How far a yes reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Menu line 2: while this session lasts.
    Session {
        /// Which.
        session: Session,
    },
    /// Menu line 6: until revoked. The wire calls it an allow rule.
    Standing {
        /// The wire's name for it.
        rule: RuleId,
    },
}

/// A session, and who says that it is one. The two kinds never equal each other, so that a client
/// cannot borrow a yes by sending the text of a session that the gateway issued.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Session {
    /// Issued by the gateway.
    Issued(SessionId),
    /// As a client of the approval API calls it.
    Claimed(String),
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An agent at one of our doors.
    Agent(AgentName),
    /// A client of the approval API, by its `client_id`.
    Client(String),
}

/// What a yes is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covers {
    /// An action type of the approval API, exactly.
    ActionType(String),
    /// A capability, exactly.
    Capability(CapabilityName),
    /// Every capability below this name: `email` covers `email.send`, not `emails.send`.
    Below(CapabilityName),
}

/// What narrows an allowance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// From this moment on it answers nothing.
    pub expires_at: Option<Timestamp>,
    /// How many more questions it answers.
    pub uses_left: Option<u32>,
    /// Which calls of its capability it covers. Without one it answers no call of an agent.
    pub target: Option<TargetBound>,
}

/// Whether a yes still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Active,
    /// It was taken back.
    Revoked {
        /// By whom.
        by: Actor,
        /// When.
        at: Timestamp,
    },
}

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// A rule says so.
    Policy,
    /// Something about this call raised its tier.
    Escalation(Escalation),
    /// The agent does too much at once.
    Batch,
}

/// What can raise a tier beyond the rules, apart from a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Escalation {
    /// A rate limit of a rule was exceeded.
    RateLimit,
    /// The session was shown an item with an injection finding.
    Taint,
    /// The content itself looks suspicious.
    Findings,
    /// A rule could not be evaluated.
    Evaluation,
    /// What may be done within a day is used up.
    Budget,
    /// As many new targets as may be reached within a day have been.
    Novelty,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// In the words of the approval API.
    ActionType(&'a str),
    /// One of our capabilities.
    Capability(&'a CapabilityName),
}

/// A question that is about to be put to people.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Who asks.
    pub asker: &'a Asker,
    /// In which session.
    pub session: Option<&'a Session>,
    /// For what.
    pub asked: Asked<'a>,
    /// The call, for one of our capabilities.
    pub call: Option<&'a BoundedCall>,
    /// Every reason a person is needed.
    pub why: &'a [Why],
    /// Now.
    pub at: Timestamp,
}

/// Why an allowance cannot be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllowanceError {
    /// It does not answer this question.
    #[error("this allowance does not answer the question")]
    DoesNotAnswer,
    /// It was taken back before.
    #[error("this allowance is already revoked")]
    AlreadyRevoked,
}

/// The allowance that answers, if any: a standing rule before a session, the older before the newer.
#[must_use]
pub fn answering<'a>(
    allowances: impl IntoIterator<Item = &'a Allowance>,
    question: &Question<'_>,
) -> Option<&'a Allowance> {
    let order = |allowance: &&Allowance| {
        let session = match allowance.scope {
            Scope::Standing { .. } => false,
            Scope::Session { .. } => true,
        };
        (session, allowance.given_at, allowance.id)
    };
    allowances.into_iter().filter(|allowance| allowance.answers(question)).min_by_key(order)
}

impl Allowance {
    /// Whether this yes was given for this question.
    #[must_use]
    pub fn answers(&self, question: &Question<'_>) -> bool {
        // SECURITY: the reasons come first. No match below can make up for one that is not policy.
        !question.why.is_empty()
            && question.why.iter().all(|why| why.may_be_answered())
            && self.standing == Standing::Active
            && self.asker == *question.asker
            && self.scope.holds(question.session)
            && self.covers.include(question.asked)
            && self.bounds.last(question.at)
            && self.reaches(question)
    }

    /// Whether the call is inside its bound. A request of the approval API has no targets that we could read.
    fn reaches(&self, question: &Question<'_>) -> bool {
        match (&self.asker, question.asked, question.call) {
            (Asker::Client(_), Asked::ActionType(_), None) => true,
            (Asker::Agent(_), Asked::Capability(name), Some(call)) => {
                let bound = self.bounds.target.as_ref();
                call.capability() == name && call.may_be_answered() && bound.is_some_and(|bound| bound.admits(call))
            }
            // SECURITY: whatever else comes together is answered by nothing.
            (Asker::Agent(_) | Asker::Client(_), _, _) => false,
        }
    }

    /// What it covers, in words for people.
    #[must_use]
    pub fn words(&self) -> String {
        match (&self.covers, &self.bounds.target) {
            (Covers::Capability(name) | Covers::Below(name), Some(bound)) => bound.words(name),
            (Covers::Capability(name) | Covers::Below(name), None) => {
                format!("`{name}`, without a bound: answers nothing")
            }
            (Covers::ActionType(name), _) => {
                let whose = match self.scope {
                    Scope::Session { .. } => "of this session",
                    Scope::Standing { .. } => "of this client",
                };
                format!("every {} {whose}", card::visible(name))
            }
        }
    }

    /// The digit of the menu line that gave it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self.scope {
            Scope::Session { .. } => "2",
            Scope::Standing { .. } => "6",
        }
    }

    /// Answers one question with it: one use fewer.
    ///
    /// # Errors
    /// When it does not answer this question.
    pub fn spend(mut self, question: &Question<'_>) -> Result<Self, AllowanceError> {
        if !self.answers(question) {
            return Err(AllowanceError::DoesNotAnswer);
        }
        self.bounds.uses_left = self.bounds.uses_left.map(|left| left.saturating_sub(1));
        self.used = Used { times: self.used.times.saturating_add(1), last: Some(question.at) };
        Ok(self)
    }

    /// Takes it back, for good.
    ///
    /// # Errors
    /// When that has happened before; who did it first stays on record.
    pub fn revoke(self, by: Actor, at: Timestamp) -> Result<Self, AllowanceError> {
        match self.standing {
            Standing::Active => Ok(Self { standing: Standing::Revoked { by, at }, ..self }),
            Standing::Revoked { .. } => Err(AllowanceError::AlreadyRevoked),
        }
    }
}

impl Why {
    const fn may_be_answered(self) -> bool {
        match self {
            Self::Policy => true,
            Self::Escalation(_) | Self::Batch => false,
        }
    }
}

impl Scope {
    fn holds(&self, present: Option<&Session>) -> bool {
        match self {
            Self::Session { session } => present == Some(session),
            Self::Standing { .. } => true,
        }
    }
}

impl Covers {
    fn include(&self, asked: Asked<'_>) -> bool {
        match (self, asked) {
            (Self::ActionType(covered), Asked::ActionType(asked)) => covered == asked,
            (Self::Capability(covered), Asked::Capability(asked)) => covered == asked,
            (Self::Below(above), Asked::Capability(asked)) => {
                asked.as_str().strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with(['.', ':']))
            }
            (Self::ActionType(_), Asked::Capability(_))
            | (Self::Capability(_) | Self::Below(_), Asked::ActionType(_)) => false,
        }
    }
}

impl Bounds {
    /// Whether there is time and a use left.
    fn last(&self, at: Timestamp) -> bool {
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

    const NOW: Timestamp = Timestamp::from_millis(1_730_000_000_000);

    fn agent(name: &str) -> Asker {
        Asker::Agent(AgentName::new(name).unwrap())
    }

    fn capability(name: &str) -> CapabilityName {
        CapabilityName::new(name).unwrap()
    }

    fn standing(covers: Covers) -> Allowance {
        Allowance {
            id: AllowanceId::from_bits(1),
            scope: Scope::Standing { rule: RuleId::from_bits(1) },
            asker: agent("clerk"),
            covers,
            bounds: Bounds { target: call("email.send").offers().into_iter().next(), ..Bounds::default() },
            given_at: NOW,
            used: Used::default(),
            standing: Standing::Active,
        }
    }

    /// A call to one known address.
    fn call(name: &str) -> BoundedCall {
        let agent = AgentName::new("clerk").unwrap();
        let action = Action::custom(capability(name), agent, json!({"to": "a@b.example"})).unwrap();
        BoundedCall::of(&capability(name), None, &action, &[])
    }

    fn for_session(session: Session) -> Allowance {
        Allowance {
            id: AllowanceId::from_bits(2),
            scope: Scope::Session { session },
            ..standing(Covers::Capability(capability("email.send")))
        }
    }

    /// A question that the plain allowances of these tests answer; each test changes one thing.
    struct World {
        asker: Asker,
        session: Option<Session>,
        capability: CapabilityName,
        call: Option<BoundedCall>,
        why: Vec<Why>,
    }

    impl World {
        fn new() -> Self {
            Self {
                asker: agent("clerk"),
                session: Some(Session::Issued(SessionId::from_bits(7))),
                capability: capability("email.send"),
                call: Some(call("email.send")),
                why: vec![Why::Policy],
            }
        }
        fn question(&self) -> Question<'_> {
            Question {
                asker: &self.asker,
                session: self.session.as_ref(),
                asked: Asked::Capability(&self.capability),
                call: self.call.as_ref(),
                why: &self.why,
                at: NOW,
            }
        }
    }

    fn any_why() -> impl Strategy<Value = Why> {
        prop::sample::select(vec![
            Why::Policy,
            Why::Batch,
            Why::Escalation(Escalation::RateLimit),
            Why::Escalation(Escalation::Taint),
            Why::Escalation(Escalation::Findings),
            Why::Escalation(Escalation::Evaluation),
        ])
    }

    proptest! {
        #[test]
        fn an_allowance_answers_policy_and_never_an_escalation_or_a_batch(
            why in prop::collection::vec(any_why(), 0..4), session in any::<bool>(),
        ) {
            let world = World { why: why.clone(), ..World::new() };
            let allowance = if session {
                for_session(Session::Issued(SessionId::from_bits(7)))
            } else {
                standing(Covers::Below(capability("email")))
            };
            let only_policy = !why.is_empty() && why.iter().all(|why| *why == Why::Policy);
            prop_assert_eq!(allowance.answers(&world.question()), only_policy);
            prop_assert_eq!(allowance.spend(&world.question()).is_ok(), only_policy);
        }
    }

    #[test]
    fn a_standing_rule_comes_before_a_session() {
        let world = World::new();
        let session = for_session(Session::Issued(SessionId::from_bits(7)));
        let rule = standing(Covers::Capability(capability("email.send")));
        let newer =
            Allowance { given_at: NOW + crate::Span::from_secs(1), id: AllowanceId::from_bits(0), ..rule.clone() };
        let all = [session.clone(), newer, rule.clone()];
        assert_eq!(answering(&all, &world.question()), Some(&rule));
        assert_eq!((rule.code(), session.code()), ("6", "2"));
        assert_eq!(answering([&session], &world.question()), Some(&session));
        assert_eq!(answering([], &world.question()), None);
    }

    #[test]
    fn a_session_yes_ends_with_its_session_and_cannot_be_borrowed_by_name() {
        let issued = SessionId::from_bits(7);
        let allowance = for_session(Session::Issued(issued));
        assert!(allowance.answers(&World::new().question()));
        for other in [None, Some(Session::Issued(SessionId::from_bits(8))), Some(Session::Claimed(issued.to_string()))]
        {
            assert!(!allowance.answers(&World { session: other, ..World::new() }.question()));
        }
        let claimed = for_session(Session::Claimed("sess_123".into()));
        let world = World { session: Some(Session::Claimed("sess_123".into())), ..World::new() };
        assert!(claimed.answers(&world.question()));
    }

    #[test]
    fn a_yes_for_one_asker_is_none_for_another() {
        let allowance = standing(Covers::Capability(capability("email.send")));
        for asker in [agent("Clerk"), agent("clerk2"), Asker::Client("clerk".into())] {
            assert!(!allowance.answers(&World { asker, ..World::new() }.question()));
        }
    }

    #[test]
    fn a_yes_covers_its_own_name_or_what_is_below_it() {
        let covered = |covers: Covers, name: &str| {
            let call = Some(call(name));
            standing(covers).answers(&World { capability: capability(name), call, ..World::new() }.question())
        };
        let below = || Covers::Below(capability("email"));
        assert!(covered(below(), "email.send"));
        assert!(covered(below(), "email.draft.send"));
        for other in ["email", "emails.send", "EMAIL.send", "slack.send"] {
            assert!(!covered(below(), other), "{other}");
        }
        assert!(!covered(Covers::Capability(capability("email.send")), "email.send.all"));
        assert!(!covered(Covers::ActionType("email.send".into()), "email.send"));
    }

    #[test]
    fn an_action_type_of_the_approval_api_matches_to_the_letter() {
        let asker = Asker::Client("0123456789ab".into());
        let allowance = Allowance { asker: asker.clone(), ..standing(Covers::ActionType("exec_cmd".into())) };
        let world = World { asker, call: None, ..World::new() };
        let ask = |word| allowance.answers(&Question { asked: Asked::ActionType(word), ..world.question() });
        assert!(ask("exec_cmd"));
        assert!(!ask("exec_cmd2") && !ask("EXEC_CMD") && !ask("") && !ask("*"));
    }

    #[test]
    fn time_and_uses_are_exact() {
        let world = World::new();
        let target = standing(Covers::Below(capability("email"))).bounds.target;
        let bound = |bounds: Bounds| {
            let bounds = Bounds { target: target.clone(), ..bounds };
            Allowance { bounds, ..standing(Covers::Below(capability("email"))) }
        };
        let until = |at| bound(Bounds { expires_at: Some(at), ..Bounds::default() });
        assert!(until(Timestamp::from_millis(NOW.as_millis() + 1)).answers(&world.question()));
        assert!(!until(NOW).answers(&world.question()));

        let once = bound(Bounds { uses_left: Some(1), ..Bounds::default() });
        let spent = once.spend(&world.question()).unwrap();
        assert_eq!((spent.bounds.uses_left, spent.used), (Some(0), Used { times: 1, last: Some(NOW) }));
        assert_eq!(spent.spend(&world.question()), Err(AllowanceError::DoesNotAnswer));
    }

    #[test]
    fn an_allowance_without_a_bound_answers_no_call_of_an_agent() {
        let unbounded =
            Allowance { bounds: Bounds::default(), ..standing(Covers::Capability(capability("email.send"))) };
        assert!(!unbounded.answers(&World::new().question()));
        assert!(
            !standing(Covers::Below(capability("email"))).answers(&World { call: None, ..World::new() }.question())
        );
        let other = World { call: Some(call("email.forward")), ..World::new() };
        assert!(!standing(Covers::Below(capability("email"))).answers(&other.question()), "another call than is asked");
    }

    #[test]
    fn a_revoked_yes_answers_nothing_and_keeps_who_revoked_it() {
        let by = |name: &str| Actor::Person(PersonName::new(name).unwrap());
        let revoked = standing(Covers::Below(capability("email"))).revoke(by("ana"), NOW).unwrap();
        assert!(!revoked.answers(&World::new().question()));
        assert_eq!(revoked.standing, Standing::Revoked { by: by("ana"), at: NOW });
        assert_eq!(revoked.revoke(by("dan"), NOW), Err(AllowanceError::AlreadyRevoked));
    }
}
