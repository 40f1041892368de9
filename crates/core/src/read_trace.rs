//! The trace of a read in the audit log: which objects were returned, how many, and how old they were. Never content.
//!
//! Takes the arguments and the answer of a read; gives ids, a count, and keyed hashes of the query and of the answer.
//! Promise: only ids of an answer get into the trace; a trace that is written into an entry is read back unchanged; a
//! trace has at most [`MOST_IDS`] ids and the number of further ones.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{percent_decode_str, percent_encode_byte};
use serde_json::{Map, Value};

use crate::audit::commit;
use crate::ids::CapabilityName;
use crate::json;

/// Most ids that one entry names.
pub const MOST_IDS: usize = 8;
/// Most bytes that the ids of one entry take together.
const ROOM: usize = 140;
/// Longest id that is kept in full, in bytes. Of a longer one the beginning is kept, with a keyed hash of all of it.
const LONGEST_ID: usize = 80;
/// Characters of a longer id that are kept before its hash.
const BEGINNING: usize = 40;
/// Bytes of a keyed hash: two of them are never equal by accident, and without the key they reveal nothing.
const HASH: usize = 12;

/// Arguments of searches.
const QUERIES: [&str; 5] = ["query", "pattern", "prefix", "search", "filter"];
/// Fields that name an object, besides those that end in `_id`.
const IDS: [&str; 7] = ["message_id", "id", "uid", "sha256", "sha", "commit", "hash"];
/// Fields that name an object where the name is not content: files, keys, branches.
const NAMES: [&str; 3] = ["path", "key", "name"];
/// Prefixes of the services whose objects have such names.
const NAMED: [&str; 6] = ["filesystem.", "state.", "git.", "process.", "scheduler.", "secrets."];
/// Services whose ids come from the gateway or from a local replica. An id of another service may be any text that the
/// service, or a person who writes to it, chose: of its answers only the number and the hash are kept.
const OWN: [&str; 12] = [
    "agent.",
    "alerts.",
    "comms.",
    "email.",
    "filesystem.",
    "git.",
    "process.",
    "scheduler.",
    "secrets.",
    "slack.",
    "state.",
    "system.",
];
/// Lists of texts that are object names.
const LISTS: [&str; 4] = ["keys", "ids", "paths", "files"];

/// The trace of one read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadTrace {
    /// The number of objects in the answer.
    pub count: u64,
    /// The ids of the first of them.
    pub ids: Vec<String>,
    /// The number of further ids.
    pub more: u64,
    /// The keyed hash of the query, if the call was a search.
    pub query: Option<String>,
    /// The keyed hash of the answer.
    pub result: String,
    /// The age of the local replica in seconds, if the answer came from one.
    pub age_s: Option<u64>,
}

/// The keyed hash of a text, in the form of an audit entry.
#[must_use]
pub fn keyed_hash(key: &[u8; 32], text: &[u8]) -> String {
    let whole = commit(key, text).0;
    URL_SAFE_NO_PAD.encode(whole.get(..HASH).unwrap_or_default())
}

impl ReadTrace {
    /// Makes the trace of one read.
    #[must_use]
    pub fn of(key: &[u8; 32], capability: &CapabilityName, arguments: &Map<String, Value>, result: &Value) -> Self {
        let is_named = NAMED.iter().any(|start| capability.as_str().starts_with(start));
        let query = QUERIES.iter().find_map(|name| arguments.get(*name)?.as_str());
        let (mut found, count) = found_in(result, is_named);
        if found.is_empty() && list_in(result).is_none() {
            found.extend(id_of(arguments, is_named));
        }
        // SECURITY: outside content never gets into the audit log because a service calls it an id.
        if !OWN.iter().any(|start| capability.as_str().starts_with(start)) {
            found.clear();
        }
        let (mut ids, mut room, mut seen) = (Vec::new(), ROOM, std::collections::BTreeSet::new());
        for id in found {
            let id = shortened(key, id);
            if !seen.insert(id.clone()) || ids.len() == MOST_IDS {
                continue;
            }
            if let Some(left) = room.checked_sub(encoded(&id).len() + 1) {
                room = left;
                ids.push(id);
            }
        }
        Self {
            count,
            more: (seen.len() - ids.len()) as u64,
            ids,
            query: query.map(|query| keyed_hash(key, query.as_bytes())),
            result: keyed_hash(key, &json::to_canonical_bytes(result)),
            age_s: result.pointer("/freshness/age_s").and_then(Value::as_u64),
        }
    }

    /// Writes the trace into the details of an entry.
    pub fn write(&self, detail: &mut BTreeMap<String, String>) {
        detail.insert("count".into(), self.count.to_string());
        if !self.ids.is_empty() {
            let mut ids: Vec<String> = self.ids.iter().map(|id| encoded(id)).collect();
            ids.extend((self.more > 0).then(|| format!("+{}", self.more)));
            detail.insert("ids".into(), ids.join(","));
        }
        detail.extend(self.query.clone().map(|query| ("query".to_owned(), query)));
        detail.insert("result".into(), self.result.clone());
        detail.extend(self.age_s.map(|age| ("age_s".to_owned(), age.to_string())));
    }

    /// Reads the trace back. `None` for an entry without a trace: of another kind, or of an earlier release.
    #[must_use]
    pub fn read(detail: &BTreeMap<String, String>) -> Option<Self> {
        let (count, result) = (detail.get("count")?.parse().ok()?, detail.get("result")?.clone());
        let mut trace = Self { count, result, query: detail.get("query").cloned(), ..Self::default() };
        trace.age_s = detail.get("age_s").and_then(|age| age.parse().ok());
        for id in detail.get("ids").into_iter().flat_map(|ids| ids.split(',')) {
            match id.strip_prefix('+') {
                Some(more) => trace.more = more.parse().ok()?,
                None => trace.ids.push(decoded(id)),
            }
        }
        Some(trace)
    }

    /// Whether the trace names this object, or a search for exactly this text.
    #[must_use]
    pub fn names(&self, target: &str, query_hash: Option<&str>) -> bool {
        let is_query = query_hash.is_some_and(|hash| self.query.as_deref() == Some(hash));
        is_query || self.ids.iter().any(|id| id.eq_ignore_ascii_case(target))
    }
}

/// The list that an answer consists of: the longest one at its top.
fn list_in(result: &Value) -> Option<(&str, &Vec<Value>)> {
    match result {
        Value::Array(list) => Some(("", list)),
        Value::Object(members) => {
            let lists = members.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_array()?)));
            lists.max_by_key(|(_, list)| list.len())
        }
        _ => None,
    }
}

/// The ids of an answer, and how many objects it holds.
fn found_in(result: &Value, is_named: bool) -> (Vec<String>, u64) {
    if let Some((name, list)) = list_in(result) {
        let folder = result.get("path").and_then(Value::as_str).filter(|_| is_named && !list.is_empty());
        let has_path = list.iter().any(|item| item.get("path").is_some());
        let mut ids: Vec<String> = folder.filter(|_| !has_path).map(|path| format!("{path}/")).into_iter().collect();
        let is_list_of_names = is_named && LISTS.contains(&name);
        ids.extend(list.iter().filter_map(|item| match item {
            Value::Object(members) => id_of(members, is_named),
            Value::String(text) if is_list_of_names => Some(text.clone()),
            _ => None,
        }));
        return (ids, list.len() as u64);
    }
    let Value::Object(members) = result else { return (Vec::new(), u64::from(!result.is_null())) };
    let is_absent = ["found", "exists"].iter().any(|name| members.get(*name) == Some(&Value::Bool(false)));
    let inside = || members.values().filter_map(Value::as_object).find_map(|object| id_of(object, is_named));
    let id = id_of(members, is_named).or_else(inside);
    (id.into_iter().collect(), u64::from(!is_absent))
}

/// The id of an object.
fn id_of(members: &Map<String, Value>, is_named: bool) -> Option<String> {
    let name = |names: &[&str]| names.iter().find_map(|name| members.get(*name)?.as_str()).map(str::to_owned);
    let named = if is_named { name(&NAMES) } else { None };
    let known = || IDS.iter().find_map(|id| plain(members.get(*id)?));
    let other = || members.iter().filter(|(name, _)| name.ends_with("_id")).find_map(|(_, value)| plain(value));
    named.or_else(known).or_else(other)
}

/// An id of a service. A text with blanks, or longer than any id, is not an id.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic()) => {
            Some(text.clone())
        }
        _ => None,
    }
}

fn shortened(key: &[u8; 32], id: String) -> String {
    if id.len() <= LONGEST_ID {
        return id;
    }
    let beginning: String = id.chars().take(BEGINNING).collect();
    format!("{beginning}~{}", keyed_hash(key, id.as_bytes()))
}

/// An id as one word without commas.
fn encoded(id: &str) -> String {
    let mut word = String::with_capacity(id.len());
    for (at, c) in id.chars().enumerate() {
        if c == '%' || c == ',' || c.is_control() || c.is_whitespace() || (at == 0 && c == '+') {
            let mut bytes = [0; 4];
            word.extend(c.encode_utf8(&mut bytes).bytes().map(percent_encode_byte));
        } else {
            word.push(c);
        }
    }
    word
}

fn decoded(word: &str) -> String {
    percent_decode_str(word).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const KEY: [u8; 32] = [7; 32];

    fn trace(capability: &str, arguments: Value, result: Value) -> ReadTrace {
        let name = CapabilityName::new(capability).unwrap();
        ReadTrace::of(&KEY, &name, arguments.as_object().unwrap(), &result)
    }

    fn written(trace: &ReadTrace) -> BTreeMap<String, String> {
        let mut detail = BTreeMap::new();
        trace.write(&mut detail);
        detail
    }

    #[test]
    fn a_read_names_what_it_gave_and_nothing_of_what_that_says() {
        let message = |id: &str| json!({"message_id": id, "thread_id": "t", "subject": "salary", "snippet": "is 5000"});
        let found = trace(
            "email.search",
            json!({"query": "salary"}),
            json!({"messages": [message("m1"), message("m2")], "more": false, "freshness": {"age_s": 12}}),
        );
        assert_eq!(
            (found.ids.as_slice(), found.count, found.age_s),
            (&["m1".to_owned(), "m2".into()][..], 2, Some(12))
        );
        assert_eq!(found.query, Some(keyed_hash(&KEY, b"salary")));
        assert!(found.names("m2", None) && found.names("x", found.query.clone().as_deref()) && !found.names("m", None));
        let all = format!("{:?}", written(&found));
        assert!(!all.contains("salary") && !all.contains("5000"), "{all}");
        let one =
            trace("email.read", json!({"message_id": "m1"}), json!({"message": message("m1"), "untrusted": true}));
        assert_eq!((one.ids.as_slice(), one.count), (&["m1".to_owned()][..], 1));
    }

    #[test]
    fn each_kind_of_answer_has_its_ids() {
        for (capability, arguments, result, ids, count) in [
            ("filesystem.read", json!({"path": "/w/a b"}), json!({"content": "x", "size": 1}), vec!["/w/a b"], 1),
            ("filesystem.stat", json!({"path": "/w/x"}), json!({"exists": false, "path": "/w/x"}), vec!["/w/x"], 0),
            (
                "filesystem.list",
                json!({"path": "/w"}),
                json!({"entries": [{"name": "a"}, {"name": "b"}], "path": "/w", "total": 2}),
                vec!["/w/", "a", "b"],
                2,
            ),
            (
                "filesystem.search_content",
                json!({"pattern": "x"}),
                json!({"matches": [{"path": "/w/a", "text": "x"}, {"path": "/w/a", "text": "xx"}]}),
                vec!["/w/a"],
                2,
            ),
            ("state.session.list", json!({}), json!({"count": 2, "keys": ["k1", "k2"]}), vec!["k1", "k2"], 2),
            ("state.persistent.get", json!({"key": "k"}), json!({"found": true, "value": 5}), vec!["k"], 1),
            ("crm.find", json!({"q": 1}), json!([{"id": 7, "name": "Ana Lee"}, {"name": "Ben"}]), vec![], 2),
            ("proxy.board.feed", json!({"id": "ana"}), json!({"data": {"id": "carla@example.org"}}), vec![], 1),
            ("crm.say", json!({}), json!({"lines": ["a secret line"]}), vec![], 1),
            ("crm.say", json!({}), json!({"id": "two words"}), vec![], 1),
        ] {
            let found = trace(capability, arguments, result.clone());
            assert_eq!((found.ids, found.count), (ids.iter().map(ToString::to_string).collect(), count), "{result}");
        }
    }

    #[test]
    fn a_large_answer_takes_little_room_and_says_how_many_more_there_were() {
        let messages: Vec<Value> = (0..100).map(|n| json!({"message_id": format!("18c1f2a9d0e3{n:04}")})).collect();
        let found = trace("email.list", json!({}), json!({"messages": messages}));
        assert_eq!(found.ids.len() as u64 + found.more, 100);
        assert_eq!(found.count, 100);
        let size: usize = written(&found).iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        assert!(size <= 240, "{size}");
        let long = "k".repeat(5_000);
        let found = trace("state.persistent.get", json!({"key": long}), json!({"found": true}));
        assert!(found.ids[0].len() <= LONGEST_ID && found.ids[0].contains('~'), "{:?}", found.ids);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ids in prop::collection::vec(".{1,12}", 0..6), more in 0_u64..5, age in prop::option::of(0_u64..9)) {
            let more = if ids.is_empty() { 0 } else { more };
            let trace = ReadTrace { count: 3, ids, more, query: None, result: "r".into(), age_s: age };
            prop_assert_eq!(ReadTrace::read(&written(&trace)), Some(trace));
        }
    }
}
