//! Conditions as a rule writes them, checked against the capabilities the rule is about.
//!
//! Takes the `conditions` node; gives conditions that can hold. Promise: a condition on an argument that no
//! matched capability has, of a kind the argument is not, or that nothing can fulfil is refused at load.

use jiff::tz::TimeZone;
use regex::RegexBuilder;
use serde_json::Value;

use super::{Comparison, Condition, Hours, Quantifier};
use crate::capability::{Capability, ParamKind};
use crate::clock::Span;
use crate::policy::fault::{Faults, Place};
use crate::policy::path::{self, Glob, Normal, Prefixes};
use crate::policy::pattern::Pattern;
use crate::policy::question::{Origin, Origins};
use crate::policy::suggest::{closest, escape};
use crate::policy::yaml::{Key, Kind, Node};
use crate::tier::Tier;

/// Days as `hours.days` writes them.
pub(crate) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
pub(crate) const ALL_DAYS: u8 = 0b111_1111;
/// Longest expression, in bytes, and largest compiled form.
const REGEX_TEXT: usize = 1000;
const REGEX_SIZE: usize = 256 * 1024;
/// Longest list in a condition.
const LIST: usize = 1000;
/// Longest rate window.
const WINDOW: Span = Span::from_hours(31 * 24);

/// Conditions that are not about one named argument.
const FIXED: [&str; 16] = [
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
    "rate_limit",
];
const SUFFIXES: [&str; 6] = ["_lte", "_lt", "_gte", "_gt", "_in", "_matches"];

/// At most so many calls of one agent in a sliding window; more raise the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls that pass.
    pub max: u64,
    /// Within this time.
    pub window: Span,
    /// Tier for the calls after that.
    pub on_exceed: Tier,
}

/// What a rule is about, as far as the catalogue knows.
pub(crate) struct Scope<'c> {
    pub(crate) pattern: &'c Pattern,
    pub(crate) matched: Vec<&'c Capability>,
}

impl Scope<'_> {
    /// Kinds an argument has among the matched capabilities.
    fn kinds(&self, argument: &str) -> Vec<ParamKind> {
        self.matched.iter().filter_map(|capability| capability.param(argument)).map(|param| param.kind).collect()
    }

    /// Whether the rule is only about tools the catalogue cannot know.
    const fn is_open(&self) -> bool {
        self.matched.is_empty()
    }

    fn has(&self, kind: ParamKind) -> bool {
        self.is_open() || self.matched.iter().any(|capability| capability.params_of(kind).next().is_some())
    }
}

/// Reads the conditions of one rule.
pub(crate) fn read(node: &Node, scope: &Scope<'_>, faults: &mut Faults<'_>) -> (Vec<Condition>, Option<Rate>) {
    let Kind::Map(entries) = &node.kind else {
        faults
            .error(node.place, "policy.type", format!("`conditions` must be a map, not {}", node.noun()))
            .hint("for example `conditions: {path_prefix: /workspace/}`");
        return (Vec::new(), None);
    };
    let mut conditions = Vec::new();
    let mut rate = None;
    for (key, value) in entries {
        let mut reader = Reader { key, value, scope, faults };
        if key.text == "rate_limit" {
            rate = reader.rate();
        } else if let Some(condition) = reader.condition() {
            conditions.push((key.place, condition));
        }
    }
    refuse_contradictions(&conditions, scope, faults);
    (conditions.into_iter().map(|(_, condition)| condition).collect(), rate)
}

struct Reader<'r, 'c, 'f> {
    key: &'r Key,
    value: &'r Node,
    scope: &'r Scope<'c>,
    faults: &'r mut Faults<'f>,
}

impl Reader<'_, '_, '_> {
    fn condition(&mut self) -> Option<Condition> {
        match self.key.text.as_str() {
            "path_prefix" => self.prefixes(Quantifier::Every),
            "any_path_prefix" => self.prefixes(Quantifier::Any),
            "path_glob" => self.globs(Quantifier::Every),
            "any_path_glob" => self.globs(Quantifier::Any),
            "content_size_lt" => self.content_size(Comparison::Lt),
            "content_size_lte" => self.content_size(Comparison::Lte),
            "content_size_gt" => self.content_size(Comparison::Gt),
            "content_size_gte" => self.content_size(Comparison::Gte),
            "recipients_within" => self.domains(),
            "recipients_max" => self
                .needs(ParamKind::Recipients, "recipients")
                .then_some(())
                .and_then(|()| self.count(1))
                .map(Condition::RecipientsMax),
            "hours" => self.hours().map(Condition::Hours),
            "tainted" => match self.value.kind {
                Kind::Bool(expected) => Some(Condition::Tainted(expected)),
                _ => self.wrong_type("true or false"),
            },
            "agent_session" => self.words().map(Condition::Session),
            "account" => self.words().map(Condition::Account),
            "targets" => self.targets(),
            _ => self.about_an_argument(),
        }
    }

    /// `<arg>_lt` and its like.
    fn about_an_argument(&mut self) -> Option<Condition> {
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
        let compare = |by| move |bound| Condition::Compare { argument: argument_name, by, bound };
        match suffix {
            "_lt" => self.bound().map(compare(Comparison::Lt)),
            "_lte" => self.bound().map(compare(Comparison::Lte)),
            "_gt" => self.bound().map(compare(Comparison::Gt)),
            "_gte" => self.bound().map(compare(Comparison::Gte)),
            "_in" => self.values(argument, of, &kinds),
            _ => self.regex(argument, of),
        }
    }

    fn unknown(&mut self) -> Option<Condition> {
        let text = self.key.text.clone();
        let mut known: Vec<String> = FIXED.map(str::to_owned).to_vec();
        for param in self.scope.matched.iter().flat_map(|capability| &capability.params) {
            known.extend(SUFFIXES.map(|suffix| format!("{}{suffix}", param.name)));
        }
        let close = closest(&text, known.iter().map(String::as_str)).map(str::to_owned);
        self.faults
            .error(self.key.place, "policy.unknown_condition", format!("unknown condition `{}`", escape(&text)))
            .why(format!("conditions are {} and `<argument>` followed by {}", FIXED.join(", "), SUFFIXES.join(", ")))
            .mean(close.as_deref());
        None
    }

    fn no_such_argument(&mut self, argument: &str) -> Option<Condition> {
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
        fault.mean(close);
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

    fn impossible<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.faults.error(self.value.place, "policy.impossible_condition", message).why("the rule could never apply");
        None
    }

    /// A text, or a list of texts, with where each stands.
    fn texts(&mut self) -> Option<Vec<(Place, String)>> {
        let items: Vec<&Node> = match &self.value.kind {
            Kind::Text(_) => vec![self.value],
            Kind::List(items) if items.is_empty() => return self.impossible(format!("`{}` is empty", self.key.text)),
            Kind::List(items) if items.len() <= LIST => items.iter().collect(),
            Kind::List(_) => return self.wrong_type(&format!("a list of at most {LIST} texts")),
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

    fn prefixes(&mut self, of: Quantifier) -> Option<Condition> {
        if !self.needs(ParamKind::Path, "a path") {
            return None;
        }
        let mut prefixes = Prefixes::default();
        for (place, text) in self.texts()? {
            match Normal::new(&text) {
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
        Some(Condition::PathPrefix { of, prefixes })
    }

    fn globs(&mut self, of: Quantifier) -> Option<Condition> {
        if !self.needs(ParamKind::Path, "a path") {
            return None;
        }
        let mut globs = Vec::new();
        for (place, text) in self.texts()? {
            match Glob::new(&text) {
                Ok(glob) => globs.push(glob),
                Err(why) => {
                    self.faults
                        .error(place, "policy.path", format!("`{}` is not a path pattern", escape(&text)))
                        .why(why);
                    return None;
                }
            }
        }
        Some(Condition::PathGlob { of, globs })
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
            Kind::Integer(count) if count >= least => u64::try_from(count).ok(),
            Kind::Integer(count) => self.impossible(format!("{count} is less than {least}")),
            _ => self.wrong_type("a whole number"),
        }
    }

    fn content_size(&mut self, by: Comparison) -> Option<Condition> {
        if !self.needs(ParamKind::Content, "content") {
            return None;
        }
        // Nothing is smaller than no bytes.
        let bound = self.count(i64::from(by == Comparison::Lt))?;
        Some(Condition::ContentSize { by, bound })
    }

    fn values(&mut self, argument: &str, of: Quantifier, kinds: &[ParamKind]) -> Option<Condition> {
        let Kind::List(items) = &self.value.kind else { return self.wrong_type("a list") };
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
                (true, Some(text)) => match Normal::new(text) {
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
        Some(Condition::OneOf { argument: argument.into(), of, values })
    }

    fn regex(&mut self, argument: &str, of: Quantifier) -> Option<Condition> {
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
            // Checked on its own as well: `)|(?:` must not open the brackets around it.
            Ok(regex) if regex::Regex::new(text).is_ok() => {
                Some(Condition::Matches { argument: argument.into(), of, regex, text: text.into() })
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

    fn domains(&mut self) -> Option<Condition> {
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
        Some(Condition::RecipientsWithin { domains })
    }

    fn targets(&mut self) -> Option<Condition> {
        let mut origins = Origins::default();
        for (place, text) in self.texts()? {
            let Some(origin) = Origin::from_word(&text) else {
                self.faults
                    .error(place, "policy.value", format!("`{}` is not an origin", escape(&text)))
                    .why("origins are asked, known, seen, new")
                    .mean(closest(&text, Origin::ALL.map(Origin::as_str)));
                return None;
            };
            origins = origins.with(origin);
        }
        Some(Condition::Targets(origins))
    }

    fn hours(&mut self) -> Option<Hours> {
        let fields = Fields::of(self.value, &["from", "to", "days", "zone"], &self.key.text, self.faults)?;
        let from = fields.clock("from", self.faults)?;
        let to = fields.clock("to", self.faults)?;
        if from == 24 * 60 {
            return self.impossible("`from` is the end of the day");
        }
        if from == to || (from == 0 && to == 0) {
            return self.impossible("`from` and `to` are the same");
        }
        let Some(zone) = fields.get("zone") else {
            self.faults
                .error(self.key.place, "policy.missing_key", "`hours` needs a `zone`")
                .hint("for example `zone: Europe/Berlin` or `zone: UTC`");
            return None;
        };
        let Some(zone_name) = zone.as_text() else {
            self.faults.error(zone.place, "policy.type", "`zone` must be the name of a time zone");
            return None;
        };
        let Ok(tz) = TimeZone::get(zone_name) else {
            self.faults
                .error(zone.place, "policy.value", format!("`{}` is not a time zone", escape(zone_name)))
                .hint("use a name of the IANA database such as `Europe/Berlin`");
            return None;
        };
        let days = match fields.get("days") {
            None => ALL_DAYS,
            Some(node) => Self::days(node, self.faults)?,
        };
        Some(Hours { from, to, days, zone: tz, zone_name: zone_name.into() })
    }

    fn days(node: &Node, faults: &mut Faults<'_>) -> Option<u8> {
        let Kind::List(items) = &node.kind else {
            faults.error(node.place, "policy.type", "`days` must be a list such as `[mon, tue]`");
            return None;
        };
        let mut days = 0;
        for item in items {
            let found = item.as_text().and_then(|text| DAYS.iter().position(|day| *day == text));
            let Some(day) = found else {
                faults
                    .error(item.place, "policy.value", "not a day")
                    .why("days are mon, tue, wed, thu, fri, sat, sun")
                    .mean(
                        item.as_text()
                            .and_then(|text| DAYS.into_iter().find(|day| text.to_lowercase().starts_with(day))),
                    );
                return None;
            };
            days |= 1 << day;
        }
        if days == 0 {
            faults
                .error(node.place, "policy.impossible_condition", "`days` is empty")
                .why("the rule could never apply");
            return None;
        }
        Some(days)
    }

    fn rate(&mut self) -> Option<Rate> {
        let fields = Fields::of(self.value, &["max", "window", "on_exceed"], &self.key.text, self.faults)?;
        let (Some(max), Some(window)) = (fields.get("max"), fields.get("window")) else {
            self.faults
                .error(self.key.place, "policy.missing_key", "`rate_limit` needs `max` and `window`")
                .hint("for example `rate_limit: {max: 5, window: 10m}`");
            return None;
        };
        let max = match max.kind {
            Kind::Integer(n) if n >= 1 => n.unsigned_abs(),
            _ => {
                self.faults
                    .error(max.place, "policy.value", "`max` must be a whole number of at least 1")
                    .hint("a rule that lets no call pass is written with its `tier`");
                return None;
            }
        };
        let span = match &window.kind {
            Kind::Integer(seconds) => u64::try_from(*seconds).ok().map(Span::from_secs),
            Kind::Text(text) => span_of(text),
            _ => None,
        };
        let Some(window) = span.filter(|span| *span > Span::ZERO && *span <= WINDOW) else {
            self.faults
                .error(
                    window.place,
                    "policy.value",
                    "`window` must be a time such as `10m`, `1h` or a number of seconds",
                )
                .why(format!("it lies between 1 s and {WINDOW}"));
            return None;
        };
        let on_exceed = match fields.get("on_exceed") {
            None => Tier::ApprovalRequired,
            Some(node) => crate::policy::rule::tier(node, "on_exceed", self.faults)?,
        };
        Some(Rate { max, window, on_exceed })
    }
}

/// `90s`, `10m`, `2h`, `1d`.
fn span_of(text: &str) -> Option<Span> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Span::from_secs)
}

/// A map with fixed keys.
struct Fields<'n>(&'n [(Key, Node)]);

impl<'n> Fields<'n> {
    fn of(node: &'n Node, keys: &[&str], what: &str, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            faults.error(node.place, "policy.type", format!("`{what}` must be a map with {}", keys.join(", ")));
            return None;
        };
        let mut known = true;
        for (key, _) in entries {
            if !keys.contains(&key.text.as_str()) {
                known = false;
                faults
                    .error(key.place, "policy.unknown_key", format!("unknown key `{}` in `{what}`", escape(&key.text)))
                    .why(format!("`{what}` has the keys {}", keys.join(", ")))
                    .mean(closest(&key.text, keys.iter().copied()));
            }
        }
        known.then_some(Self(entries))
    }

    fn get(&self, name: &str) -> Option<&'n Node> {
        self.0.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
    }

    /// `08:30` as minutes; `24:00` is the end of the day.
    fn clock(&self, name: &str, faults: &mut Faults<'_>) -> Option<u16> {
        let node = self.get(name);
        let parsed = node.and_then(Node::as_text).and_then(|text| {
            let (hour, minute) = text.split_once(':')?;
            let two_digits = |text: &str| {
                (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
            };
            let (hour, minute): (u16, u16) = (two_digits(hour)?, two_digits(minute)?);
            (minute < 60 && (hour < 24 || (hour == 24 && minute == 0))).then_some(hour * 60 + minute)
        });
        if parsed.is_none() {
            let place = node
                .map_or_else(|| self.0.first().map_or_else(Place::default, |(key, _)| key.place), |node| node.place);
            faults.error(place, "policy.value", format!("`{name}` must be a time of day such as `\"08:00\"`"));
        }
        parsed
    }
}

/// Bounds that exclude each other.
fn refuse_contradictions(conditions: &[(Place, Condition)], scope: &Scope<'_>, faults: &mut Faults<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for (place, condition) in conditions {
        let argument = match condition {
            Condition::Compare { argument, .. } => &**argument,
            Condition::ContentSize { .. } => "content_size",
            _ => continue,
        };
        if seen.contains(&argument) {
            continue;
        }
        seen.push(argument);
        let whole = argument == "content_size" || scope.kinds(argument).iter().all(|kind| *kind == ParamKind::Integer);
        let whole = whole && (argument == "content_size" || !scope.is_open());
        let bounds = conditions.iter().filter_map(|(_, other)| match other {
            Condition::Compare { argument: own, by, bound } if &**own == argument => Some((*by, *bound)),
            Condition::ContentSize { by, bound } if argument == "content_size" => Some((*by, *bound as f64)),
            _ => None,
        });
        let range = bounds.fold(Range::default(), |range, (by, bound)| range.narrow(by, bound, whole));
        let values = conditions.iter().find_map(|(_, other)| match other {
            Condition::OneOf { argument: own, of: Quantifier::Every, values } if &**own == argument => Some(values),
            _ => None,
        });
        let none_fits =
            values.is_some_and(|values| !values.iter().filter_map(Value::as_f64).any(|value| range.holds(value)));
        if range.is_empty() || none_fits {
            faults
                .error(
                    *place,
                    "policy.impossible_condition",
                    format!("no `{}` fulfils all these conditions", escape(argument)),
                )
                .why("the rule could never apply");
        }
    }
}

/// Numbers between two bounds.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    low_open: bool,
    high: f64,
    high_open: bool,
}

impl Default for Range {
    fn default() -> Self {
        Self { low: f64::NEG_INFINITY, low_open: false, high: f64::INFINITY, high_open: false }
    }
}

impl Range {
    fn narrow(mut self, by: Comparison, bound: f64, whole: bool) -> Self {
        // Among whole numbers `> 5` is `>= 6`.
        let (by, bound) = match by {
            Comparison::Gt if whole => (Comparison::Gte, bound.floor() + 1.0),
            Comparison::Lt if whole => (Comparison::Lte, bound.ceil() - 1.0),
            other => (other, bound),
        };
        match by {
            Comparison::Gt if bound >= self.low => (self.low, self.low_open) = (bound, true),
            Comparison::Gte if bound > self.low => (self.low, self.low_open) = (bound, false),
            Comparison::Lt if bound <= self.high => (self.high, self.high_open) = (bound, true),
            Comparison::Lte if bound < self.high => (self.high, self.high_open) = (bound, false),
            Comparison::Gt | Comparison::Gte | Comparison::Lt | Comparison::Lte => {}
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.low > self.high || (self.low >= self.high && (self.low_open || self.high_open))
    }

    fn holds(&self, value: f64) -> bool {
        let above = value > self.low || (value >= self.low && !self.low_open);
        let below = value < self.high || (value <= self.high && !self.high_open);
        above && below
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
