//! A second, simple evaluator, and a million random questions on which both must agree.
//!
//! The reference keeps rules in a list and reads them top to bottom; it shares no code with the engine but
//! the tiers. Rules are made as data, written as YAML and loaded by the engine as any file would be.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::tests::{NOON, catalogue};
use super::*;
use crate::clock::{Millis, UtcMillis};
use crate::ids::CapabilityName;

/// Policies, and questions put to each: together more than a million cases.
const POLICIES: u64 = 1_050;
const QUESTIONS: u64 = 1_000;

/// A small generator; the seed makes every run the same.
struct ReferenceRandom(u64);

impl ReferenceRandom {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.roll(items.len() as u64) as usize]
    }
    fn tier(&mut self) -> Tier {
        Tier::ALL[self.roll(4) as usize]
    }
    /// One or more of the items.
    fn some(&mut self, items: &[&str]) -> Vec<String> {
        (0..=self.roll(2)).map(|_| self.pick(items).to_owned()).collect()
    }
}

#[derive(Debug, Clone)]
enum ReferenceCondition {
    Prefix(bool, Vec<String>),
    Limit(&'static str, i64),
    Size(&'static str, i64),
    Channel(bool, Vec<String>),
    Labels(bool, Vec<String>),
    Starts(String),
    Within(Vec<String>),
    Max(i64),
    Tainted(bool),
    Session(Vec<String>),
    Account(Vec<String>),
    Targets(Vec<String>),
    Morning,
}

#[derive(Debug, Clone)]
struct ReferenceRule {
    pattern: String,
    tier: Tier,
    conditions: Vec<ReferenceCondition>,
    rate: Option<(u64, Tier)>,
}

const NAMES: [&str; 13] = [
    "filesystem.read",
    "filesystem.copy",
    "filesystem.write",
    "email.send",
    "email.list",
    "email.reply",
    "email.label",
    "slack.send",
    "slack.search",
    "custom:deploy",
    "custom:x",
    "weather.look",
    "system.time",
];
const PATTERNS: [&str; 19] = [
    "filesystem.read",
    "filesystem.copy",
    "filesystem.*",
    "files*",
    "email.send",
    "email.list",
    "email.*",
    "email.s*",
    "email.label",
    "slack.send",
    "slack.*",
    "custom:deploy",
    "custom:*",
    "weather.look",
    "weather.*",
    "w*",
    "*",
    "*",
    "s*",
];
const PREFIXES: [&str; 9] = ["/", "/w", "/w/a", "/w/a/b", "/w/ab", "/w/b/", "/etc", "/w//a/./c", "/w/x/../a"];
const PATHS: [&str; 16] = [
    "/w/a",
    "/w/a/b/c",
    "/w/ab",
    "/w/ab/x",
    "/w",
    "/",
    "/etc/passwd",
    "/w/b/../a/x",
    "/w/a/../../etc",
    "//w//a",
    "/w/a/c/",
    "relative/x",
    "",
    "/../x",
    "/w/./b",
    "/w/a/b",
];
const CHANNELS: [&str; 3] = ["general", "random", "ops"];
const LABELS: [&str; 3] = ["inbox", "trash", "spam"];
const DOMAINS: [&str; 3] = ["corp.org", "b.net", "evil.org"];
const SESSIONS: [&str; 3] = ["s1", "s2", "s3"];
const ORIGINS: [&str; 4] = ["asked", "known", "seen", "new"];

/// The conditions a pattern can have, by the arguments of its capabilities.
fn condition(dice: &mut ReferenceRandom, pattern: &str) -> ReferenceCondition {
    let has = |service: &str| {
        pattern.starts_with(service)
            || matches!(pattern, "*" | "custom:deploy" | "custom:*")
            || (pattern == "s*" && service == "slack")
            || pattern.starts_with('w')
    };
    loop {
        return match dice.roll(13) {
            0 | 1 if has("files") => ReferenceCondition::Prefix(dice.roll(3) == 0, dice.some(&PREFIXES)),
            2 if matches!(pattern, "email.list" | "email.*" | "filesystem.read" | "slack.*" | "*") => {
                ReferenceCondition::Limit(dice.pick(&["lt", "lte", "gt", "gte"]), dice.roll(4) as i64)
            }
            3 if (has("files") && pattern != "filesystem.read" && pattern != "filesystem.copy")
                || matches!(pattern, "email.*" | "email.send" | "slack.send") =>
            {
                ReferenceCondition::Size(dice.pick(&["lt", "lte", "gt", "gte"]), 1 + dice.roll(5) as i64)
            }
            4 if has("slack") => ReferenceCondition::Channel(dice.roll(2) == 0, dice.some(&CHANNELS)),
            5 if matches!(pattern, "email.label" | "email.*" | "*") => {
                ReferenceCondition::Labels(dice.roll(2) == 0, dice.some(&LABELS))
            }
            6 if has("slack") => ReferenceCondition::Starts(dice.pick(&["g", "r", ""]).to_owned()),
            7 if matches!(pattern, "email.send" | "email.*" | "email.s*" | "*" | "custom:*") => {
                ReferenceCondition::Within(dice.some(&DOMAINS))
            }
            8 if matches!(pattern, "email.send" | "email.*" | "email.s*" | "*" | "custom:*") => {
                ReferenceCondition::Max(1 + dice.roll(3) as i64)
            }
            9 => ReferenceCondition::Tainted(dice.roll(2) == 0),
            10 => ReferenceCondition::Session(dice.some(&SESSIONS)),
            11 => ReferenceCondition::Account(dice.some(&["work", "home"])),
            12 if dice.roll(2) == 0 => ReferenceCondition::Morning,
            12 => ReferenceCondition::Targets(dice.some(&ORIGINS)),
            _ => continue,
        };
    }
}

fn rules(dice: &mut ReferenceRandom, most: u64, least_conditions: u64) -> Vec<ReferenceRule> {
    (0..dice.roll(most + 1))
        .map(|_| {
            let pattern = dice.pick(&PATTERNS).to_owned();
            let mut conditions: Vec<ReferenceCondition> = Vec::new();
            for _ in 0..least_conditions + dice.roll(4 - least_conditions) {
                let one = condition(dice, &pattern);
                let kind = std::mem::discriminant(&one);
                if !conditions.iter().any(|other| std::mem::discriminant(other) == kind) {
                    conditions.push(one);
                }
            }
            let rate = (dice.roll(6) == 0).then(|| (1 + dice.roll(3), dice.tier()));
            ReferenceRule { pattern, tier: dice.tier(), conditions, rate }
        })
        .collect()
}

/// Writes rules as a person would.
fn yaml(rules: &[ReferenceRule]) -> String {
    let mut text = String::new();
    for rule in rules {
        let _ = writeln!(text, "  - capability: \"{}\"\n    tier: {}", rule.pattern, rule.tier);
        if rule.conditions.is_empty() && rule.rate.is_none() {
            continue;
        }
        text.push_str("    conditions:\n");
        for condition in &rule.conditions {
            let any = |any: &bool| if *any { "any_" } else { "" };
            let line = match condition {
                ReferenceCondition::Prefix(a, list) => format!("{}path_prefix: {list:?}", any(a)),
                ReferenceCondition::Limit(by, bound) => format!("limit_{by}: {bound}"),
                ReferenceCondition::Size(by, bound) => format!("content_size_{by}: {bound}"),
                ReferenceCondition::Channel(a, list) => format!("{}channel_in: {list:?}", any(a)),
                ReferenceCondition::Labels(a, list) => format!("{}add_labels_in: {list:?}", any(a)),
                ReferenceCondition::Starts(start) => format!("channel_matches: \"{start}[a-z]*\""),
                ReferenceCondition::Within(list) => format!("recipients_within: {list:?}"),
                ReferenceCondition::Max(max) => format!("recipients_max: {max}"),
                ReferenceCondition::Tainted(truth) => format!("tainted: {truth}"),
                ReferenceCondition::Session(list) => format!("agent_session: {list:?}"),
                ReferenceCondition::Account(list) => format!("account: {list:?}"),
                ReferenceCondition::Targets(list) => format!("targets: {list:?}"),
                ReferenceCondition::Morning => "hours: {from: \"06:00\", to: \"12:00\", zone: UTC}".to_owned(),
            };
            let _ = writeln!(text, "      {line}");
        }
        if let Some((max, on_exceed)) = rule.rate {
            let _ = writeln!(text, "      rate_limit: {{max: {max}, window: 10m, on_exceed: {on_exceed}}}");
        }
    }
    text
}

/// A question apart from its arguments.
struct ReferenceCase {
    capability: &'static str,
    arguments: Map<String, Value>,
    account: Option<&'static str>,
    session: Option<&'static str>,
    tainted: bool,
    targets: Option<Vec<TargetOrigin>>,
    now: UtcMillis,
    counted: u64,
}

fn case(dice: &mut ReferenceRandom) -> ReferenceCase {
    let capability = NAMES[dice.roll(13) as usize];
    let path = |dice: &mut ReferenceRandom| if dice.roll(40) == 0 { json!(7) } else { json!(dice.pick(&PATHS)) };
    let mut arguments = Map::new();
    let mut put = |name: &str, value: Value| drop(arguments.insert(name.to_owned(), value));
    match capability {
        "filesystem.copy" => {
            put("source", path(dice));
            put("destination", path(dice));
        }
        "slack.search" | "slack.send" => {
            put("channel", if dice.roll(20) == 0 { json!(null) } else { json!(dice.pick(&CHANNELS)) })
        }
        "email.send" | "email.reply" => {
            for name in ["to", "cc", "bcc"] {
                if dice.roll(2) == 0 {
                    let list: Vec<String> =
                        (0..dice.roll(3)).map(|n| format!("p{n}@{}", dice.pick(&DOMAINS))).collect();
                    put(name, if dice.roll(2) == 0 { json!(list) } else { json!(list.join(", ")) });
                }
            }
            if dice.roll(30) == 0 {
                put("to", json!("nobody"));
            }
        }
        "email.label" => put("add_labels", json!(dice.some(&LABELS))),
        _ => {
            if dice.roll(8) > 0 {
                put("path", path(dice));
            }
            if capability.starts_with("custom") && dice.roll(3) == 0 {
                put("cwd", path(dice));
                put("channel", json!(dice.some(&CHANNELS)));
                put("to", json!(format!("x@{}", dice.pick(&DOMAINS))));
            }
        }
    }
    if dice.roll(2) == 0 && matches!(capability, "email.list" | "filesystem.read" | "slack.search" | "custom:x") {
        put("limit", if dice.roll(20) == 0 { json!("many") } else { json!(dice.roll(5)) });
    }
    if dice.roll(2) == 0 && matches!(capability, "filesystem.write" | "custom:x") {
        put("content", json!("x".repeat(dice.roll(7) as usize)));
    }
    if dice.roll(2) == 0 && matches!(capability, "email.send" | "email.reply") {
        put("body", json!("x".repeat(dice.roll(7) as usize)));
    }
    ReferenceCase {
        capability,
        arguments,
        account: [None, Some("work"), Some("home")][dice.roll(3) as usize],
        session: [None, Some("s1"), Some("s2")][dice.roll(3) as usize],
        tainted: dice.roll(2) == 0,
        targets: (dice.roll(3) > 0)
            .then(|| (0..dice.roll(3)).map(|_| TargetOrigin::ALL[dice.roll(4) as usize]).collect()),
        now: NOON + Millis::from_hours(dice.roll(48)),
        counted: dice.roll(4),
    }
}

/// Three-valued, as the language is: a condition that cannot be decided is neither.
#[derive(Clone, Copy, PartialEq)]
enum ReferenceTruth {
    Yes,
    No,
    Unclear,
}

fn truth(value: bool) -> ReferenceTruth {
    if value { ReferenceTruth::Yes } else { ReferenceTruth::No }
}

fn all(list: Vec<ReferenceTruth>) -> ReferenceTruth {
    if list.contains(&ReferenceTruth::No) {
        ReferenceTruth::No
    } else if list.contains(&ReferenceTruth::Unclear) {
        ReferenceTruth::Unclear
    } else {
        truth(!list.is_empty())
    }
}

fn any(list: Vec<ReferenceTruth>) -> ReferenceTruth {
    if list.contains(&ReferenceTruth::Yes) {
        ReferenceTruth::Yes
    } else if list.contains(&ReferenceTruth::Unclear) {
        ReferenceTruth::Unclear
    } else {
        ReferenceTruth::No
    }
}

fn normal(path: &str) -> Option<Vec<String>> {
    let rest = path.strip_prefix('/')?;
    let mut parts: Vec<String> = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name.to_owned()),
        }
    }
    Some(parts)
}

/// Kinds of arguments that the reference has built in.
fn takes(capability: &str, what: &str) -> Vec<&'static str> {
    let custom = capability.starts_with("custom") || capability.starts_with("weather");
    match (what, capability) {
        ("path", "filesystem.copy") => vec!["source", "destination"],
        ("path", "filesystem.read" | "filesystem.write") => vec!["path"],
        ("path", _) if custom => vec!["path", "cwd"],
        ("content", "filesystem.write") => vec!["content"],
        ("content", "email.send" | "email.reply") => vec!["body"],
        ("content", "slack.send") => vec!["text"],
        ("content", _) if custom => vec!["content"],
        ("to", "email.send" | "email.reply") => vec!["to", "cc", "bcc"],
        ("to", _) if custom => vec!["to"],
        _ => vec![],
    }
}

fn recipients(case: &ReferenceCase) -> Option<Option<Vec<String>>> {
    let names = takes(case.capability, "to");
    if names.is_empty() || !case.arguments.contains_key("to") {
        return Some(None);
    }
    let mut domains = Vec::new();
    for value in names.iter().filter_map(|name| case.arguments.get(*name)) {
        let texts: Vec<String> = match value {
            Value::Array(list) => list.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
            text => text.as_str().unwrap().split(", ").filter(|t| !t.is_empty()).map(str::to_owned).collect(),
        };
        for text in texts {
            domains.push(text.split_once('@')?.1.to_owned());
        }
    }
    Some((!domains.is_empty()).then_some(domains))
}

fn compare(by: &str, left: i64, right: i64) -> bool {
    match by {
        "lt" => left < right,
        "lte" => left <= right,
        "gt" => left > right,
        _ => left >= right,
    }
}

fn holds(condition: &ReferenceCondition, case: &ReferenceCase) -> ReferenceTruth {
    match condition {
        ReferenceCondition::Prefix(one_is_enough, prefixes) => {
            let values: Vec<&Value> =
                takes(case.capability, "path").iter().filter_map(|name| case.arguments.get(*name)).collect();
            let Some(paths) = values.iter().map(|value| normal(value.as_str()?)).collect::<Option<Vec<_>>>() else {
                return ReferenceTruth::Unclear;
            };
            let inside: Vec<ReferenceTruth> = paths
                .iter()
                .map(|path| truth(prefixes.iter().any(|prefix| path.starts_with(&normal(prefix).unwrap()))))
                .collect();
            if *one_is_enough { any(inside) } else { all(inside) }
        }
        ReferenceCondition::Limit(by, bound) => match case.arguments.get("limit") {
            None => ReferenceTruth::No,
            Some(value) => value.as_i64().map_or(ReferenceTruth::Unclear, |limit| truth(compare(by, limit, *bound))),
        },
        ReferenceCondition::Size(by, bound) => {
            let names = takes(case.capability, "content");
            let size: usize =
                names.iter().filter_map(|name| case.arguments.get(*name)).map(|v| v.as_str().unwrap().len()).sum();
            truth(!names.is_empty() && compare(by, size as i64, *bound))
        }
        ReferenceCondition::Channel(one, list) => {
            elements(case.arguments.get("channel"), *one, |text| list.iter().any(|own| own == text))
        }
        ReferenceCondition::Labels(one, list) => {
            elements(case.arguments.get("add_labels"), *one, |text| list.iter().any(|own| own == text))
        }
        ReferenceCondition::Starts(start) => {
            elements(case.arguments.get("channel"), false, |text| text.starts_with(start))
        }
        ReferenceCondition::Within(list) => match recipients(case) {
            None => ReferenceTruth::Unclear,
            Some(domains) => truth(domains.is_some_and(|domains| domains.iter().all(|domain| list.contains(domain)))),
        },
        ReferenceCondition::Max(max) => match recipients(case) {
            None => ReferenceTruth::Unclear,
            Some(domains) => truth(domains.is_some_and(|domains| domains.len() as i64 <= *max)),
        },
        ReferenceCondition::Tainted(expected) => truth(case.tainted == *expected),
        ReferenceCondition::Session(list) => {
            truth(case.session.is_some_and(|own| list.iter().any(|other| other == own)))
        }
        ReferenceCondition::Account(list) => {
            truth(case.account.is_some_and(|own| list.iter().any(|other| other == own)))
        }
        ReferenceCondition::Targets(list) => match &case.targets {
            None => ReferenceTruth::Unclear,
            Some(targets) => {
                all(targets.iter().map(|origin| truth(list.iter().any(|own| own == origin.as_str()))).collect())
            }
        },
        ReferenceCondition::Morning => truth((6..12).contains(&(case.now.as_seconds() / 3600 % 24))),
    }
}

fn elements(value: Option<&Value>, one_is_enough: bool, test: impl Fn(&str) -> bool) -> ReferenceTruth {
    let single = |value: &Value| value.as_str().map_or(ReferenceTruth::Unclear, |text| truth(test(text)));
    let list = match value {
        None => vec![],
        Some(Value::Array(list)) => list.iter().map(single).collect(),
        Some(value) => vec![single(value)],
    };
    if one_is_enough { any(list) } else { all(list) }
}

/// The first rule that applies: its number, the tier it asks for, and whether the answer without it counts too.
fn first(rules: &[ReferenceRule], case: &ReferenceCase) -> Option<(usize, Tier, bool)> {
    let mut unclear: Option<(usize, Tier)> = None;
    for (n, rule) in rules.iter().enumerate() {
        let named = match rule.pattern.strip_suffix('*') {
            Some(start) => case.capability.starts_with(start),
            None => case.capability == rule.pattern,
        };
        if !named {
            continue;
        }
        let mut held: Vec<ReferenceTruth> = rule.conditions.iter().map(|condition| holds(condition, case)).collect();
        held.push(ReferenceTruth::Yes);
        let exceeded = rule.rate.filter(|(max, _)| case.counted >= *max).map(|(_, on_exceed)| on_exceed);
        match (all(held), unclear) {
            (ReferenceTruth::No, _) => {}
            (ReferenceTruth::Yes, None) => return Some((n, rule.tier.max(exceeded.unwrap_or(rule.tier)), false)),
            (ReferenceTruth::Yes, Some((first, tier))) => return Some((first, tier.max(rule.tier), false)),
            // Only the first matching rule counts calls.
            (ReferenceTruth::Unclear, None) => {
                let tier = rule.tier.max(Tier::ApprovalRequired);
                unclear = Some((n, tier.max(exceeded.unwrap_or(tier))));
            }
            (ReferenceTruth::Unclear, Some((first, tier))) => unclear = Some((first, tier.max(rule.tier))),
        }
    }
    unclear.map(|(n, tier)| (n, tier, true))
}

/// Agent file, org file, default: the first that is clear decides, and every unclear one before it counts.
fn base(layers: [Option<(usize, Tier, bool)>; 2], default: Tier) -> Tier {
    let mut tier = Tier::Autonomous;
    for (_, asked, open) in layers.into_iter().flatten() {
        tier = tier.max(asked);
        if !open {
            return tier;
        }
    }
    tier.max(default)
}

/// How many policies of which size are asked how often.
struct ReferenceWorkload {
    policies: u64,
    questions: u64,
    /// Most rules in the system file, in org.yaml and in an agent file.
    most: [u64; 3],
    /// Each rule has at least this many: one without conditions hides all that come after it.
    least_conditions: u64,
}

#[test]
fn a_million_random_questions_get_the_tier_that_reading_the_files_gives() {
    let amount = ReferenceWorkload { policies: POLICIES, questions: QUESTIONS, most: [5, 12, 12], least_conditions: 0 };
    let (tiers, raised_by_floor) = ask_both(ReferenceRandom(0x5eed_1234_abcd_0001), &amount);
    // The cases cover every tier.
    assert_eq!(tiers.len(), 4, "{tiers:?}");
    assert!(tiers.values().all(|n| *n > 20_000) && raised_by_floor > 50_000, "{tiers:?} {raised_by_floor}");
}

#[test]
fn large_files_are_read_as_small_ones_are() {
    let amount = ReferenceWorkload { policies: 30, questions: 600, most: [40, 900, 120], least_conditions: 1 };
    let (tiers, _) = ask_both(ReferenceRandom(0x5eed_1234_abcd_0002), &amount);
    assert!(tiers.len() > 1, "{tiers:?}");
}

/// Compares every answer with the one of the reference; says how often each tier was the answer, and
/// how often a floor raised it.
fn ask_both(mut dice: ReferenceRandom, amount: &ReferenceWorkload) -> (BTreeMap<Tier, u64>, u64) {
    let catalogue = catalogue();
    let agents = [AgentName::new("clerk").unwrap(), AgentName::new("maid").unwrap(), AgentName::new("nobody").unwrap()];
    let mut tiers: BTreeMap<Tier, u64> = BTreeMap::new();
    let mut raised_by_floor = 0_u64;
    for _ in 0..amount.policies {
        let [system, org, one, other] =
            [0, 1, 2, 2].map(|file: usize| rules(&mut dice, amount.most[file], amount.least_conditions));
        let files = [one, other];
        let default = (dice.roll(3) > 0).then(|| dice.tier());
        let org_text = format!(
            "{}overrides:\n{}",
            default.map_or_else(String::new, |tier| format!("defaults: {{tier: {tier}}}\n")),
            yaml(&org)
        );
        let agent_text = |rules: &[ReferenceRule]| format!("rules:\n{}", yaml(rules));
        let sources =
            super::tests::sources(&org_text, &[("clerk", &agent_text(&files[0])), ("maid", &agent_text(&files[1]))]);
        let loaded = Policy::load_with_system(&agent_text(&system), &sources, &catalogue);
        let policy = loaded.unwrap_or_else(|errors| panic!("{errors}")).policy;
        for n in 0..amount.questions {
            let case = case(&mut dice);
            let who = dice.roll(3) as usize;
            let capability = CapabilityName::new(case.capability).unwrap();
            let rates = ConstantRateCounter(case.counted);
            let question = PolicyInput {
                account: case.account,
                session: case.session,
                tainted: case.tainted,
                targets: case.targets.as_ref().map(|list| list.iter().copied().collect()),
                rates: &rates,
                ..PolicyInput::new(&agents[who], &capability, &case.arguments, case.now)
            };
            let verdict = policy.judge(&question);

            let agent_hit = files.get(who).and_then(|rules| first(rules, &case));
            let (org_hit, system_hit) = (first(&org, &case), first(&system, &case));
            let known = !case.capability.starts_with("custom") && !case.capability.starts_with("weather");
            let reads = ["filesystem.read", "email.list", "slack.search", "system.time"].contains(&case.capability);
            let default = default.unwrap_or(if known && reads { Tier::Notify } else { Tier::ApprovalRequired });
            let base = base([agent_hit, org_hit], default);
            let floor = [org_hit, system_hit].into_iter().flatten().map(|(_, tier, _)| tier).max();
            let unknown = case.capability.starts_with("weather").then_some(Tier::ApprovalRequired);
            let expected = [Some(base), floor, unknown].into_iter().flatten().max().unwrap();

            let context =
                || format!("{case:?}\n{org_text}\n{}\n{verdict:?}", agent_text(files.get(who).map_or(&[][..], |f| f)));
            assert_eq!(verdict.tier, expected, "{}", context());
            let number = |hit: Option<RuleHit>| hit.map(|hit| hit.rule.rule as usize);
            assert_eq!(number(verdict.agent), agent_hit.map(|(n, _, _)| n), "{}", context());
            assert_eq!(number(verdict.org), org_hit.map(|(n, _, _)| n), "{}", context());
            assert_eq!(number(verdict.system), system_hit.map(|(n, _, _)| n), "{}", context());
            // No lower layer loosens a floor.
            assert!(floor.is_none_or(|floor| verdict.tier >= floor), "{}", context());
            if n % 25 == 0 {
                assert_eq!(policy.explain(&question).verdict, verdict, "{}", context());
            }
            raised_by_floor += u64::from(verdict.tier > base);
            *tiers.entry(verdict.tier).or_default() += 1;
        }
    }
    (tiers, raised_by_floor)
}

impl std::fmt::Debug for ReferenceCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} {:?} {:?} {} {:?} {} {}",
            self.capability,
            self.arguments,
            self.account,
            self.session,
            self.tainted,
            self.targets,
            self.now,
            self.counted
        )
    }
}
