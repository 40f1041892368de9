//! Conditions as a rule writes them, checked against the capabilities the rule is about.
//!
//! Takes the `conditions` node; gives conditions that can hold. Promise: a condition on an argument that no
//! matched capability has, of a kind the argument is not, or that nothing can fulfil is refused at load.

use regex::RegexBuilder;
use serde_json::Value;

use super::range::refuse_contradictions;
use super::time::RuleRateLimit;
use super::{ComparisonOperator, Quantifier, RuleCondition};
use crate::capability::{Capability, ParamKind};
use crate::policy::fault::{FaultCollector, SourcePosition};
use crate::policy::input::{TargetOrigin, TargetOrigins};
use crate::policy::path::{self, NormalPath, PathGlobPattern, PathPrefixes};
use crate::policy::pattern::CapabilityPattern;
use crate::policy::suggest::{closest, escape};
use crate::policy::yaml::{YamlKey, YamlNode, YamlValue};

/// Longest expression, in bytes, and largest compiled form.
const REGEX_TEXT: usize = 1000;
const REGEX_SIZE: usize = 256 * 1024;
/// Longest list in a condition.
const LIST: usize = 1000;
/// Conditions that are not about one named argument.
const FIXED: [&str; 22] = [
    "path_prefix",
    "path_glob",
    "any_path_prefix",
    "any_path_glob",
    "content_size_lt",
    "content_size_lte",
    "content_size_gt",
    "content_size_gte",
    "recipients_within",
    "recipients_max",
    "hours",
    "tainted",
    "agent_session",
    "account",
    "targets",
    "commands",
    "writes_within",
    "reads_within",
    "hosts_within",
    "any_named_path",
    "any_written_path",
    "rate_limit",
];
const SUFFIXES: [&str; 6] = ["_lte", "_lt", "_gte", "_gt", "_in", "_matches"];

/// The capabilities a rule is about, as far as the catalogue knows them.
pub(crate) struct RuleScope<'c> {
    pub(crate) pattern: &'c CapabilityPattern,
    pub(crate) matched: Vec<&'c Capability>,
}

impl RuleScope<'_> {
    /// Kinds an argument has among the matched capabilities.
    pub(super) fn kinds(&self, argument: &str) -> Vec<ParamKind> {
        self.matched.iter().filter_map(|capability| capability.param(argument)).map(|param| param.kind).collect()
    }

    /// Whether the rule is only about tools that the catalogue cannot know.
    pub(super) const fn is_open(&self) -> bool {
        self.matched.is_empty()
    }

    pub(super) fn has(&self, kind: ParamKind) -> bool {
        self.is_open() || self.matched.iter().any(|capability| capability.params_of(kind).next().is_some())
    }
}

/// Reads the conditions of one rule.
pub(crate) fn read(
    node: &YamlNode,
    scope: &RuleScope<'_>,
    faults: &mut FaultCollector<'_>,
) -> (Vec<RuleCondition>, Option<RuleRateLimit>) {
    let YamlValue::Map(entries) = &node.kind else {
        faults
            .error(node.place, "policy.type", format!("`conditions` must be a map, not {}", node.noun()))
            .hint("for example `conditions: {path_prefix: /workspace/}`");
        return (Vec::new(), None);
    };
    let mut conditions = Vec::new();
    let mut rate = None;
    for (key, value) in entries {
        let mut reader = ConditionParser { key, value, scope, faults };
        if key.text == "rate_limit" {
            rate = reader.rate();
        } else if let Some(condition) = reader.condition() {
            conditions.push((key.place, condition));
        }
    }
    refuse_contradictions(&conditions, scope, faults);
    super::files_read::imply_project(&mut conditions);
    (conditions.into_iter().map(|(_, condition)| condition).collect(), rate)
}

/// One condition being read.
pub(super) struct ConditionParser<'r, 'c, 'f> {
    pub(super) key: &'r YamlKey,
    pub(super) value: &'r YamlNode,
    pub(super) scope: &'r RuleScope<'c>,
    pub(super) faults: &'r mut FaultCollector<'f>,
}

impl ConditionParser<'_, '_, '_> {
    fn condition(&mut self) -> Option<RuleCondition> {
        match self.key.text.as_str() {
            "path_prefix" => self.prefixes(Quantifier::Every),
            "any_path_prefix" => self.prefixes(Quantifier::Any),
            "path_glob" => self.globs(Quantifier::Every),
            "any_path_glob" => self.globs(Quantifier::Any),
            "content_size_lt" => self.content_size(ComparisonOperator::Lt),
            "content_size_lte" => self.content_size(ComparisonOperator::Lte),
            "content_size_gt" => self.content_size(ComparisonOperator::Gt),
            "content_size_gte" => self.content_size(ComparisonOperator::Gte),
            "recipients_within" => self.domains(),
            "recipients_max" => self
                .needs(ParamKind::Recipients, "recipients")
                .then_some(())
                .and_then(|()| self.count(1))
                .map(RuleCondition::RecipientsMax),
            "hours" => self.hours().map(RuleCondition::Hours),
            "tainted" => match self.value.kind {
                YamlValue::Bool(expected) => Some(RuleCondition::Tainted(expected)),
                _ => self.wrong_type("true or false"),
            },
            "agent_session" => self.words().map(RuleCondition::Session),
            "account" => self.words().map(RuleCondition::Account),
            "targets" => self.targets(),
            "commands" => self.commands(),
            "writes_within" => self.folders().map(RuleCondition::WritesWithin),
            "reads_within" => self.folders().map(RuleCondition::ReadsWithin),
            "hosts_within" => self.hosts(),
            "any_named_path" => self.path_globs().map(RuleCondition::NamedPath),
            "any_written_path" => self.path_globs().map(RuleCondition::WrittenPath),
            _ => self.about_an_argument(),
        }
    }

    /// `<arg>_lt` and similar conditions.
    fn about_an_argument(&mut self) -> Option<RuleCondition> {
        let text = self.key.text.as_str();
        let Some((argument, suffix)) = SUFFIXES
            .into_iter()
            .find_map(|suffix| Some((text.strip_suffix(suffix)?, suffix)))
            .filter(|(arg, _)| !arg.is_empty())
        else {
            return self.unknown();
        };
        let (argument, of) = match argument.strip_prefix("any_") {
            Some(bare) if self.scope.kinds(argument).is_empty() && matches!(suffix, "_in" | "_matches") => {
                (bare, Quantifier::Any)
            }
            _ => (argument, Quantifier::Every),
        };
        let kinds = self.scope.kinds(argument);
        if kinds.is_empty() && !self.scope.is_open() {
            return self.no_such_argument(argument);
        }
        let fits = |kind: &ParamKind| match suffix {
            "_lt" | "_lte" | "_gt" | "_gte" => matches!(kind, ParamKind::Integer | ParamKind::Number | ParamKind::Any),
            "_in" => !matches!(kind, ParamKind::Object),
            _ => !matches!(kind, ParamKind::Integer | ParamKind::Number | ParamKind::Boolean | ParamKind::Object),
        };
        if !kinds.is_empty() && !kinds.iter().any(fits) {
            let what = if suffix == "_in" || suffix == "_matches" { "cannot be tested so" } else { "is not a number" };
            self.faults.error(self.key.place, "policy.condition_type", format!("`{}` {what}", escape(argument))).why(
                format!(
                    "the argument `{}` is {}",
                    escape(argument),
                    kinds.first().map_or("unknown", |kind| kind_noun(*kind))
                ),
            );
            return None;
        }
        let argument_name = argument.into();
        let compare = |by| move |bound| RuleCondition::Compare { argument: argument_name, by, bound };
        match suffix {
            "_lt" => self.bound().map(compare(ComparisonOperator::Lt)),
            "_lte" => self.bound().map(compare(ComparisonOperator::Lte)),
            "_gt" => self.bound().map(compare(ComparisonOperator::Gt)),
            "_gte" => self.bound().map(compare(ComparisonOperator::Gte)),
            "_in" => self.values(argument, of, &kinds),
            _ => self.regex(argument, of),
        }
    }

    fn unknown(&mut self) -> Option<RuleCondition> {
        let text = self.key.text.clone();
        let mut known: Vec<String> = FIXED.map(str::to_owned).to_vec();
        for param in self.scope.matched.iter().flat_map(|capability| &capability.params) {
            known.extend(SUFFIXES.map(|suffix| format!("{}{suffix}", param.name)));
        }
        let close = closest(&text, known.iter().map(String::as_str)).map(str::to_owned);
        self.faults
            .error(self.key.place, "policy.unknown_condition", format!("unknown condition `{}`", escape(&text)))
            .why(format!("conditions are {} and `<argument>` followed by {}", FIXED.join(", "), SUFFIXES.join(", ")))
            .suggest_word(close.as_deref());
        None
    }

    fn no_such_argument(&mut self, argument: &str) -> Option<RuleCondition> {
        let names: Vec<&str> = self
            .scope
            .matched
            .iter()
            .flat_map(|capability| &capability.params)
            .map(|param| param.name.as_str())
            .collect();
        let close = closest(argument, names.iter().copied());
        // A misspelt fixed condition also ends in one of the suffixes.
        let close = closest(&self.key.text, FIXED).or(close);
        let message =
            format!("no capability matched by `{}` has an argument `{}`", self.scope.pattern, escape(argument));
        let fault = self.faults.error(self.key.place, "policy.no_such_argument", message);
        fault.suggest_word(close);
        if fault.hint.is_none() && self.scope.matched.len() == 1 {
            fault.hint(format!("its arguments are {}", names.join(", ")));
        }
        None
    }

    /// Whether a matched capability has such an argument at all.
    fn needs(&mut self, kind: ParamKind, what: &str) -> bool {
        if self.scope.has(kind) {
            return true;
        }
        let message = format!("no capability matched by `{}` has {what}", self.scope.pattern);
        self.faults
            .error(self.key.place, "policy.no_such_argument", message)
            .why(format!("`{}` could never hold", self.key.text));
        false
    }

    fn wrong_type<T>(&mut self, expected: &str) -> Option<T> {
        let message = format!("`{}` must be {expected}, not {}", escape(&self.key.text), self.value.noun());
        self.faults.error(self.value.place, "policy.type", message);
        None
    }

    pub(super) fn impossible<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.faults.error(self.value.place, "policy.impossible_condition", message).why("the rule could never apply");
        None
    }

    /// A text, or a list of texts, with the place of each.
    pub(super) fn texts(&mut self) -> Option<Vec<(SourcePosition, String)>> {
        let items: Vec<&YamlNode> = match &self.value.kind {
            YamlValue::Text(_) => vec![self.value],
            YamlValue::List(items) if items.is_empty() => {
                return self.impossible(format!("`{}` is empty", self.key.text));
            }
            YamlValue::List(items) if items.len() <= LIST => items.iter().collect(),
            YamlValue::List(_) => return self.wrong_type(&format!("a list of at most {LIST} texts")),
            _ => return self.wrong_type("a text or a list of texts"),
        };
        let mut texts = Vec::new();
        for item in items {
            let Some(text) = item.as_text().filter(|text| !text.is_empty()) else {
                self.faults
                    .error(item.place, "policy.type", format!("a non-empty text belongs here, not {}", item.noun()))
                    .hint("put it in quotes");
                return None;
            };
            texts.push((item.place, text.to_owned()));
        }
        Some(texts)
    }

    fn words(&mut self) -> Option<Vec<Box<str>>> {
        Some(self.texts()?.into_iter().map(|(_, text)| text.into()).collect())
    }

    fn prefixes(&mut self, of: Quantifier) -> Option<RuleCondition> {
        if !self.needs(ParamKind::Path, "a path") {
            return None;
        }
        let mut prefixes = PathPrefixes::default();
        for (place, text) in self.texts()? {
            match NormalPath::new(&text) {
                Ok(normal) if path::depth_of(normal.as_str()) <= path::DEPTH => prefixes.add(normal.as_str()),
                Ok(_) => {
                    self.faults.error(place, "policy.path", format!("a prefix has at most {} parts", path::DEPTH));
                    return None;
                }
                Err(fault) => {
                    self.faults
                        .error(place, "policy.path", format!("`{}` cannot be a prefix: {fault}", escape(&text)))
                        .hint("write an absolute path such as `/workspace/clerk/`");
                    return None;
                }
            }
        }
        Some(RuleCondition::PathPrefix { of, prefixes })
    }

    fn globs(&mut self, of: Quantifier) -> Option<RuleCondition> {
        if !self.needs(ParamKind::Path, "a path") {
            return None;
        }
        self.glob_list().map(|globs| RuleCondition::PathGlob { of, globs })
    }

    /// Path patterns.
    pub(super) fn glob_list(&mut self) -> Option<Vec<PathGlobPattern>> {
        let mut globs = Vec::new();
        for (place, text) in self.texts()? {
            match PathGlobPattern::new(&text) {
                Ok(glob) => globs.push(glob),
                Err(why) => {
                    self.faults
                        .error(place, "policy.path", format!("`{}` is not a path pattern", escape(&text)))
                        .why(why);
                    return None;
                }
            }
        }
        Some(globs)
    }

    fn bound(&mut self) -> Option<f64> {
        match self.value.as_number() {
            Some(bound) => Some(bound),
            None => self.wrong_type("a number"),
        }
    }

    /// A whole number of at least `least`.
    fn count(&mut self, least: i64) -> Option<u64> {
        match self.value.kind {
            YamlValue::Integer(count) if count >= least => u64::try_from(count).ok(),
            YamlValue::Integer(count) => self.impossible(format!("{count} is less than {least}")),
            _ => self.wrong_type("a whole number"),
        }
    }

    fn content_size(&mut self, by: ComparisonOperator) -> Option<RuleCondition> {
        if !self.needs(ParamKind::Content, "content") {
            return None;
        }
        // No size is smaller than 0 bytes.
        let bound = self.count(i64::from(by == ComparisonOperator::Lt))?;
        Some(RuleCondition::ContentSize { by, bound })
    }

    fn values(&mut self, argument: &str, of: Quantifier, kinds: &[ParamKind]) -> Option<RuleCondition> {
        let YamlValue::List(items) = &self.value.kind else { return self.wrong_type("a list") };
        if items.is_empty() {
            return self.impossible(format!("`{}` is empty", self.key.text));
        }
        if items.len() > LIST {
            return self.wrong_type(&format!("a list of at most {LIST} values"));
        }
        let mut values = Vec::new();
        for item in items {
            let value = item.to_json();
            let fits = |kind: &ParamKind| match kind {
                ParamKind::Integer => value.is_i64(),
                ParamKind::Number => value.is_number(),
                ParamKind::Boolean => value.is_boolean(),
                ParamKind::Any => value.is_number() || value.is_boolean() || value.is_string(),
                ParamKind::Object => false,
                ParamKind::Text
                | ParamKind::Content
                | ParamKind::Path
                | ParamKind::Url
                | ParamKind::Recipients
                | ParamKind::Objects
                | ParamKind::Texts => value.is_string(),
            };
            let single = value.is_number() || value.is_boolean() || value.is_string();
            if !single || (!kinds.is_empty() && !kinds.iter().any(fits)) {
                let expected = kinds.first().map_or("a single value", |kind| kind_noun(*kind));
                let message = format!("`{}` is {expected}, not {}", escape(argument), item.noun());
                self.faults.error(item.place, "policy.condition_type", message);
                return None;
            }
            let value = match (kinds.contains(&ParamKind::Path), value.as_str()) {
                (true, Some(text)) => match NormalPath::new(text) {
                    Ok(path) => Value::String(path.as_str().to_owned()),
                    Err(fault) => {
                        let message = format!("`{}` is not a path to compare with: {fault}", escape(text));
                        self.faults.error(item.place, "policy.path", message);
                        return None;
                    }
                },
                (_, Some(text)) if kinds.contains(&ParamKind::Recipients) => Value::String(text.to_ascii_lowercase()),
                _ => value,
            };
            values.push(value);
        }
        Some(RuleCondition::OneOf { argument: argument.into(), of, values })
    }

    fn regex(&mut self, argument: &str, of: Quantifier) -> Option<RuleCondition> {
        let Some(text) = self.value.as_text() else { return self.wrong_type("a text with a regular expression") };
        if text.len() > REGEX_TEXT {
            return self.wrong_type(&format!("an expression of at most {REGEX_TEXT} bytes"));
        }
        let compiled = RegexBuilder::new(&format!(r"\A(?:{text})\z"))
            .size_limit(REGEX_SIZE)
            .dfa_size_limit(REGEX_SIZE * 4)
            .nest_limit(50)
            .build();
        match compiled {
            // Checked without the brackets as well: `)|(?:` must not end the brackets around it.
            Ok(regex) if regex::Regex::new(text).is_ok() => {
                Some(RuleCondition::Matches { argument: argument.into(), of, regex, text: text.into() })
            }
            _ => {
                let why = match compiled.err().or_else(|| regex::Regex::new(text).err()) {
                    Some(regex::Error::CompiledTooBig(_)) => "it grows too large".to_owned(),
                    Some(error) => {
                        let text = error.to_string();
                        let last = text.lines().last().unwrap_or_default();
                        escape(last.strip_prefix("error: ").unwrap_or(last))
                    }
                    None => "it cannot be read".to_owned(),
                };
                self.faults
                    .error(self.value.place, "policy.regex", "not a usable regular expression")
                    .why(why)
                    .hint("expressions cover the whole value; look-around and back-references do not exist");
                None
            }
        }
    }

    fn domains(&mut self) -> Option<RuleCondition> {
        if !self.needs(ParamKind::Recipients, "recipients") {
            return None;
        }
        let mut domains = Vec::new();
        for (place, text) in self.texts()? {
            let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
            if !plain || text.starts_with('.') || text.ends_with('.') {
                let fault =
                    self.faults.error(place, "policy.domain", format!("`{}` is not a plain domain", escape(&text)));
                match text.rsplit_once('@') {
                    Some((_, domain)) => fault.hint(format!("write `{}`", escape(domain))),
                    None => fault.hint("each domain is compared whole; list subdomains one by one"),
                };
                return None;
            }
            domains.push(text.to_ascii_lowercase().into());
        }
        Some(RuleCondition::RecipientsWithin { domains })
    }

    fn targets(&mut self) -> Option<RuleCondition> {
        let mut origins = TargetOrigins::default();
        for (place, text) in self.texts()? {
            let Some(origin) = TargetOrigin::from_word(&text) else {
                self.faults
                    .error(place, "policy.value", format!("`{}` is not an origin", escape(&text)))
                    .why("origins are asked, known, seen, new")
                    .suggest_word(closest(&text, TargetOrigin::ALL.map(TargetOrigin::as_str)));
                return None;
            };
            origins = origins.with(origin);
        }
        Some(RuleCondition::Targets(origins))
    }
}

const fn kind_noun(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Text => "a text",
        ParamKind::Content => "content",
        ParamKind::Integer => "a whole number",
        ParamKind::Number => "a number",
        ParamKind::Boolean => "true or false",
        ParamKind::Path => "a path",
        ParamKind::Url => "an address on the network",
        ParamKind::Recipients => "mail addresses",
        ParamKind::Objects => "a list of ids",
        ParamKind::Texts => "a list of texts",
        ParamKind::Object => "an object",
        ParamKind::Any => "any value",
    }
}
