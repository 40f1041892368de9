//! Leak scanners: find content that must not leave.
//!
//! Takes the parts of a call or of a request that is about to leave; gives what was found in them. Promise: findings hold
//! pattern ids, lengths and hashes, never the content.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_content::leak::{
    LeakConfig, LeakReport, LeakScope, LeakWeight, LiveSecrets, OutboundPart, Scanner, ScannerError,
};

/// A scanner that knows what must not leave.
pub trait LeakScanner: Send + Sync {
    /// Scans the parts of something that is about to leave.
    fn scan(&self, parts: &[OutboundPart<'_>], scope: LeakScope) -> LeakReport;

    /// Replaces the secrets to look for, after the vault has changed.
    fn replace_live_secrets(&self, secrets: LiveSecrets);

    /// The secrets that are looked for now: incoming content must not hold them either.
    fn live_secrets(&self) -> Arc<LiveSecrets> {
        Arc::default()
    }

    /// The ids of the patterns found in an outgoing request, before any credential is added to it.
    fn blocking_pattern_ids(&self, request: &OutgoingRequest<'_>) -> Vec<String> {
        let body = String::from_utf8_lossy(request.body);
        let mut parts = vec![OutboundPart::new("url", request.url), OutboundPart::new("body", body)];
        parts.extend(request.headers.iter().map(|(name, value)| OutboundPart::new(name, value)));
        let report = self.scan(&parts, request.scope);
        let blocking = report.findings.iter().filter(|finding| finding.weight == LeakWeight::Block);
        let mut ids: Vec<String> = blocking.map(|finding| finding.pattern.to_string()).collect();
        ids.dedup();
        ids
    }
}

/// A request about to leave.
#[derive(Clone, Copy)]
pub struct OutgoingRequest<'a> {
    /// The complete URL.
    pub url: &'a str,
    /// The headers that the caller sets.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// The strictness: any personal data stops a proxy.
    pub scope: LeakScope,
}

impl std::fmt::Debug for OutgoingRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutgoingRequest").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl<T: LeakScanner + ?Sized> LeakScanner for Arc<T> {
    fn scan(&self, parts: &[OutboundPart<'_>], scope: LeakScope) -> LeakReport {
        (**self).scan(parts, scope)
    }
    fn replace_live_secrets(&self, secrets: LiveSecrets) {
        (**self).replace_live_secrets(secrets);
    }
    fn live_secrets(&self) -> Arc<LiveSecrets> {
        (**self).live_secrets()
    }
    fn blocking_pattern_ids(&self, request: &OutgoingRequest<'_>) -> Vec<String> {
        (**self).blocking_pattern_ids(request)
    }
}

/// A scanner without patterns, for tests of other parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmptyLeakScanner;

impl LeakScanner for EmptyLeakScanner {
    fn scan(&self, _: &[OutboundPart<'_>], _: LeakScope) -> LeakReport {
        LeakReport::default()
    }
    fn replace_live_secrets(&self, _: LiveSecrets) {}
}

/// A scanner with the built-in formats only, without the operator's settings: for files that are checked by hand.
///
/// # Errors
/// Never in a build that passed its tests.
pub fn of_formats() -> Result<PatternLeakScanner, ScannerError> {
    PatternLeakScanner::new(&LeakConfig::default())
}

/// The built-in scanner, with the secrets of the vault.
#[derive(Debug)]
pub struct PatternLeakScanner {
    scanner: Scanner,
    live: ArcSwap<LiveSecrets>,
}

impl PatternLeakScanner {
    /// Prepares the scanner.
    ///
    /// # Errors
    /// When a pattern of the operator cannot be used.
    pub fn new(settings: &LeakConfig) -> Result<Self, ScannerError> {
        Ok(Self { scanner: Scanner::new(settings)?, live: ArcSwap::default() })
    }
}

impl LeakScanner for PatternLeakScanner {
    fn scan(&self, parts: &[OutboundPart<'_>], scope: LeakScope) -> LeakReport {
        self.scanner.scan(parts, scope, &self.live.load())
    }

    fn replace_live_secrets(&self, secrets: LiveSecrets) {
        self.live.store(secrets.into());
    }

    fn live_secrets(&self) -> Arc<LiveSecrets> {
        self.live.load_full()
    }
}
