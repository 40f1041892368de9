//! The checks before a proxy may start.
//!
//! Takes a declaration; gives every flaw with a stable code and the place in the file. Promise: a proxy
//! without a schema, a limiter or an allow-list, or with a secret in a request it spells out, does not run.

mod continuity;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::budget::{DEAR, LARGEST};
use super::request::{TemplatePiece, pieces};
use super::{Proxy, ProxyArgumentKind, ProxyOperation, is_name};

/// Longest time one task may take, in minutes.
const WALL: u32 = 30;
/// Largest answer that may be asked for, in kilobytes.
const ANSWER: u32 = 8 * 1024;
/// Most refusals in a row before a pause.
const REFUSALS: u32 = 100;
/// The longest pause after refusals, in seconds.
const PAUSE: u32 = 24 * 60 * 60;
/// Most operations of one proxy: it has a single purpose.
const OPERATIONS: usize = 50;
/// Words in the name of a field that carries a credential.
const SECRET_WORDS: [&str; 9] =
    ["authorization", "token", "apikey", "secret", "password", "passwd", "bearer", "credential", "privatekey"];

/// One flaw of a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyFlaw {
    /// The stable code: `proxy.no_schema`.
    pub code: &'static str,
    /// The place in the file.
    pub place: String,
    /// What is wrong, and what to do.
    pub text: String,
}

impl fmt::Display for ProxyFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at `{}`: {}", self.code, self.place, self.text)
    }
}

/// Collects what is wrong.
struct ProxyFlawList(Vec<ProxyFlaw>);

impl ProxyFlawList {
    fn add(&mut self, code: &'static str, place: impl Into<String>, text: impl Into<String>) {
        self.0.push(ProxyFlaw { code, place: place.into(), text: text.into() });
    }
}

pub(super) fn check(proxy: &Proxy, name: &str) -> Vec<ProxyFlaw> {
    let mut flaws = ProxyFlawList(Vec::new());
    if !is_name(name) {
        flaws.add("proxy.name", "file name", "a proxy is named with small letters, digits, `-` and `_`");
    }
    base(proxy, &mut flaws);
    limits(proxy, &mut flaws);
    budget(proxy, &mut flaws);
    if proxy.operations.is_empty() {
        flaws.add("proxy.no_allow_list", "operations", "list the requests the proxy may make; it makes no other");
    }
    if proxy.operations.len() > OPERATIONS {
        flaws.add("proxy.too_broad", "operations", format!("a proxy has one purpose: at most {OPERATIONS} requests"));
    }
    for (name, operation) in &proxy.operations {
        check_operation(proxy, name, operation, &mut flaws);
    }
    if let Some(identity) = &proxy.identity {
        continuity::identity(proxy, identity, &mut flaws);
    }
    flaws.0
}

fn base(proxy: &Proxy, flaws: &mut ProxyFlawList) {
    let url = proxy.base_url.as_str();
    let place = "base_url";
    let rest = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => rest,
        // Unencrypted requests are for services in the operator's own network that are named by address.
        (None, Some(rest)) if !proxy.allow_addresses.is_empty() => rest,
        (None, Some(_)) => {
            return flaws.add("proxy.not_https", place, "use https; http only together with `allow_addresses`");
        }
        (None, None) => return flaws.add("proxy.base_url", place, "start with https:// and a host"),
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || host.contains(['@', '{', '}', '*', '\\', ' ']) {
        flaws.add("proxy.no_allow_list", place, "name exactly one host, without user name and without places to fill");
    }
    if rest.contains(['{', '}', '?', '#', '\\']) || rest.contains("/../") {
        flaws.add("proxy.base_url", place, "the base has no query, no fragment and nothing to fill in");
    }
}

fn limits(proxy: &Proxy, flaws: &mut ProxyFlawList) {
    let Some(limits) = &proxy.limits else {
        let text = "declare the limits: `limits: {per_minute: 10, per_hour: 100, burn: 200}`";
        return flaws.add("proxy.no_limiter", "limits", text);
    };
    if limits.per_minute == 0 || limits.per_hour == 0 || limits.burn == 0 {
        flaws.add("proxy.no_limiter", "limits", "a limit of 0 allows nothing; remove the proxy instead");
    }
    if limits.per_minute > limits.per_hour || limits.per_hour > limits.burn.saturating_mul(10) {
        flaws.add("proxy.limits", "limits", "a minute allows no more than an hour, an hour at most ten times `burn`");
    }
    if limits.timeout_minutes == 0 || limits.timeout_minutes > WALL {
        flaws.add("proxy.limits", "limits.timeout_minutes", format!("between 1 and {WALL}"));
    }
    if limits.answer_kb == 0 || limits.answer_kb > ANSWER {
        flaws.add("proxy.limits", "limits.answer_kb", format!("between 1 and {ANSWER}"));
    }
    if limits.breaker_refusals == 0 || limits.breaker_refusals > REFUSALS {
        flaws.add("proxy.limits", "limits.breaker_refusals", format!("between 1 and {REFUSALS}"));
    }
    let (first, longest) = (limits.breaker_pause_seconds, limits.breaker_longest_pause_seconds);
    if first == 0 || first > longest || longest > PAUSE {
        let text = format!("a first pause of at least 1 s, no longer than the longest, which is at most {PAUSE} s");
        flaws.add("proxy.limits", "limits.breaker_pause_seconds", text);
    }
}

/// Refuses a budget that is too small for one task: such a proxy would never run.
fn budget(proxy: &Proxy, flaws: &mut ProxyFlawList) {
    let (declared, one) = (&proxy.budget, proxy.estimate(proxy.limits().wall()));
    if let Some(limit) = one.exceeded(declared.limits()) {
        let text = "less than one task may use: one request, its largest answer, its longest time and its price";
        flaws.add("proxy.budget", format!("budget.{}", limit.field()), text);
    }
    let counts = [
        ("requests_per_day", declared.requests_per_day),
        ("bytes_per_day", declared.bytes_per_day),
        ("seconds_per_day", declared.seconds_per_day),
    ];
    for (field, value) in counts {
        if value > LARGEST / 1000 {
            flaws.add("proxy.budget", format!("budget.{field}"), format!("at most {}", LARGEST / 1000));
        }
    }
}

/// Warnings for a person, although the proxy may run.
pub(super) fn warnings(proxy: &Proxy) -> Vec<ProxyFlaw> {
    let mut found = ProxyFlawList(Vec::new());
    let price = proxy.budget.price_per_request;
    if price > DEAR {
        let text =
            format!("one request costs {price}, more than {DEAR}: the task does too much; split it, or use no proxy");
        found.add("proxy.dear", "budget.price_per_request", text);
    }
    for (name, operation) in &proxy.operations {
        let score = proxy.routing_score(operation);
        if !score.needs_proxy() {
            let text = format!("routing score {score}");
            found.add("proxy.needless", format!("operations.{name}"), text);
        }
    }
    found.0
}

fn check_operation(proxy: &Proxy, name: &str, operation: &ProxyOperation, flaws: &mut ProxyFlawList) {
    let identity = proxy.identity.as_ref();
    let at = |what: &str| format!("operations.{name}{what}");
    if !is_name(name) {
        flaws.add("proxy.name", at(""), "an operation is named with small letters, digits, `-` and `_`");
    }
    match &operation.answer {
        None => flaws.add("proxy.no_schema", at(".answer"), "say what an answer looks like, as a JSON Schema"),
        Some(schema) => check_schema(schema, &at(".answer"), flaws),
    }
    if !operation.path.starts_with('/') || operation.path.contains(['?', '#', '\\', '*']) {
        flaws.add("proxy.no_allow_list", at(".path"), "a path starts with `/` and has no query, fragment or `*`");
    }
    if operation.path.split('/').any(|part| part.contains('{') && (!part.starts_with('{') || !part.ends_with('}'))) {
        flaws.add("proxy.path", at(".path"), "an argument fills a whole part of the path: `/posts/{id}`");
    }
    if operation.method == super::ProxyMethod::Get && operation.body.is_some() {
        flaws.add("proxy.body", at(".body"), "a GET has no body");
    }
    let used = places(operation);
    for place in &used {
        match operation.arguments.get(place) {
            None if continuity::is_kept(place, operation, identity) => {
                // A list cannot fill a part of a path; a missing value in a path refuses the request and reports it.
                if place == "relations" && operation.path.contains("{relations}") {
                    flaws.add("proxy.path", at(".path"), "`relations` is a list and stands in a query or a body");
                }
            }
            None => flaws.add("proxy.unknown_argument", at(""), format!("`{{{place}}}` is not among `arguments`")),
            Some(argument) if operation.path.contains(&format!("{{{place}}}")) && !argument.required => {
                flaws.add("proxy.path", at(".path"), format!("`{place}` stands in the path, so it must be required"));
            }
            Some(_) => {}
        }
    }
    for (argument, about) in &operation.arguments {
        let chooses = identity.is_some_and(|identity| identity.relation == *argument)
            || operation.draft.as_ref().is_some_and(|draft| draft.named_by == *argument);
        if !used.contains(argument) && !chooses {
            let text = format!("`{argument}` is nowhere in the request");
            flaws.add("proxy.unused_argument", at(".arguments"), text);
        }
        if about.kind == ProxyArgumentKind::Text && about.max.is_none() && about.choices.is_empty() {
            let text = format!("`{argument}` is a text of unlimited length: give `max` or `choices`");
            flaws.add("proxy.endless_argument", at(".arguments"), text);
        }
    }
    continuity::operation(&at(""), operation, identity, flaws);
    secrets(operation, &at(""), flaws);
}

/// Why a schema allows anything somewhere, or refers elsewhere, if it does.
pub(super) fn schema_flaw(schema: &Value) -> Option<String> {
    let mut flaws = ProxyFlawList(Vec::new());
    check_schema(schema, "", &mut flaws);
    flaws.0.into_iter().next().map(|flaw| flaw.text)
}

/// A schema must describe the answer, and in this file: no schema is fetched from elsewhere.
fn check_schema(schema: &Value, place: &str, flaws: &mut ProxyFlawList) {
    if !schema.is_object() {
        return flaws.add("proxy.no_schema", place, "the schema is an object that names a `type`");
    }
    if let Some(why) = looseness(schema) {
        flaws.add("proxy.no_schema", place, why);
    }
    let mut waiting = vec![schema];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(link)) = fields.get("$ref")
                    && !link.starts_with('#')
                {
                    flaws.add("proxy.remote_schema", place, "a schema refers only to itself (`#/$defs/…`)");
                }
                waiting.extend(fields.values());
            }
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The place where a schema allows anything, at any depth. An undescribed value would reach an agent unchanged.
fn looseness(schema: &Value) -> Option<&'static str> {
    let fields = match schema {
        Value::Bool(false) => return None,
        Value::Object(fields) => fields,
        _ => return Some("`true` in a schema allows anything"),
    };
    if ["enum", "const", "$ref"].iter().any(|key| fields.contains_key(*key)) {
        return None;
    }
    let branches = |key: &str| fields.get(key).and_then(Value::as_array).map(Vec::as_slice);
    let Some(kind) = fields.get("type") else {
        let any = branches("anyOf").or_else(|| branches("oneOf"));
        let all = branches("allOf").filter(|all| all.iter().any(|branch| looseness(branch).is_none()));
        return match (any, all) {
            (_, Some(_)) => None,
            (Some(branches), None) if !branches.is_empty() => branches.iter().find_map(looseness),
            _ => Some("a schema without `type` allows anything"),
        };
    };
    let is = |word: &str| kind == word || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == word));
    if is("object") {
        let Some(Value::Object(properties)) = fields.get("properties") else {
            return Some("an object without `properties` allows anything");
        };
        let others = ["additionalProperties", "unevaluatedProperties"].iter().filter_map(|key| fields.get(*key));
        let patterns = fields.get("patternProperties").and_then(Value::as_object);
        let all = properties.values().chain(others).chain(patterns.into_iter().flat_map(|named| named.values()));
        if let Some(why) = all.into_iter().find_map(looseness) {
            return Some(why);
        }
    }
    if is("array") {
        let Some(items) = fields.get("items") else { return Some("an array without `items` allows anything") };
        return std::iter::once(items).chain(branches("prefixItems").unwrap_or_default()).find_map(looseness);
    }
    None
}

/// Every place that is filled, in path, query and body.
fn places(operation: &ProxyOperation) -> BTreeSet<String> {
    operation
        .texts()
        .iter()
        .flat_map(|(_, text)| pieces(text))
        .filter_map(|piece| match piece {
            TemplatePiece::Place(name) => Some(name.to_owned()),
            TemplatePiece::Literal(_) => None,
        })
        .collect()
}

/// A value under a name that means a credential. The leak scan finds everything else that looks like a secret:
/// it also scans every literal.
fn secrets(operation: &ProxyOperation, place: &str, flaws: &mut ProxyFlawList) {
    for (name, text) in operation.literals() {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let literal = pieces(&text).iter().any(|piece| matches!(piece, TemplatePiece::Literal(_)));
        if literal && SECRET_WORDS.iter().any(|word| plain.contains(word)) {
            let text = format!("`{name}` looks like a credential; put it in the vault and name it as `credential`");
            flaws.add("proxy.secret", place, text);
        }
    }
}

impl ProxyOperation {
    /// Everything that is written for the request and could be a secret, with the name of its field: texts, numbers,
    /// and the names themselves.
    #[must_use]
    pub fn literals(&self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> =
            self.texts().into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        found.extend(self.query.keys().map(|name| ("query".to_owned(), name.clone())));
        let mut waiting: Vec<(&str, &Value)> = self.body.iter().map(|body| ("body", body)).collect();
        while let Some((name, value)) = waiting.pop() {
            match value {
                Value::Number(number) => found.push((name.to_owned(), number.to_string())),
                Value::Array(items) => waiting.extend(items.iter().map(|item| (name, item))),
                Value::Object(fields) => {
                    found.extend(fields.keys().map(|key| ("body".to_owned(), key.clone())));
                    waiting.extend(fields.iter().map(|(name, value)| (name.as_str(), value)));
                }
                Value::Null | Value::Bool(_) | Value::String(_) => {}
            }
        }
        found
    }

    /// Every text that is written for the request, with the name of its field.
    #[must_use]
    pub fn texts(&self) -> Vec<(&str, &str)> {
        let mut found = vec![("path", self.path.as_str())];
        found.extend(self.query.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let mut waiting: Vec<(&str, &Value)> = self.body.iter().map(|body| ("body", body)).collect();
        while let Some((name, value)) = waiting.pop() {
            match value {
                Value::String(text) => found.push((name, text)),
                Value::Array(items) => waiting.extend(items.iter().map(|item| (name, item))),
                Value::Object(fields) => waiting.extend(fields.iter().map(|(name, value)| (name.as_str(), value))),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MOLTBOOK, moltbook};
    use super::*;

    fn codes(text: &str) -> Vec<&'static str> {
        Proxy::from_yaml(text).unwrap().check("moltbook").iter().map(|flaw| flaw.code).collect()
    }

    #[test]
    fn a_whole_declaration_has_no_flaw() {
        assert_eq!(moltbook().check("moltbook"), []);
        assert_eq!(moltbook().check("Molt/book")[0].code, "proxy.name");
    }

    #[test]
    fn what_is_missing_is_named() {
        let swap = |from: &str, to: &str| {
            assert!(MOLTBOOK.contains(from), "{from}");
            codes(&MOLTBOOK.replacen(from, to, 1))
        };
        assert_eq!(swap("limits: {per_minute: 10, per_hour: 100, burn: 200}\n", ""), ["proxy.no_limiter"]);
        assert_eq!(swap("per_minute: 10", "per_minute: 0"), ["proxy.no_limiter"]);
        assert_eq!(swap("per_minute: 10", "per_minute: 1000"), ["proxy.limits"]);
        for odd in ["breaker_refusals: 0", "breaker_pause_seconds: 0", "breaker_pause_seconds: 901"] {
            assert_eq!(swap("per_minute: 10", &format!("{odd}, per_minute: 10")), ["proxy.limits"], "{odd}");
        }
        assert_eq!(
            swap("    answer: {type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}", ""),
            ["proxy.no_schema"]
        );
        assert_eq!(
            swap("{type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}", "{}"),
            ["proxy.no_schema"]
        );
        assert_eq!(
            swap("{type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}", "{type: object}"),
            ["proxy.no_schema"]
        );
        assert_eq!(
            swap("properties: {id: {type: string, maxLength: 40}}", "properties: {id: {$ref: \"https://x/y\"}}"),
            ["proxy.remote_schema"]
        );
        for loose in [
            "{anyOf: [{}]}",
            "{anyOf: [{type: string}, true]}",
            "{allOf: [{minProperties: 1}]}",
            "{type: [object, string]}",
            "{type: object, properties: {posts: {}}}",
            "{type: object, properties: {posts: {type: array}}}",
            "{type: array, items: {}}",
            "{type: array, items: {type: object, properties: {}, additionalProperties: true}}",
            "{type: object, properties: {}, patternProperties: {\".*\": {}}}",
        ] {
            assert_eq!(
                swap("{type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}", loose),
                ["proxy.no_schema"],
                "{loose}"
            );
        }
        for tight in [
            "{anyOf: [{type: string}, {const: 1}]}",
            "{allOf: [{minLength: 1}, {type: string}]}",
            "{type: object, properties: {}, additionalProperties: {type: number}}",
            "{type: array, items: {enum: [a, b]}}",
        ] {
            let none: [&str; 0] = [];
            assert_eq!(
                swap("{type: object, required: [id], properties: {id: {type: string, maxLength: 40}}}", tight),
                none,
                "{tight}"
            );
        }
        assert_eq!(swap("https://api", "http://api"), ["proxy.not_https"]);
        assert_eq!(swap("https://api.moltbook.example/v1", "https://ana:pw@api.example"), ["proxy.no_allow_list"]);
        assert_eq!(
            swap("https://api.moltbook.example/v1", "https://{host}/"),
            ["proxy.no_allow_list", "proxy.base_url"]
        );
        assert_eq!(swap("/posts/{post}/replies", "/posts/x{post}/replies"), ["proxy.path"]);
        assert_eq!(swap("post: {type: text, required: true, max: 40}", "post: {type: text, max: 40}"), ["proxy.path"]);
        assert_eq!(
            swap("text: {type: text, required: true, max: 500}", "text: {type: text, required: true}"),
            ["proxy.endless_argument"]
        );
        assert_eq!(
            swap("quiet: \"{quiet}\"", "quiet: \"{silent}\""),
            ["proxy.unknown_argument", "proxy.unused_argument"]
        );
        assert_eq!(swap("relation: author", "relation: friend"), ["proxy.relation"]);
        let nothing =
            MOLTBOOK.split("operations:").next().unwrap().replace("identity: {relation: author, recent: 3}\n", "");
        assert_eq!(codes(&nothing), ["proxy.no_allow_list"]);
    }

    #[test]
    fn a_credential_in_the_request_is_refused() {
        for field in ["access_token: abc", "api-key: \"k{limit}\"", "X-Authorization: x"] {
            let text = MOLTBOOK.replace("kind: newest", field);
            assert_eq!(codes(&text), ["proxy.secret"], "{field}");
        }
        // A place for an argument is not a secret in the file.
        let text = MOLTBOOK.replace("kind: newest", "page_token: \"{limit}\"");
        assert_eq!(codes(&text), Vec::<&str>::new());
    }
}
