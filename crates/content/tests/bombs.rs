//! The bomb zoo (`bombs/zoo.rs`): inputs that cost more than their size suggests.
//!
//! Each passes through all six stages. Promise tested here: no panic, output bounded by the input, and processor time
//! that is bounded and grows no faster than the input.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test: what cannot be built should fail at that line"
)]

#[path = "bombs/zoo.rs"]
mod zoo;

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use sluice_content::stages::OutputContext;
use sluice_content::{RawContent, ScreeningPlan, clean};

use zoo::{ContentBomb, fill, plain, zoo};

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn run(bomb: &ContentBomb, place: OutputContext) -> (f64, usize) {
    let mut raw = RawContent::new(&bomb.bytes);
    if let Some(declared) = bomb.content_type {
        raw = raw.declared(declared);
    }
    if let Some(packing) = bomb.packed {
        raw = raw.packed(packing);
    }
    let before = now();
    let size = clean(raw, &ScreeningPlan { place, ..ScreeningPlan::default() }).map_or(0, |clean| clean.text().len());
    (now() - before, size)
}

#[test]
fn every_bomb_ends_soon_and_stays_small() {
    let bombs = zoo(512 << 10);
    assert!(bombs.len() >= 60, "{}", bombs.len());
    run(&plain("warm", "a"), OutputContext::Html);
    for bomb in bombs {
        for place in [OutputContext::Text, OutputContext::Html, OutputContext::Markdown] {
            let (seconds, size) = run(&bomb, place);
            assert!(seconds < 5.0, "`{}` took {seconds:.2} s of processor time", bomb.name);
            assert!(size <= bomb.bytes.len() * 12 + 4096, "`{}` grew from {} to {size}", bomb.name, bomb.bytes.len());
        }
    }
}

#[test]
fn twice_the_bomb_costs_about_twice_the_time() {
    run(&plain("warm", "a"), OutputContext::Text);
    for (small, large) in zoo(128 << 10).iter().zip(zoo(512 << 10)) {
        let (before, after) = (run(small, OutputContext::Text).0, run(&large, OutputContext::Text).0);
        // Four times the input; a quadratic cost would be sixteen times. The constant allows for the noise of a busy
        // machine.
        assert!(after <= before * 9.0 + 0.05, "`{}`: {before:.3} s became {after:.3} s", small.name);
    }
}

#[test]
fn ten_megabytes_of_marks_are_refused_or_read_within_the_limit() {
    for text in [fill("a\u{301}\u{301}\u{301}", 10 << 20), fill("a\u{301}\u{301}\u{301}", (8 << 20) - 64)] {
        let (seconds, _) = run(&plain("marks", text), OutputContext::Text);
        assert!(seconds < 5.0, "{seconds}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_a_stage_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..5) {
        let kind = ["text/html", "application/json", "message/rfc822", "text/plain; charset=utf-16", ""][kind as usize];
        let _ = clean(RawContent::new(&bytes).declared(kind), &ScreeningPlan::default());
    }

    #[test]
    fn no_text_makes_a_stage_panic(text in "\\PC{0,200}", kind in 0..3) {
        let kind = ["text/html", "message/rfc822", "text/plain"][kind as usize];
        for place in [OutputContext::Text, OutputContext::Html, OutputContext::Markdown, OutputContext::Json, OutputContext::Terminal] {
            let _ = clean(RawContent::new(text.as_bytes()).declared(kind), &ScreeningPlan { place, ..ScreeningPlan::default() });
        }
    }

    #[test]
    fn no_markup_makes_a_stage_panic(parts in proptest::collection::vec(0..MARKUP.len(), 0..60)) {
        let text: String = parts.into_iter().map(|at| MARKUP[at]).collect();
        let _ = clean(RawContent::new(text.as_bytes()).declared("text/html"), &ScreeningPlan { place: OutputContext::Html, ..ScreeningPlan::default() });
        let _ = clean(RawContent::new(text.as_bytes()), &ScreeningPlan::default());
    }
}

const MARKUP: [&str; 40] = [
    "<",
    ">",
    "</",
    "<!--",
    "-->",
    "<p",
    "<div ",
    "style=",
    "\"",
    "'",
    "display:none",
    ";",
    "&#x",
    "&#105;",
    "&amp",
    "\u{202e}",
    "\u{200b}",
    "\u{e0069}",
    "é",
    "中",
    "<script>",
    "</script>",
    "=",
    "/",
    " ",
    "\n",
    "class=a",
    "<style>.a{",
    "}",
    "\\u{",
    "%69",
    "aWdub3JlIGFsbA==",
    "<br/>",
    "<![CDATA[",
    "]]>",
    "<title>",
    "&",
    "x",
    "ignore",
    "[[",
];
