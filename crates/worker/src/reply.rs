//! `mail.reply`: a mail that may answer an approval request, reduced to the few parts that matter.
//!
//! Takes the bytes of one mail, the forwarders that the operator trusts, and DNS records of the keys it names; gives
//! its sender and recipients, the person's own words and what else is in it, and whether its signature is valid.
//! Without records, it gives the names to look up. Promise: what is read is what was signed: sender, recipients and
//! subject come from the same header list that the signature is checked over, and where two readings of a mail differ,
//! nothing is read at all.

mod proof;
mod written;

use mail_auth::AuthenticatedMessage;
use mail_parser::parsers::MessageStream;
use mail_parser::{HeaderValue, MessageParser};
use serde_json::Value;
use sluice_protocol::{JobFailureCode, MailReplyTask, ReplyMailFacts, WorkerJob, WorkerTaskPayload as _};

use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};
use proof::MailProofContext;
use written::WrittenReplyText;

/// Most addresses and ids that are given.
const MOST: usize = 50;
/// Headers that only programs write.
const AUTOMATIC: [&str; 6] =
    ["x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-reply", "x-vacation", "list-id"];
/// Values of `Precedence` in mail that nobody wrote by hand.
const BULK: [&str; 4] = ["bulk", "junk", "list", "auto_reply"];

/// Reads a reply.
#[derive(Debug)]
pub(crate) struct MailReplyRead;

impl JobKind for MailReplyRead {
    fn name(&self) -> &'static str {
        MailReplyTask::KIND
    }

    fn about(&self) -> &'static str {
        "reads a reply to an approval request and checks who signed it"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let wrong = |text: &str| JobError { code: JobFailureCode::WorkerJob, text: text.to_owned() };
        let [bytes] = job.attachments.as_slice() else { return Err(wrong("this job needs exactly one attachment")) };
        Ok(JobResult { payload: read(job.payload, bytes)?, attachments: Vec::new() })
    }
}

/// Reads one mail, as the job says.
///
/// # Errors
/// When the job has another shape, or the bytes are not a mail that can be read in only one way.
pub fn read(task: Value, bytes: &[u8]) -> Result<Value, JobError> {
    let task: MailReplyTask = serde_json::from_value(task)
        .map_err(|_| JobError { code: JobFailureCode::WorkerJob, text: "the payload is not a reply job".to_owned() })?;
    let unreadable = || JobError { code: JobFailureCode::MailUnreadable, text: "the mail cannot be read".into() };
    let signed = AuthenticatedMessage::parse(bytes).ok_or_else(unreadable)?;
    let parsed = MessageParser::default().parse(bytes).ok_or_else(unreadable)?;
    // SECURITY: a mail that two readers split differently could show us what was not signed.
    if parsed.root_part().raw_body_offset() != signed.body_offset {
        return Err(unreadable());
    }
    let from = addresses(&signed, "from");
    let domain = match from.as_slice() {
        [one] => one.rsplit_once('@').map(|(_, domain)| domain.to_lowercase()).unwrap_or_default(),
        _ => String::new(),
    };
    let text = WrittenReplyText::of(&parsed);
    let subject = subject(&signed);
    let ids = ids(&[&subject, &text.whole]);
    let names = proof::names(&signed, &domain, &task.forwarders);
    let against = |records| MailProofContext {
        domain: &domain,
        forwarders: &task.forwarders,
        records,
        now: task.now.unwrap_or(0),
    };
    let proof = task.records.as_ref().map(|records| match proof::prove(&signed, &against(records)) {
        Ok(()) => "pass",
        Err(why) => why,
    });
    let facts = ReplyMailFacts {
        from,
        from_headers: count(&signed, "from"),
        to: addresses(&signed, "to"),
        to_headers: count(&signed, "to"),
        subject_headers: count(&signed, "subject"),
        automatic: is_automatic(&signed),
        ids,
        words: text.words,
        rest: text.rest.as_str().to_owned(),
        has_text: text.is_there,
        exact: text.is_exact,
        names,
        proof: proof.map(str::to_owned),
    };
    serde_json::to_value(facts).map_err(|_| unreadable())
}

fn headers<'h>(message: &'h AuthenticatedMessage<'_>, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let same = move |(found, _): &&(&[u8], &[u8])| found.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    message.headers.iter().filter(same).map(|(_, value)| *value)
}

fn count(message: &AuthenticatedMessage<'_>, name: &str) -> usize {
    headers(message, name).count()
}

/// Every address of a header, as it was written.
fn addresses(message: &AuthenticatedMessage<'_>, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for value in headers(message, name) {
        // The parser needs to see the end of the line.
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

/// Every text that looks like the id of an approval.
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

/// Whether a program wrote it: an out-of-office notice, a bounce, a list.
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
