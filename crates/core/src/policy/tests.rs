//! The language as a whole: what files mean, and what is refused.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::clock::UtcMillis;
use crate::ids::CapabilityName;

/// A Monday noon in UTC.
pub(super) const NOON: UtcMillis = UtcMillis::from_millis(1_767_614_400_000);

pub(super) fn catalogue() -> Arc<Catalogue> {
    use std::sync::OnceLock;
    static CATALOGUE: OnceLock<Arc<Catalogue>> = OnceLock::new();
    Arc::clone(CATALOGUE.get_or_init(|| Arc::new(Catalogue::builtin().unwrap())))
}

pub(super) fn sources(org: &str, agents: &[(&str, &str)]) -> PolicySources {
    let source = |name: String, text: &str| PolicySource { name, text: text.to_owned() };
    PolicySources {
        org: (!org.is_empty()).then(|| source("org.yaml".into(), org)),
        agents: agents
            .iter()
            .map(|(name, text)| (AgentName::new(*name).unwrap(), source(format!("agents/{name}.yaml"), text)))
            .collect(),
    }
}

pub(super) fn load(org: &str, agents: &[(&str, &str)]) -> Result<LoadedPolicy, PolicyLoadError> {
    Policy::load(&sources(org, agents), &catalogue())
}

pub(super) fn policy(org: &str, agents: &[(&str, &str)]) -> Arc<Policy> {
    match load(org, agents) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("{errors}"),
    }
}

/// Asks a question, checks that the explanation agrees, and gives the verdict.
fn ask(policy: &Policy, agent: &str, capability: &str, arguments: Value) -> Verdict {
    ask_with(policy, agent, capability, arguments, |question| question)
}

fn ask_with(
    policy: &Policy,
    agent: &str,
    capability: &str,
    arguments: Value,
    change: impl for<'q> Fn(PolicyInput<'q>) -> PolicyInput<'q>,
) -> Verdict {
    let agent = AgentName::new(agent).unwrap();
    let capability = CapabilityName::new(capability).unwrap();
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let question = change(PolicyInput::new(&agent, &capability, &arguments, NOON));
    let verdict = policy.judge(&question);
    assert_eq!(policy.explain(&question).verdict, verdict, "the explanation agrees");
    verdict
}

fn tier(policy: &Policy, capability: &str, arguments: Value) -> Tier {
    ask(policy, "clerk", capability, arguments).tier
}

/// Codes of all problems of an org file.
fn codes(org: &str) -> Vec<&'static str> {
    match load(org, &[]) {
        Ok(loaded) => loaded.warnings.iter().map(|fault| fault.code).collect(),
        Err(errors) => errors.faults.iter().map(|fault| fault.code).collect(),
    }
}

fn refused_with(org: &str, code: &str) {
    match load(org, &[]) {
        Ok(_) => panic!("loaded: {org}"),
        Err(errors) => assert!(errors.faults.iter().any(|fault| fault.code == code), "{org}\n{errors}"),
    }
}

/// An org file with one rule for `filesystem.write`.
fn on_write(conditions: &str) -> String {
    format!("overrides:\n  - {{capability: filesystem.write, tier: autonomous, conditions: {{{conditions}}}}}\n")
}

const BOOKKEEPER: &str = r#"# policies/agents/bookkeeper.yaml
rules:
  # Can read and process emails autonomously
  - capability: "email.list"
    tier: autonomous
  - capability: "email.read"
    tier: autonomous
  # Email sends require approval
  - capability: "email.send"
    tier: approval_required
    reason: "All outgoing emails require review"
  # Can use shared state freely
  - capability: "state.shared.*"
    tier: notify
  # No access to code or filesystem outside workspace
  - capability: "git.*"
    tier: blocked
  - capability: "filesystem.*"
    tier: autonomous
    conditions:
      path_prefix: "/workspace/bookkeeper/"
  - capability: "filesystem.*"
    tier: blocked
    reason: "Cannot access files outside workspace"
"#;

const ORG: &str = r#"defaults:
  tier: notify # Default: execute but notify supervisor
overrides:
  # All agents can read their own state
  - capability: "state.persistent.*"
    tier: autonomous
  # Destructive operations always need approval
  - capability: "filesystem.delete"
    tier: approval_required
  - capability: "process.kill"
    tier: approval_required
"#;

#[test]
fn the_examples_of_the_permission_model_mean_what_it_says() {
    let loaded = load(ORG, &[("bookkeeper", BOOKKEEPER)]).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let ask = |capability: &str, arguments: Value| ask(&loaded.policy, "bookkeeper", capability, arguments).tier;
    assert_eq!(ask("email.list", json!({})), Tier::Autonomous);
    assert_eq!(ask("email.send", json!({"to": "a@b.c"})), Tier::ApprovalRequired);
    assert_eq!(ask("state.shared.set", json!({"key": "k"})), Tier::Notify);
    assert_eq!(ask("state.persistent.set", json!({"key": "k"})), Tier::Autonomous);
    assert_eq!(ask("git.status", json!({"path": "/workspace/bookkeeper"})), Tier::Blocked);
    assert_eq!(ask("filesystem.read", json!({"path": "/workspace/bookkeeper/2026.csv"})), Tier::Autonomous);
    assert_eq!(ask("filesystem.read", json!({"path": "/workspace/other/2026.csv"})), Tier::Blocked);
    assert_eq!(ask("filesystem.delete", json!({"path": "/workspace/bookkeeper/2026.csv"})), Tier::ApprovalRequired);
    assert_eq!(ask("process.run", json!({"command": "ls"})), Tier::Notify);
    assert_eq!(ask("process.kill", json!({"process_id": "1"})), Tier::ApprovalRequired);
}

#[test]
fn the_first_rule_that_fits_decides_in_its_file() {
    let policy = policy(
        "",
        &[(
            "clerk",
            "rules:\n  - {capability: email.*, tier: blocked, conditions: {tainted: true}}\n  - {capability: email.send, tier: notify}\n  - {capability: '*', tier: autonomous}\n",
        )],
    );
    assert_eq!(tier(&policy, "email.send", json!({})), Tier::Notify);
    assert_eq!(tier(&policy, "email.read", json!({})), Tier::Autonomous);
    let tainted = ask_with(&policy, "clerk", "email.send", json!({}), |q| PolicyInput { tainted: true, ..q });
    assert_eq!(tainted.tier, Tier::Blocked);
}

#[test]
fn an_agent_file_replaces_the_default_and_never_a_floor() {
    let org = "defaults: {tier: approval_required}\noverrides: [{capability: email.send, tier: approval_required}]\n";
    let policy = policy(org, &[("clerk", "rules: [{capability: 'email.*', tier: autonomous}]")]);
    assert_eq!(tier(&policy, "email.read", json!({})), Tier::Autonomous);
    assert_eq!(tier(&policy, "email.send", json!({})), Tier::ApprovalRequired);
    assert_eq!(tier(&policy, "slack.send", json!({})), Tier::ApprovalRequired);
    assert_eq!(ask(&policy, "stranger", "email.read", json!({})).tier, Tier::ApprovalRequired);
}

#[test]
fn no_file_opens_what_the_system_closes() {
    let open = "defaults: {tier: autonomous}\noverrides: [{capability: '*', tier: autonomous}]\n";
    let policy = policy(open, &[("clerk", "rules: [{capability: '*', tier: autonomous}]")]);
    for (capability, arguments) in [
        ("filesystem.write", json!({"path": "/etc/passwd", "content": "x"})),
        ("filesystem.write", json!({"path": "/workspace/../etc/passwd", "content": "x"})),
        ("filesystem.delete", json!({"path": "/usr/bin/env"})),
        ("filesystem.move", json!({"source": "/etc/passwd", "destination": "/tmp/x"})),
        ("filesystem.copy", json!({"source": "/tmp/x", "destination": "/boot/x"})),
        ("secrets.read_raw", json!({})),
        ("secrets.export", json!({})),
        ("audit.write", json!({})),
        ("audit.delete", json!({})),
        ("audit.truncate", json!({})),
        ("policy.modify_system", json!({})),
        ("state.read_private", json!({})),
        ("state.write_private", json!({})),
    ] {
        assert_eq!(tier(&policy, capability, arguments), Tier::Blocked, "{capability}");
    }
    // A relative path cannot be compared with the system paths, so a person looks at it.
    let verdict = ask(&policy, "clerk", "filesystem.write", json!({"path": "etc/passwd", "content": "x"}));
    assert_eq!(verdict.tier, Tier::Blocked);
    assert!(verdict.system.unwrap().broken);
    assert_eq!(tier(&policy, "filesystem.read", json!({"path": "/etc/hosts"})), Tier::Autonomous);
    assert_eq!(tier(&policy, "filesystem.write", json!({"path": "/etcetera", "content": "x"})), Tier::Autonomous);
}

#[test]
fn the_tests_of_the_system_file_pass() {
    let policy = policy("defaults: {tier: autonomous}", &[]);
    let outcomes = policy.test();
    assert!(outcomes.len() >= 7 && outcomes.iter().all(|outcome| outcome.passed), "{outcomes:?}");
}

#[test]
fn without_an_org_file_reads_are_told_and_writes_are_asked() {
    let policy = policy("", &[]);
    assert_eq!(tier(&policy, "email.read", json!({})), Tier::Notify);
    assert_eq!(tier(&policy, "email.send", json!({})), Tier::ApprovalRequired);
    assert_eq!(tier(&policy, "custom:deploy", json!({})), Tier::ApprovalRequired);
}

#[test]
fn unknown_names_are_asked_and_custom_tools_are_judged_freely() {
    let policy = policy("defaults: {tier: autonomous}\noverrides: [{capability: 'custom:*', tier: notify}]", &[]);
    assert_eq!(tier(&policy, "custom:deploy", json!({})), Tier::Notify);
    let verdict = ask(&policy, "clerk", "email.SEND", json!({}));
    assert_eq!((verdict.tier, verdict.unknown), (Tier::ApprovalRequired, true));
    assert_eq!(tier(&policy, "weather.look", json!({})), Tier::ApprovalRequired);
}

#[test]
fn a_path_condition_is_about_every_path_of_the_call() {
    let policy = policy(
        "defaults: {tier: notify}\n",
        &[("clerk", "rules: [{capability: 'filesystem.*', tier: autonomous, conditions: {path_prefix: /w/a/}}]")],
    );
    let copy = |source: &str, destination: &str| {
        tier(&policy, "filesystem.copy", json!({"source": source, "destination": destination}))
    };
    assert_eq!(copy("/w/a/x", "/w/a/y"), Tier::Autonomous);
    assert_eq!(copy("/w/a/x", "/w/b/y"), Tier::Notify);
    assert_eq!(copy("/w/b/x", "/w/a/y"), Tier::Notify);
    assert_eq!(copy("/w/a/x", "y"), Tier::Blocked, "the system rule cannot compare it");
    for (path, expected) in [
        ("/w/a", Tier::Autonomous),
        ("/w/a/b/../c", Tier::Autonomous),
        ("/w/ab", Tier::Notify),
        ("/w/a/../b", Tier::Notify),
        ("w/a/x", Tier::ApprovalRequired),
        ("/../w/a", Tier::ApprovalRequired),
    ] {
        assert_eq!(tier(&policy, "filesystem.read", json!({"path": path})), expected, "{path}");
    }
    assert_eq!(tier(&policy, "filesystem.read", json!({"path": 7})), Tier::ApprovalRequired);
    assert_eq!(tier(&policy, "filesystem.read", json!({})), Tier::Notify);
}

#[test]
fn an_argument_nobody_can_read_is_no_way_around_a_stricter_rule() {
    // Without the broken rule the file, or its default, would block; so the call is blocked.
    let inside = "{capability: 'filesystem.*', tier: autonomous, conditions: {path_prefix: /w/a/}}";
    let blocked_after = format!("rules: [{inside}, {{capability: 'filesystem.*', tier: blocked}}]");
    let nothing_after = format!("rules: [{inside}]");
    for (org, file, expected) in [
        ("defaults: {tier: autonomous}\n", &blocked_after, Tier::Blocked),
        ("defaults: {tier: blocked}\n", &nothing_after, Tier::Blocked),
        ("defaults: {tier: autonomous}\n", &nothing_after, Tier::ApprovalRequired),
    ] {
        let policy = policy(org, &[("clerk", file)]);
        assert_eq!(tier(&policy, "filesystem.read", json!({"path": "w/a/x"})), expected, "{org}{file}");
    }
}

#[test]
fn a_prohibition_can_reach_for_any_path() {
    let org = "defaults: {tier: autonomous}\noverrides: [{capability: 'filesystem.*', tier: blocked, conditions: {any_path_prefix: [/secret, /keys]}}]";
    let policy = policy(org, &[]);
    assert_eq!(tier(&policy, "filesystem.copy", json!({"source": "/secret/x", "destination": "/w/x"})), Tier::Blocked);
    assert_eq!(tier(&policy, "filesystem.copy", json!({"source": "/w/y", "destination": "/keys"})), Tier::Blocked);
    assert_eq!(tier(&policy, "filesystem.copy", json!({"source": "/w/y", "destination": "/w/x"})), Tier::Autonomous);
    assert_eq!(
        codes("overrides: [{capability: filesystem.copy, tier: blocked, conditions: {path_prefix: /secret}}]"),
        ["policy.every_path"]
    );
}

#[test]
fn each_condition_holds_when_it_should() {
    let holds = |capability: &str, conditions: &str, arguments: Value| {
        let org = format!(
            "defaults: {{tier: notify}}\noverrides:\n  - {{capability: \"{capability}\", tier: autonomous, conditions: {{{conditions}}}}}\n"
        );
        let name = if capability.ends_with('*') { "custom:x" } else { capability };
        tier(&policy(&org, &[]), name, arguments)
    };
    let (yes, no, asked) = (Tier::Autonomous, Tier::Notify, Tier::ApprovalRequired);
    for (capability, conditions, arguments, expected) in [
        ("filesystem.read", "path_glob: '/w/*/notes/**'", json!({"path": "/w/a/notes/b/c"}), yes),
        ("filesystem.read", "path_glob: '/w/*/notes/**'", json!({"path": "/w/a/b/notes"}), no),
        ("email.list", "limit_lt: 10", json!({"limit": 9}), yes),
        ("email.list", "limit_lt: 10", json!({"limit": 10}), no),
        ("email.list", "limit_lte: 10", json!({"limit": 10}), yes),
        ("email.list", "limit_gt: 10", json!({"limit": 11}), yes),
        ("email.list", "limit_gte: 10", json!({"limit": 9}), no),
        ("email.list", "limit_lt: 10", json!({}), no),
        ("email.list", "limit_lt: 10", json!({"limit": "9"}), asked),
        ("slack.send", "channel_in: [general]", json!({"channel": "general"}), yes),
        ("slack.send", "channel_in: [general]", json!({"channel": "General"}), no),
        ("slack.send", "channel_in: [general]", json!({"channel": ["general"]}), yes),
        ("slack.send", "channel_in: [general]", json!({"channel": {"id": 1}}), asked),
        ("process.run", "command_matches: 'git (log|diff).*'", json!({"command": "git log -3"}), yes),
        ("process.run", "command_matches: 'git (log|diff)'", json!({"command": "git log -3"}), no),
        ("process.run", "command_matches: 'git log'", json!({"command": "x\ngit log"}), no),
        ("process.run", "command_matches: 'a|b'", json!({"command": "ax"}), no),
        ("process.run", "args_matches: '-[a-z]+'", json!({"args": ["-l", "-a"]}), yes),
        ("process.run", "args_matches: '-[a-z]+'", json!({"args": ["-l", "/etc"]}), no),
        ("process.run", "args_matches: '-[a-z]+'", json!({"args": []}), no),
        ("process.run", "any_args_in: [--force]", json!({"args": ["-l", "--force"]}), yes),
        ("process.run", "any_args_in: [--force]", json!({"args": ["-l"]}), no),
        ("filesystem.read", "path_in: [/w/a]", json!({"path": "/w/./a/"}), yes),
        ("filesystem.write", "content_size_lt: 5", json!({"path": "/w", "content": "four"}), yes),
        ("filesystem.write", "content_size_lt: 5", json!({"path": "/w", "content": "ééé"}), no),
        ("filesystem.write", "content_size_gte: 5", json!({"path": "/w", "content": "fives"}), yes),
        ("filesystem.write", "content_size_lt: 5", json!({"path": "/w", "content": 5}), asked),
        ("email.send", "content_size_lte: 6", json!({"to": "a@b.c", "body": "one", "body_html": "two"}), yes),
        ("email.send", "content_size_lte: 5", json!({"to": "a@b.c", "body": "one", "body_html": "two"}), no),
        ("email.send", "recipients_within: [Corp.org]", json!({"to": "A <a@CORP.org>, b@corp.org"}), yes),
        ("email.send", "recipients_within: [corp.org]", json!({"to": "a@corp.org", "bcc": "b@evil.org"}), no),
        ("email.send", "recipients_within: [corp.org]", json!({"to": "a@sub.corp.org"}), no),
        ("email.send", "recipients_within: [corp.org]", json!({"to": "a@corp.org.evil.net"}), no),
        ("email.send", "recipients_within: [corp.org]", json!({"to": ["a@corp.org"], "cc": []}), yes),
        ("email.send", "recipients_within: [corp.org]", json!({"to": "corp.org"}), asked),
        ("email.send", "recipients_within: [corp.org]", json!({"to": [7]}), asked),
        ("email.send", "recipients_max: 2", json!({"to": "a@b.c, d@e.f"}), yes),
        ("email.send", "recipients_max: 2", json!({"to": "a@b.c", "cc": "d@e.f", "bcc": "g@h.i"}), no),
        ("email.send", "to_in: [Boss@corp.org]", json!({"to": "The Boss <boss@CORP.org>"}), yes),
        ("email.reply", "recipients_within: [corp.org]", json!({"message_id": "m", "cc": "a@corp.org"}), no),
        ("custom:*", "path_prefix: /w", json!({"file_path": "/w/x"}), yes),
        ("custom:*", "path_prefix: /w", json!({"file_path": "/w/x", "cwd": "/etc"}), no),
        ("custom:*", "amount_lte: 100", json!({"amount": 99.5}), yes),
        ("custom:*", "amount_lte: 100", json!({"amount": true}), asked),
    ] {
        assert_eq!(holds(capability, conditions, arguments.clone()), expected, "{capability} {conditions} {arguments}");
    }
}

#[test]
fn sessions_accounts_and_origins_come_with_the_question() {
    let org = "defaults: {tier: blocked}\noverrides:\n  - {capability: email.send, tier: autonomous, conditions: {agent_session: [s1, s2]}}\n  - {capability: email.send, tier: notify, conditions: {account: work, targets: [asked, known]}}\n";
    let policy = policy(org, &[]);
    let with = |change: for<'q> fn(PolicyInput<'q>) -> PolicyInput<'q>| {
        ask_with(&policy, "clerk", "email.send", json!({}), change).tier
    };
    assert_eq!(with(|q| PolicyInput { session: Some("s2"), ..q }), Tier::Autonomous);
    assert_eq!(with(|q| PolicyInput { session: Some("s3"), ..q }), Tier::Blocked);
    assert_eq!(
        with(|q| PolicyInput {
            account: Some("work"),
            targets: Some([TargetOrigin::Asked].into_iter().collect()),
            ..q
        }),
        Tier::Notify
    );
    assert_eq!(
        with(|q| PolicyInput {
            account: Some("home"),
            targets: Some([TargetOrigin::Asked].into_iter().collect()),
            ..q
        }),
        Tier::Blocked
    );
    let mixed = with(|q| PolicyInput {
        account: Some("work"),
        targets: Some([TargetOrigin::Asked, TargetOrigin::Seen].into_iter().collect()),
        ..q
    });
    assert_eq!(mixed, Tier::Blocked);
    assert_eq!(
        with(|q| PolicyInput { account: Some("work"), targets: Some(TargetOrigins::default()), ..q }),
        Tier::Blocked
    );
    assert_eq!(
        with(|q| PolicyInput { account: Some("work"), targets: None, ..q }),
        Tier::Blocked,
        "nobody looked, and the default blocks"
    );
}

#[test]
fn hours_follow_the_clocks_of_their_zone() {
    let tier_at = |hours: &str, now: &str| {
        let org = format!(
            "defaults: {{tier: blocked}}\noverrides: [{{capability: email.send, tier: autonomous, conditions: {{hours: {{{hours}}}}}}}]"
        );
        let policy = policy(&org, &[]);
        let now = now.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let agent = AgentName::new("clerk").unwrap();
        let capability = CapabilityName::new("email.send").unwrap();
        let arguments = serde_json::Map::new();
        policy.judge(&PolicyInput::new(&agent, &capability, &arguments, UtcMillis::from_millis(now))).tier
            == Tier::Autonomous
    };
    let berlin = "from: 08:00, to: 18:00, zone: Europe/Berlin";
    // The same wall clock on both sides of the change to summer time (2026-03-29).
    assert!(!tier_at(berlin, "2026-03-28T06:59:59Z"));
    assert!(tier_at(berlin, "2026-03-28T07:00:00Z"));
    assert!(!tier_at(berlin, "2026-03-30T05:59:59Z"));
    assert!(tier_at(berlin, "2026-03-30T06:00:00Z"));
    assert!(!tier_at(berlin, "2026-03-30T16:00:00Z"));
    // 2026-01-05 is a Monday. The night belongs to the day on which it began.
    let night = "from: 22:00, to: 06:00, days: [mon], zone: UTC";
    assert!(tier_at(night, "2026-01-05T23:00:00Z"));
    assert!(tier_at(night, "2026-01-06T05:59:00Z"));
    assert!(!tier_at(night, "2026-01-05T05:00:00Z"));
    assert!(!tier_at(night, "2026-01-06T22:00:00Z"));
    assert!(tier_at("from: 00:00, to: 24:00, days: [sun], zone: UTC", "2026-01-04T23:59:59Z"));
    // In the hour that happens twice (2026-10-25, 02:30) both count.
    let hour = "from: 02:00, to: 03:00, zone: Europe/Berlin";
    assert!(tier_at(hour, "2026-10-25T00:30:00Z") && tier_at(hour, "2026-10-25T01:30:00Z"));
}

#[test]
fn a_rate_limit_raises_the_tier_of_the_call_after_the_last_free_one() {
    let org = "overrides: [{capability: email.send, tier: notify, conditions: {rate_limit: {max: 5, window: 10m, on_exceed: blocked}}}]";
    let policy = policy(org, &[]);
    let rated = |counts: u64| {
        let rates = ConstantRateCounter(counts);
        let agent = AgentName::new("clerk").unwrap();
        let capability = CapabilityName::new("email.send").unwrap();
        let arguments = serde_json::Map::new();
        let question = PolicyInput { rates: &rates, ..PolicyInput::new(&agent, &capability, &arguments, NOON) };
        policy.judge(&question)
    };
    assert_eq!(rated(4).tier, Tier::Notify);
    assert_eq!(rated(5).tier, Tier::Blocked);
    assert_eq!(rated(4).counters().count(), 1);
    assert!(rated(5).is_escalated() && !rated(4).is_escalated());
}

#[test]
fn a_rate_counter_belongs_to_its_rule_and_survives_a_moved_line() {
    struct Seen(std::sync::Mutex<Vec<(String, RateKey, Millis)>>);
    impl RateCounter for Seen {
        fn count(&self, agent: &AgentName, key: RateKey, window: Millis) -> u64 {
            self.0.lock().unwrap().push((agent.to_string(), key, window));
            0
        }
    }
    use crate::clock::Millis;
    let key = |org: &str, agents: &[(&str, &str)]| {
        let seen = Seen(Default::default());
        let agent = AgentName::new("clerk").unwrap();
        let capability = CapabilityName::new("email.send").unwrap();
        let arguments = serde_json::Map::new();
        let policy = policy(org, agents);
        let verdict =
            policy.judge(&PolicyInput { rates: &seen, ..PolicyInput::new(&agent, &capability, &arguments, NOON) });
        let asked = seen.0.into_inner().unwrap();
        assert_eq!(asked.iter().map(|(_, key, _)| *key).collect::<Vec<_>>(), verdict.counters().collect::<Vec<_>>());
        assert_eq!(asked[0].0, "clerk");
        assert_eq!(asked[0].2, Millis::from_mins(10));
        asked[0].1
    };
    let rule = "{capability: email.send, tier: notify, conditions: {rate_limit: {max: 5, window: 600}}}";
    let one = key(&format!("overrides: [{rule}]"), &[]);
    assert_eq!(
        one,
        key(&format!("# moved\n\noverrides:\n  - {{capability: git.push, tier: notify}}\n  - {rule}"), &[])
    );
    assert_ne!(one, key("", &[("clerk", &format!("rules: [{rule}]"))]));
}

#[test]
fn conditions_nothing_can_fulfil_are_refused() {
    for conditions in [
        "limit_gt: 5, limit_lt: 5",
        "limit_gt: 5, limit_lt: 6",
        "limit_gte: 6, limit_lte: 5",
        "limit_in: []",
        "limit_in: [3], limit_gt: 4",
    ] {
        refused_with(
            &format!("overrides: [{{capability: email.list, tier: notify, conditions: {{{conditions}}}}}]"),
            "policy.impossible_condition",
        );
    }
    for conditions in ["content_size_lt: 0", "content_size_gte: -1", "content_size_gt: 4, content_size_lt: 5"] {
        refused_with(&on_write(conditions), "policy.impossible_condition");
    }
    for conditions in [
        "recipients_within: []",
        "recipients_max: 0",
        "hours: {from: 08:00, to: 08:00, zone: UTC}",
        "hours: {from: 08:00, to: 09:00, days: [], zone: UTC}",
    ] {
        refused_with(
            &format!("overrides: [{{capability: email.send, tier: notify, conditions: {{{conditions}}}}}]"),
            "policy.impossible_condition",
        );
    }
    assert!(
        codes("overrides: [{capability: email.list, tier: notify, conditions: {limit_gt: 5, limit_lt: 7}}]").is_empty()
    );
    assert!(
        codes("overrides: [{capability: process.run, tier: notify, conditions: {cpu_limit_gt: 5, cpu_limit_lt: 6}}]")
            .is_empty()
    );
}

#[test]
fn a_condition_must_be_about_something_the_capability_has() {
    refused_with(
        "overrides: [{capability: email.send, tier: notify, conditions: {path_prefix: /x}}]",
        "policy.no_such_argument",
    );
    refused_with(
        "overrides: [{capability: email.send, tier: notify, conditions: {amount_lt: 5}}]",
        "policy.no_such_argument",
    );
    refused_with(
        "overrides: [{capability: filesystem.read, tier: notify, conditions: {content_size_lt: 5}}]",
        "policy.no_such_argument",
    );
    refused_with(
        "overrides: [{capability: filesystem.read, tier: notify, conditions: {recipients_max: 5}}]",
        "policy.no_such_argument",
    );
    refused_with(
        "overrides: [{capability: filesystem.read, tier: notify, conditions: {path_lt: 5}}]",
        "policy.condition_type",
    );
    refused_with(
        "overrides: [{capability: email.list, tier: notify, conditions: {limit_in: [a]}}]",
        "policy.condition_type",
    );
    refused_with(
        "overrides: [{capability: email.list, tier: notify, conditions: {limit_matches: '[0-9]'}}]",
        "policy.condition_type",
    );
    // Where only some matched capabilities have it, it does not hold for the others.
    let org =
        "defaults: {tier: blocked}\noverrides: [{capability: 'email.*', tier: autonomous, conditions: {limit_lt: 5}}]";
    let policy = policy(org, &[]);
    assert_eq!(tier(&policy, "email.list", json!({"limit": 4})), Tier::Autonomous);
    assert_eq!(tier(&policy, "email.read", json!({"message_id": "m"})), Tier::Blocked);
}

#[test]
fn what_is_misspelt_is_refused_with_the_word_that_was_meant() {
    for (org, code, hint) in [
        ("overides: []", "policy.unknown_key", "did you mean `overrides`?"),
        ("overrides: [{capabilty: a.b, tier: notify}]", "policy.unknown_key", "did you mean `capability`?"),
        ("overrides: [{capability: email.send, tier: notfy}]", "policy.tier", "did you mean `notify`?"),
        ("defaults: {teir: notify}", "policy.unknown_key", "did you mean `tier`?"),
        ("rules: []", "policy.unknown_key", "in org.yaml the list is called `overrides`"),
        (&on_write("path_prefx: /x"), "policy.unknown_condition", "did you mean `path_prefix`?"),
        (&on_write("contnt_matches: x"), "policy.no_such_argument", "did you mean `content`?"),
        (&on_write("contant_size_lt: 5"), "policy.no_such_argument", "did you mean `content_size_lt`?"),
        (&on_write("hours: {form: 08:00, to: 09:00, zone: UTC}"), "policy.unknown_key", "did you mean `from`?"),
        (
            &on_write("hours: {from: 08:00, to: 09:00, zone: UTC, days: [Monday]}"),
            "policy.value",
            "did you mean `mon`?",
        ),
    ] {
        let errors = load(org, &[]).unwrap_err();
        let fault = errors.faults.iter().find(|fault| fault.code == code).unwrap_or_else(|| panic!("{org}\n{errors}"));
        assert_eq!(fault.hint.as_deref(), Some(hint), "{errors}");
        assert!(fault.place.line > 0);
    }
    let loaded =
        load("overrides: [{capability: emial.send, tier: notify}, {capability: 'gti.*', tier: notify}]", &[]).unwrap();
    let hints: Vec<_> = loaded.warnings.iter().map(|fault| fault.hint.as_deref().unwrap()).collect();
    assert_eq!(hints, ["did you mean `email.send`?", "did you mean `git.*`?"]);
}

#[test]
fn all_errors_of_all_files_are_reported_at_once() {
    let errors = load(
        "defaults: {tier: never}\noverrides:\n  - {capability: '*.x', tier: notify}\n  - {tier: notify}\n  - 7\n",
        &[("a", "rules: [{capability: email.send}]"), ("b", "rules: {}\ncolour: red\n")],
    )
    .unwrap_err();
    let codes: Vec<(&str, u32, &str)> =
        errors.faults.iter().map(|fault| (fault.file.as_str(), fault.place.line, fault.code)).collect();
    assert_eq!(
        codes,
        [
            ("org.yaml", 1, "policy.tier"),
            ("org.yaml", 3, "policy.pattern"),
            ("org.yaml", 4, "policy.missing_key"),
            ("org.yaml", 5, "policy.type"),
            ("agents/a.yaml", 1, "policy.missing_key"),
            ("agents/b.yaml", 1, "policy.type"),
            ("agents/b.yaml", 2, "policy.unknown_key"),
        ]
    );
    assert_eq!(errors.errors(), 7);
}

#[test]
fn an_error_points_into_its_file() {
    let errors = load("overrides:\n  - capability: filesystem.read\n    tier: autonomous\n    conditions:\n      path_prefix: workspace/a\n", &[]).unwrap_err();
    insta::assert_snapshot!(errors.to_string(), @r"
    error: `workspace/a` cannot be a prefix: the path is relative [policy.path]
      --> org.yaml:5:20
       |
     5 |       path_prefix: workspace/a
       |                    ^^^^^^^^^^^
      hint: write an absolute path such as `/workspace/clerk/`
    ");
}

#[test]
fn rules_nobody_reaches_are_warned_about() {
    let both = |first: &str, second: &str| codes(&format!("overrides:\n  - {{{first}}}\n  - {{{second}}}\n"));
    assert_eq!(
        both("capability: 'email.*', tier: notify", "capability: email.send, tier: blocked"),
        ["policy.unreachable"]
    );
    assert_eq!(
        both("capability: email.send, tier: notify", "capability: email.send, tier: blocked"),
        ["policy.unreachable"]
    );
    let same = "capability: email.send, tier: notify, conditions: {recipients_max: 2}";
    assert_eq!(both(same, same), ["policy.unreachable"]);
    assert!(both("capability: email.send, tier: notify", "capability: 'email.*', tier: blocked").is_empty());
    assert!(both(same, "capability: email.send, tier: blocked").is_empty());
    assert_eq!(
        codes("overrides: [{capability: email.send, tier: blocked, conditions: {rate_limit: {max: 1, window: 1h}}}]"),
        ["policy.no_effect"]
    );
}

#[test]
fn limits_on_files_are_kept() {
    refused_with(&format!("# {}\n", "x".repeat(MAX_BYTES)), "policy.too_large");
    let many = |n: usize| format!("overrides: [{}]", "{},".repeat(n));
    refused_with(&many(MAX_RULES + 1), "policy.too_large");
    refused_with("a: &a [x]\nb: [*a, *a]\n", "policy.alias");
    refused_with(
        "overrides: [{capability: process.run, tier: notify, conditions: {command_matches: '(a{1000}){1000}'}}]",
        "policy.regex",
    );
    refused_with(
        "overrides: [{capability: process.run, tier: notify, conditions: {command_matches: 'a)|(?:b'}}]",
        "policy.regex",
    );
    refused_with(
        "overrides: [{capability: process.run, tier: notify, conditions: {command_matches: '(?=x)'}}]",
        "policy.regex",
    );
}

#[test]
fn two_files_for_one_agent_are_refused() {
    let errors = load("", &[("clerk", "rules: []"), ("clerk", "rules: []")]).unwrap_err();
    assert_eq!(errors.faults[0].code, "policy.two_files");
}

#[test]
fn the_version_names_exactly_these_rules() {
    let version = |org: &str, agents: &[(&str, &str)]| policy(org, agents).version().to_owned();
    let one = version(ORG, &[("a", "rules: []"), ("b", "")]);
    assert!(one.starts_with("sha256:") && one.len() == 71);
    assert_eq!(one, version(ORG, &[("b", ""), ("a", "rules: []")]));
    assert_ne!(one, version(ORG, &[("a", "rules: [] "), ("b", "")]));
    assert_ne!(one, version(ORG, &[("a", "rules: []")]));
    assert_ne!(version("", &[]), version("# x", &[]));
}

#[test]
fn a_bad_replacement_changes_nothing() {
    let catalogue = catalogue();
    let (live, _) = LivePolicy::new(&sources("defaults: {tier: notify}", &[]), &catalogue).unwrap();
    let before = live.get();
    assert!(live.replace(&sources("defaults: {tier: nope}", &[]), &catalogue).is_err());
    let failing = "defaults: {tier: autonomous}\ntests: [{given: {capability: email.send}, expect: {tier: blocked}}]\n";
    let errors = live.replace(&sources(failing, &[]), &catalogue).unwrap_err();
    assert_eq!((errors.faults[0].code, errors.faults[0].place.line), ("policy.test", 2));
    assert_eq!(live.get().version(), before.version());
    live.replace(&sources("defaults: {tier: blocked}", &[]), &catalogue).unwrap();
    assert_ne!(live.get().version(), before.version());
    assert_eq!(before.default_tier(), Some(Tier::Notify), "who judges keeps the policy it took");
}

#[test]
fn the_templates_load_without_warnings_and_pass_their_tests() {
    for template in TEMPLATES {
        let mut files = PolicySources::default();
        for file in template.files {
            let source = PolicySource { name: file.path.into(), text: file.text.into() };
            match file.path.strip_prefix("agents/").and_then(|name| name.strip_suffix(".yaml")) {
                Some(agent) => files.agents.push((AgentName::new(agent).unwrap(), source)),
                None => files.org = Some(source),
            }
        }
        let loaded = Policy::load(&files, &catalogue()).unwrap_or_else(|errors| panic!("{}\n{errors}", template.name));
        assert!(loaded.warnings.is_empty(), "{}: {}", template.name, PolicyLoadError { faults: loaded.warnings });
        let outcomes = loaded.policy.test();
        assert!(loaded.policy.test_count() >= 8, "{} has tests", template.name);
        let failed: Vec<String> = outcomes
            .iter()
            .filter(|outcome| !outcome.passed)
            .map(|one| {
                format!("{}:{} {:?} not {:?} by {:?}", one.file, one.place.line, one.got, one.expected, one.decided_by)
            })
            .collect();
        assert!(failed.is_empty(), "{}:\n{}", template.name, failed.join("\n"));
        for file in template.files {
            assert_eq!(
                format(file.path, file.text).as_deref(),
                Ok(file.text),
                "{} {} is formatted",
                template.name,
                file.path
            );
        }
    }
    assert_eq!(format("system.yaml", SYSTEM).as_deref(), Ok(SYSTEM));
}

/// Not in the template itself: in a project below `/tmp`, where everything may be written, these are free.
#[test]
fn the_coding_template_asks_before_an_agent_leaves_its_project_or_empties_it() {
    let template = TEMPLATES.iter().find(|template| template.name == "coding").unwrap();
    let text = |path: &str| template.files.iter().find(|file| file.path == path).unwrap().text;
    let policy = policy(text("org.yaml"), &[("coder", text("agents/coder.yaml"))]);
    for command in [
        "rm ../other/file",
        "find . -delete",
        "find .. -name x -exec rm {} \\;",
        "mv ../x .",
        "echo x > ../x",
        "cat ../secret.txt",
        "cd .. && rm notes.txt",
    ] {
        let arguments = json!({"command": command, "cwd": "/workspace/coder/"});
        assert_eq!(ask(&policy, "coder", "custom:exec_cmd", arguments).tier, Tier::ApprovalRequired, "{command}");
    }
    let arguments = json!({"path": "/workspace/coder/../x"});
    assert_eq!(ask(&policy, "coder", "custom:write_file", arguments).tier, Tier::ApprovalRequired);
}

#[test]
fn tests_say_which_rule_must_decide() {
    let org = "defaults: {tier: notify}\noverrides: [{capability: 'email.*', tier: blocked}]\ntests:\n  - {given: {capability: email.send}, expect: {tier: blocked, rule: 'email.*'}}\n  - {given: {capability: email.send}, expect: {tier: blocked, rule: email.send}}\n  - {given: {capability: slack.send}, expect: {tier: notify, rule: default}}\n";
    let outcomes = policy(org, &[]).test();
    let passed: Vec<bool> =
        outcomes.iter().filter(|outcome| outcome.file == "org.yaml").map(|outcome| outcome.passed).collect();
    assert_eq!(passed, [true, false, true]);
    refused_with("tests: [{given: {capabilty: email.send}, expect: {tier: blocked}}]", "policy.unknown_key");
    refused_with("tests: [{given: {capability: 'email.*'}, expect: {tier: blocked}}]", "policy.value");
    refused_with("tests: [{given: {capability: email.send}}]", "policy.missing_key");
}

#[test]
fn an_explanation_names_every_rule_it_considered() {
    let policy = policy(ORG, &[("bookkeeper", BOOKKEEPER)]);
    let agent = AgentName::new("bookkeeper").unwrap();
    let capability = CapabilityName::new("filesystem.delete").unwrap();
    let Value::Object(arguments) = json!({"path": "/workspace/bookkeeper/../other/x"}) else { panic!() };
    let explanation = policy.explain(&PolicyInput::new(&agent, &capability, &arguments, NOON));
    insta::assert_snapshot!(explanation.to_string(), @r#"
    filesystem.delete for bookkeeper: blocked
      "Cannot access files outside workspace"

    agent   agents/bookkeeper.yaml: blocked
      skipped line 18   filesystem.* -> autonomous
                fails  path_prefix: /workspace/bookkeeper (/workspace/other/x)
      matched line 22   filesystem.* -> blocked
      not considered: 5 about other capabilities

    org     org.yaml: approval_required
      matched line 8    filesystem.delete -> approval_required
      not considered: 2 about other capabilities

    system  system.yaml: no rule matched
      skipped line 29   filesystem.delete -> blocked
                fails  any_path_prefix: /bin, /boot, /dev, /etc, /lib, /lib32, /lib64, /libx32, … (/workspace/other/x)
      not considered: 16 about other capabilities

    base: the rule of the agent file
    verdict: blocked (agents/bookkeeper.yaml:22)
    "#);
    let value = serde_json::to_value(&explanation).unwrap();
    assert_eq!(value["decided_by"], "agents/bookkeeper.yaml:22");
    assert_eq!(value["layers"][0]["rules"][0]["state"], "skipped");
}

#[test]
fn a_rule_about_spawns_is_asked_as_well_and_only_makes_it_stricter() {
    let judge = |rules: &str, spawned: bool| {
        let policy = policy("defaults: {tier: autonomous}\n", &[("clerk", rules)]);
        let (agent, name) = (AgentName::new("clerk").unwrap(), CapabilityName::new("state.shared.get").unwrap());
        let (arguments, spawn) =
            (json!({"key": "plan"}), json!({"label": "board", "task": "feed", "timeout_minutes": 1}));
        let mut question = PolicyInput::new(&agent, &name, arguments.as_object().unwrap(), NOON);
        question.spawn = spawned.then(|| spawn.as_object().unwrap());
        let (verdict, explained) = (policy.judge_call(&question), policy.explain(&question));
        assert_eq!(verdict.tier(), explained.tier, "the explanation agrees");
        verdict.tier()
    };
    let named = "rules:\n  - {capability: proxy.spawn, tier: blocked, conditions: {label_in: [board]}}\n";
    assert_eq!((judge(named, true), judge(named, false)), (Tier::Blocked, Tier::Autonomous));
    let other = "rules:\n  - {capability: proxy.spawn, tier: blocked, conditions: {label_in: [other]}}\n";
    assert_eq!(judge(other, true), Tier::Autonomous, "its conditions are about the spawn");
    let looser = "rules:\n  - {capability: proxy.spawn, tier: autonomous}\n  - {capability: \"state.*\", tier: approval_required}\n";
    assert_eq!((judge(looser, true), judge(looser, false)), (Tier::ApprovalRequired, Tier::ApprovalRequired));
    for wide in ["proxy.*", "proxy.s*", "*"] {
        let rules = format!(
            "rules:\n  - {{capability: \"state.*\", tier: notify}}\n  - {{capability: \"{wide}\", tier: blocked}}\n"
        );
        assert_eq!(judge(&rules, true), Tier::Notify, "`{wide}` names no spawn");
    }
}
