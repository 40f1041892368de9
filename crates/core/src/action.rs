//! The canonical action: the one value that is judged, shown, approved, executed and recorded.
//!
//! Takes an agent's call; gives canonical bytes and their digest. Promise: the digest identifies exactly
//! these bytes, and nothing downstream reads anything but these bytes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::capability::{Capability, ParamKind};
use crate::ids::{AgentName, CapabilityName, NameError};
use crate::json;
use crate::proxy::spawn::SpawnOptions;

/// Form of the canonical bytes. A new form gets a new number and never reuses an old digest.
const VERSION: u8 = 1;
/// Prefix of the name of a call that the gateway only checks.
pub const CHECKED: &str = "check:";
/// Prefix of the name of a call that only its caller knows.
const UNKNOWN_HERE: &str = "custom:";
const DOMAIN: &[u8] = b"sluice action v1\0";
/// An action exceeds the size of its request by at most its envelope.
const STORED: json::JsonLimits =
    json::JsonLimits { bytes: json::REQUEST.bytes * 2, depth: json::REQUEST.depth + 2, items: json::REQUEST.items + 8 };

/// SHA-256 of a canonical action, with the version of the form it was taken over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// One call in its canonical form. Clones share its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Action(Arc<FrozenAction>);

#[derive(Debug, PartialEq)]
struct FrozenAction {
    agent: AgentName,
    capability: CapabilityName,
    account: Option<String>,
    definition: Option<String>,
    arguments: Map<String, Value>,
    spawn: Option<SpawnOptions>,
    found: Vec<String>,
    bytes: Vec<u8>,
    digest: Digest,
    asked_digest: Digest,
    call_digest: Digest,
}

/// The fields of a call, by the names they have in the canonical bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionEnvelope {
    #[serde(default)]
    account: Option<String>,
    agent: AgentName,
    arguments: Map<String, Value>,
    capability: CapabilityName,
    #[serde(default)]
    definition: Option<String>,
    #[serde(default)]
    found: Vec<String>,
    #[serde(default)]
    spawn: Option<SpawnOptions>,
    v: u8,
}

/// Why a call has no canonical action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// The text is not one unambiguous JSON value.
    #[error(transparent)]
    Json(#[from] json::JsonError),
    /// The arguments are not an object.
    #[error("arguments must be a JSON object")]
    NotAnObject,
    /// An argument the capability does not have.
    #[error("`{capability}` has no argument `{argument}`")]
    Unknown {
        /// The capability that was called.
        capability: CapabilityName,
        /// The unknown argument, cut to length.
        argument: String,
    },
    /// A required argument is absent.
    #[error("`{capability}` needs the argument `{argument}`")]
    Missing {
        /// The capability that was called.
        capability: CapabilityName,
        /// The missing argument.
        argument: String,
    },
    /// An argument of the wrong shape.
    #[error("the argument `{argument}` must be {expected}")]
    Shape {
        /// The argument.
        argument: String,
        /// The expected shape, in words.
        expected: &'static str,
    },
    /// Stored bytes that are not the canonical form of anything.
    #[error("the stored action is not in canonical form")]
    NotCanonical,
    /// A name inside stored bytes is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl ActionError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json(error) => error.code(),
            Self::NotAnObject => "schema.not_an_object",
            Self::Unknown { .. } => "schema.unknown_argument",
            Self::Missing { .. } => "schema.missing_argument",
            Self::Shape { .. } => "schema.wrong_type",
            Self::NotCanonical | Self::Name(_) => "store.damaged_action",
        }
    }
}

impl Action {
    /// Freezes a call of a known capability.
    ///
    /// # Errors
    /// When the arguments are not exactly what the capability takes.
    pub fn new(
        capability: &Capability,
        agent: AgentName,
        account: Option<String>,
        arguments: Value,
    ) -> Result<Self, ActionError> {
        let Value::Object(arguments) = arguments else { return Err(ActionError::NotAnObject) };
        fit(capability, &arguments)?;
        let definition = capability.definition.clone();
        Ok(Self::freeze(ActionEnvelope {
            account,
            agent,
            arguments,
            capability: capability.name.clone(),
            definition,
            found: Vec::new(),
            spawn: None,
            v: VERSION,
        }))
    }

    /// Freezes a call of a tool the catalogue cannot know (`custom:<tool>`): any object is accepted.
    ///
    /// # Errors
    /// When the arguments are not an object.
    pub fn custom(capability: CapabilityName, agent: AgentName, arguments: Value) -> Result<Self, ActionError> {
        let Value::Object(arguments) = arguments else { return Err(ActionError::NotAnObject) };
        let (account, definition, found, spawn) = (None, None, Vec::new(), None);
        Ok(Self::freeze(ActionEnvelope { account, agent, arguments, capability, definition, found, spawn, v: VERSION }))
    }

    /// Returns the same call, bound to the observed state of its objects: one line of text for each fact.
    ///
    /// The lines are shown to people and belong to the canonical bytes, so an approval covers this state and no other.
    #[must_use]
    pub fn with_found(&self, found: Vec<String>) -> Self {
        if self.found() == found.as_slice() {
            return self.clone();
        }
        Self::freeze(ActionEnvelope { found, ..self.envelope() })
    }

    /// Returns the same call as a spawn with these options. They are part of what is approved.
    #[must_use]
    pub fn with_spawn(&self, spawn: Option<SpawnOptions>) -> Self {
        if self.0.spawn == spawn {
            return self.clone();
        }
        Self::freeze(ActionEnvelope { spawn, ..self.envelope() })
    }

    fn envelope(&self) -> ActionEnvelope {
        ActionEnvelope {
            account: self.0.account.clone(),
            agent: self.0.agent.clone(),
            arguments: self.0.arguments.clone(),
            capability: self.0.capability.clone(),
            definition: self.0.definition.clone(),
            found: self.0.found.clone(),
            spawn: self.0.spawn.clone(),
            v: VERSION,
        }
    }

    fn freeze(envelope: ActionEnvelope) -> Self {
        let ActionEnvelope { account, agent, arguments, capability, definition, found, spawn, v: _ } = envelope;
        let mut envelope = Map::new();
        if let Some(account) = &account {
            envelope.insert("account".into(), Value::String(account.clone()));
        }
        envelope.insert("agent".into(), Value::String(agent.as_str().into()));
        envelope.insert("arguments".into(), Value::Object(arguments));
        envelope.insert("capability".into(), Value::String(capability.as_str().into()));
        if let Some(definition) = &definition {
            envelope.insert("definition".into(), Value::String(definition.clone()));
        }
        envelope.insert("v".into(), Value::Number(VERSION.into()));
        let mut envelope = Value::Object(envelope);
        let mut bytes = json::to_canonical_bytes(&envelope);
        let call_digest = Digest::of(&bytes);
        let mut digest = call_digest;
        if let (Some(spawn), Value::Object(map)) = (&spawn, &mut envelope) {
            map.insert("spawn".into(), Value::Object(spawn.fields()));
            bytes = json::to_canonical_bytes(&envelope);
            digest = Digest::of(&bytes);
        }
        let asked_digest = digest;
        if let (false, Value::Object(map)) = (found.is_empty(), &mut envelope) {
            map.insert("found".into(), found.iter().cloned().map(Value::String).collect());
            bytes = json::to_canonical_bytes(&envelope);
            digest = Digest::of(&bytes);
        }
        let arguments = match envelope {
            Value::Object(mut envelope) => match envelope.remove("arguments") {
                Some(Value::Object(arguments)) => arguments,
                _ => Map::new(),
            },
            _ => Map::new(),
        };
        Self(Arc::new(FrozenAction {
            agent,
            capability,
            account,
            definition,
            arguments,
            spawn,
            found,
            bytes,
            digest,
            asked_digest,
            call_digest,
        }))
    }

    /// Reads stored bytes back.
    ///
    /// # Errors
    /// When the bytes are not exactly the canonical form of an action.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, ActionError> {
        let value = json::parse(bytes, &STORED)?;
        let envelope: ActionEnvelope = serde_json::from_value(value).map_err(|_| ActionError::NotCanonical)?;
        let version = envelope.v;
        let action = Self::freeze(envelope);
        if version != VERSION || action.bytes() != bytes {
            return Err(ActionError::NotCanonical);
        }
        Ok(action)
    }

    /// The agent that made the call.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.0.agent
    }
    /// The capability that was called.
    #[must_use]
    pub fn capability(&self) -> &CapabilityName {
        &self.0.capability
    }
    /// Whether the caller carries out the call and the gateway only judges it.
    #[must_use]
    pub fn is_carried_out_by_caller(&self) -> bool {
        let name = self.capability().as_str();
        name.starts_with(CHECKED) || name.starts_with(UNKNOWN_HERE)
    }
    /// The account at the service, if the call names one.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.0.account.as_deref()
    }
    /// The digest of the definition that a person accepted, if a third party defines the capability.
    #[must_use]
    pub fn definition(&self) -> Option<&str> {
        self.0.definition.as_deref()
    }
    /// The arguments of the call.
    #[must_use]
    pub fn arguments(&self) -> &Map<String, Value> {
        &self.0.arguments
    }
    /// The options of the spawn, if the call was made as one.
    #[must_use]
    pub fn spawn(&self) -> Option<&SpawnOptions> {
        self.0.spawn.as_ref()
    }
    /// The state of its objects when it was frozen; empty if it depends on none.
    #[must_use]
    pub fn found(&self) -> &[String] {
        &self.0.found
    }
    /// The canonical bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }
    /// The digest of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest
    }
    /// The digest of the call without the observed state of its objects. An idempotency key is bound to
    /// it.
    #[must_use]
    pub fn asked_digest(&self) -> Digest {
        self.0.asked_digest
    }
    /// The digest of the call alone, without the observed state of its objects and without the options of a spawn:
    /// equal for a repeated call, however it is made.
    #[must_use]
    pub fn call_digest(&self) -> Digest {
        self.0.call_digest
    }
}

/// Whether the arguments are exactly what the capability takes.
fn fit(capability: &Capability, arguments: &Map<String, Value>) -> Result<(), ActionError> {
    for (name, value) in arguments {
        let param = match capability.param(name) {
            Some(param) => param,
            None if capability.open => continue,
            None => {
                let (capability, argument) = (capability.name.clone(), name.chars().take(64).collect());
                return Err(ActionError::Unknown { capability, argument });
            }
        };
        if let Some(expected) = find_mismatch(param.kind, value) {
            return Err(ActionError::Shape { argument: name.clone(), expected });
        }
    }
    match capability.params.iter().find(|param| param.required && !arguments.contains_key(&param.name)) {
        Some(param) => Err(ActionError::Missing { capability: capability.name.clone(), argument: param.name.clone() }),
        None => Ok(()),
    }
}

/// The expected shape, if the value does not have it.
fn find_mismatch(kind: ParamKind, value: &Value) -> Option<&'static str> {
    let texts = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let (fits, expected) = match kind {
        ParamKind::Text | ParamKind::Content | ParamKind::Path | ParamKind::Url => (value.is_string(), "a text"),
        ParamKind::Integer => (value.is_i64() || value.is_u64(), "a whole number"),
        ParamKind::Number => (value.is_number(), "a number"),
        ParamKind::Boolean => (value.is_boolean(), "true or false"),
        ParamKind::Recipients => (value.is_string() || texts(value), "an address, or a list of addresses"),
        ParamKind::Objects | ParamKind::Texts => (texts(value), "a list of texts"),
        ParamKind::Object => (value.is_object(), "an object"),
        ParamKind::Any => (true, "anything"),
    };
    (!fits).then_some(expected)
}

impl Digest {
    /// The digest of canonical action bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::new().chain_update(DOMAIN).chain_update(bytes).finalize().into())
    }
    /// The version tag and the hash, as stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 33] {
        let mut tagged = [VERSION; 33];
        tagged.iter_mut().skip(1).zip(self.0).for_each(|(to, from)| *to = from);
        tagged
    }
    /// Reads the stored form.
    #[must_use]
    pub fn from_bytes(tagged: &[u8]) -> Option<Self> {
        match tagged.split_first() {
            Some((&VERSION, hash)) => hash.try_into().ok().map(Self),
            _ => None,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256-v1:")?;
        f.write_str(&crate::hex::encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let digits = text.strip_prefix("sha256-v1:").ok_or(NameError::Prefix { expected: "sha256-v1:" })?;
        crate::hex::decode::<32>(digits).map(Self).ok_or(NameError::Digits)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Catalogue;
    use proptest::prelude::*;
    use serde_json::json;

    fn send() -> Capability {
        let text = "- {name: email.send, effect: write, class: consume_once, summary: s, params: [{name: to, kind: recipients, required: true}, {name: body, kind: content}, {name: n, kind: integer}]}";
        Catalogue::from_yaml(text).unwrap().iter().next().unwrap().clone()
    }

    fn ask(arguments: Value) -> Result<Action, ActionError> {
        Action::new(&send(), AgentName::new("clerk").unwrap(), None, arguments)
    }

    #[test]
    fn the_bytes_and_digest_of_an_action_are_pinned() {
        let action = ask(json!({"to": "a@b.c", "body": "hi"})).unwrap();
        assert_eq!(
            std::str::from_utf8(action.bytes()).unwrap(),
            r#"{"agent":"clerk","arguments":{"body":"hi","to":"a@b.c"},"capability":"email.send","v":1}"#
        );
        assert_eq!(
            action.digest().to_string(),
            "sha256-v1:7186c134fa4237e18ecdee55c06e47ff97ec8d2e87354a4fb7370f7fed45d6c0"
        );
    }

    #[test]
    fn what_others_define_is_frozen_with_its_definition() {
        let with = |definition: Option<&str>| {
            let spec = Capability { definition: definition.map(str::to_owned), ..send() };
            Action::new(&spec, AgentName::new("clerk").unwrap(), None, json!({"to": "a"})).unwrap()
        };
        let (one, other) = (with(Some("aa")), with(Some("bb")));
        assert_eq!(
            std::str::from_utf8(one.bytes()).unwrap(),
            r#"{"agent":"clerk","arguments":{"to":"a"},"capability":"email.send","definition":"aa","v":1}"#
        );
        assert!(one.digest() != other.digest() && one.digest() != with(None).digest());
        assert_eq!(Action::from_stored(one.bytes()).unwrap().definition(), Some("aa"));
        assert_eq!(with(None).definition(), None);
    }

    #[test]
    fn the_state_of_its_objects_belongs_to_an_action_and_not_to_the_call() {
        let call = ask(json!({"to": "a"})).unwrap();
        let (one, other) = (call.with_found(vec!["file 1".into()]), call.with_found(vec!["file 2".into()]));
        assert!(one.digest() != other.digest() && one.digest() != call.digest());
        assert_eq!([one.call_digest(), other.call_digest()], [call.digest(); 2]);
        assert_eq!(Action::from_stored(one.bytes()).unwrap(), one);
        assert_eq!(Action::from_stored(one.bytes()).unwrap().found(), ["file 1"]);
        assert_eq!(one.with_found(Vec::new()), call);
        assert!(
            Action::from_stored(br#"{"agent":"clerk","arguments":{},"capability":"custom:x","found":[],"v":1}"#)
                .is_err()
        );
    }

    #[test]
    fn the_options_of_a_spawn_belong_to_the_action_and_not_to_the_call() {
        let call = ask(json!({"to": "a"})).unwrap();
        let plain = call.with_spawn(Some(SpawnOptions::default()));
        let short = call.with_spawn(Some(SpawnOptions { timeout_minutes: Some(2), output_schema: None }));
        assert_eq!(
            std::str::from_utf8(short.bytes()).unwrap(),
            r#"{"agent":"clerk","arguments":{"to":"a"},"capability":"email.send","spawn":{"timeout_minutes":2},"v":1}"#
        );
        let digests = [call.digest(), plain.digest(), short.digest()];
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
        assert_eq!([plain.call_digest(), short.call_digest()], [call.digest(); 2], "a repeated call is seen as one");
        assert_eq!([plain.asked_digest(), short.asked_digest()], [plain.digest(), short.digest()]);
        let bound = short.with_found(vec!["file 1".into()]);
        assert_eq!((bound.asked_digest(), bound.spawn()), (short.digest(), short.spawn()));
        for action in [&plain, &short, &bound] {
            assert_eq!(Action::from_stored(action.bytes()).unwrap(), *action);
        }
        assert_eq!((bound.with_found(Vec::new()).with_spawn(None), call.spawn()), (call.clone(), None));
        let odd = r#"{"agent":"clerk","arguments":{},"capability":"custom:x","spawn":null,"v":1}"#;
        assert!(Action::from_stored(odd.as_bytes()).is_err());
    }

    #[test]
    fn arguments_must_be_exactly_what_the_capability_takes() {
        assert_eq!(ask(json!([])).unwrap_err().code(), "schema.not_an_object");
        assert_eq!(ask(json!({"to": "a", "Bcc": "x"})).unwrap_err().code(), "schema.unknown_argument");
        assert_eq!(ask(json!({"body": "x"})).unwrap_err().code(), "schema.missing_argument");
        assert_eq!(ask(json!({"to": "a", "body": 7})).unwrap_err().code(), "schema.wrong_type");
        assert_eq!(ask(json!({"to": ["a", 7]})).unwrap_err().code(), "schema.wrong_type");
        assert_eq!(ask(json!({"to": "a", "n": 1.5})).unwrap_err().code(), "schema.wrong_type");
    }

    #[test]
    fn stored_bytes_must_be_canonical() {
        let action = ask(json!({"to": "a"})).unwrap();
        assert_eq!(Action::from_stored(action.bytes()).unwrap(), action);
        let spaced = String::from_utf8(action.bytes().to_vec()).unwrap().replace(':', ": ");
        assert_eq!(Action::from_stored(spaced.as_bytes()), Err(ActionError::NotCanonical));
    }

    proptest! {
        #[test]
        fn any_changed_byte_changes_the_digest(at in 0_usize..80, flip in 1_u8..=255) {
            let action = ask(json!({"to": "a@b.c", "body": "hello"})).unwrap();
            let mut bytes = action.bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert_ne!(Digest::of(&bytes), action.digest());
            // And the changed bytes are either no action at all or a different one.
            if let Ok(other) = Action::from_stored(&bytes) {
                prop_assert_ne!(other, action);
            }
        }

        #[test]
        fn the_order_of_arguments_does_not_matter(body in ".{0,20}", n in -5_i64..5) {
            let one = json::parse(json!({"to": "a", "body": body, "n": n}).to_string().as_bytes(), &json::REQUEST).unwrap();
            let text = format!(r#"{{"n":{n}.0,"body":{},"to":"\u0061"}}"#, serde_json::to_string(&body).unwrap());
            if n == 0 { return Ok(()); }
            let two = json::parse(text.as_bytes(), &json::REQUEST).unwrap();
            prop_assert_eq!(ask(one).unwrap().digest(), ask(two).unwrap().digest());
        }
    }
}
