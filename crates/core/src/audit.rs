//! The audit log: one entry per fact, each hash over the one before it.
//!
//! Takes facts; gives sealed entries. The hash of an entry is at once its link in the chain and its
//! RFC 6962 leaf: `SHA-256(0x00 ‖ hash of the entry before ‖ body)`. Promise: anyone who knows a head
//! can tell whether any entry before it was changed, dropped, added or moved. The log holds no
//! content: entries name digests and keyed commitments, so that content can be erased and the chain stays whole.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::action::Digest;
use crate::actor::Actor;
use crate::clock::UtcMillis;
use crate::hex;
use crate::ids::{ApprovalId, CallId, HoldId, NameError, NodeName};

pub mod checkpoint;
pub mod cosignature;
pub mod export;
pub mod kept;
pub mod key;
pub mod note;
pub mod prove;
pub mod tree;
pub mod verify;

/// Prefix of a leaf, as in RFC 6962.
const LEAF: [u8; 1] = [0];
const GENESIS: &[u8] = b"sluice audit genesis v1\0";

/// A SHA-256 value of the chain or the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditHash(pub [u8; 32]);

/// What happened, before it has a place in the log. Fields are in the order of their names, which
/// makes the plain JSON of an entry its canonical form as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditFact {
    /// Who caused it.
    pub actor: Actor,
    /// The approval request it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
    /// The call it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// A stable code: why, or with what result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Keyed commitments to content stored elsewhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commitments: BTreeMap<String, AuditHash>,
    /// Further facts that are safe to keep for ever: names, numbers, rule references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub detail: BTreeMap<String, String>,
    /// The canonical action it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The state it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The held write it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldId>,
    /// What happened: `hold.held`, `approval.denied`.
    pub kind: String,
    /// The version of the rules it was judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The state it entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A fact in its canonical bytes, before it has a place in the log: serialized by the caller, so that the one who
/// appends only copies and hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedAuditFact(Vec<u8>);

/// One entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEntry {
    /// The time of the entry, in UTC milliseconds.
    pub at: UtcMillis,
    /// What happened.
    pub fact: AuditFact,
    /// The node whose log this is.
    pub log: NodeName,
    /// Its place, from 0.
    pub seq: u64,
    /// The version of the entry's form.
    pub v: u8,
}

/// An entry with its hash, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedAuditEntry {
    /// Its place, from 0.
    pub seq: u64,
    /// Its hash: chain link and tree leaf.
    pub hash: AuditHash,
    /// Its canonical bytes.
    pub body: Vec<u8>,
}

/// The end of a chain: how many entries there are and the hash of the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of entries.
    pub size: u64,
    /// Hash of the last entry, or the genesis value.
    pub hash: AuditHash,
}

impl AuditFact {
    /// A fact with only its kind and its actor.
    #[must_use]
    pub fn new(kind: impl Into<String>, actor: Actor) -> Self {
        Self {
            actor,
            approval: None,
            call: None,
            code: None,
            commitments: BTreeMap::new(),
            detail: BTreeMap::new(),
            digest: None,
            from: None,
            hold: None,
            kind: kind.into(),
            policy: None,
            to: None,
        }
    }

    /// Adds one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.detail.insert(name.to_owned(), value.to_string());
        self
    }

    /// Its canonical bytes.
    #[must_use]
    pub fn encode(&self) -> EncodedAuditFact {
        // Serialising strings and integers into a Vec has no failing case; an empty fact would be
        // caught by the verifier as an entry that cannot be read.
        EncodedAuditFact(serde_json::to_vec(self).unwrap_or_default())
    }
}

impl ChainHead {
    /// The head of a log without entries.
    #[must_use]
    pub fn genesis(log: &NodeName) -> Self {
        let hash = Sha256::new().chain_update(GENESIS).chain_update(log.as_str()).finalize();
        Self { size: 0, hash: AuditHash(hash.into()) }
    }

    /// Appends a fact; the head moves.
    #[must_use]
    pub fn seal(&mut self, log: &NodeName, at: UtcMillis, fact: &AuditFact) -> SealedAuditEntry {
        self.seal_encoded(log, at, &fact.encode())
    }

    /// The same for a fact that is already serialized. The bytes are those of an [`AuditEntry`] with it.
    #[must_use]
    pub fn seal_encoded(&mut self, log: &NodeName, at: UtcMillis, fact: &EncodedAuditFact) -> SealedAuditEntry {
        let seq = self.size;
        // Room for the names of five fields, and two numbers.
        let mut body = Vec::with_capacity(fact.0.len() + log.as_str().len() + 96);
        body.extend_from_slice(br#"{"at":"#);
        put(&mut body, &at);
        body.extend_from_slice(br#","fact":"#);
        body.extend_from_slice(&fact.0);
        body.extend_from_slice(br#","log":"#);
        put(&mut body, log);
        body.extend_from_slice(br#","seq":"#);
        put(&mut body, &seq);
        body.extend_from_slice(br#","v":1}"#);
        let hash = leaf(&self.hash, &body);
        *self = Self { size: seq + 1, hash };
        SealedAuditEntry { seq, hash, body }
    }
}

/// A name or a number as JSON. There is no failing case.
fn put(body: &mut Vec<u8>, value: &impl Serialize) {
    drop(serde_json::to_writer(body, value));
}

/// The hash of an entry, given the one before it.
#[must_use]
pub fn leaf(before: &AuditHash, body: &[u8]) -> AuditHash {
    AuditHash(Sha256::new().chain_update(LEAF).chain_update(before.0).chain_update(body).finalize().into())
}

/// A commitment to content: without the key it reveals nothing, with the key it proves the content unchanged.
#[must_use]
pub fn commit(key: &[u8; 32], content: &[u8]) -> AuditHash {
    // HMAC takes keys of any length; 32 bytes is its ordinary case.
    let mac = Hmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(content).finalize().into_bytes());
    AuditHash(mac.map_or([0; 32], Into::into))
}

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AuditHash {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        hex::decode(text).map(Self).ok_or(NameError::Digits)
    }
}

impl Serialize for AuditHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for AuditHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use proptest::prelude::*;

    fn log() -> NodeName {
        NodeName::new("gw-1").unwrap()
    }

    fn fact(text: &str) -> AuditFact {
        let mut fact = AuditFact::new("hold.held", Actor::Node(log())).with("note", text);
        fact.hold = Some(HoldId::from_bits(1));
        fact.digest = Some(Digest::of(text.as_bytes()));
        fact.commitments.insert("arguments".into(), commit(&[7; 32], text.as_bytes()));
        fact
    }

    #[test]
    fn the_form_of_an_entry_is_pinned() {
        let mut head = ChainHead::genesis(&log());
        let sealed = head.seal(&log(), UtcMillis::from_millis(1_730_000_000_000), &fact("a"));
        let body = concat!(
            r#"{"at":1730000000000,"fact":{"actor":"node:gw-1","commitments":{"arguments":"#,
            r#""4e7004bebac287656f96a29d4b16be2d4aa352cf8871cd2222f27bd0240e6118"},"detail":{"note":"a"},"#,
            r#""digest":"sha256-v1:913311510c2e4c2ac31e0e092bdad808fda9b89e495c1838e951966b8abeac5f","#,
            r#""hold":"buf_00000000000000000000000000000001","kind":"hold.held"},"log":"gw-1","seq":0,"v":1}"#
        );
        assert_eq!(String::from_utf8(sealed.body).unwrap(), body);
        assert_eq!(sealed.hash, leaf(&ChainHead::genesis(&log()).hash, body.as_bytes()));
        assert_eq!(
            ChainHead::genesis(&log()).hash.to_string(),
            "28873889bedfaca05ec202512c3989f68e247f7f69d6c2d916035c5de902823c"
        );
    }

    #[test]
    fn each_entry_depends_on_all_before_it() {
        let chain = |texts: &[&str]| {
            let mut head = ChainHead::genesis(&log());
            texts.iter().for_each(|text| drop(head.seal(&log(), UtcMillis::default(), &fact(text))));
            head
        };
        assert_eq!(chain(&["a", "b"]), chain(&["a", "b"]));
        assert_ne!(chain(&["a", "b"]).hash, chain(&["b", "a"]).hash);
        assert_ne!(chain(&["a", "b"]).hash, chain(&["c", "b"]).hash);
    }

    proptest! {
        /// The serde order of the fields is the RFC 8785 order, whatever the texts contain.
        #[test]
        fn the_plain_form_is_the_canonical_form(text in any::<String>(), code in prop::option::of(".{0,8}")) {
            let mut head = ChainHead::genesis(&log());
            let mut fact = fact(&text);
            fact.code = code;
            fact.detail.insert(text.clone(), text);
            let sealed = head.seal(&log(), UtcMillis::from_millis(5), &fact);
            let entry = AuditEntry { at: UtcMillis::from_millis(5), fact, log: log(), seq: 0, v: 1 };
            prop_assert_eq!(serde_json::to_vec(&entry).unwrap(), sealed.body.clone());
            let value = json::parse(&sealed.body, &json::REQUEST).unwrap();
            // BTreeMap orders by code point and RFC 8785 by UTF-16 unit; our own keys are ASCII, where both agree.
            if value["fact"]["detail"].as_object().unwrap().keys().all(|key| key.is_ascii()) {
                prop_assert_eq!(json::to_canonical_bytes(&value), sealed.body.clone());
            }
            let entry: AuditEntry = serde_json::from_slice(&sealed.body).unwrap();
            prop_assert_eq!(serde_json::to_vec(&entry).unwrap(), sealed.body);
        }
    }
}
