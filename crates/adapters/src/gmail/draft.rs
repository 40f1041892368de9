//! Leaving a draft for a person, and taking it away again while nobody has touched it.
//!
//! Takes a write, gives the draft's id as receipt. Promise: an edit changes the message inside a draft, so a
//! draft somebody worked on is never removed.

use serde_json::{Value, json};
use sluice_core::rollback::Fingerprint;

use super::compose;
use super::wire::{self, ME, ask, header, need, text};
use crate::adapter::{Before, Done, Findable, Found, Past, Reversal, Way, Write};
use crate::mime::{self, MARK};
use crate::net::{Request, escape};
use crate::trouble::{Fault, Trouble};

/// Drafts that are looked through for our mark. With more of them, absence proves nothing.
const LOOK_THROUGH: usize = 100;

/// Drafts of one account.
#[derive(Debug)]
pub struct Drafting {
    /// Its address.
    pub me: String,
}

impl Findable for Drafting {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        let letter = compose::fresh(write, &self.me)?;
        let message = json!({"raw": wire::encode(&mime::write(letter)?)});
        let request = Request::post(format!("{ME}/drafts"), &json!({"message": message}));
        let made = ask(net, request).map_err(Fault::of_write)?;
        done(&made).map_err(Fault::of_write)
    }

    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        match find(net, &write.op) {
            Ok(Search::Found(draft)) => done(&draft).map_or(Found::Unknown, Found::Applied),
            Ok(Search::Nowhere) => Found::Absent,
            Ok(Search::TooMany) | Err(_) => Found::Unknown,
        }
    }
}

impl Reversal for Drafting {
    fn capture(&self, _net: Way<'_>, _write: &Write) -> Result<Before, Trouble> {
        Ok(Before { state: b"none".to_vec(), print: Fingerprint::of(b"none") })
    }

    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble> {
        let path = format!("{ME}/drafts/{}?format=minimal", escape(past.receipt));
        match ask(net, Request::get(path)) {
            Ok(draft) => print(&draft).map_err(Fault::of_look),
            Err(fault) if fault.is_status(404) => Ok(Fingerprint::of(b"none")),
            Err(fault) => Err(fault.of_look()),
        }
    }

    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble> {
        let path = format!("{ME}/drafts/{}", escape(past.receipt));
        ask(net, Request::delete(path)).map_err(Fault::of_write)?;
        let result = json!({"draft_id": past.receipt, "removed": true});
        Ok(Done { receipt: past.receipt.to_owned(), result, after: Some(Fingerprint::of(b"none")), undo_until: None })
    }
}

fn done(draft: &Value) -> Result<Done, Fault> {
    let id = need(draft, "id")?;
    let result = json!({"draft_id": id, "message_id": draft.pointer("/message/id")});
    Ok(Done { receipt: id, result, after: Some(print(draft)?), undo_until: None })
}

/// The message inside is another one after each edit.
fn print(draft: &Value) -> Result<Fingerprint, Fault> {
    let message = draft.pointer("/message/id").and_then(Value::as_str).ok_or(Fault::Garbled)?;
    Ok(Fingerprint::of(format!("{}/{message}", need(draft, "id")?).as_bytes()))
}

enum Search {
    Found(Value),
    Nowhere,
    TooMany,
}

fn find(net: Way<'_>, op: &str) -> Result<Search, Fault> {
    let list = ask(net, Request::get(format!("{ME}/drafts?maxResults={LOOK_THROUGH}")))?;
    let drafts = list.get("drafts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for draft in drafts {
        let Some(id) = draft.pointer("/message/id").and_then(Value::as_str) else { continue };
        match ask(net, wire::head(id, &[MARK])) {
            Ok(message) if header(&message, MARK) == Some(op) => return Ok(Search::Found(draft.clone())),
            Ok(_) => {}
            Err(fault) if fault.is_status(404) => {}
            Err(fault) => return Err(fault),
        }
    }
    let more = text(&list, "nextPageToken").is_some_and(|token| !token.is_empty());
    Ok(if more { Search::TooMany } else { Search::Nowhere })
}
