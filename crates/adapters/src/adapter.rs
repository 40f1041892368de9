//! The three traits of an adapter: sync, write, undo.
//!
//! Takes our words ([`ServiceWrite`]) and a way to the service; gives what happened. Blocking and object-safe: a worker does
//! one job and dies. Promise: an operation cannot be offered without its effect class and its way to find out what
//! happened, because [`WriteOperation`] has no other form.

use serde_json::Value;
use sluice_core::CapabilityName;
use sluice_core::capability::EffectClass;
use sluice_core::rollback::ObjectFingerprint;
pub use sluice_protocol::{AttachedFile, ServiceHandle, ServiceWrite, SyncCursor, SyncProgress};

use crate::error::{AdapterWriteError, FailureDetail};
use crate::manifest::Manifest;
use crate::net::Net;

/// The result of a write that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedWrite {
    /// The receipt of the service, short.
    pub receipt: String,
    /// The result for the agent.
    pub result: Value,
    /// A fingerprint of the object as the write left it, if the write can be undone.
    pub after: Option<ObjectFingerprint>,
    /// Until when the service itself can undo it, in milliseconds; `None` if there is no limit.
    pub undo_until: Option<i64>,
}

/// The result of a lookup of a write in doubt.
#[derive(Debug, Clone, PartialEq)]
pub enum ReconcileOutcome {
    /// It happened.
    Applied(AppliedWrite),
    /// It did not happen.
    Absent,
    /// It is not known (yet).
    Unknown,
}

/// A way to the service for the length of one job.
pub type NetAccess<'n> = &'n mut dyn Net;

/// Class A: repeating it gives the same end state.
pub trait AbsoluteWrite {
    /// Performs the write.
    ///
    /// # Errors
    /// When it was not done, was refused, or may have been done.
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError>;
    /// Looks up whether the end state is there.
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome;
}

/// Class B: an inert handle is created and can be consumed only once.
pub trait ConsumeOnceWrite {
    /// Creates the handle. Nobody outside can notice this.
    ///
    /// # Errors
    /// As in [`AbsoluteWrite::perform`], but never unclear: a lost handle is harmless.
    fn create(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<ServiceHandle, AdapterWriteError>;
    /// Consumes the handle, which has the effect.
    ///
    /// # Errors
    /// As in [`AbsoluteWrite::perform`]. A missing handle is unclear: it may have been consumed.
    fn consume(
        &self,
        net: NetAccess<'_>,
        write: &ServiceWrite,
        handle: &ServiceHandle,
    ) -> Result<AppliedWrite, AdapterWriteError>;
    /// Absent if the handle is still there. If it is gone, a look at the resulting object confirms the write.
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite, handle: &ServiceHandle) -> ReconcileOutcome;
}

/// Class C: the effect carries our id in a place that can be searched.
pub trait FindableWrite {
    /// Performs the write, marked with our id.
    ///
    /// # Errors
    /// As in [`AbsoluteWrite::perform`].
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError>;
    /// Searches for the mark. Absent only when everything was searched.
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome;
}

/// Class D: none of these. A person always resolves an uncertain outcome.
pub trait OpaqueWrite {
    /// Performs the write.
    ///
    /// # Errors
    /// As in [`AbsoluteWrite::perform`].
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError>;
}

/// How one kind of write is performed: the variant is its effect class.
#[derive(Clone, Copy)]
pub enum WriteOperation<'a> {
    /// Class A.
    Absolute(&'a dyn AbsoluteWrite),
    /// Class B.
    ConsumeOnce(&'a dyn ConsumeOnceWrite),
    /// Class C.
    Findable(&'a dyn FindableWrite),
    /// Class D.
    Opaque(&'a dyn OpaqueWrite),
}

impl WriteOperation<'_> {
    /// The effect class.
    #[must_use]
    pub const fn class(self) -> EffectClass {
        match self {
            Self::Absolute(_) => EffectClass::Absolute,
            Self::ConsumeOnce(_) => EffectClass::ConsumeOnce,
            Self::Findable(_) => EffectClass::Findable,
            Self::Opaque(_) => EffectClass::Opaque,
        }
    }

    /// Finds out the outcome of a write in doubt.
    pub fn reconcile(
        self,
        net: NetAccess<'_>,
        write: &ServiceWrite,
        handle: Option<&ServiceHandle>,
    ) -> ReconcileOutcome {
        match (self, handle) {
            (Self::Absolute(operation), _) => operation.reconcile(net, write),
            (Self::ConsumeOnce(operation), Some(handle)) => operation.reconcile(net, write, handle),
            // Without a handle, the consuming step cannot have begun.
            (Self::ConsumeOnce(_), None) => ReconcileOutcome::Absent,
            (Self::Findable(operation), _) => operation.reconcile(net, write),
            (Self::Opaque(_), _) => ReconcileOutcome::Unknown,
        }
    }
}

impl std::fmt::Debug for WriteOperation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.class().as_str())
    }
}

/// The state before a write, stored for a rollback.
#[derive(Debug, Clone, PartialEq)]
pub struct BeforeState {
    /// The state, in the adapter's own form.
    pub state: Vec<u8>,
    /// The fingerprint of the state.
    pub print: ObjectFingerprint,
}

/// A write that was done, and what is known about it.
#[derive(Debug, Clone, Copy)]
pub struct PastWrite<'w> {
    /// The write.
    pub write: &'w ServiceWrite,
    /// The state before it.
    pub before: &'w [u8],
    /// The receipt of the service.
    pub receipt: &'w str,
}

/// How one kind of write is undone.
pub trait WriteReversal {
    /// Captures the state before the write. Nothing changes.
    ///
    /// # Errors
    /// When the object cannot be read; then the write must not be performed either.
    fn capture(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<BeforeState, AdapterWriteError>;
    /// A fingerprint of the object as it is now, in the same form as the one that the write left.
    ///
    /// # Errors
    /// When the object cannot be read.
    fn current_fingerprint(
        &self,
        net: NetAccess<'_>,
        past: PastWrite<'_>,
    ) -> Result<ObjectFingerprint, AdapterWriteError>;
    /// The differences between the present state and the state before the write, in words for people: what a rollback
    /// would change. Empty where that is not known.
    ///
    /// # Errors
    /// When the object cannot be read.
    fn difference(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<Vec<String>, AdapterWriteError> {
        let _cannot_be_said = (net, past);
        Ok(Vec::new())
    }
    /// Undoes the write. Repeating it gives the same end state.
    ///
    /// # Errors
    /// As in [`AbsoluteWrite::perform`].
    fn undo(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<AppliedWrite, AdapterWriteError>;
}

/// One change at the service.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncChange {
    /// A message as it is now, raw.
    Put(RawItem),
    /// Only its labels have changed.
    Labels {
        /// The id of the message.
        id: String,
        /// All labels it has now.
        labels: Vec<String>,
    },
    /// The message is no longer there.
    Gone {
        /// The id of the message.
        id: String,
    },
    /// The names of all labels, as a complete list.
    LabelNames(Vec<(String, String)>),
}

/// A message as the service gave it. It is raw: no part of it may reach an agent before it has passed all stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawItem {
    /// The id at the service.
    pub id: String,
    /// The id of its thread.
    pub thread: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// When the service received it, in milliseconds.
    pub received: i64,
    /// The message as RFC 5322 bytes.
    pub raw: Vec<u8>,
    /// Whether only the head is here, because the message was larger than the limit.
    pub cut: bool,
    /// Its size at the service.
    pub size: u64,
    /// The name under which the receiving server records its checks (`authserv-id`), where it is known.
    pub receiver: Option<&'static str>,
}

/// Some changes, and the position after them.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncPage {
    /// The changes, in the order in which they must be applied.
    pub changes: Vec<SyncChange>,
    /// The next cursor, stored in the same transaction as the changes.
    pub next: SyncCursor,
    /// Whether more changes are available now.
    pub more: bool,
    /// The progress of a first sync; `None` for the change feed.
    pub progress: Option<SyncProgress>,
}

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncError {
    /// The service no longer knows the cursor: a fresh replica is needed, beside the old one.
    Expired,
    /// A temporary failure: try later.
    Later(FailureDetail),
    /// A person must act first.
    Stopped(FailureDetail),
}

/// Syncs a service: from the beginning, or from a cursor.
pub trait SyncAdapter {
    /// The next changes. `None` begins a full sync.
    ///
    /// # Errors
    /// When the cursor expired or the service does not answer.
    fn changes(&self, net: NetAccess<'_>, since: Option<&SyncCursor>) -> Result<SyncPage, SyncError>;

    /// Messages as they are now, by id: used to retry those that were set aside. Missing messages are reported as gone.
    ///
    /// # Errors
    /// When the service does not answer.
    fn fetch(&self, net: NetAccess<'_>, ids: &[String]) -> Result<Vec<SyncChange>, SyncError> {
        let _nobody_to_ask = (net, ids);
        Ok(Vec::new())
    }

    /// The name of the account, as the service reports it; `None` where it does not. One small request: it also shows
    /// whether the service answers and accepts our credential.
    ///
    /// # Errors
    /// When the service does not answer or refuses us.
    fn account(&self, net: NetAccess<'_>) -> Result<Option<String>, SyncError> {
        let _nobody_to_ask = net;
        Ok(None)
    }
}

/// Performs writes.
pub trait WriteExecutor {
    /// What it offers.
    fn manifest(&self) -> &Manifest;
    /// How a capability is performed; `None` for reads and for capabilities that it does not offer.
    fn operation(&self, capability: &CapabilityName) -> Option<WriteOperation<'_>>;
}

/// Undoes writes, where the service allows it.
pub trait RollbackCapable: WriteExecutor {
    /// How a capability is undone; `None` if it cannot be.
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn WriteReversal>;
}

/// A complete adapter: everything that a connected service needs.
pub trait Adapter: SyncAdapter + RollbackCapable {}
impl<A: SyncAdapter + RollbackCapable> Adapter for A {}
