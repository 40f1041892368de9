//! Leak scan: what must not leave.
//!
//! Takes `Judged`, gives `Cleared`. Any match is a hard no without redaction; the record gets pattern ids,
//! length and hash, never the content. Which patterns there are is the business of whoever implements
//! [`Scan`]; without one, nothing is found.

use sluice_core::Action;
use sluice_core::capability::Effect;
use sluice_core::refusal::{Code, Refusal};

use super::policy::Judged;
use crate::{Gateway, No};

/// Something that knows what must not leave.
pub trait Scan: Send + Sync {
    /// The ids of the patterns found in what an action would carry out.
    fn scan(&self, action: &Action) -> Vec<String>;

    /// The ids of the patterns found in a request as it would leave, before any credential is added to it.
    fn outgoing(&self, request: &Outgoing<'_>) -> Vec<String>;
}

/// A request as it would leave.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Where to, all of it.
    pub url: &'a str,
    /// Headers the caller wants.
    pub headers: &'a [(String, String)],
    /// What it carries.
    pub body: &'a [u8],
}

impl std::fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl<T: Scan + ?Sized> Scan for std::sync::Arc<T> {
    fn scan(&self, action: &Action) -> Vec<String> {
        (**self).scan(action)
    }
    fn outgoing(&self, request: &Outgoing<'_>) -> Vec<String> {
        (**self).outgoing(request)
    }
}

/// Knows no patterns.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPatterns;

impl Scan for NoPatterns {
    fn scan(&self, _: &Action) -> Vec<String> {
        Vec::new()
    }
    fn outgoing(&self, _: &Outgoing<'_>) -> Vec<String> {
        Vec::new()
    }
}

/// A call that carries nothing out that must stay.
#[derive(Debug)]
pub struct Cleared(Judged);

/// Scans what would leave. A read carries nothing out.
///
/// # Errors
/// When something is found.
pub(crate) fn scan(gw: &Gateway, judged: Judged) -> Result<Cleared, No> {
    if judged.checked().effect() == Effect::Write {
        let found = gw.scan.scan(judged.checked().action());
        if !found.is_empty() {
            let text = format!("the call holds something that must not leave ({})", found.join(", "));
            return Err(Refusal::new(Code::LeakFound).with_text(&text).into());
        }
    }
    Ok(Cleared(judged))
}

impl Cleared {
    pub(crate) fn into_judged(self) -> Judged {
        self.0
    }
}
