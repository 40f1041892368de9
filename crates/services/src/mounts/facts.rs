//! Facts about single tools: what the operator states, and what may be stated.
//!
//! Takes the facts of the configuration and a definition; gives the arguments as stated, and a proposal. Promise: a
//! proposal is only that: nothing is treated otherwise until a person has written it down.

use serde_json::Value;
use sluice_config::{MountTargetKind, MountToolFacts};
use sluice_core::capability::{CapabilityParam, ParamKind};

/// First words of tools that only read, as far as their names say.
const READING: &[&str] = &[
    "get",
    "list",
    "search",
    "find",
    "read",
    "show",
    "describe",
    "view",
    "count",
    "lookup",
    "look",
    "query",
    "fetch",
    "status",
    "info",
    "check",
    "browse",
    "inspect",
    "diff",
    "log",
    "ls",
    "stat",
    "explain",
    "summarize",
];
/// Words of tools that change something, wherever in the name.
const CHANGING: &[&str] = &[
    "add", "append", "apply", "approve", "archive", "assign", "cancel", "change", "clear", "close", "commit", "copy",
    "create", "delete", "drop", "edit", "execute", "insert", "install", "invite", "kill", "merge", "move", "patch",
    "pay", "post", "publish", "push", "put", "remove", "rename", "replace", "run", "send", "set", "share", "submit",
    "update", "upload", "write",
];
/// Last words of arguments that hold a path, an address, or recipients.
const PATH_WORDS: [&str; 7] = ["path", "paths", "file", "files", "directory", "folder", "dir"];
const URL_WORDS: [&str; 5] = ["url", "urls", "uri", "link", "webhook"];
const RECIPIENT_WORDS: [&str; 6] = ["recipient", "recipients", "email", "emails", "mail", "attendees"];

/// What may be stated about a tool, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedFacts {
    /// The facts.
    pub facts: MountToolFacts,
    /// The reasons, in words.
    pub because: Vec<String>,
}

/// The arguments as the operator states them.
pub(super) fn stated(params: Vec<CapabilityParam>, facts: &MountToolFacts) -> Vec<CapabilityParam> {
    let one = |param: CapabilityParam| match facts.targets.get(&param.name) {
        None => param,
        Some(kind) => restate(param, *kind),
    };
    params.into_iter().map(one).collect()
}

fn restate(param: CapabilityParam, target: MountTargetKind) -> CapabilityParam {
    // A list or an object keeps its shape; only what it names is stated.
    let is_text = matches!(
        param.kind,
        ParamKind::Text | ParamKind::Content | ParamKind::Path | ParamKind::Url | ParamKind::Recipients
    );
    let kind = match (target, param.kind) {
        (MountTargetKind::Path, _) if is_text => ParamKind::Path,
        (MountTargetKind::Url, _) if is_text => ParamKind::Url,
        (MountTargetKind::Recipients, ParamKind::Texts) => ParamKind::Recipients,
        (MountTargetKind::Recipients, _) if is_text => ParamKind::Recipients,
        (MountTargetKind::Name | MountTargetKind::None, ParamKind::Path | ParamKind::Url) => ParamKind::Text,
        // Recipients may be a text or a list of texts.
        (MountTargetKind::Name | MountTargetKind::None, ParamKind::Recipients) => ParamKind::Any,
        (_, kind) => kind,
    };
    CapabilityParam { kind, target: target != MountTargetKind::None, ..param }
}

/// What may be stated about a tool, from the annotations of its server and from names. `params` are its arguments as
/// the gateway reads them; `hints` says whether annotations count.
pub(super) fn proposed(definition: &Value, params: &[CapabilityParam], hints: bool) -> Option<ProposedFacts> {
    let mut found = ProposedFacts { facts: MountToolFacts::default(), because: Vec::new() };
    let hint = |name: &str| {
        let said = definition.get("annotations").and_then(|annotations| annotations.get(name));
        said.and_then(Value::as_bool).filter(|_| hints)
    };
    let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
    let words = words_of(name);
    // Many servers begin every name with their own: `git_log`, `notion-search`.
    let verb = words.iter().take(2).find(|word| READING.contains(&word.as_str()));
    let changes = words.iter().any(|word| CHANGING.contains(&word.as_str()));
    match (hint("readOnlyHint"), hint("destructiveHint"), verb) {
        (Some(true), Some(true), _) => {}
        (Some(true), _, _) => {
            found.facts.read = Some(true);
            found.because.push("its server declares it as read-only".into());
        }
        (None, None | Some(false), Some(verb)) if !changes => {
            found.facts.read = Some(true);
            found.because.push(format!("its name has the word `{verb}`"));
        }
        _ => {}
    }
    for param in params.iter().filter(|param| !param.target) {
        let kind = match param.kind {
            ParamKind::Text | ParamKind::Texts | ParamKind::Any => target_by_name(&param.name),
            _ => None,
        };
        if let Some(kind) = kind {
            found.facts.targets.insert(param.name.clone(), kind);
            found.because.push(format!("the name of `{}` says {}", printable(&param.name), kind.as_str()));
        }
    }
    (!found.facts.is_empty()).then_some(found)
}

fn target_by_name(name: &str) -> Option<MountTargetKind> {
    let words = words_of(name);
    let last = words.last()?.as_str();
    let has = |list: &[&str]| list.contains(&last);
    match () {
        () if has(&PATH_WORDS) => Some(MountTargetKind::Path),
        () if has(&URL_WORDS) => Some(MountTargetKind::Url),
        () if has(&RECIPIENT_WORDS) => Some(MountTargetKind::Recipients),
        () => None,
    }
}

fn printable(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// The words of a name, in lower case: cut at signs, and where capitals begin.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut lower) = (String::new(), false);
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && lower) {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
        }
        lower = c.is_lowercase() || c.is_numeric();
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, annotations: Value) -> Option<bool> {
        let definition = json!({"name": name, "annotations": annotations});
        proposed(&definition, &[], true).and_then(|proposed| proposed.facts.read)
    }

    #[test]
    fn a_read_is_proposed_by_its_hint_or_its_name_and_never_against_its_server() {
        for name in ["get_file", "listIssues", "search-nodes", "notion-search", "git_log", "readGraph"] {
            assert_eq!(read(name, json!({})), Some(true), "{name}");
        }
        for name in ["send_mail", "get_or_create_user", "list_and_delete", "fetch_and_run", "target", "getaway_set"] {
            assert_eq!(read(name, json!({})), None, "{name}");
        }
        assert_eq!(read("frobnicate", json!({"readOnlyHint": true})), Some(true));
        assert_eq!(read("get_file", json!({"readOnlyHint": false})), None, "its server says that it writes");
        assert_eq!(read("get_file", json!({"destructiveHint": true})), None);
        assert_eq!(read("x", json!({"readOnlyHint": true, "destructiveHint": true})), None, "it contradicts itself");
        let definition = json!({"name": "frobnicate", "annotations": {"readOnlyHint": true}});
        assert_eq!(proposed(&definition, &[], false), None, "hints do not count");
    }

    #[test]
    fn targets_are_proposed_by_the_last_word_of_an_argument() {
        let text = |name: &str| CapabilityParam::new(name, ParamKind::Text);
        let params = [text("outputFile"), text("callback_url"), text("ownerEmail"), text("file_format"), text("note")];
        let found = proposed(&json!({"name": "x"}), &params, true).unwrap().facts.targets;
        let found: Vec<(&str, &str)> = found.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        assert_eq!(found, [("callback_url", "url"), ("outputFile", "path"), ("ownerEmail", "recipients")]);
    }

    #[test]
    fn a_stated_target_changes_what_an_argument_names_and_keeps_its_shape() {
        let facts = |kind| MountToolFacts { targets: [("a".to_owned(), kind)].into(), ..MountToolFacts::default() };
        let one = |kind, target| stated(vec![CapabilityParam::new("a", kind)], &facts(target)).remove(0);
        let path = one(ParamKind::Text, MountTargetKind::Path);
        assert_eq!((path.kind, path.target), (ParamKind::Path, true));
        let none = one(ParamKind::Url, MountTargetKind::None);
        assert_eq!((none.kind, none.target), (ParamKind::Text, false));
        let object = one(ParamKind::Object, MountTargetKind::Url);
        assert_eq!((object.kind, object.target), (ParamKind::Object, true));
        let list = one(ParamKind::Texts, MountTargetKind::Recipients);
        assert_eq!((list.kind, list.target), (ParamKind::Recipients, true));
    }
}
