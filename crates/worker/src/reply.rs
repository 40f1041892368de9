//! `mail.reply`: a mail that may answer a question, reduced to the few things that matter.
//!
//! Takes the bytes of one mail, whom we let forward, and what DNS says about the keys it names; gives who it is from,
//! to whom, the person's own words and what else is in it, and whether its signature holds. Asked without records, it gives the names
//! to look up. Promise: what is read is what was signed: sender, recipients and subject come from the very header
//! list the signature is checked over, and where the two readings of a mail differ nothing is read at all.

mod proof;
mod written;

use std::collections::BTreeMap;

use mail_auth::AuthenticatedMessage;
use mail_parser::parsers::MessageStream;
use mail_parser::{HeaderValue, MessageParser};
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sandbox::protocol::Job;

use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};
use proof::Against;
use written::Text;

/// Most addresses and ids that are given.
const MOST: usize = 50;
/// Headers that only programs write.
const AUTOMATIC: [&str; 6] =
    ["x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-reply", "x-vacation", "list-id"];
/// What `Precedence` says in mail nobody wrote by hand.
const BULK: [&str; 4] = ["bulk", "junk", "list", "auto_reply"];

/// Reads a reply.
#[derive(Debug)]
pub(crate) struct ReplyRead;

/// What it is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    /// Domains whose seal on a forwarded mail is believed.
    #[serde(default)]
    forwarders: Vec<String>,
    /// Seconds since 1970. Not known: what says until when it is good is not good.
    #[serde(default)]
    now: u64,
    /// TXT records by name. Without them nothing is proven; the names to look up are given.
    #[serde(default)]
    records: Option<BTreeMap<String, Vec<String>>>,
}

impl Kind for ReplyRead {
    fn name(&self) -> &'static str {
        "mail.reply"
    }

    fn about(&self) -> &'static str {
        "reads a reply to a question and checks who signed it"
    }

    fn perform(&self, job: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        let wrong = |text: &str| Fault { code: "worker.job", text: text.to_owned() };
        let [bytes] = job.attachments.as_slice() else { return Err(wrong("one attachment belongs to this job")) };
        Ok(Done { payload: read(job.payload, bytes)?, attachments: Vec::new() })
    }
}

/// Reads one mail, by what the job says about it.
///
/// # Errors
/// When the job is another one, or the bytes are no mail that can be read in one way only.
pub fn read(task: Value, bytes: &[u8]) -> Result<Value, Fault> {
    let task: Task = serde_json::from_value(task)
        .map_err(|_| Fault { code: "worker.job", text: "not a job of reading a reply".to_owned() })?;
    let unreadable = || Fault { code: "mail.unreadable", text: "the mail cannot be read".into() };
    let signed = AuthenticatedMessage::parse(bytes).ok_or_else(unreadable)?;
    let parsed = MessageParser::default().parse(bytes).ok_or_else(unreadable)?;
    // SECURITY: a mail that two readers divide differently could show us what was not signed.
    if parsed.root_part().raw_body_offset() != signed.body_offset {
        return Err(unreadable());
    }
    let from = addresses(&signed, "from");
    let domain = match from.as_slice() {
        [one] => one.rsplit_once('@').map(|(_, domain)| domain.to_lowercase()).unwrap_or_default(),
        _ => String::new(),
    };
    let text = Text::of(&parsed);
    let subject = subject(&signed);
    let ids = ids(&[&subject, &text.whole]);
    let names = proof::names(&signed, &domain, &task.forwarders);
    let against = |records| Against { domain: &domain, forwarders: &task.forwarders, records, now: task.now };
    let proof = task.records.as_ref().map(|records| match proof::prove(&signed, &against(records)) {
        Ok(()) => "pass",
        Err(why) => why,
    });
    Ok(json!({
        "from": from, "from_headers": count(&signed, "from"),
        "to": addresses(&signed, "to"), "to_headers": count(&signed, "to"),
        "subject_headers": count(&signed, "subject"),
        "automatic": is_automatic(&signed), "ids": ids,
        "words": text.words, "rest": text.rest.as_str(), "has_text": text.is_there, "exact": text.is_exact,
        "names": names, "proof": proof,
    }))
}

fn headers<'h>(message: &'h AuthenticatedMessage<'_>, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let same = move |(found, _): &&(&[u8], &[u8])| found.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    message.headers.iter().filter(same).map(|(_, value)| *value)
}

fn count(message: &AuthenticatedMessage<'_>, name: &str) -> usize {
    headers(message, name).count()
}

/// Every address of a header, each as it was written.
fn addresses(message: &AuthenticatedMessage<'_>, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for value in headers(message, name) {
        // The reader needs to see the end of the line.
        if let HeaderValue::Address(list) = MessageStream::new(value).parse_address() {
            let plain = |text: &&str| text.bytes().all(|b| b.is_ascii_graphic());
            found.extend(list.iter().filter_map(|one| one.address.as_deref()).filter(plain).map(str::to_owned));
        }
    }
    found.truncate(MOST);
    found
}

fn subject(message: &AuthenticatedMessage<'_>) -> String {
    let mut all = String::new();
    for value in headers(message, "subject") {
        if let HeaderValue::Text(text) = MessageStream::new(value).parse_unstructured() {
            all.push_str(&text);
            all.push('\n');
        }
    }
    all
}

/// Everything that looks like the id of a question.
fn ids(texts: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for text in texts {
        for (at, _) in text.match_indices("appr_") {
            let rest = text.get(at..).unwrap_or_default();
            let id: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').take(64).collect();
            if !found.contains(&id) && found.len() < MOST {
                found.push(id);
            }
        }
    }
    found
}

/// Whether a program wrote it: a notice of absence, a bounce, a list.
fn is_automatic(message: &AuthenticatedMessage<'_>) -> bool {
    let word = |value: &[u8]| {
        let text = String::from_utf8_lossy(value).to_lowercase();
        text.split(';').next().unwrap_or_default().trim().to_owned()
    };
    headers(message, "auto-submitted").any(|value| word(value) != "no")
        || headers(message, "precedence").any(|value| BULK.contains(&word(value).as_str()))
        || headers(message, "return-path").any(|value| word(value) == "<>")
        || AUTOMATIC.iter().any(|name| count(message, name) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(mail: &str) -> (bool, Vec<String>) {
        let mail = mail.replace('\n', "\r\n");
        let message = AuthenticatedMessage::parse(mail.as_bytes()).unwrap();
        (is_automatic(&message), addresses(&message, "from"))
    }

    #[test]
    fn programs_are_told_from_people() {
        for line in [
            "Auto-Submitted: auto-replied",
            "auto-submitted: auto-generated; x=y",
            "Precedence: bulk",
            "X-Autoreply: yes",
            "Return-Path: <>",
            "List-Id: <all.example>",
        ] {
            assert!(signed(&format!("From: a@b.example\n{line}\n\n1\n")).0, "{line}");
        }
        for line in ["Auto-Submitted: no", "Precedence: first-class", "Return-Path: <a@b.example>"] {
            assert!(!signed(&format!("From: a@b.example\n{line}\n\n1\n")).0, "{line}");
        }
    }

    #[test]
    fn every_address_of_every_from_header_is_seen() {
        assert_eq!(signed("From: Ana <a@b.example>\n\n1\n").1, ["a@b.example"]);
        assert_eq!(signed("From: a@b.example, c@d.example\n\n1\n").1.len(), 2);
        assert_eq!(signed("From: a@b.example\nSubject: x\nFROM: c@d.example\n\n1\n").1.len(), 2);
        assert_eq!(signed("From: \"a@b.example\" <c@d.example>\n\n1\n").1, ["c@d.example"]);
    }

    #[test]
    fn two_ids_are_two() {
        assert_eq!(ids(&["Re: [appr_01]", "> appr_01 and appr_02"]), ["appr_01", "appr_02"]);
    }

    #[test]
    fn hostile_bytes_are_read_without_harm() {
        let deep = "Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n".repeat(5_000);
        for bytes in
            [&b""[..], b"\0\0", b"From", b"DKIM-Signature: v=1; l=99999999999999999999\r\n\r\n", deep.as_bytes()]
        {
            if let Some(message) = AuthenticatedMessage::parse(bytes) {
                let _whatever = (is_automatic(&message), addresses(&message, "from"), proof::names(&message, "x", &[]));
            }
        }
    }
}
