//! Builds a mail from the arguments of a write.
//!
//! Takes a write and, for a reply or a forward, the original mail; gives a mail. Promise: the recipients are exactly
//! those in the arguments. Nobody is added here: what was judged, shown and approved is what is sent.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::hex;
use sluice_core::mail::MailAddress;

use crate::adapter::{AttachedFile, ServiceWrite};
use crate::error::AdapterWriteError;
use crate::mime::{OutgoingMail, RawMail, checked_addresses};

/// Most bytes of files in one mail: encoded twice, they fit into one exchange.
const MOST_BYTES: usize = 12 << 20;

/// A new mail.
pub fn fresh<'w>(write: &'w ServiceWrite, me: &str) -> Result<OutgoingMail<'w>, AdapterWriteError> {
    let to = checked_addresses(write.arguments.get("to"))?;
    if to.is_empty() {
        return Err(AdapterWriteError::invalid("the mail has no recipient"));
    }
    Ok(OutgoingMail { to, subject: argument(write, "subject").to_owned(), ..common(write, me)? })
}

/// A reply.
pub fn answer<'w>(
    write: &'w ServiceWrite,
    me: &str,
    original: &RawMail,
) -> Result<OutgoingMail<'w>, AdapterWriteError> {
    let mut letter = common(write, me)?;
    letter.to = checked_addresses(write.arguments.get("to"))?;
    if letter.to.is_empty() {
        return Err(AdapterWriteError::invalid("the mail has no recipient"));
    }
    let subject = &original.mail.subject;
    let again = subject.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("re:"));
    letter.subject = if again { subject.clone() } else { format!("Re: {subject}") };
    letter.references.clone_from(&original.references);
    letter.references.extend(original.mail.message_id.clone());
    Ok(letter)
}

/// A forwarded mail, with the files that the arguments name; where they name none, with the attachments of the
/// original.
pub fn forward<'w>(
    write: &'w ServiceWrite,
    me: &str,
    original: RawMail,
) -> Result<OutgoingMail<'w>, AdapterWriteError> {
    let mut letter = common(write, me)?;
    letter.to = checked_addresses(write.arguments.get("to"))?;
    if letter.to.is_empty() {
        return Err(AdapterWriteError::invalid("the mail has no recipient"));
    }
    let mail = original.mail;
    let again = mail.subject.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("fwd:"));
    letter.subject = if again { mail.subject.clone() } else { format!("Fwd: {}", mail.subject) };
    let list = |people: &[MailAddress]| people.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let from = mail.from.as_ref().map(ToString::to_string).unwrap_or_default();
    let note = std::mem::take(&mut letter.text);
    letter.text = format!(
        "{note}\n\n---------- Forwarded message ---------\nFrom: {from}\nSubject: {}\nTo: {}\n\n{}",
        mail.subject,
        list(&mail.to),
        original.text.unwrap_or_default(),
    );
    let mut files = std::mem::take(&mut letter.files);
    if let Some(html) = original.html {
        files.insert(
            0,
            AttachedFile { name: "message.html".into(), media_type: "text/html".into(), bytes: html.into_bytes() },
        );
    }
    if write.arguments.get("attachments").is_none() {
        let attached = mail.attachments.into_iter().zip(original.contents);
        files.extend(attached.map(|(about, bytes)| AttachedFile {
            name: about.name.unwrap_or_else(|| "attachment".into()),
            media_type: about.media_type,
            bytes,
        }));
    }
    if files.iter().map(|file| file.bytes.len()).sum::<usize>() > MOST_BYTES {
        return Err(AdapterWriteError::invalid("the message is too large to be forwarded"));
    }
    letter.files = files;
    Ok(letter)
}

/// The parts that every mail has.
fn common<'w>(write: &'w ServiceWrite, me: &str) -> Result<OutgoingMail<'w>, AdapterWriteError> {
    let from = argument(write, "from");
    if !from.is_empty() && from != "me" && !from.eq_ignore_ascii_case(me) {
        return Err(AdapterWriteError::invalid("the connected account can only send from its own address"));
    }
    Ok(OutgoingMail {
        op: &write.op,
        at: write.at,
        from: me.to_owned(),
        cc: checked_addresses(write.arguments.get("cc"))?,
        bcc: checked_addresses(write.arguments.get("bcc"))?,
        text: argument(write, "body").to_owned(),
        html: write.arguments.get("body_html").and_then(Value::as_str).map(str::to_owned),
        files: files(write)?,
        ..OutgoingMail::default()
    })
}

fn argument<'w>(write: &'w ServiceWrite, name: &str) -> &'w str {
    write.arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The files in the arguments, each named by a text that ends with its hash. The bytes of each file must match the
/// hash.
fn files(write: &ServiceWrite) -> Result<Vec<AttachedFile>, AdapterWriteError> {
    let named = write.arguments.get("attachments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let hashed: Vec<(String, &AttachedFile)> =
        write.blobs.iter().map(|blob| (hex::encode(&Sha256::digest(&blob.bytes)), blob)).collect();
    let find = |wanted: &Value| {
        let wanted = wanted.as_str().map(|text| text.rsplit("sha256:").next().unwrap_or(text))?;
        hashed.iter().find(|(hash, _)| hash.eq_ignore_ascii_case(wanted)).map(|(_, blob)| (*blob).clone())
    };
    let found: Option<Vec<AttachedFile>> = named.iter().map(find).collect();
    let found = found.ok_or_else(|| AdapterWriteError::invalid("an attachment with this hash was not found"))?;
    if found.iter().map(|file| file.bytes.len()).sum::<usize>() > MOST_BYTES {
        return Err(AdapterWriteError::invalid("the attachments are too large"));
    }
    Ok(found)
}
