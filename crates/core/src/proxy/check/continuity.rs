//! The checks of what a lasting account keeps: nothing unlimited, nothing undeclared, nothing that decides trust.

use std::collections::BTreeMap;

use super::super::continuity::{DraftUse, argument_in};
use super::super::{Proxy, ProxyArgument, ProxyArgumentKind, ProxyIdentity, ProxyOperation};
use super::ProxyFlawList;

/// Most facts about a party, and most fields of a draft.
const FIELDS: usize = 20;
/// Longest text that is kept.
const LONGEST: u64 = 1_000;
/// Names that nothing kept from an answer may have, because no answer may decide them.
const RESERVED: [&str; 6] = ["relation", "name", "trust", "tier", "since", "state"];

pub(super) fn identity(proxy: &Proxy, identity: &ProxyIdentity, flaws: &mut ProxyFlawList) {
    if !proxy.operations.values().any(|operation| operation.arguments.contains_key(&identity.relation)) {
        let text = format!("no operation has the argument `{}`", identity.relation);
        flaws.add("proxy.relation", "identity.relation", text);
    }
    if identity.rotate_days == 0 || identity.recent > 50 || identity.drafts > 50 || identity.relations > 20 {
        let text = "`rotate_days` is at least 1, `recent` and `drafts` at most 50, `relations` at most 20";
        flaws.add("proxy.identity", "identity", text);
    }
    kept("identity.facts", &identity.facts, flaws);
    kept("identity.draft", &identity.draft, flaws);
}

fn kept(place: &str, declared: &BTreeMap<String, ProxyArgument>, flaws: &mut ProxyFlawList) {
    if declared.len() > FIELDS {
        flaws.add("proxy.fact", place, format!("at most {FIELDS} are kept"));
    }
    for (name, shape) in declared {
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !plain || name.len() > 40 || RESERVED.contains(&name.as_str()) {
            let text = format!("`{name}` cannot be kept: small letters, digits and `_`, and none of {RESERVED:?}");
            flaws.add("proxy.fact", place, text);
        }
        let ends = shape.max.is_some_and(|max| max <= LONGEST) || !shape.choices.is_empty();
        if shape.kind == ProxyArgumentKind::Text && !ends {
            let text = format!("`{name}` is a text of unlimited length: give `max` (at most {LONGEST}) or `choices`");
            flaws.add("proxy.endless_argument", place, text);
        }
    }
}

/// Checks what one operation keeps.
pub(super) fn operation(
    place: &str,
    operation: &ProxyOperation,
    identity: Option<&ProxyIdentity>,
    flaws: &mut ProxyFlawList,
) {
    if operation.arguments.keys().any(|name| name.contains('.')) {
        flaws.add("proxy.name", format!("{place}.arguments"), "an argument has no dot in its name");
    }
    if !operation.remember.is_empty() {
        let at = format!("{place}.remember");
        match identity.filter(|identity| operation.arguments.contains_key(&identity.relation)) {
            None => flaws.add("proxy.remember", at, "the operation must name the other party to keep facts"),
            Some(identity) => sources(&at, &operation.remember, (&identity.facts, operation), flaws),
        }
    }
    if let Some(draft) = &operation.draft {
        let at = format!("{place}.draft");
        let DraftUse { named_by, keep, .. } = draft;
        let named = operation.arguments.get(named_by);
        match identity.filter(|_| named.is_some_and(|named| named.required && named.kind == ProxyArgumentKind::Text)) {
            None => {
                flaws.add("proxy.draft", at, "a draft needs an `identity` and is named by a required text argument")
            }
            Some(identity) => sources(&format!("{at}.keep"), keep, (&identity.draft, operation), flaws),
        }
    }
}

type ArgumentShapes<'a> = (&'a BTreeMap<String, ProxyArgument>, &'a ProxyOperation);

fn sources(
    place: &str,
    from: &BTreeMap<String, String>,
    (declared, operation): ArgumentShapes<'_>,
    flaws: &mut ProxyFlawList,
) {
    for (name, from) in from {
        if !declared.contains_key(name) {
            flaws.add("proxy.fact", place, format!("`{name}` is not declared under `identity`"));
        }
        let found = match argument_in(from) {
            Some(argument) => operation.arguments.contains_key(argument),
            None => from.starts_with('/'),
        };
        if !found {
            let text = format!("`{name}` is taken from a place in the answer (`/id`) or an argument (`{{text}}`)");
            flaws.add("proxy.fact", place, text);
        }
    }
}

/// Whether a request can be filled with something that is kept.
pub(super) fn is_kept(place: &str, operation: &ProxyOperation, identity: Option<&ProxyIdentity>) -> bool {
    let Some(identity) = identity else { return false };
    let sided = operation.arguments.contains_key(&identity.relation);
    match place.split_once('.') {
        None => place == "relations" && identity.relations > 0 && !sided,
        Some(("relation", fact)) => sided && identity.facts.contains_key(fact),
        Some(("recent", what)) => sided && identity.recent > 0 && ["count", "at", "operation"].contains(&what),
        Some(("draft", field)) => operation.draft.is_some() && identity.draft.contains_key(field),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::LASTING;
    use super::*;

    fn codes(from: &str, to: &str) -> Vec<&'static str> {
        assert!(LASTING.contains(from), "{from}");
        Proxy::from_yaml(&LASTING.replacen(from, to, 1))
            .unwrap()
            .check("lasting")
            .iter()
            .map(|flaw| flaw.code)
            .collect()
    }

    #[test]
    fn a_declaration_that_keeps_something_can_be_whole() {
        assert_eq!(Proxy::from_yaml(LASTING).unwrap().check("lasting"), []);
    }

    #[test]
    fn what_is_kept_is_declared_has_an_end_and_decides_nothing() {
        assert_eq!(codes("likes: {type: integer}", "trust: {type: text, max: 9}"), ["proxy.fact", "proxy.fact"]);
        assert_eq!(codes("likes: {type: integer}", "likes: {type: text}"), ["proxy.endless_argument"]);
        assert_eq!(codes("likes: {type: integer}", "likes: {type: text, max: 5000}"), ["proxy.endless_argument"]);
        assert_eq!(codes("last_post: /id", "last_post: id"), ["proxy.fact"]);
        assert_eq!(codes("last_post: /id", "first_post: /id"), ["proxy.fact"]);
        assert_eq!(codes("text: \"{text}\"}}", "text: \"{words}\"}}"), ["proxy.fact"]);
        assert_eq!(codes("named_by: draft", "named_by: other"), ["proxy.unused_argument", "proxy.draft"]);
        assert_eq!(codes("drafts: 4", "drafts: 400"), ["proxy.identity"]);
        assert_eq!(codes("{relation.last_post}", "{relation.first_post}"), ["proxy.unknown_argument"]);
        assert_eq!(codes("{recent.count}", "{recent.text}"), ["proxy.unknown_argument"]);
        assert_eq!(codes("relations: 3", "relations: 0"), ["proxy.unknown_argument"]);
        assert_eq!(codes("path: /circle", "path: /circle/{relations}"), ["proxy.path"]);
    }
}
