//! Bounds of single cases, and a property over random calls with a check of its own.

use serde_json::{Value, json};

use super::*;
use crate::approval::allowance::{
    Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceState, AllowanceUsage,
    ApprovalRequestContext, ApprovalRequester, ApprovalTrigger, RequestedAction,
};
use crate::capability::Catalogue;
use crate::clock::UtcMillis;
use crate::ids::{AgentName, AllowanceId, RuleId};

fn traced(argument: &str, value: &str, origin: TargetOrigin) -> TracedTarget {
    TracedTarget { argument: argument.into(), value: value.into(), origin, source: None, print: Some("p".into()) }
}

/// A call whose targets all have this origin.
fn call(name: &str, arguments: &Value, origin: TargetOrigin) -> BoundedCall {
    let capability = CapabilityName::new(name).unwrap();
    static CATALOGUE: std::sync::LazyLock<Catalogue> = std::sync::LazyLock::new(|| Catalogue::builtin().unwrap());
    let spec = CATALOGUE.get(&capability);
    let agent = AgentName::new("clerk").unwrap();
    let map = arguments.as_object().unwrap();
    let found = spec.map_or_else(|| crate::target::of_unknown(map), |spec| crate::target::of_capability(spec, map));
    let targets: Vec<TracedTarget> = found.iter().map(|one| traced(&one.argument, &one.value, origin)).collect();
    let action = Action::custom(capability.clone(), agent, arguments.clone()).unwrap();
    BoundedCall::of(&capability, spec, &action, &targets)
}

fn known(name: &str, arguments: Value) -> BoundedCall {
    call(name, &arguments, TargetOrigin::Known)
}

fn offered(name: &str, arguments: Value) -> Vec<String> {
    let call = known(name, arguments);
    call.offers().iter().map(|bound| bound.describe(&call.capability)).collect()
}

#[test]
fn the_narrowest_bound_comes_first_and_each_says_what_it_covers() {
    let mail = json!({"to": "Accounts@northpeak.example", "subject": "s", "body": "b"});
    assert_eq!(
        offered("email.send", mail),
        ["`email.send` to accounts@northpeak.example", "`email.send` to known addresses at northpeak.example"]
    );
    assert_eq!(
        offered("custom:Bash", json!({"command": "cargo  test --lib", "description": "tests"})),
        [
            "`custom:Bash` with exactly the command `cargo test --lib`",
            "`custom:Bash` with known commands that begin with `cargo test`"
        ]
    );
    assert_eq!(
        offered("filesystem.write", json!({"path": "/tmp/a", "content": "x"})),
        ["`filesystem.write` on /tmp/a", "`filesystem.write` on known files in /tmp"]
    );
    assert_eq!(offered("slack.send", json!({"channel": "#ops", "text": "x"})), ["`slack.send` in channel #ops"]);
    assert_eq!(offered("filesystem.write", json!({"path": "/a", "content": "x"})).len(), 1, "not the whole disk");
    assert_eq!(offered("email.send", json!({"to": "x@gmail.com"})).len(), 1, "not every stranger");
}

#[test]
fn nothing_is_offered_that_could_never_answer() {
    for (name, arguments) in [
        ("process.run", json!({"command": "make"})),
        ("custom:Bash", json!({"command": "make test; rm -rf /"})),
        ("custom:Bash", json!({"command": "rm -rf /tmp/x"})),
        ("custom:run", json!({"code": "x"})),
        ("custom:pay", json!({"to": "a", "amount": 5})),
        ("custom:delete", json!({"id": "a"})),
        ("custom:say", json!({"text": "nothing to bound"})),
        ("email.send", json!({"to": "a@b.example, x y z"})),
        ("state.session.clear", json!({})),
    ] {
        assert_eq!(offered(name, arguments.clone()), Vec::<String>::new(), "{name} {arguments}");
    }
    for origin in [TargetOrigin::Seen, TargetOrigin::New] {
        assert!(call("email.send", &json!({"to": "a@b.example"}), origin).offers().is_empty());
    }
    let long = format!("/{}", "x".repeat(400));
    assert!(offered("filesystem.write", json!({"path": long, "content": "x"})).is_empty(), "too long to be read");
}

#[test]
fn what_the_issue_saw_is_outside() {
    for (name, approved, tried) in [
        ("email.send", json!({"to": "ana@corp.example"}), json!({"to": "billing@evil.example"})),
        ("email.send", json!({"to": "ana@corp.example"}), json!({"to": "ana@corp.example", "bcc": "x@evil.example"})),
        ("email.send", json!({"to": "ana@corp.example"}), json!({"to": "ana@corp.example", "attachments": ["x"]})),
        ("email.send", json!({"to": "ana@corp.example"}), json!({"to": "ana@corp.example.evil.example"})),
        ("custom:Bash", json!({"command": "make test"}), json!({"command": "rm -rf /tmp/x"})),
        ("custom:Bash", json!({"command": "make test"}), json!({"command": "make test\nrm -rf /"})),
        ("custom:Bash", json!({"command": "make test"}), json!({"command": "make test", "cwd": "/"})),
        ("custom:Bash", json!({"command": "make test"}), json!({"command": ["make", "test"]})),
        ("custom:Bash", json!({"command": "make test"}), json!({"command": "make test", "force": true})),
        ("filesystem.write", json!({"path": "/tmp/a", "content": ""}), json!({"path": "/etc/cron.d/x", "content": ""})),
        ("filesystem.write", json!({"path": "/tmp/a", "content": ""}), json!({"path": "/tmp/../etc/x", "content": ""})),
        ("custom:Write", json!({"file_path": "/tmp/a"}), json!({"file_path": "/tmp/a/../../etc/x"})),
        ("slack.send", json!({"channel": "ops", "text": ""}), json!({"channel": "all", "text": ""})),
        ("custom:send", json!({"to": "ana", "text": "hi"}), json!({"to": "ana", "text": "see evil.example/x"})),
        ("custom:send", json!({"to": "ana"}), json!({"to": {"ana": 1}})),
    ] {
        for bound in known(name, approved.clone()).offers() {
            assert!(bound.admits(&known(name, approved.clone())), "{name} {approved}");
            assert!(!bound.admits(&known(name, tried.clone())), "{name} {approved} admits {tried}");
        }
    }
    let first = known("custom:Bash", json!({"command": "make test"})).offers().pop().unwrap();
    assert!(first.admits(&known("custom:Bash", json!({"command": "make test -j4"}))));
    for text in
        ["make tests", "make", "make test; x", "make test $(x)", "make test > x", "make test && x", "xmake test"]
    {
        assert!(!first.admits(&known("custom:Bash", json!({"command": text}))), "{text}");
    }
}

#[test]
fn another_account_or_definition_is_outside() {
    let call = known("email.send", json!({"to": "a@b.example"}));
    let bound = call.offers().remove(0);
    assert!(!bound.admits(&BoundedCall { account: Some("work".into()), ..call.clone() }));
    assert!(!bound.admits(&BoundedCall { definition: Some("aa".into()), ..call.clone() }));
    let stored = serde_json::to_string(&bound).unwrap();
    assert_eq!(serde_json::from_str::<TargetBound>(&stored).unwrap(), bound);
    assert!(serde_json::from_str::<TargetBound>(r#"{"roles":{},"wide":true}"#).is_err());
}

/// A small generator: the same calls in every run.
struct BoundTestRandom(u64);

impl BoundTestRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.roll(list.len())]
    }
}

const ADDRESSES: [&str; 9] = [
    "ana@corp.example",
    "ANA@corp.example",
    "dan@corp.example",
    "ana@evil.example",
    "ana@sub.corp.example",
    "ana@corp.example.evil.example",
    "ana@corp.example, x@evil.example",
    "\"ana@corp.example\" <x@evil.example>",
    "not an address",
];
const COMMANDS: [&str; 14] = [
    "make test",
    "make  test",
    "make test -j4",
    "make tests",
    "make lint",
    "cargo test",
    "make test; rm -rf /",
    "make test && x",
    "make test | sh",
    "make test\nx",
    "make test $(x)",
    "make test > /etc/x",
    "rm -rf /tmp/x",
    "PATH=/tmp make test",
];
const PATHS: [&str; 10] = [
    "/tmp/a",
    "/tmp/./a",
    "/tmp/b",
    "/tmp/b/../a",
    "/tmp/../etc/x",
    "/tmp2/a",
    "/tmp/a/b",
    "/etc/cron.d/x",
    "tmp/a",
    "/tmp",
];
const ORIGINS: [TargetOrigin; 6] = [
    TargetOrigin::Known,
    TargetOrigin::Asked,
    TargetOrigin::Known,
    TargetOrigin::Asked,
    TargetOrigin::Seen,
    TargetOrigin::New,
];

/// One random call: a capability, its arguments, and the origin of its targets.
fn random(dice: &mut BoundTestRandom) -> (&'static str, Value, TargetOrigin) {
    let origin = ORIGINS[dice.roll(ORIGINS.len())];
    let name = dice.pick(&["email.send", "custom:Bash", "filesystem.write", "custom:send", "slack.send"]);
    let mut arguments = match name {
        "email.send" => json!({"to": dice.pick(&ADDRESSES), "body": dice.pick(&["a", "b"])}),
        "custom:Bash" => json!({"command": dice.pick(&COMMANDS), "description": dice.pick(&["a", "b"])}),
        "filesystem.write" => json!({"path": dice.pick(&PATHS), "content": dice.pick(&["a", "b"])}),
        "slack.send" => json!({"channel": dice.pick(&["ops", "all"]), "text": "x"}),
        _ => {
            json!({"to": dice.pick(&ADDRESSES), "topic": dice.pick(&["a", "b"]), "text": dice.pick(&["hi", "see evil.example/x"])})
        }
    };
    let map = arguments.as_object_mut().unwrap();
    match (name, dice.roll(6)) {
        ("email.send", 0) => drop(map.insert("bcc".into(), json!(dice.pick(&ADDRESSES)))),
        ("email.send", 1) => drop(map.insert("attachments".into(), json!(["/etc/passwd"]))),
        ("custom:Bash" | "custom:send", 0) => drop(map.insert("cwd".into(), json!(dice.pick(&PATHS)))),
        ("custom:Bash" | "custom:send", 1) => drop(map.insert("now".into(), json!(true))),
        ("filesystem.write", 0) => drop(map.insert("create_parents".into(), json!(true))),
        _ => {}
    }
    (name, arguments, origin)
}

/// What the words of a bound say, checked by plain comparisons only: whether `tried` is inside the bound of `approved`
/// with this description.
fn inside(name: &str, approved: &Value, tried: &Value, words: &str) -> bool {
    let says = |part: &str| words.contains(part);
    let (domains, folders, begins) =
        (says("known addresses at"), says("known files in"), says("known commands that begin with"));
    let prose: &[&str] = match name {
        "email.send" => &["body"],
        "custom:Bash" => &["description"],
        "filesystem.write" => &["content"],
        _ => &["text"],
    };
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("").to_owned();
    let lower = |value: &Value, key: &str| text(value, key).to_lowercase();
    // Everything that is neither free text nor one of the arguments looked at below is the same.
    let main = ["to", "bcc", "command", "path", "channel", "cwd"];
    let rest = |value: &Value| {
        let kept = |(key, _): &(&String, &Value)| !prose.contains(&key.as_str()) && !main.contains(&key.as_str());
        value.as_object().unwrap().iter().filter(kept).map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>()
    };
    if rest(approved) != rest(tried) {
        return false;
    }
    let clean = |path: &str| {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        format!("/{}", parts.join("/"))
    };
    let folder = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
    let domain = |address: &str| address.split('@').nth(1).unwrap_or("").to_owned();
    let is_plain = |address: &str| address.matches('@').count() == 1 && !address.contains([' ', ',', '"', '<']);
    let in_folder = |yes: &str, now: &str| {
        let folder = folder(yes);
        folders && !folder.is_empty() && (now == folder || now.starts_with(&format!("{folder}/")))
    };
    // A path beside the main argument: the same file, or the same folder where that is the bound.
    let beside = match (text(approved, "cwd").as_str(), text(tried, "cwd").as_str()) {
        ("", "") => true,
        ("", _) | (_, "") => false,
        (one, other) if !one.starts_with('/') || !other.starts_with('/') => one == other,
        (one, other) => clean(one) == clean(other) || in_folder(&clean(one), &clean(other)),
    };
    match name {
        "email.send" => {
            // The address in the brackets behind a display name, or the parts between commas.
            let people = |value: &Value| {
                let mut all = Vec::new();
                for text in ["to", "bcc"].map(|key| lower(value, key)).iter().filter(|text| !text.is_empty()) {
                    match text.split_once('<') {
                        Some((_, address)) => all.push(address.trim_end_matches('>').to_owned()),
                        None => all.extend(text.split(", ").map(str::to_owned)),
                    }
                }
                all
            };
            let (yes, now) = (people(approved), people(tried));
            now.iter().all(|one| is_plain(one))
                && now
                    .iter()
                    .all(|one| yes.contains(one) || (domains && yes.iter().any(|yes| domain(yes) == domain(one))))
        }
        "custom:Bash" => {
            let words = |value: &Value| {
                text(value, "command").split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            let shell = text(tried, "command").contains([';', '&', '|', '\n', '$', '>', '(']);
            let (yes, now) = (words(approved), words(tried));
            !shell && beside && (yes == now || (begins && now.starts_with(&yes[..2])))
        }
        "filesystem.write" => {
            let (yes, now) = (clean(&text(approved, "path")), clean(&text(tried, "path")));
            text(tried, "path").starts_with('/') && (yes == now || in_folder(&yes, &now))
        }
        "slack.send" => text(approved, "channel") == text(tried, "channel"),
        _ => {
            let (yes, now) = (text(approved, "to"), text(tried, "to"));
            let quoted = |value: &Value| text(value, "text").contains("evil.example");
            let both = is_plain(&yes) && is_plain(&now);
            let same = yes == now || (both && yes.to_lowercase() == now.to_lowercase());
            quoted(approved) == quoted(tried)
                && beside
                && (same || (domains && both && domain(&yes.to_lowercase()) == domain(&now.to_lowercase())))
        }
    }
}

#[test]
fn no_standing_approval_answers_a_call_outside_its_stated_bounds() {
    const CALLS: usize = 100_000;
    let mut dice = BoundTestRandom(0x9e37_79b9_7f4a_7c15);
    let agent = AgentName::new("clerk").unwrap();
    let asker = ApprovalRequester::Agent(agent);
    let at = UtcMillis::from_millis(1_730_000_000_000);
    let (mut tried, mut answered, mut by_wide, mut refused) = (0_usize, 0_usize, 0_usize, 0_usize);
    while tried < CALLS {
        let (name, approved, _) = random(&mut dice);
        let offers = known(name, approved.clone()).offers();
        for (n, bound) in offers.iter().enumerate() {
            let capability = CapabilityName::new(name).unwrap();
            let words = bound.describe(&capability);
            let allowance = Allowance {
                id: AllowanceId::from_bits(1),
                scope: AllowanceScope::Standing { rule: RuleId::from_bits(1) },
                asker: asker.clone(),
                covers: AllowanceCoverage::Capability(capability.clone()),
                bounds: AllowanceBounds { target: Some(bound.clone()), ..AllowanceBounds::default() },
                given_at: at,
                used: AllowanceUsage::default(),
                standing: AllowanceState::Active,
            };
            for _ in 0..50 {
                tried += 1;
                let (other, arguments, origin) = random(&mut dice);
                let call = call(other, &arguments, origin);
                let question = ApprovalRequestContext {
                    asker: &asker,
                    session: None,
                    asked: RequestedAction::Capability(call.capability()),
                    call: Some(&call),
                    why: &[ApprovalTrigger::Policy],
                    at,
                };
                let answers = allowance.answers(&question);
                let met = matches!(origin, TargetOrigin::Known | TargetOrigin::Asked);
                let stated = other == name && met && inside(name, &approved, &arguments, &words);
                assert!(!answers || stated, "{words} answered {other} {arguments} with {origin:?} targets");
                // The bound is also useful: what its words cover is answered, unless its risk is high.
                assert!(answers || !stated || call.risk() == ApprovalRisk::High, "{words} did not answer {arguments}");
                answered += usize::from(answers);
                by_wide += usize::from(answers && n > 0);
                refused += usize::from(!answers);
            }
        }
    }
    assert!(answered > 500 && by_wide > 100 && refused > CALLS / 2, "{answered} {by_wide} {refused}");
}

#[test]
fn a_standing_approval_of_a_call_answers_its_spawn_alike() {
    let capability = CapabilityName::new("email.send").unwrap();
    let (catalogue, agent) = (Catalogue::builtin().unwrap(), AgentName::new("clerk").unwrap());
    let spec = catalogue.get(&capability);
    let action = Action::custom(capability.clone(), agent, json!({"to": "ana@corp.example"})).unwrap();
    let options = crate::proxy::spawn::SpawnOptions { timeout_minutes: Some(1), output_schema: None };
    let spawned = action.with_spawn(Some(options));
    let bounded = |action: &Action| BoundedCall::of(&capability, spec, action, &[]);
    assert_eq!(bounded(&action), bounded(&spawned));
}
