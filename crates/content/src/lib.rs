//! Turns raw bytes into clean content or a finding: six stages for incoming content, a leak scan for outgoing content.
//!
//! Takes bytes and a plan, gives clean text with its findings, or a refusal. Promise: pure, no clock, no network, no
//! files; the cost of any input is linear in its size.

pub mod finding;
pub mod leak;
pub mod media;
pub mod stages;

pub use finding::{Carrier, ContentError, ContentStage, ContentVerdict, Finding, TextRange};
pub use stages::{CleanContent, ContentLimits, RawContent, ScreeningPlan, clean};

/// Makes the regex engines query the number of processors now, which they do once per process. For a process that is
/// about to lock itself in and cannot query it later.
pub fn warm() {
    // The engine caches the answer; this query is cheaper than building a pattern, which would make it too.
    let _processors = regex_automata::meta::Config::new().get_pool_capacity();
}

/// Builds every pattern of the stages, which the first item would otherwise do. For a process that has nothing to read
/// yet, and whose forks read.
pub fn rehearse() {
    stages::injection::build();
    let plan = ScreeningPlan { place: stages::OutputContext::Text, ..ScreeningPlan::default() };
    // A second read is faster: the engines cache the states that they have visited.
    for (text, declared) in [
        ("<p>Tea at <b>four</b>.</p>", "text/html"),
        ("{\"tea\": \"at four\"}", "application/json"),
        ("Your assistant has put tea at four. Please reply to confirm, or let the AI find another time.", "text/plain"),
    ] {
        // The result does not matter.
        drop(clean(RawContent::new(text.as_bytes()).declared(declared), &plan));
    }
}
