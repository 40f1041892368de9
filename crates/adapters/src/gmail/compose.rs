//! From the arguments of a write to the mail it means.
//!
//! Takes a write and, for an answer or a forward, the mail it is about; gives a letter. Promise: who gets it
//! is exactly whom the arguments name. Nobody is added here: what was judged, shown and approved is what is sent.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::hex;
use sluice_core::mail::Address;

use crate::adapter::{Blob, Write};
use crate::mime::{Letter, RawMail, addressees};
use crate::trouble::Trouble;

/// Most bytes of files in one mail: twice encoded they fit into one exchange.
const MOST_BYTES: usize = 12 << 20;

/// A new mail.
pub fn fresh<'w>(write: &'w Write, me: &str) -> Result<Letter<'w>, Trouble> {
    let to = addressees(write.arguments.get("to"))?;
    if to.is_empty() {
        return Err(Trouble::invalid("there is nobody to send it to"));
    }
    Ok(Letter { to, subject: argument(write, "subject").to_owned(), ..common(write, me)? })
}

/// An answer.
pub fn answer<'w>(write: &'w Write, me: &str, original: &RawMail) -> Result<Letter<'w>, Trouble> {
    let mut letter = common(write, me)?;
    letter.to = addressees(write.arguments.get("to"))?;
    if letter.to.is_empty() {
        return Err(Trouble::invalid("there is nobody to send it to"));
    }
    let subject = &original.mail.subject;
    let again = subject.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("re:"));
    letter.subject = if again { subject.clone() } else { format!("Re: {subject}") };
    letter.references.clone_from(&original.references);
    letter.references.extend(original.mail.message_id.clone());
    Ok(letter)
}

/// A mail passed on. With it go the files the arguments name; where they name none, those that came with it.
pub fn forward<'w>(write: &'w Write, me: &str, original: RawMail) -> Result<Letter<'w>, Trouble> {
    let mut letter = common(write, me)?;
    letter.to = addressees(write.arguments.get("to"))?;
    if letter.to.is_empty() {
        return Err(Trouble::invalid("there is nobody to send it to"));
    }
    let mail = original.mail;
    let again = mail.subject.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("fwd:"));
    letter.subject = if again { mail.subject.clone() } else { format!("Fwd: {}", mail.subject) };
    let list = |people: &[Address]| people.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
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
        files.insert(0, Blob { name: "message.html".into(), media_type: "text/html".into(), bytes: html.into_bytes() });
    }
    if write.arguments.get("attachments").is_none() {
        let attached = mail.attachments.into_iter().zip(original.contents);
        files.extend(attached.map(|(about, bytes)| Blob {
            name: about.name.unwrap_or_else(|| "attachment".into()),
            media_type: about.media_type,
            bytes,
        }));
    }
    if files.iter().map(|file| file.bytes.len()).sum::<usize>() > MOST_BYTES {
        return Err(Trouble::invalid("the message is too large to be passed on"));
    }
    letter.files = files;
    Ok(letter)
}

/// What every mail has.
fn common<'w>(write: &'w Write, me: &str) -> Result<Letter<'w>, Trouble> {
    let from = argument(write, "from");
    if !from.is_empty() && from != "me" && !from.eq_ignore_ascii_case(me) {
        return Err(Trouble::invalid("the connected account sends as itself only"));
    }
    Ok(Letter {
        op: &write.op,
        at: write.at,
        from: me.to_owned(),
        cc: addressees(write.arguments.get("cc"))?,
        bcc: addressees(write.arguments.get("bcc"))?,
        text: argument(write, "body").to_owned(),
        html: write.arguments.get("body_html").and_then(Value::as_str).map(str::to_owned),
        files: files(write)?,
        ..Letter::default()
    })
}

fn argument<'w>(write: &'w Write, name: &str) -> &'w str {
    write.arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The files the arguments name, each by a text that ends with its hash. What was handed over must be, to the byte,
/// what the hash says.
fn files(write: &Write) -> Result<Vec<Blob>, Trouble> {
    let named = write.arguments.get("attachments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let hashed: Vec<(String, &Blob)> =
        write.blobs.iter().map(|blob| (hex::encode(&Sha256::digest(&blob.bytes)), blob)).collect();
    let find = |wanted: &Value| {
        let wanted = wanted.as_str().map(|text| text.rsplit("sha256:").next().unwrap_or(text))?;
        hashed.iter().find(|(hash, _)| hash.eq_ignore_ascii_case(wanted)).map(|(_, blob)| (*blob).clone())
    };
    let found: Option<Vec<Blob>> = named.iter().map(find).collect();
    let found = found.ok_or_else(|| Trouble::invalid("an attachment is not there under the hash that names it"))?;
    if found.iter().map(|file| file.bytes.len()).sum::<usize>() > MOST_BYTES {
        return Err(Trouble::invalid("the attachments are too large"));
    }
    Ok(found)
}
