//! The messages between gateway and worker.
//!
//! The gateway sends [`WorkerTerms`], one [`WorkerJob`] and a [`ExchangeReply`] to each [`WorkerExchange`]; the worker sends [`LockedInMessage`] first,
//! then exchanges, [`WorkerItem`]s and [`WorkerProgress`] during the job, and one [`WorkerReport`] at the end. The kind of a job defines
//! its meaning: here it is a name, JSON and attached bytes. Promise: any bytes give either a message of the right shape
//! or [`WorkerFrameError`]; nothing larger than the limits is kept in memory.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::json::{self, JsonLimits};

use crate::frame::{self, MAX_HEAD, WorkerFrame, WorkerFrameError};
use crate::jail_layers::{JailLayers, JailMode};
use crate::worker_job::{LONGEST_KIND, WorkerJob};
use crate::worker_task::ContentCleanTask;

/// Limits of the JSON in the head of a frame.
const HEAD: JsonLimits = JsonLimits { bytes: MAX_HEAD, depth: 64, items: 200_000 };
/// Most headers of an exchange, and their lengths.
const HEADERS: usize = 64;
const HEADER_NAME: usize = 256;
const HEADER_VALUE: usize = 8 << 10;
/// Longest path with its query, and longest ticket.
const PATH: usize = 16 << 10;
const TICKET: usize = 256;

/// The kind of frame: how a worker of ours must lock itself in.
pub const FRAME_TERMS: u8 = 1;
/// The kind of frame: the job.
pub const FRAME_JOB: u8 = 2;
/// The kind of frame: the result of an exchange.
pub const FRAME_REPLY: u8 = 3;
/// The kind of frame: the next item of a conversation, for a kept reader.
pub const FRAME_ITEM_GIVEN: u8 = 4;
/// The kind of frame: the report of the locks, from a worker of ours.
pub const FRAME_LOCKED: u8 = 65;
/// The kind of frame: a request to send.
pub const FRAME_EXCHANGE: u8 = 66;
/// The kind of frame: one result of many.
pub const FRAME_ITEM: u8 = 67;
/// The kind of frame: the progress of a job.
pub const FRAME_PROGRESS: u8 = 68;
/// The kind of frame: where a worker of ours crashed.
pub const FRAME_LAST_WORDS: u8 = 69;
/// The kind of frame: the end of a job.
pub const FRAME_REPORT: u8 = 70;
/// The kind of frame: a kept reader asks for the next item.
pub const FRAME_NEXT_ITEM: u8 = 71;

/// The terms that a worker gets before it locks itself in. They come from the gateway alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerTerms {
    /// Whether a missing layer ends it.
    pub mode: JailMode,
    /// Address space, in bytes.
    pub memory: u64,
    /// Processor time, in seconds.
    pub cpu_seconds: u64,
    /// Largest file in the scratch folder; `None` without one.
    pub scratch_bytes: Option<u64>,
    /// Whether the parent could give it namespaces, and if not, why.
    pub namespaces: Result<(), String>,
    /// Whether it is a zygote: it never gets a job itself, its forks do.
    #[serde(default)]
    pub mould: bool,
}

/// The report of the worker's locks. Sent before it has read a byte of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedInMessage {
    /// The state of each layer.
    pub layers: JailLayers,
}

/// A request that a worker wants sent: egress decides, and adds what the worker must not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerExchange {
    /// The ticket of this job.
    pub ticket: String,
    /// The method: `GET`, `POST`, …
    pub method: String,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Headers, without credentials.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// The code of a refusal because the answer is larger than allowed. The request had its effect.
pub const EXCHANGE_TOO_LARGE: &str = "egress.too_large";

/// The result of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExchangeReply {
    /// The service answered.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The headers.
        headers: Vec<(String, String)>,
        /// The body.
        #[serde(skip)]
        body: Vec<u8>,
    },
    /// It was not sent, or no answer came.
    Refused {
        /// A stable code.
        code: String,
        /// A text that is safe to show.
        text: String,
        /// Whether it is certain that the service received nothing of it.
        not_sent: bool,
    },
}

/// The answer to a worker that asks for the next item of its conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NextItemReply {
    /// One more item to read.
    Item {
        /// How to read it.
        task: ContentCleanTask,
        /// The item.
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// There is no more: the regular end.
    Over,
}

/// One result of many, sent while the job goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerItem {
    /// The result, as its kind defines it.
    pub payload: Value,
    /// Attached bytes.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// The progress of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerProgress {
    /// Steps that are done.
    pub done: u64,
    /// Total number of steps, if known.
    pub of: Option<u64>,
}

/// Where it crashed. A place in our source, never a text that may hold content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashLocation {
    /// The place: `file:line`.
    pub place: String,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerReport {
    /// Whether the job was done, or why not.
    pub outcome: WorkerJobOutcome,
    /// Attached bytes.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// Whether a job was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkerJobOutcome {
    /// It was done; the value is defined by its kind.
    Done(Value),
    /// It was not done, for an expected reason.
    Failed {
        /// A stable code.
        code: String,
        /// A text that is safe to show.
        text: String,
    },
}

/// A message from gateway to worker.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageToWorker {
    /// How it must lock itself in.
    Terms(WorkerTerms),
    /// Its job.
    Job(WorkerJob),
    /// The result of its exchange.
    Reply(ExchangeReply),
    /// The next item of its conversation.
    NextItem(NextItemReply),
}

/// A message from worker to gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageToGateway {
    /// The locks are on.
    Locked(LockedInMessage),
    /// A request to send.
    Exchange(WorkerExchange),
    /// It asks for the next item of its conversation. Only `content.clean.many` does.
    NextItem,
    /// One result.
    Item(WorkerItem),
    /// The progress.
    Progress(WorkerProgress),
    /// Where it crashed.
    LastWords(CrashLocation),
    /// The end of the job.
    Report(WorkerReport),
}

impl MessageToWorker {
    /// Encodes the message.
    ///
    /// # Errors
    /// When it is larger than a frame may be.
    pub fn encode(self) -> Result<Vec<u8>, WorkerFrameError> {
        match self {
            Self::Terms(terms) => frame::encode(FRAME_TERMS, &terms, &[]),
            Self::Job(mut job) => {
                let attachments = std::mem::take(&mut job.attachments);
                frame::encode(FRAME_JOB, &job, &attachments)
            }
            Self::Reply(mut reply) => {
                let body = match &mut reply {
                    ExchangeReply::Answer { body, .. } => vec![std::mem::take(body)],
                    ExchangeReply::Refused { .. } => Vec::new(),
                };
                frame::encode(FRAME_REPLY, &reply, &body)
            }
            Self::NextItem(mut reply) => {
                let bytes = match &mut reply {
                    NextItemReply::Item { bytes, .. } => vec![std::mem::take(bytes)],
                    NextItemReply::Over => Vec::new(),
                };
                frame::encode(FRAME_ITEM_GIVEN, &reply, &bytes)
            }
        }
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// When it is not one of these messages.
    pub fn decode(frame: WorkerFrame) -> Result<Self, WorkerFrameError> {
        let WorkerFrame { kind, head, blobs } = frame;
        match kind {
            FRAME_TERMS => Ok(Self::Terms(without_blobs(&head, &blobs)?)),
            FRAME_JOB => Ok(Self::Job(WorkerJob { attachments: blobs, ..read(&head)? })),
            FRAME_REPLY => match read(&head)? {
                ExchangeReply::Answer { status, headers, .. } => {
                    Ok(Self::Reply(ExchangeReply::Answer { status, headers, body: only(blobs)? }))
                }
                refused @ ExchangeReply::Refused { .. } if blobs.is_empty() => Ok(Self::Reply(refused)),
                ExchangeReply::Refused { .. } => Err(WorkerFrameError::Shape),
            },
            FRAME_ITEM_GIVEN => match read(&head)? {
                NextItemReply::Item { task, .. } => {
                    Ok(Self::NextItem(NextItemReply::Item { task, bytes: only(blobs)? }))
                }
                NextItemReply::Over if blobs.is_empty() => Ok(Self::NextItem(NextItemReply::Over)),
                NextItemReply::Over => Err(WorkerFrameError::Shape),
            },
            _ => Err(WorkerFrameError::Kind),
        }
    }
}

impl MessageToGateway {
    /// Encodes the message.
    ///
    /// # Errors
    /// When it is larger than a frame may be.
    pub fn encode(self) -> Result<Vec<u8>, WorkerFrameError> {
        match self {
            Self::Locked(locked) => frame::encode(FRAME_LOCKED, &locked, &[]),
            Self::Exchange(mut exchange) => {
                let body = [std::mem::take(&mut exchange.body)];
                frame::encode(FRAME_EXCHANGE, &exchange, &body)
            }
            Self::Item(mut item) => {
                let attachments = std::mem::take(&mut item.attachments);
                frame::encode(FRAME_ITEM, &item, &attachments)
            }
            Self::Progress(progress) => frame::encode(FRAME_PROGRESS, &progress, &[]),
            Self::LastWords(words) => frame::encode(FRAME_LAST_WORDS, &words, &[]),
            Self::Report(mut report) => {
                let attachments = std::mem::take(&mut report.attachments);
                frame::encode(FRAME_REPORT, &report, &attachments)
            }
            Self::NextItem => frame::encode(FRAME_NEXT_ITEM, &(), &[]),
        }
    }

    /// Decodes a frame. The frame comes from a process that may be hostile.
    ///
    /// # Errors
    /// When it is not one of these messages, or a part of it is invalid.
    pub fn decode(frame: WorkerFrame) -> Result<Self, WorkerFrameError> {
        let WorkerFrame { kind, head, blobs } = frame;
        match kind {
            FRAME_LOCKED => Ok(Self::Locked(without_blobs(&head, &blobs)?)),
            FRAME_EXCHANGE => {
                let exchange = WorkerExchange { body: only(blobs)?, ..read(&head)? };
                exchange.check()?;
                Ok(Self::Exchange(exchange))
            }
            FRAME_ITEM => Ok(Self::Item(WorkerItem { attachments: blobs, ..read(&head)? })),
            FRAME_PROGRESS => Ok(Self::Progress(without_blobs(&head, &blobs)?)),
            FRAME_LAST_WORDS => {
                let words: CrashLocation = without_blobs(&head, &blobs)?;
                let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
                Ok(Self::LastWords(CrashLocation { place: words.place.chars().take(200).map(plain).collect() }))
            }
            FRAME_REPORT => {
                let report = WorkerReport { attachments: blobs, ..read(&head)? };
                match &report.outcome {
                    WorkerJobOutcome::Failed { code, text } if code.len() > LONGEST_KIND || text.len() > 2000 => {
                        Err(WorkerFrameError::Shape)
                    }
                    WorkerJobOutcome::Done(_) | WorkerJobOutcome::Failed { .. } => Ok(Self::Report(report)),
                }
            }
            FRAME_NEXT_ITEM => without_blobs::<()>(&head, &blobs).map(|()| Self::NextItem),
            _ => Err(WorkerFrameError::Kind),
        }
    }
}

impl WorkerExchange {
    /// Whether it can be put into a request at all. Egress decides whether it may be sent.
    fn check(&self) -> Result<(), WorkerFrameError> {
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
        if fine { Ok(()) } else { Err(WorkerFrameError::Shape) }
    }
}

/// The head as one of our types: strict JSON first, then the exact shape.
fn read<T: DeserializeOwned>(head: &[u8]) -> Result<T, WorkerFrameError> {
    let value = json::parse(head, &HEAD).map_err(|_| WorkerFrameError::Json)?;
    serde_json::from_value(value).map_err(|_| WorkerFrameError::Shape)
}

fn without_blobs<T: DeserializeOwned>(head: &[u8], blobs: &[Vec<u8>]) -> Result<T, WorkerFrameError> {
    if blobs.is_empty() { read(head) } else { Err(WorkerFrameError::Shape) }
}

fn only(blobs: Vec<Vec<u8>>) -> Result<Vec<u8>, WorkerFrameError> {
    let mut blobs = blobs.into_iter();
    match (blobs.next(), blobs.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(WorkerFrameError::Shape),
    }
}

#[cfg(test)]
mod tests;
