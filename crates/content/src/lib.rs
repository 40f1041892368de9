//! Turns raw bytes into clean content or a finding: six stages for what comes in, a leak scan for what goes out.
//!
//! Takes bytes and a plan, gives clean text with what was found in it, or a refusal. Promise: pure,
//! no clock, no network, no files; the cost of any input is linear in its size.

pub mod finding;
pub mod leak;
pub mod stages;

pub use finding::{Carrier, Finding, Refused, Span, Stage, Verdict};
pub use stages::{Clean, Limits, Plan, Raw, clean};

/// Has the engines ask the system now what they ask it once in a life: how many processors there are. For a process
/// that is about to lock itself in and could not ask later.
pub fn warm() {
    // The engine remembers the answer; asking it alone is cheaper than building a pattern, which would ask too.
    let _processors = regex_automata::meta::Config::new().get_pool_capacity();
}

/// Builds every pattern the stages need, which is otherwise done by the first item. For a process that has nothing to
/// read yet, and of which those that read are copies.
pub fn rehearse() {
    stages::injection::build();
    let plan = Plan { place: stages::Place::Text, ..Plan::default() };
    // What is read once is quicker the next time: the engines remember the states they have been in.
    for (text, declared) in [
        ("<p>Tea at <b>four</b>.</p>", "text/html"),
        ("{\"tea\": \"at four\"}", "application/json"),
        ("Your assistant has put tea at four. Please reply to confirm, or let the AI find another time.", "text/plain"),
    ] {
        // What becomes of it does not matter.
        drop(clean(Raw::new(text.as_bytes()).declared(declared), &plan));
    }
}
