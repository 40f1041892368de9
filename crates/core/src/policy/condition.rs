//! Conditions: what must hold for a rule to apply.
//!
//! Takes the facts of a call; answers holds, fails, or broken. Promise: a value of an unexpected shape is
//! broken, never quietly false, and the answer depends on nothing but the facts.

use std::fmt;

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use regex::Regex;
use serde_json::Value;

use super::facts::{CallFacts, each_address};
use super::input::TargetOrigins;
use super::path::{NormalPath, PathGlobPattern, PathPrefixes};
use super::suggest::{escape, show_value};
use crate::capability::ParamKind;
use crate::shell::pattern::CommandPattern;
use files::RuleFolders;

pub(crate) mod files;
mod files_read;
mod range;
pub(crate) mod read;
pub(crate) mod time;

/// Whether a condition holds for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionTruth {
    Yes,
    No,
    /// It could not be decided; the text says why.
    Broken(&'static str),
}

impl ConditionTruth {
    const fn of(truth: bool) -> Self {
        if truth { Self::Yes } else { Self::No }
    }

    /// Both must hold. If one fails for certain, the result is a failure, whatever the other one is.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Broken(why), _) | (_, Self::Broken(why)) => Self::Broken(why),
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

/// How many of several values must satisfy a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantifier {
    /// All, and there is at least one.
    Every,
    /// One is enough (`any_…`).
    Any,
}

/// `<`, `<=`, `>`, `>=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
    Lt,
    Lte,
    Gt,
    Gte,
}

/// One condition of a rule.
#[derive(Debug, Clone)]
pub(crate) enum RuleCondition {
    PathPrefix { of: Quantifier, prefixes: PathPrefixes },
    PathGlob { of: Quantifier, globs: Vec<PathGlobPattern> },
    Compare { argument: Box<str>, by: ComparisonOperator, bound: f64 },
    OneOf { argument: Box<str>, of: Quantifier, values: Vec<Value> },
    Matches { argument: Box<str>, of: Quantifier, regex: Regex, text: Box<str> },
    ContentSize { by: ComparisonOperator, bound: u64 },
    RecipientsWithin { domains: Vec<Box<str>> },
    RecipientsMax(u64),
    Hours(WeeklyHours),
    Tainted(bool),
    Session(Vec<Box<str>>),
    Account(Vec<Box<str>>),
    Targets(TargetOrigins),
    Commands(Vec<CommandPattern>),
    WritesWithin(RuleFolders),
    ReadsWithin(RuleFolders),
    HostsWithin(Vec<Box<str>>),
    NamedPath(Vec<PathGlobPattern>),
    WrittenPath(Vec<PathGlobPattern>),
}

/// A part of the day, on some days, in a zone.
#[derive(Debug, Clone)]
pub(crate) struct WeeklyHours {
    /// Minutes after midnight, first one included.
    pub(crate) from: u16,
    /// Minutes after midnight, not included; smaller than `from` when the part crosses midnight.
    pub(crate) to: u16,
    /// Days on which the part begins, Monday is bit 0.
    pub(crate) days: u8,
    pub(crate) zone: TimeZone,
    pub(crate) zone_name: Box<str>,
}

impl RuleCondition {
    /// Whether it holds for a call.
    pub(crate) fn test(&self, facts: &CallFacts<'_>) -> ConditionTruth {
        match self {
            Self::PathPrefix { of, prefixes } => paths(facts, *of, |path| prefixes.contains(path)),
            Self::PathGlob { of, globs } => paths(facts, *of, |path| globs.iter().any(|glob| glob.matches(path))),
            Self::Compare { argument, by, bound } => match facts.argument(argument) {
                None => ConditionTruth::No,
                Some(Value::Number(number)) => {
                    number.as_f64().map_or(ConditionTruth::Broken("not a number we can compare"), |n| {
                        ConditionTruth::of(by.compare(n, *bound))
                    })
                }
                Some(_) => ConditionTruth::Broken("the argument is not a number"),
            },
            Self::OneOf { argument, of, values } => {
                let kind = facts.kind(argument);
                elements(facts.argument(argument), kind, *of, |value| one_of(values, kind, value))
            }
            Self::Matches { argument, of, regex, .. } => {
                let kind = facts.kind(argument);
                elements(facts.argument(argument), kind, *of, |value| matches(regex, kind, value))
            }
            Self::ContentSize { by, bound } => content_size(facts).map_or_else(ConditionTruth::Broken, |size| {
                ConditionTruth::of(size.is_some_and(|size| by.compare(size as f64, *bound as f64)))
            }),
            Self::RecipientsWithin { domains } => {
                let mut inside = true;
                let count = facts.recipients(|_, domain| {
                    inside &= domains.iter().any(|own| own.eq_ignore_ascii_case(domain));
                });
                count.map_or_else(ConditionTruth::Broken, |count| ConditionTruth::of(count.is_some() && inside))
            }
            Self::RecipientsMax(max) => facts
                .recipients(|_, _| {})
                .map_or_else(ConditionTruth::Broken, |count| ConditionTruth::of(count.is_some_and(|n| n <= *max))),
            Self::Hours(hours) => hours.test_at(facts.question.now),
            Self::Tainted(expected) => ConditionTruth::of(facts.question.tainted == *expected),
            Self::Session(sessions) => ConditionTruth::of(listed(sessions, facts.question.session)),
            Self::Account(accounts) => ConditionTruth::of(listed(accounts, facts.question.account)),
            Self::Targets(allowed) => match facts.question.targets {
                None => ConditionTruth::Broken("the origin of the targets was not checked"),
                Some(origins) => ConditionTruth::of(!origins.is_empty() && origins.is_subset_of(*allowed)),
            },
            Self::Commands(patterns) => files::test_commands(patterns, facts),
            Self::WritesWithin(folders) => files::writes_within(folders, facts),
            Self::ReadsWithin(folders) => files::reads_within(folders, facts),
            Self::HostsWithin(hosts) => files::hosts_within(hosts, facts),
            Self::NamedPath(globs) => files::any_named(globs, facts),
            Self::WrittenPath(globs) => files::any_written(globs, facts),
        }
    }

    /// What the call has instead, in words for people.
    pub(crate) fn describe_found(&self, facts: &CallFacts<'_>) -> String {
        match self {
            Self::PathPrefix { .. } | Self::PathGlob { .. } => {
                let paths = facts.paths();
                match paths.broken {
                    Some(fault) => fault.to_string(),
                    None if paths.is_empty() => "the call has no path".into(),
                    None => join(paths.iter().map(NormalPath::as_str)),
                }
            }
            Self::Compare { argument, .. } | Self::OneOf { argument, .. } | Self::Matches { argument, .. } => {
                match facts.argument(argument) {
                    Some(value) => format!("`{argument}` is {}", show_value(value)),
                    None => format!("the call has no `{argument}`"),
                }
            }
            Self::ContentSize { .. } => match content_size(facts) {
                Ok(Some(size)) => format!("the content has {size} bytes"),
                Ok(None) => "the call has no content".into(),
                Err(why) => why.into(),
            },
            Self::RecipientsWithin { .. } | Self::RecipientsMax(_) => {
                let mut domains: Vec<&str> = Vec::new();
                match facts.recipients(|_, domain| domains.push(domain)) {
                    Ok(Some(count)) => format!("{count} recipients at {}", join(domains.into_iter())),
                    Ok(None) => "the call leaves its recipients open".into(),
                    Err(why) => why.into(),
                }
            }
            Self::Hours(hours) => hours.found(facts.question.now),
            Self::Tainted(_) if facts.question.tainted => "the session is tainted".into(),
            Self::Tainted(_) => "the session is not tainted".into(),
            Self::Session(_) => named("session", facts.question.session),
            Self::Account(_) => named("account", facts.question.account),
            Self::Targets(_) => match facts.question.targets {
                None => "the origin of the targets was not checked".into(),
                Some(origins) if origins.is_empty() => "the call has no targets".into(),
                Some(origins) => format!("the targets are {origins}"),
            },
            Self::Commands(patterns) => files::found_commands(patterns, facts),
            Self::WritesWithin(_) | Self::ReadsWithin(_) | Self::NamedPath(_) | Self::WrittenPath(_) => {
                files::found_files(facts)
            }
            Self::HostsWithin(_) => files::found_hosts(facts),
        }
    }

    /// The key it is written under.
    pub(crate) fn key(&self) -> String {
        let any = |of: &Quantifier| if *of == Quantifier::Any { "any_" } else { "" };
        match self {
            Self::PathPrefix { of, .. } => format!("{}path_prefix", any(of)),
            Self::PathGlob { of, .. } => format!("{}path_glob", any(of)),
            Self::Compare { argument, by, .. } => format!("{argument}_{}", by.suffix()),
            Self::OneOf { argument, of, .. } => format!("{}{argument}_in", any(of)),
            Self::Matches { argument, of, .. } => format!("{}{argument}_matches", any(of)),
            Self::ContentSize { by, .. } => format!("content_size_{}", by.suffix()),
            Self::RecipientsWithin { .. } => "recipients_within".into(),
            Self::RecipientsMax(_) => "recipients_max".into(),
            Self::Hours(_) => "hours".into(),
            Self::Tainted(_) => "tainted".into(),
            Self::Session(_) => "agent_session".into(),
            Self::Account(_) => "account".into(),
            Self::Targets(_) => "targets".into(),
            Self::Commands(_) => "commands".into(),
            Self::WritesWithin(_) => "writes_within".into(),
            Self::ReadsWithin(_) => "reads_within".into(),
            Self::HostsWithin(_) => "hosts_within".into(),
            Self::NamedPath(_) => "any_named_path".into(),
            Self::WrittenPath(_) => "any_written_path".into(),
        }
    }
}

impl fmt::Display for RuleCondition {
    /// `key: value`, the same text for the same meaning.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key())?;
        match self {
            Self::PathPrefix { prefixes, .. } => f.write_str(&join(prefixes.listed.iter().map(|p| &**p))),
            Self::NamedPath(globs) | Self::WrittenPath(globs) | Self::PathGlob { globs, .. } => {
                f.write_str(&join(globs.iter().map(|glob| &*glob.text)))
            }
            Self::Compare { bound, .. } => write!(f, "{bound}"),
            Self::OneOf { values, .. } => {
                let values: Vec<String> = values.iter().map(show_value).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Self::Matches { text, .. } => write!(f, "`{}`", escape(text)),
            Self::ContentSize { bound, .. } => write!(f, "{bound}"),
            Self::RecipientsMax(max) => write!(f, "{max}"),
            Self::Hours(hours) => write!(f, "{hours}"),
            Self::Tainted(expected) => write!(f, "{expected}"),
            Self::Commands(patterns) => f.write_str(&join(patterns.iter().map(|pattern| &*pattern.text))),
            Self::WritesWithin(folders) | Self::ReadsWithin(folders) => write!(f, "{folders}"),
            Self::RecipientsWithin { domains: list }
            | Self::Session(list)
            | Self::Account(list)
            | Self::HostsWithin(list) => f.write_str(&join(list.iter().map(|item| &**item))),
            Self::Targets(origins) => write!(f, "[{origins}]"),
        }
    }
}

fn join<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (n, item) in items.enumerate() {
        if n == 8 {
            text.push_str(", …");
            break;
        }
        if n > 0 {
            text.push_str(", ");
        }
        text.push_str(&escape(item));
    }
    text
}

fn named(what: &str, value: Option<&str>) -> String {
    value.map_or_else(|| format!("the call names no {what}"), |value| format!("the {what} is `{}`", escape(value)))
}

fn listed(list: &[Box<str>], value: Option<&str>) -> bool {
    value.is_some_and(|value| list.iter().any(|own| &**own == value))
}

/// SECURITY: a call with any path that cannot be compared is broken for every path condition.
fn paths(facts: &CallFacts<'_>, of: Quantifier, holds: impl Fn(&NormalPath<'_>) -> bool) -> ConditionTruth {
    let paths = facts.paths();
    if paths.broken.is_some() {
        return ConditionTruth::Broken("a path cannot be compared");
    }
    ConditionTruth::of(match of {
        Quantifier::Every => !paths.is_empty() && paths.iter().all(holds),
        Quantifier::Any => paths.iter().any(holds),
    })
}

/// Tests a value, or each element of a list.
fn elements(
    value: Option<&Value>,
    kind: Option<ParamKind>,
    of: Quantifier,
    test: impl Fn(&Value) -> ConditionTruth,
) -> ConditionTruth {
    let Some(value) = value else { return ConditionTruth::No };
    let mut held = match of {
        Quantifier::Every => ConditionTruth::Yes,
        Quantifier::Any => ConditionTruth::No,
    };
    let mut count = 0;
    let mut add = |one: ConditionTruth| {
        count += 1;
        held = match of {
            Quantifier::Every => held.and(one),
            Quantifier::Any => match (held, one) {
                (ConditionTruth::Yes, _) | (_, ConditionTruth::Yes) => ConditionTruth::Yes,
                (ConditionTruth::Broken(why), _) | (_, ConditionTruth::Broken(why)) => ConditionTruth::Broken(why),
                (ConditionTruth::No, ConditionTruth::No) => ConditionTruth::No,
            },
        };
    };
    match (value, kind) {
        (Value::Array(list), Some(ParamKind::Recipients)) => {
            for item in list {
                each_recipient(item, &mut add, &test);
            }
        }
        (value, Some(ParamKind::Recipients)) => each_recipient(value, &mut add, &test),
        (Value::Array(list), _) => list.iter().for_each(|item| add(test(item))),
        (value, _) => add(test(value)),
    }
    if count == 0 { ConditionTruth::No } else { held }
}

/// Tests every address of a recipients argument, without its display name and in lower case.
fn each_recipient(value: &Value, add: &mut impl FnMut(ConditionTruth), test: &impl Fn(&Value) -> ConditionTruth) {
    let Some(text) = value.as_str() else { return add(ConditionTruth::Broken("a recipient is not a text")) };
    let read = each_address(text, &mut |local, domain| {
        add(test(&Value::String(format!("{local}@{domain}").to_ascii_lowercase())));
    });
    if let Err(why) = read {
        add(ConditionTruth::Broken(why));
    }
}

fn one_of(values: &[Value], kind: Option<ParamKind>, value: &Value) -> ConditionTruth {
    match (value, kind) {
        (Value::String(text), Some(ParamKind::Path)) => match NormalPath::new(text) {
            Ok(path) => ConditionTruth::of(values.iter().any(|own| own.as_str() == Some(path.as_str()))),
            Err(_) => ConditionTruth::Broken("a path cannot be compared"),
        },
        (Value::Number(number), _) => {
            ConditionTruth::of(values.iter().any(|own| own.is_number() && own.as_f64() == number.as_f64()))
        }
        (Value::String(_) | Value::Bool(_), _) => ConditionTruth::of(values.contains(value)),
        (Value::Null | Value::Array(_) | Value::Object(_), _) => {
            ConditionTruth::Broken("the argument is not a single value")
        }
    }
}

fn matches(regex: &Regex, kind: Option<ParamKind>, value: &Value) -> ConditionTruth {
    match (value, kind) {
        (Value::String(text), Some(ParamKind::Path)) => NormalPath::new(text)
            .map_or(ConditionTruth::Broken("a path cannot be compared"), |path| {
                ConditionTruth::of(regex.is_match(path.as_str()))
            }),
        (Value::String(text), _) => ConditionTruth::of(regex.is_match(text)),
        _ => ConditionTruth::Broken("the argument is not a text"),
    }
}

/// Bytes of all content arguments together; `None` if the capability has none.
fn content_size(facts: &CallFacts<'_>) -> Result<Option<u64>, &'static str> {
    if !facts.can_have(ParamKind::Content) {
        return Ok(None);
    }
    let mut total = 0_u64;
    for value in facts.of_kind(ParamKind::Content) {
        let text = value.as_str().ok_or("a content argument is not a text")?;
        total = total.saturating_add(text.len() as u64);
    }
    Ok(Some(total))
}

impl ComparisonOperator {
    fn compare(self, left: f64, right: f64) -> bool {
        match self {
            Self::Lt => left < right,
            Self::Lte => left <= right,
            Self::Gt => left > right,
            Self::Gte => left >= right,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::Gt => "gt",
            Self::Gte => "gte",
        }
    }
}

impl WeeklyHours {
    fn test_at(&self, now: crate::UtcMillis) -> ConditionTruth {
        let Some((weekday, minute)) = self.local(now) else {
            return ConditionTruth::Broken("the time is outside the calendar");
        };
        let on = |day: Weekday| self.days & (1 << day.to_monday_zero_offset()) != 0;
        ConditionTruth::of(if self.from < self.to {
            on(weekday) && (self.from..self.to).contains(&minute)
        } else {
            // The small hours belong to the day on which the part began.
            (minute >= self.from && on(weekday)) || (minute < self.to && on(weekday.previous()))
        })
    }

    /// Weekday and minute of the day on the clocks of the zone.
    fn local(&self, now: crate::UtcMillis) -> Option<(Weekday, u16)> {
        let moment = jiff::Timestamp::from_millisecond(now.as_millis()).ok()?;
        let local = self.zone.to_datetime(moment);
        let minute = u16::try_from(local.hour()).ok()? * 60 + u16::try_from(local.minute()).ok()?;
        Some((local.weekday(), minute))
    }

    fn found(&self, now: crate::UtcMillis) -> String {
        match self.local(now) {
            Some((day, minute)) => {
                let day = time::DAYS.get(day.to_monday_zero_offset() as usize).copied().unwrap_or("?");
                format!("it is {day} {:02}:{:02} in {}", minute / 60, minute % 60, self.zone_name)
            }
            None => "the time is outside the calendar".into(),
        }
    }
}

impl fmt::Display for WeeklyHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{} to {}", clock(self.from), clock(self.to))?;
        if self.days != time::ALL_DAYS {
            let days: Vec<&str> =
                (0..7).zip(time::DAYS).filter(|(n, _)| self.days & (1 << n) != 0).map(|(_, d)| d).collect();
            write!(f, " on {}", days.join(", "))?;
        }
        write!(f, " in {}", self.zone_name)
    }
}
