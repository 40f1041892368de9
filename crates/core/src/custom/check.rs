//! The checks before a custom capability is offered to agents.
//!
//! Takes a declaration; gives every flaw with a stable code and the place in the file. Promise: a declaration with a
//! flaw is not offered to any agent.

mod program;

use std::collections::BTreeSet;

use serde_json::Value;

use super::request::{ANSWER, KEY};
use super::{CustomArgumentKind, CustomCapability, CustomImplementation, DeclaredRequest, RequestTemplate, is_name};
use crate::capability::{Catalogue, Effect, EffectClass};
use crate::proxy::{ProxyFlaw, ProxyMethod, TemplatePiece, pieces};

/// Longest time one request or run may take, in seconds: within the deadline of a write.
const SLOWEST: u64 = 45;
/// Largest answer that may be asked for, in kilobytes.
const ANSWER_KB: u32 = 8 * 1024;
/// Longest wait of a write, in seconds.
const LONGEST_HOLD: u64 = 7 * 24 * 3_600;
/// First parts of names that are reserved.
const RESERVED: [&str; 8] = ["proxy", "mount", "custom", "check", "mcp", "sluice", "rollback", "gateway"];
/// Words in the name of a field that carries a credential.
const SECRET_WORDS: [&str; 9] =
    ["authorization", "token", "apikey", "secret", "password", "passwd", "bearer", "credential", "privatekey"];

/// Collects what is wrong.
struct CustomFlawList(Vec<ProxyFlaw>);

impl CustomFlawList {
    fn add(&mut self, code: &'static str, place: impl Into<String>, text: impl Into<String>) {
        self.0.push(ProxyFlaw { code, place: place.into(), text: text.into() });
    }
}

pub(super) fn check(declared: &CustomCapability, name: &str) -> Vec<ProxyFlaw> {
    let mut flaws = CustomFlawList(Vec::new());
    check_name(name, &mut flaws);
    if declared.hold_seconds > LONGEST_HOLD {
        flaws.add("custom.limits", "hold_seconds", "at most a week (604800)");
    }
    if declared.summary.trim().is_empty() {
        flaws.add("custom.summary", "summary", "say in a sentence what it does");
    }
    for (name, place) in &declared.keep {
        if !is_word(name) {
            flaws.add("custom.keep", format!("keep.{name}"), "a name has letters, digits and `_`");
        }
        check_pointer(Some(place), &format!("keep.{name}"), &mut flaws);
    }
    let mut used = BTreeSet::new();
    match &declared.way {
        CustomImplementation::Request(request) => check_requests(declared, request, &mut used, &mut flaws),
        CustomImplementation::Program(own) => program::check(declared, own, &mut used, &mut flaws),
    }
    check_arguments(declared, &used, &mut flaws);
    flaws.0
}

/// What is allowed but worth knowing.
pub(super) fn warnings(declared: &CustomCapability) -> Vec<ProxyFlaw> {
    let mut flaws = CustomFlawList(Vec::new());
    if let CustomImplementation::Program(own) = &declared.way {
        program::warn(own, &mut flaws);
    }
    flaws.0
}

fn check_requests(
    declared: &CustomCapability,
    request: &DeclaredRequest,
    used: &mut BTreeSet<String>,
    flaws: &mut CustomFlawList,
) {
    check_base(request, flaws);
    check_limits(request, flaws);
    check_request(declared, &request.request, "request", used, flaws);
    if let Some(lookup) = &request.lookup {
        check_request(declared, &lookup.template(), "lookup", used, flaws);
        check_pointer(lookup.applied.as_deref(), "lookup.applied", flaws);
    }
    if let Some(rollback) = &request.rollback {
        check_request(declared, &rollback.template(), "rollback", used, flaws);
        let safe = rollback.repeatable || matches!(rollback.method, ProxyMethod::Put | ProxyMethod::Delete);
        if rollback.method == ProxyMethod::Get {
            flaws.add("custom.rollback", "rollback.method", "a GET cannot roll anything back");
        } else if !safe && request.idempotency_header.is_none() {
            let text = "an unclear rollback is sent again: use PUT or DELETE, an `idempotency_header`, or say \
                        `repeatable: true` if the service does it once only";
            flaws.add("custom.rollback", "rollback", text);
        }
    }
    check_effect(declared, request, flaws);
}

fn check_name(name: &str, flaws: &mut CustomFlawList) {
    if !is_name(name) {
        let text = "the file is named after the capability: `deploy.yaml` or `shop.purchase.yaml`, in small letters, \
                    digits, `-` and `_`";
        return flaws.add("custom.name", "file name", text);
    }
    let first = name.split('.').next().unwrap_or(name);
    let builtin = Catalogue::builtin().unwrap_or_default();
    let is_builtin = builtin.iter().any(|known| known.name.as_str().split('.').next() == Some(first));
    if is_builtin || RESERVED.contains(&first) {
        flaws.add("custom.name", "file name", format!("`{first}` is a name of the gateway's own; choose another"));
    }
}

fn check_base(declared: &DeclaredRequest, flaws: &mut CustomFlawList) {
    let place = "base_url";
    let url = declared.base_url.as_str();
    let rest = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => rest,
        (None, Some(rest)) if !declared.allow_addresses.is_empty() => rest,
        (None, Some(_)) => {
            return flaws.add("custom.not_https", place, "use https; http only together with `allow_addresses`");
        }
        (None, None) => return flaws.add("custom.base_url", place, "start with https:// and a host"),
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() || rest.contains(['@', '{', '}', '*', '\\', ' ', '?', '#', '%']) || rest.contains("/..") {
        let text = "name exactly one host and perhaps a path, without user name, query or places to fill";
        flaws.add("custom.base_url", place, text);
    }
}

fn check_limits(declared: &DeclaredRequest, flaws: &mut CustomFlawList) {
    let limits = &declared.limits;
    if limits.per_minute == 0 || limits.per_hour == 0 || limits.burn == 0 || limits.per_minute > limits.per_hour {
        let text = "each limit is at least 1, and a minute allows no more than an hour";
        flaws.add("custom.limits", "limits", text);
    }
    if limits.timeout_seconds == 0 || limits.timeout_seconds > SLOWEST {
        flaws.add("custom.limits", "limits.timeout_seconds", format!("between 1 and {SLOWEST}"));
    }
    if limits.answer_kb == 0 || limits.answer_kb > ANSWER_KB {
        flaws.add("custom.limits", "limits.answer_kb", format!("between 1 and {ANSWER_KB}"));
    }
}

/// Whether the declared effect and class match the requests of the declaration.
fn check_effect(declared: &CustomCapability, request: &DeclaredRequest, flaws: &mut CustomFlawList) {
    if declared.effect == Effect::Read {
        if request.request.method != ProxyMethod::Get {
            flaws.add("custom.effect", "request.method", "a read is a GET; anything else is `effect: write`");
        }
        let has = [
            ("class", declared.class.is_some()),
            ("lookup", request.lookup.is_some()),
            ("rollback", request.rollback.is_some()),
            ("idempotency_header", request.idempotency_header.is_some()),
        ];
        refuse_for_a_read(&has, flaws);
        return;
    }
    match declared.class {
        Some(EffectClass::ConsumeOnce) if request.idempotency_header.is_none() => {
            let text = "`consume_once` needs `idempotency_header`: by it the service recognises a repeated request";
            flaws.add("custom.class", "class", text);
        }
        Some(EffectClass::Findable) if request.lookup.is_none() => {
            flaws.add("custom.class", "class", "`findable` needs `lookup`: the request that finds the write");
        }
        Some(_) | None => {}
    }
    if let Some(header) = &request.idempotency_header
        && !is_header(header)
    {
        flaws.add("custom.header", "idempotency_header", "name a header of letters, digits and `-`");
    }
}

/// Refuses keys that only a write has.
fn refuse_for_a_read(has: &[(&str, bool)], flaws: &mut CustomFlawList) {
    for (key, _) in has.iter().filter(|(_, has)| *has) {
        flaws.add("custom.effect", *key, "only a write has it");
    }
}

fn check_request(
    declared: &CustomCapability,
    template: &RequestTemplate,
    place: &str,
    used: &mut BTreeSet<String>,
    flaws: &mut CustomFlawList,
) {
    let at = |what: &str| format!("{place}.{what}");
    let path = template.path.as_str();
    if !path.starts_with('/') || path.contains(['?', '#', '\\', '*', '%', ' ']) {
        flaws.add("custom.path", at("path"), "a path starts with `/` and has no query, fragment, `%` or `*`");
    }
    if path.split('/').any(|part| part.contains(['{', '}']) && !is_whole_place(part) || part == "." || part == "..") {
        flaws.add("custom.path", at("path"), "an argument fills a whole part of the path: `/orders/{order}`");
    }
    if template.method == ProxyMethod::Get && template.body.is_some() {
        flaws.add("custom.body", at("body"), "a GET has no body");
    }
    for (name, value) in &template.headers {
        if !is_header(name) || value.contains(['\r', '\n', '\0']) {
            flaws.add("custom.header", at(&format!("headers.{name}")), "not a header");
        }
        if value.contains(['{', '}']) {
            let text = "nothing is placed in a header; use the query or the body";
            flaws.add("custom.header", at(&format!("headers.{name}")), text);
        }
    }
    for (name, text) in texts(template) {
        let is_literal = pieces(text).iter().any(|piece| matches!(piece, TemplatePiece::Literal(_)));
        if is_literal && names_a_secret(name) {
            let text = format!("`{name}` looks like a credential; put it in the vault and name it as `credential`");
            flaws.add("custom.secret", at(name), text);
        }
        for piece in pieces(text) {
            let TemplatePiece::Place(filled) = piece else { continue };
            check_place(declared, (place, name), filled, flaws);
            used.insert(filled.to_owned());
        }
    }
}

/// Whether the name of a field says that it carries a credential.
fn names_a_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    SECRET_WORDS.iter().any(|word| plain.contains(word))
}

/// Whether a place can be filled where it stands.
fn check_place(declared: &CustomCapability, (request, field): (&str, &str), filled: &str, flaws: &mut CustomFlawList) {
    let at = || format!("{request}.{field}");
    if filled == KEY {
        return;
    }
    if let Some(kept) = filled.strip_prefix(ANSWER) {
        if request != "rollback" || !declared.keep.contains_key(kept) {
            let text = format!("`{{{filled}}}` is a value of `keep`, and stands in `rollback` only");
            flaws.add("custom.unknown_argument", at(), text);
        }
        return;
    }
    let Some(argument) = declared.arguments.get(filled) else {
        return flaws.add("custom.unknown_argument", at(), format!("`{{{filled}}}` is not among `arguments`"));
    };
    if field == "path" {
        if !argument.required {
            flaws.add("custom.path", at(), format!("`{filled}` stands in the path, so it must be required"));
        }
        if matches!(argument.kind, CustomArgumentKind::Texts | CustomArgumentKind::Object) {
            flaws.add("custom.path", at(), format!("`{filled}` is no single value, so it cannot stand in the path"));
        }
    }
}

fn check_arguments(declared: &CustomCapability, used: &BTreeSet<String>, flaws: &mut CustomFlawList) {
    for (name, argument) in &declared.arguments {
        let at = format!("arguments.{name}");
        if !is_word(name) {
            flaws.add("custom.argument", at.clone(), "a name has letters, digits and `_`");
        }
        if !used.contains(name) {
            let where_from = if declared.program().is_some() { "no command" } else { "no request" };
            flaws.add("custom.unused_argument", at.clone(), format!("it stands in {where_from}; remove it"));
        }
        if argument.kind == CustomArgumentKind::Text && argument.max.is_none() && argument.choices.is_empty() {
            flaws.add("custom.endless_argument", at.clone(), "a text of unlimited length: give `max` or `choices`");
        }
        if argument.kind != CustomArgumentKind::Text && (!argument.choices.is_empty() || argument.object) {
            flaws.add("custom.argument", at, "only a text has `choices` or names an `object`");
        }
    }
    if declared.arguments.values().filter(|argument| argument.object).count() > 1 {
        flaws.add("custom.argument", "arguments", "at most one argument names the object");
    }
}

fn check_pointer(pointer: Option<&str>, place: &str, flaws: &mut CustomFlawList) {
    if pointer.is_some_and(|pointer| !pointer.starts_with('/')) {
        flaws.add("custom.pointer", place, "a place in an answer is a JSON pointer: `/items/0/id`");
    }
}

/// Every text of a request, with the name of its field.
fn texts(template: &RequestTemplate) -> Vec<(&str, &str)> {
    let mut found = vec![("path", template.path.as_str())];
    found.extend(template.query.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    found.extend(template.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut waiting: Vec<(&str, &Value)> = template.body.iter().map(|body| ("body", body)).collect();
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

impl RequestTemplate {
    /// Everything that is written down for the request, with the name of its field, for the leak scan.
    #[must_use]
    pub fn literals(&self) -> Vec<(&str, &str)> {
        texts(self)
    }
}

fn is_whole_place(part: &str) -> bool {
    matches!(pieces(part).as_slice(), [TemplatePiece::Place(_)])
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_header(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
