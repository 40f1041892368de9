//! The leak scan: a plain 10 KB mail without a match, compared with a set of regular expressions and with
//! detect-secrets.
//!
//! Promise: before anything is timed, each side has found the same made-up key, so that a silent no-op cannot win.

use std::hint::black_box;
use std::process::Command;

use anyhow::{Context as _, ensure};
use sluice_content::leak::{LeakConfig, LeakScope, LiveSecrets, OutboundPart, Scanner};

use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{MedianRange, RunTimes, median, timed_here};

const ROUNDS: usize = 9;
/// How often the mail is scanned in one round.
const PASSES: u64 = 400;
const SIZE: usize = 10 << 10;
/// Names the Python that has `detect-secrets` 1.5.
const PYTHON: &str = "SLUICE_BENCH_PYTHON";

/// Thirty patterns, as in a scanner that tries them all at once.
const PATTERNS: [&str; 30] = [
    r"\bAKIA[A-Z0-9]{16}\b",
    r"\bghp_[A-Za-z0-9]{36}\b",
    r"\bglpat-[\w-]{20}\b",
    r"\bxox[baprs]-[\w-]{10,}",
    r"\bsk_live_[A-Za-z0-9]{24,}\b",
    r"\bAIza[\w-]{35}\b",
    r"\bSG\.[\w-]{22}\.[\w-]{43}\b",
    r"\bnpm_[A-Za-z0-9]{36}\b",
    r"\bpypi-[\w-]{50,}",
    r"\bhf_[A-Za-z0-9]{34}\b",
    r"\bshpat_[0-9a-f]{32}\b",
    r"\bdop_v1_[0-9a-f]{64}\b",
    r"\bhvs\.[\w-]{24,}",
    r"\bdapi[0-9a-f]{32}\b",
    r"\blin_api_[A-Za-z0-9]{40}\b",
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}\b",
    r"\bsk-[A-Za-z0-9]{20,}\b",
    r"\bxai-[A-Za-z0-9]{20,}\b",
    r"\bBearer [\w.~+/=-]{16,}",
    r"://[^\s:@/]+:[^\s@/]+@",
    r"\b\d{17,19}\b",
    r"\+\d[\d ]{8,16}",
    r"\b[\w.+-]+@[\w.-]+\.[a-z]{2,}\b",
    r"/data/\.openclaw",
    r"memory/owner/",
    r"\bSOUL\.md\b",
    r"\bMEMORY\.md\b",
    r"\bopenclaw\.json\b",
    r"(?i)password\s*=\s*\S{6,}",
];

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let mail = mail();
    let scanner = Scanner::new(&LeakConfig::default())?;
    let none = LiveSecrets::default();
    let vault =
        LiveSecrets::new((0..50).map(|n| (format!("secret-{n}"), format!("Nobodys-{:x}-secret-{n}", n * 104_729))))?;
    // In its fastest form: on bytes like ours, without Unicode classes, and with room for its automaton.
    let set = regex::bytes::RegexSetBuilder::new(PATTERNS)
        .unicode(false)
        .size_limit(1 << 28)
        .dfa_size_limit(1 << 28)
        .build()?;
    let key = key();
    let planted = format!("{mail} {key}");
    let scan =
        |text: &str, live: &LiveSecrets| scanner.scan(&[OutboundPart::new("body", text)], LeakScope::Service, live);
    ensure!(scan(&planted, &none).blocks() && !scan(&mail, &vault).blocks(), "ours must find the key and nothing else");
    ensure!(
        set.is_match(planted.as_bytes()) && !set.is_match(mail.as_bytes()),
        "the set must find the key and nothing else"
    );
    let speed = |work: &dyn Fn()| -> anyhow::Result<RunTimes> {
        let (took, ()) = timed_here(PASSES * mail.len() as u64, || {
            (0..PASSES).for_each(|_| work());
            Ok(())
        })?;
        Ok(took)
    };
    let (mut ours, mut full, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        ours.push(speed(&|| drop(black_box(scan(&mail, &none))))?);
        full.push(speed(&|| drop(black_box(scan(&mail, &vault))))?);
        regexes.push(speed(&|| drop(black_box(set.matches(mail.as_bytes()))))?);
    }
    let rate = |side: &[RunTimes]| median(side.iter().skip(1).map(|took| 1_000.0 / took.cpu_nanos()).collect());
    let (ours, full, regexes) = (rate(&ours), rate(&full), rate(&regexes));
    let mut rows = vec![
        row("text without a match, MB/s on one core", ours, "300 MB/s", 300.0, ours, RatioTarget::AtLeast(300.0)),
        row("the same with 50 secrets in the vault, MB/s", full, "300 MB/s", 300.0, full, RatioTarget::None),
        row(
            "the same, times a set of 30 patterns",
            ours,
            "RegexSet",
            regexes.middle,
            over(ours, regexes.middle),
            RatioTarget::None,
        ),
    ];
    let mut notes = Vec::new();
    match peer(&mail, &planted) {
        Ok(theirs) => {
            let times = over(ours, theirs);
            rows.push(row(
                "the same, times detect-secrets",
                ours,
                "detect-secrets 1.5, 27 plugins",
                theirs,
                times,
                RatioTarget::AtLeast(5_000.0),
            ));
        }
        Err(error) => notes.push(format!("Without detect-secrets: {error}. Name a Python that has it in `{PYTHON}`.")),
    }
    let how = format!(
        "`Scanner::scan` on a plain mail of {} bytes, processor time, {ROUNDS} rounds.",
        figure(mail.len() as f64)
    );
    let [_, _, _, _, _, _, title, ..] = ORDER;
    Ok(ReportSection { name: "leak", title, how, rows, notes })
}

fn over(ours: MedianRange, theirs: f64) -> MedianRange {
    MedianRange { middle: ours.middle / theirs, low: ours.low / theirs, high: ours.high / theirs }
}

fn row(
    what: &str,
    ours: MedianRange,
    against: &str,
    floor: f64,
    ratio: MedianRange,
    target: RatioTarget,
) -> ReportLine {
    let ours = format!("{} MB/s", figure(ours.middle));
    ReportLine {
        what: what.into(),
        ours,
        against: against.into(),
        floor: format!("{} MB/s", figure(floor)),
        ratio,
        target,
    }
}

/// A made-up key, assembled here so that no scanner takes this file for a leak.
fn key() -> String {
    ["AK", "IA", "QX7ZJ3M5W2K9V4TB"].concat()
}

/// Words as people write them, without anything like a number or an address.
fn mail() -> String {
    const WORDS: [&str; 40] = [
        "the",
        "meeting",
        "about",
        "our",
        "garden",
        "was",
        "moved",
        "to",
        "Monday",
        "because",
        "nobody",
        "had",
        "time",
        "and",
        "we",
        "should",
        "bring",
        "the",
        "plans",
        "for",
        "spring",
        "with",
        "us",
        "please",
        "answer",
        "when",
        "you",
        "can",
        "so",
        "that",
        "everybody",
        "knows",
        "in",
        "advance",
        "what",
        "is",
        "needed",
        "from",
        "them",
        "thanks",
    ];
    let (mut text, mut state) = (String::from("Dear all,\n\n"), 7_usize);
    while text.len() < SIZE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 33) % WORDS.len()]);
        text.push_str(if state >> 60 == 0 { ".\n" } else { " " });
    }
    text
}

/// Megabytes per second that detect-secrets reads, line by line with all its plugins.
fn peer(mail: &str, planted: &str) -> anyhow::Result<f64> {
    const SCRIPT: &str = "
import sys, time
from detect_secrets.core.scan import scan_line
from detect_secrets.settings import default_settings
mail, planted = sys.stdin.read().split('\\0')
with default_settings():
    assert any(True for line in planted.splitlines() for _ in scan_line(line)), 'it must find the key'
    start = time.process_time()
    for line in mail.splitlines():
        for _ in scan_line(line): pass
    print((time.process_time() - start))
";
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
    let mut child = Command::new(&python)
        .args(["-c", SCRIPT])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .with_context(|| format!("`{python}` could not be started"))?;
    let input = format!("{mail}\0{planted}");
    std::io::Write::write_all(&mut child.stdin.take().context("no input")?, input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "`{python}` has no detect-secrets, or it found nothing");
    let seconds: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(mail.len() as f64 / seconds / 1e6)
}
