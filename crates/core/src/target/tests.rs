//! Targets found and compared in full.

use super::*;
use crate::capability::Catalogue;
use crate::ids::CapabilityName;
use proptest::prelude::*;
use serde_json::{Value, json};

fn unknown(arguments: &Value) -> Vec<(String, String)> {
    let Value::Object(map) = arguments else { panic!() };
    of_unknown(map).into_iter().map(|target| (target.argument, target.value)).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The family of a mail.
fn mail() -> Option<CapabilityFamily> {
    CapabilityFamily::of(&CapabilityName::new("custom:mail").unwrap(), None, &Map::new())
}

fn asked(task: &str, value: &str) -> bool {
    TextValues::new(task).contains_target(&CallTarget::new("x", value, false))
}

#[test]
fn a_target_is_asked_for_only_as_a_whole_value() {
    for (task, value) in [
        ("Send the minutes to ana@corp.example, please.", "ana@corp.example"),
        ("Send the minutes to <Ana@Corp.example>.", "ana@corp.example"),
        ("Reply to Bob's mail", "Bob"),
        ("Post it in #general!", "general"),
        ("Open (https://docs.example/Start).", "https://docs.example/Start"),
        ("Summarise www.docs.example", "https://www.docs.example/"),
        ("Pay $1,200.50 to DE89370400440532013000", "$1,200.5"),
        ("Pay $1,200.50 to DE89370400440532013000", "DE89370400440532013000"),
        ("Book a room at the Riverside View Hotel.", "Riverside View Hotel"),
        ("Read [the start](https://docs.example/Start).", "docs.example/Start"),
        ("Mail a@x.example,b@x.example", "b@x.example"),
        ("Book the table at Mr. Smith's Hotel.", "Mr. Smith's Hotel"),
        ("Write to _ana@corp.example now", "_ana@corp.example"),
        ("Remove {old} from it", "{old}"),
        ("Pay $50 to alice", "$50"),
    ] {
        assert!(asked(task, value), "{task} / {value}");
    }
    for (task, value) in [
        ("Send it to ana@corp.example", "corp.example"),
        ("Send it to ana@corp.example", "na@corp.example"),
        ("Send it to ana@corp.example", "ana@corp.example.evil.net"),
        ("Send it to ana@corp.example.evil.net", "ana@corp.example"),
        ("Open www.docs.example", "www.docs.example/steal?x=1"),
        ("Open www.docs.example/a?b=c", "www.docs.example"),
        ("Open bit.ly/AbC", "bit.ly/abc"),
        ("Open https://good.example/?to=evil.example", "evil.example"),
        ("Open https://good.example/a,evil.example", "evil.example"),
        ("Pay 50 to Bob", "5"),
        ("Pay 50 to Bob", "500"),
        ("Pay 50 to Bob", "Bo"),
        ("Book the Riverside View Hotel", "Riverside Hotel"),
        ("Book the Riverside View Hotel", "Riverside View Hotel Annex"),
        ("Send it to alice", "аlice"),
        // Punctuation in a text belongs to no value; in a call it changes the value.
        ("Send it to ana@corp.example", "_ana@corp.example"),
        ("Send it to ana@corp.example", "'ana@corp.example"),
        ("Send it to ana@corp.example", "*ana@corp.example"),
        ("Send it to ana@corp.example", "#ana@corp.example"),
        ("Send it to alice", "alice_"),
        ("Send it to alice", "~alice"),
        ("Send it to alice", "`alice`"),
        ("Remove the reports", "reports*"),
        ("Remove the reports", "../reports"),
        ("Remove the reports", "~/reports"),
        ("Pay $50 to alice", "50%"),
        ("Pay $50 to alice", "€50"),
        ("", ""),
        ("...", "."),
    ] {
        assert!(!asked(task, value), "{task} / {value}");
    }
}

#[test]
fn a_bare_number_names_something_only_where_it_is_called_one() {
    assert!(!asked("What do we do on June 13?", "13") && asked("Delete the file with ID '13'.", "13"));
    let amount =
        |task: &str, value: &str| TextValues::new(task).contains_target(&CallTarget::new("amount", value, true));
    assert!(amount("Pay 13 to Bob", "13.0") && !amount("Pay 13 to Bob", "130"));
}

#[test]
fn a_manifest_says_which_arguments_are_targets() {
    let catalogue = Catalogue::builtin().unwrap();
    let spec = catalogue.get(&CapabilityName::new("email.send").unwrap()).unwrap();
    let Value::Object(arguments) = json!({
        "to": "Ana <ana@corp.example>, bob@corp.example", "cc": ["not an address"], "subject": "see www.evil.example",
        "body": "x",
    }) else {
        panic!()
    };
    let targets = of_capability(spec, &arguments);
    let shown: Vec<_> = targets.iter().map(|t| (t.argument.as_str(), t.value.as_str())).collect();
    assert_eq!(shown, [("to", "ana@corp.example"), ("to", "bob@corp.example"), ("cc", "")]);
    assert!(
        !TextValues::new("not an address").contains_target(&targets[2]),
        "what cannot be read was asked for by nobody"
    );
}

#[test]
fn the_targets_of_an_unknown_tool_are_found_by_name_and_shape() {
    assert_eq!(
        unknown(&json!({
            "recipient": "US133000000121212121212", "amount": 50.0, "subject": "Rent", "date": "2022-01-01",
            "recurring": true,
        })),
        pairs(&[("amount", "50.0"), ("recipient", "US133000000121212121212")])
    );
    assert_eq!(
        unknown(&json!({"recipient": "Alice", "body": "look at www.secure-252.example, or mail x@evil.example. Tea?"})),
        pairs(&[("body", "www.secure-252.example"), ("body", "x@evil.example"), ("recipient", "Alice")])
    );
    assert_eq!(
        unknown(
            &json!({"message_id": "13", "eventTitle": "Lunch", "start_time": "delete everything", "end_time": "2024-05-19 13:00"})
        ),
        pairs(&[("message_id", "13"), ("start_time", "delete everything")])
    );
    assert_eq!(
        unknown(&json!({"people": [{"name": "Bob", "note": "call +1 555-123-4567"}], "to": []})),
        pairs(&[("people[0].name", "Bob"), ("people[0].note", "555-123-4567"), ("people[0].note", "+1555-123-4567")])
    );
}

#[test]
fn what_is_carried_out_is_a_target_and_so_are_keys_that_say_who() {
    assert_eq!(
        unknown(&json!({"database": "main", "query": "DROP TABLE users"})),
        pairs(&[("database", "main"), ("query", "DROP TABLE users")])
    );
    assert_eq!(
        unknown(&json!({"file": "plan", "permissions": {"mallory": true}, "options": {"recursive": true}})),
        pairs(&[("file", "plan"), ("permissions", "mallory")])
    );
    assert_eq!(
        unknown(&json!({"settings": {"mallory@evil.example": null, "colour": "red"}})),
        pairs(&[("settings.colour", "red"), ("settings", "mallory@evil.example")])
    );
}

#[test]
fn accounts_telephones_and_hosts_are_found_as_people_write_them() {
    let found = |text: &str| unknown(&json!({ "body": text })).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(found("pay to DE89 3704 0044 0532 0130 00, thanks"), ["DE89370400440532013000"]);
    assert_eq!(found("call +1 555 123 4567 now"), ["+15551234567"]);
    for host in ["evil.rs", "evil.zip", "evil.COM", "203.0.113.5:80/x", "//evil.example/a", "evil。example"] {
        assert_eq!(found(&format!("see [x]({host}) please")), [host], "{host}");
    }
    for text in
        ["the 12 of May 2024 at 10:30", "plans.docx and notes.txt", "The end.Next one", "rooms 101, 102 and 103"]
    {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[test]
fn too_many_or_too_deep_is_a_target_nobody_has_met() {
    let many: Vec<String> = (0..1000).map(|n| format!("p{n}")).collect();
    let Value::Object(map) = json!({"to": many}) else { panic!() };
    let found = of_unknown(&map);
    assert_eq!((found.len(), found.last().unwrap().value.as_str()), (MOST + 1, ""));
    let deep = (0..50).fold(json!("x"), |inner, _| json!([inner]));
    let Value::Object(map) = json!({"to": deep}) else { panic!() };
    assert!(of_unknown(&map).iter().any(|target| target.forms.is_empty()));
}

#[test]
fn what_was_met_is_found_again_and_only_in_its_own_session() {
    let met = TextValueHashes::of("Please wire it to evil@example.net (Mallory Smith)", 1);
    let target = |value: &str| CallTarget::new("to", value, false);
    assert!(met.has(&target("evil@example.net"), 1) && met.has(&target("Mallory Smith"), 1));
    assert!(!met.has(&target("evil@example.net"), 2), "numbers of another session say nothing");
    assert!(!met.has(&target("example.net"), 1) && !met.has(&target(""), 1));
    assert_eq!(TextValueHashes::from_bytes(&met.to_bytes()), met);
}

#[test]
fn what_people_wrote_down_is_known_whole_by_domain_or_by_folder() {
    let target = |value: &str| CallTarget::new("to", value, false);
    assert!(
        target("Ana@corp.example").matches_written("ana@corp.example")
            && target("ana@corp.example").matches_written("@corp.example")
    );
    assert!(
        !target("ana@evil.corp.example").matches_written("@corp.example")
            && !target("corp.example").matches_written("@corp.example")
    );
    assert!(target("/desk/a/b").matches_written("/desk/") && !target("/desk/../etc/passwd").matches_written("/desk/"));
    assert!(!target("/deskside/a").matches_written("/desk/") && !target("/desk/").matches_written("/desk/"));
    assert!(target("/desk/my plans/a.txt").matches_written("/desk/") && target("/desk/a/").matches_written("/desk/"));
    for out in
        ["/desk/..", "/desk/./..", "/desk/a/..", "/desk//etc", "/desk/a\\..\\..", "/desk/%2e%2e/etc", "../desk/a"]
    {
        assert!(!target(out).matches_written("/desk/"), "{out}");
    }
    let agent = AgentName::new("clerk").unwrap();
    assert_eq!(
        target("Ana@corp.example").fingerprint(&agent, mail().as_ref()),
        target("ana@corp.example").fingerprint(&agent, mail().as_ref())
    );
    assert_ne!(
        target("ana@corp.example").fingerprint(&agent, mail().as_ref()),
        target("ana@corp.example").fingerprint(&AgentName::new("b").unwrap(), mail().as_ref())
    );
    assert_eq!(
        CallTarget::new("amount", "50", true).fingerprint(&agent, mail().as_ref()),
        None,
        "an amount is not known for ever"
    );
    assert_eq!(CallTarget::unreadable("to").fingerprint(&agent, mail().as_ref()), None);
}

#[test]
fn what_is_known_is_known_for_one_family_and_one_role_and_never_from_a_text() {
    let agent = AgentName::new("clerk").unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let prints = |name: &str, arguments: Value| -> Vec<Option<String>> {
        let capability = CapabilityName::new(name).unwrap();
        let spec = catalogue.get(&capability);
        let Value::Object(map) = arguments else { panic!() };
        let found = spec.map_or_else(|| of_unknown(&map), |spec| of_capability(spec, &map));
        assert!(!found.is_empty(), "{name} has no targets");
        let family = CapabilityFamily::of(&capability, spec, &map);
        found.iter().map(|target| target.fingerprint(&agent, family.as_ref())).collect()
    };
    let to = |field: &str| json!({field: "ana@corp.example"});
    let sent = prints("email.send", to("to"));
    assert!(sent[0].is_some());
    assert_eq!(sent, prints("email.forward", to("bcc")), "one family, one role");
    assert_ne!(sent, prints("custom:send", to("to")), "another tool");
    assert_ne!(prints("custom:send", to("to")), prints("custom:send", to("owner_hint")), "another role");
    assert_ne!(prints("custom:send", to("to")), prints("custom:mail", to("to")), "another tool");
    assert_eq!(prints("custom:add", json!({"to": ["a", "b"]})).len(), 2);
    assert_eq!(
        prints("custom:add", json!({"to": ["a"]}))[0],
        prints("custom:add", json!({"to": ["x", "a"]}))[1],
        "its place in a list does not matter"
    );
    for (name, arguments) in [
        ("custom:note", json!({"text": "write to billing@evil.example"})),
        ("custom:pay_invoice", to("to")),
        ("custom:transfer_ownership", to("to")),
        ("custom:delete", json!({"id": "file-7"})),
        ("filesystem.delete", json!({"path": "/desk/a"})),
        ("custom:push", json!({"remote": "origin", "force": true})),
        ("process.run", json!({"command": "make"})),
        ("custom:run", json!({"code": "print(1)"})),
        ("custom:Bash", json!({"command": "rm -rf /tmp/x"})),
        ("custom:Bash", json!({"command": "make test; rm x"})),
    ] {
        let shown = arguments.to_string();
        assert!(prints(name, arguments).iter().all(Option::is_none), "{name} {shown}");
    }
    assert!(prints("custom:Bash", json!({"command": "make test"}))[0].is_some());
}

proptest! {
    #[test]
    fn a_value_in_a_longer_one_is_never_asked_for(value in "[a-z]{3,8}@[a-z]{3,8}\\.[a-z]{2,3}", before in "[a-z0-9]{1,3}", after in "[a-z0-9]{1,3}") {
        let longer = format!("mail {before}{value} and {value}{after} and {before}.{value} and {value}.{after}");
        prop_assert!(!asked(&longer, &value), "{longer} / {value}");
        let whole = format!("mail ({value}), now");
        prop_assert!(asked(&whole, &value));
    }

    #[test]
    fn any_text_is_cut_without_trouble(text in "\\PC{0,200}") {
        let met = TextValueHashes::of(&text, 7);
        prop_assert_eq!(TextValueHashes::from_bytes(&met.to_bytes()), met);
        let Value::Object(map) = json!({"x": &text, "body": &text}) else { unreachable!() };
        let _found = of_unknown(&map);
    }

    #[test]
    fn a_text_has_the_same_values_whether_or_not_they_are_kept_in_order(
        words in prop::collection::vec("[a-zA-Z]{1,4}|[0-9]{1,6}|[a-z]{2}@[a-z]{2}\\.de|(www\\.)?[a-z]{2}\\.com/[a,=(]{0,3}|\\PC{1,8}|[$€]?[0-9.,]{1,6}%?", 0..24),
        blank in "[ \n\t]{1,2}",
    ) {
        let text = words.join(&blank);
        let kept = TextValues::new(&text);
        let mut visited = std::collections::BTreeSet::new();
        values::visit_spellings(&text, |spelling| { visited.insert(spelling.to_owned()); });
        let kept: std::collections::BTreeSet<String> = kept.all().map(str::to_owned).collect();
        prop_assert_eq!(visited, kept);
    }
}

#[test]
fn an_open_capability_has_the_targets_of_its_unnamed_arguments_found_by_value() {
    let mut spec = crate::capability::Catalogue::builtin().unwrap().iter().next().unwrap().clone();
    spec.params = Vec::new();
    let arguments = serde_json::json!({"note": "hello", "send": {"to": "eve@evil.example"}});
    let arguments = arguments.as_object().unwrap();
    assert!(super::of_capability(&spec, arguments).is_empty());
    spec.open = true;
    let found = super::of_capability(&spec, arguments);
    assert!(found.iter().any(|target| target.argument == "send.to" && target.value == "eve@evil.example"));
}
