//! Leak scan: what must not leave.
//!
//! Takes `Judged`, gives `Cleared`. Any blocking match is a hard no without redaction; personal data of many
//! people asks a person. Promise: the record, the alert and the answer get pattern ids, lengths and hashes,
//! never the content.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use sluice_content::leak::{Finding, LiveSecrets, NoScanner, Part, Report, Scanner, Scope, Settings, Weight, parts_of};
use sluice_core::approval::allowance::Escalation;
use sluice_core::capability::Effect;
use sluice_core::policy::Origin;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::Traced;

use super::policy::Judged;
use crate::mounts;
use crate::services::Along;
use crate::{Gateway, No};

/// How the capabilities of security proxies begin.
const PROXY: &str = "proxy.";
/// Most findings that are recorded; more say nothing new.
const RECORDED: usize = 16;

/// Something that knows what must not leave.
pub trait Scan: Send + Sync {
    /// What is found in the parts of something that is about to go out.
    fn scan(&self, parts: &[Part<'_>], scope: Scope) -> Report;

    /// The vault has changed: from now on these secrets are looked for.
    fn now_live(&self, secrets: LiveSecrets);

    /// The secrets that are looked for now: what comes in must not hold them either.
    fn live(&self) -> Arc<LiveSecrets> {
        Arc::default()
    }

    /// The ids of the patterns found in a request as it would leave, before any credential is added to it.
    fn outgoing(&self, request: &Outgoing<'_>) -> Vec<String> {
        let body = String::from_utf8_lossy(request.body);
        let mut parts = vec![Part::new("url", request.url), Part::new("body", body)];
        parts.extend(request.headers.iter().map(|(name, value)| Part::new(name, value)));
        let report = self.scan(&parts, request.scope);
        let blocking = report.findings.iter().filter(|finding| finding.weight == Weight::Block);
        let mut ids: Vec<String> = blocking.map(|finding| finding.pattern.to_string()).collect();
        ids.dedup();
        ids
    }
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
    /// How strict: any personal data stops a proxy.
    pub scope: Scope,
}

impl std::fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl<T: Scan + ?Sized> Scan for Arc<T> {
    fn scan(&self, parts: &[Part<'_>], scope: Scope) -> Report {
        (**self).scan(parts, scope)
    }
    fn now_live(&self, secrets: LiveSecrets) {
        (**self).now_live(secrets);
    }
    fn live(&self) -> Arc<LiveSecrets> {
        (**self).live()
    }
    fn outgoing(&self, request: &Outgoing<'_>) -> Vec<String> {
        (**self).outgoing(request)
    }
}

/// Knows no patterns: for tests of everything else.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPatterns;

impl Scan for NoPatterns {
    fn scan(&self, _: &[Part<'_>], _: Scope) -> Report {
        Report::default()
    }
    fn now_live(&self, _: LiveSecrets) {}
}

/// The scanner of formats alone, without anything an operator set up: for files that are looked at by hand.
///
/// # Errors
/// Never in a build whose tests passed.
pub fn of_formats() -> Result<Patterns, NoScanner> {
    Patterns::new(&Settings::default())
}

/// The scanner that ships with the program, and the secrets of the vault.
#[derive(Debug)]
pub struct Patterns {
    scanner: Scanner,
    live: ArcSwap<LiveSecrets>,
}

impl Patterns {
    /// Prepares the search.
    ///
    /// # Errors
    /// When a pattern of the operator cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, NoScanner> {
        Ok(Self { scanner: Scanner::new(settings)?, live: ArcSwap::default() })
    }
}

impl Scan for Patterns {
    fn scan(&self, parts: &[Part<'_>], scope: Scope) -> Report {
        self.scanner.scan(parts, scope, &self.live.load())
    }

    fn now_live(&self, secrets: LiveSecrets) {
        self.live.store(secrets.into());
    }

    fn live(&self) -> Arc<LiveSecrets> {
        self.live.load_full()
    }
}

/// A call that carries nothing out that must stay.
#[derive(Debug)]
pub struct Cleared(Judged);

/// Scans what would leave. A read carries nothing out, unless a server of others answers it.
///
/// # Errors
/// When something is found.
pub(crate) fn scan(gw: &Gateway, mut judged: Judged) -> Result<Cleared, No> {
    if judged.checked().effect() == Effect::Write || mounts::is_mount(judged.checked().service()) {
        let arguments = Value::Object(judged.checked().action().arguments().clone());
        // What a spawn adds stays here, but a person who is asked is shown it.
        let spawn = judged.checked().action().spawn().map(|options| Value::Object(options.fields()));
        let along = along(gw, &judged)?;
        let mut parts = parts_of("", &arguments);
        parts.extend(spawn.iter().flat_map(|options| parts_of("spawn", options)));
        parts.extend(along.iter().map(|one| Part::new(one.field.as_str(), one.text.as_str())));
        // What a proxy sends goes to a stranger.
        let stranger = judged.checked().action().capability().as_str().starts_with(PROXY);
        let mut report = gw.scan.scan(&parts, if stranger { Scope::Proxy } else { Scope::Service });
        report.findings.retain(|finding| !is_users_own(finding, &parts, judged.targets()));
        if report.blocks() {
            return Err(refuse(&report));
        }
        if report.asks() {
            judged.escalate(Escalation::Findings);
        }
    }
    Ok(Cleared(judged))
}

/// What leaves beside the arguments: files, a message that is passed on.
fn along(gw: &Gateway, judged: &Judged) -> Result<Vec<Along>, No> {
    let checked = judged.checked();
    // A service that is not there lets nothing leave either.
    let Ok(service) = gw.services.for_service(checked.service()) else { return Ok(Vec::new()) };
    Ok(service.along(checked.action())?)
}

/// A password that is one only because its argument is called so, and that the user wrote into the task as it stands:
/// `change my password to …`. Formats of secrets, and secrets of the vault, block whoever wrote them. The argument is
/// that value and nothing else: an address somebody asked for does not carry out what stands beside it in a text.
fn is_users_own(finding: &Finding, parts: &[Part<'_>], targets: &[Traced]) -> bool {
    let whole = |value: &str| parts.iter().any(|part| part.is(&finding.field, value));
    finding.pattern == "generic.password"
        && targets
            .iter()
            .any(|target| target.origin == Origin::Asked && target.argument == finding.field && whole(&target.value))
}

/// Scans texts that go to people through a channel of others, such as the preview of a question in a chat.
///
/// # Errors
/// When something is found: then the text must be replaced by one that says where to look instead.
pub fn preview(gw: &Gateway, parts: &[Part<'_>]) -> Result<(), No> {
    let report = gw.scan.scan(parts, Scope::Service);
    if report.blocks() { Err(refuse(&report)) } else { Ok(()) }
}

/// The no, with what the record gets.
fn refuse(report: &Report) -> No {
    let blocking = || report.findings.iter().filter(|finding| finding.weight == Weight::Block).take(RECORDED);
    let mut ids: Vec<&str> = blocking().map(|finding| finding.pattern.as_str()).collect();
    ids.dedup();
    let fields: std::collections::BTreeSet<&str> = blocking().map(|finding| finding.field.as_str()).collect();
    let fields = fields.into_iter().collect::<Vec<_>>().join("`, `");
    let text = format!("the call holds something that must not leave: {} in `{fields}`", ids.join(", "));
    let findings: Vec<Value> = blocking()
        .map(|finding| {
            json!({
                "pattern": finding.pattern, "field": finding.field, "view": finding.view,
                "length": finding.length, "hash": finding.hash,
            })
        })
        .collect();
    tracing::warn!(findings = findings.len(), "a call was refused because of what it would have carried out");
    let mut no = No::from(Refusal::new(Code::LeakFound).with_text(&text));
    no.findings = Some(Box::new(Value::Array(findings)));
    no
}

impl Cleared {
    pub(crate) fn into_judged(self) -> Judged {
        self.0
    }
}
