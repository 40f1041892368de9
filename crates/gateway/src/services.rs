//! What stands behind the gate: one implementation per service.
//!
//! A service answers reads and carries out writes it is handed a permit for. It decides nothing: who may
//! ask and when a write leaves was settled before. Promise: `perform` and `undo` are the only ways to an
//! effect, and both consume a [`Permit`], which only an armed hold gives.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, CallId, Timestamp};

pub mod files;

/// Something a service does, as a future that can be stored.
pub type Work<'a, Out> = Pin<Box<dyn Future<Output = Out> + Send + 'a>>;

/// A read on its way to a service.
#[derive(Debug)]
pub struct Ask {
    /// The call.
    pub call: CallId,
    /// What is asked, by whom.
    pub action: Action,
    /// In which session.
    pub session: Option<SessionId>,
    /// When.
    pub now: Timestamp,
}

/// What was found before a write.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The service's inert handle, if it has one.
    pub handle: Option<String>,
    /// What is needed to go back, and a print of the object as it is now.
    pub before: Option<(Vec<u8>, Fingerprint)>,
}

/// A write that happened.
#[derive(Debug)]
pub struct Performed {
    /// The service's proof, short.
    pub receipt: String,
    /// What the agent is told.
    pub result: Value,
    /// A print of the object as the write left it, if it can be undone.
    pub after: Option<Fingerprint>,
    /// Until when the service itself can take it back, if that is not for ever.
    pub undo_until: Option<Timestamp>,
}

/// A write that did not happen, or may not have.
#[derive(Debug)]
pub enum Trouble {
    /// Provably nothing happened; worth another try.
    NotDone(Refusal),
    /// Provably nothing happened, and nothing will.
    Refused(Refusal),
    /// Something may have happened.
    Unclear,
}

/// What a look at the service showed about a write in doubt.
#[derive(Debug)]
pub enum Found {
    /// It happened.
    Applied(Performed),
    /// It did not.
    Absent,
    /// It cannot be told.
    Unknown,
}

/// A service behind the gate.
pub trait Service: Send + Sync {
    /// Answers a read.
    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>>;

    /// Looks before a write. Nothing may change yet.
    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>>;

    /// Carries a write out. `before` is what `prepare` found.
    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        before: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>>;

    /// Finds out whether a write in doubt happened.
    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> Work<'a, Found>;

    /// A print of the object a write changed, as it is now.
    fn present<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>>;

    /// Takes a write back. `done` is the write; the permit is that of the write that reverses it.
    fn undo<'a>(&'a self, permit: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>>;

    /// What was kept to go back is no longer needed.
    fn forget<'a>(&'a self, before: &'a [u8]) -> Work<'a, ()>;
}

impl Trouble {
    /// Refused for good, with the general words of a code.
    #[must_use]
    pub fn refused(code: Code) -> Self {
        Self::Refused(Refusal::new(code))
    }
}
