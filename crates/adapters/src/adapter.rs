//! The three traits of an adapter: copy, write, take back.
//!
//! Takes our words ([`Write`]) and a way to the service; gives what happened. Blocking and object-safe: a
//! worker does one job and dies. Promise: an operation cannot be offered without its effect class and its
//! way to find out what happened, because [`Operation`] has no other shape.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_core::CapabilityName;
use sluice_core::capability::EffectClass;
use sluice_core::rollback::Fingerprint;

use crate::manifest::Manifest;
use crate::net::Net;
use crate::trouble::{Trouble, Why};

/// A write on its way to a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The hold's id: what the effect is marked with where the service lets us.
    pub op: String,
    /// What is to be done.
    pub capability: CapabilityName,
    /// With which arguments, exactly as they were approved.
    pub arguments: Map<String, Value>,
    /// When the attempt was armed, in milliseconds.
    pub at: i64,
    /// Files the arguments name by their hash.
    #[serde(default)]
    pub blobs: Vec<Blob>,
}

/// A file to go out with a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// The name its reader sees.
    pub name: String,
    /// What it is.
    pub media_type: String,
    /// Its content.
    #[serde(with = "crate::job::base64_text")]
    pub bytes: Vec<u8>,
}

/// The service's inert object that a second step consumes. Once stored it is the only one for its write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle(pub String);

/// A write that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The service's proof, short.
    pub receipt: String,
    /// What the agent is told.
    pub result: Value,
    /// A print of the object as the write left it, if it can be taken back.
    pub after: Option<Fingerprint>,
    /// Until when the service itself can take it back, in milliseconds, if not for ever.
    pub undo_until: Option<i64>,
}

/// What a look at the service showed about a write in doubt.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It happened.
    Applied(Done),
    /// It did not.
    Absent,
    /// It cannot be told (yet).
    Unknown,
}

/// A way to the service for the length of one job.
pub type Way<'n> = &'n mut dyn Net;

/// Class A: repeating it gives the same end state.
pub trait Absolute {
    /// Does it.
    ///
    /// # Errors
    /// When it was not done, was refused, or may have been done.
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble>;
    /// Looks whether the end state is there.
    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found;
}

/// Class B: an inert handle is created and can be consumed only once.
pub trait ConsumeOnce {
    /// Creates the handle. Nothing anyone outside could notice happens.
    ///
    /// # Errors
    /// As in [`Absolute::perform`], but never unclear: a lost handle is harmless.
    fn create(&self, net: Way<'_>, write: &Write) -> Result<Handle, Trouble>;
    /// Consumes it: the effect.
    ///
    /// # Errors
    /// As in [`Absolute::perform`]. A handle that is gone is unclear: it may have been consumed.
    fn consume(&self, net: Way<'_>, write: &Write, handle: &Handle) -> Result<Done, Trouble>;
    /// Handle still there: absent. Gone: confirmed by a look at what it became.
    fn reconcile(&self, net: Way<'_>, write: &Write, handle: &Handle) -> Found;
}

/// Class C: the effect carries our id in a place that can be searched.
pub trait Findable {
    /// Does it, marked.
    ///
    /// # Errors
    /// As in [`Absolute::perform`].
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble>;
    /// Looks for the mark. Absent only when everything was searched.
    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found;
}

/// Class D: none of these. A doubt about it is always a person's.
pub trait Opaque {
    /// Does it.
    ///
    /// # Errors
    /// As in [`Absolute::perform`].
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble>;
}

/// How one kind of write is carried out: its class is which of these it is.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// A.
    Absolute(&'a dyn Absolute),
    /// B.
    ConsumeOnce(&'a dyn ConsumeOnce),
    /// C.
    Findable(&'a dyn Findable),
    /// D.
    Opaque(&'a dyn Opaque),
}

impl Operation<'_> {
    /// Its class.
    #[must_use]
    pub const fn class(self) -> EffectClass {
        match self {
            Self::Absolute(_) => EffectClass::Absolute,
            Self::ConsumeOnce(_) => EffectClass::ConsumeOnce,
            Self::Findable(_) => EffectClass::Findable,
            Self::Opaque(_) => EffectClass::Opaque,
        }
    }

    /// Finds out what became of a write in doubt.
    pub fn reconcile(self, net: Way<'_>, write: &Write, handle: Option<&Handle>) -> Found {
        match (self, handle) {
            (Self::Absolute(operation), _) => operation.reconcile(net, write),
            (Self::ConsumeOnce(operation), Some(handle)) => operation.reconcile(net, write, handle),
            // Without a handle the consuming step cannot have begun.
            (Self::ConsumeOnce(_), None) => Found::Absent,
            (Self::Findable(operation), _) => operation.reconcile(net, write),
            (Self::Opaque(_), _) => Found::Unknown,
        }
    }
}

impl std::fmt::Debug for Operation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.class().as_str())
    }
}

/// What was found before a write, to be able to go back to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    /// In the adapter's own form.
    pub state: Vec<u8>,
    /// Its print.
    pub print: Fingerprint,
}

/// A write that was done, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Past<'w> {
    /// The write.
    pub write: &'w Write,
    /// What it found.
    pub before: &'w [u8],
    /// What the service said.
    pub receipt: &'w str,
}

/// How one kind of write is taken back.
pub trait Reversal {
    /// Looks before the write. Nothing changes.
    ///
    /// # Errors
    /// When the object cannot be read; the write then must not be done either.
    fn capture(&self, net: Way<'_>, write: &Write) -> Result<Before, Trouble>;
    /// A print of the object as it is now, in the same form as the one the write left.
    ///
    /// # Errors
    /// When the object cannot be read.
    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble>;
    /// What differs now from what the write found, in words for people: what taking it back would change. Nothing where
    /// that cannot be said.
    ///
    /// # Errors
    /// When the object cannot be read.
    fn difference(&self, net: Way<'_>, past: Past<'_>) -> Result<Vec<String>, Trouble> {
        let _cannot_be_said = (net, past);
        Ok(Vec::new())
    }
    /// Takes it back. Repeating it gives the same end state.
    ///
    /// # Errors
    /// As in [`Absolute::perform`].
    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble>;
}

/// Where a copy stands, in the adapter's own words. Others keep it and never look inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub String);

/// One thing that changed at the service.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A message as it is now, raw.
    Put(RawItem),
    /// Only its labels are other ones.
    Labels {
        /// Which message.
        id: String,
        /// All labels it has now.
        labels: Vec<String>,
    },
    /// It is no longer there.
    Gone {
        /// Which message.
        id: String,
    },
    /// The names of the labels themselves, whole.
    LabelNames(Vec<(String, String)>),
}

/// A message as the service gave it. It is raw: nothing of it may reach an agent before all stages passed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawItem {
    /// The service's id.
    pub id: String,
    /// Its thread.
    pub thread: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// When the service got it, in milliseconds.
    pub received: i64,
    /// RFC 5322 bytes.
    pub raw: Vec<u8>,
    /// Whether only the head is here, because the whole was larger than is let in.
    pub cut: bool,
    /// Its size at the service.
    pub size: u64,
    /// The name under which the server that received it records what it checked (`authserv-id`), where it is known.
    pub receiver: Option<&'static str>,
}

/// How far a first copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Messages copied.
    pub done: u64,
    /// Messages there are, by the service's own estimate.
    pub total: Option<u64>,
}

/// Some changes, and where to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// In the order in which they are to be applied.
    pub changes: Vec<Change>,
    /// To be kept in the same transaction as the changes.
    pub next: Cursor,
    /// Whether there is more now.
    pub more: bool,
    /// How far a first copy is; nothing for the change feed.
    pub progress: Option<Progress>,
}

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncTrouble {
    /// The service has forgotten the cursor: a fresh copy is needed, beside the old one.
    Expired,
    /// Not now.
    Later(Why),
    /// Not before a person did something.
    Stopped(Why),
}

/// Copies a service: from nothing, or from a cursor on.
pub trait SyncAdapter {
    /// The next changes. `None` begins a full copy.
    ///
    /// # Errors
    /// When the cursor expired or the service does not answer.
    fn changes(&self, net: Way<'_>, since: Option<&Cursor>) -> Result<Page, SyncTrouble>;

    /// Messages as they are now, by id: those that were set aside are tried again. What is gone is said to be.
    ///
    /// # Errors
    /// When the service does not answer.
    fn fetch(&self, net: Way<'_>, ids: &[String]) -> Result<Vec<Change>, SyncTrouble> {
        let _nobody_to_ask = (net, ids);
        Ok(Vec::new())
    }

    /// Whose account this is, by the service's own word; nothing where it does not say. One small request: it also
    /// shows whether the service is there and takes our credential.
    ///
    /// # Errors
    /// When the service does not answer or refuses us.
    fn account(&self, net: Way<'_>) -> Result<Option<String>, SyncTrouble> {
        let _nobody_to_ask = net;
        Ok(None)
    }
}

/// Carries writes out.
pub trait WriteExecutor {
    /// What it can be asked.
    fn manifest(&self) -> &Manifest;
    /// How a capability is carried out; nothing for reads and for what it does not offer.
    fn operation(&self, capability: &CapabilityName) -> Option<Operation<'_>>;
}

/// Takes writes back, where the service allows it.
pub trait RollbackCapable: WriteExecutor {
    /// How a capability is taken back; nothing for what cannot be.
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn Reversal>;
}

/// Everything a connected service is.
pub trait Adapter: SyncAdapter + RollbackCapable {}
impl<A: SyncAdapter + RollbackCapable> Adapter for A {}
