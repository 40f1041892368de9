//! `content.clean`: one item from outside, through all six stages; `content.clean.many`: items of one source, in turn.
//!
//! Takes the bytes as its one attachment and what is said about them; gives the clean text, its JSON value if it is
//! one, and what was found. The second asks the gateway for each item and hands over what it gave. Promise: nothing said about the sender reaches the injection stage; what a stage does not
//! let through is named by its code and nothing of it is given.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_content::finding::scale;
use sluice_content::stages::{Envelope, Place};
use sluice_content::{Clean, Finding, Plan, Raw, clean};
use sluice_sandbox::protocol::{Exchange, Job, Reply};

use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};

/// Most findings that are reported; more say nothing new.
const REPORTED: usize = 64;

/// Cleans one item.
#[derive(Debug)]
pub(crate) struct Cleaning;

/// What it is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    /// The type the bytes claim to have.
    #[serde(default)]
    declared: Option<String>,
    /// Text that came along and is shown beside the content, such as headers: looked at, not given back.
    #[serde(default)]
    beside: Option<String>,
    /// Provenance to put around the text; without it the bare text comes out.
    #[serde(default)]
    envelope: Option<Label>,
}

/// Where the content is from, as the gateway knows it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    source: String,
    author: String,
    time: String,
    /// 64 hex digits that nobody outside can know.
    seal: String,
}

impl Kind for Cleaning {
    fn name(&self) -> &'static str {
        "content.clean"
    }

    fn about(&self) -> &'static str {
        "reads one item from outside through the six stages"
    }

    fn perform(&self, job: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        let [bytes] = job.attachments.as_slice() else { return Err(wrong("one attachment belongs to this job")) };
        read(job.payload, bytes)
    }
}

/// Cleans one item after the other, all of one source.
#[derive(Debug)]
pub(crate) struct Reading;

impl Kind for Reading {
    fn name(&self) -> &'static str {
        "content.clean.many"
    }

    fn about(&self) -> &'static str {
        "reads items of one source through the six stages, one after the other"
    }

    fn perform(&self, _: Job, gate: &mut Gate<'_>) -> Result<Done, Fault> {
        loop {
            let next = Exchange {
                ticket: String::new(),
                method: "NEXT".into(),
                path: "/".into(),
                headers: Vec::new(),
                body: Vec::new(),
            };
            // Nothing more to read is the end, and a good one.
            let Reply::Answer { headers, body, .. } = gate.exchange(next)? else { return Ok(Done::default()) };
            let task = headers.first().map(|(_, task)| task.as_str()).unwrap_or_default();
            let task = serde_json::from_str(task).map_err(|_| wrong("not a job of cleaning"))?;
            let Done { payload, attachments } = read(task, &body)?;
            gate.item(payload, attachments)?;
        }
    }
}

fn wrong(text: &str) -> Fault {
    Fault { code: "worker.job", text: text.to_owned() }
}

/// One item, as a job says.
fn read(task: Value, bytes: &[u8]) -> Result<Done, Fault> {
    let task: Task = serde_json::from_value(task).map_err(|_| wrong("not a job of cleaning"))?;
    let envelope = task.envelope.map(Label::envelope).transpose().map_err(wrong)?;
    let plan = Plan { place: Place::Text, envelope, ..Plan::default() };
    let mut raw = Raw::new(bytes);
    if let Some(declared) = &task.declared {
        raw = raw.declared(declared);
    }
    let cleaned = match clean(raw, &plan) {
        Ok(cleaned) => cleaned,
        // Not an error of ours: the gateway decides what becomes of an item that a stage refused.
        Err(refused) => return Ok(Done { payload: json!({"refused": refused.code()}), attachments: Vec::new() }),
    };
    let beside = match task.beside.as_deref().map(|text| clean(Raw::new(text.as_bytes()), &Plan::default())) {
        Some(Err(refused)) => {
            return Ok(Done { payload: json!({"refused": refused.code()}), attachments: Vec::new() });
        }
        Some(Ok(beside)) => Some(beside),
        None => None,
    };
    let all = || [Some(&cleaned), beside.as_ref()].into_iter().flatten();
    let score = all().map(Clean::score).fold(0.0, f32::max);
    let mut heaviest: Vec<&Finding> = all().flat_map(Clean::findings).collect();
    let found = heaviest.len();
    heaviest.sort_by(|one, other| other.score.total_cmp(&one.score));
    let findings: Vec<Value> = heaviest.iter().take(REPORTED).map(|finding| shown(finding)).collect();
    let payload = json!({
        "score": score, "found": found, "findings": findings, "json": cleaned.value().is_some(),
    });
    let mut attachments = vec![cleaned.text().as_bytes().to_vec()];
    attachments.extend(cleaned.value().map(|value| value.to_string().into_bytes()));
    Ok(Done { payload, attachments })
}

/// A finding, with its weight on the scale from nought to one.
fn shown(finding: &Finding) -> Value {
    json!({
        "stage": finding.stage, "rule": finding.rule, "carrier": finding.carrier,
        "start": finding.span.start, "end": finding.span.end, "score": scale(finding.score),
    })
}

impl Label {
    fn envelope(self) -> Result<Envelope, &'static str> {
        let seal = sluice_core::hex::decode(&self.seal).ok_or("the seal is not one")?;
        Ok(Envelope { source: self.source, author: self.author, time: self.time, seal })
    }
}
