//! Send, reply and forward: creates a draft first, then sends the draft.
//!
//! Takes a write, gives the draft as its handle, then the sent message. Promise: the only request that sends names the
//! draft, and a draft can be sent once; whether it was sent is read from the draft and its thread. A draft that
//! somebody changed since it was created is not sent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::compose;
use super::wire::{self, ME, ask, header, need, text};
use crate::adapter::{
    AppliedWrite, ConsumeOnceWrite, NetAccess, RawItem, ReconcileOutcome, ServiceHandle, ServiceWrite,
};
use crate::error::{AdapterWriteError, ExchangeError};
use crate::mime::{self, MARK, RawMail};
use crate::net::{NetRequest, escape};

/// Sent messages that are searched when the thread gives no answer.
const LOOK_BACK: usize = 50;

/// Sends from one account.
#[derive(Debug)]
pub struct SendMail {
    /// The address of the account.
    pub me: String,
}

/// The stored data of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MailDraftHandle {
    draft: String,
    thread: String,
    /// The message inside the draft; gone once it is sent.
    message: String,
    /// The mail that is answered: in the same thread, but not ours.
    #[serde(default)]
    about: Option<String>,
    /// A fingerprint of the words of its body.
    print: String,
    /// A fingerprint of its recipients and all its content; `None` if an earlier release made it.
    #[serde(default)]
    whole: Option<String>,
}

impl ConsumeOnceWrite for SendMail {
    fn create(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<ServiceHandle, AdapterWriteError> {
        let about = write.arguments.get("message_id").and_then(Value::as_str);
        let (letter, thread) = match (write.capability.as_str(), about) {
            ("email.reply", Some(id)) => {
                let original = ask(net, wire::message(id, "raw")).map_err(ExchangeError::into_read_error)?;
                let item = wire::item(&original).map_err(ExchangeError::into_read_error)?;
                (compose::answer(write, &self.me, &parse_unambiguous(&item)?)?, Some(item.thread))
            }
            ("email.forward", Some(id)) => {
                let original = ask(net, wire::message(id, "raw")).map_err(ExchangeError::into_read_error)?;
                let item = wire::item(&original).map_err(ExchangeError::into_read_error)?;
                (compose::forward(write, &self.me, parse_unambiguous(&item)?)?, None)
            }
            ("email.reply" | "email.forward", None) => return Err(AdapterWriteError::invalid("no message is named")),
            _ => (compose::fresh(write, &self.me)?, None),
        };
        let print = mime::text_fingerprint(&letter.text);
        let raw = mime::write(letter)?;
        let whole = Some(mime::mail_fingerprint(&raw));
        let mut message = json!({"raw": wire::encode(&raw)});
        if let (Some(thread), Some(members)) = (thread, message.as_object_mut()) {
            members.insert("threadId".into(), Value::String(thread));
        }
        let request = NetRequest::post(format!("{ME}/drafts"), &json!({"message": message}));
        let made = ask(net, request).map_err(|fault| fault.into_write_error().without_effect())?;
        let inner = made.get("message").cloned().unwrap_or_default();
        let read =
            |value: &Value, name: &str| need(value, name).map_err(|fault| fault.into_write_error().without_effect());
        let drafted = MailDraftHandle {
            draft: read(&made, "id")?,
            thread: read(&inner, "threadId")?,
            message: read(&inner, "id")?,
            about: about.filter(|_| write.capability.as_str() == "email.reply").map(str::to_owned),
            print,
            whole,
        };
        serde_json::to_string(&drafted).map(ServiceHandle).map_err(|_| AdapterWriteError::Unclear.without_effect())
    }

    fn consume(
        &self,
        net: NetAccess<'_>,
        _write: &ServiceWrite,
        handle: &ServiceHandle,
    ) -> Result<AppliedWrite, AdapterWriteError> {
        let drafted = read(handle)?;
        match fetch_draft_state(net, &drafted) {
            Ok(MailDraftState::Ours) => {}
            // Sent by an earlier attempt whose answer was lost, or deleted or changed by a person: a person decides.
            Ok(MailDraftState::Gone | MailDraftState::Changed) => return Err(AdapterWriteError::Unclear),
            Err(fault) => return Err(fault.into_read_error().without_effect()),
        }
        let request = NetRequest::post(format!("{ME}/drafts/send"), &json!({"id": drafted.draft}));
        match ask(net, request) {
            Ok(sent) => done(&sent).ok_or(AdapterWriteError::Unclear),
            // The draft is gone: sent by an earlier attempt whose answer was lost, or deleted by a person.
            Err(fault) if fault.is_status(404) => Err(AdapterWriteError::Unclear),
            Err(fault) => Err(fault.into_write_error()),
        }
    }

    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite, handle: &ServiceHandle) -> ReconcileOutcome {
        let Ok(drafted) = read(handle) else { return ReconcileOutcome::Unknown };
        match fetch_draft_state(net, &drafted) {
            Ok(MailDraftState::Ours) => return ReconcileOutcome::Absent,
            Ok(MailDraftState::Gone) => {}
            // It was not sent as approved, and it must not be sent as it is now.
            Ok(MailDraftState::Changed) | Err(_) => return ReconcileOutcome::Unknown,
        }
        match in_thread(net, write, &drafted) {
            Ok(Some(sent)) => ReconcileOutcome::Applied(sent),
            Ok(None) => {
                among_sent(net, write).ok().flatten().map_or(ReconcileOutcome::Unknown, ReconcileOutcome::Applied)
            }
            Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

/// A message to reply to or to forward. The gateway has refused messages with two readings before anyone was asked; of
/// a large message it saw only the head.
fn parse_unambiguous(item: &RawItem) -> Result<RawMail, AdapterWriteError> {
    let open = mime::parse_item(item);
    match open.mail.ambiguous {
        Some(_) => Err(AdapterWriteError::invalid(
            "two readers read the message differently: it cannot be answered or forwarded",
        )),
        None => Ok(open),
    }
}

/// The state of a draft.
enum MailDraftState {
    /// Unchanged.
    Ours,
    /// It exists, but its text or its recipients have changed.
    Changed,
    /// It does not exist.
    Gone,
}

/// Checks a draft. The message in it never changes: an edit of a draft puts another message into it.
fn fetch_draft_state(net: NetAccess<'_>, drafted: &MailDraftHandle) -> Result<MailDraftState, ExchangeError> {
    let path = format!("{ME}/drafts/{}?format=minimal", escape(&drafted.draft));
    let found = match ask(net, NetRequest::get(path)) {
        Ok(found) => found,
        Err(fault) if fault.is_status(404) => return Ok(MailDraftState::Gone),
        Err(fault) => return Err(fault),
    };
    let inner = found.get("message").and_then(|message| text(message, "id")).ok_or(ExchangeError::Garbled)?;
    if inner == drafted.message {
        return Ok(MailDraftState::Ours);
    }
    let Some(whole) = &drafted.whole else { return Ok(MailDraftState::Changed) };
    let message = match ask(net, wire::message(inner, "raw")) {
        Ok(message) => message,
        Err(fault) if fault.is_status(404) => return Ok(MailDraftState::Changed),
        Err(fault) => return Err(fault),
    };
    let same = mime::mail_fingerprint(&wire::item(&message)?.raw) == *whole;
    Ok(if same { MailDraftState::Ours } else { MailDraftState::Changed })
}

fn read(handle: &ServiceHandle) -> Result<MailDraftHandle, AdapterWriteError> {
    serde_json::from_str(&handle.0).map_err(|_| AdapterWriteError::invalid("the handle of this write cannot be read"))
}

fn done(sent: &Value) -> Option<AppliedWrite> {
    let id = text(sent, "id")?.to_owned();
    let thread = text(sent, "threadId").unwrap_or_default();
    let result = json!({"message_id": id, "thread_id": thread});
    Some(AppliedWrite { receipt: id, result, after: None, undo_until: None })
}

/// Our mail in the thread of its draft: by its mark or, if the service dropped the mark, by its words.
fn in_thread(
    net: NetAccess<'_>,
    write: &ServiceWrite,
    drafted: &MailDraftHandle,
) -> Result<Option<AppliedWrite>, ExchangeError> {
    let path = format!("{ME}/threads/{}?format=metadata&metadataHeaders={}", escape(&drafted.thread), escape(MARK));
    let thread = match ask(net, NetRequest::get(path)) {
        Ok(thread) => thread,
        Err(fault) if fault.is_status(404) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let messages = thread.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let sent: Vec<&Value> = messages.iter().filter(|message| is_sent(message)).collect();
    if let Some(ours) = sent.iter().find(|message| header(message, MARK) == Some(write.op.as_str())) {
        return Ok(done(ours));
    }
    for message in sent.iter().filter(|message| header(message, MARK).is_none()) {
        let Some(id) = text(message, "id").filter(|id| drafted.about.as_deref() != Some(*id)) else { continue };
        if wire::number(message, "internalDate").is_some_and(|at| at + 60_000 < write.at) {
            continue;
        }
        let whole = ask(net, wire::message(id, "raw"))?;
        let mail = mime::parse_item(&wire::item(&whole)?);
        if mime::text_fingerprint(mail.text.as_deref().unwrap_or_default()) == drafted.print {
            return Ok(done(message));
        }
    }
    Ok(None)
}

/// Our mail among those sent recently, by its mark.
fn among_sent(net: NetAccess<'_>, write: &ServiceWrite) -> Result<Option<AppliedWrite>, ExchangeError> {
    let list = ask(net, NetRequest::get(format!("{ME}/messages?labelIds=SENT&maxResults={LOOK_BACK}")))?;
    let messages = list.get("messages").and_then(Value::as_array);
    for id in messages.into_iter().flatten().filter_map(|message| text(message, "id")) {
        let message = match ask(net, wire::head(id, &[MARK])) {
            Ok(message) => message,
            Err(fault) if fault.is_status(404) => continue,
            Err(fault) => return Err(fault),
        };
        if is_sent(&message) && header(&message, MARK) == Some(write.op.as_str()) {
            return Ok(done(&message));
        }
    }
    Ok(None)
}

fn is_sent(message: &Value) -> bool {
    let labels = wire::label_ids(message);
    labels.iter().any(|label| label == "SENT") && !labels.iter().any(|label| label == "DRAFT")
}
