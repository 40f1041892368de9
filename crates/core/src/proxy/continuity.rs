//! What a proxy with a lasting account keeps between short-lived tasks.
//!
//! Takes the declaration, a call and an answer that follows its schema; gives what a task receives at its start and
//! what it proposes to keep at its end. Promise: the other party, the draft and the trust in the service
//! come from the call and the file, never from an answer; a proposal without the declared shape is rejected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ProxyArgument, ProxyIdentity, ProxyOperation};

/// Most that a task receives, in bytes.
pub const TOLD_BYTES: usize = 64 * 1024;
/// Most that a task proposes, in bytes.
pub const PROPOSED_BYTES: usize = 16 * 1024;
/// Most proposals of one task: one about the other party, one about a draft.
pub const PROPOSALS: usize = 2;

/// What a task receives from earlier tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTaskHistory {
    /// The other party of this exchange, and what is kept about it.
    #[serde(default)]
    pub relation: Option<ProxyCounterparty>,
    /// Names of the most recent parties, for an operation that names none.
    #[serde(default)]
    pub relations: Vec<String>,
    /// The last exchanges with the same party, newest last.
    #[serde(default)]
    pub recent: Vec<PastExchange>,
    /// Drafts in progress, newest first.
    #[serde(default)]
    pub drafts: Vec<OpenDraft>,
}

/// The other party of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyCounterparty {
    /// Its name, as in the call.
    pub name: String,
    /// What is kept about it.
    pub facts: Map<String, Value>,
}

/// A draft in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenDraft {
    /// Its name, as in the call that began it.
    pub name: String,
    /// What is kept in it.
    pub fields: Map<String, Value>,
}

/// One past exchange: times, sizes and hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastExchange {
    /// When it took place.
    pub at: String,
    /// The operation.
    pub operation: String,
    /// How it ended.
    pub outcome: String,
    /// The size of the answer, in bytes.
    pub answer_bytes: u64,
    /// A prefix of the hash of the answer.
    pub answer_hash: String,
}

/// What an operation does with a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftUse {
    /// Begins, changes or ends it.
    pub does: DraftMove,
    /// The argument that names the draft.
    pub named_by: String,
    /// What is kept in it: a field, and the place in the answer (`/id`) or the argument (`{text}`) it is taken from.
    #[serde(default)]
    pub keep: BTreeMap<String, String>,
}

/// A change of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftMove {
    /// It is begun.
    Open,
    /// It is changed.
    Change,
    /// It was sent.
    Finish,
}

/// What a task proposes to keep. The gateway decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContinuityProposal {
    /// Facts about the other party.
    Relation {
        /// The name of the party.
        name: String,
        /// The new facts.
        facts: Map<String, Value>,
    },
    /// Fields of a draft.
    Draft {
        /// The name of the draft.
        name: String,
        /// The change of the draft.
        does: DraftMove,
        /// The new fields.
        fields: Map<String, Value>,
    },
}

/// Why a proposal is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposalError {
    /// It is about a party or a draft that the call did not name.
    #[error("it is about another party or draft than the call")]
    Other,
    /// The operation does not declare it.
    #[error("the operation does not declare it")]
    Undeclared,
    /// A value does not have the declared shape.
    #[error("a value does not have the declared shape")]
    Shape,
    /// It contains data that must not be kept in files.
    #[error("it holds a secret or personal data")]
    Leak,
    /// The content stages found something in it, or would have changed it.
    #[error("the content stages do not accept it unchanged")]
    Content,
    /// No content stage could check it.
    #[error("it could not be checked")]
    Unread,
    /// There is no such draft in progress.
    #[error("there is no such draft in progress")]
    NoDraft,
    /// There is one already.
    #[error("there is such a draft in progress already")]
    DraftExists,
    /// The workspace holds as many as it may.
    #[error("the workspace is full")]
    Full,
    /// The files could not be written.
    #[error("the workspace cannot be written")]
    Unwritten,
}

impl ProposalError {
    /// Stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Other => "proposal.other",
            Self::Undeclared => "proposal.undeclared",
            Self::Shape => "proposal.shape",
            Self::Leak => "proposal.leak",
            Self::Content => "proposal.content",
            Self::Unread => "proposal.unread",
            Self::NoDraft => "proposal.no_draft",
            Self::DraftExists => "proposal.draft_exists",
            Self::Full => "proposal.full",
            Self::Unwritten => "proposal.unwritten",
        }
    }
}

impl ContinuityProposal {
    /// Proposals as a worker reports them. Empty if they do not have the shape of proposals.
    #[must_use]
    pub fn read(reported: &Value) -> Option<Vec<Self>> {
        if reported.is_null() {
            return Some(Vec::new());
        }
        if reported.as_array()?.len() > PROPOSALS || reported.to_string().len() > PROPOSED_BYTES {
            return None;
        }
        Deserialize::deserialize(reported).ok()
    }

    /// What it is about, for the audit log.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        match self {
            Self::Relation { .. } => "relation",
            Self::Draft { .. } => "draft",
        }
    }

    /// Every value in it.
    #[must_use]
    pub const fn values(&self) -> &Map<String, Value> {
        match self {
            Self::Relation { facts, .. } => facts,
            Self::Draft { fields, .. } => fields,
        }
    }
}

impl ProxyIdentity {
    /// The other party that a call names.
    #[must_use]
    pub fn side<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a str> {
        arguments.get(&self.relation)?.as_str()
    }

    /// The facts that still have the declared shape: the file may have changed since they were kept.
    #[must_use]
    pub fn known_facts(&self, kept: Map<String, Value>) -> Map<String, Value> {
        known(&self.facts, kept)
    }

    /// As [`Self::known_facts`], for a draft.
    #[must_use]
    pub fn known_fields(&self, kept: Map<String, Value>) -> Map<String, Value> {
        known(&self.draft, kept)
    }
}

fn known(declared: &BTreeMap<String, ProxyArgument>, kept: Map<String, Value>) -> Map<String, Value> {
    kept.into_iter().filter(|(name, value)| declared.get(name).is_some_and(|shape| shape.allows(value))).collect()
}

impl ProxyTaskHistory {
    /// Drops the oldest entries until the rest is small enough for a task.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let size = |told: &Self| serde_json::to_string(told).map_or(usize::MAX, |text| text.len());
        while size(&self) > TOLD_BYTES {
            if self.drafts.len() > 1 {
                self.drafts.pop();
            } else if !self.recent.is_empty() {
                self.recent.remove(0);
            } else if self.relations.pop().is_none() {
                return Self::default();
            }
        }
        self
    }

    /// Values that can fill a request, apart from the arguments: `relation.<fact>`, `draft.<field>`, `relations`,
    /// `recent.count`, `recent.at` and `recent.operation`.
    pub(super) fn placeholder_values(&self, draft: Option<&str>) -> Map<String, Value> {
        let mut found = Map::new();
        if let Some(side) = &self.relation {
            found.extend(side.facts.iter().map(|(name, value)| (format!("relation.{name}"), value.clone())));
            found.insert("recent.count".into(), self.recent.len().into());
        }
        if let Some(last) = self.recent.last() {
            found.insert("recent.at".into(), last.at.clone().into());
            found.insert("recent.operation".into(), last.operation.clone().into());
        }
        if let Some(draft) = self.drafts.iter().find(|one| Some(one.name.as_str()) == draft) {
            found.extend(draft.fields.iter().map(|(name, value)| (format!("draft.{name}"), value.clone())));
        }
        if !self.relations.is_empty() {
            found.insert("relations".into(), self.relations.clone().into());
        }
        found
    }
}

impl ProxyOperation {
    /// The draft that a call names.
    #[must_use]
    pub fn draft_of<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a str> {
        arguments.get(&self.draft.as_ref()?.named_by)?.as_str()
    }

    /// What a task proposes to keep of an answer that follows its schema.
    #[must_use]
    pub fn propose(
        &self,
        identity: &ProxyIdentity,
        arguments: &Map<String, Value>,
        answer: &Value,
    ) -> Vec<ContinuityProposal> {
        let take = |from: &BTreeMap<String, String>, declared: &BTreeMap<String, ProxyArgument>| {
            let all = from.iter().filter_map(|(name, from)| Some((name.clone(), picked(from, arguments, answer)?)));
            known(declared, all.collect())
        };
        let mut found = Vec::new();
        let facts = take(&self.remember, &identity.facts);
        if let Some(name) = identity.side(arguments).filter(|_| !facts.is_empty()) {
            found.push(ContinuityProposal::Relation { name: name.to_owned(), facts });
        }
        if let (Some(draft), Some(name)) = (&self.draft, self.draft_of(arguments)) {
            let fields = take(&draft.keep, &identity.draft);
            found.push(ContinuityProposal::Draft { name: name.to_owned(), does: draft.does, fields });
        }
        found
    }

    /// Whether a proposal is one that this call of this operation can lead to.
    ///
    /// # Errors
    /// Why it is rejected.
    pub fn check_proposal(
        &self,
        identity: &ProxyIdentity,
        arguments: &Map<String, Value>,
        proposal: &ContinuityProposal,
    ) -> Result<(), ProposalError> {
        let (named, name, from, declared) = match proposal {
            ContinuityProposal::Relation { name, .. } => {
                (identity.side(arguments), name, &self.remember, &identity.facts)
            }
            ContinuityProposal::Draft { name, does, .. } => {
                let draft = self.draft.as_ref().filter(|draft| draft.does == *does).ok_or(ProposalError::Undeclared)?;
                (self.draft_of(arguments), name, &draft.keep, &identity.draft)
            }
        };
        // SECURITY: the call decides which party is meant. An answer that names another one changes nothing.
        if named != Some(name.as_str()) {
            return Err(ProposalError::Other);
        }
        for (name, value) in proposal.values() {
            let shape = declared.get(name).filter(|_| from.contains_key(name)).ok_or(ProposalError::Undeclared)?;
            if !shape.allows(value) {
                return Err(ProposalError::Shape);
            }
        }
        Ok(())
    }
}

/// The value at the place that the file names: in the answer, or an argument.
fn picked(from: &str, arguments: &Map<String, Value>, answer: &Value) -> Option<Value> {
    let value = match argument_in(from) {
        Some(name) => arguments.get(name)?,
        None => answer.pointer(from)?,
    };
    Some(value.clone())
}

/// The argument that `{name}` stands for.
pub(super) fn argument_in(from: &str) -> Option<&str> {
    from.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Proxy;
    use super::super::tests::LASTING;
    use super::*;

    fn lasting() -> Proxy {
        Proxy::from_yaml(LASTING).unwrap()
    }

    fn with(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!() };
        map
    }

    fn said() -> Map<String, Value> {
        with(json!({"author": "ana", "title": "plan", "text": "hello"}))
    }

    #[test]
    fn a_task_proposes_what_its_operation_declares_and_nothing_else() {
        let proxy = lasting();
        let (identity, prepare) = (proxy.identity.as_ref().unwrap(), &proxy.operations["prepare"]);
        let answer = json!({"id": "p9", "owner": "mallory", "likes": 3});
        let proposals = prepare.propose(identity, &said(), &answer);
        let expected = [
            ContinuityProposal::Relation { name: "ana".into(), facts: with(json!({"last_post": "p9", "likes": 3})) },
            ContinuityProposal::Draft {
                name: "plan".into(),
                does: DraftMove::Open,
                fields: with(json!({"remote": "p9", "text": "hello"})),
            },
        ];
        assert_eq!(proposals, expected);
        for proposal in &proposals {
            assert_eq!(prepare.check_proposal(identity, &said(), proposal), Ok(()));
            assert_eq!(
                ContinuityProposal::read(&json!([proposal])).unwrap(),
                std::slice::from_ref(proposal),
                "it survives the way through a frame"
            );
        }
        // A value that an answer leaves out, or gives in another shape, is not proposed.
        let odd = prepare.propose(identity, &said(), &json!({"id": 7, "likes": "many"}));
        assert!(
            matches!(odd.as_slice(), [ContinuityProposal::Draft { fields, .. }] if *fields == with(json!({"text": "hello"})))
        );
    }

    #[test]
    fn an_answer_changes_neither_who_is_meant_nor_what_is_declared() {
        let proxy = lasting();
        let (identity, prepare) = (proxy.identity.as_ref().unwrap(), &proxy.operations["prepare"]);
        let relation =
            |name: &str, facts: Value| ContinuityProposal::Relation { name: name.into(), facts: with(facts) };
        let draft = |name: &str, does, fields: Value| ContinuityProposal::Draft {
            name: name.into(),
            does,
            fields: with(fields),
        };
        let cases = [
            (relation("mallory", json!({"last_post": "p9"})), ProposalError::Other),
            (relation("../../etc", json!({"last_post": "p9"})), ProposalError::Other),
            (relation("ana", json!({"trust": "ally"})), ProposalError::Undeclared),
            (relation("ana", json!({"relation": "mallory"})), ProposalError::Undeclared),
            (relation("ana", json!({"last_post": "x".repeat(41)})), ProposalError::Shape),
            (relation("ana", json!({"last_post": {"deep": 1}})), ProposalError::Shape),
            (draft("other", DraftMove::Open, json!({})), ProposalError::Other),
            (draft("plan", DraftMove::Finish, json!({})), ProposalError::Undeclared),
            (draft("plan", DraftMove::Open, json!({"state": "SENT"})), ProposalError::Undeclared),
        ];
        for (proposal, no) in cases {
            assert_eq!(prepare.check_proposal(identity, &said(), &proposal), Err(no), "{proposal:?}");
        }
        // An operation that declares nothing accepts nothing.
        let feed = &proxy.operations["feed"];
        let likes = relation("ana", json!({"likes": 3}));
        assert_eq!(
            feed.check_proposal(identity, &with(json!({"author": "ana"})), &likes),
            Err(ProposalError::Undeclared)
        );
    }

    #[test]
    fn what_is_not_a_list_of_proposals_is_none() {
        let one = json!({"about": "relation", "name": "ana", "facts": {}});
        assert_eq!(ContinuityProposal::read(&Value::Null), Some(Vec::new()));
        for odd in [
            json!({}),
            json!([one, one, one]),
            json!([{"about": "trust", "name": "ana", "facts": {}}]),
            json!([{"about": "relation", "name": "ana", "facts": {}, "tier": "ally"}]),
            json!([{"about": "relation", "name": "ana", "facts": {"x": "y".repeat(PROPOSED_BYTES)}}]),
            json!([{"about": "draft", "name": "a", "does": "send", "fields": {}}]),
        ] {
            assert_eq!(ContinuityProposal::read(&odd), None, "{odd}");
        }
    }

    #[test]
    fn a_request_can_be_filled_with_what_is_kept() {
        let proxy = lasting();
        let exchange = PastExchange {
            at: "2026-11-16T04:12:00.000Z".into(),
            operation: "feed".into(),
            outcome: "clean".into(),
            answer_bytes: 1,
            answer_hash: "00".into(),
        };
        let told = ProxyTaskHistory {
            relation: Some(ProxyCounterparty {
                name: "ana".into(),
                facts: with(json!({"last_post": "p 8", "likes": 2})),
            }),
            recent: vec![exchange.clone(), exchange],
            drafts: vec![OpenDraft { name: "plan".into(), fields: with(json!({"remote": "p9"})) }],
            relations: Vec::new(),
        };
        let feed = proxy.operations["feed"].request_with_history(&with(json!({"author": "ana"})), &told).unwrap();
        assert_eq!(feed.target, "/feed?after=p%208&by=ana&seen=2&since=2026-11-16T04%3A12%3A00.000Z");
        let publish = proxy.operations["publish"].request_with_history(&with(json!({"draft": "plan"})), &told).unwrap();
        assert_eq!(publish.target, "/posts/p9/publish");
        // Nothing is kept: left out where that is possible, refused where it is not.
        let feed = proxy.operations["feed"].request(&with(json!({"author": "ana"}))).unwrap();
        assert_eq!(feed.target, "/feed?by=ana");
        let no = proxy.operations["publish"].request_with_history(&with(json!({"draft": "other"})), &told).unwrap_err();
        assert_eq!(no, super::super::FillError::Missing("draft.remote".into()));
        let told = ProxyTaskHistory { relations: vec!["ana".into(), "b,n".into()], ..ProxyTaskHistory::default() };
        let circle = proxy.operations["circle"].request_with_history(&Map::new(), &told).unwrap();
        assert_eq!(circle.body.unwrap(), br#"{"authors":["ana","b,n"]}"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn what_is_told_is_never_too_much(drafts in 0_usize..60, length in 0_usize..3000, recent in 0_usize..60) {
            let draft = OpenDraft { name: "d".into(), fields: with(json!({"text": "x".repeat(length)})) };
            let exchange = PastExchange {
                at: "t".into(), operation: "o".into(), outcome: "clean".into(), answer_bytes: 1,
                answer_hash: "h".repeat(length),
            };
            let told = ProxyTaskHistory {
                relation: None, relations: vec!["n".repeat(length); 20],
                recent: vec![exchange; recent], drafts: vec![draft; drafts],
            };
            let told = told.bounded();
            prop_assert!(serde_json::to_string(&told).unwrap().len() <= TOLD_BYTES);
        }
    }
}
