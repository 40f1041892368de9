//! The protocol between the gateway, its workers and third-party adapters: frames, jobs, exchanges, reports and
//! outcomes.
//!
//! Takes values of these types on one side of a socket; gives the same values on the other side. Promise: each message
//! has one definition, which the writer and the reader share; the JSON and the frames that third-party adapters see do
//! not change with a renaming here; bytes that are not a message are an error and never a guess.
#![warn(missing_docs)]

pub mod adapter_description;
pub mod adapter_job;
pub mod adapter_outcome;
pub mod base64_text;
pub mod content_report;
pub mod exchange_phase;
pub mod frame;
pub mod jail_layers;
pub mod job_failure;
pub mod message;
pub mod proxy_report;
pub mod sync_item;
pub mod worker_job;
pub mod worker_task;

pub use adapter_description::{AdapterStep, ThirdPartyDescription, WireAllowedRequest};
pub use adapter_job::{
    AdapterDescribeTask, AdapterJobRequest, AdapterRunTask, AttachedFile, ServiceHandle, ServiceWrite, SyncCursor,
};
pub use adapter_outcome::{
    AdapterWriteError, FailureCause, FailureDetail, PresentKey, SyncProgress, WireAdapterAnswer, WireStateBefore,
    WireSyncPage, WireWriteDone, WireWritePrepared,
};
pub use content_report::{ContentCleanFacts, ContentCleanReport, ContentRefusal, ContentStageNote, ReplyMailFacts};
pub use exchange_phase::ExchangePhase;
pub use frame::{MAX_BLOBS, MAX_FRAME, MAX_HEAD, WorkerFrame, WorkerFrameDecoder, WorkerFrameError};
pub use jail_layers::{JailLayer, JailLayerName, JailLayers, JailMode};
pub use job_failure::JobFailureCode;
pub use message::{
    CrashLocation, EXCHANGE_TOO_LARGE, ExchangeReply, LockedInMessage, MessageToGateway, MessageToWorker,
    NextItemReply, WorkerExchange, WorkerItem, WorkerJobOutcome, WorkerProgress, WorkerReport, WorkerTerms,
};
pub use proxy_report::{DefinitionVerdict, MountDefinitionsReport, ProxyAnswerMeasure, ProxyRunReport};
pub use sync_item::WireSyncItem;
pub use worker_job::{WorkerJob, WorkerTaskPayload};
pub use worker_task::{
    ContentCleanManyTask, ContentCleanTask, ContentProvenance, MailReplyTask, MountDefinitionsTask, ProxyRunTask,
    WorkerDescribeTask,
};
