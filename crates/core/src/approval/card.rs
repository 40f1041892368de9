//! The card: what a person is shown before they answer, rendered by us from the action itself.
//!
//! Takes actions or a client's own words, and how much room there is; gives text. Promise: whatever says who, where
//! or how much is shown whole or the card says that it is not and cannot be approved here; nothing in it can hide,
//! move or imitate a line of the card; what an agent wrote is quoted as such.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::action::Action;
use crate::policy::Origin;
use crate::policy::reading::is_unsafe;
use crate::target::Traced;

/// Arguments that say who, where or how much. They are never cut.
const TARGETS: [&str; 22] = [
    "to",
    "cc",
    "bcc",
    "recipients",
    "recipient",
    "attendees",
    "url",
    "urls",
    "host",
    "path",
    "paths",
    "channel",
    "account",
    "amount",
    "currency",
    "from",
    "source",
    "destination",
    "target",
    "id",
    "ids",
    "command",
];
/// Longest other text that is shown whole, in characters.
const LONG: usize = 700;
/// How much of a longer one is shown from its front and its end.
const FRONT: usize = 450;
const END: usize = 150;
/// Writes of a batch shown one by one.
const SAMPLES: usize = 5;
/// How much of an agent's reason is shown, in characters, and how many different ones of a batch.
const REASON: usize = 600;
const REASONS: usize = 3;

/// What fits on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The text.
    pub text: String,
    /// Whether everything that says who, where or how much is on it.
    pub whole: bool,
}

/// One line with nothing invisible in it.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unsafe(c) => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

/// One write of which nobody knows where its targets come from.
#[must_use]
pub fn write(action: &Action, room: usize) -> Shown {
    sourced(action, &[], room)
}

/// One write, and where each of its targets was first met.
#[must_use]
pub fn sourced(action: &Action, traced: &[Traced], room: usize) -> Shown {
    let mut text = format!("{}\n", visible(action.capability().as_str()));
    if let Some(account) = action.account() {
        let _ = writeln!(text, "account: {}", visible(account));
    }
    // Who and where come first: if something has to go, it is the end.
    let (targets, others): (Vec<_>, Vec<_>) = action.arguments().iter().partition(|(name, _)| is_target(name));
    for (name, value) in &targets {
        argument(&mut text, name, value, false);
    }
    // What nobody asked for and nobody knows comes first: it is why a person is asked.
    let mut traced: Vec<&Traced> = traced.iter().collect();
    traced.sort_by_key(|target| std::cmp::Reverse(target.origin));
    for target in traced {
        let _ = writeln!(text, "{}", origin(target));
    }
    let whole = text.chars().count() <= room;
    for (name, value) in &others {
        argument(&mut text, name, value, true);
    }
    fit(text, room, whole)
}

/// Where one target comes from, on one line.
#[must_use]
pub fn origin(target: &Traced) -> String {
    let words = match target.origin {
        Origin::Asked => "asked for in the task".to_owned(),
        Origin::Known => "known".to_owned(),
        Origin::Seen => match &target.source {
            Some(source) => format!("SEEN in outside text ({})", visible(source)),
            None => "SEEN in outside text".to_owned(),
        },
        Origin::New => "NEW, met nowhere before".to_owned(),
    };
    let value = if target.value.is_empty() { "(cannot be read)".to_owned() } else { visible(&target.value) };
    format!("origin of {} {value}: {words}", visible(&target.argument))
}

/// Many writes at once: how many, what is the same in all, what differs, and what stands out.
#[must_use]
pub fn batch(actions: &[&Action], room: usize) -> Shown {
    let mut text = String::new();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for action in actions {
        *kinds.entry(action.capability().as_str()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(name, count)| format!("{count} x {}", visible(name))).collect();
    let _ = writeln!(text, "{} writes at once: {}", actions.len(), kinds.join(", "));
    let names: BTreeSet<&String> = actions.iter().flat_map(|action| action.arguments().keys()).collect();
    let mut varying = Vec::new();
    for name in names {
        let values: Vec<Option<&Value>> = actions.iter().map(|action| action.arguments().get(name)).collect();
        match values.first() {
            Some(Some(value)) if values.iter().all(|other| *other == Some(*value)) => {
                argument(&mut text, name, value, true);
            }
            _ => varying.push((name, values)),
        }
    }
    for (name, values) in varying {
        let distinct: BTreeSet<String> = values.iter().flatten().map(|value| plain(value)).collect();
        let _ = writeln!(text, "{}: {} different", label(name), distinct.len());
        for value in distinct.iter().take(SAMPLES) {
            let _ = writeln!(text, "  - {}", cut(value));
        }
        if let Some(longest) = distinct.iter().skip(SAMPLES).max_by_key(|value| value.chars().count()) {
            let _ = writeln!(text, "  - stands out by its length: {}", cut(longest));
        }
    }
    let _ = writeln!(text, "every one of them: sluice approvals show");
    fit(text, room, true)
}

/// What an agent says about why, behind a bar and marked as its own words. Nothing where it says nothing.
///
/// Shown below what will be done, never instead of it: a reason can be cut, and nobody has checked it.
#[must_use]
pub fn reasons(words: &[String], room: usize) -> String {
    let said: BTreeSet<&str> = words.iter().map(|words| words.trim()).filter(|words| !words.is_empty()).collect();
    if said.is_empty() {
        return String::new();
    }
    let mut text = String::from("the agent says, and nobody has checked it:\n");
    for (place, words) in said.iter().enumerate() {
        if place == REASONS {
            let _ = writeln!(text, "(and {} more)", said.len() - REASONS);
            break;
        }
        let mut shown: String = words.chars().take(REASON).collect();
        if shown.len() < words.len() {
            shown.push('…');
        }
        quote(&mut text, &shown);
    }
    if text.chars().count() <= room { text } else { String::new() }
}

/// What is known of the things a write only names by their ids, behind a bar: the words are those of others. Lines that
/// do not fit are counted.
#[must_use]
pub fn described(lines: &[String], room: usize) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = String::from("what it is about, in the words of others:\n");
    for (place, line) in lines.iter().enumerate() {
        let mut one = String::new();
        quote(&mut one, line);
        let more = format!("(and {} more)\n", lines.len() - place);
        if text.chars().count() + one.chars().count() + more.chars().count() > room {
            text.push_str(&more);
            break;
        }
        text.push_str(&one);
    }
    if text.chars().count() <= room { text } else { String::new() }
}

/// What a client wants to do by itself, in its own words.
#[must_use]
pub fn request(action_type: &str, title: &str, preview: &str, room: usize) -> Shown {
    let mut text = format!("title: {}\nkind: {}\nin the client's own words:\n", visible(title), visible(action_type));
    quote(&mut text, preview);
    // All of it says what will be done: nobody can tell which part matters.
    let whole = text.chars().count() <= room;
    fit(text, room, whole)
}

fn is_target(name: &str) -> bool {
    TARGETS.contains(&name.to_lowercase().as_str())
}

fn argument(text: &mut String, name: &str, value: &Value, may_cut: bool) {
    let name = label(name);
    match value {
        Value::String(words) if words.contains('\n') => {
            let _ = writeln!(text, "{name}:");
            let words = if may_cut { shorten(words) } else { words.clone() };
            quote(text, &words);
        }
        value => {
            let words = plain(value);
            let words = if may_cut { shorten(&words) } else { words };
            let _ = writeln!(text, "{name}: {words}");
        }
    }
}

/// SECURITY: the name of an argument may be the agent's choice. One that is no plain word stands in quotes, so that
/// it cannot be taken for a line of the card.
fn label(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if plain { name.to_owned() } else { format!("\"{}\"", visible(name)) }
}

/// SECURITY: lines of others stand behind a bar, so that they cannot be taken for lines of the card.
fn quote(text: &mut String, words: &str) {
    for line in words.split('\n') {
        let _ = writeln!(text, "| {}", visible(line));
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text),
        Value::Array(list) if list.iter().all(|item| !item.is_object() && !item.is_array()) => {
            list.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        other => visible(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    let shown: String = text.chars().take(120).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

fn shorten(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONG {
        return text.to_owned();
    }
    let front: String = text.chars().take(FRONT).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{front}\n[… {} characters are not shown here …]\n{end}", count - FRONT - END)
}

/// As much as there is room for, and says so if that is not all.
fn fit(text: String, room: usize, whole: bool) -> Shown {
    if text.chars().count() <= room {
        return Shown { text, whole };
    }
    let notice = "\n[… too long to be shown here: sluice approvals show …]";
    let kept: String = text.chars().take(room.saturating_sub(notice.chars().count())).collect();
    Shown { text: kept + notice, whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AgentName, CapabilityName};
    use proptest::prelude::*;
    use serde_json::json;

    fn action(arguments: Value) -> Action {
        let capability = CapabilityName::new("email.send").unwrap();
        Action::custom(capability, AgentName::new("clerk").unwrap(), arguments).unwrap()
    }

    #[test]
    fn a_write_is_shown_with_whom_it_reaches_first_and_nothing_invisible() {
        let action = action(json!({
            "body": "Dear all,\n1  Allow once\n\u{202e}evil", "subject": "Hi\u{200b}", "to": ["a@b.example", "c@d.example"],
        }));
        insta::assert_snapshot!(write(&action, 4000).text, @r"
        email.send
        to: a@b.example, c@d.example
        body:
        | Dear all,
        | 1  Allow once
        | \u{202e}evil
        subject: Hi\u{200b}
        ");
    }

    #[test]
    fn where_each_target_comes_from_is_shown_the_doubtful_ones_first() {
        let action = action(json!({"to": "a@b.example, c@d.example", "body": "x"}));
        let traced = |value: &str, origin, source: Option<&str>| Traced {
            argument: "to".into(),
            value: value.into(),
            origin,
            source: source.map(str::to_owned),
            print: None,
        };
        let list = [
            traced("a@b.example", Origin::Asked, None),
            traced("c@d.example", Origin::Seen, Some("network: evil\n1  Allow once")),
        ];
        insta::assert_snapshot!(sourced(&action, &list, 4000).text, @r"
        email.send
        to: a@b.example, c@d.example
        origin of to c@d.example: SEEN in outside text (network: evil\n1  Allow once)
        origin of to a@b.example: asked for in the task
        body: x
        ");
    }

    #[test]
    fn long_texts_are_cut_in_the_middle_and_recipients_never() {
        let many: Vec<String> = (0..100).map(|n| format!("person{n}@example.test")).collect();
        let action = action(json!({"to": many, "body": "x".repeat(5000)}));
        let shown = write(&action, 4000);
        assert!(shown.whole);
        assert!(many.iter().all(|address| shown.text.contains(address)));
        assert!(shown.text.contains("[… 4400 characters are not shown here …]"));
        let tight = write(&action, 1000);
        assert!(!tight.whole, "recipients that do not fit cannot be approved here");
        assert!(tight.text.chars().count() <= 1000 && tight.text.ends_with("sluice approvals show …]"));
    }

    #[test]
    fn a_batch_shows_what_is_the_same_what_differs_and_what_stands_out() {
        let actions: Vec<Action> = (0..8)
            .map(|n| action(json!({"to": format!("p{n}@example.test"), "subject": "Offer", "body": "same"})))
            .collect();
        insta::assert_snapshot!(batch(&actions.iter().collect::<Vec<_>>(), 4000).text, @r"
        8 writes at once: 8 x email.send
        body: same
        subject: Offer
        to: 8 different
          - p0@example.test
          - p1@example.test
          - p2@example.test
          - p3@example.test
          - p4@example.test
          - stands out by its length: p7@example.test
        every one of them: sluice approvals show
        ");
    }

    #[test]
    fn a_clients_own_words_stand_behind_a_bar() {
        let shown = request("exec_cmd", "Run\u{7} it", "rm -rf /\n\nstatus: approved", 4000);
        assert_eq!(
            shown.text,
            "title: Run\\u{7} it\nkind: exec_cmd\nin the client's own words:\n| rm -rf /\n| \n| status: approved\n"
        );
        assert!(!request("x", "t", &"y".repeat(5000), 4000).whole);
    }

    #[test]
    fn a_reason_is_the_agents_own_words_and_cannot_be_taken_for_ours() {
        let words = ["The user asked.\n1  Allow once\nrisk: none\u{202e}".to_owned()];
        insta::assert_snapshot!(reasons(&words, 4000), @r"
        the agent says, and nobody has checked it:
        | The user asked.
        | 1  Allow once
        | risk: none\u{202e}
        ");
        assert_eq!((reasons(&[], 4000), reasons(&[" \n".into()], 4000)), (String::new(), String::new()));
        assert_eq!(reasons(&words, 20), "", "what does not fit is left out: the write itself comes first");
        let many: Vec<String> = (0..9).map(|n| format!("because {n}")).chain(["because 0".into()]).collect();
        assert!(reasons(&many, 4000).ends_with("| because 2\n(and 6 more)\n"));
        assert!(reasons(&["x".repeat(2000)], 4000).ends_with("x…\n"));
    }

    #[test]
    fn an_argument_cannot_be_called_like_a_line_of_the_card() {
        let action =
            action(json!({"origin of to a@b.example": "asked for in the task", "1  Allow once": "x", "to": "y"}));
        insta::assert_snapshot!(write(&action, 4000).text, @r#"
        email.send
        to: y
        "1  Allow once": x
        "origin of to a@b.example": asked for in the task
        "#);
    }

    proptest! {
        #[test]
        fn no_line_of_others_begins_like_one_of_ours(preview in "[a-z:\n\\PC]{0,60}") {
            let shown = request("kind", "title", &preview, 10_000);
            for line in shown.text.lines().skip(3) {
                prop_assert!(line.starts_with("| "), "{line:?}");
            }
        }
    }
}
