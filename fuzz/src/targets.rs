//! The fuzz targets: one for each stage, and one for each reader of untrusted bytes.
//!
//! Takes bytes, of which the first selects the declared type of the rest; gives the cost of the work, to a meter.
//! Promise: a target panics only if the code behind it broke a promise; the numbers beside its name say how much one
//! byte of input may cost. This file is also part of the worker's tests, which replay the stored inputs without a
//! fuzzer.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use sluice_content::leak::{self, LeakConfig, LeakScope, LiveSecrets, OutboundPart, Scanner};
use sluice_content::stages::{self, encoding, html, injection, output, schema, size};
use sluice_content::stages::{ContentLimits, OutputContext, ProvenanceEnvelope, SafeSchema};
use sluice_content::{RawContent, ScreeningPlan};
use sluice_core::approval::{mail, reply, reply_meaning};
use sluice_core::capability::Catalogue;
use sluice_core::policy::{self, Policy, PolicySource, PolicySources};
use sluice_core::{audit, json as strict, proxy};
use sluice_protocol::{MessageToGateway, MessageToWorker, WorkerFrameDecoder};

/// A fuzz target.
pub struct FuzzTarget {
    /// Its name on the command line and in the folder of inputs.
    pub name: &'static str,
    /// The cost that any input may have, in loads.
    pub base: u64,
    /// The additional cost for each byte.
    pub slope: u64,
    /// The work: the first byte, the rest, and the meter.
    pub work: fn(u8, &[u8], &mut CostMeter),
}

/// Counts the watched work.
pub struct CostMeter {
    now: fn() -> u64,
    /// Loads so far.
    pub spent: u64,
    /// The length that the cost is compared with.
    pub size: usize,
}

impl CostMeter {
    /// A meter that reads the count from this function.
    pub fn new(now: fn() -> u64) -> Self {
        Self { now, spent: 0, size: 0 }
    }

    /// Counts only the work in this closure.
    pub fn watch<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = (self.now)();
        let done = black_box(work());
        self.spent += (self.now)() - before;
        done
    }
}

impl FuzzTarget {
    /// Runs the target once.
    pub fn run(&self, data: &[u8], meter: &mut CostMeter) {
        let Some((first, body)) = data.split_first() else { return };
        meter.size = data.len();
        (self.work)(*first, body, meter);
    }

    /// The most that an input of this length may cost.
    pub fn allowance(&self, size: usize) -> u64 {
        self.base + self.slope * size as u64
    }
}

/// All targets. The two numbers are two to three times the cost of the most expensive stored input, with room for
/// content that is unpacked or built once; `docs/fuzzing.md` says how they are measured.
pub static TARGETS: [FuzzTarget; 16] = [
    FuzzTarget { name: "size", base: 3_000_000, slope: 100, work: size_stage },
    FuzzTarget { name: "encoding", base: 100_000, slope: 1_000, work: encoding_stage },
    FuzzTarget { name: "html", base: 200_000, slope: 300, work: html_stage },
    FuzzTarget { name: "injection", base: 1_000_000, slope: 1_500, work: injection_stage },
    FuzzTarget { name: "schema", base: 100_000, slope: 300, work: schema_stage },
    FuzzTarget { name: "compile", base: 4_000_000, slope: 20_000, work: schema_compile },
    FuzzTarget { name: "output", base: 50_000, slope: 100, work: output_stage },
    FuzzTarget { name: "inbound", base: 3_000_000, slope: 1_500, work: inbound },
    FuzzTarget { name: "outbound", base: 1_000_000, slope: 700, work: outbound },
    FuzzTarget { name: "outbound_json", base: 1_000_000, slope: 700, work: outbound_json },
    FuzzTarget { name: "frame", base: 100_000, slope: 100, work: frame },
    FuzzTarget { name: "json", base: 50_000, slope: 50, work: strict_json },
    FuzzTarget { name: "policy", base: 2_000_000, slope: 1_000, work: policy_yaml },
    FuzzTarget { name: "proxy", base: 500_000, slope: 400, work: proxy_yaml },
    FuzzTarget { name: "menu", base: 50_000, slope: 600, work: menu },
    FuzzTarget { name: "audit", base: 50_000, slope: 50, work: audit_files },
];

/// The type that the first byte gives to the rest.
const TYPES: [&str; 12] = [
    "",
    "text/plain",
    "text/html",
    "application/json",
    "message/rfc822",
    "text/html; charset=utf-16le",
    "text/plain; charset=iso-2022-jp",
    "text/plain; charset=gb18030",
    "text/plain; charset=windows-1252",
    "application/octet-stream",
    "text/csv",
    "text/plain; charset=utf-7",
];
const PLACES: [OutputContext; 5] =
    [OutputContext::Text, OutputContext::Markdown, OutputContext::Html, OutputContext::Json, OutputContext::Terminal];

/// Readable in seeds: a letter stands for the most common type.
fn declared(first: u8) -> &'static str {
    match first {
        b'p' => "text/plain",
        b'h' => "text/html",
        b'j' => "application/json",
        b'm' => "message/rfc822",
        other => TYPES[usize::from(other) % TYPES.len()],
    }
}

fn place(first: u8) -> OutputContext {
    PLACES[usize::from(first) / 3 % PLACES.len()]
}

/// Small enough that unpacked content is a constant, and not a second length.
static LIMITS: LazyLock<ContentLimits> =
    LazyLock::new(|| ContentLimits { inflated: 64 << 10, ..ContentLimits::default() });

fn raw<'a>(first: u8, body: &'a [u8]) -> RawContent<'a> {
    let raw = RawContent::new(body).declared(declared(first));
    match first {
        b'g' => raw.packed("gzip"),
        b'z' => raw.packed("deflate"),
        _ => raw,
    }
}

fn size_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    drop(meter.watch(|| size::bound(raw(first, body), &LIMITS).map(drop)));
}

fn encoding_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    if let Ok(bounded) = size::bound(raw(first, body), &LIMITS) {
        meter.watch(|| encoding::read(bounded));
    }
}

fn html_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    let kind = if first == b'p' { "text/plain" } else { "text/html" };
    if let Ok(bounded) = size::bound(RawContent::new(body).declared(kind), &LIMITS) {
        let text = encoding::read(bounded);
        meter.watch(|| html::defuse(text, place(first)));
    }
}

fn injection_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    if let Ok(bounded) = size::bound(raw(first, body), &LIMITS) {
        let defused = html::defuse(encoding::read(bounded), OutputContext::Text);
        meter.watch(|| injection::screen(defused));
    }
}

static SHAPE: LazyLock<Option<SafeSchema>> = LazyLock::new(|| {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": {"type": ["string", "number", "array", "object"]},
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#"}, "uniqueItems": true, "maxItems": 64},
            "b": {"type": "string", "pattern": "^(x+)+$", "minLength": 2},
            "c": {"oneOf": [{"type": "integer"}, {"multipleOf": 0.5}, {"$ref": "#"}]},
        },
    });
    SafeSchema::compile(&schema).ok()
});

fn schema_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    if let Ok(bounded) = size::bound(RawContent::new(body).declared("application/json"), &LIMITS) {
        // The detector is not measured here, and it is the most expensive part.
        let screened = injection::screen(html::defuse(encoding::read(bounded), OutputContext::Text));
        let shape = SHAPE.as_ref().filter(|_| first.is_multiple_of(2));
        drop(meter.watch(|| schema::shape(screened, shape, &LIMITS).map(drop)));
    }
}

/// An untrusted schema, and two short documents.
fn schema_compile(_: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(schema) = serde_json::from_slice::<Value>(body) else { return };
    if let Ok(schema) = meter.watch(|| SafeSchema::compile(&schema)) {
        meter.watch(|| (schema.allows(&json!({"a": [1, "x", {}]})), schema.allows(&json!(null))));
    }
}

fn envelope() -> ProvenanceEnvelope {
    ProvenanceEnvelope {
        source: "mail".into(),
        author: "a@b.test".into(),
        time: "2026-01-01T00:00:00Z".into(),
        seal: [7; 32],
    }
}

fn output_stage(first: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let Ok(bounded) = size::bound(RawContent::new(text.as_bytes()).declared("text/plain"), &LIMITS) else { return };
    let screened = injection::screen(html::defuse(encoding::read(bounded), place(first)));
    let Ok(shaped) = schema::shape(screened, None, &LIMITS) else { return };
    let clean = meter.watch(|| output::render(shaped, place(first), Some(&envelope())));
    sealed(clean.text());
}

/// Nothing inside can close the envelope or look like another one.
fn sealed(text: &str) {
    assert_eq!(text.matches("[[outside ").count(), 1, "one envelope opens");
    assert_eq!(text.matches("[[/outside ").count(), 1, "and closes");
}

fn inbound(first: u8, body: &[u8], meter: &mut CostMeter) {
    let plan = ScreeningPlan {
        limits: LIMITS.clone(),
        place: place(first),
        envelope: Some(envelope()),
        ..ScreeningPlan::default()
    };
    let Ok(clean) = meter.watch(|| stages::clean(raw(first, body), &plan)) else { return };
    sealed(clean.text());
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    assert!(!clean.text().contains(control), "no control character comes through");
    let reordering =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}');
    assert!(!clean.text().contains(reordering), "nothing that reorders or hides comes through");
    for finding in clean.findings() {
        assert!(finding.span.start <= finding.span.end && finding.score.is_finite(), "{finding:?}");
    }
}

static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let settings = LeakConfig {
        own: vec!["Wilhelmina Overbeck".into(), "+49 30 5550123".into()],
        terms: vec!["project halyard".into(), "/srv/halyard".into()],
        ..LeakConfig::default()
    };
    Scanner::new(&settings).unwrap_or_else(|error| panic!("{error}"))
});

fn outbound(first: u8, body: &[u8], meter: &mut CostMeter) {
    let text = String::from_utf8_lossy(body);
    let scope = if first.is_multiple_of(2) { LeakScope::Service } else { LeakScope::Proxy };
    let parts: Vec<OutboundPart<'_>> =
        text.split('\u{1}').enumerate().map(|(n, text)| OutboundPart::new(format!("part{n}"), text)).collect();
    let report = meter.watch(|| SCANNER.scan(&parts, scope, &LiveSecrets::default()));
    assert!(report.findings.iter().all(|finding| !finding.pattern.is_empty()));
}

fn outbound_json(first: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    let scope = if first.is_multiple_of(2) { LeakScope::Service } else { LeakScope::Proxy };
    meter.watch(|| SCANNER.scan(&leak::parts_of("", &value), scope, &LiveSecrets::default()));
}

/// The frames of a hostile worker, whole and in pieces: the result is the same.
fn frame(first: u8, body: &[u8], meter: &mut CostMeter) {
    let read = |step: usize| {
        let (mut decoder, mut frames, mut broken) = (WorkerFrameDecoder::default(), 0, false);
        for piece in body.chunks(step.max(1)) {
            decoder.feed(piece);
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => {
                        frames += 1;
                        black_box(MessageToGateway::decode(frame.clone()).is_ok());
                        black_box(MessageToWorker::decode(frame).is_ok());
                    }
                    Ok(None) => break,
                    Err(_) => {
                        broken = true;
                        break;
                    }
                }
            }
            if broken {
                break;
            }
        }
        (frames, broken)
    };
    let whole = meter.watch(|| read(body.len()));
    assert_eq!(whole, meter.watch(|| read(usize::from(first) + 64)), "in one piece and in many");
}

fn strict_json(_: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(value) = meter.watch(|| strict::parse(body, &strict::REQUEST)) else { return };
    let text = meter.watch(|| strict::to_canonical_bytes(&value));
    let again = strict::parse(&text, &strict::JsonLimits { bytes: usize::MAX, ..strict::REQUEST });
    assert_eq!(again.as_ref(), Ok(&value), "what is written is what was read");
    assert_eq!(strict::to_canonical_bytes(&value), text);
}

static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::builtin().unwrap_or_else(|error| panic!("{error}"))));

fn policy_yaml(_: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let source = PolicySource { name: "org.yaml".into(), text: text.to_owned() };
    let sources = PolicySources { org: Some(source), agents: Vec::new() };
    drop(meter.watch(|| Policy::load(&sources, &CATALOGUE).map(drop)));
    if let Ok(once) = policy::format("org.yaml", text) {
        let twice = policy::format("org.yaml", &once);
        assert_eq!(twice.ok().as_ref(), Some(&once), "what was put in order stays as it is");
    }
}

fn proxy_yaml(_: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    if let Ok(proxy) = meter.watch(|| proxy::Proxy::from_yaml(text)) {
        meter.watch(|| proxy.check("shop"));
    }
}

fn menu(first: u8, body: &[u8], meter: &mut CostMeter) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    if let Ok(reply) = meter.watch(|| reply::parse(text)) {
        assert!(text.trim().starts_with(reply.code()), "an answer is the digit that was sent");
    }
    let choices = ["tea".to_owned(), "coffee".to_owned()];
    for form in [
        reply_meaning::ExpectedReplyForm::Menu,
        reply_meaning::ExpectedReplyForm::Choice(&choices),
        reply_meaning::ExpectedReplyForm::Batch { items: u32::from(first) },
    ] {
        drop(meter.watch(|| reply_meaning::read(text, form)));
    }
    let read = meter.watch(|| mail::read_reply(text));
    assert!(read.words.len() <= text.len(), "nobody's words are added");
}

fn audit_files(first: u8, body: &[u8], meter: &mut CostMeter) {
    match first % 3 {
        0 => drop(meter.watch(|| audit::note::SignedNote::parse(body).map(drop))),
        1 => drop(meter.watch(|| audit::prove::AuditEntryProof::parse(body).map(drop))),
        _ => drop(meter.watch(|| audit::export::AuditExportHeader::parse(body).map(drop))),
    }
}
