//! A security proxy as its file declares it: one untrusted service, a few requests, the schema of each answer.
//!
//! Takes `proxies/<name>.yaml`; gives the declaration, the capabilities it adds and everything that is
//! wrong with it. Promise: what passes [`Proxy::check`] has a schema for every answer, a limiter, an
//! allow-list of exactly the requests it makes, and no secret in a request it spells out.

mod budget;
mod check;
mod continuity;
mod request;
pub mod review;
mod score;
mod shape;
pub mod spawn;

pub use budget::{
    BudgetLimit, MoneyAmount, MoneyParseError, ProxyBudget, ProxyUsage, TOLD_AT, day_of, share_to_announce, start_of,
    until_next_day,
};
pub use check::ProxyFlaw;
pub use continuity::{
    ContinuityProposal, DraftMove, DraftUse, OpenDraft, PastExchange, ProposalError, ProxyCounterparty,
    ProxyTaskHistory,
};
pub use request::{FillError, ProxyRequest};
pub(crate) use request::{TemplatePiece, encode, fill, fill_json, pieces, plain};
pub use score::{NEEDS_PROXY, RoutingScore, ScoreReason};
pub use shape::{SchemaStrictness, is_summary, project, summary, tighten};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::capability::{Capability, CapabilityParam, Effect, EffectClass, ParamKind};
use crate::clock::Millis;
use crate::ids::{CapabilityName, ServiceName};
use crate::throttle::BreakerConfig;
use crate::tier::Tier;

/// Longest file that is read, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Longest name of a proxy or an operation.
const NAME: usize = 40;

/// One proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The untrusted service, by its name for people.
    pub service: String,
    /// What the proxy is for, in a sentence.
    pub purpose: String,
    /// The address of the service: scheme, host, port, and a path every request starts with.
    pub base_url: String,
    /// How well the service is known. Decides how strictly answers are read and whether posts need approval;
    /// never whether they are screened.
    #[serde(default)]
    pub trust: ProxyTrust,
    /// How much of the sandbox is required.
    #[serde(default)]
    pub isolation: ProxyIsolation,
    /// The name of the secret that the gateway adds to its requests, if any.
    #[serde(default)]
    pub credential: Option<String>,
    /// Addresses that are reached although they are private, for services of one's own network.
    #[serde(default)]
    pub allow_addresses: Vec<String>,
    /// Its limits. Must be declared.
    #[serde(default)]
    pub limits: Option<ProxyLimits>,
    /// What its tasks may use within a day.
    #[serde(default)]
    pub budget: ProxyBudget,
    /// For a proxy with a lasting account.
    #[serde(default)]
    pub identity: Option<ProxyIdentity>,
    /// The requests it makes, by name.
    #[serde(default)]
    pub operations: BTreeMap<String, ProxyOperation>,
}

/// How well a service is known: the trust in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTrust {
    /// Not at all: an answer with one unknown field is refused, every post needs approval.
    #[default]
    Acquaintance,
    /// Unknown fields are left out; posts follow the rules.
    Friend,
    /// As a friend, with longer texts.
    Ally,
}

/// How much of the sandbox is required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyIsolation {
    /// All of it, whatever the configuration allows otherwise.
    #[default]
    Maximum,
    /// What the configuration asks for.
    Configured,
}

/// The limits of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyLimits {
    /// Requests in a minute.
    #[serde(default = "per_minute")]
    pub per_minute: u32,
    /// Requests in an hour.
    #[serde(default = "per_hour")]
    pub per_hour: u32,
    /// Requests until a person looks at it.
    #[serde(default = "burn")]
    pub burn: u32,
    /// How long one task may take.
    #[serde(default = "timeout_minutes")]
    pub timeout_minutes: u32,
    /// Largest answer that is read, in kilobytes.
    #[serde(default = "answer_kb")]
    pub answer_kb: u32,
    /// Refusals (429) in a row after which requests are paused.
    #[serde(default = "breaker_refusals")]
    pub breaker_refusals: u32,
    /// How long the first pause lasts; each further one lasts twice as long.
    #[serde(default = "breaker_pause_seconds")]
    pub breaker_pause_seconds: u32,
    /// The longest pause that the service did not ask for itself.
    #[serde(default = "breaker_longest_pause_seconds")]
    pub breaker_longest_pause_seconds: u32,
}

const fn per_minute() -> u32 {
    10
}
const fn per_hour() -> u32 {
    100
}
const fn burn() -> u32 {
    200
}
const fn timeout_minutes() -> u32 {
    5
}
const fn answer_kb() -> u32 {
    512
}
const fn breaker_refusals() -> u32 {
    3
}
const fn breaker_pause_seconds() -> u32 {
    30
}
const fn breaker_longest_pause_seconds() -> u32 {
    900
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            per_minute: per_minute(),
            per_hour: per_hour(),
            burn: burn(),
            timeout_minutes: timeout_minutes(),
            answer_kb: answer_kb(),
            breaker_refusals: breaker_refusals(),
            breaker_pause_seconds: breaker_pause_seconds(),
            breaker_longest_pause_seconds: breaker_longest_pause_seconds(),
        }
    }
}

impl ProxyLimits {
    /// How long one task may take.
    #[must_use]
    pub const fn wall(&self) -> Millis {
        Millis::from_secs(self.timeout_minutes as u64 * 60)
    }

    /// When refusals of the service pause it, and for how long.
    #[must_use]
    pub const fn breaker(&self) -> BreakerConfig {
        BreakerConfig {
            refusals: self.breaker_refusals,
            first_pause: Millis::from_secs(self.breaker_pause_seconds as u64),
            longest_pause: Millis::from_secs(self.breaker_longest_pause_seconds as u64),
        }
    }
}

/// A lasting account behind short-lived processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyIdentity {
    /// The argument that names the other party of an exchange.
    pub relation: String,
    /// How many past exchanges with the same party a task receives.
    #[serde(default = "recent")]
    pub recent: u32,
    /// How many recent parties a task receives whose operation names none.
    #[serde(default)]
    pub relations: u32,
    /// How many drafts in progress a task receives.
    #[serde(default = "recent")]
    pub drafts: u32,
    /// What may be kept about a party, by name. What is not declared is not kept.
    #[serde(default)]
    pub facts: BTreeMap<String, ProxyArgument>,
    /// What may be kept in a draft, by name.
    #[serde(default)]
    pub draft: BTreeMap<String, ProxyArgument>,
    /// After how many days the credential is replaced.
    #[serde(default = "rotate_days")]
    pub rotate_days: u32,
}

const fn recent() -> u32 {
    5
}
const fn rotate_days() -> u32 {
    7
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyOperation {
    /// What it does, in a sentence.
    pub summary: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    #[serde(default)]
    pub method: ProxyMethod,
    /// The path after the base, with `{argument}` for whole parts of it.
    pub path: String,
    /// The query, by name; values may hold `{argument}`.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// The body as JSON; texts may hold `{argument}`, a text that is nothing but one becomes its value.
    #[serde(default)]
    pub body: Option<Value>,
    /// The arguments of a call, by name.
    #[serde(default)]
    pub arguments: BTreeMap<String, ProxyArgument>,
    /// The JSON Schema of an answer. Must be declared.
    #[serde(default)]
    pub answer: Option<Value>,
    /// What the agent gets of the answer.
    #[serde(default)]
    pub output: ProxyOutput,
    /// What is kept about the other party: a fact, and the place in the answer (`/id`) or the argument (`{text}`) it
    /// is taken from.
    #[serde(default)]
    pub remember: BTreeMap<String, String>,
    /// What it does with a draft.
    #[serde(default)]
    pub draft: Option<DraftUse>,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProxyMethod {
    /// Fetches.
    #[default]
    Get,
    /// Adds.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Removes.
    Delete,
}

impl ProxyMethod {
    /// Its name, as in a request.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What an agent gets of an answer. Never the original answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyOutput {
    /// The fields of the schema, screened.
    #[default]
    Data,
    /// Counts, numbers, times and sizes; no text of the service at all.
    Summary,
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyArgument {
    /// Its shape.
    #[serde(rename = "type")]
    pub kind: ProxyArgumentKind,
    /// Whether a call must contain it.
    #[serde(default)]
    pub required: bool,
    /// Longest text, largest number.
    #[serde(default)]
    pub max: Option<u64>,
    /// The only texts that are accepted.
    #[serde(default)]
    pub choices: Vec<String>,
}

/// The shape of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyArgumentKind {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
}

/// Why a file is not a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProxyFileError(pub String);

impl Proxy {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is too large, not YAML, or has an unknown field. The error names line and column.
    pub fn from_yaml(text: &str) -> Result<Self, ProxyFileError> {
        if text.len() > MAX_BYTES {
            return Err(ProxyFileError(format!("larger than {MAX_BYTES} bytes")));
        }
        serde_saphyr::from_str(text).map_err(|error| ProxyFileError(error.to_string()))
    }

    /// Everything that is wrong with it. An empty list means that it may run.
    #[must_use]
    pub fn check(&self, name: &str) -> Vec<ProxyFlaw> {
        check::check(self, name)
    }

    /// Warnings for a person, although it may run.
    #[must_use]
    pub fn warnings(&self) -> Vec<ProxyFlaw> {
        check::warnings(self)
    }

    /// Its limits; the default ones where none are declared.
    #[must_use]
    pub fn limits(&self) -> ProxyLimits {
        self.limits.unwrap_or_default()
    }

    /// The service under which it is counted and frozen.
    #[must_use]
    pub fn service_name(name: &str) -> Option<ServiceName> {
        is_name(name).then(|| ServiceName::new(format!("proxy.{name}")).ok()).flatten()
    }

    /// The operation behind a capability of the proxy of this name.
    #[must_use]
    pub fn operation(&self, name: &str, capability: &CapabilityName) -> Option<(&str, &ProxyOperation)> {
        let operation = capability.as_str().strip_prefix("proxy.")?.strip_prefix(name)?.strip_prefix('.')?;
        self.operations.get_key_value(operation).map(|(name, operation)| (name.as_str(), operation))
    }

    /// Its capabilities.
    #[must_use]
    pub fn capabilities(&self, name: &str) -> Vec<Capability> {
        let Some(service) = Self::service_name(name) else { return Vec::new() };
        self.operations
            .iter()
            .filter_map(|(operation, about)| {
                let name = CapabilityName::new(format!("{service}.{operation}")).ok()?;
                Some(self.capability(name, service.clone(), about))
            })
            .collect()
    }

    fn capability(&self, name: CapabilityName, service: ServiceName, about: &ProxyOperation) -> Capability {
        let reads = about.method == ProxyMethod::Get;
        let relation = self.identity.as_ref().map(|identity| identity.relation.as_str());
        Capability {
            name,
            service: Some(service),
            effect: if reads { Effect::Read } else { Effect::Write },
            class: (!reads).then_some(EffectClass::Opaque),
            reversible: false,
            delay_s: 30,
            summary: format!("{} Routing score {}.", about.summary, self.routing_score(about)),
            params: about.arguments.iter().map(|(name, argument)| argument.param(name, relation)).collect(),
            usual: (!reads && self.trust == ProxyTrust::Acquaintance).then_some(Tier::ApprovalRequired),
            schema: Some(about.arguments_schema()),
            definition: None,
            title: None,
            output: None,
            open: false,
        }
    }
}

impl ProxyOperation {
    /// The schema of its arguments.
    #[must_use]
    pub fn arguments_schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.arguments.iter().map(|(name, argument)| (name.clone(), argument.schema())).collect();
        let required: Vec<&str> =
            self.arguments.iter().filter(|(_, argument)| argument.required).map(|(name, _)| name.as_str()).collect();
        serde_json::json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }
}

impl ProxyArgument {
    fn param(&self, name: &str, relation: Option<&str>) -> CapabilityParam {
        let kind = match self.kind {
            ProxyArgumentKind::Text => ParamKind::Text,
            ProxyArgumentKind::Integer => ParamKind::Integer,
            ProxyArgumentKind::Boolean => ParamKind::Boolean,
        };
        CapabilityParam { required: self.required, target: relation == Some(name), ..CapabilityParam::new(name, kind) }
    }

    fn schema(&self) -> Value {
        match self.kind {
            ProxyArgumentKind::Text if !self.choices.is_empty() => serde_json::json!({"enum": self.choices}),
            ProxyArgumentKind::Text => serde_json::json!({"type": "string", "maxLength": self.max.unwrap_or(1000)}),
            ProxyArgumentKind::Integer => {
                serde_json::json!({"type": "integer", "minimum": 0, "maximum": self.max.unwrap_or(u64::from(u32::MAX))})
            }
            ProxyArgumentKind::Boolean => serde_json::json!({"type": "boolean"}),
        }
    }

    /// Whether a value is allowed.
    #[must_use]
    pub fn allows(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (ProxyArgumentKind::Text, Value::String(text)) if !self.choices.is_empty() => self.choices.contains(text),
            (ProxyArgumentKind::Text, Value::String(text)) => text.chars().count() as u64 <= self.max.unwrap_or(1000),
            (ProxyArgumentKind::Integer, Value::Number(number)) => {
                number.as_u64().is_some_and(|number| number <= self.max.unwrap_or(u64::from(u32::MAX)))
            }
            (ProxyArgumentKind::Boolean, Value::Bool(_)) => true,
            _ => false,
        }
    }
}

/// Whether a text can name a proxy or an operation: it becomes a part of a capability and of a path.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MOLTBOOK: &str = r#"
service: Moltbook
purpose: Read and answer posts without showing Moltbook anything of ours.
base_url: https://api.moltbook.example/v1
trust: acquaintance
credential: moltbook/token
limits: {per_minute: 10, per_hour: 100, burn: 200}
identity: {relation: author, recent: 3}
operations:
  feed:
    summary: Lists the newest posts.
    path: /feed
    query: {limit: "{limit}", kind: newest}
    arguments: {limit: {type: integer, required: true, max: 50}}
    answer:
      type: object
      required: [posts]
      properties:
        posts:
          type: array
          maxItems: 50
          items:
            type: object
            required: [id, author, text]
            properties:
              id: {type: string, maxLength: 40}
              author: {type: string, maxLength: 60}
              text: {type: string, maxLength: 1000}
              likes: {type: integer}
  reply:
    summary: Answers one post.
    method: POST
    path: /posts/{post}/replies
    body: {to: "{author}", text: "@{author}: {text}", quiet: "{quiet}"}
    arguments:
      post: {type: text, required: true, max: 40}
      author: {type: text, required: true, max: 60}
      text: {type: text, required: true, max: 500}
      quiet: {type: boolean}
    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}
"#;

    pub(crate) const LASTING: &str = r#"
service: Moltbook
purpose: Keep an account on Moltbook.
base_url: https://api.moltbook.example/v1
limits: {per_minute: 10, per_hour: 100, burn: 200}
identity:
  relation: author
  recent: 3
  relations: 3
  drafts: 4
  facts: {last_post: {type: text, max: 40}, likes: {type: integer}}
  draft: {remote: {type: text, max: 40}, text: {type: text, max: 500}}
operations:
  feed:
    summary: Lists posts of somebody.
    path: /feed
    query: {by: "{author}", after: "{relation.last_post}", since: "{recent.at}", seen: "{recent.count}"}
    arguments: {author: {type: text, required: true, max: 60}}
    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}
  circle:
    summary: Asks about those we talk with.
    method: POST
    path: /circle
    body: {authors: "{relations}"}
    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}
  prepare:
    summary: Begins a post.
    method: POST
    path: /posts
    body: {text: "{text}", title: "{title}"}
    arguments:
      author: {type: text, required: true, max: 60}
      title: {type: text, required: true, max: 60}
      text: {type: text, required: true, max: 500}
    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}, likes: {type: integer}}}
    remember: {last_post: /id, likes: /likes}
    draft: {does: open, named_by: title, keep: {remote: /id, text: "{text}"}}
  publish:
    summary: Publishes what was prepared.
    method: POST
    path: /posts/{draft.remote}/publish
    arguments: {draft: {type: text, required: true, max: 60}}
    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}
    draft: {does: finish, named_by: draft}
"#;

    pub(crate) fn moltbook() -> Proxy {
        Proxy::from_yaml(MOLTBOOK).unwrap()
    }

    #[test]
    fn a_declaration_brings_its_capabilities() {
        let found = moltbook().capabilities("moltbook");
        let names: Vec<&str> = found.iter().map(|capability| capability.name.as_str()).collect();
        assert_eq!(names, ["proxy.moltbook.feed", "proxy.moltbook.reply"]);
        let [feed, reply] = found.as_slice() else { panic!() };
        assert_eq!((feed.effect, reply.effect), (Effect::Read, Effect::Write));
        assert_eq!((feed.usual, reply.usual), (None, Some(Tier::ApprovalRequired)));
        assert_eq!(feed.service().as_str(), "proxy.moltbook");
        assert!(reply.param("author").unwrap().target && !reply.param("text").unwrap().target);
        let mut friend = moltbook();
        friend.trust = ProxyTrust::Friend;
        assert_eq!(friend.capabilities("moltbook")[1].usual, None);
        let mut catalogue = crate::capability::Catalogue::builtin().unwrap();
        found.into_iter().for_each(|capability| catalogue.add(capability).unwrap());
    }

    #[test]
    fn a_capability_leads_back_to_its_operation() {
        let (proxy, name) = (moltbook(), |text: &str| CapabilityName::new(text).unwrap());
        assert_eq!(proxy.operation("moltbook", &name("proxy.moltbook.feed")).unwrap().0, "feed");
        assert!(proxy.operation("moltbook", &name("proxy.moltbook2.feed")).is_none());
        assert!(proxy.operation("moltbook", &name("proxy.moltbook.post")).is_none());
        assert!(proxy.operation("moltbook", &name("email.send")).is_none());
    }

    #[test]
    fn a_wrong_field_is_named_with_its_place() {
        let error = Proxy::from_yaml("service: x\npurpose: y\nbase_url: https://x\ncolour: red\n").unwrap_err();
        assert!(error.to_string().contains("colour") && error.to_string().contains('4'), "{error}");
        assert!(Proxy::from_yaml(&"x".repeat(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn an_argument_has_a_shape_and_an_end() {
        let proxy = moltbook();
        let limit = &proxy.operations["feed"].arguments["limit"];
        assert!(limit.allows(&50.into()) && !limit.allows(&51.into()) && !limit.allows(&(-1).into()));
        assert!(!limit.allows(&"5".into()) && !limit.allows(&5.5.into()));
        let choice =
            ProxyArgument { kind: ProxyArgumentKind::Text, required: false, max: None, choices: vec!["a".into()] };
        assert!(choice.allows(&"a".into()) && !choice.allows(&"b".into()));
    }

    #[test]
    fn a_name_cannot_be_a_path_or_another_name() {
        for good in ["moltbook", "a", "two-words", "x_1"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "Moltbook", "../up", "a.b", "a b", "1st", "-x", &"x".repeat(41)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
