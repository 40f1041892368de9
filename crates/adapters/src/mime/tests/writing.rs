//! Tests of outgoing mail: what is written is read back, and no value begins a header.

use crate::mime::*;
use proptest::prelude::*;
use serde_json::json;

fn letter() -> OutgoingMail<'static> {
    OutgoingMail {
        op: "buf_1",
        at: 1_790_000_000_000,
        from: "me@alder.example".into(),
        to: vec!["li@northpeak.example".into()],
        subject: "Hello".into(),
        text: "Dear Li,\nall well.\n".into(),
        ..OutgoingMail::default()
    }
}

#[test]
fn a_letter_comes_out_as_it_went_in() {
    let files = vec![AttachedFile {
        name: "Résumé für Ána.pdf".into(),
        media_type: "application/pdf".into(),
        bytes: vec![0, 255, 10, 13],
    }];
    let whole = OutgoingMail {
        subject: "Grüße aus Köln – naïve café".into(),
        html: Some("<p>Dear Li</p>".into()),
        cc: vec!["ana@alder.example".into()],
        bcc: vec!["boss@alder.example".into()],
        references: vec!["a@x.example".into(), "b@x.example".into()],
        files: files.clone(),
        ..letter()
    };
    let raw = parse(&write(whole).unwrap());
    assert_eq!(raw.mail.subject, "Grüße aus Köln – naïve café");
    assert_eq!(raw.mail.to[0].address, "li@northpeak.example");
    assert_eq!(raw.text.as_deref().map(text_fingerprint), Some(text_fingerprint("Dear Li, all well.")));
    assert_eq!(raw.html.as_deref().map(str::trim_end), Some("<p>Dear Li</p>"));
    assert_eq!(raw.references, ["a@x.example", "b@x.example"]);
    assert_eq!(raw.mark.as_deref(), Some("buf_1"));
    assert_eq!(raw.mail.attachments[0].name.as_deref(), Some("Résumé für Ána.pdf"));
    assert_eq!(raw.contents[0], files[0].bytes);
}

#[test]
fn the_same_letter_is_the_same_bytes() {
    assert_eq!(write(letter()).unwrap(), write(letter()).unwrap());
}

#[test]
fn those_who_get_hidden_copies_stay_in_the_letter_for_the_service() {
    let text = String::from_utf8(write(OutgoingMail { bcc: vec!["b@x.example".into()], ..letter() }).unwrap()).unwrap();
    assert!(text.contains("Bcc: b@x.example"), "{text}");
}

#[test]
fn an_address_that_can_be_read_in_two_ways_is_refused() {
    for bad in ["a@b.example x@y.example", "nobody", "a@b@c.example", "a@", "\"x,\" y@z.example@q"] {
        assert!(checked_addresses(Some(&json!(bad))).is_err(), "{bad}");
    }
    assert_eq!(
        checked_addresses(Some(&json!("Ana <a@b.example>, c@d.example"))).unwrap(),
        ["a@b.example", "c@d.example"]
    );
}

#[test]
fn hostile_bytes_are_taken_apart_without_harm() {
    for bytes in [
        &b""[..],
        b"\0\0\0",
        b"Subject",
        b"Content-Type: multipart/mixed; boundary=a\n\n--a\n--a\n--a--",
        &[0xff; 4096],
    ] {
        let _whatever = parse(bytes);
    }
    let deep = "Content-Type: multipart/mixed; boundary=x\n\n--x\n".repeat(5_000);
    let _whatever = parse(deep.as_bytes());
}

proptest! {
    #[test]
    fn no_value_begins_a_header(subject in "\\PC{0,80}|.*[\r\n].*", op in "[a-z_0-9]{1,20}", text in ".{0,200}") {
        let letter = OutgoingMail { subject: subject.clone(), op: &op, text, ..letter() };
        match write(letter) {
            Err(_) => prop_assert!(subject.chars().any(char::is_control)),
            Ok(bytes) => {
                let head = String::from_utf8_lossy(&bytes).split("\r\n\r\n").next().unwrap().to_owned();
                let names: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])).filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
                let known = ["From", "To", "Date", "Subject", MARK, "MIME-Version", "Content-Type", "Content-Transfer-Encoding"];
                prop_assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
                prop_assert!(bytes.is_ascii() || head.is_ascii());
            }
        }
    }
}
