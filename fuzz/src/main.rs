//! One program for all targets: libFuzzer drives one of the targets.
//!
//! Takes the name of a target in `SLUICE_FUZZ` and libFuzzer's own arguments; gives its findings. Promise: an input
//! that panics, breaks a promise of a target, or costs more than a linear bound on its length is a finding, and so is
//! an input that does so only when it is repeated.
#![no_main]

mod cost;
#[cfg(feature = "mail")]
mod mails;
mod targets;

use std::sync::LazyLock;

use rustix::time::{clock_gettime, ClockId};
use targets::{CostMeter, FuzzTarget};

/// The size to which an input is repeated.
const STRETCHED: usize = 32 << 10;
/// Processor time of any run: for work that is not counted. The builds that count are several times slower than others.
const NANOS: u64 = 150_000_000;
const NANOS_PER_BYTE: u64 = 40_000;

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("SLUICE_FUZZ").unwrap_or_default();
    let target = all().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("SLUICE_FUZZ names no target: `{name}`"));
    // The first input builds the patterns; no input pays for that.
    target.run(b"p<b>x</b> {\"a\": 1}", &mut CostMeter::new(cost::loads));
    target
});

#[cfg(feature = "mail")]
fn all() -> impl Iterator<Item = &'static FuzzTarget> {
    targets::TARGETS.iter().chain(&mails::TARGETS)
}

#[cfg(not(feature = "mail"))]
fn all() -> impl Iterator<Item = &'static FuzzTarget> {
    targets::TARGETS.iter()
}

static ALOUD: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SLUICE_FUZZ_COSTS").is_some());

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = *TARGET;
    judge(target, data);
    // One in eight, and always the same one in eight.
    let sum = data.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    if sum % 8 == 0 || *ALOUD {
        for stretched in stretch(data) {
            judge(target, &stretched);
        }
    }
});

/// Repeats everything after the first byte, which selects the type; whole, and each of its two halves separately.
fn stretch(data: &[u8]) -> Vec<Vec<u8>> {
    let Some((first, body)) = data.split_first() else { return Vec::new() };
    let Some(times) = STRETCHED.checked_div(body.len()).filter(|times| *times > 1) else { return Vec::new() };
    let (front, back) = body.split_at(body.len() / 2);
    let whole = [&[*first], body.repeat(times).as_slice()].concat();
    let nested = [&[*first], front.repeat(times).as_slice(), back.repeat(times).as_slice()].concat();
    vec![whole, nested]
}

fn judge(target: &FuzzTarget, data: &[u8]) {
    let mut meter = CostMeter::new(cost::loads);
    let begun = cpu();
    target.run(data, &mut meter);
    let nanos = cpu() - begun;
    let allowed = target.allowance(meter.size);
    if meter.spent > allowed {
        // Patterns are built on first use. Work that is really expensive is expensive again.
        meter = CostMeter::new(cost::loads);
        target.run(data, &mut meter);
    }
    if *ALOUD {
        println!("cost {} {} {} {nanos}", target.name, meter.size, meter.spent);
    }
    assert!(meter.spent <= allowed, "COST: {} loads for {} bytes, at most {allowed}", meter.spent, meter.size);
    let patience = NANOS + NANOS_PER_BYTE * meter.size as u64;
    if nanos > patience {
        // Cache misses of other processes are not our finding: it must be slow three times.
        let again = (0..2).map(|_| {
            let begun = cpu();
            target.run(data, &mut CostMeter::new(cost::loads));
            cpu() - begun
        });
        let least = again.min().unwrap_or(nanos).min(nanos);
        assert!(least <= patience, "TIME: {least} ns for {} bytes, at most {patience}", meter.size);
    }
}

/// Processor time of this thread, in nanoseconds.
fn cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
