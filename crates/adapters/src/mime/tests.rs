//! Compares readings of one mail: ours with the library's, and with Python's `email` package.

mod counterpart;
mod honest;
mod odd;
mod writing;

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use counterpart::SecondReading;

/// The words of a text, without what could not be decoded.
fn words(text: &str) -> String {
    let known: String =
        text.chars().filter(|c| *c != char::REPLACEMENT_CHARACTER && !c.is_control() || c.is_whitespace()).collect();
    known.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn differs(mail: &RawMail, other: &SecondReading) -> Option<String> {
    let from = mail.mail.from.as_ref().map(|from| from.address.replace('"', ""));
    let theirs = other.from.as_ref().map(|from| from.replace('"', ""));
    if from != theirs {
        return Some(format!("sender {from:?} or {theirs:?}"));
    }
    for (what, ours, theirs) in [
        ("subject", mail.mail.subject.as_str(), other.subject.as_str()),
        ("text", mail.text.as_deref().unwrap_or_default(), other.text.as_str()),
        ("html", mail.html.as_deref().unwrap_or_default(), other.html.as_str()),
    ] {
        if words(ours) != words(theirs) {
            return Some(format!("{what} {:?} or {:?}", words(ours), words(theirs)));
        }
    }
    None
}

/// How many were compared, how many of them are ambiguous, and where Python reads something else.
fn compared(mails: impl Iterator<Item = (String, Vec<u8>)>) -> Option<(usize, usize, Vec<String>)> {
    let (mut all, mut read, mut certain) = (0, Vec::new(), Vec::new());
    for (name, raw) in mails {
        all += 1;
        let ours = parse(&raw);
        if ours.mail.ambiguous.is_none() {
            read.push((name, ours));
            certain.push(raw);
        }
    }
    let mut failures = Vec::new();
    for ((name, ours), theirs) in read.iter().zip(counterpart::read(&certain)?) {
        match theirs {
            Ok(theirs) => failures.extend(differs(ours, &theirs).map(|what| format!("{name}: {what}"))),
            Err(error) => failures.push(format!("{name}: Python stops: {error}")),
        }
    }
    Some((all, all - read.len(), failures))
}

fn report(failures: &[String]) -> String {
    format!("{} failures:\n{}", failures.len(), failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_second_parser_agrees_on_every_odd_mail_that_is_not_ambiguous() {
    let Some((all, ambiguous, failures)) = compared(odd::mails()) else { return };
    assert!(failures.is_empty(), "{}", report(&failures));
    assert!(all > 5_000 && ambiguous > all / 20 && ambiguous < all * 19 / 20, "{ambiguous} of {all} are ambiguous");
}

#[test]
fn a_second_parser_agrees_on_every_honest_mail_and_none_of_them_is_ambiguous() {
    let Some((all, ambiguous, failures)) = compared(honest::mails(2_000)) else { return };
    assert!(failures.is_empty(), "{}", report(&failures));
    assert!(ambiguous * 1_000 < all * 2, "{ambiguous} of {all} honest mails are ambiguous");
}

/// Mails that other projects ship with their tests, where this machine has them. None of them is stored here.
#[test]
fn a_second_parser_agrees_on_the_mails_of_other_projects() {
    let mut mails = Vec::new();
    for folder in counterpart::foreign_mails() {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path: PathBuf = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|kind| kind == "eml" || kind == "txt") {
                    mails.push((path.display().to_string(), std::fs::read(&path).unwrap()));
                }
            }
        }
    }
    if mails.is_empty() {
        return counterpart::skipped("no mails of other projects lie on this machine");
    }
    let Some((_, _, failures)) = compared(mails.into_iter()) else { return };
    assert!(failures.is_empty(), "{}", report(&failures));
}

/// Every mail that is not ambiguous names the one sender in its head.
fn sender_is_in_the_head(raw: &[u8]) -> Result<(), String> {
    let read = parse(raw);
    let head = MailHead::of(raw);
    let Some(from) = &read.mail.from else { return Ok(()) };
    let bare = |text: &str| text.replace('"', "");
    let ours = head
        .single_field("from")
        .ok()
        .flatten()
        .and_then(|field| mailboxes::read(&field.unfolded()))
        .unwrap_or_default();
    if ours.iter().map(|one| bare(one)).eq([bare(&from.address)]) {
        return Ok(());
    }
    Err(format!("{from} is not {ours:?}"))
}

#[test]
fn body_lines_never_become_the_sender() {
    for (name, raw) in odd::mails() {
        sender_is_in_the_head(&raw).unwrap_or_else(|why| panic!("{name}: {why}"));
        let read = parse(&raw);
        let shown = read.mail.from.map(|from| from.address);
        assert_ne!(shown.as_deref(), Some(odd::FROM_IN_BODY), "{name}");
    }
}

#[test]
fn the_reported_mails_are_ambiguous_or_read_right() {
    for (zone, end) in [("Z", "\n"), ("Z", "\r\n"), ("UT", "\n"), ("AM", "\n"), ("PM", "\n")] {
        let raw = [
            "From: ana@bank.example",
            "Subject: x",
            &format!("Date: Tue, 17 Nov 2026 10:00:00 {zone}"),
            "",
            "From: evil@x.example",
            "",
            "hello",
        ]
        .join(end);
        let read = parse(raw.as_bytes());
        assert_ne!(read.mail.from.as_ref().map(|from| from.address.as_str()), Some("evil@x.example"), "{zone} {end:?}");
        assert!(read.mail.ambiguous.is_some() || read.mail.from.is_some());
        assert!(read.mail.ambiguous.is_none() || read.mail.from.is_none(), "what is in doubt is no fact");
    }
    let two = parse(b"From: a@bank.example\r\nFrom: evil@x.example\r\nSubject: x\r\n\r\nhello");
    assert_eq!(two.mail.from, None);
    let doubt = two.mail.ambiguous.unwrap();
    assert_eq!(doubt.reasons, ["mail.ambiguous.sender"]);
    assert_eq!(doubt.senders, ["a@bank.example", "evil@x.example"]);
}

#[test]
fn a_multipart_that_is_never_closed_keeps_its_text() {
    for (name, raw) in odd::unclosed() {
        let read = parse(&raw);
        assert_eq!(read.mail.ambiguous, None, "{name}");
        let text = format!("{} {}", read.text.unwrap_or_default(), read.html.unwrap_or_default());
        assert!(text.contains("see you on Tuesday"), "{name}: {text}");
    }
}

proptest! {
    #[test]
    fn whatever_the_bytes_the_sender_is_one_that_both_readers_name(
        lines in proptest::collection::vec(
            prop_oneof![
                "(From|Date|Subject|To|X|from |Content-Type)(: ?| :|:)[a-z@<>\"(), ;:=?\\\\]{0,24}",
                "From: (a@b\\.example|\"x\" <c@d\\.example>|evil@x\\.example)",
                "Date: .{0,12}(Z|UT|AM|PM|\\(|\")",
                "[ \t]{0,2}.{0,10}",
                Just(String::new()),
            ],
            0..12,
        ),
        ends in proptest::collection::vec(prop_oneof![8 => Just("\n"), 8 => Just("\r\n"), 1 => Just("\r"), 1 => Just("\n\r")], 12),
    ) {
        let raw: String = lines.iter().zip(&ends).map(|(line, end)| format!("{line}{end}")).collect();
        prop_assert!(sender_is_in_the_head(raw.as_bytes()).is_ok(), "{raw:?}");
    }
}
