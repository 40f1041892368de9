//! Sending, answering, forwarding: a draft first, then the draft is sent.
//!
//! Takes a write, gives the draft as its handle, then the sent message. Promise: the one request that sends
//! names the draft, and a draft can be sent once; whether it was is read from the draft and its thread. A draft that
//! somebody changed since it was made is not sent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::compose;
use super::wire::{self, ME, ask, header, need, text};
use crate::adapter::{ConsumeOnce, Done, Found, Handle, RawItem, Way, Write};
use crate::mime::{self, MARK, RawMail};
use crate::net::{Request, escape};
use crate::trouble::{Fault, Trouble};

/// Sent messages that are looked through when the thread does not tell.
const LOOK_BACK: usize = 50;

/// Sends from one account.
#[derive(Debug)]
pub struct Send {
    /// Its address.
    pub me: String,
}

/// What is remembered of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Drafted {
    draft: String,
    thread: String,
    /// The message inside the draft; gone once it is sent.
    message: String,
    /// The mail that is answered: in its thread, but not ours.
    #[serde(default)]
    about: Option<String>,
    /// A print of the words of its body.
    print: String,
    /// A print of whom it goes to and all it says; nothing where an earlier release made it.
    #[serde(default)]
    whole: Option<String>,
}

impl ConsumeOnce for Send {
    fn create(&self, net: Way<'_>, write: &Write) -> Result<Handle, Trouble> {
        let about = write.arguments.get("message_id").and_then(Value::as_str);
        let (letter, thread) = match (write.capability.as_str(), about) {
            ("email.reply", Some(id)) => {
                let original = ask(net, wire::message(id, "raw")).map_err(Fault::of_look)?;
                let item = wire::item(&original).map_err(Fault::of_look)?;
                (compose::answer(write, &self.me, &certain(&item)?)?, Some(item.thread))
            }
            ("email.forward", Some(id)) => {
                let original = ask(net, wire::message(id, "raw")).map_err(Fault::of_look)?;
                let item = wire::item(&original).map_err(Fault::of_look)?;
                (compose::forward(write, &self.me, certain(&item)?)?, None)
            }
            ("email.reply" | "email.forward", None) => return Err(Trouble::invalid("no message is named")),
            _ => (compose::fresh(write, &self.me)?, None),
        };
        let print = mime::print_of(&letter.text);
        let raw = mime::write(letter)?;
        let whole = Some(mime::print_of_whole(&raw));
        let mut message = json!({"raw": wire::encode(&raw)});
        if let (Some(thread), Some(members)) = (thread, message.as_object_mut()) {
            members.insert("threadId".into(), Value::String(thread));
        }
        let request = Request::post(format!("{ME}/drafts"), &json!({"message": message}));
        let made = ask(net, request).map_err(|fault| fault.of_write().without_effect())?;
        let inner = made.get("message").cloned().unwrap_or_default();
        let read = |value: &Value, name: &str| need(value, name).map_err(|fault| fault.of_write().without_effect());
        let drafted = Drafted {
            draft: read(&made, "id")?,
            thread: read(&inner, "threadId")?,
            message: read(&inner, "id")?,
            about: about.filter(|_| write.capability.as_str() == "email.reply").map(str::to_owned),
            print,
            whole,
        };
        serde_json::to_string(&drafted).map(Handle).map_err(|_| Trouble::Unclear.without_effect())
    }

    fn consume(&self, net: Way<'_>, _write: &Write, handle: &Handle) -> Result<Done, Trouble> {
        let drafted = read(handle)?;
        match draft(net, &drafted) {
            Ok(Draft::Ours) => {}
            // Sent by an earlier attempt whose answer was lost, deleted by a person, or changed by one: theirs to decide.
            Ok(Draft::Gone | Draft::Changed) => return Err(Trouble::Unclear),
            Err(fault) => return Err(fault.of_look().without_effect()),
        }
        let request = Request::post(format!("{ME}/drafts/send"), &json!({"id": drafted.draft}));
        match ask(net, request) {
            Ok(sent) => done(&sent).ok_or(Trouble::Unclear),
            // The draft is gone: sent by an earlier attempt whose answer was lost, or deleted by a person.
            Err(fault) if fault.is_status(404) => Err(Trouble::Unclear),
            Err(fault) => Err(fault.of_write()),
        }
    }

    fn reconcile(&self, net: Way<'_>, write: &Write, handle: &Handle) -> Found {
        let Ok(drafted) = read(handle) else { return Found::Unknown };
        match draft(net, &drafted) {
            Ok(Draft::Ours) => return Found::Absent,
            Ok(Draft::Gone) => {}
            // It was not sent as it was approved, and it must not be sent as it is.
            Ok(Draft::Changed) | Err(_) => return Found::Unknown,
        }
        match in_thread(net, write, &drafted) {
            Ok(Some(sent)) => Found::Applied(sent),
            Ok(None) => among_sent(net, write).ok().flatten().map_or(Found::Unknown, Found::Applied),
            Err(_) => Found::Unknown,
        }
    }
}

/// A message that is to be answered or passed on. The gateway has refused those with two readings before anyone was
/// asked; what it saw of a large one was its head only.
fn certain(item: &RawItem) -> Result<RawMail, Trouble> {
    let open = mime::open(item);
    match open.mail.ambiguous {
        Some(_) => {
            Err(Trouble::invalid("two readers read the message differently: it is neither answered nor passed on"))
        }
        None => Ok(open),
    }
}

/// How a draft stands.
enum Draft {
    /// As it was made.
    Ours,
    /// There, but it says something else or goes to somebody else.
    Changed,
    /// Not there.
    Gone,
}

/// Looks at a draft. The message in it never changes: whoever edits a draft puts another message into it.
fn draft(net: Way<'_>, drafted: &Drafted) -> Result<Draft, Fault> {
    let path = format!("{ME}/drafts/{}?format=minimal", escape(&drafted.draft));
    let found = match ask(net, Request::get(path)) {
        Ok(found) => found,
        Err(fault) if fault.is_status(404) => return Ok(Draft::Gone),
        Err(fault) => return Err(fault),
    };
    let inner = found.get("message").and_then(|message| text(message, "id")).ok_or(Fault::Garbled)?;
    if inner == drafted.message {
        return Ok(Draft::Ours);
    }
    let Some(whole) = &drafted.whole else { return Ok(Draft::Changed) };
    let message = match ask(net, wire::message(inner, "raw")) {
        Ok(message) => message,
        Err(fault) if fault.is_status(404) => return Ok(Draft::Changed),
        Err(fault) => return Err(fault),
    };
    let same = mime::print_of_whole(&wire::item(&message)?.raw) == *whole;
    Ok(if same { Draft::Ours } else { Draft::Changed })
}

fn read(handle: &Handle) -> Result<Drafted, Trouble> {
    serde_json::from_str(&handle.0).map_err(|_| Trouble::invalid("the handle of this write cannot be read"))
}

fn done(sent: &Value) -> Option<Done> {
    let id = text(sent, "id")?.to_owned();
    let thread = text(sent, "threadId").unwrap_or_default();
    let result = json!({"message_id": id, "thread_id": thread});
    Some(Done { receipt: id, result, after: None, undo_until: None })
}

/// Our mail in the thread of its draft: by its mark, or, should the service have dropped that, by its words.
fn in_thread(net: Way<'_>, write: &Write, drafted: &Drafted) -> Result<Option<Done>, Fault> {
    let path = format!("{ME}/threads/{}?format=metadata&metadataHeaders={}", escape(&drafted.thread), escape(MARK));
    let thread = match ask(net, Request::get(path)) {
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
        let mail = mime::open(&wire::item(&whole)?);
        if mime::print_of(mail.text.as_deref().unwrap_or_default()) == drafted.print {
            return Ok(done(message));
        }
    }
    Ok(None)
}

/// Our mail among those sent lately, by its mark.
fn among_sent(net: Way<'_>, write: &Write) -> Result<Option<Done>, Fault> {
    let list = ask(net, Request::get(format!("{ME}/messages?labelIds=SENT&maxResults={LOOK_BACK}")))?;
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
