//! What gateway and worker say to each other.
//!
//! The gateway sends [`Terms`], one [`Job`] and a [`Reply`] to each [`Exchange`]; the worker sends [`Locked`]
//! first, then exchanges, [`Item`]s and [`Progress`] as the job goes on, and one [`Report`] at the end. What a
//! job means is the business of its kind: here it is a name, JSON and attached bytes. Promise: whatever bytes
//! come, the answer is a message that has the right shape or [`Malformed`]; nothing larger than the limits
//! is kept in memory.

mod frame;
pub(crate) mod mould;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::json::{self, Limits};

pub use frame::{Decoder, Frame, MAX_BLOBS, MAX_FRAME, MAX_HEAD, Malformed};

use crate::layers::{Layers, Mode};

/// JSON in the head of a frame.
const HEAD: Limits = Limits { bytes: MAX_HEAD, depth: 64, items: 200_000 };
/// Longest name of a kind.
const KIND: usize = 64;
/// Headers of an exchange, and their lengths.
const HEADERS: usize = 64;
const HEADER_NAME: usize = 256;
const HEADER_VALUE: usize = 8 << 10;
/// Longest path with its query, and longest ticket.
const PATH: usize = 16 << 10;
const TICKET: usize = 256;

/// What a worker is told before it locks itself in. It comes from the gateway alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Whether a missing layer ends it.
    pub mode: Mode,
    /// Address space, in bytes.
    pub memory: u64,
    /// Processor time, in seconds.
    pub cpu_seconds: u64,
    /// Largest file in the scratch folder; without one, nothing.
    pub scratch_bytes: Option<u64>,
    /// Whether the parent could give it namespaces, and if not, why.
    pub namespaces: Result<(), String>,
    /// It is a mould: it never has a job itself, copies of it do.
    #[serde(default)]
    pub mould: bool,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Which of the worker's kinds: `content.clean`.
    pub kind: String,
    /// What the kind wants to know.
    pub payload: Value,
    /// Bytes that belong to it.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// How the worker is locked in. Sent before it has read a byte of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// Each layer.
    pub layers: Layers,
}

/// What a worker wants sent: the gateway's egress decides whether, and adds what the worker must not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The right it was given for this job.
    pub ticket: String,
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Headers, without credentials.
    pub headers: Vec<(String, String)>,
    /// Body.
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// What became of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The service answered.
    Answer {
        /// HTTP status.
        status: u16,
        /// Headers.
        headers: Vec<(String, String)>,
        /// Body.
        #[serde(skip)]
        body: Vec<u8>,
    },
    /// It was not sent, or no answer came.
    Refused {
        /// A stable code.
        code: String,
        /// Safe to show.
        text: String,
        /// Whether it is certain that the service saw nothing of it.
        not_sent: bool,
    },
}

/// One result of many, sent while the job goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// As its kind says.
    pub payload: Value,
    /// Bytes that belong to it.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all, if known.
    pub of: Option<u64>,
}

/// Where it broke. A place in our source, never a text that may hold content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastWords {
    /// `file:line`.
    pub place: String,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Whether the job was done, or the kind's own word for why not.
    pub outcome: Outcome,
    /// Bytes that belong to it.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// Whether a job was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It was; as its kind says.
    Done(Value),
    /// It was not, for a reason the worker foresaw.
    Failed {
        /// A stable code.
        code: String,
        /// Safe to show.
        text: String,
    },
}

/// From gateway to worker.
#[derive(Debug, Clone, PartialEq)]
pub enum ToWorker {
    /// How it is to lock itself in.
    Terms(Terms),
    /// What it is to do.
    Job(Job),
    /// What became of its exchange.
    Reply(Reply),
}

/// From worker to gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum ToGateway {
    /// The doors are shut.
    Locked(Locked),
    /// Please send this.
    Exchange(Exchange),
    /// One result.
    Item(Item),
    /// How far it is.
    Progress(Progress),
    /// Something broke.
    LastWords(LastWords),
    /// The end.
    Report(Report),
}

impl ToWorker {
    /// As bytes.
    ///
    /// # Errors
    /// It is larger than a frame may be.
    pub fn encode(self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Terms(terms) => frame::encode(1, &terms, &[]),
            Self::Job(mut job) => {
                let attachments = std::mem::take(&mut job.attachments);
                frame::encode(2, &job, &attachments)
            }
            Self::Reply(mut reply) => {
                let body = match &mut reply {
                    Reply::Answer { body, .. } => vec![std::mem::take(body)],
                    Reply::Refused { .. } => Vec::new(),
                };
                frame::encode(3, &reply, &body)
            }
        }
    }

    /// From a frame.
    ///
    /// # Errors
    /// It is none of these.
    pub fn decode(frame: Frame) -> Result<Self, Malformed> {
        let Frame { kind, head, blobs } = frame;
        match kind {
            1 => Ok(Self::Terms(without_blobs(&head, &blobs)?)),
            2 => Ok(Self::Job(Job { attachments: blobs, ..read(&head)? })),
            3 => match read(&head)? {
                Reply::Answer { status, headers, .. } => {
                    Ok(Self::Reply(Reply::Answer { status, headers, body: only(blobs)? }))
                }
                refused @ Reply::Refused { .. } if blobs.is_empty() => Ok(Self::Reply(refused)),
                Reply::Refused { .. } => Err(Malformed::Shape),
            },
            _ => Err(Malformed::Kind),
        }
    }
}

impl ToGateway {
    /// As bytes.
    ///
    /// # Errors
    /// It is larger than a frame may be.
    pub fn encode(self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Locked(locked) => frame::encode(65, &locked, &[]),
            Self::Exchange(mut exchange) => {
                let body = [std::mem::take(&mut exchange.body)];
                frame::encode(66, &exchange, &body)
            }
            Self::Item(mut item) => {
                let attachments = std::mem::take(&mut item.attachments);
                frame::encode(67, &item, &attachments)
            }
            Self::Progress(progress) => frame::encode(68, &progress, &[]),
            Self::LastWords(words) => frame::encode(69, &words, &[]),
            Self::Report(mut report) => {
                let attachments = std::mem::take(&mut report.attachments);
                frame::encode(70, &report, &attachments)
            }
        }
    }

    /// From a frame. This reads what a hostile process wrote.
    ///
    /// # Errors
    /// It is none of these, or a part of it is not what it must be.
    pub fn decode(frame: Frame) -> Result<Self, Malformed> {
        let Frame { kind, head, blobs } = frame;
        match kind {
            65 => Ok(Self::Locked(without_blobs(&head, &blobs)?)),
            66 => {
                let exchange = Exchange { body: only(blobs)?, ..read(&head)? };
                exchange.check()?;
                Ok(Self::Exchange(exchange))
            }
            67 => Ok(Self::Item(Item { attachments: blobs, ..read(&head)? })),
            68 => Ok(Self::Progress(without_blobs(&head, &blobs)?)),
            69 => {
                let words: LastWords = without_blobs(&head, &blobs)?;
                let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
                Ok(Self::LastWords(LastWords { place: words.place.chars().take(200).map(plain).collect() }))
            }
            70 => {
                let report = Report { attachments: blobs, ..read(&head)? };
                match &report.outcome {
                    Outcome::Failed { code, text } if code.len() > KIND || text.len() > 2000 => Err(Malformed::Shape),
                    Outcome::Done(_) | Outcome::Failed { .. } => Ok(Self::Report(report)),
                }
            }
            _ => Err(Malformed::Kind),
        }
    }
}

impl Exchange {
    /// Whether it can be put into a request at all. Whether it may is the egress's business.
    fn check(&self) -> Result<(), Malformed> {
        let token = |text: &str, most: usize| {
            !text.is_empty()
                && text.len() <= most
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        };
        let value =
            |text: &str| text.len() <= HEADER_VALUE && text.bytes().all(|b| b == b'\t' || (b >= 32 && b != 127));
        let fine = token(&self.method, 16)
            && self.ticket.len() <= TICKET
            && self.ticket.bytes().all(|b| b.is_ascii_graphic())
            && self.path.starts_with('/')
            && self.path.len() <= PATH
            && self.path.bytes().all(|b| b.is_ascii_graphic())
            && self.headers.len() <= HEADERS
            && self.headers.iter().all(|(name, text)| token(name, HEADER_NAME) && value(text));
        if fine { Ok(()) } else { Err(Malformed::Shape) }
    }
}

impl Job {
    /// Whether a worker could be asked this.
    #[must_use]
    pub fn has_a_kind(&self) -> bool {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'_';
        !self.kind.is_empty() && self.kind.len() <= KIND && self.kind.bytes().all(plain)
    }
}

/// The head as a type of ours: strict JSON first, then the exact shape.
fn read<T: DeserializeOwned>(head: &[u8]) -> Result<T, Malformed> {
    let value = json::parse(head, &HEAD).map_err(|_| Malformed::Json)?;
    serde_json::from_value(value).map_err(|_| Malformed::Shape)
}

fn without_blobs<T: DeserializeOwned>(head: &[u8], blobs: &[Vec<u8>]) -> Result<T, Malformed> {
    if blobs.is_empty() { read(head) } else { Err(Malformed::Shape) }
}

fn only(blobs: Vec<Vec<u8>>) -> Result<Vec<u8>, Malformed> {
    let mut blobs = blobs.into_iter();
    match (blobs.next(), blobs.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Malformed::Shape),
    }
}

#[cfg(test)]
mod tests;
