//! Setting labels, and putting them back as they were.
//!
//! Takes names as people see them, gives the service's ids. Promise: a label is never a way to the trash or
//! out of a draft, and only what the write changed is changed back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::rollback::Fingerprint;

use super::trash::TRASH;
use super::wire::{self, ME, ask, text};
use crate::adapter::{Absolute, Before, Done, Found, Past, Reversal, Way, Write};
use crate::net::{Request, escape};
use crate::trouble::{Fault, Trouble};

/// Labels only the service itself sets.
const FIXED: [&str; 3] = ["SENT", "DRAFT", "CHAT"];
/// Labels that are deletes by another name: those have their own capability and their own rules.
const ELSEWHERE: [&str; 2] = [TRASH, "SPAM"];

/// Labels of messages.
#[derive(Debug)]
pub struct Labelling;

/// Which labels some messages have, in the one form that is hashed and kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct State {
    messages: BTreeMap<String, Vec<String>>,
    /// The labels that the write sets or removes: only those are compared and put back. Nothing in what earlier releases
    /// kept, where all of them are.
    touched: Option<Vec<String>>,
}

/// What is kept of a [`State`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Touched { touched: Vec<String>, messages: BTreeMap<String, Vec<String>> },
    All(BTreeMap<String, Vec<String>>),
}

impl From<Kept> for State {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Touched { touched, messages } => Self { messages, touched: Some(touched) },
            Kept::All(messages) => Self { messages, touched: None },
        }
    }
}

impl From<State> for Kept {
    fn from(state: State) -> Self {
        match state.touched {
            Some(touched) => Self::Touched { touched, messages: state.messages },
            None => Self::All(state.messages),
        }
    }
}

impl State {
    /// Nothing yet, of a write that sets or removes these labels.
    pub fn touching<'l>(labels: impl IntoIterator<Item = &'l str>) -> Self {
        let mut touched: Vec<String> = labels.into_iter().map(str::to_owned).collect();
        touched.sort_unstable();
        touched.dedup();
        Self { messages: BTreeMap::new(), touched: Some(touched) }
    }

    /// The same, of the write whose past this is.
    pub fn like(&self) -> Self {
        Self { messages: BTreeMap::new(), touched: self.touched.clone() }
    }

    /// Whether a label is one that the write sets or removes.
    pub fn touches(&self, label: &str) -> bool {
        self.touched.as_ref().is_none_or(|touched| touched.iter().any(|one| one == label))
    }

    /// How messages are now, as far as the write touches them.
    pub fn look(mut self, net: Way<'_>, ids: &[&str]) -> Result<Self, Fault> {
        let state = &mut self;
        for id in ids {
            state.insert(id, labels_of(net, id)?);
        }
        Ok(self)
    }

    /// What differs between what the write left and now, in words for people.
    pub fn difference(&self, now: &Self) -> Vec<String> {
        let mut words = Vec::new();
        for (id, before) in &self.messages {
            let Some(labels) = now.messages.get(id) else {
                words.push(format!("message {id} is gone"));
                continue;
            };
            let list = |labels: &[String]| {
                let touched: Vec<&str> =
                    labels.iter().map(String::as_str).filter(|label| self.touches(label)).collect();
                if touched.is_empty() { "none of them".to_owned() } else { touched.join(", ") }
            };
            words.push(format!("message {id} has {} now, and had {} before the write", list(labels), list(before)));
        }
        words
    }

    /// Notes one message.
    pub fn insert(&mut self, id: &str, labels: Vec<String>) {
        self.messages.insert(id.to_owned(), labels);
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Each message with its labels.
    pub fn each(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.messages.iter().map(|(id, labels)| (id.as_str(), labels.as_slice()))
    }

    /// What was kept to go back to.
    pub fn read(before: &[u8]) -> Result<Self, Trouble> {
        serde_json::from_slice(before).map_err(|_| Trouble::invalid("what was kept to go back cannot be read"))
    }

    /// Its print: of the labels that the write touches, and no others. That the owner opened the mail is no change.
    pub fn print(&self) -> Fingerprint {
        let touched = |labels: &Vec<String>| -> Vec<String> {
            labels.iter().filter(|label| self.touches(label)).cloned().collect()
        };
        let seen: BTreeMap<&String, Vec<String>> =
            self.messages.iter().map(|(id, labels)| (id, touched(labels))).collect();
        Fingerprint::of(&serde_json::to_vec(&seen).unwrap_or_default())
    }

    /// To go back to.
    pub fn before(&self) -> Before {
        Before { state: self.bytes(), print: self.print() }
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The labels of a message.
pub fn labels_of(net: Way<'_>, id: &str) -> Result<Vec<String>, Fault> {
    ask(net, wire::message(id, "minimal")).map(|message| wire::label_ids(&message))
}

/// Puts the labels of each message back as they were.
pub fn restore(net: Way<'_>, before: &[u8]) -> Result<Done, Trouble> {
    let wanted = State::read(before)?;
    let mut after = wanted.like();
    let mut touched = false;
    for (id, _) in wanted.each() {
        let now = put_back(net, id, &wanted, &mut touched)
            .map_err(|fault| if touched { fault.of_write().halfway() } else { fault.of_write() })?;
        after.insert(id, now);
    }
    let result = json!({"message_ids": wanted.messages.keys().collect::<Vec<_>>(), "restored": true});
    Ok(Done { receipt: format!("restored {}", after.len()), result, after: Some(after.print()), undo_until: None })
}

/// Puts the labels of one message back that the write touched. `touched` says whether anything was changed.
pub fn put_back(net: Way<'_>, id: &str, before: &State, touched: &mut bool) -> Result<Vec<String>, Fault> {
    let wanted = before.messages.get(id).map(Vec::as_slice).unwrap_or_default();
    let mut now = labels_of(net, id)?;
    let has = |labels: &[String], label: &str| labels.iter().any(|one| one == label);
    if has(&now, TRASH) && !has(wanted, TRASH) {
        ask(net, Request::post_empty(format!("{ME}/messages/{}/untrash", escape(id))))?;
        *touched = true;
        // What the service itself put back with it is not the same everywhere.
        now = labels_of(net, id)?;
    }
    let free = |label: &&String| !FIXED.contains(&label.as_str()) && before.touches(label);
    let add: Vec<&String> = wanted.iter().filter(|label| !has(&now, label)).filter(free).collect();
    let remove: Vec<&String> = now.iter().filter(|label| !has(wanted, label)).filter(free).collect();
    if add.is_empty() && remove.is_empty() {
        return Ok(now);
    }
    let message = ask(net, modify(id, &json!({"addLabelIds": add, "removeLabelIds": remove})))?;
    *touched = true;
    Ok(wire::label_ids(&message))
}

fn modify(id: &str, body: &Value) -> Request {
    Request::post(format!("{ME}/messages/{}/modify", escape(id)), body)
}

/// What a write asks for, in ids.
struct Wish<'w> {
    id: &'w str,
    add: Vec<String>,
    remove: Vec<String>,
}

fn wish<'w>(net: Way<'_>, write: &'w Write) -> Result<Wish<'w>, Trouble> {
    let id = write.arguments.get("message_id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| Trouble::invalid("no message is named"))?;
    let names = |name: &str| -> Vec<&str> {
        write.arguments.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (add, remove) = (names("add_labels"), names("remove_labels"));
    if add.is_empty() && remove.is_empty() {
        return Err(Trouble::invalid("no label is named"));
    }
    let known = ask(net, Request::get(format!("{ME}/labels"))).map_err(Fault::of_look)?;
    let known = known.get("labels").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let resolve = |name: &str| -> Result<String, Trouble> {
        let same = |label: &&Value, by: &str| text(label, by).is_some_and(|one| one.eq_ignore_ascii_case(name));
        let found = known.iter().find(|label| text(label, "id") == Some(name));
        let found = found.or_else(|| known.iter().find(|label| same(label, "name")));
        let id = found.and_then(|label| text(label, "id")).ok_or_else(|| Trouble::invalid("there is no such label"))?;
        if FIXED.contains(&id) || ELSEWHERE.contains(&id) {
            return Err(Trouble::invalid("this label cannot be set; deleting has a capability of its own"));
        }
        Ok(id.to_owned())
    };
    let all = |names: Vec<&str>| names.into_iter().map(resolve).collect::<Result<Vec<_>, _>>();
    let (add, remove) = (all(add)?, all(remove)?);
    if add.iter().any(|label| remove.contains(label)) {
        return Err(Trouble::invalid("a label cannot be set and removed at once"));
    }
    Ok(Wish { id, add, remove })
}

impl Absolute for Labelling {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        let wish = wish(net, write)?;
        let body = json!({"addLabelIds": wish.add, "removeLabelIds": wish.remove});
        let message = ask(net, modify(wish.id, &body)).map_err(Fault::of_write)?;
        Ok(done(&wish, wire::label_ids(&message)))
    }

    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        let Ok(wish) = wish(net, write) else { return Found::Unknown };
        match labels_of(net, wish.id) {
            Ok(now) => {
                let applied = wish.add.iter().all(|label| now.contains(label))
                    && !wish.remove.iter().any(|label| now.contains(label));
                if applied { Found::Applied(done(&wish, now)) } else { Found::Absent }
            }
            Err(fault) if fault.is_status(404) => Found::Absent,
            Err(_) => Found::Unknown,
        }
    }
}

impl Reversal for Labelling {
    fn capture(&self, net: Way<'_>, write: &Write) -> Result<Before, Trouble> {
        let wish = wish(net, write)?;
        wish.state().look(net, &[wish.id]).map(|state| state.before()).map_err(Fault::of_look)
    }

    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble> {
        let id = past.write.arguments.get("message_id").and_then(Value::as_str).unwrap_or_default();
        State::read(past.before)?.like().look(net, &[id]).map(|state| state.print()).map_err(Fault::of_look)
    }

    fn difference(&self, net: Way<'_>, past: Past<'_>) -> Result<Vec<String>, Trouble> {
        let before = State::read(past.before)?;
        let ids: Vec<&str> = before.each().map(|(id, _)| id).collect();
        let now = before.like().look(net, &ids).map_err(Fault::of_look)?;
        Ok(before.difference(&now))
    }

    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble> {
        restore(net, past.before)
    }
}

impl Wish<'_> {
    /// Nothing yet, of the labels it touches.
    fn state(&self) -> State {
        State::touching(self.add.iter().chain(&self.remove).map(String::as_str))
    }
}

fn done(wish: &Wish<'_>, labels: Vec<String>) -> Done {
    let mut after = wish.state();
    let result = json!({"message_id": wish.id, "labels": labels});
    after.insert(wish.id, labels);
    Done { receipt: "labels set".into(), result, after: Some(after.print()), undo_until: None }
}
