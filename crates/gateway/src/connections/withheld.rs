//! Messages that are kept from agents: which ones, under which finding, and since when not any more.
//!
//! Takes what workers found in a message and what the owner set; gives the finding an agent is told of instead of the
//! message. Promise: a message reaches an agent only below its service's threshold or after a person released these
//! very words; one that is asked for is on record first, and its session is tainted.

use sluice_core::ids::FindingId;
use sluice_core::mail::{Mail, UNOPENED};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, Timestamp};
use sluice_store::replica::{Change, Reader as Eyes, Replica};

use super::mail::unavailable;
use super::{Connections, Line, apart};
use crate::No;
use crate::intake::{Cleaned, Incoming, Note, Reader};
use crate::services::Ask;

/// The rule of a message that no rule caught, where everything is withheld.
const EVERYTHING: &str = "content.threshold";

impl Connections {
    /// Decides on each message that is about to be copied.
    pub(super) fn judged(&self, line: &Line, changes: Vec<Change>) -> Result<Vec<Change>, No> {
        let gw = self.gateway()?;
        let (intake, name) = (&gw.intake, line.row().name);
        let ours = |change: &Change| matches!(change, Change::Put(mail) if apart::is_own_letter(&gw.config, mail));
        let judged = changes.into_iter().filter(|change| !ours(change)).map(|change| match change {
            Change::Put(mut mail) => {
                if is_unopened(&mail) {
                    // Nothing of it is known: there is nothing to show.
                } else if !intake.withholds(&name, mail.score) {
                    mail.withheld.clear();
                } else if mail.withheld.is_empty() {
                    mail.withheld.push(EVERYTHING.to_owned());
                }
                Change::Put(mail)
            }
            other => other,
        });
        Ok(judged.collect())
    }

    /// Shows a message to agents from now on if a person has released it. Says whether it is shown.
    pub(super) async fn let_through(
        &self,
        copy: &Replica,
        (service, id): (&ServiceName, &str),
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let Some(mail) = copy.get(id, Eyes::Person).map_err(unavailable)? else { return Ok(false) };
        if mail.withheld.is_empty() || is_unopened(&mail) {
            return Ok(mail.withheld.is_empty());
        }
        let gw = self.gateway().map_err(|no| *no.refusal)?;
        let released = gw.intake.is_released(&incoming(service, &mail, now)).await?;
        if released {
            copy.release(id).map_err(unavailable)?;
        }
        Ok(released)
    }

    /// The refusal for an agent that asks for a message that is withheld: with the finding a person can look at.
    pub(super) async fn withheld(&self, copy: &Replica, service: &ServiceName, ask: &Ask, id: &str) -> Refusal {
        match self.finding(copy, service, ask, id).await {
            Ok(Some((finding, false))) => kept_back("message", finding),
            Ok(Some((finding, true))) => read_in_two_ways(finding),
            Ok(None) => Refusal::new(Code::ContentWithheld),
            Err(refusal) => refusal,
        }
    }

    async fn finding(
        &self,
        copy: &Replica,
        service: &ServiceName,
        ask: &Ask,
        id: &str,
    ) -> Result<Option<(FindingId, bool)>, Refusal> {
        let Some(mail) = copy.get(id, Eyes::Person).map_err(unavailable)? else { return Ok(None) };
        if is_unopened(&mail) {
            return Ok(None);
        }
        let mut item = incoming(service, &mail, ask.now);
        item.reader = Some(Reader::of(ask));
        let gw = self.gateway().map_err(|no| *no.refusal)?;
        let finding = gw.intake.asked_for(&item, &copied(&mail)).await?;
        Ok(finding.map(|finding| (finding, mail.ambiguous.is_some())))
    }
}

/// The refusal that names a finding.
pub(super) fn kept_back(what: &str, finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "the {what} speaks to its reader instead of to its addressee; it is kept back as {finding} until a person \
         releases it (sluice findings release {finding})"
    ))
}

/// The refusal that names a finding about a message with two readings.
fn read_in_two_ways(finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "two readers read the message differently, so who sent it or what it says is not certain; it is kept back as \
         {finding} until a person has seen both readings and releases it (sluice findings release {finding})"
    ))
}

/// Whether a message is there by its place only: whoever opened it broke.
fn is_unopened(mail: &Mail) -> bool {
    mail.withheld.iter().any(|rule| rule == UNOPENED)
}

/// A message as an item from outside. The same message gives the same bytes, whatever its labels.
fn incoming(service: &ServiceName, mail: &Mail, at: Timestamp) -> Incoming {
    let author = mail.sender_line();
    Incoming {
        bytes: words(mail).into_bytes(),
        declared: None,
        service: service.clone(),
        source: format!("message {}", mail.id),
        author,
        at,
        beside: None,
        reader: None,
        enveloped: false,
    }
}

/// A message as a person is shown it.
fn words(mail: &Mail) -> String {
    let people = |people: &[sluice_core::mail::Address]| {
        let all: Vec<String> = people.iter().map(ToString::to_string).collect();
        all.join(", ")
    };
    let (from, subject) = (mail.sender_line(), mail.subject_line());
    let files: Vec<&str> = mail.attachments.iter().filter_map(|file| file.name.as_deref()).collect();
    format!(
        "From: {from}\nTo: {}\nCc: {}\nSubject: {}\nFiles: {}\n\n{}",
        people(&mail.to),
        people(&mail.cc),
        subject,
        files.join(", "),
        mail.text,
    )
}

/// What the worker that copied a message said of it.
fn copied(mail: &Mail) -> Cleaned {
    let weight = f64::from(mail.score) / 1000.0;
    // Between 0 and 1.
    let score = weight as f32;
    let note = |rule: &String| Note {
        stage: "injection".into(),
        rule: rule.clone(),
        carrier: "mail".into(),
        start: 0,
        end: 0,
        score,
    };
    let notes: Vec<Note> = mail.withheld.iter().map(note).collect();
    Cleaned { text: words(mail), value: None, score, found: notes.len() as u64, notes, withheld: None }
}
